/*
 * cli/ensemble.c - what a ZooKeeper server says of itself, and what is to be said to that
 *
 * Answers for: asking one server by `srvr` and, where it is allowed, `conf`; judging its settings against ours.
 * Does not:    make a session.
 * Threads:     one.
 * Specification: ZooKeeper Administrator's Guide, "The Four Letter Words"; zkflockd(8), "SERVER SETTINGS".
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE

#include <sys/socket.h>
#include <sys/time.h>

#include <errno.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ensemble.h"

#define TIMEOUT_S 3
#define ANSWER_BYTES 8192
/* What an election takes after syncLimit ticks. */
#define ELECTION_MS 1000

/* split - "host:port" or "[address]:port" */
static int split(const char *address, char host[256], char port[8])
{
	const char *colon = strrchr(address, ':');
	size_t len;

	if (!colon || strlen(colon + 1) >= 8)
		return -EINVAL;
	len = (size_t)(colon - address);
	if (address[0] == '[' && len > 1 && address[len - 1] == ']') {
		address++;
		len -= 2;
	}
	if (len >= 256)
		return -EINVAL;
	snprintf(host, 256, "%.*s", (int)len, address);
	snprintf(port, 8, "%s", colon + 1);
	return 0;
}

/* dial - connected, or a negative errno with why filled in */
static int dial(const char *address, char *why)
{
	const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
	const struct timeval timeout = {.tv_sec = TIMEOUT_S};
	struct addrinfo *found = NULL, *at;
	char host[256], port[8];
	int fd = -1, error = EINVAL, result;

	if (split(address, host, port) < 0) {
		snprintf(why, CLI_WHY_BYTES, "it is not host:port");
		return -EINVAL;
	}
	result = getaddrinfo(host, port, &hints, &found);
	if (result != 0) {
		snprintf(why, CLI_WHY_BYTES, "%s", gai_strerror(result));
		return -ENOENT;
	}
	for (at = found; at && fd < 0; at = at->ai_next) {
		fd = socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC, at->ai_protocol);
		if (fd < 0)
			continue;
		setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
		setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
		if (connect(fd, at->ai_addr, at->ai_addrlen) == 0)
			break;
		error = errno == EINPROGRESS ? ETIMEDOUT : errno;
		close(fd);
		fd = -1;
	}
	freeaddrinfo(found);
	if (fd < 0)
		snprintf(why, CLI_WHY_BYTES, "%s", strerror(error));
	return fd < 0 ? -error : fd;
}

/* ask - the answer to a four-letter word; its length, or a negative errno */
static int ask(const char *address, const char *word, char answer[ANSWER_BYTES], char *why)
{
	size_t used = 0;
	ssize_t got = 0;
	int fd = dial(address, why);

	if (fd < 0)
		return fd;
	if (send(fd, word, 4, MSG_NOSIGNAL) == 4)
		while (used < ANSWER_BYTES - 1 && (got = recv(fd, answer + used, ANSWER_BYTES - 1 - used, 0)) > 0)
			used += (size_t)got;
	close(fd);
	answer[used] = '\0';
	if (used > 0)
		return (int)used;
	snprintf(why, CLI_WHY_BYTES, "%s",
	         got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK) ? "it accepts, and does not answer"
	                                                              : "it accepts, and hangs up");
	return -EPROTO;
}

/* value - of a line "key: value" or "key=value", cut at the line's end or a comma; false: there is none */
static bool value(const char *answer, const char *key, char *out, size_t capacity)
{
	const char *at = answer;
	size_t len = strlen(key);

	while (at && strncmp(at, key, len) != 0) {
		at = strchr(at, '\n');
		at = at ? at + 1 : NULL;
	}
	if (!at)
		return false;
	at += len;
	at += strspn(at, " ");
	snprintf(out, capacity, "%.*s", (int)strcspn(at, "\n\r,"), at);
	return true;
}

static int number(const char *answer, const char *key)
{
	char text[24];

	return value(answer, key, text, sizeof(text)) ? atoi(text) : 0;
}

