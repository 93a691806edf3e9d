/*
 * mapping/files.c - the configuration's files in memory; see files.h
 *
 * Answers for: see files.h.
 * Must not:    use malloc, stdio, or libc's cancellation points: it is compiled into the preload library.
 * Threads:     see files.h.
 * Specification: see files.h; getdents(2).
 * SPDX-License-Identifier: Apache-2.0
 *
 * One mapping holds it all, reserved at its largest and cut to its size at the end:
 *
 *     struct zkf_files | paths and texts --> ...                     | names of the files to be read | a path |
 */
#include "files.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NAME_BYTES (NAME_MAX + 1)
#define NAMES_MAX (ZKF_FILES_MAX - 1)
/* Directories are read in pieces of this many bytes, on the stack; one entry always fits. */
#define ENTRIES_BYTES 2048
/* A package manager may take a file away while its directory is read. */
#define TRIES 5

struct loading {
	struct zkf_files *files;
	char *next, *end;          /* room for paths and texts */
	char (*names)[NAME_BYTES]; /* sorted */
	size_t name_count, text_bytes;
	int (*open_fd)(const char *path, int flags);
	char *path; /* of the file that is being read */
	const char *why;
};

struct entry { /* linux_dirent64 */
	uint64_t ino;
	int64_t offset;
	uint16_t bytes;
	uint8_t type;
	char name[];
};

static long raw(long result)
{
	return result < 0 ? -errno : result;
}

size_t zkf_files_bytes_max(void)
{
	size_t bytes = sizeof(struct zkf_files) + ZKF_FILES_TEXT_BYTES_MAX + 1 +
	               (size_t)ZKF_FILES_MAX * ZKF_FILES_PATH_BYTES + (size_t)NAMES_MAX * NAME_BYTES +
	               ZKF_FILES_PATH_BYTES;

	return (bytes + 65535) & ~(size_t)65535; /* of pages, whatever their size */
}

static bool is_wanted(const char *name)
{
	static const char suffix[] = ".conf";
	size_t len = strnlen(name, NAME_BYTES), suffix_len = sizeof(suffix) - 1;

	return name[0] != '.' && len < NAME_BYTES && len > suffix_len &&
	       memcmp(name + len - suffix_len, suffix, suffix_len) == 0;
}

static int name_add(struct loading *loading, const char *name)
{
	size_t at = loading->name_count;

	if (at == NAMES_MAX) {
		loading->why = "more than 64 files; join some";
		return -E2BIG;
	}
	while (at > 0 && strcmp(loading->names[at - 1], name) > 0) {
		memcpy(loading->names[at], loading->names[at - 1], NAME_BYTES);
		at--;
	}
	strcpy(loading->names[at], name);
	loading->name_count++;
	return 0;
}

static int names_read(struct loading *loading, int fd)
{
	char entries[ENTRIES_BYTES] __attribute__((aligned(8)));
	long bytes, at;
	int result;

	while ((bytes = raw(syscall(SYS_getdents64, fd, entries, sizeof(entries)))) > 0) {
		const struct entry *entry;

		for (at = 0; at < bytes; at += entry->bytes) {
			entry = (const struct entry *)(const void *)(entries + at);
			result = is_wanted(entry->name) ? name_add(loading, entry->name) : 0;
			if (result < 0)
				return result;
		}
	}
	return (int)bytes;
}

/* names_find - what is in the directory beside the main file, whose path is in loading->path */
static int names_find(struct loading *loading)
{
	int fd = loading->open_fd(loading->path, O_DIRECTORY), result;

	if (fd < 0)
		return fd == -ENOENT || fd == -ENOTDIR ? 0 : fd;
	result = names_read(loading, fd);
	syscall(SYS_close, fd);
	return result;
}

static int text_read(struct loading *loading, int fd, size_t *len)
{
	size_t room = ZKF_FILES_TEXT_BYTES_MAX + 1 - loading->text_bytes;

	if (room > (size_t)(loading->end - loading->next))
		room = (size_t)(loading->end - loading->next);
	*len = 0;
	while (*len < room) {
		long got = raw(syscall(SYS_read, fd, loading->next + *len, room - *len));

		if (got == -EINTR)
			continue;
		if (got <= 0)
			return (int)got;
		*len += (size_t)got;
	}
	loading->why = "more than 1 MiB of configuration";
	return -EFBIG;
}

