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

#include "fault.h"
#include "file.h"
#include "holds.h"
#include "list.h"
#include "lock.h"
#include "log.h"
#include "loop.h"
#include "publish.h"
#include "rules.h"
#include "session.h"
#include "token.h"

#define BACKLOG 4096
/* A connection that says nothing for this long is hung up on. */
#define SILENT_NS (10 * 1000 * ZKF_NS_PER_MS)
#define FDS_MAX 4 /* more than one is an error, but all that come must be closed */

struct zkf_conversation {
	struct zkf_source source;
	struct zkf_timer silent_timer;
	struct zkf_conversation *next, **before; /* the silent ones, oldest first */
	struct ucred peer;
	bool silent;     /* nothing was asked yet */
	bool demanding;  /* demand is in a lock's list */
	struct zkf_demand demand;
	struct zkf_listing *listing;
	struct zkf_token_ask token_ask;
};

/* The loop's. */
static struct zkf_source listener = {.fd = -1};
static struct stat bound; /* our socket's file; all zero: a supervisor made it */
static const struct zkf_config *rules;
static struct zkf_conversation *silent_first, **silent_last = &silent_first;

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
	zkf_token_withdraw(&conversation->token_ask);
	zkf_loop_remove(&conversation->source);
	close(conversation->source.fd);
	free(conversation);
}

static void silent_fired(struct zkf_timer *timer)
{
	conversation_end((struct zkf_conversation *)((char *)timer - offsetof(struct zkf_conversation, silent_timer)));
}

