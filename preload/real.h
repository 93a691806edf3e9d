/*
 * preload/real.h - the kernel's calls, past every interposed symbol and past libc's cancellation points
 *
 * Answers for: one function per system call that the library needs; 0 or a count, or a negative errno.
 * Does not:    decide anything, or look symbols up: dlsym takes locks and may allocate, so it is neither signal-
 *              nor fork-safe, and a program's own malloc may be what called us.
 * Threads:     any thread, any signal handler, a vfork child.  errno is clobbered; only the entry points care.
 * Specification: syscall(2), fcntl(2), flock(2), pthreads(7) "Cancellation points".
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ZKF_REAL_H
#define ZKF_REAL_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "libc.h"

/*
 * Descriptors that are ours for a moment live from here on where the limit allows: away from the small numbers that a
 * program expects to get next, and that select(2) and shells use.
 */
#define ZKF_DESCRIPTOR_MIN 512

/* zkf_real_flock - flock(2).  Not a cancellation point, as in libc. */
int zkf_real_flock(int fd, int op);

/* zkf_real_fcntl - fcntl(2) with an argument, raw: never a cancellation point.  fcntl64 where there are two. */
int zkf_real_fcntl(int fd, int cmd, long arg);

/*
 * zkf_real_other - any fcntl command that is not about locks, as libc does it
 *
 * Returns what fcntl returns, with errno set: a result below zero need not be an error (F_GETOWN of a process group),
 * so this one can't speak in negative errnos.
 */
int zkf_real_other(int fd, int cmd, void *arg);

/*
 * zkf_real_record - a lock command just as libc does it, cancellation point included
 *
 * wide  arg is a struct flock64 (fcntl64) rather than a struct flock (fcntl); the same thing on 64-bit machines
 */
int zkf_real_record(int fd, int cmd, void *arg, bool wide);

/*
 * zkf_real_wait - a system call that may block, as a cancellation point or not
 *
 * conversation  descriptor to close when the thread is cancelled meanwhile; < 0: none
 * cancellable   false: a plain call
 *
 * Returns the call's result or a negative errno; a cancelled thread does not return.
 */
struct zkf_wait {
	long number;
	long args[3];
	int conversation;
	bool cancellable;
};
long zkf_real_wait(const struct zkf_wait *wait);

/* zkf_real_cancellation_point - for a call that is one and need not wait */
void zkf_real_cancellation_point(void);

/* zkf_real_record_lock - F_SETLK64, F_SETLKW64, F_OFD_SETLK or F_OFD_SETLKW, as zkf_real_wait does it */
int zkf_real_record_lock(int fd, int cmd, const struct flock64 *range, int conversation, bool cancellable);

/*
 * zkf_real_open, zkf_real_socket - a close-on-exec descriptor at or above ZKF_DESCRIPTOR_MIN where the limit allows
 *
 * Returns the descriptor; -EMFILE if it could only be had as 0, 1 or 2 (see zkf_real_raise); or what open(2) or
 * socket(2) says.
 */
int zkf_real_open(const char *path, int flags);
int zkf_real_socket(int type);

/*
 * zkf_real_raise - move a descriptor of ours out of the program's sight
 *
 * Returns the new number, the old one, or -EMFILE; the old one is closed unless it is returned.
 *
 * Where no higher number is to be had the low one serves: nobody can tell it from a descriptor that another thread
 * opened for a moment.  0, 1 and 2 are different.  A program that has closed them may still print, from another
 * thread, and what it prints must not go to the keeper or come out of the configuration.
 */
int zkf_real_raise(int fd);

void zkf_real_close(int fd);

/*
 * zkf_real_hang_up - close a conversation, also the copy that a child has which another thread has forked meanwhile
 *
 * Close-on-exec does not help against a child that does not exec: to the keeper the call would go on as long as it lives.
 */
void zkf_real_hang_up(int fd);
ssize_t zkf_real_read(int fd, void *buffer, size_t bytes);
ssize_t zkf_real_write(int fd, const void *buffer, size_t bytes);

/* zkf_real_poll_in - wait until fd can be read: 1, 0 when timeout_ns (>= 0) is over, -EINTR.  fd -1 just sleeps. */
int zkf_real_poll_in(int fd, int64_t timeout_ns);

/*
 * zkf_real_pause - sleep so that a signal acts as on a blocking lock: -EINTR only if its handler lacks SA_RESTART
 *
 * Returns 0, -EINTR, or -EMFILE.  Why not nanosleep(2) or poll(2): both end with EINTR after any handler.
 */
int zkf_real_pause(int64_t ns);

/*
 * zkf_real_refuses - does this result of a lock call say that the file's file system has no locks, or not now?
 *
 * ENOLCK: NFS without a lock manager.  ENOSYS: Lustre without `flock`, FUSE.  EOPNOTSUPP, and the kernel's own ENOTSUPP (524),
 * which should not leave it and does.
 */
static inline bool zkf_real_refuses(int result)
{
	return result == -ENOLCK || result == -ENOSYS || result == -EOPNOTSUPP || result == -524;
}

/* zkf_real_readable - would the kernel be able to read these bytes of the program?  Never faults. */
bool zkf_real_readable(const void *address, size_t bytes);

/*
 * zkf_real_writable - would the kernel be able to write these bytes, at least 8, of the program?  Never faults.
 *
 * The first and the last 8 are written to: put back what was there, or what belongs there.
 */
bool zkf_real_writable(void *address, size_t bytes);

/* zkf_real_now_ns - CLOCK_BOOTTIME, ns: the lease's clock, which counts suspend */
int64_t zkf_real_now_ns(void);

#endif
