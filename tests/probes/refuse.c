/*
 * tests/probes/refuse.c - run a program whose kernel refuses to lock files
 *
 *     refuse ERRNO PROGRAM [ARGUMENT...]
 *
 *     ERRNO  ENOLCK, ENOSYS, EOPNOTSUPP or a number, such as 524
 *
 * A system call filter answers flock(2) and fcntl(2)'s lock commands, F_OFD_* too, with that errno; so it does for all
 * that the program starts.  Everything else works.
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static int errno_of(const char *word)
{
	static const struct {
		const char *name;
		int number;
	} names[] = {{"ENOLCK", ENOLCK}, {"ENOSYS", ENOSYS}, {"EOPNOTSUPP", EOPNOTSUPP}};

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (strcmp(word, names[i].name) == 0)
			return names[i].number;
	return atoi(word);
}

int main(int argc, char **argv)
{
	static const int commands[] = {F_GETLK, F_SETLK, F_SETLKW, F_OFD_GETLK, F_OFD_SETLK, F_OFD_SETLKW};
	enum { COMMANDS = sizeof(commands) / sizeof(*commands) };
	struct sock_filter filter[5 + COMMANDS + 2], *at = filter;
	struct sock_fprog program = {.filter = filter};
	int error = argc > 2 ? errno_of(argv[1]) : 0;

	if (error <= 0)
		return 64;
	*at++ = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
	*at++ = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_flock, 3 + COMMANDS, 0);
	*at++ = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fcntl, 0, 1 + COMMANDS);
	*at++ = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1]));
	for (int i = 0; i < COMMANDS; i++)
		*at++ = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)commands[i],
		                                     (unsigned char)(COMMANDS - i), 0);
	*at++ = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	*at++ = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)error);
	program.len = (unsigned short)(at - filter);
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) {
		perror("refuse");
		return 77;
	}
	execvp(argv[2], argv + 2);
	perror(argv[2]);
	return 127;
}
