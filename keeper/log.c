/*
 * keeper/log.c - see log.h
 * SPDX-License-Identifier: Apache-2.0
 */
#include "log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LINE_BYTES 1000

static const char *const level_names[] = {"error", "warn", "info", "debug"};

/* Written once, before any thread is made. */
static enum zkf_log_level threshold = ZKF_LOG_INFO;

void zkf_log_set_level(const char *name)
{
	for (unsigned i = 0; name && i < sizeof(level_names) / sizeof(level_names[0]); i++)
		if (!strcmp(name, level_names[i]))
			threshold = (enum zkf_log_level)i;
}

void zkf_log(enum zkf_log_level level, const char *format, ...)
{
	char line[LINE_BYTES + 2];
	int saved = errno;
	struct timespec now;
	struct tm parts;
	va_list arguments;
	size_t used, end;
	int n;

	if (level > threshold)
		return;
	clock_gettime(CLOCK_REALTIME, &now);
	gmtime_r(&now.tv_sec, &parts);
	used = strftime(line, LINE_BYTES, "%Y-%m-%dT%H:%M:%S", &parts);
	n = snprintf(line + used, LINE_BYTES - used, ".%03ldZ %s ", now.tv_nsec / 1000000, level_names[level]);
	used += n > 0 ? (size_t)n : 0;
	va_start(arguments, format);
	n = vsnprintf(line + used, LINE_BYTES - used, format, arguments);
	va_end(arguments);
	end = used + (n > 0 ? (size_t)n : 0);
	if (end > LINE_BYTES - 1)
		end = LINE_BYTES - 1;
	for (size_t i = used; i < end; i++)
		if ((unsigned char)line[i] < 0x20 ||
		    line[i] == 0x7f) /* a path may hold a newline: one event, one line */
			line[i] = '?';
	line[end++] = '\n';
	if (write(STDERR_FILENO, line, end) < 0) {
		/* Nothing to be done: a full disk must not stop anybody's lock. */
	}
	errno = saved;
}
