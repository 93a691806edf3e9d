/*
 * keeper/lines.h - a file's lines and a directory's entries, without memory from the heap
 *
 * Answers for: what must be read though memory has run out: who holds a lock, and what a former keeper has left.
 * Does not:    understand them.
 * Threads:     any.
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ZKF_LINES_H
#define ZKF_LINES_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

/* A path in hexadecimal, and room for what stands beside it (keeper/state.c). */
#define ZKF_LINE_BYTES (2 * PATH_MAX + 512)

struct zkf_lines {
	int fd;
	int error;  /* of a read, a negative errno: then there may be more */
	bool whole; /* the last line had its newline */
	size_t at, end;
	char buffer[ZKF_LINE_BYTES];
};

/* zkf_lines_open - fd is taken over, and may be an error of open (-1, errno); 0 or that negative errno */
int zkf_lines_open(struct zkf_lines *lines, int fd);

/* zkf_lines_next - the next line, without its newline; NULL at the end.  One that is too long is cut. */
char *zkf_lines_next(struct zkf_lines *lines);

/* zkf_lines_close - once, whether or not open has succeeded; returns lines->error */
int zkf_lines_close(struct zkf_lines *lines);

struct zkf_entries {
	int fd;
	int error; /* as above */
	size_t at, end;
	char buffer[2048] __attribute__((aligned(8)));
};

/* zkf_entries_open, _next, _close - alike, of the directory at a path; "." and whatever begins with one are left out */
int zkf_entries_open(struct zkf_entries *entries, const char *path);
const char *zkf_entries_next(struct zkf_entries *entries);
int zkf_entries_close(struct zkf_entries *entries);

#endif
