/*
 * tests/probes/crossing.c - one of two programs, on two hosts, that cross each other's way by every kind of lock
 *
 *     crossing SIDE STATEFILE SECONDS
 *
 *     SIDE       0 or 1; the other one runs with the other number
 *     STATEFILE  shared by both, outside of what is mapped
 *     SECONDS    within which all is done, else it says "hang"
 *     GRACE_MS   in the environment: so long two may have it, because a session is ended by force: the server knows it
 *                before the host that must stop its holder
 *
 * In the working directory: cross.lock (flock), cross.rec (records), ../g/one and ../g/two (files of one group).  They wait
 * for each other, try, convert, overtake, deadlock, and ask.  A call may fail with ENOLCK: then that side goes without.
 * Whoever has a lock says so in STATEFILE and looks whether the other one has it as well, and runs: one that is stopped or
 * dead has been dealt with.
 *
 * Prints "ok enolck N" (exit 0), or what is wrong (1), or "hang at STEP" (3).
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum resource { THE_LOCK, LOW, HIGH, REST, GROUP, RESOURCES };

struct state {
	atomic_int pid[2], step[2];
	atomic_int holds[2][RESOURCES]; /* 0, 1 shared, 2 exclusive */
};

static struct state *state;
static int me, you, failures, grace_ms;
static volatile sig_atomic_t step;

static void say_and_exit(int code, const char *what, int number)
{
	char line[120];
	int bytes = snprintf(line, sizeof(line), "%s %d at %d\n", what, number, (int)step);

	if (write(STDOUT_FILENO, line, (size_t)bytes) < 0)
		code = 2;
	_exit(code);
}

static void out_of_time(int number)
{
	(void)number;
	say_and_exit(3, "hang: side", me);
}

static void nap(long ms)
{
	nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL);
}

static bool other_runs(void)
{
	char path[40], line[256] = "";
	const char *at;
	int fd, pid = atomic_load(&state->pid[you]);

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	fd = pid ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	if (fd < 0)
		return !pid;
	if (read(fd, line, sizeof(line) - 1) < 0)
		line[0] = 0;
	close(fd);
	at = strrchr(line, ')');
	return at && !strchr("TtZXx", at[2]);
}

/* Both have come so far, or the other one has been dealt with. */
static void meet(void)
{
	step++;
	atomic_store(&state->step[me], step);
	while (atomic_load(&state->step[you]) < step && other_runs())
		nap(1);
}

/* Does the other one have it as well, and run? */
static bool both_have(enum resource resource, int mode)
{
	int other = atomic_load(&state->holds[you][resource]);

	return other && (other == 2 || mode == 2) && other_runs() && atomic_load(&state->holds[you][resource]) == other;
}

static void enter(enum resource resource, int mode)
{
	atomic_store(&state->holds[me][resource], mode);
	for (int ms = 0; both_have(resource, mode); ms++) {
		if (ms >= grace_ms)
			say_and_exit(1, "two holders of", resource);
		nap(1);
	}
}

static void leave(enum resource resource)
{
	atomic_store(&state->holds[me][resource], 0);
}

/* Did it succeed?  allowed: an errno beside ENOLCK that it may fail with. */
static bool succeeded(int result, int allowed)
{
	if (!result)
		return true;
	if (errno != ENOLCK && errno != allowed)
		say_and_exit(1, "wrong errno", errno);
	failures += errno == ENOLCK;
	return false;
}

static int record(int fd, int command, short type, off_t start, off_t bytes)
{
	struct flock range = {.l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = bytes};

	return fcntl(fd, command, &range);
}

static int open_file(const char *path)
{
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);

	if (fd < 0)
		say_and_exit(2, path, errno);
	return fd;
}

static void unlock(int fd, enum resource resource)
{
	leave(resource);
	flock(fd, LOCK_UN);
}

static void exclude_by_flock(void)
{
	int fd = open_file("cross.lock");

	if (me == 0 && succeeded(flock(fd, LOCK_EX), 0))
		enter(THE_LOCK, 2);
	meet();
	if (me == 1 && succeeded(flock(fd, LOCK_EX | LOCK_NB), EWOULDBLOCK))
		enter(THE_LOCK, 2);
	meet();
	if (me == 0) {
		nap(20);
		unlock(fd, THE_LOCK);
	} else if (succeeded(flock(fd, LOCK_EX), 0)) {
		enter(THE_LOCK, 2);
	}
	meet();
	close(fd);
	leave(THE_LOCK);
}

