/*
 * keeper/look.c - see look.h
 * SPDX-License-Identifier: Apache-2.0
 *
 * A look is one list of the queue, then as many reads of other claims as the decision needs, one after the other.
 * decide() is a function of what has been read so far: it either comes to a verdict or names the read that it lacks; the
 * read's result is kept, and decide() is called again.  So the order of reading, which the rules depend on (children
 * first, own claim last), stands in one place.
 *
 * A claim that waits its turn (FIFO) reads from the nearest earlier conflicting claim backwards and stops at the first
 * that is in its way: usually one read.  One that may overtake reads forwards and needs a proof for every waiter.
 */
#include "look.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fault.h"
#include "lease.h"
#include "log.h"
#include "session.h"

static void list_send(struct zkf_claim *claim);
static void decide(struct zkf_claim *claim);

static void peers_free(struct zkf_claim *claim)
{
	for (size_t i = 0; i < claim->peer_count; i++) {
		free(claim->peers[i]->name);
		zkf_claim_data_free(&claim->peers[i]->data);
		free(claim->peers[i]);
	}
	free(claim->peers);
	claim->peers = NULL;
	claim->peer_count = 0;
	claim->target = NULL;
}

void zkf_look_stop(struct zkf_claim *claim)
{
	zkf_zk_cancel(claim->look_op);
	claim->look_op = NULL;
	zkf_zk_watch_forget(&claim->target_watch);
	zkf_zk_watch_forget(&claim->self_watch);
	peers_free(claim);
}

void zkf_look_gone(struct zkf_claim *claim)
{
	zkf_look_stop(claim);
	zkf_log(ZKF_LOG_WARN, "claim gone path=%s why=\"deleted by somebody else\"", claim->path);
	claim->was_granted = claim->state == ZKF_CLAIM_GRANTED;
	claim->state = ZKF_CLAIM_GONE;
	zkf_lock_touch(claim->lock);
}

static void retry_later(struct zkf_claim *claim)
{
	zkf_look_stop(claim);
	claim->state = ZKF_CLAIM_LOOKING;
	zkf_timer_arm(&claim->retry_timer, zkf_now_ns() + ZKF_RETRY_MS * ZKF_NS_PER_MS);
}

static const char *state_name(enum zkf_claim_state state)
{
	return state == ZKF_CLAIM_GRANTED ? "granted" : state == ZKF_CLAIM_WAITING ? "waiting" : "refused";
}

/* All who wait for long look again: the more there are, the more seldom each, so that together they cost the same. */
static int64_t look_again_ns(const struct zkf_claim *claim)
{
	int64_t crowd = claim->patient ? (int64_t)claim->peer_count / ZKF_LOOK_AGAIN_CROWD : 0;

	return (1 + crowd) * ZKF_LOOK_AGAIN_MS * ZKF_NS_PER_MS;
}

static void settle(struct zkf_claim *claim, enum zkf_claim_state state)
{
	claim->state = state;
	/*
	 * R8: who may overtake and was refused a proof (by R1 or R2) would have to wait for a change of that one, too: its
	 * mark may be taken back.  Looking again once in a while does the same with one watch less.
	 */
	if (state == ZKF_CLAIM_WAITING && claim->role != ZKF_CLAIM_FIFO)
		zkf_timer_arm_by(&claim->retry_timer, zkf_now_ns() + look_again_ns(claim));
	zkf_log(ZKF_LOG_DEBUG, "claim %s lock=%s claim=%s", state_name(state), claim->lock->key.name, claim->name);
	if (state != ZKF_CLAIM_WAITING)
		zkf_look_stop(claim);
	zkf_claim_write(claim); /* what was put off meanwhile */
	zkf_lock_touch(claim->lock);
}

/* Names never lie about the widest range and mode: without an overlap there nothing needs to be read. */
static bool name_conflict(const struct zkf_claim *claim, const struct zkf_peer *peer)
{
	return !peer->own &&
	       zkf_ranges_conflicting(&claim->ranges, peer->id.start, peer->id.end, peer->id.mode) != NULL;
}

