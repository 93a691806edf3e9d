/*
 * preload/holdings.c - what an owner holds of a file before a lock call; see holdings.h
 *
 * Answers for: see holdings.h.
 * Does not:    see holdings.h.
 * Threads:     see holdings.h.
 * Specification: see holdings.h.
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include "holdings.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "range.h"
#include "real.h"

/* The calling thread's own table of descriptors: a thread may have unshared it. */
#define DESCRIPTORS "/proc/thread-self/fd"
#define DESCRIPTOR_INFO "/proc/thread-self/fdinfo/"

/* Longer than any "lock:" line; a longer line of another kind is skipped. */
#define LINE_BYTES 160

struct wanted {
	const char *type; /* "POSIX", "OFDLCK", "FLOCK" */
	int64_t start, end;
};

/* The next word of a line, or NULL; *at goes behind it. */
static char *next_word(char **at)
{
	char *word = *at + strspn(*at, " \t");
	size_t length = strcspn(word, " \t");

	if (!length)
		return NULL;
	*at = word + length + (word[length] != '\0');
	word[length] = '\0';
	return word;
}

static int64_t number_of(const char *digits)
{
	int64_t number = 0;

	if (!strcmp(digits, "EOF"))
		return ZKF_RANGE_MAX;
	while (*digits >= '0' && *digits <= '9' && number <= (INT64_MAX - (*digits - '0')) / 10)
		number = number * 10 + (*digits++ - '0'); /* else the sum could overflow in between */
	return number;
}

/* "lock:\t1: POSIX  ADVISORY  WRITE 4711 fe:01:1234 0 EOF".  0, or -E2BIG: there are more than fit. */
static int add_line(struct zkf_holdings *holdings, const struct wanted *wanted, char *line)
{
	char *words[9];
	struct zkf_holding found;
	int i;

	if (strncmp(line, "lock:", 5) != 0)
		return 0;
	for (i = 0; i < 9; i++) {
		words[i] = next_word(&line);
		if (!words[i])
			return 0;
	}
	if (strcmp(words[2], wanted->type) != 0)
		return 0;
	found.mode = strcmp(words[4], "WRITE") ? ZKF_SHARED : ZKF_EXCLUSIVE;
	found.start = number_of(words[7]);
	found.end = number_of(words[8]);
	if (found.start > wanted->end || found.end < wanted->start)
		return 0;
	if (holdings->count == ZKF_HOLDINGS_MAX)
		return -E2BIG;
	holdings->items[holdings->count++] = found;
	return 0;
}

static int read_lines(struct zkf_holdings *holdings, const struct wanted *wanted, int info)
{
	char line[LINE_BYTES], chunk[256];
	size_t length = 0;
	ssize_t got;

	while ((got = zkf_real_read(info, chunk, sizeof(chunk))) > 0 || got == -EINTR) {
		for (ssize_t i = 0; i < got; i++) {
			if (chunk[i] != '\n') {
				if (length < sizeof(line) - 1)
					line[length++] = chunk[i];
				continue;
			}
			line[length] = '\0';
			length = 0;
			if (add_line(holdings, wanted, line))
				return -E2BIG;
		}
	}
	return (int)got;
}

static int read_descriptor(struct zkf_holdings *holdings, const struct wanted *wanted, const char *number)
{
	char path[sizeof(DESCRIPTOR_INFO) + 12];
	int info, result;

	if (strlen(number) > 10)
		return -EINVAL;
	strcpy(stpcpy(path, DESCRIPTOR_INFO), number);
	info = zkf_real_open(path, O_RDONLY);
	if (info < 0)
		return info;
	result = read_lines(holdings, wanted, info);
	zkf_real_close(info);
	return result;
}

static int read_own_descriptor(struct zkf_holdings *holdings, const struct wanted *wanted, int fd)
{
	char digits[12], *at = digits + sizeof(digits) - 1;

	*at = '\0';
	do
		*--at = (char)('0' + fd % 10);
	while ((fd /= 10) > 0);
	return read_descriptor(holdings, wanted, at);
}

struct linux_dirent64 {
	uint64_t d_ino;
	int64_t d_off;
	unsigned short d_reclen;
	unsigned char d_type;
	char d_name[];
};

static bool is_file(int directory, const char *name, uint64_t dev, uint64_t ino)
{
	struct statx status;

	/* A magic link: the file behind it, even if it has no name any more.  No server of a file system is asked. */
	return !statx(directory, name, AT_STATX_DONT_SYNC, STATX_INO, &status) && status.stx_ino == ino &&
	       makedev(status.stx_dev_major, status.stx_dev_minor) == dev;
}

