/*
 * keeper/main.c - zkflockd: start, run, end
 *
 * Answers for: options, configuration, the runtime directory, signals, readiness.
 * Does not:    lock anything.
 * Threads:     started before libzookeeper makes its two: all signals are blocked, and read from a signalfd.
 * SPDX-License-Identifier: Apache-2.0
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "adopt.h"
#include "break.h"
#include "credentials.h"
#include "deadlock.h"
#include "file.h"
#include "guard.h"
#include "lock.h"
#include "log.h"
#include "loop.h"
#include "loss.h"
#include "mailbox.h"
#include "metrics.h"
#include "named.h"
#include "privilege.h"
#include "publish.h"
#include "rules.h"
#include "server.h"
#include "session.h"
#include "state.h"
#include "status.h"
#include "store.h"
#include "supervisor.h"
#include "waiting.h"
#include "zk.h"

#define SYSTEM_DIRECTORY "/run/zkflock"

/* Exit codes, documented in zkflockd(8). */
enum {
	EXIT_OK = 0,
	EXIT_TROUBLE = 1,
	EXIT_USAGE = 2,
	EXIT_CONFIG = 3,
	/* To the guard only: start another; locks are in use. */
	EXIT_AGAIN = 100,
	EXIT_LEFT
};

/* Written by main. */
static int ready_fd = -1;
static struct zkf_source signal_source = {.fd = -1};

/* The reason goes to the log, and to the program that started us, which tells its user. */
static int give_up(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));
static int give_up(int code, const char *format, ...)
{
	char line[400];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(line, sizeof(line) - 1, format, arguments);
	va_end(arguments);
	zkf_log(ZKF_LOG_ERROR, "keeper %s", line);
	if (ready_fd >= 0 && dprintf(ready_fd, "%s\n", line) < 0)
		zkf_log(ZKF_LOG_WARN, "keeper nobody reads why");
	return code;
}

static void tell_ready(void)
{
	if (ready_fd < 0)
		return;
	if (write(ready_fd, "\n", 1) < 0)
		zkf_log(ZKF_LOG_DEBUG, "keeper nobody waits for readiness");
	close(ready_fd);
	ready_fd = -1;
}

static int load_config(void)
{
	char why[ZKF_RULES_WHY_BYTES];
	int error = zkf_rules_init(why, sizeof(why));

	if (error)
		return give_up(error == -EINVAL ? EXIT_CONFIG : EXIT_TROUBLE, "%s", why);
	return EXIT_OK;
}

/* Before the guard forks: who is started again must not depend on a file that is being changed. */
static int load_credentials(void)
{
	static char text[ZKF_CREDENTIALS_BYTES];
	const struct zkf_slice *path = &zkf_rules_config()->credentials;
	char name[PATH_MAX], why[PATH_MAX + 160];

	if (!path->len)
		return EXIT_OK;
	snprintf(name, sizeof(name), "%.*s", (int)path->len, path->ptr);
	if (zkf_credentials_read(name, text, why, sizeof(why)))
		return give_up(EXIT_CONFIG, "%s", why);
	zkf_zk_credentials(text);
	return EXIT_OK;
}

static void nobody_listens(void *context, const char *line)
{
	(void)context;
	(void)line;
}

/* Where socket and page are; see zkflock.conf(5), ENVIRONMENT.  An error of the choice shows when it is opened. */
static void choose_directory(char *path, size_t capacity)
{
	const char *given = secure_getenv("ZKFLOCK_RUNTIME_DIR"), *xdg = secure_getenv("XDG_RUNTIME_DIR");

	if (given && *given)
		snprintf(path, capacity, "%s", given);
	else if (geteuid() == 0)
		snprintf(path, capacity, "%s", SYSTEM_DIRECTORY);
	else if (xdg && *xdg)
		snprintf(path, capacity, "%s/zkflock", xdg);
	else
		snprintf(path, capacity, "/tmp/zkflock-%d", (int)geteuid());
}

static int open_directory(const char *path, int *directory)
{
	struct stat status;
	mode_t mode = geteuid() == 0 ? 0755 : 0700;

	if (mkdir(path, mode) && errno != EEXIST)
		return give_up(EXIT_TROUBLE,
		               "runtime directory %s: %s; set ZKFLOCK_RUNTIME_DIR to a directory that can be written",
		               path, strerror(errno));
	*directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (*directory < 0 || fstat(*directory, &status))
		return give_up(EXIT_TROUBLE, "runtime directory %s: %s", path, strerror(errno));
	/* Who may write here could put his own socket in the place of ours. */
	if (status.st_uid != geteuid() || (status.st_mode & 022))
		return give_up(EXIT_TROUBLE,
		               "runtime directory %s: must be owned by uid %d and writable by nobody else", path,
		               (int)geteuid());
	return EXIT_OK;
}

