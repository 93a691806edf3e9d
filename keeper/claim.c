/*
 * keeper/claim.c - see claim.h; the look is in look.c
 * SPDX-License-Identifier: Apache-2.0
 */
#include "claim.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "fault.h"
#include "lease.h"
#include "log.h"
#include "look.h"
#include "session.h"

/*
 * A session whose ephemeral paths sum to more than 2 MB destroys the ensemble when it ends, and more than 1 MB of watched
 * paths can never be registered again after a reconnect.  A claim that waits has its own node, the one in its way and the
 * directory watched.
 */
#define SESSION_BYTES_MAX 900000u
#define WATCHES_PER_CLAIM 3
/* From here on what is kept and not in use is given back, so that who comes need not wait for room. */
#define NEARLY_FULL(bytes) ((bytes) / 8 * 7)
/* At 2^31-1 the server's counter sticks and all later names tie: refuse before, until the container has been swept. */
#define SEQUENCE_MAX INT64_C(2000000000)

/* The loop's. */
static size_t path_bytes;
static unsigned deleting; /* the server has not said yet that they are gone */
static uint64_t last_request, writes;

static void create_send(struct zkf_claim *claim);
static void write_start(struct zkf_claim *claim);

static uint64_t next_request(void)
{
	uint32_t start = 0;

	/* Random at the start: a keeper that resumes a session must not use its predecessor's numbers again. */
	if (!last_request && getrandom(&start, sizeof(start), 0) == sizeof(start))
		last_request = (uint64_t)start << 24;
	return ++last_request;
}

static void read_command(int32_t pid, char command[64])
{
	char path[40], raw[17] = "";
	size_t used = 0;
	FILE *in;

	snprintf(path, sizeof(path), "/proc/%d/comm", pid);
	in = fopen(path, "re");
	if (!in)
		return;
	if (!fgets(raw, sizeof(raw), in))
		raw[0] = 0;
	fclose(in);
	for (const unsigned char *at = (const unsigned char *)raw; *at && *at != '\n'; at++)
		used += (size_t)snprintf(command + used, 64 - used,
		                         *at > ' ' && *at < 0x7f && *at != '%' && *at != '=' ? "%c" : "%%%02X", *at);
}

static void wait_and_retry(struct zkf_claim *claim)
{
	zkf_timer_arm(&claim->retry_timer, zkf_now_ns() + ZKF_RETRY_MS * ZKF_NS_PER_MS);
}

static struct zkf_claim_data data_of(const struct zkf_claim *claim)
{
	struct zkf_claim_data data = {
		.ranges = claim->ranges,
		.answered = claim->answered,
		.confirmed = claim->confirmed,
		.pid = claim->pid,
		.overtaken_by = claim->overtaken_by,
		.held = claim->held,
	};

	memcpy(data.command, claim->command, sizeof(data.command));
	memcpy(data.state, claim->people_state, sizeof(data.state));
	return data;
}

char *zkf_claim_text(const struct zkf_claim *claim)
{
	struct zkf_claim_data data = data_of(claim); /* borrows: not to be freed */

	return zkf_claim_data_write(&data);
}

void zkf_claim_forget(struct zkf_claim *claim)
{
	struct zkf_claim **at = &claim->lock->claims;

	while (*at != claim)
		at = &(*at)->next;
	*at = claim->next;
	zkf_look_stop(claim);
	zkf_zk_cancel(claim->write_op);
	zkf_zk_cancel(claim->delete_op);
	zkf_zk_cancel(claim->gone_op);
	zkf_zk_watch_forget(&claim->gone_watch);
	zkf_timer_stop(&claim->retry_timer);
	path_bytes -= claim->path ? strlen(claim->path) : 0;
	deleting -= claim->state == ZKF_CLAIM_DELETING;
	zkf_ranges_free(&claim->ranges);
	zkf_ranges_free(&claim->written);
	free(claim->overtaken_by);
	free(claim->held);
	free(claim->overtook);
	free(claim->path);
	free(claim);
}

/* Nobody wants it any more, and there is no node. */
static void never_made(struct zkf_claim *claim)
{
	struct zkf_lock *lock = claim->lock;

	zkf_claim_forget(claim);
	zkf_lock_touch(lock);
}

