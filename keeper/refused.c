/*
 * keeper/refused.c - see refused.h
 * SPDX-License-Identifier: Apache-2.0
 */
#include "refused.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "claim_text.h"
#include "description.h"
#include "fault.h"
#include "file.h"
#include "log.h"
#include "publish.h"
#include "state.h"
#include "store.h"

/* Descriptors of a process whose closing ends its records; of more than that the first ones do. */
#define DESCRIPTORS_MAX 16

/* An owner, and what he has of a file. */
struct zkf_refused {
	struct zkf_refused *next; /* of file->refused */
	uint64_t id;              /* in the state directory */
	bool posix;
	struct zkf_thread process; /* posix: the owner; else who took it */
	/* The owner, if it is a description; else those descriptors of the process that are known. */
	struct zkf_description descriptions[DESCRIPTORS_MAX];
	int count;
	struct zkf_ranges held;
	struct zkf_file *file;
	struct zkf_source
		end; /* pidfd of that process, or of the one that has shown the description last; fd -1: none */
};

/* The loop's. */
static uint64_t last_id;

bool zkf_refused_errno(int error)
{
	return error == -ENOLCK || error == -ENOSYS || error == -EOPNOTSUPP || error == -524;
}

void zkf_refused_begin(struct zkf_file *file)
{
	if (file->refuses)
		return;
	file->refuses = true;
	zkf_publish_refused(file->slot);
	zkf_log(ZKF_LOG_INFO, "refused path=%s why=\"the kernel does not lock it: the keeper does, for this host\"",
	        file->path);
}

/* --- for the next keeper --- */

static int note(const struct zkf_file *file, const struct zkf_refused *refused, int64_t start, int64_t end,
                uint8_t mode)
{
	const struct zkf_description *first = &refused->descriptions[0];
	struct zkf_state_refused record = {
		.dev = file->key.dev,
		.ino = file->key.ino,
		.kind = (uint32_t)file->key.kind,
		.id = refused->id,
		.posix = refused->posix,
		.pid = refused->posix ? refused->process.pid : first->pid,
		.process_start = refused->posix ? refused->process.process_start : first->start,
		.number = refused->count ? first->number : -1,
		.mode = mode,
		.start = start,
		.end = end,
	};

	return zkf_state_refused_add(&record);
}

static void note_all(void)
{
	for (const struct zkf_file *file = zkf_file_list(); file; file = file->hh.next)
		for (const struct zkf_refused *refused = file->refused; refused; refused = refused->next)
			for (size_t i = 0; i < refused->held.count; i++)
				note(file, refused, refused->held.items[i].start, refused->held.items[i].end,
				     refused->held.items[i].mode);
}

/* That something is not held any more need not be known: it is held then until its owner ends. */
static void note_less(const struct zkf_file *file, const struct zkf_refused *refused, int64_t start, int64_t end,
                      uint8_t mode)
{
	zkf_state_refused_restart(note_all, false);
	if (note(file, refused, start, end, mode))
		zkf_log(ZKF_LOG_WARN, "refused path=%s error=\"a keeper that follows may take it for locked\"",
		        file->path);
}

/* --- owners --- */

static void end_unwatch(struct zkf_refused *refused)
{
	if (refused->end.fd < 0)
		return;
	zkf_loop_remove(&refused->end);
	close(refused->end.fd);
	refused->end.fd = -1;
}

static void refused_free(struct zkf_file *file, struct zkf_refused *refused)
{
	struct zkf_refused **at = &file->refused;

	while (*at && *at != refused)
		at = &(*at)->next;
	if (*at)
		*at = refused->next;
	end_unwatch(refused);
	for (int i = 0; i < refused->count; i++)
		zkf_description_free(&refused->descriptions[i]);
	zkf_ranges_free(&refused->held);
	free(refused);
}

static struct zkf_refused *refused_new(struct zkf_file *file, bool posix, const struct zkf_thread *process)
{
	struct zkf_refused *refused = zkf_calloc(1, sizeof(*refused));
	uint64_t now = (uint64_t)zkf_now_ns();

