/*
 * preload/flock_path.c - flock(2) on the cluster; see flock_path.h
 *
 * Answers for: see flock_path.h.
 * Does not:    see flock_path.h.
 * Threads:     see flock_path.h.
 * Specification: see flock_path.h.
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include "flock_path.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "cover.h"
#include "page.h"
#include "real.h"
#include "settings.h"

static int flock_unlock(int fd, int op)
{
	return zkf_cover_unlocked(fd, ZKF_FLOCK, false, 0, ZKF_RANGE_MAX, zkf_real_flock(fd, op));
}

/*
 * The whole call by the shared page alone (keeper/page.h has the timeline): read the state, take the kernel's lock,
 * read the state again.  The same word means that no recall began before the lock was there to be seen.
 *
 * A kernel's "would block" counts only with the same word, too: the keeper's trial lock, which it takes after it has
 * published a recall, would look like a holder.
 */
static enum zkf_fast flock_fast(int fd, int op, enum zkf_mode mode, const struct stat64 *st, int *result)
{
	struct zkf_sight sight;

	if (!zkf_page_covers(&sight, st->st_dev, st->st_ino, ZKF_FLOCK, mode))
		return ZKF_FAST_NOTHING;
	*result = zkf_real_flock(fd, op);
	if (zkf_real_refuses(*result))
		return ZKF_FAST_NOTHING; /* then the keeper arbitrates */
	if (*result == -EWOULDBLOCK)
		return zkf_page_unchanged(&sight) ? ZKF_FAST_DONE : ZKF_FAST_NOTHING;
	if (*result)
		return ZKF_FAST_DONE;
	return zkf_page_unchanged(&sight) && zkf_page_leased(sight.page) ? ZKF_FAST_DONE : ZKF_FAST_HELD;
}

static int flock_slow(int fd, int op, enum zkf_mode mode, const struct stat64 *st, const struct zkf_settings *settings,
                      bool held)
{
	struct zkf_lock lock = {
		.fd = fd,
		.kind = ZKF_FLOCK,
		.mode = mode,
		.flags = (op & LOCK_NB) ? ZKF_FLAG_NONBLOCK : 0,
		.end = ZKF_RANGE_MAX,
		.command = op,
		.dev = st->st_dev,
		.ino = st->st_ino,
		.settings = settings,
	};

	if (op & LOCK_NB)
		lock.patience = zkf_patience_bounded(settings);
	return zkf_cover_lock(&lock, held);
}

/* Descriptors that flock(2) refuses: O_PATH, and access mode 3, which allows ioctl(2) alone. */
static bool kernel_refuses(int fd)
{
	int flags = zkf_real_fcntl(fd, F_GETFL, 0);

	return flags < 0 || (flags & O_PATH) || (flags & O_ACCMODE) == O_ACCMODE;
}

static int flock_lock(int fd, int op, enum zkf_mode mode)
{
	const struct zkf_settings *settings;
	bool had_page = zkf_page_current() != NULL;
	enum zkf_fast fast;
	struct stat64 st;
	int result;

	if (fstat64(fd, &st) || !(S_ISREG(st.st_mode) || S_ISDIR(st.st_mode)))
		return zkf_real_flock(fd, op);
	fast = flock_fast(fd, op, mode, &st, &result);
	if (fast == ZKF_FAST_DONE)
		return result;
	switch (zkf_judge(fd, &st, ZKF_FLOCK, &settings)) {
	case ZKF_VERDICT_KERNEL:
		/* Held: there was cover a moment ago, and the rules have changed since.  The lock stands. */
		return fast == ZKF_FAST_HELD ? 0 : zkf_real_flock(fd, op);
	case ZKF_VERDICT_REFUSE:
		if (fast == ZKF_FAST_HELD)
			flock_unlock(fd, LOCK_UN);
		return kernel_refuses(fd) ? zkf_real_flock(fd, op) : zkf_refuse(fd, &st);
	default:
		break;
	}
	if (fast == ZKF_FAST_NOTHING && kernel_refuses(fd))
		return zkf_real_flock(fd, op);
	/* A keeper that works already has a page with a valid lease: its cover can serve a program's very first lock. */
	if (fast == ZKF_FAST_NOTHING && !had_page && zkf_page_current()) {
		fast = flock_fast(fd, op, mode, &st, &result);
		if (fast == ZKF_FAST_DONE)
			return result;
	}
	return flock_slow(fd, op, mode, &st, settings, fast == ZKF_FAST_HELD);
}

int zkf_flock(int fd, int op)
{
	switch (op & ~LOCK_NB) {
	case LOCK_UN:
		return flock_unlock(fd, op);
	case LOCK_SH:
		return flock_lock(fd, op, ZKF_SHARED);
	case LOCK_EX:
		return flock_lock(fd, op, ZKF_EXCLUSIVE);
	default:
		return zkf_real_flock(fd, op);
	}
}
