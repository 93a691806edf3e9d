/*
 * tests/probes/diffworker.c - the hands of tests/differential: makes single lock calls and says exactly what came back
 *
 *     diffworker SOCKET NAME      connects to SOCKET (SOCK_SEQPACKET), says "hello NAME PID SLOTS", then obeys
 *
 * Answers for: one packet, one command, one reply.
 * Does not:    judge, wait, or try again; that is the driver's.
 * Threads:     none.  A forked child and an exec'd image each connect anew.
 * Specification: flock(2), fcntl(2), lockf(3); the driver compares what it sees here with the kernel's own replies.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Descriptors are called by slots 0 to 7; an empty slot is descriptor -1.
 *
 *     open SLOT r|w|rw|path FILE     dup SLOT NEW (into a used slot: dup2)     close SLOT     cloexec SLOT 0|1
 *     seek SLOT POSITION             send SLOT (the reply carries it)          recv SLOT (the command carries it)
 *     flock SLOT OPERATION           lockf SLOT COMMAND LEN
 *     fcntl|fcntl64 SLOT COMMAND TYPE WHENCE START LEN PID       (COMMAND, TYPE, WHENCE as numbers)
 *     fork NAME     exec     exit
 *
 * Replies: "ok", "ok VALUE...", or an errno's name.  A success that has changed errno says so: programs look at errno
 * after a success, too (strtol, readdir), and the kernel never touches it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define SLOTS 8
#define WORDS_MAX 9
#define LINE_BYTES 512
#define CONTROL_FD 200     /* the files under test get the lowest numbers, as in an ordinary program */
#define ERRNO_BEFORE EXDEV /* no lock call gives it */

static int slots[SLOTS];
static const char *socket_path;
static char *own_name;
static int control_fd = -1;

static void reply(int passed_fd, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void reply(int passed_fd, const char *format, ...)
{
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr aligned;
	} control = {.bytes = {0}};
	char line[LINE_BYTES];
	struct iovec iov = {.iov_base = line};
	struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
	struct cmsghdr *header;
	va_list args;

	va_start(args, format);
	iov.iov_len = (size_t)vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	if (passed_fd >= 0) {
		message.msg_control = control.bytes;
		message.msg_controllen = sizeof(control.bytes);
		header = CMSG_FIRSTHDR(&message);
		header->cmsg_level = SOL_SOCKET;
		header->cmsg_type = SCM_RIGHTS;
		header->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(header), &passed_fd, sizeof(int));
	}
	if (sendmsg(control_fd, &message, MSG_NOSIGNAL) < 0)
		_exit(70);
}

static void reply_error(void)
{
	reply(-1, "%s", strerrorname_np(errno));
}

/* The reply of a call that gives nothing but success; errno was ERRNO_BEFORE before it. */
static void reply_result(int result)
{
	if (result < 0)
		reply_error();
	else if (errno != ERRNO_BEFORE)
		reply(-1, "ok, errno became %s", strerrorname_np(errno));
	else
		reply(-1, "ok");
}

static void reply_value(long long value)
{
	if (value < 0)
		reply_error();
	else
		reply(-1, "ok %lld", value);
}

/* Connects, and says who we are and which slots are open: after exec the driver looks at the latter. */
static void say_hello(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	char list[SLOTS * 4] = "", *end = list;
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	strncpy(address.sun_path, socket_path, sizeof(address.sun_path) - 1);
	if (fd < 0 || connect(fd, (const struct sockaddr *)&address, sizeof(address)) < 0)
		_exit(71);
	control_fd = fcntl(fd, F_DUPFD_CLOEXEC, CONTROL_FD);
	close(fd);
	for (int i = 0; i < SLOTS; i++)
		if (slots[i] >= 0)
			end += sprintf(end, ":%d", i);
	reply(-1, "hello %s %d %s", own_name, (int)getpid(), list);
}

static int receive(char *line, int *passed_fd)
{
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr aligned;
	} control;
	struct iovec iov = {.iov_base = line, .iov_len = LINE_BYTES - 1};
	struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.bytes};
	struct cmsghdr *header;
	ssize_t bytes;

	do {
		message.msg_controllen = sizeof(control.bytes);
		bytes = recvmsg(control_fd, &message, 0);
	} while (bytes < 0 && errno == EINTR);
	if (bytes <= 0)
		return 0;
	line[bytes] = '\0';
	header = CMSG_FIRSTHDR(&message);
	if (header && header->cmsg_type == SCM_RIGHTS)
		memcpy(passed_fd, CMSG_DATA(header), sizeof(int));
	return 1;
}

static int slot_of(const char *word)
{
	return atoi(word) & (SLOTS - 1);
}

static void run_open(char **word)
{
	int *slot = &slots[slot_of(word[1])];
	int flags = strcmp(word[2], "r") == 0    ? O_RDONLY
	          : strcmp(word[2], "w") == 0    ? O_WRONLY
	          : strcmp(word[2], "path") == 0 ? O_PATH
	                                         : O_RDWR;

	if (*slot >= 0)
		close(*slot);
	*slot = open(word[3], flags);
	reply_value(*slot);
}

