/*
 * keeper/list.h - LIST: every claim of the cluster as rows
 *
 * Answers for: walking the locks' directories without holding anything up, one operation at a time.
 * Does not:    format for people; see cli/list.c.
 * Threads:     the loop's.
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ZKF_LIST_H
#define ZKF_LIST_H

#include <sys/types.h>

#include "server.h"

struct zkf_listing;

/* zkf_listing_start - send rows, then END, to this conversation; NULL when memory is out */
struct zkf_listing *zkf_listing_start(struct zkf_conversation *conversation, uid_t uid);

/* zkf_listing_stop - the conversation has ended */
void zkf_listing_stop(struct zkf_listing *listing);

/* zkf_listing_go_on - what was sent has been read */
void zkf_listing_go_on(struct zkf_listing *listing);

#endif
