/*
 * cli/load.c - the configuration file in memory
 *
 * Answers for: finding, reading and parsing it, and saying what is wrong with it as file:line: text.
 * Threads:     one.
 * Specification: zkflock.conf(5).
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"

#define DEFAULT_PATH "/etc/zkflock.conf"
static int open_file(const char *path, int flags)
{
	/* A pipe may be given too, and is waited for. */
	int fd = open(path, (flags & ~O_NONBLOCK) | O_RDONLY | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

int cli_config_load(struct cli_config *loaded)
{
	struct zkf_files_failure failure;
	struct zkf_config_error error;
	const char *given = secure_getenv("ZKFLOCK_CONF");
	size_t capacity;
	int result;

	memset(loaded, 0, sizeof(*loaded));
	loaded->path = given && given[0] != '\0' ? given : DEFAULT_PATH;
	result = zkf_files_load(loaded->path, open_file, &loaded->files, &failure);
	if (result < 0) {
		fprintf(stderr, "%s: %s; make the file, or name another in ZKFLOCK_CONF\n", failure.path,
		        failure.why ? failure.why : strerror(-result));
		return result;
	}
	capacity = zkf_config_rules_max(loaded->files->list, loaded->files->count);
	loaded->rules = calloc(capacity + 1, sizeof(*loaded->rules));
	if (!loaded->rules) {
		result = -ENOMEM;
		cli_warn("%s", strerror(-result));
		goto failed;
	}
	result = zkf_config_parse(&loaded->config, loaded->rules, capacity, loaded->files->list, loaded->files->count,
	                          &error);
	if (result < 0) {
		fprintf(stderr, "%s:%d: %s\n", error.place.file, error.place.line, error.text);
		goto failed;
	}
	return 0;
failed:
	cli_config_free(loaded);
	return result;
}

void cli_config_free(struct cli_config *loaded)
{
	free(loaded->rules);
	zkf_files_free(loaded->files);
	loaded->rules = NULL;
	loaded->files = NULL;
}
