/*
 * keeper/loop.c - see loop.h
 * SPDX-License-Identifier: Apache-2.0
 */
#include "loop.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "guard.h"

#define NS_PER_S INT64_C(1000000000)
#define EVENTS_AT_ONCE 64

/* All written by the loop's thread only. */
static int epoll_fd = -1;
static struct zkf_source timer_source = {.fd = -1};
static struct zkf_timer *heap; /* root of the pairing heap: the timer that is due first */
static int64_t timerfd_due_ns; /* what the timerfd is set to; 0: disarmed */
static enum zkf_stop stopping; /* 0: not */
static void (*after_each)(void);
/* Events of the current batch: a source that is removed by an earlier event of the batch must not be called. */
static struct epoll_event batch[EVENTS_AT_ONCE];
static int batch_count;

int64_t zkf_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_BOOTTIME, &now);
	return now.tv_sec * NS_PER_S + now.tv_nsec;
}

static struct zkf_timer *heap_meld(struct zkf_timer *a, struct zkf_timer *b)
{
	if (!a || !b)
		return a ? a : b;
	if (b->due_ns < a->due_ns) {
		struct zkf_timer *t = a;

		a = b;
		b = t;
	}
	b->before = a;
	b->sibling = a->child;
	if (a->child)
		a->child->before = b;
	a->child = b;
	return a;
}

/* The two-pass merge of a removed root's children, iteratively: thousands of timers must not nest. */
static struct zkf_timer *heap_merge_pairs(struct zkf_timer *first)
{
	struct zkf_timer *pairs = NULL, *root = NULL;

	while (first) {
		struct zkf_timer *a = first, *b = a->sibling;

		first = b ? b->sibling : NULL;
		a->sibling = a->before = NULL;
		if (b)
			b->sibling = b->before = NULL;
		a = heap_meld(a, b);
		a->sibling = pairs;
		pairs = a;
	}
	while (pairs) {
		struct zkf_timer *next = pairs->sibling;

		pairs->sibling = NULL;
		root = heap_meld(root, pairs);
		pairs = next;
	}
	if (root)
		root->before = root->sibling = NULL;
	return root;
}

static void heap_remove(struct zkf_timer *timer)
{
	struct zkf_timer *rest = heap_merge_pairs(timer->child);

	if (timer == heap) {
		heap = rest;
	} else {
		if (timer->before->child == timer)
			timer->before->child = timer->sibling;
		else
			timer->before->sibling = timer->sibling;
		if (timer->sibling)
			timer->sibling->before = timer->before;
		heap = heap_meld(heap, rest);
	}
	timer->child = timer->sibling = timer->before = NULL;
}

void zkf_timer_stop(struct zkf_timer *timer)
{
	if (timer->armed)
		heap_remove(timer);
	timer->armed = false;
}

void zkf_timer_arm(struct zkf_timer *timer, int64_t due_ns)
{
	zkf_timer_stop(timer);
	timer->due_ns = due_ns;
	timer->armed = true;
	heap = heap_meld(heap, timer);
}

void zkf_timer_arm_by(struct zkf_timer *timer, int64_t due_ns)
{
	if (!timer->armed || timer->due_ns > due_ns)
		zkf_timer_arm(timer, due_ns);
}

static void timers_fire(void)
{
	int64_t now = zkf_now_ns();

	while (heap && heap->due_ns <= now) {
		struct zkf_timer *timer = heap;

		zkf_timer_stop(timer);
		timer->fire(timer);
	}
}

static void timerfd_set(void)
{
	int64_t due = heap ? heap->due_ns : 0;
	struct itimerspec when = {.it_value = {.tv_sec = due / NS_PER_S, .tv_nsec = due % NS_PER_S}};

	if (due == timerfd_due_ns)
		return;
	timerfd_due_ns = due;
	timerfd_settime(timer_source.fd, TFD_TIMER_ABSTIME, &when, NULL);
}

static void timerfd_ready(struct zkf_source *source, uint32_t events)
{
	uint64_t expirations;

	(void)events;
	if (read(source->fd, &expirations, sizeof(expirations)) > 0)
		timerfd_due_ns = 0;
}

int zkf_loop_add(struct zkf_source *source, uint32_t events)
{
	struct epoll_event event = {.events = events, .data.ptr = source};

	return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, source->fd, &event) ? -errno : 0;
}

int zkf_loop_change(struct zkf_source *source, uint32_t events)
{
	struct epoll_event event = {.events = events, .data.ptr = source};

	return epoll_ctl(epoll_fd, EPOLL_CTL_MOD, source->fd, &event) ? -errno : 0;
}

void zkf_loop_remove(struct zkf_source *source)
{
	epoll_ctl(epoll_fd, EPOLL_CTL_DEL, source->fd, NULL);
	for (int i = 0; i < batch_count; i++)
		if (batch[i].data.ptr == source)
			batch[i].data.ptr = NULL;
}

int zkf_loop_init(void)
{
	epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (epoll_fd < 0)
		return -errno;
	timer_source.fd = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
	if (timer_source.fd < 0)
		return -errno;
	timer_source.ready = timerfd_ready;
	return zkf_loop_add(&timer_source, EPOLLIN);
}

void zkf_loop_after_each(void (*work)(void))
{
	after_each = work;
}

void zkf_loop_stop_for(enum zkf_stop reason)
{
	stopping = reason;
}

int zkf_loop_run(void)
{
	while (!stopping) {
		timers_fire();
		if (after_each)
			after_each();
		if (stopping)
			break;
		timerfd_set();
		zkf_guard_waiting(true);
		batch_count = epoll_wait(epoll_fd, batch, EVENTS_AT_ONCE, -1);
		zkf_guard_waiting(false);
		if (batch_count < 0) {
			batch_count = 0;
			if (errno != EINTR)
				return -errno;
		}
		for (int i = 0; i < batch_count; i++) {
			struct zkf_source *source = batch[i].data.ptr;

			if (source)
				source->ready(source, batch[i].events);
		}
		batch_count = 0;
	}
	return (int)stopping;
}
