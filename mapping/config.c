/*
 * mapping/config.c - the configuration file: grammar, rules, path -> rule
 *
 * Answers for: see config.h.
 * Must not:    allocate, use stdio or the locale, or touch errno: it is compiled into the preload library and may run
 *              inside a lock call inside a signal handler.  Of libc it uses mem*() and str*() only.
 * Threads:     pure functions over the caller's memory.
 * Specification: design section 9; zkflock.conf(5).
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <string.h>

#include "escape.h"
#include "name.h"
#include "text.h"

enum setting { ENSEMBLE, ROOT, SESSION_TIMEOUT, TICK_TIME, CONNECT_TIMEOUT, KEEP, SETTING_COUNT };

static const char *const setting_names[SETTING_COUNT] = {"ensemble",        "root", "session_timeout", "tick_time",
                                                         "connect_timeout", "keep"};

struct duration_limits {
	int64_t min_ms, max_ms, default_ms;
	const char *allowed;
};

#define SECOND_MS ((int64_t)1000)
#define MINUTE_MS (60 * SECOND_MS)
#define HOUR_MS (60 * MINUTE_MS)

static const struct duration_limits durations[SETTING_COUNT] = {
	[SESSION_TIMEOUT] = {1 * SECOND_MS, 10 * MINUTE_MS, 10 * SECOND_MS, "1s to 10m"},
	[TICK_TIME] = {100, 60 * SECOND_MS, 2 * SECOND_MS, "100ms to 60s"},
	[CONNECT_TIMEOUT] = {100, 10 * MINUTE_MS, 5 * SECOND_MS, "100ms to 10m"},
	[KEEP] = {0, 24 * HOUR_MS, 60 * SECOND_MS, "0 to 24h"},
};

/* Part of the path of every claim of the host, and those must stay below 1 MB together. */
#define ROOT_BYTES_MAX 200

#define PATH_BYTES_MAX (PATH_MAX - 1)
#define KEEP_UNSET (-1) /* a rule without keep=: the setting may stand below the rule, so it is filled in at the end */

struct parser {
	struct zkf_config *config;
	size_t capacity; /* of config->rules */
	struct zkf_config_error *error;
	int line;
	int seen[SETTING_COUNT]; /* at which line; 0: not yet */
};

/* refuse - describe what is wrong in the current line; format as for zkf_text_format.  Returns -EINVAL. */
static int refuse(struct parser *parser, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	parser->error->line = parser->line;
	zkf_text_format(parser->error->text, sizeof(parser->error->text), format, arguments);
	va_end(arguments);
	return -EINVAL;
}

