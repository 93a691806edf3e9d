/*
 * keeper/lock.c - see lock.h; giving cover back is in recall.c
 * SPDX-License-Identifier: Apache-2.0
 *
 * A demand's way:
 *
 *   zkf_lock_add --> WAITING --covered, and nobody of another host comes first--> PINNED --hang-up--> (end)
 *                     |   ^  --covered and in use, but recalled: see may_pass()-> SOFT ----hang-up--> (end)
 *                     |   |
 *                     |   +-- its claim is granted (or gone: another one)
 *                     +------ non-blocking: refused, or connect_timeout is over --> BUSY or FAILED
 */
#include "lock.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "claim.h"
#include "deadlock.h"
#include "fault.h"
#include "file.h"
#include "holds.h"
#include "lease.h"
#include "log.h"
#include "look.h"
#include "loss.h"
#include "metrics.h"
#include "probe.h"
#include "publish.h"
#include "recall.h"
#include "refused.h"
#include "session.h"
#include "token.h"
#include "waiting.h"

/* The loop's. */
static struct zkf_lock *locks; /* by (kind, name) */
static struct zkf_lock *dirty_first;
static struct zkf_lock *oldest, *newest; /* every lock, in the order of use */
static int64_t answer_within_ns;
static uint64_t step_number;

void zkf_lock_init(int connect_timeout_ms)
{
	answer_within_ns = connect_timeout_ms * ZKF_NS_PER_MS;
}

struct zkf_lock *zkf_lock_list(void)
{
	return locks;
}

uint64_t zkf_lock_step_number(void)
{
	return step_number;
}

void zkf_lock_touch(struct zkf_lock *lock)
{
	if (lock->dirty)
		return;
	lock->dirty = true;
	lock->next_dirty = dirty_first;
	dirty_first = lock;
}

void zkf_lock_touch_all(void)
{
	for (struct zkf_lock *lock = locks; lock; lock = lock->hh.next)
		zkf_lock_touch(lock);
}

static void view_changed(struct zkf_lock *lock)
{
	lock->view_stale = true;
	lock->view_fired++;
	zkf_lock_touch(lock);
}

static void child_watch_fired(struct zkf_zk_watch *watch)
{
	view_changed((struct zkf_lock *)((char *)watch - offsetof(struct zkf_lock, child_watch)));
}

static void bell_watch_fired(struct zkf_zk_watch *watch)
{
	view_changed((struct zkf_lock *)((char *)watch - offsetof(struct zkf_lock, bell_watch)));
}

const char *zkf_kind_directory(uint32_t kind)
{
	return kind == ZKF_FLOCK ? "locks" : kind == ZKF_RECORD ? "records" : "groups";
}

struct zkf_lock *zkf_lock_find(uint32_t kind, const char *encoded_name)
{
	struct zkf_lock probe, *found;

	memset(&probe.key, 0, sizeof(probe.key)); /* all of it is hashed */
	probe.key.kind = kind;
	snprintf(probe.key.name, sizeof(probe.key.name), "%s", encoded_name);
	HASH_FIND(hh, locks, &probe.key, sizeof(probe.key), found);
	return found;
}

static void age_remove(struct zkf_lock *lock)
{
	*(lock->older ? &lock->older->newer : &oldest) = lock->newer;
	*(lock->newer ? &lock->newer->older : &newest) = lock->older;
	lock->newer = lock->older = NULL;
}

static void age_add(struct zkf_lock *lock)
{
	lock->older = newest;
	*(newest ? &newest->newer : &oldest) = lock;
	newest = lock;
}

struct zkf_lock *zkf_lock_get(uint32_t kind, const char *encoded_name)
{
	struct zkf_lock *made = zkf_lock_find(kind, encoded_name);

	if (made)
		return made;
	made = zkf_calloc(1, sizeof(*made));
	if (!made)
		return NULL;
	made->key.kind = kind;
	snprintf(made->key.name, sizeof(made->key.name), "%s", encoded_name);
	if (asprintf(&made->directory, "%s/%s/%s", zkf_session_root(), zkf_kind_directory(kind), encoded_name) < 0) {
		free(made);
		return NULL;
	}
	made->demands_last = &made->demands;
	made->child_watch.fire = child_watch_fired;
	made->bell_watch.fire = bell_watch_fired;
	zkf_recall_init(made);
	HASH_ADD(hh, locks, key, sizeof(made->key), made);
	if (!made->hh.tbl) {
		free(made->directory);
		free(made);
		return NULL;
	}
	age_add(made);
	return made;
}

