/*
 * tests/probes/libgate.c - a keeper that stands still where a test wants it to
 *
 * ZKF_GATES names a directory.  While it has a file "request", no request is read; while it has a file "trial", a trial lock
 * that was had is kept, and "taken" is made to say so.  Neither for longer than 5 s.  While it has a file "hang", the next
 * trial lock hangs, for a minute.
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static bool is_shut(const char *gate)
{
	const char *directory = getenv("ZKF_GATES");
	char path[512];

	snprintf(path, sizeof(path), "%s/%s", directory ? directory : "/nonexistent", gate);
	return access(path, F_OK) == 0;
}

static void pass(const char *gate, int patience_s)
{
	for (int i = 0; i < patience_s * 500 && is_shut(gate); i++)
		usleep(2000);
}

ssize_t recvmsg(int fd, struct msghdr *message, int flags)
{
	pass("request", 5);
	return syscall(SYS_recvmsg, fd, message, flags);
}

int flock(int fd, int operation)
{
	int result = (int)syscall(SYS_flock, fd, operation);
	char path[512];

	if (operation == (LOCK_EX | LOCK_NB))
		pass("hang", 60);
	if (result || operation != (LOCK_EX | LOCK_NB) || !is_shut("trial"))
		return result;
	snprintf(path, sizeof(path), "%s/taken", getenv("ZKF_GATES"));
	close(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
	pass("trial", 5);
	errno = 0;
	return result;
}
