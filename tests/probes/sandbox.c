/*
 * tests/probes/sandbox.c - lock calls under a system call filter that kills
 *
 *     sandbox FILE
 *
 * Locks FILE once, then allows itself nothing but the lock calls and those two by which the library may look at a file
 * (fstat, readlink), and locks it in every way.  Prints "ok"; any other system call ends it with SIGSYS.
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ALLOW(number) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (number), 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

static int confine(void)
{
	struct sock_filter rules[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		ALLOW(SYS_read),
		ALLOW(SYS_write),
		ALLOW(SYS_close),
		ALLOW(SYS_fcntl),
		ALLOW(SYS_flock),
		ALLOW(SYS_exit_group),
		ALLOW(SYS_fstat),
		ALLOW(SYS_newfstatat), /* fstat, as glibc from 2.33 on calls it */
		ALLOW(SYS_readlink),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
	};
	struct sock_fprog program = {.len = sizeof(rules) / sizeof(rules[0]), .filter = rules};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
		return -1;
	return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

int main(int argc, char **argv)
{
	struct flock range = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	int fd;

	if (argc != 2)
		return 64;
	fd = open(argv[1], O_RDWR | O_CREAT, 0666);
	if (fd < 0 || flock(fd, LOCK_EX) != 0 || confine() != 0)
		return 65;
	if (flock(fd, LOCK_SH) != 0 || flock(fd, LOCK_UN) != 0 || fcntl(fd, F_SETLKW, &range) != 0)
		return 1;
	if (fcntl(fd, F_GETLK, &range) != 0 || fcntl(fd, F_GETFD) < 0 || lockf(fd, F_ULOCK, 0) != 0 || close(fd) != 0)
		return 2;
	if (write(STDOUT_FILENO, "ok\n", 3) != 3)
		return 3;
	_exit(0);
}
