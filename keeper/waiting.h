/*
 * keeper/waiting.h - "waiting 5 s for LOCK held by HOST pid PID COMMAND since TIME"
 *
 * Answers for: telling people who waits long, and for whom: after 5 s, 10 s, 20 s, and so on, in the log (of each lock
 *              the first waiter only: there may be thousands) and to the program, if it wants to know.  Who waits in
 *              the kernel without having had to ask is not known here: lslocks(8) tells of him.
 * Does not:    change what waits.
 * Threads:     the loop's.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A holder of this host is what the kernel says.  One of another host is what its claim says, which is written half a
 * second after somebody waits for it; TIME is when the host's claim was made.
 */
#ifndef ZKF_WAITING_H
#define ZKF_WAITING_H

#include "lock.h"

/* zkf_waiting_init - ZKFLOCK_TEST_WAIT_MS in the environment: tests need not wait for 5 s */
void zkf_waiting_init(void);

/* zkf_waiting_start, zkf_waiting_stop - a demand begins to wait, or ends; all fields of the demand are set */
void zkf_waiting_start(struct zkf_demand *demand);
void zkf_waiting_stop(struct zkf_demand *demand);

#endif
