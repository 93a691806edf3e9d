/*
 * keeper/fault.c - see fault.h
 * SPDX-License-Identifier: Apache-2.0
 */
#include "fault.h"

#include <stdlib.h>
#include <string.h>

void *zkf_calloc(size_t count, size_t size)
{
	return calloc(count, size);
}

void *zkf_reallocarray(void *old, size_t count, size_t size)
{
	return reallocarray(old, count, size);
}

char *zkf_memdup(const void *from, size_t bytes)
{
	char *copy = zkf_calloc(1, bytes + 1);

	if (copy && bytes)
		memcpy(copy, from, bytes);
	return copy;
}
