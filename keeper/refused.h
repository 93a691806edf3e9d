/*
 * keeper/refused.h - locks on files whose kernel refuses to lock them
 *
 * Answers for: what the kernel would have done for flock, records of processes and records of descriptions, on files whose
 *              file system answers ENOLCK, ENOSYS, EOPNOTSUPP or 524: who of this host has what, who is in whose way, when
 *              an owner has ended.
 * Does not:    decide between hosts (lock.c): to all else in the keeper what is held here looks as if the kernel had it, by
 *              way of zkf_file_look and its like in file.c and holders.c.
 * Threads:     the loop's.
 * Specification: design section 7; flock(2), fcntl_locking(2); wire.h; zkflock(7), FILE SYSTEMS THAT REFUSE LOCKS.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A lock's way:
 *
 *     LOCK --COVERED--> kernel refuses --REFUSED--> WAITING (others have it) --> noted, COVERED --DONE----> held --> (end)
 *                                                                                    |
 *                                                                                    +--hang-up--> what was before
 *
 * An owner ends with its process (records), when its process is seen to have closed a descriptor through which it has
 * locked (records: the close rule), or with its description (description.h).
 *
 * In doubt both.  The kernel may refuse one program and serve another, or refuse now and serve later.  So a program asks
 * the kernel each time, and only who is refused is noted here; who is served must ask here first (the page says so for
 * ever); and before a lock is noted, the state word changes and the kernel is looked at:
 *
 *     keeper, noting a lock                 program, being served by the kernel
 *     1. raises the generation              1. COVERED, at some generation
 *     2. looks at the kernel's locks        2. kernel lock
 *     3. notes the lock                     3. another generation: asks again (ZKF_FLAG_HELD), and is refused by 3.
 *
 * Whatever the interleaving, the keeper sees the kernel's lock or the program sees the change.
 */
#ifndef ZKF_REFUSED_H
#define ZKF_REFUSED_H

#include "lock.h"

struct zkf_refused;

/* zkf_refused_errno - does this negative errno of a lock call say that the kernel does not lock that file? */
bool zkf_refused_errno(int error);

/* zkf_refused_begin - it is such a file from now on, until it is idle and forgotten */
void zkf_refused_begin(struct zkf_file *file);

/*
 * zkf_refused_arrive - who asks, by a descriptor that is his
 *
 * fd  as received; a duplicate is kept in the demand until zkf_refused_leave
 *
 * Returns 0, or a negative errno: its owner can't be told from others, and it must fail.
 */
int zkf_refused_arrive(struct zkf_demand *demand, int fd);

/* zkf_refused_leave - the demand ends; what was noted for it is undone, unless zkf_refused_settle was called */
void zkf_refused_leave(struct zkf_demand *demand);
void zkf_refused_settle(struct zkf_demand *demand);

/*
 * zkf_refused_conflict - has another owner of this host what the demand asks for?  Fills in_the_way, way_* then
 *
 * in_doubt  set when a moment later somebody may turn out to have ended: nobody is refused for that
 */
bool zkf_refused_conflict(struct zkf_demand *demand);

/*
 * zkf_refused_note - the demand's owner has it from now on
 *
 * Nobody noted here is in the way.  Returns 0; -EBUSY: somebody has it by the kernel; or what prevents it.
 */
int zkf_refused_note(struct zkf_demand *demand);

/* zkf_refused_drop - a flock conversion that must wait has lost the old lock */
void zkf_refused_drop(struct zkf_demand *demand);

/*
 * zkf_refused_release - an owner unlocks
 *
 * fd   a descriptor of the owner, as received
 * pid  the owner's process, if posix
 *
 * Returns 0, also if it had nothing, or -ENOLCK: it is not done.
 */
int zkf_refused_release(struct zkf_file *file, int fd, bool posix, int32_t pid, int64_t start, int64_t end);

/* zkf_refused_look - adds what all owners have, after a look whether they are alive: file->in_doubt; 0 or -ENOMEM */
int zkf_refused_look(struct zkf_file *file, struct zkf_ranges *in_use);

/* zkf_refused_forget - the file is not known any more */
void zkf_refused_forget(struct zkf_file *file);

/* zkf_refused_adopt - what a former keeper has noted, for the files that are known again; 0 or -ENOMEM: not all */
int zkf_refused_adopt(void);

/* zkf_refused_adopt_blindly - without a keeper (guard.h), for those who are to be stopped: nothing is taken over */
void zkf_refused_adopt_blindly(void);

/* zkf_refused_any - is anything noted for any file of the lock? */
bool zkf_refused_any(const struct zkf_lock *lock);

/* As their namesakes in file.h, of what is noted here; they add to what they are given. */
int zkf_refused_held_through(const struct zkf_file *file, int fd, struct zkf_ranges *held);
int zkf_refused_held_by(const struct zkf_file *file, int32_t pid, bool posix_only, struct zkf_ranges *held);
int zkf_refused_held_text(const struct zkf_file *file, const struct zkf_ranges *of, char **text);
int zkf_refused_holders(const struct zkf_file *file, int64_t start, int64_t end, uint8_t mode, int32_t *pids, int most);
int32_t zkf_refused_holder(const struct zkf_file *file);

/* zkf_refused_shown - what one descriptor of a process has; returns how many were added, or -ENOMEM */
int zkf_refused_shown(const struct zkf_file *file, int32_t pid, int32_t number, struct zkf_holders *holders);

/*
 * zkf_refused_may_hold - can it not be ruled out that this descriptor of a process has something here?
 *
 * Of descriptions that are LOST (description.h) only: who has to be stopped is among those of whom it is true.
 */
bool zkf_refused_may_hold(const struct zkf_file *file, int32_t pid, int32_t number);

#endif
