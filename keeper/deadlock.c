/*
 * keeper/deadlock.c - see deadlock.h
 * SPDX-License-Identifier: Apache-2.0
 */
#include "deadlock.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "claim.h"
#include "fault.h"
#include "file.h"
#include "lease.h"
#include "log.h"
#include "look.h"
#include "mailbox.h"
#include "session.h"

/* A longer cycle is not found; the waits that it consists of stay waits. */
#define HOPS_MAX 32
/* Holders of one range, hosts in one's way: the first that queued are those that hold. */
#define HOLDERS_MAX 64
#define HOSTS_MAX 64
/* A pinned call that has not come back for this long is waiting in the kernel. */
#define IN_KERNEL_NS (100 * ZKF_NS_PER_MS)
/* A wait is not looked for more often than this, however many probes pass by. */
#define PROBE_EVERY_NS (100 * ZKF_NS_PER_MS)

struct probe {
	char host[ZKF_HOST_BYTES];        /* the sender's */
	uint64_t number;                  /* of its wait */
	int64_t key_ms;                   /* when that began; 0: it can't be failed */
	char latest_host[ZKF_HOST_BYTES]; /* the youngest wait so far */
	uint64_t latest_number;
	int64_t latest_key_ms;
	char waiter_host[ZKF_HOST_BYTES]; /* whose edge this is ... */
	int32_t waiter_pid;
	char lock[ZKF_NAME_BYTES_MAX + 1]; /* ... and what it wants */
	int64_t start, end;
	int mode, hops;
};

/* The loop's. */
static uint64_t last_number;
static uint64_t probe_round; /* of one walk: it passes each wait once, or it would take every path there is */

/* --- probes as text --- */

static void probe_write(const struct probe *probe, char *text, size_t capacity)
{
	snprintf(text, capacity,
	         "zkf1 %s %" PRIu64 " %" PRId64 " %s %" PRIu64 " %" PRId64 " %s %d %s %" PRId64 " %" PRId64 " %d %d",
	         probe->host, probe->number, probe->key_ms, probe->latest_host, probe->latest_number,
	         probe->latest_key_ms, probe->waiter_host, probe->waiter_pid, probe->lock, probe->start, probe->end,
	         probe->mode, probe->hops);
}

static int probe_read(struct probe *probe, const char *text)
{
	int n = sscanf(text,
	               "zkf1 %16s %" SCNu64 " %" SCNd64 " %16s %" SCNu64 " %" SCNd64 " %16s %d %120s %" SCNd64
	               " %" SCNd64 " %d %d",
	               probe->host, &probe->number, &probe->key_ms, probe->latest_host, &probe->latest_number,
	               &probe->latest_key_ms, probe->waiter_host, &probe->waiter_pid, probe->lock, &probe->start,
	               &probe->end, &probe->mode, &probe->hops);

	if (n != 13 || probe->start < 0 || probe->end < probe->start ||
	    (probe->mode != ZKF_SHARED && probe->mode != ZKF_EXCLUSIVE) || probe->hops < 0 || probe->hops > HOPS_MAX)
		return -EINVAL;
	return 0;
}

static void probe_send(const struct probe *probe, const char *host)
{
	char text[600];

	probe_write(probe, text, sizeof(text));
	zkf_mailbox_send(host, text); /* a host that is gone holds nothing; a probe that is lost is sent again */
}

/* --- edges --- */

static bool waits(const struct zkf_demand *demand)
{
	/* Groups take no part: who is in whose way there is the keeper's to know, by threads. */
	if (!demand->posix || demand->nonblock || demand->op != ZKF_OP_LOCK || demand->lock->key.kind != ZKF_RECORD)
		return false;
	return demand->state == ZKF_DEMAND_WAITING || zkf_now_ns() - demand->arrived_ns > IN_KERNEL_NS;
}

/* Can it be failed?  A call inside the kernel does not listen. */
static bool fails(const struct zkf_demand *demand)
{
	return demand->state == ZKF_DEMAND_WAITING;
}

static bool later(int64_t key_ms, const char *host, uint64_t number, const struct probe *probe)
{
	int by_host;

	if (key_ms != probe->latest_key_ms)
		return key_ms > probe->latest_key_ms;
	by_host = strcmp(host, probe->latest_host);
	return by_host ? by_host > 0 : number > probe->latest_number;
}

static void probe_arrives(const struct probe *probe);
static void look_for_cycle(struct zkf_demand *demand);

/* The hosts whose claims queued before this demand's, the first ones first: among them are those that hold. */
static void probe_hosts(const struct probe *probe, const struct zkf_demand *demand)
{
	const char *hosts[HOSTS_MAX];
	int count = 0;

	for (size_t i = 0; demand->claim && i < demand->claim->peer_count && count < HOSTS_MAX; i++) {
		const struct zkf_peer *peer = demand->claim->peers[i];
		bool known = peer->own || peer->id.foreign || peer->id.sequence >= demand->claim->id.sequence ||
		             peer->id.start > demand->end || peer->id.end < demand->start ||
		             (peer->id.mode == ZKF_SHARED && demand->mode == ZKF_SHARED);

		for (int j = 0; j < count && !known; j++)
			known = !strcmp(hosts[j], peer->id.host);
		if (!known) {
			hosts[count++] = peer->id.host;
			probe_send(probe, peer->id.host);
		}
	}
	/* Who overtook it is in its way too, though not before it. */
	for (size_t i = 0; demand->claim && i < demand->claim->peer_count && count < HOSTS_MAX; i++) {
		const struct zkf_peer *peer = demand->claim->peers[i];

		if (!peer->own && !peer->id.foreign && peer->id.sequence > demand->claim->id.sequence && peer->read &&
		    !peer->gone && peer->data.confirmed) {
			count++;
			probe_send(probe, peer->id.host);
		}
	}
}

