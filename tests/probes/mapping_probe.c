/*
 * tests/probes/mapping_probe.c - mapping/ without a file system around it
 *
 *     mapping_probe parse <CONFIGURATION           what was understood, or "LINE: text"
 *     mapping_probe match PATH <CONFIGURATION      line of the rule, or "none"
 *     mapping_probe may PATH <TEXT                 yes or no: zkf_config_may_match
 *     mapping_probe deleted PATH NLINK             PATH without the kernel's suffix
 *     mapping_probe mutate COUNT <CONFIGURATION    parse COUNT damaged copies; "sane", or what is not
 *
 * The text is kept in memory of its exact size that ends at an unreadable page: a parser that looks one byte too far
 * ends by SIGSEGV.  Exit status 3 when errno was touched.
 *
 * It includes the sources, as a probe is built of one file.
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE

#include "mapping/config.c"
#include "mapping/match.c"
#include "mapping/rule.c"
#include "mapping/setting.c"

#include <sys/mman.h>

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define TEXT_BYTES_MAX ((size_t)1 << 20)
#define ERRNO_BEFORE 77

static struct zkf_rule rules[ZKF_RULES_MAX];

/* at_the_brink - room for len bytes that ends where the next page can't be read */
static char *at_the_brink(size_t len)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), pages = (len / page + 1) * page;
	char *room = mmap(NULL, pages + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (room == MAP_FAILED || mprotect(room + pages, page, PROT_NONE) < 0) {
		perror("mmap");
		exit(2);
	}
	return room + pages - len;
}

static char *read_text(size_t *len)
{
	static char buffer[TEXT_BYTES_MAX];
	char *text;

	*len = fread(buffer, 1, sizeof(buffer), stdin);
	text = at_the_brink(*len);
	memcpy(text, buffer, *len);
	return text;
}

static int parse(struct zkf_config *config, const char *text, size_t len, struct zkf_config_error *error)
{
	const struct zkf_config_file file = {"main.conf", text, len};
	size_t capacity = zkf_config_rules_max(&file, 1);
	int result;

	errno = ERRNO_BEFORE;
	result = zkf_config_parse(config, rules, capacity, &file, 1, error);
	if (errno != ERRNO_BEFORE)
		exit(3);
	return result;
}

static void print(const struct zkf_config *config)
{
	size_t i;

	printf("ensemble=%.*s root=%.*s session=%d tick=%d connect=%d keep=%lld credentials=%.*s connections=%d locks=%d\n",
	       (int)config->ensemble.len, config->ensemble.ptr, (int)config->root.len, config->root.ptr,
	       config->session_timeout_ms, config->tick_time_ms, config->connect_timeout_ms, (long long)config->keep_ms,
	       (int)config->credentials.len, config->credentials.ptr, config->user_connections, config->user_locks);
	if (config->metrics_file.len)
		printf("metrics_file=%.*s\n", (int)config->metrics_file.len, config->metrics_file.ptr);
	for (i = 0; i < config->rule_count; i++)
		printf("%d %.*s %.*s%s%s %s %s %lld\n", rules[i].place.line, (int)rules[i].prefix.len,
		       rules[i].prefix.ptr, (int)rules[i].name.len, rules[i].name.ptr,
		       rules[i].excluded ? " excluded" : "", rules[i].group ? " group" : "",
		       zkf_on_loss_names[rules[i].on_loss], zkf_unavailable_names[rules[i].unavailable],
		       (long long)rules[i].keep_ms);
}

/* insane - what is wrong with a result, whatever the text was; NULL: nothing */
static const char *insane(int result, const struct zkf_config *config, const struct zkf_config_error *error)
{
	int64_t lease;

	if (result == 0) {
		lease = (int64_t)config->session_timeout_ms - config->tick_time_ms / 2 -
		        2 * (config->session_timeout_ms / 10);
		return lease > 0 ? NULL : "no lease is left";
	}
	if (result != -EINVAL)
		return "another result than -EINVAL";
	if (error->place.line < 1)
		return "an error without a line";
	if (!memchr(error->text, '\0', sizeof(error->text)) || strpbrk(error->text, "\n\t\r"))
		return "a text that is not one line";
	return strstr(error->text, "; allowed ") ? NULL : "a text that does not say what is allowed";
}

static int mutate(int count, const char *text, size_t len)
{
	char *copy = at_the_brink(len);
	struct zkf_config_error error;
	struct zkf_config config;
	unsigned seed = 1;
	int i, j, result;

	for (i = 0; i < count; i++) {
		size_t shorter = (size_t)rand_r(&seed) % (len + 1);

		/* From behind: the text's end stays at the brink. */
		memcpy(copy, text, len);
		for (j = rand_r(&seed) % 4; j >= 0 && len > 0; j--)
			copy[(size_t)rand_r(&seed) % len] = (char)(rand_r(&seed) >> 8);
		result = parse(&config, copy + shorter, len - shorter, &error);
		if (insane(result, &config, &error)) {
			printf("%s: '%.*s': %s\n", insane(result, &config, &error), (int)(len - shorter),
			       copy + shorter, error.text);
			return 1;
		}
		zkf_config_may_match(copy + shorter, len - shorter, "/srv/mail/x", strlen("/srv/mail/x"));
	}
	puts("sane");
	return 0;
}

static int with_text(const char *verb, const char *argument)
{
	struct zkf_config_error error;
	const struct zkf_rule *rule;
	struct zkf_config config;
	size_t len;
	const char *text = read_text(&len);

	if (strcmp(verb, "may") == 0) {
		puts(zkf_config_may_match(text, len, argument, strlen(argument)) ? "yes" : "no");
		return 0;
	}
	if (strcmp(verb, "mutate") == 0)
		return mutate(atoi(argument), text, len);
	if (parse(&config, text, len, &error) < 0) {
		printf("%d: %s\n", error.place.line, error.text);
	} else if (strcmp(verb, "parse") == 0) {
		print(&config);
	} else {
		rule = zkf_config_match(&config, argument, strlen(argument));
		if (rule)
			printf("%d\n", rule->place.line);
		else
			puts("none");
	}
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 4 && strcmp(argv[1], "deleted") == 0) {
		size_t len = zkf_path_trim_deleted(argv[2], strlen(argv[2]), strtoull(argv[3], NULL, 10));

		printf("%.*s\n", (int)len, argv[2]);
		return 0;
	}
	if (argc < 2)
		return 2;
	return with_text(argv[1], argc > 2 ? argv[2] : "");
}
