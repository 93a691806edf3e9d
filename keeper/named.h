/*
 * keeper/named.h - locks that have a name and no file: `zkflock lock NAME`
 *
 * Answers for: the implicit rule that a file in the directory "names" of the runtime directory is the lock of that name.
 *              The file's name is the name of the znode (mapping/name.h, zkf_name_encode), so that it is the same lock as
 *              that of a file which a rule gives this name, on any host.
 * Does not:    make the directory or the files: who may write there may take every lock, so that is for whom it belongs to.
 * Threads:     zkf_named_init before the guard forks; then read only.
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ZKF_NAMED_H
#define ZKF_NAMED_H

#include "../mapping/config.h"

#define ZKF_NAMED_DIRECTORY "names"

/* zkf_named_init - of this runtime directory */
void zkf_named_init(int directory_fd);

/* zkf_named_znode - the lock of such a file, by its path; NULL: it is none */
const char *zkf_named_znode(const char *path);

/* zkf_named_rule - how those are dealt with: defaults, and the configuration's keep */
const struct zkf_rule *zkf_named_rule(const struct zkf_config *config);

#endif
