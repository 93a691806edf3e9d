/*
 * mapping/rule.c - `map PREFIX NAME [OPTION=VALUE...]`
 *
 * Answers for: see parser.h.
 * Must not:    see parser.h.
 * Threads:     see parser.h.
 * Specification: zkflock.conf(5), "RULES".
 * SPDX-License-Identifier: Apache-2.0
 */
#include <errno.h>

#include "name.h"
#include "parser.h"
#include "template.h"

const char *const zkf_on_loss_names[] = {"freeze", "kill", "warn", NULL};
const char *const zkf_unavailable_names[] = {"wait", "fail", "local", NULL};

static int bad_escape(struct zkf_parser *parser, const char *what, const struct zkf_slice *word)
{
	return zkf_refuse_line(
		parser, "bad escape in %s %w; allowed are \\\\ and \\ooo: three octal digits, 001 to 377 but not 057",
		what, word);
}

/* check_star - a "*" at a place of the prefix, as it is written; what is wrong, or NULL */
static const char *check_star(const struct zkf_slice *prefix, size_t at, int *stars)
{
	if (prefix->ptr[at - 1] != '/' || (at + 1 < prefix->len && prefix->ptr[at + 1] != '/'))
		return "a '*' that is not a whole component";
	return ++*stars > ZKF_STARS_MAX ? "more than nine components '*'" : NULL;
}

static int parse_prefix(struct zkf_parser *parser, struct zkf_rule *rule)
{
	struct zkf_slice *prefix = &rule->prefix;
	struct zkf_component component = {0};
	const char *wrong = NULL;
	size_t i, took, bytes = 1;
	unsigned char byte;

	if (prefix->ptr[0] != '/')
		return zkf_refuse_line(parser, "prefix %w is not absolute; allowed is a path that begins with '/'",
		                       prefix);
	if (prefix->len > 2 && prefix->ptr[prefix->len - 1] == '/') /* not of "//", which is refused below */
		prefix->len--;
	for (i = 1; i < prefix->len && !wrong; i += took, bytes++) {
		took = zkf_escape_take(prefix->ptr + i, prefix->len - i, &byte);
		if (took == 0)
			return bad_escape(parser, "prefix", prefix);
		if (byte == '/')
			wrong = zkf_component_end(&component);
		else
			zkf_component_add(&component, byte);
		if (took == 1 && byte == '*' && !wrong)
			wrong = check_star(prefix, i, &rule->stars);
	}
	if (!wrong && prefix->len > 1)
		wrong = zkf_component_end(&component);
	if (wrong)
		return zkf_refuse_line(
			parser,
			"prefix %w has %s; allowed is a path as the kernel prints it, with '*' for any one "
			"component and \\052 for the character",
			prefix, wrong);
	if (bytes > ZKF_PATH_BYTES_MAX)
		return zkf_refuse_line(parser, "prefix %w is too long; allowed are %d bytes", prefix,
		                       (int64_t)ZKF_PATH_BYTES_MAX);
	return 0;
}

static bool same_prefix(const struct zkf_slice *a, const struct zkf_slice *b)
{
	size_t i = 0, j = 0;

	while (i < a->len && j < b->len) {
		bool star_x, star_y;
		unsigned char x, y;

		i += zkf_prefix_take(a, i, &x, &star_x);
		j += zkf_prefix_take(b, j, &y, &star_y);
		if (x != y || star_x != star_y)
			return false;
	}
	return i == a->len && j == b->len;
}

/* A template while its pieces go by. */
struct name_scan {
	struct zkf_component component;
	size_t bytes; /* that are bytes of the name */
	size_t paths, belows, bases, directories, stars[ZKF_STARS_MAX];
	const char *wrong;
};

static void name_scan_byte(struct name_scan *scan, unsigned char byte)
{
	scan->bytes++;
	if (byte < 0x20 || byte == 0x7f)
		scan->wrong = "a control character";
	else if (byte == '/')
		scan->wrong = zkf_component_end(&scan->component);
	else
		zkf_component_add(&scan->component, byte);
}

static void name_scan_piece(struct name_scan *scan, enum zkf_piece piece, unsigned char number, int stars)
{
	zkf_component_add(&scan->component, 'p'); /* whatever it will be: it makes no bad component of the text */
	scan->paths += piece == ZKF_PIECE_PATH;
	scan->belows += piece == ZKF_PIECE_BELOW;
	scan->bases += piece == ZKF_PIECE_BASE;
	scan->directories += piece == ZKF_PIECE_DIRECTORY;
	if (piece != ZKF_PIECE_STAR)
		return;
	scan->stars[number - 1]++;
	if (number > stars)
		scan->wrong = "a number that the prefix has no '*' for";
}

/*
 * name_scan_longest - the longest name that the template can become
 *
 * %d, %b and the components of the "*" are parts of one path that don't overlap, and %r is %d with %b: together they are
 * no longer than it, as often as the most frequent of them stands there.
 */
static size_t name_scan_longest(const struct name_scan *scan)
{
	size_t i, times = scan->belows + (scan->bases > scan->directories ? scan->bases : scan->directories);

	for (i = 0; i < ZKF_STARS_MAX; i++)
		times = scan->stars[i] > times ? scan->stars[i] : times;
	return scan->bytes + (scan->paths + times) * ZKF_PATH_BYTES_MAX;
}

static int refuse_percent(struct zkf_parser *parser, const struct zkf_slice *name)
{
	return zkf_refuse_line(parser,
	                       "bad %% in lock name %w; allowed are %%r (path below the prefix), %%p (whole path), %%b "
	                       "(base name), %%d (directory), %%1 to %%9 and %%%%",
	                       name);
}

