/*
 * cli/status.c - zkflock status: how this host's keeper is
 *
 * Answers for: asking with ZKF_OP_STATUS; the text for people, JSON; warnings about servers' settings.
 * Threads:     one.
 * Specification: zkflock(1); keeper/wire.h.
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "ensemble.h"

static const char usage[] =
	"usage: zkflock status [-J|--json]\n"
	"\n"
	"Shows how this host's keeper is: session, lease, what it has and has done since it started, how long grants took,\n"
	"and warnings about settings of the ZooKeeper servers.\n"
	"  -J, --json  as JSON\n"
	"\n"
	"Exits with 0 (locks can be granted), 1 (they can't; it says why), 3 (no keeper answers), 64 (wrong command line).\n";

#define FACTS_MAX 128
#define WARNINGS_MAX 16

struct facts {
	struct fact {
		char *key, *value;
	} items[FACTS_MAX];
	size_t count;
	char *warnings[WARNINGS_MAX];
	size_t warning_count;
};

static int add(struct facts *facts, const char *key, const char *value)
{
	struct fact *fact = &facts->items[facts->count];

	if (facts->count == FACTS_MAX)
		return 0;
	fact->key = strdup(key);
	fact->value = strdup(value);
	if (!fact->key || !fact->value) {
		free(fact->key);
		free(fact->value);
		return -ENOMEM;
	}
	facts->count++;
	return 0;
}

static int row(void *context, char *text, size_t len)
{
	char *tab = memchr(text, '\t', len);

	if (!tab)
		return 0;
	*tab = '\0';
	return add(context, text, tab + 1);
}

static const char *get(const struct facts *facts, const char *key)
{
	size_t i;

	for (i = 0; i < facts->count; i++)
		if (strcmp(facts->items[i].key, key) == 0)
			return facts->items[i].value;
	return "";
}

static int get_number(const struct facts *facts, const char *key)
{
	return atoi(get(facts, key));
}

static void warning(void *context, const char *text)
{
	struct facts *facts = context;

	if (facts->warning_count < WARNINGS_MAX)
		facts->warnings[facts->warning_count++] = strdup(text);
}

/* judge - ask the server that the keeper is connected to, and add what is to be said */
static void judge(struct facts *facts)
{
	const struct cli_times times = {
		.session_ms = get_number(facts, "session_timeout_ms"),
		.configured_ms = get_number(facts, "session_timeout_configured_ms"),
		.tick_time_ms = get_number(facts, "tick_time_ms"),
		.lease_ms = get_number(facts, "lease_full_ms"),
	};
	struct cli_server server;
	bool known = get(facts, "server")[0] && cli_server_look(get(facts, "server"), &server) == 0;

	if (known) {
		add(facts, "server_version", server.version);
		add(facts, "server_mode", server.mode);
	}
	cli_ensemble_advise(get(facts, "ensemble"), known ? &server : NULL, &times, warning, facts);
}

static bool is_number(const char *text)
{
	size_t digits;

	text += *text == '-';
	digits = strspn(text, "0123456789");
	return digits > 0 && digits < 19 && text[digits] == '\0' && (text[0] != '0' || digits == 1);
}

/* Of the session its 16 digits, which may look like a number. */
static void print_json_value(const struct fact *fact)
{
	if (is_number(fact->value) && strcmp(fact->key, "session") != 0)
		fputs(fact->value, stdout);
	else
		cli_json_string(stdout, fact->value, strlen(fact->value));
}

