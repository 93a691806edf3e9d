/*
 * preload/record_path.c - fcntl(2) record locks and lockf(3) on the cluster; see record_path.h
 *
 * Answers for: see record_path.h.
 * Does not:    see record_path.h.
 * Threads:     see record_path.h.
 * Specification: see record_path.h.
 * SPDX-License-Identifier: Apache-2.0
 *
 * By the shared page alone a call goes only where nobody else of this host is in its way, and what the owner has in the range
 * is known: then it need not wait, and can be undone.  All others pin the cover by a conversation before they ask the kernel;
 * who waits there is known to the keeper, which looks for deadlocks.
 */
#define _GNU_SOURCE
#include "record_path.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cover.h"
#include "page.h"
#include "range.h"
#include "real.h"
#include "settings.h"

/* One call, taken apart. */
struct zkf_call {
	int fd, cmd;
	void *arg;
	const void *frame; /* of the function that has this structure */
	bool wide;         /* arg is a struct flock64 */
	bool get, wait, ofd;
	bool loaded;                /* arg could be read: */
	struct zkf_record record;   /* what it says */
	int64_t start, end;         /* what that means, once check_lock has passed it */
	struct zkf_holdings before; /* by the page: what the owner held of that */
	struct stat64 st;
	enum zkf_verdict verdict;
	const struct zkf_settings *settings;
};

static bool is_get(int cmd)
{
	return cmd == F_GETLK || cmd == F_GETLK64 || cmd == F_OFD_GETLK;
}

static bool is_wait(int cmd)
{
	return cmd == F_SETLKW || cmd == F_SETLKW64 || cmd == F_OFD_SETLKW;
}

static bool is_ofd(int cmd)
{
	return cmd == F_OFD_GETLK || cmd == F_OFD_SETLK || cmd == F_OFD_SETLKW;
}

/* Where off_t has 32 bits, F_SETLK and F_SETLK64 are two commands with two structures, whoever uses them. */
static bool is_wide(int cmd, bool wide_call)
{
	return is_ofd(cmd) ? wide_call : cmd == F_GETLK64 || cmd == F_SETLK64 || cmd == F_SETLKW64;
}

bool zkf_record_is_command(int cmd)
{
	return cmd == F_SETLK || cmd == F_SETLK64 || is_get(cmd) || is_wait(cmd) || is_ofd(cmd);
}

static int to_kernel(const struct zkf_call *call)
{
	return zkf_real_record(call->fd, call->cmd, call->arg, call->wide);
}

static int check_range(struct zkf_call *call)
{
	int result = zkf_range_resolve(call->fd, &call->record, &call->start, &call->end);

	if (result)
		return result;
	return call->record.type != F_RDLCK && call->record.type != F_WRLCK ? -EINVAL : 0;
}

static bool pid_is_refused(const struct zkf_call *call)
{
	return call->ofd && call->record.pid;
}

/*
 * What the kernel would refuse, in the order in which it looks: the range, the type, the access mode, l_pid.
 *
 * These are our own answers rather than the kernel's: were it to take what we think it refuses, the program would have
 * a lock that no cover stands behind.
 */
static int check_lock(struct zkf_call *call)
{
	int flags = zkf_real_fcntl(call->fd, F_GETFL, 0);
	int result, access;

	if (flags < 0)
		return flags;
	if (flags & O_PATH)
		return -EBADF;
	result = check_range(call);
	if (result)
		return result;
	access = flags & O_ACCMODE;
	if (access == O_ACCMODE || access == (call->record.type == F_WRLCK ? O_RDONLY : O_WRONLY))
		return -EBADF;
	return pid_is_refused(call) ? -EINVAL : 0;
}

