/*
 * tests/probes/forker.c - forks while its threads lock; the children lock, close everything and leave
 *
 *     forker DIRECTORY FORKS
 *
 * Four threads lock and unlock thread.0 to thread.3 in DIRECTORY without pause, two by flock and two by F_OFD_SETLKW.
 * The main thread forks FORKS times; each child opens and locks child.lock, unlocks it, closes everything from 3 on and
 * leaves by _exit.  Each child has 5 s.
 * Prints "children N threads alive"; exit status 1 when a child failed or stood still, or a thread did.
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define THREADS 4

static atomic_long rounds[THREADS];
static atomic_bool stop;

static int set_lock(int fd, int by_flock, short type)
{
	struct flock range = {.l_type = type, .l_whence = SEEK_SET};

	if (by_flock)
		return flock(fd, type == F_UNLCK ? LOCK_UN : LOCK_EX);
	return fcntl(fd, F_OFD_SETLKW, &range);
}

static void *thread_main(void *argument)
{
	long number = (long)argument;
	char name[32];
	int fd;

	snprintf(name, sizeof(name), "thread.%ld", number);
	fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
	while (!stop) {
		if (set_lock(fd, number < 2, F_WRLCK) != 0 || set_lock(fd, number < 2, F_UNLCK) != 0) {
			perror("forker: thread");
			exit(1);
		}
		atomic_fetch_add(&rounds[number], 1);
	}
	return NULL;
}

static void child_main(void)
{
	int fd = open("child.lock", O_RDWR | O_CREAT, 0666);

	if (fd < 0 || flock(fd, LOCK_EX) != 0)
		_exit(1);
	if (flock(fd, LOCK_UN) != 0)
		_exit(2);
	closefrom(3);
	_exit(0);
}

/* Returns 0, or what the child's status was, or -1 when it stood still. */
static int child_wait(pid_t pid)
{
	int status;

	for (int tries = 0; tries < 5000; tries++) {
		if (waitpid(pid, &status, WNOHANG) == pid)
			return status;
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	}
	kill(pid, SIGKILL);
	return -1;
}

int main(int argc, char **argv)
{
	pthread_t threads[THREADS];
	long before;
	int forks, status;

	if (argc != 3 || chdir(argv[1]) != 0)
		return 64;
	forks = atoi(argv[2]);
	for (long i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, thread_main, (void *)i);
	for (int i = 0; i < forks; i++) {
		pid_t pid = fork();

		if (pid == 0)
			child_main();
		status = child_wait(pid);
		if (status != 0) {
			printf("child %d: status %#x\n", i, (unsigned)status);
			return 1;
		}
	}
	for (int i = 0; i < THREADS; i++) {
		before = rounds[i];
		for (int tries = 0; rounds[i] == before; tries++) {
			if (tries == 5000) {
				printf("thread %d stands still\n", i);
				return 1;
			}
			nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
		}
	}
	stop = true;
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	printf("children %d threads alive\n", forks);
	return 0;
}
