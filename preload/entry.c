/*
 * preload/entry.c - the five symbols that a program finds in the place of libc's
 *
 * Answers for: C's conventions outside (-1 and errno, success leaves errno as it was) over those inside
 *              (negative errno).
 * Does not:    anything before the first call: there is no constructor, since another library's may call us earlier.
 * Threads:     any thread, any signal handler, a vfork child.
 * Specification: flock(2), fcntl(2), lockf(3).  A program built with _FILE_OFFSET_BITS=64 imports fcntl64 and
 *              lockf64, on 64-bit machines too; and libc's lockf does not come by a fcntl of ours.  This file must never be
 *              compiled with that option itself: libc's headers would rename what it defines.
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/file.h>
#include <unistd.h>

#include "flock_path.h"
#include "real.h"
#include "record_path.h"

#if defined(_FILE_OFFSET_BITS) && _FILE_OFFSET_BITS == 64
#error "never with _FILE_OFFSET_BITS=64"
#endif

#define ZKF_EXPORT __attribute__((visibility("default")))

/* Turn a result from inside into one for the program. */
static int finish(int result, int errno_before)
{
	errno = result < 0 ? -result : errno_before;
	return result < 0 ? -1 : 0;
}

static int any_fcntl(int fd, int cmd, void *arg, bool wide)
{
	int errno_before = errno;

	if (!zkf_record_is_command(cmd))
		return zkf_real_other(fd, cmd, arg);
	return finish(zkf_record_fcntl(fd, cmd, arg, wide), errno_before);
}

ZKF_EXPORT int flock(int fd, int op)
{
	int errno_before = errno;

	return finish(zkf_flock(fd, op), errno_before);
}

/* A caller without a third argument leaves what happens to be there; libc takes it in the same way. */
ZKF_EXPORT int fcntl(int fd, int cmd, ...)
{
	va_list ap;
	void *arg;

	va_start(ap, cmd);
	arg = va_arg(ap, void *);
	va_end(ap);
	return any_fcntl(fd, cmd, arg, sizeof(off_t) == sizeof(off64_t));
}

ZKF_EXPORT int fcntl64(int fd, int cmd, ...)
{
	va_list ap;
	void *arg;

	va_start(ap, cmd);
	arg = va_arg(ap, void *);
	va_end(ap);
	return any_fcntl(fd, cmd, arg, true);
}

ZKF_EXPORT int lockf(int fd, int op, off_t len)
{
	int errno_before = errno;

	return finish(zkf_record_lockf(fd, op, len), errno_before);
}

ZKF_EXPORT int lockf64(int fd, int op, off64_t len)
{
	int errno_before = errno;

	return finish(zkf_record_lockf(fd, op, len), errno_before);
}
