/*
 * tests/fuzz/fuzz_config.c - any text as a configuration, any path against it
 *
 * Input: a path, a newline, another path, a newline, the configuration.
 * Must hold: what was understood, written down and read again, is the same; a refusal says where and why; a path that has a
 * rule is one that zkf_config_may_match() warns of; two paths meet in one znode name only if their lock names are the same;
 * and those differ when the rule tells all of the path.
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include "fuzz.h"

#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <string.h>

#include "mapping/config.h"
#include "mapping/name.h"
#include "mapping/template.h"

#define RULES 64

static void put(FILE *out, const struct zkf_slice *slice)
{
	fwrite(slice->ptr, 1, slice->len, out);
}

static void print_config(FILE *out, const struct zkf_config *config)
{
	if (config->places[ZKF_ENSEMBLE].line) {
		fputs("ensemble ", out);
		put(out, &config->ensemble);
		fputc('\n', out);
	}
	if (config->places[ZKF_ROOT].line) {
		fputs("root ", out);
		put(out, &config->root);
		fputs(config->root.len ? "\n" : "/\n", out);
	}
	fprintf(out, "session_timeout %dms\ntick_time %dms\nconnect_timeout %dms\nkeep %" PRId64 "ms\n",
	        config->session_timeout_ms, config->tick_time_ms, config->connect_timeout_ms, config->keep_ms);
	for (size_t i = 0; i < config->rule_count; i++) {
		const struct zkf_rule *rule = &config->rules[i];

		fputs("map ", out);
		put(out, &rule->prefix);
		fputc(' ', out);
		put(out, &rule->name);
		if (!rule->excluded)
			fprintf(out, " on_loss=%s unavailable=%s keep=%" PRId64 "ms", zkf_on_loss_names[rule->on_loss],
			        zkf_unavailable_names[rule->unavailable], rule->keep_ms);
		fputc('\n', out);
	}
}

static bool same_slice(const struct zkf_slice *a, const struct zkf_slice *b)
{
	return a->len == b->len && (!a->len || !memcmp(a->ptr, b->ptr, a->len));
}

static void must_be_same(const struct zkf_config *a, const struct zkf_config *b)
{
	MUST(same_slice(&a->ensemble, &b->ensemble));
	MUST(same_slice(&a->root, &b->root));
	MUST(a->session_timeout_ms == b->session_timeout_ms && a->tick_time_ms == b->tick_time_ms);
	MUST(a->connect_timeout_ms == b->connect_timeout_ms && a->keep_ms == b->keep_ms);
	MUST(a->rule_count == b->rule_count);
	for (size_t i = 0; i < a->rule_count; i++) {
		const struct zkf_rule *one = &a->rules[i], *other = &b->rules[i];

		MUST(same_slice(&one->prefix, &other->prefix) && same_slice(&one->name, &other->name));
		MUST(one->excluded == other->excluded && one->group == other->group && one->stars == other->stars);
		MUST(one->excluded || (one->on_loss == other->on_loss && one->unavailable == other->unavailable &&
		                       one->keep_ms == other->keep_ms));
	}
}

static void print_and_read_again(const struct zkf_config *config)
{
	struct zkf_rule rules[RULES];
	struct zkf_config again;
	struct zkf_config_error error;
	struct zkf_config_file file = {.path = "again"};
	char *text = NULL;
	FILE *out = open_memstream(&text, &file.len);

	MUST(out);
	print_config(out, config);
	fclose(out);
	file.text = text;
	if (zkf_config_parse(&again, rules, RULES, &file, 1, &error)) {
		fprintf(stderr, "%d: %s\n%s", error.place.line, error.text, text);
		abort();
	}
	must_be_same(config, &again);
	free(text);
}

/* As the kernel prints one: absolute, no empty component, none that is "." or "..". */
static bool is_path(const struct zkf_slice *path)
{
	if (!path->len || path->len >= PATH_MAX || path->ptr[0] != '/' || memchr(path->ptr, 0, path->len))
		return false;
	for (size_t i = 0; i < path->len; i++) {
		size_t end = i + 1;

		if (path->ptr[i] != '/')
			continue;
		while (end < path->len && path->ptr[end] != '/')
			end++;
		if ((end == i + 1 && path->len > 1) || (end == i + 2 && path->ptr[i + 1] == '.') ||
		    (end == i + 3 && path->ptr[i + 1] == '.' && path->ptr[i + 2] == '.'))
			return false;
	}
	return true;
}

