/*
 * keeper/recall.c - see recall.h
 * SPDX-License-Identifier: Apache-2.0
 *
 *   COVERED, not recalled --a follower, or keep is over--> RECALLED --not in use--> claims deleted, NONE published
 *        ^                                                  |   ^
 *        |  the follower has left, or wants what is         |   | hint, poll: look again
 *        +----- not in use (records: shrunk) ---------------+---+ in use: answered, if somebody needs an answer
 *
 * Every change of a claim is published (generation raised) before the server is told, so a program that has locked
 * between the look and the change finds out by the word.
 */
#include "recall.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "claim.h"
#include "fault.h"
#include "file.h"
#include "holds.h"
#include "lease.h"
#include "log.h"
#include "look.h"
#include "metrics.h"
#include "probe.h"
#include "publish.h"
#include "session.h"

static bool granted(const struct zkf_claim *claim)
{
	return claim->state == ZKF_CLAIM_GRANTED;
}

static bool any_granted(const struct zkf_lock *lock)
{
	for (const struct zkf_claim *claim = lock->claims; claim; claim = claim->next)
		if (granted(claim))
			return true;
	return false;
}

bool zkf_recall_follows(const struct zkf_claim *claim, const struct zkf_follower *follower)
{
	/* Of a former keeper's overtaking claim it is not known whom it overtook: all that conflict. */
	bool behind = follower->sequence > claim->id.sequence || claim->overtook_any;

	for (size_t i = 0; !behind && i < claim->overtook_count; i++)
		behind = claim->overtook[i] == follower->sequence;
	return behind && zkf_ranges_conflicting(&claim->ranges, follower->start, follower->end, follower->mode);
}

static bool followed(const struct zkf_lock *lock, const struct zkf_claim *claim)
{
	for (size_t i = 0; i < lock->follower_count; i++)
		if (zkf_recall_follows(claim, &lock->followers[i]))
			return true;
	return false;
}

static bool any_followed(const struct zkf_lock *lock)
{
	for (const struct zkf_claim *claim = lock->claims; claim; claim = claim->next)
		if (granted(claim) && followed(lock, claim))
			return true;
	return false;
}

/* --- the view of the queue --- */

void zkf_lock_view(struct zkf_lock *lock, const struct zkf_zk_result *result)
{
	struct zkf_follower *followers =
		zkf_reallocarray(lock->followers, (size_t)result->count + 1, sizeof(*followers));

	if (!followers) {
		lock->view_stale = true;
		zkf_timer_arm_by(&lock->poll_timer, zkf_now_ns() + ZKF_RETRY_MS * ZKF_NS_PER_MS);
		return;
	}
	lock->followers = followers;
	lock->follower_count = 0;
	for (int i = 0; i < result->count; i++) {
		struct zkf_claim_id id;

		if (zkf_claim_name_read(&id, result->children[i]) ||
		    (!id.foreign && !strcmp(id.host, zkf_session_host())))
			continue;
		followers[lock->follower_count++] =
			(struct zkf_follower){id.sequence, id.start, id.end, id.mode, id.nonblock};
	}
	for (struct zkf_claim *claim = lock->claims; claim; claim = claim->next) {
		bool found = !granted(claim);

		for (int i = 0; !found && i < result->count; i++)
			found = !strcmp(result->children[i], claim->name);
		if (!found)
			zkf_look_gone(claim);
	}
	zkf_lock_touch(lock);
}

static void list_done(void *owner, const struct zkf_zk_result *result)
{
	struct zkf_lock *lock = owner;

	lock->list_op = NULL;
	if (!result->error || result->error == -ENOENT) { /* no directory: an empty queue, and our claims are gone */
		zkf_lock_view(lock, result);
		return;
	}
	lock->view_stale = true;
	zkf_timer_arm_by(&lock->poll_timer, zkf_now_ns() + ZKF_RETRY_MS * ZKF_NS_PER_MS);
}

static void bell_done(void *owner, const struct zkf_zk_result *result)
{
	struct zkf_lock *lock = owner;

	(void)result;
	lock->bell_op = NULL;
}

