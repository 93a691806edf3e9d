/*
 * keeper/break.h - BREAK: delete a claim, of this host or another
 *
 * Answers for: deleting exactly the node that was named, and saying in the log who wanted it and why.
 * Does not:    stop the holder: its own keeper finds its claim gone and applies on_loss (lock.c, claims_gone).
 * Threads:     the loop's.
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ZKF_BREAK_H
#define ZKF_BREAK_H

#include <sys/socket.h>

#include "server.h"

struct zkf_breaking;

/* zkf_breaking_start - END or FAILED follows; NULL when memory is out */
struct zkf_breaking *zkf_breaking_start(struct zkf_conversation *conversation, const struct zkf_break_request *request,
                                        const struct ucred *peer);

/* zkf_breaking_stop - the conversation has ended; what was sent still happens */
void zkf_breaking_stop(struct zkf_breaking *breaking);

#endif
