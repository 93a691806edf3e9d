/*
 * cli/main.c - zkflock: one verb, one file
 *
 * Answers for: finding the verb, --help and --version everywhere.
 * Threads:     one.
 * Specification: zkflock(1).
 * SPDX-License-Identifier: Apache-2.0
 */
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

static const struct cli_verb *const verbs[] = {&cli_verb_run,    &cli_verb_check, &cli_verb_list,  &cli_verb_reload,
                                               &cli_verb_status, &cli_verb_who,   &cli_verb_break, &cli_verb_doctor,
                                               &cli_verb_lock,   &cli_verb_token};

#define VERB_COUNT (sizeof(verbs) / sizeof(verbs[0]))

static const char usage[] = "usage: zkflock VERB [ARGUMENT...]\n"
			    "       zkflock [VERB] --help | --version\n"
			    "\n"
			    "Advisory file locks (flock, fcntl, lockf) that hold across a cluster.\n"
			    "  run     run a command with its file locks made cluster locks\n"
			    "  lock    run a command under a cluster lock that has a name and no file, as flock(1)\n"
			    "  check   show which rule, and which lock name, a path has\n"
			    "  list    show the locks of the cluster, who holds them and who waits\n"
			    "  who     the same for one path or lock\n"
			    "  break   take a lock away from who holds it\n"
			    "  token   print a number that only grows from holder to holder of a lock\n"
			    "  status  show how this host's keeper is, and what it has done\n"
			    "  doctor  check everything, and say what is to be done\n"
			    "  reload  make this host's keeper read the configuration again\n"
			    "\n"
			    "`zkflock VERB --help` says more; so does zkflock(1).\n";

void cli_warn(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	fputs("zkflock: ", stderr);
	vfprintf(stderr, format, arguments);
	fputc('\n', stderr);
	va_end(arguments);
}

void cli_print_safe(FILE *stream, const char *bytes, size_t len)
{
	size_t i;

	for (i = 0; i < len; i++) {
		unsigned char byte = (unsigned char)bytes[i];

		/* Bytes from 0x80 up are most often UTF-8 and are left to the terminal; C0 and DEL are not. */
		if (byte < 0x20 || byte == 0x7f)
			fprintf(stream, "\\%03o", byte);
		else if (byte == '\\')
			fputs("\\\\", stream);
		else
			fputc(byte, stream);
	}
}

/* finish - a report that did not reach its reader is no success */
static int finish(int code)
{
	if (fflush(stdout) == 0 && !ferror(stdout))
		return code;
	cli_warn("standard output: %s", strerror(errno));
	return code == 0 ? EXIT_FAILURE : code;
}

static int print_version(void)
{
	puts("zkflock " ZKF_VERSION);
	return finish(0);
}

static int run_verb(const struct cli_verb *verb, int argc, char **argv)
{
	if (argc > 1 && strcmp(argv[1], "--help") == 0) {
		fputs(verb->usage, stdout);
		return finish(0);
	}
	if (argc > 1 && strcmp(argv[1], "--version") == 0)
		return print_version();
	if (argc > 1 && argv[1][0] == '-' && argv[1][1] != '\0' && strcmp(argv[1], "--") != 0 &&
	    !(verb->option && (strcmp(verb->option, CLI_OWN_OPTIONS) == 0 || strcmp(argv[1], verb->option) == 0))) {
		cli_warn("%s: unknown option %s; see zkflock %s --help", verb->name, argv[1], verb->name);
		return verb->usage_exit;
	}
	return finish(verb->main(argc, argv));
}

int main(int argc, char **argv)
{
	size_t i;

	if (argc < 2) {
		fputs(usage, stderr);
		return EXIT_USAGE;
	}
	if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "help") == 0) {
		fputs(usage, stdout);
		return finish(0);
	}
	if (strcmp(argv[1], "--version") == 0)
		return print_version();
	for (i = 0; i < VERB_COUNT; i++)
		if (strcmp(argv[1], verbs[i]->name) == 0)
			return run_verb(verbs[i], argc - 1, argv + 1);
	fprintf(stderr, "zkflock: unknown verb %s; allowed are", argv[1]);
	for (i = 0; i < VERB_COUNT; i++)
		fprintf(stderr, "%s %s", i > 0 ? "," : "", verbs[i]->name);
	fputc('\n', stderr);
	return EXIT_USAGE;
}
