/*
 * mapping/config.c - the configuration: its files, their lines and settings
 *
 * Answers for: see config.h; the values are in setting.c, `map` in rule.c, path -> rule in match.c.
 * Must not:    see parser.h.
 * Threads:     pure functions over the caller's memory.
 * Specification: design section 9; zkflock.conf(5).
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>

#include "parser.h"
#include "text.h"

const char *const zkf_setting_names[] = {
	"ensemble", "root",         "session_timeout", "tick_time",        "connect_timeout",
	"keep",     "metrics_file", "credentials",     "user_connections", "user_locks",
	NULL};

int zkf_refuse_line(struct zkf_parser *parser, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	parser->error->place = parser->place;
	zkf_text_format(parser->error->text, sizeof(parser->error->text), parser->place.file, format, arguments);
	va_end(arguments);
	return -EINVAL;
}

/* next_line - take a line off rest, without its end (LF, or CR LF as other systems' editors leave it) */
static bool next_line(struct zkf_slice *rest, struct zkf_slice *line)
{
	const char *end;

	if (rest->len == 0)
		return false;
	end = memchr(rest->ptr, '\n', rest->len);
	line->ptr = rest->ptr;
	line->len = end ? (size_t)(end - rest->ptr) : rest->len;
	rest->ptr += line->len + (end != NULL);
	rest->len -= line->len + (end != NULL);
	if (line->len > 0 && line->ptr[line->len - 1] == '\r')
		line->len--;
	return true;
}

static int parse_value(struct zkf_parser *parser, enum zkf_setting setting, const struct zkf_slice *word)
{
	struct zkf_config *config = parser->config;
	int64_t ms = 0;
	int result;

	if (setting == ZKF_ENSEMBLE)
		return zkf_parse_ensemble(parser, word);
	if (setting == ZKF_ROOT)
		return zkf_parse_root(parser, word);
	if (setting == ZKF_METRICS_FILE)
		return zkf_parse_metrics_file(parser, word);
	if (setting == ZKF_CREDENTIALS)
		return zkf_parse_credentials(parser, word);
	if (setting == ZKF_USER_CONNECTIONS)
		return zkf_parse_limit(parser, setting, word, &config->user_connections);
	if (setting == ZKF_USER_LOCKS)
		return zkf_parse_limit(parser, setting, word, &config->user_locks);
	result = zkf_parse_duration(parser, setting, word, &ms);
	if (result < 0)
		return result;
	if (setting == ZKF_SESSION_TIMEOUT || setting == ZKF_TICK_TIME)
		parser->last_time = parser->place;
	if (setting == ZKF_SESSION_TIMEOUT)
		config->session_timeout_ms = (int)ms;
	else if (setting == ZKF_TICK_TIME)
		config->tick_time_ms = (int)ms;
	else if (setting == ZKF_CONNECT_TIMEOUT)
		config->connect_timeout_ms = (int)ms;
	else
		config->keep_ms = ms;
	return 0;
}

static int parse_setting(struct zkf_parser *parser, const struct zkf_slice *key, struct zkf_slice *rest)
{
	struct zkf_place *place;
	struct zkf_slice value, extra;
	const char *name;
	int i, result;

	for (i = 0; i < ZKF_SETTING_COUNT; i++)
		if (zkf_word_is(key, zkf_setting_names[i]))
			break;
	if (i == ZKF_SETTING_COUNT)
		return zkf_refuse_line(
			parser,
			"unknown setting %w; allowed are ensemble, root, session_timeout, tick_time, connect_timeout, "
			"keep, metrics_file, credentials, user_connections, user_locks and map",
			key);
	name = zkf_setting_names[i];
	place = &parser->config->places[i];
	if (place->line != 0)
		return zkf_refuse_line(parser, "%s is set %l already; allowed is once", name, place);
	*place = parser->place;
	if (!zkf_next_word(rest, &value))
		return zkf_refuse_line(parser, "%s without a value; allowed is: %s VALUE", name, name);
	result = parse_value(parser, (enum zkf_setting)i, &value);
	if (result < 0)
		return result;
	if (zkf_next_word(rest, &extra))
		return zkf_refuse_line(parser,
		                       "unexpected %w after the value of %s; allowed is one value, without spaces",
		                       &extra, name);
	return 0;
}

