/*
 * keeper/state.h - what a keeper leaves to its successor, in the runtime directory
 *
 * Answers for: the files "session" (id, password and servers, 0600), "files" (which inode is which lock), "promises" (which
 *              thread was let in to a group), "refused" (what is held where the kernel refuses locks) and "stopped" (whom we
 *              stopped).  They should live on tmpfs: a machine that has restarted has no holders, and its clock and its
 *              process numbers begin again.
 * Does not:    keep holders: the kernel knows them.  It does not know threads, hence the promises; nor, of some file systems,
 *              anything, hence "refused".
 * Threads:     the loop's; main's before.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Whoever writes here holds the directory's lock, so there is one writer.  A record is complete or ignored: "session" and
 * "stopped" are replaced by rename, "files", "promises" and "refused" are appended to by single writes of a line.
 */
#ifndef ZKF_STATE_H
#define ZKF_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "holders.h"
#include "resolve.h"

/* Names the keeper that runs; there is none where one has ended orderly. */
#define ZKF_STATE_PID "pid"

/* zkf_state_init - directory_fd stays open as long as the process lives */
void zkf_state_init(int directory_fd);

struct zkf_state_session {
	int64_t id;
	char password[16];
	char addresses[ZKF_ADDRESSES_BYTES]; /* of its servers, numeric: a keeper that follows needs no name service */
};

/* zkf_state_session_load - 0, or -ENOENT: none that can be used */
int zkf_state_session_load(struct zkf_state_session *session);
/* zkf_state_session_save - NULL forgets it; 0 or a negative errno */
int zkf_state_session_save(const struct zkf_state_session *session);

struct zkf_state_file {
	uint64_t dev, ino;
	uint32_t kind;
	bool group;       /* of a group lock */
	const char *lock; /* encoded name */
	const char *path;
};

/* zkf_state_file_add - before anything is claimed for it; 0 or a negative errno */
int zkf_state_file_add(const struct zkf_state_file *file);
/* zkf_state_files_each - every record, in order of adding; 0 or a negative errno: there may be more */
int zkf_state_files_each(void (*each)(const struct zkf_state_file *file));
/* zkf_state_files_restart - now, or when many have been added: begin anew; the callback adds what is still known */
void zkf_state_files_restart(void (*add_all)(void), bool now);

/* A thread that was let in to a group through a file: holds.h. */
struct zkf_state_promise {
	uint64_t dev, ino;
	uint32_t kind;
	struct zkf_thread thread;
	int64_t start, end;
	int32_t fd;
	uint8_t mode;
	bool posix;
};

/* zkf_state_promise_add - before the answer; 0 or a negative errno */
int zkf_state_promise_add(const struct zkf_state_promise *promise);
int zkf_state_promises_each(void (*each)(const struct zkf_state_promise *promise));
/* zkf_state_promises_restart - as zkf_state_files_restart */
void zkf_state_promises_restart(void (*add_all)(void), bool now);

/* What one owner got, or gave back (mode ZKF_NONE), or where its description was seen (ZKF_STATE_SEEN): refused.h. */
#define ZKF_STATE_SEEN 3
struct zkf_state_refused {
	uint64_t dev, ino;
	uint32_t kind;
	uint64_t id; /* of the owner */
	bool posix;  /* it is a process, pid; else its description was seen there */
	int32_t pid;
	uint64_t process_start;
	int32_t number; /* of a descriptor */
	uint8_t mode;
	int64_t start, end;
};

/* zkf_state_refused_add - before the answer; 0 or a negative errno.  In order of adding they tell what is held. */
int zkf_state_refused_add(const struct zkf_state_refused *refused);
int zkf_state_refused_each(void (*each)(const struct zkf_state_refused *refused));
/* zkf_state_refused_restart - as zkf_state_files_restart */
void zkf_state_refused_restart(void (*add_all)(void), bool now);

/* zkf_state_forget_processes - the machine has started again: their numbers are others' now */
void zkf_state_forget_processes(void);

struct zkf_state_process {
	int32_t pid;
	uint64_t start; /* starttime of proc_pid_stat(5): a pid alone may be another's by now */
};

/* More than this many are not noted. */
#define ZKF_STATE_STOPPED_MAX 4096
int zkf_state_stopped_save(const struct zkf_state_process *processes, size_t count);
/* zkf_state_stopped_load - returns how many, at most `most` */
size_t zkf_state_stopped_load(struct zkf_state_process *processes, size_t most);

#endif
