/*
 * preload/conversation.h - one question to the keeper and its answer
 *
 * Answers for: finding (or starting) the keeper, sending a request with the program's descriptor, waiting for the
 *              reply.  The open connection is the request, and afterwards the pin: see keeper/wire.h.
 * Does not:    know locks; that is cover.c.
 * Threads:     any number at once, each with its own connection on its own stack; nothing is shared or kept.
 * Specification: keeper/wire.h; unix(7); signal(7) for what is restarted after a handler.
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ZKF_CONVERSATION_H
#define ZKF_CONVERSATION_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime.h"
#include "settings.h"

/*
 * How a call waits.  A blocking call has no deadline, sits in one plain system call that the kernel restarts or not
 * as the program's SA_RESTART says, and passes -EINTR on.  A non-blocking call has a deadline and never shows -EINTR.
 */
struct zkf_patience {
	int64_t deadline_ns; /* CLOCK_BOOTTIME; 0: a blocking call */
	bool cancellable;    /* blocking only: a cancellation point */
};

/* How long a keeper may take over a non-blocking request after it has given up on ZooKeeper itself, ms. */
#define ZKF_REPLY_GRACE_MS 1000

struct zkf_conversation {
	int fd;
	char directory[ZKF_DIRECTORY_BYTES]; /* whose keeper it is */
};

/* zkf_patience_bounded - the patience of a non-blocking call that begins now */
struct zkf_patience zkf_patience_bounded(const struct zkf_settings *settings);

/* zkf_patience_pause - sleep a little in the way the patience says: 0, -EINTR, -ETIMEDOUT, or -EMFILE */
int zkf_patience_pause(const struct zkf_patience *patience, int64_t ns);

/*
 * zkf_conversation_open - connect to the keeper, starting one if there is none
 *
 * Returns 0, -EINTR, or -ETIMEDOUT (it exists, but does not accept in time); or, with the reason in the log, -ENOLCK
 * (there is none and none can be started), -ENOENT (somebody has started one or will, and yet none listens within
 * connect_timeout: a guard that is stopped, say) or -ENOTCONN (there may be one, but no way to it: no descriptor left, a
 * directory that is not to be trusted).  Only the former two are what a rule's `unavailable` speaks of.
 */
int zkf_conversation_open(struct zkf_conversation *conversation, const struct zkf_settings *settings,
                          const struct zkf_patience *patience);

/*
 * zkf_conversation_ask - send a request with a descriptor and wait for the reply
 *
 * Returns 0, -EINTR, -ETIMEDOUT, -ECONNRESET (the keeper has died: connect again), -EPROTO (not our keeper's
 * language), or what sendmsg(2) says.
 */
int zkf_conversation_ask(const struct zkf_conversation *conversation, const struct zkf_request *request, int fd,
                         const struct zkf_patience *patience, struct zkf_reply *reply);

void zkf_conversation_close(struct zkf_conversation *conversation);

/*
 * zkf_conversation_notify - tell a keeper that is there something that needs no answer, without ever waiting
 *
 * Failures are ignored: the keeper looks for itself too, only later.
 */
void zkf_conversation_notify(const struct zkf_settings *settings, const struct zkf_request *request);

#endif
