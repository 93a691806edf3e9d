/*
 * preload/page.c - the keeper's shared page, seen from a program; see page.h
 *
 * Answers for: see page.h.
 * Does not:    see page.h.
 * Threads:     see page.h.
 * Specification: see page.h.
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include "page.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "real.h"
#include "runtime.h"

/* Written by whoever has mapped another page, release; read by all, acquire. */
static _Atomic(const struct zkf_page *) current;

const struct zkf_page *zkf_page_current(void)
{
	return atomic_load_explicit(&current, memory_order_acquire);
}

static int map_file(int fd, const struct zkf_page **out)
{
	struct stat64 st;
	void *memory;

	if (fstat64(fd, &st))
		return -errno;
	if (st.st_uid != 0 && st.st_uid != geteuid())
		return -EPERM;
	/* A shorter file would be SIGBUS. */
	if (!S_ISREG(st.st_mode) || st.st_size < (off64_t)sizeof(struct zkf_page))
		return -EINVAL;
	memory = mmap(NULL, sizeof(struct zkf_page), PROT_READ, MAP_SHARED, fd, 0);
	if (memory == MAP_FAILED)
		return -errno;
	*out = memory;
	return 0;
}

static void unmap(const struct zkf_page *page)
{
	munmap((void *)(uintptr_t)page, sizeof(*page));
}

/* What a machine's former run has left would be believed until its deadline, on a clock that has begun again. */
static bool of_this_boot(const struct zkf_page *page)
{
	char now[ZKF_BOOT_ID_BYTES];
	int fd = zkf_real_open(ZKF_BOOT_ID_FILE, O_RDONLY);
	ssize_t bytes;

	if (fd < 0)
		return false;
	bytes = zkf_real_read(fd, now, sizeof(now));
	zkf_real_close(fd);
	return bytes == (ssize_t)sizeof(now) && !memcmp(page->header.boot_id, now, sizeof(now));
}

static int check(const struct zkf_page *page, enum zkf_page_want want)
{
	/* mmap(2) never gives NULL unless asked to.  NOLINTNEXTLINE(clang-analyzer-core.NullDereference) */
	if (page->header.magic != ZKF_PAGE_MAGIC || page->header.version != ZKF_PAGE_VERSION)
		return page->header.page_id ? -EINVAL : -ENOENT;
	if (!page->header.page_id || (want == ZKF_PAGE_LEASED && !zkf_page_leased(page)))
		return -ENOENT;
	return want == ZKF_PAGE_ANSWERED || of_this_boot(page) ? 0 : -ENOENT;
}

static void publish(const struct zkf_page *page)
{
	const struct zkf_page *old = zkf_page_current();

	do {
		if (old && old->header.page_id == page->header.page_id) {
			unmap(page);
			return;
		}
	} while (!atomic_compare_exchange_weak(&current, &old, page));
}

int zkf_page_map(const char *directory, enum zkf_page_want want)
{
	char path[ZKF_DIRECTORY_BYTES + sizeof("/page")];
	const struct zkf_page *page = NULL;
	int result, fd;

	strcpy(stpcpy(path, directory), "/page");
	fd = zkf_real_open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0)
		return fd;
	result = map_file(fd, &page);
	zkf_real_close(fd);
	if (result)
		return result;
	result = check(page, want);
	if (result)
		unmap(page);
	else
		publish(page);
	return result;
}

const struct zkf_slot *zkf_page_find(const struct zkf_page *page, uint64_t dev, uint64_t ino, uint32_t kind,
                                     uint64_t *state)
{
	uint32_t first = zkf_slot_hash(dev, ino, kind), i;

	for (i = 0; i < ZKF_SLOT_PROBES; i++) {
		const struct zkf_slot *slot = &page->slots[(first + i) & (ZKF_SLOT_COUNT - 1)];
		uint64_t slot_ino;

		*state = atomic_load(&slot->state);
		slot_ino = atomic_load(&slot->ino);
		if (!slot_ino)
			return NULL;
		if (slot_ino == ino && atomic_load(&slot->dev) == dev && atomic_load(&slot->kind) == kind)
			return slot;
	}
	return NULL;
}

bool zkf_page_leased(const struct zkf_page *page)
{
	return zkf_real_now_ns() < atomic_load(&page->header.lease_deadline_ns);
}

bool zkf_page_covers(struct zkf_sight *sight, uint64_t dev, uint64_t ino, uint32_t kind, unsigned mode)
{
	sight->page = zkf_page_current();
	sight->slot = sight->page ? zkf_page_find(sight->page, dev, ino, kind, &sight->state) : NULL;
	return sight->slot && ZKF_STATE_MODE(sight->state) >= mode && !(sight->state & ZKF_STATE_RECALLED) &&
	       zkf_page_leased(sight->page);
}

bool zkf_page_unchanged(const struct zkf_sight *sight)
{
	atomic_thread_fence(memory_order_seq_cst);
	return atomic_load(&sight->slot->state) == sight->state;
}

bool zkf_page_knows(uint64_t dev, uint64_t ino, uint32_t kind)
{
	const struct zkf_page *page = zkf_page_current();
	uint64_t state;

	return page && zkf_page_find(page, dev, ino, kind, &state);
}
