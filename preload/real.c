/*
 * preload/real.c - the kernel's calls; see real.h
 *
 * Answers for: see real.h.
 * Does not:    use a libc wrapper that is a cancellation point, or a symbol that this library exports itself.
 * Threads:     any thread, any signal handler, a vfork child; no state.
 * Specification: see real.h.
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include "real.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S 1000000000

/* i386 and its like: SYS_fcntl knows 32-bit offsets only. */
#ifdef SYS_fcntl64
#define ZKF_SYS_FCNTL SYS_fcntl64
#else
#define ZKF_SYS_FCNTL SYS_fcntl
#endif

static long negative_errno(long result)
{
	return result == -1 ? -errno : result;
}

#ifdef __GLIBC__
/*
 * libc's fcntl under the name that we do not interpose.  It is needed because the wrapper does more than the system
 * call: F_GETOWN by way of F_GETOWN_EX, and the cancellation point of F_SETLKW.
 */
extern int __fcntl(int fd, int cmd, ...);
#else
/* musl's has no other name; this is what it does. */
static int __fcntl(int fd, int cmd, void *arg)
{
	struct f_owner_ex owner;
	struct zkf_wait wait = {
		.number = ZKF_SYS_FCNTL, .args = {fd, cmd, (long)arg}, .conversation = -1, .cancellable = true};
	long result;

	if (cmd == F_SETFL)
		wait.args[2] |= O_LARGEFILE;
	if (cmd == F_GETOWN && !syscall(ZKF_SYS_FCNTL, fd, F_GETOWN_EX, &owner))
		return owner.type == F_OWNER_PGRP ? -owner.pid : owner.pid;
	if (cmd != F_SETLKW)
		return (int)syscall(ZKF_SYS_FCNTL, wait.args[0], wait.args[1], wait.args[2]);
	result = zkf_real_wait(&wait);
	if (result >= 0)
		return (int)result;
	errno = (int)-result;
	return -1;
}
#endif

int zkf_real_flock(int fd, int op)
{
	return (int)negative_errno(syscall(SYS_flock, fd, op));
}

int zkf_real_fcntl(int fd, int cmd, long arg)
{
	return (int)negative_errno(syscall(ZKF_SYS_FCNTL, fd, cmd, arg));
}

int zkf_real_other(int fd, int cmd, void *arg)
{
	return __fcntl(fd, cmd, arg);
}

int zkf_real_record(int fd, int cmd, void *arg, bool wide)
{
	bool ofd = cmd == F_OFD_GETLK || cmd == F_OFD_SETLK || cmd == F_OFD_SETLKW;

	/* Where off_t has 32 bits libc's fcntl takes a struct flock for the OFD commands, and fcntl64 another one. */
	if (sizeof(off_t) < sizeof(off64_t) && wide && ofd)
		return zkf_real_record_lock(fd, cmd, arg, -1, cmd == F_OFD_SETLKW);
	return (int)negative_errno(__fcntl(fd, cmd, arg));
}

static void close_conversation(void *arg)
{
	const int *fd = arg;

	if (*fd >= 0)
		zkf_real_hang_up(*fd);
}

/*
 * The way libc makes its own cancellation points: asynchronous for the length of one system call.  A program with one
 * thread takes the plain call, again as libc does; it also keeps a vfork child, which may be killed in here, from
 * leaving a cleanup entry of its dead frame in its parent's thread.
 */
long zkf_real_wait(const struct zkf_wait *wait)
{
	int conversation = wait->conversation;
	long result;
	int type;

	if (!wait->cancellable || zkf_single_threaded())
		return negative_errno(syscall(wait->number, wait->args[0], wait->args[1], wait->args[2]));
	pthread_cleanup_push(close_conversation, &conversation);
	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &type);
	result = negative_errno(syscall(wait->number, wait->args[0], wait->args[1], wait->args[2]));
	pthread_setcanceltype(type, NULL);
	pthread_cleanup_pop(0);
	return result;
}

void zkf_real_cancellation_point(void)
{
	if (!zkf_single_threaded())
		pthread_testcancel();
}

int zkf_real_record_lock(int fd, int cmd, const struct flock64 *range, int conversation, bool cancellable)
{
	struct zkf_wait wait = {
		.number = ZKF_SYS_FCNTL,
		.args = {fd, cmd, (long)range},
		.conversation = conversation,
		.cancellable = cancellable,
	};

	return (int)zkf_real_wait(&wait);
}