static struct zkf_lock make_lock(const struct zkf_call *call)
{
	struct zkf_lock lock = {
		.fd = call->fd,
		.kind = ZKF_RECORD,
		.mode = call->record.type == F_WRLCK ? ZKF_EXCLUSIVE : ZKF_SHARED,
		.flags = (uint8_t)((call->ofd ? ZKF_FLAG_OFD : 0) | (call->wait ? 0 : ZKF_FLAG_NONBLOCK)),
		.dev = call->st.st_dev,
		.ino = call->st.st_ino,
		.settings = call->settings,
	};

	if (call->wait)
		lock.command = call->ofd ? F_OFD_SETLKW : F_SETLKW64;
	else
		lock.command = call->ofd ? F_OFD_SETLK : F_SETLK64;
	if (call->wait)
		lock.patience.cancellable = true;
	else
		lock.patience = zkf_patience_bounded(call->settings);
	return lock;
}

/* The configuration can't be read any more: a lock that the page alone has given goes back. */
static int refuse(struct zkf_call *call, bool held)
{
	if (held)
		zkf_holdings_restore(&call->before, call->fd, ZKF_RECORD, call->ofd,
		                     call->record.type == F_WRLCK ? ZKF_EXCLUSIVE : ZKF_SHARED, call->start, call->end);
	return zkf_refuse(call->fd, &call->st);
}

/* held: by the page, on the range that was resolved then */
static int record_lock(struct zkf_call *call, bool held)
{
	struct zkf_lock lock;
	int result = held ? 0 : check_lock(call);

	if (result)
		return result;
	if (call->verdict == ZKF_VERDICT_REFUSE)
		return refuse(call, held);
	lock = make_lock(call);
	lock.start = call->start;
	lock.end = call->end;
	if (held)
		lock.before = call->before;
	return zkf_cover_lock(&lock, held);
}

static int record_unlock(struct zkf_call *call)
{
	int result = to_kernel(call), error;

	if (!zkf_cover_unlock_matters(result))
		return result;
	error = zkf_range_resolve(call->fd, &call->record, &call->start, &call->end);
	if (error) /* the kernel has said so, or does not speak of locks at all */
		return zkf_real_refuses(result) ? error : result;
	return zkf_cover_unlocked(call->fd, ZKF_RECORD, call->ofd, call->start, call->end, result);
}

/*
 * frame  of a function that has not returned: the rest of its page, upwards, is stack as well.  Most programs have their
 *        structure there, and need no system call to find out whether it can be read.
 */
static bool on_the_stack(const struct zkf_call *call, const void *frame)
{
	const uintptr_t smallest_page_bytes = 4096;
	uintptr_t first = (uintptr_t)call->arg, last = first + zkf_record_bytes(call->wide) - 1;

	return first >= (uintptr_t)frame && last > first &&
	       last / smallest_page_bytes == (uintptr_t)frame / smallest_page_bytes;
}

static bool loaded(struct zkf_call *call)
{
	if (!call->loaded &&
	    (on_the_stack(call, call->frame) || zkf_real_readable(call->arg, zkf_record_bytes(call->wide)))) {
		zkf_record_load(&call->record, call->arg, call->wide);
		call->loaded = true;
	}
	return call->loaded;
}

/* Has nobody but the owner anything in the range, and can what he has there be put back?  That is in call->before. */
static bool only_own(struct zkf_call *call)
{
	struct flock64 probe;

	call->before.known = true;
	call->before.count = 0;
	if (zkf_holdings_nobody(call->fd, call->ofd, call->start, call->end))
		return true;
	probe = zkf_range_flock(call->start, call->end, call->record.type);
	if (zkf_real_fcntl(call->fd, call->ofd ? F_OFD_GETLK : F_GETLK64, (long)&probe) || probe.l_type != F_UNLCK)
		return false; /* it would have to wait */
	zkf_holdings_read(&call->before, call->fd, call->st.st_dev, call->st.st_ino, ZKF_RECORD, call->ofd, call->start,
	                  call->end);
	return call->before.known;
}

/*
 * The whole call by the shared page alone, as flock_path.c's; one that would have to wait has taken nothing.  The page
 * covers whatever the kernel lets the descriptor take, so the access mode is for the kernel to look at.
 */