/*
 * A keeper that a program had started before the supervisor was there holds the directory, while the supervisor's socket
 * has taken the place of its own: it is asked to go.  What it holds is ours to go on with, as after any restart.
 */
static void ask_to_go(int directory)
{
	char text[16] = "", comm[24] = "";
	int fd = openat(directory, "pid", O_RDONLY | O_CLOEXEC | O_NOFOLLOW), pid;

	if (fd < 0 || read(fd, text, sizeof(text) - 1) <= 0)
		text[0] = 0;
	if (fd >= 0)
		close(fd);
	pid = atoi(text);
	snprintf(comm, sizeof(comm), "/proc/%d/comm", pid);
	fd = pid > 1 ? open(comm, O_RDONLY | O_CLOEXEC) : -1;
	memset(comm, 0, sizeof(comm));
	if (fd < 0)
		return;
	if (read(fd, comm, sizeof(comm) - 1) > 0 && !strcmp(comm, "zkflockd\n")) {
		zkf_log(ZKF_LOG_INFO, "keeper taking over from pid=%d", pid);
		kill(pid, SIGTERM);
	}
	close(fd);
}

#define TAKE_OVER_MS 5000
#define TAKE_OVER_STEP_MS 20

/* One keeper a directory.  Returns the lock's descriptor, kept until the end; -EWOULDBLOCK: another one is there. */
static int take_directory(int directory)
{
	int fd = openat(directory, "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

	if (fd < 0)
		return -errno;
	if (!flock(fd, LOCK_EX | LOCK_NB))
		return fd;
	if (errno != EWOULDBLOCK || zkf_supervisor_listener() < 0)
		return -errno;
	ask_to_go(directory);
	for (int waited_ms = 0; waited_ms < TAKE_OVER_MS; waited_ms += TAKE_OVER_STEP_MS) {
		usleep(TAKE_OVER_STEP_MS * 1000);
		if (!flock(fd, LOCK_EX | LOCK_NB))
			return fd;
	}
	return -EWOULDBLOCK;
}

static void write_pid(int directory)
{
	int fd = openat(directory, ZKF_STATE_PID, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);

	if (fd < 0 || dprintf(fd, "%d\n", (int)getpid()) < 0)
		zkf_log(ZKF_LOG_WARN, "keeper pid-file error=\"%s\"", strerror(errno));
	if (fd >= 0)
		close(fd);
}

static void log_to_file(int directory)
{
	int fd = openat(directory, "log", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0640);

	if (fd < 0)
		return;
	dup2(fd, STDERR_FILENO);
	close(fd);
}

static void signal_ready(struct zkf_source *source, uint32_t events)
{
	struct signalfd_siginfo info;

	(void)events;
	if (read(source->fd, &info, sizeof(info)) != sizeof(info))
		return;
	if (info.ssi_signo == SIGTERM || info.ssi_signo == SIGINT) {
		zkf_log(ZKF_LOG_INFO, "keeper ending signal=%d", (int)info.ssi_signo);
		zkf_loop_stop_for(ZKF_STOP_END);
	} else if (info.ssi_signo == SIGHUP) {
		zkf_rules_reload(nobody_listens, NULL); /* it is logged */
	}
}

static int init_signals(void)
{
	sigset_t all, ours;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, NULL);
	signal(SIGPIPE, SIG_IGN);
	sigemptyset(&ours);
	sigaddset(&ours, SIGTERM);
	sigaddset(&ours, SIGINT);
	sigaddset(&ours, SIGHUP);
	signal_source.fd = signalfd(-1, &ours, SFD_CLOEXEC | SFD_NONBLOCK);
	if (signal_source.fd < 0)
		return -errno;
	signal_source.ready = signal_ready;
	return zkf_loop_add(&signal_source, EPOLLIN);
}

static void raise_file_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit))
		return;
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
}

static void session_resumed(void)
{
	zkf_adopt_claims(zkf_session_adopted);
}

static void session_ready(void)
{
	zkf_supervisor_tell("STATUS=connected to ZooKeeper");
	zkf_loss_alive();
	zkf_mailbox_session();
	zkf_lock_touch_all();
}

