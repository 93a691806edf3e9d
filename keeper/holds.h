/*
 * keeper/holds.h - which thread of this host holds a group, and through which files
 *
 * Answers for: groups (a rule whose name has no part of the path: one lock of many files, of both kinds): who of this host
 *              may lock another file of it, and who must wait.  And, for any lock that is several inodes on this host (a
 *              lock file that was replaced), that nobody waits for himself.
 * Does not:    decide between hosts (lock.c), nor end a hold: the kernel does.
 * Threads:     the loop's.
 * Specification: design section 7, I4 and I5; zkflock(7), GROUPS.
 * SPDX-License-Identifier: Apache-2.0
 *
 * The kernel can't arbitrate between two inodes, so that of a group no lock call waits in the kernel: the keeper lets one
 * through when nobody else's hold is in its way.  The kernel remains the truth about what is held; what is kept here is
 * only who took it, because the kernel remembers the process, and the owner is the thread:
 *
 *     granted (COVERED) --hang-up--> hold: (thread, file, descriptor) --the kernel shows it no more--> (end)
 *           counts as a hold              |
 *                                         +-- shown by its process, the thread lives   --> that thread's alone
 *                                         +-- shown by its process, the thread is gone --> the process's
 *                                         +-- shown by other processes only            --> theirs: ( flock 9; ... ) 9>file
 *
 * A lock that the kernel has and no hold explains was there before this keeper, or is of a program without the library.
 * It belongs to who shows it; if that may be another thread than the one that asks, it is in the way.
 *
 * If a program dies at any point, the kernel shows less, and that is all.  If the keeper dies, the next one reads who was
 * granted what from the state directory (written before the answer), and again the kernel says what of it is true.
 */
#ifndef ZKF_HOLDS_H
#define ZKF_HOLDS_H

#include "lock.h"

/*
 * zkf_holds_arrive - a demand for a file of a group: who asks, and for the whole
 *
 * passed_fd  the program's descriptor, as received
 */
void zkf_holds_arrive(struct zkf_demand *demand, int passed_fd);

/*
 * zkf_holds_conflict - is another owner of this host in the way?
 *
 * For groups fills demand->owner_holds, process_holds, own_mode, way_pid and way_mode as well.  Also true when it can't be
 * told.
 */
bool zkf_holds_conflict(struct zkf_lock *lock, struct zkf_demand *demand);

/*
 * zkf_holds_deadlock - would this F_SETLKW wait for itself?
 *
 * Two threads of this host read a group and both wait to write: as the kernel does for one file, one of them is told.
 */
bool zkf_holds_deadlock(const struct zkf_demand *demand);

/* zkf_holds_another_thread - is what its description holds another thread's, so that no conversion may drop it? */
bool zkf_holds_another_thread(const struct zkf_demand *demand);

/* zkf_holds_promise - it is about to be answered COVERED: a keeper that follows must know whose lock this will be */
void zkf_holds_promise(const struct zkf_demand *demand);

/* zkf_holds_note - a demand ends; if it was granted its thread may hold the file from now on */
void zkf_holds_note(const struct zkf_demand *demand);

/* zkf_holds_look - zkf_recall_look for a file of a group: file->in_use, all or nothing */
void zkf_holds_look(struct zkf_file *file);

/* zkf_holds_forget - the file is not known any more */
void zkf_holds_forget(struct zkf_file *file);

/* zkf_holds_adopt - what a former keeper has promised, for the files that are known again */
void zkf_holds_adopt(void);

/* For `zkflock list`: what is held of a file, one call for each hold; the count. */
struct zkf_hold_row {
	const struct zkf_file *file;
	int32_t pid, task;
	uint8_t mode;
};
int zkf_holds_each(struct zkf_lock *lock, void (*each)(void *owner, const struct zkf_hold_row *row), void *owner);

#endif
