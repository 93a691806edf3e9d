/*
 * tests/probes/errno.c - is errno what it should be at the start, after success, and after failure?
 *
 *     errno FILE BUSY      FILE can be locked; BUSY is flocked exclusively by somebody else
 *
 * Prints one line for each step: "what: errno".  Success must leave the 7 that was there before.
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <unistd.h>

/* Keeps errno over the printing. */
static void say(const char *what, int result)
{
	int saved = errno;

	printf("%s: %s %d\n", what, result < 0 ? "fails" : "succeeds", saved);
	errno = 7;
}

int main(int argc, char **argv)
{
	struct flock write_lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	struct flock asked = write_lock, unlocked = {.l_type = F_UNLCK, .l_whence = SEEK_SET};
	int fd, busy;

	say("start", 0);
	if (argc != 3)
		return 64;
	fd = open(argv[1], O_RDWR | O_CREAT, 0666);
	busy = open(argv[2], O_RDWR | O_CREAT, 0666);
	errno = 7;
	say("flock ex", flock(fd, LOCK_EX));
	say("flock sh", flock(fd, LOCK_SH));
	say("flock un", flock(fd, LOCK_UN));
	say("setlk", fcntl(fd, F_SETLK, &write_lock));
	say("setlkw", fcntl(fd, F_SETLKW, &write_lock));
	say("getlk", fcntl(fd, F_GETLK, &asked));
	say("setlk un", fcntl(fd, F_SETLK, &unlocked));
	say("ofd setlk", fcntl(fd, F_OFD_SETLK, &write_lock));
	say("ofd setlk un", fcntl(fd, F_OFD_SETLK, &unlocked));
	say("lockf", lockf(fd, F_LOCK, 0));
	say("lockf un", lockf(fd, F_ULOCK, 0));
	say("getfd", fcntl(fd, F_GETFD));
	say("busy flock", flock(busy, LOCK_EX | LOCK_NB));
	say("bad descriptor flock", flock(999, LOCK_EX));
	say("bad descriptor setlk", fcntl(999, F_SETLK, &write_lock));
	say("bad descriptor getfd", fcntl(999, F_GETFD));
	say("bad descriptor lockf", lockf(999, F_LOCK, 0));
	say("bad operation", flock(fd, 64));
	say("close", close(fd));
	return 0;
}