int cli_server_look(const char *address, struct cli_server *server)
{
	char answer[ANSWER_BYTES], unused[CLI_WHY_BYTES];
	int result;

	memset(server, 0, sizeof(*server));
	result = ask(address, "srvr", answer, server->why);
	if (result < 0)
		return result;
	server->answers = value(answer, "Zookeeper version:", server->version, sizeof(server->version));
	server->version[strcspn(server->version, "-")] = '\0';
	value(answer, "Mode:", server->mode, sizeof(server->mode));
	if (!server->answers)
		snprintf(server->why, sizeof(server->why), "%s",
		         strstr(answer, "not currently serving requests") ? "it has no quorum"
		         : strstr(answer, "whitelist") ? "it does not answer srvr (4lw.commands.whitelist)"
		                                       : "its answer is not ZooKeeper's");
	server->no_quorum = strstr(answer, "not currently serving requests") != NULL;
	if (ask(address, "conf", answer, unused) > 0) {
		server->tick_time_ms = number(answer, "tickTime=");
		server->sync_limit = number(answer, "syncLimit=");
		server->max_session_ms = number(answer, "maxSessionTimeout=");
		server->min_session_ms = number(answer, "minSessionTimeout=");
	}
	return 0;
}

static int version_number(const char *text)
{
	int major = 0, minor = 0, patch = 0;

	sscanf(text, "%d.%d.%d", &major, &minor, &patch);
	return major * 10000 + minor * 100 + patch;
}

static void advise_on_server(const struct cli_server *server, const struct cli_times *times, cli_advice *say,
                             void *context)
{
	char text[400];
	int version = version_number(server->version);

	if (server->answers && version < 30500) {
		snprintf(text, sizeof(text),
		         "the server's version %s is below 3.5: containers, and with them locks, do not work",
		         server->version);
		say(context, text);
	} else if (server->answers && version < 30801) {
		snprintf(text, sizeof(text),
		         "the server's version %s is below 3.8.1: now and then it withholds an answer "
		         "until the next request (ZOOKEEPER-4537)",
		         server->version);
		say(context, text);
	}
	if (strcmp(server->mode, "read-only") == 0)
		say(context, "the server is in read-only mode: it can't lock");
	if (server->tick_time_ms > times->tick_time_ms) {
		snprintf(text, sizeof(text),
		         "the server's tickTime is %d ms and tick_time is %d ms: locks may be trusted for too "
		         "long; set tick_time to %dms",
		         server->tick_time_ms, times->tick_time_ms, server->tick_time_ms);
		say(context, text);
	}
	if (server->sync_limit > 0 && strcmp(server->mode, "standalone") != 0 &&
	    server->sync_limit * server->tick_time_ms + ELECTION_MS >= times->lease_ms) {
		snprintf(
			text, sizeof(text),
			"a leader that hangs is replaced after %d ms (syncLimit x tickTime) and an election, "
			"and the lease is %d ms: every holder would be stopped meanwhile; raise session_timeout, or lower "
			"tickTime",
			server->sync_limit * server->tick_time_ms, times->lease_ms);
		say(context, text);
	}
}

void cli_ensemble_advise(const char *ensemble, const struct cli_server *server, const struct cli_times *times,
                         cli_advice *say, void *context)
{
	char text[400];
	int servers = 1;

	for (; *ensemble; ensemble++)
		servers += *ensemble == ',';
	if (times->session_ms != times->configured_ms) {
		snprintf(text, sizeof(text),
		         "the servers gave a session timeout of %d ms instead of %d ms; see their "
		         "minSessionTimeout and maxSessionTimeout",
		         times->session_ms, times->configured_ms);
		say(context, text);
	}
	if (times->lease_ms <= 0)
		say(context, "the session timeout leaves no lease: no lock can be granted");
	if (server)
		advise_on_server(server, times, say, context);
	if (servers < 3) {
		snprintf(text, sizeof(text),
		         "%s: %s that is down stops every holder of every host; three or five are recommended",
		         servers == 1 ? "one server" : "two servers", servers == 1 ? "one" : "either one");
		say(context, text);
	}
}
