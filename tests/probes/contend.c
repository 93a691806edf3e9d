/*
 * tests/probes/contend.c - one of several processes that want the same lock all the time
 *
 *     contend [-k flock|posix|ofd] [-n] [-o] [-s PERCENT] [-t MS] LOCKFILE STATEFILE ROUNDS
 *
 *     -k  by which call             -n  by non-blocking calls, again and again, instead of one blocking call
 *     -o  opens and closes LOCKFILE in every round, instead of unlocking it
 *     -s  so many rounds of a hundred take a shared lock (0)
 *     -t  ends after so many milliseconds, whatever ROUNDS
 *
 * STATEFILE is shared by all, and mapped into memory: an ordinary counter that writers increment without any other
 * protection than the lock, and the number of readers and writers inside, to see whether they ever meet.
 * Prints "counted N violations N longest_ms N": increments of this process, meetings it saw, its longest wait.
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

struct state {
	volatile long counter; /* incremented in two steps, so that a second holder would lose an increment */
	atomic_int readers, writers;
};

static const char *kind = "flock";
static bool nonblock, reopen;

static long now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void short_pause(void)
{
	nanosleep(&(struct timespec){.tv_nsec = 200000 + random() % 800000}, NULL);
}

static int lock_once(int fd, short type)
{
	struct flock range = {.l_type = type, .l_whence = SEEK_SET};
	int operation = type == F_WRLCK ? LOCK_EX : type == F_RDLCK ? LOCK_SH : LOCK_UN;

	if (strcmp(kind, "flock") == 0)
		return flock(fd, operation | (nonblock ? LOCK_NB : 0));
	if (strcmp(kind, "ofd") == 0)
		return fcntl(fd, nonblock ? F_OFD_SETLK : F_OFD_SETLKW, &range);
	return fcntl(fd, nonblock ? F_SETLK : F_SETLKW, &range);
}

static void lock(int fd, short type)
{
	while (lock_once(fd, type) != 0) {
		if (!nonblock || (errno != EAGAIN && errno != EACCES)) {
			perror("contend: lock");
			exit(1);
		}
		short_pause();
	}
}

/* One turn inside: returns the number of meetings that the lock should have prevented. */
static long be_inside(struct state *state, bool exclusive)
{
	long violations = 0, counter;

	if (!exclusive) {
		atomic_fetch_add(&state->readers, 1);
		violations += atomic_load(&state->writers) != 0;
		short_pause();
		violations += atomic_load(&state->writers) != 0;
		atomic_fetch_sub(&state->readers, 1);
		return violations;
	}
	violations += atomic_fetch_add(&state->writers, 1) != 0;
	counter = state->counter;
	violations += atomic_load(&state->readers) != 0;
	sched_yield();
	state->counter = counter + 1;
	violations += atomic_load(&state->readers) != 0;
	atomic_fetch_sub(&state->writers, 1);
	return violations;
}

static int open_or_die(const char *path)
{
	int fd = open(path, O_RDWR | O_CREAT, 0666);

	if (fd < 0) {
		perror(path);
		exit(2);
	}
	return fd;
}

int main(int argc, char **argv)
{
	long rounds, shared_percent = 0, until = 0, counted = 0, violations = 0, longest_ms = 0, began;
	struct state *state;
	int option, fd, state_fd;
	bool exclusive;

	while ((option = getopt(argc, argv, "k:nos:t:")) != -1) {
		if (option == 'k')
			kind = optarg;
		else if (option == 'n')
			nonblock = true;
		else if (option == 'o')
			reopen = true;
		else if (option == 's')
			shared_percent = atol(optarg);
		else if (option == 't')
			until = now_ms() + atol(optarg);
		else
			return 64;
	}
	if (optind != argc - 3)
		return 64;
	srandom((unsigned)getpid());
	rounds = atol(argv[optind + 2]);
	fd = open_or_die(argv[optind]);
	state_fd = open_or_die(argv[optind + 1]);
	if (ftruncate(state_fd, sizeof(*state)) != 0)
		return 2;
	state = mmap(NULL, sizeof(*state), PROT_READ | PROT_WRITE, MAP_SHARED, state_fd, 0);
	if (state == MAP_FAILED)
		return 2;
	for (long i = 0; i < rounds && (until == 0 || now_ms() < until); i++) {
		if (reopen && i > 0)
			fd = open_or_die(argv[optind]);
		exclusive = random() % 100 >= shared_percent;
		began = now_ms();
		lock(fd, exclusive ? F_WRLCK : F_RDLCK);
		if (now_ms() - began > longest_ms)
			longest_ms = now_ms() - began;
		violations += be_inside(state, exclusive);
		counted += exclusive;
		if (reopen)
			close(fd);
		else
			lock(fd, F_UNLCK);
	}
	printf("counted %ld violations %ld longest_ms %ld\n", counted, violations, longest_ms);
	return 0;
}
