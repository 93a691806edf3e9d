/*
 * mapping/match.c - path -> rule, and what a text that is no configuration may have meant
 *
 * Answers for: see config.h.
 * Must not:    see parser.h.
 * Threads:     pure functions over the caller's memory.
 * Specification: zkflock.conf(5), "PREFIX".
 * SPDX-License-Identifier: Apache-2.0
 */
#include "escape.h"
#include "parser.h"

/* Two prefixes, byte by byte, side by side. */
struct pair {
	const struct zkf_slice *a, *b;
	size_t i, j;
	unsigned char x, y; /* the bytes there */
	bool star_x, star_y;
};

static bool pair_next(struct pair *pair)
{
	if (pair->i >= pair->a->len || pair->j >= pair->b->len)
		return false;
	pair->i += zkf_prefix_take(pair->a, pair->i, &pair->x, &pair->star_x);
	pair->j += zkf_prefix_take(pair->b, pair->j, &pair->y, &pair->star_y);
	return true;
}

/* skip_component - up to the '/' behind the component that the place is in, or to the end */
static size_t skip_component(const struct zkf_slice *prefix, size_t at)
{
	while (at < prefix->len && prefix->ptr[at] != '/')
		at++;
	return at;
}

bool zkf_rules_precede(const struct zkf_rule *a, const struct zkf_rule *b)
{
	struct pair pair = {&a->prefix, &b->prefix, 0, 0, 0, 0, false, false};

	/* Both cover one path: the first byte in which they differ is a '*' in one of them. */
	while (pair_next(&pair))
		if (pair.star_x != pair.star_y)
			return pair.star_y;
	return false;
}

bool zkf_rules_ambiguous(const struct zkf_rule *a, const struct zkf_rule *b)
{
	struct pair pair = {&a->prefix, &b->prefix, 0, 0, 0, 0, false, false};
	bool a_wins = false, b_wins = false;

	while (pair_next(&pair)) {
		if (pair.star_x == pair.star_y) {
			if (pair.x != pair.y)
				return false;
			continue;
		}
		a_wins |= pair.star_y;
		b_wins |= pair.star_x;
		pair.i = skip_component(pair.a, pair.i);
		pair.j = skip_component(pair.b, pair.j);
	}
	return a_wins && b_wins && pair.i == a->prefix.len && pair.j == b->prefix.len;
}

const struct zkf_rule *zkf_config_match(const struct zkf_config *config, const char *path, size_t len)
{
	const struct zkf_rule *best = NULL;
	size_t i, covered, longest = 0;

	/*
	 * A plain loop: an unmapped path differs from most prefixes within the first bytes, and a tree would have to be
	 * allocated.  All prefixes that fit cover the beginning of one path, so the longest covers most of it.
	 */
	for (i = 0; i < config->rule_count; i++) {
		const struct zkf_rule *rule = &config->rules[i];

		covered = zkf_prefix_covers(&rule->prefix, path, len, NULL);
		if (covered > longest || (covered > 0 && covered == longest && zkf_rules_precede(rule, best))) {
			longest = covered;
			best = rule;
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
	struct zkf_slice word;
	size_t i = 0, start, words = 0;
	bool no_prefix = false;

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
		if (!(words == 1 && no_prefix) && may_mean((struct zkf_slice){text + start, i - start}, path, path_len))
			return true;
		word = (struct zkf_slice){text + start, i - start};
		no_prefix = words++ == 0 && (zkf_word_is(&word, "root") || zkf_word_is(&word, "metrics_file") ||
		                             zkf_word_is(&word, "credentials"));
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
