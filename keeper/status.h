/*
 * keeper/status.h - STATUS: how the keeper is, as rows
 *
 * Answers for: gathering; each row is a key, a tab and a value.
 * Does not:    judge or format: see cli/status.c.
 * Threads:     the loop's.
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ZKF_STATUS_H
#define ZKF_STATUS_H

#include "server.h"

/* zkf_status_init - remember when it began */
void zkf_status_init(void);

/* zkf_status_send - all rows, then END */
void zkf_status_send(struct zkf_conversation *conversation);

#endif