static bool names_conflict(const struct zkf_peer *a, const struct zkf_peer *b)
{
	return (a->id.foreign || b->id.foreign || strcmp(a->id.host, b->id.host)) && a->id.start <= b->id.end &&
	       b->id.start <= a->id.end && (a->id.mode == ZKF_EXCLUSIVE || b->id.mode == ZKF_EXCLUSIVE);
}

static bool really_conflict(const struct zkf_claim *claim, const struct zkf_peer *peer)
{
	return !peer->own && !peer->gone && zkf_ranges_conflict(&peer->data.ranges, &claim->ranges);
}

/* What a get has told of another claim. */
static int peer_take(struct zkf_peer *peer, const struct zkf_zk_result *result)
{
	int error = 0;

	zkf_claim_data_free(&peer->data);
	peer->read = true;
	peer->opaque = false;
	peer->gone = result->error == -ENOENT;
	peer->version = result->version;
	peer->ctime_ms = result->ctime_ms;
	if (peer->gone)
		return 0;
	if (!result->error && !peer->id.foreign)
		error = zkf_claim_data_read(&peer->data, result->data);
	if (error == -ENOMEM || result->error == -ENOMEM)
		return -ENOMEM;
	if (result->error || error || peer->id.foreign) {
		/* Not ours, or not to be read: all that its name says, and in use for all we know. */
		peer->opaque = true;
		peer->data.answered = INT64_MAX;
		error = zkf_ranges_assign(&peer->data.ranges, peer->id.start, peer->id.end, peer->id.mode);
	}
	return error;
}

static void peer_read_done(void *owner, const struct zkf_zk_result *result)
{
	struct zkf_claim *claim = owner;

	claim->look_op = NULL;
	if (peer_take(claim->target, result))
		retry_later(claim);
	else
		decide(claim);
}

static char *peer_path(const struct zkf_claim *claim, const struct zkf_peer *peer)
{
	char *path = zkf_calloc(1, strlen(claim->lock->directory) + strlen(peer->name) + 2);

	if (path)
		stpcpy(stpcpy(stpcpy(path, claim->lock->directory), "/"), peer->name);
	return path;
}

/* claim->look_op tells whether the read is under way. */
static void read_peer(struct zkf_claim *claim, const struct zkf_peer *peer, bool watch, zkf_zk_done *done)
{
	char *path = peer_path(claim, peer);

	if (path)
		claim->look_op = zkf_zk_get(path, watch ? &claim->target_watch : NULL, done, claim);
	free(path);
}

/* Reads a peer for decide(), which is called again with the answer. */
static void need_peer(struct zkf_claim *claim, struct zkf_peer *peer, bool watch)
{
	claim->target = peer;
	read_peer(claim, peer, watch, peer_read_done);
	if (!claim->look_op)
		retry_later(claim);
}

static void self_read_done(void *owner, const struct zkf_zk_result *result)
{
	struct zkf_claim *claim = owner;
	struct zkf_claim_data data = {0};
	int error = result->error;

	claim->look_op = NULL;
	if (error == -ENOENT) {
		zkf_look_gone(claim);
		return;
	}
	if (!error)
		error = zkf_claim_data_read(&data, result->data);
	if (error) {
		retry_later(claim);
		return;
	}
	claim->self_reads++;
	if (claim->self_reads == 2 && claim->self_version != result->version) {
		zkf_claim_data_free(&data);
		zkf_look_start(claim); /* R3: marked since */
		return;
	}
	claim->self_version = result->version;
	if (!claim->write_op)
		claim->version = result->version;
	free(claim->overtaken_by);
	claim->overtaken_by = data.overtaken_by;
	data.overtaken_by = NULL;
	zkf_claim_data_free(&data);
	decide(claim);
}

static void read_self(struct zkf_claim *claim, zkf_zk_done *done)
{
	claim->look_op = zkf_zk_get(claim->path, &claim->self_watch, done, claim);
}

