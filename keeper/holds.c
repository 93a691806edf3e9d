/*
 * keeper/holds.c - see holds.h
 * SPDX-License-Identifier: Apache-2.0
 */
#include "holds.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "fault.h"
#include "file.h"
#include "lease.h"
#include "log.h"
#include "publish.h"
#include "recall.h"
#include "refused.h"
#include "state.h"

/* All processes of the machine are searched no more often than this, and than a tenth of the time. */
#define SCAN_EVERY_NS (20 * ZKF_NS_PER_MS)

/* A thread that holds something of a group. */
struct zkf_owner {
	struct {
		const struct zkf_lock *lock;
		struct zkf_thread thread;
	} key;          /* no padding: it is hashed */
	unsigned count; /* of its holds; the group is free of it at zero */
	UT_hash_handle hh;
};

/* Whose is a hold now? */
enum whose {
	THREADS,   /* its thread's */
	PROCESSES, /* its process's: the thread is gone */
	ELSEWHERE, /* its process does not show it */
	NOT_SHOWN, /* /proc does not let us look: its thread's, as long as the kernel has a lock there at all */
};

struct zkf_hold {
	struct zkf_hold *next; /* of file->holds */
	struct zkf_owner *owner;
	/* Of records: the least range with all that was asked for through it.  The kernel shows what is left. */
	int64_t start, end;
	int32_t fd;       /* where its process showed it last; -1: it does not any more */
	uint8_t mode;     /* as shown last */
	bool posix;       /* owned by the process: gone with it, and not tied to a descriptor */
	enum whose whose; /* as of ... */
	uint64_t step;    /* ... this step of a lock: many demands ask */
};

/* The loop's. */
static struct zkf_owner *owners;

static bool modes_conflict(uint8_t a, uint8_t b)
{
	return a == ZKF_EXCLUSIVE || b == ZKF_EXCLUSIVE;
}

static bool is_group(const struct zkf_lock *lock)
{
	return lock->key.kind == ZKF_GROUP;
}

/* --- owners and holds --- */

static struct zkf_owner *owner_get(const struct zkf_lock *lock, const struct zkf_thread *thread)
{
	struct zkf_owner *owner, probe;

	memset(&probe.key, 0, sizeof(probe.key));
	probe.key.lock = lock;
	probe.key.thread = *thread;
	HASH_FIND(hh, owners, &probe.key, sizeof(probe.key), owner);
	if (owner)
		return owner;
	owner = zkf_calloc(1, sizeof(*owner));
	if (!owner)
		return NULL;
	owner->key = probe.key;
	HASH_ADD(hh, owners, key, sizeof(owner->key), owner);
	if (!owner->hh.tbl) {
		free(owner);
		return NULL;
	}
	return owner;
}

static void owner_put(struct zkf_owner *owner)
{
	if (--owner->count || !owners)
		return;
	HASH_DEL(owners, owner);
	free(owner);
}

static void hold_end(struct zkf_file *file, struct zkf_hold *hold)
{
	struct zkf_hold **at = &file->holds;

	while (*at && *at != hold)
		at = &(*at)->next;
	if (*at)
		*at = hold->next;
	owner_put(hold->owner);
	free(hold);
}

void zkf_holds_forget(struct zkf_file *file)
{
	while (file->holds)
		hold_end(file, file->holds);
}

/*
 * Is it about what the new one is about?  Through one descriptor there is one lock.  Records are the process's through any
 * of its descriptors: of another thread that lives it had none in the way when the new one was let in, whatever is on
 * record of it (a keeper that follows reads of all that ever were).
 */
static bool is_about(const struct zkf_hold *hold, const struct zkf_owner *owner, const struct zkf_hold *like)
{
	if (hold->owner->key.thread.pid != owner->key.thread.pid || hold->posix != like->posix)
		return false;
	return hold->fd == like->fd || (hold->posix && hold->owner != owner && modes_conflict(hold->mode, like->mode) &&
	                                zkf_thread_lives(&hold->owner->key.thread));
}