static enum zkf_fast record_fast(struct zkf_call *call, int *result)
{
	enum zkf_mode mode = call->record.type == F_WRLCK ? ZKF_EXCLUSIVE : ZKF_SHARED;
	struct zkf_sight sight;
	struct flock64 range;

	if (!zkf_page_covers(&sight, call->st.st_dev, call->st.st_ino, ZKF_RECORD, mode) || check_range(call) ||
	    pid_is_refused(call) || !only_own(call))
		return ZKF_FAST_NOTHING;
	if (call->wait)
		zkf_real_cancellation_point();
	range = zkf_range_flock(call->start, call->end, call->record.type);
	*result = zkf_real_record_lock(call->fd, call->ofd ? F_OFD_SETLK : F_SETLK64, &range, -1, false);
	if (*result)
		return ZKF_FAST_NOTHING;
	return zkf_page_unchanged(&sight) && zkf_page_leased(sight.page) ? ZKF_FAST_DONE : ZKF_FAST_HELD;
}

/* A file that the page knows is mapped. */
static enum zkf_fast by_page(struct zkf_call *call, int *result)
{
	if (call->get || !zkf_page_knows(call->st.st_dev, call->st.st_ino, ZKF_RECORD) || !loaded(call))
		return ZKF_FAST_NOTHING;
	if (call->record.type != F_UNLCK)
		return record_fast(call, result);
	*result = record_unlock(call);
	return ZKF_FAST_DONE;
}

/* An unlock is the kernel's, whatever file it is; the page knows whether somebody wants to hear of it. */
static bool plain_unlock(struct zkf_call *call)
{
	return !call->get && zkf_page_current() && zkf_settings_loaded() && on_the_stack(call, call->frame) &&
	       loaded(call) && call->record.type == F_UNLCK;
}

static int store_holder(const struct zkf_call *call, const struct zkf_reply *reply)
{
	struct zkf_record holder = {
		.type = reply->mode == ZKF_EXCLUSIVE ? F_WRLCK : F_RDLCK,
		.whence = SEEK_SET,
		.start = reply->start,
		.len = reply->end == ZKF_RANGE_MAX ? 0 : reply->end - reply->start + 1,
		.pid = reply->pid,
	};

	return zkf_record_store(&holder, call->arg, call->wide);
}

/* The kernel's tests of the structure must be ours where it does not look at locks; it also has not written to it. */
static int check_query(struct zkf_call *call)
{
	size_t bytes = zkf_record_bytes(call->wide);
	char copy[64];
	int result = zkf_range_resolve(call->fd, &call->record, &call->start, &call->end);

	if (result)
		return result;
	if ((call->record.type != F_RDLCK && call->record.type != F_WRLCK) || (call->ofd && call->record.pid))
		return -EINVAL;
	memcpy(copy, call->arg, bytes);
	if (!zkf_real_writable(call->arg, bytes))
		return -EFAULT;
	memcpy(call->arg, copy, bytes);
	return 0;
}

/* F_GETLK of a file that the kernel does not lock: all that is held, on this host too, the keeper knows. */
static int refused_query(struct zkf_call *call, int refusal)
{
	struct zkf_reply reply;
	struct zkf_lock lock;
	int result = check_query(call);

	if (result)
		return result;
	lock = make_lock(call);
	lock.patience = zkf_patience_bounded(call->settings);
	lock.start = call->start;
	lock.end = call->end;
	result = zkf_cover_query(&lock, &reply);
	if (result)
		return result;
	if (reply.answer == ZKF_HELD)
		return store_holder(call, &reply);
	if (reply.answer != ZKF_FREE)
		return refusal;
	call->record.type = F_UNLCK;
	return zkf_record_store(&call->record, call->arg, call->wide);
}

/*
 * F_GETLK.  The kernel first: what it finds is the answer, and what it refuses is refused.  It has then written to the
 * structure, so that we may.  A request of type F_UNLCK (F_OFD_GETLK since Linux 6.6: list my own locks) is local.
 */
