/*
 * keeper/token.c - see token.h
 * SPDX-License-Identifier: Apache-2.0
 */
#include "token.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>

#include "claim.h"
#include "lease.h"
#include "session.h"

static void answer(struct zkf_token_ask *ask, struct zkf_reply *reply)
{
	reply->magic = ZKF_WIRE_MAGIC;
	zkf_token_withdraw(ask);
	ask->answer(ask, reply);
}

static void too_late(struct zkf_timer *timer)
{
	struct zkf_token_ask *ask = (struct zkf_token_ask *)((char *)timer - offsetof(struct zkf_token_ask, timer));
	struct zkf_reply reply = {.answer = ZKF_FAILED, .error = ENOLCK};

	reply.text_bytes =
		(uint32_t)snprintf(reply.text, sizeof(reply.text), "%.150s",
	                           zkf_session_usable() ? "ZooKeeper does not answer" : zkf_session_trouble());
	answer(ask, &reply);
}

void zkf_token_ask(struct zkf_token_ask *ask, struct zkf_lock *lock, int64_t within_ns)
{
	ask->lock = lock;
	ask->asked_at = zkf_claim_writes();
	ask->next = lock->token_asks;
	ask->before = &lock->token_asks;
	if (ask->next)
		ask->next->before = &ask->next;
	lock->token_asks = ask;
	ask->timer.fire = too_late;
	zkf_timer_arm(&ask->timer, zkf_now_ns() + within_ns);
	zkf_lock_touch(lock);
}

void zkf_token_withdraw(struct zkf_token_ask *ask)
{
	if (!ask->lock)
		return;
	*ask->before = ask->next;
	if (ask->next)
		ask->next->before = ask->before;
	zkf_timer_stop(&ask->timer);
	zkf_lock_touch(ask->lock); /* it may have been kept for this */
	ask->lock = NULL;
}

/* Answers if all has been written since the question; else sees to it that it is. */
static void ask_step(struct zkf_token_ask *ask)
{
	struct zkf_reply reply = {.answer = ZKF_FREE};
	int64_t least = INT64_MAX;
	bool pending = false;

	for (struct zkf_claim *claim = ask->lock->claims; claim; claim = claim->next) {
		int64_t zxid;

		if (claim->state != ZKF_CLAIM_GRANTED || !claim->ranges.count)
			continue;
		zxid = zkf_claim_written_since(claim, ask->asked_at);
		pending |= zxid < 0;
		least = zxid < least ? zxid : least;
	}
	if (pending)
		return;
	if (least != INT64_MAX) {
		reply.answer = ZKF_TOKEN;
		reply.state = (uint64_t)least;
	}
	answer(ask, &reply);
}

void zkf_token_step(struct zkf_lock *lock)
{
	struct zkf_token_ask *next;

	for (struct zkf_token_ask *ask = lock->token_asks; ask; ask = next) {
		next = ask->next;
		ask_step(ask);
	}
}
