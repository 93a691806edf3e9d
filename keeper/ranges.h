/*
 * keeper/ranges.h - sets of byte ranges with a mode each
 *
 * Answers for: the arithmetic of what is held, wanted, covered and in use.
 * Does not:    know who holds it.
 * Threads:     plain data.
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ZKF_RANGES_H
#define ZKF_RANGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire.h"

struct zkf_range {
	int64_t start, end; /* inclusive; ZKF_RANGE_MAX: to the end of the file, for ever */
	uint8_t mode;       /* ZKF_SHARED or ZKF_EXCLUSIVE */
};

/* Sorted, disjoint; neighbours of one mode are merged.  All zero is the empty set. */
struct zkf_ranges {
	struct zkf_range *items;
	size_t count, capacity;
};

void zkf_ranges_free(struct zkf_ranges *set); /* leaves the empty set */
void zkf_ranges_clear(struct zkf_ranges *set);

/* zkf_ranges_assign - give [start, end] this mode, whatever it was; ZKF_NONE removes.  0 or -ENOMEM (set unchanged) */
int zkf_ranges_assign(struct zkf_ranges *set, int64_t start, int64_t end, uint8_t mode);

/* zkf_ranges_raise - as assign, but a stronger mode stays */
int zkf_ranges_raise(struct zkf_ranges *set, int64_t start, int64_t end, uint8_t mode);

/* zkf_ranges_raise_all - raise by every range of more */
int zkf_ranges_raise_all(struct zkf_ranges *set, const struct zkf_ranges *more);

/* zkf_ranges_limit - lower every mode of set to what limit has there (nothing: removed).  0 or -ENOMEM (set unchanged) */
int zkf_ranges_limit(struct zkf_ranges *set, const struct zkf_ranges *limit);

int zkf_ranges_copy(struct zkf_ranges *to, const struct zkf_ranges *from);
bool zkf_ranges_equal(const struct zkf_ranges *a, const struct zkf_ranges *b);

/* zkf_ranges_covers - is all of [start, end] in the set with at least this mode? */
bool zkf_ranges_covers(const struct zkf_ranges *set, int64_t start, int64_t end, uint8_t mode);

/* zkf_ranges_conflicting - the first range that overlaps [start, end], where not both are shared; NULL: none */
const struct zkf_range *zkf_ranges_conflicting(const struct zkf_ranges *set, int64_t start, int64_t end, uint8_t mode);

/* zkf_ranges_within - how many ranges of the set overlap [start, end] */
size_t zkf_ranges_within(const struct zkf_ranges *set, int64_t start, int64_t end);

/* zkf_ranges_conflict - do two sets, of two owners, conflict? */
bool zkf_ranges_conflict(const struct zkf_ranges *a, const struct zkf_ranges *b);

/* zkf_ranges_mode - the strongest mode in the set */
uint8_t zkf_ranges_mode(const struct zkf_ranges *set);

#endif