	if (!refused)
		return NULL;
	last_id = now > last_id ? now : last_id + 1;
	refused->id = last_id;
	refused->posix = posix;
	refused->process = *process;
	refused->file = file;
	refused->end.fd = -1;
	refused->next = file->refused;
	file->refused = refused;
	return refused;
}

void zkf_refused_forget(struct zkf_file *file)
{
	while (file->refused)
		refused_free(file, file->refused);
}

/* thread: whose process it is; fd: ours, of the description */
static bool is_owner(const struct zkf_refused *refused, bool posix, const struct zkf_thread *thread, int fd)
{
	if (refused->posix != posix)
		return false;
	if (posix)
		return refused->process.pid == thread->pid && refused->process.process_start == thread->process_start;
	return refused->count && zkf_description_is(&refused->descriptions[0], fd);
}

/* Other owners, and who asks since before the loss: he was compared when it was not lost. */
static bool is_other(const struct zkf_description *lost, const struct zkf_file *file, int32_t pid, int32_t number)
{
	for (const struct zkf_refused *refused = file->refused; refused; refused = refused->next)
		if (!refused->posix && &refused->descriptions[0] != lost && !refused->descriptions[0].lost &&
		    zkf_description_at(&refused->descriptions[0], file, pid, number) == 1)
			return true;
	for (const struct zkf_demand *demand = file->lock->demands; demand; demand = demand->next)
		if (demand->file == file && demand->owner_fd >= 0 && demand->arrived_ns < lost->lost_ns &&
		    zkf_description_shown_as(demand->owner_fd, pid, number))
			return true;
	return false;
}

static struct zkf_refused *owner_find(const struct zkf_file *file, bool posix, const struct zkf_thread *thread, int fd)
{
	for (struct zkf_refused *refused = file->refused; refused; refused = refused->next)
		if (is_owner(refused, posix, thread, fd))
			return refused;
	return NULL;
}

/* By a descriptor of ours, that of a description that has been lost, too, if it can only be that one. */
static void owner_find_again(const struct zkf_file *file, int fd)
{
	if (owner_find(file, false, NULL, fd))
		return;
	for (struct zkf_refused *refused = file->refused; refused; refused = refused->next)
		if (!refused->posix)
			zkf_description_find_again(&refused->descriptions[0], file, is_other);
}

static struct zkf_refused *owner_of(const struct zkf_demand *demand)
{
	return owner_find(demand->file, demand->posix, &demand->thread, demand->owner_fd);
}

static struct zkf_description *descriptor_find(struct zkf_refused *refused, int32_t number)
{
	for (int i = 0; i < refused->count; i++)
		if (refused->descriptions[i].number == number)
			return &refused->descriptions[i];
	return NULL;
}

/* Any other descriptor of the file in its process, only by its number. */
static bool descriptor_add(void *context, int32_t pid, int32_t number)
{
	struct zkf_refused *refused = context;

	if (refused->count < DESCRIPTORS_MAX && !descriptor_find(refused, number))
		refused->descriptions[refused->count++] = (struct zkf_description){
			.pid = pid, .start = refused->process.process_start, .number = number, .fd = -1};
	return refused->count < DESCRIPTORS_MAX;
}

/* Records of a process: from now on the descriptors that it has must stay open. */
static int descriptors_note(const struct zkf_file *file, struct zkf_refused *refused, const struct zkf_demand *demand)
{
	struct zkf_description *known = descriptor_find(refused, demand->fd);
	int error;

	if (!known && refused->count < DESCRIPTORS_MAX) {
		known = &refused->descriptions[refused->count];
		*known = (struct zkf_description){.fd = -1};
	}
	if (known && known->fd < 0) {
		error = zkf_description_init(known, 0, demand->pid, demand->fd, demand->owner_fd);
		if (error)
			return error;
		if (known == &refused->descriptions[refused->count])
			refused->count++;
		/* The number is only what the program says. */
		if (zkf_description_at(known, file, demand->pid, demand->fd) == 0) {
			zkf_description_free(known);
			*known = refused->descriptions[--refused->count];
		}
	}
	zkf_descriptors_each(file, demand->pid, descriptor_add, refused);
	return 0;
}

