/*
 * mapping/files.h - the configuration's files in memory: the main file and what is dropped in beside it
 *
 * Answers for: which files there are (FILE, then FILE.d/[!.]*.conf in byte order), their bytes, and the bounds of both.
 * Does not:    parse them.
 * Threads:     works on memory of its own, from mmap; any thread, any signal handler: raw system calls only, no
 *              cancellation point, every descriptor closed before it returns.  errno may be changed.
 * Specification: zkflock.conf(5), "FILES".
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ZKF_FILES_H
#define ZKF_FILES_H

#include <limits.h>

#include "config.h"

/* What is larger is no configuration but a mistake. */
#define ZKF_FILES_MAX 65 /* the main file and 64 others */
#define ZKF_FILES_TEXT_BYTES_MAX (1 << 20)
#define ZKF_FILES_PATH_BYTES (PATH_MAX + 2 + NAME_MAX + 1) /* of FILE.d/NAME, with its NUL */

/* One mapping; everything that the list points to is in it. */
struct zkf_files {
	size_t map_bytes;
	size_t count;
	struct zkf_config_file list[ZKF_FILES_MAX];
};

struct zkf_files_failure {
	char path[ZKF_FILES_PATH_BYTES]; /* of the file that can't be had */
	const char *why;                 /* more than the error says, or NULL */
};

/*
 * zkf_files_load - read them
 *
 * main     path of the main file; it must be there, the directory beside it need not
 * open_fd  open(2) for reading, close-on-exec, with these more flags; a negative errno when the file is not wanted
 * failure  filled when the result is not 0; may be NULL
 *
 * Returns 0; -EFBIG or -E2BIG beyond the bounds above; -ENAMETOOLONG; -ENOMEM; or what open, read and getdents64 say.
 */
int zkf_files_load(const char *main, int (*open_fd)(const char *path, int flags), struct zkf_files **files,
                   struct zkf_files_failure *failure);

void zkf_files_free(struct zkf_files *files);

/* zkf_files_same - the same files with the same bytes? */
bool zkf_files_same(const struct zkf_files *a, const struct zkf_files *b);

/* zkf_files_copy - into memory of at least from->map_bytes */
void zkf_files_copy(struct zkf_files *to, const struct zkf_files *from);

/* Enough for any: what zkf_files_load ever needs. */
size_t zkf_files_bytes_max(void);

#endif
