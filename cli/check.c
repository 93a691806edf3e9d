/*
 * cli/check.c - zkflock check: which rule and which lock name has a path?
 *
 * Answers for: showing what the keeper would decide for the path that the kernel would print.
 * Does not:    ask the keeper, or open the files.
 * Threads:     one.
 * Specification: zkflock(1).
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE

#include <sys/stat.h>

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "mapping/name.h"

static const char usage[] =
	"usage: zkflock check [--] PATH...\n"
	"       zkflock check --all\n"
	"\n"
	"Shows for each path the rule with its place in the configuration, the lock name, the znode and the options, "
	"or\n"
	"that it is not mapped.  A path need not exist, but the directory it is in must: symbolic links are followed.\n"
	"With --all: the effective configuration, each line with the place where it stands, and what to know about it.\n"
	"\n"
	"Exits with 0 (all are mapped), 1 (some are not), 2 (the configuration is broken), 64 (wrong command line).\n";

#define LINKS_MAX 40

/*
 * resolve_parent - path of a file that does not exist yet: the real path of its directory and its last component
 *
 * path  PATH_MAX bytes, replaced by the result.  Returns 0 or a negative errno.
 */
static int resolve_parent(char *path)
{
	char real[PATH_MAX];
	char *slash, *last;
	size_t len = strlen(path);

	while (len > 1 && path[len - 1] == '/')
		path[--len] = '\0';
	slash = strrchr(path, '/');
	last = slash ? slash + 1 : path;
	if (last[0] == '\0' || strcmp(last, ".") == 0 || strcmp(last, "..") == 0)
		return -ENOENT;
	if (!slash) {
		if (!realpath(".", real))
			return -errno;
	} else {
		char kept = slash[1];

		slash[1] = '\0'; /* "/" for a file in the root */
		if (!realpath(path, real))
			return -errno;
		slash[1] = kept;
	}
	len = strcmp(real, "/") == 0 ? 0 : strlen(real);
	if (len + 1 + strlen(last) >= PATH_MAX)
		return -ENAMETOOLONG;
	memmove(path + len + 1, last, strlen(last) + 1);
	memcpy(path, real, len);
	path[len] = '/';
	return 0;
}

/* A link that dangles is followed: open(O_CREAT) makes the file it points to. */
int cli_path_resolve(const char *path, char *real)
{
	char target[PATH_MAX];
	int links, result;

	if (realpath(path, real))
		return 0;
	if (errno != ENOENT)
		return -errno;
	if (strlen(path) >= PATH_MAX)
		return -ENAMETOOLONG;
	strcpy(real, path);
	for (links = 0; links < LINKS_MAX; links++) {
		ssize_t len;
		size_t directory;

		result = resolve_parent(real);
		if (result < 0)
			return result;
		len = readlink(real, target, sizeof(target) - 1);
		if (len < 0)
			return 0;
		target[len] = '\0';
		directory = target[0] == '/' ? 0 : (size_t)(strrchr(real, '/') - real) + 1;
		if (directory + (size_t)len >= PATH_MAX)
			return -ENAMETOOLONG;
		strcpy(real + directory, target);
	}
	return -ELOOP;
}

static void print_field(const char *label, const char *value, size_t len)
{
	printf("  %-9s ", label);
	cli_print_safe(stdout, value, len);
	putchar('\n');
}

static void print_rule(const struct zkf_rule *rule)
{
	printf("  rule      %s:%d: map %.*s %.*s\n", rule->place.file, rule->place.line, (int)rule->prefix.len,
	       rule->prefix.ptr, (int)rule->name.len, rule->name.ptr);
}

