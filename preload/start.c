/*
 * preload/start.c - start a keeper from inside a program that must not notice; see start.h
 *
 * Answers for: see start.h.
 * Does not:    use fork (it runs the program's atfork handlers) or posix_spawn (its child is the program's to wait
 *              for).
 * Threads:     see start.h.  The two children share the program's memory while the calling thread is suspended
 *              (CLONE_VFORK): they touch nothing but struct zkf_start and their own stacks.
 * Specification: see start.h.
 * SPDX-License-Identifier: Apache-2.0
 *
 *     program                 child                       grandchild
 *     clone, suspended        setsid
 *                             clone, suspended            descriptors, signals, execve zkflockd
 *                             _exit                       writes "\n" or why not, goes on as the keeper
 *     wait for the child
 *     read the pipe
 *
 * Both exit signals are 0: no SIGCHLD, and a wait(2) of the program's own does not see the child.
 */
#define _GNU_SOURCE
#include "start.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "log.h"
#include "real.h"

#define READY_FD 3
#define STACK_BYTES 16384
#define ENVIRONMENT_MAX 5
#define VARIABLE_BYTES (PATH_MAX + 32)
#define SIGNAL_COUNT 64

/* All that a start needs, in one mapping of its own: the caller may be on a small stack. */
struct zkf_start {
	char binary[PATH_MAX + sizeof("/zkflockd")];
	char variables[ENVIRONMENT_MAX][VARIABLE_BYTES];
	char *environment[ENVIRONMENT_MAX + 1];
	size_t environment_count;
	int ready_read, ready_write; /* the pipe */
	int error;                   /* written by a child: a negative errno */
	char text[ZKF_TEXT_BYTES];   /* what the keeper says */
	char maps[PATH_MAX + 256];   /* a window on /proc/self/maps */
	_Alignas(16) char child_stack[STACK_BYTES];
	_Alignas(16) char grandchild_stack[STACK_BYTES];
};

static void add_variable(struct zkf_start *start, const char *name, const char *value)
{
	char *variable = start->variables[start->environment_count];

	if (!value || strlen(name) + strlen(value) + sizeof("=") > VARIABLE_BYTES)
		return;
	strcpy(stpcpy(stpcpy(variable, name), "="), value);
	start->environment[start->environment_count++] = variable;
}

/* Never LD_PRELOAD: the keeper's own locks are the kernel's. */
static void make_environment(struct zkf_start *start, const struct zkf_settings *settings, const char *directory)
{
	add_variable(start, "PATH", secure_getenv("PATH"));
	add_variable(start, "ZKFLOCK_CONF", settings->file);
	add_variable(start, "ZKFLOCK_RUNTIME_DIR", directory);
	add_variable(start, "ZKFLOCK_LOG", secure_getenv("ZKFLOCK_LOG"));
	if (*settings->xdg_runtime_dir)
		add_variable(start, "XDG_RUNTIME_DIR", settings->xdg_runtime_dir);
}

static uintptr_t parse_hex(const char **text)
{
	uintptr_t value = 0;

	for (;; (*text)++) {
		char c = **text;

		if (c >= '0' && c <= '9')
			value = value << 4 | (uintptr_t)(c - '0');
		else if (c >= 'a' && c <= 'f')
			value = value << 4 | (uintptr_t)(c - 'a' + 10);
		else
			return value;
	}
}

/* The path in a line "start-end perms offset dev inode   /path" of maps, if `address` is in it. */
static char *path_in_line(char *line, uintptr_t address)
{
	const char *text = line;
	uintptr_t from = parse_hex(&text), to;

	text++;
	to = parse_hex(&text);
	return address >= from && address < to ? strchr(line, '/') : NULL;
}

/* Look at the whole lines of a filled window; returns the bytes they took, *path set when found. */
static size_t scan_lines(char *window, uintptr_t address, char **path)
{
	char *line = window, *newline;

	while (!*path && (newline = strchr(line, '\n'))) {
		*newline = '\0';
		*path = path_in_line(line, address);
		line = newline + 1;
	}
	return (size_t)(line - window);
}