int zkf_real_raise(int fd)
{
	static const int floors[] = {ZKF_DESCRIPTOR_MIN, 128, 32, 3};
	size_t i;

	for (i = 0; i < sizeof(floors) / sizeof(floors[0]); i++) {
		int higher;

		if (fd >= floors[i])
			return fd;
		higher = zkf_real_fcntl(fd, F_DUPFD_CLOEXEC, floors[i]);
		if (higher >= 0) {
			zkf_real_close(fd);
			return higher;
		}
	}
	zkf_real_close(fd);
	return -EMFILE;
}

int zkf_real_open(const char *path, int flags)
{
	long fd = negative_errno(syscall(SYS_openat, AT_FDCWD, path, flags | O_CLOEXEC | O_NOCTTY, 0));

	return fd < 0 ? (int)fd : zkf_real_raise((int)fd);
}

int zkf_real_socket(int type)
{
	long fd = negative_errno(syscall(SYS_socket, AF_UNIX, type | SOCK_CLOEXEC, 0));

	return fd < 0 ? (int)fd : zkf_real_raise((int)fd);
}

void zkf_real_hang_up(int fd)
{
	syscall(SYS_shutdown, fd, SHUT_RDWR);
	syscall(SYS_close, fd);
}

void zkf_real_close(int fd)
{
	syscall(SYS_close, fd);
}

ssize_t zkf_real_read(int fd, void *buffer, size_t bytes)
{
	return negative_errno(syscall(SYS_read, fd, buffer, bytes));
}

ssize_t zkf_real_write(int fd, const void *buffer, size_t bytes)
{
	return negative_errno(syscall(SYS_write, fd, buffer, bytes));
}

int zkf_real_poll_in(int fd, int64_t timeout_ns)
{
	struct pollfd entry = {.fd = fd, .events = POLLIN};
	struct timespec timeout = {.tv_sec = timeout_ns / NS_PER_S, .tv_nsec = timeout_ns % NS_PER_S};

	return (int)negative_errno(syscall(SYS_ppoll, &entry, 1, &timeout, NULL, 0));
}

int zkf_real_pause(int64_t ns)
{
	struct itimerspec when = {.it_value = {.tv_sec = ns / NS_PER_S, .tv_nsec = ns % NS_PER_S}};
	uint64_t expirations;
	ssize_t result;
	int fd = (int)negative_errno(syscall(SYS_timerfd_create, CLOCK_MONOTONIC, TFD_CLOEXEC));

	if (fd < 0)
		return fd;
	fd = zkf_real_raise(fd);
	if (fd < 0)
		return fd;
	syscall(SYS_timerfd_settime, fd, 0, &when, NULL);
	result = zkf_real_read(fd, &expirations, sizeof(expirations));
	zkf_real_close(fd);
	return result < 0 ? (int)result : 0;
}

/*
 * rt_sigprocmask(2) reads the set, eight bytes, before it looks at `how`, so that a `how` which does not exist makes it
 * a test without effect: EFAULT or EINVAL.  The program must not see a change, be it for an instant, and no pipe or
 * socket of ours is needed.
 */
static bool readable_set(uintptr_t address)
{
	const int no_such_how = -1;

	return negative_errno(syscall(SYS_rt_sigprocmask, no_such_how, address, NULL, 8)) != -EFAULT;
}

bool zkf_real_readable(const void *address, size_t bytes)
{
	const uintptr_t smallest_page_bytes = 4096;
	uintptr_t first = (uintptr_t)address, last = first + bytes - 8;

	if (!readable_set(first))
		return false;
	/* NULL as the set means "no set" and passes; the other end of a structure at NULL does not. */
	if (first && first / smallest_page_bytes == (last + 7) / smallest_page_bytes)
		return true;
	return readable_set(last);
}

/* rt_sigprocmask(2) without a new set writes the old one, eight bytes. */
static bool writable_set(char *address)
{
	return address && negative_errno(syscall(SYS_rt_sigprocmask, SIG_BLOCK, NULL, address, 8)) != -EFAULT;
}

bool zkf_real_writable(void *address, size_t bytes)
{
	return writable_set(address) && writable_set((char *)address + bytes - 8);
}

int64_t zkf_real_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_BOOTTIME, &now);
	return (int64_t)now.tv_sec * NS_PER_S + now.tv_nsec;
}
