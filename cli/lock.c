/*
 * cli/lock.c - zkflock lock: run a command under a cluster lock that has a name and no file
 *
 * Answers for: flock(1)'s options and exit codes; the lock's file in the keeper's directory; a process group, to which
 *              on_loss applies as a whole.
 * Does not:    need libzkflock.so: the library's own code is linked in and called.
 * Threads:     one.
 * Specification: flock(1); keeper/named.h; zkflock(1).
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE

#include <sys/file.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <time.h>
#include <unistd.h>

#include "cli.h"
#include "keeper/named.h"
#include "mapping/name.h"
#include "preload/conversation.h"
#include "preload/cover.h"
#include "preload/page.h"
#include "preload/settings.h"

#define ASK_THE_DOCTOR "; `zkflock doctor` says why"

static const char usage[] =
	"usage: zkflock lock [options] [--] NAME COMMAND [ARGUMENT...]\n"
	"       zkflock lock [options] [--] NAME -c 'COMMAND'\n"
	"\n"
	"Runs COMMAND while this host has the cluster lock NAME: as flock(1), without a file.  A file that a rule gives the name\n"
	"NAME has the same lock.\n"
	"  -s, --shared                 a shared lock\n"
	"  -x, -e, --exclusive          an exclusive lock (default)\n"
	"  -n, --nb, --nonblock         fail rather than wait\n"
	"  -w, --wait, --timeout SECS   wait no longer than that; fractions are allowed\n"
	"  -E, --conflict-exit-code N   exit with N (1) when it was not to be had\n"
	"  -o, --close                  close the descriptor before COMMAND is run: what it leaves running does not hold the lock\n"
	"  -c, --command COMMAND        run COMMAND by the shell\n"
	"  -v, --verbose                say what is done\n"
	"\n"
	"If the lock is lost, COMMAND's whole process group is stopped, and killed when another host may have the lock.\n"
	"Exits with COMMAND's status (128 and the signal's number if it was killed); 1, or N of -E, when the lock was not to be\n"
	"had; 64 (wrong command line), 66 (the lock's file can't be used), 69 (COMMAND can't be run), 71 (no keeper, no ZooKeeper).\n";

struct options {
	enum zkf_mode mode;
	bool nonblock, close, verbose;
	const char *command;
	double wait_s; /* < 0: for ever */
	int conflict;
	const char *name;
	char **argv;
	uint64_t token;
};

static volatile sig_atomic_t time_is_over;
static volatile sig_atomic_t child;

static void alarmed(int number)
{
	(void)number;
	time_is_over = 1;
}

static int usage_error(const char *what)
{
	cli_warn("lock: %s; see zkflock lock --help", what);
	return -EINVAL;
}

static int read_option(int option, struct options *options)
{
	char *end;

	switch (option) {
	case 's':
		options->mode = ZKF_SHARED;
		return 0;
	case 'x':
	case 'e':
		options->mode = ZKF_EXCLUSIVE;
		return 0;
	case 'n':
		options->nonblock = true;
		return 0;
	case 'o':
		options->close = true;
		return 0;
	case 'v':
		options->verbose = true;
		return 0;
	case 'c':
		options->command = optarg;
		return 0;
	case 'w':
		options->wait_s = strtod(optarg, &end);
		if (end == optarg || *end != '\0' || !(options->wait_s >= 0) || options->wait_s > 1e9)
			return usage_error("--wait is not a number of seconds");
		options->nonblock |= options->wait_s < 1e-6;
		return 0;
	case 'E':
		options->conflict = (int)strtol(optarg, &end, 10);
		if (end == optarg || *end != '\0' || options->conflict < 0 || options->conflict > 255)
			return usage_error("--conflict-exit-code is not 0 to 255");
		return 0;
	default:
		return usage_error(option == ':' ? "an option lacks its value" : "unknown option");
	}
}

