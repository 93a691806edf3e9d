/*
 * keeper/loop.h - the keeper's one thread: descriptors, timers, deferred work
 *
 * Answers for: calling back when a descriptor is ready, a time has come, or the current event has been dealt with.
 * Does not:    know locks or ZooKeeper.
 * Threads:     everything here belongs to the loop's thread.
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ZKF_LOOP_H
#define ZKF_LOOP_H

#include <stdbool.h>
#include <stdint.h>

#define ZKF_NS_PER_MS INT64_C(1000000)

/* A descriptor; embedded in its owner. */
struct zkf_source {
	int fd;
	void (*ready)(struct zkf_source *source, uint32_t events); /* EPOLL* */
};

/* A timer; embedded in its owner, zeroed before first use.  Arming never fails: the heap is intrusive. */
struct zkf_timer {
	void (*fire)(struct zkf_timer *timer);
	int64_t due_ns; /* CLOCK_BOOTTIME: it counts suspend, as leases must */
	bool armed;
	struct zkf_timer *child, *sibling, *before; /* pairing heap; before = parent or left sibling */
};

/* zkf_loop_init - 0, or a negative errno of epoll_create1 or timerfd_create */
int zkf_loop_init(void);

enum zkf_stop {
	ZKF_STOP_END = 1,     /* the keeper was told to end */
	ZKF_STOP_RESTART = 2, /* another one shall take over, as after a crash */
};

/* zkf_loop_run - until zkf_loop_stop_for; returns its reason, or the negative errno of epoll_wait */
int zkf_loop_run(void);
void zkf_loop_stop_for(enum zkf_stop reason);

/* zkf_loop_add, zkf_loop_change, zkf_loop_remove - watch a descriptor for these events; 0 or a negative errno of epoll_ctl */
int zkf_loop_add(struct zkf_source *source, uint32_t events);
int zkf_loop_change(struct zkf_source *source, uint32_t events);
void zkf_loop_remove(struct zkf_source *source);

/* zkf_now_ns - CLOCK_BOOTTIME */
int64_t zkf_now_ns(void);

/* zkf_timer_arm - fire once at due_ns; an armed timer is moved */
void zkf_timer_arm(struct zkf_timer *timer, int64_t due_ns);
/* zkf_timer_arm_by - as arm, but an earlier time that is already set stays */
void zkf_timer_arm_by(struct zkf_timer *timer, int64_t due_ns);
void zkf_timer_stop(struct zkf_timer *timer);

/* zkf_loop_after_each - called after every batch of events: where deferred work is done */
void zkf_loop_after_each(void (*work)(void));

#endif