int zkf_server_send(struct zkf_conversation *conversation, const struct zkf_reply *reply, const char *text)
{
	struct iovec parts[2] = {
		{.iov_base = (void *)(uintptr_t)reply, .iov_len = text ? offsetof(struct zkf_reply, text) : sizeof(*reply)},
		{.iov_base = (void *)(uintptr_t)text, .iov_len = text ? reply->text_bytes : 0},
	};
	struct msghdr message = {.msg_iov = parts, .msg_iovlen = text ? 2 : 1};

	return sendmsg(conversation->source.fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? -errno : 0;
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
	zkf_server_send((struct zkf_conversation *)((char *)demand - offsetof(struct zkf_conversation, demand)), reply, NULL);
}

/* The path that the kernel has for a descriptor; its length, or a negative errno. */
static int path_of(int fd, const struct stat *status, char path[PATH_MAX + 1])
{
	char link[40];
	ssize_t bytes;
	size_t length;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	bytes = readlink(link, path, PATH_MAX);
	if (bytes < 0)
		return -errno;
	length = zkf_path_trim_deleted(path, (size_t)bytes, status->st_nlink);
	path[length] = 0;
	return path[0] == '/' ? (int)length : -EINVAL;
}

static struct zkf_lock *lock_for(const struct zkf_rule *rule, uint32_t kind, const char *path, int path_bytes)
{
	char encoded[ZKF_NAME_BYTES_MAX + 1];
	struct zkf_lock *lock;
	int bytes = zkf_rule_znode(rule, path, (size_t)path_bytes, encoded);

	if (bytes < 0) {
		errno = -bytes;
		return NULL;
	}
	lock = zkf_lock_get(kind, encoded);
	if (!lock) {
		errno = ENOMEM;
		return NULL;
	}
	lock->on_loss = rule->on_loss;
	lock->keep_ns = rule->keep_ms * ZKF_NS_PER_MS;
	return lock;
}

/* Known by another name (it was renamed): a file that is in use stays what it is, an idle one may change. */
static bool keeps_its_lock(struct zkf_file *file)
{
	struct zkf_ranges in_use = {0};
	bool keeps = false;

	for (const struct zkf_demand *demand = file->lock->demands; demand && !keeps; demand = demand->next)
		keeps = demand->file == file;
	if (!keeps) {
		zkf_publish_state(file->slot, ZKF_NONE, true, true);
		keeps = zkf_file_look(file, &in_use) || in_use.count;
		zkf_lock_touch(file->lock);
	}
	zkf_ranges_free(&in_use);
	return keeps;
}

static struct zkf_file *file_for(struct zkf_lock **lock, uint32_t kind, int fd, const struct stat *status,
                                 const char *path)
{
	struct zkf_file *file = zkf_file_find(status->st_dev, status->st_ino, kind);
	int error;

	if (file && file->lock != *lock && !keeps_its_lock(file)) {
		zkf_file_free(file);
		file = NULL;
	}
	if (file) {
		file->outdated = file->lock != *lock;
		*lock = file->lock;
		return file;
	}
	if (zkf_file_nearly_full())
		zkf_lock_give_back_some();
	error = zkf_file_open(&file, *lock, fd, status, path, kind);
	if (!error) {
		error = zkf_file_note(file);
		if (error)
			zkf_file_free(file);
	}
	if (error == -ENFILE || error == -EMFILE)
		zkf_lock_give_back_some();
	errno = -error;
	return error ? NULL : file;
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

	if (flock_kind || ofd)
		error = zkf_file_held_through(fd, flock_kind ? "FLOCK" : "OFDLCK", &held);
	else
		error = zkf_file_held_by(demand->file, demand->pid, true, &held);
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
	demand->fd = request->fd;
	if (lock->key.kind == ZKF_GROUP)
		zkf_holds_arrive(demand, fd);
	else if (!demand->held && !zkf_lock_ready(lock, demand->start, demand->end, demand->mode) &&
	         fill_in_holdings(demand, fd, request->flags & ZKF_FLAG_OFD)) {
		if (demand->convert_fd >= 0)
			close(demand->convert_fd);
		answer(conversation, ZKF_FAILED, ENOLCK, "out of memory");
		zkf_lock_touch(lock);
		return;
	}
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

	if (file && keeps_its_lock(file)) {
		demand_start(conversation, request, fd, NULL, file->lock, file);
		return;
	}
	if (file)
		zkf_file_free(file);
	answer(conversation, ZKF_UNMAPPED, 0, NULL);
}

static void lock_request(struct zkf_conversation *conversation, const struct zkf_request *request, int fd)
{
	const struct zkf_rule *rule;
	char path[PATH_MAX + 1], why[160];
	struct zkf_lock *lock;
	struct zkf_file *file;
	struct stat status;
	int bytes;

	if (fstat(fd, &status) || (!S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode)) ||
	    (fcntl(fd, F_GETFL) & O_PATH)) {
		answer(conversation, ZKF_FAILED, EBADF, "not a descriptor of a file or directory");
		return;
	}
	if (request->kind == ZKF_RECORD && request->op == ZKF_OP_LOCK &&
	    (fcntl(fd, F_GETFL) & O_ACCMODE) == (request->mode == ZKF_EXCLUSIVE ? O_RDONLY : O_WRONLY)) {
		answer(conversation, ZKF_FAILED, EBADF, "not open for that"); /* as fcntl(2): else a reader could pin a lock */
		return;
	}
	bytes = path_of(fd, &status, path);
	if (bytes == -ENAMETOOLONG) {
		/* Nobody can tell whether it is meant: no lock that may be none. */
		answer(conversation, ZKF_FAILED, ENOLCK, "its path is longer than PATH_MAX, so the kernel does not tell it");
		return;
	}
	rule = bytes > 0 ? zkf_config_match(rules, path, (size_t)bytes) : NULL;
	if (!rule || rule->excluded) {
		unmapped_request(conversation, request, fd, &status);
		return;
	}
	lock = lock_for(rule, rule->group ? ZKF_GROUP : request->kind, path, bytes);
	file = lock ? file_for(&lock, request->kind, fd, &status, path) : NULL;
	if (!file) {
		snprintf(why, sizeof(why), "the keeper can't take the file up: %s",
		         errno == ENFILE ? "this host holds as many files as it has room for; see zkflockd(8), LIMITS"
		                         : strerror(errno));
		answer(conversation, ZKF_FAILED, ENOLCK, why);
		zkf_log(ZKF_LOG_WARN, "server refuse path=%s pid=%d why=\"%s\"", path, conversation->peer.pid, why);
		if (lock)
			zkf_lock_touch(lock); /* it may have been made for this */
		return;
	}
	demand_start(conversation, request, fd, rule, lock, file);
}

static void token_answered(struct zkf_token_ask *ask, const struct zkf_reply *reply)
{
	zkf_server_send(
		(struct zkf_conversation *)((char *)ask - offsetof(struct zkf_conversation, token_ask)), reply, NULL);
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
	bytes = path_of(fd, status, path);
	rule = bytes > 0 ? zkf_config_match(rules, path, (size_t)bytes) : NULL;
	if (!rule || rule->excluded) {
		errno = 0;
		return NULL;
	}
	return lock_for(rule, rule->group ? ZKF_GROUP : request->kind, path, bytes);
}

static void token_request(struct zkf_conversation *conversation, const struct zkf_request *request, int fd)
{
	struct zkf_lock *lock;
	struct stat status;

	if (fstat(fd, &status) || (!S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode)) ||
	    (fcntl(fd, F_GETFL) & O_PATH)) {
		answer(conversation, ZKF_FAILED, EBADF, "not a descriptor of a file or directory");
		return;
	}
	lock = lock_of(request, fd, &status);
	if (!lock) {
		answer(conversation, errno ? ZKF_FAILED : ZKF_UNMAPPED, errno, errno ? "no lock name can be made" : NULL);
		return;
	}
	conversation->token_ask.answer = token_answered;
	zkf_token_ask(&conversation->token_ask, lock,
	              zkf_rules_current()->connect_timeout_ms * ZKF_NS_PER_MS);
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
	if (request->magic != ZKF_WIRE_MAGIC || request->kind > ZKF_RECORD)
		return false;
	if (request->op != ZKF_OP_LOCK && request->op != ZKF_OP_GETLK)
		return true;
	if (request->mode != ZKF_SHARED && request->mode != ZKF_EXCLUSIVE)
		return false;
	if (request->flags & ~(ZKF_FLAG_NONBLOCK | ZKF_FLAG_HELD | ZKF_FLAG_OFD | ZKF_FLAG_TELL))
		return false;
	if (request->kind == ZKF_FLOCK)
		return request->start == 0 && request->end == ZKF_RANGE_MAX;
	return request->start >= 0 && request->end >= request->start;
}

