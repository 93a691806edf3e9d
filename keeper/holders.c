/*
 * keeper/holders.c - see holders.h
 * SPDX-License-Identifier: Apache-2.0
 */
#include "holders.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/kcmp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fault.h"
#include "file.h"
#include "lines.h"
#include "log.h"
#include "refused.h"

/*
 * A /proc of another pid namespace than ours numbers processes in its own way: then nothing there can be believed, and
 * every owner is unknown.  So it is when a program in a namespace without a /proc of its own starts the keeper.
 */
static bool proc_is_ours(void)
{
	static int ours = -1; /* known after the first look */
	char self[16];
	ssize_t bytes;

	if (ours >= 0)
		return ours;
	bytes = readlink("/proc/self", self, sizeof(self) - 1);
	self[bytes > 0 ? bytes : 0] = 0;
	ours = strtol(self, NULL, 10) == getpid();
	if (!ours)
		zkf_log(ZKF_LOG_ERROR,
		        "holders /proc is not of this pid namespace: no thread can be told from another, so that "
		        "who holds a group waits for itself if it asks for more; start zkflockd outside");
	return ours;
}

/* --- threads --- */

/* starttime from a .../stat; 0: gone */
static uint64_t start_of(const char *path, char *state)
{
	char text[1024];
	const char *behind;
	uint64_t start;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t bytes = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);

	if (fd >= 0)
		close(fd);
	if (bytes <= 0)
		return 0;
	text[bytes] = 0;
	behind = strrchr(text, ')'); /* the name may hold anything */
	if (!behind ||
	    sscanf(behind, ") %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %" SCNu64,
	           state, &start) != 2)
		return 0;
	return start;
}

uint64_t zkf_process_start(int32_t pid)
{
	char path[40], state;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	return start_of(path, &state);
}

static uint64_t thread_start(int32_t pid, int32_t task)
{
	char path[64], state;
	uint64_t start;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/stat", pid, task);
	start = start_of(path, &state);
	return start && state != 'Z' && state != 'X' ? start : 0;
}

/* Nobody may look: then it is taken for ours, which the kernel's answer about the task will mend or not. */
static bool of_our_namespace(int32_t pid)
{
	struct stat ours, theirs;
	char path[40];

	snprintf(path, sizeof(path), "/proc/%d/ns/pid", pid);
	return stat("/proc/self/ns/pid", &ours) || stat(path, &theirs) || ours.st_ino == theirs.st_ino;
}

/* The innermost number of a task, as itself sees it: the last of the line "NSpid:\t4711\t12". */
static int32_t inner_number(int32_t pid, int32_t task)
{
	struct zkf_lines lines;
	const char *line;
	int32_t number = 0;
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/task/%d/status", pid, task);
	zkf_lines_open(&lines, open(path, O_RDONLY | O_CLOEXEC));
	while (!number && (line = zkf_lines_next(&lines)) != NULL)
		if (!strncmp(line, "NSpid:", 6)) {
			const char *last = strrchr(line, '\t');

			number = last ? (int32_t)strtol(last, NULL, 10) : 0;
		}
	zkf_lines_close(&lines);
	return number;
}

static int32_t task_by_inner(int32_t pid, int32_t tid)
{
	struct zkf_entries tasks;
	const char *name;
	int32_t task = 0;
	char path[40];

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	zkf_entries_open(&tasks, path);
	while (!task && (name = zkf_entries_next(&tasks)) != NULL)
		if (isdigit((unsigned char)*name) && inner_number(pid, (int32_t)strtol(name, NULL, 10)) == tid)
			task = (int32_t)strtol(name, NULL, 10);
	zkf_entries_close(&tasks);
	return task;
}

void zkf_thread_of(struct zkf_thread *thread, int32_t pid, int32_t tid)
{
	memset(thread, 0, sizeof(*thread)); /* it is hashed */
	if (pid <= 0 || !proc_is_ours())
		return;
	thread->pid = pid;
	thread->process_start = zkf_process_start(pid);
	thread->task = of_our_namespace(pid) ? tid : task_by_inner(pid, tid);
	thread->thread_start = thread->task ? thread_start(pid, thread->task) : 0;
	if (!thread->thread_start)
		thread->task = 0; /* gone by now, or a number that is not its own */
}

