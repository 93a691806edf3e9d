/*
 * tests/probes/actor.c - a program that does what a test tells it, one call at a time
 *
 *     actor IN OUT        reads commands from the fifo IN, one a line, appends one answer line each to the file OUT
 *
 * Descriptors are called by slots, 0 to 15, or #NUMBER.  An answer is "ok", an errno's name, or what the command says.
 * A new actor answers "ready" first: only then does it hold the fifo open.
 *
 *     open SLOT r|w|rw|path|dir FILE     fopen SLOT FILE     fclose SLOT     close SLOT     dup SLOT NEW
 *     reopen SLOT NEW                    (by /proc/self/fd)  number SLOT     (answers the descriptor's number)
 *     closefrom N   closerange N   closeloop N               closes all descriptors from N on
 *     flock SLOT sh|ex|un|OPERATION [nb]
 *     setlk|setlkw|getlk|osetlk|osetlkw|ogetlk SLOT rd|wr|un START LEN      getlk answers "free" or "wr START LEN PID"
 *     lockf SLOT lock|tlock|ulock|test LEN                   seek SLOT POSITION
 *     fork IN OUT     the child becomes another actor        exec      this program anew, descriptors kept
 *     cloexec SLOT    alarm MS restart|norestart (the second: every MS, 0 ends it)
 *     unlink FILE     rename FROM TO     chdir DIR
 *     write SLOT TEXT   inode SLOT FILE (same|other: what FILE names now)      exit CODE
 *
 * A word before flock, setlk..., lockf says where the call is made:
 *
 *     signal ...   in a signal handler      vfork ...  in a vfork child     child ...  in a fork child that exits then
 *     thread ...   in another thread        cancel ... in another thread that is cancelled after 0.3 s: "canceled"
 *     again N ...  N times, ends with the first answer that is not "ok"
 *     t1 ... t4 ...  in a thread that stays (endthread N ends it), which answers by itself: the next command may follow
 *
 * Its own descriptors are numbers from 100 on, so that the tests meet the lowest ones as an ordinary program would.
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define SLOTS 16
#define WORDS_MAX 8
#define LINE_BYTES 4096

/* One lock call and its result: what signal handlers, children and threads get and give. */
struct call {
	enum { CALL_FLOCK, CALL_FCNTL, CALL_LOCKF } family;
	int fd, operation;
	struct flock range;
	off_t len;
	int result, error;
};

static int slots[SLOTS];
static FILE *streams[SLOTS];
/* Threads that stay: each reads its calls from a pipe. */
#define WORKERS 5
static struct {
	pthread_t thread;
	int pipe[2];
} workers[WORKERS];
static int in_fd = -1, out_fd = -1;
static const char *in_path, *out_path;
/* The call that a signal handler or another thread makes: written before it is told to, read after it is done. */
static struct call pending_call;

static void answer(const char *format, ...) __attribute__((format(printf, 1, 2)));

static void answer(const char *format, ...)
{
	va_list args;
	char line[LINE_BYTES];
	int bytes;

	va_start(args, format);
	bytes = vsnprintf(line, sizeof(line) - 1, format, args);
	va_end(args);
	line[bytes] = '\n';
	if (write(out_fd, line, (size_t)bytes + 1) != bytes + 1)
		_exit(70);
}

/* 524 has no name. */
static const char *name_of(int error)
{
	return strerrorname_np(error) ? strerrorname_np(error) : "unknown errno";
}

static void answer_result(int result)
{
	answer("%s", result < 0 ? name_of(errno) : "ok");
}

/* Opens the fifo for both directions, so that it never ends while we live. */
static void open_channels(void)
{
	int fd = open(in_path, O_RDWR | O_CLOEXEC);

	in_fd = fcntl(fd, F_DUPFD_CLOEXEC, 100);
	close(fd);
	fd = open(out_path, O_WRONLY | O_APPEND | O_CLOEXEC);
	out_fd = fcntl(fd, F_DUPFD_CLOEXEC, 100);
	close(fd);
	if (in_fd < 0 || out_fd < 0)
		_exit(71);
}

static void call_make(struct call *call)
{
	if (call->family == CALL_FLOCK)
		call->result = flock(call->fd, call->operation);
	else if (call->family == CALL_FCNTL)
		call->result = fcntl(call->fd, call->operation, &call->range);
	else
		call->result = lockf(call->fd, call->operation, call->len);
	call->error = errno;
}

