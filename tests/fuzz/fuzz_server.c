/*
 * tests/fuzz/fuzz_server.c - anything on the keeper's socket, with any descriptors
 *
 * Input: packets, each a byte for the descriptors that go with it, a byte for its length, the bytes.  A byte of 0xff for the
 * descriptors hangs up and connects again.  A length from 0xf0 on is that of the longest request, filled up with zeros.  In the
 * place of the magic number is this version's, if the first byte of it is not 0xff.
 * It is the keeper's own server.c, loop, locks and files, without a session: what is asked for waits, is refused, or is granted
 * as local, by the rule.  Must hold: nothing crashes, and no descriptor is left.
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include "keeper/loop.c"
#include "keeper/server.c"

#include <dirent.h>
#include <signal.h>
#include <stdarg.h>

#include "fuzz.h"
#include "keeper/publish.h"
#include "keeper/session.h"
#include "keeper/state.h"
#include "keeper/waiting.h"

#define PASSED 8

/* Made once. */
static char directory[64];
static int passed[PASSED]; /* what a program may pass */
static int runtime_fd = -1;

/* In the place of keeper/log.c: a line is made, so that its arguments are looked at, and forgotten. */
void zkf_log(enum zkf_log_level level, const char *format, ...)
{
	char line[1024];
	va_list arguments;

	(void)level;
	va_start(arguments, format);
	vsnprintf(line, sizeof(line), format, arguments);
	va_end(arguments);
}

static void remove_directory(void)
{
	char command[100];

	snprintf(command, sizeof(command), "rm -rf %s", directory);
	if (system(command))
		fputs("not removed\n", stderr);
}

static int open_in(const char *name, int flags)
{
	char path[128];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", directory, name);
	fd = open(path, flags | O_CREAT | O_CLOEXEC, 0600);
	MUST(fd >= 0);
	return fd;
}

static void write_config(void)
{
	char path[128];
	FILE *out;

	snprintf(path, sizeof(path), "%s/conf", directory);
	out = fopen(path, "w");
	MUST(out);
	fprintf(out,
	        "ensemble 127.0.0.1:1\nmap %s/local l/%%r unavailable=local\nmap %s/fail f/%%r unavailable=fail\n"
	        "map %s/wait w/%%r\nmap %s/group g unavailable=local\nmap %s/local/not -\n",
	        directory, directory, directory, directory, directory);
	fclose(out);
	setenv("ZKFLOCK_CONF", path, 1);
}

static void nothing(void)
{
}

static void start(void)
{
	static const struct zkf_session_events events = {nothing, nothing, nothing, nothing};
	static const char *const files[] = {"local", "fail", "wait", "group", "other"};
	char why[ZKF_RULES_WHY_BYTES];
	int ends[2];

	snprintf(directory, sizeof(directory), "/tmp/zkflock-fuzz.XXXXXX");
	MUST(mkdtemp(directory));
	atexit(remove_directory);
	runtime_fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	write_config();
	for (int i = 0; i < 5; i++)
		passed[i] = open_in(files[i], i == 2 ? O_RDONLY : O_RDWR);
	MUST(!pipe2(ends, O_CLOEXEC));
	passed[5] = ends[0];
	passed[6] = open(directory, O_PATH | O_CLOEXEC);
	passed[7] = runtime_fd;
	signal(SIGPIPE, SIG_IGN);
	zkf_waiting_init();
	MUST(!zkf_rules_init(why, sizeof(why)));
	zkf_state_init(runtime_fd);
	MUST(!zkf_loop_init());
	MUST(!zkf_session_init(zkf_rules_config(), &events));
	zkf_lock_init(1000);
	MUST(!zkf_publish_init(runtime_fd, 0600));
	MUST(!zkf_zk_init());
	MUST(!zkf_file_init());
	MUST(!zkf_server_init(runtime_fd, directory, -1, 0600, zkf_rules_current()));
}

