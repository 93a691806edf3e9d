/*
 * keeper/adopt.c - see adopt.h
 * SPDX-License-Identifier: Apache-2.0
 *
 *   files --> (session connected) --sync--> each lock: children --> each own claim: get --> confirmed: GRANTED
 *                                                                                        --> else: looks --> settled
 *
 * A claim of a request that waited has nobody who waits for it now: the lock's next step deletes it.
 */
#include "adopt.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "claim.h"
#include "fault.h"
#include "file.h"
#include "guard.h"
#include "holds.h"
#include "lease.h"
#include "lines.h"
#include "log.h"
#include "look.h"
#include "named.h"
#include "refused.h"
#include "session.h"
#include "state.h"

#define FILES_TRIES 10

/* All the loop's. */
static const struct zkf_config *rules;
static void (*adopted)(void);
static int pending; /* operations and looks that are not finished */
static bool failed; /* not all is known: memory was out, or ZooKeeper did not tell */
static struct zkf_timer check_timer;

/*
 * A file that is not known can't tell who holds, and a claim that is not known would never be given back: it is tried again
 * until all are.  What is known already is passed over then.
 */
static void not_all_known(void)
{
	failed = true;
}

/* --- files --- */

static bool is_file(int fd, const struct zkf_state_file *wanted)
{
	struct stat status;

	return !fstat(fd, &status) && status.st_dev == wanted->dev && status.st_ino == wanted->ino;
}

/* Records whose path leads elsewhere by now: sought among what processes have open, in one pass for all of them. */
struct missing {
	uint64_t dev, ino;
	uint32_t kind;
	bool group;
	char *lock, *path;
};
static struct missing *missing;
static size_t missing_count;

static void missing_add(const struct zkf_state_file *known)
{
	struct missing *more = zkf_reallocarray(missing, missing_count + 1, sizeof(*more));

	if (!more) {
		not_all_known();
		return;
	}
	missing = more;
	more[missing_count] = (struct missing){known->dev,
	                                       known->ino,
	                                       known->kind,
	                                       known->group,
	                                       zkf_memdup(known->lock, strlen(known->lock)),
	                                       zkf_memdup(known->path, strlen(known->path))};
	if (!more[missing_count].lock || !more[missing_count].path)
		not_all_known();
	else
		missing_count++;
}

static void file_known(const struct zkf_state_file *known, int fd);

static int by_inode(const void *a, const void *b)
{
	const struct missing *one = a, *other = b;

	if (one->ino != other->ino)
		return one->ino < other->ino ? -1 : 1;
	return one->dev < other->dev ? -1 : one->dev > other->dev;
}

static void found_open(int process_fds, const char *name, uint64_t dev, uint64_t ino)
{
	struct missing key = {.dev = dev, .ino = ino};
	struct missing *at = bsearch(&key, missing, missing_count, sizeof(*missing), by_inode);
	int fd;

	if (!at)
		return;
	fd = openat(process_fds, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0)
		fd = openat(process_fds, name, O_WRONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0)
		return;
	while (at > missing && !by_inode(at - 1, &key))
		at--;
	for (; at < missing + missing_count && !by_inode(at, &key); at++)
		file_known(&(struct zkf_state_file){at->dev, at->ino, at->kind, at->group, at->lock, at->path}, fd);
	close(fd);
}

static void process_search(const char *pid)
{
	struct zkf_entries fds;
	const char *name;
	uint64_t dev, ino;
	char path[64];

	zkf_guard_progress();
	snprintf(path, sizeof(path), "/proc/%.20s/fd", pid);
	zkf_entries_open(&fds, path);
	while ((name = zkf_entries_next(&fds)) != NULL)
		if (!zkf_file_identity(fds.fd, name, &dev, &ino))
			found_open(fds.fd, name, dev, ino);
	zkf_entries_close(&fds);
}

