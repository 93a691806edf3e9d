/*
 * cli/table.c - see table.h
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE

#include "table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "mapping/name.h"

/* The fields of a row, in wire.h's order. */
enum field { LOCK, KIND, MODE, START, END, HOST, PID, COMMAND, STATE, AGE, PATH, SIZE, BLOCKER, CLAIM, FIELD_COUNT };

static const struct {
	const char *heading, *key;
	bool number;
} columns[CLI_COLUMN_COUNT] = {
	[CLI_COMMAND] = {"COMMAND", "command", false}, [CLI_PID] = {"PID", "pid", true},
	[CLI_TYPE] = {"TYPE", "type", false},          [CLI_SIZE] = {"SIZE", "size", true},
	[CLI_MODE] = {"MODE", "mode", false},          [CLI_M] = {"M", "m", true},
	[CLI_START] = {"START", "start", true},        [CLI_END] = {"END", "end", true},
	[CLI_PATH] = {"PATH", "path", false},          [CLI_LOCK] = {"LOCK", "lock", false},
	[CLI_HOST] = {"HOST", "host", false},          [CLI_STATE] = {"STATE", "state", false},
	[CLI_AGE] = {"AGE", "age_ms", true},           [CLI_BLOCKER] = {"BLOCKER", "blocker", false},
};

/* ---- rows ---- */

static int hex(char digit)
{
	return digit >= '0' && digit <= '9' ? digit - '0' : digit >= 'A' && digit <= 'F' ? digit - 'A' + 10 : -1;
}

/* decode - %XX in place; what is no such thing stays as it is */
static void decode(char *text)
{
	char *to = text;

	for (; *text != '\0'; text++) {
		int high = text[0] == '%' ? hex(text[1]) : -1, low = high >= 0 ? hex(text[2]) : -1;

		if (low >= 0 && (high || low)) {
			*to++ = (char)(high * 16 + low);
			text += 2;
		} else {
			*to++ = *text;
		}
	}
	*to = '\0';
}

static int table_grow(struct cli_table *table)
{
	size_t capacity = table->capacity ? table->capacity * 2 : 64;
	struct cli_row *rows;

	if (table->count < table->capacity)
		return 0;
	rows = reallocarray(table->rows, capacity, sizeof(*rows));
	if (!rows)
		return -ENOMEM;
	table->rows = rows;
	table->capacity = capacity;
	return 0;
}

static long long number_of(const char *text)
{
	char *end;
	long long number = strtoll(text, &end, 10);

	return end == text || *end != '\0' ? -1 : number;
}

static const char *type_of(const char *kind)
{
	return strcmp(kind, "flock") == 0 ? "FLOCK" : strcmp(kind, "record") == 0 ? "RECORD" : "GROUP";
}

/* lslocks(8) marks the mode of one that waits. */
static const char *mode_of(const char *mode, const char *state)
{
	bool waits = strcmp(state, "waiting") == 0;

	if (strcmp(mode, "READ") == 0)
		return waits ? "READ*" : "READ";
	return waits ? "WRITE*" : "WRITE";
}

/* row_add - split a line at its tabs; fields that a keeper of another version lacks are "-", more are dropped */
static int row_add(void *context, char *text, size_t len)
{
	static const char unknown[] = "-";
	struct cli_table *table = context;
	const char *fields[FIELD_COUNT];
	struct cli_row *row;
	char *copy, *next, *znode;
	int i;

	if (table_grow(table) < 0)
		return -ENOMEM;
	copy = malloc(2 * len + 2);
	if (!copy)
		return -ENOMEM;
	memcpy(copy, text, len + 1);
	next = znode = copy;
	for (i = 0; i < FIELD_COUNT; i++) {
		char *field = next ? strsep(&next, "\t") : NULL;

		if (field)
			decode(field);
		fields[i] = field && *field ? field : unknown;
	}
	row = &table->rows[table->count++];
	*row = (struct cli_row){
		.znode = znode,
		.type = type_of(fields[KIND]),
		.mode = mode_of(fields[MODE], fields[STATE]),
		.host = fields[HOST],
		.command = fields[COMMAND],
		.state = fields[STATE],
		.path = fields[PATH],
		.blocker = fields[BLOCKER],
		.claim = fields[CLAIM],
		.start = number_of(fields[START]),
		.end = number_of(fields[END]),
		.pid = number_of(fields[PID]),
		.age_ms = number_of(fields[AGE]),
		.size = number_of(fields[SIZE]),
		.lock = copy + len + 1,
	};
	strcpy(row->lock, znode);
	if (!strchr(znode, '~')) /* a cut name ends with "~" and a hash: nothing leads back */
		decode(row->lock);
	return 0;
}

