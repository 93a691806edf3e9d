/*
 * keeper/description.c - see description.h
 * SPDX-License-Identifier: Apache-2.0
 */
#include "description.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/kcmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "file.h"
#include "guard.h"
#include "holders.h"
#include "lease.h"
#include "lines.h"
#include "log.h"
#include "store.h"

/* All processes of the machine are searched no more often than this, and than a tenth of the time. */
#define SCAN_EVERY_NS (20 * ZKF_NS_PER_MS)
/*
 * A description that nobody shows while some descriptors, perhaps others, lie in a socket's queue, is waited for so long: if
 * it is found to be alive then, it can't be told from others any more.
 */
#define IN_FLIGHT_NS (5000 * ZKF_NS_PER_MS)
/* Only so long who would not wait for an owner is kept waiting for this. */
#define DOUBT_NS (300 * ZKF_NS_PER_MS)

/* The loop's: to see our own close. */
static int inotify = -1;

/* 1: the same; 0: not, or one of them is closed; a negative errno. */
static int compare(int32_t pid, int number, int32_t other_pid, int other_number)
{
	long result = syscall(SYS_kcmp, pid, other_pid, KCMP_FILE, number, other_number);

	if (result < 0)
		return errno == EBADF || errno == ESRCH ? 0 : -errno;
	return result == 0;
}

int zkf_description_works(int fd)
{
	int result = compare(getpid(), fd, getpid(), fd);

	return result < 0 ? result : 0;
}

int zkf_description_init(struct zkf_description *description, uint64_t id, int32_t pid, int32_t number, int fd)
{
	*description = (struct zkf_description){
		.id = id, .pid = pid, .number = number, .start = pid > 0 ? zkf_process_start(pid) : 0};
	description->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (description->fd < 0)
		return -errno;
	if (id && zkf_store_add(id, description->fd))
		description->id = 0; /* who follows us goes by process and number */
	return 0;
}

void zkf_description_free(struct zkf_description *description)
{
	if (description->id)
		zkf_store_drop(description->id);
	if (description->fd >= 0)
		close(description->fd);
	description->fd = -1;
}

static int shows_inode(const struct zkf_file *file, int32_t pid, int32_t number)
{
	char path[48];
	uint64_t dev, ino;
	int error;

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", pid, number);
	error = zkf_file_identity(AT_FDCWD, path, &dev, &ino);
	if (error)
		return error == -EACCES || error == -EPERM ? -EACCES : 0;
	return dev == file->key.dev && ino == file->key.ino;
}

/* A duplicate of what a process has as that descriptor; -1: we may not. */
static int duplicate(int32_t pid, int32_t number)
{
	int process = (int)syscall(SYS_pidfd_open, pid, 0), fd;

	if (process < 0)
		return -1;
	fd = (int)syscall(SYS_pidfd_getfd, process, number, 0); /* close-on-exec */
	close(process);
	return fd;
}

void zkf_description_adopt(struct zkf_description *description, const struct zkf_file *file)
{
	description->fd = zkf_store_find(description->id);
	if (description->fd >= 0)
		return;
	description->id = 0;
	description->lost = description->pid <= 0 || zkf_process_start(description->pid) != description->start ||
	                    !shows_inode(file, description->pid, description->number);
	if (description->lost)
		return;
	description->fd = duplicate(description->pid, description->number);
}

/* Without a duplicate, what shows it is all that it can be compared with. */
bool zkf_description_is(const struct zkf_description *description, int fd)
{
	if (description->fd >= 0)
		return compare(getpid(), description->fd, getpid(), fd) == 1;
	return !description->lost && compare(description->pid, description->number, getpid(), fd) == 1;
}

int zkf_description_at(const struct zkf_description *description, const struct zkf_file *file, int32_t pid,
                       int32_t number)
{
	int result;

	if (description->fd >= 0)
		result = compare(getpid(), description->fd, pid, number);
	else if (description->lost)
		return 0;
	else if (pid == description->pid && number == description->number)
		result = zkf_process_start(pid) == description->start ? shows_inode(file, pid, number) : 0;
	else
		result = compare(description->pid, description->number, pid, number);
	return result < 0 ? -EACCES : result;
}

/* --- all descriptors of a file --- */

struct search {
	const struct zkf_file *file;
	bool (*each)(void *context, int32_t pid, int32_t number);
	void *context;
};

