/*
 * keeper/fault.c - see fault.h
 * SPDX-License-Identifier: Apache-2.0
 */
#include "fault.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Written by zkf_fault_init, before any thread is made. */
static unsigned long fail_every;
/* Counted by every thread that allocates. */
static atomic_ulong allocations;

void zkf_fault_init(void)
{
	const char *text = secure_getenv("ZKFLOCK_FAULT_ALLOC");

	fail_every = text ? strtoul(text, NULL, 10) : 0;
}

static bool fails_now(void)
{
	return fail_every && atomic_fetch_add(&allocations, 1) % fail_every == fail_every - 1;
}

void *zkf_calloc(size_t count, size_t size)
{
	return fails_now() ? NULL : calloc(count, size);
}

void *zkf_reallocarray(void *old, size_t count, size_t size)
{
	return fails_now() ? NULL : reallocarray(old, count, size);
}

char *zkf_memdup(const void *from, size_t bytes)
{
	char *copy = zkf_calloc(1, bytes + 1);

	if (copy && bytes)
		memcpy(copy, from, bytes);
	return copy;
}