static void need_self(struct zkf_claim *claim)
{
	read_self(claim, self_read_done);
	if (!claim->look_op)
		retry_later(claim);
}

/* Appends a peer; room has been made.  NULL: memory is out. */
static struct zkf_peer *peer_new(struct zkf_claim *claim, const struct zkf_claim_id *id, const char *name)
{
	struct zkf_peer *peer = zkf_calloc(1, sizeof(*peer));

	if (!peer)
		return NULL;
	peer->id = *id;
	peer->name = zkf_memdup(name, strlen(name));
	peer->own = !id->foreign && !strcmp(id->host, claim->id.host);
	if (!peer->name) {
		free(peer);
		return NULL;
	}
	claim->peers[claim->peer_count++] = peer;
	return peer;
}

/* A peer by name; one that queued up after the list was taken is added.  NULL: memory is out, or no claim's name. */
static struct zkf_peer *peer_by_name(struct zkf_claim *claim, const char *name)
{
	struct zkf_claim_id id;
	struct zkf_peer **peers;

	for (size_t i = 0; i < claim->peer_count; i++)
		if (!strcmp(claim->peers[i]->name, name))
			return claim->peers[i];
	if (zkf_claim_name_read(&id, name))
		return NULL;
	peers = zkf_reallocarray(claim->peers, claim->peer_count + 1, sizeof(*peers));
	if (!peers)
		return NULL;
	claim->peers = peers;
	return peer_new(claim, &id, name);
}

/* What a walk over a list of names found out. */
enum walk { WALK_DONE, WALK_FOUND, WALK_PENDING };

/*
 * Calls test for every claim of a comma-separated list, each read first.  names is copied: adding a peer may move them.
 * FOUND: *found is the first for which it held.  PENDING: a read is under way, or the look was given up.
 */
static enum walk walk_names(struct zkf_claim *claim, const char *names, bool watch,
                            bool (*test)(const struct zkf_claim *, const struct zkf_peer *, const struct zkf_peer *),
                            const char *subject, struct zkf_peer **found)
{
	char *copy = names ? zkf_memdup(names, strlen(names)) : NULL, *next = copy, *name;

	if (names && !copy) {
		retry_later(claim);
		return WALK_PENDING;
	}
	while (next && (name = strsep(&next, ",")) != NULL) {
		struct zkf_peer *peer = peer_by_name(claim, name);

		if (!peer || !peer->read) {
			free(copy);
			if (peer)
				need_peer(claim, peer, watch);
			else
				retry_later(claim);
			return WALK_PENDING;
		}
		if (!peer->gone && test(claim, peer, subject ? peer_by_name(claim, subject) : NULL)) {
			free(copy);
			*found = peer;
			return WALK_FOUND;
		}
	}
	free(copy);
	return WALK_DONE;
}

static bool conflicts_with_claim(const struct zkf_claim *claim, const struct zkf_peer *peer,
                                 const struct zkf_peer *none)
{
	(void)none;
	return really_conflict(claim, peer);
}

/* R2: a confirmed overtaker of a waiter holds, so it proves that the waiter does not. */
static bool proves_by_overtaking(const struct zkf_claim *claim, const struct zkf_peer *peer,
                                 const struct zkf_peer *waiter)
{
	(void)claim;
	return peer->data.confirmed && names_conflict(peer, waiter) &&
	       zkf_ranges_conflict(&peer->data.ranges, &waiter->data.ranges);
}

static void target_changed(struct zkf_zk_watch *watch)
{
	zkf_look_start((struct zkf_claim *)((char *)watch - offsetof(struct zkf_claim, target_watch)));
}

static void self_changed(struct zkf_zk_watch *watch)
{
	struct zkf_claim *claim = (struct zkf_claim *)((char *)watch - offsetof(struct zkf_claim, self_watch));

	if (claim->state == ZKF_CLAIM_WAITING) /* R7; before that, own_claim_changed() tells */
		zkf_look_start(claim);
}

