/*
 * mapping/config.h - the configuration: grammar, rules, path -> rule
 *
 * Answers for: what zkflock.conf(5) says, in one place for the library, the keeper and the tool.
 * Does not:    open files (mapping/files.h), allocate, log, or know ZooKeeper.  Lock names are made in mapping/name.h.
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

/* One file of the configuration in memory.  The path is for messages and origins. */
struct zkf_config_file {
	const char *path;
	const char *text; /* no NUL needed at the end; a NUL byte inside is refused */
	size_t len;
};

/* Where something stands. */
struct zkf_place {
	const char *file; /* the zkf_config_file's path */
	int line;         /* from 1; 0: nowhere, it is the default */
};

/* A process must not think for seconds in its first lock call, and each rule costs every unmapped call a comparison. */
#define ZKF_RULES_MAX 4096
/* %1 to %9 */
#define ZKF_STARS_MAX 9

enum zkf_setting {
	ZKF_ENSEMBLE,
	ZKF_ROOT,
	ZKF_SESSION_TIMEOUT,
	ZKF_TICK_TIME,
	ZKF_CONNECT_TIMEOUT,
	ZKF_KEEP,
	ZKF_METRICS_FILE,
	ZKF_CREDENTIALS,
	ZKF_USER_CONNECTIONS,
	ZKF_USER_LOCKS,
	ZKF_SETTING_COUNT
};

enum zkf_on_loss { ZKF_LOSS_FREEZE, ZKF_LOSS_KILL, ZKF_LOSS_WARN };
enum zkf_unavailable { ZKF_UNAVAILABLE_WAIT, ZKF_UNAVAILABLE_FAIL, ZKF_UNAVAILABLE_LOCAL };

/* The words of the grammar, by their enumeration, NULL at the end. */
extern const char *const zkf_setting_names[], *const zkf_on_loss_names[], *const zkf_unavailable_names[];

/* One `map` line. */
struct zkf_rule {
	struct zkf_slice prefix; /* as written, with escapes (escape.h); absolute, no trailing slash (but "/" itself) */
	struct zkf_slice name;   /* the template as written (template.h); meaningless when excluded */
	int stars;               /* components of the prefix that are "*" */
	bool excluded;           /* name is "-": not a cluster lock */
	bool group;              /* nothing in the template tells one file from another: one lock for many */
	enum zkf_on_loss on_loss;
	enum zkf_unavailable unavailable;
	int64_t keep_ms; /* 0 = give back at the last unlock */
	struct zkf_place place;
};

struct zkf_config {
	struct zkf_slice ensemble; /* "host:port,..."; empty when not set */
	struct zkf_slice root;     /* "/zkflock"; "" for the ensemble's own root */
	int session_timeout_ms;
	int tick_time_ms;
	int connect_timeout_ms;
	int64_t keep_ms;               /* default of the rules that have no keep= */
	struct zkf_slice metrics_file; /* of the keeper; empty: none */
	struct zkf_slice
		credentials; /* absolute path; empty when not set.  For the keeper only: keeper/credentials.h */
	int user_connections, user_locks; /* at most so many for each user, see keeper/users.h */
	struct zkf_place places[ZKF_SETTING_COUNT];
	struct zkf_rule *rules; /* the caller's array */
	size_t rule_count;
};

struct zkf_config_error {
	struct zkf_place place; /* line 0: of the file as a whole */
	char text[256];         /* "what is wrong; what is allowed", NUL-terminated, no newline */
};

/*
 * zkf_config_rules_max - number of rules that the files can hold at most (their lines, ZKF_RULES_MAX), to size the
 * array with
 */
size_t zkf_config_rules_max(const struct zkf_config_file *files, size_t count);

/*
 * zkf_config_parse - read a whole configuration
 *
 * config       filled with defaults first, then from the files; its slices point into their texts
 * rules        room for `capacity` rules
 * files,count  in their order; together they are one configuration: a setting or a prefix may stand once in all of them
 * error        filled when the result is not 0
 *
 * Returns 0, -EINVAL (a bad line: error says which, why, and what is allowed), or -ENOSPC (more rules than capacity).
 * On an error config is not to be used: a configuration is taken whole or not at all.
 */
int zkf_config_parse(struct zkf_config *config, struct zkf_rule *rules, size_t capacity,
                     const struct zkf_config_file *files, size_t count, struct zkf_config_error *error);

/*
 * zkf_config_match - the rule for a path
 *
 * path,len  absolute, as the kernel prints it
 *
 * Of all prefixes that cover the path the one with most components; of those that have the same number the one that is
 * literal where, from the left, they differ first.  No two rules are equal in that: a prefix is mapped once.
 *
 * Returns the rule, also when it is an exclusion (look at `excluded`), or NULL.
 */
const struct zkf_rule *zkf_config_match(const struct zkf_config *config, const char *path, size_t len);

/* zkf_rules_precede - does rule a win against rule b on a path that both cover with equally many components? */
bool zkf_rules_precede(const struct zkf_rule *a, const struct zkf_rule *b);

/*
 * zkf_rules_ambiguous - may both cover a path, with equally many components, each being more literal somewhere?
 *
 * The order is defined nevertheless (zkf_rules_precede), but who wrote them may not have seen that they meet.
 */
bool zkf_rules_ambiguous(const struct zkf_rule *a, const struct zkf_rule *b);

/*
 * zkf_config_may_match - could a path be meant by this text, whether or not the text is valid?
 *
 * For the library with a broken file in its hands: a lock on a path that any line may have meant must fail, not
 * pass for a local one.  True when any word of a non-comment line that begins with '/' (or a quote and '/') is a prefix
 * of path; it need not end with a component, and what no good prefix has in it (a pattern, an escape, "//") ends it.
 * The values of `root`, a znode, of `metrics_file` and of `credentials` do not count.
 */
bool zkf_config_may_match(const char *text, size_t len, const char *path, size_t path_len);

/*
 * zkf_path_trim_deleted - length of a path without the " (deleted)" that the kernel adds to an unlinked file's
 *
 * nlink  st_nlink of the file: a file that still has a name keeps its suffix, it is part of the name
 */
size_t zkf_path_trim_deleted(const char *path, size_t len, uint64_t nlink);

#endif
