/*
 * tests/fuzz/fuzz_claim.c - anything as a claim's name and data, as another program or a damaged server may leave it
 *
 * Input: a name, a newline, data, a newline, a list of names.
 * Must hold: what was read, written and read again, is the same; ranges are in order; a name that is added is found, and not
 * when it was taken out.
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include "fuzz.h"

#include <stdbool.h>
#include <string.h>

#include "keeper/claim_text.h"
#include "keeper/wire.h"

static void try_name(const char *name)
{
	struct zkf_claim_id id, again;
	char written[ZKF_CLAIM_NAME_BYTES + 12];
	int bytes;

	if (zkf_claim_name_read(&id, name))
		return;
	MUST(id.mode == ZKF_SHARED || id.mode == ZKF_EXCLUSIVE);
	MUST(id.start >= 0 && id.start <= id.end && id.sequence >= 0);
	if (id.foreign) {
		MUST(id.start == 0 && id.end == ZKF_RANGE_MAX && !id.host[0]);
		return;
	}
	bytes = zkf_claim_name_write(written, &id);
	MUST(bytes > 0 && bytes < ZKF_CLAIM_NAME_BYTES);
	snprintf(written + bytes, sizeof(written) - (size_t)bytes, "%010lld", (long long)id.sequence);
	MUST(!zkf_claim_name_read(&again, written) && !again.foreign);
	MUST(!strcmp(id.host, again.host) && id.request == again.request && id.mode == again.mode &&
	     id.nonblock == again.nonblock && id.start == again.start && id.end == again.end &&
	     id.sequence == again.sequence);
}

static void must_be_ranges(const struct zkf_ranges *set)
{
	for (size_t i = 0; i < set->count; i++) {
		const struct zkf_range *item = &set->items[i];

		MUST(item->start >= 0 && item->start <= item->end);
		MUST(item->mode == ZKF_SHARED || item->mode == ZKF_EXCLUSIVE);
		MUST(!i || set->items[i - 1].end < item->start);
	}
}

static bool same_text(const char *a, const char *b)
{
	return a && b ? !strcmp(a, b) : a == b;
}

static void try_held(const char *held)
{
	struct zkf_range range;
	int32_t pid;

	if (zkf_held_conflicting(held, 10, 1000, ZKF_EXCLUSIVE, &range, &pid))
		MUST(range.start <= 1000 && range.end >= 10 && range.start <= range.end);
	if (zkf_held_conflicting(held, 0, ZKF_RANGE_MAX, ZKF_SHARED, &range, &pid))
		MUST(range.mode == ZKF_EXCLUSIVE && range.start >= 0);
}

static void try_data(const char *text)
{
	struct zkf_claim_data data, again;
	char *written;

	if (zkf_claim_data_read(&data, text)) {
		MUST(!data.ranges.count && !data.overtaken_by && !data.held);
		return;
	}
	must_be_ranges(&data.ranges);
	try_held(data.held);
	written = zkf_claim_data_write(&data);
	MUST(written);
	if (zkf_claim_data_read(&again, written)) {
		fprintf(stderr, "written as %s\n", written);
		abort();
	}
	MUST(zkf_ranges_equal(&data.ranges, &again.ranges));
	MUST(data.confirmed == again.confirmed && data.pid == again.pid);
	MUST(data.answered == again.answered || data.answered < 0);
	MUST(!strcmp(data.state, again.state) && !strcmp(data.command, again.command));
	MUST(same_text(data.overtaken_by, again.overtaken_by) && same_text(data.held, again.held));
	free(written);
	zkf_claim_data_free(&data);
	zkf_claim_data_free(&again);
}

static void try_names(const char *name, const char *list)
{
	char *names = *list ? strdup(list) : NULL;

	if (*name && !strchr(name, ',')) {
		MUST(!zkf_names_add(&names, name) && zkf_names_find(names, name));
		MUST(!zkf_names_remove(&names, name) && !zkf_names_find(names, name));
	}
	free(names);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1), *next = text, *name, *claim, *list;

	MUST(text);
	memcpy(text, data, size);
	text[size] = 0;
	name = strsep(&next, "\n");
	claim = next ? strsep(&next, "\n") : name;
	list = next ? next : claim;
	try_name(name);
	try_data(claim);
	try_names(name, list);
	free(text);
	return 0;
}
