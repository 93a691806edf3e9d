/*
 * tests/probes/torture.c - random lock calls whose holders prove on shared memory that they are alone
 *
 *     torture TABLE SECONDS SEED LOCKS KIND
 *
 * TABLE    a file outside of every mapped tree, shared by all hosts: one counter pair for each byte of each lock
 * LOCKS    how many lock files, torture.0 ... in the working directory
 * KIND     flock, record (POSIX), ofd, or mixed
 *
 * Each holder adds itself to the counters of what it holds before, and takes itself off before it unlocks; whoever finds
 * somebody there who conflicts prints "VIOLATION ..." and exits with 2.  Prints "N locks, M refused" at the end.
 * A holder that is killed leaves its marks behind; they carry its pid, and a dead process's are void.
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
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

#define BYTES 8    /* of each file that records lock */
#define HOLDERS 64 /* of one byte at once */

/* Who holds a byte: the pid, negative for a reader.  A dead pid's entry is void: the kernel freed its lock. */
struct byte_table {
	_Atomic int32_t holder[HOLDERS];
};

static struct byte_table *table;
static unsigned long taken, refused;

static bool alive(int32_t pid)
{
	return !kill(pid, 0) || errno == EPERM;
}

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * INT64_C(1000) + t.tv_nsec / 1000000;
}

static void enter_byte(int lock, int byte, bool exclusive)
{
	struct byte_table *here = &table[lock * BYTES + byte];
	int32_t self = exclusive ? getpid() : -getpid();
	int mine = -1;

	for (int i = 0; i < HOLDERS && mine < 0; i++) {
		int32_t was = atomic_load(&here->holder[i]);

		if ((was == 0 || !alive(was < 0 ? -was : was)) &&
		    atomic_compare_exchange_strong(&here->holder[i], &was, self))
			mine = i;
	}
	for (int i = 0; i < HOLDERS; i++) {
		int32_t other = atomic_load(&here->holder[i]);

		if (i == mine || other == 0 || (other < 0 && !exclusive) || !alive(other < 0 ? -other : other))
			continue;
		printf("VIOLATION lock=%d byte=%d self=%d other=%d\n", lock, byte, self, other);
		fflush(stdout);
		_exit(2);
	}
}

static void leave_byte(int lock, int byte)
{
	struct byte_table *here = &table[lock * BYTES + byte];

	for (int i = 0; i < HOLDERS; i++) {
		int32_t was = atomic_load(&here->holder[i]);

		if (was == getpid() || was == -getpid()) {
			atomic_store(&here->holder[i], 0);
			return;
		}
	}
}

static void hold(int lock, int first, int last, bool exclusive)
{
	struct timespec pause = {.tv_nsec = (random() % 4) * 300000};

	for (int byte = first; byte <= last; byte++)
		enter_byte(lock, byte, exclusive);
	taken++;
	if (pause.tv_nsec)
		nanosleep(&pause, NULL);
	for (int byte = first; byte <= last; byte++)
		leave_byte(lock, byte);
}

static bool got(int result)
{
	if (!result)
		return true;
	if (errno == EWOULDBLOCK || errno == EACCES) {
		refused++;
		return false;
	}
	printf("FAILED errno=%d %s\n", errno, strerror(errno));
	fflush(stdout);
	_exit(3);
}

static void by_flock(int fd, int lock)
{
	bool exclusive = random() % 3 != 0, blocking = random() % 2;

	if (!got(flock(fd, (exclusive ? LOCK_EX : LOCK_SH) | (blocking ? 0 : LOCK_NB))))
		return;
	hold(lock, 0, BYTES - 1, exclusive);
	flock(fd, LOCK_UN);
}

static void by_record(int fd, int lock, bool ofd)
{
	bool exclusive = random() % 3 != 0, blocking = random() % 2;
	int first = (int)(random() % BYTES), last = first + (int)(random() % (BYTES - first));
	struct flock range = {.l_type = exclusive ? F_WRLCK : F_RDLCK, .l_start = first, .l_len = last - first + 1};

	if (!got(fcntl(fd, ofd ? (blocking ? F_OFD_SETLKW : F_OFD_SETLK) : (blocking ? F_SETLKW : F_SETLK), &range)))
		return;
	hold(lock, first, last, exclusive);
	range.l_type = F_UNLCK;
	if (random() % 4 || ofd) {
		fcntl(fd, ofd ? F_OFD_SETLK : F_SETLK, &range);
	} else {
		close(dup(fd)); /* any close of the file drops the process's locks */
	}
}

int main(int argc, char **argv)
{
	int locks, fd, files[64];
	int64_t end;

	if (argc != 6)
		return 1;
	locks = atoi(argv[4]);
	fd = open(argv[1], O_RDWR | O_CREAT | O_CLOEXEC, 0666);
	if (fd < 0 || locks < 1 || locks > 64 || ftruncate(fd, (off_t)(sizeof(*table) * (size_t)locks * BYTES * 2)))
		return 1;
	table = mmap(NULL, sizeof(*table) * (size_t)locks * BYTES * 2, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (table == MAP_FAILED)
		return 1;
	srandom((unsigned)atoi(argv[3]));
	for (int i = 0; i < locks; i++) {
		char name[32];

		snprintf(name, sizeof(name), "torture.%d", i);
		files[i] = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
		if (files[i] < 0)
			return 1;
	}
	for (end = now_ms() + atoi(argv[2]) * 1000; now_ms() < end;) {
		int lock = (int)(random() % locks);
		bool flock_kind = argv[5][0] == 'f' || (argv[5][0] == 'm' && random() % 2);

		/* flock and records don't exclude each other: they have counters of their own. */
		if (flock_kind)
			by_flock(files[lock], lock);
		else
			by_record(files[lock], lock + locks, argv[5][0] == 'o');
	}
	printf("%lu locks, %lu refused\n", taken, refused);
	return 0;
}