/* 1: go on; 0: enough; -EACCES. */
static int search_process(const struct search *search, int32_t pid)
{
	struct dirent *entry;
	DIR *directory;
	char path[40];
	int result = 1;

	zkf_guard_progress();
	snprintf(path, sizeof(path), "/proc/%d/fd", pid);
	directory = opendir(path);
	if (!directory)
		return errno == ENOENT || errno == ESRCH ? 1
		                                         : -EACCES; /* also where memory or descriptors have run out */
	while (result > 0 && (entry = readdir(directory)) != NULL) {
		uint64_t dev, ino;

		if (entry->d_name[0] == '.' || zkf_file_identity(dirfd(directory), entry->d_name, &dev, &ino) ||
		    dev != search->file->key.dev || ino != search->file->key.ino)
			continue;
		result = search->each(search->context, pid, (int32_t)strtol(entry->d_name, NULL, 10));
	}
	closedir(directory);
	return result;
}

int zkf_descriptors_each(const struct zkf_file *file, int32_t pid,
                         bool (*each)(void *context, int32_t pid, int32_t number), void *context)
{
	const struct search search = {file, each, context};
	struct dirent *entry;
	int result = 1, hidden = 0;
	DIR *directory;

	if (pid)
		return search_process(&search, pid) < 0 ? -EACCES : 0;
	directory = opendir("/proc");
	if (!directory)
		return -EACCES;
	while (result != 0 && (entry = readdir(directory)) != NULL) {
		pid = isdigit((unsigned char)entry->d_name[0]) ? (int32_t)strtol(entry->d_name, NULL, 10) : 0;
		if (!pid || pid == getpid())
			continue;
		result = search_process(&search, pid);
		if (result < 0)
			hidden = -EACCES;
	}
	closedir(directory);
	return hidden;
}

/* --- is it shown? --- */

struct sought {
	struct zkf_description *description;
	const struct zkf_file *file;
	bool found, doubt;
};

static bool is_sought(void *context, int32_t pid, int32_t number)
{
	struct sought *sought = context;
	int same = zkf_description_at(sought->description, sought->file, pid, number);

	sought->doubt |= same < 0;
	if (same <= 0)
		return true;
	sought->found = true;
	sought->description->pid = pid;
	sought->description->number = number;
	sought->description->start = zkf_process_start(pid);
	return false;
}

bool zkf_description_shown_as(int fd, int32_t pid, int32_t number)
{
	return compare(getpid(), fd, pid, number) == 1;
}

struct unknown {
	const struct zkf_description *lost;
	const struct zkf_file *file;
	zkf_description_other *other;
	int32_t pid, number; /* the first one that may be it; 0: none */
	bool more;           /* there is another description that may be it */
};

static bool is_known(void *context, int32_t pid, int32_t number)
{
	struct unknown *unknown = context;

	if (unknown->other(unknown->lost, unknown->file, pid, number))
		return true;
	if (!unknown->pid) {
		unknown->pid = pid;
		unknown->number = number;
		return true;
	}
	unknown->more |= compare(unknown->pid, unknown->number, pid, number) != 1;
	return !unknown->more;
}

/* What can't be read for lack of means may say anything. */
static bool is_lack(int error)
{
	return error == -EMFILE || error == -ENFILE || error == -ENOMEM;
}

/* A line of a file under /proc: does one begin with `label` and say more than nought? */
static bool says_some(const char *path, const char *label)
{
	struct zkf_lines lines;
	const char *line;
	bool some = false;

	zkf_lines_open(&lines, open(path, O_RDONLY | O_CLOEXEC));
	while (!some && (line = zkf_lines_next(&lines)) != NULL)
		some = !strncmp(line, label, strlen(label)) && strtoul(line + strlen(label), NULL, 10) > 0;
	return is_lack(zkf_lines_close(&lines)) || some;
}

/* Other keepers store descriptors in a socket's queue, as we do. */
static bool is_keeper(const char *pid)
{
	char path[64], name[20] = "";
	FILE *in;

	snprintf(path, sizeof(path), "/proc/%.20s/comm", pid);
	in = fopen(path, "re");
	if (in && fgets(name, sizeof(name), in))
		name[strcspn(name, "\n")] = 0;
	if (in)
		fclose(in);
	return !strcmp(name, "zkflockd");
}

