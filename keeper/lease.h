/*
 * keeper/lease.h - every interval of the keeper, derived from the session timeout in one place
 *
 * Answers for: how often the session is proven alive, until when a proof holds, how long others may be kept waiting.
 * Does not:    act on it; see session.c and recall.c.
 * Threads:     pure functions.
 * Specification: design section 8; ZooKeeper Programmer's Guide, "ZooKeeper Sessions".
 * SPDX-License-Identifier: Apache-2.0
 *
 * Why an acknowledged write, and why less than its time of sending plus the session timeout T: a follower answers pings
 * and reads on its own, also when the leader has long expired the session.  A write needs the quorum; but the leader counts
 * a session as touched from the followers' pings, every tickTime/2, so its idea of our last sign of life may be older than
 * the write by tickTime/2 and a heartbeat.  Measured on three servers: expiry up to 0.78 s before "send time + T".
 *
 * A partition with the defaults, T = 10 s, tickTime = 2 s, heartbeat P = 1 s:
 *
 *      0.0  a heartbeat is sent, and acknowledged        deadline = 0 + 10 - 1 - 2 = 7.0
 *      0.1  the host is cut off
 *      1.0  the next heartbeat gets no answer; the host goes on granting until 7.0
 *      7.0  no local grant any more: every cover in the shared page ends by the clock alone, keeper or no keeper
 *      9.0  the earliest moment at which the leader may expire the session (last touch 1 s before the write)
 *     10+   the leader expires the session, other hosts get the lock
 *
 * A keeper that is stopped (SIGSTOP, swap) at 0.1 plays the same, since nobody moves the deadline.
 */
#ifndef ZKF_LEASE_H
#define ZKF_LEASE_H

#include <stdint.h>

#include "loop.h"

/* zkf_lease_period_ms - heartbeat period P: T/10, at most 2 s (a large fleet's servers must bear the writes) */
static inline int64_t zkf_lease_period_ms(int64_t session_timeout_ms)
{
	int64_t period = session_timeout_ms / 10;

	return period > 2000 ? 2000 : period < 50 ? 50 : period;
}

/*
 * zkf_lease_deadline_ns - until when the server surely keeps the session
 *
 * sent_ns             CLOCK_BOOTTIME taken before the last *acknowledged* write was sent
 * session_timeout_ms  negotiated with the server
 * tick_time_ms        the servers' tickTime: no call tells it, so it is a setting
 *
 * Returns CLOCK_BOOTTIME ns; not after sent_ns when the settings leave no lease.
 */
static inline int64_t zkf_lease_deadline_ns(int64_t sent_ns, int64_t session_timeout_ms, int64_t tick_time_ms)
{
	return sent_ns +
	       (session_timeout_ms - tick_time_ms / 2 - 2 * zkf_lease_period_ms(session_timeout_ms)) * ZKF_NS_PER_MS;
}

/* How long a pinned conversation may delay the answer to a non-blocking newcomer: a kernel call takes microseconds. */
#define ZKF_PIN_PATIENCE_MS 5
/*
 * How long a blocked request lets other hosts' earlier ones go first although the kernel would let it in.  Not for ever:
 * what those wait for may, by ways that nobody sees, be waiting for this very request (a parent for its child).
 */
#define ZKF_PATIENCE_MS 5000
#define ZKF_PATIENCE_HOLDING_NOTHING_MS 10000
/*
 * Who asks on a host that holds something passes others' waiters at once, as the kernel lets him, until one of them has
 * waited for this long: from then on it is their turn first, or readers that keep coming would keep a writer out, and a
 * stream of small record locks who wants the whole file.
 */
#define ZKF_FAIR_AFTER_MS 2000
/* A wait that lasts this long is told to people, again at doubling times. */
#define ZKF_WAITING_TELL_MS 5000
/* A wait that lasts this long may be part of a deadlock: look for a cycle, then again at doubling intervals. */
#define ZKF_DEADLOCK_FIRST_MS 200
#define ZKF_DEADLOCK_MAX_MS 60000
/* A file in use under recall is looked at on every hint (close, unlock), and this often without one. */
#define ZKF_POLL_FIRST_MS 2
#define ZKF_POLL_MAX_MS 50
#define ZKF_POLL_SLOW_MS 250 /* after ZKF_POLL_SLOW_AFTER_MS: a job of hours need not be looked at 20 times a second */
#define ZKF_POLL_SLOW_AFTER_MS 10000
/* A call that lasts longer is asked this often whether its caller lives. */
#define ZKF_CALLER_MS 200
/* After this long of waiting the holder's claim says who it is, for `zkflock list`. */
#define ZKF_TELL_AFTER_MS 500
/* While a recall lasts, the queue is read again this often: shared cover has no watch that tells when the writer left. */
#define ZKF_RELIST_MS 1000
/* A full session first gives back what is merely kept; a demand that finds no room for this long is refused. */
#define ZKF_FULL_AFTER_MS 1000
#define ZKF_GIVE_BACK_AT_ONCE 64
#define ZKF_GIVE_BACK_LOOK_MS 10
/* A claim that may overtake looks again this often while it waits; and after at most this long when it had to undo. */
#define ZKF_LOOK_AGAIN_MS 500
#define ZKF_OVERTAKE_AGAIN_MS 4
/* So many that wait in one queue look again at the rate of one. */
#define ZKF_LOOK_AGAIN_CROWD 16
/* Without a connection for this part of the session timeout, the servers' names are looked up: they may have moved. */
#define ZKF_LOOK_UP_FIRST_PART 6
#define ZKF_LOOK_UP_AGAIN_PART 3
/* Whether an owner has ended (refused.h) is asked again this soon when it could not be told. */
#define ZKF_DOUBT_MS 20
/* A broken lock (break.h): its holders are looked for so often; its host is told again, and then is said not to answer. */
#define ZKF_BROKEN_LOOK_MS 50
#define ZKF_BREAK_AGAIN_MS 2000
#define ZKF_BREAK_PATIENCE_MS 10000
/* After a failed allocation or an unexpected answer, try again this much later. */
#define ZKF_RETRY_MS 100

#endif