static int parse(int argc, char **argv, struct options *options)
{
	static const struct option names[] = {{"shared", no_argument, NULL, 's'},
	                                      {"exclusive", no_argument, NULL, 'x'},
	                                      {"nb", no_argument, NULL, 'n'},
	                                      {"nonblock", no_argument, NULL, 'n'},
	                                      {"nonblocking", no_argument, NULL, 'n'},
	                                      {"wait", required_argument, NULL, 'w'},
	                                      {"timeout", required_argument, NULL, 'w'},
	                                      {"conflict-exit-code", required_argument, NULL, 'E'},
	                                      {"close", no_argument, NULL, 'o'},
	                                      {"command", required_argument, NULL, 'c'},
	                                      {"verbose", no_argument, NULL, 'v'},
	                                      {NULL, 0, NULL, 0}};
	int option;

	*options = (struct options){.mode = ZKF_EXCLUSIVE, .wait_s = -1, .conflict = 1};
	opterr = 0;
	optind = 1;
	while ((option = getopt_long(argc, argv, "+:sxenow:E:c:v", names, NULL)) != -1)
		if (read_option(option, options) < 0)
			return -EINVAL;
	if (optind >= argc)
		return usage_error("no NAME");
	options->name = argv[optind++];
	options->argv = argv + optind;
	/* As with flock(1), -c may stand behind the name. */
	if (!options->command && argc - optind == 2 &&
	    (strcmp(argv[optind], "-c") == 0 || strcmp(argv[optind], "--command") == 0)) {
		options->command = argv[optind + 1];
		options->argv += 2;
	}
	if (options->name[0] == '\0')
		return usage_error("an empty NAME");
	if (strlen(options->name) > ZKF_LOCK_NAME_BYTES_MAX)
		return usage_error("NAME is too long");
	if (options->command ? options->argv[0] != NULL : options->argv[0] == NULL)
		return usage_error(options->command ? "-c and more" : "no COMMAND");
	return 0;
}

/* settings_get - the library's, loaded by its own first look at some descriptor; NULL after it has said why not */
static const struct zkf_settings *settings_get(void)
{
	const struct zkf_settings *settings = NULL;
	struct cli_config loaded;
	struct stat64 st;
	int fd;

	if (cli_config_load(&loaded) < 0) /* says what is wrong with it */
		return NULL;
	cli_config_free(&loaded);
	fd = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd >= 0 && fstat64(fd, &st) == 0)
		zkf_judge(fd, &st, ZKF_FLOCK, &settings);
	if (fd >= 0)
		close(fd);
	return zkf_settings_loaded();
}

/* file_open - the lock's file, made if need be; never removed: two files of one name would be two locks to the kernel */
static int file_open(const char *directory, const char *name)
{
	char path[PATH_MAX], znode[ZKF_NAME_BYTES_MAX + 1];
	int fd;

	zkf_name_encode(name, strlen(name), znode);
	snprintf(path, sizeof(path), "%s/" ZKF_NAMED_DIRECTORY, directory);
	if (mkdir(path, 0700) < 0 && errno != EEXIST)
		goto failed;
	snprintf(path, sizeof(path), "%s/" ZKF_NAMED_DIRECTORY "/%s", directory, znode);
	fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY);
	if (fd < 0 && errno == ENOENT)
		fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY, 0600);
	if (fd >= 0)
		return fd;
failed:
	cli_warn("lock: %s: %s%s", path, strerror(errno),
	         errno == EACCES ? "; its owner, the keeper's user, can let others in" : "");
	return -errno;
}

