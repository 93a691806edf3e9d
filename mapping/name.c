/*
 * mapping/name.c - rule + path -> lock name -> one component of a znode path
 *
 * Answers for: see name.h.
 * Must not:    be linked into the preload library (libmd).
 * Threads:     pure functions.
 * Specification: design sections 5 and 9; ZooKeeper Programmer's Guide, "The ZooKeeper Data Model".
 * SPDX-License-Identifier: Apache-2.0
 */
#include "name.h"

#include <sys/types.h>

#include <errno.h>
#include <sha2.h>
#include <stdint.h>
#include <string.h>

#include "escape.h"

/* '~' and the first 128 bits of the hash. */
#define HASH_HEX_BYTES 32
#define CUT_BYTES (ZKF_NAME_BYTES_MAX - 1 - HASH_HEX_BYTES)

static const char hex_lower[] = "0123456789abcdef";
static const char hex_upper[] = "0123456789ABCDEF";

struct buffer {
	char *ptr;
	size_t len, capacity; /* capacity with the NUL */
};

static int buffer_add(struct buffer *buffer, const char *bytes, size_t len)
{
	if (len > ZKF_LOCK_NAME_BYTES_MAX - buffer->len || len >= buffer->capacity - buffer->len)
		return -ENAMETOOLONG;
	memcpy(buffer->ptr + buffer->len, bytes, len);
	buffer->len += len;
	return 0;
}

/* below_prefix - the path below the rule's prefix; "." for the prefix itself, so that no name is empty */
static struct zkf_slice below_prefix(const char *path, size_t len, size_t covered)
{
	if (covered < len && path[covered] == '/')
		covered++;
	if (covered >= len)
		return (struct zkf_slice){".", 1};
	return (struct zkf_slice){path + covered, len - covered};
}

int zkf_rule_lock_name(const struct zkf_rule *rule, const char *path, size_t len, char *out, size_t capacity)
{
	struct buffer buffer = {out, 0, capacity};
	size_t covered = zkf_escape_covers(&rule->prefix, path, len);
	size_t i, took;
	int result = 0;

	if (capacity == 0)
		return -ENAMETOOLONG;
	if (covered == 0 || rule->excluded || memchr(path, '\0', len))
		return -EINVAL;
	for (i = 0; i < rule->name.len && result == 0; i += took) {
		const char *at = rule->name.ptr + i;
		unsigned char byte;
		struct zkf_slice piece;

		took = zkf_escape_take(at, rule->name.len - i, &byte);
		if (took == 0)
			return -EINVAL;
		piece = (struct zkf_slice){(const char *)&byte, 1};
		if (took == 1 && byte == '%' && i + 1 < rule->name.len) {
			took = 2;
			if (at[1] == 'p')
				piece = (struct zkf_slice){path, len};
			else if (at[1] == 'r')
				piece = below_prefix(path, len, covered);
		}
		result = buffer_add(&buffer, piece.ptr, piece.len);
	}
	if (result < 0)
		return result;
	out[buffer.len] = '\0';
	return buffer.len > 0 ? (int)buffer.len : -EINVAL;
}

static int stands_for_itself(unsigned char byte)
{
	return (byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
	       (byte != '\0' && strchr("._-+,=@:", byte) != NULL);
}

/* The names that ZooKeeper keeps for itself. */
static int is_reserved(const char *name, size_t len)
{
	return (len == 1 && memcmp(name, ".", 1) == 0) || (len == 2 && memcmp(name, "..", 2) == 0) ||
	       (len == 9 && memcmp(name, "zookeeper", 9) == 0);
}

/* cut_with_hash - end what has been encoded (at most CUT_BYTES) with the hash of the whole name */
static int cut_with_hash(const char *name, size_t len, char *out, size_t at)
{
	uint8_t digest[SHA256_DIGEST_LENGTH];
	SHA2_CTX context;
	size_t i;

	SHA256Init(&context);
	SHA256Update(&context, (const uint8_t *)name, len);
	SHA256Final(digest, &context);
	out[at++] = '~';
	for (i = 0; i < HASH_HEX_BYTES / 2; i++) {
		out[at++] = hex_lower[digest[i] >> 4];
		out[at++] = hex_lower[digest[i] & 15];
	}
	out[at] = '\0';
	return (int)at;
}

int zkf_name_encode(const char *name, size_t len, char out[ZKF_NAME_BYTES_MAX + 1])
{
	size_t i, at = 0, cut = 0; /* cut: the end of the last whole byte that leaves room for the hash */
	int reserved = is_reserved(name, len);

	for (i = 0; i < len; i++) {
		unsigned char byte = (unsigned char)name[i];
		int plain = stands_for_itself(byte) && !(reserved && i == 0);

		if (at + (plain ? 1 : 3) > ZKF_NAME_BYTES_MAX)
			return cut_with_hash(name, len, out, cut);
		if (plain) {
			out[at++] = (char)byte;
		} else {
			out[at++] = '%';
			out[at++] = hex_upper[byte >> 4];
			out[at++] = hex_upper[byte & 15];
		}
		if (at <= CUT_BYTES)
			cut = at;
	}
	out[at] = '\0';
	return (int)at;
}