static int record_query(struct zkf_call *call)
{
	struct zkf_record answer;
	struct zkf_reply reply;
	struct zkf_lock lock;
	int result = to_kernel(call);

	if (zkf_real_refuses(result) && call->record.type != F_UNLCK && call->verdict == ZKF_VERDICT_ASK)
		return refused_query(call, result);
	if (result)
		return result;
	zkf_record_load(&answer, call->arg, call->wide);
	if (answer.type != F_UNLCK || call->record.type == F_UNLCK)
		return 0;
	if (call->verdict == ZKF_VERDICT_REFUSE)
		return zkf_refuse(call->fd, &call->st);
	lock = make_lock(call);
	lock.patience = zkf_patience_bounded(call->settings);
	if (zkf_range_resolve(call->fd, &call->record, &lock.start, &lock.end))
		return 0; /* the kernel has just said "free": only a moved offset gets here */
	result = zkf_cover_query(&lock, &reply);
	if (result || reply.answer != ZKF_HELD)
		return result;
	return store_holder(call, &reply);
}

/*
 * The order matters for a bad pointer: the kernel must be the one that finds out, with EFAULT, where the program would
 * have got that without us.  So the file is judged first, without a look at the structure; for a mapped one the
 * kernel is asked whether it can read it (zkf_real_readable), and gets the call itself if not.
 */
int zkf_record_fcntl(int fd, int cmd, void *arg, bool wide)
{
	struct zkf_call call = {
		.fd = fd,
		.cmd = cmd,
		.arg = arg,
		.frame = __builtin_frame_address(0),
		.wide = is_wide(cmd, wide),
		.get = is_get(cmd),
		.wait = is_wait(cmd),
		.ofd = is_ofd(cmd),
	};
	enum zkf_fast fast;
	int result;

	if (plain_unlock(&call))
		return record_unlock(&call);
	if (fstat64(fd, &call.st) || !(S_ISREG(call.st.st_mode) || S_ISDIR(call.st.st_mode)))
		return to_kernel(&call);
	fast = by_page(&call, &result);
	if (fast == ZKF_FAST_DONE)
		return result;
	call.verdict = zkf_judge(fd, &call.st, ZKF_RECORD, &call.settings);
	/* Held: there was cover a moment ago, and the rules have changed since.  The lock stands. */
	if (call.verdict == ZKF_VERDICT_KERNEL)
		return fast == ZKF_FAST_HELD ? 0 : to_kernel(&call);
	if (!loaded(&call))
		return to_kernel(&call);
	if (call.get)
		return record_query(&call);
	if (call.record.type == F_UNLCK)
		return record_unlock(&call);
	/* The page of a keeper that works already may have been found just now: it can serve a program's very first lock. */
	if (fast == ZKF_FAST_NOTHING)
		fast = by_page(&call, &result);
	return fast == ZKF_FAST_DONE ? result : record_lock(&call, fast == ZKF_FAST_HELD);
}

/* lockf(3) is fcntl on the range from the file offset on; F_TEST asks for a read lock, as glibc does. */
int zkf_record_lockf(int fd, int op, int64_t len)
{
	struct flock64 range = {.l_type = F_WRLCK, .l_whence = SEEK_CUR, .l_len = len};
	int result;

	switch (op) {
	case F_LOCK:
		return zkf_record_fcntl(fd, F_SETLKW64, &range, true);
	case F_TLOCK:
		return zkf_record_fcntl(fd, F_SETLK64, &range, true);
	case F_ULOCK:
		range.l_type = F_UNLCK;
		return zkf_record_fcntl(fd, F_SETLK64, &range, true);
	case F_TEST:
		range.l_type = F_RDLCK;
		result = zkf_record_fcntl(fd, F_GETLK64, &range, true);
		if (result || range.l_type == F_UNLCK || range.l_pid == getpid())
			return result;
		return -EACCES;
	default:
		return -EINVAL;
	}
}
