/*
 * keeper/users.h - what each user has of the keeper, so that one can't starve the others
 *
 * Answers for: counting connections and files by user; the limits user_connections and user_locks.
 * Does not:    refuse; keeper/server.c does.
 * Threads:     the loop's.
 * Specification: zkflock.conf(5).
 * SPDX-License-Identifier: Apache-2.0
 *
 * Root and the keeper's own user have no limit: theirs is the keeper.
 */
#ifndef ZKF_USERS_H
#define ZKF_USERS_H

#include <stdbool.h>
#include <sys/types.h>

/*
 * zkf_users_limit - how much each may have
 *
 * connections, locks  as set; a quarter of the descriptors that the keeper may have counts when it is less
 */
void zkf_users_limit(int connections, int locks);

/* zkf_users_own - root, or the keeper's user */
bool zkf_users_own(uid_t uid);

/*
 * zkf_users_connected - one connection more
 *
 * Returns 0; -EAGAIN: counted, but one too many; or -ENOMEM: not counted.
 */
int zkf_users_connected(uid_t uid);
void zkf_users_disconnected(uid_t uid);

enum zkf_users_room {
	ZKF_USERS_ROOM,
	ZKF_USERS_TIGHT, /* what he does not use should be given back */
	ZKF_USERS_FULL
};

/* zkf_users_room - for one file more */
enum zkf_users_room zkf_users_room(uid_t uid);

/* zkf_users_file_add - one file more; on whose account it goes: 0, nobody's, without a limit or when memory is out */
uid_t zkf_users_file_add(uid_t uid);
void zkf_users_file_drop(uid_t account);

/* zkf_users_may_give_back - what it costs must not grow with what he asks for: some fifty times a second at most */
bool zkf_users_may_give_back(uid_t uid);

/* zkf_users_tell - may it be logged that he is at a limit?  Once in ten seconds. */
bool zkf_users_tell(uid_t uid);

/* zkf_users_limit_of_connections, zkf_users_limit_of_files - in force */
unsigned zkf_users_limit_of_connections(void);
unsigned zkf_users_limit_of_files(void);

#endif