/* take - 0, -EWOULDBLOCK, -EINTR (the time is over) or another negative errno */
static int take(int fd, const struct options *options, const struct zkf_settings *settings)
{
	struct zkf_lock lock = {
		.fd = fd,
		.kind = ZKF_FLOCK,
		.mode = options->mode,
		.flags = options->nonblock ? ZKF_FLAG_NONBLOCK : 0,
		.end = ZKF_RANGE_MAX,
		.command = (options->mode == ZKF_SHARED ? LOCK_SH : LOCK_EX) | (options->nonblock ? LOCK_NB : 0),
		.settings = settings,
	};
	struct stat64 st;
	uint64_t state;
	int result;

	if (fstat64(fd, &st))
		return -errno;
	lock.dev = st.st_dev;
	lock.ino = st.st_ino;
	if (options->nonblock)
		lock.patience = zkf_patience_bounded(settings);
	do
		result = zkf_cover_lock(&lock, false);
	while (result == -EINTR && !time_is_over);
	/* A keeper that has no such locks says "not mapped", and the kernel's lock alone is none. */
	if (result == 0 &&
	    !(zkf_page_current() && zkf_page_find(zkf_page_current(), st.st_dev, st.st_ino, ZKF_FLOCK, &state)))
		return -EOPNOTSUPP;
	return result;
}

static void set_alarm(double seconds)
{
	struct itimerval when = {.it_value = {.tv_sec = (time_t)seconds,
	                                      .tv_usec = (suseconds_t)((seconds - (double)(time_t)seconds) * 1e6)}};
	struct sigaction action = {.sa_handler = alarmed}; /* no SA_RESTART: the wait shall end */

	sigaction(SIGALRM, &action, NULL);
	when.it_interval.tv_usec = 100000; /* one that comes before the wait begins must not be the only one */
	setitimer(ITIMER_REAL, &when, NULL);
}

static void clear_alarm(void)
{
	const struct itimerval never = {{0, 0}, {0, 0}};

	setitimer(ITIMER_REAL, &never, NULL);
	signal(SIGALRM, SIG_DFL);
}

/* lock_get - the locked descriptor, or -1 with *code */
static int lock_get(const struct options *options, int *code)
{
	const struct zkf_settings *settings = settings_get();
	const struct zkf_patience patience = {0};
	struct zkf_conversation conversation;
	int fd, result;

	*code = EX_OSERR;
	if (!settings)
		return -1;
	result = zkf_conversation_open(&conversation, settings, &patience); /* starts a keeper if there is none */
	if (result < 0) {
		cli_warn("lock: no keeper: %s" ASK_THE_DOCTOR, strerror(-result));
		return -1;
	}
	zkf_conversation_close(&conversation);
	fd = file_open(conversation.directory, options->name);
	if (fd < 0) {
		*code = EX_NOINPUT;
		return -1;
	}
	if (options->wait_s >= 0 && !options->nonblock)
		set_alarm(options->wait_s);
	result = take(fd, options, settings);
	clear_alarm();
	if (result == 0)
		return fd;
	if (result == -EWOULDBLOCK || (result == -EINTR && time_is_over)) {
		if (options->verbose)
			cli_warn(result == -EINTR ? "lock: timeout while waiting to get lock"
			                          : "lock: failed to get lock");
		*code = options->conflict;
	} else if (result == -EOPNOTSUPP) {
		cli_warn("lock: the keeper knows no named locks: it is of another version; restart zkflockd");
	} else {
		cli_warn("lock: %s: %s%s", options->name, strerror(-result), result == -ENOLCK ? ASK_THE_DOCTOR : "");
	}
	close(fd);
	return -1;
}

/* token_get - for ZKFLOCK_TOKEN; 0 if none can be had */
static uint64_t token_get(int about)
{
	const struct zkf_request request = {.magic = ZKF_WIRE_MAGIC, .op = ZKF_OP_TOKEN, .kind = ZKF_FLOCK};
	static union cli_packet packet;
	uint64_t token = 0;
	int fd = cli_keeper_connect();

	if (fd >= 0 && cli_keeper_send(fd, &request, about, "lock") == 0 && cli_keeper_receive(fd, &packet) >= 0 &&
	    packet.reply.answer == ZKF_TOKEN)
		token = packet.reply.state;
	if (fd >= 0)
		close(fd);
	return token;
}