/*
 * Where this very library lies, as the kernel tells: dladdr takes the loader's lock, which whoever our caller has
 * interrupted may hold.  The answer is a path in `start->maps`, or NULL.
 */
static char *own_path(struct zkf_start *start)
{
	const size_t capacity = sizeof(start->maps) - 1;
	size_t len = 0;
	char *path = NULL;
	int fd = zkf_real_open("/proc/self/maps", O_RDONLY);

	if (fd < 0)
		return NULL;
	for (;;) {
		ssize_t got = zkf_real_read(fd, start->maps + len, capacity - len);
		size_t taken;

		if (got == -EINTR)
			continue;
		if (got <= 0)
			break;
		len += (size_t)got;
		start->maps[len] = '\0';
		taken = scan_lines(start->maps, (uintptr_t)&own_path, &path);
		if (path)
			break;
		memmove(start->maps, start->maps + taken, len - taken);
		len -= taken;
	}
	zkf_real_close(fd);
	return path;
}

/* The keeper beside the library, as in a build directory; else where it was installed. */
static void find_binary(struct zkf_start *start)
{
	char *path = own_path(start);

	if (path && strlen(path) < PATH_MAX) {
		*strrchr(path, '/') = '\0';
		strcpy(stpcpy(start->binary, path), "/zkflockd");
		if (!faccessat(AT_FDCWD, start->binary, X_OK, 0))
			return;
	}
	strcpy(start->binary, ZKF_SBINDIR "/zkflockd");
}

/* Without close_range(2) (before Linux 5.9, or a filter that does not know it): one by one. */
static void close_from(unsigned first)
{
	const unsigned sane_max = 65536;
	struct rlimit limit;
	unsigned fd, end;

	if (!syscall(SYS_close_range, first, ~0U, 0))
		return;
	end = getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur > sane_max ? sane_max : (unsigned)limit.rlim_cur;
	for (fd = first; fd < end; fd++)
		zkf_real_close((int)fd);
}

static int arrange_descriptors(const struct zkf_start *start)
{
	long null = syscall(SYS_openat, AT_FDCWD, "/dev/null", O_RDWR, 0);
	int fd;

	if (null < 0)
		return -errno;
	for (fd = 0; fd < READY_FD; fd++)
		if (fd != null && syscall(SYS_dup3, null, fd, 0) < 0)
			return -errno;
	/* dup3 clears close-on-exec, but refuses to copy a descriptor on itself. */
	if (start->ready_write == READY_FD)
		zkf_real_fcntl(READY_FD, F_SETFD, 0);
	else if (syscall(SYS_dup3, start->ready_write, READY_FD, 0) < 0)
		return -errno;
	close_from(READY_FD + 1);
	return 0;
}

/* A handler would run in the program's memory, and an ignored signal would stay ignored in the keeper. */
static void reset_signals(void)
{
	struct sigaction action = {.sa_handler = SIG_DFL};
	const uint64_t none = 0;
	int signal;

	for (signal = 1; signal <= SIGNAL_COUNT; signal++)
		sigaction(signal, &action, NULL);
	syscall(SYS_rt_sigprocmask, SIG_SETMASK, &none, NULL, sizeof(none));
}

static int run_grandchild(void *arg)
{
	char name[] = "zkflockd", on_demand[] = "--on-demand", ready[] = "--ready-fd=3";
	char *const argv[] = {name, on_demand, ready, NULL};
	struct zkf_start *start = arg;

	start->error = arrange_descriptors(start);
	if (start->error)
		return 1;
	reset_signals();
	/* Not to hold a file system busy; a keeper that can't go there goes on where it is. */
	syscall(SYS_chdir, "/");
	syscall(SYS_execve, start->binary, argv, start->environment);
	start->error = -errno;
	return 1;
}

static int run_child(void *arg)
{
	struct zkf_start *start = arg;

	syscall(SYS_setsid);
	if (clone(run_grandchild, start->grandchild_stack + STACK_BYTES, CLONE_VM | CLONE_VFORK, start) < 0)
		start->error = -errno;
	return 0;
}

/*
 * All signals are held back, libc's own two included: a handler of the program must not run in a child that shares
 * its memory.
 */