static void session_doubted(void)
{
	zkf_supervisor_tell("STATUS=ZooKeeper is out of reach, the lease is over: locks are not granted");
	zkf_loss_doubted(zkf_session_timeout_ms());
	zkf_lock_touch_all();
}

static void session_lost(void)
{
	zkf_supervisor_tell("STATUS=the session has expired; connecting to ZooKeeper");
	zkf_mailbox_session_lost();
	zkf_loss_lost();
	zkf_lock_session_lost();
}

static int start_parts(int directory, const char *path)
{
	static const struct zkf_session_events events = {session_resumed, session_ready, session_doubted, session_lost};
	static const struct zkf_mail_reader readers[] = {
		{"zkf1", zkf_deadlock_letter}, {"break1", zkf_break_letter}, {NULL, NULL}};
	bool everybody = geteuid() == 0;
	int error;

	error = zkf_session_init(zkf_rules_config(), &events);
	if (error == -EINVAL)
		return give_up(EXIT_CONFIG, "no ensemble is set; allowed: ensemble host:port,host:port,...");
	if (error)
		return give_up(EXIT_CONFIG, "ensemble: %s", strerror(-error));
	zkf_mailbox_init(readers);
	zkf_lock_init(zkf_rules_current()->connect_timeout_ms);
	zkf_loop_after_each(zkf_lock_step_dirty);
	error = zkf_publish_init(directory, everybody ? 0644 : 0600);
	if (error)
		return give_up(EXIT_TROUBLE, "%s/page: %s", path, strerror(-error));
	if (zkf_publish_other_boot())
		zkf_state_forget_processes();
	zkf_guard_lease(zkf_publish_inherited_ns()); /* its end must come, whatever becomes of this keeper */
	error = zkf_zk_init();
	if (!error)
		error = zkf_file_init();
	if (error)
		return give_up(EXIT_TROUBLE, "start: %s", strerror(-error));
	error = zkf_server_init(directory, path, zkf_supervisor_listener(), everybody ? 0666 : 0600,
	                        zkf_rules_current());
	if (error)
		return give_up(EXIT_TROUBLE, "%s/socket: %s", path, strerror(-error));
	zkf_metrics_use(zkf_rules_current()->metrics_file.ptr, zkf_rules_current()->metrics_file.len);
	zkf_metrics_init();
	zkf_status_init();
	tell_ready();
	zkf_supervisor_tell("READY=1\nSTATUS=connecting to ZooKeeper");
	zkf_loss_init();
	zkf_store_load();
	zkf_adopt_files(zkf_rules_current());
	zkf_session_start();
	return EXIT_OK;
}

static int serve(int directory, const char *path)
{
	int code = start_parts(directory, path), reason;
	bool left;

	if (code)
		return code;
	zkf_log(ZKF_LOG_INFO, "keeper started pid=%d version=%s directory=%s", (int)getpid(), ZKF_VERSION, path);
	reason = zkf_loop_run();
	if (reason == ZKF_STOP_RESTART)
		_exit(EXIT_AGAIN); /* not a word to the server, nothing put away: as if killed */
	zkf_supervisor_tell("STOPPING=1");
	zkf_server_end(directory);
	zkf_metrics_end();
	if (reason < 0)
		return give_up(EXIT_TROUBLE, "loop: %s", strerror(-reason));
	/* With a lock in use the session must live on: a new keeper or its timeout decides, not we. */
	left = zkf_lock_any_in_use();
	if (left) {
		zkf_publish_withdraw(); /* or there would soon be holders whom nobody stops */
		zkf_log(ZKF_LOG_WARN, "keeper ended why=\"locks are in use: the session is left to time out\"");
	} else {
		zkf_session_end();
	}
	unlinkat(directory, ZKF_STATE_PID, 0);
	return left ? EXIT_LEFT : EXIT_OK;
}

/* In the guard: the first keeper is to answer who started it; who starts again later finds the socket. */
static void keeper_forked(void)
{
	if (ready_fd >= 0)
		close(ready_fd);
	ready_fd = -1;
}

/* In a child of the guard, where no keeper lives that could do it. */
static void loss_without_keeper(int session_timeout_ms)
{
	zkf_rules_inherit();
	zkf_adopt_blindly(zkf_rules_current());
	zkf_loss_at_once(session_timeout_ms);
}

