/*
 * keeper/rules.h - the keeper's configuration: read at the start, and again while it runs
 *
 * Answers for: whose rules count, what may change while the keeper runs, what a keeper that is started again goes by.
 * Does not:    map (server.c), or parse (mapping/).
 * Threads:     the loop's; zkf_rules_init before the guard forks.
 * Specification: zkflock.conf(5); zkflockd(8), "RELOAD".
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ZKF_RULES_H
#define ZKF_RULES_H

#include <stddef.h>

#include "../mapping/config.h"

#define ZKF_RULES_WHY_BYTES 8192

/*
 * zkf_rules_init - read the configuration for the first time
 *
 * why  receives why not, one line
 *
 * Returns 0, -EINVAL (it can't be read, or is broken), or -ENOMEM.
 */
int zkf_rules_init(char *why, size_t why_bytes);

/*
 * zkf_rules_inherit - in a keeper that the guard has just forked: the rules that the former one had last
 *
 * What it finds in the files by now nobody has asked it to take.
 */
void zkf_rules_inherit(void);

/* zkf_rules_config - the configuration of the start, with which the session runs; it lives for ever */
const struct zkf_config *zkf_rules_config(void);

/* zkf_rules_current - the configuration of the last reload; until the next one */
const struct zkf_config *zkf_rules_current(void);

/*
 * zkf_rules_reload - new rules for new locks, or none at all
 *
 * tell  called for each line that people should know: what is wrong, or what needs a restart
 *
 * Returns 0, -EINVAL (the old rules stay: the files can't be read or are broken) or -ENOMEM (they stay, too).
 */
int zkf_rules_reload(void (*tell)(void *context, const char *line), void *context);

#endif
