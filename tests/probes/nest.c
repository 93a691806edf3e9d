/*
 * tests/probes/nest.c - threads that take the files of a group again and again, nested at random
 *
 *     nest [-t MS] [-n THREADS] [-s SEED] [-x] STATEFILE FILE...
 *
 *     -t  for so long (5000)      -n  threads (4)      -x  nothing unnests: leave when time is over, holding what is held
 *
 * A round takes one to four locks on different files, by flock, fcntl or F_OFD_*, shared or exclusive, blocking or not,
 * and gives them back in a random order, by unlock or close.  What is taken first decides: shared locks may follow an
 * exclusive one, exclusive ones follow a shared one only without blocking (two readers that both wait for more would wait
 * for each other).  POSIX records belong to all threads of a process, so each thread has files of its own for them.
 *
 * STATEFILE is shared by all processes of all hosts.  Each thread has a slot in it, with its pid, that says what it holds
 * of the group: none, shared, exclusive.  A thread that has just got what it wanted looks at all others'; a slot of a
 * process that is gone counts for nothing.  Prints "rounds N violations N".  Exit status 1 after a violation.
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define SLOTS 1024
#define DEPTH_MAX 4

enum { NONE, SHARED, EXCLUSIVE };

struct slot {
	atomic_int pid;
	atomic_int mode;
	char pad[56];
};

static struct slot *slots;
static char **files;
static int file_count, threads = 4;
static long end_ms;
static unsigned seed;
static bool leave_holding;
static atomic_long rounds, violations;

static long now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Has the process ended?  One that waits to be reaped has. */
static bool gone(int pid)
{
	char path[40], text[512] = "", *behind;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return true;
	if (read(fd, text, sizeof(text) - 1) <= 0)
		text[0] = 0;
	close(fd);
	behind = strrchr(text, ')');
	return !behind || behind[2] == 'Z' || behind[2] == 'X';
}

static struct slot *slot_take(void)
{
	for (int i = 0; i < SLOTS; i++) {
		int old = atomic_load(&slots[i].pid);

		if ((old == 0 || gone(old)) && atomic_compare_exchange_strong(&slots[i].pid, &old, (int)getpid())) {
			atomic_store(&slots[i].mode, NONE);
			return &slots[i];
		}
	}
	_exit(70);
}

static void check(const struct slot *mine, int mode)
{
	struct timespec now;

	for (int i = 0; i < SLOTS; i++) {
		int other = atomic_load(&slots[i].mode), pid = atomic_load(&slots[i].pid);

		if (&slots[i] == mine || other == NONE || pid == 0 || (mode == SHARED && other == SHARED))
			continue;
		if (gone(pid))
			continue;
		/* It may have been killed just now, and its locks be gone before it is. */
		usleep(20000);
		if (atomic_load(&slots[i].mode) != other || gone(pid))
			continue;
		atomic_fetch_add(&violations, 1);
		clock_gettime(CLOCK_REALTIME, &now);
		fprintf(stderr, "%ld.%03ld pid %d slot %d mode %d meets pid %d slot %d mode %d\n", (long)now.tv_sec,
		        now.tv_nsec / 1000000, (int)getpid(), (int)(mine - slots), mode, pid, i, other);
	}
}

struct held {
	int fd, kind, mode;
};

/* kind 0: flock, 1: OFD record, 2: POSIX record */
static int lock_call(const struct held *held, int mode, bool wait)
{
	struct flock range = {.l_type = mode == NONE   ? F_UNLCK
	                              : mode == SHARED ? F_RDLCK
	                                               : F_WRLCK,
	                      .l_whence = SEEK_SET};

	if (held->kind == 0)
		return flock(held->fd, (mode == NONE     ? LOCK_UN
		                        : mode == SHARED ? LOCK_SH
		                                         : LOCK_EX) |
		                               (wait ? 0 : LOCK_NB));
	if (held->kind == 1)
		return fcntl(held->fd, wait ? F_OFD_SETLKW : F_OFD_SETLK, &range);
	return fcntl(held->fd, wait ? F_SETLKW : F_SETLK, &range);
}

static void sub_pause(unsigned *random_state)
{
	usleep((useconds_t)(rand_r(random_state) % 2000));
}

