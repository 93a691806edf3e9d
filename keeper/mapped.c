/*
 * keeper/mapped.c - see mapped.h
 * SPDX-License-Identifier: Apache-2.0
 */
#include "mapped.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "file.h"
#include "lease.h"
#include "lock.h"
#include "log.h"
#include "named.h"
#include "publish.h"
#include "users.h"

/* The loop's. */
static const struct zkf_config *rules;

int zkf_mapped_describe(int fd, struct stat *status)
{
	struct statx found;

	memset(status, 0, sizeof(*status));
	if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_BASIC_STATS, &found))
		return -errno;
	status->st_dev = makedev(found.stx_dev_major, found.stx_dev_minor);
	status->st_ino = found.stx_ino;
	status->st_mode = found.stx_mode;
	status->st_nlink = found.stx_nlink;
	return 0;
}

int zkf_mapped_path(int fd, const struct stat *status, char path[PATH_MAX + 1])
{
	char link[40];
	ssize_t bytes;
	size_t length;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	bytes = readlink(link, path, PATH_MAX);
	if (bytes < 0)
		return -errno;
	length = zkf_path_trim_deleted(path, (size_t)bytes, status->st_nlink);
	path[length] = 0;
	return path[0] == '/' ? (int)length : -EINVAL;
}

const struct zkf_rule *zkf_mapped_rule(const char *path, int path_bytes)
{
	const struct zkf_rule *rule;

	if (path_bytes <= 0)
		return NULL;
	if (zkf_named_znode(path))
		return zkf_named_rule(rules);
	rule = zkf_config_match(rules, path, (size_t)path_bytes);
	return rule && !rule->excluded ? rule : NULL;
}

struct zkf_lock *zkf_mapped_lock(const struct zkf_rule *rule, uint32_t kind, const char *path, int path_bytes)
{
	char encoded[ZKF_NAME_BYTES_MAX + 1];
	const char *named = zkf_named_znode(path);
	struct zkf_lock *lock;
	int bytes = named ? snprintf(encoded, sizeof(encoded), "%s", named)
	                  : zkf_rule_znode(rule, path, (size_t)path_bytes, encoded);

	if (bytes < 0) {
		errno = -bytes;
		return NULL;
	}
	lock = zkf_lock_get(rule->group ? ZKF_GROUP : kind, encoded);
	if (!lock) {
		errno = ENOMEM;
		return NULL;
	}
	lock->on_loss = rule->on_loss;
	lock->keep_ns = rule->keep_ms * ZKF_NS_PER_MS;
	return lock;
}

bool zkf_mapped_keeps(struct zkf_file *file)
{
	struct zkf_ranges in_use = {0};
	bool keeps = false;

	for (const struct zkf_demand *demand = file->lock->demands; demand && !keeps; demand = demand->next)
		keeps = demand->file == file;
	if (!keeps) {
		zkf_publish_state(file->slot, ZKF_NONE, true, true);
		keeps = zkf_file_look(file, &in_use) || in_use.count;
		zkf_lock_touch(file->lock);
	}
	zkf_ranges_free(&in_use);
	return keeps;
}

/* Is there room for one more file of this user?  One who nears his limit gives back what he does not use. */
static bool user_has_room(uid_t uid)
{
	enum zkf_users_room room = zkf_users_room(uid);

	if (room != ZKF_USERS_ROOM && zkf_users_may_give_back(uid))
		zkf_lock_give_back_of(uid);
	if (room != ZKF_USERS_FULL)
		return true;
	if (zkf_users_tell(uid))
		zkf_log(ZKF_LOG_WARN, "server limit uid=%u user_locks=%u why=\"further ones are refused\"",
		        (unsigned)uid, zkf_users_limit_of_files());
	return false;
}

struct zkf_file *zkf_mapped_file(struct zkf_lock **lock, uint32_t kind, int fd, const struct stat *status,
                                 const char *path, uid_t uid)
{
	struct zkf_file *file = zkf_file_find(status->st_dev, status->st_ino, kind);
	int error;

	if (file && file->lock != *lock && !zkf_mapped_keeps(file)) {
		zkf_file_free(file);
		file = NULL;
	}
	if (file) {
		file->outdated = file->lock != *lock;
		*lock = file->lock;
		return file;
	}
	zkf_lock_touch(*lock); /* one that waits for a step is not freed when others are given back */
	if (!user_has_room(uid)) {
		errno = EDQUOT;
		return NULL;
	}
	if (zkf_file_nearly_full())
		zkf_lock_give_back_some();
	error = zkf_file_open(&file, *lock, fd, status, path, kind);
	if (!error) {
		file->account = zkf_users_file_add(uid);
		error = zkf_file_note(file);
		if (error)
			zkf_file_free(file);
	}
	if (error == -ENFILE || error == -EMFILE)
		zkf_lock_give_back_some();
	errno = -error;
	return error ? NULL : file;
}

/*
 * A known file whose lock name is another one by the new rules, or that has none, keeps it until its last unlock: the
 * lock is given back then, and until then every request comes to us, who find out whether it is in use.
 */
static void file_by_new_rules(struct zkf_file *file)
{
	size_t bytes = strlen(file->path);
	const struct zkf_rule *rule = zkf_config_match(rules, file->path, bytes);
	char encoded[ZKF_NAME_BYTES_MAX + 1];
	struct zkf_lock *lock = file->lock;

	if (zkf_named_znode(file->path)) {
		lock->keep_ns = zkf_named_rule(rules)->keep_ms * ZKF_NS_PER_MS;
	} else if (rule && !rule->excluded && rule->group == (lock->key.kind == ZKF_GROUP) &&
	           zkf_rule_znode(rule, file->path, bytes, encoded) > 0 && strcmp(encoded, lock->key.name) == 0) {
		file->outdated = false;
		lock->on_loss = rule->on_loss;
		lock->keep_ns = rule->keep_ms * ZKF_NS_PER_MS;
	} else {
		file->outdated = true; /* other files of the lock may keep it */
		lock->keep_ns = 0;
	}
	zkf_lock_touch(lock);
}

void zkf_mapped_rules(const struct zkf_config *config)
{
	rules = config;
	for (struct zkf_file *file = zkf_file_list(); file; file = file->hh.next)
		file_by_new_rules(file);
}