/* Memory is out: then the lock is one that no hold explains, which is safe. */
static void hold_add(struct zkf_file *file, const struct zkf_thread *thread, struct zkf_hold like)
{
	struct zkf_owner *owner = owner_get(file->lock, thread);
	struct zkf_hold *hold, *next;

	if (!owner)
		return;
	owner->count++; /* it must not go with its last hold here */
	/* Only shared ones may have been taken by several threads. */
	for (hold = file->holds; hold; hold = next) {
		next = hold->next;
		if (!is_about(hold, owner, &like))
			continue;
		if (hold->owner == owner && hold->start < like.start)
			like.start = hold->start;
		if (hold->owner == owner && hold->end > like.end)
			like.end = hold->end;
		if (hold->owner == owner || modes_conflict(hold->mode, like.mode))
			hold_end(file, hold);
	}
	hold = zkf_calloc(1, sizeof(*hold));
	if (!hold) {
		owner_put(owner);
		return;
	}
	*hold = like;
	hold->owner = owner;
	hold->next = file->holds;
	file->holds = hold;
}

/* --- what the kernel shows --- */

/* Can this be what the hold stands for? */
static bool stands_for(const struct zkf_hold *hold, const struct zkf_holder *holder)
{
	return (holder->type == ZKF_HOLDER_POSIX) == hold->posix && holder->start <= hold->end &&
	       holder->end >= hold->start;
}

static uint8_t strongest(const struct zkf_holders *holders, size_t from)
{
	uint8_t mode = ZKF_NONE;

	for (size_t i = from; i < holders->count; i++)
		if (holders->items[i].mode > mode)
			mode = holders->items[i].mode;
	return mode;
}

/* Is this what another hold stands for, or a call under way? */
static bool claimed(const struct zkf_file *file, const struct zkf_hold *but, const struct zkf_holder *holder)
{
	for (const struct zkf_hold *hold = file->holds; hold; hold = hold->next)
		if (hold != but && hold->fd == holder->fd && hold->owner->key.thread.pid == holder->pid &&
		    !hold->posix && stands_for(hold, holder))
			return true;
	for (const struct zkf_demand *demand = file->lock->demands; demand; demand = demand->next)
		if (demand->file == file && demand->state != ZKF_DEMAND_WAITING && demand->pid == holder->pid &&
		    demand->fd == holder->fd && !demand->posix && holder->type != ZKF_HOLDER_POSIX)
			return true;
	return false;
}

/* Any other descriptor of its process: duplicated, and the first one closed. */
static int seek_in_process(const struct zkf_file *file, struct zkf_hold *hold)
{
	struct zkf_holders shown = {0};
	int32_t pid = hold->owner->key.thread.pid;
	int error = zkf_holders_of(file, pid, &shown), found = 0;

	for (size_t i = 0; error >= 0 && !found && i < shown.count; i++) {
		const struct zkf_holder *holder = &shown.items[i];

		if (!stands_for(hold, holder) || claimed(file, hold, holder) ||
		    (holder->type == ZKF_HOLDER_FLOCK && holder->taker != pid))
			continue;
		hold->fd = holder->fd;
		hold->mode = holder->mode;
		found = 1;
	}
	zkf_holders_free(&shown);
	return error < 0 ? error : found;
}

/* How many of these it stands for; takes the mode from them. */
static int through_it(struct zkf_hold *hold, const struct zkf_holders *shown)
{
	uint8_t mode = ZKF_NONE;
	int count = 0;

	for (size_t i = 0; i < shown->count; i++) {
		if (!stands_for(hold, &shown->items[i]))
			continue;
		count++;
		if (shown->items[i].mode > mode)
			mode = shown->items[i].mode;
	}
	if (count)
		hold->mode = mode;
	return count;
}

static enum whose hold_whose_now(const struct zkf_file *file, struct zkf_hold *hold)
{
	const struct zkf_thread *thread = &hold->owner->key.thread;
	struct zkf_holders shown = {0};
	int found;

	if (!zkf_thread_process_lives(thread)) {
		hold->fd = -1;
		return ELSEWHERE;
	}
	found = zkf_holders_at(file, thread->pid, hold->fd, &shown);
	if (found > 0)
		found = through_it(hold, &shown);
	zkf_holders_free(&shown);
	if (!found) {
		hold->fd = -1; /* whatever that number shows later is another lock */
		found = seek_in_process(file, hold);
	}
	if (found < 0)
		return NOT_SHOWN;
	if (!found)
		return ELSEWHERE;
	return zkf_thread_lives(thread) ? THREADS : PROCESSES;
}

