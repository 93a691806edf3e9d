/*
 * preload/holdings.h - what an owner holds of a file before a lock call, so that a call that comes to nothing changes nothing
 *
 * Answers for: a call that took the kernel's lock and then learned that the cluster's cover is gone leaves its owner with
 *              just what he held before.
 * Does not:    know cover or the keeper.
 * Threads:     plain data on the caller's stack.  Another thread that locks the same bytes for the same process during
 *              the call is not seen: POSIX makes no difference between them.
 * Specification: proc_pid_fdinfo(5), "lock" lines; fcntl(2): one process has one lock on a byte, whatever descriptor it
 *              was set through; flock(2): one open file description has one lock.
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ZKF_HOLDINGS_H
#define ZKF_HOLDINGS_H

#include <stdbool.h>
#include <stdint.h>

#include "keeper/wire.h"

struct zkf_holdings {
	bool known; /* false: nobody has looked, or it can't be told */
	int count;
	struct zkf_holding {
		int64_t start, end; /* inclusive */
		uint8_t mode;       /* enum zkf_mode */
	} items[ZKF_HOLDINGS_MAX];  /* disjoint; in no order until zkf_holdings_restore */
};

/*
 * zkf_holdings_read - what the owner holds of [start, end]
 *
 * fd        the program's descriptor of the file
 * dev, ino  the file
 * ofd       records: the owner is fd's open file description; else the process
 *
 * holdings->known is false if /proc tells nothing, or of more than ZKF_HOLDINGS_MAX pieces.
 */
void zkf_holdings_read(struct zkf_holdings *holdings, int fd, uint64_t dev, uint64_t ino, enum zkf_kind kind, bool ofd,
                       int64_t start, int64_t end);

/*
 * zkf_holdings_nobody - has neither the owner nor anybody else of this host a record lock in [start, end]?
 *
 * One system call; false also when that fails.
 */
bool zkf_holdings_nobody(int fd, bool ofd, int64_t start, int64_t end);

/*
 * zkf_holdings_restore - after a lock of [start, end] in `mode`: give the kernel back what was not held before
 *
 * What was not known is given back whole.  A stronger lock that this call has weakened stays weakened.
 */
void zkf_holdings_restore(struct zkf_holdings *holdings, int fd, enum zkf_kind kind, bool ofd, enum zkf_mode mode,
                          int64_t start, int64_t end);

#endif
