/*
 * keeper/cloexec.c - socket() and pipe() that are closed on exec
 *
 * Answers for: libzookeeper's descriptors.  The packaged client makes its pipe and sockets without FD_CLOEXEC; a child
 *              would inherit the connection and keep it open after our death.  A definition in the executable takes
 *              precedence over libc's for the client library, shared or static.
 * Threads:     any.
 * SPDX-License-Identifier: Apache-2.0
 */
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

__attribute__((visibility("default"))) int socket(int domain, int type, int protocol)
{
	return (int)syscall(SYS_socket, domain, type | SOCK_CLOEXEC, protocol);
}

__attribute__((visibility("default"))) int pipe(int fds[2])
{
	return pipe2(fds, O_CLOEXEC);
}
