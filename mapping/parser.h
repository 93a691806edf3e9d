/*
 * mapping/parser.h - what the parts of the parser share
 *
 * Answers for: lines and words of the text, the message that refuses one, components of a path.
 * Does not:    allocate, use stdio or the locale, or touch errno: it is compiled into the preload library and may run
 *              inside a lock call inside a signal handler.  Of libc it uses mem*() and str*() only.
 * Threads:     pure functions over the caller's memory.
 * Specification: zkflock.conf(5).
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ZKF_PARSER_H
#define ZKF_PARSER_H

#include <limits.h>
#include <string.h>

#include "config.h"

#define ZKF_PATH_BYTES_MAX (PATH_MAX - 1)
#define ZKF_KEEP_UNSET (-1) /* a rule without keep=: the setting may stand below it, so it is filled in at the end */

struct zkf_parser {
	struct zkf_config *config;
	size_t capacity; /* of config->rules */
	struct zkf_config_error *error;
	struct zkf_place place;     /* the current line */
	struct zkf_place last_time; /* of session_timeout and tick_time, the one that was read last */
};

/*
 * zkf_refuse_line - describe what is wrong in the current line
 *
 * format  %s: const char *; %w: const struct zkf_slice *, quoted; %l: const struct zkf_place *, the place of another
 *         line; %d: int64_t; %%: a percent sign
 *
 * Returns -EINVAL.
 */
int zkf_refuse_line(struct zkf_parser *parser, const char *format, ...);

/* zkf_parse_duration - a word as milliseconds within the limits of a setting.  0 or -EINVAL */
int zkf_parse_duration(struct zkf_parser *parser, enum zkf_setting setting, const struct zkf_slice *word, int64_t *ms);

/* zkf_setting_default_ms - of a setting that is a duration */
int64_t zkf_setting_default_ms(enum zkf_setting setting);

/* zkf_parse_ensemble, zkf_parse_root, zkf_parse_metrics_file - the value of that setting.  0 or -EINVAL */
int zkf_parse_ensemble(struct zkf_parser *parser, const struct zkf_slice *word);
int zkf_parse_root(struct zkf_parser *parser, const struct zkf_slice *word);
int zkf_parse_metrics_file(struct zkf_parser *parser, const struct zkf_slice *word);

/* zkf_parse_credentials - the path of the keeper's credentials.  0 or -EINVAL */
int zkf_parse_credentials(struct zkf_parser *parser, const struct zkf_slice *word);

/*
 * A busy mail server's user has some hundred files locked at a time; all of a session's claims together must stay below
 * 1 MB of paths, some ten thousand, and one user shall not have them all.
 */
#define ZKF_USER_LIMIT_DEFAULT 4096
#define ZKF_USER_LIMIT_MIN 16
#define ZKF_USER_LIMIT_MAX 1000000

/* zkf_parse_limit - a word as a number of things that a user may have.  0 or -EINVAL */
int zkf_parse_limit(struct zkf_parser *parser, enum zkf_setting setting, const struct zkf_slice *word, int *limit);

/* zkf_parse_map - what stands behind `map`; the rule goes into the configuration.  0, -EINVAL or -ENOSPC */
int zkf_parse_map(struct zkf_parser *parser, struct zkf_slice *rest);

/* ---- words ---- */

static inline bool zkf_word_is(const struct zkf_slice *word, const char *string)
{
	return word->len == strlen(string) && memcmp(word->ptr, string, word->len) == 0;
}

/* zkf_next_word - take a word off rest; false at the end of the line or at a comment */
static inline bool zkf_next_word(struct zkf_slice *rest, struct zkf_slice *word)
{
	while (rest->len > 0 && (*rest->ptr == ' ' || *rest->ptr == '\t')) {
		rest->ptr++;
		rest->len--;
	}
	if (rest->len == 0 || *rest->ptr == '#')
		return false;
	word->ptr = rest->ptr;
	while (rest->len > 0 && *rest->ptr != ' ' && *rest->ptr != '\t') {
		rest->ptr++;
		rest->len--;
	}
	word->len = (size_t)(rest->ptr - word->ptr);
	return true;
}

static inline bool zkf_is_digit(char byte)
{
	return byte >= '0' && byte <= '9';
}

/* ---- components: what prefix, name and root have in common ---- */

/* One component while its bytes go by. */
struct zkf_component {
	size_t len;
	bool dots; /* nothing but dots so far */
};

static inline void zkf_component_add(struct zkf_component *component, unsigned char byte)
{
	component->dots = (component->len == 0 || component->dots) && byte == '.';
	component->len++;
}

/* zkf_component_end - at a '/' or at the end: what is wrong with it, or NULL; makes it ready for the next one */
static inline const char *zkf_component_end(struct zkf_component *component)
{
	const char *wrong = NULL;

	if (component->len == 0)
		wrong = "an empty component ('//')";
	else if (component->dots && component->len <= 2)
		wrong = "a '.' or '..' component";
	component->len = 0;
	return wrong;
}

#endif
