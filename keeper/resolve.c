/*
 * keeper/resolve.c - see resolve.h
 * SPDX-License-Identifier: Apache-2.0
 */
#include "resolve.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "loop.h"

#define ENTRIES_MAX 31
#define ENTRY_BYTES (INET6_ADDRSTRLEN + 10)
#define STACK_BYTES (512 * 1024) /* name service modules are not modest */

struct answer {
	char entries[ENTRIES_MAX + 1][ENTRY_BYTES]; /* one more: to make it odd */
	int count;
	char unknown[256];
};

/* The loop's, but for the thread from its start until it writes to the eventfd. */
static struct {
	char ensemble[ZKF_ADDRESSES_BYTES];
	char addresses[ZKF_ADDRESSES_BYTES];
	struct answer answer;
} job;

/* The loop's. */
static struct zkf_source finished = {.fd = -1};
static void (*job_done)(const char *addresses, const char *unknown); /* NULL: none is under way */

static void found_add(struct answer *answer, const struct addrinfo *found, int port)
{
	char numeric[INET6_ADDRSTRLEN], entry[ENTRY_BYTES];

	for (; found && answer->count < ENTRIES_MAX; found = found->ai_next) {
		bool known = false;

		if (getnameinfo(found->ai_addr, found->ai_addrlen, numeric, sizeof(numeric), NULL, 0, NI_NUMERICHOST))
			continue;
		snprintf(entry, sizeof(entry), found->ai_family == AF_INET6 ? "[%s]:%d" : "%s:%d", numeric, port);
		for (int i = 0; i < answer->count; i++)
			known |= !strcmp(answer->entries[i], entry);
		if (!known)
			strcpy(answer->entries[answer->count++], entry);
	}
}

/* One "host:port" or "[address]:port"; false: it can't be looked up (with numeric: it would have to be). */
static bool look_up(struct answer *answer, const char *entry, bool numeric)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV}, *found = NULL;
	const char *colon = strrchr(entry, ':');
	bool bracketed = entry[0] == '[';
	char name[256];

	if (!colon || (size_t)(colon - entry) >= sizeof(name))
		return false;
	snprintf(name, sizeof(name), "%.*s", (int)(colon - entry - (bracketed ? 2 : 0)), entry + bracketed);
	/* Not AI_ADDRCONFIG: it hides the addresses of a host that has loopback only. */
	hints.ai_flags |= numeric ? AI_NUMERICHOST : 0;
	if (getaddrinfo(name, colon + 1, &hints, &found)) {
		if (!answer->unknown[0])
			snprintf(answer->unknown, sizeof(answer->unknown), "%s", name);
		return false;
	}
	found_add(answer, found, atoi(colon + 1));
	freeaddrinfo(found);
	return true;
}

static int by_text(const void *a, const void *b)
{
	return strcmp(a, b);
}

/* Sorted, so that two look-ups can be compared: servers of names rotate what they answer.  The client shuffles anyway. */
static void write_down(struct answer *answer, char addresses[ZKF_ADDRESSES_BYTES])
{
	size_t used = 0;

	qsort(answer->entries, (size_t)answer->count, sizeof(answer->entries[0]), by_text);
	if (answer->count && answer->count % 2 == 0) {
		strcpy(answer->entries[answer->count], answer->entries[0]);
		answer->count++;
	}
	addresses[0] = 0;
	for (int i = 0; i < answer->count; i++)
		used += (size_t)snprintf(addresses + used, ZKF_ADDRESSES_BYTES - used, "%s%s", i ? "," : "",
		                         answer->entries[i]);
}

_Static_assert((ENTRIES_MAX + 1) * (ENTRY_BYTES + 1) < ZKF_ADDRESSES_BYTES, "all of them fit");

static bool look_up_all(const char *ensemble, struct answer *answer, bool numeric)
{
	char entries[ZKF_ADDRESSES_BYTES], *next = entries, *entry;

	memset(answer, 0, sizeof(*answer));
	snprintf(entries, sizeof(entries), "%s", ensemble);
	while ((entry = strsep(&next, ",")) != NULL)
		if (!look_up(answer, entry, numeric) && numeric)
			return false;
	return true;
}

bool zkf_resolve_numeric(const char *ensemble, char addresses[ZKF_ADDRESSES_BYTES])
{
	struct answer answer;

	addresses[0] = 0;
	if (!look_up_all(ensemble, &answer, true))
		return false;
	write_down(&answer, addresses);
	return true;
}

/* The thread.  Signals are blocked: it has inherited the loop's mask. */
static void *run(void *unused)
{
	uint64_t one = 1;

	(void)unused;
	look_up_all(job.ensemble, &job.answer, false);
	write_down(&job.answer, job.addresses);
	if (write(finished.fd, &one, sizeof(one)) < 0) {
		/* EAGAIN: the counter is full, so the loop will wake anyway. */
	}
	return NULL;
}

int zkf_resolve_start(const char *ensemble, void (*done)(const char *addresses, const char *unknown))
{
	pthread_attr_t attributes;
	pthread_t thread;
	int error;

	if (job_done)
		return -EBUSY;
	snprintf(job.ensemble, sizeof(job.ensemble), "%s", ensemble);
	pthread_attr_init(&attributes);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attributes, STACK_BYTES);
	error = pthread_create(&thread, &attributes, run, NULL);
	pthread_attr_destroy(&attributes);
	if (!error)
		job_done = done;
	return -error;
}

static void finished_ready(struct zkf_source *source, uint32_t events)
{
	void (*done)(const char *addresses, const char *unknown) = job_done;
	uint64_t count;

	(void)events;
	if (read(source->fd, &count, sizeof(count)) < 0 || !done)
		return;
	job_done = NULL;
	done(job.addresses, job.answer.unknown);
}

int zkf_resolve_init(void)
{
	finished.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (finished.fd < 0)
		return -errno;
	finished.ready = finished_ready;
	return zkf_loop_add(&finished, EPOLLIN);
}
