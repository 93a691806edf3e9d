/*
 * keeper/session.h - the one ZooKeeper session of this host, and its lease
 *
 * Answers for: connecting, the nodes above the locks, the heartbeat, the lease in the shared page, a new session after
 *              expiry.
 * Does not:    know locks; keeper/lock.c is told of what happens.
 * Threads:     the loop's.
 * Specification: design section 8; lease.h; ZooKeeper Programmer's Guide, "ZooKeeper Sessions".
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ZKF_SESSION_H
#define ZKF_SESSION_H

#include <stdbool.h>
#include <stdint.h>

#include "../mapping/config.h"

struct zkf_session_events {
	void (*ready)(void);   /* a session is alive and its lease valid (again): go on */
	void (*doubted)(void); /* the lease ran out without an answer: grant nothing; the session may yet turn out alive */
	void (*lost)(void);    /* the session has expired: every claim is void */
};

/*
 * zkf_session_start - connect, and stay connected
 *
 * Returns 0 or a negative errno: -EINVAL no ensemble is set, else of zookeeper_init2.  An ensemble that can't be reached
 * or resolved is not an error here: it is tried again for ever.
 */
int zkf_session_start(const struct zkf_config *config, const struct zkf_session_events *events);

/* zkf_session_end - close it: all claims go at once.  Only when no lock is in use. */
void zkf_session_end(void);

/* zkf_session_usable - ready, lease valid now */
bool zkf_session_usable(void);
int64_t zkf_session_deadline_ns(void);

/* zkf_session_host - 16 hexadecimal digits, "" while there is no session */
const char *zkf_session_host(void);

/* zkf_session_trouble - why it is not usable, one phrase for people */
const char *zkf_session_trouble(void);

/* zkf_session_root - of all nodes, "" for the ensemble's own root */
const char *zkf_session_root(void);

#endif