/* The name of the node is known: adopt it. */
static void made(struct zkf_claim *claim, const char *name)
{
	struct zkf_claim_id id;
	char *path;

	if (zkf_claim_name_read(&id, name) || asprintf(&path, "%s/%s", claim->lock->directory, name) < 0) {
		wait_and_retry(claim);
		return;
	}
	path_bytes += strlen(path) - strlen(claim->path);
	free(claim->path);
	claim->path = path;
	claim->id.sequence = id.sequence;
	snprintf(claim->name, sizeof(claim->name), "%s", name);
	claim->state = ZKF_CLAIM_LOOKING;
	if (claim->delete_wanted) {
		zkf_claim_delete(claim);
	} else if (id.sequence > SEQUENCE_MAX) {
		zkf_log(ZKF_LOG_ERROR,
		        "claim sequence lock=%s error=\"the counter of this lock is used up; it starts again when "
		        "nobody has used the lock for a minute\"",
		        claim->lock->key.name);
		claim->state = ZKF_CLAIM_REFUSED;
		claim->refused_error = -EOVERFLOW;
		zkf_lock_touch(claim->lock);
	} else {
		zkf_look_start(claim);
	}
}

/* After a lost reply: is a node with our request id there? */
static void search_done(void *owner, const struct zkf_zk_result *result)
{
	struct zkf_claim *claim = owner;

	claim->look_op = NULL;
	for (int i = 0; i < result->count; i++) {
		struct zkf_claim_id id;

		if (!zkf_claim_name_read(&id, result->children[i]) && !strcmp(id.host, claim->id.host) &&
		    id.request == claim->id.request) {
			made(claim, result->children[i]);
			return;
		}
	}
	if (result->error && result->error != -ENOENT) {
		wait_and_retry(claim); /* still not known: search again */
		return;
	}
	if (claim->delete_wanted)
		never_made(claim);
	else
		create_send(claim);
}

static void search_synced(void *owner, const struct zkf_zk_result *result)
{
	struct zkf_claim *claim = owner;

	(void)result;
	claim->look_op = zkf_zk_children(claim->lock->directory, NULL, search_done, claim);
	if (!claim->look_op)
		wait_and_retry(claim);
}

/* The server that we are connected to now may lag behind the one that made it: sync first. */
static void search(struct zkf_claim *claim)
{
	claim->look_op = zkf_zk_sync(claim->lock->directory, search_synced, claim);
	if (!claim->look_op)
		wait_and_retry(claim);
}

static void make_directory(struct zkf_claim *claim);

static void parent_made(void *owner, const struct zkf_zk_result *result)
{
	struct zkf_claim *claim = owner;

	claim->look_op = NULL;
	if (result->error && result->error != -EEXIST)
		wait_and_retry(claim);
	else
		make_directory(claim);
}

/* It was there when the session began; somebody has tidied up. */
static void make_parent(struct zkf_claim *claim)
{
	char *slash = strrchr(claim->lock->directory, '/');

	*slash = 0;
	claim->look_op = zkf_zk_create(claim->lock->directory, "", ZKF_ZK_PERSISTENT, parent_made, claim);
	*slash = '/';
	if (!claim->look_op)
		wait_and_retry(claim);
}

static void directory_made(void *owner, const struct zkf_zk_result *result)
{
	struct zkf_claim *claim = owner;

	claim->look_op = NULL;
	if (claim->delete_wanted) {
		never_made(claim);
	} else if (result->error == -ENOENT) {
		make_parent(claim);
	} else if (!result->error || result->error == -EEXIST || result->error == -EINPROGRESS) {
		create_send(claim);
	} else {
		zkf_log(ZKF_LOG_ERROR, "claim make path=%s error=\"%s\"", claim->lock->directory,
		        zkf_zk_error_name(result->error));
		claim->state = ZKF_CLAIM_REFUSED;
		claim->refused_error = result->error;
		zkf_lock_touch(claim->lock);
	}
}

static void make_directory(struct zkf_claim *claim)
{
	claim->look_op = zkf_zk_create(claim->lock->directory, "", ZKF_ZK_CONTAINER, directory_made, claim);
	if (!claim->look_op)
		wait_and_retry(claim);
}

