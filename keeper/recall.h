/*
 * keeper/recall.h - giving cover back to the cluster, and what programs may believe meanwhile
 *
 * Answers for: invariants I3 and I4: publish "recalled", look at the kernel's locks, shrink the claims to what is in use,
 *              say so to who needs an answer; and the published state of every file of a lock.
 * Does not:    grant anything (lock.c).
 * Threads:     the loop's.
 * Specification: design sections 4 and 5.
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ZKF_RECALL_H
#define ZKF_RECALL_H

#include "lock.h"

void zkf_recall_init(struct zkf_lock *lock);
/* zkf_recall_stop - timers and operations */
void zkf_recall_stop(struct zkf_lock *lock);

/* zkf_recall_follows - is this a claim that waits for that granted one of ours (by name)? */
bool zkf_recall_follows(const struct zkf_claim *claim, const struct zkf_follower *follower);

/* zkf_recall_look - file->in_use as of this step; demands that are pinned count as in use */
void zkf_recall_look(struct zkf_file *file);

/*
 * zkf_recall_uncovered - is anything in use that this host's claims do not cover?
 *
 * guesses  count what may be in use, too
 */
bool zkf_recall_uncovered(struct zkf_lock *lock, bool guesses);

/* zkf_recall_step - give back what another host wants, or what has been kept long enough, and is not in use */
void zkf_recall_step(struct zkf_lock *lock);

/* zkf_recall_blocked - a demand that waits, here or (answered, but not back soon) inside the kernel */
bool zkf_recall_blocked(const struct zkf_demand *demand);

/* zkf_recall_publish - the state words of the lock's files, timers and hints: the last part of a step */
void zkf_recall_publish(struct zkf_lock *lock);

/* From lock.c: number of the present step. */
uint64_t zkf_lock_step_number(void);

#endif