/* "a.b" are members of an object "a"; those of one object follow each other. */
static void print_json(const struct facts *facts)
{
	size_t i, open_bytes = 0;
	const char *open = NULL;

	putchar('{');
	for (i = 0; i < facts->count; i++) {
		const struct fact *fact = &facts->items[i];
		const char *dot = strchr(fact->key, '.'), *name = dot ? dot + 1 : fact->key;
		bool same =
			open && dot && (size_t)(dot - fact->key) == open_bytes && !memcmp(open, fact->key, open_bytes);

		if (open && !same)
			fputs("\n   }", stdout);
		if (i > 0)
			putchar(',');
		if (dot && !same) {
			open_bytes = (size_t)(dot - fact->key);
			fputs("\n   ", stdout);
			cli_json_string(stdout, fact->key, open_bytes);
			fputs(": {", stdout);
		}
		open = dot ? fact->key : NULL;
		fputs(dot ? "\n      " : "\n   ", stdout);
		cli_json_string(stdout, name, strlen(name));
		fputs(": ", stdout);
		print_json_value(fact);
	}
	if (open)
		fputs("\n   }", stdout);
	fputs(",\n   \"warnings\": [", stdout);
	for (i = 0; i < facts->warning_count; i++) {
		fputs(i > 0 ? ", " : "", stdout);
		cli_json_string(stdout, facts->warnings[i], strlen(facts->warnings[i]));
	}
	puts("]\n}");
}

/* The buckets of a histogram, those that add something. */
static void print_histogram(const struct facts *facts, const char *label, const char *what)
{
	char key[64];
	size_t i, len;
	long long count, before = 0, now;

	snprintf(key, sizeof(key), "%s.count", label);
	count = atoll(get(facts, key));
	snprintf(key, sizeof(key), "%s.sum_ms", label);
	printf("%-18s %lld %s", label, count, what);
	if (count > 0)
		printf(", mean %lld ms", atoll(get(facts, key)) / count);
	putchar('\n');
	len = (size_t)snprintf(key, sizeof(key), "%s.within_", label);
	for (i = 0; i < facts->count; i++) {
		if (strncmp(facts->items[i].key, key, len) != 0)
			continue;
		now = atoll(facts->items[i].value);
		if (now > before)
			printf("%-18s %10lld  within %s\n", "", now, facts->items[i].key + len);
		before = now;
	}
}

static void print_text(const struct facts *facts)
{
	size_t i;

	for (i = 0; i < facts->count; i++) {
		const struct fact *fact = &facts->items[i];

		if (strchr(fact->key, '.') || fact->value[0] == '\0')
			continue;
		printf("%-18s ", fact->key);
		cli_print_safe(stdout, fact->value, strlen(fact->value));
		if (strcmp(fact->key, "session_timeout_ms") == 0 &&
		    strcmp(fact->value, get(facts, "session_timeout_configured_ms")) != 0)
			printf(" (configured: %s)", get(facts, "session_timeout_configured_ms"));
		putchar('\n');
	}
	print_histogram(facts, "grants_kept", "by what the host had already");
	print_histogram(facts, "grants_queued", "by way of the queue in ZooKeeper");
	for (i = 0; i < facts->warning_count; i++)
		printf("warning: %s\n", facts->warnings[i]);
}

static void facts_free(struct facts *facts)
{
	size_t i;

	for (i = 0; i < facts->count; i++) {
		free(facts->items[i].key);
		free(facts->items[i].value);
	}
	for (i = 0; i < facts->warning_count; i++)
		free(facts->warnings[i]);
}

static int status_main(int argc, char **argv)
{
	static struct facts facts;
	bool json = false;
	int i, fd, result;

	for (i = 1; i < argc; i++) {
		if (strcmp(argv[i], "-J") != 0 && strcmp(argv[i], "--json") != 0) {
			cli_warn("status: unexpected argument %s; see zkflock status --help", argv[i]);
			return EXIT_USAGE;
		}
		json = true;
	}
	fd = cli_keeper_connect();
	if (fd < 0)
		return EXIT_NO_KEEPER;
	result = cli_keeper_ask(fd, ZKF_OP_STATUS, "status");
	if (result == 0)
		result = cli_keeper_rows(fd, "status", row, &facts);
	close(fd);
	if (result == 0) {
		judge(&facts);
		if (json)
			print_json(&facts);
		else
			print_text(&facts);
		result = strcmp(get(&facts, "state"), "ready") == 0 ? 0 : -EAGAIN;
	}
	facts_free(&facts);
	return result == 0 ? 0 : EXIT_FAILED;
}

const struct cli_verb cli_verb_status = {"status", usage, EXIT_USAGE, status_main, CLI_OWN_OPTIONS};
