/*
 * keeper/metrics.c - see metrics.h
 * SPDX-License-Identifier: Apache-2.0
 */
#include "metrics.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "claim.h"
#include "file.h"
#include "lock.h"
#include "log.h"
#include "loop.h"
#include "recall.h"
#include "server.h"
#include "session.h"
#include "zk.h"

#define WRITE_EVERY_MS 10000

struct zkf_counts zkf_counts;

/* The loop's. */
static char file_path[PATH_MAX];
static bool complained;
static struct zkf_timer write_timer;

/* Upper bounds, ms; the last bucket takes the rest. */
static const int bounds_ms[ZKF_BUCKET_COUNT - 1] = {1, 2, 5, 10, 25, 50, 100, 500, 1000, 10000, 60000};

void zkf_metrics_granted(int64_t took_ns, bool queued)
{
	struct zkf_histogram *histogram = queued ? &zkf_counts.queued : &zkf_counts.kept;
	int at = 0;

	while (at < ZKF_BUCKET_COUNT - 1 && took_ns > bounds_ms[at] * ZKF_NS_PER_MS)
		at++;
	histogram->buckets[at]++;
	histogram->count++;
	histogram->sum_ns += took_ns;
}

/* ---- numbers that are not counted but looked up ---- */

static int64_t count_locks(void)
{
	int64_t count = 0;

	for (struct zkf_lock *lock = zkf_lock_list(); lock; lock = lock->hh.next)
		count++;
	return count;
}

static int64_t count_claims(void)
{
	int64_t count = 0;

	for (struct zkf_lock *lock = zkf_lock_list(); lock; lock = lock->hh.next)
		for (const struct zkf_claim *claim = lock->claims; claim; claim = claim->next)
			count++;
	return count;
}

static int64_t count_granted(void)
{
	int64_t count = 0;

	for (struct zkf_lock *lock = zkf_lock_list(); lock; lock = lock->hh.next)
		for (const struct zkf_claim *claim = lock->claims; claim; claim = claim->next)
			count += claim->state == ZKF_CLAIM_GRANTED;
	return count;
}

static int64_t count_waiters(void)
{
	int64_t count = 0;

	for (struct zkf_lock *lock = zkf_lock_list(); lock; lock = lock->hh.next)
		for (const struct zkf_demand *demand = lock->demands; demand; demand = demand->next)
			count += !demand->nonblock && zkf_recall_blocked(demand);
	return count;
}

static int64_t count_files(void)
{
	int64_t count = 0;

	for (struct zkf_file *file = zkf_file_list(); file; file = file->hh.next)
		count++;
	return count;
}

static int64_t session_is_ready(void)
{
	return zkf_session_usable();
}

static int64_t connections(void)
{
	return zkf_server_connections();
}

static int64_t watched_bytes(void)
{
	return (int64_t)zkf_zk_watched_bytes();
}

static int64_t operations(void)
{
	return (int64_t)zkf_zk_operations();
}

