/*
 * preload/conversation.c - one question to the keeper and its answer; see conversation.h
 *
 * Answers for: see conversation.h.
 * Does not:    see conversation.h.
 * Threads:     see conversation.h.
 * Specification: see conversation.h.
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include "conversation.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "log.h"
#include "real.h"
#include "start.h"

#define NS_PER_MS 1000000
#define PAUSE_NS (5 * NS_PER_MS)

struct zkf_patience zkf_patience_bounded(const struct zkf_settings *settings)
{
	int64_t ms = (int64_t)settings->config.connect_timeout_ms + ZKF_REPLY_GRACE_MS;

	return (struct zkf_patience){.deadline_ns = zkf_real_now_ns() + ms * NS_PER_MS};
}

int zkf_patience_pause(const struct zkf_patience *patience, int64_t ns)
{
	if (!patience->deadline_ns)
		return zkf_real_pause(ns);
	if (zkf_real_now_ns() >= patience->deadline_ns)
		return -ETIMEDOUT;
	zkf_real_poll_in(-1, ns);
	return 0;
}

static int connect_to(int fd, const char *directory)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	strcpy(stpcpy(address.sun_path, directory), "/socket");
	return syscall(SYS_connect, fd, &address, sizeof(address)) ? -errno : 0;
}

/*
 * Connect to the keeper of one directory.
 *
 * Returns a descriptor; -ENOENT (no keeper here, or none that this user may talk to); -EAGAIN (its queue is full,
 * non-blocking only); -EPERM (a directory not to be trusted); -EINTR; or what socket(2) says.
 */
static int connect_directory(const char *directory, int type)
{
	int fd, result = zkf_runtime_trust(directory);

	if (result)
		return result;
	fd = zkf_real_socket(SOCK_SEQPACKET | type);
	if (fd < 0)
		return fd;
	result = connect_to(fd, directory);
	if (!result)
		return fd;
	zkf_real_close(fd);
	/* A socket of another type, or one that we may not use, is not a keeper for us. */
	if (result == -ECONNREFUSED || result == -EACCES || result == -ENOTDIR || result == -EPROTOTYPE)
		return -ENOENT;
	return result;
}

/* The first keeper that accepts.  On -EPERM and the like the directory that is to blame is the last one looked at. */
static int connect_any(struct zkf_conversation *conversation, const struct zkf_runtime *runtime, int type)
{
	int i, fd = -ENOENT;

	for (i = 0; i < runtime->count && fd == -ENOENT; i++) {
		strcpy(conversation->directory, runtime->paths[i]);
		fd = connect_directory(runtime->paths[i], type);
	}
	return fd;
}

/* connect_any until the answer is final: a full queue, or a signal during a non-blocking call, is not. */
static int connect_patiently(struct zkf_conversation *conversation, const struct zkf_runtime *runtime,
                             const struct zkf_patience *patience)
{
	for (;;) {
		int result, fd = connect_any(conversation, runtime, patience->deadline_ns ? SOCK_NONBLOCK : 0);

		if (fd != -EAGAIN && !(fd == -EINTR && patience->deadline_ns))
			return fd;
		result = zkf_patience_pause(patience, PAUSE_NS);
		if (result)
			return result;
	}
}

/*
 * Start a keeper and connect to it.  "Ready" may also have come from a starter that found another keeper at work or on
 * its way, so that a socket which is not there yet is worth a few looks.
 */
static int start_and_connect(struct zkf_conversation *conversation, const struct zkf_settings *settings,
                             const struct zkf_runtime *runtime, const struct zkf_patience *patience)
{
	const char *directory = runtime->paths[runtime->count - 1];
	int64_t give_up_ns;
	int fd, result = zkf_start_keeper(settings, directory, patience);

	if (result)
		return result;
	give_up_ns = zkf_real_now_ns() + (int64_t)settings->config.connect_timeout_ms * NS_PER_MS;
	do {
		fd = connect_patiently(conversation, runtime, patience);
		if (fd != -ENOENT)
			return fd;
		result = zkf_patience_pause(patience, PAUSE_NS);
		if (result)
			return result;
	} while (zkf_real_now_ns() < give_up_ns);
	return -ENOENT;
}

static int log_no_keeper(const struct zkf_conversation *conversation, int error)
{
	struct zkf_line line;

	if (zkf_log_begin(&line, ZKF_LOG_ERROR, "keeper directory=")) {
		zkf_log_string(&line, conversation->directory);
		zkf_log_string(&line, " error=");
		zkf_log_errno(&line, error);
		if (error == -EPERM)
			zkf_log_string(&line, "; must be a directory of root or this user, closed to other writers");
		else if (error == -ENOENT)
			zkf_log_string(&line, "; no keeper listens here");
		else
			zkf_log_string(&line, "; no connection to the keeper can be made");
		zkf_log_end(&line);
	}
	return error == -ENOENT ? -ENOENT : -ENOTCONN;
}