static struct zkf_refused *owner_make(struct zkf_demand *demand, int *error)
{
	struct zkf_refused *refused = refused_new(demand->file, demand->posix, &demand->thread);

	*error = refused ? 0 : -ENOMEM;
	if (!refused || demand->posix)
		return refused;
	*error =
		zkf_description_init(&refused->descriptions[0], refused->id, demand->pid, demand->fd, demand->owner_fd);
	if (!*error) {
		refused->count = 1;
		return refused;
	}
	refused_free(demand->file, refused);
	return NULL;
}

/* --- their end --- */

/* The close rule: one of the descriptors is not there any more, or another one by now. */
static bool has_closed(const struct zkf_file *file, const struct zkf_refused *refused)
{
	for (int i = 0; i < refused->count; i++)
		if (zkf_description_at(&refused->descriptions[i], file, refused->process.pid,
		                       refused->descriptions[i].number) == 0)
			return true;
	return false;
}

/* Its caller lives, for all we know, and we have one more duplicate, which would look like a stranger's. */
static bool is_asking(const struct zkf_file *file, const struct zkf_refused *refused)
{
	for (const struct zkf_demand *demand = file->lock->demands; demand; demand = demand->next)
		if (demand->file == file &&
		    ((demand->owner_fd >= 0 && is_owner(refused, false, NULL, demand->owner_fd)) ||
		     (demand->convert_fd >= 0 && is_owner(refused, false, NULL, demand->convert_fd))))
			return true;
	return false;
}

static enum zkf_life life(struct zkf_file *file, struct zkf_refused *refused);

static void process_ended(struct zkf_source *source, uint32_t events)
{
	struct zkf_refused *refused = (struct zkf_refused *)((char *)source - offsetof(struct zkf_refused, end));
	struct zkf_file *file = refused->file;

	(void)events;
	end_unwatch(refused);
	life(file, refused);
	zkf_lock_hint(file->lock);
}

/* Only a hint, so that who waits is let in at once. */
static void end_watch(struct zkf_refused *refused)
{
	int32_t pid = refused->posix ? refused->process.pid : refused->descriptions[0].pid;

	end_unwatch(refused);
	if (pid > 0)
		refused->end.fd = (int)syscall(SYS_pidfd_open, pid, 0);
	refused->end.ready = process_ended;
	if (refused->end.fd >= 0 && zkf_loop_add(&refused->end, EPOLLIN)) {
		close(refused->end.fd);
		refused->end.fd = -1;
	}
}

/* GONE: it has been freed. */
static enum zkf_life life(struct zkf_file *file, struct zkf_refused *refused)
{
	enum zkf_life now = ZKF_LIVES;
	bool moved = false;

	if (refused->posix) {
		if (zkf_process_start(refused->process.pid) != refused->process.process_start ||
		    zkf_process_has_ended(refused->process.pid) || has_closed(file, refused))
			now = ZKF_GONE;
	} else if (!is_asking(file, refused)) {
		now = zkf_description_life(&refused->descriptions[0], file, is_other, &moved);
	}
	if (moved) {
		note_less(file, refused, 0, ZKF_RANGE_MAX, ZKF_STATE_SEEN);
		end_watch(refused);
	}
	if (now != ZKF_GONE)
		return now;
	zkf_log(ZKF_LOG_DEBUG, "refused ended path=%s pid=%d posix=%d", file->path, refused->process.pid,
	        refused->posix);
	zkf_ranges_clear(&refused->held);
	note_less(file, refused, 0, ZKF_RANGE_MAX, ZKF_NONE);
	refused_free(file, refused);
	return ZKF_GONE;
}