/* Which watches must be armed?  For exclusive cover what tells who comes, for shared cover the bell. */
static void gone_fired(struct zkf_zk_watch *watch)
{
	struct zkf_claim *claim = (struct zkf_claim *)((char *)watch - offsetof(struct zkf_claim, gone_watch));

	claim->lock->view_stale = true;
	zkf_lock_touch(claim->lock);
}

static void gone_watched(void *owner, const struct zkf_zk_result *result)
{
	struct zkf_claim *claim = owner;

	claim->gone_op = NULL;
	if (result->error == -ENOENT)
		gone_fired(&claim->gone_watch);
}

/* A shared claim's own node, so that its deletion by somebody else is noticed. */
static void watch_own(struct zkf_lock *lock)
{
	for (struct zkf_claim *claim = lock->claims; claim; claim = claim->next) {
		if (!granted(claim) || zkf_ranges_mode(&claim->ranges) == ZKF_EXCLUSIVE || claim->gone_watch.ticket ||
		    claim->gone_op)
			continue;
		claim->gone_watch.fire = gone_fired;
		claim->gone_op = zkf_zk_get(claim->path, &claim->gone_watch, gone_watched, claim);
	}
}

static void watches_needed(const struct zkf_lock *lock, bool *child, bool *bell)
{
	*child = *bell = false;
	for (const struct zkf_claim *claim = lock->claims; claim; claim = claim->next)
		if (granted(claim)) {
			if (zkf_ranges_mode(&claim->ranges) == ZKF_EXCLUSIVE)
				*child = !lock->child_watch.ticket;
			else
				*bell = !lock->bell_watch.ticket;
		}
}

/* Reads the queue again if it may have changed, or if nothing would tell of its next change. */
static void relist(struct zkf_lock *lock)
{
	bool child, bell;

	watches_needed(lock, &child, &bell);
	if (lock->list_op || (!lock->view_stale && !child && !bell))
		return;
	if (bell) {
		zkf_zk_cancel(lock->bell_op);
		lock->bell_op = zkf_zk_get(lock->directory, &lock->bell_watch, bell_done, lock);
	}
	lock->list_op = zkf_zk_children(lock->directory, child ? &lock->child_watch : NULL, list_done, lock);
	lock->view_stale = !lock->list_op;
	if (!lock->list_op)
		zkf_timer_arm_by(&lock->poll_timer, zkf_now_ns() + ZKF_RETRY_MS * ZKF_NS_PER_MS);
}

/* --- the look --- */

static bool any_demand(const struct zkf_file *file, enum zkf_demand_state state)
{
	for (const struct zkf_demand *demand = file->lock->demands; demand; demand = demand->next)
		if (demand->file == file && demand->state == state)
			return true;
	return false;
}

static unsigned published_mode(const struct zkf_lock *lock)
{
	/* Of a group the keeper must know every thread that locks: nobody may do it by the page alone. */
	if (!zkf_session_usable() || lock->key.kind == ZKF_GROUP)
		return ZKF_NONE;
	return zkf_lock_covered(lock, 0, ZKF_RANGE_MAX, ZKF_EXCLUSIVE) ? ZKF_EXCLUSIVE
	     : zkf_lock_covered(lock, 0, ZKF_RANGE_MAX, ZKF_SHARED)    ? ZKF_SHARED
	                                                               : ZKF_NONE;
}