int cli_table_fetch(struct cli_table *table, const char *verb)
{
	int result, fd = cli_keeper_connect();

	if (fd < 0)
		return EXIT_NO_KEEPER;
	result = cli_keeper_ask(fd, ZKF_OP_LIST, verb);
	if (result == 0)
		result = cli_keeper_rows(fd, verb, row_add, table);
	close(fd);
	return result == 0 ? 0 : EXIT_FAILED;
}

void cli_table_keep(struct cli_table *table, const char *name)
{
	char znode[ZKF_NAME_BYTES_MAX + 1];
	size_t i, kept = 0;

	zkf_name_encode(name, strlen(name), znode);
	for (i = 0; i < table->count; i++) {
		if (strcmp(table->rows[i].znode, name) == 0 || strcmp(table->rows[i].znode, znode) == 0)
			table->rows[kept++] = table->rows[i];
		else
			free(table->rows[i].znode);
	}
	table->count = kept;
}

void cli_table_free(struct cli_table *table)
{
	size_t i;

	for (i = 0; i < table->count; i++)
		free(table->rows[i].znode);
	free(table->rows);
	*table = (struct cli_table){0};
}

/* ---- columns ---- */

int cli_layout_columns(struct cli_layout *layout, const char *list, const char *verb)
{
	char name[16];
	const char *end;
	int i;

	layout->column_count = 0;
	for (;; list = end + 1) {
		end = strchrnul(list, ',');
		snprintf(name, sizeof(name), "%.*s", (int)(end - list), list);
		for (i = 0; i < CLI_COLUMN_COUNT; i++)
			if (strcasecmp(name, columns[i].heading) == 0)
				break;
		if (i == CLI_COLUMN_COUNT || layout->column_count == CLI_COLUMN_COUNT) {
			fprintf(stderr, "zkflock: %s: %s column %s; allowed are", verb,
			        i == CLI_COLUMN_COUNT ? "unknown" : "too many columns, at", name[0] ? name : "''");
			for (i = 0; i < CLI_COLUMN_COUNT; i++)
				fprintf(stderr, "%s %s", i > 0 ? "," : "", columns[i].heading);
			fputc('\n', stderr);
			return -EINVAL;
		}
		layout->columns[layout->column_count++] = i;
		if (*end == '\0')
			return 0;
	}
}

void cli_layout_default(struct cli_layout *layout)
{
	static const int some[] = {CLI_COMMAND, CLI_PID,   CLI_HOST, CLI_TYPE,    CLI_MODE, CLI_START,
	                           CLI_END,     CLI_STATE, CLI_AGE,  CLI_BLOCKER, CLI_LOCK, CLI_PATH};
	int i;

	layout->column_count = layout->json ? CLI_COLUMN_COUNT : (int)(sizeof(some) / sizeof(some[0]));
	for (i = 0; i < layout->column_count; i++)
		layout->columns[i] = layout->json ? i : some[i];
}

/* ---- text ---- */