static void missing_search(void)
{
	struct zkf_entries processes;
	const char *name;

	if (!missing_count)
		return;
	qsort(missing, missing_count, sizeof(*missing), by_inode);
	zkf_entries_open(&processes, "/proc");
	/* Ourselves, too: what a former keeper has left us (store.h). */
	while ((name = zkf_entries_next(&processes)) != NULL)
		if (isdigit((unsigned char)*name))
			process_search(name);
	if (zkf_entries_close(&processes))
		not_all_known();
	for (size_t i = 0; i < missing_count; i++) {
		free(missing[i].lock);
		free(missing[i].path);
	}
	free(missing);
	missing = NULL;
	missing_count = 0;
}

static void file_known(const struct zkf_state_file *known, int fd)
{
	const struct zkf_rule *rule = zkf_config_match(rules, known->path, strlen(known->path));
	char name[ZKF_NAME_BYTES_MAX + 1];
	const char *named;
	struct zkf_file *file;
	struct zkf_lock *lock;
	struct stat status;
	bool outdated;
	int error;

	if (zkf_file_find(known->dev, known->ino, known->kind) || fstat(fd, &status))
		return;
	lock = zkf_lock_get(known->group ? ZKF_GROUP : known->kind, known->lock);
	if (!lock) {
		not_all_known();
		return;
	}
	named = zkf_named_znode(known->path);
	if (named)
		rule = zkf_named_rule(rules);
	lock->on_loss = rule ? rule->on_loss : ZKF_LOSS_FREEZE;
	/* By another name, or none, in the rules of today: until its last unlock only. */
	outdated = !named && (!rule || rule->excluded || rule->group != known->group ||
	                      zkf_rule_znode(rule, known->path, strlen(known->path), name) <= 0 ||
	                      strcmp(name, known->lock) != 0);
	lock->keep_ns = rule && !outdated ? rule->keep_ms * ZKF_NS_PER_MS : 0;
	zkf_lock_touch(lock);
	error = zkf_file_open(&file, lock, fd, &status, known->path, known->kind);
	if (!error)
		file->outdated = outdated;
	else if (error == -ENOMEM)
		not_all_known();
	else
		zkf_log(ZKF_LOG_WARN, "adopt path=%s error=\"can't be opened\"", known->path);
}

/* A claim may be left also for a file that is open nowhere: its lock must be known. */
static void file_adopt(const struct zkf_state_file *known)
{
	struct zkf_lock *lock;
	int fd;

	zkf_guard_progress();
	if (known->kind > ZKF_RECORD || zkf_file_find(known->dev, known->ino, known->kind))
		return;
	lock = zkf_lock_get(known->group ? ZKF_GROUP : known->kind, known->lock);
	if (lock)
		zkf_lock_touch(lock);
	else
		not_all_known();
	fd = open(known->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd >= 0 && is_file(fd, known))
		file_known(known, fd);
	else
		missing_add(known);
	if (fd >= 0)
		close(fd);
}

static void file_adopt_blindly(const struct zkf_state_file *known)
{
	const struct zkf_rule *rule = zkf_config_match(rules, known->path, strlen(known->path));
	struct zkf_lock *lock = zkf_lock_get(known->group ? ZKF_GROUP : known->kind, known->lock);

	if (!lock || zkf_file_know(lock, known->dev, known->ino, known->kind, known->path))
		zkf_log(ZKF_LOG_ERROR, "adopt path=%s error=\"out of memory\"", known->path);
	else
		lock->on_loss = rule ? rule->on_loss : ZKF_LOSS_FREEZE;
}

void zkf_adopt_blindly(const struct zkf_config *config)
{
	rules = config;
	zkf_state_files_each(file_adopt_blindly);
	zkf_refused_adopt_blindly();
}

/* With more memory another keeper may read it; all else will not get better. */
static void not_read(const char *list, int error)
{
	if (error == -ENOMEM || error == -EMFILE || error == -ENFILE)
		not_all_known();
	else if (error)
		zkf_log(ZKF_LOG_ERROR, "adopt %s error=\"%s\"", list, strerror(-error));
}

void zkf_adopt_files(const struct zkf_config *config)
{
	int tries = 0;

	rules = config;
	do {
		failed = false;
		not_read("files", zkf_state_files_each(file_adopt));
		missing_search();
	} while (failed && ++tries < FILES_TRIES);
	not_read("refused", zkf_refused_adopt());
	zkf_holds_adopt();
	if (!failed)
		return;
	zkf_log(ZKF_LOG_ERROR, "adopt files error=\"not all could be read\" action=\"another keeper shall try\"");
	zkf_loop_stop_for(ZKF_STOP_RESTART);
}

