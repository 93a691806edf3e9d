/*
 * keeper/claim_text.c - see claim_text.h
 * SPDX-License-Identifier: Apache-2.0
 */
#include "claim_text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fault.h"

static const char exclusive_mark[] = "__lock__";
static const char shared_mark[] = "__rlock__";
#define SEQUENCE_DIGITS 10
/* More than a host ever writes: data that is not ours, or hostile.  Then the name's range counts. */
#define RANGES_MAX 4096

int zkf_claim_name_write(char name[ZKF_CLAIM_NAME_BYTES], const struct zkf_claim_id *id)
{
	char end[20] = "";

	if (id->end != ZKF_RANGE_MAX)
		snprintf(end, sizeof(end), "%" PRIx64, (uint64_t)id->end);
	return snprintf(name, ZKF_CLAIM_NAME_BYTES, "%s-%" PRIx64 "-%c%" PRIx64 "-%s%s", id->host, id->request,
	                id->nonblock ? 'n' : 'b', (uint64_t)id->start, end,
	                id->mode == ZKF_EXCLUSIVE ? exclusive_mark : shared_mark);
}

/* Reads lower-case hexadecimal digits; *text moves behind them.  False: no digit, or more than 63 bits. */
static bool read_hex(const char **text, uint64_t *value)
{
	const char *start = *text;
	uint64_t made = 0;

	for (; **text; ++*text) {
		char c = **text;
		unsigned digit;

		if (c >= '0' && c <= '9')
			digit = (unsigned)(c - '0');
		else if (c >= 'a' && c <= 'f')
			digit = (unsigned)(c - 'a') + 10;
		else
			break;
		if (made >> 60)
			return false;
		made = made << 4 | digit;
	}
	*value = made;
	return *text != start;
}

/* "A-B" or "A-": behind it *text stands at whatever follows. */
static bool read_range(const char **text, int64_t *start, int64_t *end)
{
	uint64_t first, last = ZKF_RANGE_MAX;

	if (!read_hex(text, &first) || first > ZKF_RANGE_MAX || **text != '-')
		return false;
	++*text;
	if (((**text >= '0' && **text <= '9') || (**text >= 'a' && **text <= 'f')) && !read_hex(text, &last))
		return false;
	if (last > ZKF_RANGE_MAX || last < first)
		return false;
	*start = (int64_t)first;
	*end = (int64_t)last;
	return true;
}

static bool read_own_prefix(struct zkf_claim_id *id, const char *name, const char *mark)
{
	const char *at = name + 16;

	if (strspn(name, "0123456789abcdef") != 16 || *at != '-')
		return false;
	memcpy(id->host, name, 16);
	id->host[16] = 0;
	at++;
	if (!read_hex(&at, &id->request) || *at++ != '-')
		return false;
	if (*at != 'n' && *at != 'b')
		return false;
	id->nonblock = *at++ == 'n';
	return read_range(&at, &id->start, &id->end) && at == mark;
}

int zkf_claim_name_read(struct zkf_claim_id *id, const char *name)
{
	size_t bytes = strlen(name);
	const char *digits = name + bytes - SEQUENCE_DIGITS, *mark;

	if (bytes < SEQUENCE_DIGITS + sizeof(exclusive_mark) - 1 || strspn(digits, "0123456789") != SEQUENCE_DIGITS)
		return -EINVAL;
	*id = (struct zkf_claim_id){.sequence = strtoll(digits, NULL, 10)};
	mark = digits - (sizeof(shared_mark) - 1);
	if (mark >= name && !strncmp(mark, shared_mark, sizeof(shared_mark) - 1)) {
		id->mode = ZKF_SHARED;
	} else {
		mark = digits - (sizeof(exclusive_mark) - 1);
		if (strncmp(mark, exclusive_mark, sizeof(exclusive_mark) - 1) != 0)
			return -EINVAL;
		id->mode = ZKF_EXCLUSIVE;
	}
	if (read_own_prefix(id, name, mark))
		return 0;
	id->foreign = true;
	id->host[0] = 0;
	id->nonblock = false;
	id->start = 0;
	id->end = ZKF_RANGE_MAX;
	return 0;
}

void zkf_claim_data_free(struct zkf_claim_data *data)
{
	zkf_ranges_free(&data->ranges);
	free(data->overtaken_by);
	free(data->held);
	*data = (struct zkf_claim_data){.answered = -1};
}

static void print_ranges(FILE *out, const struct zkf_ranges *set, uint8_t mode)
{
	const char *before = mode == ZKF_SHARED ? " r=" : " w=";

	for (size_t i = 0; i < set->count; i++) {
		const struct zkf_range *item = &set->items[i];

		if (item->mode != mode)
			continue;
		fprintf(out, "%s%" PRIx64 "-", before, (uint64_t)item->start);
		if (item->end != ZKF_RANGE_MAX)
			fprintf(out, "%" PRIx64, (uint64_t)item->end);
		before = ",";
	}
}

char *zkf_claim_data_write(const struct zkf_claim_data *data)
{
	char *text = NULL;
	size_t bytes;
	FILE *out = open_memstream(&text, &bytes);
	bool failed;

	if (!out)
		return NULL;
	fputs("zkf1", out);
	print_ranges(out, &data->ranges, ZKF_SHARED);
	print_ranges(out, &data->ranges, ZKF_EXCLUSIVE);
	if (data->answered >= 0)
		fprintf(out, " ans=%" PRId64, data->answered);
	if (data->confirmed)
		fputs(" c=1", out);
	if (data->pid)
		fprintf(out, " pid=%d", data->pid);
	if (data->command[0])
		fprintf(out, " comm=%s", data->command);
	if (data->state[0])
		fprintf(out, " st=%s", data->state);
	if (data->overtaken_by)
		fprintf(out, " ov=%s", data->overtaken_by);
	if (data->held)
		fprintf(out, " h=%s", data->held);
	failed = ferror(out) != 0;
	if (fclose(out) || failed) {
		free(text);
		return NULL;
	}
	return text;
}

