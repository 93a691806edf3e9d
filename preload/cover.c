/*
 * preload/cover.c - a lock call that must ask the keeper; see cover.h
 *
 * Answers for: see cover.h.
 * Does not:    see cover.h.
 * Threads:     see cover.h.
 * Specification: see cover.h.
 * SPDX-License-Identifier: Apache-2.0
 *
 * The states of a call, and what moves it:
 *
 *     ASK      nothing taken     COVERED, kernel lock, cover still good     -> DONE 0
 *                                COVERED, kernel lock, cover gone           -> CONFIRM
 *                                COVERED, kernel's error                    -> DONE with its error
 *                                COVERED, kernel refuses all locks, keeper's
 *                                  word in its place: COVERED               -> DONE 0
 *                                COVERED, kernel would block, cover gone    -> ASK
 *                                BUSY                                       -> DONE -EWOULDBLOCK
 *                                UNMAPPED, LOCAL                            -> kernel lock, DONE
 *                                FAILED, no keeper                          -> DONE with the error
 *                                none listens, blocking, unavailable=wait   -> ASK
 *                                keeper dies                                -> ASK
 *     CONFIRM  kernel lock held  COVERED, cover good                        -> DONE 0
 *                                COVERED, cover gone again; keeper dies     -> CONFIRM
 *                                BUSY, no answer in time                    -> undo, ASK
 *                                UNMAPPED, LOCAL                            -> DONE 0
 *                                FAILED, no keeper                          -> undo, DONE with the error
 *                                none listens, blocking, unavailable=wait   -> undo, ASK
 *                                signal                                     -> undo, DONE -EINTR
 *
 * In CONFIRM the kernel's lock is kept, because the owner may have held it before this call: who asks again for what
 * he holds must not lose it to another for a moment.  "Undo" leaves the owner with what he held before the call
 * (holdings.h).
 */
#define _GNU_SOURCE
#include "cover.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "log.h"
#include "page.h"
#include "range.h"
#include "real.h"

#define NS_PER_MS 1000000

enum zkf_step { ZKF_STEP_ASK, ZKF_STEP_CONFIRM, ZKF_STEP_DONE };

static struct zkf_request make_request(const struct zkf_lock *lock, enum zkf_op op, uint8_t more_flags)
{
	return (struct zkf_request){
		.magic = ZKF_WIRE_MAGIC,
		.op = (uint8_t)op,
		.kind = (uint8_t)lock->kind,
		.mode = (uint8_t)lock->mode,
		.flags = lock->flags | more_flags | (zkf_log_wanted(ZKF_LOG_INFO) ? ZKF_FLAG_TELL : 0),
		.tid = (int32_t)syscall(SYS_gettid),
		.fd = lock->fd,
		.start = lock->start,
		.end = lock->end,
	};
}

/* The range goes to the kernel as absolute numbers, as it went to the keeper: another thread may move the offset. */
static int kernel_lock(const struct zkf_lock *lock, int conversation)
{
	struct flock64 range = zkf_range_flock(lock->start, lock->end, lock->mode == ZKF_EXCLUSIVE ? F_WRLCK : F_RDLCK);

	if (lock->kind == ZKF_FLOCK)
		return zkf_real_flock(lock->fd, lock->command);
	return zkf_real_record_lock(lock->fd, lock->command, &range, conversation, lock->patience.cancellable);
}

