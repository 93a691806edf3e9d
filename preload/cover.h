/*
 * preload/cover.h - a lock call that must ask the keeper
 *
 * Answers for: invariants I1 and I4 on the program's side: no success before the kernel has granted the lock and the
 *              host's cover was seen to be good after that.
 * Does not:    validate arguments or know the fast path; those are flock_path.c and record_path.c.
 * Threads:     all state is in struct zkf_lock on the caller's stack.
 * Specification: design sections 4 and 6; keeper/wire.h; keeper/page.h.
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ZKF_COVER_H
#define ZKF_COVER_H

#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>

#include "conversation.h"
#include "holdings.h"
#include "keeper/wire.h"
#include "settings.h"

/* How far the shared page alone has brought a call. */
enum zkf_fast {
	ZKF_FAST_DONE,    /* it is over, with a result */
	ZKF_FAST_NOTHING, /* nothing was taken: the slow path from its start */
	ZKF_FAST_HELD,    /* the kernel's lock is taken, the cover is in doubt */
};

/* One lock that a program asks for. */
struct zkf_lock {
	int fd;
	enum zkf_kind kind;
	enum zkf_mode mode;
	uint8_t flags;      /* ZKF_FLAG_NONBLOCK, ZKF_FLAG_OFD */
	int64_t start, end; /* flock: 0, ZKF_RANGE_MAX */
	int command;        /* flock: the program's operation; record: F_SETLK64, F_SETLKW64, F_OFD_SETLK(W) */
	uint64_t dev, ino;
	const struct zkf_settings *settings;
	struct zkf_patience patience;
	struct zkf_holdings before; /* what its owner held when the kernel was asked; set by cover.c, or with `held` */
	bool interrupted;           /* a signal that the kernel would have reported has not been yet; cover.c's own */
};

/*
 * zkf_cover_lock - take the lock, in the cluster and in the kernel
 *
 * held  the kernel's lock has been taken already, by the fast path, whose cover went meanwhile
 *
 * Returns 0; -EWOULDBLOCK (flock) or -EAGAIN (they are the same); -EINTR; -EDEADLK; -ENOLCK (no keeper, no ZooKeeper);
 * or what the kernel says.  After an error the owner holds what he held before.
 */
int zkf_cover_lock(struct zkf_lock *lock, bool held);

/*
 * zkf_cover_query - F_GETLK's question to the other hosts
 *
 * reply  filled when the result is 0; its answer is FREE, HELD, UNMAPPED or LOCAL
 *
 * Returns 0, -ENOLCK, or the keeper's error.
 */
int zkf_cover_query(struct zkf_lock *lock, struct zkf_reply *reply);

/* zkf_cover_unlock_matters - after an unlock with this result: is zkf_cover_unlocked worth the range that it wants? */
bool zkf_cover_unlock_matters(int result);

/*
 * zkf_cover_unlocked - after an unlock in the kernel: tell the keeper, if it waits for that or holds the lock itself
 *
 * ofd         records: the owner is fd's open file description
 * start, end  what was unlocked
 * result      what the kernel said: 0 or a negative errno
 *
 * Returns the call's result: 0, also where the kernel refuses (zkf_real_refuses) and the keeper has done it; -ENOLCK if that
 * keeper can't be asked; else what the kernel said.  Waits only for a keeper that holds the lock itself, and not for ever.
 */
int zkf_cover_unlocked(int fd, enum zkf_kind kind, bool ofd, int64_t start, int64_t end, int result);

#endif
