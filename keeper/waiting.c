/*
 * keeper/waiting.c - see waiting.h
 * SPDX-License-Identifier: Apache-2.0
 */
#include "waiting.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "claim.h"
#include "file.h"
#include "lease.h"
#include "log.h"
#include "session.h"

/* Written by zkf_waiting_init. */
static int64_t first_ns = ZKF_WAITING_TELL_MS * ZKF_NS_PER_MS;

void zkf_waiting_init(void)
{
	const char *text = secure_getenv("ZKFLOCK_TEST_WAIT_MS");
	long ms = text ? strtol(text, NULL, 10) : 0;

	if (ms > 0)
		first_ns = ms * ZKF_NS_PER_MS;
}

static bool first_of_its_lock(const struct zkf_demand *demand)
{
	for (const struct zkf_demand *first = demand->lock->demands; first != demand; first = first->next)
		if (first->waiting_timer.armed)
			return false;
	return true;
}

/* by: "held by ..." or why else it waits */
static void tell(struct zkf_demand *demand, const char *by)
{
	int64_t waited_ns = zkf_now_ns() - demand->waiting_since_ns;
	struct zkf_reply reply = {.magic = ZKF_WIRE_MAGIC, .answer = ZKF_WAITING};
	int bytes = snprintf(reply.text, sizeof(reply.text), "waiting %" PRId64 " s for %.120s %s",
	                     (waited_ns + 500 * ZKF_NS_PER_MS) / (1000 * ZKF_NS_PER_MS), demand->lock->key.name, by);

	reply.text_bytes = bytes < (int)sizeof(reply.text) ? (uint32_t)bytes : (uint32_t)sizeof(reply.text) - 1;
	if (first_of_its_lock(demand))
		zkf_log(ZKF_LOG_INFO, "lock %s; asked by pid %d", reply.text, demand->pid);
	/* In the kernel's queue it does not read what we say. */
	if (demand->tell && demand->state == ZKF_DEMAND_WAITING)
		demand->tell(demand, &reply);
	/* 5 s, 10 s, 20 s, ... since the beginning */
	zkf_timer_arm(&demand->waiting_timer, demand->waiting_since_ns + 2 * waited_ns);
}

static void command_of(int32_t pid, char command[20])
{
	char path[40];
	FILE *in;

	command[0] = 0;
	snprintf(path, sizeof(path), "/proc/%d/comm", pid);
	in = fopen(path, "re");
	if (in && fgets(command, 20, in))
		command[strcspn(command, "\n")] = 0;
	if (in)
		fclose(in);
}

static void tell_of_this_host(struct zkf_demand *demand)
{
	int32_t pid = zkf_file_holder(demand->file);
	char by[120], command[20];

	for (struct zkf_file *file = demand->lock->files; file && pid <= 0; file = file->next)
		pid = zkf_file_holder(file);
	if (pid > 0) {
		command_of(pid, command);
		snprintf(by, sizeof(by), "held by this host pid %d %s", pid, command);
	} else {
		snprintf(by, sizeof(by), "held by this host");
	}
	tell(demand, by);
}

/* Is it a process of this host that holds?  (Others may wait for it, too, and come first.) */
static bool held_here(const struct zkf_demand *demand)
{
	if (demand->state != ZKF_DEMAND_WAITING || !demand->claim)
		return true;
	for (const struct zkf_claim *claim = demand->lock->claims; claim; claim = claim->next)
		if (claim->state == ZKF_CLAIM_GRANTED && zkf_ranges_conflict(&claim->ranges, &demand->claim->ranges))
			return true;
	return false;
}

static void host_known(void *owner, const struct zkf_zk_result *result)
{
	struct zkf_demand *demand = owner;
	const char *name = strstr(result->data ? result->data : "", "host=");
	const struct zkf_peer *in_the_way = demand->claim ? demand->claim->target : NULL;
	char by[240], who[65], since[32] = "";
	time_t seconds;
	struct tm parts;

	demand->waiting_op = NULL;
	if (!in_the_way) { /* it has just gone; whoever is next in the way is told of at the next time */
		tell(demand, "held by another host");
		return;
	}
	snprintf(who, sizeof(who), "%.*s", name ? (int)strcspn(name + 5, " ") : 16,
	         name ? name + 5 : in_the_way->id.host);
	seconds = (time_t)(in_the_way->ctime_ms / 1000);
	if (seconds > 0 && gmtime_r(&seconds, &parts))
		strftime(since, sizeof(since), " since %Y-%m-%dT%H:%M:%SZ", &parts);
	if (in_the_way->data.pid)
		snprintf(by, sizeof(by), "held by %s pid %d %.64s%s", who, in_the_way->data.pid,
		         in_the_way->data.command, since);
	else
		snprintf(by, sizeof(by), "held by %s%s", who, since);
	tell(demand, by);
}

static void waiting_fired(struct zkf_timer *timer)
{
	struct zkf_demand *demand = (struct zkf_demand *)((char *)timer - offsetof(struct zkf_demand, waiting_timer));
	const struct zkf_peer *in_the_way = demand->claim ? demand->claim->target : NULL;
	char path[1200];

	if (!zkf_session_usable()) {
		char by[300];

		snprintf(by, sizeof(by), "because of ZooKeeper: %.200s", zkf_session_trouble());
		tell(demand, by);
	} else if (held_here(demand)) {
		tell_of_this_host(demand);
	} else if (!in_the_way || in_the_way->own) {
		tell(demand, "behind other requests of this host");
	} else if (in_the_way->id.foreign) {
		tell(demand, "held by another program, which uses ZooKeeper itself");
	} else {
		snprintf(path, sizeof(path), "%s/hosts/%s", zkf_session_root(), in_the_way->id.host);
		demand->waiting_op = zkf_zk_get(path, NULL, host_known, demand);
		if (!demand->waiting_op)
			tell(demand, "held by another host");
	}
}

void zkf_waiting_start(struct zkf_demand *demand)
{
	demand->waiting_timer.fire = waiting_fired;
	demand->waiting_since_ns = zkf_now_ns();
	if (!demand->nonblock && !demand->held && demand->op == ZKF_OP_LOCK)
		zkf_timer_arm(&demand->waiting_timer, demand->waiting_since_ns + first_ns);
}

void zkf_waiting_stop(struct zkf_demand *demand)
{
	zkf_timer_stop(&demand->waiting_timer);
	zkf_zk_cancel(demand->waiting_op);
	demand->waiting_op = NULL;
}
