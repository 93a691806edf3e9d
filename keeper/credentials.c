/*
 * keeper/credentials.c - see credentials.h
 * SPDX-License-Identifier: Apache-2.0
 */
#include "credentials.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* NULL, or what is wrong with the file as such. */
static const char *distrust(const struct stat *status)
{
	if (!S_ISREG(status->st_mode))
		return "it is no regular file";
	if (status->st_uid != 0 && status->st_uid != geteuid())
		return "it must belong to root or to the keeper's user";
	if (status->st_mode & 077)
		return "others may use it; allowed is mode 0600 or less";
	return NULL;
}

/* Takes the line's end off.  NULL, or what is wrong with the text. */
static const char *check(char *text, size_t bytes)
{
	const char *colon;

	if (bytes && text[bytes - 1] == '\n')
		bytes--;
	text[bytes] = 0;
	colon = strchr(text, ':');
	for (size_t i = 0; i < bytes; i++)
		if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f)
			return "it must be one line, without control characters";
	return colon && colon > text && colon[1] ? NULL : "it must be one line, user:password";
}

int zkf_credentials_read(const char *path, char text[ZKF_CREDENTIALS_BYTES], char *why, size_t why_bytes)
{
	/* A FIFO must not hold the start up. */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	const char *wrong = NULL;
	struct stat status;
	ssize_t bytes = -1;

	if (fd >= 0 && !fstat(fd, &status)) {
		wrong = distrust(&status);
		bytes = wrong ? 0 : read(fd, text, ZKF_CREDENTIALS_BYTES);
	}
	if (bytes < 0)
		wrong = strerror(errno);
	else if (bytes == ZKF_CREDENTIALS_BYTES)
		wrong = "it is too long; allowed are 510 bytes";
	else if (!wrong)
		wrong = check(text, (size_t)bytes);
	if (fd >= 0)
		close(fd);
	if (!wrong)
		return 0;
	snprintf(why, why_bytes, "credentials %s: %s", path, wrong);
	return -EINVAL;
}