void zkf_recall_look(struct zkf_file *file)
{
	const struct zkf_lock *lock = file->lock;
	bool pinned = any_demand(file, ZKF_DEMAND_PINNED);

	if (file->looked_step == zkf_lock_step_number())
		return;
	file->looked_step = zkf_lock_step_number();
	if (lock->key.kind == ZKF_GROUP) {
		zkf_holds_look(file);
		return;
	}
	zkf_ranges_clear(&file->in_use);
	file->blind = false;
	if (pinned && lock->key.kind == ZKF_FLOCK) {
		/* No trial lock: it could refuse the pinned call.  What it may be about to take is in use. */
		file->blind = zkf_ranges_assign(&file->in_use, 0, ZKF_RANGE_MAX, ZKF_EXCLUSIVE) != 0;
		return;
	}
	/* A soft demand finds out by the generation that it may have been overlooked: raise it before the look. */
	zkf_publish_state(file->slot, published_mode(lock), true, any_demand(file, ZKF_DEMAND_SOFT));
	/* An error whose "all, exclusive" found no room, either: what is in use is not known, and not nothing. */
	file->blind = zkf_file_look(file, &file->in_use) && !file->in_use.count;
	for (const struct zkf_demand *demand = lock->demands; demand; demand = demand->next)
		if (demand->file == file && demand->state == ZKF_DEMAND_PINNED &&
		    zkf_ranges_raise(&file->in_use, demand->start, demand->end, demand->mode))
			file->blind |= zkf_ranges_assign(&file->in_use, 0, ZKF_RANGE_MAX, ZKF_EXCLUSIVE) != 0;
}

/* Would any claim that waits for ours be answered better if calls that wait inside our kernel did not count as in use? */
static bool somebody_asks(const struct zkf_lock *lock, int64_t waited_ns)
{
	bool patient = waited_ns < ZKF_PATIENCE_HOLDING_NOTHING_MS * ZKF_NS_PER_MS;

	for (const struct zkf_claim *claim = lock->claims; claim; claim = claim->next)
		for (size_t i = 0; granted(claim) && i < lock->follower_count; i++)
			if ((lock->key.kind == ZKF_RECORD || !patient ||
			     (lock->followers[i].nonblock && lock->followers[i].sequence > claim->answered)) &&
			    zkf_recall_follows(claim, &lock->followers[i]))
				return true;
	return false;
}

/* Granted to this host for a demand that waits for an owner of whom the kernel does not tell it. */
static bool promised(const struct zkf_demand *demand)
{
	return demand->state == ZKF_DEMAND_WAITING && demand->claim && granted(demand->claim);
}

/*
 * As with a call that waits inside the kernel (pins_soften), such a wait keeps nobody out who asks: when its owner is still
 * in the way, and what it wants is not in use anyway, it lets its claim go and asks again.
 */
static bool promise_ends(const struct zkf_lock *lock, struct zkf_demand *demand, const struct zkf_ranges *in_use)
{
	if (!demand->in_the_way || !somebody_asks(lock, zkf_now_ns() - demand->arrived_ns) ||
	    zkf_ranges_covers(in_use, demand->start, demand->end, demand->mode))
		return false;
	demand->claim = NULL;
	return true;
}

/* Everything that must stay covered.  -ENOMEM: not known, give nothing back now. */
static int lock_in_use(struct zkf_lock *lock, struct zkf_ranges *in_use)
{
	int error = 0;

	for (struct zkf_file *file = lock->files; file && !error; file = file->next) {
		zkf_recall_look(file);
		error = file->blind ? -ENOMEM : zkf_ranges_raise_all(in_use, &file->in_use);
	}
	for (struct zkf_demand *demand = lock->demands; demand && !error; demand = demand->next)
		if (promised(demand) && !promise_ends(lock, demand, in_use))
			error = zkf_ranges_raise(in_use, demand->start, demand->end, demand->mode);
	return error;
}

bool zkf_recall_uncovered(struct zkf_lock *lock, bool guesses)
{
	for (struct zkf_file *file = lock->files; file; file = file->next) {
		zkf_recall_look(file);
		if (file->blind && guesses)
			return true;
		if (file->guessed && !guesses)
			continue; /* nobody may be killed on a guess */
		for (size_t i = 0; i < file->in_use.count; i++)
			if (!zkf_lock_covered(lock, file->in_use.items[i].start, file->in_use.items[i].end,
			                      file->in_use.items[i].mode))
				return true;
	}
	return false;
}

/* --- giving back --- */

static void files_reduced(struct zkf_lock *lock)
{
	for (struct zkf_file *file = lock->files; file; file = file->next)
		zkf_publish_state(file->slot, published_mode(lock), true, true);
}

