/*
 * keeper/privilege.h - what the keeper may do as root, beyond what it needs: nothing
 *
 * Answers for: the keeper's identity when a program that has gained privileges starts it; its capabilities.
 * Does not:    change the user: who serves everybody must reopen everybody's files.
 * Threads:     before any is made, and before the guard forks.
 * Specification: capabilities(7), credentials(7), prctl(2).
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ZKF_PRIVILEGE_H
#define ZKF_PRIVILEGE_H

/*
 * zkf_privilege_settle - be one user, with room to live
 *
 * A keeper that a set-user-ID program starts has its effective user, and the real one of whoever has called the program, who
 * could kill it and may have set its resource limits.  It becomes the effective user for good; the group becomes the
 * real one.  As root, limits that would end it are lifted.
 *
 * Returns 0 or a negative errno.
 */
int zkf_privilege_settle(void);

/*
 * zkf_privilege_drop - give up every capability but those that the keeper uses, also for what it might run
 *
 * Returns 0 or a negative errno.
 */
int zkf_privilege_drop(void);

#endif
