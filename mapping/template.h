/*
 * mapping/template.h - the pieces of a rule's lock name
 *
 * Answers for: the one reading of a template, for the parser, the names and the tool's warnings.
 * Does not:    allocate or copy.
 * Threads:     pure functions; any thread, any signal handler.
 * Specification: zkflock.conf(5), "NAME".
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ZKF_TEMPLATE_H
#define ZKF_TEMPLATE_H

#include "escape.h"

enum zkf_piece {
	ZKF_PIECE_BYTE,
	ZKF_PIECE_PATH,      /* %p: all of the path */
	ZKF_PIECE_BELOW,     /* %r: the path below the prefix */
	ZKF_PIECE_DIRECTORY, /* %d: of that, what is before the last component */
	ZKF_PIECE_BASE,      /* %b: the path's last component */
	ZKF_PIECE_STAR,      /* %1 to %9: what a '*' of the prefix stands for; the byte is its number */
	ZKF_PIECE_BAD_ESCAPE,
	ZKF_PIECE_BAD_PERCENT,
};

/*
 * zkf_template_take - the piece at a place of a template
 *
 * took  receives how many bytes of the text it is
 * byte  receives the byte, or the number of a '*' from 1
 */
static inline enum zkf_piece zkf_template_take(const struct zkf_slice *name, size_t at, size_t *took,
                                               unsigned char *byte)
{
	char letter;

	*took = zkf_escape_take(name->ptr + at, name->len - at, byte);
	if (*took == 0)
		return ZKF_PIECE_BAD_ESCAPE;
	if (*took > 1 || *byte != '%')
		return ZKF_PIECE_BYTE;
	if (at + 1 == name->len)
		return ZKF_PIECE_BAD_PERCENT;
	*took = 2;
	letter = name->ptr[at + 1];
	if (letter >= '1' && letter <= '0' + ZKF_STARS_MAX) {
		*byte = (unsigned char)(letter - '0');
		return ZKF_PIECE_STAR;
	}
	switch (letter) {
	case '%':
		return ZKF_PIECE_BYTE;
	case 'p':
		return ZKF_PIECE_PATH;
	case 'r':
		return ZKF_PIECE_BELOW;
	case 'd':
		return ZKF_PIECE_DIRECTORY;
	case 'b':
		return ZKF_PIECE_BASE;
	default:
		return ZKF_PIECE_BAD_PERCENT;
	}
}

#endif
