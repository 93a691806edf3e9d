/*
 * keeper/deadlock.h - EDEADLK: cycles of waiting processes, through several hosts
 *
 * Answers for: fcntl(2)'s promise that F_SETLKW fails when it would wait for itself.
 * Does not:    look at flock or OFD locks: the kernel does not either.
 * Threads:     the loop's.
 * Specification: design section 5; POSIX fcntl(), EDEADLK; K. M. Chandy, J. Misra, L. M. Haas, "Distributed Deadlock
 *              Detection", ACM TOCS 1983 (edge chasing).
 * SPDX-License-Identifier: Apache-2.0
 *
 * A process that waits for more than a moment sends a probe along its edges: to the hosts whose claims are in its way.
 * Such a host asks its kernel which processes hold what is wanted.  One that is itself waiting hands the probe on; a probe
 * that comes back to its sender has been round a cycle.  Every edge is checked on the host that knows it, when the probe
 * passes; a process that waits releases nothing, so an edge that was there stays: a cycle that is found is true.
 *
 * Of one cycle just one wait must fail: the one that began last.  Each probe carries the latest beginning that it met, and
 * only the sender of that one acts.  A host that sees a younger wait of its own on a probe's way sends that one's probe.
 * A call that waits inside the kernel can't be failed from here; it is an edge like others, and its probe makes the others
 * look.
 *
 * Probes travel as letters (mailbox.h).
 */
#ifndef ZKF_DEADLOCK_H
#define ZKF_DEADLOCK_H

#include "lock.h"

/* zkf_deadlock_letter - a probe has come; anything else is ignored */
void zkf_deadlock_letter(const char *text);

/* zkf_deadlock_start, zkf_deadlock_stop - a demand begins to wait, or ends */
void zkf_deadlock_start(struct zkf_demand *demand);
void zkf_deadlock_stop(struct zkf_demand *demand);

#endif
