/*
 * cli/prefix.c - is the prefix of a rule a path that the kernel prints?
 *
 * Answers for: finding prefixes that no file has: the library and the keeper know a file by the path that /proc/self/fd
 *              prints, where no symbolic link is left; a prefix that goes through one never matches.
 * Does not:    match paths (mapping/match.c).
 * Threads:     one.
 * Specification: zkflock.conf(5), MAP; proc(5), /proc/pid/fd.
 * SPDX-License-Identifier: Apache-2.0
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "mapping/escape.h"

/* literal - the part of a prefix before its first pattern, decoded */
static void literal(const struct zkf_slice *prefix, char path[PATH_MAX])
{
	size_t i, took, used = 0, slash = 0;
	unsigned char byte;

	for (i = 0; i < prefix->len && used < PATH_MAX - 1; i += took) {
		took = zkf_escape_take(prefix->ptr + i, prefix->len - i, &byte);
		if (took == 0)
			break;
		if (took == 1 && byte == '*') { /* a component of its own */
			used = slash;
			break;
		}
		if (byte == '/')
			slash = used;
		path[used++] = (char)byte;
	}
	path[used] = '\0';
	if (used == 0)
		strcpy(path, "/");
}

/* above - cut the last component off; false: nothing is left */
static bool above(char *path)
{
	char *slash = strrchr(path, '/');

	if (!slash || !path[1])
		return false;
	slash[slash == path] = '\0';
	return true;
}

int cli_prefix_look(const struct zkf_rule *rule, char *path, char *real)
{
	char there[PATH_MAX];
	size_t len, rest;
	int error = 0;

	literal(&rule->prefix, path);
	strcpy(there, path);
	while (!realpath(there, real)) {
		error = error ? error : -errno;
		if ((errno != ENOENT && errno != ENOTDIR) || !above(there))
			return error;
	}
	if (strcmp(there, real) == 0)
		return error;
	len = strcmp(real, "/") == 0 ? 0 : strlen(real);
	rest = strcmp(there, "/") == 0 ? 0 : strlen(there);
	if (len + strlen(path + rest) >= PATH_MAX)
		return -ENAMETOOLONG;
	strcpy(real + len, path + rest); /* what is not there yet */
	return 1;
}

void cli_prefix_warn_missing(const struct zkf_rule *rule)
{
	char path[PATH_MAX], real[PATH_MAX];
	int result = cli_prefix_look(rule, path, real);

	if (rule->excluded || (result != -ENOENT && result != -ENOTDIR))
		return;
	printf("  warning   %s:%d: ", rule->place.file, rule->place.line);
	cli_print_safe(stdout, path, strlen(path));
	printf(": %s, so the rule meets no file yet\n", strerror(-result));
}

void cli_prefix_warn(const struct zkf_rule *rule, const char *real)
{
	printf("  warning   %s:%d: %.*s goes through a symbolic link, so the rule meets no file: write ",
	       rule->place.file, rule->place.line, (int)rule->prefix.len, rule->prefix.ptr);
	cli_print_safe(stdout, real, strlen(real));
	putchar('\n');
}
