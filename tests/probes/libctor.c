/*
 * tests/probes/libctor.c - a library that locks before main and after it
 *
 * Preloaded beside libzkflock.so, in either order: its constructor may run before the other's, its destructor and its
 * atexit handler after it.
 *     CTOR_FILE      the constructor locks it by flock and by fcntl, and keeps both
 *     CTOR_EXIT      the destructor and the atexit handler lock, unlock and close it, by descriptor and by stream
 * A failure ends the program with 99.
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>

static void lock_both(const char *path)
{
	struct flock range = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	int fd = open(path, O_RDWR | O_CREAT, 0666);

	if (fd < 0 || flock(fd, LOCK_EX) != 0 || fcntl(fd, F_SETLK, &range) != 0)
		_exit(99);
}

static void use_and_close(void)
{
	const char *path = getenv("CTOR_EXIT");
	struct flock range = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	FILE *stream;
	int fd;

	if (!path)
		return;
	stream = fopen(path, "a+");
	fd = open(path, O_RDWR);
	if (!stream || fd < 0 || flock(fileno(stream), LOCK_EX) != 0 || fcntl(fd, F_SETLK, &range) != 0)
		_exit(99);
	range.l_type = F_UNLCK;
	if (fcntl(fd, F_SETLK, &range) != 0 || flock(fileno(stream), LOCK_UN) != 0 || lockf(fd, F_TLOCK, 0) != 0)
		_exit(99);
	if (fclose(stream) != 0 || close(fd) != 0)
		_exit(99);
}

__attribute__((constructor)) static void at_start(void)
{
	const char *path = getenv("CTOR_FILE");

	if (path)
		lock_both(path);
	if (getenv("CTOR_EXIT"))
		atexit(use_and_close);
}

__attribute__((destructor)) static void at_end(void)
{
	use_and_close();
}
