/*
 * keeper/publish.c - see publish.h
 * SPDX-License-Identifier: Apache-2.0
 */
#include "publish.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

/* Written by zkf_publish_init; the memory itself by the loop's thread alone. */
static struct zkf_page *page;

/* In `unused` of a slot: it belongs to a file.  Given back, its ino stays, so that searches go on behind it. */
#define TAKEN 1u

static int64_t inherited_ns;

static bool other_boot;

int64_t zkf_publish_inherited_ns(void)
{
	return inherited_ns;
}

/* A page without an id is of a keeper that knew none, and is taken for this run's: to lose what it says would be worse. */
static int page_date(void)
{
	char now[ZKF_BOOT_ID_BYTES];
	int fd = open(ZKF_BOOT_ID_FILE, O_RDONLY | O_CLOEXEC);
	ssize_t bytes = fd < 0 ? -1 : read(fd, now, sizeof(now));

	if (fd >= 0)
		close(fd);
	if (bytes != (ssize_t)sizeof(now))
		return -ENODATA;
	other_boot = *page->header.boot_id && memcmp(page->header.boot_id, now, sizeof(now)) != 0;
	if (other_boot) {
		atomic_store(&page->header.lease_deadline_ns, 0);
		atomic_store(&page->header.inherited_deadline_ns, 0);
	}
	memcpy(page->header.boot_id, now, sizeof(now));
	return 0;
}

bool zkf_publish_other_boot(void)
{
	return other_boot;
}

static void page_take_over(void)
{
	/* Noted before it is taken: a keeper that dies before it has a lease itself hands it on. */
	inherited_ns = atomic_load(&page->header.lease_deadline_ns);
	if (inherited_ns)
		atomic_store(&page->header.inherited_deadline_ns, inherited_ns);
	else
		inherited_ns = atomic_load(&page->header.inherited_deadline_ns);
	atomic_store(&page->header.lease_deadline_ns, 0);
	for (uint32_t i = 0; i < ZKF_SLOT_COUNT; i++) {
		struct zkf_slot *slot = &page->slots[i];
		uint64_t word = atomic_load(&slot->state);

		slot->unused = 0;
		if (!atomic_load(&slot->ino) && !word)
			continue;
		atomic_store(&slot->state, (ZKF_STATE_GENERATION(word) + 1) << 16);
	}
	atomic_store(&page->header.recalls, 0);
	/* Our rules need not be the former keeper's; and a program that had no page must not take ours for what it knows. */
	atomic_fetch_add(&page->header.config_generation, 1);
	atomic_thread_fence(memory_order_seq_cst);
}

