/*
 * keeper/loss.h - what happens to programs whose lock can't be vouched for any more (on_loss)
 *
 * Answers for: finding every process that holds a lock, stopping, continuing and killing it, by the rule's on_loss.
 * Does not:    decide when; that is session.c (the lease) and lock.c (a claim that vanished).
 * Threads:     the loop's.
 * Specification: design section 8; zkflock.conf(5), on_loss; proc_pid_fdinfo(5), pidfd_send_signal(2).
 * SPDX-License-Identifier: Apache-2.0
 *
 *                 lease over                    a heartbeat is acknowledged
 *   freeze:       SIGSTOP  -------------------> SIGCONT (not to who was stopped before)
 *                    \------ session expired -> SIGKILL
 *   kill:         SIGTERM, SIGKILL a heartbeat's half later, before the server can give the lock away
 *   warn:         a line in the log
 *
 * A holder is a process with a descriptor whose fdinfo shows the lock: who took it, who inherited it, who got it passed.
 * Processes of another pid namespace than the keeper's can't be seen.
 */
#ifndef ZKF_LOSS_H
#define ZKF_LOSS_H

#include "lock.h"

/* zkf_loss_init - take over whom a former keeper has stopped */
void zkf_loss_init(void);

/* zkf_loss_doubted - the lease is over; session_timeout_ms says how much time there is until the server may act */
void zkf_loss_doubted(int session_timeout_ms);

/* zkf_loss_at_once - the same in a process without a loop; takes half a heartbeat, for on_loss=kill */
void zkf_loss_at_once(int session_timeout_ms);
/* zkf_loss_anybody - does any process hold a lock of a known file?  True also if that can't be told. */
bool zkf_loss_anybody(void);
/* zkf_loss_alive - the session is alive after all */
void zkf_loss_alive(void);

/* zkf_loss_lost - the session has expired: whoever holds, holds nothing */
void zkf_loss_lost(void);

/* zkf_loss_lock - the session lives, but this lock's claim was taken away */
void zkf_loss_lock(struct zkf_lock *lock);

#endif
