/*
 * keeper/state.c - see state.h
 * SPDX-License-Identifier: Apache-2.0
 */
#include "state.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../mapping/name.h"
#include "lines.h"
#include "log.h"

/* When this many records have been added, the file is written anew. */
#define FILES_RESTART 4096
/* In a record's kind. */
#define GROUP_BIT 2u

/* Written by zkf_state_init. */
static int directory = -1;

/* A file to which lines are added. */
static struct list {
	const char *name;
	int fd;
	size_t added; /* since it was begun anew */
	size_t kept;  /* with how many it was begun anew */
	bool failed;  /* a line could not be added since the list was begun anew */
} files = {.name = "files", .fd = -1}, promises = {.name = "promises", .fd = -1},
  refusals = {.name = "refused", .fd = -1};

void zkf_state_init(int directory_fd)
{
	directory = directory_fd;
}

/* A whole file at once, or the old one. */
static int replace(const char *name, const char *text, size_t bytes)
{
	char temporary[64];
	int fd, error = 0;

	snprintf(temporary, sizeof(temporary), "%s.new", name);
	fd = openat(directory, temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return -errno;
	if (write(fd, text, bytes) != (ssize_t)bytes)
		error = errno ? -errno : -EIO;
	close(fd);
	if (!error && renameat(directory, temporary, directory, name))
		error = -errno;
	return error;
}

static int open_to_read(struct zkf_lines *lines, const char *name)
{
	return zkf_lines_open(lines, openat(directory, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
}

int zkf_state_session_save(const struct zkf_state_session *session)
{
	char text[80 + ZKF_ADDRESSES_BYTES];
	int bytes;

	if (!session)
		return unlinkat(directory, "session", 0) ? -errno : 0;
	bytes = snprintf(text, sizeof(text), "%016" PRIx64 " ", (uint64_t)session->id);
	for (int i = 0; i < 16; i++)
		bytes += snprintf(text + bytes, sizeof(text) - (size_t)bytes, "%02x",
		                  (unsigned char)session->password[i]);
	bytes += snprintf(text + bytes, sizeof(text) - (size_t)bytes, " %s\n", session->addresses);
	return replace("session", text, (size_t)bytes);
}

int zkf_state_session_load(struct zkf_state_session *session)
{
	struct zkf_lines lines;
	uint64_t number = 0;
	char digits[33] = "";
	const char *line;
	int n = 0, error;

	_Static_assert(ZKF_ADDRESSES_BYTES == 2048, "the format below");
	memset(session, 0, sizeof(*session));
	error = open_to_read(&lines, "session");
	line = zkf_lines_next(&lines);
	if (line)
		n = sscanf(line, "%16" SCNx64 " %32[0-9a-f] %2047s", &number, digits, session->addresses);
	zkf_lines_close(&lines);
	if (error && error != -ENOENT)
		return error;
	if (n < 2 || !number || strlen(digits) != 32)
		return -ENOENT;
	for (int i = 0; i < 16; i++) {
		unsigned byte;

		if (sscanf(digits + 2 * i, "%2x", &byte) != 1)
			return -ENOENT;
		session->password[i] = (char)byte;
	}
	session->id = (int64_t)number;
	return 0;
}

static int append(struct list *list, const char *line, size_t bytes)
{
	struct stat status;
	ssize_t written;
	int error;

	if (list->fd < 0)
		list->fd = openat(directory, list->name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (list->fd < 0) {
		list->failed = true;
		return -errno;
	}
	written = write(list->fd, line, bytes);
	if (written == (ssize_t)bytes) {
		list->added++;
		return 0;
	}
	error = written < 0 ? -errno : -ENOSPC;
	list->failed = true;
	/* A part of a line would spoil the next one as well. */
	if (written > 0 && (fstat(list->fd, &status) || ftruncate(list->fd, status.st_size - written)))
		zkf_log(ZKF_LOG_ERROR, "state file=%s error=\"%s\"", list->name, strerror(errno));
	return error;
}

/* The path may hold any byte: it is hexadecimal. */
int zkf_state_file_add(const struct zkf_state_file *file)
{
	char line[2 * PATH_MAX + 256];
	size_t path_bytes = strlen(file->path);
	int used;

	used = snprintf(line, sizeof(line), "%u %" PRIu64 " %" PRIu64 " %s ",
	                file->kind | (file->group ? GROUP_BIT : 0), file->dev, file->ino, file->lock);
	for (size_t i = 0; i < path_bytes && used < (int)sizeof(line) - 4; i++)
		used += snprintf(line + used, sizeof(line) - (size_t)used, "%02x", (unsigned char)file->path[i]);
	line[used++] = '\n';
	return append(&files, line, (size_t)used);
}

static int each_line(char *line, void (*each)(const struct zkf_state_file *file))
{
	char lock[ZKF_NAME_BYTES_MAX + 1], path[PATH_MAX + 1];
	struct zkf_state_file file;
	size_t bytes = 0;
	int at;

	if (sscanf(line, "%u %" SCNu64 " %" SCNu64 " %120s %n", &file.kind, &file.dev, &file.ino, lock, &at) != 4)
		return -EINVAL;
	for (unsigned byte; bytes < PATH_MAX && sscanf(line + at, "%2x", &byte) == 1; at += 2)
		path[bytes++] = (char)byte;
	path[bytes] = 0;
	file.group = file.kind & GROUP_BIT;
	file.kind &= ~GROUP_BIT;
	file.lock = lock;
	file.path = path;
	each(&file);
	return 0;
}

int zkf_state_files_each(void (*each)(const struct zkf_state_file *file))
{
	struct zkf_lines lines;
	char *line;
	int error;

	open_to_read(&lines, files.name); /* zkf_lines_close tells of its error, too */

	/* A record that was cut off by a crash has no newline. */
	while ((line = zkf_lines_next(&lines)) != NULL)
		if (!lines.whole || each_line(line, each))
			zkf_log(ZKF_LOG_WARN, "state ignored a damaged record of \"files\"");
	error = zkf_lines_close(&lines);
	return error == -ENOENT ? 0 : error;
}

int zkf_state_promise_add(const struct zkf_state_promise *promise)
{
	char line[256];
	int bytes =
		snprintf(line, sizeof(line),
	                 "%u %" PRIu64 " %" PRIu64 " %d %" PRIu64 " %d %" PRIu64 " %d %u %d %" PRId64 " %" PRId64 "\n",
	                 promise->kind, promise->dev, promise->ino, promise->thread.pid, promise->thread.process_start,
	                 promise->thread.task, promise->thread.thread_start, promise->fd, promise->mode, promise->posix,
	                 promise->start, promise->end);

	return append(&promises, line, (size_t)bytes);
}

int zkf_state_promises_each(void (*each)(const struct zkf_state_promise *promise))
{
	struct zkf_lines lines;
	const char *line;
	int error;

	open_to_read(&lines, promises.name);
	while ((line = zkf_lines_next(&lines)) != NULL) {
		struct zkf_state_promise promise;
		unsigned mode;
		int posix;

		memset(&promise, 0, sizeof(promise));
		if (lines.whole &&
		    sscanf(line,
		           "%u %" SCNu64 " %" SCNu64 " %d %" SCNu64 " %d %" SCNu64 " %d %u %d %" SCNd64 " %" SCNd64,
		           &promise.kind, &promise.dev, &promise.ino, &promise.thread.pid,
		           &promise.thread.process_start, &promise.thread.task, &promise.thread.thread_start,
		           &promise.fd, &mode, &posix, &promise.start, &promise.end) == 12) {
			promise.mode = (uint8_t)mode;
			promise.posix = posix;
			each(&promise);
		}
	}
	error = zkf_lines_close(&lines);
	return error == -ENOENT ? 0 : error;
}

int zkf_state_refused_add(const struct zkf_state_refused *refused)
{
	char line[256];
	int bytes = snprintf(line, sizeof(line),
	                     "%u %" PRIu64 " %" PRIu64 " %" PRIu64 " %d %d %" PRIu64 " %d %u %" PRId64 " %" PRId64 "\n",
	                     refused->kind, refused->dev, refused->ino, refused->id, refused->posix, refused->pid,
	                     refused->process_start, refused->number, refused->mode, refused->start, refused->end);

	return append(&refusals, line, (size_t)bytes);
}

int zkf_state_refused_each(void (*each)(const struct zkf_state_refused *refused))
{
	struct zkf_lines lines;
	const char *line;
	int error;

	open_to_read(&lines, refusals.name);
	while ((line = zkf_lines_next(&lines)) != NULL) {
		struct zkf_state_refused refused = {0};
		unsigned mode;
		int posix;

		if (!lines.whole ||
		    sscanf(line, "%u %" SCNu64 " %" SCNu64 " %" SCNu64 " %d %d %" SCNu64 " %d %u %" SCNd64 " %" SCNd64,
		           &refused.kind, &refused.dev, &refused.ino, &refused.id, &posix, &refused.pid,
		           &refused.process_start, &refused.number, &mode, &refused.start, &refused.end) != 11)
			continue;
		refused.mode = (uint8_t)mode;
		refused.posix = posix;
		each(&refused);
	}
	error = zkf_lines_close(&lines);
	return error == -ENOENT ? 0 : error;
}

/*
 * Begins a list anew.  Under another name first: a crash in between must find the old one whole, and so must whoever comes
 * after a disk was too full for the new one.
 */
static void restart(struct list *list, void (*add_all)(void))
{
	char fresh[32];

	snprintf(fresh, sizeof(fresh), "%s.new", list->name);
	if (list->fd >= 0)
		close(list->fd);
	list->fd = openat(directory, fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	list->added = 0;
	list->failed = false;
	if (list->fd >= 0)
		add_all();
	list->kept = list->added;
	list->added = 0;
	if (list->fd >= 0 && !list->failed && !renameat(directory, fresh, directory, list->name))
		return;
	zkf_log(ZKF_LOG_WARN, "state file=%s error=\"can't be written anew: %s\"", list->name, strerror(errno));
	if (list->fd >= 0)
		close(list->fd);
	list->fd = -1; /* the next record opens the old one */
	unlinkat(directory, fresh, 0);
}

/* Not before as many have been added as there were: a table of any size is written anew once for each of its records. */
static bool grown(const struct list *list)
{
	return list->added >= FILES_RESTART && list->added >= list->kept;
}

void zkf_state_files_restart(void (*add_all)(void), bool now)
{
	if (grown(&files) || now)
		restart(&files, add_all);
}

void zkf_state_promises_restart(void (*add_all)(void), bool now)
{
	if (grown(&promises) || now)
		restart(&promises, add_all);
}

void zkf_state_forget_processes(void)
{
	unlinkat(directory, promises.name, 0);
	unlinkat(directory, "stopped", 0);
	unlinkat(directory, refusals.name, 0);
}

void zkf_state_refused_restart(void (*add_all)(void), bool now)
{
	if (refusals.added >= FILES_RESTART || now)
		restart(&refusals, add_all);
}

int zkf_state_stopped_save(const struct zkf_state_process *processes, size_t count)
{
	static char text[ZKF_STATE_STOPPED_MAX * 40]; /* not from the heap: it is needed when all else goes wrong */
	size_t used = 0;

	if (!count)
		return unlinkat(directory, "stopped", 0) && errno != ENOENT ? -errno : 0;
	for (size_t i = 0; i < count && i < ZKF_STATE_STOPPED_MAX; i++)
		used += (size_t)snprintf(text + used, sizeof(text) - used, "%d %" PRIu64 "\n", processes[i].pid,
		                         processes[i].start);
	return replace("stopped", text, used);
}

size_t zkf_state_stopped_load(struct zkf_state_process *processes, size_t most)
{
	struct zkf_lines lines;
	const char *line;
	size_t count = 0;

	open_to_read(&lines, "stopped");
	while (count < most && (line = zkf_lines_next(&lines)) != NULL)
		if (sscanf(line, "%" SCNd32 " %" SCNu64, &processes[count].pid, &processes[count].start) == 2)
			count++;
	zkf_lines_close(&lines);
	return count;
}
