/*
 * cli/doctor.c - zkflock doctor: is all as it must be, and what is to be done if not?
 *
 * Answers for: one line for each check: ok, warn or fail, and below it the mend.
 * Does not:    change anything, start a keeper, or lock.
 * Threads:     one.
 * Specification: zkflock(1).
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE

#include <sys/stat.h>
#include <sys/timex.h>
#include <sys/vfs.h>

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "ensemble.h"

static const char usage[] =
	"usage: zkflock doctor [--] [PROGRAM]\n"
	"\n"
	"Checks the configuration, every server of the ensemble, this host's keeper and session, clock, runtime directory, the\n"
	"library, and the file system of each mapped prefix; with PROGRAM also whether the library can see its locks.\n"
	"Each line says ok, warn or fail; below it stands what is to be done.\n"
	"\n"
	"Exits with 0 (no check failed), 1 (one did), 64 (wrong command line).\n";

/* The worst so far. */
static bool failed;

enum verdict { OK, WARN, FAIL };

static void say(enum verdict verdict, const char *check, const char *mend, const char *format, ...)
	__attribute__((format(printf, 4, 5)));
static void say(enum verdict verdict, const char *check, const char *mend, const char *format, ...)
{
	static const char *const words[] = {"ok", "warn", "fail"};
	char text[PATH_MAX + 600];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	printf("%-4s  %-13s ", words[verdict], check);
	cli_print_safe(stdout, text, strlen(text));
	putchar('\n');
	if (verdict != OK && mend)
		printf("      %-13s -> %s\n", "", mend);
	failed |= verdict == FAIL;
}

/* ---- servers ---- */

static void advice(void *context, const char *text)
{
	(void)context;
	say(WARN, "servers", "see zkflockd(8), SERVER SETTINGS", "%s", text);
}

/* check_server - true: it serves */
static bool check_server(const char *address, struct cli_server *server)
{
	int result = cli_server_look(address, server);

	if (result == -ENOENT)
		say(WARN, "server", "is the name right, and does the name service know it?", "%s: %s", address,
		    server->why);
	else if (result < 0)
		say(WARN, "server", "is it running, and does a firewall let this host in?", "%s: %s", address,
		    server->why);
	else if (server->no_quorum)
		say(WARN, "server", "are most servers of the ensemble running and connected?", "%s: %s", address,
		    server->why);
	else if (!server->answers)
		say(OK, "server", NULL, "%s: reached; %s", address, server->why);
	else
		say(OK, "server", NULL, "%s: %s, version %s", address, server->mode, server->version);
	return server->answers || (!server->no_quorum && server->why[0] && strstr(server->why, "whitelist"));
}

static void check_servers(const struct zkf_config *config)
{
	const int period = config->session_timeout_ms / 10;
	const struct cli_times times = {
		.session_ms = config->session_timeout_ms,
		.configured_ms = config->session_timeout_ms,
		.tick_time_ms = config->tick_time_ms,
		.lease_ms = config->session_timeout_ms - config->tick_time_ms / 2 - 2 * (period > 2000 ? 2000 : period),
	};
	char *list = strndup(config->ensemble.ptr, config->ensemble.len), *next = list, *address;
	struct cli_server server, good = {0};
	bool any = false;

	while (next && (address = strsep(&next, ",")) != NULL)
		if (check_server(address, &server)) {
			any = true;
			good = server;
		}
	if (list && !any)
		say(FAIL, "servers", "no lock is granted before one can be", "none of them can be used");
	if (list) {
		free(list);
		list = strndup(config->ensemble.ptr, config->ensemble.len);
	}
	if (list && any)
		cli_ensemble_advise(list, &good, &times, advice, NULL);
	free(list);
}

/* ---- the keeper ---- */

struct keeper {
	char state[24], trouble[300], server[80], timeout[16], configured[16];
};

static int keeper_row(void *context, char *text, size_t len)
{
	struct keeper *keeper = context;
	const struct {
		const char *key;
		char *to;
		size_t capacity;
	} wanted[] = {{"state", keeper->state, sizeof(keeper->state)},
	              {"trouble", keeper->trouble, sizeof(keeper->trouble)},
	              {"server", keeper->server, sizeof(keeper->server)},
	              {"session_timeout_ms", keeper->timeout, sizeof(keeper->timeout)},
	              {"session_timeout_configured_ms", keeper->configured, sizeof(keeper->configured)}};
	char *tab = memchr(text, '\t', len);
	size_t i;

	if (!tab)
		return 0;
	*tab = '\0';
	for (i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++)
		if (strcmp(text, wanted[i].key) == 0)
			snprintf(wanted[i].to, wanted[i].capacity, "%s", tab + 1);
	return 0;
}