/* file_read - the file whose path is in loading->path */
static int file_read(struct loading *loading)
{
	struct zkf_config_file *file = &loading->files->list[loading->files->count];
	size_t path_bytes = strlen(loading->path) + 1;
	int fd, result;

	if (path_bytes > (size_t)(loading->end - loading->next))
		return -ENAMETOOLONG;
	/* O_NONBLOCK: a FIFO must not be waited for. */
	fd = loading->open_fd(loading->path, O_NONBLOCK | O_NOCTTY);
	if (fd < 0)
		return fd;
	file->path = memcpy(loading->next, loading->path, path_bytes);
	loading->next += path_bytes;
	file->text = loading->next;
	result = text_read(loading, fd, &file->len);
	syscall(SYS_close, fd);
	if (result < 0)
		return result;
	loading->next += file->len;
	loading->text_bytes += file->len;
	loading->files->count++;
	return 0;
}

static int load(struct loading *loading, const char *main)
{
	char *path = loading->path;
	size_t len = strlen(main), i;
	int result;

	if (len >= PATH_MAX)
		return -ENAMETOOLONG;
	memcpy(path, main, len + 1);
	result = file_read(loading);
	if (result < 0)
		return result;
	strcpy(path + len, ".d");
	result = names_find(loading);
	if (result < 0)
		return result;
	strcpy(path + len, ".d/");
	for (i = 0; i < loading->name_count; i++) {
		strcpy(path + len + 3, loading->names[i]);
		result = file_read(loading);
		if (result < 0)
			return result == -ENOENT ? -EAGAIN : result;
	}
	return 0;
}

static int load_once(const char *main, int (*open_fd)(const char *path, int flags), struct zkf_files **files,
                     struct zkf_files_failure *failure)
{
	size_t bytes = zkf_files_bytes_max(), used;
	char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	struct loading loading = {.open_fd = open_fd};
	int result;

	if (failure)
		*failure = (struct zkf_files_failure){.why = NULL};
	if (memory == MAP_FAILED)
		return -ENOMEM;
	loading.files = (struct zkf_files *)(void *)memory;
	loading.next = memory + sizeof(struct zkf_files);
	loading.end = memory + bytes - (size_t)NAMES_MAX * NAME_BYTES - ZKF_FILES_PATH_BYTES;
	loading.names = (char(*)[NAME_BYTES])(void *)loading.end;
	loading.path = memory + bytes - ZKF_FILES_PATH_BYTES;
	result = load(&loading, main);
	if (result < 0) {
		if (failure) {
			memcpy(failure->path, loading.path, ZKF_FILES_PATH_BYTES);
			failure->why = loading.why;
		}
		munmap(memory, bytes);
		return result;
	}
	used = ((size_t)(loading.next - memory) + 65535) & ~(size_t)65535;
	if (used < bytes)
		munmap(memory + used, bytes - used);
	loading.files->map_bytes = used;
	*files = loading.files;
	return 0;
}

int zkf_files_load(const char *main, int (*open_fd)(const char *path, int flags), struct zkf_files **files,
                   struct zkf_files_failure *failure)
{
	int result, tries = 0;

	do
		result = load_once(main, open_fd, files, failure);
	while (result == -EAGAIN && ++tries < TRIES);
	return result == -EAGAIN ? -ENOENT : result;
}

void zkf_files_free(struct zkf_files *files)
{
	if (files)
		munmap(files, files->map_bytes);
}

bool zkf_files_same(const struct zkf_files *a, const struct zkf_files *b)
{
	size_t i;

	if (a->count != b->count)
		return false;
	for (i = 0; i < a->count; i++)
		if (a->list[i].len != b->list[i].len || strcmp(a->list[i].path, b->list[i].path) != 0 ||
		    memcmp(a->list[i].text, b->list[i].text, a->list[i].len) != 0)
			return false;
	return true;
}

void zkf_files_copy(struct zkf_files *to, const struct zkf_files *from)
{
	const char *base = (const char *)from;
	size_t i;

	memcpy(to, from, from->map_bytes);
	for (i = 0; i < from->count; i++) {
		to->list[i].path = (char *)to + (from->list[i].path - base);
		to->list[i].text = (char *)to + (from->list[i].text - base);
	}
}
