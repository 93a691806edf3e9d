/*
 * keeper/users.c - see users.h
 * SPDX-License-Identifier: Apache-2.0
 */
#include "users.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>
#include <uthash.h>

#include "fault.h"
#include "loop.h"

#define GIVE_BACK_NS (20 * ZKF_NS_PER_MS)
#define TELL_NS (10 * 1000 * ZKF_NS_PER_MS)

struct user {
	uid_t uid;
	UT_hash_handle hh;
	unsigned connections, files;
	int64_t told_ns, gave_back_ns;
};

/* The loop's. */
static struct user *users; /* who has something, by uid */
static unsigned most_connections, most_files;

void zkf_users_limit(int connections, int locks)
{
	struct rlimit descriptors;
	rlim_t part = RLIM_INFINITY;

	if (!getrlimit(RLIMIT_NOFILE, &descriptors) && descriptors.rlim_cur != RLIM_INFINITY)
		part = descriptors.rlim_cur / 4;
	most_connections = (rlim_t)connections < part ? (unsigned)connections : (unsigned)part;
	most_files = (rlim_t)locks < part ? (unsigned)locks : (unsigned)part;
}

unsigned zkf_users_limit_of_connections(void)
{
	return most_connections;
}

unsigned zkf_users_limit_of_files(void)
{
	return most_files;
}

bool zkf_users_own(uid_t uid)
{
	return uid == 0 || uid == geteuid();
}

static struct user *find(uid_t uid)
{
	struct user *found;

	HASH_FIND(hh, users, &uid, sizeof(uid), found);
	return found;
}

/* NULL when memory is out. */
static struct user *get(uid_t uid)
{
	struct user *user = find(uid);

	if (user)
		return user;
	user = zkf_calloc(1, sizeof(*user));
	if (!user)
		return NULL;
	user->uid = uid;
	HASH_ADD(hh, users, uid, sizeof(user->uid), user);
	if (user->hh.tbl)
		return user;
	free(user);
	return NULL;
}

static void forget_idle(struct user *user)
{
	if (user->connections || user->files)
		return;
	HASH_DEL(users, user);
	free(user);
}

int zkf_users_connected(uid_t uid)
{
	struct user *user;

	if (zkf_users_own(uid))
		return 0;
	user = get(uid);
	if (!user)
		return -ENOMEM;
	return ++user->connections > most_connections ? -EAGAIN : 0;
}

void zkf_users_disconnected(uid_t uid)
{
	struct user *user = zkf_users_own(uid) ? NULL : find(uid);

	if (!user)
		return;
	user->connections--;
	forget_idle(user);
}

enum zkf_users_room zkf_users_room(uid_t uid)
{
	const struct user *user = zkf_users_own(uid) ? NULL : find(uid);

	if (!user || user->files < most_files - most_files / 8)
		return ZKF_USERS_ROOM;
	return user->files < most_files ? ZKF_USERS_TIGHT : ZKF_USERS_FULL;
}

uid_t zkf_users_file_add(uid_t uid)
{
	struct user *user = zkf_users_own(uid) ? NULL : get(uid);

	if (!user)
		return 0;
	user->files++;
	return uid;
}

void zkf_users_file_drop(uid_t account)
{
	struct user *user = account ? find(account) : NULL;

	if (!user)
		return;
	user->files--;
	forget_idle(user);
}

bool zkf_users_may_give_back(uid_t uid)
{
	struct user *user = find(uid);
	int64_t now = zkf_now_ns();

	if (!user || now - user->gave_back_ns < GIVE_BACK_NS)
		return false;
	user->gave_back_ns = now;
	return true;
}

bool zkf_users_tell(uid_t uid)
{
	struct user *user = find(uid);
	int64_t now = zkf_now_ns();

	if (!user || (user->told_ns && now - user->told_ns < TELL_NS))
		return false;
	user->told_ns = now;
	return true;
}
