/*
 * keeper/loss.c - see loss.h
 * SPDX-License-Identifier: Apache-2.0
 */
#include "loss.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "file.h"
#include "guard.h"
#include "lease.h"
#include "lines.h"
#include "log.h"
#include "metrics.h"
#include "named.h"
#include "refused.h"
#include "state.h"

/* More than this many are not continued again, but killed if the session expires: they are found by their locks. */
#define STOPPED_MAX ZKF_STATE_STOPPED_MAX

#define PASSES_MAX 8

enum event { LOOKED, DOUBTED, KILL_DUE, LOST };

/* The loop's. */
static struct zkf_state_process stopped[STOPPED_MAX];
static size_t stopped_count;
static size_t signals_sent;
static bool anybody; /* holds something: of LOOKED */
static bool lacking; /* in the last pass something could not be opened for want of means */
static struct zkf_timer kill_timer;

/* State and start time of a process from /proc/PID/stat; 0 or -ESRCH. */
static int process_stat(int32_t pid, char *state, uint64_t *start)
{
	char path[40], text[1024];
	const char *behind;
	ssize_t bytes;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	bytes = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	if (fd >= 0)
		close(fd);
	if (bytes <= 0)
		return -ESRCH;
	text[bytes] = 0;
	behind = strrchr(text, ')'); /* the name may hold anything */
	if (!behind ||
	    sscanf(behind, ") %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %" SCNu64,
	           state, start) != 2)
		return -ESRCH;
	return 0;
}

/* By pidfd, and only if it is still the process that was meant. */
static int send_signal(int32_t pid, uint64_t start, int number)
{
	int fd = (int)syscall(SYS_pidfd_open, pid, 0), error = 0;
	uint64_t now_start;
	char state;

	if (fd < 0)
		return -errno;
	if (process_stat(pid, &state, &now_start) || now_start != start)
		error = -ESRCH;
	else if (syscall(SYS_pidfd_send_signal, fd, number, NULL, 0))
		error = -errno;
	close(fd);
	return error;
}

static bool known_stopped(int32_t pid, uint64_t start)
{
	for (size_t i = 0; i < stopped_count; i++)
		if (stopped[i].pid == pid && stopped[i].start == start)
			return true;
	return false;
}

static void stop(const struct zkf_lock *lock, int32_t pid, uint64_t start, char state)
{
	int error;

	if (known_stopped(pid, start))
		return;
	if (state == 'T') {
		zkf_log(ZKF_LOG_WARN, "loss lock=%s pid=%d action=none why=\"stopped already, by somebody else\"",
		        lock->key.name, pid);
		return;
	}
	/* Noted first: who is stopped by a keeper that dies here must be continued by the next one. */
	if (stopped_count < STOPPED_MAX) {
		stopped[stopped_count++] = (struct zkf_state_process){pid, start};
		zkf_state_stopped_save(stopped, stopped_count);
	}
	error = send_signal(pid, start, SIGSTOP);
	signals_sent += !error;
	zkf_counts.stopped += !error;
	zkf_log(ZKF_LOG_ERROR, "loss lock=%s pid=%d action=SIGSTOP error=%d", lock->key.name, pid, -error);
}

static void act(struct zkf_lock *lock, int32_t pid, enum event event)
{
	uint64_t start;
	char state;
	int number = SIGKILL, error;

	if (pid == getpid() || process_stat(pid, &state, &start))
		return;
	anybody = true;
	if (event == LOOKED)
		return;
	if (lock->on_loss == ZKF_LOSS_WARN) {
		zkf_log(ZKF_LOG_ERROR,
		        "loss lock=%s pid=%d action=none why=\"on_loss=warn: it runs on, although another host may %s\"",
		        lock->key.name, pid, event == LOST ? "have the lock" : "get the lock soon");
		return;
	}
	if (event == DOUBTED && lock->on_loss == ZKF_LOSS_FREEZE) {
		stop(lock, pid, start, state);
		return;
	}
	if (event == KILL_DUE && lock->on_loss != ZKF_LOSS_KILL)
		return;
	if (event == DOUBTED)
		number = SIGTERM;
	error = send_signal(pid, start, number);
	signals_sent += !error && number == SIGKILL;
	zkf_counts.killed += !error && number == SIGKILL;
	zkf_log(ZKF_LOG_ERROR, "loss lock=%s pid=%d action=%s error=%d", lock->key.name, pid,
	        number == SIGKILL ? "SIGKILL" : "SIGTERM", -error);
}

/* What may stand in the way of knowing who holds: not that a process has ended. */
static bool is_lack(int error)
{
	return error == -EMFILE || error == -ENFILE || error == -ENOMEM;
}

static bool holds_noted(const struct zkf_file *file, int32_t pid, const char *fd)
{
	struct zkf_holders shown = {0};
	int32_t number = (int32_t)strtol(fd, NULL, 10);
	bool found = zkf_refused_shown(file, pid, number, &shown) != 0;

	zkf_holders_free(&shown);
	return found || zkf_refused_may_hold(file, pid, number);
}

