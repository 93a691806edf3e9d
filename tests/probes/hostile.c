/*
 * tests/probes/hostile.c - a client that a keeper must survive
 *
 *     hostile SOCKET FILE WHAT
 *
 * FILE is mapped.  WHAT is one of
 *     garbage      packets of random bytes and lengths, with and without descriptors
 *     short        every beginning of a good request
 *     oversized    good requests with a tail, up to 64 KiB, and lists of replies nobody reads
 *     fields       a good request with each field at each odd value; none of the bad ones may be answered "covered"
 *     order        several requests on one connection, in every order, with and without reading; early hang-ups
 *     descriptors  none, two, many, and descriptors of every kind of thing that is not a file
 *     ask          one good request; prints "covered", or the answer's number and text
 *     waiting N    N connections that ask, and are kept until killed whatever the answer; prints "refused M of N" first
 *     silent N     N connections that say nothing, until killed; prints "connected N" first
 *
 * Prints "done" at the end, or what was answered that should not have been.
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "keeper/wire.h"

#define PACKET_BYTES 65536
#define DESCRIPTORS_MAX 253 /* SCM_MAX_FD */

static const char *socket_path, *file_path;
static int file_fd;
static int troubles;

static int dial(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct timeval patience = {.tv_sec = 5};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	if (fd < 0) {
		perror("socket");
		exit(1);
	}
	strncpy(address.sun_path, socket_path, sizeof(address.sun_path) - 1);
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0) {
		perror("connect");
		exit(1);
	}
	return fd;
}

static void send_with(int connection, const void *bytes, size_t count, const int *fds, size_t fd_count, int flags)
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int) * DESCRIPTORS_MAX)] = {0};
	struct iovec part = {.iov_len = count};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
	struct cmsghdr *header;

	memcpy(&part.iov_base, &bytes, sizeof(bytes));
	if (fd_count > 0) {
		message.msg_control = control;
		message.msg_controllen = CMSG_SPACE(sizeof(int) * fd_count);
		header = (struct cmsghdr *)control;
		header->cmsg_level = SOL_SOCKET;
		header->cmsg_type = SCM_RIGHTS;
		header->cmsg_len = CMSG_LEN(sizeof(int) * fd_count);
		memcpy(CMSG_DATA(header), fds, sizeof(int) * fd_count);
	}
	/* A refusal is the keeper's right. */
	if (sendmsg(connection, &message, MSG_NOSIGNAL | flags) < 0)
		return;
}

/* The answer of one reply, 0 for a hang-up, -1 for silence of `ms`. */
static int receive(int connection, int ms)
{
	struct pollfd wait = {.fd = connection, .events = POLLIN};
	char bytes[ZKF_ROW_BYTES_MAX + sizeof(struct zkf_reply)];
	struct zkf_reply reply;
	ssize_t got;

	if (poll(&wait, 1, ms) != 1)
		return -1;
	got = recv(connection, bytes, sizeof(bytes), 0);
	if (got < (ssize_t)offsetof(struct zkf_reply, text))
		return 0;
	memcpy(&reply, bytes, offsetof(struct zkf_reply, text));
	return reply.answer;
}

static struct zkf_request good_request(void)
{
	return (struct zkf_request){
		.magic = ZKF_WIRE_MAGIC,
		.op = ZKF_OP_LOCK,
		.kind = ZKF_FLOCK,
		.mode = ZKF_EXCLUSIVE,
		.flags = ZKF_FLAG_NONBLOCK,
		.tid = (int32_t)getpid(),
		.end = ZKF_RANGE_MAX,
	};
}

static void be_garbage(void)
{
	char bytes[4096];
	int connection;
	size_t length;

	for (int round = 0; round < 400; round++) {
		connection = dial();
		for (int packet = 0; packet < 3; packet++) {
			length = (size_t)random() % sizeof(bytes);
			for (size_t i = 0; i < length; i++)
				bytes[i] = (char)random();
			if (round % 3 == 0)
				memcpy(bytes, &(uint32_t){ZKF_WIRE_MAGIC}, sizeof(uint32_t));
			send_with(connection, bytes, length, &file_fd, (size_t)(random() % 2), MSG_DONTWAIT);
		}
		close(connection);
	}
}

static void be_short(void)
{
	struct zkf_request request = good_request();
	int connection;

	for (size_t length = 0; length < sizeof(request); length++) {
		connection = dial();
		send_with(connection, &request, length, &file_fd, 1, 0);
		if (receive(connection, 100) == ZKF_COVERED && ++troubles)
			printf("covered after %zu bytes\n", length);
		close(connection);
	}
}

