/*
 * tests/probes/allocator.c - a program with its own allocator, see liballoc.c; locks a file, prints "granted"
 *
 *     allocator FILE
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "liballoc.c"

#include <stdio.h>

int main(int argc, char **argv)
{
	FILE *stream = argc == 2 ? fopen(argv[1], "a+") : NULL;

	if (!stream || flock(fileno(stream), LOCK_EX) != 0)
		return 1;
	puts("granted");
	return fclose(stream);
}