static void create_done(void *owner, const struct zkf_zk_result *result)
{
	struct zkf_claim *claim = owner;

	claim->look_op = NULL;
	if (!result->error) {
		claim->version = 0;
		made(claim, result->name);
	} else if (result->error == -ENOENT) {
		/* Never made, or swept because it was empty: make it and try again. */
		if (claim->delete_wanted)
			never_made(claim);
		else
			make_directory(claim);
	} else if (result->error == -EINPROGRESS) {
		search(claim);
	} else if (result->error == -ENOMEM) {
		search(claim);
	} else if (claim->delete_wanted) {
		never_made(claim);
	} else {
		zkf_log(ZKF_LOG_ERROR, "claim create path=%s error=\"%s\"", claim->path,
		        zkf_zk_error_name(result->error));
		claim->state = ZKF_CLAIM_REFUSED;
		claim->refused_error = result->error;
		zkf_lock_touch(claim->lock);
	}
}

static void create_send(struct zkf_claim *claim)
{
	char *text = zkf_claim_text(claim);

	claim->look_op = NULL;
	if (text && !zkf_ranges_copy(&claim->written, &claim->ranges))
		claim->look_op = zkf_zk_create(claim->path, text, ZKF_ZK_EPHEMERAL_SEQUENTIAL, create_done, claim);
	free(text);
	if (!claim->look_op)
		wait_and_retry(claim);
}

static void retry_fire(struct zkf_timer *timer)
{
	struct zkf_claim *claim = (struct zkf_claim *)((char *)timer - offsetof(struct zkf_claim, retry_timer));

	if (claim->state == ZKF_CLAIM_DELETING)
		zkf_claim_delete(claim);
	else if (claim->state == ZKF_CLAIM_CREATING)
		search(claim); /* whatever failed: first find out whether the node exists */
	else if (claim->state == ZKF_CLAIM_LOOKING || claim->state == ZKF_CLAIM_WAITING)
		zkf_look_start(claim);
	else
		write_start(claim);
}

/* Of paths, and of watched paths.  Tests set less, so that it is reached. */
static size_t session_bytes_max(void)
{
	static size_t most; /* 0: not asked yet */
	const char *text = most ? NULL : secure_getenv("ZKFLOCK_TEST_SESSION_BYTES");

	if (text)
		most = strtoul(text, NULL, 10);
	if (!most || most > SESSION_BYTES_MAX)
		most = SESSION_BYTES_MAX;
	return most;
}

unsigned zkf_claims_deleting(void)
{
	return deleting;
}

struct zkf_claim *zkf_claim_create(struct zkf_lock *lock, enum zkf_claim_role role, int64_t start, int64_t end,
                                   uint8_t mode, int32_t pid)
{
	struct zkf_claim *claim;

	size_t bytes = strlen(lock->directory) + ZKF_CLAIM_NAME_BYTES;

	if (path_bytes > NEARLY_FULL(session_bytes_max()) || zkf_zk_watched_bytes() > NEARLY_FULL(session_bytes_max()))
		zkf_lock_give_back_some();
	if (path_bytes + bytes > session_bytes_max() ||
	    zkf_zk_watched_bytes() + WATCHES_PER_CLAIM * bytes > session_bytes_max()) {
		errno = ENOSPC;
		return NULL;
	}
	claim = zkf_calloc(1, sizeof(*claim));
	errno = ENOMEM;
	if (!claim)
		return NULL;
	claim->lock = lock;
	claim->role = role;
	claim->pid = pid;
	claim->answered = claim->written_answered = -1;
	claim->retry_timer.fire = retry_fire;
	zkf_look_init(claim);
	claim->id = (struct zkf_claim_id){.nonblock = role == ZKF_CLAIM_TRY,
	                                  .mode = mode,
	                                  .request = next_request(),
	                                  .start = start,
	                                  .end = end,
	                                  .sequence = INT64_MAX};
	snprintf(claim->id.host, sizeof(claim->id.host), "%s", zkf_session_host());
	zkf_claim_name_write(claim->name, &claim->id);
	read_command(pid, claim->command);
	if (zkf_ranges_assign(&claim->ranges, start, end, mode) ||
	    asprintf(&claim->path, "%s/%s", lock->directory, claim->name) < 0) {
		zkf_ranges_free(&claim->ranges);
		free(claim);
		errno = ENOMEM;
		return NULL;
	}
	path_bytes += strlen(claim->path);
	claim->next = lock->claims;
	lock->claims = claim;
	create_send(claim);
	return claim;
}

