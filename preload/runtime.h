/*
 * preload/runtime.h - where the keeper lives
 *
 * Answers for: the runtime directories to try, in order, and whether one may be trusted.
 * Does not:    make directories (the keeper does) or talk.
 * Threads:     no state.
 * Specification: design section 9, "Environment"; zkflock(7).
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ZKF_RUNTIME_H
#define ZKF_RUNTIME_H

#include "settings.h"

#define ZKF_SYSTEM_DIRECTORY "/run/zkflock"

/*
 * The directories to look for a keeper in: ZKFLOCK_RUNTIME_DIR alone where it is set; else the system's; then, for
 * others than root, the user's own.  A keeper is started in the last one only.
 */
struct zkf_runtime {
	int count;
	char paths[2][ZKF_DIRECTORY_BYTES];
};

/* zkf_runtime_find - 0, or -EINVAL (logged): ZKFLOCK_RUNTIME_DIR is relative or too long for a socket's address */
int zkf_runtime_find(struct zkf_runtime *runtime, const struct zkf_settings *settings);

/* zkf_runtime_usable - would zkf_runtime_find succeed?  Logs nothing. */
bool zkf_runtime_usable(const struct zkf_settings *settings);

/*
 * zkf_runtime_trust - may a keeper in this directory be believed?
 *
 * It must be a directory of root's or the user's that nobody else can write to: whoever could put a socket there could
 * answer "covered" to everything.
 *
 * Returns 0; -ENOENT (also ENOTDIR, EACCES: none here for us); -EPERM (somebody else's, or open to others).
 */
int zkf_runtime_trust(const char *directory);

#endif
