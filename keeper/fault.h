/*
 * keeper/fault.h - the keeper's allocations
 *
 * Answers for: malloc and friends, zeroed, with a NUL where a string is meant.
 * Threads:     any.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A keeper for tests, in which any of them fails when it is told to, is linked by tests/inject/.
 */
#ifndef ZKF_FAULT_H
#define ZKF_FAULT_H

#include <stddef.h>

/* zkf_calloc, zkf_reallocarray, zkf_memdup - as the C library's; NULL when memory is out */
void *zkf_calloc(size_t count, size_t size);
void *zkf_reallocarray(void *old, size_t count, size_t size);
/* zkf_memdup - copy of `bytes` bytes and a NUL after them */
char *zkf_memdup(const void *from, size_t bytes);

#endif