/* Does the lock name hold all of the path: %p, or %r of a prefix without a pattern? */
static bool tells_all(const struct zkf_rule *rule)
{
	size_t took;
	unsigned char byte;

	for (size_t at = 0; at < rule->name.len; at += took)
		switch (zkf_template_take(&rule->name, at, &took, &byte)) {
		case ZKF_PIECE_PATH:
			return true;
		case ZKF_PIECE_BELOW:
			if (!rule->stars)
				return true;
			break;
		case ZKF_PIECE_BAD_ESCAPE:
		case ZKF_PIECE_BAD_PERCENT:
			abort();
		default:
			break;
		}
	return false;
}

static int names_of(const struct zkf_rule *rule, const struct zkf_slice *path, char *name, char *znode)
{
	int bytes = zkf_rule_lock_name(rule, path->ptr, path->len, name, ZKF_LOCK_NAME_BYTES_MAX + 1);

	if (bytes <= 0)
		return bytes;
	MUST((int)strlen(name) == bytes);
	bytes = zkf_rule_znode(rule, path->ptr, path->len, znode);
	MUST(bytes > 0 && bytes <= ZKF_NAME_BYTES_MAX && (int)strlen(znode) == bytes);
	MUST(!strchr(znode, '/') && strcmp(znode, ".") && strcmp(znode, "..") && strcmp(znode, "zookeeper"));
	for (const unsigned char *at = (const unsigned char *)znode; *at; at++)
		MUST(*at > ' ' && *at < 0x7f);
	return bytes;
}

static void match(const struct zkf_config *config, const struct zkf_slice *text, const struct zkf_slice paths[2])
{
	static char names[2][ZKF_LOCK_NAME_BYTES_MAX + 1];
	char znodes[2][ZKF_NAME_BYTES_MAX + 1];
	const struct zkf_rule *rules[2];
	int got[2] = {0, 0};

	for (int i = 0; i < 2; i++) {
		rules[i] = is_path(&paths[i]) ? zkf_config_match(config, paths[i].ptr, paths[i].len) : NULL;
		if (!rules[i])
			continue;
		MUST(zkf_config_may_match(text->ptr, text->len, paths[i].ptr, paths[i].len));
		if (!rules[i]->excluded)
			got[i] = names_of(rules[i], &paths[i], names[i], znodes[i]);
	}
	if (got[0] <= 0 || got[1] <= 0)
		return;
	MUST(!strcmp(names[0], names[1]) == !strcmp(znodes[0], znodes[1]));
	if (rules[0] == rules[1] && tells_all(rules[0]))
		MUST(!strcmp(names[0], names[1]) == same_slice(&paths[0], &paths[1]));
}

static struct zkf_slice take_line(struct zkf_slice *rest)
{
	const char *end = rest->len ? memchr(rest->ptr, '\n', rest->len) : NULL;
	struct zkf_slice line = {rest->ptr, end ? (size_t)(end - rest->ptr) : rest->len};
	size_t took = line.len + (end != NULL);

	rest->ptr += took;
	rest->len -= took;
	return line;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct zkf_slice text = {(const char *)data, size}, paths[2];
	struct zkf_rule rules[RULES];
	struct zkf_config config;
	struct zkf_config_error error = {.text = ""};
	struct zkf_config_file file;
	int result;

	paths[0] = take_line(&text);
	paths[1] = take_line(&text);
	file = (struct zkf_config_file){"input", text.ptr, text.len};
	if (is_path(&paths[0]))
		zkf_config_may_match(text.ptr, text.len, paths[0].ptr, paths[0].len);
	result = zkf_config_parse(&config, rules, RULES, &file, 1, &error);
	if (result) {
		MUST(result == -22 || result == -28); /* EINVAL, ENOSPC */
		MUST(memchr(error.text, 0, sizeof(error.text)) && error.text[0] && !strchr(error.text, '\n'));
		MUST(error.place.line >= 0 && error.place.file);
		return 0;
	}
	print_and_read_again(&config);
	match(&config, &text, paths);
	return 0;
}
