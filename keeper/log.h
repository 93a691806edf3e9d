/*
 * keeper/log.h - the keeper's log: one line an event, on standard error
 *
 * Answers for: "time level subject key=value ..." lines, each by one write(2).
 * Does not:    rotate or send them anywhere; that is for whoever started the keeper.
 * Threads:     any; also the ZooKeeper client's log callback.
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ZKF_LOG_H
#define ZKF_LOG_H

/* error: a person must act.  warn: service is degraded.  info: session and ownership.  debug: the rest. */
enum zkf_log_level { ZKF_LOG_ERROR, ZKF_LOG_WARN, ZKF_LOG_INFO, ZKF_LOG_DEBUG };

/* zkf_log_set_level - by name (error, warn, info, debug); NULL or unknown leaves the default, info */
void zkf_log_set_level(const char *name);

/* zkf_log - write one line; cut at 1000 bytes, control bytes become '?' */
void zkf_log(enum zkf_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
