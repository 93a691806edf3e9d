/*
 * keeper/store.c - see store.h
 * SPDX-License-Identifier: Apache-2.0
 */
#include "store.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fault.h"
#include "log.h"

/* Of one message; the kernel allows 253. */
#define BATCH 128

/* Written by zkf_store_init in the guard; the same in every keeper. */
static int sending = -1, keeping = -1;

/* The loop's: what is in the queue, and in how many messages. */
static struct kept {
	uint64_t id;
	int fd;
} * kept;
static size_t kept_count, kept_capacity, messages;

int zkf_store_init(void)
{
	int ends[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends))
		return -errno;
	sending = ends[0];
	keeping = ends[1];
	return 0;
}

union control {
	struct cmsghdr align;
	char bytes[CMSG_SPACE(sizeof(int) * BATCH)];
};

static int send_batch(const struct kept *first, size_t count)
{
	union control control;
	uint64_t ids[BATCH];
	struct iovec part = {.iov_base = ids, .iov_len = count * sizeof(*ids)};
	struct msghdr message = {.msg_iov = &part,
	                         .msg_iovlen = 1,
	                         .msg_control = &control,
	                         .msg_controllen = CMSG_SPACE(sizeof(int) * count)};
	int fds[BATCH] = {0};

	memset(&control, 0, sizeof(control));
	for (size_t i = 0; i < count; i++) {
		ids[i] = first[i].id;
		fds[i] = first[i].fd;
	}
	control.align.cmsg_level = SOL_SOCKET;
	control.align.cmsg_type = SCM_RIGHTS;
	control.align.cmsg_len = CMSG_LEN(sizeof(int) * count);
	memcpy(CMSG_DATA(&control.align), fds, sizeof(int) * count);
	if (sendmsg(sending, &message, MSG_NOSIGNAL) < 0)
		return -errno;
	messages++;
	return 0;
}

/* One message from the queue.  Returns how many descriptors it had, or a negative errno. */
static int receive_batch(uint64_t ids[BATCH], int fds[BATCH])
{
	union control control;
	struct iovec part = {.iov_base = ids, .iov_len = BATCH * sizeof(*ids)};
	struct msghdr message = {
		.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
	ssize_t bytes = recvmsg(keeping, &message, MSG_CMSG_CLOEXEC);
	const struct cmsghdr *at;
	size_t count;

	if (bytes <= 0)
		return bytes ? -errno : -ENOTCONN;
	at = CMSG_FIRSTHDR(&message);
	if (!at || at->cmsg_type != SCM_RIGHTS)
		return 0;
	count = (at->cmsg_len - CMSG_LEN(0)) / sizeof(int);
	memcpy(fds, CMSG_DATA(at), count * sizeof(int));
	return (int)count;
}

static void discard(size_t count)
{
	int fds[BATCH] = {0}, found;
	uint64_t ids[BATCH];

	while (count-- && (found = receive_batch(ids, fds)) >= 0) {
		messages--;
		for (int i = 0; i < found; i++)
			close(fds[i]);
	}
}

static int send_all(void)
{
	for (size_t at = 0; at < kept_count; at += BATCH) {
		int error = send_batch(kept + at, kept_count - at < BATCH ? kept_count - at : BATCH);

		if (error)
			return error;
	}
	return 0;
}

/* The queue anew: first what is kept, then the old is taken out, so that a keeper that dies in between loses nothing. */
static int rewrite(void)
{
	size_t old = messages;
	int error = send_all();

	discard(old);
	if (!error)
		return 0;
	discard(messages); /* no room for both */
	return send_all();
}

static int remember(uint64_t id, int fd)
{
	if (kept_count == kept_capacity) {
		size_t capacity = kept_capacity ? 2 * kept_capacity : 64;
		struct kept *more = zkf_reallocarray(kept, capacity, sizeof(*more));

		if (!more)
			return -ENOMEM;
		kept = more;
		kept_capacity = capacity;
	}
	kept[kept_count++] = (struct kept){id, fd};
	return 0;
}

void zkf_store_load(void)
{
	uint64_t ids[BATCH];
	int fds[BATCH], found;

	if (keeping < 0)
		return;
	while ((found = receive_batch(ids, fds)) >= 0)
		for (int i = 0; i < found; i++)
			if (zkf_store_find(ids[i]) >= 0 || remember(ids[i], fds[i]))
				close(fds[i]);
	messages = 0;
	if (rewrite())
		zkf_log(ZKF_LOG_WARN, "store error=\"can't be written again\"");
}

int zkf_store_add(uint64_t id, int fd)
{
	int error = sending < 0 ? -ENOTCONN : remember(id, fd);

	if (error)
		return error;
	error = send_batch(kept + kept_count - 1, 1);
	if (error == -EAGAIN)
		error = rewrite();
	if (error)
		kept_count--;
	return error;
}

int zkf_store_drop(uint64_t id)
{
	for (size_t i = 0; i < kept_count; i++)
		if (kept[i].id == id) {
			kept[i] = kept[--kept_count];
			return rewrite();
		}
	return 0;
}

int zkf_store_socket(void)
{
	return keeping;
}

int zkf_store_find(uint64_t id)
{
	for (size_t i = 0; i < kept_count; i++)
		if (kept[i].id == id)
			return kept[i].fd;
	return -1;
}

void zkf_store_keep_only(bool (*wanted)(uint64_t id))
{
	for (size_t i = 0; i < kept_count;) {
		if (wanted(kept[i].id)) {
			i++;
			continue;
		}
		close(kept[i].fd);
		kept[i] = kept[--kept_count];
	}
	if (keeping >= 0)
		rewrite();
}
