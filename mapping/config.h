/*
 * mapping/config.h - the configuration file: grammar, rules, path -> rule
 *
 * Answers for: what zkflock.conf(5) says, in one place for the library, the keeper and the tool.
 * Does not:    open files, allocate, log, or know ZooKeeper.  Lock names are made in mapping/name.h.
 * Threads:     a parsed configuration is immutable; any thread, any signal handler.
 * Specification: design section 9; zkflock.conf(5).
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ZKF_CONFIG_H
#define ZKF_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A slice of the configuration's text: not terminated, lives as long as the text does. */
struct zkf_slice {
	const char *ptr;
	size_t len;
};

enum zkf_on_loss { ZKF_LOSS_FREEZE, ZKF_LOSS_KILL, ZKF_LOSS_WARN };
enum zkf_unavailable { ZKF_UNAVAILABLE_WAIT, ZKF_UNAVAILABLE_FAIL, ZKF_UNAVAILABLE_LOCAL };

/* One `map` line. */
struct zkf_rule {
	struct zkf_slice prefix; /* as written, with escapes (escape.h); absolute, no trailing slash (but "/" itself) */
	struct zkf_slice name;   /* the template as written: %p %r, escapes; meaningless when excluded */
	bool excluded;           /* name is "-": not a cluster lock */
	bool group;              /* the template has no part of the path in it: one lock for all files below */
	enum zkf_on_loss on_loss;
	enum zkf_unavailable unavailable;
	int64_t keep_ms;         /* 0 = give back at the last unlock */
	int line;                /* where it stands, from 1 */
};

struct zkf_config {
	struct zkf_slice ensemble;  /* "host:port,..."; empty when not set */
	struct zkf_slice root;      /* "/zkflock"; "" for the ensemble's own root */
	int session_timeout_ms;
	int tick_time_ms;
	int connect_timeout_ms;
	int64_t keep_ms;            /* default of the rules that have no keep= */
	struct zkf_rule *rules;     /* the caller's array */
	size_t rule_count;
};

struct zkf_config_error {
	int line;       /* from 1; 0: of the file as a whole */
	char text[256]; /* "what is wrong; what is allowed", NUL-terminated, no newline */
};

/*
 * zkf_config_rules_max - number of rules that a text can hold at most (its lines), to size the array with
 */
size_t zkf_config_rules_max(const char *text, size_t len);

/*
 * zkf_config_parse - read a whole configuration
 *
 * config    filled with defaults first, then from the text; its slices point into text
 * rules     room for `capacity` rules
 * text,len  the file's bytes; no NUL needed at the end; a NUL byte inside is refused
 * error     filled when the result is not 0
 *
 * Returns 0, -EINVAL (a bad line: error says which, why, and what is allowed), or -ENOSPC (more rules than capacity).
 * On an error config is not to be used: a file is taken whole or not at all.
 */
int zkf_config_parse(struct zkf_config *config, struct zkf_rule *rules, size_t capacity, const char *text, size_t len,
                     struct zkf_config_error *error);

/*
 * zkf_config_match - the rule for a path: the longest prefix that ends at a '/' or at the path's end
 *
 * path,len  absolute, as the kernel prints it
 *
 * Returns the rule, also when it is an exclusion (look at `excluded`), or NULL.
 */
const struct zkf_rule *zkf_config_match(const struct zkf_config *config, const char *path, size_t len);

/*
 * zkf_config_may_match - could a path be meant by this text, whether or not the text is valid?
 *
 * For the library with a broken file in its hands: a lock on a path that any line may have meant must fail, not
 * pass for a local one.  True when any word of a non-comment line that begins with '/' (or a quote and '/') is a prefix
 * of path; it need not end with a component, and what no good prefix has in it (a pattern, an escape, "//") ends it.
 * The value of a `root` line is a znode and does not count.
 */
bool zkf_config_may_match(const char *text, size_t len, const char *path, size_t path_len);

/*
 * zkf_path_trim_deleted - length of a path without the " (deleted)" that the kernel adds to an unlinked file's
 *
 * nlink  st_nlink of the file: a file that still has a name keeps its suffix, it is part of the name
 */
size_t zkf_path_trim_deleted(const char *path, size_t len, uint64_t nlink);

#endif