static void call_answer(const struct call *call)
{
	bool asks = call->family == CALL_FCNTL && (call->operation == F_GETLK || call->operation == F_OFD_GETLK);

	if (call->result < 0)
		answer("%s", name_of(call->error));
	else if (!asks)
		answer("ok");
	else if (call->range.l_type == F_UNLCK)
		answer("free");
	else
		answer("%s %lld %lld %d", call->range.l_type == F_WRLCK ? "wr" : "rd", (long long)call->range.l_start,
		       (long long)call->range.l_len, (int)call->range.l_pid);
}

static int slot_of(const char *word)
{
	return word ? atoi(word) & (SLOTS - 1) : 0;
}

static int fd_of(const char *word)
{
	return word && word[0] == '#' ? atoi(word + 1) : slots[slot_of(word)];
}

static int flock_operation(const char *word, const char *option)
{
	int operation = word == NULL            ? 0
	              : strcmp(word, "sh") == 0 ? LOCK_SH
	              : strcmp(word, "ex") == 0 ? LOCK_EX
	              : strcmp(word, "un") == 0 ? LOCK_UN
	                                        : atoi(word);

	return option && strcmp(option, "nb") == 0 ? operation | LOCK_NB : operation;
}

/* Fills *call from the words of a command; false when they are no lock call. */
static bool call_parse(struct call *call, char **word)
{
	static const struct {
		const char *name;
		int operation;
	} fcntls[] = {{"setlk", F_SETLK},      {"setlkw", F_SETLKW},      {"getlk", F_GETLK},
	              {"osetlk", F_OFD_SETLK}, {"osetlkw", F_OFD_SETLKW}, {"ogetlk", F_OFD_GETLK}},
	  lockfs[] = {{"lock", F_LOCK}, {"tlock", F_TLOCK}, {"ulock", F_ULOCK}, {"test", F_TEST}};

	memset(call, 0, sizeof(*call));
	if (!word[0] || !word[1] || !word[2])
		return false;
	call->fd = fd_of(word[1]);
	if (strcmp(word[0], "flock") == 0) {
		call->family = CALL_FLOCK;
		call->operation = flock_operation(word[2], word[3]);
		return true;
	}
	if (strcmp(word[0], "lockf") == 0 && word[3]) {
		call->family = CALL_LOCKF;
		call->len = atoll(word[3]);
		for (size_t i = 0; i < sizeof(lockfs) / sizeof(*lockfs); i++)
			if (strcmp(word[2], lockfs[i].name) == 0)
				call->operation = lockfs[i].operation;
		return true;
	}
	if (!word[3] || !word[4])
		return false;
	call->family = CALL_FCNTL;
	call->range.l_type = (short)(word[2][0] == 'r' ? F_RDLCK : word[2][0] == 'w' ? F_WRLCK : F_UNLCK);
	call->range.l_whence = SEEK_SET;
	call->range.l_start = atoll(word[3]);
	call->range.l_len = atoll(word[4]);
	for (size_t i = 0; i < sizeof(fcntls) / sizeof(*fcntls); i++) {
		if (strcmp(word[0], fcntls[i].name) != 0)
			continue;
		call->operation = fcntls[i].operation;
		return true;
	}
	return false;
}

static void on_usr1(int signal_number)
{
	(void)signal_number;
	call_make(&pending_call);
}

static void on_alarm(int signal_number)
{
	(void)signal_number;
}

static void set_handler(int signal_number, void (*handler)(int), int flags)
{
	struct sigaction action = {.sa_flags = flags};

	action.sa_handler = handler;
	sigaction(signal_number, &action, NULL);
}

static void *thread_main(void *unused)
{
	call_make(&pending_call);
	return unused;
}

static void *worker_main(void *number)
{
	int from = workers[(intptr_t)number].pipe[0];
	struct call call;

	while (read(from, &call, sizeof(call)) == sizeof(call)) {
		call_make(&call);
		call_answer(&call);
	}
	return NULL;
}

static void run_in_worker(int number)
{
	if (!workers[number].pipe[1]) {
		int ends[2];

		if (pipe2(ends, O_CLOEXEC) < 0)
			_exit(72);
		for (int i = 0; i < 2; i++) {
			workers[number].pipe[i] = fcntl(ends[i], F_DUPFD_CLOEXEC, 100);
			close(ends[i]);
		}
		pthread_create(&workers[number].thread, NULL, worker_main, (void *)(intptr_t)number);
	}
	if (write(workers[number].pipe[1], &pending_call, sizeof(pending_call)) != sizeof(pending_call))
		_exit(73);
}

static void end_worker(int number)
{
	close(workers[number].pipe[1]);
	workers[number].pipe[1] = 0;
	pthread_join(workers[number].thread, NULL);
	close(workers[number].pipe[0]);
	answer("ok");
}

