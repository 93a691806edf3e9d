/*
 * preload/range.h - a program's struct flock -> the bytes it means
 *
 * Answers for: the kernel's arithmetic of l_whence, l_start, l_len, and the two layouts of the structure.
 * Does not:    lock, or read memory of the program that it was not told is readable.
 * Threads:     pure functions, but for lseek and fstat on the program's descriptor.
 * Specification: fcntl(2); flock64_to_posix_lock() in Linux fs/locks.c, in its order of checks.
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ZKF_RANGE_H
#define ZKF_RANGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libc.h"

/* A lock structure of the program, whichever its layout. */
struct zkf_record {
	short type, whence;
	int64_t start, len;
	int pid;
};

/* zkf_record_bytes - size of the structure behind a lock command: struct flock64 if wide, else struct flock */
size_t zkf_record_bytes(bool wide);

/* zkf_record_load - copy it out of the program's memory, which is readable */
void zkf_record_load(struct zkf_record *record, const void *arg, bool wide);

/* zkf_record_store - the answer to F_GETLK into the program's memory: 0, or -EOVERFLOW if the layout can't hold it */
int zkf_record_store(const struct zkf_record *record, void *arg, bool wide);

/*
 * zkf_range_resolve - the absolute range [start, end] that a record means on a descriptor
 *
 * end  the last byte; ZKF_RANGE_MAX when l_len is 0
 *
 * Returns 0; -EINVAL (l_whence, or a byte before 0); -EOVERFLOW (beyond the largest offset).
 */
int zkf_range_resolve(int fd, const struct zkf_record *record, int64_t *start, int64_t *end);

/* zkf_range_flock - the kernel's structure for an absolute range; type: F_RDLCK, F_WRLCK or F_UNLCK */
struct flock64 zkf_range_flock(int64_t start, int64_t end, short type);

#endif
