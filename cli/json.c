/*
 * cli/json.c - strings of any bytes as JSON
 *
 * Answers for: text that every JSON reader takes.  A byte that is no part of UTF-8 becomes U+FFFD; whoever needs the
 *              bytes themselves is given them in hexadecimal beside it (cli_json_bytes).
 * Threads:     one.
 * Specification: RFC 8259; RFC 3629.
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdbool.h>
#include <string.h>

#include "cli.h"

/* sequence - bytes of the UTF-8 character at the beginning of the text, 0: none */
static size_t sequence(const unsigned char *at, size_t len)
{
	static const struct {
		unsigned char first, last, second_min, second_max;
		size_t bytes;
	} forms[] = {
		{0x00, 0x7f, 0x00, 0x00, 1}, {0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3},
		{0xe1, 0xec, 0x80, 0xbf, 3}, {0xed, 0xed, 0x80, 0x9f, 3}, {0xee, 0xef, 0x80, 0xbf, 3},
		{0xf0, 0xf0, 0x90, 0xbf, 4}, {0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4},
	};
	size_t i, k;

	for (i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
		if (at[0] < forms[i].first || at[0] > forms[i].last || len < forms[i].bytes)
			continue;
		if (forms[i].bytes > 1 && (at[1] < forms[i].second_min || at[1] > forms[i].second_max))
			return 0;
		for (k = 2; k < forms[i].bytes; k++)
			if ((at[k] & 0xc0) != 0x80)
				return 0;
		return forms[i].bytes;
	}
	return 0;
}

bool cli_is_utf8(const char *bytes, size_t len)
{
	size_t i, took;

	for (i = 0; i < len; i += took) {
		took = sequence((const unsigned char *)bytes + i, len - i);
		if (took == 0)
			return false;
	}
	return true;
}

void cli_json_string(FILE *stream, const char *bytes, size_t len)
{
	size_t i, took;

	fputc('"', stream);
	for (i = 0; i < len; i += took) {
		unsigned char byte = (unsigned char)bytes[i];

		took = sequence((const unsigned char *)bytes + i, len - i);
		if (took == 0) {
			fputs("\\ufffd", stream);
			took = 1;
		} else if (byte == '"' || byte == '\\') {
			fprintf(stream, "\\%c", byte);
		} else if (byte < 0x20 || byte == 0x7f) {
			fprintf(stream, "\\u%04x", byte);
		} else {
			fwrite(bytes + i, 1, took, stream);
		}
	}
	fputc('"', stream);
}

void cli_json_bytes(FILE *stream, const char *bytes, size_t len)
{
	size_t i;

	fputc('"', stream);
	for (i = 0; i < len; i++)
		fprintf(stream, "%02x", (unsigned char)bytes[i]);
	fputc('"', stream);
}