static enum whose hold_whose(const struct zkf_file *file, struct zkf_hold *hold)
{
	if (hold->step != zkf_lock_step_number()) {
		hold->whose = hold_whose_now(file, hold);
		hold->step = zkf_lock_step_number();
	}
	return hold->whose;
}

/* A flock's taker that is gone, or whose process does not have it any more. */
static bool taken_by(const struct zkf_holder *holder, int32_t pid)
{
	return holder->type == ZKF_HOLDER_OFD ||
	       (holder->type == ZKF_HOLDER_FLOCK && (holder->taker == pid || holder->taker <= 0));
}

static bool any_taken_by(const struct zkf_file *file, const struct zkf_hold *hold, const struct zkf_holders *shown)
{
	for (size_t i = 0; i < shown->count && !hold->posix; i++)
		if (stands_for(hold, &shown->items[i]) && taken_by(&shown->items[i], hold->owner->key.thread.pid) &&
		    !claimed(file, hold, &shown->items[i]))
			return true;
	return false;
}

/* --- one file and one demand --- */

struct question {
	struct zkf_file *file;
	struct zkf_demand *demand;
	uint8_t mine, others; /* the strongest of each */
	bool asked_own, asked_all, scanned, all_known;
	bool other_here, same_number, own_here;
	struct zkf_holders own, all; /* what the demand's process shows, and what everybody does: read when needed */
};

static const struct zkf_holders *own_shown(struct question *question)
{
	if (!question->asked_own)
		zkf_holders_of(question->file, question->demand->pid, &question->own);
	question->asked_own = true;
	return &question->own;
}

/* NULL: not now, it has been done a moment ago.  question->all_known: no process was hidden. */
static const struct zkf_holders *all_shown(struct question *question)
{
	int64_t now = zkf_now_ns();

	if (!question->asked_all) {
		question->asked_all = true;
		if (!question->demand->nonblock && now < question->file->scan_due_ns)
			return NULL;
		question->scanned = true;
		question->all_known = !zkf_holders_all(question->file, &question->all);
		question->file->scan_due_ns = zkf_now_ns() + SCAN_EVERY_NS + 10 * (zkf_now_ns() - now);
	}
	return question->scanned ? &question->all : NULL;
}

static void in_the_way(struct question *question, int32_t pid, uint8_t mode)
{
	if (mode > question->others)
		question->others = mode;
	if (modes_conflict(mode, question->demand->mode) && !question->demand->way_pid) {
		question->demand->way_pid = pid;
		question->demand->way_mode = mode;
	}
}

static void is_mine(struct question *question, uint8_t mode)
{
	question->own_here = true;
	if (mode > question->mine)
		question->mine = mode;
}

/* A shared flock: does the kernel list one for its taker that no other hold of that process stands for?  < 0: unknown. */
static int listed(struct question *question, const struct zkf_hold *hold)
{
	int32_t taker = hold->owner->key.thread.pid;
	const struct zkf_holders *own = own_shown(question);
	int known = 0, count;

	if (question->file->key.kind != ZKF_FLOCK || !own->count)
		return -EINVAL;
	for (const struct zkf_hold *other = question->file->holds; other; other = other->next)
		known += other != hold && other->fd >= 0 && other->owner->key.thread.pid == taker;
	count = zkf_holders_listed(own->items[0].ino, taker);
	return count < 0 ? count : count > known;
}

/* Has it ended, since nobody shows it any more?  No, if that can't be told: never too early. */
static bool ended(struct question *question, const struct zkf_hold *hold, uint8_t in_use)
{
	const struct zkf_holders *all;
	int left;

	if (hold->owner->key.thread.pid <= 0)
		return false;
	if (hold->posix)
		return true;
	if (question->file->key.kind == ZKF_FLOCK && in_use == ZKF_EXCLUSIVE)
		return false; /* it is there, in one place, and that is not the asking process */
	left = listed(question, hold);
	if (left > 0)
		return false;
	all = all_shown(question);
	return all && (left == 0 || question->all_known) && !any_taken_by(question->file, hold, all);
}

