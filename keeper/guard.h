/*
 * keeper/guard.h - the keeper's parent: starts it again, and acts for it when it can't
 *
 * Answers for: forking the keeper, noticing that it is dead, stopped or hanging, replacing it, and applying on_loss when
 *              the lease ends while no keeper is able to.
 * Does not:    talk to ZooKeeper, open a file of a program, grant anything.
 * Threads:     the guard has one.  What keeper and guard share is a few words of memory, each written by the keeper alone.
 * Specification: design section 8, "The keeper survives its own death".
 * SPDX-License-Identifier: Apache-2.0
 *
 *     keeper                            guard does
 *     ends orderly                      ends with its exit code
 *     dies                              starts another
 *     is stopped for 0.5 s              SIGKILL, starts another: nobody moves the lease
 *     does not come back to its loop    SIGKILL after 5 s, starts another
 *     ... and the lease is over         a heartbeat later: SIGKILL, on_loss by the guard's own hand, starts another
 *
 * A keeper hangs in a system call on a network file system whose server is gone, say.  The next one may hang there, too: that
 * is why on_loss does not depend on one.  It needs the list of files that every keeper leaves, and /proc; no file is touched.
 */
#ifndef ZKF_GUARD_H
#define ZKF_GUARD_H

#include <stdbool.h>
#include <stdint.h>

struct zkf_guard_work {
	void (*forked)(void);                    /* in the guard, after each fork */
	void (*on_loss)(int session_timeout_ms); /* in a child of the guard: what the keeper can't do */
	bool (*needed)(void); /* in one that stays: is there anybody whom on_loss could be applied to? */
	int left;             /* the exit code of a keeper whose end was wanted while locks are in use */
	int again;            /* the exit code by which a keeper asks to be started again */
};

/*
 * zkf_guard_start - fork the keeper and stay behind
 *
 * Returns -1 in the keeper; in the guard, after the keeper's orderly end, its exit code, or below -1 a negative errno of
 * fork(2), mmap(2).
 */
int zkf_guard_start(int session_timeout_ms, const struct zkf_guard_work *work);

/*
 * zkf_guard_stay - after a keeper that has ended while locks are in use: a process stays until another keeper takes over
 *
 * or nobody holds anything any more.  If none does, it applies on_loss when the lease is over; then it ends.
 * directory, lock  the runtime directory and the lock on it, which is given up for the next keeper
 */
void zkf_guard_stay(int directory, int lock, const struct zkf_guard_work *work);

/* The keeper's side; each does nothing where there is no guard.  */

/* zkf_guard_waiting - the loop has nothing to do (true), or has begun to do it */
void zkf_guard_waiting(bool waiting);
/* zkf_guard_progress - one more step of work that may take long is done */
void zkf_guard_progress(void);
/* zkf_guard_lease - until when the covers may be believed, CLOCK_BOOTTIME ns; 0: there are none */
void zkf_guard_lease(int64_t deadline_ns);
/* zkf_guard_doubted - on_loss has been applied since that moment came */
void zkf_guard_doubted(void);

#endif