void zkf_look_init(struct zkf_claim *claim)
{
	claim->target_watch.fire = target_changed;
	claim->self_watch.fire = self_changed;
}

static void rang(void *owner, const struct zkf_zk_result *result)
{
	(void)owner;
	(void)result; /* unrepeated errors: the directory is gone, then nobody is there to hear it */
}

/* Shared holders don't watch who comes (readers must not wake readers): a writer tells them by touching the directory. */
static void ring(struct zkf_claim *claim, const struct zkf_peer *target)
{
	if (claim->rung || claim->id.mode != ZKF_EXCLUSIVE || zkf_ranges_mode(&target->data.ranges) == ZKF_EXCLUSIVE)
		return;
	claim->rung = zkf_zk_set(claim->lock->directory, "", -1, rang, NULL) != NULL;
}

/* R7, in a look: the own claim was read, and the watch that the read armed has fired since. */
static bool own_claim_changed(const struct zkf_claim *claim)
{
	return claim->self_reads && !claim->self_watch.ticket;
}

static void target_watched(void *owner, const struct zkf_zk_result *result)
{
	struct zkf_claim *claim = owner;

	claim->look_op = NULL;
	if (result->error && result->error != -ENOENT) {
		/* Not to be read, and so not to be watched: in the way for all we know.  Looking at once would never end. */
		settle(claim, ZKF_CLAIM_WAITING);
		zkf_timer_arm_by(&claim->retry_timer, zkf_now_ns() + ZKF_LOOK_AGAIN_MS * ZKF_NS_PER_MS);
	} else if (result->error || result->version != claim->target->version || own_claim_changed(claim)) {
		zkf_look_start(claim);
	} else {
		settle(claim, ZKF_CLAIM_WAITING);
	}
}

static void unmark_next(struct zkf_claim *claim);

/* A mark of ours that a former look could not take back: its claim would wait for us while we wait. */
static bool stale_marks(struct zkf_claim *claim)
{
	bool any = false;

	for (size_t i = 0; i < claim->peer_count; i++) {
		struct zkf_peer *peer = claim->peers[i];

		peer->marked = peer->read && !peer->gone && zkf_names_find(peer->data.overtaken_by, claim->name);
		any |= peer->marked;
	}
	return any;
}

/* Waits for a change of target.  watched: the read that decide() saw has armed the watch. */
static void wait_for(struct zkf_claim *claim, struct zkf_peer *target, bool watched)
{
	if (stale_marks(claim)) {
		claim->state = ZKF_CLAIM_OVERTAKING;
		unmark_next(claim);
		return;
	}
	ring(claim, target);
	claim->target = target;
	if (watched && own_claim_changed(claim)) {
		zkf_look_start(claim);
		return;
	}
	if (watched) {
		settle(claim, ZKF_CLAIM_WAITING);
		return;
	}
	read_peer(claim, target, true, target_watched);
	if (!claim->look_op)
		retry_later(claim);
}

static void refuse(struct zkf_claim *claim, const struct zkf_peer *holder)
{
	const struct zkf_range *range = NULL;

	for (size_t i = 0; !range && i < claim->ranges.count; i++)
		range = zkf_ranges_conflicting(&holder->data.ranges, claim->ranges.items[i].start,
		                               claim->ranges.items[i].end, claim->ranges.items[i].mode);
	if (range)
		claim->refused_by = *range;
	claim->refused_pid = holder->data.pid;
	/* The lock itself, as its host's kernel has it: it may lie in several claims, and a claim hold several. */
	for (size_t i = 0, found = 0; !found && i < claim->ranges.count; i++)
		found = zkf_held_conflicting(holder->data.held, claim->ranges.items[i].start,
		                             claim->ranges.items[i].end, claim->ranges.items[i].mode,
		                             &claim->refused_by, &claim->refused_pid);
	settle(claim, ZKF_CLAIM_REFUSED);
}

/* --- overtaking: mark, verify, confirm; else unmark, bump --- */