static void forward(int number)
{
	if (child > 0)
		kill((pid_t)child, number);
}

/*
 * A group of our own, which on_loss can stop and kill without the script that has called us; in the terminal's foreground
 * if the caller's was.
 */
static pid_t group_begin(int *terminal)
{
	pid_t before = getpgrp();

	*terminal = open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY);
	if (before == getpid() || setpgid(0, 0) < 0) {
		if (*terminal >= 0)
			close(*terminal);
		*terminal = -1;
		return before;
	}
	if (*terminal >= 0 && tcgetpgrp(*terminal) == before) {
		signal(SIGTTOU, SIG_IGN);
		tcsetpgrp(*terminal, getpgrp());
	} else if (*terminal >= 0) {
		close(*terminal);
		*terminal = -1;
	}
	return before;
}

static void become(const struct options *options, int fd)
{
	const char *shell = getenv("SHELL");
	char *by_shell[] = {(char *)(uintptr_t)(shell && shell[0] ? shell : "/bin/sh"), (char *)(uintptr_t) "-c",
	                    (char *)(uintptr_t)options->command, NULL};
	char **argv = options->command ? by_shell : options->argv, token[24];

	signal(SIGTTOU, SIG_DFL);
	if (options->close)
		close(fd);
	else
		fcntl(fd, F_SETFD, 0);
	setenv("ZKFLOCK_NAME", options->name, 1);
	snprintf(token, sizeof(token), "%llu", (unsigned long long)options->token);
	if (options->token)
		setenv("ZKFLOCK_TOKEN", token, 1);
	else
		unsetenv("ZKFLOCK_TOKEN"); /* of a lock around this one */
	execvp(argv[0], argv);
	cli_warn("lock: failed to execute %s: %s", argv[0], strerror(errno));
	_exit(errno == ENOMEM ? EX_OSERR : EX_UNAVAILABLE);
}

/* run - the command's status as flock(1) tells it */
static int run(const struct options *options, int fd)
{
	static const int forwarded[] = {SIGTERM, SIGHUP, SIGINT, SIGQUIT};
	struct sigaction action = {.sa_handler = forward, .sa_flags = SA_RESTART}, old[4];
	int status, terminal;
	pid_t before, pid;
	size_t i;

	before = group_begin(&terminal);
	for (i = 0; i < 4; i++)
		sigaction(forwarded[i], &action, &old[i]);
	pid = fork();
	if (pid == 0) {
		for (i = 0; i < 4; i++)
			sigaction(forwarded[i], &old[i], NULL);
		become(options, fd);
	}
	child = (sig_atomic_t)pid;
	if (pid < 0) {
		cli_warn("lock: fork: %s", strerror(errno));
		return EX_OSERR;
	}
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return EX_OSERR;
	child = 0;
	if (terminal >= 0)
		tcsetpgrp(terminal, before);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static int lock_main(int argc, char **argv)
{
	struct options options;
	struct timespec start, end;
	int fd, code;

	if (parse(argc, argv, &options) < 0)
		return EX_USAGE;
	clock_gettime(CLOCK_MONOTONIC, &start);
	fd = lock_get(&options, &code);
	if (fd < 0)
		return code;
	clock_gettime(CLOCK_MONOTONIC, &end);
	options.token = token_get(fd);
	if (options.verbose) {
		cli_warn("lock: getting lock took %.6f seconds",
		         (double)(end.tv_sec - start.tv_sec) + (double)(end.tv_nsec - start.tv_nsec) / 1e9);
		cli_warn("lock: executing %s", options.command ? options.command : options.argv[0]);
	}
	return run(&options, fd);
}

const struct cli_verb cli_verb_lock = {"lock", usage, EX_USAGE, lock_main, CLI_OWN_OPTIONS};