int zkf_refused_look(struct zkf_file *file, struct zkf_ranges *in_use)
{
	int error = 0;

	file->in_doubt = false;
	for (struct zkf_refused *refused = file->refused, *next; refused && !error; refused = next) {
		enum zkf_life found;

		next = refused->next;
		found = life(file, refused);
		file->in_doubt |= found == ZKF_LIFE_DOUBT;
		if (found != ZKF_GONE)
			error = zkf_ranges_raise_all(in_use, &refused->held);
	}
	return error;
}

/* --- a demand's way --- */

int zkf_refused_arrive(struct zkf_demand *demand, int fd)
{
	int error = zkf_description_works(fd);
	struct zkf_refused *owner;

	if (error)
		return error;
	if (!demand->thread.pid)
		zkf_thread_of(&demand->thread, demand->pid, demand->tid);
	if (demand->thread.pid <= 0 || !demand->thread.process_start)
		return -ESRCH; /* of another pid namespace: nobody could tell when it ends */
	if (demand->owner_fd < 0)
		demand->owner_fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (demand->owner_fd < 0)
		return -errno;
	if (!demand->posix)
		owner_find_again(demand->file, fd);
	/* What it had ended perhaps with a descriptor that it has closed: before it gets more. */
	owner = demand->posix ? owner_of(demand) : NULL;
	if (owner)
		life(demand->file, owner);
	return 0;
}

/* Of a group all is asked for; of the file, this. */
static int64_t first_of(const struct zkf_demand *demand)
{
	return demand->lock->key.kind == ZKF_GROUP ? demand->asked_start : demand->start;
}

static int64_t last_of(const struct zkf_demand *demand)
{
	return demand->lock->key.kind == ZKF_GROUP ? demand->asked_end : demand->end;
}

bool zkf_refused_conflict(struct zkf_demand *demand)
{
	struct zkf_file *file = demand->file;

	demand->in_doubt = false;
	for (struct zkf_refused *refused = file->refused, *next; refused; refused = next) {
		const struct zkf_range *range =
			zkf_ranges_conflicting(&refused->held, first_of(demand), last_of(demand), demand->mode);
		enum zkf_life found;

		next = refused->next;
		if (!range || is_owner(refused, demand->posix, &demand->thread, demand->owner_fd))
			continue;
		demand->way_mode = range->mode;
		demand->way_start = range->start;
		demand->way_end = range->end;
		demand->way_pid = refused->posix || file->key.kind == ZKF_FLOCK ? refused->process.pid : -1;
		found = life(file, refused);
		if (found == ZKF_LIVES) {
			demand->in_the_way = true;
			demand->in_doubt = false;
			return true;
		}
		demand->way_pid = 0;
		demand->in_doubt |= found == ZKF_LIFE_DOUBT;
	}
	demand->in_the_way |= demand->in_doubt;
	return demand->in_doubt;
}

static bool covers(const struct zkf_ranges *own, const struct zkf_range *range, int64_t first, int64_t last)
{
	return zkf_ranges_covers(own, range->start > first ? range->start : first,
	                         range->end < last ? range->end : last, range->mode);
}

/* Does the kernel show a lock in the way that is not the demand's owner's own? */
static int kernel_conflict(const struct zkf_demand *demand)
{
	struct zkf_file *file = demand->file;
	int64_t first = first_of(demand), last = last_of(demand);
	struct zkf_ranges all = {0}, own = {0};
	int error;

	zkf_publish_state(file->slot, ZKF_NONE, true, true);
	error = zkf_file_look_kernel(file, &all);
	if (!error && all.count) {
		if (demand->posix)
			error = zkf_file_held_by(file, demand->pid, true, &own);
		else
			error = zkf_file_held_through(demand->owner_fd,
			                              file->key.kind == ZKF_FLOCK ? "FLOCK" : "OFDLCK", &own);
	}
	for (size_t i = 0; !error && i < all.count; i++) {
		const struct zkf_range *range = &all.items[i];

		if (range->start <= last && range->end >= first &&
		    (range->mode == ZKF_EXCLUSIVE || demand->mode == ZKF_EXCLUSIVE) &&
		    !covers(&own, range, first, last))
			error = -EBUSY;
	}
	zkf_ranges_free(&all);
	zkf_ranges_free(&own);
	return error;
}