static int read_ranges(struct zkf_ranges *set, const char *text, const char *end, uint8_t mode)
{
	while (text < end) {
		int64_t first, last;
		int error;

		if (set->count > RANGES_MAX || !read_range(&text, &first, &last) || text > end ||
		    (text < end && *text++ != ','))
			return -EINVAL;
		error = zkf_ranges_raise(set, first, last, mode);
		if (error)
			return error;
	}
	return 0;
}

static void copy_word(char *to, size_t capacity, const char *from, size_t bytes)
{
	if (bytes >= capacity)
		bytes = capacity - 1;
	memcpy(to, from, bytes);
	to[bytes] = 0;
}

static int read_word(struct zkf_claim_data *data, const char *word, const char *end)
{
	size_t bytes = (size_t)(end - word);

	if (!strncmp(word, "r=", 2))
		return read_ranges(&data->ranges, word + 2, end, ZKF_SHARED);
	if (!strncmp(word, "w=", 2))
		return read_ranges(&data->ranges, word + 2, end, ZKF_EXCLUSIVE);
	if (!strncmp(word, "ans=", 4)) {
		data->answered = strtoll(word + 4, NULL, 10);
	} else if (!strncmp(word, "c=1", 3)) {
		data->confirmed = true;
	} else if (!strncmp(word, "pid=", 4)) {
		data->pid = (int32_t)strtol(word + 4, NULL, 10);
	} else if (bytes > 5 && !strncmp(word, "comm=", 5)) {
		copy_word(data->command, sizeof(data->command), word + 5, bytes - 5);
	} else if (bytes > 3 && !strncmp(word, "st=", 3)) {
		copy_word(data->state, sizeof(data->state), word + 3, bytes - 3);
	} else if (bytes > 2 && !strncmp(word, "h=", 2)) {
		free(data->held);
		data->held = zkf_memdup(word + 2, bytes - 2);
		if (!data->held)
			return -ENOMEM;
	} else if (bytes > 3 && !strncmp(word, "ov=", 3)) {
		free(data->overtaken_by);
		data->overtaken_by = zkf_memdup(word + 3, bytes - 3);
		if (!data->overtaken_by)
			return -ENOMEM;
	}
	return 0;
}

int zkf_claim_data_read(struct zkf_claim_data *data, const char *text)
{
	int error = 0;

	*data = (struct zkf_claim_data){.answered = -1};
	if (strncmp(text, "zkf1", 4) != 0 || (text[4] && text[4] != ' '))
		return -EINVAL;
	text += 4;
	while (!error && *text) {
		const char *end;

		text += *text == ' ';
		end = strchrnul(text, ' ');
		error = read_word(data, text, end);
		text = end;
	}
	if (error)
		zkf_claim_data_free(data);
	return error;
}

bool zkf_held_conflicting(const char *held, int64_t start, int64_t end, uint8_t mode, struct zkf_range *range,
                          int32_t *pid)
{
	while (held && *held) {
		char *at;

		*pid = (int32_t)strtol(held, &at, 10);
		held = at + 1;
		if (*at != ':' || !read_range(&held, &range->start, &range->end) || *held++ != ':')
			return false;
		range->mode = *held == 'r' ? ZKF_SHARED : ZKF_EXCLUSIVE;
		if (range->start <= end && range->end >= start &&
		    (mode == ZKF_EXCLUSIVE || range->mode == ZKF_EXCLUSIVE))
			return true;
		held = strchr(held, ',');
		held = held ? held + 1 : NULL;
	}
	return false;
}

bool zkf_names_find(const char *names, const char *name)
{
	size_t bytes = strlen(name);

	while (names && *names) {
		const char *end = strchrnul(names, ',');

		if ((size_t)(end - names) == bytes && !memcmp(names, name, bytes))
			return true;
		names = *end ? end + 1 : end;
	}
	return false;
}

int zkf_names_add(char **names, const char *name)
{
	char *made;

	if (zkf_names_find(*names, name))
		return 0;
	if (!*names) {
		*names = zkf_memdup(name, strlen(name));
		return *names ? 0 : -ENOMEM;
	}
	made = zkf_calloc(1, strlen(*names) + strlen(name) + 2);
	if (!made)
		return -ENOMEM;
	stpcpy(stpcpy(stpcpy(made, *names), ","), name);
	free(*names);
	*names = made;
	return 0;
}

int zkf_held_add(char **held, int32_t pid, const struct zkf_range *range)
{
	char one[80], end[20] = "";

	if (range->end != ZKF_RANGE_MAX)
		snprintf(end, sizeof(end), "%" PRIx64, (uint64_t)range->end);
	snprintf(one, sizeof(one), "%d:%" PRIx64 "-%s:%c", pid, (uint64_t)range->start, end,
	         range->mode == ZKF_SHARED ? 'r' : 'w');
	return zkf_names_add(held, one);
}

int zkf_names_remove(char **names, const char *name)
{
	char *made = NULL, *next, *copy, *part;
	int error = 0;

	if (!zkf_names_find(*names, name))
		return 0;
	copy = zkf_memdup(*names, strlen(*names));
	if (!copy)
		return -ENOMEM;
	for (next = copy; !error && (part = strsep(&next, ",")) != NULL;)
		if (strcmp(part, name) != 0)
			error = zkf_names_add(&made, part);
	free(copy);
	if (error) {
		free(made);
		return error;
	}
	free(*names);
	*names = made;
	return 0;
}