static bool holds(const struct zkf_file *file, int32_t pid, const char *fd, uint32_t kind)
{
	char path[64], type[16];
	struct zkf_lines lines;
	const char *line;
	bool found = false;

	snprintf(path, sizeof(path), "/proc/%d/fdinfo/%.20s", pid, fd);
	lacking |= is_lack(zkf_lines_open(&lines, open(path, O_RDONLY | O_CLOEXEC)));
	while (!found && (line = zkf_lines_next(&lines)) != NULL)
		found = sscanf(line, "lock: %*d: %15s", type) == 1 && (kind == ZKF_FLOCK) == !strcmp(type, "FLOCK");
	zkf_lines_close(&lines);
	return found || holds_noted(file, pid, fd);
}

static int group_of(int32_t pid)
{
	return pid > 0 ? (int)getpgid(pid) : -1;
}

/* `zkflock lock` has a process group of its own: what the command has started is in it, with the descriptor or not. */
static void act_on_group(struct zkf_lock *lock, int32_t holder, enum event event)
{
	int group = group_of(holder);
	struct zkf_entries processes;
	const char *name;

	if (group <= 0 || group == getpgrp())
		return;
	lacking |= is_lack(zkf_entries_open(&processes, "/proc"));
	while ((name = zkf_entries_next(&processes)) != NULL) {
		int32_t pid = isdigit((unsigned char)*name) ? (int32_t)strtol(name, NULL, 10) : 0;

		if (pid > 0 && pid != holder && group_of(pid) == group)
			act(lock, pid, event);
	}
	zkf_entries_close(&processes);
}

/* Acts on the locks that a process holds; only: NULL for all. */
static void process_check(int32_t pid, struct zkf_lock *only, enum event event)
{
	struct zkf_entries fds;
	const char *name;
	char path[40];

	zkf_guard_progress();
	snprintf(path, sizeof(path), "/proc/%d/fd", pid);
	lacking |= is_lack(zkf_entries_open(&fds, path));
	while ((name = zkf_entries_next(&fds)) != NULL) {
		uint64_t dev, ino;

		if (zkf_file_identity(fds.fd, name, &dev, &ino))
			continue;
		for (uint32_t kind = ZKF_FLOCK; kind <= ZKF_RECORD; kind++) {
			struct zkf_file *file = zkf_file_find(dev, ino, kind);

			if (!file || (only && file->lock != only) || !holds(file, pid, name, kind))
				continue;
			if (zkf_named_znode(file->path))
				act_on_group(file->lock, pid, event);
			act(file->lock, pid, event);
		}
	}
	zkf_entries_close(&fds);
}

static void processes_pass(struct zkf_lock *only, enum event event)
{
	struct zkf_entries processes;
	const char *name;

	lacking = is_lack(zkf_entries_open(&processes, "/proc"));
	while ((name = zkf_entries_next(&processes)) != NULL)
		if (isdigit((unsigned char)*name))
			process_check((int32_t)strtol(name, NULL, 10), only, event);
	zkf_entries_close(&processes);
}

/* A holder may have forked while the list was read; who is stopped or dead does not fork again. */
static void processes_check(struct zkf_lock *only, enum event event)
{
	size_t before;
	int passes = 0;

	if (!zkf_file_list())
		return;
	do {
		before = signals_sent;
		processes_pass(only, event);
	} while ((signals_sent != before || lacking) && ++passes < PASSES_MAX);
	if (lacking)
		zkf_log(ZKF_LOG_ERROR, "loss error=\"not every process could be looked at: too many files are open\"");
}

static void stopped_signal(int number)
{
	for (size_t i = 0; i < stopped_count; i++) {
		int error = send_signal(stopped[i].pid, stopped[i].start, number);

		zkf_counts.killed += !error && number == SIGKILL;
		zkf_log(number == SIGCONT ? ZKF_LOG_WARN : ZKF_LOG_ERROR, "loss pid=%d action=%s error=%d",
		        stopped[i].pid, number == SIGCONT ? "SIGCONT" : "SIGKILL", -error);
	}
	stopped_count = 0;
	zkf_state_stopped_save(stopped, 0);
}

static void kill_fired(struct zkf_timer *timer)
{
	(void)timer;
	processes_check(NULL, KILL_DUE);
}

void zkf_loss_init(void)
{
	kill_timer.fire = kill_fired;
	stopped_count = zkf_state_stopped_load(stopped, STOPPED_MAX);
}

void zkf_loss_doubted(int session_timeout_ms)
{
	processes_check(NULL, DOUBTED);
	zkf_timer_arm(&kill_timer, zkf_now_ns() + zkf_lease_period_ms(session_timeout_ms) / 2 * ZKF_NS_PER_MS);
}

void zkf_loss_at_once(int session_timeout_ms)
{
	zkf_loss_init();
	processes_check(NULL, DOUBTED);
	usleep((useconds_t)(zkf_lease_period_ms(session_timeout_ms) / 2 * 1000));
	processes_check(NULL, KILL_DUE);
}

bool zkf_loss_anybody(void)
{
	anybody = false;
	processes_pass(NULL, LOOKED);
	return anybody || lacking;
}

void zkf_loss_alive(void)
{
	zkf_timer_stop(&kill_timer);
	if (stopped_count)
		stopped_signal(SIGCONT);
}

void zkf_loss_lost(void)
{
	zkf_timer_stop(&kill_timer);
	processes_check(NULL, LOST);
	if (stopped_count)
		stopped_signal(SIGKILL);
}

void zkf_loss_lock(struct zkf_lock *lock)
{
	processes_check(lock, LOST);
}