/* Its process does not show it: it belongs to whoever does, and if nobody does it has ended. */
static void judge_elsewhere(struct question *question, struct zkf_hold *hold, uint8_t in_use)
{
	struct zkf_file *file = question->file;

	if (hold->owner->key.thread.pid > 0 && any_taken_by(file, hold, own_shown(question))) {
		is_mine(question, hold->mode);
		return;
	}
	/* Where nothing depends on it nothing is searched. */
	if (!modes_conflict(hold->mode, question->demand->mode))
		return;
	if (ended(question, hold, in_use))
		hold_end(file, hold);
	else
		in_the_way(question, hold->owner->key.thread.pid, hold->mode);
}

static void judge(struct question *question, struct zkf_hold *hold, uint8_t in_use)
{
	const struct zkf_thread *thread = &hold->owner->key.thread;
	struct zkf_demand *demand = question->demand;
	enum whose whose = hold_whose(question->file, hold);

	if (whose == ELSEWHERE) {
		judge_elsewhere(question, hold, in_use);
	} else if (whose == PROCESSES
	                   ? thread->pid == demand->pid || any_taken_by(question->file, hold, own_shown(question))
	                   : zkf_thread_same(thread, &demand->thread)) {
		is_mine(question, hold->mode);
	} else {
		question->other_here = true;
		question->same_number |= thread->pid == demand->pid && hold->fd == demand->fd;
		in_the_way(question, thread->pid, hold->mode);
	}
}

/* A record of a process, or a flock whose taker it was or whose taker does not have it any more. */
static bool belongs_to(const struct zkf_file *file, const struct zkf_holder *holder)
{
	struct zkf_holders takers = {0};
	bool has = true;

	if (holder->type != ZKF_HOLDER_FLOCK || holder->taker <= 0 || holder->taker == holder->pid)
		return true;
	if (zkf_holders_of(file, holder->taker, &takers) >= 0) {
		has = false;
		for (size_t i = 0; i < takers.count; i++)
			has |= takers.items[i].taker == holder->taker;
	}
	zkf_holders_free(&takers);
	return !has;
}

/*
 * Could it be another thread's of the same process?  What it has taken itself is any thread's, unless it has one only, or
 * says in this very call that it has this lock already.  What somebody took who is gone is everybody's who has it.
 */
static bool sure_of_thread(const struct question *question, const struct zkf_holder *holder)
{
	const struct zkf_demand *demand = question->demand;

	return (holder->type == ZKF_HOLDER_FLOCK && holder->taker != demand->pid) ||
	       zkf_process_is_single(demand->pid) ||
	       (demand->held && demand->file == question->file && holder->fd == demand->fd) || !is_group(demand->lock);
}

static bool overlaps(const struct zkf_holder *holder, const struct zkf_demand *demand)
{
	return holder->start <= demand->end && holder->end >= demand->start &&
	       modes_conflict(holder->mode, demand->mode);
}

/* Its own, or a lock of a description that it shares with the process that shows it, a child's perhaps. */
static bool shared_with(const struct zkf_holders *own, const struct zkf_holder *holder)
{
	for (size_t i = 0; i < own->count; i++)
		if (own->items[i].pid == holder->pid || zkf_holder_same(&own->items[i], holder))
			return true;
	return false;
}

/* Records of an ordinary lock: is all that is in the demand's way exclusively its own?  Then nobody else has any of it. */
static bool own_covers(const struct question *question, const struct zkf_holders *own)
{
	const struct zkf_ranges *in_use = &question->file->in_use;
	const struct zkf_demand *demand = question->demand;
	struct zkf_ranges mine = {0};
	bool covers = true;

	for (size_t i = 0; covers && i < own->count; i++)
		covers = !zkf_ranges_raise(&mine, own->items[i].start, own->items[i].end, own->items[i].mode);
	for (size_t i = 0; covers && i < in_use->count; i++) {
		const struct zkf_range *range = &in_use->items[i];

		if (range->start <= demand->end && range->end >= demand->start &&
		    modes_conflict(range->mode, demand->mode))
			covers = range->mode == ZKF_EXCLUSIVE &&
			         zkf_ranges_covers(&mine, range->start > demand->start ? range->start : demand->start,
			                           range->end < demand->end ? range->end : demand->end, ZKF_EXCLUSIVE);
	}
	zkf_ranges_free(&mine);
	return covers;
}