static void lock_free(struct zkf_lock *lock)
{
	age_remove(lock);
	while (lock->files)
		zkf_file_free(lock->files);
	zkf_recall_stop(lock);
	zkf_zk_watch_forget(&lock->child_watch);
	zkf_zk_watch_forget(&lock->bell_watch);
	HASH_DEL(locks, lock);
	free(lock->followers);
	free(lock->directory);
	free(lock);
}

bool zkf_lock_covered(const struct zkf_lock *lock, int64_t start, int64_t end, uint8_t mode)
{
	struct zkf_ranges all = {0};
	bool covered = false;

	for (const struct zkf_claim *claim = lock->claims; claim && !covered; claim = claim->next)
		covered = claim->state == ZKF_CLAIM_GRANTED && zkf_ranges_covers(&claim->ranges, start, end, mode);
	if (covered)
		return true;
	/* Only together, perhaps: a range may lie in the pieces of several claims. */
	for (const struct zkf_claim *claim = lock->claims; claim; claim = claim->next)
		if (claim->state == ZKF_CLAIM_GRANTED && zkf_ranges_raise_all(&all, &claim->ranges))
			break;
	covered = zkf_ranges_covers(&all, start, end, mode);
	zkf_ranges_free(&all);
	return covered;
}

/* Does another host that comes after us wait for this?  (What it asks for, it does not get while we have it.) */
static bool wanted_elsewhere(const struct zkf_lock *lock, int64_t start, int64_t end, uint8_t mode)
{
	for (size_t i = 0; i < lock->follower_count; i++) {
		const struct zkf_follower *follower = &lock->followers[i];

		if (follower->start > end || follower->end < start ||
		    (mode == ZKF_SHARED && follower->mode == ZKF_SHARED))
			continue;
		for (const struct zkf_claim *claim = lock->claims; claim; claim = claim->next)
			if (claim->state == ZKF_CLAIM_GRANTED && zkf_recall_follows(claim, follower))
				return true;
	}
	return false;
}

bool zkf_lock_ready(const struct zkf_lock *lock, int64_t start, int64_t end, uint8_t mode)
{
	for (const struct zkf_demand *demand = lock->demands; demand; demand = demand->next)
		if (zkf_recall_blocked(demand))
			return false; /* it matters who asks */
	return lock->key.kind != ZKF_GROUP && zkf_session_usable() && zkf_lock_covered(lock, start, end, mode) &&
	       !wanted_elsewhere(lock, start, end, mode) && (!lock->files || !lock->files->next);
}

static bool host_holds(const struct zkf_lock *lock)
{
	for (const struct zkf_claim *claim = lock->claims; claim; claim = claim->next)
		if (claim->state == ZKF_CLAIM_GRANTED)
			return true;
	return false;
}

/* Our copy of the program's description must not outlive the need: it would keep the program's lock alive. */
static void conversion_end(struct zkf_demand *demand)
{
	if (demand->convert_fd >= 0)
		close(demand->convert_fd);
	demand->convert_fd = -1;
}

/* It has to wait for a holder: what the program held until now goes, as flock(2) says. */
static void conversion_drops(struct zkf_demand *demand)
{
	if (demand->convert_fd < 0 || zkf_holds_another_thread(demand))
		return;
	flock(demand->convert_fd, LOCK_UN);
	zkf_refused_drop(demand);
	conversion_end(demand);
	zkf_lock_hint(demand->lock);
}

static void demand_unlink(struct zkf_demand *demand)
{
	struct zkf_lock *lock = demand->lock;

	conversion_end(demand);
	zkf_holds_note(demand);
	if (demand->state != ZKF_DEMAND_WAITING && !demand->refused)
		demand->file->served = true; /* by the kernel, for all we know */
	zkf_refused_leave(demand);
	*demand->at = demand->next;
	*(demand->next ? &demand->next->at : &lock->demands_last) = demand->at;
	zkf_timer_stop(&demand->timer);
	zkf_deadlock_stop(demand);
	zkf_waiting_stop(demand);
}

static void give_answer(struct zkf_demand *demand, struct zkf_reply *reply)
{
	reply->magic = ZKF_WIRE_MAGIC;
	demand->answer(demand, reply);
}

static void fail(struct zkf_demand *demand, const char *why)
{
	struct zkf_reply reply = {.answer = ZKF_FAILED, .error = ENOLCK};
	int bytes = snprintf(reply.text, sizeof(reply.text), "%s: %s", demand->lock->key.name, why);

	reply.text_bytes = bytes < (int)sizeof(reply.text) ? (uint32_t)bytes : (uint32_t)sizeof(reply.text) - 1;
	zkf_counts.failed++;
	give_answer(demand, &reply);
}