static void log_reply(const struct zkf_lock *lock, const struct zkf_reply *reply)
{
	static const char *const answers[] = {"none", "covered", "busy", "unmapped", "local", "failed", "free", "held"};
	/* A true deadlock is the program's own matter, not an operator's. */
	enum zkf_log_level level = reply->answer != ZKF_FAILED                       ? ZKF_LOG_DEBUG
	                         : reply->error == EDEADLK || reply->text_bytes == 0 ? ZKF_LOG_INFO
	                                                                             : ZKF_LOG_ERROR;
	struct zkf_line line;

	if (!zkf_log_begin(&line, level, "lock fd="))
		return;
	zkf_log_number(&line, lock->fd);
	zkf_log_string(&line, lock->kind == ZKF_FLOCK ? " kind=flock" : " kind=record");
	zkf_log_string(&line, " answer=");
	if (reply->answer < sizeof(answers) / sizeof(answers[0]))
		zkf_log_string(&line, answers[reply->answer]);
	if (reply->answer == ZKF_FAILED) {
		zkf_log_string(&line, " error=");
		zkf_log_errno(&line, -reply->error);
		zkf_log_string(&line, ": ");
		zkf_log_bytes(&line, reply->text, reply->text_bytes);
	}
	zkf_log_end(&line);
}

static int log_trouble(const struct zkf_lock *lock, enum zkf_log_level level, const char *what, int error)
{
	struct zkf_line line;

	if (zkf_log_begin(&line, level, "lock fd=")) {
		zkf_log_number(&line, lock->fd);
		zkf_log_string(&line, " error=");
		zkf_log_errno(&line, error);
		zkf_log_string(&line, ": ");
		zkf_log_string(&line, what);
		zkf_log_end(&line);
	}
	return -ENOLCK;
}

static bool keeper_error(const struct zkf_reply *reply, int *error)
{
	if (reply->answer != ZKF_FAILED)
		return false;
	*error = reply->error > 0 && reply->error < 4096 ? -reply->error : -ENOLCK;
	return true;
}

/* What page the keeper speaks of, mapped; NULL if it is another one by now. */
static const struct zkf_page *page_of(const char *directory, const struct zkf_reply *reply, int *error)
{
	const struct zkf_page *page = zkf_page_current();

	*error = 0;
	if (!page || page->header.page_id != reply->page_id) {
		*error = zkf_page_map(directory, ZKF_PAGE_ANSWERED);
		page = zkf_page_current();
	}
	return !*error && page && page->header.page_id == reply->page_id ? page : NULL;
}

/*
 * I4, step 3 on the program's side.  Only generations are compared: while the conversation is open a recall may begin,
 * but takes nothing.  The fence pairs with the keeper's between "recalled" and its look at the kernel's locks.
 */
static bool same_generation(const struct zkf_page *page, const struct zkf_reply *reply)
{
	uint64_t state;

	if (!page || page->header.page_id != reply->page_id || reply->slot >= ZKF_SLOT_COUNT)
		return false;
	atomic_thread_fence(memory_order_seq_cst);
	state = atomic_load(&page->slots[reply->slot].state);
	return ZKF_STATE_GENERATION(state) == ZKF_STATE_GENERATION(reply->state);
}

static bool still_covered(const struct zkf_page *page, const struct zkf_reply *reply)
{
	return same_generation(page, reply) && zkf_page_leased(page);
}

/* The rule says what to do without a keeper. */
static bool alone_allowed(const struct zkf_lock *lock)
{
	const struct zkf_rule *rule = zkf_settings_rule(lock->settings, lock->fd);

	if (!rule || rule->unavailable != ZKF_UNAVAILABLE_LOCAL)
		return false;
	log_trouble(lock, ZKF_LOG_WARN, "unavailable=local: locked on this host only", -ENOLCK);
	return true;
}

/* None listens although one should: to wait for it is to wait for ZooKeeper, for all that the program can tell. */
static bool keeper_is_awaited(const struct zkf_lock *lock, int error)
{
	const struct zkf_rule *rule;

	if (error != -ENOENT || lock->patience.deadline_ns)
		return false;
	rule = zkf_settings_rule(lock->settings, lock->fd);
	return !rule || rule->unavailable == ZKF_UNAVAILABLE_WAIT;
}

static bool no_keeper(int error)
{
	return error == -ENOLCK || error == -ENOENT;
}