/* print_lock - lock name, znode, options.  Returns false when the path has no lock name. */
static bool print_lock(const struct zkf_rule *rule, const char *path)
{
	char name[ZKF_LOCK_NAME_BYTES_MAX + 1], znode[ZKF_NAME_BYTES_MAX + 1];
	int len = zkf_rule_lock_name(rule, path, strlen(path), name, sizeof(name));

	if (len < 0) {
		printf("  error     no lock name: %s\n", strerror(-len));
		return false;
	}
	zkf_name_encode(name, (size_t)len, znode);
	printf("  kind      %s\n", rule->group ? "group" : "file");
	print_field("lock", name, (size_t)len);
	print_field("znode", znode, strlen(znode));
	printf("  options   on_loss=%s unavailable=%s keep=%lldms\n", zkf_on_loss_names[rule->on_loss],
	       zkf_unavailable_names[rule->unavailable], (long long)rule->keep_ms);
	return true;
}

static void print_warnings(const struct cli_config *loaded, const struct zkf_rule *rule, const char *path)
{
	struct stat status;

	cli_rule_warn(loaded, rule);
	cli_prefix_warn_missing(rule);
	if (stat(path, &status) == 0 && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode))
		puts("  warning   neither a regular file nor a directory: its locks stay on this host");
}

/* A rule may mean the path, by a link, and not meet it. */
static void print_links(const struct zkf_config *config, const char *real)
{
	char path[PATH_MAX], target[PATH_MAX];
	size_t i, len;

	for (i = 0; i < config->rule_count; i++) {
		if (cli_prefix_look(&config->rules[i], path, target) != 1)
			continue;
		len = strlen(target);
		if (strncmp(real, target, len) == 0 && (real[len] == '/' || !real[len]))
			cli_prefix_warn(&config->rules[i], target);
	}
}

/* rule_as_written - the rule of a path that can't be resolved, if it is written as the kernel would print it; or NULL */
static const struct zkf_rule *rule_as_written(const struct zkf_config *config, const char *path)
{
	char directory[PATH_MAX] = "", whole[PATH_MAX];
	int len;

	if (path[0] != '/' && !getcwd(directory, sizeof(directory)))
		return NULL;
	len = snprintf(whole, sizeof(whole), "%s%s%s", directory, path[0] == '/' ? "" : "/", path);
	return len < (int)sizeof(whole) ? zkf_config_match(config, whole, (size_t)len) : NULL;
}

/* check_path - report on one path; true when it is mapped */
static bool check_path(const struct cli_config *loaded, const char *path)
{
	const struct zkf_rule *rule;
	char real[PATH_MAX];
	int result = cli_path_resolve(path, real);

	if (result < 0) {
		cli_print_safe(stdout, path, strlen(path));
		printf("\n  not mapped: %s\n", strerror(-result));
		rule = rule_as_written(&loaded->config, path);
		if (rule)
			cli_prefix_warn_missing(rule);
		return false;
	}
	cli_print_safe(stdout, real, strlen(real));
	putchar('\n');
	rule = zkf_config_match(&loaded->config, real, strlen(real));
	if (!rule) {
		puts("  not mapped: no rule has a prefix of it");
		print_links(&loaded->config, real);
		return false;
	}
	print_rule(rule);
	if (rule->excluded) {
		puts("  not mapped: the rule excludes it");
		return false;
	}
	if (!print_lock(rule, real))
		return false;
	print_warnings(loaded, rule, real);
	return true;
}

static int check_main(int argc, char **argv)
{
	struct cli_config loaded;
	bool all = argc > 1 && strcmp(argv[1], "--all") == 0;
	int i, result = 0, first = argc > 1 && strcmp(argv[1], "--") == 0 ? 2 : 1;

	if (all && argc > 2) {
		cli_warn("check: --all with a path; allowed is one of them");
		return EXIT_USAGE;
	}
	if (first >= argc) {
		cli_warn("check: no path; see zkflock check --help");
		return EXIT_USAGE;
	}
	if (cli_config_load(&loaded) < 0)
		return EXIT_CHECK_CONFIG;
	if (all)
		result = cli_check_all(&loaded);
	for (i = first; i < argc && !all; i++)
		if (!check_path(&loaded, argv[i]))
			result = EXIT_CHECK_UNMAPPED;
	cli_config_free(&loaded);
	return result;
}

const struct cli_verb cli_verb_check = {"check", usage, EXIT_USAGE, check_main, "--all"};