static void run_in_thread(bool cancel)
{
	pthread_t thread;
	void *end = NULL;

	pthread_create(&thread, NULL, thread_main, NULL);
	if (cancel) {
		usleep(300000);
		pthread_cancel(thread);
	}
	pthread_join(thread, &end);
	if (end == PTHREAD_CANCELED)
		answer("canceled");
	else
		call_answer(&pending_call);
}

/* A child's answer is its exit status: 0 or an errno. */
static void run_in_child(bool by_vfork)
{
	pid_t pid;
	int status;

	if (by_vfork)
		pid = vfork();
	else
		pid = fork();
	if (pid == 0) {
		call_make(&pending_call);
		_exit(pending_call.result < 0 ? pending_call.error : 0);
	}
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		continue;
	if (!WIFEXITED(status))
		answer("killed by signal %d", WTERMSIG(status));
	else
		answer("%s", WEXITSTATUS(status) ? strerrorname_np(WEXITSTATUS(status)) : "ok");
}

static void run_again(int times)
{
	struct call first = pending_call;

	for (int i = 0; i < times; i++) {
		pending_call = first;
		call_make(&pending_call);
		if (pending_call.result < 0)
			break;
	}
	call_answer(&pending_call);
}

/* Lock calls, in whatever frame; false when the command is none. */
static bool run_call(char **word)
{
	static const char *const frames[] = {"signal", "vfork", "child", "thread", "cancel",
	                                     "again",  "t1",    "t2",    "t3",     "t4"};
	const char *frame = "";
	int times = 0;

	for (size_t i = 0; i < sizeof(frames) / sizeof(*frames); i++)
		if (strcmp(word[0], frames[i]) == 0)
			frame = frames[i];
	if (*frame)
		word++;
	if (strcmp(frame, "again") == 0 && word[0])
		times = atoi(*word++);
	if (!word[0] || !call_parse(&pending_call, word))
		return false;
	if (frame[0] == 't' && frame[1] >= '1' && frame[1] < '0' + WORKERS) {
		run_in_worker(frame[1] - '0');
		return true;
	}
	if (strcmp(frame, "signal") == 0) {
		raise(SIGUSR1);
		call_answer(&pending_call);
	} else if (strcmp(frame, "vfork") == 0 || strcmp(frame, "child") == 0) {
		run_in_child(frame[0] == 'v');
	} else if (strcmp(frame, "thread") == 0 || strcmp(frame, "cancel") == 0) {
		run_in_thread(frame[0] == 'c');
	} else if (times > 0) {
		run_again(times);
	} else {
		call_make(&pending_call);
		call_answer(&pending_call);
	}
	return true;
}

static void run_open(char **word)
{
	int slot = slot_of(word[1]);
	int flags = strcmp(word[2], "r") == 0    ? O_RDONLY
	          : strcmp(word[2], "w") == 0    ? O_WRONLY | O_CREAT
	          : strcmp(word[2], "path") == 0 ? O_PATH
	          : strcmp(word[2], "dir") == 0  ? O_RDONLY | O_DIRECTORY
	                                         : O_RDWR | O_CREAT;

	slots[slot] = open(word[3], flags, 0666);
	answer_result(slots[slot]);
}

static void run_reopen(char **word)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd_of(word[1]));
	slots[slot_of(word[2])] = open(path, O_RDWR);
	answer_result(slots[slot_of(word[2])]);
}

static void run_close_many(const char *how, int first)
{
	if (strcmp(how, "closefrom") == 0)
		closefrom(first);
	else if (strcmp(how, "closerange") == 0)
		close_range((unsigned)first, ~0u, 0);
	else
		for (int fd = first; fd < 1024; fd++)
			close(fd);
	open_channels();
	answer("ok");
}

static void run_fork(char **word)
{
	pid_t pid = fork();

	if (pid != 0) {
		answer_result(pid);
		return;
	}
	close(in_fd);
	close(out_fd);
	in_path = strdup(word[1]);
	out_path = strdup(word[2]);
	open_channels();
	answer("ready");
}

static void run_exec(void)
{
	char list[SLOTS * 12] = "", *end = list;
	char *const args[] = {strdup("actor"), strdup(in_path), strdup(out_path), list, NULL};

	for (int i = 0; i < SLOTS; i++)
		end += sprintf(end, "%d ", slots[i]);
	execv("/proc/self/exe", args);
	answer_result(-1);
}

static void run_alarm(char **word)
{
	long ms = atol(word[1]);
	bool restart = strcmp(word[2], "restart") == 0;
	struct itimerval timer = {.it_value = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000}};

	/* The next one comes if this one is too early for a call that is late. */
	if (!restart)
		timer.it_interval = timer.it_value;
	set_handler(SIGALRM, on_alarm, restart ? SA_RESTART : 0);
	answer_result(setitimer(ITIMER_REAL, &timer, NULL));
}