static void fail_deadlocked(struct zkf_demand *demand)
{
	struct zkf_reply reply = {.answer = ZKF_FAILED, .error = EDEADLK};

	zkf_counts.deadlocks++;
	give_answer(demand, &reply);
}

static void answer_simply(struct zkf_demand *demand, enum zkf_answer answer)
{
	struct zkf_reply reply = {.answer = (uint8_t)answer};

	give_answer(demand, &reply);
}

static void cover(struct zkf_demand *demand, enum zkf_demand_state state)
{
	struct zkf_reply reply = {.answer = ZKF_COVERED, .page_id = zkf_publish_page_id()};

	if (demand->op == ZKF_OP_GETLK) {
		answer_simply(demand, ZKF_FREE);
		return;
	}
	zkf_log(ZKF_LOG_DEBUG, "lock covered lock=%s pid=%d held=%d soft=%d", demand->lock->key.name, demand->pid,
	        demand->held, state == ZKF_DEMAND_SOFT);
	if (!demand->held) {
		int64_t took_ns = zkf_now_ns() - demand->arrived_ns;

		zkf_metrics_granted(took_ns, demand->claim != NULL);
		ZKF_PROBE3(grant, demand->lock->key.name, demand->pid, took_ns);
	}
	zkf_holds_promise(demand);
	demand->state = state;
	demand->file->looked_step = 0; /* what was seen in this step did not have it */
	demand->claim = NULL;
	conversion_end(demand);
	if (!demand->held && state == ZKF_DEMAND_PINNED)
		demand->arrived_ns = zkf_now_ns(); /* its kernel call begins now */
	zkf_timer_stop(&demand->timer);
	reply.slot = demand->file->slot;
	reply.state = zkf_publish_word(demand->file->slot);
	give_answer(demand, &reply);
}

static void refuse(struct zkf_demand *demand, const struct zkf_claim *claim)
{
	struct zkf_reply reply = {.answer = ZKF_BUSY, .keep = zkf_holds_another_thread(demand)};

	if (demand->op == ZKF_OP_GETLK && demand->way_pid) {
		reply.answer = ZKF_HELD;
		reply.mode = demand->way_mode;
		reply.start = demand->way_start;
		reply.end = demand->way_end;
		reply.pid = demand->way_pid;
	} else if (demand->op == ZKF_OP_GETLK) {
		reply.answer = ZKF_HELD;
		reply.mode = claim && claim->refused_by.mode ? claim->refused_by.mode : ZKF_EXCLUSIVE;
		reply.start = claim ? claim->refused_by.start : demand->start;
		reply.end = claim && claim->refused_by.mode ? claim->refused_by.end : demand->end;
		/* Linux's rule for another machine's lock: the pid, negated.  An open file description has none: -1. */
		reply.pid = claim && claim->refused_pid ? -claim->refused_pid : -1;
	} else if (!demand->held) {
		zkf_counts.refused++;
	}
	give_answer(demand, &reply);
}

/* The session can't be used: what the rule says. */
static void demand_without_session(struct zkf_demand *demand)
{
	if (demand->state != ZKF_DEMAND_WAITING)
		return;
	demand->deadlocked = false;
	if (demand->unavailable == ZKF_UNAVAILABLE_LOCAL) {
		zkf_log(ZKF_LOG_ERROR, "lock local-only lock=%s pid=%d path=%s why=\"%s\"", demand->lock->key.name,
		        demand->pid, demand->file->path, zkf_session_trouble());
		answer_simply(demand, ZKF_LOCAL);
	} else if (demand->unavailable == ZKF_UNAVAILABLE_FAIL) {
		fail(demand, zkf_session_trouble());
	}
}

/*
 * May it have what this host holds although another host waits for that?  Who would wait in the kernel may not: by the
 * time the kernel let it in, the other host's turn has come.  Of a process that holds records itself only the kernel can
 * tell what is in its way.  Who would not wait is answered as by the kernel: non-blocking requests, a process that holds
 * already (it may be what the other host waits for), and, after some patience, everybody.
 */
static bool passes_waiters(const struct zkf_lock *lock, const struct zkf_demand *demand)
{
	bool young = !lock->recalled || zkf_now_ns() - lock->recalled_since_ns < ZKF_FAIR_AFTER_MS * ZKF_NS_PER_MS;

	return demand->nonblock || demand->process_holds || demand->patience_over || (young && host_holds(lock));
}