static void packet_send(int to, const uint8_t *bytes, size_t size, uint8_t descriptors)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int) * PASSED)];
	} control = {.bytes = {0}};
	struct iovec part = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = size};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
	int count = descriptors >> 4 & 7;

	if (count) {
		struct cmsghdr *head = (struct cmsghdr *)(void *)&control;

		message.msg_control = &control;
		message.msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)count);
		head->cmsg_level = SOL_SOCKET;
		head->cmsg_type = SCM_RIGHTS;
		head->cmsg_len = CMSG_LEN(sizeof(int) * (size_t)count);
		for (int i = 0; i < count; i++)
			memcpy(CMSG_DATA(head) + (size_t)i * sizeof(int), &passed[(descriptors + i) % PASSED],
			       sizeof(int));
	}
	/* A conversation that was hung up on takes no more. */
	if (sendmsg(to, &message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		MUST(errno == EPIPE || errno == ECONNRESET || errno == EAGAIN || errno == ENOTCONN);
}

static void request_send(int to, const uint8_t *bytes, size_t size, bool longest, uint8_t descriptors)
{
	const uint32_t magic = ZKF_WIRE_MAGIC;
	union {
		struct zkf_break_request longest;
		uint8_t bytes[256];
	} packet = {.bytes = {0}};

	_Static_assert(sizeof(packet) == sizeof(struct zkf_break_request), "the longest of all");
	memcpy(&packet, bytes, size);
	if (size >= sizeof(magic) && packet.bytes[0] != 0xff)
		memcpy(&packet, &magic, sizeof(magic));
	packet_send(to, packet.bytes, longest ? sizeof(packet) : size, descriptors);
}

/* What the loop does, until nothing is left to do. */
static void turn(void)
{
	do {
		timers_fire();
		zkf_lock_step_dirty();
		batch_count = epoll_wait(epoll_fd, batch, EVENTS_AT_ONCE, 0);
		for (int i = 0; i < batch_count; i++) {
			struct zkf_source *source = batch[i].data.ptr;

			if (source)
				source->ready(source, batch[i].events);
		}
	} while (batch_count > 0);
	batch_count = 0;
}

static int converse(void)
{
	int ends[2];

	MUST(!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends));
	conversation_start(ends[1]);
	return ends[0];
}

/* The sanitizer talks to its symbolizer through pipes of its own, from whenever it has something to print. */
static bool is_somebody_elses(const char *name)
{
	struct stat pipe, ours;
	int fd = (int)strtol(name, NULL, 10);

	return !fstat(fd, &pipe) && S_ISFIFO(pipe.st_mode) && !fstat(passed[5], &ours) && pipe.st_ino != ours.st_ino;
}

static int open_count(void)
{
	struct dirent *entry;
	DIR *fds = opendir("/proc/self/fd");
	int count = 0;

	while ((entry = readdir(fds)) != NULL)
		count += !is_somebody_elses(entry->d_name);
	closedir(fds);
	return count;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static int before;
	int program;

	if (!directory[0]) {
		start();
		turn();
	}
	program = converse();
	for (size_t at = 0; at + 2 <= size;) {
		uint8_t descriptors = data[at], told = data[at + 1];
		size_t left = size - at - 2, bytes = told < left ? told : left;

		at += 2;
		if (descriptors == 0xff) {
			close(program);
			turn();
			program = converse();
			continue;
		}
		request_send(program, data + at, bytes, told >= 0xf0, descriptors);
		at += bytes;
		turn();
	}
	close(program);
	turn();
	if (!before) {
		zkf_state_files_restart(nothing, true); /* both lists are open from here on */
		zkf_state_promises_restart(nothing, true);
		before = open_count();
	}
	if (open_count() > before && system("ls -l /proc/$PPID/fd >&2") >= 0)
		MUST(!"a descriptor is left");
	MUST(!zkf_file_list() && !zkf_lock_list());
	return 0;
}
