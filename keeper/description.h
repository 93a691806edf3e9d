/*
 * keeper/description.h - an open file description that programs have: is it the same, and has anybody still got it?
 *
 * Answers for: what the kernel does by itself for a lock that hangs on a description; needed where the kernel refuses the
 *              lock (refused.h).
 * Does not:    know locks.
 * Threads:     the loop's.
 * Specification: kcmp(2) KCMP_FILE; inotify(7) IN_CLOSE; unix(7), proc_pid_fdinfo(5) scm_fds; pidfd_getfd(2).
 * SPDX-License-Identifier: Apache-2.0
 *
 * We hold a duplicate, so that it can be told from others for good: a number in a process is used again.  While somebody
 * shows it under /proc it is alive.  When nobody does, it may still be on its way through a socket, mapped into memory, or
 * in a process that we can't see.  Only the kernel knows; and it tells, once: if we close our duplicate and it was the last
 * reference, then inotify reports the inode's IN_CLOSE before close(2) returns.
 *
 *     SEEN --nobody shows it--> HIDDEN --our duplicate is closed--> IN_CLOSE: gone
 *       ^                         |                                 none: LOST, and alive somewhere
 *       +-------- shown ----------+
 *
 * Something in a socket's queue stays there until it is taken out: as long as one and the same queue has descriptors it may
 * be in it, and we wait, for some time.
 *
 * LOST can't be told from others any more.  It counts as alive until nobody has the inode open, but by descriptions that
 * are known to be others.  If one description alone is
 * left, then it is that one again.
 */
#ifndef ZKF_DESCRIPTION_H
#define ZKF_DESCRIPTION_H

#include <stdbool.h>
#include <stdint.h>

struct zkf_file;

/* Sockets, by inode, with descriptors in their queues; count may say one more than there is room for: many. */
#define ZKF_FLIGHTS_MAX 16
struct zkf_flights {
	uint64_t sockets[ZKF_FLIGHTS_MAX];
	int count;
};

struct zkf_description {
	uint64_t id;    /* in the store (store.h); 0: not there */
	uint64_t start; /* starttime of ... */
	int32_t pid;    /* ... the process that has shown it last ... */
	int32_t number; /* ... as this descriptor */
	int fd;         /* our duplicate; -1: none */
	bool lost;
	int64_t lost_ns;         /* since when; 0: before we came */
	int64_t hidden_since_ns; /* 0: it is shown */
	struct zkf_flights in;   /* one of these may have it, all the time since */
	int64_t scan_due_ns;     /* not before, all processes are searched again */
};

/*
 * zkf_description_init - of a process's descriptor
 *
 * fd  ours, the same description; a duplicate is made.  0 or a negative errno, then nothing is to be freed
 */
int zkf_description_init(struct zkf_description *description, uint64_t id, int32_t pid, int32_t number, int fd);
void zkf_description_free(struct zkf_description *description);

/* zkf_description_adopt - by its id, or else by process and number.  It may be LOST afterwards. */
void zkf_description_adopt(struct zkf_description *description, const struct zkf_file *file);

/* zkf_description_is - is that what this descriptor of ours refers to? */
bool zkf_description_is(const struct zkf_description *description, int fd);

/* zkf_description_works - can descriptions be told from each other at all?  0 or the negative errno of kcmp(2) */
int zkf_description_works(int fd);

/*
 * zkf_description_at - does a process show it as this descriptor?
 *
 * Returns 1, 0, or -EACCES: not to be told.
 */
int zkf_description_at(const struct zkf_description *description, const struct zkf_file *file, int32_t pid,
                       int32_t number);

/* Is what a process shows as that descriptor known to be another description than this one, which is LOST? */
typedef bool zkf_description_other(const struct zkf_description *lost, const struct zkf_file *file, int32_t pid,
                                   int32_t number);

enum zkf_life {
	ZKF_GONE,
	ZKF_LIVES,
	ZKF_LIFE_DOUBT, /* it counts as alive; asked again a moment later there is an answer */
};

/*
 * zkf_description_life - has anybody still got it?  ZKF_LIVES if that can't be told.
 *
 * other  tells of LOST ones whom else the file's descriptors belong to
 * moved  set when another process or number has shown it than the last time
 */
enum zkf_life zkf_description_life(struct zkf_description *description, const struct zkf_file *file,
                                   zkf_description_other *other, bool *moved);

/* zkf_description_find_again - LOST: is it the only one that is left?  Then it is not LOST any more */
void zkf_description_find_again(struct zkf_description *description, const struct zkf_file *file,
                                zkf_description_other *other);

/* zkf_description_shown_as - does a process show what our fd refers to as this descriptor?  False if that can't be told */
bool zkf_description_shown_as(int fd, int32_t pid, int32_t number);

/*
 * zkf_descriptors_each - every descriptor of the file
 *
 * pid   of one process, or 0: of all but the keeper's
 * each  returns false to end it
 *
 * Returns 0, or -EACCES: some could not be seen.
 */
int zkf_descriptors_each(const struct zkf_file *file, int32_t pid,
                         bool (*each)(void *context, int32_t pid, int32_t number), void *context);

#endif