static int parse_line(struct zkf_parser *parser, struct zkf_slice *line)
{
	struct zkf_slice word;
	size_t i;

	for (i = 0; i < line->len; i++) {
		unsigned char byte = (unsigned char)line->ptr[i];

		word = (struct zkf_slice){line->ptr + i, 1};
		if ((byte < 0x20 && byte != '\t') || byte == 0x7f)
			return zkf_refuse_line(
				parser, "control character %w; allowed are printable characters, spaces and tabs",
				&word);
	}
	if (!zkf_next_word(line, &word))
		return 0;
	if (zkf_word_is(&word, "map"))
		return zkf_parse_map(parser, line);
	return parse_setting(parser, &word, line);
}

static int parse_file(struct zkf_parser *parser, const struct zkf_config_file *file)
{
	struct zkf_slice rest = {file->text, file->len}, line;
	int result;

	parser->place = (struct zkf_place){file->path, 0};
	while (next_line(&rest, &line)) {
		parser->place.line++;
		result = parse_line(parser, &line);
		if (result < 0)
			return result;
	}
	return 0;
}

/*
 * check_times - settings that must fit each other
 *
 * Half the session's life and more must remain as lease = T - tick/2 - 2P with P = T/10 (design section 8).  From
 * T >= 2 tick follows lease >= T - T/4 - T/5 > 0, so one comparison says it all.
 */
static int check_times(struct zkf_parser *parser)
{
	const struct zkf_config *config = parser->config;

	if (config->session_timeout_ms >= 2 * config->tick_time_ms)
		return 0;
	parser->place = parser->last_time;
	return zkf_refuse_line(parser,
	                       "session_timeout %dms is less than twice tick_time %dms and leaves no lease; "
	                       "allowed is at least %dms, or a smaller tick_time",
	                       (int64_t)config->session_timeout_ms, (int64_t)config->tick_time_ms,
	                       (int64_t)2 * config->tick_time_ms);
}

static void set_defaults(struct zkf_config *config, struct zkf_rule *rules)
{
	memset(config, 0, sizeof(*config));
	config->root = (struct zkf_slice){"/zkflock", strlen("/zkflock")};
	config->ensemble = (struct zkf_slice){"", 0};
	config->metrics_file = (struct zkf_slice){"", 0};
	config->session_timeout_ms = (int)zkf_setting_default_ms(ZKF_SESSION_TIMEOUT);
	config->tick_time_ms = (int)zkf_setting_default_ms(ZKF_TICK_TIME);
	config->connect_timeout_ms = (int)zkf_setting_default_ms(ZKF_CONNECT_TIMEOUT);
	config->keep_ms = zkf_setting_default_ms(ZKF_KEEP);
	config->credentials = (struct zkf_slice){"", 0};
	config->user_connections = config->user_locks = ZKF_USER_LIMIT_DEFAULT;
	config->rules = rules;
}

size_t zkf_config_rules_max(const struct zkf_config_file *files, size_t count)
{
	size_t i, lines = 0;

	for (i = 0; i < count; i++) {
		struct zkf_slice rest = {files[i].text, files[i].len}, line;

		while (lines < ZKF_RULES_MAX && next_line(&rest, &line))
			lines++;
	}
	return lines;
}

int zkf_config_parse(struct zkf_config *config, struct zkf_rule *rules, size_t capacity,
                     const struct zkf_config_file *files, size_t count, struct zkf_config_error *error)
{
	struct zkf_parser parser = {.config = config, .capacity = capacity, .error = error};
	size_t i;
	int result;

	error->place = (struct zkf_place){count ? files[0].path : NULL, 0};
	error->text[0] = '\0';
	set_defaults(config, rules);
	for (i = 0; i < count; i++) {
		result = parse_file(&parser, &files[i]);
		if (result < 0)
			return result;
	}
	result = check_times(&parser);
	if (result < 0)
		return result;
	for (i = 0; i < config->rule_count; i++)
		if (rules[i].keep_ms == ZKF_KEEP_UNSET)
			rules[i].keep_ms = config->keep_ms;
	return 0;
}
