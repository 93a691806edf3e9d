/*
 * keeper/origin.c - see origin.h
 * SPDX-License-Identifier: Apache-2.0
 */
#include "origin.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/nsfs.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "fault.h"
#include "file.h"
#include "users.h"

/* The loop's: our mount namespace, as it was when the kernel said last that it has changed. */
static int own_list = -1;
static int *own_mounts;
static size_t own_count;

static int by_number(const void *a, const void *b)
{
	return *(const int *)a < *(const int *)b ? -1 : *(const int *)a > *(const int *)b;
}

/* The mounts of a mountinfo, each line's first number; NULL with *count 0 when memory is out. */
static int *mounts_read(FILE *in, size_t *count)
{
	int *mounts = NULL, mount;
	size_t capacity = 0, line_bytes = 0;
	char *line = NULL;

	*count = 0;
	while (getline(&line, &line_bytes, in) > 0) {
		if (sscanf(line, "%d ", &mount) != 1)
			continue;
		if (*count == capacity) {
			int *more = zkf_reallocarray(mounts, capacity = capacity ? 2 * capacity : 64, sizeof(*more));

			if (!more)
				break; /* an unknown mount is not trusted */
			mounts = more;
		}
		mounts[(*count)++] = mount;
	}
	free(line);
	if (mounts)
		qsort(mounts, *count, sizeof(*mounts), by_number);
	return mounts;
}

/* A mount's number is used again by whoever mounts next: what was read before a change counts no more. */
static bool own_changed(void)
{
	struct pollfd change = {.fd = own_list, .events = POLLPRI};

	return own_list < 0 || poll(&change, 1, 0) != 0;
}

static void own_refresh(void)
{
	int fd;
	FILE *in;

	if (own_list < 0)
		own_list = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
	free(own_mounts);
	own_mounts = NULL;
	own_count = 0;
	fd = own_list < 0 ? -1 : fcntl(own_list, F_DUPFD_CLOEXEC, 0);
	in = fd < 0 ? NULL : fdopen(fd, "r");
	if (!in)
		return;
	rewind(in);
	own_mounts = mounts_read(in, &own_count);
	fclose(in);
}

static bool own_has(int mount)
{
	if (own_changed())
		own_refresh();
	return own_mounts && bsearch(&mount, own_mounts, own_count, sizeof(mount), by_number);
}

static bool process_has(pid_t pid, int mount)
{
	char path[40];
	int *mounts;
	size_t count;
	bool has;
	FILE *in;

	snprintf(path, sizeof(path), "/proc/%d/mountinfo", (int)pid);
	in = fopen(path, "re");
	if (!in)
		return false;
	mounts = mounts_read(in, &count);
	has = mounts && bsearch(&mount, mounts, count, sizeof(mount), by_number);
	free(mounts);
	fclose(in);
	return has;
}

/* Was the process's mount namespace made with powers over our user namespace, and not just over one of its own? */
static bool made_by_administrator(pid_t pid)
{
	struct stat ours, theirs;
	char path[40];
	int space, owner = -1;
	bool same;

	snprintf(path, sizeof(path), "/proc/%d/ns/mnt", (int)pid);
	space = open(path, O_RDONLY | O_CLOEXEC);
	if (space >= 0)
		owner = ioctl(space, NS_GET_USERNS);
	same = owner >= 0 && !fstat(owner, &theirs) && !stat("/proc/self/ns/user", &ours) &&
	       ours.st_dev == theirs.st_dev && ours.st_ino == theirs.st_ino;
	if (owner >= 0)
		close(owner);
	if (space >= 0)
		close(space);
	return same;
}

/* -1: a kernel before 5.8, or memory of the kernel's that is mounted nowhere. */
static int mount_of(int fd)
{
	struct statx status;

	if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_INO | STATX_MNT_ID, &status) ||
	    !(status.stx_mask & STATX_MNT_ID))
		return -1;
	return (int)status.stx_mnt_id;
}

bool zkf_origin_trusted(int fd, const struct stat *status, const char *path, const struct ucred *peer)
{
	uint64_t dev, ino;
	int mount;

	if (zkf_users_own(peer->uid))
		return true;
	mount = mount_of(fd);
	if (mount >= 0 && (own_has(mount) || (process_has(peer->pid, mount) && made_by_administrator(peer->pid))))
		return true;
	return !zkf_file_identity(AT_FDCWD, path, &dev, &ino) && dev == status->st_dev && ino == status->st_ino;
}
