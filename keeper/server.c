/*
 * keeper/server.c - see server.h
 * SPDX-License-Identifier: Apache-2.0
 */
#include "server.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "break.h"
#include "fault.h"
#include "file.h"
#include "holds.h"
#include "lease.h"
#include "list.h"
#include "lock.h"
#include "log.h"
#include "loop.h"
#include "mapped.h"
#include "origin.h"
#include "refused.h"
#include "rules.h"
#include "session.h"
#include "status.h"
#include "token.h"
#include "users.h"

#define BACKLOG 4096
/* A connection that says nothing for this long is hung up on. */
#define SILENT_NS (10 * 1000 * ZKF_NS_PER_MS)
/* Out of descriptors, and nobody to hang up on: the next look at who wants to connect.  Said once in TELL_NS. */
#define PAUSE_NS (100 * ZKF_NS_PER_MS)
#define DEFER_NS (10 * ZKF_NS_PER_MS)
#define TELL_NS (10 * 1000 * ZKF_NS_PER_MS)
/* So many more of a user at his limit are told so; the others are hung up on. */
#define TOLD_MAX 64
#define FDS_MAX 4 /* more than one is an error, but all that come must be closed */

/* Kept until the peer reads. */
struct packet {
	struct packet *next;
	size_t bytes;
	char data[];
};

struct zkf_conversation {
	struct zkf_source source;
	struct zkf_timer silent_timer;
	struct zkf_conversation *next, **before; /* the silent ones, oldest first */
	struct ucred peer;
	bool silent;  /* nothing was asked yet */
	bool counted; /* among its user's */
	bool refused; /* one more than its user may have */
	/* Its user has as many files as he may, some of which he may not be using: his own limit keeps him waiting, ... */
	struct zkf_request deferred;
	int deferred_fd; /* ... with this, until it is closed; -1: no */
	int64_t deferred_since_ns;
	struct zkf_timer deferred_timer;
	bool demanding; /* demand is in a lock's list */
	struct zkf_demand demand;
	struct zkf_listing *listing;
	struct zkf_breaking *breaking;
	struct packet *unsent_first, **unsent_last; /* in order */
	struct zkf_token_ask token_ask;
};

/* The loop's. */
static struct zkf_source listener = {.fd = -1};
static struct stat bound;               /* our socket's file; all zero: a supervisor made it */
static struct zkf_timer listener_timer; /* armed: out of descriptors, and not listening */
static struct zkf_conversation *silent_first, **silent_last = &silent_first;
static int conversations;

int zkf_server_connections(void)
{
	return conversations;
}

static void silent_end(struct zkf_conversation *conversation)
{
	if (!conversation->silent)
		return;
	conversation->silent = false;
	zkf_timer_stop(&conversation->silent_timer);
	*conversation->before = conversation->next;
	*(conversation->next ? &conversation->next->before : &silent_last) = conversation->before;
}

static void conversation_end(struct zkf_conversation *conversation)
{
	silent_end(conversation);
	if (conversation->demanding)
		zkf_lock_remove(&conversation->demand);
	if (conversation->listing)
		zkf_listing_stop(conversation->listing);
	if (conversation->breaking)
		zkf_breaking_stop(conversation->breaking);
	zkf_timer_stop(&conversation->silent_timer);
	while (conversation->unsent_first) {
		struct packet *packet = conversation->unsent_first;

		conversation->unsent_first = packet->next;
		free(packet);
	}
	zkf_token_withdraw(&conversation->token_ask);
	zkf_timer_stop(&conversation->deferred_timer);
	if (conversation->deferred_fd >= 0)
		close(conversation->deferred_fd);
	if (conversation->counted)
		zkf_users_disconnected(conversation->peer.uid);
	zkf_loop_remove(&conversation->source);
	close(conversation->source.fd);
	free(conversation);
	conversations--;
}

static void silent_fired(struct zkf_timer *timer)
{
	conversation_end((struct zkf_conversation *)((char *)timer - offsetof(struct zkf_conversation, silent_timer)));
}

