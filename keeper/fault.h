/*
 * keeper/fault.h - the keeper's allocations, in one place so that a test can make any of them fail
 *
 * Answers for: malloc and friends with a counter in front.
 * Threads:     any.
 * SPDX-License-Identifier: Apache-2.0
 *
 * ZKFLOCK_FAULT_ALLOC=N in the keeper's environment makes every Nth allocation fail; without it nothing does.
 */
#ifndef ZKF_FAULT_H
#define ZKF_FAULT_H

#include <stddef.h>

/* zkf_fault_init - read the environment; before any thread is made */
void zkf_fault_init(void);

/* zkf_calloc, zkf_reallocarray, zkf_memdup - as the C library's; NULL when memory is out */
void *zkf_calloc(size_t count, size_t size);
void *zkf_reallocarray(void *old, size_t count, size_t size);
/* zkf_memdup - copy of `bytes` bytes and a NUL after them */
char *zkf_memdup(const void *from, size_t bytes);

#endif
