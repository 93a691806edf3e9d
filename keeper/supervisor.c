/*
 * keeper/supervisor.c - see supervisor.h
 * SPDX-License-Identifier: Apache-2.0
 */
#include "supervisor.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "log.h"

#define FIRST_PASSED 3 /* SD_LISTEN_FDS_START */

/* Written by zkf_supervisor_init. */
static int listener = -1;
static struct sockaddr_un notify;
static socklen_t notify_bytes; /* 0: nobody is to be told */

static int option(int fd, int name)
{
	int value = -1;
	socklen_t bytes = sizeof(value);

	return getsockopt(fd, SOL_SOCKET, name, &value, &bytes) ? -1 : value;
}

static bool is_listener(int fd)
{
	return option(fd, SO_DOMAIN) == AF_UNIX && option(fd, SO_TYPE) == SOCK_SEQPACKET &&
	       option(fd, SO_ACCEPTCONN) == 1;
}

static int take_listener(char *why, size_t capacity)
{
	const char *pid = secure_getenv("LISTEN_PID"), *fds = secure_getenv("LISTEN_FDS");
	long count = fds ? strtol(fds, NULL, 10) : 0;

	/* Another process's, left over in an environment that was handed down. */
	if (!pid || strtol(pid, NULL, 10) != getpid() || count <= 0)
		return 0;
	for (int fd = FIRST_PASSED; fd < FIRST_PASSED + count; fd++)
		fcntl(fd, F_SETFD, FD_CLOEXEC);
	if (count != 1 || !is_listener(FIRST_PASSED)) {
		snprintf(
			why, capacity,
			"LISTEN_FDS: allowed is one socket that listens, SOCK_SEQPACKET (ListenSequentialPacket=DIRECTORY/socket)");
		return -EINVAL;
	}
	fcntl(FIRST_PASSED, F_SETFL, fcntl(FIRST_PASSED, F_GETFL) | O_NONBLOCK);
	listener = FIRST_PASSED;
	return 0;
}

/* A path, or "@" and an abstract name. */
static void find_notify(void)
{
	const char *path = secure_getenv("NOTIFY_SOCKET");
	size_t bytes = path ? strlen(path) : 0;

	if (bytes < 2 || (path[0] != '/' && path[0] != '@') || bytes >= sizeof(notify.sun_path))
		return;
	notify.sun_family = AF_UNIX;
	memcpy(notify.sun_path, path, bytes);
	if (path[0] == '@')
		notify.sun_path[0] = 0;
	notify_bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + bytes + (path[0] == '/'));
}

int zkf_supervisor_init(char *why, size_t capacity)
{
	int error = take_listener(why, capacity);

	find_notify();
	unsetenv("LISTEN_PID");
	unsetenv("LISTEN_FDS");
	unsetenv("LISTEN_FDNAMES");
	unsetenv("NOTIFY_SOCKET");
	return error;
}

int zkf_supervisor_listener(void)
{
	return listener;
}

void zkf_supervisor_tell(const char *message)
{
	static bool complained;
	ssize_t sent;
	int fd;

	if (!notify_bytes)
		return;
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	sent = fd < 0 ? -1
	              : sendto(fd, message, strlen(message), MSG_NOSIGNAL | MSG_DONTWAIT, (struct sockaddr *)&notify,
	                       notify_bytes);
	if (sent < 0 && !complained) {
		complained = true;
		zkf_log(ZKF_LOG_WARN, "supervisor notify error=\"%s\"", strerror(errno));
	}
	if (fd >= 0)
		close(fd);
}