/* but: this descriptor does not count */
static void flights_add(const char *pid, int but, struct zkf_flights *flights)
{
	struct dirent *entry;
	char path[80], link[40];
	DIR *directory;

	zkf_guard_progress();
	snprintf(path, sizeof(path), "/proc/%.20s/fd", pid);
	directory = opendir(path);
	if (!directory && is_lack(-errno))
		flights->count = ZKF_FLIGHTS_MAX + 1;
	while (directory && flights->count <= ZKF_FLIGHTS_MAX && (entry = readdir(directory)) != NULL) {
		ssize_t bytes = readlinkat(dirfd(directory), entry->d_name, link, sizeof(link) - 1);

		if (bytes < 8 || strncmp(link, "socket:[", 8) != 0 || strtol(entry->d_name, NULL, 10) == but)
			continue;
		link[bytes] = 0;
		snprintf(path, sizeof(path), "/proc/%.20s/fdinfo/%.20s", pid, entry->d_name);
		if (!says_some(path, "scm_fds:"))
			continue;
		if (flights->count < ZKF_FLIGHTS_MAX)
			flights->sockets[flights->count] = strtoull(link + 8, NULL, 10);
		flights->count++;
	}
	if (directory)
		closedir(directory);
}

/* Which sockets have descriptors on their way from one process to another? */
static void flights_find(struct zkf_flights *flights)
{
	DIR *directory = opendir("/proc");
	struct dirent *entry;

	flights->count = directory ? 0 : ZKF_FLIGHTS_MAX + 1;
	while (directory && flights->count <= ZKF_FLIGHTS_MAX && (entry = readdir(directory)) != NULL) {
		int before = flights->count;

		if (!isdigit((unsigned char)entry->d_name[0]))
			continue;
		/* To us too: with a request that we have not read. */
		if (strtol(entry->d_name, NULL, 10) == getpid()) {
			flights_add(entry->d_name, zkf_store_socket(), flights);
			continue;
		}
		flights_add(entry->d_name, -1, flights);
		if (flights->count > before && is_keeper(entry->d_name))
			flights->count = before;
	}
	if (directory)
		closedir(directory);
}

static bool is_in(uint64_t socket, const struct zkf_flights *flights)
{
	for (int i = 0; i < flights->count && i < ZKF_FLIGHTS_MAX; i++)
		if (flights->sockets[i] == socket)
			return true;
	return flights->count > ZKF_FLIGHTS_MAX;
}

/* May it have been in one and the same queue since it was seen last? */
static bool in_flight(struct zkf_description *description, bool first)
{
	struct zkf_flights now = {0}, *in = &description->in;
	int left = 0;

	flights_find(&now);
	if (first) {
		*in = now;
		return now.count > 0;
	}
	if (in->count > ZKF_FLIGHTS_MAX)
		return now.count > 0;
	for (int i = 0; i < in->count; i++)
		if (is_in(in->sockets[i], &now))
			in->sockets[left++] = in->sockets[i];
	in->count = left;
	return left > 0;
}

static bool any_in_flight(void)
{
	struct zkf_flights now;

	flights_find(&now);
	return now.count > 0;
}

/* --- is it open? --- */

static bool maps_inode(const char *pid, uint64_t wanted)
{
	char path[64];
	struct zkf_lines lines;
	const char *line;
	bool found = false;

	zkf_guard_progress();
	snprintf(path, sizeof(path), "/proc/%.20s/maps", pid);
	zkf_lines_open(&lines, open(path, O_RDONLY | O_CLOEXEC));
	while (!found && (line = zkf_lines_next(&lines)) != NULL) {
		uint64_t ino;

		found = sscanf(line, "%*s %*s %*s %*s %" SCNu64, &ino) == 1 && ino == wanted;
	}
	return is_lack(zkf_lines_close(&lines)) || found;
}

static bool anybody_maps(uint64_t ino)
{
	DIR *directory = opendir("/proc");
	struct dirent *entry;
	bool found = !directory;

	while (directory && !found && (entry = readdir(directory)) != NULL)
		found = isdigit((unsigned char)entry->d_name[0]) && maps_inode(entry->d_name, ino);
	if (directory)
		closedir(directory);
	return found;
}

/* Where processes are hidden from us the kernel may tell by a lease, which it gives to who alone has the inode open. */
static bool nobody_by_lease(const struct zkf_file *file)
{
	if (fcntl(file->fd, F_SETLEASE, F_WRLCK))
		return false;
	fcntl(file->fd, F_SETLEASE, F_UNLCK);
	return true;
}