int zkf_claim_adopt(struct zkf_lock *lock, const char *name, const struct zkf_zk_result *result)
{
	struct zkf_claim *claim = zkf_calloc(1, sizeof(*claim));
	struct zkf_claim_data data = {0};
	int error;

	if (!claim)
		return -ENOMEM;
	claim->lock = lock;
	claim->adopted = true;
	claim->retry_timer.fire = retry_fire;
	zkf_look_init(claim);
	snprintf(claim->name, sizeof(claim->name), "%s", name);
	error = zkf_claim_name_read(&claim->id, name);
	if (!error)
		error = zkf_claim_data_read(&data, result->data);
	if (error) {
		free(claim);
		return error;
	}
	error = -ENOMEM;
	claim->ranges = data.ranges;
	data.ranges = (struct zkf_ranges){0};
	claim->overtaken_by = data.overtaken_by;
	data.overtaken_by = NULL;
	claim->answered = claim->written_answered = data.answered;
	claim->confirmed = claim->overtook_any = data.confirmed;
	claim->pid = data.pid;
	memcpy(claim->command, data.command, sizeof(claim->command));
	claim->version = result->version;
	zkf_claim_data_free(&data);
	if (!zkf_ranges_copy(&claim->written, &claim->ranges) &&
	    asprintf(&claim->path, "%s/%s", lock->directory, name) > 0)
		error = 0;
	claim->next = lock->claims;
	lock->claims = claim;
	path_bytes += error ? 0 : strlen(claim->path);
	if (error) {
		zkf_claim_forget(claim);
		return error;
	}
	zkf_log(ZKF_LOG_DEBUG, "claim adopted lock=%s claim=%s", lock->key.name, name);
	if (claim->confirmed)
		claim->state = ZKF_CLAIM_GRANTED;
	else
		zkf_look_start(claim);
	return 0;
}

static void delete_done(void *owner, const struct zkf_zk_result *result)
{
	struct zkf_claim *claim = owner;
	struct zkf_lock *lock = claim->lock;

	claim->delete_op = NULL;
	if (result->error && result->error != -ENOENT) {
		zkf_log(ZKF_LOG_ERROR, "claim delete path=%s error=\"%s\"", claim->path,
		        zkf_zk_error_name(result->error));
		zkf_timer_arm(&claim->retry_timer, zkf_now_ns() + 10 * ZKF_RETRY_MS * ZKF_NS_PER_MS);
		return;
	}
	zkf_claim_forget(claim);
	zkf_lock_touch(lock);
}

void zkf_claim_delete(struct zkf_claim *claim)
{
	if (claim->delete_op)
		return;
	if (claim->state == ZKF_CLAIM_CREATING) {
		claim->delete_wanted = true; /* it may or may not exist: whoever finds out deletes it */
		return;
	}
	zkf_log(ZKF_LOG_DEBUG, "claim delete lock=%s claim=%s", claim->lock->key.name, claim->name);
	zkf_look_stop(claim);
	zkf_zk_cancel(claim->write_op);
	claim->write_op = NULL;
	zkf_timer_stop(&claim->retry_timer);
	deleting += claim->state != ZKF_CLAIM_DELETING;
	claim->state = ZKF_CLAIM_DELETING;
	claim->delete_op = zkf_zk_delete(claim->path, delete_done, claim);
	if (!claim->delete_op)
		wait_and_retry(claim);
}

void zkf_claim_set_owner(struct zkf_claim *claim, bool patient)
{
	claim->patient &= patient;
	if (claim->role != ZKF_CLAIM_FIFO)
		return;
	/*
	 * Whatever proves that a waiter is not granted is in the way of a claim for all, exclusively, too: without a claim of
	 * its own host's it has nobody to overtake.
	 */
	if (patient && zkf_ranges_covers(&claim->ranges, 0, ZKF_RANGE_MAX, ZKF_EXCLUSIVE))
		return;
	claim->patient = patient;
	claim->role = ZKF_CLAIM_OWNER;
	if (claim->state == ZKF_CLAIM_WAITING)
		zkf_look_start(claim);
}

