/*
 * mapping/name.h - rule + path -> lock name, and names -> one component of a znode path
 *
 * Answers for: the one-to-one translation of what an operator and a file system may write into what ZooKeeper takes.
 * Does not:    choose the rule; that is mapping/config.h.  Not part of the library: the keeper's mapping decides.
 * Threads:     pure functions.
 * Specification: design sections 5 and 9; ZooKeeper Programmer's Guide, "The ZooKeeper Data Model".
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ZKF_NAME_H
#define ZKF_NAME_H

#include <stddef.h>

#include "config.h"

/* Longest component that zkf_name_encode makes, without the NUL: a session's ephemeral paths must stay below 1 MB. */
#define ZKF_NAME_BYTES_MAX 120
/* Longest lock name before encoding. */
#define ZKF_LOCK_NAME_BYTES_MAX 8192

/*
 * zkf_rule_lock_name - expand a rule's template for a path
 *
 * rule      not excluded
 * path,len  the path that the rule matched
 * out       receives the name, NUL-terminated; the name may hold any byte but NUL
 * capacity  bytes of out; ZKF_LOCK_NAME_BYTES_MAX + 1 always suffices for paths up to PATH_MAX
 *
 * Returns the length (> 0: the prefix itself under "%r" gives "."), -ENAMETOOLONG, or -EINVAL when the rule is an
 * exclusion or does not cover the path.
 */
int zkf_rule_lock_name(const struct zkf_rule *rule, const char *path, size_t len, char *out, size_t capacity);

/*
 * zkf_name_encode - percent-encode a lock name into one path component
 *
 * Letters, digits and "._-+,=@:" stand for themselves, all else (also '%', '/', space, and every byte from 0x7f up)
 * becomes %XX; a name that is "." or ".." or "zookeeper" has its first byte encoded.  A result over ZKF_NAME_BYTES_MAX
 * is cut and ended with "~" and 32 hexadecimal digits of the name's SHA-256 ('~' is never made by the encoding, so a
 * cut name meets no other).
 *
 * Returns the length; out is NUL-terminated and has room for ZKF_NAME_BYTES_MAX + 1 bytes.
 */
int zkf_name_encode(const char *name, size_t len, char out[ZKF_NAME_BYTES_MAX + 1]);

/*
 * zkf_rule_znode - both: the component of a znode path that a rule gives a path
 *
 * Returns as zkf_rule_lock_name does; out is filled when the result is > 0.
 */
int zkf_rule_znode(const struct zkf_rule *rule, const char *path, size_t len, char out[ZKF_NAME_BYTES_MAX + 1]);

#endif