int zkf_publish_init(int directory_fd, int mode)
{
	struct stat status;
	int fd = openat(directory_fd, "page", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, mode);

	if (fd < 0)
		return -errno;
	if (fchmod(fd, (mode_t)mode) || fstat(fd, &status))
		goto failed;
	/* Never truncated: a program that has it mapped would die of SIGBUS. */
	if ((size_t)status.st_size < sizeof(*page) && ftruncate(fd, sizeof(*page)))
		goto failed;
	/* Take the blocks now: a full tmpfs must refuse here, not kill us at a store. */
	if (posix_fallocate(fd, 0, sizeof(*page)) == ENOSPC) {
		errno = ENOSPC;
		goto failed;
	}
	page = mmap(NULL, sizeof(*page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (page == MAP_FAILED)
		goto failed;
	close(fd);
	if (page_date())
		return -ENODATA;
	page_take_over();
	if (page->header.magic != ZKF_PAGE_MAGIC || page->header.version != ZKF_PAGE_VERSION || !page->header.page_id) {
		uint64_t id = 0;

		while (!id)
			if (getrandom(&id, sizeof(id), 0) < 0 && errno != EINTR)
				return -errno;
		page->header.magic = ZKF_PAGE_MAGIC;
		page->header.version = ZKF_PAGE_VERSION;
		page->header.page_id = id;
	}
	return 0;
failed:
	close(fd);
	return errno ? -errno : -EIO;
}

uint64_t zkf_publish_page_id(void)
{
	return page->header.page_id;
}

void zkf_publish_lease(int64_t deadline_ns)
{
	if (!page)
		return;
	atomic_store(&page->header.lease_deadline_ns, deadline_ns);
	atomic_store(&page->header.inherited_deadline_ns, 0);
}

void zkf_publish_withdraw(void)
{
	int64_t deadline_ns = atomic_load(&page->header.lease_deadline_ns);

	if (deadline_ns) /* else a former keeper's still counts */
		atomic_store(&page->header.inherited_deadline_ns, deadline_ns);
	atomic_store(&page->header.lease_deadline_ns, 0);
	atomic_thread_fence(memory_order_seq_cst);
}

void zkf_publish_config_changed(void)
{
	atomic_fetch_add(&page->header.config_generation, 1);
}

uint32_t zkf_publish_slot_take(uint64_t dev, uint64_t ino, uint32_t kind)
{
	uint32_t first = zkf_slot_hash(dev, ino, kind);

	for (uint32_t i = 0; i < ZKF_SLOT_PROBES; i++) {
		uint32_t index = (first + i) & (ZKF_SLOT_COUNT - 1);
		struct zkf_slot *slot = &page->slots[index];

		if (slot->unused == TAKEN)
			continue;
		/* The generation first: a reader that has seen the old file's word must not take it for the new one's. */
		atomic_store(&slot->state, (ZKF_STATE_GENERATION(atomic_load(&slot->state)) + 1) << 16);
		atomic_store(&slot->dev, dev);
		atomic_store(&slot->kind, kind);
		atomic_store(&slot->start, 0);
		atomic_store(&slot->end, INT64_MAX);
		atomic_store(&slot->ino, ino);
		slot->unused = TAKEN;
		return index;
	}
	return ZKF_NO_SLOT;
}

/*
 * A free slot keeps its ino, so that searches go on behind it.  But where the next slot was never used, or is as good as
 * that, no search needs to come: then it becomes as never used itself, and those before it.  Otherwise every slot would have
 * been used some day, and every search for an unknown file would look at all of ZKF_SLOT_PROBES.
 */
static void slots_forget(uint32_t index)
{
	while (page->slots[index].unused != TAKEN && atomic_load(&page->slots[index].ino) &&
	       !atomic_load(&page->slots[(index + 1) & (ZKF_SLOT_COUNT - 1)].ino)) {
		atomic_store(&page->slots[index].ino, 0);
		index = (index - 1) & (ZKF_SLOT_COUNT - 1);
	}
}

void zkf_publish_slot_give(uint32_t index)
{
	if (index == ZKF_NO_SLOT)
		return;
	/* The flag that stays goes with the file; its word is never seen without the next generation. */
	if (zkf_publish_word(index) & ZKF_STATE_REFUSED)
		atomic_fetch_and(&page->slots[index].state, ~(uint64_t)ZKF_STATE_REFUSED);
	zkf_publish_state(index, 0, false, true);
	page->slots[index].unused = 0;
	slots_forget(index);
}

void zkf_publish_state(uint32_t index, unsigned mode, bool recalled, bool reduced)
{
	struct zkf_slot *slot;
	uint64_t before, after;

	if (index == ZKF_NO_SLOT)
		return;
	slot = &page->slots[index];
	before = atomic_load(&slot->state);
	if (before & ZKF_STATE_REFUSED) {
		mode = ZKF_STATE_REFUSED;
		recalled = true;
	}
	after = ((ZKF_STATE_GENERATION(before) + (reduced ? 1 : 0)) << 16) | mode | (recalled ? ZKF_STATE_RECALLED : 0);
	/* The count is up before the flag and down after it: who sees the flag looks for it. */
	if (recalled && !(before & ZKF_STATE_RECALLED))
		atomic_fetch_add(&page->header.recalls, 1);
	if (after != before)
		atomic_store(&slot->state, after);
	if (!recalled && (before & ZKF_STATE_RECALLED))
		atomic_fetch_sub(&page->header.recalls, 1);
	atomic_thread_fence(memory_order_seq_cst);
}

void zkf_publish_refused(uint32_t index)
{
	if (index == ZKF_NO_SLOT)
		return;
	zkf_publish_state(index, ZKF_STATE_REFUSED, true, true);
}

uint64_t zkf_publish_word(uint32_t index)
{
	return index == ZKF_NO_SLOT ? 0 : atomic_load(&page->slots[index].state);
}