bool zkf_thread_same(const struct zkf_thread *a, const struct zkf_thread *b)
{
	return a->task && a->pid == b->pid && a->task == b->task && a->process_start == b->process_start &&
	       a->thread_start == b->thread_start;
}

bool zkf_thread_lives(const struct zkf_thread *thread)
{
	return thread->task && thread_start(thread->pid, thread->task) == thread->thread_start;
}

bool zkf_thread_process_lives(const struct zkf_thread *thread)
{
	return thread->pid > 0 && zkf_process_start(thread->pid) == thread->process_start;
}

bool zkf_process_has_ended(int32_t pid)
{
	struct pollfd end = {.events = POLLIN};
	bool ended;

	if (pid <= 0)
		return false;
	end.fd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (end.fd < 0)
		return errno == ESRCH;
	ended = poll(&end, 1, 0) == 1;
	close(end.fd);
	return ended;
}

bool zkf_process_is_single(int32_t pid)
{
	struct stat status;
	char path[40];

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	return !stat(path, &status) && status.st_nlink == 3; /* ".", ".." and one for each */
}

/* --- locks --- */

void zkf_holders_free(struct zkf_holders *holders)
{
	free(holders->items);
	*holders = (struct zkf_holders){0};
}

int zkf_holders_add(struct zkf_holders *holders, const struct zkf_holder *holder)
{
	if (holders->count == holders->capacity) {
		size_t capacity = holders->capacity ? 2 * holders->capacity : 8;
		struct zkf_holder *more = zkf_reallocarray(holders->items, capacity, sizeof(*more));

		if (!more)
			return -ENOMEM;
		holders->items = more;
		holders->capacity = capacity;
	}
	holders->items[holders->count++] = *holder;
	return 0;
}

/* "lock:\t1: FLOCK  ADVISORY  WRITE 4711 fe:01:1234 0 EOF"; false: not a lock of the file's kind */
static bool parse(const char *line, uint32_t kind, struct zkf_holder *holder)
{
	char type[16], mode[16], inode[64], end[24];
	const char *colon;

	if (sscanf(line, "lock: %*d: %15s %*s %15s %d %63s %" SCNd64 " %23s", type, mode, &holder->taker, inode,
	           &holder->start, end) != 6)
		return false;
	colon = strrchr(inode, ':');
	holder->ino = colon ? strtoull(colon + 1, NULL, 10) : 0;
	if (!strcmp(type, "FLOCK"))
		holder->type = ZKF_HOLDER_FLOCK;
	else if (!strcmp(type, "POSIX"))
		holder->type = ZKF_HOLDER_POSIX;
	else if (!strcmp(type, "OFDLCK"))
		holder->type = ZKF_HOLDER_OFD;
	else
		return false;
	holder->mode = strcmp(mode, "WRITE") ? ZKF_SHARED : ZKF_EXCLUSIVE;
	holder->end = strcmp(end, "EOF") ? strtoll(end, NULL, 10) : ZKF_RANGE_MAX;
	return (holder->type == ZKF_HOLDER_FLOCK) == (kind == ZKF_FLOCK);
}

/* What an error of open means: not to be seen; or gone, and so not a holder. */
static int hidden(int error)
{
	if (error == -EMFILE || error == -ENFILE || error == -ENOMEM)
		return -ENOMEM;
	return error == -EACCES || error == -EPERM ? -EACCES : 0;
}

/* A descriptor of the right inode. */
static int read_descriptor(const struct zkf_file *file, int32_t pid, const char *fd, struct zkf_holders *holders)
{
	struct zkf_holder holder = {.pid = pid, .fd = (int32_t)strtol(fd, NULL, 10)};
	struct zkf_lines lines;
	const char *line;
	char path[64];
	int added = 0, noted;

	snprintf(path, sizeof(path), "/proc/%d/fdinfo/%.20s", pid, fd);
	if (zkf_lines_open(&lines, open(path, O_RDONLY | O_CLOEXEC)))
		return hidden(lines.error);
	while (added >= 0 && (line = zkf_lines_next(&lines)) != NULL)
		if (!strncmp(line, "lock:", 5) && parse(line, (uint32_t)file->key.kind, &holder))
			added = zkf_holders_add(holders, &holder) ? -ENOMEM : added + 1;
	zkf_lines_close(&lines);
	noted = added < 0 ? 0 : zkf_refused_shown(file, pid, holder.fd, holders);
	return noted < 0 ? noted : added + noted;
}