static void check_keeper(const struct zkf_config *config)
{
	struct keeper keeper = {0};
	int result, fd = cli_keeper_connect();

	if (fd < 0) {
		say(WARN, "keeper", "it starts with the first lock; start zkflockd(8) if it should run already",
		    "none answers");
		return;
	}
	result = cli_keeper_ask(fd, ZKF_OP_STATUS, "doctor");
	if (result == 0)
		result = cli_keeper_rows(fd, "doctor", keeper_row, &keeper);
	close(fd);
	if (result < 0) {
		say(FAIL, "keeper", "restart zkflockd", "it does not answer: %s", strerror(-result));
		return;
	}
	say(OK, "keeper", NULL, "answers");
	if (strcmp(keeper.state, "ready") == 0)
		say(OK, "session", NULL, "at %s, %s ms", keeper.server, keeper.timeout);
	else
		say(FAIL, "session", "see zkflockd(8), SERVERS, and the keeper's log", "%s: %s", keeper.state,
		    keeper.trouble);
	if (strcmp(keeper.state, "ready") == 0)
		say(OK, "root", NULL, "%.*s can be written", config->root.len ? (int)config->root.len : 1,
		    config->root.len ? config->root.ptr : "/");
	else if (strstr(keeper.trouble, "refuses to make"))
		say(FAIL, "root", "let the hosts create and delete below it, or set another root", "%s",
		    keeper.trouble);
	if (atoi(keeper.configured) != config->session_timeout_ms)
		say(WARN, "keeper", "restart zkflockd",
		    "it began with session_timeout %s ms; the configuration has %d ms", keeper.configured,
		    config->session_timeout_ms);
}

/* ---- this host ---- */

static void check_clock(void)
{
	struct timex state = {0};

	/* Leases are on a clock that nobody sets; only what people read depends on this one. */
	if (adjtimex(&state) == TIME_ERROR || (state.status & STA_UNSYNC))
		say(WARN, "clock",
		    "run an NTP client: AGE in `zkflock list` compares clocks; locks do not depend on it",
		    "not synchronised, as far as the kernel knows");
	else
		say(OK, "clock", NULL, "synchronised");
}

#define TMPFS 0x01021994
#define RAMFS 0x858458f6

static void check_runtime(void)
{
	const char *given = secure_getenv("ZKFLOCK_RUNTIME_DIR"), *xdg = secure_getenv("XDG_RUNTIME_DIR");
	char own[PATH_MAX];
	struct statfs system;
	struct stat status;

	if (given && given[0])
		snprintf(own, sizeof(own), "%s", given);
	else if (geteuid() == 0 || access("/run/zkflock/socket", F_OK) == 0)
		snprintf(own, sizeof(own), "/run/zkflock");
	else if (xdg && xdg[0] == '/')
		snprintf(own, sizeof(own), "%s/zkflock", xdg);
	else
		snprintf(own, sizeof(own), "/tmp/zkflock-%u", (unsigned)geteuid());
	if (stat(own, &status) < 0) {
		if (errno == ENOENT)
			say(OK, "runtime", NULL, "%s: is made with the first lock", own);
		else
			say(FAIL, "runtime", "set ZKFLOCK_RUNTIME_DIR to a directory that can be used", "%s: %s", own,
			    strerror(errno));
		return;
	}
	if (!S_ISDIR(status.st_mode) || (status.st_mode & 022) || (status.st_uid != 0 && status.st_uid != geteuid()))
		say(FAIL, "runtime", "it must be a directory of root's or yours that nobody else can write to",
		    "%s: mode %03o, uid %u", own, status.st_mode & 0777, (unsigned)status.st_uid);
	else if (statfs(own, &system) == 0 && system.f_type != TMPFS && (unsigned long)system.f_type != RAMFS)
		say(WARN, "runtime", "put it on tmpfs, so that a restart of the machine empties it",
		    "%s is not on tmpfs", own);
	else
		say(OK, "runtime", NULL, "%s", own);
}

