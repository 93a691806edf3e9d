/*
 * bench/loop.c - lock and unlock, again and again, and count
 *
 *     loop [-k flock|posix|ofd] [-r START,LEN] [-s SECONDS | -n CYCLES] [-p] FILE
 *
 *     -k  by which call                     (flock)
 *     -r  bytes, for all but flock          (the whole file)
 *     -s  for so long                       (1 s)
 *     -n  so many cycles, however long it takes
 *     -p  before each lock ask for the file's path, by the fewest calls there are: fstat(2) and readlink(2)
 *
 * One cycle is one lock that waits, and its unlock.  Two cycles go before, uncounted: the first may have to ask another
 * host, and the second may be the first one that need not.  Prints "cycles N ns N": counted cycles, time of one.
 * Exit status 0, 1 (a call failed: the errno is told), 64 (usage).
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S INT64_C(1000000000)
/* The clock is read once in so many cycles: it costs as much as a tenth of a flock. */
#define CYCLES_PER_LOOK 16

struct loop {
	int fd;
	int lock, unlock; /* commands of fcntl(2); 0: flock(2) */
	struct flock range;
	bool asks_path;
	char link[32];
};

static int64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * NS_PER_S + now.tv_nsec;
}

static int loop_set_kind(struct loop *loop, const char *kind)
{
	if (strcmp(kind, "flock") == 0)
		loop->lock = loop->unlock = 0;
	else if (strcmp(kind, "posix") == 0)
		loop->lock = F_SETLKW, loop->unlock = F_SETLK;
	else if (strcmp(kind, "ofd") == 0)
		loop->lock = F_OFD_SETLKW, loop->unlock = F_OFD_SETLK;
	else
		return -EINVAL;
	return 0;
}

/* What whoever goes by paths must do, and nothing else. */
static int loop_ask_path(const struct loop *loop)
{
	char path[PATH_MAX];
	struct stat status;

	return fstat(loop->fd, &status) || readlink(loop->link, path, sizeof(path)) < 0 ? -errno : 0;
}

static int loop_cycle(struct loop *loop)
{
	if (loop->asks_path && loop_ask_path(loop))
		return -errno;
	if (!loop->lock)
		return flock(loop->fd, LOCK_EX) || flock(loop->fd, LOCK_UN) ? -errno : 0;
	loop->range.l_type = F_WRLCK;
	if (fcntl(loop->fd, loop->lock, &loop->range))
		return -errno;
	loop->range.l_type = F_UNLCK;
	return fcntl(loop->fd, loop->unlock, &loop->range) ? -errno : 0;
}

static int loop_run(struct loop *loop, int64_t cycles, int64_t limit_ns)
{
	int64_t done = 0, start, now;
	int error = loop_cycle(loop);

	if (!error)
		error = loop_cycle(loop);
	start = now = now_ns();
	while (!error && (cycles ? done < cycles : now - start < limit_ns)) {
		for (int i = 0; i < CYCLES_PER_LOOK && !error; i++, done++)
			error = loop_cycle(loop);
		now = now_ns();
	}
	if (!error)
		printf("cycles %lld ns %lld\n", (long long)done, (long long)((now - start) / (done ? done : 1)));
	return error;
}

int main(int argc, char **argv)
{
	struct loop loop = {.fd = -1, .range = {.l_whence = SEEK_SET}};
	int64_t cycles = 0, limit_ns = NS_PER_S;
	long long start = 0, len = 0;
	int option, error;

	while ((option = getopt(argc, argv, "k:r:s:n:p")) != -1) {
		if (option == 'k' && !loop_set_kind(&loop, optarg))
			continue;
		else if (option == 'r' && sscanf(optarg, "%lld,%lld", &start, &len) == 2)
			continue;
		else if (option == 's')
			limit_ns = (int64_t)(atof(optarg) * (double)NS_PER_S);
		else if (option == 'n')
			cycles = atoll(optarg);
		else if (option == 'p')
			loop.asks_path = true;
		else
			return 64;
	}
	if (optind != argc - 1)
		return 64;
	loop.range.l_start = start;
	loop.range.l_len = len;
	loop.fd = open(argv[optind], O_RDWR | O_CREAT | O_CLOEXEC, 0666);
	snprintf(loop.link, sizeof(loop.link), "/proc/self/fd/%d", loop.fd);
	error = loop.fd < 0 ? -errno : loop_run(&loop, cycles, limit_ns);
	if (error)
		fprintf(stderr, "loop: %s: %s\n", argv[optind], strerror(-error));
	return error ? 1 : 0;
}
