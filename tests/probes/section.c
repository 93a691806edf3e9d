/*
 * tests/probes/section.c - random lock calls, and every critical section on record
 *
 *     section LOG HOST STOP SEED THINK_MS      THINK_MS: at most so long between two calls
 *
 * Answers for: calls, sections and their records until the file STOP exists; then ends with 0.
 * Does not:    judge; tests/torture.py reads LOG when all is over.
 * Files:       f0, f1 (flock), k0 (the same, for another on_loss), r0, r1 (records), g/0 ... g/2 (a group, by either call), in
 *              the working directory.
 *
 * A record is one line by one write(2) to a file opened with O_APPEND, so the lines of all hosts are in the order in which
 * they were written:
 *
 *     MS EVENT HOST PID N LOCK MODE FIRST LAST KIND
 *
 * EVENT is wait (before the call), enter, inside (again and again: a process that should stand still is seen by them),
 * token (one word more: the fencing token, 0 when the keeper says that its host has nothing of the lock), leave (before
 * the unlock), or refused (one word more: the error).  N counts the calls of a process.  KIND is the call; its last letter
 * is w when it waits.
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "keeper/wire.h"

#define BYTES 8          /* of a file that records lock */
#define LONG_ROUNDS 4000 /* of 4 ms on average */
#define TOKEN_ONE_OF 4   /* sections ask for one */
#define LONG "../long"
#define SHORT "../short"

enum call { FLOCK, POSIX, OFD, LOCKF };

struct place {
	const char *file, *lock; /* lock: what excludes; g/0 and g/1 are one */
	bool by_flock, by_records, whole;
	int fd;
};

static struct place places[] = {
	{"f0", "f0", true, false, true, -1},  {"f1", "f1", true, false, true, -1},  {"k0", "k0", true, false, true, -1},
	{"r0", "r0", false, true, false, -1}, {"r1", "r1", false, true, false, -1}, {"g/0", "g", true, true, true, -1},
	{"g/1", "g", true, true, true, -1},   {"g/2", "g", true, true, true, -1},
};
#define PLACES ((long)(sizeof(places) / sizeof(places[0])))

/* What is asked for. */
struct section {
	struct place *place;
	enum call call;
	bool exclusive, blocking;
	bool kept; /* the former section has left without unlocking: this one converts, splits, joins */
	int first, last;
	unsigned long number;
};

static int log_fd;
static const char *host, *stop_file;
static bool refused; /* by the kernel, all locks */

static int64_t now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_BOOTTIME, &t);
	return t.tv_sec * INT64_C(1000000) + t.tv_nsec / 1000;
}

/* more: one word, or "" */
static void record(const struct section *at, const char *event, const char *more)
{
	static const char *const calls[] = {"flock", "posix", "ofd", "lockf"};
	int64_t now = now_us();
	char line[200];
	int bytes = snprintf(line, sizeof(line), "%" PRId64 ".%03d %s %s %d %lu %s %s %d %d %s%s %s\n", now / 1000,
	                     (int)(now % 1000), event, host, (int)getpid(), at->number, at->place->lock,
	                     at->exclusive ? "exclusive" : "shared", at->first, at->last, calls[at->call],
	                     at->blocking ? "-w" : "", more);

	if (write(log_fd, line, (size_t)bytes) != bytes)
		_exit(4);
}

static void pause_inside(void)
{
	long us = random() % 8 ? random() % 3000 : random() % 40000;

	nanosleep(&(struct timespec){.tv_nsec = us * 1000}, NULL);
}

static void think(int most_ms)
{
	long us = most_ms ? random() % (most_ms * 1000L) % 999999 : 0;

	nanosleep(&(struct timespec){.tv_nsec = us * 1000}, NULL);
}

static int lock_once(const struct section *at)
{
	static const int commands[2][2] = {{F_SETLK, F_SETLKW}, {F_OFD_SETLK, F_OFD_SETLKW}};
	struct flock range = {.l_type = at->exclusive ? F_WRLCK : F_RDLCK,
	                      .l_start = at->first,
	                      .l_len = at->place->whole ? 0 : at->last - at->first + 1};

	if (at->call == FLOCK)
		return flock(at->place->fd, (at->exclusive ? LOCK_EX : LOCK_SH) | (at->blocking ? 0 : LOCK_NB));
	if (at->call == LOCKF) {
		lseek(at->place->fd, at->first, SEEK_SET);
		return lockf(at->place->fd, at->blocking ? F_LOCK : F_TLOCK, range.l_len);
	}
	return fcntl(at->place->fd, commands[at->call == OFD][at->blocking], &range);
}

/* Who is refused by his kernel can't start a keeper, which would be refused its own lock: he waits until there is one. */
static int lock(const struct section *at)
{
	int result;

	while ((result = lock_once(at)) && errno == ENOLCK && refused && at->blocking)
		think(20);
	return result;
}