/* --- claims --- */

static bool settled(void)
{
	for (struct zkf_lock *lock = zkf_lock_list(); lock; lock = lock->hh.next)
		for (struct zkf_claim *claim = lock->claims; claim; claim = claim->next)
			if (claim->state < ZKF_CLAIM_WAITING)
				return false;
	return true;
}

static void check_done(void)
{
	if (pending || !adopted)
		return;
	if (failed) {
		zkf_timer_arm(&check_timer, zkf_now_ns() + ZKF_RETRY_MS * ZKF_NS_PER_MS);
		return;
	}
	if (!settled()) {
		zkf_timer_arm(&check_timer, zkf_now_ns() + 2 * ZKF_NS_PER_MS);
		return;
	}
	{
		void (*done)(void) = adopted;

		adopted = NULL;
		zkf_file_note_again(); /* every claim is known now: what is gone may be forgotten */
		done();
	}
}

static void check_fired(struct zkf_timer *timer)
{
	(void)timer;
	if (!zkf_session_adopting())
		adopted = NULL; /* the session has been lost meanwhile */
	else if (failed)
		zkf_adopt_claims(adopted);
	else
		check_done();
}

struct own {
	struct zkf_lock *lock;
	char *name;
};

static void own_free(struct own *own)
{
	free(own->name);
	free(own);
}

static void claim_read(void *owner, const struct zkf_zk_result *result)
{
	struct own *own = owner;
	int error = result->error ? 0 : zkf_claim_adopt(own->lock, own->name, result);

	pending--;
	if (error == -ENOMEM || (result->error && result->error != -ENOENT))
		not_all_known();
	else if (error)
		zkf_log(ZKF_LOG_ERROR, "adopt claim=%s error=\"not understood; it stays until the session ends\"",
		        own->name);
	zkf_lock_touch(own->lock);
	own_free(own);
	check_done();
}

static bool is_known(const struct zkf_lock *lock, const char *name)
{
	for (const struct zkf_claim *claim = lock->claims; claim; claim = claim->next)
		if (!strcmp(claim->name, name))
			return true;
	return false;
}

static void claim_get(struct zkf_lock *lock, const char *name)
{
	struct own *own;
	char *path;

	if (is_known(lock, name))
		return;
	own = zkf_calloc(1, sizeof(*own));
	if (!own) {
		not_all_known();
		return;
	}
	own->lock = lock;
	own->name = zkf_memdup(name, strlen(name));
	if (own->name && asprintf(&path, "%s/%s", lock->directory, name) > 0) {
		if (zkf_zk_get(path, NULL, claim_read, own)) {
			pending++;
			own = NULL;
		}
		free(path);
	}
	if (!own)
		return;
	own_free(own);
	not_all_known();
}

static void queue_listed(void *owner, const struct zkf_zk_result *result)
{
	struct zkf_lock *lock = owner;

	pending--;
	if (result->error && result->error != -ENOENT)
		not_all_known();
	for (int i = 0; i < result->count; i++) {
		struct zkf_claim_id id;

		if (!zkf_claim_name_read(&id, result->children[i]) && !strcmp(id.host, zkf_session_host()))
			claim_get(lock, result->children[i]);
	}
	check_done();
}

static void synced(void *owner, const struct zkf_zk_result *result)
{
	(void)owner;
	pending--;
	if (result->error)
		not_all_known();
	for (struct zkf_lock *lock = result->error ? NULL : zkf_lock_list(); lock; lock = lock->hh.next)
		if (zkf_zk_children(lock->directory, NULL, queue_listed, lock))
			pending++;
		else
			not_all_known();
	check_done();
}

void zkf_adopt_claims(void (*done)(void))
{
	check_timer.fire = check_fired;
	adopted = done;
	failed = false;
	/* A new handle may be connected to a server that lags behind what the former one has seen. */
	if (zkf_zk_sync(zkf_session_root()[0] ? zkf_session_root() : "/", synced, NULL))
		pending++;
	else
		not_all_known();
	check_done();
}