int zkf_server_send(struct zkf_conversation *conversation, const struct zkf_reply *reply, const char *text)
{
	struct iovec parts[2] = {
		{.iov_base = (void *)(uintptr_t)reply,
	         .iov_len = text ? offsetof(struct zkf_reply, text) : sizeof(*reply)},
		{.iov_base = (void *)(uintptr_t)text, .iov_len = text ? reply->text_bytes : 0},
	};
	struct msghdr message = {.msg_iov = parts, .msg_iovlen = text ? 2 : 1};

	return sendmsg(conversation->source.fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? -errno : 0;
}

bool zkf_server_congested(const struct zkf_conversation *conversation)
{
	return conversation->unsent_first != NULL;
}

/* The peer is slow: from now on the loop tells when it has read something. */
static void wait_for_reader(struct zkf_conversation *conversation)
{
	zkf_loop_change(&conversation->source, EPOLLIN | EPOLLRDHUP | EPOLLOUT);
	zkf_timer_arm(&conversation->silent_timer, zkf_now_ns() + SILENT_NS);
}

int zkf_server_put(struct zkf_conversation *conversation, const struct zkf_reply *reply, const char *text)
{
	size_t fixed = text ? offsetof(struct zkf_reply, text) : sizeof(*reply), more = text ? reply->text_bytes : 0;
	struct packet *packet;
	int error = conversation->unsent_first ? -EAGAIN : zkf_server_send(conversation, reply, text);

	if (error != -EAGAIN && error != -ENOBUFS)
		return 0; /* whoever has gone is told of by the loop */
	packet = zkf_calloc(1, sizeof(*packet) + fixed + more);
	if (!packet)
		return -ENOMEM;
	packet->bytes = fixed + more;
	memcpy(packet->data, reply, fixed);
	if (more)
		memcpy(packet->data + fixed, text, more);
	if (!conversation->unsent_first) {
		conversation->unsent_last = &conversation->unsent_first;
		wait_for_reader(conversation);
	}
	*conversation->unsent_last = packet;
	conversation->unsent_last = &packet->next;
	return 0;
}

/* What was kept, as far as the peer has room. */
static void unsent_send(struct zkf_conversation *conversation)
{
	while (conversation->unsent_first) {
		struct packet *packet = conversation->unsent_first;

		if (send(conversation->source.fd, packet->data, packet->bytes, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
			if (errno == EAGAIN || errno == ENOBUFS)
				zkf_timer_arm(&conversation->silent_timer, zkf_now_ns() + SILENT_NS);
			return;
		}
		conversation->unsent_first = packet->next;
		free(packet);
	}
	zkf_timer_stop(&conversation->silent_timer);
	zkf_loop_change(&conversation->source, EPOLLIN | EPOLLRDHUP);
	if (conversation->listing)
		zkf_listing_go_on(conversation->listing);
}

/* Answers what is no demand (yet). */
static void answer(struct zkf_conversation *conversation, enum zkf_answer what, int error, const char *text)
{
	struct zkf_reply reply = {.magic = ZKF_WIRE_MAGIC, .answer = (uint8_t)what, .error = error};
	int bytes = snprintf(reply.text, sizeof(reply.text), "%s", text ? text : "");

	reply.text_bytes = bytes < (int)sizeof(reply.text) ? (uint32_t)bytes : (uint32_t)sizeof(reply.text) - 1;
	zkf_server_send(conversation, &reply, NULL);
}

static void demand_answered(struct zkf_demand *demand, const struct zkf_reply *reply)
{
	struct zkf_conversation *conversation =
		(struct zkf_conversation *)((char *)demand - offsetof(struct zkf_conversation, demand));

	if (reply->answer != ZKF_COVERED) {
		conversation->demanding = false;
		zkf_lock_remove(demand);
	}
	/* A reply that can't be sent has no reader any more: the hang-up arrives as an event. */
	zkf_server_send(conversation, reply, NULL);
}

/* The other end may be kept open by a child of the caller's: what ends it is our own, which is read as a hang-up. */
static void demand_hang_up(struct zkf_demand *demand)
{
	shutdown(((struct zkf_conversation *)((char *)demand - offsetof(struct zkf_conversation, demand)))->source.fd,
	         SHUT_RDWR);
}

/* What does not arrive was for people only. */
static void demand_told(struct zkf_demand *demand, const struct zkf_reply *reply)
{
	zkf_server_send((struct zkf_conversation *)((char *)demand - offsetof(struct zkf_conversation, demand)), reply,
	                NULL);
}

/* A process that is hidden from us, or gone, is one thing; that we could not look is another. */
static bool lacks_means(int error)
{
	return error == -ENOMEM || error == -EMFILE || error == -ENFILE;
}

/*
 * What the asking owner and its process hold already, as far as it makes a difference.  Returns 0, or -ENOMEM: not known, and
 * who holds what he asks for again would wait for himself.
 */
static int fill_in_holdings(struct zkf_demand *demand, int fd, bool ofd)
{
	struct zkf_ranges held = {0};
	bool flock_kind = demand->lock->key.kind == ZKF_FLOCK;
	int error;

	if (flock_kind || ofd) {
		error = zkf_file_held_through(fd, flock_kind ? "FLOCK" : "OFDLCK", &held);
		if (!error)
			error = zkf_refused_held_through(demand->file, fd, &held);
	} else {
		error = zkf_file_held_by(demand->file, demand->pid, true, &held);
	}
	if (lacks_means(error)) {
		zkf_ranges_free(&held);
		return -ENOMEM;
	}
	demand->many_own = zkf_ranges_within(&held, demand->start, demand->end) > ZKF_HOLDINGS_MAX;
	demand->owner_holds = zkf_ranges_covers(&held, demand->start, demand->end, demand->mode);
	/*
	 * A conversion that has to wait drops the old lock first: as the kernel does, and else two hosts that convert would
	 * wait for each other.  Until it has to, the old lock proves that those who wait do not hold.
	 */
	if (flock_kind && held.count && !demand->owner_holds && demand->op == ZKF_OP_LOCK && !demand->nonblock)
		demand->convert_fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	zkf_ranges_clear(&held);
	if (!demand->owner_holds && (!demand->nonblock || !flock_kind))
		error = zkf_file_held_by(demand->file, demand->pid, false, &held);
	demand->process_holds = held.count > 0;
	zkf_ranges_free(&held);
	return lacks_means(error) ? -ENOMEM : 0;
}

static void demand_start(struct zkf_conversation *conversation, const struct zkf_request *request, int fd,
                         const struct zkf_rule *rule, struct zkf_lock *lock, struct zkf_file *file)
{
	struct zkf_demand *demand = &conversation->demand;

	demand->lock = lock;
	demand->file = file;
	demand->op = (enum zkf_op)request->op;
	demand->mode = request->mode;
	demand->nonblock = (request->flags & ZKF_FLAG_NONBLOCK) || request->op == ZKF_OP_GETLK;
	demand->held = request->flags & ZKF_FLAG_HELD;
	demand->posix = request->kind == ZKF_RECORD && !(request->flags & ZKF_FLAG_OFD);
	demand->unavailable = rule ? rule->unavailable : ZKF_UNAVAILABLE_WAIT;
	demand->pid = conversation->peer.pid;
	demand->tid = request->tid;
	demand->start = request->start;
	demand->end = request->end;
	demand->answer = demand_answered;
	demand->hang_up = demand_hang_up;
	demand->tell = request->flags & ZKF_FLAG_TELL ? demand_told : NULL;
	demand->convert_fd = -1;
	demand->owner_fd = -1;
	demand->fd = request->fd;
	if (lock->key.kind == ZKF_GROUP)
		zkf_holds_arrive(demand, fd);
	else if (!demand->held && (file->refuses || !zkf_lock_ready(lock, demand->start, demand->end, demand->mode)) &&
	         fill_in_holdings(demand, fd, request->flags & ZKF_FLAG_OFD)) {
		if (demand->convert_fd >= 0)
			close(demand->convert_fd);
		answer(conversation, ZKF_FAILED, ENOLCK, "out of memory");
		zkf_lock_touch(lock);
		return;
	}
	if (file->refuses && zkf_refused_arrive(demand, fd))
		zkf_log(ZKF_LOG_WARN, "refused path=%s pid=%d why=\"its owner can't be told from others\"", file->path,
		        demand->pid);
	conversation->demanding = true;
	zkf_lock_add(lock, demand);
}

/*
 * No rule for its path: none ever, or no more (a reload, a rename).  A file that is in use stays what it is until its
 * last unlock: who holds it on another host's account may convert his lock.
 */
static void unmapped_request(struct zkf_conversation *conversation, const struct zkf_request *request, int fd,
                             const struct stat *status)
{
	struct zkf_file *file = zkf_file_find(status->st_dev, status->st_ino, request->kind);

	if (file && zkf_mapped_keeps(file)) {
		demand_start(conversation, request, fd, NULL, file->lock, file);
		return;
	}
	if (file)
		zkf_file_free(file);
	answer(conversation, ZKF_UNMAPPED, 0, NULL);
}

static void distrust(struct zkf_conversation *conversation, const char *path)
{
	static int64_t told_ns;
	int64_t now = zkf_now_ns();

	answer(conversation, ZKF_FAILED, ENOLCK,
	       "its path is of a mount namespace that a user has made, and not this host's");
	if (told_ns && now - told_ns < TELL_NS)
		return;
	told_ns = now;
	zkf_log(ZKF_LOG_WARN, "server refuse path=%s pid=%d uid=%u why=\"the path is of a user's own mount namespace\"",
	        path, conversation->peer.pid, (unsigned)conversation->peer.uid);
}

/* At its user's limit: what he keeps and does not use is being given back, which takes a moment.  False: long enough. */
static bool defer(struct zkf_conversation *conversation, const struct zkf_request *request, int fd)
{
	int64_t now = zkf_now_ns();

	if (!conversation->deferred_since_ns)
		conversation->deferred_since_ns = now;
	if (now - conversation->deferred_since_ns > ZKF_FULL_AFTER_MS * ZKF_NS_PER_MS)
		return false;
	conversation->deferred_fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (conversation->deferred_fd < 0)
		return false;
	conversation->deferred = *request;
	zkf_timer_arm(&conversation->deferred_timer, now + DEFER_NS);
	return true;
}

static void lock_request(struct zkf_conversation *conversation, const struct zkf_request *request, int fd);

static void deferred_fired(struct zkf_timer *timer)
{
	struct zkf_conversation *conversation =
		(struct zkf_conversation *)((char *)timer - offsetof(struct zkf_conversation, deferred_timer));
	struct zkf_request request = conversation->deferred;
	int fd = conversation->deferred_fd;

	conversation->deferred_fd = -1;
	lock_request(conversation, &request, fd);
	close(fd);
}

static void lock_request(struct zkf_conversation *conversation, const struct zkf_request *request, int fd)
{
	const struct zkf_rule *rule;
	char path[PATH_MAX + 1], why[160];
	struct zkf_lock *lock;
	struct zkf_file *file;
	struct stat status;
	int bytes;

	if (zkf_mapped_describe(fd, &status) || (!S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode)) ||
	    (fcntl(fd, F_GETFL) & O_PATH)) {
		answer(conversation, ZKF_FAILED, EBADF, "not a descriptor of a file or directory");
		return;
	}
	if (request->kind == ZKF_RECORD && request->op == ZKF_OP_LOCK &&
	    (fcntl(fd, F_GETFL) & O_ACCMODE) == (request->mode == ZKF_EXCLUSIVE ? O_RDONLY : O_WRONLY)) {
		answer(conversation, ZKF_FAILED, EBADF,
		       "not open for that"); /* as fcntl(2): else a reader could pin a lock */
		return;
	}
	bytes = zkf_mapped_path(fd, &status, path);
	if (bytes == -ENAMETOOLONG) {
		/* Nobody can tell whether it is meant: no lock that may be none. */
		answer(conversation, ZKF_FAILED, ENOLCK,
		       "its path is longer than PATH_MAX, so the kernel does not tell it");
		return;
	}
	rule = zkf_mapped_rule(path, bytes);
	if (!rule) {
		unmapped_request(conversation, request, fd, &status);
		return;
	}
	if (!zkf_origin_trusted(fd, &status, path, &conversation->peer)) {
		distrust(conversation, path);
		return;
	}
	lock = zkf_mapped_lock(rule, request->kind, path, bytes);
	file = lock ? zkf_mapped_file(&lock, request->kind, fd, &status, path, conversation->peer.uid) : NULL;
	if (!file) {
		bool limit = errno == EDQUOT;

		if (limit && defer(conversation, request, fd)) {
			zkf_lock_touch(lock);
			return;
		}
		if (limit)
			snprintf(why, sizeof(why), "uid %u has %u files locked or kept, and user_locks allows no more",
			         (unsigned)conversation->peer.uid, zkf_users_limit_of_files());
		else
			snprintf(why, sizeof(why), "the keeper can't take the file up: %s",
			         errno == ENFILE
			                 ? "this host holds as many files as it has room for; see zkflockd(8), LIMITS"
			                 : strerror(errno));
		answer(conversation, ZKF_FAILED, ENOLCK, why);
		if (!limit)
			zkf_log(ZKF_LOG_WARN, "server refuse path=%s pid=%d why=\"%s\"", path, conversation->peer.pid,
			        why);
		if (lock)
			zkf_lock_touch(lock); /* it may have been made for this */
		return;
	}
	demand_start(conversation, request, fd, rule, lock, file);
}

static void token_answered(struct zkf_token_ask *ask, const struct zkf_reply *reply)
{
	zkf_server_send((struct zkf_conversation *)((char *)ask - offsetof(struct zkf_conversation, token_ask)), reply,
	                NULL);
}

/* Of a file that is known the lock is the one that it was locked under, whatever the rules say now. */
static struct zkf_lock *lock_of(const struct zkf_request *request, int fd, const struct stat *status)
{
	const struct zkf_file *file = zkf_file_find(status->st_dev, status->st_ino, request->kind);
	const struct zkf_rule *rule;
	char path[PATH_MAX + 1];
	int bytes;

	if (file)
		return file->lock;
	bytes = zkf_mapped_path(fd, status, path);
	rule = zkf_mapped_rule(path, bytes);
	if (!rule) {
		errno = 0;
		return NULL;
	}
	return zkf_mapped_lock(rule, request->kind, path, bytes);
}

static void token_request(struct zkf_conversation *conversation, const struct zkf_request *request, int fd)
{
	struct zkf_lock *lock;
	struct stat status;

	if (zkf_mapped_describe(fd, &status) || (!S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode)) ||
	    (fcntl(fd, F_GETFL) & O_PATH)) {
		answer(conversation, ZKF_FAILED, EBADF, "not a descriptor of a file or directory");
		return;
	}
	lock = lock_of(request, fd, &status);
	if (!lock) {
		answer(conversation, errno ? ZKF_FAILED : ZKF_UNMAPPED, errno,
		       errno ? "no lock name can be made" : NULL);
		return;
	}
	conversation->token_ask.answer = token_answered;
	zkf_token_ask(&conversation->token_ask, lock, zkf_rules_current()->connect_timeout_ms * ZKF_NS_PER_MS);
}

