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
/* No configuration is that long: it was a device or the wrong file. */
#define FILE_BYTES_MAX ((size_t)16 << 20)

/* read_all - read until the end; not fstat's size, so that a pipe may be given too */
static int read_all(int fd, char **text, size_t *len)
{
	size_t capacity = 0;

	*text = NULL;
	*len = 0;
	for (;;) {
		ssize_t got;

		if (*len == capacity) {
			char *larger;

			if (capacity >= FILE_BYTES_MAX)
				return -EFBIG;
			capacity = capacity ? capacity * 2 : 8192;
			larger = realloc(*text, capacity);
			if (!larger)
				return -ENOMEM;
			*text = larger;
		}
		got = read(fd, *text + *len, capacity - *len);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return got < 0 ? -errno : 0;
		*len += (size_t)got;
	}
}

static int read_file(struct cli_config *loaded)
{
	int result, fd = open(loaded->path, O_RDONLY | O_CLOEXEC | O_NOCTTY);

	if (fd < 0)
		return -errno;
	result = read_all(fd, &loaded->text, &loaded->len);
	close(fd);
	return result;
}

int cli_config_load(struct cli_config *loaded)
{
	struct zkf_config_error error;
	const char *given = secure_getenv("ZKFLOCK_CONF");
	size_t capacity;
	int result;

	memset(loaded, 0, sizeof(*loaded));
	loaded->path = given && given[0] != '\0' ? given : DEFAULT_PATH;
	result = read_file(loaded);
	if (result < 0) {
		fprintf(stderr, "%s: %s; make the file, or name another in ZKFLOCK_CONF\n", loaded->path,
		        strerror(-result));
		goto failed;
	}
	capacity = zkf_config_rules_max(loaded->text, loaded->len);
	loaded->rules = calloc(capacity + 1, sizeof(*loaded->rules));
	if (!loaded->rules) {
		result = -ENOMEM;
		cli_warn("%s", strerror(-result));
		goto failed;
	}
	result = zkf_config_parse(&loaded->config, loaded->rules, capacity, loaded->text, loaded->len, &error);
	if (result < 0) {
		fprintf(stderr, "%s:%d: %s\n", loaded->path, error.line, error.text);
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
	free(loaded->text);
	loaded->rules = NULL;
	loaded->text = NULL;
}
