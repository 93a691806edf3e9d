/*
 * keeper/holders.h - who has a lock on a file, as /proc shows it; and which thread is which
 *
 * Answers for: the locks that a process, or any process, has on one inode through its descriptors; the identity of a
 *              thread, so that a number that is used again is not taken for the same one.
 * Does not:    decide anything; keeps nothing.
 * Threads:     the loop's.
 * Specification: proc_pid_fdinfo(5), proc_pid_stat(5), pid_namespaces(7).
 * SPDX-License-Identifier: Apache-2.0
 *
 * Not seen are descriptors on their way through a socket, and processes of another pid namespace or behind hidepid.  Who
 * asks must treat a lock that the kernel has and nobody shows as somebody else's.
 */
#ifndef ZKF_HOLDERS_H
#define ZKF_HOLDERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct zkf_file;

/* A thread for good.  In our own pid namespace; task 0: not to be told, and then equal to nobody, not even to itself. */
struct zkf_thread {
	uint64_t process_start, thread_start; /* starttime of proc_pid_stat(5) */
	int32_t pid, task;
};

/*
 * zkf_thread_of - who is it?
 *
 * pid  the peer's, as SO_PEERCRED tells; <= 0: it is of another namespace
 * tid  as the program itself sees it: in its own namespace
 */
void zkf_thread_of(struct zkf_thread *thread, int32_t pid, int32_t tid);

bool zkf_thread_same(const struct zkf_thread *a, const struct zkf_thread *b);
bool zkf_thread_lives(const struct zkf_thread *thread);
/* zkf_thread_process_lives - the process, with or without that thread */
bool zkf_thread_process_lives(const struct zkf_thread *thread);
/* zkf_process_start - starttime; of a zombie too, so a process looks whose first thread has ended; 0: gone */
uint64_t zkf_process_start(int32_t pid);
/* zkf_process_has_ended - reaped or not; false also if that can't be told */
bool zkf_process_has_ended(int32_t pid);
/* zkf_process_is_single - has it one thread only?  False also if that can't be told. */
bool zkf_process_is_single(int32_t pid);

enum zkf_holder_type { ZKF_HOLDER_FLOCK, ZKF_HOLDER_POSIX, ZKF_HOLDER_OFD };

/* One lock as one descriptor of one process shows it: a description that several have shows several times. */
struct zkf_holder {
	int64_t start, end;
	uint64_t ino;  /* as the kernel prints it for locks: not every file system shows programs the same */
	int32_t pid;   /* whose descriptor */
	int32_t fd;    /* its number there */
	int32_t taker; /* flock: who took it, perhaps gone, 0 if it can't be told; record: the owner, -1 for OFD */
	uint8_t mode;
	uint8_t type; /* enum zkf_holder_type */
	bool noted;   /* not the kernel's: refused.h */
};

struct zkf_holders {
	struct zkf_holder *items;
	size_t count, capacity;
};

int zkf_holders_add(struct zkf_holders *holders, const struct zkf_holder *holder); /* 0 or -ENOMEM */
void zkf_holders_free(struct zkf_holders *holders);

/*
 * zkf_holders_at - what one descriptor of a process shows of the file; adds to holders
 *
 * Returns how many were added (0: the number is closed, or another file's), -EACCES, or -ENOMEM.
 */
int zkf_holders_at(const struct zkf_file *file, int32_t pid, int32_t fd, struct zkf_holders *holders);

/* zkf_holders_of - all descriptors of a process; as zkf_holders_at, and 0 for a process that is gone */
int zkf_holders_of(const struct zkf_file *file, int32_t pid, struct zkf_holders *holders);

/* zkf_holder_same - do two descriptors share their description?  False also if that can't be told. */
bool zkf_holder_same(const struct zkf_holder *a, const struct zkf_holder *b);

/* zkf_holders_all - all descriptors of all processes but our own; 0, or -ENOMEM, or -EACCES: some could not be seen */
int zkf_holders_all(const struct zkf_file *file, struct zkf_holders *holders);

/*
 * zkf_holders_listed - how many flocks of this inode that this process took does /proc/locks know?
 *
 * ino  as in zkf_holder
 *
 * Returns the count, also of descriptors that are on their way through a socket and of takers that are gone; or -EINVAL:
 * not to be told, since we live in a pid namespace, where the latter are left out.
 */
int zkf_holders_listed(uint64_t ino, int32_t taker);

#endif
