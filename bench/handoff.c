/*
 * bench/handoff.c - two programs pass a lock to and fro: how long from the release to the other's grant?
 *
 *     handoff [-1] [-n ROUNDS] FILE STATE
 *
 *     -1  begins as the holder; the other one is started without
 *
 * STATE is a file of at least 4096 bytes that both map: words of 8 bytes
 *     0, 1   this one (the first, the second) is about to wait for the lock
 *     2      who holds it: 1 the first, 2 the second
 *     3      CLOCK_MONOTONIC at the last release, ns
 * The holder lets go 3 ms after the other one has said that it waits, so that the request has arrived wherever it must.
 * Prints "samples NS...".  Exit status 0, 1 (a call failed), 64 (usage).
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS_MAX 10000

static int64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static void pause_ms(int ms)
{
	nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL);
}

static void must(int result, const char *what)
{
	if (!result)
		return;
	perror(what);
	exit(1);
}

static void take(int fd, _Atomic int64_t *state, int own)
{
	atomic_store(&state[own], 1);
	must(flock(fd, LOCK_EX), "flock");
	atomic_store(&state[own], 0);
}

int main(int argc, char **argv)
{
	static int64_t samples[ROUNDS_MAX];
	int rounds = 100, count = 0, own = 1, option, fd, state_fd;
	_Atomic int64_t *state;

	while ((option = getopt(argc, argv, "1n:")) != -1) {
		if (option == '1')
			own = 0;
		else if (option == 'n')
			rounds = atoi(optarg);
		else
			return 64;
	}
	if (optind != argc - 2 || rounds > ROUNDS_MAX)
		return 64;
	fd = open(argv[optind], O_RDWR | O_CREAT | O_CLOEXEC, 0666);
	state_fd = open(argv[optind + 1], O_RDWR | O_CLOEXEC);
	must(fd < 0 || state_fd < 0, "open");
	state = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, state_fd, 0);
	must(state == MAP_FAILED, "mmap");
	if (own == 0) {
		must(flock(fd, LOCK_EX), "flock");
		atomic_store(&state[2], own + 1);
	}
	while (!atomic_load(&state[2]))
		pause_ms(1);
	for (int i = 0; i < rounds; i++) {
		if (atomic_load(&state[2]) != own + 1) {
			take(fd, state, own);
			samples[count++] = now_ns() - atomic_load(&state[3]);
			atomic_store(&state[2], own + 1);
		}
		while (!atomic_load(&state[1 - own]))
			pause_ms(1);
		pause_ms(3);
		atomic_store(&state[3], now_ns());
		must(flock(fd, LOCK_UN), "unlock");
		while (atomic_load(&state[2]) == own + 1)
			pause_ms(1);
	}
	if (own == 0) { /* the other one's last round waits for one that waits */
		take(fd, state, own);
		atomic_store(&state[2], own + 1);
	}
	printf("samples");
	for (int i = 0; i < count; i++)
		printf(" %lld", (long long)samples[i]);
	printf("\n");
	return 0;
}
