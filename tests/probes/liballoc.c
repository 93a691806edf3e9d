/*
 * tests/probes/liballoc.c - an allocator that reads its settings with open, fcntl and close in its first call
 *
 * As some do.  If a preloaded fcntl allocates, or looks itself up by something that allocates, this never ends.
 * Preloaded before or after libzkflock.so; also linked into a program of its own, allocator.c.
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#define ARENA_BYTES (64u << 20)

static _Alignas(16) char arena[ARENA_BYTES];
static size_t used;
static bool started;

static void read_settings(void)
{
	struct flock range = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
	int fd;

	started = true;
	fd = open("/etc/passwd", O_RDONLY);
	if (fd < 0)
		return;
	fcntl(fd, F_GETFD);
	fcntl(fd, F_SETLK, &range);
	flock(fd, LOCK_SH);
	close(fd);
}

void *malloc(size_t bytes)
{
	size_t at;

	if (!started)
		read_settings();
	/* The size is kept before the block, for realloc. */
	at = __atomic_fetch_add(&used, ((bytes + 15) & ~(size_t)15) + 16, __ATOMIC_RELAXED) + 16;
	if (at + bytes > ARENA_BYTES)
		return NULL;
	memcpy(arena + at - sizeof(bytes), &bytes, sizeof(bytes));
	return arena + at;
}

void *calloc(size_t count, size_t bytes)
{
	return malloc(count * bytes);
}

void *realloc(void *old, size_t bytes)
{
	size_t old_bytes = 0;
	void *new = malloc(bytes);

	if (old)
		memcpy(&old_bytes, (char *)old - sizeof(old_bytes), sizeof(old_bytes));
	if (new &&old)
		memcpy(new, old, old_bytes < bytes ? old_bytes : bytes);
	return new;
}

void free(void *block)
{
	(void)block;
}