static void be_oversized(void)
{
	static char bytes[PACKET_BYTES];
	static const size_t lengths[] = {sizeof(struct zkf_request) + 1, 4096, ZKF_ROW_BYTES_MAX + 1, PACKET_BYTES};
	struct zkf_request request = good_request();
	int connection;

	memcpy(bytes, &request, sizeof(request));
	for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++) {
		connection = dial();
		send_with(connection, bytes, lengths[i], &file_fd, 1, 0);
		if (receive(connection, 300) == ZKF_COVERED && ++troubles)
			printf("covered by %zu bytes\n", lengths[i]);
		close(connection);
	}
	request.op = ZKF_OP_LIST;
	connection = dial();
	for (int i = 0; i < 2000; i++)
		send_with(connection, &request, sizeof(request), NULL, 0, MSG_DONTWAIT);
	close(connection);
}

static void try_bad(const char *field, struct zkf_request request)
{
	int connection = dial();

	send_with(connection, &request, sizeof(request), &file_fd, 1, 0);
	if (receive(connection, 200) == ZKF_COVERED && ++troubles)
		printf("covered with a bad %s\n", field);
	close(connection);
}

static void be_odd_in_fields(void)
{
	static const int64_t numbers[] = {-1, INT64_MIN, INT64_MIN + 1};
	struct zkf_request request;

	for (int value = 0; value < 256; value += value < 12 ? 1 : 61) {
		request = good_request();
		request.op = (uint8_t)value;
		if (value != ZKF_OP_LOCK)
			try_bad("op", request);
		request = good_request();
		request.kind = (uint8_t)value;
		if (value > ZKF_RECORD)
			try_bad("kind", request);
		request = good_request();
		request.mode = (uint8_t)value;
		if (value != ZKF_SHARED && value != ZKF_EXCLUSIVE)
			try_bad("mode", request);
	}
	request = good_request();
	request.magic ^= 1;
	try_bad("magic", request);
	for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++) {
		request = good_request();
		request.kind = ZKF_RECORD;
		request.start = numbers[i];
		try_bad("start", request);
		request.start = 0;
		request.end = numbers[i];
		try_bad("end", request);
	}
	request = good_request();
	request.kind = ZKF_RECORD;
	request.start = 10;
	request.end = 9;
	try_bad("range", request);
}

/* What may follow LOCK, in every order, with the file, with another one, without, with both. */
static void be_refused_out_of_order(void)
{
	static const uint8_t ops[] = {ZKF_OP_REFUSED, ZKF_OP_DONE, ZKF_OP_RELEASE, ZKF_OP_LOCK};
	const size_t count = sizeof(ops);
	const int fds[] = {file_fd, open("/dev/null", O_RDWR), file_fd};

	for (size_t order = 0; order < count * count * count * 4; order++) {
		const uint8_t chosen[] = {ZKF_OP_LOCK, ops[order % count], ops[order / count % count],
		                          ops[order / count / count % count]};
		const size_t with = order / count / count / count;
		int connection = dial();

		for (size_t i = 0; i < sizeof(chosen); i++) {
			struct zkf_request request = good_request();
			bool first = i == 0;

			request.op = chosen[i];
			send_with(connection, &request, sizeof(request), with == 1 && !first ? fds + 1 : fds,
			          first || with == 0 || with == 1 ? 1
			          : with == 2                     ? 0
			                                          : 2,
			          MSG_DONTWAIT);
			if (chosen[i] == ZKF_OP_DONE)
				break; /* has no reply */
			if (order % 3 && receive(connection, 2000) == ZKF_COVERED && !first &&
			    (with || chosen[i] != ZKF_OP_REFUSED) && ++troubles)
				printf("covered with operation %d, %zu\n", chosen[i], with);
		}
		close(connection);
	}
	close(fds[1]);
}

static void be_out_of_order(void)
{
	static const uint8_t ops[] = {ZKF_OP_LOCK, ZKF_OP_UNLOCK, ZKF_OP_GETLK, ZKF_OP_LIST, ZKF_OP_TOKEN, 77};
	const size_t count = sizeof(ops);
	struct zkf_request request;
	int connection;

	for (size_t order = 0; order < count * count * count * 2; order++) {
		const uint8_t chosen[] = {ops[order % count], ops[order / count % count],
		                          ops[order / count / count % count]};

		connection = dial();
		for (size_t i = 0; i < sizeof(chosen); i++) {
			request = good_request();
			request.op = chosen[i];
			request.dev = (uint64_t)random();
			request.ino = (uint64_t)random();
			send_with(connection, &request, sizeof(request), &file_fd,
			          request.op == ZKF_OP_LOCK || request.op == ZKF_OP_GETLK || request.op == ZKF_OP_TOKEN,
			          MSG_DONTWAIT);
			if (order % 2)
				receive(connection, 5);
		}
		if (order % 3 == 0)
			shutdown(connection, SHUT_WR);
		if (order % 5 == 0)
			receive(connection, 5);
		close(connection);
	}
	be_refused_out_of_order();
	/* Many at once that ask and hang up before the answer. */
	for (int round = 0; round < 500; round++) {
		connection = dial();
		request = good_request();
		request.flags = round % 2 ? ZKF_FLAG_NONBLOCK : 0;
		request.kind = round % 4 < 2 ? ZKF_FLOCK : ZKF_RECORD;
		send_with(connection, &request, sizeof(request), &file_fd, 1, 0);
		close(connection);
	}
}