/*
 * The kernel has refused what we have covered.  The descriptor must be of the same file; a reader's does not do for a
 * writer's record, as with LOCK.
 */
static bool refused_request(struct zkf_conversation *conversation, const struct zkf_request *request, int fd)
{
	struct zkf_demand *demand = &conversation->demand;
	struct stat status;

	if (!conversation->demanding || demand->op != ZKF_OP_LOCK || demand->held || demand->refused ||
	    demand->state == ZKF_DEMAND_WAITING || fd < 0 || zkf_mapped_describe(fd, &status) ||
	    status.st_dev != demand->file->key.dev || status.st_ino != demand->file->key.ino ||
	    (fcntl(fd, F_GETFL) & O_PATH) ||
	    (request->kind == ZKF_RECORD &&
	     (fcntl(fd, F_GETFL) & O_ACCMODE) == (demand->mode == ZKF_EXCLUSIVE ? O_RDONLY : O_WRONLY)))
		return false;
	zkf_lock_refused(demand, fd);
	return true;
}

static void release_request(struct zkf_conversation *conversation, const struct zkf_request *request, int fd)
{
	char path[PATH_MAX + 1];
	struct zkf_file *file;
	struct stat status;
	int bytes, error = 0;

	if (zkf_mapped_describe(fd, &status) || (fcntl(fd, F_GETFL) & O_PATH)) {
		answer(conversation, ZKF_FAILED, EBADF, "not a descriptor of a file or directory");
		return;
	}
	file = zkf_file_find(status.st_dev, status.st_ino, request->kind);
	bytes = file ? 0 : zkf_mapped_path(fd, &status, path);
	if (!file && !zkf_mapped_rule(path, bytes)) {
		answer(conversation, ZKF_UNMAPPED, 0, NULL);
		return;
	}
	if (file) {
		error = zkf_refused_release(file, fd, request->kind == ZKF_RECORD && !(request->flags & ZKF_FLAG_OFD),
		                            conversation->peer.pid, request->start, request->end);
		zkf_lock_hint(file->lock);
	}
	answer(conversation, error ? ZKF_FAILED : ZKF_END, -error, error ? "out of memory" : NULL);
}

