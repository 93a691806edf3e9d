/*
 * cli/cli.h - what the verbs of zkflock(1) share
 *
 * Answers for: exit codes, the environment, the configuration in memory, messages.
 * Threads:     one.
 * Specification: zkflock(1).
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ZKF_CLI_H
#define ZKF_CLI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "keeper/wire.h"
#include "mapping/config.h"
#include "mapping/files.h"

/* Exit codes; each is documented in zkflock(1).  Those of `run` are env(1)'s. */
enum {
	EXIT_CHECK_UNMAPPED = 1,
	EXIT_CHECK_CONFIG = 2,
	EXIT_WHO_NOBODY = 1,
	EXIT_WHO_TROUBLE = 2,
	EXIT_RELOAD_FAILED = 1,
	EXIT_RELOAD_NO_KEEPER = 3,
	EXIT_FAILED = 1,
	EXIT_NO_KEEPER = 3,
	EXIT_TOKEN_NONE = 1,
	EXIT_TOKEN_FAILED = 2,
	EXIT_TOKEN_NO_KEEPER = 3,
	EXIT_USAGE = 64,
	EXIT_RUN_TROUBLE = 125,
	EXIT_RUN_NOT_EXECUTABLE = 126,
	EXIT_RUN_NOT_FOUND = 127,
};

/* A verb gets its own arguments (argv[0] is the verb) and returns the exit code. */
struct cli_verb {
	const char *name;
	const char *usage; /* printed by --help, whole */
	int usage_exit;    /* what a wrong command line exits with */
	int (*main)(int argc, char **argv);
	const char *option; /* an option that may be the first argument, or NULL, or CLI_OWN_OPTIONS */
};

/* It reads its options, and refuses unknown ones, itself. */
#define CLI_OWN_OPTIONS "-"

extern const struct cli_verb cli_verb_run, cli_verb_check, cli_verb_list, cli_verb_reload, cli_verb_status,
	cli_verb_who, cli_verb_break, cli_verb_doctor, cli_verb_lock, cli_verb_token;

/* cli_warn - one line on standard error, "zkflock: " before it */
void cli_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* cli_print_safe - print bytes; what a terminal could misread is printed as \ooo, as the configuration writes it */
void cli_print_safe(FILE *stream, const char *bytes, size_t len);

/* cli_json_string - quoted and escaped; what is not UTF-8 becomes U+FFFD */
void cli_json_string(FILE *stream, const char *bytes, size_t len);
/* cli_json_bytes - quoted, two hexadecimal digits a byte */
void cli_json_bytes(FILE *stream, const char *bytes, size_t len);
bool cli_is_utf8(const char *bytes, size_t len);

/* A configuration in memory; all slices of `config` point into `files`. */
struct cli_config {
	const char *path;
	struct zkf_files *files;
	struct zkf_rule *rules;
	struct zkf_config config;
};

/*
 * cli_config_load - read ZKFLOCK_CONF, else /etc/zkflock.conf, and what is dropped in beside it
 *
 * Returns 0, or a negative errno after it has said on standard error what is wrong ("file:line: text").
 * On success cli_config_free releases it.
 */
int cli_config_load(struct cli_config *loaded);
void cli_config_free(struct cli_config *loaded);

/*
 * cli_keeper_connect - connect to the keeper that answers: the system's, else the user's own
 *
 * Returns a descriptor (close-on-exec), or a negative errno after it has said where it looked.
 */
int cli_keeper_connect(void);

/* A packet of the keeper's; the text of a row may be longer than the structure has room for. */
union cli_packet {
	struct zkf_reply reply;
	char bytes[ZKF_ROW_BYTES_MAX + 1]; /* and a NUL */
};

/* cli_keeper_ask - send a request that needs no descriptor.  0, or a negative errno after it has said why not. */
int cli_keeper_ask(int fd, enum zkf_op op, const char *verb);

/* cli_keeper_send_bytes - as cli_keeper_ask, any request */
int cli_keeper_send_bytes(int fd, const void *request, size_t bytes, const char *verb);
/* cli_keeper_send - a request about an open file (-1: none).  0, or a negative errno after it has said why not. */
int cli_keeper_send(int fd, const struct zkf_request *request, int about, const char *verb);

/* cli_keeper_receive - one packet, checked.  Returns its text's length, or a negative errno. */
int cli_keeper_receive(int fd, union cli_packet *packet);

/*
 * cli_keeper_rows - all rows until END
 *
 * row  gets the text of each, NUL-terminated, its own to change; a negative errno of it ends all
 *
 * Returns 0, or a negative errno after it has said why not.
 */
int cli_keeper_rows(int fd, const char *verb, int (*row)(void *context, char *text, size_t len), void *context);

/*
 * cli_path_resolve - the path that the kernel would print for an open descriptor
 *
 * path  the file need not exist, its directory must
 * real  PATH_MAX bytes
 *
 * Returns 0 or a negative errno.
 */
int cli_path_resolve(const char *path, char *real);

/*
 * cli_prefix_look - can a file have a path that begins as this rule's prefix does?
 *
 * path  PATH_MAX bytes: the prefix up to its first pattern
 * real  PATH_MAX bytes: the same without symbolic links, if the result is 1
 *
 * Returns 0; 1: a symbolic link is on the way, and no path that the kernel prints begins so; a negative errno: it is not
 * there, or can't be looked at.
 */
int cli_prefix_look(const struct zkf_rule *rule, char *path, char *real);

/* cli_prefix_warn - print a line "  warning   ..." of such a rule */
void cli_prefix_warn(const struct zkf_rule *rule, const char *real);

/* cli_prefix_warn_missing - print a line "  warning   ..." if the prefix of this rule is not there */
void cli_prefix_warn_missing(const struct zkf_rule *rule);

/* cli_rule_warn - print what a reader of the rules may overlook about one of them, a line "  warning   ..." each */
void cli_rule_warn(const struct cli_config *loaded, const struct zkf_rule *rule);

/* cli_check_all - print the effective table.  The exit code. */
int cli_check_all(const struct cli_config *loaded);

/* What keeps a command from seeing the library; cli_program_look explains in `why`. */
enum cli_program {
	CLI_PROGRAM_GOOD,
	CLI_PROGRAM_UNSEEN,     /* runs, but its locks pass by the library: warn */
	CLI_PROGRAM_IMPOSSIBLE, /* the library can't be loaded into it: refuse */
};

#define CLI_WHY_BYTES 512

/*
 * cli_program_look - will the dynamic loader preload our library into this program?
 *
 * path  an executable file; of a script the interpreter is looked at
 * why   CLI_WHY_BYTES, filled unless the program is good
 */
enum cli_program cli_program_look(const char *path, char *why);

/*
 * cli_library_find - the library next to this tool, else in ../lib, else where it was installed
 *
 * path     PATH_MAX bytes: the library for programs like this tool
 * preload  what LD_PRELOAD is to name: path, or something by which the loader finds those of other programs too
 * why      CLI_WHY_BYTES, filled when the result, a negative errno, is not 0
 */
int cli_library_find(char *path, const char **preload, char *why);

/* cli_command_find - where execvp(3) would find the command: 0 with the path in `found` (PATH_MAX bytes), or -errno */
int cli_command_find(const char *command, char *found);

/* cli_library_check - is this file a library that our kind of process can load?  0, or -errno with `why` filled. */
int cli_library_check(const char *path, char *why);

#endif