static int spawn(struct zkf_start *start)
{
	const uint64_t all = ~(uint64_t)0;
	uint64_t before = 0;
	int pid;

	syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, &before, sizeof(all));
	pid = clone(run_child, start->child_stack + STACK_BYTES, CLONE_VM | CLONE_VFORK, start);
	if (pid < 0)
		start->error = -errno;
	else
		while (syscall(SYS_wait4, pid, NULL, __WCLONE, NULL) < 0 && errno == EINTR)
			;
	syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before, NULL, sizeof(before));
	return start->error;
}

static int make_pipe(struct zkf_start *start)
{
	int ends[2];

	if (syscall(SYS_pipe2, ends, O_CLOEXEC))
		return -errno;
	start->ready_read = zkf_real_raise(ends[0]);
	start->ready_write = zkf_real_raise(ends[1]);
	if (start->ready_read >= 0 && start->ready_write >= 0)
		return 0;
	if (start->ready_read >= 0)
		zkf_real_close(start->ready_read);
	if (start->ready_write >= 0)
		zkf_real_close(start->ready_write);
	return -EMFILE;
}

static int await_byte(int fd, const struct zkf_patience *patience)
{
	while (patience->deadline_ns) {
		int64_t left_ns = patience->deadline_ns - zkf_real_now_ns();
		int ready = left_ns > 0 ? zkf_real_poll_in(fd, left_ns) : 0;

		if (ready > 0)
			return 0;
		if (ready != -EINTR)
			return ready ? ready : -ETIMEDOUT;
	}
	return 0;
}

/* Read the keeper's line: 0 for an empty one; else -ENOLCK with the text, which is empty if it died without a word. */
static int read_ready(struct zkf_start *start, const struct zkf_patience *patience)
{
	size_t len = 0;

	while (len < sizeof(start->text) - 1) {
		int result = await_byte(start->ready_read, patience);
		ssize_t got;

		if (result)
			return result;
		got = zkf_real_read(start->ready_read, start->text + len, sizeof(start->text) - 1 - len);
		if (got == -EINTR && !patience->deadline_ns)
			return -EINTR;
		if (got == -EINTR)
			continue;
		if (got <= 0)
			break;
		if (!len && start->text[0] == '\n')
			return 0;
		len += (size_t)got;
		if (start->text[len - 1] == '\n') {
			len--;
			break;
		}
	}
	start->text[len] = '\0';
	return -ENOLCK;
}

/* start  NULL: there was not even memory to begin */
static void log_failure(const struct zkf_start *start, const char *directory, int error)
{
	struct zkf_line line;

	if (!zkf_log_begin(&line, ZKF_LOG_ERROR, "keeper start="))
		return;
	zkf_log_string(&line, start ? start->binary : "");
	zkf_log_string(&line, " directory=");
	zkf_log_string(&line, directory);
	if (error != -ENOLCK) {
		zkf_log_string(&line, " error=");
		zkf_log_errno(&line, error);
	} else if (start) {
		zkf_log_string(&line, ": ");
		zkf_log_string(&line, *start->text ? start->text : "it ended without a word");
	}
	zkf_log_end(&line);
}

static int start_and_wait(struct zkf_start *start, const struct zkf_patience *patience)
{
	int result = make_pipe(start);

	if (result)
		return result;
	result = spawn(start);
	zkf_real_close(start->ready_write);
	if (!result)
		result = read_ready(start, patience);
	zkf_real_close(start->ready_read);
	return result;
}

int zkf_start_keeper(const struct zkf_settings *settings, const char *directory, const struct zkf_patience *patience)
{
	int result;
	struct zkf_start *start =
		mmap(NULL, sizeof(*start), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);

	if (start == MAP_FAILED) {
		log_failure(NULL, directory, -errno);
		return -ENOLCK;
	}
	find_binary(start);
	make_environment(start, settings, directory);
	result = start_and_wait(start, patience);
	if (result && result != -EINTR && result != -ETIMEDOUT) {
		log_failure(start, directory, result);
		result = -ENOLCK;
	}
	munmap(start, sizeof(*start));
	return result;
}
