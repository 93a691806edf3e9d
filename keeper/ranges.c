/*
 * keeper/ranges.c - see ranges.h
 * SPDX-License-Identifier: Apache-2.0
 */
#include "ranges.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fault.h"

void zkf_ranges_free(struct zkf_ranges *set)
{
	free(set->items);
	*set = (struct zkf_ranges){0};
}

void zkf_ranges_clear(struct zkf_ranges *set)
{
	set->count = 0;
}

static int reserve(struct zkf_ranges *set, size_t count)
{
	size_t capacity = set->capacity ? set->capacity : 1;
	struct zkf_range *items;

	if (count <= set->capacity)
		return 0;
	while (capacity < count)
		capacity *= 2;
	items = zkf_reallocarray(set->items, capacity, sizeof(*items));
	if (!items)
		return -ENOMEM;
	set->items = items;
	set->capacity = capacity;
	return 0;
}

/* Appends to a set under construction: ranges come in order and do not overlap.  Room has been reserved. */
static void append(struct zkf_ranges *set, int64_t start, int64_t end, uint8_t mode)
{
	struct zkf_range *last = set->count ? &set->items[set->count - 1] : NULL;

	if (mode == ZKF_NONE || start > end)
		return;
	if (last && last->mode == mode && last->end != ZKF_RANGE_MAX && last->end + 1 == start)
		last->end = end;
	else
		/* NOLINTNEXTLINE(clang-analyzer-core.NullDereference) */
		set->items[set->count++] = (struct zkf_range){start, end, mode};
}

int zkf_ranges_assign(struct zkf_ranges *set, int64_t start, int64_t end, uint8_t mode)
{
	struct zkf_ranges made = {0};
	bool placed = false;

	if (reserve(&made, set->count + 2))
		return -ENOMEM;
	for (size_t i = 0; i < set->count; i++) {
		const struct zkf_range *item = &set->items[i];

		if (item->start < start)
			append(&made, item->start, item->end < start ? item->end : start - 1, item->mode);
		if (!placed && item->end >= start) {
			append(&made, start, end, mode);
			placed = true;
		}
		if (item->end > end)
			append(&made, item->start > end ? item->start : end + 1, item->end, item->mode);
	}
	if (!placed)
		append(&made, start, end, mode);
	free(set->items);
	*set = made;
	return 0;
}

int zkf_ranges_copy(struct zkf_ranges *to, const struct zkf_ranges *from)
{
	if (reserve(to, from->count))
		return -ENOMEM;
	if (from->count)
		memcpy(to->items, from->items, from->count * sizeof(*from->items));
	to->count = from->count;
	return 0;
}

/* Replaces set by work, or drops work after an error. */
static int settle(struct zkf_ranges *set, struct zkf_ranges *work, int error)
{
	if (error) {
		zkf_ranges_free(work);
		return error;
	}
	zkf_ranges_free(set);
	*set = *work;
	return 0;
}

int zkf_ranges_raise(struct zkf_ranges *set, int64_t start, int64_t end, uint8_t mode)
{
	const struct zkf_range *last = set->count ? &set->items[set->count - 1] : NULL;
	struct zkf_ranges work = {0};
	int error;

	if (!last || last->end < start) { /* in order, as most come: nothing to be copied */
		if (reserve(set, set->count + 1))
			return -ENOMEM;
		append(set, start, end, mode);
		return 0;
	}
	error = zkf_ranges_copy(&work, set);
	if (!error)
		error = zkf_ranges_assign(&work, start, end, mode);
	for (size_t i = 0; !error && i < set->count; i++) {
		const struct zkf_range *item = &set->items[i];
		int64_t from = item->start > start ? item->start : start, to = item->end < end ? item->end : end;

		if (from <= to && item->mode > mode)
			error = zkf_ranges_assign(&work, from, to, item->mode);
	}
	return settle(set, &work, error);
}

int zkf_ranges_raise_all(struct zkf_ranges *set, const struct zkf_ranges *more)
{
	int error = 0;

	for (size_t i = 0; !error && i < more->count; i++)
		error = zkf_ranges_raise(set, more->items[i].start, more->items[i].end, more->items[i].mode);
	return error;
}

int zkf_ranges_limit(struct zkf_ranges *set, const struct zkf_ranges *limit)
{
	struct zkf_ranges made = {0};

	if (reserve(&made, set->count + limit->count + 1))
		return -ENOMEM;
	for (size_t i = 0, j = 0; i < set->count && j < limit->count;) {
		const struct zkf_range *a = &set->items[i], *b = &limit->items[j];
		int64_t from = a->start > b->start ? a->start : b->start, to = a->end < b->end ? a->end : b->end;

		append(&made, from, to, a->mode < b->mode ? a->mode : b->mode);
		if (a->end < b->end)
			i++;
		else
			j++;
	}
	return settle(set, &made, 0);
}

bool zkf_ranges_equal(const struct zkf_ranges *a, const struct zkf_ranges *b)
{
	if (a->count != b->count)
		return false;
	for (size_t i = 0; i < a->count; i++)
		if (a->items[i].start != b->items[i].start || a->items[i].end != b->items[i].end ||
		    a->items[i].mode != b->items[i].mode)
			return false;
	return true;
}

bool zkf_ranges_covers(const struct zkf_ranges *set, int64_t start, int64_t end, uint8_t mode)
{
	for (size_t i = 0; i < set->count; i++) {
		const struct zkf_range *item = &set->items[i];

		if (item->end < start)
			continue;
		if (item->start > start || item->mode < mode)
			return false;
		if (item->end >= end)
			return true;
		start = item->end + 1; /* end > item->end, so this does not overflow */
	}
	return false;
}

const struct zkf_range *zkf_ranges_conflicting(const struct zkf_ranges *set, int64_t start, int64_t end, uint8_t mode)
{
	for (size_t i = 0; i < set->count; i++) {
		const struct zkf_range *item = &set->items[i];

		if (item->start <= end && item->end >= start && (mode == ZKF_EXCLUSIVE || item->mode == ZKF_EXCLUSIVE))
			return item;
	}
	return NULL;
}

size_t zkf_ranges_within(const struct zkf_ranges *set, int64_t start, int64_t end)
{
	size_t count = 0;

	for (size_t i = 0; i < set->count; i++)
		count += set->items[i].start <= end && set->items[i].end >= start;
	return count;
}

bool zkf_ranges_conflict(const struct zkf_ranges *a, const struct zkf_ranges *b)
{
	for (size_t i = 0; i < a->count; i++)
		if (zkf_ranges_conflicting(b, a->items[i].start, a->items[i].end, a->items[i].mode))
			return true;
	return false;
}

uint8_t zkf_ranges_mode(const struct zkf_ranges *set)
{
	uint8_t mode = ZKF_NONE;

	for (size_t i = 0; i < set->count; i++)
		if (set->items[i].mode > mode)
			mode = set->items[i].mode;
	return mode;
}