static bool may_pass(const struct zkf_lock *lock, const struct zkf_demand *demand)
{
	if (!passes_waiters(lock, demand))
		return false;
	if (lock->key.kind == ZKF_GROUP)
		return true; /* zkf_holds_conflict has told that nobody is in its way */
	zkf_recall_look(demand->file);
	return (lock->key.kind == ZKF_RECORD && demand->process_holds) ||
	       !zkf_ranges_conflicting(&demand->file->in_use, demand->start, demand->end, demand->mode);
}

/* Non-blocking, and the kernel would refuse it now: covered, but held by another local owner. */
static bool held_locally(struct zkf_lock *lock, const struct zkf_demand *demand)
{
	return demand->nonblock && zkf_lock_covered(lock, demand->start, demand->end, demand->mode) &&
	       !may_pass(lock, demand);
}

/*
 * Does a blocked demand of this host, which came first and had to ask, wait for what this one wants to share in?  It goes
 * first: readers that keep coming would else keep this host's writer waiting in the kernel, and behind its claim, for
 * nothing, every other host.  As between hosts, a process that holds already passes, and so does everybody after some
 * patience.
 */
static bool behind_local(const struct zkf_lock *lock, const struct zkf_demand *demand)
{
	if (passes_waiters(lock, demand))
		return false;
	for (const struct zkf_demand *first = lock->demands; first && first != demand; first = first->next)
		if (!first->nonblock && zkf_recall_blocked(first) && first->start <= demand->end &&
		    first->end >= demand->start && (first->mode == ZKF_EXCLUSIVE || demand->mode == ZKF_EXCLUSIVE))
			return true;
	return false;
}

/* Is another owner of this host in the way, where the kernel does not tell? */
static bool in_the_way(struct zkf_lock *lock, struct zkf_demand *demand)
{
	return zkf_holds_conflict(lock, demand) || zkf_refused_conflict(demand);
}

/* Where the kernel has refused, our word is the lock.  True: the demand has been answered. */
static bool let_in(struct zkf_demand *demand, enum zkf_demand_state state)
{
	int error = demand->refused && demand->op == ZKF_OP_LOCK ? zkf_refused_note(demand) : 0;

	if (!error) {
		cover(demand, state);
		return true;
	}
	demand->in_the_way = error == -EBUSY;
	if (!demand->in_the_way)
		fail(demand, "the kernel does not lock it, and the keeper can't");
	return !demand->in_the_way;
}

static bool try_grant(struct zkf_lock *lock, struct zkf_demand *demand)
{
	bool promised = demand->claim && demand->claim->state == ZKF_CLAIM_GRANTED;

	if (in_the_way(lock, demand) || !zkf_lock_covered(lock, demand->start, demand->end, demand->mode))
		return false;
	if (!promised && !demand->owner_holds && !demand->held && behind_local(lock, demand))
		return false;
	if (promised || demand->owner_holds || demand->held ||
	    !wanted_elsewhere(lock, demand->start, demand->end, demand->mode))
		return let_in(demand, ZKF_DEMAND_PINNED);
	if (may_pass(lock, demand))
		return let_in(demand, demand->many_own ? ZKF_DEMAND_PINNED : ZKF_DEMAND_SOFT);
	return false;
}

static bool claim_serves(const struct zkf_claim *claim, const struct zkf_demand *demand)
{
	return claim->state <= ZKF_CLAIM_OVERTAKING && !claim->delete_wanted &&
	       (claim->role == ZKF_CLAIM_TRY) == demand->nonblock &&
	       zkf_ranges_covers(&claim->ranges, demand->start, demand->end, demand->mode);
}

/*
 * Alone, for all we know: claim the whole file, and ask for less, or shrink, when somebody is met.  Also who has something
 * already: a database that is first read would else never have all of it for writing, and ask for each lock.
 */
static bool may_be_greedy(const struct zkf_lock *lock)
{
	return lock->key.kind != ZKF_RECORD || !lock->follower_count;
}

/* May it have something that is kept and not in use?  Only a step, which looks at the kernel, can tell. */
static bool may_be_idle(const struct zkf_lock *lock)
{
	return lock->claims && !lock->recalled && !lock->demands && !lock->giving_back;
}

static bool is_of(const struct zkf_lock *lock, uid_t account)
{
	return lock->files && lock->files->account == account;
}