/* Files 0, 1, ... are everybody's; POSIX records are taken on a file of this thread alone, named after it. */
static int open_file(unsigned *random_state, int kind, int depth, const struct slot *mine)
{
	char path[4096];

	if (kind != 2)
		snprintf(path, sizeof(path), "%s", files[(unsigned)rand_r(random_state) % (unsigned)file_count]);
	else
		snprintf(path, sizeof(path), "%s.%d.%d", files[0], (int)(mine - slots), depth);
	return open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
}

/* What this thread holds by now says its slot, before anything is given back and after it is had. */
static int strongest(const struct held *held, int depth)
{
	int mode = NONE;

	for (int i = 0; i < depth; i++)
		if (held[i].mode > mode)
			mode = held[i].mode;
	return mode;
}

static void one_round(struct slot *mine, unsigned *random_state)
{
	struct held held[DEPTH_MAX];
	int depth = 0, want = 1 + rand_r(random_state) % DEPTH_MAX, tries = 0;

	while (depth < want && tries++ < 12) {
		struct held next = {.kind = rand_r(random_state) % 3,
		                    .mode = rand_r(random_state) % 2 ? SHARED : EXCLUSIVE};
		int before = strongest(held, depth);
		bool wait = rand_r(random_state) % 3 != 0, same = false;

		next.fd = open_file(random_state, next.kind, depth, mine);
		if (next.fd < 0)
			_exit(71);
		/* Of one inode the kernel has its own word: two descriptions of one thread exclude each other there. */
		for (int i = 0; i < depth && !same; i++)
			same = held[i].kind != 2 && next.kind != 2;
		if ((before == SHARED && next.mode == EXCLUSIVE) || same)
			wait = false;
		if (lock_call(&next, next.mode, wait) == 0) {
			held[depth++] = next;
			if (strongest(held, depth) > before) {
				atomic_store(&mine->mode, strongest(held, depth));
				check(mine, strongest(held, depth));
			}
			sub_pause(random_state);
		} else {
			close(next.fd);
			if (errno != EAGAIN && errno != EWOULDBLOCK) {
				fprintf(stderr, "lock: %s\n", strerrorname_np(errno));
				atomic_fetch_add(&violations, 1);
			}
		}
	}
	if (leave_holding && now_ms() >= end_ms)
		_exit(0);
	while (depth) {
		int which = rand_r(random_state) % depth;
		struct held gone = held[which];

		held[which] = held[--depth];
		atomic_store(&mine->mode, strongest(held, depth)); /* before: others may be in at once */
		if (rand_r(random_state) % 2)
			lock_call(&gone, NONE, false);
		close(gone.fd);
		sub_pause(random_state);
	}
	atomic_fetch_add(&rounds, 1);
}

static void *thread_main(void *number)
{
	unsigned random_state = seed * 7919u + (unsigned)(intptr_t)number;
	struct slot *mine = slot_take();

	while (now_ms() < end_ms)
		one_round(mine, &random_state);
	atomic_store(&mine->mode, NONE);
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t ids[64];
	long duration_ms = 5000;
	int option, fd;

	seed = (unsigned)getpid();
	while ((option = getopt(argc, argv, "t:n:s:x")) != -1) {
		if (option == 't')
			duration_ms = atol(optarg);
		else if (option == 'n')
			threads = atoi(optarg);
		else if (option == 's')
			seed = (unsigned)atol(optarg);
		else if (option == 'x')
			leave_holding = true;
		else
			return 64;
	}
	if (argc - optind < 2 || threads < 1 || threads > 64)
		return 64;
	fd = open(argv[optind], O_RDWR | O_CREAT, 0666);
	if (fd < 0 || ftruncate(fd, SLOTS * sizeof(*slots)) < 0)
		return 65;
	slots = mmap(NULL, SLOTS * sizeof(*slots), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (slots == MAP_FAILED)
		return 66;
	close(fd);
	files = argv + optind + 1;
	file_count = argc - optind - 1;
	end_ms = now_ms() + duration_ms;
	for (intptr_t i = 0; i < threads; i++)
		pthread_create(&ids[i], NULL, thread_main, (void *)i);
	for (int i = 0; i < threads; i++)
		pthread_join(ids[i], NULL);
	printf("rounds %ld violations %ld\n", atomic_load(&rounds), atomic_load(&violations));
	return atomic_load(&violations) ? 1 : 0;
}
