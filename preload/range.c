/*
 * preload/range.c - a program's struct flock -> the bytes it means; see range.h
 *
 * Answers for: see range.h.
 * Does not:    see range.h.
 * Threads:     see range.h.
 * Specification: see range.h.
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include "range.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "keeper/wire.h"

size_t zkf_record_bytes(bool wide)
{
	return wide ? sizeof(struct flock64) : sizeof(struct flock);
}

void zkf_record_load(struct zkf_record *record, const void *arg, bool wide)
{
	if (wide) {
		const struct flock64 *from = arg;

		*record = (struct zkf_record){from->l_type, from->l_whence, from->l_start, from->l_len, from->l_pid};
	} else {
		const struct flock *from = arg;

		*record = (struct zkf_record){from->l_type, from->l_whence, from->l_start, from->l_len, from->l_pid};
	}
}

int zkf_record_store(const struct zkf_record *record, void *arg, bool wide)
{
	if (wide) {
		struct flock64 *to = arg;

		to->l_type = record->type;
		to->l_whence = record->whence;
		to->l_start = record->start;
		to->l_len = record->len;
		to->l_pid = record->pid;
	} else {
		struct flock *to = arg;
		off_t start = (off_t)record->start, len = (off_t)record->len;

		if (start != record->start || len != record->len)
			return -EOVERFLOW;
		to->l_type = record->type;
		to->l_whence = record->whence;
		to->l_start = start;
		to->l_len = len;
		to->l_pid = record->pid;
	}
	return 0;
}

static int base_offset(int fd, short whence, int64_t *base)
{
	struct stat64 st;

	switch (whence) {
	case SEEK_SET:
		*base = 0;
		return 0;
	case SEEK_CUR:
		*base = lseek64(fd, 0, SEEK_CUR);
		return *base < 0 ? -errno : 0;
	case SEEK_END:
		if (fstat64(fd, &st))
			return -errno;
		*base = st.st_size;
		return 0;
	default:
		return -EINVAL;
	}
}

int zkf_range_resolve(int fd, const struct zkf_record *record, int64_t *start, int64_t *end)
{
	int64_t base = 0;
	int result = base_offset(fd, record->whence, &base);

	if (result)
		return result;
	if (record->start > ZKF_RANGE_MAX - base)
		return -EOVERFLOW;
	base += record->start;
	if (base < 0)
		return -EINVAL;
	*start = base;
	*end = ZKF_RANGE_MAX;
	if (record->len > 0) {
		if (record->len - 1 > ZKF_RANGE_MAX - base)
			return -EOVERFLOW;
		*end = base + (record->len - 1);
	} else if (record->len < 0) {
		/* POSIX.1-2001: the bytes before l_start. */
		if (base + record->len < 0)
			return -EINVAL;
		*end = base - 1;
		*start = base + record->len;
	}
	return 0;
}

struct flock64 zkf_range_flock(int64_t start, int64_t end, short type)
{
	return (struct flock64){
		.l_type = type,
		.l_whence = SEEK_SET,
		.l_start = start,
		.l_len = end == ZKF_RANGE_MAX ? 0 : end - start + 1,
	};
}