static void step(struct zkf_lock *lock);

void zkf_lock_give_back_of(uid_t account)
{
	unsigned look = HASH_COUNT(locks), count = ZKF_GIVE_BACK_AT_ONCE;
	struct zkf_lock *lock, *newer;

	for (lock = oldest; lock && look && count; lock = newer, look--) {
		newer = lock->newer;
		if (!is_of(lock, account))
			continue;
		age_remove(lock);
		age_add(lock);
		if (!may_be_idle(lock))
			continue;
		lock->giving_back = true;
		zkf_lock_touch(lock);
		count--;
	}
}

/*
 * What is looked at goes to the end, so that locks which are in use do not hide idle ones for ever.  Nothing is done while
 * enough are on their way back.  Called in another lock's step, perhaps: these have no demand, so none of them comes here.
 */
void zkf_lock_give_back_some(void)
{
	int64_t until = zkf_now_ns() + ZKF_GIVE_BACK_LOOK_MS * ZKF_NS_PER_MS;
	unsigned look = HASH_COUNT(locks);
	struct zkf_lock *lock, *newer;

	for (lock = oldest; lock && look && zkf_claims_deleting() < ZKF_GIVE_BACK_AT_ONCE; lock = newer, look--) {
		newer = lock->newer;
		age_remove(lock);
		age_add(lock);
		if (!may_be_idle(lock))
			continue;
		lock->giving_back = true;
		step(lock); /* it may be gone then */
		if (zkf_now_ns() > until)
			break;
	}
}

static void demand_queue(struct zkf_lock *lock, struct zkf_demand *demand)
{
	bool greedy = may_be_greedy(lock);
	enum zkf_claim_role role = demand->nonblock                                 ? ZKF_CLAIM_TRY
	                         : host_holds(lock) && passes_waiters(lock, demand) ? ZKF_CLAIM_OWNER
	                                                                            : ZKF_CLAIM_FIFO;

	for (struct zkf_claim *claim = lock->claims; claim; claim = claim->next)
		if (claim_serves(claim, demand)) {
			demand->claim = claim;
			if (role == ZKF_CLAIM_OWNER)
				zkf_claim_set_owner(claim, false);
			return;
		}
	demand->claim = zkf_claim_create(lock, role, greedy ? 0 : demand->start, greedy ? ZKF_RANGE_MAX : demand->end,
	                                 demand->mode, demand->pid);
	if (demand->claim)
		return;
	if (errno == ENOSPC) {
		zkf_lock_give_back_some();
		if (zkf_now_ns() - demand->arrived_ns > ZKF_FULL_AFTER_MS * ZKF_NS_PER_MS) {
			fail(demand, "this host holds as many locks as one session may; see zkflockd(8), LIMITS");
			return;
		}
	}
	zkf_timer_arm_by(&lock->poll_timer, zkf_now_ns() + ZKF_RETRY_MS * ZKF_NS_PER_MS);
}

/* A claim that was made wider than needed meets others: ask for no more than is needed, others queue for themselves. */
static bool claim_narrow(struct zkf_lock *lock, struct zkf_claim *claim, const struct zkf_demand *first)
{
	struct zkf_ranges needed = {0};
	bool narrowed = false;

	if (!zkf_ranges_assign(&needed, first->start, first->end, first->mode) &&
	    !zkf_ranges_equal(&needed, &claim->ranges) && !zkf_claim_shrink(claim, &needed)) {
		narrowed = true;
		for (struct zkf_demand *demand = lock->demands; demand; demand = demand->next)
			if (demand->claim == claim && demand != first &&
			    !zkf_ranges_covers(&claim->ranges, demand->start, demand->end, demand->mode))
				demand->claim = NULL;
	}
	zkf_ranges_free(&needed);
	return narrowed;
}

static void demand_refused(struct zkf_lock *lock, struct zkf_demand *demand)
{
	struct zkf_claim *claim = demand->claim;

	if (claim->refused_error) {
		char why[160];

		snprintf(why, sizeof(why), "ZooKeeper refused it: %s", zkf_zk_error_name(claim->refused_error));
		fail(demand, why);
	} else if (lock->key.kind == ZKF_RECORD && claim_narrow(lock, claim, demand)) {
		zkf_look_start(claim); /* it may have been the width that was refused */
	} else {
		refuse(demand, claim);
	}
}

static void count_wait(struct zkf_demand *demand)
{
	if (demand->waited || demand->nonblock)
		return;
	demand->waited = true;
	zkf_counts.waits++;
	ZKF_PROBE2(wait, demand->lock->key.name, demand->pid);
}

