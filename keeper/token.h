/*
 * keeper/token.h - TOKEN: a number that only grows from holder to holder of a lock
 *
 * Answers for: the fencing token of what this host has of a lock.
 * Does not:    know who of the host holds it: whoever holds asks while he holds.
 * Threads:     the loop's.
 * Specification: design section 8, "Fencing token"; zkflock(1), "zkflock token".
 * SPDX-License-Identifier: Apache-2.0
 *
 * The token is the zxid of a write to the host's own claims that was sent after the question:
 *
 *     host A                                      host B
 *     granted; asks; write 17 -> token 17
 *     gives back (or its session ends): 21
 *                                                 looks, is granted; asks; write 25 -> token 25
 *
 * The zxid of the claim's creation would not do: a claim may be older than one that has overtaken it, and whose holder
 * came first.  The write fails when the claim is gone, whoever deleted it.  Of several claims (a range in pieces) each is
 * written, and the smallest number counts: at that moment all of them were there.
 */
#ifndef ZKF_TOKEN_H
#define ZKF_TOKEN_H

#include <stdint.h>

#include "loop.h"

struct zkf_lock;
struct zkf_reply;

/* A question, inside its conversation. */
struct zkf_token_ask {
	struct zkf_token_ask *next, **before; /* of lock->token_asks */
	struct zkf_lock *lock;                /* NULL: answered, or never asked */
	uint64_t asked_at;                    /* zkf_claim_writes(): later ones count */
	struct zkf_timer timer;
	/* Called once: TOKEN with the number in `state`, FREE (this host has nothing of the lock), FAILED. */
	void (*answer)(struct zkf_token_ask *ask, const struct zkf_reply *reply);
};

/* zkf_token_ask - answer is filled in, all else zero; it comes from the lock's next step, or within `within_ns` */
void zkf_token_ask(struct zkf_token_ask *ask, struct zkf_lock *lock, int64_t within_ns);

/* zkf_token_withdraw - the asker has left; allowed at any time */
void zkf_token_withdraw(struct zkf_token_ask *ask);

/* zkf_token_step - part of a lock's step, while the session can be used */
void zkf_token_step(struct zkf_lock *lock);

#endif
