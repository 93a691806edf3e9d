/*
 * cli/run.c - zkflock run: a command with the library preloaded
 *
 * Answers for: LD_PRELOAD and ZKFLOCK_LOG, and for saying beforehand why locks would not be seen.
 * Must not:    change the command's arguments, descriptors, signals or any other part of its environment.
 * Threads:     one; becomes the command by exec.
 * Specification: zkflock(1); exit codes as env(1).
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE

#include <sys/stat.h>

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"

#define LIBRARY "libzkflock.so"
/* Where the loader finds the library of a program's own word size, and where that of the other size is then. */
#define PRELOAD_BY_LOADER ZKF_LOADER_PREFIX "/$LIB/" LIBRARY
#ifdef __x86_64__
#define LIBRARY_OF_OTHERS ZKF_LOADER_PREFIX "/lib/i386-linux-gnu/" LIBRARY
#endif

static const char usage[] =
	"usage: zkflock run [--] COMMAND [ARGUMENT...]\n"
	"\n"
	"Runs COMMAND with libzkflock.so preloaded: locks on the files that the configuration maps exclude every\n"
	"other host too.  LD_PRELOAD is kept and the library put before it; ZKFLOCK_LOG=error is set unless it is "
	"set.\n"
	"\n"
	"The exit status is COMMAND's, or 125 (zkflock's own trouble: the configuration is broken, the library can't\n"
	"be loaded), 126 (COMMAND can't be executed), 127 (COMMAND is not found).\n";

int cli_library_find(char *path, const char **preload, char *why)
{
	static const char *const places[] = {"/" LIBRARY, "/../lib/" LIBRARY};
	ssize_t len = readlink("/proc/self/exe", path, PATH_MAX - 1);
	size_t i, directory;

	*preload = path;
	if (len > 0) {
		path[len] = '\0';
		directory = (size_t)(strrchr(path, '/') - path);
		for (i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
			if (directory + strlen(places[i]) >= PATH_MAX)
				continue;
			strcpy(path + directory, places[i]);
			if (access(path, F_OK) == 0)
				return cli_library_check(path, why);
		}
	}
	strcpy(path, ZKF_LIBDIR "/" LIBRARY);
	if (ZKF_LOADER_PREFIX[0])
		*preload = PRELOAD_BY_LOADER;
	return cli_library_check(path, why);
}

/* environment_set - put the library first into LD_PRELOAD; what is there stays behind it */
static int environment_set(const char *library)
{
	const char *before = getenv("LD_PRELOAD");
	char *value = NULL;
	int result;

	/* ld.so splits the list at both, and knows no escape. */
	if (strpbrk(library, " :")) {
		cli_warn("run: %s: LD_PRELOAD can't name a path with a space or a colon; install it elsewhere",
		         library);
		return -EINVAL;
	}
	if (asprintf(&value, "%s%s%s", library, before && before[0] ? ":" : "", before ? before : "") < 0)
		return -ENOMEM;
	result = setenv("LD_PRELOAD", value, 1);
	free(value);
	if (result < 0 || setenv("ZKFLOCK_LOG", "error", 0) < 0)
		return -errno;
	return 0;
}

/* executable - 0 for a file that exec may take, else the negative errno that exec would give */
static int executable(const char *path)
{
	struct stat status;

	if (stat(path, &status) < 0)
		return -errno;
	if (S_ISDIR(status.st_mode))
		return -EISDIR;
	return access(path, X_OK) < 0 ? -errno : 0;
}

/* -EACCES goes before -ENOENT, as in execvp. */
int cli_command_find(const char *command, char *found)
{
	const char *search = getenv("PATH"), *end;
	int result = -ENOENT;

	if (strchr(command, '/')) {
		if (strlen(command) >= PATH_MAX)
			return -ENAMETOOLONG;
		strcpy(found, command);
		return executable(found);
	}
	if (command[0] == '\0')
		return -ENOENT;
	for (search = search ? search : "/bin:/usr/bin";; search = end + 1) {
		int tried, len;

		end = strchrnul(search, ':');
		len = snprintf(found, PATH_MAX, "%.*s%s%s", (int)(end - search), search, end > search ? "/" : "./",
		               command);
		tried = len < PATH_MAX ? executable(found) : -ENAMETOOLONG;
		if (tried == 0)
			return 0;
		if (tried == -EACCES)
			result = tried;
		if (*end == '\0')
			return result;
	}
}

static int run_failed(const char *command, int error)
{
	cli_warn("run: %s: %s", command, strerror(-error));
	return error == -ENOENT || error == -ENOTDIR ? EXIT_RUN_NOT_FOUND : EXIT_RUN_NOT_EXECUTABLE;
}

/* other_library - a program of another word size finds a library of its own by this LD_PRELOAD */
static bool other_library(const char *preload)
{
#ifdef LIBRARY_OF_OTHERS
	return strcmp(preload, PRELOAD_BY_LOADER) == 0 && access(LIBRARY_OF_OTHERS, R_OK) == 0;
#else
	(void)preload;
	return false;
#endif
}

/* prepare - all that must be right before exec, in the order in which a person would want to mend it */
static int prepare(const char *command, char *found)
{
	char library[PATH_MAX], why[CLI_WHY_BYTES];
	const char *preload;
	struct cli_config loaded;
	enum cli_program program;
	int result;

	if (cli_config_load(&loaded) < 0)
		return EXIT_RUN_TROUBLE;
	cli_config_free(&loaded);
	if (cli_library_find(library, &preload, why) < 0) {
		cli_warn("run: the library can't be loaded: %s", why);
		return EXIT_RUN_TROUBLE;
	}
	result = cli_command_find(command, found);
	if (result < 0)
		return run_failed(command, result);
	program = cli_program_look(found, why);
	if (program == CLI_PROGRAM_IMPOSSIBLE && other_library(preload))
		program = CLI_PROGRAM_GOOD;
	if (program != CLI_PROGRAM_GOOD)
		cli_warn("run: %s%s", program == CLI_PROGRAM_UNSEEN ? "warning: " : "", why);
	if (program == CLI_PROGRAM_IMPOSSIBLE)
		return EXIT_RUN_TROUBLE;
	result = environment_set(preload);
	if (result == -ENOMEM)
		cli_warn("run: %s", strerror(-result));
	return result < 0 ? EXIT_RUN_TROUBLE : 0;
}

static int run_main(int argc, char **argv)
{
	char found[PATH_MAX];
	int first = argc > 1 && strcmp(argv[1], "--") == 0 ? 2 : 1;
	int result;

	if (first >= argc) {
		cli_warn("run: no command; see zkflock run --help");
		return EXIT_RUN_TROUBLE;
	}
	result = prepare(argv[first], found);
	if (result != 0)
		return result;
	/* The found path: its slash keeps execvp from searching again, but a script without #! still gets its shell. */
	execvp(found, argv + first);
	return run_failed(argv[first], -errno);
}

const struct cli_verb cli_verb_run = {"run", usage, EXIT_RUN_TROUBLE, run_main, NULL};