static void demand_step(struct zkf_lock *lock, struct zkf_demand *demand)
{
	struct zkf_claim *claim = demand->claim;

	if (demand->state != ZKF_DEMAND_WAITING || try_grant(lock, demand))
		return;
	if (demand->deadlocked) {
		fail_deadlocked(demand);
		return;
	}
	if (demand->held) {
		refuse(demand, NULL);
		return;
	}
	if (demand->in_the_way &&
	    (demand->nonblock || zkf_lock_covered(lock, demand->start, demand->end, demand->mode))) {
		if (!demand->in_doubt)
			count_wait(demand);
		if (demand->in_doubt)
			zkf_timer_arm_by(&lock->poll_timer, zkf_now_ns() + ZKF_DOUBT_MS * ZKF_NS_PER_MS);
		else if (demand->nonblock)
			refuse(demand, NULL);
		else if (zkf_holds_deadlock(demand))
			fail_deadlocked(demand);
		else
			conversion_drops(demand);
		return; /* the poll and the hints of recall.c tell when the other file is free */
	}
	if (held_locally(lock, demand)) {
		if (demand->file->in_doubt)
			zkf_timer_arm_by(&lock->poll_timer, zkf_now_ns() + ZKF_DOUBT_MS * ZKF_NS_PER_MS);
		else
			refuse(demand, NULL);
		return;
	}
	if (claim && claim->state == ZKF_CLAIM_REFUSED) {
		demand_refused(lock, demand);
		return;
	}
	if (claim && claim->state == ZKF_CLAIM_WAITING) {
		count_wait(demand);
		conversion_drops(demand);
		if (lock->key.kind == ZKF_RECORD)
			claim_narrow(lock, claim, demand);
	}
	if (!demand->claim &&
	    (!behind_local(lock, demand) || !zkf_lock_covered(lock, demand->start, demand->end, demand->mode)))
		demand_queue(lock, demand);
}

/* The demands whose claim has just been granted: they waited for it, so they are served before it may be recalled. */
static void serve_batch(struct zkf_lock *lock)
{
	struct zkf_demand *next;

	for (struct zkf_demand *demand = lock->demands; demand; demand = next) {
		next = demand->next;
		if (demand->state == ZKF_DEMAND_WAITING && demand->claim && demand->claim->state == ZKF_CLAIM_GRANTED)
			try_grant(lock, demand);
	}
}

static bool claim_wanted(const struct zkf_lock *lock, const struct zkf_claim *claim)
{
	for (const struct zkf_demand *demand = lock->demands; demand; demand = demand->next)
		if (demand->claim == claim)
			return true;
	return false;
}

static bool claim_redundant(const struct zkf_lock *lock, const struct zkf_claim *claim)
{
	for (const struct zkf_claim *other = lock->claims; other; other = other->next) {
		bool all = other != claim && other->state == ZKF_CLAIM_GRANTED;

		for (size_t i = 0; all && i < claim->ranges.count; i++)
			all = zkf_ranges_covers(&other->ranges, claim->ranges.items[i].start,
			                        claim->ranges.items[i].end, claim->ranges.items[i].mode);
		if (all)
			return true;
	}
	return false;
}

static void claims_tidy(struct zkf_lock *lock)
{
	struct zkf_claim *next;

	for (struct zkf_claim *claim = lock->claims; claim; claim = next) {
		next = claim->next;
		if (claim->state == ZKF_CLAIM_DELETING || claim->state == ZKF_CLAIM_BROKEN || claim->delete_wanted ||
		    claim_wanted(lock, claim))
			continue;
		if (claim->state != ZKF_CLAIM_GRANTED || claim_redundant(lock, claim))
			zkf_claim_delete(claim);
	}
}

static void demands_forget(struct zkf_lock *lock, const struct zkf_claim *claim)
{
	for (struct zkf_demand *demand = lock->demands; demand; demand = demand->next)
		if (demand->claim == claim)
			demand->claim = NULL;
}

/* What was held by it is lost, though the session lives: published first, so that nobody takes more. */
static void loss_publish(struct zkf_lock *lock)
{
	zkf_counts.losses++;
	ZKF_PROBE2(loss, lock->key.name, lock->key.kind);
	lock->reduced = true;
	zkf_recall_publish(lock);
}

