/*
 * keeper/metrics.h - what the keeper counts, and the file that tells monitoring of it
 *
 * Answers for: counters since this keeper's start, histograms of how long a grant took, their list with names for
 *              `zkflock status` and in OpenMetrics text, the setting metrics_file.
 * Does not:    see locks that programs take by the shared page alone: those are no business of the keeper's, and the
 *              reason why they are fast.
 * Threads:     the loop's.
 * Specification: OpenMetrics 1.0; zkflockd(8), "METRICS".
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ZKF_METRICS_H
#define ZKF_METRICS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define ZKF_BUCKET_COUNT 12 /* the last one has no bound */

struct zkf_histogram {
	uint64_t buckets[ZKF_BUCKET_COUNT]; /* not cumulative */
	uint64_t count;
	int64_t sum_ns;
};

/* Everybody may count; the names are in metrics.c. */
struct zkf_counts {
	struct zkf_histogram kept, queued; /* grants, by what this host had already; by way of the queue in ZooKeeper */
	uint64_t refused;   /* non-blocking calls that another host, or another file of a lock, was in the way of */
	uint64_t failed;    /* ENOLCK */
	uint64_t deadlocks; /* EDEADLK */
	uint64_t waits;     /* calls that had to wait for another host, or for another file of a group */
	uint64_t recalls;   /* another host wanted what this one had */
	uint64_t hand_offs; /* it was given, whole or in part */
	uint64_t losses;    /* permissions that were taken away: the session expired, or the claim was deleted */
	uint64_t stopped, killed; /* processes, by on_loss */
	uint64_t leases_over;
	uint64_t sessions, reconnects;
};

extern struct zkf_counts zkf_counts;

/* zkf_metrics_granted - took_ns after the request; queued: a claim had to be made, or waited for */
void zkf_metrics_granted(int64_t took_ns, bool queued);

/* zkf_metrics_init - from now on write the file that zkf_metrics_use names */
void zkf_metrics_init(void);

/*
 * zkf_metrics_use - where to write: the setting metrics_file; len 0: nowhere
 *
 * The former file is removed: what nobody writes any more must not look alive.
 */
void zkf_metrics_use(const char *path, size_t len);

/* zkf_metrics_end - the keeper ends: remove the file */
void zkf_metrics_end(void);

/* zkf_metrics_each - every number, by the key that `zkflock status` has for it */
void zkf_metrics_each(void (*each)(void *context, const char *key, const char *value), void *context);

/* zkf_metrics_print - all of it as OpenMetrics text */
void zkf_metrics_print(FILE *out);

#endif
