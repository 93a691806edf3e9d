/*
 * mapping/setting.c - the values of settings: durations, ensemble, root, credentials, limits
 *
 * Answers for: see parser.h.
 * Must not:    see parser.h.
 * Threads:     see parser.h.
 * Specification: zkflock.conf(5), "SETTINGS".
 * SPDX-License-Identifier: Apache-2.0
 */
#include "escape.h"
#include "parser.h"

struct duration_limits {
	int64_t min_ms, max_ms, default_ms;
	const char *allowed;
};

#define SECOND_MS ((int64_t)1000)
#define MINUTE_MS (60 * SECOND_MS)
#define HOUR_MS (60 * MINUTE_MS)

static const struct duration_limits durations[ZKF_SETTING_COUNT] = {
	[ZKF_SESSION_TIMEOUT] = {1 * SECOND_MS, 10 * MINUTE_MS, 10 * SECOND_MS, "1s to 10m"},
	[ZKF_TICK_TIME] = {100, 60 * SECOND_MS, 2 * SECOND_MS, "100ms to 60s"},
	[ZKF_CONNECT_TIMEOUT] = {100, 10 * MINUTE_MS, 5 * SECOND_MS, "100ms to 10m"},
	[ZKF_KEEP] = {0, 24 * HOUR_MS, 60 * SECOND_MS, "0 to 24h"},
};

/* Part of the path of every claim of the host, and those must stay below 1 MB together. */
#define ROOT_BYTES_MAX 200

int64_t zkf_setting_default_ms(enum zkf_setting setting)
{
	return durations[setting].default_ms;
}

/* ---- durations ---- */

/* unit_ms - milliseconds of a unit; 0: no such unit */
static int64_t unit_ms(const struct zkf_slice *unit)
{
	if (zkf_word_is(unit, "ms"))
		return 1;
	if (zkf_word_is(unit, "s"))
		return SECOND_MS;
	if (zkf_word_is(unit, "m"))
		return MINUTE_MS;
	if (zkf_word_is(unit, "h"))
		return HOUR_MS;
	return 0;
}

int zkf_parse_duration(struct zkf_parser *parser, enum zkf_setting setting, const struct zkf_slice *word, int64_t *ms)
{
	const struct duration_limits *limits = &durations[setting];
	const char *name = zkf_setting_names[setting];
	struct zkf_slice unit = *word;
	int64_t number = 0, factor;

	while (unit.len > 0 && zkf_is_digit(*unit.ptr)) {
		if (number <= limits->max_ms) /* beyond it is out of range in every unit: no overflow */
			number = number * 10 + (*unit.ptr - '0');
		unit.ptr++;
		unit.len--;
	}
	factor = unit_ms(&unit);
	if (unit.len == word->len || (factor == 0 && unit.len > 0))
		return zkf_refuse_line(
			parser,
			"%s %w is not a duration; allowed is a whole number with a unit (ms, s, m, h), as in 10s", name,
			word);
	if (factor == 0 && number != 0)
		return zkf_refuse_line(parser, "%s %w has no unit; allowed units are ms, s, m and h, as in 10s", name,
		                       word);
	if (number > limits->max_ms || number * factor < limits->min_ms || number * factor > limits->max_ms)
		return zkf_refuse_line(parser, "%s %w is out of range; allowed is %s", name, word, limits->allowed);
	*ms = number * factor;
	return 0;
}

/* ---- ensemble and root ---- */

static bool is_letter(char byte)
{
	return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z');
}

static bool host_is_good(const struct zkf_slice *host)
{
	size_t i, colons = 0;
	bool brackets = host->len >= 2 && host->ptr[0] == '[' && host->ptr[host->len - 1] == ']';

	for (i = brackets; i < host->len - brackets; i++) {
		char byte = host->ptr[i];

		if (byte == ':')
			colons++;
		if (brackets ? !zkf_is_digit(byte) && !(byte >= 'a' && byte <= 'f') && !(byte >= 'A' && byte <= 'F') &&
		                       byte != ':' && byte != '.'
		             : !zkf_is_digit(byte) && !is_letter(byte) && byte != '.' && byte != '-' && byte != '_')
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
		if (!zkf_is_digit(port->ptr[i]))
			return false;
		number = number * 10 + (port->ptr[i] - '0');
	}
	return number >= 1 && number <= 65535;
}

static int check_server(struct zkf_parser *parser, const struct zkf_slice *server)
{
	struct zkf_slice host = *server, port = {server->ptr + server->len, 0};

	if (memchr(server->ptr, '/', server->len))
		return zkf_refuse_line(
			parser, "ensemble has a path in %w; allowed is host:port,...; set the path with root", server);
	/* The last colon, but not one inside the brackets of an address without a port. */
	while (host.len > 0 && host.ptr[host.len - 1] != ':' && host.ptr[host.len - 1] != ']')
		host.len--;
	if (host.len == 0 || host.ptr[host.len - 1] != ':')
		return zkf_refuse_line(parser,
		                       "ensemble has no port in %w; allowed is host:port,... with a port of 1 to 65535",
		                       server);
	port.ptr = host.ptr + host.len;
	port.len = server->len - host.len;
	host.len--;
	if (!port_is_good(&port))
		return zkf_refuse_line(parser, "ensemble has a bad port in %w; allowed is 1 to 65535", server);
	if (!host_is_good(&host))
		return zkf_refuse_line(parser,
		                       "ensemble has a bad host in %w; allowed are letters, digits, '.', '-', '_', "
		                       "and IPv6 addresses in brackets",
		                       server);
	return 0;
}