static void run_dup(char **word)
{
	int *from = &slots[slot_of(word[1])], *to = &slots[slot_of(word[2])];

	if (*from >= 0 && *to >= 0)
		reply_value(dup2(*from, *to));
	else if (*from >= 0)
		reply_value(*to = dup(*from));
	else
		reply_value(dup(*from));
}

static void run_close(char **word)
{
	int *slot = &slots[slot_of(word[1])];
	int result = close(*slot);

	*slot = -1;
	reply_result(result);
}

static void run_fcntl(char **word)
{
	struct flock64 range = {.l_type = (short)atoi(word[3]), .l_whence = (short)atoi(word[4])};
	int fd = slots[slot_of(word[1])], command = atoi(word[2]), result;

	range.l_start = atoll(word[5]);
	range.l_len = atoll(word[6]);
	range.l_pid = atoi(word[7]);
	errno = ERRNO_BEFORE;
	if (strcmp(word[0], "fcntl64") == 0)
		result = fcntl64(fd, command, &range);
	else
		result = fcntl(fd, command, &range);
	if (result < 0 || errno != ERRNO_BEFORE || (command != F_GETLK && command != F_OFD_GETLK))
		reply_result(result);
	else
		reply(-1, "ok %d %d %lld %lld %d", range.l_type, range.l_whence, (long long)range.l_start,
		      (long long)range.l_len, (int)range.l_pid);
}

static void run_fork(char **word)
{
	pid_t pid = fork();

	if (pid != 0) {
		reply_result(pid < 0 ? -1 : 0);
		return;
	}
	close(control_fd);
	own_name = strdup(word[1]);
	say_hello();
}

static void run_exec(void)
{
	char list[SLOTS * 12] = "", *end = list;
	char *args[] = {strdup("diffworker"), strdup(socket_path), own_name, list, NULL};

	for (int i = 0; i < SLOTS; i++)
		end += sprintf(end, "%d ", slots[i]);
	execv("/proc/self/exe", args);
	reply_error();
}

static void run(char **word, int count, int passed_fd)
{
	int fd = count > 1 ? slots[slot_of(word[1])] : -1;

	errno = ERRNO_BEFORE;
	if (strcmp(word[0], "exit") == 0)
		exit(0);
	else if (strcmp(word[0], "exec") == 0)
		run_exec();
	else if (strcmp(word[0], "fork") == 0 && count == 2)
		run_fork(word);
	else if (strcmp(word[0], "close") == 0 && count == 2)
		run_close(word);
	else if (strcmp(word[0], "send") == 0 && count == 2)
		reply(fd, fd < 0 ? "EBADF" : "ok");
	else if (strcmp(word[0], "recv") == 0 && count == 2)
		reply_value(slots[slot_of(word[1])] = passed_fd);
	else if (strcmp(word[0], "cloexec") == 0 && count == 3)
		reply_result(fcntl(fd, F_SETFD, atoi(word[2]) ? FD_CLOEXEC : 0));
	else if (strcmp(word[0], "seek") == 0 && count == 3)
		reply_value(lseek(fd, atoll(word[2]), SEEK_SET));
	else if (strcmp(word[0], "dup") == 0 && count == 3)
		run_dup(word);
	else if (strcmp(word[0], "open") == 0 && count == 4)
		run_open(word);
	else if (strcmp(word[0], "flock") == 0 && count == 3)
		reply_result(flock(fd, atoi(word[2])));
	else if (strcmp(word[0], "lockf") == 0 && count == 4)
		reply_result(lockf(fd, atoi(word[2]), atoll(word[3])));
	else if (strncmp(word[0], "fcntl", 5) == 0 && count == 8)
		run_fcntl(word);
	else
		reply(-1, "what?");
}

static void on_usr1(int signal_number)
{
	(void)signal_number;
}

int main(int argc, char **argv)
{
	struct sigaction interrupt = {.sa_flags = 0}; /* no SA_RESTART: it ends a lock call with EINTR */
	char line[LINE_BYTES], *word[WORDS_MAX + 1], *rest, *next;
	int count, passed_fd;

	if (argc < 3)
		return 64;
	socket_path = argv[1];
	own_name = argv[2];
	interrupt.sa_handler = on_usr1;
	sigaction(SIGUSR1, &interrupt, NULL);
	signal(SIGCHLD, SIG_IGN); /* nobody waits for children: they vanish */
	next = argc > 3 ? argv[3] : NULL;
	for (int i = 0; i < SLOTS; i++) {
		slots[i] = next ? (int)strtol(next, &next, 10) : -1;
		if (slots[i] >= 0 && fcntl(slots[i], F_GETFD) < 0)
			slots[i] = -1; /* it was close-on-exec */
	}
	say_hello();
	for (;;) {
		passed_fd = -1;
		if (!receive(line, &passed_fd))
			return 0;
		count = 0;
		for (next = strtok_r(line, " ", &rest); next && count < WORDS_MAX; next = strtok_r(NULL, " ", &rest))
			word[count++] = next;
		if (count)
			run(word, count, passed_fd);
	}
}
