/*
 * cli/rules.c - zkflock check: the effective table, and what a reader of the rules may overlook
 *
 * Answers for: the origin of each line; groups; rules that meet in a path or in a lock name.
 * Does not:    ask the keeper.
 * Threads:     one.
 * Specification: zkflock(1), zkflock.conf(5).
 * SPDX-License-Identifier: Apache-2.0
 */
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "mapping/name.h"
#include "mapping/template.h"

/* Longer templates are not compared: two rows of this many answers are kept. */
#define PIECES_MAX 1024

/* A template as a pattern: what one byte of the name may be, and whether that byte may be there any number of times. */
struct piece {
	int byte;   /* ANY, COMPONENT: not '/', or a byte */
	bool often; /* 0 or more of it */
};
enum { ANY = -1, COMPONENT = -2 };

struct pattern {
	struct piece pieces[PIECES_MAX];
	size_t count;
};

static void warn(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void warn(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	fputs("  warning   ", stdout);
	vprintf(format, arguments);
	putchar('\n');
	va_end(arguments);
}

/* pattern_of - false: too long */
static bool pattern_of(const struct zkf_rule *rule, struct pattern *pattern)
{
	size_t i, took;
	unsigned char byte;

	pattern->count = 0;
	for (i = 0; i < rule->name.len; i += took) {
		enum zkf_piece piece = zkf_template_take(&rule->name, i, &took, &byte);
		int what = piece == ZKF_PIECE_BYTE                            ? byte
		         : piece == ZKF_PIECE_BASE || piece == ZKF_PIECE_STAR ? COMPONENT
		                                                              : ANY;

		if (pattern->count + 2 > PIECES_MAX)
			return false;
		pattern->pieces[pattern->count++] = (struct piece){what, false};
		if (what < 0) /* one byte or more */
			pattern->pieces[pattern->count++] = (struct piece){what, true};
	}
	return true;
}

static bool bytes_meet(const struct piece *a, const struct piece *b)
{
	if (a->byte >= 0 && b->byte >= 0)
		return a->byte == b->byte;
	return !((a->byte == '/' && b->byte == COMPONENT) || (b->byte == '/' && a->byte == COMPONENT));
}

/* meet - is there a name that both patterns can become?  below: the answers for the rest of a behind this piece */
static bool meet_from(const struct pattern *a, const struct pattern *b, size_t i, size_t j, const bool *below,
                      const bool *row)
{
	const struct piece *x = i < a->count ? &a->pieces[i] : NULL, *y = j < b->count ? &b->pieces[j] : NULL;

	if (!x && !y)
		return true;
	if (x && x->often && (below[j] || (y && bytes_meet(x, y) && row[j + 1])))
		return true;
	if (y && y->often && (row[j + 1] || (x && bytes_meet(x, y) && below[j])))
		return true;
	return x && y && !x->often && !y->often && bytes_meet(x, y) && below[j + 1];
}

static bool patterns_meet(const struct pattern *a, const struct pattern *b)
{
	static bool rows[2][PIECES_MAX + 2];
	bool *row = rows[0], *below = rows[1];
	size_t i, j;

	memset(rows, 0, sizeof(rows));
	for (i = a->count + 1; i-- > 0;) {
		bool *swap = row;

		row = below;
		below = swap;
		row[b->count + 1] = false;
		for (j = b->count + 1; j-- > 0;)
			row[j] = meet_from(a, b, i, j, below, row);
	}
	return row[0];
}

static bool same_template(const struct zkf_rule *a, const struct zkf_rule *b)
{
	return a->name.len == b->name.len && memcmp(a->name.ptr, b->name.ptr, a->name.len) == 0;
}

/* beginnings_differ - before any part of the path: so most rules are told apart without the work */
static bool beginnings_differ(const struct zkf_rule *a, const struct zkf_rule *b)
{
	size_t i = 0, j = 0, took;
	unsigned char x, y;

	while (i < a->name.len && j < b->name.len) {
		if (zkf_template_take(&a->name, i, &took, &x) != ZKF_PIECE_BYTE)
			return false;
		i += took;
		if (zkf_template_take(&b->name, j, &took, &y) != ZKF_PIECE_BYTE)
			return false;
		j += took;
		if (x != y)
			return true;
	}
	return false;
}

/* names_meet - can files below both prefixes get one lock name? */
static bool names_meet(const struct zkf_rule *a, const struct zkf_rule *b)
{
	static struct pattern x, y;

	if (same_template(a, b))
		return true;
	if (beginnings_differ(a, b))
		return false;
	return pattern_of(a, &x) && pattern_of(b, &y) && patterns_meet(&x, &y);
}

static bool has_piece(const struct zkf_rule *rule, enum zkf_piece wanted, unsigned char number)
{
	size_t i, took;
	unsigned char byte;

	for (i = 0; i < rule->name.len; i += took)
		if (zkf_template_take(&rule->name, i, &took, &byte) == wanted &&
		    (wanted != ZKF_PIECE_STAR || byte == number))
			return true;
	return false;
}

static void warn_of_sharing(const struct zkf_rule *rule)
{
	int star;

	if (rule->group) {
		warn("a group: the name has none of %%r, %%p and %%b, so files below the prefix share one lock");
		return;
	}
	if (has_piece(rule, ZKF_PIECE_PATH, 0))
		return;
	if (!has_piece(rule, ZKF_PIECE_BELOW, 0) && !has_piece(rule, ZKF_PIECE_DIRECTORY, 0))
		warn("%%b without %%d: files of one base name in different directories share one lock");
	for (star = 1; star <= rule->stars; star++)
		if (!has_piece(rule, ZKF_PIECE_STAR, (unsigned char)star))
			warn("no %%%d in the name: files that differ in that '*' of the prefix only share one lock",
			     star);
}

static void warn_of_meeting(const struct zkf_rule *rule, const struct zkf_rule *other)
{
	if (zkf_rules_ambiguous(rule, other))
		warn("some paths are covered by %s:%d too; there %s wins, whose prefix is literal further to the left",
		     other->place.file, other->place.line, zkf_rules_precede(rule, other) ? "this rule" : "the other");
	if (rule->excluded || other->excluded || !names_meet(rule, other))
		return;
	if (rule->group != other->group)
		warn("%s:%d can make the same name, but one of them is a group: they do NOT exclude each other",
		     other->place.file, other->place.line);
	else
		warn("a group with %s:%d: it can make the same name, and files of one name share one lock",
		     other->place.file, other->place.line);
}

void cli_rule_warn(const struct cli_config *loaded, const struct zkf_rule *rule)
{
	const struct zkf_config *config = &loaded->config;
	char path[PATH_MAX], real[PATH_MAX];
	size_t i;

	if (cli_prefix_look(rule, path, real) == 1)
		cli_prefix_warn(rule, real);
	if (!rule->excluded)
		warn_of_sharing(rule);
	for (i = 0; i < config->rule_count; i++)
		if (&config->rules[i] != rule)
			warn_of_meeting(rule, &config->rules[i]);
}

static void print_place(const struct zkf_place *place)
{
	if (place->line)
		printf("%s:%d: ", place->file, place->line);
	else
		fputs("default: ", stdout);
}

static void print_settings(const struct zkf_config *config)
{
	const int64_t values_ms[ZKF_SETTING_COUNT] = {
		[ZKF_SESSION_TIMEOUT] = config->session_timeout_ms,
		[ZKF_TICK_TIME] = config->tick_time_ms,
		[ZKF_CONNECT_TIMEOUT] = config->connect_timeout_ms,
		[ZKF_KEEP] = config->keep_ms,
	};
	int i;

	for (i = 0; i < ZKF_SETTING_COUNT; i++) {
		if (i == ZKF_METRICS_FILE && config->metrics_file.len == 0)
			continue; /* none */
		print_place(&config->places[i]);
		printf("%s ", zkf_setting_names[i]);
		if (i == ZKF_ENSEMBLE && config->ensemble.len == 0)
			puts("(none: no keeper starts)");
		else if (i == ZKF_ENSEMBLE)
			printf("%.*s\n", (int)config->ensemble.len, config->ensemble.ptr);
		else if (i == ZKF_ROOT)
			printf("%.*s\n", config->root.len ? (int)config->root.len : 1,
			       config->root.len ? config->root.ptr : "/");
		else if (i == ZKF_METRICS_FILE)
			printf("%.*s\n", (int)config->metrics_file.len, config->metrics_file.ptr);
		else if (i == ZKF_CREDENTIALS)
			printf("%.*s\n", config->credentials.len ? (int)config->credentials.len : 6,
			       config->credentials.len ? config->credentials.ptr : "(none)");
		else if (i == ZKF_USER_CONNECTIONS || i == ZKF_USER_LOCKS)
			printf("%d\n", i == ZKF_USER_LOCKS ? config->user_locks : config->user_connections);
		else
			printf("%lldms\n", (long long)values_ms[i]);
	}
}

int cli_check_all(const struct cli_config *loaded)
{
	const struct zkf_config *config = &loaded->config;
	size_t i;

	print_settings(config);
	for (i = 0; i < config->rule_count; i++) {
		const struct zkf_rule *rule = &config->rules[i];

		print_place(&rule->place);
		printf("map %.*s %.*s", (int)rule->prefix.len, rule->prefix.ptr, (int)rule->name.len, rule->name.ptr);
		if (!rule->excluded)
			printf(" on_loss=%s unavailable=%s keep=%lldms", zkf_on_loss_names[rule->on_loss],
			       zkf_unavailable_names[rule->unavailable], (long long)rule->keep_ms);
		putchar('\n');
		cli_rule_warn(loaded, rule);
	}
	return 0;
}
