/*
 * tests/probes/many.c - locks many files in turn, each once
 *
 *     many [-n FILES] [-o] [-h] [-e FAILURES] PREFIX
 *
 *     -n  so many: PREFIX0, PREFIX1, ...  (100); they are made
 *     -o  all stay open and locked until the end
 *     -h  when all are done, says so and waits to be killed
 *     -e  ends after so many failures
 *
 * Prints a line for every tenth part: files so far, nanoseconds of a lock in this part, failed ones.  The rest of a cycle,
 * open and close, is not counted.  Exit status 0, 1 (something failed: the first errno is told), 64 (usage).
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static int64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

int main(int argc, char **argv)
{
	long count = 100, failed = 0, before = 0, enough = 0;
	bool stay_open = false, hold = false;
	struct rlimit limit;
	int64_t spent = 0;
	char path[4096];
	int option;

	while ((option = getopt(argc, argv, "n:ohe:")) != -1) {
		if (option == 'n')
			count = atol(optarg);
		else if (option == 'o')
			stay_open = true;
		else if (option == 'e')
			enough = atol(optarg);
		else if (option == 'h')
			hold = true;
		else
			return 64;
	}
	if (optind != argc - 1)
		return 64;
	if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
		limit.rlim_cur = limit.rlim_max;
		setrlimit(RLIMIT_NOFILE, &limit);
	}
	for (long i = 0; i < count; i++) {
		int64_t start;
		int fd;

		snprintf(path, sizeof(path), "%s%ld", argv[optind], i);
		fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
		start = now_ns();
		if ((fd < 0 || flock(fd, LOCK_EX)) && failed++ == 0)
			fprintf(stderr, "many: %s: %s\n", path, strerror(errno));
		spent += now_ns() - start;
		if (!stay_open && fd >= 0)
			close(fd);
		if (enough && failed >= enough)
			break;
		if ((i + 1) % (count < 10 ? 1 : count / 10))
			continue;
		printf("%ld %lld %ld\n", i + 1, (long long)(spent / (i + 1 - before)), failed);
		fflush(stdout);
		spent = 0;
		before = i + 1;
	}
	if (hold) {
		printf("done\n");
		fflush(stdout);
		pause();
	}
	return failed != 0;
}