static bool word_is(const struct zkf_slice *word, const char *string)
{
	return word->len == strlen(string) && memcmp(word->ptr, string, word->len) == 0;
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

static bool is_blank(char byte)
{
	return byte == ' ' || byte == '\t';
}

/* next_word - take a word off rest; false at the end of the line or at a comment */
static bool next_word(struct zkf_slice *rest, struct zkf_slice *word)
{
	while (rest->len > 0 && is_blank(*rest->ptr)) {
		rest->ptr++;
		rest->len--;
	}
	if (rest->len == 0 || *rest->ptr == '#')
		return false;
	word->ptr = rest->ptr;
	while (rest->len > 0 && !is_blank(*rest->ptr)) {
		rest->ptr++;
		rest->len--;
	}
	word->len = (size_t)(rest->ptr - word->ptr);
	return true;
}

static bool is_digit(char byte)
{
	return byte >= '0' && byte <= '9';
}

static bool is_letter(char byte)
{
	return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z');
}

/* ---- durations ---- */

/* unit_ms - milliseconds of a unit; 0: no such unit */
static int64_t unit_ms(const struct zkf_slice *unit)
{
	if (word_is(unit, "ms"))
		return 1;
	if (word_is(unit, "s"))
		return SECOND_MS;
	if (word_is(unit, "m"))
		return MINUTE_MS;
	if (word_is(unit, "h"))
		return HOUR_MS;
	return 0;
}

static int parse_duration(struct parser *parser, enum setting setting, const struct zkf_slice *word, int64_t *ms)
{
	const struct duration_limits *limits = &durations[setting];
	const char *name = setting_names[setting];
	struct zkf_slice unit = *word;
	int64_t number = 0, factor;

	while (unit.len > 0 && is_digit(*unit.ptr)) {
		if (number <= limits->max_ms) /* beyond it is out of range in every unit: no overflow */
			number = number * 10 + (*unit.ptr - '0');
		unit.ptr++;
		unit.len--;
	}
	factor = unit_ms(&unit);
	if (unit.len == word->len || (factor == 0 && unit.len > 0))
		return refuse(parser,
		              "%s %w is not a duration; allowed is a whole number with a unit (ms, s, m, h), as in 10s",
		              name, word);
	if (factor == 0 && number != 0)
		return refuse(parser, "%s %w has no unit; allowed units are ms, s, m and h, as in 10s", name, word);
	if (number > limits->max_ms || number * factor < limits->min_ms || number * factor > limits->max_ms)
		return refuse(parser, "%s %w is out of range; allowed is %s", name, word, limits->allowed);
	*ms = number * factor;
	return 0;
}

/* ---- ensemble and root ---- */

static bool host_is_good(const struct zkf_slice *host)
{
	size_t i, colons = 0;
	bool brackets = host->len >= 2 && host->ptr[0] == '[' && host->ptr[host->len - 1] == ']';

	for (i = brackets; i < host->len - brackets; i++) {
		char byte = host->ptr[i];

		if (byte == ':')
			colons++;
		if (brackets ? !is_digit(byte) && !(byte >= 'a' && byte <= 'f') && !(byte >= 'A' && byte <= 'F') &&
		                       byte != ':' && byte != '.'
		             : !is_digit(byte) && !is_letter(byte) && byte != '.' && byte != '-' && byte != '_')
			return false;
	}
	return brackets ? colons >= 2 : host->len > 0;
}

static bool port_is_good(const struct zkf_slice *port)
{
	int number = 0;
	size_t i;

	if (port->len == 0 || port->len > 5)
		return false;
	for (i = 0; i < port->len; i++) {
		if (!is_digit(port->ptr[i]))
			return false;
		number = number * 10 + (port->ptr[i] - '0');
	}
	return number >= 1 && number <= 65535;
}

static int check_server(struct parser *parser, const struct zkf_slice *server)
{
	struct zkf_slice host = *server, port = {server->ptr + server->len, 0};

	if (memchr(server->ptr, '/', server->len))
		return refuse(parser, "ensemble has a path in %w; allowed is host:port,...; set the path with root",
		              server);
	/* The last colon, but not one inside the brackets of an address without a port. */
	while (host.len > 0 && host.ptr[host.len - 1] != ':' && host.ptr[host.len - 1] != ']')
		host.len--;
	if (host.len == 0 || host.ptr[host.len - 1] != ':')
		return refuse(parser, "ensemble has no port in %w; allowed is host:port,... with a port of 1 to 65535",
		              server);
	port.ptr = host.ptr + host.len;
	port.len = server->len - host.len;
	host.len--;
	if (!port_is_good(&port))
		return refuse(parser, "ensemble has a bad port in %w; allowed is 1 to 65535", server);
	if (!host_is_good(&host))
		return refuse(parser,
		              "ensemble has a bad host in %w; allowed are letters, digits, '.', '-', '_', "
		              "and IPv6 addresses in brackets",
		              server);
	return 0;
}

static int parse_ensemble(struct parser *parser, const struct zkf_slice *word)
{
	struct zkf_slice rest = *word;

	parser->config->ensemble = *word;
	for (;;) {
		const char *comma = memchr(rest.ptr, ',', rest.len);
		struct zkf_slice server = {rest.ptr, comma ? (size_t)(comma - rest.ptr) : rest.len};
		int result;

		if (server.len == 0)
			return refuse(parser,
			              "ensemble has an empty entry in %w; allowed is host:port,... without spaces",
			              word);
		result = check_server(parser, &server);
		if (result < 0)
			return result;
		if (!comma)
			return 0;
		rest.ptr += server.len + 1;
		rest.len -= server.len + 1;
	}
}

/* ---- components: what prefix, name and root have in common ---- */

/* One component while its bytes go by. */
struct component {
	size_t len;
	bool dots; /* nothing but dots so far */
};

static void component_add(struct component *component, unsigned char byte)
{
	component->dots = (component->len == 0 || component->dots) && byte == '.';
	component->len++;
}

/* component_end - at a '/' or at the end: what is wrong with it, or NULL; makes it ready for the next one */
static const char *component_end(struct component *component)
{
	const char *wrong = NULL;

	if (component->len == 0)
		wrong = "an empty component ('//')";
	else if (component->dots && component->len <= 2)
		wrong = "a '.' or '..' component";
	component->len = 0;
	return wrong;
}

static int parse_root(struct parser *parser, const struct zkf_slice *word)
{
	static const char allowed[] = "allowed is an absolute znode path such as /zkflock, without a '/' at its end";
	struct component component = {0};
	const char *wrong = NULL;
	size_t i;

	if (word->ptr[0] != '/')
		return refuse(parser, "root %w is not absolute; %s", word, allowed);
	parser->config->root = *word;
	if (word->len == 1) {
		parser->config->root.len = 0;
		return 0;
	}
	if (word->ptr[word->len - 1] == '/')
		return refuse(parser, "root %w ends with a '/'; %s", word, allowed);
	for (i = 1; i < word->len && !wrong; i++) {
		unsigned char byte = (unsigned char)word->ptr[i];

		if (byte >= 0x7f || byte == '\\')
			wrong = "a backslash or a byte that is not ASCII";
		else if (byte == '/')
			wrong = component_end(&component);
		else
			component_add(&component, byte);
	}
	if (!wrong)
		wrong = component_end(&component);
	if (wrong)
		return refuse(parser, "root %w has %s; %s", word, wrong, allowed);
	if (word->len > ROOT_BYTES_MAX)
		return refuse(parser, "root %w is too long; allowed are %d bytes", word, (int64_t)ROOT_BYTES_MAX);
	if (zkf_escape_covers(&(struct zkf_slice){"/zookeeper", 10}, word->ptr, word->len))
		return refuse(parser, "root %w is ZooKeeper's own; allowed is any other path, such as /zkflock", word);
	return 0;
}

/* ---- map ---- */

static int bad_escape(struct parser *parser, const char *what, const struct zkf_slice *word)
{
	return refuse(parser,
	              "bad escape in %s %w; allowed are \\\\ and \\ooo: three octal digits, 001 to 377 but not 057",
	              what, word);
}

static int parse_prefix(struct parser *parser, struct zkf_slice *prefix)
{
	struct component component = {0};
	const char *wrong = NULL;
	size_t i, took, bytes = 1;
	unsigned char byte;

	if (prefix->ptr[0] != '/')
		return refuse(parser, "prefix %w is not absolute; allowed is a path that begins with '/'", prefix);
	if (prefix->len > 2 && prefix->ptr[prefix->len - 1] == '/') /* not of "//", which is refused below */
		prefix->len--;
	for (i = 1; i < prefix->len && !wrong; i += took, bytes++) {
		took = zkf_escape_take(prefix->ptr + i, prefix->len - i, &byte);
		if (took == 0)
			return bad_escape(parser, "prefix", prefix);
		if (byte == '/')
			wrong = component_end(&component);
		else
			component_add(&component, byte);
	}
	if (!wrong && prefix->len > 1)
		wrong = component_end(&component);
	if (wrong)
		return refuse(parser,
		              "prefix %w has %s; allowed is a path as the kernel prints it, symbolic links resolved",
		              prefix, wrong);
	if (bytes > PATH_BYTES_MAX)
		return refuse(parser, "prefix %w is too long; allowed are %d bytes", prefix, (int64_t)PATH_BYTES_MAX);
	return 0;
}

static bool same_prefix(const struct zkf_slice *a, const struct zkf_slice *b)
{
	size_t i = 0, j = 0;

	while (i < a->len && j < b->len) {
		unsigned char x, y;

		i += zkf_escape_take(a->ptr + i, a->len - i, &x);
		j += zkf_escape_take(b->ptr + j, b->len - j, &y);
		if (x != y)
			return false;
	}
	return i == a->len && j == b->len;
}

/* What template_take found at a place of a template. */
enum piece { PIECE_BYTE, PIECE_PATH, PIECE_BAD_ESCAPE, PIECE_BAD_PERCENT };

static enum piece template_take(const struct zkf_slice *name, size_t at, size_t *took, unsigned char *byte)
{
	*took = zkf_escape_take(name->ptr + at, name->len - at, byte);
	if (*took == 0)
		return PIECE_BAD_ESCAPE;
	if (*took > 1 || *byte != '%')
		return PIECE_BYTE;
	if (at + 1 == name->len)
		return PIECE_BAD_PERCENT;
	*took = 2;
	if (name->ptr[at + 1] == '%')
		return PIECE_BYTE;
	return name->ptr[at + 1] == 'p' || name->ptr[at + 1] == 'r' ? PIECE_PATH : PIECE_BAD_PERCENT;
}

/* A template while its pieces go by. */
struct name_scan {
	struct component component;
	size_t paths; /* %p and %r */
	size_t bytes; /* all others */
	const char *wrong;
};

static void name_scan_byte(struct name_scan *scan, unsigned char byte)
{
	scan->bytes++;
	if (byte < 0x20 || byte == 0x7f)
		scan->wrong = "a control character";
	else if (byte == '/')
		scan->wrong = component_end(&scan->component);
	else
		component_add(&scan->component, byte);
}

static int parse_name(struct parser *parser, struct zkf_rule *rule)
{
	const struct zkf_slice *name = &rule->name;
	struct name_scan scan = {0};
	size_t i, took;
	unsigned char byte;

	if (name->ptr[0] == '/' || name->ptr[name->len - 1] == '/')
		return refuse(parser,
		              "lock name %w begins or ends with a '/'; allowed is a relative name such as jobs/%%r",
		              name);
	for (i = 0; i < name->len && !scan.wrong; i += took) {
		switch (template_take(name, i, &took, &byte)) {
		case PIECE_BAD_ESCAPE:
			return bad_escape(parser, "lock name", name);
		case PIECE_BAD_PERCENT:
			return refuse(parser,
			              "bad %% in lock name %w; allowed are %%r (path below the prefix), %%p (whole "
			              "path) and %%%%",
			              name);
		case PIECE_PATH:
			scan.paths++;
			component_add(&scan.component,
			              'p'); /* whatever it will be: it makes no bad component of the text */
			break;
		case PIECE_BYTE:
			name_scan_byte(&scan, byte);
			break;
		}
	}
	if (!scan.wrong)
		scan.wrong = component_end(&scan.component);
	if (scan.wrong)
		return refuse(parser, "lock name %w has %s; allowed are names such as jobs/%%r", name, scan.wrong);
	if (scan.bytes + scan.paths * PATH_BYTES_MAX > ZKF_LOCK_NAME_BYTES_MAX)
		return refuse(parser,
		              "lock name %w is too long; allowed are %d bytes, of which %%p and %%r take %d each", name,
		              (int64_t)ZKF_LOCK_NAME_BYTES_MAX, (int64_t)PATH_BYTES_MAX);
	rule->group = scan.paths == 0;
	return 0;
}

static const char *const on_loss_names[] = {"freeze", "kill", "warn", NULL};
static const char *const unavailable_names[] = {"wait", "fail", "local", NULL};

/* choose - index of a word in a list, or -1 */
static int choose(const struct zkf_slice *word, const char *const names[])
{
	int i;

	for (i = 0; names[i]; i++)
		if (word_is(word, names[i]))
			return i;
	return -1;
}

enum option { OPTION_ON_LOSS, OPTION_UNAVAILABLE, OPTION_KEEP };
static const char *const option_names[] = {"on_loss", "unavailable", "keep", NULL};

static int parse_option_value(struct parser *parser, struct zkf_rule *rule, int option, const struct zkf_slice *value)
{
	int choice;

	switch (option) {
	case OPTION_KEEP:
		return parse_duration(parser, KEEP, value, &rule->keep_ms);
	case OPTION_ON_LOSS:
		choice = choose(value, on_loss_names);
		if (choice < 0)
			return refuse(parser, "on_loss %w is unknown; allowed are freeze, kill and warn", value);
		rule->on_loss = (enum zkf_on_loss)choice;
		return 0;
	default:
		choice = choose(value, unavailable_names);
		if (choice < 0)
			return refuse(parser, "unavailable %w is unknown; allowed are wait, fail and local", value);
		rule->unavailable = (enum zkf_unavailable)choice;
		return 0;
	}
}

static int parse_options(struct parser *parser, struct zkf_rule *rule, struct zkf_slice *rest)
{
	struct zkf_slice word, key, value;
	bool given[] = {false, false, false};
	int option, result;

	while (next_word(rest, &word)) {
		const char *equals = memchr(word.ptr, '=', word.len);

		if (rule->excluded)
			return refuse(parser,
			              "option %w after '-'; allowed is nothing: an excluded prefix has no options",
			              &word);
		key = (struct zkf_slice){word.ptr, equals ? (size_t)(equals - word.ptr) : word.len};
		option = choose(&key, option_names);
		if (option < 0 || !equals)
			return refuse(parser,
			              "%w is not an option; allowed are on_loss=, unavailable= and keep= "
			              "(a space in a path is written \\040)",
			              &word);
		if (given[option])
			return refuse(parser, "option %w is given twice; allowed is once for each map", &key);
		given[option] = true;
		value = (struct zkf_slice){equals + 1, word.len - key.len - 1};
		result = parse_option_value(parser, rule, option, &value);
		if (result < 0)
			return result;
	}
	return 0;
}

static int add_rule(struct parser *parser, const struct zkf_rule *rule)
{
	struct zkf_config *config = parser->config;
	size_t i;

	for (i = 0; i < config->rule_count; i++)
		if (same_prefix(&config->rules[i].prefix, &rule->prefix))
			return refuse(parser, "prefix %w is mapped at line %d already; allowed is one map for a prefix",
			              &rule->prefix, (int64_t)config->rules[i].line);
	if (config->rule_count == parser->capacity) {
		refuse(parser, "more rules than fit; allowed are %d", (int64_t)parser->capacity);
		return -ENOSPC;
	}
	config->rules[config->rule_count++] = *rule;
	return 0;
}

static int parse_map(struct parser *parser, struct zkf_slice *rest)
{
	struct zkf_rule rule = {.keep_ms = KEEP_UNSET, .line = parser->line};
	int result;

	if (!next_word(rest, &rule.prefix) || !next_word(rest, &rule.name))
		return refuse(parser, "map without %s; allowed is: map PREFIX NAME [option=value...]",
		              rule.prefix.ptr ? "a lock name" : "a prefix");
	result = parse_prefix(parser, &rule.prefix);
	if (result < 0)
		return result;
	rule.excluded = word_is(&rule.name, "-");
	if (!rule.excluded) {
		result = parse_name(parser, &rule);
		if (result < 0)
			return result;
	}
	result = parse_options(parser, &rule, rest);
	return result < 0 ? result : add_rule(parser, &rule);
}

/* ---- the file ---- */

static int parse_value(struct parser *parser, enum setting setting, const struct zkf_slice *word)
{
	struct zkf_config *config = parser->config;
	int64_t ms = 0;
	int result;

	if (setting == ENSEMBLE)
		return parse_ensemble(parser, word);
	if (setting == ROOT)
		return parse_root(parser, word);
	result = parse_duration(parser, setting, word, &ms);
	if (result < 0)
		return result;
	if (setting == SESSION_TIMEOUT)
		config->session_timeout_ms = (int)ms;
	else if (setting == TICK_TIME)
		config->tick_time_ms = (int)ms;
	else if (setting == CONNECT_TIMEOUT)
		config->connect_timeout_ms = (int)ms;
	else
		config->keep_ms = ms;
	return 0;
}

static int parse_setting(struct parser *parser, const struct zkf_slice *key, struct zkf_slice *rest)
{
	struct zkf_slice value, extra;
	int i, result;

	for (i = 0; i < SETTING_COUNT; i++)
		if (word_is(key, setting_names[i]))
			break;
	if (i == SETTING_COUNT)
		return refuse(
			parser,
			"unknown setting %w; allowed are ensemble, root, session_timeout, tick_time, connect_timeout, "
			"keep and map",
			key);
	if (parser->seen[i] != 0)
		return refuse(parser, "%s is set at line %d already; allowed is once", setting_names[i],
		              (int64_t)parser->seen[i]);
	parser->seen[i] = parser->line;
	if (!next_word(rest, &value))
		return refuse(parser, "%s without a value; allowed is: %s VALUE", setting_names[i], setting_names[i]);
	result = parse_value(parser, (enum setting)i, &value);
	if (result < 0)
		return result;
	if (next_word(rest, &extra))
		return refuse(parser, "unexpected %w after the value of %s; allowed is one value, without spaces",
		              &extra, setting_names[i]);
	return 0;
}

static int parse_line(struct parser *parser, struct zkf_slice *line)
{
	struct zkf_slice word;
	size_t i;

	for (i = 0; i < line->len; i++) {
		unsigned char byte = (unsigned char)line->ptr[i];

		word = (struct zkf_slice){line->ptr + i, 1};
		if ((byte < 0x20 && byte != '\t') || byte == 0x7f)
			return refuse(parser, "control character %w; allowed are printable characters, spaces and tabs",
			              &word);
	}
	if (!next_word(line, &word))
		return 0;
	if (word_is(&word, "map"))
		return parse_map(parser, line);
	return parse_setting(parser, &word, line);
}

/*
 * check_times - settings that must fit each other
 *
 * Half the session's life and more must remain as lease = T - tick/2 - 2P with P = T/10 (design section 8).  From
 * T >= 2 tick follows lease >= T - T/4 - T/5 > 0, so one comparison says it all.
 */
static int check_times(struct parser *parser)
{
	const struct zkf_config *config = parser->config;
	int session_line = parser->seen[SESSION_TIMEOUT], tick_line = parser->seen[TICK_TIME];

	if (config->session_timeout_ms >= 2 * config->tick_time_ms)
		return 0;
	parser->line = session_line > tick_line ? session_line : tick_line;
	return refuse(parser,
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
	config->session_timeout_ms = (int)durations[SESSION_TIMEOUT].default_ms;
	config->tick_time_ms = (int)durations[TICK_TIME].default_ms;
	config->connect_timeout_ms = (int)durations[CONNECT_TIMEOUT].default_ms;
	config->keep_ms = durations[KEEP].default_ms;
	config->rules = rules;
}

size_t zkf_config_rules_max(const char *text, size_t len)
{
	struct zkf_slice rest = {text, len}, line;
	size_t lines = 0;

	while (next_line(&rest, &line))
		lines++;
	return lines;
}

int zkf_config_parse(struct zkf_config *config, struct zkf_rule *rules, size_t capacity, const char *text, size_t len,
                     struct zkf_config_error *error)
{
	struct parser parser = {.config = config, .capacity = capacity, .error = error};
	struct zkf_slice rest = {text, len}, line;
	size_t i;
	int result;

	error->line = 0;
	error->text[0] = '\0';
	set_defaults(config, rules);
	while (next_line(&rest, &line)) {
		parser.line++;
		result = parse_line(&parser, &line);
		if (result < 0)
			return result;
	}
	result = check_times(&parser);
	if (result < 0)
		return result;
	for (i = 0; i < config->rule_count; i++)
		if (rules[i].keep_ms == KEEP_UNSET)
			rules[i].keep_ms = config->keep_ms;
	return 0;
}

const struct zkf_rule *zkf_config_match(const struct zkf_config *config, const char *path, size_t len)
{
	const struct zkf_rule *best = NULL;
	size_t i, covered, longest = 0;

	/*
	 * A plain loop: an unmapped path differs from most prefixes within the first bytes, and a tree would have to be
	 * allocated.  All prefixes that fit are prefixes of one path, so the longest is the one that covers most of it.
	 */
	for (i = 0; i < config->rule_count; i++) {
		covered = zkf_escape_covers(&config->rules[i].prefix, path, len);
		if (covered > longest) {
			longest = covered;
			best = &config->rules[i];
		}
	}
	return best;
}

/*
 * may_mean - could this word of a broken line have been meant as a prefix of the path?
 *
 * In doubt yes.  What can't stand in a good prefix (quotes, a pattern, "//", "/.", an escape) ends what is compared: a
 * shorter prefix means more paths.  It need not end at a '/': the end of the word may be what was broken off.
 */
static bool may_mean(struct zkf_slice word, const char *path, size_t path_len)
{
	size_t end = 1;

	if (word.len > 0 && memchr("\"'`(<[{=", *word.ptr, 8)) {
		word.ptr++;
		word.len--;
	}
	if (word.len == 0 || *word.ptr != '/')
		return false;
	while (end < word.len && !memchr("\"'`)>]}*?[{\\,;:$", word.ptr[end], 16) &&
	       !(word.ptr[end - 1] == '/' && (word.ptr[end] == '/' || word.ptr[end] == '.')))
		end++;
	if (end > 1 && word.ptr[end - 1] == '/')
		end--;
	return end <= path_len && memcmp(word.ptr, path, end) == 0;
}

bool zkf_config_may_match(const char *text, size_t len, const char *path, size_t path_len)
{
	size_t i = 0, start, words = 0;
	bool root = false;

	while (i < len) {
		if (text[i] == '\n' || text[i] == '\r')
			words = 0;
		if ((unsigned char)text[i] <= ' ') {
			i++;
			continue;
		}
		start = i;
		if (text[i] == '#') {
			while (i < len && text[i] != '\n' && text[i] != '\r')
				i++;
			continue;
		}
		while (i < len && (unsigned char)text[i] > ' ')
			i++;
		/* The value of `root` is a znode: "root /" in a broken file must not stop every lock of the host. */
		if (!(words == 1 && root) && may_mean((struct zkf_slice){text + start, i - start}, path, path_len))
			return true;
		root = words++ == 0 && word_is(&(struct zkf_slice){text + start, i - start}, "root");
	}
	return false;
}

size_t zkf_path_trim_deleted(const char *path, size_t len, uint64_t nlink)
{
	static const char suffix[] = " (deleted)";
	const size_t suffix_len = sizeof(suffix) - 1;

	if (nlink != 0 || len <= suffix_len || memcmp(path + len - suffix_len, suffix, suffix_len) != 0)
		return len;
	return len - suffix_len;
}
