/*
 * tests/probes/libclock.c - a machine whose clocks jump, for the programs that have this library preloaded
 *
 * ZKF_CLOCKS names a file of two int64_t, ns: what is added to CLOCK_REALTIME, and to CLOCK_BOOTTIME.  The test changes
 * them while the programs run: the wall clock is set, the machine has slept.
 * Absolute timers of CLOCK_BOOTTIME are set back by as much, so that they fire when the shown clock says so; one that is
 * set already fires late by a jump, but the next event makes its loop look at the clock.
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S INT64_C(1000000000)

static const volatile int64_t *offsets;

__attribute__((constructor)) static void map_offsets(void)
{
	const char *path = getenv("ZKF_CLOCKS");
	int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	void *at = fd < 0 ? MAP_FAILED : mmap(NULL, 2 * sizeof(int64_t), PROT_READ, MAP_SHARED, fd, 0);

	if (fd >= 0)
		close(fd);
	offsets = at == MAP_FAILED ? NULL : at;
}

static int64_t offset_of(clockid_t clock)
{
	return !offsets ? 0 : clock == CLOCK_REALTIME ? offsets[0] : clock == CLOCK_BOOTTIME ? offsets[1] : 0;
}

static void add(struct timespec *time, int64_t ns)
{
	int64_t sum = time->tv_sec * NS_PER_S + time->tv_nsec + ns;

	time->tv_sec = sum / NS_PER_S;
	time->tv_nsec = sum % NS_PER_S;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
	int result = (int)syscall(SYS_clock_gettime, clock, now);

	if (!result)
		add(now, offset_of(clock));
	return result;
}

time_t time(time_t *into)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	if (into)
		*into = now.tv_sec;
	return now.tv_sec;
}

int timerfd_settime(int fd, int flags, const struct itimerspec *when, struct itimerspec *before)
{
	struct itimerspec shifted = *when;

	if ((flags & TFD_TIMER_ABSTIME) && (when->it_value.tv_sec || when->it_value.tv_nsec))
		add(&shifted.it_value, -offset_of(CLOCK_BOOTTIME));
	return (int)syscall(SYS_timerfd_settime, fd, flags, &shifted, before);
}
