/*
 * cli/list.c - zkflock list: the cluster locks that this host's keeper knows of
 *
 * Answers for: asking with ZKF_OP_LIST and printing the rows as an aligned table.
 * Threads:     one.
 * Specification: keeper/wire.h; zkflock(1).
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "keeper/wire.h"

static const char usage[] =
	"usage: zkflock list\n"
	"\n"
	"Shows the cluster locks that this host's keeper knows of: its own host's and those in their way.\n"
	"START and END are bytes, '-' as END means to the end of the file and beyond; STATE is held, kept (the host "
	"may\n"
	"lock without asking), waiting or recalled (another host waits for it); AGE is the time in that state.\n"
	"\n"
	"Exits with 0, 1 (the keeper answered with an error), 3 (no keeper answers), 64 (wrong command line).\n";

enum column { LOCK, KIND, MODE, START, END, HOST, PID, COMMAND, STATE, AGE, PATH, COLUMN_COUNT };

static const char *const headings[COLUMN_COUNT] = {"LOCK", "KIND",    "MODE",  "START", "END", "HOST",
                                                   "PID",  "COMMAND", "STATE", "AGE",   "PATH"};
static const bool is_number[COLUMN_COUNT] = {[START] = true, [END] = true, [PID] = true, [AGE] = true};

struct row {
	char *cells[COLUMN_COUNT]; /* all in one allocation, at cells[0] */
};

struct table {
	struct row *rows;
	size_t count, capacity;
};

/* format_age - 850ms, 12s, 3m05s, 2h10m, 3d04h: two units are enough for people */
static void format_age(char *out, size_t capacity, const char *cell)
{
	char *end;
	long long ms = strtoll(cell, &end, 10), s = ms / 1000;

	if (end == cell || *end != '\0' || ms < 0)
		snprintf(out, capacity, "%s", cell);
	else if (ms < 1000)
		snprintf(out, capacity, "%lldms", ms);
	else if (s < 60)
		snprintf(out, capacity, "%llds", s);
	else if (s < 3600)
		snprintf(out, capacity, "%lldm%02llds", s / 60, s % 60);
	else if (s < 86400)
		snprintf(out, capacity, "%lldh%02lldm", s / 3600, s / 60 % 60);
	else
		snprintf(out, capacity, "%lldd%02lldh", s / 86400, s / 3600 % 24);
}

static int table_grow(struct table *table)
{
	size_t capacity = table->capacity ? table->capacity * 2 : 64;
	struct row *rows;

	if (table->count < table->capacity)
		return 0;
	rows = reallocarray(table->rows, capacity, sizeof(*rows));
	if (!rows)
		return -ENOMEM;
	table->rows = rows;
	table->capacity = capacity;
	return 0;
}

#define AGE_BYTES 24

/* table_add - split a line at its tabs; fields that a keeper of another version lacks are empty, more are dropped */
static int table_add(struct table *table, const char *text, size_t len)
{
	struct row *row;
	char *copy, *next;
	int i;

	if (table_grow(table) < 0)
		return -ENOMEM;
	copy = malloc(len + 1 + AGE_BYTES);
	if (!copy)
		return -ENOMEM;
	memcpy(copy, text, len);
	copy[len] = '\0';
	next = copy;
	row = &table->rows[table->count++];
	for (i = 0; i < COLUMN_COUNT; i++) {
		char *cell = next ? strsep(&next, "\t") : copy + len;

		row->cells[i] = cell;
		for (; *cell != '\0'; cell++)
			if ((unsigned char)*cell < 0x20 || *cell == 0x7f)
				*cell = '?'; /* the keeper encodes them; a terminal must not depend on it */
	}
	format_age(copy + len + 1, AGE_BYTES, row->cells[AGE]);
	row->cells[AGE] = copy + len + 1;
	return 0;
}

static void table_free(struct table *table)
{
	size_t i;

	for (i = 0; i < table->count; i++)
		free(table->rows[i].cells[0]);
	free(table->rows);
}

static const char *cell_text(const struct row *row, int column)
{
	const char *text = row->cells[column];

	if (text[0] == '\0' || (column == END && strcmp(text, "-1") == 0))
		return "-";
	return text;
}

/* width - columns on the terminal, if it shows UTF-8: bytes that begin a character */
static int width(const char *text)
{
	int columns = 0;

	for (; *text != '\0'; text++)
		columns += ((unsigned char)*text & 0xc0) != 0x80;
	return columns;
}

static void print_cell(const char *text, int column, int columns)
{
	int pad = columns - width(text);

	if (column == COLUMN_COUNT - 1)
		printf("%s\n", text);
	else if (is_number[column])
		printf("%*s%s ", pad, "", text);
	else
		printf("%s%*s ", text, pad, "");
}

static void table_print(const struct table *table)
{
	int columns[COLUMN_COUNT];
	size_t r;
	int i;

	for (i = 0; i < COLUMN_COUNT; i++) {
		columns[i] = width(headings[i]);
		for (r = 0; r < table->count; r++)
			if (width(cell_text(&table->rows[r], i)) > columns[i])
				columns[i] = width(cell_text(&table->rows[r], i));
	}
	for (i = 0; i < COLUMN_COUNT; i++)
		print_cell(headings[i], i, columns[i]);
	for (r = 0; r < table->count; r++)
		for (i = 0; i < COLUMN_COUNT; i++)
			print_cell(cell_text(&table->rows[r], i), i, columns[i]);
}

/* collect - all rows.  Returns 0, or a negative errno after it has said why. */
static int collect(int fd, struct table *table)
{
	static union cli_packet packet;
	const char *text = packet.bytes + offsetof(struct zkf_reply, text);
	int len;

	for (;;) {
		len = cli_keeper_receive(fd, &packet);
		if (len < 0) {
			cli_warn("list: the keeper's answer: %s", strerror(-len));
			return len;
		}
		switch (packet.reply.answer) {
		case ZKF_ROW:
			if (table_add(table, text, (size_t)len) == 0)
				break;
			cli_warn("list: %s", strerror(ENOMEM));
			return -ENOMEM;
		case ZKF_END:
			return 0;
		case ZKF_FAILED:
			fputs("zkflock: list: the keeper says: ", stderr);
			cli_print_safe(stderr, text, (size_t)len);
			fprintf(stderr, " (%s)\n", strerror(packet.reply.error));
			return -EIO;
		default:
			cli_warn("list: the keeper's answer is of another version; restart zkflockd");
			return -EPROTO;
		}
	}
}

static int list_main(int argc, char **argv)
{
	struct table table = {0};
	int fd, result;

	if (argc > 1) {
		cli_warn("list: unexpected argument %s; see zkflock list --help", argv[1]);
		return EXIT_USAGE;
	}
	fd = cli_keeper_connect();
	if (fd < 0)
		return EXIT_LIST_NO_KEEPER;
	result = cli_keeper_ask(fd, ZKF_OP_LIST, "list");
	if (result == 0)
		result = collect(fd, &table);
	close(fd);
	if (result == 0)
		table_print(&table);
	table_free(&table);
	return result == 0 ? 0 : EXIT_LIST_FAILED;
}

const struct cli_verb cli_verb_list = {"list", usage, EXIT_USAGE, list_main, NULL};