static void reload_row(void *context, const char *line)
{
	struct zkf_reply reply = {.magic = ZKF_WIRE_MAGIC, .answer = ZKF_ROW};

	reply.text_bytes = (uint32_t)strnlen(line, ZKF_ROW_BYTES_MAX - offsetof(struct zkf_reply, text));
	zkf_server_send(context, &reply, line);
}

/* Whose keeper it is, and root: what everybody's locks mean is not for everybody to say. */
static void reload_request(struct zkf_conversation *conversation)
{
	int error;

	if (conversation->peer.uid != 0 && conversation->peer.uid != geteuid()) {
		answer(conversation, ZKF_FAILED, EPERM, "only root and the keeper's own user may do that");
		return;
	}
	error = zkf_rules_reload(reload_row, conversation);
	answer(conversation, error ? ZKF_FAILED : ZKF_END, -error, error ? "the old rules stay" : NULL);
}

static void unlock_notice(const struct zkf_request *request)
{
	const struct zkf_file *file = zkf_file_find(request->dev, request->ino, request->kind);

	if (file)
		zkf_lock_hint(file->lock);
}

static bool valid(const struct zkf_request *request)
{
	if (request->magic != ZKF_WIRE_MAGIC || request->kind > (request->op == ZKF_OP_BREAK ? ZKF_GROUP : ZKF_RECORD))
		return false;
	if (request->op != ZKF_OP_LOCK && request->op != ZKF_OP_GETLK && request->op != ZKF_OP_RELEASE)
		return true;
	if (request->mode != ZKF_SHARED && request->mode != ZKF_EXCLUSIVE)
		return false;
	if (request->flags & ~(ZKF_FLAG_NONBLOCK | ZKF_FLAG_HELD | ZKF_FLAG_OFD | ZKF_FLAG_TELL))
		return false;
	if (request->kind == ZKF_FLOCK)
		return request->start == 0 && request->end == ZKF_RANGE_MAX;
	return request->start >= 0 && request->end >= request->start;
}