static int parse_name(struct zkf_parser *parser, struct zkf_rule *rule)
{
	const struct zkf_slice *name = &rule->name;
	struct name_scan scan = {.wrong = NULL};
	size_t i, took;
	unsigned char byte;

	if (name->ptr[0] == '/' || name->ptr[name->len - 1] == '/')
		return zkf_refuse_line(
			parser, "lock name %w begins or ends with a '/'; allowed is a relative name such as jobs/%%r",
			name);
	for (i = 0; i < name->len && !scan.wrong; i += took) {
		enum zkf_piece piece = zkf_template_take(name, i, &took, &byte);

		if (piece == ZKF_PIECE_BAD_ESCAPE)
			return bad_escape(parser, "lock name", name);
		if (piece == ZKF_PIECE_BAD_PERCENT)
			return refuse_percent(parser, name);
		if (piece == ZKF_PIECE_BYTE)
			name_scan_byte(&scan, byte);
		else
			name_scan_piece(&scan, piece, byte, rule->stars);
	}
	if (!scan.wrong)
		scan.wrong = zkf_component_end(&scan.component);
	if (scan.wrong)
		return zkf_refuse_line(parser, "lock name %w has %s; allowed are names such as jobs/%%r", name,
		                       scan.wrong);
	if (name_scan_longest(&scan) > ZKF_LOCK_NAME_BYTES_MAX)
		return zkf_refuse_line(
			parser, "lock name %w is too long; allowed are %d bytes, with %d for each part of the path",
			name, (int64_t)ZKF_LOCK_NAME_BYTES_MAX, (int64_t)ZKF_PATH_BYTES_MAX);
	rule->group = scan.paths + scan.belows + scan.bases == 0;
	return 0;
}

/* choose - index of a word in a list, or -1 */
static int choose(const struct zkf_slice *word, const char *const names[])
{
	int i;

	for (i = 0; names[i]; i++)
		if (zkf_word_is(word, names[i]))
			return i;
	return -1;
}

enum option { OPTION_ON_LOSS, OPTION_UNAVAILABLE, OPTION_KEEP };
static const char *const option_names[] = {"on_loss", "unavailable", "keep", NULL};

static int parse_option_value(struct zkf_parser *parser, struct zkf_rule *rule, int option,
                              const struct zkf_slice *value)
{
	int choice;

	switch (option) {
	case OPTION_KEEP:
		return zkf_parse_duration(parser, ZKF_KEEP, value, &rule->keep_ms);
	case OPTION_ON_LOSS:
		choice = choose(value, zkf_on_loss_names);
		if (choice < 0)
			return zkf_refuse_line(parser, "on_loss %w is unknown; allowed are freeze, kill and warn",
			                       value);
		rule->on_loss = (enum zkf_on_loss)choice;
		return 0;
	default:
		choice = choose(value, zkf_unavailable_names);
		if (choice < 0)
			return zkf_refuse_line(parser, "unavailable %w is unknown; allowed are wait, fail and local",
			                       value);
		rule->unavailable = (enum zkf_unavailable)choice;
		return 0;
	}
}

static int parse_options(struct zkf_parser *parser, struct zkf_rule *rule, struct zkf_slice *rest)
{
	struct zkf_slice word, key, value;
	bool given[] = {false, false, false};
	int option, result;

	while (zkf_next_word(rest, &word)) {
		const char *equals = memchr(word.ptr, '=', word.len);

		if (rule->excluded)
			return zkf_refuse_line(
				parser, "option %w after '-'; allowed is nothing: an excluded prefix has no options",
				&word);
		key = (struct zkf_slice){word.ptr, equals ? (size_t)(equals - word.ptr) : word.len};
		option = choose(&key, option_names);
		if (option < 0 || !equals)
			return zkf_refuse_line(parser,
			                       "%w is not an option; allowed are on_loss=, unavailable= and keep= "
			                       "(a space in a path is written \\040)",
			                       &word);
		if (given[option])
			return zkf_refuse_line(parser, "option %w is given twice; allowed is once for each map", &key);
		given[option] = true;
		value = (struct zkf_slice){equals + 1, word.len - key.len - 1};
		result = parse_option_value(parser, rule, option, &value);
		if (result < 0)
			return result;
	}
	return 0;
}

static int add_rule(struct zkf_parser *parser, const struct zkf_rule *rule)
{
	struct zkf_config *config = parser->config;
	size_t i;

	for (i = 0; i < config->rule_count; i++)
		if (same_prefix(&config->rules[i].prefix, &rule->prefix))
			return zkf_refuse_line(parser,
			                       "prefix %w is mapped %l already; allowed is one map for a prefix",
			                       &rule->prefix, &config->rules[i].place);
	if (config->rule_count == parser->capacity) {
		zkf_refuse_line(parser, "more rules than fit; allowed are %d", (int64_t)parser->capacity);
		return -ENOSPC;
	}
	config->rules[config->rule_count++] = *rule;
	return 0;
}

int zkf_parse_map(struct zkf_parser *parser, struct zkf_slice *rest)
{
	struct zkf_rule rule = {.keep_ms = ZKF_KEEP_UNSET, .place = parser->place};
	int result;

	if (!zkf_next_word(rest, &rule.prefix) || !zkf_next_word(rest, &rule.name))
		return zkf_refuse_line(parser, "map without %s; allowed is: map PREFIX NAME [option=value...]",
		                       rule.prefix.ptr ? "a lock name" : "a prefix");
	result = parse_prefix(parser, &rule);
	if (result < 0)
		return result;
	rule.excluded = zkf_word_is(&rule.name, "-");
	if (!rule.excluded) {
		result = parse_name(parser, &rule);
		if (result < 0)
			return result;
	}
	result = parse_options(parser, &rule, rest);
	return result < 0 ? result : add_rule(parser, &rule);
}
