/*
 * mapping/escape.h - \ooo and \\ in the words of the configuration
 *
 * Answers for: the one reading of an escape, for the parser, the matcher and the names.
 * Does not:    allocate or copy.  A word stays as it stands in the text and is decoded byte by byte where it is used:
 *              a slice of a read-only text is enough.
 * Threads:     pure functions; any thread, any signal handler.
 * Specification: zkflock.conf(5), "Escapes"; the octal form is that of fstab(5).
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ZKF_ESCAPE_H
#define ZKF_ESCAPE_H

#include <stddef.h>

#include "config.h"

/*
 * zkf_escape_take - decode the byte at the beginning of a word
 *
 * ptr,len  what is left of the word, len > 0
 * byte     receives the byte
 *
 * Returns how many bytes of the word it took: 1, 2 (a doubled backslash) or 4 (octal), or 0 for a malformed escape:
 * not three octal digits, over \377, \000 (no path has it), or \057 (a '/' in disguise would escape every check).
 */
static inline size_t zkf_escape_take(const char *ptr, size_t len, unsigned char *byte)
{
	unsigned value = 0;
	size_t i;

	*byte = (unsigned char)ptr[0];
	if (ptr[0] != '\\')
		return 1;
	if (len >= 2 && ptr[1] == '\\')
		return 2;
	if (len < 4)
		return 0;
	for (i = 1; i < 4; i++) {
		if (ptr[i] < '0' || ptr[i] > '7')
			return 0;
		value = value * 8 + (unsigned)(ptr[i] - '0');
	}
	if (value == 0 || value > 0xff || value == '/')
		return 0;
	*byte = (unsigned char)value;
	return 4;
}

/*
 * zkf_escape_covers - does a prefix without a pattern cover a path?
 *
 * prefix    escapes as written
 * path,len  as the kernel prints it, nothing is decoded in it
 *
 * Returns how many bytes of the path the prefix takes ("/" takes 1) when it ends at a '/' or at the path's end, else 0.
 */
static inline size_t zkf_escape_covers(const struct zkf_slice *prefix, const char *path, size_t len)
{
	size_t i = 0, at = 0;

	while (i < prefix->len) {
		unsigned char byte;
		size_t took = zkf_escape_take(prefix->ptr + i, prefix->len - i, &byte);

		if (took == 0 || at == len || (unsigned char)path[at] != byte)
			return 0;
		i += took;
		at++;
	}
	if (at == 0)
		return 0;
	return at == len || path[at] == '/' || path[at - 1] == '/' ? at : 0;
}

/*
 * zkf_prefix_take - the byte at a place of a rule's prefix (checked by the parser), or its "*"
 *
 * star  set when a component is "*", which stands for any one component; as "\052" it is the character
 *
 * Returns how many bytes of the text it took.
 */
static inline size_t zkf_prefix_take(const struct zkf_slice *prefix, size_t at, unsigned char *byte, bool *star)
{
	size_t took = zkf_escape_take(prefix->ptr + at, prefix->len - at, byte);

	*star = took == 1 && *byte == '*';
	return took ? took : prefix->len - at;
}

/*
 * zkf_prefix_covers - does a rule's prefix cover a path?
 *
 * path,len  as the kernel prints it, nothing is decoded in it
 * stars     receives what each "*" of the prefix stands for, ZKF_STARS_MAX of them; or NULL
 *
 * Returns as zkf_escape_covers does.
 */
static inline size_t zkf_prefix_covers(const struct zkf_slice *prefix, const char *path, size_t len,
                                       struct zkf_slice *stars)
{
	size_t i = 0, at = 0, n = 0, start;

	while (i < prefix->len) {
		unsigned char byte;
		bool star;

		i += zkf_prefix_take(prefix, i, &byte, &star);
		if (!star) {
			if (at == len || (unsigned char)path[at] != byte)
				return 0;
			at++;
			continue;
		}
		start = at;
		while (at < len && path[at] != '/')
			at++;
		if (at == start)
			return 0;
		if (stars && n < ZKF_STARS_MAX)
			stars[n++] = (struct zkf_slice){path + start, at - start};
	}
	if (at == 0)
		return 0;
	return at == len || path[at] == '/' || path[at - 1] == '/' ? at : 0;
}

#endif
