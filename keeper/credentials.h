/*
 * keeper/credentials.h - who the keeper is to ZooKeeper: one "user:password" from a file
 *
 * Answers for: reading the file of the setting `credentials`, and refusing one that others could read or change.
 * Does not:    send it; see zk.c.  Log, copy or leave it anywhere: what follows a keeper is forked from the guard, which
 *              has read it.
 * Threads:     before any is made.
 * Specification: zkflock.conf(5), "credentials"; ZooKeeper Programmer's Guide, "Builtin ACL Schemes": digest.
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ZKF_CREDENTIALS_H
#define ZKF_CREDENTIALS_H

#include <stddef.h>

#define ZKF_CREDENTIALS_BYTES 512

/*
 * zkf_credentials_read - what is in the file
 *
 * path  as configured
 * text  receives "user:password"
 * why   receives why not, one line without a secret
 *
 * Returns 0, or -EINVAL: it can't be read; is no regular file; is not root's or the keeper's user's; others may read or write
 * it; or is not one line "user:password".
 */
int zkf_credentials_read(const char *path, char text[ZKF_CREDENTIALS_BYTES], char *why, size_t why_bytes);

#endif