static bool anybody_holds(void)
{
	static bool known;

	if (!known) {
		zkf_rules_inherit();
		zkf_adopt_blindly(zkf_rules_current());
	}
	known = true;
	return zkf_loss_anybody();
}

/* Returns -1 in the keeper, else the exit code. */
static int guard(int directory, int lock)
{
	static const struct zkf_guard_work work = {keeper_forked, loss_without_keeper, anybody_holds, EXIT_LEFT,
	                                           EXIT_AGAIN};
	int code = zkf_guard_start(zkf_rules_current()->session_timeout_ms, &work);

	if (code == -1)
		return -1;
	if (code < 0)
		return give_up(EXIT_TROUBLE, "guard: %s", strerror(-code));
	if (code != EXIT_LEFT)
		return code;
	if (zkf_supervisor_listener() >= 0)
		close(zkf_supervisor_listener()); /* nobody would answer there */
	zkf_guard_stay(directory, lock, &work);
	return EXIT_OK;
}

static void usage(FILE *out)
{
	fputs("usage: zkflockd [--on-demand] [--ready-fd=N]\n"
	      "The keeper of zkflock: holds this host's ZooKeeper session.  Runs in the foreground, logs to stderr.\n"
	      "  --on-demand   as started by the library: log to the runtime directory, quiet if a keeper runs already\n"
	      "  --ready-fd=N  write a newline to descriptor N when ready, else the reason why not\n"
	      "  --help, --version\n"
	      "See zkflockd(8), zkflock.conf(5).\n",
	      out);
}

int main(int argc, char **argv)
{
	static const struct option options[] = {{"on-demand", no_argument, NULL, 'd'},
	                                        {"ready-fd", required_argument, NULL, 'r'},
	                                        {"help", no_argument, NULL, 'h'},
	                                        {"version", no_argument, NULL, 'V'},
	                                        {NULL, 0, NULL, 0}};
	bool on_demand = false;
	char path[1024], why[200];
	int option, directory = -1, lock, code;

	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (option) {
		case 'd':
			on_demand = true;
			break;
		case 'r':
			ready_fd = atoi(optarg);
			fcntl(ready_fd, F_SETFD, FD_CLOEXEC);
			break;
		case 'h':
			usage(stdout);
			return EXIT_OK;
		case 'V':
			puts("zkflockd " ZKF_VERSION);
			return EXIT_OK;
		default:
			usage(stderr);
			return EXIT_USAGE;
		}
	}
	umask(022);
	signal(SIGXFSZ, SIG_IGN); /* a write that fails is an answer */
	zkf_waiting_init();
	zkf_log_set_level(secure_getenv("ZKFLOCK_LOG"));
	if (zkf_supervisor_init(why, sizeof(why)))
		return give_up(EXIT_USAGE, "%s", why);
	choose_directory(path, sizeof(path));
	if (zkf_privilege_settle())
		return give_up(EXIT_TROUBLE, "identity: %s", strerror(errno));
	code = open_directory(path, &directory);
	if (code)
		return code;
	lock = take_directory(directory);
	if (lock == -EWOULDBLOCK && on_demand) {
		tell_ready(); /* two starters raced: the other one's keeper serves both */
		return EXIT_OK;
	}
	if (lock < 0)
		return give_up(EXIT_TROUBLE, "%s/lock: %s", path,
		               lock == -EWOULDBLOCK ? "another keeper runs in this directory" : strerror(-lock));
	if (on_demand)
		log_to_file(directory);
	if (chdir("/"))
		return give_up(EXIT_TROUBLE, "chdir /: %s", strerror(errno));
	code = load_config();
	if (!code)
		code = load_credentials();
	if (code)
		return code;
	srandom((unsigned)getpid() ^
	        (unsigned)zkf_now_ns()); /* pauses that no two keepers share; after the fork pids differ */
	raise_file_limit();
	if (zkf_privilege_drop())
		return give_up(EXIT_TROUBLE, "capabilities: %s", strerror(errno));
	zkf_state_init(directory);
	zkf_named_init(directory);
	if (zkf_store_init())
		zkf_log(ZKF_LOG_WARN, "keeper store error=\"%s\"", strerror(errno));
	code = guard(directory, lock);
	if (code >= 0)
		return code;
	zkf_rules_inherit();
	write_pid(directory);
	code = zkf_loop_init();
	if (!code)
		code = init_signals();
	if (code)
		return give_up(EXIT_TROUBLE, "start: %s", strerror(-code));
	return serve(directory, path);
}
