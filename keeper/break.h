/*
 * keeper/break.h - BREAK: take a claim away from its host
 *
 * Answers for: naming exactly the claim that was meant; on_loss on the holder's host, and only then the end of the claim, so
 *              that nobody else is let in while the holder runs; saying in both hosts' logs who wanted it and why.
 * Does not:    know who holds: lock.c does (zkf_lock_break).
 * Threads:     the loop's.
 * SPDX-License-Identifier: Apache-2.0
 *
 *     asked --> another program's claim, or ZKF_FLAG_FORCE: delete its node; its holder may run on
 *           \-> a letter to its host (mailbox.h), again every ZKF_BREAK_AGAIN_MS, until the node is gone: END;
 *               or FAILED, EBUSY after ZKF_BREAK_PATIENCE_MS: that keeper hangs, or its holder can't be ended
 *     letter --> lock.c: BROKEN, no cover any more --on_loss, until nothing of it is in use--> deleted
 *
 * A host that is dead loses the claim with its session, one whose keeper has died has a new one that reads the letter.
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

/* zkf_break_letter - another keeper wants a claim of this host given up; anything else is ignored */
void zkf_break_letter(const char *text);

#endif