/* A conversation up to its reply, or what zkf_conversation_open and _ask say. */
static int converse(const struct zkf_lock *lock, enum zkf_op op, uint8_t more_flags,
                    const struct zkf_patience *patience, struct zkf_conversation *conversation, struct zkf_reply *reply)
{
	struct zkf_request request = make_request(lock, op, more_flags);
	int result = zkf_conversation_open(conversation, lock->settings, patience);

	if (result)
		return result;
	result = zkf_conversation_ask(conversation, &request, lock->fd, patience, reply);
	if (!result)
		log_reply(lock, reply);
	return result;
}

/* Errors of a conversation, not of the lock: as a result for the program. */
static int trouble(const struct zkf_lock *lock, int error)
{
	if (error == -EINTR || error == -EBADF)
		return error; /* EBADF: another thread has closed the program's descriptor */
	if (error == -ETIMEDOUT)
		return log_trouble(lock, ZKF_LOG_ERROR, "the keeper does not answer in time", error);
	if (no_keeper(error) || error == -ENOTCONN)
		return -ENOLCK; /* logged */
	return log_trouble(lock, ZKF_LOG_ERROR, "the conversation with the keeper failed", error);
}

/* The keeper's part of an unlock that the kernel refuses: `result` is what the kernel said. */
static int release(struct zkf_lock *lock, int result)
{
	struct zkf_conversation conversation;
	struct zkf_reply reply;
	int error;

	lock->patience = zkf_patience_bounded(lock->settings);
	do {
		error = converse(lock, ZKF_OP_RELEASE, 0, &lock->patience, &conversation, &reply);
		zkf_conversation_close(&conversation);
	} while ((error == -ECONNRESET || error == -ENOENT) && !zkf_patience_pause(&lock->patience, 10 * NS_PER_MS));
	if (error)
		return trouble(lock, error);
	if (keeper_error(&reply, &error))
		return error;
	return reply.answer == ZKF_END ? 0 : result;
}

/* Who waits under a recall is told without a word in return. */
static void notify(const struct zkf_lock *lock)
{
	struct zkf_request request = make_request(lock, ZKF_OP_UNLOCK, 0);

	request.dev = lock->dev;
	request.ino = lock->ino;
	zkf_conversation_notify(lock->settings, &request);
}

/* The keeper waits for unlocks of this file; `state` is its word. */
static bool recalled(const struct zkf_lock *lock, uint64_t *state)
{
	const struct zkf_page *page = zkf_page_current();

	return page && atomic_load(&page->header.recalls) &&
	       zkf_page_find(page, lock->dev, lock->ino, lock->kind, state) && (*state & ZKF_STATE_RECALLED);
}

static int unlocked(struct zkf_lock *lock)
{
	uint64_t state;

	lock->settings = zkf_settings_loaded();
	if (!lock->settings || !recalled(lock, &state))
		return 0;
	/* The kernel has refused before: what it has unlocked now need not be all. */
	if (state & ZKF_STATE_REFUSED)
		return release(lock, 0);
	notify(lock);
	return 0;
}

bool zkf_cover_unlock_matters(int result)
{
	const struct zkf_page *page = zkf_page_current();

	return zkf_real_refuses(result) || (!result && page && atomic_load(&page->header.recalls));
}

int zkf_cover_unlocked(int fd, enum zkf_kind kind, bool ofd, int64_t start, int64_t end, int result)
{
	struct zkf_lock lock = {
		.fd = fd,
		.kind = kind,
		.mode = ZKF_EXCLUSIVE,
		.flags = ofd ? ZKF_FLAG_OFD : 0,
		.start = start,
		.end = end,
	};
	struct stat64 st;

	if (!zkf_cover_unlock_matters(result) || fstat64(fd, &st))
		return result;
	lock.dev = st.st_dev;
	lock.ino = st.st_ino;
	if (!result)
		return unlocked(&lock);
	if (!(S_ISREG(st.st_mode) || S_ISDIR(st.st_mode)) ||
	    zkf_judge(fd, &st, kind, &lock.settings) != ZKF_VERDICT_ASK)
		return result;
	return release(&lock, result);
}

