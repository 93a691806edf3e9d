/*
 * keeper/file.c - see file.h
 * SPDX-License-Identifier: Apache-2.0
 */
#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/resource.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "fault.h"
#include "holds.h"
#include "lines.h"
#include "log.h"
#include "page.h"
#include "publish.h"
#include "refused.h"
#include "state.h"
#include "users.h"

/* The loop's. */
static struct zkf_file *files;   /* by (dev, ino, kind) */
static struct zkf_file *watched; /* by inotify's number */
static struct zkf_source inotify_source = {.fd = -1};

struct zkf_file *zkf_file_list(void)
{
	return files;
}

/* Each costs a descriptor, and conversations need some, too. */
bool zkf_file_nearly_full(void)
{
	struct rlimit limit;
	unsigned most = ZKF_SLOT_COUNT / 2;

	if (!getrlimit(RLIMIT_NOFILE, &limit) && limit.rlim_cur / 4 * 3 < most)
		most = (unsigned)(limit.rlim_cur / 4 * 3);
	return HASH_COUNT(files) >= most;
}

struct zkf_file *zkf_file_find(uint64_t dev, uint64_t ino, uint32_t kind)
{
	struct zkf_file probe, *found;

	memset(&probe.key, 0, sizeof(probe.key));
	probe.key.dev = dev;
	probe.key.ino = ino;
	probe.key.kind = kind;
	HASH_FIND(hh, files, &probe.key, sizeof(probe.key), found);
	return found;
}

/*
 * An open file description of our own for the same inode.  For reading if possible: a descriptor for writing would make
 * execve of a script that locks itself fail with ETXTBSY.  The magic link works for unlinked files too.
 */