/* LOST: as long as anybody has the inode open, or might have.  If it can only be one description it is found again. */
static bool inode_is_open(struct zkf_description *lost, const struct zkf_file *file, zkf_description_other *other)
{
	struct unknown unknown = {.lost = lost, .file = file, .other = other};
	bool hidden =
		zkf_descriptors_each(file, 0, is_known, &unknown) || anybody_maps(file->key.ino) || any_in_flight();

	if (hidden || unknown.more)
		return unknown.pid || !nobody_by_lease(file);
	if (!unknown.pid)
		return false;
	lost->pid = unknown.pid;
	lost->number = unknown.number;
	lost->start = zkf_process_start(unknown.pid);
	lost->fd = duplicate(unknown.pid, unknown.number);
	lost->lost = lost->fd >= 0 && !zkf_description_shown_as(lost->fd, unknown.pid, unknown.number);
	if (lost->lost) { /* it has gone on meanwhile */
		close(lost->fd);
		lost->fd = -1;
	}
	return true;
}

void zkf_description_find_again(struct zkf_description *description, const struct zkf_file *file,
                                zkf_description_other *other)
{
	if (description->lost)
		inode_is_open(description, file, other);
}

static void drain(void)
{
	char buffer[4096];

	while (read(inotify, buffer, sizeof(buffer)) > 0)
		continue;
}

static bool reported(int watch)
{
	char buffer[4096] __attribute__((aligned(8)));
	const struct inotify_event *event;
	bool found = false;
	ssize_t bytes;

	while ((bytes = read(inotify, buffer, sizeof(buffer))) > 0)
		for (const char *at = buffer; at < buffer + bytes; at += sizeof(*event) + event->len) {
			event = (const struct inotify_event *)(const void *)at;
			found |= event->wd == watch && (event->mask & IN_CLOSE);
		}
	return found;
}

/*
 * Is our duplicate the last reference?  False also if that can't be tried.  A close of the same inode by somebody else in
 * the same few microseconds would be taken for ours; it is tried only when nobody shows the description.
 */
static bool is_last(struct zkf_description *description)
{
	char link[40];
	int watch;
	bool last;

	if (inotify < 0)
		inotify = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	snprintf(link, sizeof(link), "/proc/self/fd/%d", description->fd);
	watch = inotify < 0 ? -1 : inotify_add_watch(inotify, link, IN_CLOSE);
	if (watch < 0)
		return false;
	if (description->id && zkf_store_drop(description->id)) {
		inotify_rm_watch(inotify, watch);
		return false;
	}
	description->id = 0;
	drain();
	close(description->fd);
	last = reported(watch);
	inotify_rm_watch(inotify, watch);
	description->fd = -1;
	description->lost = !last;
	description->lost_ns = zkf_now_ns();
	return last;
}

static enum zkf_life hidden_life(struct zkf_description *description, const struct zkf_file *file,
                                 zkf_description_other *other, int64_t now)
{
	bool first = !description->hidden_since_ns;

	if (first)
		description->hidden_since_ns = now;
	if (description->fd < 0 && !description->lost) {
		description->lost = true; /* the only one by which it was known does not show it any more */
		zkf_log(ZKF_LOG_WARN,
		        "refused path=%s pid=%d why=\"kept until nobody has the file open: its description can't be "
		        "told from others\"",
		        file->path, description->pid);
	}
	if (description->lost)
		return inode_is_open(description, file, other) ? ZKF_LIVES : ZKF_GONE;
	if (now - description->hidden_since_ns < IN_FLIGHT_NS && in_flight(description, first))
		return now - description->hidden_since_ns < DOUBT_NS ? ZKF_LIFE_DOUBT : ZKF_LIVES;
	if (is_last(description))
		return ZKF_GONE;
	if (description->lost)
		zkf_log(ZKF_LOG_WARN,
		        "refused path=%s pid=%d why=\"kept until nobody has the file open: it is held out of sight\"",
		        file->path, description->pid);
	return ZKF_LIVES;
}

enum zkf_life zkf_description_life(struct zkf_description *description, const struct zkf_file *file,
                                   zkf_description_other *other, bool *moved)
{
	struct sought sought = {.description = description, .file = file};
	int64_t now = zkf_now_ns();
	enum zkf_life life;

	*moved = false;
	if (!description->lost && zkf_description_at(description, file, description->pid, description->number) == 1) {
		description->hidden_since_ns = 0;
		return ZKF_LIVES;
	}
	if (now < description->scan_due_ns)
		return description->lost ? ZKF_LIVES : ZKF_LIFE_DOUBT;
	if (!description->lost)
		zkf_descriptors_each(file, 0, is_sought, &sought);
	if (sought.found) {
		description->hidden_since_ns = 0;
		*moved = true;
		return ZKF_LIVES;
	}
	life = sought.doubt ? ZKF_LIVES : hidden_life(description, file, other, now);
	description->scan_due_ns = zkf_now_ns() + SCAN_EVERY_NS + 10 * (zkf_now_ns() - now);
	return life;
}
