/*
 * preload/page.h - the keeper's shared page, seen from a program
 *
 * Answers for: mapping <runtime directory>/page read-only, finding a file's slot in it, the lease.
 * Does not:    write it (it can't), or decide what a state means for a lock; that is cover.c.
 * Threads:     one atomic pointer, replaced by compare-exchange; old mappings are never unmapped, since another
 *              thread may be reading them.  A keeper's page outlives the keeper, so that this happens hardly ever.
 * Specification: keeper/page.h; design section 4 I4.
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ZKF_PRELOAD_PAGE_H
#define ZKF_PRELOAD_PAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "keeper/page.h"

/* zkf_page_current - the page that is mapped, or NULL */
const struct zkf_page *zkf_page_current(void);

enum zkf_page_want {
	ZKF_PAGE_ANSWERED, /* the keeper that writes it has just answered us */
	ZKF_PAGE_FOUND,    /* nobody has: only one of this run of the machine */
	ZKF_PAGE_LEASED,   /* and only if its lease is valid */
};

/*
 * zkf_page_map - map the page of a (trusted) runtime directory, unless it is the current one
 *
 * Returns 0, -ENOENT (no page, or not ready, or not as wanted), -EPERM (not owned by root or us), -EINVAL (not a page of
 * ours), or what open(2) and mmap(2) say.
 */
int zkf_page_map(const char *directory, enum zkf_page_want want);

/*
 * zkf_page_find - the slot of a file and its state word, or NULL
 *
 * The state is read before the file's identity: a keeper that gives the slot to another file raises the generation
 * first, so that whoever finds the same word again later has had the right file all the time.
 */
const struct zkf_slot *zkf_page_find(const struct zkf_page *page, uint64_t dev, uint64_t ino, uint32_t kind,
                                     uint64_t *state);

/* zkf_page_knows - has the file a slot? */
bool zkf_page_knows(uint64_t dev, uint64_t ino, uint32_t kind);

/* A file's state as it was seen in the page. */
struct zkf_sight {
	const struct zkf_page *page;
	const struct zkf_slot *slot;
	uint64_t state;
};

/* zkf_page_covers - does the page alone say that this mode of all of the file is covered, now?  Fills sight if so. */
bool zkf_page_covers(struct zkf_sight *sight, uint64_t dev, uint64_t ino, uint32_t kind, unsigned mode);

/*
 * zkf_page_unchanged - after a system call: is the state word still the one that was seen?
 *
 * Then no recall began before the call's effect was there to be seen (I4; keeper/page.h has the timeline).
 */
bool zkf_page_unchanged(const struct zkf_sight *sight);

/* zkf_page_leased - may the page's covers be believed at this instant? */
bool zkf_page_leased(const struct zkf_page *page);

#endif