/* Sends a probe along every edge of a waiting demand. */
static void probe_edges(const struct probe *from, const struct zkf_demand *demand)
{
	struct probe probe = *from;

	snprintf(probe.waiter_host, sizeof(probe.waiter_host), "%s", zkf_session_host());
	probe.waiter_pid = demand->pid;
	snprintf(probe.lock, sizeof(probe.lock), "%s", demand->lock->key.name);
	probe.start = demand->start;
	probe.end = demand->end;
	probe.mode = demand->mode;
	probe.hops++;
	if (probe.hops > HOPS_MAX)
		return;
	probe_arrives(&probe); /* local holders are in its way as well */
	if (demand->state == ZKF_DEMAND_WAITING)
		probe_hosts(&probe, demand);
}

/* The probe reached a process of this host that holds what is wanted.  Does that process wait, too? */
static void probe_reaches(const struct probe *probe, int32_t pid)
{
	for (struct zkf_lock *lock = zkf_lock_list(); lock; lock = lock->hh.next)
		for (struct zkf_demand *demand = lock->demands; demand; demand = demand->next) {
			struct probe onward = *probe;

			if (demand->pid != pid || !waits(demand))
				continue;
			if (!strcmp(probe->host, zkf_session_host()) && probe->number == demand->number) {
				if (fails(demand) && probe->latest_number == demand->number &&
				    !strcmp(probe->latest_host, zkf_session_host())) {
					zkf_log(ZKF_LOG_INFO, "deadlock lock=%s pid=%d hops=%d", lock->key.name, pid,
					        probe->hops);
					demand->deadlocked = true;
					zkf_lock_touch(lock);
				}
				return;
			}
			if (demand->probe_round == probe_round)
				continue;
			demand->probe_round = probe_round;
			if (fails(demand) && later(demand->wait_key_ms, zkf_session_host(), demand->number, probe)) {
				onward.latest_key_ms = demand->wait_key_ms;
				onward.latest_number = demand->number;
				snprintf(onward.latest_host, sizeof(onward.latest_host), "%s", zkf_session_host());
			}
			probe_edges(&onward, demand);
			/* It began later than the sender's: its own probe is the one that counts. */
			if (fails(demand) && demand->wait_key_ms >= probe->key_ms &&
			    zkf_now_ns() - demand->probed_ns > PROBE_EVERY_NS)
				zkf_timer_arm_by(&demand->deadlock_timer, zkf_now_ns());
		}
}

/* An edge: who of this host holds what the waiter wants? */
static void probe_arrives(const struct probe *probe)
{
	struct zkf_lock *lock = zkf_lock_find(ZKF_RECORD, probe->lock);
	int32_t pids[HOLDERS_MAX];
	bool local = !strcmp(probe->waiter_host, zkf_session_host());

	for (struct zkf_file *file = lock ? lock->files : NULL; file; file = file->next) {
		int count = zkf_file_holders(file, probe->start, probe->end, (uint8_t)probe->mode, pids, HOLDERS_MAX);

		for (int i = 0; i < count; i++)
			if (!local || pids[i] != probe->waiter_pid)
				probe_reaches(probe, pids[i]);
	}
}

/* --- a wait --- */

static void look_for_cycle(struct zkf_demand *demand)
{
	struct probe probe = {.number = demand->number, .key_ms = fails(demand) ? demand->wait_key_ms : 0};

	demand->probed_ns = zkf_now_ns();
	probe_round++;
	snprintf(probe.host, sizeof(probe.host), "%s", zkf_session_host());
	probe.latest_key_ms = probe.key_ms;
	probe.latest_number = probe.number;
	snprintf(probe.latest_host, sizeof(probe.latest_host), "%s", probe.host);
	probe_edges(&probe, demand);
}

static void deadlock_fired(struct zkf_timer *timer)
{
	struct zkf_demand *demand = (struct zkf_demand *)((char *)timer - offsetof(struct zkf_demand, deadlock_timer));
	int64_t now = zkf_now_ns();

	demand->deadlock_ns = demand->deadlock_ns * 2 < ZKF_DEADLOCK_MAX_MS * ZKF_NS_PER_MS
	                            ? demand->deadlock_ns * 2
	                            : ZKF_DEADLOCK_MAX_MS * ZKF_NS_PER_MS;
	zkf_timer_arm(timer, now + demand->deadlock_ns);
	if (zkf_session_usable() && waits(demand))
		look_for_cycle(demand);
}

void zkf_deadlock_start(struct zkf_demand *demand)
{
	struct timespec now;

	if (!last_number) /* a letter to a former keeper of this session must not name one of ours */
		last_number = (uint64_t)random() << 20;
	demand->number = ++last_number;
	demand->deadlock_timer.fire = deadlock_fired;
	if (!demand->posix || demand->nonblock || demand->held)
		return;
	clock_gettime(CLOCK_REALTIME, &now);
	demand->wait_key_ms = (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
	demand->deadlock_ns = ZKF_DEADLOCK_FIRST_MS * ZKF_NS_PER_MS;
	zkf_timer_arm(&demand->deadlock_timer, zkf_now_ns() + demand->deadlock_ns);
}

void zkf_deadlock_stop(struct zkf_demand *demand)
{
	zkf_timer_stop(&demand->deadlock_timer);
}

void zkf_deadlock_letter(const char *text)
{
	struct probe probe = {0};

	probe_round++;
	if (!probe_read(&probe, text))
		probe_arrives(&probe);
}