static void claim_reduce(struct zkf_lock *lock, struct zkf_claim *claim, const struct zkf_ranges *in_use)
{
	struct zkf_ranges left = {0};

	if (zkf_ranges_copy(&left, &claim->ranges) || zkf_ranges_limit(&left, in_use)) {
		zkf_timer_arm_by(&lock->poll_timer, zkf_now_ns() + ZKF_RETRY_MS * ZKF_NS_PER_MS);
	} else if (!zkf_ranges_equal(&left, &claim->ranges)) {
		if (followed(lock, claim)) {
			zkf_counts.hand_offs++;
			ZKF_PROBE3(hand_off, lock->key.name, lock->key.kind, zkf_now_ns() - lock->recalled_since_ns);
		}
		files_reduced(lock);
		if (left.count)
			zkf_claim_shrink(claim, in_use);
		else
			zkf_claim_delete(claim);
	}
	zkf_ranges_free(&left);
}

/*
 * A pinned call that waits inside the kernel, behind a holder of this host, holds nothing.  The kernel would not let it
 * keep others out, so its pin ends when somebody asks who does not wait, or has waited very long: it becomes a soft
 * demand, finds out by the generation if its cover has gone, and asks again.  But not if its owner holds too many records
 * in that range to be put back to them exactly.
 */
static void pins_soften(struct zkf_lock *lock)
{
	for (struct zkf_demand *demand = lock->demands; demand; demand = demand->next) {
		struct zkf_ranges own = {0};
		int64_t waited_ns = zkf_now_ns() - demand->arrived_ns;

		if (demand->state != ZKF_DEMAND_PINNED || demand->held || !zkf_recall_blocked(demand) ||
		    !somebody_asks(lock, waited_ns))
			continue;
		if (demand->file->key.kind == ZKF_RECORD &&
		    zkf_file_held_by(demand->file, demand->pid, demand->posix, &own) == -ENOMEM) {
			zkf_ranges_free(&own); /* not known: it stays pinned until the next look */
			continue;
		}
		if (zkf_ranges_within(&own, demand->start, demand->end) <= ZKF_HOLDINGS_MAX)
			demand->state = ZKF_DEMAND_SOFT;
		zkf_ranges_free(&own);
	}
}

/* A pinned call is about to take its lock, or to be refused by a local holder: what is in use is known very soon. */
static bool pins_are_young(const struct zkf_lock *lock)
{
	int64_t since = zkf_now_ns() - ZKF_PIN_PATIENCE_MS * ZKF_NS_PER_MS;

	for (const struct zkf_demand *demand = lock->demands; demand; demand = demand->next)
		if (demand->state == ZKF_DEMAND_PINNED && demand->arrived_ns > since)
			return true;
	return false;
}

/* What is in use may turn out not to be. */
static bool in_doubt(const struct zkf_lock *lock)
{
	for (const struct zkf_file *file = lock->files; file; file = file->next)
		if (file->in_doubt)
			return true;
	return false;
}

/* The claims that do not wait want to know: is it in use?  What is left after the look is. */
static void claim_answer(struct zkf_lock *lock, struct zkf_claim *claim)
{
	int64_t highest = -1;
	char *held = NULL;

	for (size_t i = 0; i < lock->follower_count; i++)
		if (lock->followers[i].nonblock && lock->followers[i].sequence > highest &&
		    zkf_recall_follows(claim, &lock->followers[i]))
			highest = lock->followers[i].sequence;
	if (highest <= claim->answered)
		return;
	if (in_doubt(lock)) {
		zkf_timer_arm_by(&lock->poll_timer, zkf_now_ns() + ZKF_DOUBT_MS * ZKF_NS_PER_MS);
		return;
	}
	if (pins_are_young(lock)) {
		zkf_timer_arm_by(&lock->poll_timer, zkf_now_ns() + ZKF_PIN_PATIENCE_MS * ZKF_NS_PER_MS);
		return;
	}
	for (struct zkf_file *file = lock->key.kind == ZKF_RECORD ? lock->files : NULL; file; file = file->next)
		if (zkf_file_held_text(file, &claim->ranges, &held))
			break; /* then the claim's ranges tell, less exactly */
	zkf_claim_answer(claim, highest, held);
}