static int unlock_once(const struct section *at)
{
	struct flock range = {.l_type = F_UNLCK};

	if (at->call == FLOCK)
		return flock(at->place->fd, LOCK_UN);
	/* Any close of the file drops the process's locks; where the kernel does not lock there is no such rule to rely on. */
	if (at->call != OFD && !refused && random() % 4 == 0)
		return close(dup(at->place->fd));
	return fcntl(at->place->fd, at->call == OFD ? F_OFD_SETLK : F_SETLK, &range);
}

/* Where the kernel does not lock, an unlock may find no keeper. */
static void unlock(const struct section *at)
{
	while (unlock_once(at) && errno == ENOLCK)
		think(20);
}

/*
 * Most sections are short.  While the host's link is broken or soon will be (LONG exists) half of them go on, so that a
 * lease ends inside;
 * not while nobody is there who could stop their process (SHORT exists), nor when all is to end.
 */
static bool goes_on(long rounds, bool may_be_long)
{
	if (rounds > 0)
		return true;
	return may_be_long && rounds > -LONG_ROUNDS && !access(LONG, F_OK) && access(SHORT, F_OK) &&
	       access(stop_file, F_OK);
}

static int dial_keeper(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	const char *directory = getenv("ZKFLOCK_RUNTIME_DIR");
	int fd;

	if (!directory)
		return -1; /* without the library */
	snprintf(address.sun_path, sizeof(address.sun_path), "%s/socket", directory);
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof(address))) {
		close(fd);
		fd = -1;
	}
	return fd;
}

/* What `zkflock token` does.  No answer in time is none: the keeper may be stopped. */
static void ask_token(const struct section *at)
{
	const struct zkf_request request = {
		.magic = ZKF_WIRE_MAGIC, .op = ZKF_OP_TOKEN, .kind = at->call == FLOCK ? ZKF_FLOCK : ZKF_RECORD};
	const struct timeval patience = {.tv_usec = 500000};
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = {.header = {CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS}};
	struct iovec part = {.iov_base = (void *)(uintptr_t)&request, .iov_len = sizeof(request)};
	struct msghdr message = {
		.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
	struct zkf_reply reply;
	char token[24];
	int fd = dial_keeper();

	if (fd < 0)
		return;
	memcpy(CMSG_DATA(&control.header), &at->place->fd, sizeof(int));
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	if (sendmsg(fd, &message, MSG_NOSIGNAL) == sizeof(request) &&
	    recv(fd, &reply, sizeof(reply), 0) == sizeof(reply) &&
	    (reply.answer == ZKF_TOKEN || reply.answer == ZKF_FREE)) {
		snprintf(token, sizeof(token), "%" PRIu64, reply.answer == ZKF_TOKEN ? reply.state : 0);
		record(at, "token", token);
	}
	close(fd);
}

static void go(struct section *at)
{
	bool may_be_long = random() % 2;
	long rounds = random() % 4;

	at->number++;
	record(at, "wait", "");
	if (lock(at)) {
		record(at, "refused", strerrorname_np(errno));
		if (at->kept)
			unlock(at);
		at->kept = false;
		return;
	}
	record(at, "enter", "");
	if (random() % TOKEN_ONE_OF == 0)
		ask_token(at);
	do {
		pause_inside();
		record(at, "inside", "");
	} while (goes_on(rounds--, may_be_long));
	record(at, "leave", "");
	at->kept = random() % 4 == 0;
	if (!at->kept)
		unlock(at);
}

/*
 * Who has kept something asks for the same file by the same call, and does not wait: two who do may wait for each other,
 * except by flock, which drops the old lock first.
 */
static void choose(struct section *at)
{
	if (!at->kept) {
		at->place = &places[random() % PLACES];
		at->call = !at->place->by_records || (at->place->by_flock && random() % 2)
		                 ? FLOCK
		                 : (enum call)(POSIX + random() % 3);
	}
	at->exclusive = at->call == LOCKF || random() % 3 != 0;
	at->blocking = random() % 3 != 0 && (!at->kept || !at->place->by_records);
	at->first = at->place->whole ? 0 : (int)(random() % BYTES);
	at->last = at->place->whole ? BYTES - 1 : at->first + (int)(random() % (BYTES - at->first));
}

int main(int argc, char **argv)
{
	struct section at = {0};

	if (argc != 6)
		return 64;
	log_fd = open(argv[1], O_WRONLY | O_APPEND | O_CLOEXEC);
	host = argv[2];
	stop_file = argv[3];
	srandom((unsigned)atoi(argv[4]));
	if (log_fd < 0)
		return 3;
	for (struct place *place = places; place < places + PLACES; place++)
		if ((place->fd = open(place->file, O_RDWR | O_CREAT | O_CLOEXEC, 0666)) < 0)
			return 3;
	refused = syscall(SYS_flock, places[0].fd, LOCK_UN) != 0;
	while (access(stop_file, F_OK)) {
		choose(&at);
		go(&at);
		think(atoi(argv[5]));
	}
	return 0;
}