static void bumped(void *owner, const struct zkf_zk_result *result)
{
	struct zkf_claim *claim = owner;

	claim->look_op = NULL;
	if (result->error) /* those that wait for this claim must be told, and no "confirmed" may stay */
		claim->force_write = true;
	/* Not at once, and not all after the same time: two hosts could undo each other's marks for ever. */
	zkf_look_stop(claim);
	claim->state = ZKF_CLAIM_LOOKING;
	zkf_timer_arm(&claim->retry_timer, zkf_now_ns() + random() % (ZKF_OVERTAKE_AGAIN_MS * ZKF_NS_PER_MS));
}

static void set_peer(struct zkf_claim *claim, const struct zkf_peer *peer, zkf_zk_done *done)
{
	char *path = peer_path(claim, peer), *text = zkf_claim_data_write(&peer->data);

	if (path && text)
		claim->look_op = zkf_zk_set(path, text, peer->version, done, claim);
	free(path);
	free(text);
}

static void set_self(struct zkf_claim *claim, zkf_zk_done *done)
{
	char *text = zkf_claim_text(claim);

	if (text)
		claim->look_op = zkf_zk_set(claim->path, text, claim->self_version, done, claim);
	free(text);
}

static void unmark_done(void *owner, const struct zkf_zk_result *result)
{
	struct zkf_claim *claim = owner;

	claim->look_op = NULL;
	if (!result->error || result->error == -ENOENT)
		claim->target->marked = false;
	unmark_next(claim); /* else: read it again */
}

static void unmark_read(void *owner, const struct zkf_zk_result *result)
{
	struct zkf_claim *claim = owner;
	struct zkf_peer *peer = claim->target;

	claim->look_op = NULL;
	if (peer_take(peer, result)) {
		retry_later(claim); /* the mark stays for now; wait_for() finds it */
		return;
	}
	if (peer->gone || !zkf_names_find(peer->data.overtaken_by, claim->name)) {
		peer->marked = false;
		unmark_next(claim);
		return;
	}
	if (!zkf_names_remove(&peer->data.overtaken_by, claim->name))
		set_peer(claim, peer, unmark_done);
	if (!claim->look_op)
		retry_later(claim);
}

/* Takes the marks back one after the other, then bumps the own version for those that wait for this claim (R6). */
static void unmark_next(struct zkf_claim *claim)
{
	for (size_t i = 0; i < claim->peer_count; i++) {
		struct zkf_peer *peer = claim->peers[i];

		if (!peer->marked)
			continue;
		claim->target = peer;
		read_peer(claim, peer, false, unmark_read);
		if (!claim->look_op)
			retry_later(claim);
		return;
	}
	set_self(claim, bumped);
	if (!claim->look_op)
		retry_later(claim);
}

static void overtaken(struct zkf_claim *claim, int32_t version)
{
	int64_t *more;
	size_t count = 0;

	claim->version = version;
	for (size_t i = 0; i < claim->peer_count; i++)
		count += claim->peers[i]->marked;
	more = zkf_reallocarray(claim->overtook, claim->overtook_count + count, sizeof(*more));
	if (more)
		claim->overtook = more;
	else
		claim->overtook_any = true; /* all that conflict: else one of them would wait for ever */
	for (size_t i = 0; more && i < claim->peer_count; i++)
		if (claim->peers[i]->marked)
			more[claim->overtook_count++] = claim->peers[i]->id.sequence;
	settle(claim, ZKF_CLAIM_GRANTED);
}

/* The reply to the confirmation was lost: a flag that stands there would be taken for a proof by others. */
static void confirmation_read(void *owner, const struct zkf_zk_result *result)
{
	struct zkf_claim *claim = owner;
	struct zkf_claim_data data = {0};

	claim->look_op = NULL;
	if (result->error == -ENOENT) {
		zkf_look_gone(claim);
		return;
	}
	if (result->error || zkf_claim_data_read(&data, result->data)) {
		read_self(claim, confirmation_read);
		if (!claim->look_op)
			retry_later(claim);
		return;
	}
	claim->self_version = result->version;
	if (data.confirmed) {
		overtaken(claim, result->version);
	} else {
		claim->confirmed = false;
		unmark_next(claim);
	}
	zkf_claim_data_free(&data);
}