static void one_too_many(struct zkf_conversation *conversation)
{
	char why[120];

	snprintf(why, sizeof(why), "uid %u has %u connections, and user_connections allows no more",
	         (unsigned)conversation->peer.uid, zkf_users_limit_of_connections());
	answer(conversation, ZKF_FAILED, ENOLCK, why);
}

/* What may arrive: a request, or the longer one. */
union packet_in {
	struct zkf_request request;
	struct zkf_break_request breaking;
};

static bool length_fits(const union packet_in *packet, ssize_t bytes)
{
	if (bytes == (ssize_t)sizeof(packet->breaking))
		return packet->request.op == ZKF_OP_BREAK;
	return bytes == (ssize_t)sizeof(packet->request) && packet->request.op != ZKF_OP_BREAK;
}

/* True: the conversation goes on.  False: hang up. */
static bool request_handle(struct zkf_conversation *conversation, const union packet_in *packet, int fd)
{
	const struct zkf_request *request = &packet->request;

	if (!valid(request))
		return false;
	if (conversation->refused && request->op != ZKF_OP_UNLOCK) {
		one_too_many(conversation);
		return false;
	}
	switch (request->op) {
	case ZKF_OP_LOCK:
	case ZKF_OP_GETLK:
		if (fd < 0)
			return false;
		lock_request(conversation, request, fd);
		return true;
	case ZKF_OP_TOKEN:
		if (fd < 0)
			return false;
		token_request(conversation, request, fd);
		return true;
	case ZKF_OP_LIST:
		conversation->listing = zkf_listing_start(conversation, conversation->peer.uid);
		return conversation->listing != NULL;
	case ZKF_OP_RELOAD:
		reload_request(conversation);
		return false;
	case ZKF_OP_BREAK:
		conversation->breaking = zkf_breaking_start(conversation, &packet->breaking, &conversation->peer);
		return conversation->breaking != NULL;
	case ZKF_OP_STATUS:
		zkf_status_send(conversation);
		return true; /* until it hangs up: it may not have read all of it */
	case ZKF_OP_UNLOCK:
		unlock_notice(request);
		return false; /* no reply: it is done */
	case ZKF_OP_RELEASE:
		if (fd >= 0)
			release_request(conversation, request, fd);
		return false;
	default:
		return false;
	}
}

