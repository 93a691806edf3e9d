/*
 * cli/token.c - zkflock token: a number that only grows from holder to holder of a lock
 *
 * Answers for: asking with ZKF_OP_TOKEN for both kinds of lock, and printing the smaller of what is answered.
 * Does not:    lock the file; whoever holds it asks.
 * Threads:     one.
 * Specification: keeper/token.h; zkflock(1).
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"

static const char usage[] =
	"usage: zkflock token [--] PATH\n"
	"\n"
	"Prints the fencing token of the cluster lock of PATH, which this host must hold: a number that is larger than any\n"
	"that was given to a holder before.  Ask while you hold the lock; what you write to may then refuse whoever comes\n"
	"with a smaller number than it has seen.\n"
	"\n"
	"Exits with 0, 1 (this host has nothing of the lock, or PATH is not mapped), 2 (PATH can't be opened, or the\n"
	"keeper answered with an error), 3 (no keeper answers), 64 (wrong command line).\n";

/* Either will do: it only tells the keeper which file is meant. */
static int open_path(const char *path)
{
	int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);

	if (fd < 0 && errno == EACCES)
		fd = open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	return fd;
}

static int answer_of(const struct zkf_reply *reply, const char *text, int text_bytes, uint64_t *token)
{
	switch (reply->answer) {
	case ZKF_TOKEN:
		if (reply->state < *token)
			*token = reply->state;
		return 0;
	case ZKF_FREE:
	case ZKF_UNMAPPED:
		return EXIT_TOKEN_NONE;
	case ZKF_FAILED:
		fputs("zkflock: token: the keeper says: ", stderr);
		cli_print_safe(stderr, text, (size_t)text_bytes);
		fprintf(stderr, " (%s)\n", strerror(reply->error));
		return EXIT_TOKEN_FAILED;
	default:
		cli_warn("token: the keeper's answer is of another version; restart zkflockd");
		return EXIT_TOKEN_FAILED;
	}
}

/* Returns an exit code; *mapped tells whether the file has a lock name at all, *token is lowered. */
static int ask(enum zkf_kind kind, int about, bool *mapped, uint64_t *token)
{
	const struct zkf_request request = {.magic = ZKF_WIRE_MAGIC, .op = ZKF_OP_TOKEN, .kind = (uint8_t)kind};
	static union cli_packet packet;
	int len, fd = cli_keeper_connect();

	if (fd < 0)
		return EXIT_TOKEN_NO_KEEPER;
	if (cli_keeper_send(fd, &request, about, "token") < 0) {
		close(fd);
		return EXIT_TOKEN_FAILED;
	}
	len = cli_keeper_receive(fd, &packet);
	close(fd);
	if (len < 0) {
		cli_warn("token: the keeper's answer: %s; is it of another version?", strerror(-len));
		return EXIT_TOKEN_FAILED;
	}
	*mapped |= packet.reply.answer != ZKF_UNMAPPED;
	return answer_of(&packet.reply, packet.bytes + offsetof(struct zkf_reply, text), len, token);
}

static int token_main(int argc, char **argv)
{
	int first = argc > 1 && strcmp(argv[1], "--") == 0 ? 2 : 1, about, flock_result, record_result = 0;
	uint64_t token = UINT64_MAX;
	bool mapped = false;

	if (argc != first + 1) {
		cli_warn("token: %s; see zkflock token --help", argc > first ? "more than one path" : "no path");
		return EXIT_USAGE;
	}
	about = open_path(argv[first]);
	if (about < 0) {
		cli_warn("token: %s: %s", argv[first], strerror(errno));
		return EXIT_TOKEN_FAILED;
	}
	flock_result = ask(ZKF_FLOCK, about, &mapped, &token);
	if (flock_result == 0 || flock_result == EXIT_TOKEN_NONE)
		record_result = ask(ZKF_RECORD, about, &mapped, &token);
	close(about);
	if (flock_result > EXIT_TOKEN_NONE || record_result > EXIT_TOKEN_NONE)
		return flock_result > EXIT_TOKEN_NONE ? flock_result : record_result;
	if (token == UINT64_MAX) {
		cli_warn("token: %s: %s", argv[first],
		         mapped ? "this host has nothing of its lock" : "not a cluster lock by the keeper's rules");
		return EXIT_TOKEN_NONE;
	}
	printf("%" PRIu64 "\n", token);
	return 0;
}

const struct cli_verb cli_verb_token = {"token", usage, EXIT_USAGE, token_main, NULL};