static void confirmed(void *owner, const struct zkf_zk_result *result)
{
	struct zkf_claim *claim = owner;

	claim->look_op = NULL;
	if (!result->error) {
		overtaken(claim, result->version);
	} else if (result->error == -EINPROGRESS) {
		read_self(claim, confirmation_read);
		if (!claim->look_op)
			retry_later(claim);
	} else { /* somebody overtook us meanwhile */
		claim->confirmed = false;
		unmark_next(claim);
	}
}

static void verify_next(struct zkf_claim *claim);

static void verified(void *owner, const struct zkf_zk_result *result)
{
	struct zkf_claim *claim = owner;
	const struct zkf_peer *proof = claim->target->proof;

	claim->look_op = NULL;
	if (result->error || result->version != proof->version) {
		unmark_next(claim);
		return;
	}
	claim->step_index++;
	verify_next(claim);
}

/* R5: do the proofs still stand, after the marks?  R4: then confirm, by a versioned set on the own claim. */
static void verify_next(struct zkf_claim *claim)
{
	for (; claim->step_index < claim->peer_count; claim->step_index++) {
		struct zkf_peer *waiter = claim->peers[claim->step_index];

		if (!waiter->proof)
			continue;
		claim->target = waiter;
		read_peer(claim, waiter->proof, false, verified);
		if (!claim->look_op)
			unmark_next(claim);
		return;
	}
	claim->confirmed = true;
	set_self(claim, confirmed);
	if (!claim->look_op) {
		claim->confirmed = false;
		unmark_next(claim);
	}
}

static void mark_next(struct zkf_claim *claim);

static void marked(void *owner, const struct zkf_zk_result *result)
{
	struct zkf_claim *claim = owner;

	claim->look_op = NULL;
	if (result->error) {
		unmark_next(claim);
		return;
	}
	claim->target->version = result->version; /* it may also be a proof */
	claim->step_index++;
	mark_next(claim);
}

static void mark_next(struct zkf_claim *claim)
{
	for (; claim->step_index < claim->peer_count; claim->step_index++) {
		struct zkf_peer *waiter = claim->peers[claim->step_index];

		if (!waiter->proof)
			continue;
		claim->target = waiter;
		waiter->marked = true; /* or may be, if the reply is lost */
		if (!zkf_names_add(&waiter->data.overtaken_by, claim->name))
			set_peer(claim, waiter, marked);
		if (!claim->look_op)
			unmark_next(claim);
		return;
	}
	claim->step_index = 0;
	verify_next(claim);
}

/* --- the decision --- */

/* R1: what the waiter has itself overtaken proves nothing about it. */
static enum walk find_proof(struct zkf_claim *claim, size_t index, struct zkf_peer **proof)
{
	char *names, *subject;
	enum walk walk;

	for (size_t i = 0; i < index; i++) {
		struct zkf_peer *peer = claim->peers[i], *waiter = claim->peers[index];

		if (peer->id.sequence >= waiter->id.sequence || !names_conflict(peer, waiter))
			continue;
		if (!peer->read) {
			need_peer(claim, peer, false);
			return WALK_PENDING;
		}
		if (!peer->gone && zkf_ranges_conflict(&peer->data.ranges, &waiter->data.ranges) &&
		    !zkf_names_find(peer->data.overtaken_by, waiter->name)) {
			*proof = peer;
			return WALK_FOUND;
		}
	}
	names = claim->peers[index]->data.overtaken_by;
	if (!names)
		return WALK_DONE;
	names = zkf_memdup(names, strlen(names));
	subject = zkf_memdup(claim->peers[index]->name, strlen(claim->peers[index]->name));
	if (names && subject) {
		walk = walk_names(claim, names, false, proves_by_overtaking, subject, proof);
	} else {
		retry_later(claim);
		walk = WALK_PENDING;
	}
	free(names);
	free(subject);
	return walk;
}

