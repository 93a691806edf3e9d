/*
 * cli/list.c - zkflock list and who: the locks of the cluster, or of one lock
 *
 * Answers for: options, from a path to its lock, showing it again and again.
 * Does not:    know rows; see table.c.
 * Threads:     one.
 * Specification: zkflock(1); lslocks(8).
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "mapping/name.h"
#include "table.h"

#define OPTIONS_TEXT                                                                                                          \
	"  -o, --output COLUMNS   which columns, separated by commas: COMMAND, PID, TYPE, SIZE, MODE, M, START, END, PATH,\n" \
	"                         LOCK, HOST, STATE, AGE, BLOCKER\n"                                                          \
	"  -n, --noheadings       no first line\n"                                                                            \
	"  -J, --json             as JSON, all columns unless -o chooses\n"                                                   \
	"      --watch [SECONDS]  again every SECONDS (2)\n"                                                                  \
	"\n"

static const char list_usage[] =
	"usage: zkflock list [-o COLUMNS] [-n] [-J] [--watch [SECONDS]]\n"
	"\n"
	"Shows every lock of the cluster that is held, kept or waited for: of each lock the queue in its order.\n"
	"STATE is held, kept (the host may lock without asking), granted (held or kept: only that host knows), waiting, or\n"
	"recalled (held, and another host waits).  '-' as END means to the end of the file and beyond.\n" OPTIONS_TEXT
	"Exits with 0, 1 (the keeper answered with an error), 3 (no keeper answers), 64 (wrong command line).\n";

static const char who_usage[] =
	"usage: zkflock who [-o COLUMNS] [-n] [-J] [--watch [SECONDS]] [--] PATH|LOCK\n"
	"\n"
	"Shows who holds a lock, and who waits for it, on every host.  What has a '/' at its beginning, or is a file, is a path,\n"
	"and its lock is meant; else it is a lock's name as `zkflock list` prints it.\n" OPTIONS_TEXT
	"Exits with 0 (somebody has it), 1 (nobody), 2 (trouble: the path is not mapped, or the keeper failed), 3 (no keeper\n"
	"answers), 64 (wrong command line).\n";

struct options {
	struct cli_layout layout;
	unsigned watch_s; /* 0: once */
};

static int parse_seconds(const char *text, unsigned *seconds, const char *verb)
{
	char *end;
	unsigned long number = strtoul(text, &end, 10);

	if (text[0] < '0' || text[0] > '9' || *end != '\0' || number < 1 || number > 86400) {
		cli_warn("%s: --watch %s; allowed are 1 to 86400 seconds", verb, text);
		return -EINVAL;
	}
	*seconds = (unsigned)number;
	return 0;
}

/* parse - 0 with optind at the first argument, or -EINVAL after it has said what is wrong */
static int parse(int argc, char **argv, struct options *options)
{
	static const struct option names[] = {{"output", required_argument, NULL, 'o'},
	                                      {"noheadings", no_argument, NULL, 'n'},
	                                      {"json", no_argument, NULL, 'J'},
	                                      {"watch", optional_argument, NULL, 'w'},
	                                      {NULL, 0, NULL, 0}};
	const char *chosen = NULL;
	int option;

	*options = (struct options){.layout = {.headings = true}};
	opterr = 0;
	optind = 1;
	while ((option = getopt_long(argc, argv, "+:o:nJ", names, NULL)) != -1) {
		if (option == 'o') {
			chosen = optarg;
		} else if (option == 'n') {
			options->layout.headings = false;
		} else if (option == 'J') {
			options->layout.json = true;
		} else if (option == 'w') {
			options->watch_s = 2;
			if (!optarg && optind < argc && argv[optind][0] >= '0' && argv[optind][0] <= '9')
				optarg = argv[optind++];
			if (optarg && parse_seconds(optarg, &options->watch_s, argv[0]) < 0)
				return -EINVAL;
		} else {
			cli_warn("%s: %s %s; see zkflock %s --help", argv[0],
			         option == ':' ? "no value for option" : "unknown option", argv[optind - 1], argv[0]);
			return -EINVAL;
		}
	}
	if (chosen)
		return cli_layout_columns(&options->layout, chosen, argv[0]);
	cli_layout_default(&options->layout);
	return 0;
}

/* show - once, or for ever.  name: of one lock, or NULL.  The exit code of the last time; *rows: how many there were */
static int show(const struct options *options, const char *verb, const char *name, size_t *rows)
{
	struct cli_table table = {0};
	int result;

	for (;;) {
		result = cli_table_fetch(&table, verb);
		if (result == 0 && name)
			cli_table_keep(&table, name);
		*rows = table.count;
		if (options->watch_s && isatty(STDOUT_FILENO))
			fputs("\033[H\033[2J", stdout); /* home, clear: as watch(1) */
		if (result == 0)
			cli_table_print(&table, &options->layout);
		cli_table_free(&table);
		if (!options->watch_s)
			return result;
		if (!isatty(STDOUT_FILENO) && !options->layout.json)
			putchar('\n');
		if (fflush(stdout) != 0 || ferror(stdout))
			return EXIT_FAILED;
		sleep(options->watch_s);
	}
}

static int list_main(int argc, char **argv)
{
	struct options options;
	size_t rows;

	if (parse(argc, argv, &options) < 0)
		return EXIT_USAGE;
	if (optind < argc) {
		cli_warn("list: unexpected argument %s; see zkflock list --help", argv[optind]);
		return EXIT_USAGE;
	}
	return show(&options, "list", NULL, &rows);
}

/* znode_of - of a path's lock; 0 or -ENOENT after it has said why there is none */
static int znode_of(const char *path, char znode[ZKF_NAME_BYTES_MAX + 1])
{
	const struct zkf_rule *rule;
	struct cli_config loaded;
	char real[PATH_MAX];
	int result;

	if (cli_config_load(&loaded) < 0)
		return -ENOENT;
	result = cli_path_resolve(path, real);
	if (result == 0) {
		rule = zkf_config_match(&loaded.config, real, strlen(real));
		result = !rule || rule->excluded ? -ENOENT : zkf_rule_znode(rule, real, strlen(real), znode);
		if (result < 0)
			cli_warn("who: %s is not a cluster lock; see zkflock check", path);
	} else {
		cli_warn("who: %s: %s", path, strerror(-result));
	}
	cli_config_free(&loaded);
	return result < 0 ? -ENOENT : 0;
}

static int who_main(int argc, char **argv)
{
	char znode[ZKF_NAME_BYTES_MAX + 1];
	const char *what;
	struct options options;
	size_t rows = 0;
	int result;

	if (parse(argc, argv, &options) < 0)
		return EXIT_USAGE;
	if (argc - optind != 1) {
		cli_warn("who: %s; see zkflock who --help",
		         optind < argc ? "more than one PATH or LOCK" : "no PATH or LOCK");
		return EXIT_USAGE;
	}
	what = argv[optind];
	if (what[0] == '/' || strncmp(what, "./", 2) == 0 || access(what, F_OK) == 0) {
		if (znode_of(what, znode) < 0)
			return EXIT_WHO_TROUBLE;
		what = znode;
	}
	result = show(&options, "who", what, &rows);
	if (result == EXIT_FAILED)
		return EXIT_WHO_TROUBLE;
	return result != 0 ? result : rows ? 0 : EXIT_WHO_NOBODY;
}

const struct cli_verb cli_verb_list = {"list", list_usage, EXIT_USAGE, list_main, CLI_OWN_OPTIONS};
const struct cli_verb cli_verb_who = {"who", who_usage, EXIT_USAGE, who_main, CLI_OWN_OPTIONS};
