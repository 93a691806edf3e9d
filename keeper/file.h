/*
 * keeper/file.h - one file (inode, kind) that local programs lock: the kernel's truth about it, its slot in the page
 *
 * Answers for: our own descriptor of the inode, who holds what (I5), a hint when it may have changed.
 * Does not:    remember holders: it asks the kernel.
 * Threads:     the loop's.
 * Specification: design I4 to I6; flock(2), fcntl(2) F_OFD_GETLK, proc_pid_fdinfo(5), inotify(7).
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ZKF_FILE_H
#define ZKF_FILE_H

#include <sys/stat.h>

#include "lock.h"

struct zkf_file {
	struct {
		uint64_t dev, ino;
		uint64_t kind;
	} key;
	UT_hash_handle hh;
	struct zkf_lock *lock;
	struct zkf_file *next; /* of lock->files */
	int fd;                /* our own open file description: pins the inode (I6) */
	uint32_t slot;
	int watch;               /* inotify's, or -1 */
	UT_hash_handle by_watch; /* of one of the files that share the watch, the two kinds of an inode */
	bool hashed_by_watch;
	char *path;
	struct zkf_ranges in_use; /* of the last look: valid in the step that took it only */
	uint64_t looked_step;
	/* Of a group (holds.h): */
	struct zkf_hold *holds;
	uint8_t seen_mode;   /* what the last real look has found, or been taken since */
	bool blind;          /* memory ran out while it was looked at: it may be in use */
	int64_t scan_due_ns; /* not before, all processes are searched again */
	bool outdated; /* the rules have another lock for it, or none: every request comes to us, until it may change */
	/* Where the kernel refuses to lock it (refused.h): */
	struct zkf_refused *refused; /* who has what */
	bool refuses;
	bool in_doubt; /* somebody who counts as an owner may turn out to have ended */
	bool served;   /* some program's call may have been served by the kernel, so that it may have locks */
	bool adopted_badly;
	uid_t account; /* users.h: on whose it goes; 0: nobody's */
	bool guessed;  /* in_use is "all, exclusive" because the kernel could not be asked, or had too much to tell */
};

/* zkf_file_init - inotify; 0 or a negative errno */
int zkf_file_init(void);

struct zkf_file *zkf_file_find(uint64_t dev, uint64_t ino, uint32_t kind);

/*
 * zkf_file_open - know a file from now on
 *
 * passed_fd  the program's descriptor, as it was received; not kept
 *
 * Returns 0, -ENOMEM, -ENFILE (the table is full), or the negative errno of opening it.
 */
int zkf_file_open(struct zkf_file **made, struct zkf_lock *lock, int passed_fd, const struct stat *status,
                  const char *path, uint32_t kind);
void zkf_file_free(struct zkf_file *file);

/* zkf_file_know - an entry in the table for zkf_file_find alone, which nothing is open for; 0 or -ENOMEM */
int zkf_file_know(struct zkf_lock *lock, uint64_t dev, uint64_t ino, uint32_t kind, const char *path);

/* zkf_file_nearly_full - is it time to give back what is merely kept? */
bool zkf_file_nearly_full(void);

/*
 * zkf_file_look - what is in use: every lock that any process of this machine holds on the file
 *
 * Publish RECALLED before: the flock trial lock may refuse a program's LOCK_NB for an instant.
 * Returns 0, or a negative errno; then in_use says "all, exclusive", which is always safe.
 */
int zkf_file_look(struct zkf_file *file, struct zkf_ranges *in_use);

/* zkf_file_look_kernel - only what the kernel has; in_use is added to.  0 or a negative errno */
int zkf_file_look_kernel(struct zkf_file *file, struct zkf_ranges *in_use);

/*
 * zkf_file_identity - device and inode of name in a directory, from what the kernel has cached
 *
 * No file system is asked: a descriptor on a hard mount whose server is gone must not stop the keeper, least of all while
 * it stops programs.  0 or a negative errno of statx(2).
 */
int zkf_file_identity(int directory_fd, const char *name, uint64_t *dev, uint64_t *ino);

/* zkf_file_watch - hints on or off */
void zkf_file_watch(struct zkf_file *file, bool on);

/*
 * zkf_file_held_through - what one open file description holds, as its fdinfo says
 *
 * fd     of ours, sharing the description
 * type   "FLOCK" or "OFDLCK"
 */
int zkf_file_held_through(int fd, const char *type, struct zkf_ranges *held);

/*
 * zkf_file_held_by - what a process holds on the file: by itself (POSIX) and through any of its descriptors
 *
 * posix_only  only the locks that the process itself owns
 */
int zkf_file_held_by(const struct zkf_file *file, int32_t pid, bool posix_only, struct zkf_ranges *held);

/* zkf_file_held_text - zkf_claim_data.held of the records that conflict with these; *text allocated.  0 or -ENOMEM */
int zkf_file_held_text(const struct zkf_file *file, const struct zkf_ranges *of, char **text);

/* zkf_file_holder - some process that holds a lock on the file, for people; 0: can't be told */
int32_t zkf_file_holder(const struct zkf_file *file);

/*
 * zkf_file_holders - the processes that hold what conflicts with (start, end, mode); record kind, POSIX owners only
 *
 * Returns how many were found, at most `most`.
 */
int zkf_file_holders(const struct zkf_file *file, int64_t start, int64_t end, uint8_t mode, int32_t *pids, int most);

/*
 * zkf_file_note - write a new file down for a keeper that follows, before anything is claimed for it
 *
 * Returns 0, or a negative errno: then nobody may lock it, since a lock would be lost with this keeper.
 */
int zkf_file_note(const struct zkf_file *file);

/* zkf_file_note_again - write the list for a keeper that follows anew, with what is known now */
void zkf_file_note_again(void);

/* zkf_file_list - every file that is known; uthash's order */
struct zkf_file *zkf_file_list(void);

#endif
