/*
 * mapping/text.h - the text of a configuration error, without stdio
 *
 * Answers for: bounded formatting into zkf_config_error.text.
 * Does not:    allocate, touch errno, or look at the locale: it runs inside other people's programs.
 * Threads:     works on the caller's memory only; any thread, any signal handler.
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ZKF_TEXT_H
#define ZKF_TEXT_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "config.h"

/* Of a long word the message shows so much, as it is printed: what is allowed comes after it and must not be cut off. */
#define ZKF_TEXT_WORD_MAX 64

struct zkf_message {
	char *ptr;
	size_t len, capacity; /* capacity with the NUL, > 0 */
};

static inline void zkf_text_byte(struct zkf_message *text, char byte)
{
	if (text->len + 1 >= text->capacity)
		return;
	text->ptr[text->len++] = byte;
	text->ptr[text->len] = '\0';
}

static inline void zkf_text_string(struct zkf_message *text, const char *string)
{
	while (*string != '\0')
		zkf_text_byte(text, *string++);
}

static inline void zkf_text_number(struct zkf_message *text, int64_t number)
{
	char digits[20];
	size_t n = 0;
	uint64_t rest = number < 0 ? (uint64_t)0 - (uint64_t)number : (uint64_t)number;

	if (number < 0)
		zkf_text_byte(text, '-');
	do {
		digits[n++] = (char)('0' + rest % 10);
		rest /= 10;
	} while (rest != 0);
	while (n > 0)
		zkf_text_byte(text, digits[--n]);
}

/* A word in quotes; what a terminal could misread is shown as the octal escape that the grammar has for it. */
static inline void zkf_text_word(struct zkf_message *text, const struct zkf_slice *word)
{
	size_t i, end = text->len + ZKF_TEXT_WORD_MAX;

	zkf_text_byte(text, '\'');
	for (i = 0; i < word->len && text->len < end; i++) {
		unsigned char byte = (unsigned char)word->ptr[i];

		if (byte >= 0x20 && byte < 0x7f) {
			zkf_text_byte(text, (char)byte);
			continue;
		}
		zkf_text_byte(text, '\\');
		zkf_text_byte(text, (char)('0' + (byte >> 6)));
		zkf_text_byte(text, (char)('0' + (byte >> 3 & 7)));
		zkf_text_byte(text, (char)('0' + (byte & 7)));
	}
	if (i < word->len)
		zkf_text_string(text, "...");
	zkf_text_byte(text, '\'');
}

/* The place of another line: "at line 3", or "in 'other.conf' at line 3". */
static inline void zkf_text_place(struct zkf_message *text, const struct zkf_place *place, const char *here)
{
	const char *name = place->file ? strrchr(place->file, '/') : NULL;
	struct zkf_slice word;

	if (place->file && place->file != here) {
		name = name ? name + 1 : place->file;
		word = (struct zkf_slice){name, strlen(name)};
		zkf_text_string(text, "in ");
		zkf_text_word(text, &word);
		zkf_text_byte(text, ' ');
	}
	zkf_text_string(text, "at line ");
	zkf_text_number(text, place->line);
}

/*
 * zkf_text_format - write a message; what does not fit is cut
 *
 * here    the file that the message is about
 * format  %s: const char *; %w: const struct zkf_slice *, quoted; %l: const struct zkf_place *; %d: int64_t;
 *         %%: a percent sign
 */
static inline void zkf_text_format(char *out, size_t capacity, const char *here, const char *format, va_list arguments)
{
	struct zkf_message text = {.ptr = out, .len = 0, .capacity = capacity};

	out[0] = '\0';
	for (; *format != '\0'; format++) {
		if (*format != '%' || format[1] == '\0') {
			zkf_text_byte(&text, *format);
			continue;
		}
		format++;
		if (*format == 's')
			zkf_text_string(&text, va_arg(arguments, const char *));
		else if (*format == 'w')
			zkf_text_word(&text, va_arg(arguments, const struct zkf_slice *));
		else if (*format == 'l')
			zkf_text_place(&text, va_arg(arguments, const struct zkf_place *), here);
		else if (*format == 'd')
			zkf_text_number(&text, va_arg(arguments, int64_t));
		else
			zkf_text_byte(&text, *format);
	}
}

#endif
