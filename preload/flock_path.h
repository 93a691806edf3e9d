/*
 * preload/flock_path.h - flock(2) on the cluster
 *
 * Answers for: the whole of flock as an ordinary function: 0 or a negative errno.
 * Does not:    touch errno's meaning for the program (entry.c), or start anything for a file that no rule maps.
 * Threads:     any thread, any signal handler, a vfork child.  Not a cancellation point, as in libc.
 * Specification: flock(2); design section 6.
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ZKF_FLOCK_PATH_H
#define ZKF_FLOCK_PATH_H

/* zkf_flock - flock(2): 0, or a negative errno; -ENOLCK where the cluster can't be asked */
int zkf_flock(int fd, int op);

#endif