int zkf_parse_ensemble(struct zkf_parser *parser, const struct zkf_slice *word)
{
	struct zkf_slice rest = *word;

	parser->config->ensemble = *word;
	for (;;) {
		const char *comma = memchr(rest.ptr, ',', rest.len);
		struct zkf_slice server = {rest.ptr, comma ? (size_t)(comma - rest.ptr) : rest.len};
		int result;

		if (server.len == 0)
			return zkf_refuse_line(
				parser, "ensemble has an empty entry in %w; allowed is host:port,... without spaces",
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

int zkf_parse_root(struct zkf_parser *parser, const struct zkf_slice *word)
{
	static const char allowed[] = "allowed is an absolute znode path such as /zkflock, without a '/' at its end";
	struct zkf_component component = {0};
	const char *wrong = NULL;
	size_t i;

	if (word->ptr[0] != '/')
		return zkf_refuse_line(parser, "root %w is not absolute; %s", word, allowed);
	parser->config->root = *word;
	if (word->len == 1) {
		parser->config->root.len = 0;
		return 0;
	}
	if (word->ptr[word->len - 1] == '/')
		return zkf_refuse_line(parser, "root %w ends with a '/'; %s", word, allowed);
	for (i = 1; i < word->len && !wrong; i++) {
		unsigned char byte = (unsigned char)word->ptr[i];

		if (byte >= 0x7f || byte == '\\')
			wrong = "a backslash or a byte that is not ASCII";
		else if (byte == '/')
			wrong = zkf_component_end(&component);
		else
			zkf_component_add(&component, byte);
	}
	if (!wrong)
		wrong = zkf_component_end(&component);
	if (wrong)
		return zkf_refuse_line(parser, "root %w has %s; %s", word, wrong, allowed);
	if (word->len > ROOT_BYTES_MAX)
		return zkf_refuse_line(parser, "root %w is too long; allowed are %d bytes", word,
		                       (int64_t)ROOT_BYTES_MAX);
	if (zkf_escape_covers(&(struct zkf_slice){"/zookeeper", 10}, word->ptr, word->len))
		return zkf_refuse_line(parser,
		                       "root %w is ZooKeeper's own; allowed is any other path, such as /zkflock", word);
	return 0;
}

/* ---- metrics_file ---- */

#define METRICS_FILE_BYTES_MAX 1000

int zkf_parse_metrics_file(struct zkf_parser *parser, const struct zkf_slice *word)
{
	static const char allowed[] = "allowed is the absolute path of a file, without spaces and backslashes";

	if (word->ptr[0] != '/')
		return zkf_refuse_line(parser, "metrics_file %w is not absolute; %s", word, allowed);
	if (word->ptr[word->len - 1] == '/')
		return zkf_refuse_line(parser, "metrics_file %w ends with a '/'; %s", word, allowed);
	if (memchr(word->ptr, '\\', word->len))
		return zkf_refuse_line(parser, "metrics_file %w has a backslash; %s", word, allowed);
	if (word->len > METRICS_FILE_BYTES_MAX)
		return zkf_refuse_line(parser, "metrics_file %w is too long; allowed are %d bytes", word,
		                       (int64_t)METRICS_FILE_BYTES_MAX);
	parser->config->metrics_file = *word;
	return 0;
}

/* ---- the keeper's own ---- */

int zkf_parse_credentials(struct zkf_parser *parser, const struct zkf_slice *word)
{
	static const char allowed[] = "allowed is the absolute path of a file, without spaces and backslashes";

	if (word->ptr[0] != '/' || word->ptr[word->len - 1] == '/')
		return zkf_refuse_line(parser, "credentials %w is not an absolute path of a file; %s", word, allowed);
	if (memchr(word->ptr, '\\', word->len))
		return zkf_refuse_line(parser, "credentials %w has a backslash; %s", word, allowed);
	if (word->len > ZKF_PATH_BYTES_MAX)
		return zkf_refuse_line(parser, "credentials %w is too long; %s, shorter than %d bytes", word, allowed,
		                       (int64_t)ZKF_PATH_BYTES_MAX);
	parser->config->credentials = *word;
	return 0;
}

int zkf_parse_limit(struct zkf_parser *parser, enum zkf_setting setting, const struct zkf_slice *word, int *limit)
{
	int64_t number = 0;
	size_t i;

	for (i = 0; i < word->len && zkf_is_digit(word->ptr[i]); i++)
		if (number <= ZKF_USER_LIMIT_MAX) /* beyond it is out of range: no overflow */
			number = number * 10 + (word->ptr[i] - '0');
	if (i < word->len || number < ZKF_USER_LIMIT_MIN || number > ZKF_USER_LIMIT_MAX)
		return zkf_refuse_line(parser, "%s %w is not a number in range; allowed is %d to %d",
		                       zkf_setting_names[setting], word, (int64_t)ZKF_USER_LIMIT_MIN,
		                       (int64_t)ZKF_USER_LIMIT_MAX);
	*limit = (int)number;
	return 0;
}
