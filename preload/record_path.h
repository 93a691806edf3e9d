/*
 * preload/record_path.h - fcntl(2) record locks and lockf(3) on the cluster
 *
 * Answers for: the lock commands of fcntl and the whole of lockf as ordinary functions: 0 or a negative errno.
 * Does not:    know any other command of fcntl.
 * Threads:     any thread, any signal handler, a vfork child.  Cancellation points where libc has them: F_SETLKW,
 *              F_OFD_SETLKW, F_LOCK, and only while they wait.
 * Specification: fcntl(2) "Advisory record locking", "Open file description locks"; lockf(3); design section 6.
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ZKF_RECORD_PATH_H
#define ZKF_RECORD_PATH_H

#include <stdbool.h>
#include <stdint.h>

/* zkf_record_is_command - is this a lock command of fcntl? */
bool zkf_record_is_command(int cmd);

/*
 * zkf_record_fcntl - a lock command
 *
 * arg   the program's pointer, perhaps a bad one
 * wide  it points to a struct flock64
 *
 * Returns 0, or a negative errno; -ENOLCK where the cluster can't be asked.
 */
int zkf_record_fcntl(int fd, int cmd, void *arg, bool wide);

/* zkf_record_lockf - lockf(3): 0, or a negative errno */
int zkf_record_lockf(int fd, int op, int64_t len);

#endif