/* What may come after COVERED.  False: hang up. */
static bool more_handle(struct zkf_conversation *conversation, const struct zkf_request *request, int fd)
{
	if (request->magic != ZKF_WIRE_MAGIC)
		return false;
	if (request->op == ZKF_OP_REFUSED)
		return refused_request(conversation, request, fd);
	if (request->op != ZKF_OP_DONE || !conversation->demanding || !conversation->demand.noted)
		return false;
	zkf_refused_settle(&conversation->demand);
	return true;
}

/* Reads one packet.  Returns its bytes (0: hang-up or nothing valid); fds that came along are in fds. */
static ssize_t packet_read(int from, union packet_in *packet, int fds[FDS_MAX], int *fd_count)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int) * FDS_MAX)];
	} control;
	struct iovec part = {.iov_base = packet, .iov_len = sizeof(*packet)};
	struct msghdr message = {
		.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
	ssize_t bytes = recvmsg(from, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);

	*fd_count = 0;
	if (bytes < 0)
		return -errno;
	for (struct cmsghdr *at = CMSG_FIRSTHDR(&message); at; at = CMSG_NXTHDR(&message, at)) {
		if (at->cmsg_level != SOL_SOCKET || at->cmsg_type != SCM_RIGHTS)
			continue;
		*fd_count = (int)((at->cmsg_len - CMSG_LEN(0)) / sizeof(int));
		memcpy(fds, CMSG_DATA(at), (size_t)*fd_count * sizeof(int));
	}
	return message.msg_flags & (MSG_TRUNC | MSG_CTRUNC) ? 0 : bytes;
}