/* Gives [first, last] back what `before` has there. */
static int put_back(struct zkf_refused *refused, const struct zkf_ranges *before, int64_t first, int64_t last)
{
	int error = zkf_ranges_assign(&refused->held, first, last, ZKF_NONE);

	for (size_t i = 0; !error && i < before->count; i++) {
		const struct zkf_range *range = &before->items[i];

		if (range->start <= last && range->end >= first)
			error = zkf_ranges_assign(&refused->held, range->start > first ? range->start : first,
			                          range->end < last ? range->end : last, range->mode);
	}
	return error;
}

static void note_pieces(const struct zkf_file *file, const struct zkf_refused *refused, int64_t first, int64_t last)
{
	note_less(file, refused, first, last, ZKF_NONE);
	for (size_t i = 0; i < refused->held.count; i++) {
		const struct zkf_range *range = &refused->held.items[i];

		if (range->start <= last && range->end >= first)
			note_less(file, refused, range->start, range->end, range->mode);
	}
}

static void undo(struct zkf_file *file, struct zkf_refused *refused, const struct zkf_ranges *before, int64_t first,
                 int64_t last)
{
	if (put_back(refused, before, first, last))
		zkf_log(ZKF_LOG_WARN, "refused path=%s error=\"out of memory: more stays locked than asked for\"",
		        file->path);
	note_pieces(file, refused, first, last);
	if (!refused->held.count)
		refused_free(file, refused);
}

int zkf_refused_note(struct zkf_demand *demand)
{
	struct zkf_file *file = demand->file;
	int64_t first = first_of(demand), last = last_of(demand);
	struct zkf_refused *owner;
	int error = demand->owner_fd < 0 ? -EBADF : kernel_conflict(demand);

	if (error)
		return error;
	owner = owner_of(demand);
	if (!owner)
		owner = owner_make(demand, &error);
	if (!owner)
		return error;
	error = demand->posix ? descriptors_note(file, owner, demand) : 0;
	zkf_ranges_clear(&demand->before);
	if (!error)
		error = zkf_ranges_copy(&demand->before, &owner->held);
	if (!error)
		error = zkf_ranges_assign(&owner->held, first, last, demand->mode);
	if (!error) {
		zkf_state_refused_restart(note_all, false);
		error = note(file, owner, first, last, demand->mode);
		if (error)
			put_back(owner, &demand->before, first, last);
	}
	demand->noted = !error;
	if (!owner->held.count)
		refused_free(file, owner);
	else if (owner->end.fd < 0)
		end_watch(owner);
	return error;
}

void zkf_refused_settle(struct zkf_demand *demand)
{
	demand->noted = false;
}

void zkf_refused_leave(struct zkf_demand *demand)
{
	struct zkf_refused *owner = demand->noted ? owner_of(demand) : NULL;

	demand->noted = false;
	if (owner) {
		undo(demand->file, owner, &demand->before, first_of(demand), last_of(demand));
		zkf_lock_hint(demand->lock);
	}
	zkf_ranges_free(&demand->before);
	if (demand->owner_fd >= 0)
		close(demand->owner_fd);
	demand->owner_fd = -1;
}

static int release(struct zkf_file *file, struct zkf_refused *owner, int64_t start, int64_t end)
{
	if (zkf_ranges_assign(&owner->held, start, end, ZKF_NONE))
		return -ENOLCK;
	note_less(file, owner, start, end, ZKF_NONE);
	if (!owner->held.count)
		refused_free(file, owner);
	zkf_lock_hint(file->lock);
	return 0;
}

void zkf_refused_drop(struct zkf_demand *demand)
{
	struct zkf_refused *owner = demand->owner_fd >= 0 ? owner_of(demand) : NULL;

	if (owner && !demand->noted)
		release(demand->file, owner, 0, ZKF_RANGE_MAX);
}