/* A number is counted (a pointer) or looked up (a function). */
static const struct metric {
	const char *key;  /* zkflock status */
	const char *name; /* OpenMetrics, without "zkflock_" and "_total" */
	const char *help;
	const uint64_t *counter;
	int64_t (*gauge)(void);
	bool total; /* looked up, but only ever grows */
} metrics[] = {
	{"session_ready", "session_ready", "1 while locks can be granted", NULL, session_is_ready, false},
	{"locks", "locks", "Locks that this host knows", NULL, count_locks, false},
	{"claims", "claims", "This host's nodes in queues", NULL, count_claims, false},
	{"claims_granted", "claims_granted", "Of those, the ones it holds or keeps", NULL, count_granted, false},
	{"files", "files", "Files whose locks the keeper looks at", NULL, count_files, false},
	{"waiters", "waiters", "Lock calls that wait", NULL, count_waiters, false},
	{"connections", "connections", "Open conversations with programs", NULL, connections, false},
	{"watched_bytes", "watched_bytes", "Of watched paths; a server takes 1 MB at most", NULL, watched_bytes, false},
	{"refused", "refused", "Non-blocking calls that were refused", &zkf_counts.refused, NULL, false},
	{"failed", "failed", "Calls that failed with ENOLCK", &zkf_counts.failed, NULL, false},
	{"deadlocks", "deadlocks", "Calls that failed with EDEADLK", &zkf_counts.deadlocks, NULL, false},
	{"waits", "waits", "Calls that had to wait for another host", &zkf_counts.waits, NULL, false},
	{"recalls", "recalls", "Times that another host wanted what this one had", &zkf_counts.recalls, NULL, false},
	{"hand_offs", "hand_offs", "Times that it was given", &zkf_counts.hand_offs, NULL, false},
	{"losses", "losses", "Permissions that were taken away", &zkf_counts.losses, NULL, false},
	{"stopped", "stopped", "Processes stopped by on_loss", &zkf_counts.stopped, NULL, false},
	{"killed", "killed", "Processes killed by on_loss", &zkf_counts.killed, NULL, false},
	{"leases_over", "leases_over", "Times that ZooKeeper did not answer in time", &zkf_counts.leases_over, NULL,
         false},
	{"sessions", "sessions", "ZooKeeper sessions", &zkf_counts.sessions, NULL, false},
	{"reconnects", "reconnects", "Connections to ZooKeeper after a session's first", &zkf_counts.reconnects, NULL,
         false},
	{"operations", "operations", "Requests to ZooKeeper", NULL, operations, true},
};
#define METRIC_COUNT (sizeof(metrics) / sizeof(metrics[0]))

static int64_t value_of(const struct metric *metric)
{
	return metric->counter ? (int64_t)*metric->counter : metric->gauge();
}

static const struct {
	const char *label;
	const struct zkf_histogram *histogram;
} grants[] = {{"kept", &zkf_counts.kept}, {"queued", &zkf_counts.queued}};

void zkf_metrics_each(void (*each)(void *context, const char *key, const char *value), void *context)
{
	char key[64], value[32];

	for (size_t i = 0; i < METRIC_COUNT; i++) {
		snprintf(value, sizeof(value), "%" PRId64, value_of(&metrics[i]));
		each(context, metrics[i].key, value);
	}
	for (size_t i = 0; i < 2; i++) {
		const struct zkf_histogram *histogram = grants[i].histogram;
		uint64_t below = 0;

		snprintf(key, sizeof(key), "grants_%s.count", grants[i].label);
		snprintf(value, sizeof(value), "%" PRIu64, histogram->count);
		each(context, key, value);
		snprintf(key, sizeof(key), "grants_%s.sum_ms", grants[i].label);
		snprintf(value, sizeof(value), "%" PRId64, histogram->sum_ns / ZKF_NS_PER_MS);
		each(context, key, value);
		for (int at = 0; at < ZKF_BUCKET_COUNT; at++) {
			below += histogram->buckets[at];
			if (at < ZKF_BUCKET_COUNT - 1)
				snprintf(key, sizeof(key), "grants_%s.within_%dms", grants[i].label, bounds_ms[at]);
			else
				snprintf(key, sizeof(key), "grants_%s.within_any", grants[i].label);
			snprintf(value, sizeof(value), "%" PRIu64, below);
			each(context, key, value);
		}
	}
}

static void print_histograms(FILE *out)
{
	fputs("# TYPE zkflock_grant_seconds histogram\n# UNIT zkflock_grant_seconds seconds\n"
	      "# HELP zkflock_grant_seconds Time from a program's question to the grant, by way of ZooKeeper's queue or not.\n",
	      out);
	for (size_t i = 0; i < 2; i++) {
		const struct zkf_histogram *histogram = grants[i].histogram;
		uint64_t below = 0;

		for (int at = 0; at < ZKF_BUCKET_COUNT; at++) {
			below += histogram->buckets[at];
			fprintf(out, "zkflock_grant_seconds_bucket{by=\"%s\",le=\"", grants[i].label);
			if (at < ZKF_BUCKET_COUNT - 1)
				fprintf(out, "%d.%03d\"} %" PRIu64 "\n", bounds_ms[at] / 1000, bounds_ms[at] % 1000,
				        below);
			else
				fprintf(out, "+Inf\"} %" PRIu64 "\n", below);
		}
		fprintf(out, "zkflock_grant_seconds_sum{by=\"%s\"} %" PRId64 ".%06" PRId64 "\n", grants[i].label,
		        histogram->sum_ns / 1000000000, histogram->sum_ns / 1000 % 1000000);
		fprintf(out, "zkflock_grant_seconds_count{by=\"%s\"} %" PRIu64 "\n", grants[i].label, histogram->count);
	}
}