static void run_inode(char **word)
{
	struct stat opened, named;

	if (fstat(fd_of(word[1]), &opened) < 0 || stat(word[2], &named) < 0)
		answer_result(-1);
	else
		answer("%s", opened.st_ino == named.st_ino && opened.st_dev == named.st_dev ? "same" : "other");
}

static void run_stdio(char **word)
{
	int slot = slot_of(word[1]);

	if (strcmp(word[0], "fopen") == 0) {
		streams[slot] = fopen(word[2], "a+");
		slots[slot] = streams[slot] ? fileno(streams[slot]) : -1;
		answer_result(slots[slot]);
	} else {
		answer_result(fclose(streams[slot]));
	}
}

static void run_two_words(char **word)
{
	if (strcmp(word[0], "close") == 0)
		answer_result(close(fd_of(word[1])));
	else if (strcmp(word[0], "number") == 0)
		answer("%d", fd_of(word[1]));
	else if (strcmp(word[0], "endthread") == 0)
		end_worker(atoi(word[1]) % WORKERS);
	else if (strncmp(word[0], "close", 5) == 0)
		run_close_many(word[0], atoi(word[1]));
	else if (strcmp(word[0], "cloexec") == 0)
		answer_result(fcntl(fd_of(word[1]), F_SETFD, FD_CLOEXEC));
	else if (strcmp(word[0], "unlink") == 0)
		answer_result(unlink(word[1]));
	else if (strcmp(word[0], "chdir") == 0)
		answer_result(chdir(word[1]));
	else if (strcmp(word[0], "fclose") == 0)
		run_stdio(word);
	else if (strcmp(word[0], "exit") == 0)
		exit(atoi(word[1]));
	else
		answer("unknown command");
}

static void run_three_words(char **word)
{
	if (strcmp(word[0], "dup") == 0)
		answer_result(slots[slot_of(word[2])] = dup(fd_of(word[1])));
	else if (strcmp(word[0], "reopen") == 0)
		run_reopen(word);
	else if (strcmp(word[0], "fopen") == 0)
		run_stdio(word);
	else if (strcmp(word[0], "fork") == 0)
		run_fork(word);
	else if (strcmp(word[0], "alarm") == 0)
		run_alarm(word);
	else if (strcmp(word[0], "rename") == 0)
		answer_result(rename(word[1], word[2]));
	else if (strcmp(word[0], "inode") == 0)
		run_inode(word);
	else if (strcmp(word[0], "seek") == 0)
		answer_result(lseek(fd_of(word[1]), atoll(word[2]), SEEK_SET) < 0 ? -1 : 0);
	else if (strcmp(word[0], "write") == 0)
		answer_result(write(fd_of(word[1]), word[2], strlen(word[2])) < 0 ? -1 : 0);
	else if (strcmp(word[0], "open") == 0 && word[3])
		run_open(word);
	else
		answer("unknown command");
}

/* Reads one line, a byte at a time: nothing may be left in a buffer of ours when a child takes over. */
static bool read_line(char *line)
{
	size_t bytes = 0;
	ssize_t got;

	while (bytes < LINE_BYTES - 1) {
		got = read(in_fd, line + bytes, 1);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return false;
		if (line[bytes] == '\n')
			break;
		bytes++;
	}
	line[bytes] = '\0';
	return true;
}

int main(int argc, char **argv)
{
	char line[LINE_BYTES], *word[WORDS_MAX + 1], *rest, *next;
	int count;

	if (argc < 3)
		return 64;
	in_path = argv[1];
	out_path = argv[2];
	for (int i = 0; i < SLOTS; i++)
		slots[i] = -1;
	open_channels();
	set_handler(SIGUSR1, on_usr1, 0);
	if (argc > 3) {
		next = argv[3];
		for (int i = 0; i < SLOTS; i++)
			slots[i] = (int)strtol(next, &next, 10);
		answer("ok");
	} else {
		answer("ready");
	}
	while (read_line(line)) {
		count = 0;
		for (next = strtok_r(line, " ", &rest); next && count < WORDS_MAX; next = strtok_r(NULL, " ", &rest))
			word[count++] = next;
		for (int i = count; i <= WORDS_MAX; i++)
			word[i] = NULL;
		if (count == 0)
			continue;
		if (run_call(word))
			continue;
		if (count == 1 && strcmp(word[0], "exec") == 0)
			run_exec();
		else if (count == 2)
			run_two_words(word);
		else if (count > 2)
			run_three_words(word);
		else
			answer("unknown command");
	}
	return 0;
}