int zkf_refused_release(struct zkf_file *file, int fd, bool posix, int32_t pid, int64_t start, int64_t end)
{
	struct zkf_thread process;
	struct zkf_refused *owner;

	memset(&process, 0, sizeof(process));
	if (posix) {
		process.pid = pid;
		process.process_start = zkf_process_start(pid);
	} else {
		owner_find_again(file, fd);
	}
	owner = owner_find(file, posix, &process, fd);
	return owner ? release(file, owner, start, end) : 0;
}

/* --- as if the kernel had it --- */

bool zkf_refused_any(const struct zkf_lock *lock)
{
	for (const struct zkf_file *file = lock->files; file; file = file->next)
		if (file->refused)
			return true;
	return false;
}

int zkf_refused_held_through(const struct zkf_file *file, int fd, struct zkf_ranges *held)
{
	const struct zkf_refused *owner = owner_find(file, false, NULL, fd);

	return owner ? zkf_ranges_raise_all(held, &owner->held) : 0;
}

struct showing {
	const struct zkf_file *file;
	const struct zkf_refused *refused;
	bool found;
};

static bool is_shown(void *context, int32_t pid, int32_t number)
{
	struct showing *showing = context;

	showing->found = zkf_description_at(&showing->refused->descriptions[0], showing->file, pid, number) == 1;
	return !showing->found;
}

static bool process_has(const struct zkf_file *file, const struct zkf_refused *refused, int32_t pid)
{
	struct showing showing = {file, refused, false};

	if (refused->posix)
		return refused->process.pid == pid;
	zkf_descriptors_each(file, pid, is_shown, &showing);
	return showing.found;
}

int zkf_refused_held_by(const struct zkf_file *file, int32_t pid, bool posix_only, struct zkf_ranges *held)
{
	int error = 0;

	for (const struct zkf_refused *refused = file->refused; refused && !error && pid > 0; refused = refused->next)
		if ((refused->posix || !posix_only) && process_has(file, refused, pid))
			error = zkf_ranges_raise_all(held, &refused->held);
	return error;
}

int zkf_refused_shown(const struct zkf_file *file, int32_t pid, int32_t number, struct zkf_holders *holders)
{
	int added = 0;

	for (const struct zkf_refused *refused = file->refused; refused; refused = refused->next) {
		if (refused->posix ? refused->process.pid != pid
		                   : zkf_description_at(&refused->descriptions[0], file, pid, number) != 1)
			continue;
		for (size_t i = 0; i < refused->held.count; i++) {
			const struct zkf_range *range = &refused->held.items[i];
			struct zkf_holder holder = {
				.start = range->start,
				.end = range->end,
				.ino = file->key.ino,
				.pid = pid,
				.fd = number,
				.taker = refused->posix || file->key.kind == ZKF_FLOCK ? refused->process.pid : -1,
				.mode = range->mode,
				.noted = true,
				.type = file->key.kind == ZKF_FLOCK ? ZKF_HOLDER_FLOCK
			              : refused->posix              ? ZKF_HOLDER_POSIX
			                                            : ZKF_HOLDER_OFD,
			};

			if (zkf_holders_add(holders, &holder))
				return -ENOMEM;
			added++;
		}
	}
	return added;
}

bool zkf_refused_may_hold(const struct zkf_file *file, int32_t pid, int32_t number)
{
	for (struct zkf_refused *refused = file->refused; refused; refused = refused->next) {
		struct zkf_description *description = &refused->descriptions[0];

		if (refused->posix || !description->lost || !refused->held.count)
			continue;
		zkf_description_find_again(description, file, is_other);
		if (description->lost ? !is_other(description, file, pid, number)
		                      : zkf_description_at(description, file, pid, number) == 1)
			return true;
	}
	return false;
}

int zkf_refused_held_text(const struct zkf_file *file, const struct zkf_ranges *of, char **text)
{
	int error = 0;

	for (const struct zkf_refused *refused = file->refused; refused; refused = refused->next)
		for (size_t i = 0; i < refused->held.count && !error; i++) {
			const struct zkf_range *range = &refused->held.items[i];

			if (zkf_ranges_conflicting(of, range->start, range->end, ZKF_EXCLUSIVE))
				error = zkf_held_add(text, refused->posix ? refused->process.pid : 0, range);
		}
	return error;
}

