/*
 * cli/reload.c - zkflock reload: new rules for new locks
 *
 * Answers for: asking the keeper, and telling what it says.
 * Does not:    read the configuration itself: the keeper's view of it counts.
 * Threads:     one.
 * Specification: zkflock(1); keeper/wire.h.
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"

static const char usage[] =
	"usage: zkflock reload\n"
	"\n"
	"Makes this host's keeper read its configuration again.  The new rules count for new locks; held locks keep theirs;\n"
	"running programs notice.  If anything is wrong with it, it is said here and the old rules stay.\n"
	"\n"
	"Exits with 0 (the new rules count), 1 (the old ones stay), 3 (no keeper answers), 64 (wrong command line).\n";

static void print_line(FILE *stream, const char *text, size_t len)
{
	cli_print_safe(stream, text, len);
	fputc('\n', stream);
}

/* listen - until the keeper is done.  The exit code. */
static int listen_to(int fd)
{
	static union cli_packet packet;
	const char *text = packet.bytes + offsetof(struct zkf_reply, text);

	for (;;) {
		int len = cli_keeper_receive(fd, &packet);

		if (len < 0) {
			cli_warn("reload: the keeper's answer: %s; is it of another version?", strerror(-len));
			return EXIT_RELOAD_FAILED;
		}
		switch (packet.reply.answer) {
		case ZKF_ROW:
			print_line(stderr, text, (size_t)len);
			break;
		case ZKF_END:
			puts("reloaded");
			return 0;
		case ZKF_FAILED:
			fputs("zkflock: reload: ", stderr);
			print_line(stderr, text, (size_t)len);
			return EXIT_RELOAD_FAILED;
		default:
			cli_warn("reload: the keeper's answer is of another version; restart zkflockd");
			return EXIT_RELOAD_FAILED;
		}
	}
}

static int reload_main(int argc, char **argv)
{
	int fd, result = EXIT_RELOAD_FAILED;

	if (argc > 1) {
		cli_warn("reload: unexpected argument %s; see zkflock reload --help", argv[1]);
		return EXIT_USAGE;
	}
	fd = cli_keeper_connect();
	if (fd < 0)
		return EXIT_RELOAD_NO_KEEPER;
	if (cli_keeper_ask(fd, ZKF_OP_RELOAD, "reload") == 0)
		result = listen_to(fd);
	close(fd);
	return result;
}

const struct cli_verb cli_verb_reload = {"reload", usage, EXIT_USAGE, reload_main, NULL};