/*
 * No hold explains what is in use.  Is it the demand's own process's?  All of it: an exclusive flock is one lock; else
 * everybody's locks are looked at.
 */
static bool unexplained_is_mine(struct question *question, uint8_t in_use)
{
	const struct zkf_holders *own = own_shown(question), *all;
	bool group = is_group(question->demand->lock);

	if (!own->count)
		return false;
	for (size_t i = 0; i < own->count; i++)
		if (!belongs_to(question->file, &own->items[i]) || !sure_of_thread(question, &own->items[i]))
			return false;
	if (strongest(own, 0) < in_use && group)
		return false;
	if (in_use == ZKF_EXCLUSIVE && question->file->key.kind == ZKF_FLOCK)
		return strongest(own, 0) == ZKF_EXCLUSIVE;
	if (!group && question->file->key.kind == ZKF_RECORD && own_covers(question, own))
		return true;
	all = all_shown(question);
	for (size_t i = 0; all && i < all->count; i++)
		if ((group || overlaps(&all->items[i], question->demand)) && !shared_with(own, &all->items[i]))
			return false;
	return all && question->all_known;
}

static void question_end(struct question *question)
{
	zkf_holders_free(&question->own);
	zkf_holders_free(&question->all);
}

/* True: somebody else is in the way. */
static bool group_file_conflict(struct zkf_file *file, struct zkf_demand *demand)
{
	struct question question = {.file = file, .demand = demand};
	uint8_t in_use = zkf_ranges_mode(&file->in_use);
	bool conflict = modes_conflict(in_use, demand->mode);
	struct zkf_hold *hold, *next;

	for (hold = file->holds; hold; hold = next) {
		next = hold->next;
		judge(&question, hold, in_use);
	}
	if (in_use == ZKF_EXCLUSIVE && file->key.kind == ZKF_FLOCK && question.mine == ZKF_EXCLUSIVE)
		conflict = false; /* one lock, and here it is */
	else if (conflict && modes_conflict(question.others, demand->mode) && question.others)
		conflict = true;
	else if (conflict && question.mine >= in_use)
		conflict = false;
	else if (conflict && !question.mine && unexplained_is_mine(&question, in_use)) {
		conflict = false;
		is_mine(&question, in_use);
	}
	if (!conflict && question.mine > demand->own_mode)
		demand->own_mode = question.mine;
	if (file == demand->file && demand->description_locked)
		demand->another_thread = question.same_number || (question.other_here && !question.own_here);
	question_end(&question);
	return conflict;
}

static struct zkf_hold *own_hold(struct zkf_file *file, const struct zkf_demand *demand)
{
	for (struct zkf_hold *hold = file->holds; hold; hold = hold->next)
		if (hold->mode >= demand->mode && zkf_thread_same(&hold->owner->key.thread, &demand->thread))
			return hold;
	return NULL;
}

/*
 * Who holds the group exclusively has it all; while somebody reads it nobody else writes.  So what its thread holds already
 * answers a demand for no more than that, and the rest need not be looked at, however many files there are.
 */
static bool has_it_already(struct zkf_lock *lock, struct zkf_demand *demand)
{
	for (struct zkf_file *file = lock->files; file; file = file->next) {
		struct zkf_hold *hold = own_hold(file, demand);

		if (!hold)
			continue;
		zkf_recall_look(file); /* may end it */
		hold = own_hold(file, demand);
		if (hold && hold_whose(file, hold) == THREADS && hold->mode >= demand->mode) {
			demand->own_mode = hold->mode;
			return true;
		}
	}
	return false;
}

