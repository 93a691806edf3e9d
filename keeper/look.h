/*
 * keeper/look.h - is a claim granted?  The reading and overtaking part of claim.c, for claim.c only
 *
 * Answers for: the decision of design section 5, rules R1 to R7.
 * Does not:    create or delete claims.
 * Threads:     the loop's.
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ZKF_LOOK_H
#define ZKF_LOOK_H

#include "claim.h"

/* zkf_look_init - watches' callbacks of a new claim */
void zkf_look_init(struct zkf_claim *claim);

/* zkf_look_start - look (again); ends in WAITING, GRANTED, REFUSED or GONE, with zkf_lock_touch */
void zkf_look_start(struct zkf_claim *claim);

/* zkf_look_stop - drop what is under way */
void zkf_look_stop(struct zkf_claim *claim);

/* zkf_look_gone - the node is not there, and not by our doing */
void zkf_look_gone(struct zkf_claim *claim);

/* From claim.c: own data as text (allocated); write it if it differs from the server's. */
char *zkf_claim_text(const struct zkf_claim *claim);
void zkf_claim_write(struct zkf_claim *claim);

#endif
