/*
 * tests/probes/lock.c - take one lock as an ordinary program would, and say what came of it
 *
 *     lock [-k flock|posix|ofd|lockf] [-m sh|ex] [-r START,LEN] [-w] [-h] FILE
 *
 *     -k  by which call                         (flock)
 *     -m  shared or exclusive                   (exclusive)
 *     -r  bytes, for all but flock              (the whole file)
 *     -w  wait for it, instead of trying once
 *     -h  hold it until killed, instead of leaving at once
 *
 * Prints "granted", "busy" (EAGAIN or EACCES) or the errno's name, one line, flushed.  Exit status 0, 1, 2 in that order.
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#ifndef __GLIBC__
/* musl has no names for them; these are the ones that a lock gives. */
static const char *strerrorname_np(int error)
{
	return error == ENOLCK ? "ENOLCK" : error == EDEADLK ? "EDEADLK" : error == EBADF ? "EBADF" : strerror(error);
}
#endif

static int lock_record(int fd, int cmd, bool exclusive, off_t start, off_t len)
{
	struct flock range = {
		.l_type = exclusive ? F_WRLCK : F_RDLCK, .l_whence = SEEK_SET, .l_start = start, .l_len = len};

	return fcntl(fd, cmd, &range);
}

static int lock_lockf(int fd, bool wait, off_t start, off_t len)
{
	if (lseek(fd, start, SEEK_SET) < 0)
		return -1;
	return lockf(fd, wait ? F_LOCK : F_TLOCK, len);
}

int main(int argc, char **argv)
{
	const char *kind = "flock";
	bool exclusive = true, wait = false, hold = false;
	long long start = 0, len = 0;
	int option, fd, result;

	while ((option = getopt(argc, argv, "k:m:r:wh")) != -1) {
		if (option == 'k')
			kind = optarg;
		else if (option == 'm')
			exclusive = strcmp(optarg, "sh") != 0;
		else if (option == 'r' && sscanf(optarg, "%lld,%lld", &start, &len) == 2)
			continue;
		else if (option == 'w')
			wait = true;
		else if (option == 'h')
			hold = true;
		else
			return 64;
	}
	if (optind != argc - 1)
		return 64;
	fd = open(argv[optind], O_RDWR | O_CREAT, 0666);
	if (fd < 0) {
		perror(argv[optind]);
		return 65;
	}
	if (strcmp(kind, "flock") == 0)
		result = flock(fd, (exclusive ? LOCK_EX : LOCK_SH) | (wait ? 0 : LOCK_NB));
	else if (strcmp(kind, "posix") == 0)
		result = lock_record(fd, wait ? F_SETLKW : F_SETLK, exclusive, start, len);
	else if (strcmp(kind, "ofd") == 0)
		result = lock_record(fd, wait ? F_OFD_SETLKW : F_OFD_SETLK, exclusive, start, len);
	else if (strcmp(kind, "lockf") == 0)
		result = lock_lockf(fd, wait, start, len);
	else
		return 64;

	if (result != 0 && (errno == EAGAIN || errno == EACCES)) {
		puts("busy");
		return 1;
	}
	if (result != 0) {
		if (strerrorname_np(errno))
			puts(strerrorname_np(errno));
		else
			printf("%d\n", errno); /* 524, which has no name */
		return 2;
	}
	puts("granted");
	fflush(stdout);
	while (hold)
		pause();
	return 0;
}