static void convert(void)
{
	int fd = open_file("cross.lock");
	bool have = false;

	if (me == 1 && (have = succeeded(flock(fd, LOCK_EX), 0)))
		enter(THE_LOCK, 2);
	meet();
	if (me == 0) {
		if (succeeded(flock(fd, LOCK_SH), 0))
			enter(THE_LOCK, 1);
	} else if (have) {
		nap(20);
		enter(THE_LOCK, 1);
		if (!succeeded(flock(fd, LOCK_SH), 0))
			unlock(fd, THE_LOCK);
	}
	meet();
	if (me == 1) {
		nap(20);
		unlock(fd, THE_LOCK);
	} else {
		leave(THE_LOCK); /* a conversion drops the old one first */
		if (succeeded(flock(fd, LOCK_EX), 0))
			enter(THE_LOCK, 2);
		unlock(fd, THE_LOCK);
	}
	close(fd);
	meet();
}

static void deadlock(void)
{
	enum resource mine = me ? HIGH : LOW, yours = me ? LOW : HIGH;
	int fd = open_file("cross.rec");

	if (succeeded(record(fd, F_SETLKW, F_WRLCK, me * 20, 10), 0))
		enter(mine, 2);
	meet();
	if (atomic_load(&state->holds[me][mine])) {
		nap(me * 10);
		if (succeeded(record(fd, F_SETLKW, F_WRLCK, you * 20, 10), EDEADLK))
			enter(yours, 2);
	}
	leave(LOW);
	leave(HIGH);
	record(fd, F_SETLK, F_UNLCK, 0, 0);
	close(fd);
	meet();
}

static bool overlooks_other(int fd)
{
	struct flock found = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 10};

	return succeeded(fcntl(fd, F_GETLK, &found), 0) && found.l_type == F_UNLCK &&
	       atomic_load(&state->holds[you][LOW]) && other_runs();
}

static void overtake(void)
{
	int fd = open_file("cross.rec");
	bool have = me == 0 && succeeded(record(fd, F_SETLKW, F_WRLCK, 0, 10), 0);

	if (have)
		enter(LOW, 2);
	meet();
	if (me == 0) {
		nap(30);
		/* Behind the other one's request for the whole, which waits for what this side has. */
		if (have && succeeded(record(fd, F_SETLKW, F_WRLCK, 20, 10), 0))
			enter(HIGH, 2);
		leave(LOW);
		leave(HIGH);
		record(fd, F_SETLK, F_UNLCK, 0, 0);
	} else if (succeeded(record(fd, F_SETLKW, F_WRLCK, 0, 0), 0)) {
		for (enum resource part = LOW; part <= REST; part++)
			enter(part, 2);
	}
	meet();
	for (int ms = 0; me == 0 && overlooks_other(fd); ms++) {
		if (ms >= grace_ms)
			say_and_exit(1, "F_GETLK does not see", LOW);
		nap(1);
	}
	meet();
	for (enum resource part = LOW; part <= REST; part++)
		leave(part);
	record(fd, F_SETLK, F_UNLCK, 0, 0);
	close(fd);
	meet();
}

static void share_a_group(void)
{
	int one = open_file("../g/one"), two = open_file("../g/two");

	if (me == 0 && succeeded(flock(one, LOCK_EX), 0))
		enter(GROUP, 2);
	meet();
	if (me == 1 && succeeded(flock(two, LOCK_EX | LOCK_NB), EWOULDBLOCK))
		enter(GROUP, 2);
	meet();
	if (me == 0) {
		nap(20);
		unlock(one, GROUP);
	} else if (succeeded(record(two, F_SETLKW, F_WRLCK, 0, 0), EDEADLK)) {
		enter(GROUP, 2);
		if (!succeeded(flock(one, LOCK_EX), 0)) /* the same thread's */
			failures++;
	}
	meet();
	leave(GROUP);
	close(one);
	close(two);
	meet();
}

int main(int argc, char **argv)
{
	const char *grace = getenv("GRACE_MS");
	int fd;

	if (argc != 4)
		return 64;
	me = atoi(argv[1]) != 0;
	you = !me;
	signal(SIGALRM, out_of_time);
	alarm((unsigned)atoi(argv[3]));
	grace_ms = grace ? atoi(grace) : 0;
	fd = open_file(argv[2]);
	if (ftruncate(fd, sizeof(*state)))
		return 2;
	state = mmap(NULL, sizeof(*state), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (state == MAP_FAILED)
		return 2;
	atomic_store(&state->pid[me], getpid());
	meet();
	exclude_by_flock();
	convert();
	overtake();
	deadlock();
	share_a_group();
	printf("ok enolck %d\n", failures);
	return 0;
}