/* The kernel's unlock of all of the lock's range, and the keeper's. */
static void unlock(const struct zkf_lock *lock)
{
	struct flock64 range = zkf_range_flock(lock->start, lock->end, F_UNLCK);
	bool ofd = lock->flags & ZKF_FLAG_OFD;
	int result;

	if (lock->kind == ZKF_FLOCK)
		result = zkf_real_flock(lock->fd, LOCK_UN);
	else
		result = zkf_real_fcntl(lock->fd, ofd ? F_OFD_SETLK : F_SETLK64, (long)&range);
	zkf_cover_unlocked(lock->fd, lock->kind, ofd, lock->start, lock->end, result);
}

/* An answer to LOCK or to REFUSED that ends the call, or makes no sense. */
static enum zkf_step not_granted(struct zkf_lock *lock, const struct zkf_reply *reply, int *result)
{
	if (reply->answer == ZKF_BUSY) {
		/*
		 * A conversion to exclusive that fails has lost the shared lock, flock(2) says; whoever held the
		 * exclusive one already was not told "busy".  But in a group it may be another thread's (reply->keep).
		 */
		if (lock->kind == ZKF_FLOCK && lock->mode == ZKF_EXCLUSIVE && !reply->keep)
			unlock(lock);
		*result = -EWOULDBLOCK;
	} else if (!keeper_error(reply, result)) {
		*result = log_trouble(lock, ZKF_LOG_ERROR, "an answer that makes no sense", -EPROTO);
	}
	return ZKF_STEP_DONE;
}

/*
 * The kernel does not lock this file at all: the keeper arbitrates between the owners that the kernel would have had.
 * Until it has read DONE it takes its word back when the conversation ends, so a call that ends here has no lock.
 */
static enum zkf_step take_refused(struct zkf_lock *lock, const struct zkf_conversation *conversation,
                                  const struct zkf_page *page, int *result)
{
	struct zkf_request request = make_request(lock, ZKF_OP_REFUSED, 0);
	struct zkf_reply reply;
	int error = zkf_conversation_ask(conversation, &request, lock->fd, &lock->patience, &reply);

	if (error == -ECONNRESET)
		return ZKF_STEP_ASK;
	if (error) {
		*result = trouble(lock, error);
		return ZKF_STEP_DONE;
	}
	log_reply(lock, &reply);
	if (reply.answer == ZKF_UNMAPPED || reply.answer == ZKF_LOCAL)
		return ZKF_STEP_DONE; /* the kernel's lock alone: it has said what it thinks of that */
	if (reply.answer != ZKF_COVERED)
		return not_granted(lock, &reply, result);
	request.op = ZKF_OP_DONE;
	if (!zkf_page_leased(page) || zkf_conversation_tell(conversation, &request))
		return ZKF_STEP_ASK;
	*result = 0;
	return ZKF_STEP_DONE;
}

/* COVERED: into the kernel while the conversation pins the cover. */
static enum zkf_step take_covered(struct zkf_lock *lock, const struct zkf_conversation *conversation,
                                  const struct zkf_reply *reply, int *result)
{
	const struct zkf_page *page = page_of(conversation->directory, reply, result);

	/* Without the page nobody could tell later whether the cover was good: do not even begin. */
	if (*result) {
		*result = log_trouble(lock, ZKF_LOG_ERROR, "the keeper's page can't be mapped", *result);
		return ZKF_STEP_DONE;
	}
	if (!page)
		return ZKF_STEP_ASK;
	zkf_holdings_read(&lock->before, lock->fd, lock->dev, lock->ino, lock->kind, lock->flags & ZKF_FLAG_OFD,
	                  lock->start, lock->end);
	*result = kernel_lock(lock, conversation->fd);
	if (zkf_real_refuses(*result))
		return take_refused(lock, conversation, page, result);
	/* If the pin was taken from us (we were slow, or the keeper died), it may have been the keeper's trial lock. */
	if (*result == -EWOULDBLOCK && lock->kind == ZKF_FLOCK && !same_generation(page, reply))
		return ZKF_STEP_ASK;
	if (*result)
		return ZKF_STEP_DONE;
	return still_covered(page, reply) ? ZKF_STEP_DONE : ZKF_STEP_CONFIRM;
}

