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

#include "template.h"

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

/* The parts of a path that a template may name.  None is empty: where a part would be, it is ".". */
struct parts {
	struct zkf_slice path, below, directory, base, stars[ZKF_STARS_MAX];
};

static const struct zkf_slice dot = {".", 1};

static struct zkf_slice last_component(const char *path, size_t len)
{
	size_t end = len, start;

	while (end > 0 && path[end - 1] == '/')
		end--;
	for (start = end; start > 0 && path[start - 1] != '/'; start--)
		;
	return end > start ? (struct zkf_slice){path + start, end - start} : dot;
}

/* parts_of - false when the rule does not cover the path */
static bool parts_of(const struct zkf_rule *rule, const char *path, size_t len, struct parts *parts)
{
	size_t covered = zkf_prefix_covers(&rule->prefix, path, len, parts->stars);

	if (covered == 0)
		return false;
	parts->path = (struct zkf_slice){path, len};
	parts->base = last_component(path, len);
	parts->below = parts->directory = dot;
	if (covered < len && path[covered] == '/')
		covered++;
	if (covered >= len)
		return true;
	parts->below = (struct zkf_slice){path + covered, len - covered};
	/* As dirname(1) has it: "." for what is directly below the prefix. */
	while (len > covered && path[len - 1] != '/')
		len--;
	if (len > covered + 1)
		parts->directory = (struct zkf_slice){path + covered, len - 1 - covered};
	return true;
}

static struct zkf_slice part(const struct parts *parts, enum zkf_piece piece, const unsigned char *byte)
{
	switch (piece) {
	case ZKF_PIECE_PATH:
		return parts->path;
	case ZKF_PIECE_BELOW:
		return parts->below;
	case ZKF_PIECE_DIRECTORY:
		return parts->directory;
	case ZKF_PIECE_BASE:
		return parts->base;
	case ZKF_PIECE_STAR:
		return parts->stars[*byte - 1];
	default:
		return (struct zkf_slice){(const char *)byte, 1};
	}
}

int zkf_rule_lock_name(const struct zkf_rule *rule, const char *path, size_t len, char *out, size_t capacity)
{
	struct buffer buffer = {out, 0, capacity};
	struct parts parts = {.path = dot};
	size_t i, took;
	int result = 0;

	if (capacity == 0)
		return -ENAMETOOLONG;
	if (rule->excluded || memchr(path, '\0', len) || !parts_of(rule, path, len, &parts))
		return -EINVAL;
	for (i = 0; i < rule->name.len && result == 0; i += took) {
		unsigned char byte;
		enum zkf_piece piece = zkf_template_take(&rule->name, i, &took, &byte);
		struct zkf_slice bytes;

		if (piece >= ZKF_PIECE_BAD_ESCAPE)
			return -EINVAL;
		bytes = part(&parts, piece, &byte);
		if (bytes.len == 0)
			return -EINVAL;
		result = buffer_add(&buffer, bytes.ptr, bytes.len);
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

int zkf_rule_znode(const struct zkf_rule *rule, const char *path, size_t len, char out[ZKF_NAME_BYTES_MAX + 1])
{
	char name[ZKF_LOCK_NAME_BYTES_MAX + 1];
	int bytes = zkf_rule_lock_name(rule, path, len, name, sizeof(name));

	return bytes < 0 ? bytes : zkf_name_encode(name, (size_t)bytes, out);
}