static void try_descriptors(const char *what, const int *fds, size_t count)
{
	struct zkf_request request = good_request();
	int connection, answer;

	for (int op = ZKF_OP_LOCK; op <= ZKF_OP_RELEASE; op++) {
		request.op = (uint8_t)op;
		connection = dial();
		send_with(connection, &request, sizeof(request), fds, count, 0);
		answer = receive(connection, 200);
		if (op == ZKF_OP_LOCK && answer == ZKF_COVERED && ++troubles)
			printf("covered with %s\n", what);
		close(connection);
	}
}

/* Under the rule that maps the file, too. */
static int open_fifo(void)
{
	char path[4096];
	int fd;

	snprintf(path, sizeof(path), "%s.fifo", file_path);
	if (mkfifo(path, 0600))
		return -1;
	fd = open(path, O_RDWR);
	unlink(path);
	return fd;
}

static void be_odd_in_descriptors(void)
{
	int path_fd = open(file_path, O_PATH), fifo_fd = open_fifo();
	struct {
		const char *what;
		int fd;
	} things[] = {
		{"a socket", socket(AF_UNIX, SOCK_STREAM, 0)},
		{"the keeper's socket", dial()},
		{"a device", open("/dev/null", O_RDWR)},
		{"a path", open(".", O_PATH)},
		{"a path of the very file", path_fd},
		{"a FIFO beside the file", fifo_fd},
		{"an epoll", epoll_create1(0)},
		{"an eventfd", eventfd(0, 0)},
		{"a memfd", memfd_create("hostile", 0)},
		{"a pseudo file", open("/proc/self/status", O_RDONLY)},
	};
	int many[DESCRIPTORS_MAX], pipes[2];

	for (size_t i = 0; i < DESCRIPTORS_MAX; i++)
		many[i] = file_fd;
	try_descriptors("no descriptor", many, 0);
	try_descriptors("two descriptors", many, 2);
	try_descriptors("many descriptors", many, DESCRIPTORS_MAX);
	for (size_t i = 0; i < sizeof(things) / sizeof(*things); i++)
		try_descriptors(things[i].what, &things[i].fd, 1);
	if (pipe(pipes) == 0)
		try_descriptors("a pipe", pipes, 1);
}

static int ask(void)
{
	struct zkf_request request = good_request();
	struct zkf_reply reply = {.magic = 0};
	int connection = dial();

	send_with(connection, &request, sizeof(request), &file_fd, 1, 0);
	if (recv(connection, &reply, sizeof(reply), 0) < (ssize_t)offsetof(struct zkf_reply, text))
		puts("hang-up");
	else if (reply.answer == ZKF_COVERED)
		puts("covered");
	else
		printf("%d %.*s\n", reply.answer, (int)reply.text_bytes, reply.text);
	return 0;
}

static void be_waiting(int count)
{
	struct zkf_request request = good_request();
	int refused = 0, connection;

	request.flags = 0;
	for (int i = 0; i < count; i++) {
		connection = dial();
		send_with(connection, &request, sizeof(request), &file_fd, 1, 0);
		refused += receive(connection, i < 2 ? 3000 : 200) == ZKF_FAILED;
	}
	printf("refused %d of %d\n", refused, count);
	fflush(stdout);
	for (;;)
		pause();
}

static void be_silent(int count)
{
	struct rlimit limit;

	getrlimit(RLIMIT_NOFILE, &limit);
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
	for (int i = 0; i < count; i++)
		dial();
	printf("connected %d\n", count);
	fflush(stdout);
	for (;;)
		pause();
}

int main(int argc, char **argv)
{
	if (argc < 4)
		return 64;
	socket_path = argv[1];
	file_path = argv[2];
	file_fd = open(file_path, O_RDWR | O_CREAT, 0666);
	if (strcmp(argv[3], "garbage") == 0)
		be_garbage();
	else if (strcmp(argv[3], "short") == 0)
		be_short();
	else if (strcmp(argv[3], "oversized") == 0)
		be_oversized();
	else if (strcmp(argv[3], "fields") == 0)
		be_odd_in_fields();
	else if (strcmp(argv[3], "order") == 0)
		be_out_of_order();
	else if (strcmp(argv[3], "descriptors") == 0)
		be_odd_in_descriptors();
	else if (strcmp(argv[3], "ask") == 0)
		return ask();
	else if (strcmp(argv[3], "waiting") == 0 && argc == 5)
		be_waiting(atoi(argv[4]));
	else if (strcmp(argv[3], "silent") == 0 && argc == 5)
		be_silent(atoi(argv[4]));
	else
		return 64;
	if (troubles == 0)
		puts("done");
	return troubles > 0;
}