static void check_library(void)
{
	char path[PATH_MAX], why[CLI_WHY_BYTES];
	const char *preload;

	if (cli_library_find(path, &preload, why) < 0)
		say(FAIL, "library", "install zkflock's library for this machine", "%s", why);
	else
		say(OK, "library", NULL, "%s", path);
}

/* ---- file systems ---- */

static const struct {
	unsigned long magic;
	const char *name, *mend;
} file_systems[] = {
	{0x6969, "NFS", "the server's lock manager must run, and the mount have neither nolock nor local_lock"},
	{0x0bd00bd0, "Lustre", "mount it with the option flock"},
	{0x65735546, "FUSE", "see whether its locks work: a file system that refuses them can't be made a cluster's"},
	{0xff534d42, "CIFS", "locks are the server's there, and mandatory; see zkflock(7), LIMITS"},
	{0xfe534d42, "SMB", "locks are the server's there, and mandatory; see zkflock(7), LIMITS"},
	{0x01021997, "9p", "mount it with cache=none, or its locks may be refused"},
};

static void check_prefix(const struct zkf_rule *rule)
{
	char path[PATH_MAX], real[PATH_MAX], mend[PATH_MAX + 64];
	struct statfs system;
	size_t i;
	int result = cli_prefix_look(rule, path, real);

	if (result == 1) {
		snprintf(mend, sizeof(mend), "write %s in its place", real);
		say(FAIL, "files", mend, "%s (%s:%d) goes through a symbolic link: no file has that path", path,
		    rule->place.file, rule->place.line);
		return;
	}
	if (result < 0 || statfs(path, &system) < 0) {
		result = result < 0 ? -result : errno;
		say(result == ENOENT ? WARN : FAIL, "files", "make it, or mend the rule", "%s (%s:%d): %s", path,
		    rule->place.file, rule->place.line, strerror(result));
		return;
	}
	for (i = 0; i < sizeof(file_systems) / sizeof(file_systems[0]); i++)
		if ((unsigned long)system.f_type == file_systems[i].magic) {
			say(WARN, "files", file_systems[i].mend, "%s is on %s", path, file_systems[i].name);
			return;
		}
	say(OK, "files", NULL, "%s", path);
}

static void check_rules(const struct zkf_config *config)
{
	size_t i, mapped = 0;

	for (i = 0; i < config->rule_count; i++)
		if (!config->rules[i].excluded) {
			mapped++;
			check_prefix(&config->rules[i]);
		}
	if (mapped == 0)
		say(WARN, "rules", "write `map PREFIX NAME` for the files whose locks are meant", "nothing is mapped");
}

static void check_program(const char *program)
{
	char path[PATH_MAX], why[CLI_WHY_BYTES];
	int result = cli_command_find(program, path);

	if (result < 0) {
		say(FAIL, "program", "name it with its path", "%s: %s", program, strerror(-result));
		return;
	}
	switch (cli_program_look(path, why)) {
	case CLI_PROGRAM_GOOD:
		say(OK, "program", NULL, "%s: its locks can be seen", path);
		break;
	case CLI_PROGRAM_UNSEEN:
		say(FAIL, "program", "lock around it: zkflock lock NAME, or zkflock run flock FILE", "%s", why);
		break;
	case CLI_PROGRAM_IMPOSSIBLE:
		say(FAIL, "program", "use a build of it, or of the library, that fits", "%s", why);
		break;
	}
}

static int doctor_main(int argc, char **argv)
{
	int first = argc > 1 && strcmp(argv[1], "--") == 0 ? 2 : 1;
	struct cli_config loaded;

	if (argc - first > 1) {
		cli_warn("doctor: more than one PROGRAM; see zkflock doctor --help");
		return EXIT_USAGE;
	}
	if (cli_config_load(&loaded) < 0) {
		say(FAIL, "configuration", "mend it as said above", "can't be used");
	} else {
		say(OK, "configuration", NULL, "%s", loaded.path);
		if (loaded.config.ensemble.len)
			check_servers(&loaded.config);
		else
			say(FAIL, "configuration", "write `ensemble HOST:PORT,...`", "no ensemble is set");
		check_keeper(&loaded.config);
		check_rules(&loaded.config);
		cli_config_free(&loaded);
	}
	check_clock();
	check_runtime();
	check_library();
	if (first < argc)
		check_program(argv[first]);
	return failed ? EXIT_FAILED : 0;
}

const struct cli_verb cli_verb_doctor = {"doctor", usage, EXIT_USAGE, doctor_main, NULL};
