/*
 * tests/probes/calls.c - every call that the library intercepts, on a file that is none of its business
 *
 *     calls FILE
 *
 * Prints each call's result and errno.  With and without the library the output must be the same, and so must the system
 * calls between the markers, writes to descriptor -2, but for the fstat and the readlink by which the library learns
 * that the file is not mapped.
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

static char results[1 << 18];
static size_t results_bytes;

static void note(const char *what, long long result)
{
	int saved = errno;

	results_bytes += (size_t)snprintf(results + results_bytes, sizeof(results) - results_bytes, "%s: %lld %d\n",
	                                  what, result, result == -1 ? saved : 0);
	errno = 0;
}

/* An invalid call that a trace shows. */
static void marker(void)
{
	if (write(-2, "", 1) != -1)
		_exit(1);
	errno = 0;
}

static void try_flocks(int fd)
{
	static const int operations[] = {LOCK_SH, LOCK_EX, LOCK_EX | LOCK_NB, LOCK_UN, 0,  LOCK_SH | LOCK_EX,
	                                 64,      LOCK_NB, LOCK_UN | LOCK_NB, -1,      32, LOCK_MAND | LOCK_READ};

	for (size_t i = 0; i < sizeof(operations) / sizeof(*operations); i++)
		note("flock", flock(fd, operations[i]));
}

static void try_records(int fd)
{
	static const int commands[] = {F_SETLK, F_SETLKW, F_GETLK, F_OFD_SETLK, F_OFD_SETLKW, F_OFD_GETLK};
	static const struct flock ranges[] = {
		{.l_type = F_RDLCK, .l_whence = SEEK_SET},
		{.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 10, .l_len = 5},
		{.l_type = F_WRLCK, .l_whence = SEEK_CUR, .l_start = 3, .l_len = 5},
		{.l_type = F_WRLCK, .l_whence = SEEK_END, .l_start = 0, .l_len = 5},
		{.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 10, .l_len = -5},
		{.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 3, .l_len = -5},
		{.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = INT64_MAX, .l_len = 1},
		{.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = INT64_MAX, .l_len = 2},
		{.l_type = F_WRLCK, .l_whence = 9},
		{.l_type = 77, .l_whence = SEEK_SET},
		{.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_pid = 5},
		{.l_type = F_UNLCK, .l_whence = SEEK_SET},
	};
	struct flock range;

	for (size_t command = 0; command < sizeof(commands) / sizeof(*commands); command++) {
		for (size_t i = 0; i < sizeof(ranges) / sizeof(*ranges); i++) {
			range = ranges[i];
			note("record", fcntl(fd, commands[command], &range));
			note("type", range.l_type);
			note("start", range.l_start);
			note("len", range.l_len);
		}
		note("null", fcntl(fd, commands[command], NULL));
	}
}

static void try_others(int fd)
{
	int copy = fcntl(fd, F_DUPFD, 20), copy2 = fcntl(fd, F_DUPFD_CLOEXEC, 30);
	struct f_owner_ex owner = {F_OWNER_PID, 1};

	note("dupfd", copy);
	note("dupfd cloexec", copy2);
	note("getfd", fcntl(copy2, F_GETFD));
	note("setfd", fcntl(copy2, F_SETFD, 0));
	note("getfd", fcntl(copy2, F_GETFD));
	note("getfl", fcntl(fd, F_GETFL));
	note("setfl", fcntl(fd, F_SETFL, O_APPEND | O_NONBLOCK));
	note("getfl", fcntl(fd, F_GETFL));
	note("getown", fcntl(fd, F_GETOWN));
	note("getown ex", fcntl(fd, F_GETOWN_EX, &owner));
	note("getsig", fcntl(fd, F_GETSIG));
	note("getlease", fcntl(fd, F_GETLEASE));
	note("pipe size", fcntl(fd, F_GETPIPE_SZ));
	note("seals", fcntl(fd, F_GET_SEALS));
	note("no such", fcntl(fd, 12345, 6789L));
	for (int command = F_ULOCK; command <= F_TEST + 1; command++)
		note("lockf", lockf(fd, command, 7));
	note("lockf", lockf(fd, F_ULOCK, 0));
	close(copy);
	close(copy2);
}

int main(int argc, char **argv)
{
	int fds[6], pipes[2] = {-1, -1};

	if (argc != 2 || pipe(pipes) != 0)
		return 64;
	fds[0] = open(argv[1], O_RDWR | O_CREAT, 0666);
	fds[1] = open(argv[1], O_RDONLY);
	fds[2] = open(argv[1], O_PATH);
	fds[3] = open("/", O_RDONLY | O_DIRECTORY);
	fds[4] = pipes[0];
	fds[5] = 999;
	/* The very first lock call reads the configuration; that is not what is compared. */
	note("first", flock(fds[0], LOCK_UN | LOCK_NB));
	note("first", flock(fds[0], LOCK_SH));
	marker();
	for (size_t i = 0; i < sizeof(fds) / sizeof(*fds); i++) {
		/* The root directory belongs to all: lock commands of others may be met there. */
		if (i != 3)
			try_flocks(fds[i]);
		try_records(fds[i]);
		try_others(fds[i]);
	}
	marker();
	fputs(results, stdout);
	return 0;
}