static enum zkf_step take(struct zkf_lock *lock, struct zkf_conversation *conversation, const struct zkf_reply *reply,
                          int *result)
{
	switch (reply->answer) {
	case ZKF_COVERED:
		return take_covered(lock, conversation, reply, result);
	case ZKF_UNMAPPED:
	case ZKF_LOCAL:
		zkf_conversation_close(conversation);
		*result = kernel_lock(lock, -1);
		return ZKF_STEP_DONE;
	default:
		return not_granted(lock, reply, result);
	}
}
/* Undo kernel_lock: the owner is left with what he held before. */
static void kernel_restore(struct zkf_lock *lock)
{
	uint64_t state;

	zkf_holdings_restore(&lock->before, lock->fd, lock->kind, lock->flags & ZKF_FLAG_OFD, lock->mode, lock->start,
	                     lock->end);
	if (recalled(lock, &state))
		notify(lock);
}

static enum zkf_step ask(struct zkf_lock *lock, int *result)
{
	struct zkf_conversation conversation;
	struct zkf_reply reply;
	enum zkf_step step = ZKF_STEP_DONE;
	int error = converse(lock, ZKF_OP_LOCK, 0, &lock->patience, &conversation, &reply);

	if (!error)
		step = take(lock, &conversation, &reply, result);
	else if (error == -ECONNRESET || keeper_is_awaited(lock, error))
		step = ZKF_STEP_ASK;
	else if (no_keeper(error) && alone_allowed(lock))
		*result = kernel_lock(lock, -1);
	else
		*result = trouble(lock, error);
	zkf_conversation_close(&conversation);
	return step;
}

/* Without the lock; with step ASK the call begins anew, unless a signal has come that ends it. */
static enum zkf_step give_up_confirming(struct zkf_lock *lock, enum zkf_step step, int *result)
{
	kernel_restore(lock);
	if (step == ZKF_STEP_ASK && lock->interrupted) {
		*result = -EINTR;
		return ZKF_STEP_DONE;
	}
	return step;
}

static enum zkf_step judge_confirmation(struct zkf_lock *lock, const struct zkf_conversation *conversation,
                                        const struct zkf_reply *reply, int *result)
{
	int error;

	switch (reply->answer) {
	case ZKF_COVERED:
		*result = 0;
		return still_covered(page_of(conversation->directory, reply, &error), reply) ? ZKF_STEP_DONE
		                                                                             : ZKF_STEP_CONFIRM;
	case ZKF_UNMAPPED:
	case ZKF_LOCAL:
		*result = 0;
		return ZKF_STEP_DONE;
	case ZKF_BUSY:
		return give_up_confirming(lock, ZKF_STEP_ASK, result);
	default:
		if (!keeper_error(reply, result))
			*result = log_trouble(lock, ZKF_LOG_ERROR, "an answer that makes no sense", -EPROTO);
		return give_up_confirming(lock, ZKF_STEP_DONE, result);
	}
}

/*
 * A signal while a blocking call confirms.  What its owner held before the kernel was asked can be put back exactly, so
 * that the call ends; if that was not looked at (the fast path), it waits for the answer, which decides, but not for ever.
 */
static enum zkf_step signal_came(struct zkf_lock *lock, struct zkf_patience *patience, int *result)
{
	lock->interrupted = true;
	if (lock->before.known)
		return give_up_confirming(lock, ZKF_STEP_ASK, result);
	*patience = zkf_patience_bounded(lock->settings);
	return ZKF_STEP_CONFIRM;
}