int zkf_conversation_open(struct zkf_conversation *conversation, const struct zkf_settings *settings,
                          const struct zkf_patience *patience)
{
	struct zkf_runtime runtime;
	int fd;

	conversation->fd = -1;
	if (zkf_runtime_find(&runtime, settings))
		return -ENOTCONN;
	fd = connect_patiently(conversation, &runtime, patience);
	if (fd == -ENOENT) {
		fd = start_and_connect(conversation, settings, &runtime, patience);
		if (fd == -ENOLCK)
			return fd; /* the starter has said why */
	}
	if (fd == -EINTR || fd == -ETIMEDOUT)
		return fd;
	if (fd < 0)
		return log_no_keeper(conversation, fd);
	conversation->fd = fd;
	return 0;
}

static int send_request(int conversation, const struct zkf_request *request, int fd)
{
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec part = {.iov_base = (void *)(uintptr_t)request, .iov_len = sizeof(*request)};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
	ssize_t sent;

	memset(&control, 0, sizeof(control));
	if (fd >= 0) {
		message.msg_control = &control;
		message.msg_controllen = sizeof(control);
		control.header.cmsg_level = SOL_SOCKET;
		control.header.cmsg_type = SCM_RIGHTS;
		control.header.cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(&control.header), &fd, sizeof(int));
	}
	sent = syscall(SYS_sendmsg, conversation, &message, MSG_NOSIGNAL);
	if (sent < 0)
		return errno == EPIPE || errno == ENOTCONN ? -ECONNRESET : -errno;
	return sent == sizeof(*request) ? 0 : -EPROTO;
}

/* Until the reply can be read, or the deadline; whoever has none waits in recvmsg itself. */
static int await_reply(int fd, const struct zkf_patience *patience)
{
	int ready = -EINTR;

	if (!patience->deadline_ns)
		return 0;
	while (ready == -EINTR) {
		int64_t left_ns = patience->deadline_ns - zkf_real_now_ns();

		ready = zkf_real_poll_in(fd, left_ns > 0 ? left_ns : 0);
	}
	if (ready < 0)
		return ready;
	return ready ? 0 : -ETIMEDOUT;
}

static int receive_reply(int fd, const struct zkf_patience *patience, struct zkf_reply *reply)
{
	struct iovec part = {.iov_base = reply, .iov_len = sizeof(*reply)};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
	struct zkf_wait wait = {
		.number = SYS_recvmsg,
		.args = {fd, (long)&message, 0},
		.conversation = fd,
		.cancellable = patience->cancellable,
	};
	long got;

	do {
		int result = await_reply(fd, patience);

		if (result)
			return result;
		got = zkf_real_wait(&wait);
	} while (patience->deadline_ns && (got == -EINTR || got == -EAGAIN));
	if (got <= 0)
		return got ? (int)got : -ECONNRESET;
	if ((size_t)got < offsetof(struct zkf_reply, text) || reply->magic != ZKF_WIRE_MAGIC)
		return -EPROTO;
	if (reply->text_bytes > (size_t)got - offsetof(struct zkf_reply, text))
		reply->text_bytes = (uint32_t)((size_t)got - offsetof(struct zkf_reply, text));
	return 0;
}

/* One line, one write: what the keeper says of a long wait. */
static void log_waiting(int fd, const struct zkf_reply *reply)
{
	struct zkf_line line;

	if (!zkf_log_begin(&line, ZKF_LOG_INFO, "lock fd="))
		return;
	zkf_log_number(&line, fd);
	zkf_log_string(&line, " ");
	zkf_log_bytes(&line, reply->text, reply->text_bytes);
	zkf_log_end(&line);
}

int zkf_conversation_ask(const struct zkf_conversation *conversation, const struct zkf_request *request, int fd,
                         const struct zkf_patience *patience, struct zkf_reply *reply)
{
	int result;

	do
		result = send_request(conversation->fd, request, fd);
	while (result == -EINTR && patience->deadline_ns);
	if (result)
		return result;
	while (!(result = receive_reply(conversation->fd, patience, reply)) && reply->answer == ZKF_WAITING)
		log_waiting(fd, reply);
	return result;
}

int zkf_conversation_tell(const struct zkf_conversation *conversation, const struct zkf_request *request)
{
	int result;

	do
		result = send_request(conversation->fd, request, -1);
	while (result == -EINTR);
	return result;
}

void zkf_conversation_close(struct zkf_conversation *conversation)
{
	if (conversation->fd >= 0)
		zkf_real_hang_up(conversation->fd);
	conversation->fd = -1;
}

void zkf_conversation_notify(const struct zkf_settings *settings, const struct zkf_request *request)
{
	struct zkf_conversation conversation;
	struct zkf_runtime runtime;
	int fd;

	if (zkf_runtime_find(&runtime, settings))
		return;
	fd = connect_any(&conversation, &runtime, SOCK_NONBLOCK);
	if (fd < 0)
		return;
	send_request(fd, request, -1);
	zkf_real_close(fd);
}
