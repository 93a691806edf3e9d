/*
 * bench/spawn.c - what one run of a program costs, with one environment and with another, by turns
 *
 *     spawn [-n ROUNDS] VARIABLE=VALUE[,VARIABLE=VALUE...]... -- CMD...
 *
 * Each argument before -- is one environment, added to ours; "-" adds nothing.  In every round each has one run.
 * Prints a line for each: the median of its runs in nanoseconds, from before the start to after the end.
 * Exit status 0, 1 (a run failed), 64 (usage).
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ENVIRONMENTS_MAX 16
#define ADDED_MAX 16

static int64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static char **environment_with(char *list)
{
	size_t count = 0, added = 0;
	char **made, *next = list, *one;

	while (environ[count])
		count++;
	made = calloc(count + ADDED_MAX + 1, sizeof(*made));
	if (!made)
		exit(1);
	if (strcmp(list, "-") != 0)
		while (added < ADDED_MAX && (one = strsep(&next, ",")) != NULL)
			made[added++] = one;
	memcpy(made + added, environ, count * sizeof(*made));
	return made;
}

static int64_t run_ns(char **command, char **environment)
{
	int64_t start = now_ns();
	int status = -1;
	pid_t pid;

	if (posix_spawnp(&pid, command[0], NULL, NULL, command, environment) || waitpid(pid, &status, 0) != pid ||
	    status) {
		fprintf(stderr, "spawn: %s: status %d\n", command[0], status);
		exit(1);
	}
	return now_ns() - start;
}

static int by_size(const void *a, const void *b)
{
	int64_t one = *(const int64_t *)a, other = *(const int64_t *)b;

	return one < other ? -1 : one > other;
}

int main(int argc, char **argv)
{
	static int64_t *samples[ENVIRONMENTS_MAX];
	static char **environments[ENVIRONMENTS_MAX];
	int count = 0, rounds = 100, at = 1;

	if (argc > 2 && strcmp(argv[1], "-n") == 0) {
		rounds = atoi(argv[2]);
		at = 3;
	}
	for (; at < argc && strcmp(argv[at], "--") != 0 && count < ENVIRONMENTS_MAX; at++)
		environments[count++] = environment_with(argv[at]);
	if (at + 1 >= argc || !count || rounds < 1)
		return 64;
	for (int i = 0; i < count; i++) {
		samples[i] = calloc((size_t)rounds, sizeof(**samples));
		if (!samples[i])
			return 1;
		run_ns(argv + at + 1, environments[i]); /* the first one reads the files */
	}
	for (int round = 0; round < rounds; round++)
		for (int i = 0; i < count; i++)
			samples[i][round] = run_ns(argv + at + 1, environments[i]);
	for (int i = 0; i < count; i++) {
		qsort(samples[i], (size_t)rounds, sizeof(**samples), by_size);
		printf("%lld\n", (long long)samples[i][rounds / 2]);
	}
	return 0;
}