int zkf_refused_holders(const struct zkf_file *file, int64_t start, int64_t end, uint8_t mode, int32_t *pids, int most)
{
	int count = 0;

	for (const struct zkf_refused *refused = file->refused; refused && count < most; refused = refused->next)
		if (refused->posix && zkf_ranges_conflicting(&refused->held, start, end, mode))
			pids[count++] = refused->process.pid;
	return count;
}

int32_t zkf_refused_holder(const struct zkf_file *file)
{
	for (const struct zkf_refused *refused = file->refused; refused; refused = refused->next)
		if (refused->held.count)
			return refused->posix ? refused->process.pid : refused->descriptions[0].pid;
	return 0;
}

/* --- after a restart --- */

static struct zkf_refused *by_id(const struct zkf_file *file, uint64_t id)
{
	struct zkf_refused *refused = file->refused;

	while (refused && refused->id != id)
		refused = refused->next;
	return refused;
}

static void adopt_one(const struct zkf_state_refused *record)
{
	struct zkf_file *file = zkf_file_find(record->dev, record->ino, record->kind);
	struct zkf_refused *refused;
	struct zkf_thread process;

	if (!file) {
		zkf_log(ZKF_LOG_ERROR, "refused dev=%lu ino=%lu pid=%d error=\"locked, but can't be found again\"",
		        (unsigned long)record->dev, (unsigned long)record->ino, record->pid);
		return;
	}
	zkf_refused_begin(file);
	memset(&process, 0, sizeof(process));
	process.pid = record->pid;
	process.process_start = record->process_start;
	refused = by_id(file, record->id);
	if (!refused && (record->mode == ZKF_NONE || record->mode == ZKF_STATE_SEEN))
		return;
	if (!refused)
		refused = refused_new(file, record->posix, &process);
	if (!refused) {
		file->adopted_badly = true;
		return;
	}
	refused->id = record->id;
	refused->count = record->number >= 0 || !record->posix;
	refused->descriptions[0] = (struct zkf_description){.id = record->posix ? 0 : record->id,
	                                                    .pid = record->pid,
	                                                    .start = record->process_start,
	                                                    .number = record->number,
	                                                    .fd = -1};
	last_id = record->id > last_id ? record->id : last_id;
	if (record->mode != ZKF_STATE_SEEN &&
	    zkf_ranges_assign(&refused->held, record->start, record->end, record->mode))
		file->adopted_badly = true;
}

static bool is_wanted(uint64_t id)
{
	for (const struct zkf_file *file = zkf_file_list(); file; file = file->hh.next) {
		const struct zkf_refused *refused = by_id(file, id);

		if (refused && refused->held.count)
			return true;
	}
	return false;
}

static int adopt_all(void)
{
	int error = zkf_state_refused_each(adopt_one);

	for (struct zkf_file *file = zkf_file_list(); file; file = file->hh.next) {
		if (file->adopted_badly)
			error = -ENOMEM;
		for (struct zkf_refused *refused = file->refused, *next; refused; refused = next) {
			next = refused->next;
			if (!refused->held.count) {
				refused->descriptions[0].id = 0; /* of the store's, below */
				refused_free(file, refused);
				continue;
			}
			if (refused->posix)
				zkf_descriptors_each(file, refused->process.pid, descriptor_add, refused);
			else
				zkf_description_adopt(&refused->descriptions[0], file);
			end_watch(refused);
		}
	}
	return error;
}

int zkf_refused_adopt(void)
{
	int error = adopt_all();

	if (error)
		return error;
	zkf_store_keep_only(is_wanted);
	zkf_state_refused_restart(note_all, true);
	return 0;
}

/* The store is a keeper's: descriptions are found by process and number. */
void zkf_refused_adopt_blindly(void)
{
	adopt_all();
}