/* Its own list: whoever overtook this claim and is still there comes first. */
static enum walk find_overtaker(struct zkf_claim *claim, struct zkf_peer **overtaker)
{
	if (!claim->self_reads) {
		need_self(claim);
		return WALK_PENDING;
	}
	return walk_names(claim, claim->overtaken_by, true, conflicts_with_claim, NULL, overtaker);
}

static void nobody_in_the_way(struct zkf_claim *claim)
{
	struct zkf_peer *overtaker = NULL;
	enum walk walk;

	/* Alone in the list: nobody can have had a proof against this claim, so nobody can have overtaken it. */
	if (!claim->earlier_conflict && !claim->later_conflict) {
		settle(claim, ZKF_CLAIM_GRANTED);
		return;
	}
	walk = find_overtaker(claim, &overtaker);
	if (walk == WALK_FOUND)
		wait_for(claim, overtaker, false);
	else if (walk == WALK_DONE && claim->overtaken_by && claim->self_reads < 2)
		need_self(claim); /* R3 */
	else if (walk == WALK_DONE)
		settle(claim, ZKF_CLAIM_GRANTED);
}

static void decide_in_turn(struct zkf_claim *claim)
{
	for (size_t i = claim->peer_count; i-- > 0;) {
		struct zkf_peer *peer = claim->peers[i];

		if (peer->id.sequence >= claim->id.sequence || !name_conflict(claim, peer))
			continue;
		if (!peer->read) {
			need_peer(claim, peer, true);
			return;
		}
		if (really_conflict(claim, peer)) {
			wait_for(claim, peer, peer == claim->target && claim->target_watch.ticket);
			return;
		}
	}
	nobody_in_the_way(claim);
}

static void overtake(struct zkf_claim *claim)
{
	claim->state = ZKF_CLAIM_OVERTAKING;
	claim->step_index = 0;
	zkf_zk_watch_forget(&claim->target_watch); /* must not start a new look in the middle */
	mark_next(claim);
}

/*
 * For who may overtake.  Forwards: the first conflicting claim is a holder, or there is a proof that it is not.  Who waits
 * for long, holding nothing, waits for the nearest then, as one that waits its turn, and looks again once in a while.  A
 * non-blocking claim waits for a holder's word, "in use" or "given back"; the holder's host gives it soon.
 */
static void decide_overtaking(struct zkf_claim *claim)
{
	struct zkf_peer *unproven = NULL, *overtaker = NULL;
	bool any = false;
	enum walk walk;

	for (size_t i = 0; i < claim->peer_count; i++) {
		struct zkf_peer *peer = claim->peers[i], *proof = NULL;

		peer->proof = NULL;
		if (peer->id.sequence >= claim->id.sequence || !name_conflict(claim, peer))
			continue;
		if (!peer->read) {
			need_peer(claim, peer, false);
			return;
		}
		if (!really_conflict(claim, peer))
			continue;
		if (claim->role == ZKF_CLAIM_TRY && peer->data.answered >= claim->id.sequence) {
			refuse(claim, peer);
			return;
		}
		walk = peer->opaque ? WALK_DONE : find_proof(claim, i, &proof);
		if (walk == WALK_PENDING)
			return;
		claim->peers[i]->proof = proof;
		any = true;
		/* One in the way is enough; a crowd that waits for long must not read the whole queue, each of them. */
		if (!proof && claim->patient) {
			decide_in_turn(claim);
			return;
		}
		if (!proof && (!unproven || claim->role == ZKF_CLAIM_OWNER))
			unproven = claim->peers[i];
		if (!proof && claim->role == ZKF_CLAIM_TRY)
			break;
	}
	if (unproven) {
		wait_for(claim, unproven, false);
		return;
	}
	if (!any) {
		nobody_in_the_way(claim);
		return;
	}
	walk = find_overtaker(claim, &overtaker);
	if (walk == WALK_FOUND)
		wait_for(claim, overtaker, false);
	else if (walk == WALK_DONE)
		overtake(claim);
}