void zkf_metrics_print(FILE *out)
{
	int64_t lease_ns = zkf_session_usable() ? zkf_session_deadline_ns() - zkf_now_ns() : 0;

	fputs("# TYPE zkflock_build info\n# HELP zkflock_build The keeper's version.\n"
	      "zkflock_build_info{version=\"" ZKF_VERSION "\"} 1\n"
	      "# TYPE zkflock_lease_seconds gauge\n# UNIT zkflock_lease_seconds seconds\n"
	      "# HELP zkflock_lease_seconds For how long locks are good without another word from ZooKeeper.\n",
	      out);
	fprintf(out, "zkflock_lease_seconds %" PRId64 ".%03" PRId64 "\n", lease_ns / 1000000000,
	        lease_ns / 1000000 % 1000);
	for (size_t i = 0; i < METRIC_COUNT; i++) {
		bool counter = metrics[i].counter || metrics[i].total;

		fprintf(out, "# TYPE zkflock_%s %s\n# HELP zkflock_%s %s.\nzkflock_%s%s %" PRId64 "\n", metrics[i].name,
		        counter ? "counter" : "gauge", metrics[i].name, metrics[i].help, metrics[i].name,
		        counter ? "_total" : "", value_of(&metrics[i]));
	}
	print_histograms(out);
	fputs("# EOF\n", out);
}

/* ---- the file ---- */

/* Beside it, and never through a link that somebody has put there; a reader sees the old text or the new one. */
static int file_write(void)
{
	char beside[PATH_MAX + 8];
	int fd, error = 0;
	FILE *out;

	snprintf(beside, sizeof(beside), "%s.new", file_path);
	unlink(beside);
	fd = open(beside, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
	out = fd < 0 ? NULL : fdopen(fd, "w");
	if (!out) {
		error = -errno;
		if (fd >= 0)
			close(fd);
		return error;
	}
	zkf_metrics_print(out);
	error = ferror(out) ? -EIO : 0;
	if (fclose(out) || error || rename(beside, file_path)) {
		error = error ? error : -errno;
		unlink(beside);
	}
	return error;
}

static void write_fired(struct zkf_timer *timer)
{
	int error;

	if (!file_path[0])
		return;
	error = file_write();
	if (error && !complained) /* a disk that is full for a day is said once */
		zkf_log(ZKF_LOG_WARN, "metrics file=%s error=\"%s\"", file_path, strerror(-error));
	complained = error != 0;
	zkf_timer_arm(timer, zkf_now_ns() + WRITE_EVERY_MS * ZKF_NS_PER_MS);
}

void zkf_metrics_init(void)
{
	write_timer.fire = write_fired;
	if (file_path[0])
		zkf_timer_arm(&write_timer, zkf_now_ns());
}

void zkf_metrics_use(const char *path, size_t len)
{
	if (strlen(file_path) == len && !memcmp(file_path, path, len))
		return;
	zkf_metrics_end();
	complained = false;
	snprintf(file_path, sizeof(file_path), "%.*s", (int)len, path);
	if (len && write_timer.fire)
		zkf_timer_arm(&write_timer, zkf_now_ns());
}

void zkf_metrics_end(void)
{
	if (file_path[0] && unlink(file_path) && errno != ENOENT)
		zkf_log(ZKF_LOG_DEBUG, "metrics file=%s error=\"%s\"", file_path, strerror(errno));
	if (write_timer.fire)
		zkf_timer_stop(&write_timer);
}