/* True: the conversation goes on.  False: hang up. */
static bool request_handle(struct zkf_conversation *conversation, const struct zkf_request *request, int fd)
{
	if (!valid(request))
		return false;
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
	case ZKF_OP_UNLOCK:
		unlock_notice(request);
		return false; /* no reply: it is done */
	default:
		return false;
	}
}

/* Reads one packet.  Returns its bytes (0: hang-up or nothing valid); fds that came along are in fds. */
static ssize_t packet_read(int from, struct zkf_request *request, int fds[FDS_MAX], int *fd_count)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int) * FDS_MAX)];
	} control;
	struct iovec part = {.iov_base = request, .iov_len = sizeof(*request)};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control,
	                         .msg_controllen = sizeof(control)};
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
	struct zkf_request request;
	int fds[FDS_MAX], count;
	ssize_t bytes = packet_read(source->fd, &request, fds, &count);
	bool goes_on = false;

	(void)events;
	if (bytes == -EAGAIN || bytes == -EINTR)
		return;
	if (bytes == (ssize_t)sizeof(request) && was_silent && count <= 1) {
		silent_end(conversation);
		goes_on = request_handle(conversation, &request, count ? fds[0] : -1);
	}
	/* The program's description must not outlive the program here: its flock would not end with it. */
	for (int i = 0; i < count; i++)
		close(fds[i]);
	if (!goes_on)
		conversation_end(conversation);
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
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &conversation->peer, &bytes) ||
	    zkf_loop_add(&conversation->source, EPOLLIN | EPOLLRDHUP)) {
		close(fd);
		free(conversation);
		return;
	}
	conversation->silent = true;
	conversation->before = silent_last;
	*silent_last = conversation;
	silent_last = &conversation->next;
	zkf_timer_arm(&conversation->silent_timer, zkf_now_ns() + SILENT_NS);
}

static void listener_ready(struct zkf_source *source, uint32_t events)
{
	(void)events;
	for (int i = 0; i < 64; i++) {
		int fd = accept4(source->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd >= 0) {
			conversation_start(fd);
		} else if ((errno == EMFILE || errno == ENFILE) && silent_first) {
			conversation_end(silent_first); /* who says nothing makes room for who may */
		} else {
			if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
				zkf_log(ZKF_LOG_WARN, "server accept error=\"%s\"", strerror(errno));
			return;
		}
	}
}

/*
 * A known file whose lock name is another one by the new rules, or that has none, keeps it until its last unlock: the
 * lock is given back then, and until then every request comes to us, who find out whether it is in use.
 */
static void file_by_new_rules(struct zkf_file *file)
{
	size_t bytes = strlen(file->path);
	const struct zkf_rule *rule = zkf_config_match(rules, file->path, bytes);
	char encoded[ZKF_NAME_BYTES_MAX + 1];
	struct zkf_lock *lock = file->lock;

	if (rule && !rule->excluded && rule->group == (lock->key.kind == ZKF_GROUP) &&
	    zkf_rule_znode(rule, file->path, bytes, encoded) > 0 && strcmp(encoded, lock->key.name) == 0) {
		file->outdated = false;
		lock->on_loss = rule->on_loss;
		lock->keep_ns = rule->keep_ms * ZKF_NS_PER_MS;
	} else {
		file->outdated = true; /* other files of the lock may keep it */
		lock->keep_ns = 0;
	}
	zkf_lock_touch(lock);
}

void zkf_server_rules(const struct zkf_config *config)
{
	rules = config;
	for (struct zkf_file *file = zkf_file_list(); file; file = file->hh.next)
		file_by_new_rules(file);
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

	rules = config;
	if (passed >= 0)
		listener.fd = passed;
	else
		error = bind_own(directory_fd, directory, mode);
	if (error)
		return error;
	listener.ready = listener_ready;
	return zkf_loop_add(&listener, EPOLLIN);
}

void zkf_server_end(int directory_fd)
{
	struct stat there;

	/* A supervisor may have put its own into the place of ours. */
	if (bound.st_ino && !fstatat(directory_fd, "socket", &there, AT_SYMLINK_NOFOLLOW) && there.st_ino == bound.st_ino &&
	    there.st_dev == bound.st_dev)
		unlinkat(directory_fd, "socket", 0);
}