static void tell_people(struct zkf_lock *lock)
{
	int32_t holder = 0;

	if (lock->told || zkf_now_ns() - lock->recalled_since_ns < ZKF_TELL_AFTER_MS * ZKF_NS_PER_MS)
		return;
	lock->told = true;
	for (struct zkf_file *file = lock->files; file && !holder; file = file->next)
		holder = zkf_file_holder(file);
	for (struct zkf_claim *claim = lock->claims; claim; claim = claim->next)
		if (granted(claim))
			zkf_claim_tell(claim, "held", holder);
}

void zkf_recall_step(struct zkf_lock *lock)
{
	struct zkf_ranges in_use = {0};
	struct zkf_claim *claim, *next;
	bool was = lock->recalled;

	if (!any_granted(lock)) {
		lock->recalled = lock->giving_back = lock->told = false;
		return;
	}
	relist(lock);
	watch_own(lock);
	lock->recalled = any_followed(lock);
	if (lock->recalled && !was) {
		zkf_counts.recalls++;
		ZKF_PROBE2(recall, lock->key.name, lock->key.kind);
		lock->recalled_since_ns = zkf_now_ns();
		lock->poll_ns = ZKF_POLL_FIRST_MS * ZKF_NS_PER_MS;
		lock->told = false;
	}
	if (!lock->recalled && !lock->giving_back && lock->keep_ns)
		return;
	pins_soften(lock);
	if (!lock_in_use(lock, &in_use)) {
		for (claim = lock->claims; claim; claim = next) {
			next = claim->next;
			if (granted(claim) && (lock->giving_back || !lock->keep_ns || followed(lock, claim)))
				claim_reduce(lock, claim, &in_use);
		}
		for (claim = lock->claims; claim; claim = claim->next)
			if (granted(claim))
				claim_answer(lock, claim);
	}
	zkf_ranges_free(&in_use);
	lock->giving_back = false;
	lock->recalled = any_followed(lock);
	if (lock->recalled)
		tell_people(lock);
}

/* --- what programs may believe, and when to look again --- */

static bool waits_for_local(const struct zkf_lock *lock)
{
	if (!lock->files || (!lock->files->next && lock->key.kind != ZKF_GROUP && !lock->files->refuses))
		return false;
	for (const struct zkf_demand *demand = lock->demands; demand; demand = demand->next)
		if (demand->state == ZKF_DEMAND_WAITING)
			return true;
	return false;
}

bool zkf_recall_blocked(const struct zkf_demand *demand)
{
	return demand->state == ZKF_DEMAND_WAITING ||
	       zkf_now_ns() - demand->arrived_ns > ZKF_PIN_PATIENCE_MS * ZKF_NS_PER_MS;
}

/*
 * A writer of this host waits: programs must ask, so that lock.c can let it go first.  One that was answered just now is
 * looked at again when it can be told whether it waits in the kernel.
 */
static bool writer_waits(struct zkf_lock *lock)
{
	for (const struct zkf_demand *demand = lock->demands; demand; demand = demand->next) {
		if (demand->nonblock || demand->mode != ZKF_EXCLUSIVE)
			continue;
		if (zkf_recall_blocked(demand))
			return true;
		zkf_timer_arm_by(&lock->poll_timer, demand->arrived_ns + (ZKF_PIN_PATIENCE_MS + 1) * ZKF_NS_PER_MS);
	}
	return false;
}

/* With several files nobody relies on the page, so that idle ones can go as soon as they are seen to be idle. */
static void files_tidy(struct zkf_lock *lock)
{
	struct zkf_file *next;
	int64_t now = zkf_now_ns();

	/* Of a group a program may hold a thousand: not at every step. */
	if (lock->key.kind == ZKF_GROUP && now < lock->tidy_due_ns)
		return;
	for (struct zkf_file *file = lock->files; file && lock->files->next; file = next) {
		bool wanted = false;

		next = file->next;
		for (const struct zkf_demand *demand = lock->demands; demand && !wanted; demand = demand->next)
			wanted = demand->file == file;
		if (wanted)
			continue;
		zkf_recall_look(file);
		if (!file->in_use.count && !file->blind)
			zkf_file_free(file);
	}
	lock->tidy_due_ns = now + 10 * (zkf_now_ns() - now);
}

