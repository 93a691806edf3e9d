/*
 * keeper/named.c - see named.h
 * SPDX-License-Identifier: Apache-2.0
 */
#include "named.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "../mapping/name.h"

/* Written by zkf_named_init: as the kernel prints it, with a slash at its end. */
static char prefix[PATH_MAX + 16];
static size_t prefix_bytes;

void zkf_named_init(int directory_fd)
{
	char link[40];
	ssize_t bytes;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", directory_fd);
	bytes = readlink(link, prefix, PATH_MAX);
	if (bytes <= 0)
		return;
	snprintf(prefix + bytes, sizeof(prefix) - (size_t)bytes, "/" ZKF_NAMED_DIRECTORY "/");
	prefix_bytes = strlen(prefix);
}

/* What zkf_name_encode makes, and nothing else: one lock must not have two names. */
static bool is_encoded(const char *name)
{
	size_t length = strlen(name);

	return length > 0 && length <= ZKF_NAME_BYTES_MAX && strcmp(name, ".") != 0 && strcmp(name, "..") != 0 &&
	       strcmp(name, "zookeeper") != 0 &&
	       strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-+,=@:%~") == length;
}

const char *zkf_named_znode(const char *path)
{
	if (!prefix_bytes || strncmp(path, prefix, prefix_bytes) != 0 || !is_encoded(path + prefix_bytes))
		return NULL;
	return path + prefix_bytes;
}

const struct zkf_rule *zkf_named_rule(const struct zkf_config *config)
{
	static struct zkf_rule rule = {.on_loss = ZKF_LOSS_FREEZE, .unavailable = ZKF_UNAVAILABLE_WAIT};

	rule.keep_ms = config->keep_ms;
	return &rule;
}