static void conversation_ready(struct zkf_source *source, uint32_t events)
{
	struct zkf_conversation *conversation =
		(struct zkf_conversation *)((char *)source - offsetof(struct zkf_conversation, source));
	bool was_silent = conversation->silent;
	union packet_in packet;
	int fds[FDS_MAX], count;
	ssize_t bytes;
	bool goes_on = false;

	if (events == EPOLLOUT) {
		unsent_send(conversation);
		return;
	}
	bytes = packet_read(source->fd, &packet, fds, &count);
	if (bytes == -EAGAIN || bytes == -EINTR)
		return;
	if (bytes > 0 && length_fits(&packet, bytes) && was_silent && count <= 1) {
		silent_end(conversation);
		goes_on = request_handle(conversation, &packet, count ? fds[0] : -1);
	} else if (bytes == (ssize_t)sizeof(packet.request) && count <= 1) {
		goes_on = more_handle(conversation, &packet.request, count ? fds[0] : -1);
	}
	/* The program's description must not outlive the program here: its flock would not end with it. */
	for (int i = 0; i < count; i++)
		close(fds[i]);
	if (!goes_on)
		conversation_end(conversation);
}

/*
 * One more than its user may have: whoever of his says nothing makes room; when all have asked, it is told so.  A flood of
 * such is hung up on.
 */
static void at_the_limit(struct zkf_conversation *conversation)
{
	uid_t uid = conversation->peer.uid;
	struct zkf_conversation *oldest = silent_first;
	int told = 0;

	if (zkf_users_tell(uid))
		zkf_log(ZKF_LOG_WARN, "server limit uid=%u user_connections=%u why=\"further ones are refused\"",
		        (unsigned)uid, zkf_users_limit_of_connections());
	while (oldest && (oldest->peer.uid != uid || (oldest->refused && ++told < TOLD_MAX)))
		oldest = oldest->next;
	conversation->refused = !oldest || oldest->refused;
	if (oldest)
		conversation_end(oldest);
}