static void decide(struct zkf_claim *claim)
{
	if (claim->role == ZKF_CLAIM_FIFO)
		decide_in_turn(claim);
	else
		decide_overtaking(claim);
}

static int by_sequence(const void *a, const void *b)
{
	const struct zkf_peer *one = *(struct zkf_peer *const *)a, *other = *(struct zkf_peer *const *)b;

	return one->id.sequence < other->id.sequence ? -1 : one->id.sequence > other->id.sequence;
}

static int peers_take(struct zkf_claim *claim, const struct zkf_zk_result *result, bool *found_self)
{
	claim->peers = zkf_calloc((size_t)result->count + 1, sizeof(*claim->peers));
	if (!claim->peers)
		return -ENOMEM;
	claim->later_conflict = claim->earlier_conflict = *found_self = false;
	for (int i = 0; i < result->count; i++) {
		struct zkf_claim_id id;
		struct zkf_peer *peer;

		if (!strcmp(result->children[i], claim->name)) {
			*found_self = true;
			continue;
		}
		if (zkf_claim_name_read(&id, result->children[i]))
			continue; /* not a claim: none of our business */
		peer = peer_new(claim, &id, result->children[i]);
		if (!peer)
			return -ENOMEM;
		if (name_conflict(claim, peer)) {
			if (peer->id.sequence < claim->id.sequence)
				claim->earlier_conflict = true;
			else
				claim->later_conflict = true;
		}
	}
	qsort(claim->peers, claim->peer_count, sizeof(*claim->peers), by_sequence);
	return 0;
}

static void list_done(void *owner, const struct zkf_zk_result *result)
{
	struct zkf_claim *claim = owner;
	bool found_self;

	claim->look_op = NULL;
	if (result->error == -ENOENT) {
		zkf_look_gone(claim);
		return;
	}
	if (result->error || peers_take(claim, result, &found_self)) {
		retry_later(claim);
		return;
	}
	zkf_lock_view(claim->lock, result);
	if (claim->list_fired == claim->lock->view_fired && claim->lock->followers)
		claim->lock->view_stale = false; /* what has fired before is in this list */
	if (!found_self)
		zkf_look_gone(claim);
	else
		decide(claim);
}

static void bell_done(void *owner, const struct zkf_zk_result *result)
{
	struct zkf_claim *claim = owner;

	(void)result; /* the list that follows tells of whatever is wrong */
	claim->look_op = NULL;
	list_send(claim);
}

static void list_send(struct zkf_claim *claim)
{
	struct zkf_lock *lock = claim->lock;
	bool arm = zkf_ranges_mode(&claim->ranges) == ZKF_EXCLUSIVE && !lock->child_watch.ticket;

	claim->list_fired = lock->view_fired;
	claim->look_op = zkf_zk_children(lock->directory, arm ? &lock->child_watch : NULL, list_done, claim);
	if (!claim->look_op)
		retry_later(claim);
}

void zkf_look_start(struct zkf_claim *claim)
{
	zkf_look_stop(claim);
	claim->self_reads = 0;
	claim->state = ZKF_CLAIM_LOOKING;
	if (claim->confirmed) { /* left by a look that was given up: not to be taken for a proof */
		claim->confirmed = false;
		claim->force_write = true;
	}
	/* The watch that tells of later writers is armed before the list: a writer makes its claim first, then rings. */
	if (zkf_ranges_mode(&claim->ranges) == ZKF_SHARED && !claim->lock->bell_watch.ticket) {
		claim->look_op = zkf_zk_get(claim->lock->directory, &claim->lock->bell_watch, bell_done, claim);
		if (!claim->look_op)
			retry_later(claim);
		return;
	}
	list_send(claim);
}