static int reopen(int passed_fd)
{
	static const int modes[] = {O_RDONLY, O_WRONLY, O_RDWR};
	char link[40];
	int fd = -1;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", passed_fd);
	for (unsigned i = 0; fd < 0 && i < sizeof(modes) / sizeof(modes[0]); i++)
		fd = open(link, modes[i] | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	return fd < 0 ? -errno : fd;
}

/* uthash reports that memory ran out by clearing hh.tbl (HASH_NONFATAL_OOM). */
static int enter(struct zkf_file *file)
{
	HASH_ADD(hh, files, key, sizeof(file->key), file);
	return file->hh.tbl ? 0 : -ENOMEM;
}

/* For a keeper that follows. */
static int note(const struct zkf_file *file)
{
	return zkf_state_file_add(&(struct zkf_state_file){file->key.dev, file->key.ino, (uint32_t)file->key.kind,
	                                                   file->lock->key.kind == ZKF_GROUP, file->lock->key.name,
	                                                   file->path});
}

static void note_all(void)
{
	for (const struct zkf_file *file = files; file; file = file->hh.next)
		note(file);
}

void zkf_file_note_again(void)
{
	zkf_state_files_restart(note_all, true);
}

int zkf_file_note(const struct zkf_file *file)
{
	int error;

	zkf_state_files_restart(note_all, false);
	error = note(file);
	if (error)
		zkf_log(ZKF_LOG_ERROR, "file note path=%s error=\"%s\" why=\"a keeper that follows would not find it\"",
		        file->path, strerror(-error));
	return error;
}

int zkf_file_open(struct zkf_file **made, struct zkf_lock *lock, int passed_fd, const struct stat *status,
                  const char *path, uint32_t kind)
{
	struct zkf_file *file = zkf_calloc(1, sizeof(*file));
	int error = -ENOMEM;

	if (!file)
		return -ENOMEM;
	file->key.dev = status->st_dev;
	file->key.ino = status->st_ino;
	file->key.kind = kind;
	file->lock = lock;
	file->watch = -1;
	file->slot = ZKF_NO_SLOT;
	file->served = true; /* before we came */
	file->path = zkf_memdup(path, strlen(path));
	file->fd = reopen(passed_fd);
	if (!file->path)
		goto failed;
	if (file->fd < 0) {
		error = file->fd;
		goto failed;
	}
	file->slot = zkf_publish_slot_take(file->key.dev, file->key.ino, kind);
	if (file->slot == ZKF_NO_SLOT) {
		error = -ENFILE;
		goto failed;
	}
	error = enter(file);
	if (error)
		goto failed;
	file->next = lock->files;
	lock->files = file;
	*made = file;
	return 0;
failed:
	zkf_publish_slot_give(file->slot);
	if (file->fd >= 0)
		close(file->fd);
	free(file->path);
	free(file);
	return error;
}

int zkf_file_know(struct zkf_lock *lock, uint64_t dev, uint64_t ino, uint32_t kind, const char *path)
{
	struct zkf_file *file;

	if (zkf_file_find(dev, ino, kind))
		return 0;
	file = zkf_calloc(1, sizeof(*file));
	if (!file)
		return -ENOMEM;
	file->key.dev = dev;
	file->key.ino = ino;
	file->key.kind = kind;
	file->lock = lock;
	file->fd = -1;
	file->watch = -1;
	file->slot = ZKF_NO_SLOT;
	file->path = zkf_memdup(path, strlen(path));
	return file->path ? enter(file) : -ENOMEM;
}

void zkf_file_free(struct zkf_file *file)
{
	struct zkf_file **at = &file->lock->files;

	while (*at != file)
		at = &(*at)->next;
	*at = file->next;
	zkf_holds_forget(file);
	zkf_refused_forget(file);
	HASH_DEL(files, file);
	zkf_file_watch(file, false);
	zkf_publish_slot_give(file->slot);
	zkf_users_file_drop(file->account);
	close(file->fd);
	zkf_ranges_free(&file->in_use);
	free(file->path);
	free(file);
}

/* NFS turns flock into a record lock, which wants a descriptor for writing: only there ask for one. */
static int reopen_for_writing(struct zkf_file *file)
{
	char link[40];
	int fd;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", file->fd);
	fd = open(link, O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	if (fd < 0)
		return -errno;
	close(file->fd);
	file->fd = fd;
	return 0;
}

static int look_at_flock(struct zkf_file *file, struct zkf_ranges *in_use)
{
	int refused = flock(file->fd, LOCK_EX | LOCK_NB) ? errno : 0;
	uint8_t mode = ZKF_NONE;

	if (refused == EBADF && !reopen_for_writing(file))
		refused = flock(file->fd, LOCK_EX | LOCK_NB) ? errno : 0;
	if (refused && refused != EWOULDBLOCK)
		return -refused;
	if (refused)
		mode = flock(file->fd, LOCK_SH | LOCK_NB) ? ZKF_EXCLUSIVE : ZKF_SHARED;
	flock(file->fd, LOCK_UN);
	return mode ? zkf_ranges_assign(in_use, 0, ZKF_RANGE_MAX, mode) : 0;
}

/* The kernel tells of one lock at a time: take it out of the question and ask for what is left on both sides. */
/* More than this, or nested deeper, is not told apart: "all, exclusive" is always safe, and the loop must go on. */
#define LOOK_RANGES_MAX 1024
#define LOOK_DEPTH_MAX 64

static int look_at_records(struct zkf_file *file, int64_t start, int64_t end, struct zkf_ranges *in_use, int depth)
{
	if (depth > LOOK_DEPTH_MAX)
		return -E2BIG;
	while (start <= end) {
		struct flock found = {.l_type = F_WRLCK,
		                      .l_whence = SEEK_SET,
		                      .l_start = start,
		                      .l_len = end == ZKF_RANGE_MAX ? 0 : end - start + 1};
		int64_t first, last;
		int error;

		if (fcntl(file->fd, F_OFD_GETLK, &found))
			return -errno;
		if (found.l_type == F_UNLCK)
			return 0;
		first = found.l_start;
		last = found.l_len ? found.l_start + found.l_len - 1 : ZKF_RANGE_MAX;
		error = zkf_ranges_raise(in_use, first, last, found.l_type == F_RDLCK ? ZKF_SHARED : ZKF_EXCLUSIVE);
		/* The shorter the recursion's side the better, but locks come in the order of taking: usually ascending. */
		if (!error && first > start)
			error = look_at_records(file, start, first - 1, in_use, depth + 1);
		if (!error && in_use->count > LOOK_RANGES_MAX)
			error = -E2BIG;
		if (error || last == ZKF_RANGE_MAX)
			return error;
		start = last + 1;
	}
	return 0;
}

/* The kernel does not answer us, but has served some program: what its processes show. */
static int look_at_processes(struct zkf_file *file, struct zkf_ranges *in_use)
{
	struct zkf_holders all = {0};
	bool served = false;
	int error = zkf_holders_all(file, &all) == -ENOMEM ? -ENOMEM : 0;

	for (size_t i = 0; i < all.count && !error; i++)
		if (!all.items[i].noted) {
			served = true;
			error = zkf_ranges_raise(in_use, all.items[i].start, all.items[i].end, all.items[i].mode);
		}
	zkf_holders_free(&all);
	if (!error)
		file->served = served;
	return error;
}

int zkf_file_look_kernel(struct zkf_file *file, struct zkf_ranges *in_use)
{
	int error;

	if (file->key.kind == ZKF_FLOCK)
		error = look_at_flock(file, in_use);
	else
		error = look_at_records(file, 0, ZKF_RANGE_MAX, in_use, 0);
	if (!zkf_refused_errno(error))
		return error;
	zkf_refused_begin(file);
	return file->served ? look_at_processes(file, in_use) : 0;
}

int zkf_file_look(struct zkf_file *file, struct zkf_ranges *in_use)
{
	int error;

	zkf_ranges_clear(in_use);
	file->guessed = false;
	error = zkf_file_look_kernel(file, in_use);
	if (!error)
		error = zkf_refused_look(file, in_use);
	if (!error)
		return 0;
	if (error != -E2BIG)
		zkf_log(ZKF_LOG_WARN, "file look path=%s error=%d", file->path, -error);
	zkf_ranges_clear(in_use);
	zkf_ranges_assign(in_use, 0, ZKF_RANGE_MAX, ZKF_EXCLUSIVE);
	file->guessed = true;
	return error == -E2BIG ? 0 : error;
}

/* type NULL: records of both owners.  One "lock:" line of fdinfo: "lock:\t1: FLOCK  ADVISORY  WRITE 4711 fe:01:1234 0 EOF". */
static int add_lock_line(const char *line, const char *type, struct zkf_ranges *held)
{
	char found_type[16], mode[16], end[24];
	int64_t start;

	if (sscanf(line, "lock: %*d: %15s %*s %15s %*s %*s %" SCNd64 " %23s", found_type, mode, &start, end) != 4)
		return 0;
	if (type ? strcmp(type, found_type) != 0 : strcmp(found_type, "OFDLCK") && strcmp(found_type, "POSIX"))
		return 0;
	return zkf_ranges_raise(held, start, strcmp(end, "EOF") ? strtoll(end, NULL, 10) : ZKF_RANGE_MAX,
	                        strcmp(mode, "WRITE") ? ZKF_SHARED : ZKF_EXCLUSIVE);
}

static int read_fdinfo(const char *path, const char *type, struct zkf_ranges *held)
{
	struct zkf_lines lines;
	const char *line;
	int error = zkf_lines_open(&lines, open(path, O_RDONLY | O_CLOEXEC));

	while (!error && (line = zkf_lines_next(&lines)) != NULL)
		if (!strncmp(line, "lock:", 5))
			error = add_lock_line(line, type, held);
	zkf_lines_close(&lines);
	return error;
}

int zkf_file_held_through(int fd, const char *type, struct zkf_ranges *held)
{
	char path[48];

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
	return read_fdinfo(path, type, held);
}

int zkf_file_identity(int directory_fd, const char *name, uint64_t *dev, uint64_t *ino)
{
	struct statx status;

	if (statx(directory_fd, name, AT_STATX_DONT_SYNC, STATX_INO, &status))
		return -errno;
	*dev = makedev(status.stx_dev_major, status.stx_dev_minor);
	*ino = status.stx_ino;
	return 0;
}

int zkf_file_held_by(const struct zkf_file *file, int32_t pid, bool posix_only, struct zkf_ranges *held)
{
	const char *type = posix_only ? "POSIX" : file->key.kind == ZKF_FLOCK ? "FLOCK" : NULL;
	struct zkf_entries fds;
	const char *name;
	char path[64];
	int error;

	snprintf(path, sizeof(path), "/proc/%d/fd", pid);
	error = zkf_entries_open(&fds, path);
	while (!error && (name = zkf_entries_next(&fds)) != NULL) {
		uint64_t dev = 0, ino = 0;

		if (zkf_file_identity(fds.fd, name, &dev, &ino) || dev != file->key.dev || ino != file->key.ino)
			continue;
		snprintf(path, sizeof(path), "/proc/%d/fdinfo/%.20s", pid, name);
		error = read_fdinfo(path, type, held);
		if (error == -ENOENT)
			error = 0; /* closed meanwhile */
	}
	zkf_entries_close(&fds);
	return error ? error : zkf_refused_held_by(file, pid, posix_only, held);
}

/* More than this many are not told one by one: the claim's own ranges have to do. */
#define HELD_TEXT_MAX 64
#define HELD_TEXT_BYTES 2048

static int held_by_kernel_text(const struct zkf_file *file, const struct zkf_ranges *of, char **text)
{
	static int depth; /* of calls of itself: locks that were taken from the end to the start nest */
	int count = 0;

	for (size_t i = 0; i < of->count; i++) {
		int64_t start = of->items[i].start, end = of->items[i].end;

		while (start <= end && count++ < HELD_TEXT_MAX) {
			struct flock found = {.l_type = F_WRLCK,
			                      .l_whence = SEEK_SET,
			                      .l_start = start,
			                      .l_len = end == ZKF_RANGE_MAX ? 0 : end - start + 1};
			struct zkf_range range;

			if (fcntl(file->fd, F_OFD_GETLK, &found) || found.l_type == F_UNLCK)
				break;
			range.start = found.l_start;
			range.end = found.l_len ? found.l_start + found.l_len - 1 : ZKF_RANGE_MAX;
			range.mode = found.l_type == F_RDLCK ? ZKF_SHARED : ZKF_EXCLUSIVE;
			/* The kernel tells of them in no order: what lies before this one is asked for again. */
			if (range.start > start && depth < LOOK_DEPTH_MAX &&
			    (!*text || strlen(*text) < HELD_TEXT_BYTES)) {
				struct zkf_range before = {start, range.start - 1, ZKF_EXCLUSIVE};
				struct zkf_ranges part = {.items = &before, .count = 1};
				int error;

				depth++;
				error = held_by_kernel_text(file, &part, text);
				depth--;
				if (error)
					return error;
			}
			if (zkf_held_add(text, found.l_pid > 0 ? found.l_pid : 0, &range))
				return -ENOMEM;
			if (range.end == ZKF_RANGE_MAX)
				break;
			start = range.end + 1;
		}
	}
	return 0;
}

int zkf_file_held_text(const struct zkf_file *file, const struct zkf_ranges *of, char **text)
{
	int error = held_by_kernel_text(file, of, text);

	return error ? error : zkf_refused_held_text(file, of, text);
}

static int kernel_holders(const struct zkf_file *file, int64_t start, int64_t end, uint8_t mode, int32_t *pids,
                          int most)
{
	int count = 0;

	/* One piece after the other; what lies under another's lock is found when that one is gone. */
	while (count < most && start <= end) {
		struct flock found = {.l_type = mode == ZKF_EXCLUSIVE ? F_WRLCK : F_RDLCK,
		                      .l_whence = SEEK_SET,
		                      .l_start = start,
		                      .l_len = end == ZKF_RANGE_MAX ? 0 : end - start + 1};
		bool known = false;

		if (fcntl(file->fd, F_OFD_GETLK, &found) || found.l_type == F_UNLCK)
			break;
		for (int i = 0; i < count; i++)
			known |= pids[i] == found.l_pid;
		if (!known && found.l_pid > 0)
			pids[count++] = found.l_pid;
		/* Ranges before this one are left to the next probe if they are many. */
		if (found.l_start > start && most > 1)
			count += kernel_holders(file, start, found.l_start - 1, mode, pids + count,
			                        most - count < most / 2 ? most - count : most / 2);
		if (!found.l_len)
			break;
		start = found.l_start + found.l_len;
	}
	return count;
}

int zkf_file_holders(const struct zkf_file *file, int64_t start, int64_t end, uint8_t mode, int32_t *pids, int most)
{
	int count = kernel_holders(file, start, end, mode, pids, most);

	return count + zkf_refused_holders(file, start, end, mode, pids + count, most - count);
}

static int32_t kernel_holder(const struct zkf_file *file)
{
	struct flock found = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	const char *const type = "FLOCK";
	char line[256], found_type[16], device_inode[64];
	struct stat status;
	FILE *in;
	int32_t holder = 0;
	int pid;

	if (file->key.kind == ZKF_RECORD)
		return fcntl(file->fd, F_OFD_GETLK, &found) || found.l_type == F_UNLCK ? 0 : found.l_pid;
	/* For people only: it names the taker, which may be gone while the lock lives on. */
	in = fopen("/proc/locks", "re");
	while (in && !holder && fgets(line, sizeof(line), in)) {
		uint64_t inode;
		const char *colon;

		if (sscanf(line, "%*d: %15s %*s %*s %d %63s", found_type, &pid, device_inode) != 3 ||
		    strcmp(found_type, type))
			continue;
		colon = strrchr(device_inode, ':');
		inode = colon ? strtoull(colon + 1, NULL, 10) : 0;
		if (inode == file->key.ino && !fstat(file->fd, &status))
			holder = pid;
	}
	if (in)
		fclose(in);
	return holder;
}

int32_t zkf_file_holder(const struct zkf_file *file)
{
	int32_t holder = kernel_holder(file);

	return holder ? holder : zkf_refused_holder(file);
}

/* The other kind of the same inode, if it has the same watch. */
static struct zkf_file *shares_watch(const struct zkf_file *file, int watch)
{
	struct zkf_file *other =
		zkf_file_find(file->key.dev, file->key.ino, file->key.kind == ZKF_FLOCK ? ZKF_RECORD : ZKF_FLOCK);

	return other && other->watch == watch ? other : NULL;
}

/* When memory is out, nobody hears of the watch: the poll timer alone tells. */
static void watch_enter(struct zkf_file *file)
{
	HASH_ADD(by_watch, watched, watch, sizeof(file->watch), file);
	file->hashed_by_watch = file->by_watch.tbl != NULL;
}

void zkf_file_watch(struct zkf_file *file, bool on)
{
	char link[40];
	struct zkf_file *other;
	int watch = file->watch;

	if (on == (file->watch >= 0))
		return;
	if (on) {
		snprintf(link, sizeof(link), "/proc/self/fd/%d", file->fd);
		/* -1 (no watches left): the poll timer alone tells, later. */
		file->watch = inotify_add_watch(inotify_source.fd, link, IN_CLOSE);
		if (file->watch < 0)
			return;
		other = shares_watch(file, file->watch);
		if (!other || !other->hashed_by_watch)
			watch_enter(file);
		return;
	}
	other = shares_watch(file, watch);
	if (file->hashed_by_watch) {
		HASH_DELETE(by_watch, watched, file);
		file->hashed_by_watch = false;
		if (other)
			watch_enter(other);
	}
	file->watch = -1;
	if (!other)
		inotify_rm_watch(inotify_source.fd, watch);
}

static void watch_told(int watch)
{
	struct zkf_file *file, *other;

	HASH_FIND(by_watch, watched, &watch, sizeof(watch), file);
	other = file ? shares_watch(file, watch) : NULL;
	if (file)
		zkf_lock_hint(file->lock);
	if (other)
		zkf_lock_hint(other->lock);
}

static void inotify_ready(struct zkf_source *source, uint32_t events)
{
	char buffer[4096] __attribute__((aligned(8)));
	ssize_t bytes;

	(void)events;
	while ((bytes = read(source->fd, buffer, sizeof(buffer))) > 0) {
		const struct inotify_event *event;

		for (const char *at = buffer; at < buffer + bytes; at += sizeof(*event) + event->len) {
			event = (const struct inotify_event *)(const void *)at;
			if (!(event->mask & IN_Q_OVERFLOW)) {
				watch_told(event->wd);
				continue;
			}
			for (struct zkf_file *file = files; file; file = file->hh.next)
				if (file->watch >= 0)
					zkf_lock_hint(file->lock);
		}
	}
}

int zkf_file_init(void)
{
	inotify_source.fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	if (inotify_source.fd < 0)
		return -errno;
	inotify_source.ready = inotify_ready;
	return zkf_loop_add(&inotify_source, EPOLLIN);
}