static void timers_set(struct zkf_lock *lock, bool watch)
{
	int64_t now = zkf_now_ns();

	if (watch)
		zkf_timer_arm_by(&lock->poll_timer, now + lock->poll_ns);
	if (lock->recalled)
		zkf_timer_arm_by(&lock->relist_timer, now + ZKF_RELIST_MS * ZKF_NS_PER_MS);
	else
		zkf_timer_stop(&lock->relist_timer);
	if (!any_granted(lock) || !lock->keep_ns)
		zkf_timer_stop(&lock->keep_timer);
	else if (!lock->keep_timer.armed)
		zkf_timer_arm(&lock->keep_timer, now + lock->keep_ns);
}

void zkf_recall_publish(struct zkf_lock *lock)
{
	bool some = any_granted(lock), several, watch, ask;

	if (zkf_session_usable())
		files_tidy(lock);
	several = lock->files && lock->files->next && lock->key.kind != ZKF_GROUP;
	watch = (some && (lock->recalled || !lock->keep_ns)) || waits_for_local(lock);
	ask = some && (lock->recalled || !lock->keep_ns || several || writer_waits(lock) || waits_for_local(lock));
	for (struct zkf_file *file = lock->files; file; file = file->next) {
		zkf_publish_state(file->slot, published_mode(lock), ask || (some && file->outdated), lock->reduced);
		zkf_file_watch(file, watch);
	}
	lock->reduced = false;
	timers_set(lock, watch);
}

static void poll_fired(struct zkf_timer *timer)
{
	struct zkf_lock *lock = (struct zkf_lock *)((char *)timer - offsetof(struct zkf_lock, poll_timer));
	bool slow = zkf_now_ns() - lock->recalled_since_ns > ZKF_POLL_SLOW_AFTER_MS * ZKF_NS_PER_MS;
	int64_t most = (slow ? ZKF_POLL_SLOW_MS : ZKF_POLL_MAX_MS) * ZKF_NS_PER_MS;

	lock->poll_ns = lock->poll_ns * 2 < most ? lock->poll_ns * 2 : most;
	zkf_lock_touch(lock);
}

void zkf_lock_hint(struct zkf_lock *lock)
{
	/* The close is reported an instant before the lock is gone: look now, and soon again. */
	lock->poll_ns = ZKF_POLL_FIRST_MS * ZKF_NS_PER_MS;
	zkf_timer_arm_by(&lock->poll_timer, zkf_now_ns() + lock->poll_ns);
	zkf_lock_touch(lock);
}

static void relist_fired(struct zkf_timer *timer)
{
	struct zkf_lock *lock = (struct zkf_lock *)((char *)timer - offsetof(struct zkf_lock, relist_timer));

	lock->view_stale = true;
	zkf_lock_touch(lock);
}

static void keep_fired(struct zkf_timer *timer)
{
	struct zkf_lock *lock = (struct zkf_lock *)((char *)timer - offsetof(struct zkf_lock, keep_timer));

	lock->giving_back = true;
	zkf_lock_touch(lock);
}

void zkf_recall_init(struct zkf_lock *lock)
{
	lock->poll_ns = ZKF_POLL_FIRST_MS * ZKF_NS_PER_MS;
	lock->poll_timer.fire = poll_fired;
	lock->relist_timer.fire = relist_fired;
	lock->keep_timer.fire = keep_fired;
}

void zkf_recall_stop(struct zkf_lock *lock)
{
	zkf_timer_stop(&lock->poll_timer);
	zkf_timer_stop(&lock->relist_timer);
	zkf_timer_stop(&lock->keep_timer);
	zkf_zk_cancel(lock->list_op);
	zkf_zk_cancel(lock->bell_op);
	lock->list_op = lock->bell_op = NULL;
	lock->recalled = lock->giving_back = false;
}