static void claims_gone(struct zkf_lock *lock)
{
	struct zkf_claim *next;
	bool lost = false;

	for (struct zkf_claim *claim = lock->claims; claim; claim = next) {
		next = claim->next;
		if (claim->state != ZKF_CLAIM_GONE)
			continue;
		demands_forget(lock, claim);
		lost |= claim->was_granted;
		zkf_claim_forget(claim);
	}
	if (!lost)
		return;
	loss_publish(lock);
	if (zkf_recall_uncovered(lock, false))
		zkf_loss_lock(lock);
}

/* Their nodes keep the others out until nothing is in use that only they have covered. */
static void claims_broken(struct zkf_lock *lock)
{
	struct zkf_claim *next;
	bool any = false, in_use;

	for (const struct zkf_claim *claim = lock->claims; claim; claim = claim->next)
		any |= claim->state == ZKF_CLAIM_BROKEN;
	if (!any)
		return;
	in_use = zkf_recall_uncovered(lock, true);
	if (in_use) {
		zkf_loss_lock(lock);
		zkf_timer_arm_by(&lock->poll_timer, zkf_now_ns() + ZKF_BROKEN_LOOK_MS * ZKF_NS_PER_MS);
	}
	for (struct zkf_claim *claim = lock->claims; claim; claim = next) {
		next = claim->next;
		if (claim->state == ZKF_CLAIM_BROKEN && (!in_use || lock->on_loss == ZKF_LOSS_WARN))
			zkf_claim_delete(claim);
	}
}

int zkf_lock_break(struct zkf_lock *lock, const char *claim_name)
{
	struct zkf_claim *claim = lock->claims;

	while (claim && strcmp(claim->name, claim_name) != 0)
		claim = claim->next;
	if (!claim)
		return -ENOENT;
	if (claim->state != ZKF_CLAIM_GRANTED)
		return 0; /* on its way out, or nobody's */
	demands_forget(lock, claim);
	claim->state = ZKF_CLAIM_BROKEN;
	loss_publish(lock);
	zkf_lock_touch(lock);
	return 0;
}

/*
 * A child that another thread of the caller's has forked during the call has a copy of the conversation, so that a caller
 * who is killed does not hang up: nobody would ever take or give back what it is let in to.
 */
static void callers_check(const struct zkf_lock *lock)
{
	int64_t now = zkf_now_ns();

	for (struct zkf_demand *demand = lock->demands; demand; demand = demand->next) {
		if (now < demand->caller_due_ns)
			continue;
		if (demand->caller_due_ns && zkf_process_has_ended(demand->pid))
			demand->hang_up(demand);
		demand->caller_due_ns = now + ZKF_CALLER_MS * ZKF_NS_PER_MS;
	}
}

static void step(struct zkf_lock *lock)
{
	struct zkf_demand *next;
	bool usable = zkf_session_usable();

	step_number++;
	callers_check(lock);
	claims_gone(lock);
	if (usable) {
		claims_broken(lock);
		serve_batch(lock);
		zkf_recall_step(lock);
	}
	for (struct zkf_demand *demand = lock->demands; demand; demand = next) {
		next = demand->next;
		if (usable)
			demand_step(lock, demand);
		else
			demand_without_session(demand);
	}
	if (usable) {
		claims_tidy(lock);
		zkf_token_step(lock);
	}
	zkf_recall_publish(lock);
	if (lock->claims || lock->demands || lock->token_asks || lock->dirty || zkf_session_adopting())
		return;
	/* Of these we alone know (on_loss=warn). */
	if (zkf_refused_any(lock))
		zkf_timer_arm_by(&lock->poll_timer, zkf_now_ns() + ZKF_RELIST_MS * ZKF_NS_PER_MS);
	else
		lock_free(lock);
}

void zkf_lock_step_dirty(void)
{
	while (dirty_first) {
		struct zkf_lock *lock = dirty_first;

		dirty_first = lock->next_dirty;
		lock->dirty = false;
		step(lock);
	}
}

/* From now on a blocked demand may pass who waits, if its host holds something of the lock; in the end it may anyway. */
static void patience_ends(struct zkf_demand *demand)
{
	int64_t last_ns = demand->arrived_ns + ZKF_PATIENCE_HOLDING_NOTHING_MS * ZKF_NS_PER_MS, now = zkf_now_ns();

	if (!demand->patience_over)
		zkf_log(ZKF_LOG_DEBUG, "lock patience-over lock=%s pid=%d start=%" PRId64 " end=%" PRId64,
		        demand->lock->key.name, demand->pid, demand->start, demand->end);
	demand->patience_over = true;
	if (demand->claim && (host_holds(demand->lock) || now >= last_ns))
		zkf_claim_set_owner(demand->claim, !host_holds(demand->lock));
	zkf_timer_arm(&demand->timer, now < last_ns ? last_ns : now + ZKF_PATIENCE_MS * ZKF_NS_PER_MS);
	zkf_lock_touch(demand->lock);
}

