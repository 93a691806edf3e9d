/*
 * keeper/lines.c - see lines.h
 * SPDX-License-Identifier: Apache-2.0
 */
#include "lines.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

int zkf_lines_open(struct zkf_lines *lines, int fd)
{
	lines->fd = fd;
	lines->error = fd < 0 ? -errno : 0;
	lines->whole = true;
	lines->at = lines->end = 0;
	return lines->error;
}

/* Makes room and reads on; false: there is no more. */
static bool fill(struct zkf_lines *lines)
{
	ssize_t bytes;

	memmove(lines->buffer, lines->buffer + lines->at, lines->end - lines->at);
	lines->end -= lines->at;
	lines->at = 0;
	if (lines->end == sizeof(lines->buffer) - 1)
		return false;
	do
		bytes = read(lines->fd, lines->buffer + lines->end, sizeof(lines->buffer) - 1 - lines->end);
	while (bytes < 0 && errno == EINTR);
	if (bytes < 0)
		lines->error = -errno;
	if (bytes <= 0)
		return false;
	lines->end += (size_t)bytes;
	return true;
}

char *zkf_lines_next(struct zkf_lines *lines)
{
	char *line, *newline;
	bool rest = !lines->whole; /* of one that was cut: not another line */

	if (lines->fd < 0)
		return NULL;
	for (;;) {
		newline = memchr(lines->buffer + lines->at, '\n', lines->end - lines->at);
		if (newline && rest) {
			lines->at = (size_t)(newline + 1 - lines->buffer);
			rest = false;
			continue;
		}
		if (newline || !fill(lines))
			break;
	}
	if (!newline && (rest || lines->at == lines->end))
		return NULL;
	line = lines->buffer + lines->at;
	lines->whole = newline != NULL;
	if (!newline)
		newline = lines->buffer + lines->end;
	lines->at = (size_t)(newline - lines->buffer) + (lines->whole ? 1 : 0);
	*newline = 0;
	return line;
}

int zkf_lines_close(struct zkf_lines *lines)
{
	if (lines->fd >= 0)
		close(lines->fd);
	return lines->error;
}

int zkf_entries_open(struct zkf_entries *entries, const char *path)
{
	entries->fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	entries->error = entries->fd < 0 ? -errno : 0;
	entries->at = entries->end = 0;
	return entries->error;
}

const char *zkf_entries_next(struct zkf_entries *entries)
{
	while (entries->fd >= 0) {
		const struct dirent64 *entry;

		if (entries->at == entries->end) {
			ssize_t bytes = getdents64(entries->fd, entries->buffer, sizeof(entries->buffer));

			if (bytes < 0)
				entries->error = -errno;
			if (bytes <= 0)
				break;
			entries->at = 0;
			entries->end = (size_t)bytes;
		}
		entry = (const struct dirent64 *)(const void *)(entries->buffer + entries->at);
		entries->at += entry->d_reclen;
		if (entry->d_name[0] != '.')
			return entry->d_name;
	}
	return NULL;
}

int zkf_entries_close(struct zkf_entries *entries)
{
	if (entries->fd >= 0)
		close(entries->fd);
	return entries->error;
}