static enum zkf_step confirm_once(struct zkf_lock *lock, struct zkf_patience *patience, int *result)
{
	struct zkf_conversation conversation;
	struct zkf_reply reply;
	enum zkf_step step = ZKF_STEP_DONE;
	int error = converse(lock, ZKF_OP_LOCK, ZKF_FLAG_HELD, patience, &conversation, &reply);

	if (!error) {
		step = judge_confirmation(lock, &conversation, &reply, result);
	} else if (error == -ECONNRESET) {
		step = ZKF_STEP_CONFIRM;
	} else if (error == -EINTR) {
		step = signal_came(lock, patience, result);
	} else if ((error == -ETIMEDOUT && !lock->patience.deadline_ns) || keeper_is_awaited(lock, error)) {
		step = give_up_confirming(lock, ZKF_STEP_ASK, result);
	} else if (no_keeper(error) && alone_allowed(lock)) {
		*result = 0;
	} else {
		*result = trouble(lock, error);
		step = give_up_confirming(lock, ZKF_STEP_DONE, result);
	}
	zkf_conversation_close(&conversation);
	return step;
}

/*
 * The keeper answers within its connect_timeout, whatever happens.  A blocking call waits for that as for its lock: a
 * handler without SA_RESTART ends it.
 */
static enum zkf_step confirm(struct zkf_lock *lock, int *result)
{
	const struct zkf_patience bounded = zkf_patience_bounded(lock->settings);
	struct zkf_patience patience = lock->patience.deadline_ns ? bounded : (struct zkf_patience){0};
	enum zkf_step step;

	for (;;) {
		step = confirm_once(lock, &patience, result);
		if (step != ZKF_STEP_CONFIRM)
			return step;
		/* The cover is there, the lease is not yet, or a new keeper is on its way. */
		if (zkf_patience_pause(&patience, 10 * NS_PER_MS) == -EINTR)
			step = signal_came(lock, &patience, result);
		if (step != ZKF_STEP_CONFIRM)
			return step;
		if (zkf_real_now_ns() < bounded.deadline_ns)
			continue;
		*result = trouble(lock, -ETIMEDOUT);
		return give_up_confirming(lock, lock->patience.deadline_ns ? ZKF_STEP_DONE : ZKF_STEP_ASK, result);
	}
}

int zkf_cover_lock(struct zkf_lock *lock, bool held)
{
	enum zkf_step step = held ? ZKF_STEP_CONFIRM : ZKF_STEP_ASK;
	int result = 0, rounds = 0;

	for (;;) {
		step = step == ZKF_STEP_CONFIRM ? confirm(lock, &result) : ask(lock, &result);
		if (step == ZKF_STEP_DONE)
			return result;
		/* Again from the start.  A keeper that dies of this very request must not be driven in circles. */
		if (step == ZKF_STEP_ASK && ++rounds > 1) {
			result = zkf_patience_pause(&lock->patience, (rounds < 50 ? rounds : 50) * 10 * NS_PER_MS);
			if (result)
				return trouble(lock, result);
		}
	}
}

int zkf_cover_query(struct zkf_lock *lock, struct zkf_reply *reply)
{
	struct zkf_conversation conversation;
	int result, error;

	do {
		result = converse(lock, ZKF_OP_GETLK, 0, &lock->patience, &conversation, reply);
		zkf_conversation_close(&conversation);
		if (result == -ECONNRESET && zkf_patience_pause(&lock->patience, 10 * NS_PER_MS))
			result = -ETIMEDOUT;
	} while (result == -ECONNRESET);
	if (no_keeper(result) && alone_allowed(lock)) {
		reply->answer = ZKF_LOCAL;
		return 0;
	}
	if (result)
		return trouble(lock, result);
	return keeper_error(reply, &error) ? error : 0;
}