static void conversation_start(int fd)
{
	struct zkf_conversation *conversation = zkf_calloc(1, sizeof(*conversation));
	socklen_t bytes = sizeof(conversation->peer);

	if (!conversation) {
		close(fd);
		return;
	}
	conversation->source.fd = fd;
	conversation->source.ready = conversation_ready;
	conversation->silent_timer.fire = silent_fired;
	conversation->deferred_timer.fire = deferred_fired;
	conversation->deferred_fd = -1;
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &conversation->peer, &bytes) ||
	    zkf_loop_add(&conversation->source, EPOLLIN | EPOLLRDHUP)) {
		close(fd);
		free(conversation);
		return;
	}
	switch (zkf_users_connected(conversation->peer.uid)) {
	case 0:
		conversation->counted = true;
		break;
	case -EAGAIN:
		conversation->counted = true;
		at_the_limit(conversation);
		break;
	default:
		zkf_loop_remove(&conversation->source);
		close(fd);
		free(conversation);
		return;
	}
	conversations++;
	conversation->silent = true;
	conversation->before = silent_last;
	*silent_last = conversation;
	silent_last = &conversation->next;
	zkf_timer_arm(&conversation->silent_timer, zkf_now_ns() + SILENT_NS);
}

static void listener_resume(struct zkf_timer *timer)
{
	if (zkf_loop_add(&listener, EPOLLIN))
		zkf_timer_arm(timer, zkf_now_ns() + PAUSE_NS);
}

/* Who wants to connect stays at the door, and would wake the loop for ever.  What is kept unused is given back meanwhile. */
static void listener_pause(const char *why)
{
	static int64_t told_ns;
	int64_t now = zkf_now_ns();

	if (!told_ns || now - told_ns >= TELL_NS) {
		told_ns = now;
		zkf_log(ZKF_LOG_ERROR, "server accept error=\"%s\"", why);
	}
	zkf_lock_give_back_some();
	zkf_loop_remove(&listener);
	zkf_timer_arm(&listener_timer, now + PAUSE_NS);
}

static void listener_ready(struct zkf_source *source, uint32_t events)
{
	(void)events;
	for (int i = 0; i < 64; i++) {
		int fd = accept4(source->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd >= 0) {
			conversation_start(fd);
		} else if ((errno == EMFILE || errno == ENFILE) && silent_first &&
		           silent_first->silent_timer.due_ns - SILENT_NS + PAUSE_NS <= zkf_now_ns()) {
			conversation_end(silent_first); /* who says nothing makes room for who may */
		} else {
			if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
				listener_pause(strerror(errno));
			return;
		}
	}
}

void zkf_server_rules(const struct zkf_config *config)
{
	zkf_users_limit(config->user_connections, config->user_locks);
	zkf_mapped_rules(config);
}

/* Binds directory/socket; 0 or a negative errno. */
static int bind_own(int directory_fd, const char *directory, int mode)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	char alias[64];
	int bytes;

	/* sun_path is short; the directory may be long: go through our own descriptor of it. */
	snprintf(alias, sizeof(alias), "/proc/self/fd/%d/socket", directory_fd);
	bytes = snprintf(address.sun_path, sizeof(address.sun_path), "%s/socket", directory);
	if (bytes >= (int)sizeof(address.sun_path))
		snprintf(address.sun_path, sizeof(address.sun_path), "%s", alias);
	listener.fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (listener.fd < 0)
		return -errno;
	unlinkat(directory_fd, "socket", 0);
	if (bind(listener.fd, (struct sockaddr *)&address, sizeof(address)) ||
	    fchmodat(directory_fd, "socket", (mode_t)mode, 0) || listen(listener.fd, BACKLOG) ||
	    fstatat(directory_fd, "socket", &bound, AT_SYMLINK_NOFOLLOW))
		return -errno;
	return 0;
}

int zkf_server_init(int directory_fd, const char *directory, int passed, int mode, const struct zkf_config *config)
{
	int error = 0;

	zkf_users_limit(config->user_connections, config->user_locks);
	zkf_mapped_rules(config);
	if (passed >= 0)
		listener.fd = passed;
	else
		error = bind_own(directory_fd, directory, mode);
	if (error)
		return error;
	listener.ready = listener_ready;
	listener_timer.fire = listener_resume;
	return zkf_loop_add(&listener, EPOLLIN);
}

void zkf_server_end(int directory_fd)
{
	struct stat there;

	/* A supervisor may have put its own into the place of ours. */
	if (bound.st_ino && !fstatat(directory_fd, "socket", &there, AT_SYMLINK_NOFOLLOW) &&
	    there.st_ino == bound.st_ino && there.st_dev == bound.st_dev)
		unlinkat(directory_fd, "socket", 0);
}
