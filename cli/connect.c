/*
 * cli/connect.c - finding the keeper's socket
 *
 * Answers for: the order in which runtime directories are tried, whom to trust in /tmp, packets there and back.
 * Does not:    start a keeper: a tool that looks must not change what it sees.
 * Threads:     one.
 * Specification: design section 9, "Environment" and "Starting the keeper"; zkflock(1).
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"

/* A keeper that takes longer is stopped or stuck, and a person should hear of it. */
#define ANSWER_TIMEOUT_S 10

#define SYSTEM_DIR "/run/zkflock"

#define STARTS_WITH "; a keeper starts with the first cluster lock"

/* directory_is_private - ours alone, so that nobody else can have put a socket there */
static bool directory_is_private(int fd)
{
	struct stat status;

	return fstat(fd, &status) == 0 && status.st_uid == geteuid() && (status.st_mode & 0777) == 0700;
}

/*
 * connect_in - connect to the socket in a directory
 *
 * By way of a descriptor: what was checked is what is used, and sun_path's 108 bytes don't bound the directory's name.
 */
static int connect_in(const char *directory, bool must_be_private)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int dir_fd, fd, result = 0;

	dir_fd = open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC | (must_be_private ? O_NOFOLLOW : 0));
	if (dir_fd < 0)
		return -errno;
	if (must_be_private && !directory_is_private(dir_fd)) {
		close(dir_fd);
		return -EPERM;
	}
	snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/socket", dir_fd);
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd < 0 || connect(fd, (const struct sockaddr *)&address, sizeof(address)) < 0)
		result = -errno;
	close(dir_fd);
	if (result == 0)
		return fd;
	if (fd >= 0)
		close(fd);
	return result;
}

/* try_in - connect_in, and say why not */
static int try_in(const char *directory, bool must_be_private, const char *hint)
{
	int result = connect_in(directory, must_be_private);

	if (result == -EPERM && must_be_private)
		cli_warn("%s: not used: it must belong to you with mode 0700", directory);
	else if (result < 0)
		cli_warn("no keeper answers in %s: %s%s", directory, strerror(-result), hint);
	return result;
}

/* session_directory - the login session's; of another user (su, sudo) it does not count */
static const char *session_directory(void)
{
	const char *directory = secure_getenv("XDG_RUNTIME_DIR");
	struct stat status;

	if (!directory || directory[0] != '/' || stat(directory, &status) < 0 || status.st_uid != geteuid())
		return NULL;
	return directory;
}

/*
 * connect_to_own - the user's own keeper
 *
 * Both places are tried: a keeper that was started by a job without a login session has its socket in /tmp.
 */
static int connect_to_own(void)
{
	const char *session = session_directory();
	char directory[PATH_MAX];
	int fd;

	if (session && strlen(session) < sizeof(directory) - sizeof("/zkflock")) {
		snprintf(directory, sizeof(directory), "%s/zkflock", session);
		fd = try_in(directory, false, "");
		if (fd >= 0)
			return fd;
	}
	snprintf(directory, sizeof(directory), "/tmp/zkflock-%u", (unsigned)geteuid());
	return try_in(directory, true, "");
}

int cli_keeper_connect(void)
{
	const char *given = secure_getenv("ZKFLOCK_RUNTIME_DIR");
	int fd, own;

	if (given && given[0])
		return try_in(given, false, STARTS_WITH);
	fd = connect_in(SYSTEM_DIR, false);
	own = fd < 0 && geteuid() != 0 ? connect_to_own() : fd;
	if (own < 0)
		cli_warn("no keeper answers in " SYSTEM_DIR ": %s" STARTS_WITH, strerror(-fd));
	return own;
}

int cli_keeper_receive(int fd, union cli_packet *packet)
{
	const size_t fixed = offsetof(struct zkf_reply, text);
	ssize_t got;

	do
		got = recv(fd, packet, ZKF_ROW_BYTES_MAX, 0);
	while (got < 0 && errno == EINTR);
	if (got < 0)
		return errno == EAGAIN || errno == EWOULDBLOCK ? -ETIMEDOUT : -errno;
	if (got == 0)
		return -ECONNRESET;
	if ((size_t)got < fixed || packet->reply.magic != ZKF_WIRE_MAGIC ||
	    packet->reply.text_bytes > (size_t)got - fixed)
		return -EPROTO;
	return (int)packet->reply.text_bytes;
}

int cli_keeper_send(int fd, const struct zkf_request *request, int about, const char *verb)
{
	const struct timeval timeout = {.tv_sec = ANSWER_TIMEOUT_S};
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct iovec part = {.iov_base = (void *)(uintptr_t)request, .iov_len = sizeof(*request)};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

	if (about >= 0) {
		message.msg_control = &control;
		message.msg_controllen = sizeof(control);
		control.header.cmsg_level = SOL_SOCKET;
		control.header.cmsg_type = SCM_RIGHTS;
		control.header.cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(&control.header), &about, sizeof(int));
	}
	if (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout)) < 0 ||
	    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout)) < 0 ||
	    sendmsg(fd, &message, MSG_NOSIGNAL) < 0) {
		cli_warn("%s: asking the keeper: %s", verb, strerror(errno));
		return -EIO;
	}
	return 0;
}

int cli_keeper_ask(int fd, enum zkf_op op, const char *verb)
{
	const struct zkf_request request = {.magic = ZKF_WIRE_MAGIC, .op = (uint8_t)op};

	return cli_keeper_send(fd, &request, -1, verb);
}

int cli_keeper_send_bytes(int fd, const void *request, size_t bytes, const char *verb)
{
	const struct timeval timeout = {.tv_sec = ANSWER_TIMEOUT_S};

	if (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout)) < 0 ||
	    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout)) < 0 ||
	    send(fd, request, bytes, MSG_NOSIGNAL) < 0) {
		cli_warn("%s: asking the keeper: %s", verb, strerror(errno));
		return -EIO;
	}
	return 0;
}

int cli_keeper_rows(int fd, const char *verb, int (*row)(void *context, char *text, size_t len), void *context)
{
	static union cli_packet packet;
	char *text = packet.bytes + offsetof(struct zkf_reply, text);
	int len, result;

	for (;;) {
		len = cli_keeper_receive(fd, &packet);
		if (len < 0) {
			cli_warn("%s: the keeper's answer: %s%s", verb, strerror(-len),
			         len == -ECONNRESET ? "; is it of another version?" : "");
			return len;
		}
		text[len] = '\0';
		switch (packet.reply.answer) {
		case ZKF_ROW:
			result = row(context, text, (size_t)len);
			if (result == 0)
				break;
			cli_warn("%s: %s", verb, strerror(-result));
			return result;
		case ZKF_END:
			return 0;
		case ZKF_FAILED:
			fprintf(stderr, "zkflock: %s: the keeper says: ", verb);
			cli_print_safe(stderr, text, (size_t)len);
			fprintf(stderr, " (%s)\n", strerror(packet.reply.error));
			return packet.reply.error > 0 ? -packet.reply.error : -EIO;
		default:
			cli_warn("%s: the keeper's answer is of another version; restart zkflockd", verb);
			return -EPROTO;
		}
	}
}
