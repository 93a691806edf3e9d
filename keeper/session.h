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
	void (*resumed)(void); /* a former keeper's session is alive: adopt its claims, then zkf_session_adopted */
	void (*ready)(void);   /* a session is alive and its lease valid (again): go on */
	void (*doubted)(void); /* the lease ran out unanswered: grant nothing; the session may yet be alive */
	void (*lost)(void);    /* the session has expired: every claim is void */
};

/*
 * zkf_session_init - settings and whom to tell
 *
 * Returns 0, -EINVAL (no ensemble is set), -E2BIG (too many servers), or what eventfd(2) says.  Then zkf_session_root is
 * known.
 */
int zkf_session_init(const struct zkf_config *config, const struct zkf_session_events *events);

/*
 * zkf_session_start - connect, and stay connected
 *
 * An ensemble that can't be reached or resolved is not an error: it is tried again for ever.
 */
void zkf_session_start(void);

/* zkf_session_adopting - a resumed session's claims are not known yet: nothing may be forgotten or granted */
bool zkf_session_adopting(void);

/* zkf_session_adopted - from now on the session may be used */
void zkf_session_adopted(void);

/* zkf_session_timeout_ms - negotiated; as configured before the first connection */
int zkf_session_timeout_ms(void);

/* zkf_session_end - close it: all claims go at once.  Only when no lock is in use. */
void zkf_session_end(void);

/* zkf_session_usable - ready, lease valid now */
bool zkf_session_usable(void);
int64_t zkf_session_deadline_ns(void);

/* zkf_session_host - 16 hexadecimal digits, "" while there is no session */
const char *zkf_session_host(void);

/* zkf_session_trouble - why it is not usable, one phrase for people */
const char *zkf_session_trouble(void);

/*
 * zkf_session_state_name - "ready"; "connecting": to a first session; "preparing" its nodes; "adopting" a former keeper's
 * claims; "doubted": its lease is over
 */
const char *zkf_session_state_name(void);

/* zkf_session_root - of all nodes, "" for the ensemble's own root */
const char *zkf_session_root(void);

#endif
