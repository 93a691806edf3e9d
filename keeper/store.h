/*
 * keeper/store.h - descriptors that outlive a keeper, so that the next one knows open file descriptions again
 *
 * Answers for: duplicates of descriptors, each under a number, also for a keeper that follows one that was killed.
 * Does not:    know what they are; survive the guard: then who follows has numbers of descriptors in processes to go by.
 * Threads:     the guard's before it forks; then the keeper's loop.
 * Specification: unix(7), SCM_RIGHTS: a descriptor in a socket's queue stays open, whoever has sent it.
 * SPDX-License-Identifier: Apache-2.0
 *
 * The guard makes a pair of sockets and never touches it; each keeper inherits it.  What a keeper stores it sends into the
 * one end, and the queue of the other end holds it.  The guard has nothing to do, so that nothing waits for it.
 */
#ifndef ZKF_STORE_H
#define ZKF_STORE_H

#include <stdbool.h>
#include <stdint.h>

/* zkf_store_init - the guard's, once; 0 or a negative errno */
int zkf_store_init(void);

/* zkf_store_load - a keeper's start: take over what a former one has stored */
void zkf_store_load(void);

/* zkf_store_add - fd, which stays the caller's and must stay open, under an id; 0 or a negative errno */
int zkf_store_add(uint64_t id, int fd);

/* zkf_store_drop - forget it; the descriptor is not closed.  0; a negative errno: it may still be in the queue */
int zkf_store_drop(uint64_t id);

/* zkf_store_find - the descriptor stored under an id, or -1 */
int zkf_store_find(uint64_t id);

/* zkf_store_socket - the descriptor of the queue */
int zkf_store_socket(void);

/* zkf_store_keep_only - close and forget those that nobody asks for any more */
void zkf_store_keep_only(bool (*wanted)(uint64_t id));

#endif