/* format_age - 850ms, 12s, 3m05s, 2h10m, 3d04h: two units are enough for people */
static void format_age(char *out, size_t capacity, long long ms)
{
	long long s = ms / 1000;

	if (ms < 1000)
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

/* number_in - false: not known, or (END) to the end of the file and beyond */
static bool number_in(const struct cli_row *row, int column, long long *number)
{
	switch (column) {
	case CLI_PID:
		*number = row->pid;
		return row->pid > 0;
	case CLI_SIZE:
		*number = row->size;
		break;
	case CLI_START:
		*number = row->start;
		break;
	case CLI_END:
		*number = row->end;
		break;
	case CLI_AGE:
		*number = row->age_ms;
		break;
	default: /* M: Linux has no mandatory locks any more */
		*number = 0;
		break;
	}
	return *number >= 0;
}

static const char *text_in(const struct cli_row *row, int column)
{
	switch (column) {
	case CLI_COMMAND:
		return row->command;
	case CLI_TYPE:
		return row->type;
	case CLI_MODE:
		return row->mode;
	case CLI_PATH:
		return row->path;
	case CLI_LOCK:
		return row->lock;
	case CLI_HOST:
		return row->host;
	case CLI_STATE:
		return row->state;
	default:
		return row->blocker;
	}
}

/* cell - as it is printed; allocated, NULL when memory is out */
static char *cell(const struct cli_row *row, int column)
{
	char *text = NULL, age[24];
	long long number;
	size_t size;
	FILE *out;

	if (columns[column].number) {
		bool known = number_in(row, column, &number);

		if (known && column == CLI_AGE)
			format_age(age, sizeof(age), number);
		else
			snprintf(age, sizeof(age), known ? "%lld" : "-", number);
		return strdup(age);
	}
	out = open_memstream(&text, &size);
	if (!out)
		return NULL;
	cli_print_safe(out, text_in(row, column), strlen(text_in(row, column)));
	fclose(out);
	return text;
}

/* width - columns on the terminal, if it shows UTF-8: bytes that begin a character */
static int width(const char *text)
{
	int count = 0;

	for (; *text != '\0'; text++)
		count += ((unsigned char)*text & 0xc0) != 0x80;
	return count;
}

static void print_cell(const char *text, int column, int wide, bool last)
{
	int pad = wide - width(text);

	if (columns[column].number)
		printf("%*s%s%s", pad, "", text, last ? "\n" : " ");
	else if (last)
		printf("%s\n", text);
	else
		printf("%s%*s ", text, pad, "");
}

static void print_text(const struct cli_table *table, const struct cli_layout *layout)
{
	int wide[CLI_COLUMN_COUNT], i, count = layout->column_count;
	char **cells = calloc(table->count * (size_t)count + 1, sizeof(*cells));
	size_t r;

	for (i = 0; i < count; i++)
		wide[i] = layout->headings ? width(columns[layout->columns[i]].heading) : 0;
	for (r = 0; cells && r < table->count; r++)
		for (i = 0; i < count; i++) {
			char *text = cells[r * (size_t)count + (size_t)i] = cell(&table->rows[r], layout->columns[i]);

			if (text && width(text) > wide[i])
				wide[i] = width(text);
		}
	for (i = 0; i < count && layout->headings; i++)
		print_cell(columns[layout->columns[i]].heading, layout->columns[i], wide[i], i == count - 1);
	for (r = 0; cells && r < table->count; r++)
		for (i = 0; i < count; i++) {
			char *text = cells[r * (size_t)count + (size_t)i];

			print_cell(text ? text : "?", layout->columns[i], wide[i], i == count - 1);
			free(text);
		}
	free(cells);
}

/* ---- JSON ---- */

static void print_member(const struct cli_row *row, int column)
{
	const char *text;
	long long number;

	if (column == CLI_M) {
		fputs("\"m\": false", stdout);
		return;
	}
	printf("\"%s\": ", columns[column].key);
	if (columns[column].number) {
		if (number_in(row, column, &number))
			printf("%lld", number);
		else
			fputs("null", stdout);
		return;
	}
	text = text_in(row, column);
	if (strcmp(text, "-") == 0) {
		fputs("null", stdout);
		return;
	}
	cli_json_string(stdout, text, strlen(text));
	if (cli_is_utf8(text, strlen(text)))
		return;
	printf(", \"%s_bytes\": ", columns[column].key);
	cli_json_bytes(stdout, text, strlen(text));
}

static void print_json(const struct cli_table *table, const struct cli_layout *layout)
{
	size_t r;
	int i;

	fputs("{\n   \"locks\": [", stdout);
	for (r = 0; r < table->count; r++) {
		fputs(r > 0 ? ",\n      {" : "\n      {", stdout);
		for (i = 0; i < layout->column_count; i++) {
			fputs(i > 0 ? ", " : "", stdout);
			print_member(&table->rows[r], layout->columns[i]);
		}
		putchar('}');
	}
	fputs(table->count ? "\n   ]\n}\n" : "]\n}\n", stdout);
}

void cli_table_print(const struct cli_table *table, const struct cli_layout *layout)
{
	if (layout->json)
		print_json(table, layout);
	else
		print_text(table, layout);
}
