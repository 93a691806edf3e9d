/*
 * cli/ensemble.h - what a ZooKeeper server says of itself, and what is to be said to that
 *
 * Answers for: see ensemble.c.
 * Threads:     one.
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ZKF_CLI_ENSEMBLE_H
#define ZKF_CLI_ENSEMBLE_H

#include <stdbool.h>

#include "cli.h"

struct cli_server {
	bool answers; /* to srvr: version and mode are known */
	bool no_quorum;
	char version[32]; /* "3.8.0" */
	char mode[24];    /* leader, follower, observer, standalone, read-only */
	int tick_time_ms; /* from conf, which is seldom allowed: 0 for unknown, as those below */
	int sync_limit, min_session_ms, max_session_ms;
	char why[CLI_WHY_BYTES]; /* it can't be reached, or does not answer */
};

/*
 * cli_server_look - ask one server
 *
 * address  "host:port", "[address]:port"; looked up, tried for 3 s
 *
 * Returns 0 if it could be reached, else a negative errno and `why`.
 */
int cli_server_look(const char *address, struct cli_server *server);

/* Ours. */
struct cli_times {
	int session_ms; /* negotiated; as configured if there is no session */
	int configured_ms;
	int tick_time_ms;
	int lease_ms; /* what a lease is after an answered heartbeat */
};

typedef void cli_advice(void *context, const char *text);

/* cli_ensemble_advise - each bad setting that can be seen, one call; server may be NULL: not known */
void cli_ensemble_advise(const char *ensemble, const struct cli_server *server, const struct cli_times *times,
                         cli_advice *say, void *context);

#endif
