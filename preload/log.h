/*
 * preload/log.h - one line on descriptor 2, when ZKFLOCK_LOG asks for it
 *
 * Answers for: "zkflock: LEVEL subject ..." in a single write(2), cut where it gets too long.
 * Does not:    print anything unasked, allocate, use stdio, or touch errno (the entry points keep it).
 * Threads:     any thread, any signal handler, a vfork child.  The level is read from the environment once.
 * Specification: ZKFLOCK_LOG = error | warn | info | debug; anything else, or unset: silence.
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ZKF_LOG_H
#define ZKF_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum zkf_log_level {
	ZKF_LOG_NONE = 0,
	ZKF_LOG_ERROR = 1, /* a person must act */
	ZKF_LOG_WARN = 2,  /* service is degraded */
	ZKF_LOG_INFO = 3,  /* keeper and ownership changes */
	ZKF_LOG_DEBUG = 4, /* the rest */
};

#define ZKF_LINE_BYTES 1024

/* A line under construction, on the caller's stack. */
struct zkf_line {
	size_t len;
	bool cut;
	char text[ZKF_LINE_BYTES];
};

/* zkf_log_wanted - would a line of this level be written? */
bool zkf_log_wanted(enum zkf_log_level level);

/* zkf_log_begin - start a line; false: nobody wants it, do not go on */
bool zkf_log_begin(struct zkf_line *line, enum zkf_log_level level, const char *subject);

/* zkf_log_bytes, _string, _number - add to the line; control characters become '?', so that a line stays one */
void zkf_log_bytes(struct zkf_line *line, const char *bytes, size_t len);
void zkf_log_string(struct zkf_line *line, const char *string);
void zkf_log_number(struct zkf_line *line, int64_t number);

/* zkf_log_errno - add a negative errno by its name, as "ENOENT" */
void zkf_log_errno(struct zkf_line *line, int error);

/* zkf_log_end - write it, without SIGPIPE for the program */
void zkf_log_end(struct zkf_line *line);

/* zkf_format_number - decimal digits of a number into at least 21 bytes, NUL-terminated; returns their count */
size_t zkf_format_number(char *out, int64_t number);

#endif
