/*
 * keeper/mapped.h - which lock, and which of its files, a program's descriptor means
 *
 * Answers for: descriptor -> path -> rule -> lock and file; files whose name or rule has changed since they were locked.
 * Does not:    speak the socket's protocol (server.c), nor decide who may lock (lock.c).
 * Threads:     the loop's.
 * Specification: design section 7; proc_pid_fd(5), statx(2).
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ZKF_MAPPED_H
#define ZKF_MAPPED_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "../mapping/config.h"

struct zkf_file;
struct zkf_lock;

/*
 * zkf_mapped_describe - as fstat(2), from what the kernel has cached: device, inode, mode, links
 *
 * With a network file system's server that is gone one descriptor must not hold up the keeper, mapped or not.
 * Returns 0 or a negative errno of statx(2).
 */
int zkf_mapped_describe(int fd, struct stat *status);

/* zkf_mapped_path - the path that the kernel has for a descriptor; its length, or a negative errno (-EINVAL: none) */
int zkf_mapped_path(int fd, const struct stat *status, char path[PATH_MAX + 1]);

/* zkf_mapped_rule - by the present rules; NULL: not mapped, as when path_bytes is not positive */
const struct zkf_rule *zkf_mapped_rule(const char *path, int path_bytes);

/* zkf_mapped_lock - find or make it; NULL with errno: no name can be made, or ENOMEM */
struct zkf_lock *zkf_mapped_lock(const struct zkf_rule *rule, uint32_t kind, const char *path, int path_bytes);

/*
 * zkf_mapped_file - find or make it
 *
 * lock    in: by the rules; out: the one it keeps, since it is in use under another name
 * uid     on whose account it goes
 *
 * Returns NULL with errno: EDQUOT (the user's limit), ENFILE or EMFILE (no room; what is unused is being given back), ENOMEM,
 * or why it can't be opened or written down.
 */
struct zkf_file *zkf_mapped_file(struct zkf_lock **lock, uint32_t kind, int fd, const struct stat *status,
                                 const char *path, uid_t uid);

/* zkf_mapped_keeps - known by another name (it was renamed): a file that is in use stays what it is, an idle one may change */
bool zkf_mapped_keeps(struct zkf_file *file);

/* zkf_mapped_rules - from now on by these, until the next call; files that are in use keep their locks */
void zkf_mapped_rules(const struct zkf_config *config);

#endif