/* Own data: what the server has against what it should have. */
static bool write_needed(const struct zkf_claim *claim)
{
	return claim->force_write || claim->answered != claim->written_answered ||
	       !zkf_ranges_equal(&claim->ranges, &claim->written);
}

static void reread_done(void *owner, const struct zkf_zk_result *result)
{
	struct zkf_claim *claim = owner;
	struct zkf_claim_data data = {0};
	int error = result->error;

	claim->write_op = NULL;
	if (!error)
		error = zkf_claim_data_read(&data, result->data);
	if (error == -ENOENT) {
		zkf_look_gone(claim);
		return;
	}
	if (error) {
		wait_and_retry(claim);
		return;
	}
	free(claim->overtaken_by);
	claim->overtaken_by = data.overtaken_by;
	data.overtaken_by = NULL;
	zkf_claim_data_free(&data);
	claim->version = result->version;
	claim->force_write = true; /* an unknown outcome may have been either: write once more */
	write_start(claim);
}

static void write_done(void *owner, const struct zkf_zk_result *result)
{
	struct zkf_claim *claim = owner;

	claim->write_op = NULL;
	if (!result->error) {
		claim->version = result->version;
		claim->done_write = claim->sent_write;
		claim->done_zxid = result->mzxid;
		zkf_lock_touch(claim->lock);
		write_start(claim); /* what has changed meanwhile */
		if (claim->state == ZKF_CLAIM_WAITING && !claim->write_op)
			zkf_look_start(claim); /* it wants less now */
		return;
	}
	/* Somebody marked it, or the reply was lost: read, keep the marks, write again. */
	claim->write_op = zkf_zk_get(claim->path, NULL, reread_done, claim);
	claim->written_answered = -2; /* not known */
	if (!claim->write_op)
		wait_and_retry(claim);
}

static void write_start(struct zkf_claim *claim)
{
	char *text;

	/* A look in its overtaking part writes itself, by the version that it has read. */
	if (claim->write_op || !write_needed(claim) || claim->state == ZKF_CLAIM_CREATING ||
	    claim->state == ZKF_CLAIM_OVERTAKING || claim->state == ZKF_CLAIM_DELETING ||
	    claim->state == ZKF_CLAIM_GONE || claim->state == ZKF_CLAIM_BROKEN)
		return;
	text = zkf_claim_text(claim);
	if (text && !zkf_ranges_copy(&claim->written, &claim->ranges)) {
		claim->written_answered = claim->answered;
		claim->force_write = false;
		claim->write_op = zkf_zk_set(claim->path, text, claim->version, write_done, claim);
		claim->sent_write = ++writes;
	}
	free(text);
	if (!claim->write_op) {
		claim->force_write = true;
		wait_and_retry(claim);
	}
}

uint64_t zkf_claim_writes(void)
{
	return writes;
}

int64_t zkf_claim_written_since(struct zkf_claim *claim, uint64_t before)
{
	if (claim->done_write > before)
		return claim->done_zxid;
	if (!claim->write_op || claim->sent_write <= before) {
		claim->force_write = true;
		write_start(claim);
	}
	return -1;
}

void zkf_claim_write(struct zkf_claim *claim)
{
	write_start(claim);
}

int zkf_claim_shrink(struct zkf_claim *claim, const struct zkf_ranges *limit)
{
	int error = zkf_ranges_limit(&claim->ranges, limit);

	if (!error)
		write_start(claim);
	return error;
}

void zkf_claim_answer(struct zkf_claim *claim, int64_t sequence, char *held)
{
	free(claim->held);
	claim->held = held;
	claim->answered = sequence;
	snprintf(claim->people_state, sizeof(claim->people_state), "held");
	write_start(claim);
}

void zkf_claim_tell(struct zkf_claim *claim, const char *state, int32_t pid)
{
	snprintf(claim->people_state, sizeof(claim->people_state), "%s", state);
	if (pid) {
		claim->pid = pid;
		claim->command[0] = 0;
		read_command(pid, claim->command);
	}
	claim->force_write = true;
	write_start(claim);
}