static bool group_conflict(struct zkf_lock *lock, struct zkf_demand *demand)
{
	bool conflict = false;

	demand->own_mode = ZKF_NONE;
	demand->way_pid = 0;
	demand->another_thread = false;
	/* Who was answered and has not come back holds, for all we know. */
	for (const struct zkf_demand *other = lock->demands; other; other = other->next)
		if (other->state != ZKF_DEMAND_WAITING && !zkf_thread_same(&other->thread, &demand->thread) &&
		    modes_conflict(other->mode, demand->mode)) {
			conflict = true;
			demand->way_pid = other->pid;
			demand->way_mode = other->mode;
		}
	demand->way_start = 0;
	demand->way_end = ZKF_RANGE_MAX;
	if (!conflict && has_it_already(lock, demand)) {
		zkf_recall_look(
			demand->file); /* as before any grant: what it finds stands while the call is under way */
	} else {
		for (struct zkf_file *file = lock->files; file; file = file->next) {
			zkf_recall_look(file);
			if (file->in_use.count || file->blind)
				conflict |= file->blind || group_file_conflict(file, demand);
		}
	}
	demand->owner_holds = demand->own_mode >= demand->mode;
	demand->process_holds = demand->own_mode != ZKF_NONE;
	return conflict;
}

/* --- several inodes of one ordinary lock --- */

/*
 * Somebody waits in the kernel for the old file's lock, which the asking process holds: he is not in the way, or both would
 * wait for ever.  But he must not take it for the lock when he gets it.
 */
static bool waits_for_us(struct zkf_demand *other, struct zkf_demand *demand)
{
	struct zkf_ranges own = {0};
	bool waits;

	if (other->held || other->nonblock || other->state == ZKF_DEMAND_WAITING || !zkf_recall_blocked(other))
		return false;
	if (other->file->key.kind == ZKF_RECORD)
		zkf_file_held_by(other->file, other->pid, other->posix, &own);
	waits = !zkf_ranges_conflicting(&own, other->start, other->end, ZKF_EXCLUSIVE);
	zkf_ranges_clear(&own);
	if (waits) {
		zkf_file_held_by(other->file, demand->pid, false, &own);
		waits = zkf_ranges_conflicting(&own, other->start, other->end, other->mode) != NULL;
	}
	zkf_ranges_free(&own);
	if (waits) {
		other->state = ZKF_DEMAND_SOFT;
		zkf_publish_state(other->file->slot, ZKF_NONE, true, true); /* by the generation it finds out */
	}
	return waits;
}

static bool files_conflict(struct zkf_lock *lock, struct zkf_demand *demand)
{
	for (struct zkf_demand *other = lock->demands; other; other = other->next)
		if (other->file != demand->file && other->state != ZKF_DEMAND_WAITING && other->start <= demand->end &&
		    other->end >= demand->start && modes_conflict(other->mode, demand->mode) &&
		    !waits_for_us(other, demand))
			return true;
	for (struct zkf_file *file = lock->files; file; file = file->next) {
		struct question question = {.file = file, .demand = demand};
		bool mine;

		if (file == demand->file)
			continue; /* the kernel's */
		zkf_recall_look(file);
		if (!zkf_ranges_conflicting(&file->in_use, demand->start, demand->end, demand->mode))
			continue;
		mine = unexplained_is_mine(&question, zkf_ranges_mode(&file->in_use));
		question_end(&question);
		if (!mine)
			return true;
	}
	return false;
}

bool zkf_holds_conflict(struct zkf_lock *lock, struct zkf_demand *demand)
{
	if (is_group(lock))
		demand->in_the_way = group_conflict(lock, demand);
	else
		demand->in_the_way = lock->files && lock->files->next && files_conflict(lock, demand);
	return demand->in_the_way;
}

static bool upgrades(const struct zkf_demand *demand)
{
	return demand->state == ZKF_DEMAND_WAITING && !demand->nonblock && demand->mode == ZKF_EXCLUSIVE &&
	       demand->own_mode == ZKF_SHARED && demand->in_the_way && demand->convert_fd < 0;
}

bool zkf_holds_deadlock(const struct zkf_demand *demand)
{
	if (!is_group(demand->lock) || !demand->posix || !upgrades(demand))
		return false;
	for (const struct zkf_demand *other = demand->lock->demands; other; other = other->next)
		if (other != demand && upgrades(other) && !zkf_thread_same(&other->thread, &demand->thread) &&
		    (!other->posix || other->number < demand->number))
			return true;
	return false;
}

bool zkf_holds_another_thread(const struct zkf_demand *demand)
{
	return is_group(demand->lock) && demand->another_thread;
}

