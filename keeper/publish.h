/*
 * keeper/publish.h - the writing side of the shared page
 *
 * Answers for: the page's file, its slots, their state words and the order in which they are written.
 * Does not:    decide what is covered.
 * Threads:     the loop's; readers in other processes at any time (page.h).
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ZKF_PUBLISH_H
#define ZKF_PUBLISH_H

#include <stdbool.h>
#include <stdint.h>

#include "page.h"

#define ZKF_NO_SLOT UINT32_MAX

/*
 * zkf_publish_init - make or take over <directory>/page
 *
 * Every generation is raised and every cover withdrawn first: what a former keeper published is void from here on.
 *
 * Returns 0, -ENODATA (/proc/sys/kernel/random/boot_id can't be read), or a negative errno of open, ftruncate, mmap,
 * getrandom.
 */
int zkf_publish_init(int directory_fd, int mode);

/* zkf_publish_other_boot - was the page of a former run of the machine? */
bool zkf_publish_other_boot(void);

uint64_t zkf_publish_page_id(void);
/* zkf_publish_inherited_ns - the lease that a former keeper had published, 0: none */
int64_t zkf_publish_inherited_ns(void);
void zkf_publish_lease(int64_t deadline_ns);
/*
 * zkf_publish_withdraw - nobody may believe the covers any more, though the session goes on
 *
 * The lease is kept for the next keeper.  Who is granted by the page from here on sees that it is over; who was before has
 * the kernel's lock, and whoever looks at those then sees it (I4).
 */
void zkf_publish_withdraw(void);

/* zkf_publish_config_changed - programs read the configuration again at their next lock call */
void zkf_publish_config_changed(void);

/* zkf_publish_slot_take - a slot for a file, or ZKF_NO_SLOT: the file's neighbourhood in the table is full */
uint32_t zkf_publish_slot_take(uint64_t dev, uint64_t ino, uint32_t kind);
void zkf_publish_slot_give(uint32_t slot);

/*
 * zkf_publish_state - what programs may believe of a slot's file
 *
 * mode      what is covered for every local process, all of the file
 * recalled  ask the keeper before locking, and tell it of unlocks
 * reduced   cover went since the last call: raise the generation, so that nobody mistakes new cover for old
 *
 * Sequentially consistent and followed by a full fence: the caller may look at the kernel's locks next (I4).
 */
void zkf_publish_state(uint32_t slot, unsigned mode, bool recalled, bool reduced);

/* zkf_publish_refused - the kernel refuses to lock this file: from now on programs ask, and tell of unlocks, always */
void zkf_publish_refused(uint32_t slot);

uint64_t zkf_publish_word(uint32_t slot);

#endif
