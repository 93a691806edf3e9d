/*
 * keeper/resolve.h - the ensemble's names as numeric addresses
 *
 * Answers for: looking names up without the loop waiting for it.
 * Does not:    decide when; that is session.c.
 * Threads:     the loop's; a look-up runs in a thread of its own, which touches nothing but its own job and ends by
 *              writing to an eventfd.  A look-up can't be broken off: one runs at a time, for as long as it takes.
 * Specification: getaddrinfo(3); resolv.conf(5).
 * SPDX-License-Identifier: Apache-2.0
 *
 * Why numeric: libzookeeper would look names up itself, in its I/O loop, in every turn or at every reconnect; a resolver
 * that hangs for a session timeout ends a session whose servers are healthy.
 * Why an odd number: the client's cursor moves twice at each failure and would never try half of an even list.
 */
#ifndef ZKF_RESOLVE_H
#define ZKF_RESOLVE_H

#include <stdbool.h>

#define ZKF_ADDRESSES_BYTES 2048

/* zkf_resolve_init - 0 or a negative errno */
int zkf_resolve_init(void);

/*
 * zkf_resolve_numeric - an ensemble that needs no look-up
 *
 * ensemble   "host:port,..." as configured
 * addresses  filled in: sorted, comma-separated, an odd number
 *
 * Returns whether every entry was numeric; if not, addresses is "".
 */
bool zkf_resolve_numeric(const char *ensemble, char addresses[ZKF_ADDRESSES_BYTES]);

/*
 * zkf_resolve_start - look the names up
 *
 * done  called on the loop, later: addresses as above of those that were found, "" for none; unknown is the first name
 *       that was not, "" for none
 *
 * Returns 0, -EBUSY (one is under way: its own done will be called), or a negative errno of the thread's start.
 */
int zkf_resolve_start(const char *ensemble, void (*done)(const char *addresses, const char *unknown));

#endif