int zkf_holders_at(const struct zkf_file *file, int32_t pid, int32_t fd, struct zkf_holders *holders)
{
	char path[48], name[16];
	uint64_t dev, ino;
	int error;

	if (!proc_is_ours())
		return -EACCES;
	if (pid <= 0 || fd < 0)
		return 0;
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", pid, fd);
	error = zkf_file_identity(AT_FDCWD, path, &dev, &ino);
	if (error == -EACCES || error == -EPERM)
		return -EACCES;
	if (error || dev != file->key.dev || ino != file->key.ino)
		return 0;
	snprintf(name, sizeof(name), "%d", fd);
	return read_descriptor(file, pid, name, holders);
}

int zkf_holders_of(const struct zkf_file *file, int32_t pid, struct zkf_holders *holders)
{
	struct zkf_entries fds;
	const char *name;
	int added = 0;
	char path[40];

	if (!proc_is_ours())
		return -EACCES;
	if (pid <= 0)
		return 0;
	snprintf(path, sizeof(path), "/proc/%d/fd", pid);
	if (zkf_entries_open(&fds, path))
		return hidden(fds.error);
	while (added >= 0 && (name = zkf_entries_next(&fds)) != NULL) {
		uint64_t dev, ino;
		int more;

		if (zkf_file_identity(fds.fd, name, &dev, &ino) || dev != file->key.dev || ino != file->key.ino)
			continue;
		more = read_descriptor(file, pid, name, holders);
		added = more < 0 ? more : added + more;
	}
	zkf_entries_close(&fds);
	return added;
}

bool zkf_holder_same(const struct zkf_holder *a, const struct zkf_holder *b)
{
	return a->type == b->type && a->type != ZKF_HOLDER_POSIX && a->taker == b->taker &&
	       syscall(SYS_kcmp, a->pid, b->pid, KCMP_FILE, a->fd, b->fd) == 0;
}

int zkf_holders_all(const struct zkf_file *file, struct zkf_holders *holders)
{
	struct zkf_entries processes;
	const char *name;
	int error;

	if (!proc_is_ours())
		return -EACCES;
	error = zkf_entries_open(&processes, "/proc");
	while (error != -ENOMEM && (name = zkf_entries_next(&processes)) != NULL) {
		int32_t pid = isdigit((unsigned char)*name) ? (int32_t)strtol(name, NULL, 10) : 0;
		int found = pid && pid != getpid() ? zkf_holders_of(file, pid, holders) : 0;

		if (found < 0)
			error = found;
	}
	zkf_entries_close(&processes);
	return error;
}

/* proc_ns.h of the kernel: PROC_PID_INIT_INO, the same since 3.8 */
#define FIRST_PID_NAMESPACE 0xEFFFFFFCu

int zkf_holders_listed(uint64_t ino, int32_t taker)
{
	char type[16], inode[64];
	struct zkf_lines lines;
	const char *line;
	struct stat ours;
	int pid, listed = 0;

	if (stat("/proc/self/ns/pid", &ours) || ours.st_ino != FIRST_PID_NAMESPACE)
		return -EINVAL;
	zkf_lines_open(&lines, open("/proc/locks", O_RDONLY | O_CLOEXEC));
	while ((line = zkf_lines_next(&lines)) != NULL) {
		const char *colon;

		if (sscanf(line, "%*d: %15s %*s %*s %d %63s", type, &pid, inode) != 3 || strcmp(type, "FLOCK"))
			continue;
		colon = strrchr(inode, ':');
		listed += colon && pid == taker && strtoull(colon + 1, NULL, 10) == ino;
	}
	return zkf_lines_close(&lines) ? -EINVAL : listed;
}