/* --- a demand's way --- */

void zkf_holds_arrive(struct zkf_demand *demand, int passed_fd)
{
	struct zkf_ranges held = {0};

	zkf_thread_of(&demand->thread, demand->pid, demand->tid);
	demand->asked_start = demand->start;
	demand->asked_end = demand->end;
	demand->start = 0;
	demand->end = ZKF_RANGE_MAX;
	if (demand->file->key.kind != ZKF_FLOCK)
		return;
	zkf_file_held_through(passed_fd, "FLOCK", &held);
	zkf_refused_held_through(demand->file, passed_fd, &held);
	demand->description_locked = held.count > 0;
	/* A conversion that has to wait drops the old lock first, as the kernel does. */
	if (held.count && !demand->nonblock && demand->op == ZKF_OP_LOCK && demand->mode > zkf_ranges_mode(&held))
		demand->convert_fd = fcntl(passed_fd, F_DUPFD_CLOEXEC, 0);
	zkf_ranges_free(&held);
}

static struct zkf_hold demand_hold(const struct zkf_demand *demand)
{
	return (struct zkf_hold){.start = demand->asked_start,
	                         .end = demand->asked_end,
	                         .fd = demand->fd,
	                         .mode = demand->mode,
	                         .posix = demand->posix};
}

void zkf_holds_note(const struct zkf_demand *demand)
{
	if (!is_group(demand->lock) || demand->op != ZKF_OP_LOCK || demand->state == ZKF_DEMAND_WAITING)
		return;
	/* Also when it shows nothing: it may have passed the lock on already.  The next look tells if there is none. */
	hold_add(demand->file, &demand->thread, demand_hold(demand));
	if (demand->mode > demand->file->seen_mode)
		demand->file->seen_mode = demand->mode; /* until it is seen: other calls may still forbid a look */
}

static void promise_add(const struct zkf_file *file, const struct zkf_thread *thread, const struct zkf_hold *hold)
{
	struct zkf_state_promise promise = {file->key.dev, file->key.ino, (uint32_t)file->key.kind,
	                                    *thread,       hold->start,   hold->end,
	                                    hold->fd,      hold->mode,    hold->posix};

	zkf_state_promise_add(&promise);
}

static void promise_demand(const struct zkf_demand *demand)
{
	struct zkf_hold hold = demand_hold(demand);

	promise_add(demand->file, &demand->thread, &hold);
}

static void promises_add_all(void)
{
	for (const struct zkf_file *file = zkf_file_list(); file; file = file->hh.next) {
		if (!is_group(file->lock))
			continue;
		for (const struct zkf_hold *hold = file->holds; hold; hold = hold->next)
			promise_add(file, &hold->owner->key.thread, hold);
		for (const struct zkf_demand *demand = file->lock->demands; demand; demand = demand->next)
			if (demand->file == file && demand->op == ZKF_OP_LOCK && demand->state != ZKF_DEMAND_WAITING)
				promise_demand(demand);
	}
}

void zkf_holds_promise(const struct zkf_demand *demand)
{
	if (!is_group(demand->lock) || demand->op != ZKF_OP_LOCK)
		return;
	zkf_state_promises_restart(promises_add_all, false);
	promise_demand(demand);
}

static void adopt_one(const struct zkf_state_promise *promise)
{
	struct zkf_file *file = zkf_file_find(promise->dev, promise->ino, promise->kind);

	if (file && is_group(file->lock) && (promise->mode == ZKF_SHARED || promise->mode == ZKF_EXCLUSIVE))
		hold_add(file, &promise->thread,
		         (struct zkf_hold){.start = promise->start,
		                           .end = promise->end,
		                           .fd = promise->fd,
		                           .mode = promise->mode,
		                           .posix = promise->posix});
}

void zkf_holds_adopt(void)
{
	zkf_state_promises_each(adopt_one);
	zkf_state_promises_restart(promises_add_all, true);
}

/* --- the look --- */

/*
 * A trial lock could refuse a pinned call, unless that is one that waits in the kernel.  Without it, what the last look
 * has found is still true but for what has been unlocked since, and what pinned calls have taken (zkf_holds_note) or are
 * about to take.
 */