static void demand_timer_fired(struct zkf_timer *timer)
{
	struct zkf_demand *demand = (struct zkf_demand *)((char *)timer - offsetof(struct zkf_demand, timer));
	struct zkf_lock *lock = demand->lock;

	if (demand->held) {
		refuse(demand, NULL); /* it undoes its kernel lock and waits without */
		zkf_lock_touch(lock);
		return;
	}
	if (!demand->nonblock) {
		patience_ends(demand);
		return;
	}
	if (!zkf_session_usable())
		fail(demand, zkf_session_trouble());
	else if (zkf_zk_connected() && (!demand->claim || demand->claim->state == ZKF_CLAIM_WAITING))
		refuse(demand, NULL); /* the host in the way does not answer: it can't be had now */
	else
		fail(demand, zkf_zk_refused() ? zkf_session_trouble() : "ZooKeeper does not answer");
	zkf_lock_touch(lock);
}

void zkf_lock_add(struct zkf_lock *lock, struct zkf_demand *demand)
{
	demand->lock = lock;
	demand->state = ZKF_DEMAND_WAITING;
	demand->arrived_ns = zkf_now_ns();
	demand->next = NULL;
	demand->at = lock->demands_last;
	*lock->demands_last = demand;
	lock->demands_last = &demand->next;
	demand->timer.fire = demand_timer_fired;
	zkf_timer_arm(&demand->timer,
	              demand->arrived_ns +
	                      (demand->nonblock || demand->held ? answer_within_ns : ZKF_PATIENCE_MS * ZKF_NS_PER_MS));
	zkf_deadlock_start(demand);
	zkf_waiting_start(demand);
	age_remove(lock);
	age_add(lock);
	zkf_lock_touch(lock);
}

/* Its cover is pinned still, so that who is alone need not wait for the next step. */
void zkf_lock_refused(struct zkf_demand *demand, int passed_fd)
{
	enum zkf_demand_state was = demand->state;
	struct zkf_lock *lock = demand->lock;

	demand->refused = true;
	zkf_refused_begin(demand->file);
	if (zkf_refused_arrive(demand, passed_fd)) {
		fail(demand, "the kernel does not lock it, and its owner can't be told from others");
		return;
	}
	/* What it had of the kernel goes when it has to wait, as ever. */
	if (demand->file->key.kind == ZKF_FLOCK && !demand->nonblock && demand->convert_fd < 0)
		demand->convert_fd = fcntl(passed_fd, F_DUPFD_CLOEXEC, 0);
	demand->state = ZKF_DEMAND_WAITING;
	if (zkf_session_usable() && !in_the_way(lock, demand) &&
	    zkf_lock_covered(lock, demand->start, demand->end, demand->mode) && let_in(demand, was))
		return;
	zkf_timer_arm(&demand->timer,
	              zkf_now_ns() + (demand->nonblock ? answer_within_ns : ZKF_PATIENCE_MS * ZKF_NS_PER_MS));
	zkf_lock_touch(lock);
}

void zkf_lock_remove(struct zkf_demand *demand)
{
	demand_unlink(demand);
	zkf_lock_touch(demand->lock);
}

void zkf_lock_session_lost(void)
{
	for (struct zkf_lock *lock = locks; lock; lock = lock->hh.next) {
		for (struct zkf_demand *demand = lock->demands; demand; demand = demand->next)
			demand->claim = NULL;
		while (lock->claims) {
			zkf_counts.losses += lock->claims->state == ZKF_CLAIM_GRANTED;
			zkf_claim_forget(lock->claims);
		}
		lock->follower_count = 0;
		lock->reduced = true;
		zkf_recall_stop(lock);
		zkf_recall_publish(lock);
		zkf_lock_touch(lock);
	}
}

bool zkf_lock_any_in_use(void)
{
	struct zkf_ranges in_use = {0};
	bool any = false;

	for (struct zkf_file *file = zkf_file_list(); file && !any; file = file->hh.next) {
		zkf_publish_state(file->slot, ZKF_NONE, true, true);
		any = zkf_file_look(file, &in_use) || in_use.count;
	}
	zkf_ranges_free(&in_use);
	return any;
}
