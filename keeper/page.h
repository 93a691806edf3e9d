/*
 * keeper/page.h - the shared page: what every program of this host may read without asking
 *
 * Answers for: the layout of <runtime directory>/page and the order of access on both sides.
 * Does not:    map or fill it; see preload/page.c (read-only) and keeper/publish.c (the only writer).
 * Threads:     one writer (the keeper's loop); any number of readers, which may die at any instruction.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Invariant I4 of the design, "look after you leap":
 *
 *     keeper, giving cover up               program, locking
 *     1. state |= RECALLED (seq_cst)        1. reads state: covers, not recalled
 *     2. full fence                         2. kernel lock (a system call), full fence
 *     3. looks at the kernel's locks        3. reads state again: the same word?
 *     4. gives up what is not in use        4. yes: done.  No: asks the keeper (ZKF_FLAG_HELD)
 *
 * Whatever the interleaving, the keeper sees the lock in its step 3 or the program sees the recall in its step 3.
 *
 * The file has a fixed size, is never truncated and outlives the keeper: a new keeper uses it again, after it has
 * raised every generation, so that a word which a program has read before can't be read again.
 */
#ifndef ZKF_PAGE_H
#define ZKF_PAGE_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define ZKF_PAGE_MAGIC 0x5a4b4650u /* "ZKFP" */
#define ZKF_PAGE_VERSION 1u
#define ZKF_BOOT_ID_FILE "/proc/sys/kernel/random/boot_id"
#define ZKF_BOOT_ID_BYTES 36
#define ZKF_SLOT_COUNT 16384u /* a power of two; twice the number of files that a keeper keeps */
#define ZKF_SLOT_PROBES 64u   /* a file's slot is one of these many from its hash on */

struct zkf_page_header {
	uint32_t magic, version;
	uint64_t page_id; /* random, chosen when the file is made; 0: not ready */
	/*
	 * Until when every cover in the table may be believed, CLOCK_BOOTTIME ns; 0: not at all.  Written by the keeper
	 * alone, from acknowledged writes (keeper/lease.h).  It needs no keeper to run out.
	 */
	_Atomic int64_t lease_deadline_ns;
	_Atomic uint32_t recalls;           /* number of slots with ZKF_STATE_RECALLED: unlock looks here only */
	_Atomic uint32_t config_generation; /* raised when the keeper has read new rules */
	/* The keeper's own: the last lease of a former one, until this one has a lease itself. */
	_Atomic int64_t inherited_deadline_ns;
	/*
	 * Which run of the machine the deadlines are of, as /proc/sys/kernel/random/boot_id has it: in a directory that is
	 * no tmpfs the page outlives the machine's end, and CLOCK_BOOTTIME begins again below its deadline.
	 */
	char boot_id[ZKF_BOOT_ID_BYTES];
	uint8_t unused[4096 - 40 - ZKF_BOOT_ID_BYTES];
};

/*
 * The state word of a slot
 *
 *     bit 0-1   mode that is covered for every local process: enum zkf_mode
 *     bit 2     RECALLED: cover is being given up, or must be given up at the last unlock; ask the keeper
 *     bit 3     REFUSED: the kernel has refused to lock this file; the keeper arbitrates, and must be told of unlocks with
 *               the descriptor.  Then bits 0-1 are ZKF_NONE and bit 2 is set, always: nobody may lock without asking
 *     bit 16-63 generation: raised whenever cover is reduced, lost, or the slot changes its file
 *
 * A program that holds a pin (an open conversation answered COVERED) compares generations only: a recall may begin
 * while it is pinned, and takes nothing from it.  A program without one compares whole words.
 */
#define ZKF_STATE_MODE(state) ((unsigned)((state)&3u))
#define ZKF_STATE_RECALLED 4u
#define ZKF_STATE_REFUSED 8u
#define ZKF_STATE_GENERATION(state) ((uint64_t)(state) >> 16)
#define ZKF_GENERATION_ONE ((uint64_t)1 << 16)

struct zkf_slot {
	_Atomic uint64_t state;
	_Atomic uint64_t dev, ino; /* st_dev, st_ino; ino 0: never used, a search may end here */
	_Atomic uint32_t kind;     /* enum zkf_kind */
	uint32_t unused;
	_Atomic int64_t start, end; /* what `mode` covers: flock always [0, ZKF_RANGE_MAX] */
	uint8_t pad[16];
};

struct zkf_page {
	struct zkf_page_header header;
	struct zkf_slot slots[ZKF_SLOT_COUNT];
};

_Static_assert(sizeof(struct zkf_page_header) == 4096, "the header fills a page");
_Static_assert(sizeof(struct zkf_slot) == 64, "a slot fills a cache line");
/* Programs of 32 bits read it too. */
_Static_assert(offsetof(struct zkf_page_header, lease_deadline_ns) == 16 && offsetof(struct zkf_slot, start) == 32,
               "the same for every word size");

/* zkf_slot_hash - index of the first slot to try for a file; the others follow it, modulo ZKF_SLOT_COUNT */
static inline uint32_t zkf_slot_hash(uint64_t dev, uint64_t ino, uint32_t kind)
{
	uint64_t mixed = (ino ^ (dev << 32 | dev >> 32) ^ kind) * 0x9e3779b97f4a7c15u;

	return (uint32_t)(mixed >> 32) & (ZKF_SLOT_COUNT - 1);
}

#endif