static bool may_try(const struct zkf_file *file)
{
	if (file->key.kind == ZKF_RECORD)
		return true;
	for (const struct zkf_demand *demand = file->lock->demands; demand; demand = demand->next)
		if (demand->file == file && demand->state != ZKF_DEMAND_WAITING &&
		    (demand->nonblock || !zkf_recall_blocked(demand)))
			return false;
	return true;
}

static void real_look(struct zkf_file *file)
{
	struct zkf_ranges found = {0};

	/* What can't be told is exclusive; so it is said in `found` as well, unless memory is out. */
	if (zkf_file_look(file, &found) || file->guessed)
		file->seen_mode = ZKF_EXCLUSIVE;
	else
		file->seen_mode = zkf_ranges_mode(&found);
	zkf_ranges_free(&found);
}

void zkf_holds_look(struct zkf_file *file)
{
	bool soft = false;
	uint8_t mode;

	for (const struct zkf_demand *demand = file->lock->demands; demand; demand = demand->next)
		soft |= demand->file == file && demand->state == ZKF_DEMAND_SOFT;
	/* Published before the look (I4): who unlocks after it tells us. */
	zkf_publish_state(file->slot, ZKF_NONE, true, soft);
	if (may_try(file)) {
		real_look(file);
		if (file->seen_mode == ZKF_NONE)
			zkf_holds_forget(file);
		for (struct zkf_hold *hold = file->holds, *next; hold; hold = next) {
			next = hold->next;
			if (hold->mode > file->seen_mode)
				hold_end(file, hold);
		}
	}
	mode = file->seen_mode;
	for (const struct zkf_demand *demand = file->lock->demands; demand; demand = demand->next)
		if (demand->file == file && demand->state != ZKF_DEMAND_WAITING && demand->op == ZKF_OP_LOCK &&
		    demand->mode > mode)
			mode = demand->mode;
	zkf_ranges_clear(&file->in_use);
	file->blind = mode && zkf_ranges_assign(&file->in_use, 0, ZKF_RANGE_MAX, mode);
}

/* --- for people --- */

static bool has_demand(const struct zkf_file *file)
{
	for (const struct zkf_demand *demand = file->lock->demands; demand; demand = demand->next)
		if (demand->file == file && demand->state != ZKF_DEMAND_WAITING)
			return true;
	return false;
}

static int32_t anybody(const struct zkf_file *file, const struct zkf_hold *hold)
{
	struct zkf_holders all = {0};
	int32_t pid = 0;

	zkf_holders_all(file, &all);
	for (size_t i = 0; i < all.count && !pid; i++)
		if (taken_by(&all.items[i], hold->owner->key.thread.pid) && !claimed(file, hold, &all.items[i]))
			pid = all.items[i].pid;
	zkf_holders_free(&all);
	return pid;
}

static int file_each(struct zkf_file *file, void (*each)(void *owner, const struct zkf_hold_row *row), void *owner)
{
	struct zkf_hold_row row = {.file = file, .mode = file->seen_mode};
	int count = 0;

	for (struct zkf_hold *hold = file->holds; hold; hold = hold->next) {
		enum whose whose = hold_whose_now(file, hold);

		row.pid = whose == ELSEWHERE ? anybody(file, hold) : hold->owner->key.thread.pid;
		row.task = whose == THREADS ? hold->owner->key.thread.task : 0;
		row.mode = hold->mode;
		if (!row.pid)
			continue; /* ended, for all that can be seen */
		each(owner, &row);
		count++;
	}
	if (count)
		return count;
	row.pid = zkf_file_holder(file);
	row.task = 0;
	row.mode = file->seen_mode;
	each(owner, &row);
	return 1;
}

int zkf_holds_each(struct zkf_lock *lock, void (*each)(void *owner, const struct zkf_hold_row *row), void *owner)
{
	int count = 0;

	for (struct zkf_file *file = lock->files; file; file = file->next) {
		if (!has_demand(file)) { /* no trial lock beside a call under way */
			zkf_publish_state(file->slot, ZKF_NONE, true, false);
			real_look(file);
		}
		if (file->seen_mode != ZKF_NONE)
			count += file_each(file, each, owner);
	}
	zkf_lock_touch(lock); /* publishes what is true again */
	return count;
}