/* The process's locks are listed with the descriptor that each was set through. */
static int read_all_descriptors(struct zkf_holdings *holdings, const struct wanted *wanted, uint64_t dev, uint64_t ino)
{
	_Alignas(struct linux_dirent64) char entries[1024];
	int result = 0, directory = zkf_real_open(DESCRIPTORS, O_RDONLY | O_DIRECTORY);
	long bytes;

	if (directory < 0)
		return directory;
	while (!result && (bytes = syscall(SYS_getdents64, directory, entries, sizeof(entries))) != 0) {
		if (bytes < 0) {
			result = -errno;
			break;
		}
		for (long at = 0; at < bytes && !result;) {
			const struct linux_dirent64 *entry = (const void *)(entries + at);

			at += entry->d_reclen;
			if (entry->d_name[0] == '.' || !is_file(directory, entry->d_name, dev, ino))
				continue;
			result = read_descriptor(holdings, wanted, entry->d_name);
			if (result == -ENOENT)
				result = 0; /* another thread has closed it */
		}
	}
	zkf_real_close(directory);
	return result;
}

/* Records of the process are in the way of a description, and those of a description in the way of the process. */
bool zkf_holdings_nobody(int fd, bool ofd, int64_t start, int64_t end)
{
	struct flock64 probe = zkf_range_flock(start, end, F_WRLCK);

	return !zkf_real_fcntl(fd, ofd ? F_GETLK64 : F_OFD_GETLK, (long)&probe) && probe.l_type == F_UNLCK;
}

void zkf_holdings_read(struct zkf_holdings *holdings, int fd, uint64_t dev, uint64_t ino, enum zkf_kind kind, bool ofd,
                       int64_t start, int64_t end)
{
	struct wanted wanted = {
		.type = kind == ZKF_FLOCK ? "FLOCK"
	              : ofd               ? "OFDLCK"
	                                  : "POSIX",
		.start = start,
		.end = end,
	};

	holdings->count = 0;
	holdings->known = true;
	if (kind == ZKF_RECORD && zkf_holdings_nobody(fd, ofd, start, end))
		return;
	if (kind == ZKF_FLOCK || ofd)
		holdings->known = !read_own_descriptor(holdings, &wanted, fd);
	else
		holdings->known = !read_all_descriptors(holdings, &wanted, dev, ino);
}

static void set_record(int fd, bool ofd, short type, int64_t start, int64_t end)
{
	struct flock64 range = zkf_range_flock(start, end, type);

	zkf_real_fcntl(fd, ofd ? F_OFD_SETLK : F_SETLK64, (long)&range);
}

static void sort(struct zkf_holdings *holdings)
{
	for (int i = 1; i < holdings->count; i++) {
		struct zkf_holding moved = holdings->items[i];
		int at = i;

		for (; at > 0 && holdings->items[at - 1].start > moved.start; at--)
			holdings->items[at] = holdings->items[at - 1];
		holdings->items[at] = moved;
	}
}

/* Only unlocks and downgrades, which never wait and are never refused. */
static void restore_records(struct zkf_holdings *holdings, int fd, bool ofd, enum zkf_mode mode, int64_t start,
                            int64_t end)
{
	int64_t next = start;

	sort(holdings);
	for (int i = 0; i < holdings->count; i++) {
		const struct zkf_holding *item = &holdings->items[i];
		int64_t first = item->start > start ? item->start : start, last = item->end < end ? item->end : end;

		if (first > next)
			set_record(fd, ofd, F_UNLCK, next, first - 1);
		if (item->mode < mode)
			set_record(fd, ofd, F_RDLCK, first, last);
		if (last == end)
			return;
		next = last + 1;
	}
	set_record(fd, ofd, F_UNLCK, next, end);
}

void zkf_holdings_restore(struct zkf_holdings *holdings, int fd, enum zkf_kind kind, bool ofd, enum zkf_mode mode,
                          int64_t start, int64_t end)
{
	if (!holdings->known)
		holdings->count = 0;
	if (kind == ZKF_RECORD)
		restore_records(holdings, fd, ofd, mode, start, end);
	else if (!holdings->count || holdings->items[0].mode < mode) /* flock(2): a conversion loses the old lock */
		zkf_real_flock(fd, LOCK_UN);
}
