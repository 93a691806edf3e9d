/*
 * cli/break.c - zkflock break: take a lock away from who holds it
 *
 * Answers for: showing whom it hits, asking, and telling the keeper exactly which claims to delete: whoever gets the lock
 *              meanwhile keeps it.
 * Threads:     one.
 * Specification: zkflock(1); keeper/wire.h.
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "table.h"

static const char usage[] =
	"usage: zkflock break [-fy] [-r REASON] [--] LOCK\n"
	"\n"
	"Takes LOCK (a name as `zkflock list` prints it) away from every host that has it.  A holder's host is told: it applies\n"
	"on_loss (by default the holder is killed), and when nothing of the lock is in use there, the next in the queue has it.\n"
	"Whom it hits is said first, and asked for on a terminal.\n"
	"  -f, --force          don't wait for the holder's host, which may hang: the next in the queue has the lock at once,\n"
	"                       though the holder may run on.  Be sure that it is gone or harmless\n"
	"  -y, --yes            don't ask\n"
	"  -r, --reason REASON  why, for the keeper's log\n"
	"\n"
	"Only root and the keeper's own user may do it.\n"
	"Exits with 0 (it was broken), 1 (it was not: nobody has it, the keeper refused, the answer was no), 3 (no keeper\n"
	"answers), 64 (wrong command line).\n";

static bool waits(const struct cli_row *row)
{
	return strcmp(row->state, "waiting") == 0;
}

/* holders_only - rows of those that have it */
static void holders_only(struct cli_table *table)
{
	size_t i, kept = 0;

	for (i = 0; i < table->count; i++) {
		if (waits(&table->rows[i]))
			free(table->rows[i].znode);
		else
			table->rows[kept++] = table->rows[i];
	}
	table->count = kept;
}

static bool asked(const char *lock)
{
	char answer[16] = "";

	printf("Take the lock ");
	cli_print_safe(stdout, lock, strlen(lock));
	printf(" away from these? [y/N] ");
	fflush(stdout);
	return fgets(answer, sizeof(answer), stdin) && (answer[0] == 'y' || answer[0] == 'Y');
}

static int nothing(void *context, char *text, size_t len)
{
	(void)context;
	(void)text;
	(void)len;
	return 0;
}

struct break_options {
	bool yes, force;
	const char *reason;
};

static int break_claim(const struct cli_row *row, const struct break_options *options)
{
	struct zkf_break_request request = {.head = {.magic = ZKF_WIRE_MAGIC, .op = ZKF_OP_BREAK}};
	int fd, result;

	request.head.kind = strcmp(row->type, "FLOCK") == 0  ? ZKF_FLOCK
	                  : strcmp(row->type, "RECORD") == 0 ? ZKF_RECORD
	                                                     : ZKF_GROUP;
	if (strlen(row->znode) >= sizeof(request.znode) || strlen(row->claim) >= sizeof(request.claim))
		return -ENAMETOOLONG;
	strcpy(request.znode, row->znode);
	strcpy(request.claim, row->claim);
	request.head.flags = options->force ? ZKF_FLAG_FORCE : 0;
	snprintf(request.reason, sizeof(request.reason), "%s", options->reason);
	fd = cli_keeper_connect();
	if (fd < 0)
		return fd;
	result = cli_keeper_send_bytes(fd, &request, sizeof(request), "break");
	if (result == 0)
		result = cli_keeper_rows(fd, "break", nothing, NULL);
	close(fd);
	return result;
}

/* break_all - each claim once, though several of its processes may be shown.  The exit code. */
static int break_all(const struct cli_table *table, const struct break_options *options)
{
	int result = 0;
	size_t i, k;

	for (i = 0; i < table->count; i++) {
		const struct cli_row *row = &table->rows[i];
		bool done = false;

		for (k = 0; k < i && !done; k++)
			done = strcmp(table->rows[k].claim, row->claim) == 0 &&
			       strcmp(table->rows[k].type, row->type) == 0;
		if (done)
			continue;
		if (break_claim(row, options) < 0)
			result = EXIT_FAILED;
		else
			printf("broken: %s, host %s\n", row->type, row->host);
	}
	return result;
}

static int parse(int argc, char **argv, struct break_options *options)
{
	static const struct option names[] = {{"force", no_argument, NULL, 'f'},
	                                      {"yes", no_argument, NULL, 'y'},
	                                      {"reason", required_argument, NULL, 'r'},
	                                      {NULL, 0, NULL, 0}};
	int option;

	opterr = 0;
	optind = 1;
	while ((option = getopt_long(argc, argv, "+:fyr:", names, NULL)) != -1) {
		if (option == 'f') {
			options->force = true;
		} else if (option == 'y') {
			options->yes = true;
		} else if (option == 'r') {
			options->reason = optarg;
		} else {
			cli_warn("break: %s %s; see zkflock break --help",
			         option == ':' ? "no value for option" : "unknown option", argv[optind - 1]);
			return -EINVAL;
		}
	}
	if (argc - optind == 1)
		return 0;
	cli_warn("break: %s; see zkflock break --help", optind < argc ? "more than one LOCK" : "no LOCK");
	return -EINVAL;
}

static int break_main(int argc, char **argv)
{
	struct cli_layout layout = {.headings = true};
	struct cli_table table = {0};
	struct break_options options = {.reason = "none given"};
	int result;

	if (parse(argc, argv, &options) < 0)
		return EXIT_USAGE;
	if (!options.yes && !isatty(STDIN_FILENO)) {
		cli_warn("break: nobody to ask: standard input is no terminal; allowed is --yes");
		return EXIT_USAGE;
	}
	result = cli_table_fetch(&table, "break");
	if (result != 0)
		return result;
	cli_table_keep(&table, argv[optind]);
	holders_only(&table);
	if (table.count == 0) {
		cli_warn("break: nobody has the lock %s; see zkflock %s", argv[optind],
		         argv[optind][0] == '/' ? "check for a file's lock" : "list");
		return EXIT_FAILED;
	}
	cli_layout_default(&layout);
	cli_table_print(&table, &layout);
	if (options.yes || asked(argv[optind]))
		result = break_all(&table, &options);
	else
		result = EXIT_FAILED;
	cli_table_free(&table);
	return result;
}

const struct cli_verb cli_verb_break = {"break", usage, EXIT_USAGE, break_main, CLI_OWN_OPTIONS};
