/*
 * tests/probes/refusefs.c - a file system that refuses to lock its files
 *
 *     refusefs DIRECTORY     mounts itself there, prints "ready", serves until it is ended or unmounted; for root
 *
 * Some empty files in one directory, made as they are opened.  Every lock call, also the keeper's, gets ENOLCK.  It speaks
 * FUSE's own protocol, so that no library is needed.
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define FILES_MAX 64

static char names[FILES_MAX][64]; /* inode 2 + i */
static int file_count, device;
static char buffer[1 << 17] __attribute__((aligned(8)));

static void reply(uint64_t unique, int error, const void *data, size_t bytes)
{
	struct fuse_out_header head = {
		.len = (uint32_t)(sizeof(head) + (error ? 0 : bytes)), .error = -error, .unique = unique};
	struct iovec parts[2] = {{&head, sizeof(head)}, {(void *)(uintptr_t)data, error ? 0 : bytes}};

	if (writev(device, parts, 2) < 0 && errno != ENOENT)
		perror("refusefs: reply");
}

static struct fuse_attr attr_of(uint64_t inode)
{
	return (struct fuse_attr){.ino = inode,
	                          .mode = inode == 1 ? S_IFDIR | 0755 : S_IFREG | 0666,
	                          .nlink = inode == 1 ? 2 : 1,
	                          .blksize = 4096};
}

static struct fuse_entry_out entry_of(uint64_t inode)
{
	return (struct fuse_entry_out){
		.nodeid = inode, .entry_valid = 3600, .attr_valid = 3600, .attr = attr_of(inode)};
}

static uint64_t find(const char *name)
{
	for (int i = 0; i < file_count; i++)
		if (strcmp(names[i], name) == 0)
			return (uint64_t)i + 2;
	return 0;
}

static void look_up(uint64_t unique, const char *name)
{
	struct fuse_entry_out entry = entry_of(find(name));

	reply(unique, entry.nodeid ? 0 : ENOENT, &entry, sizeof(entry));
}

static void create(uint64_t unique, const char *name)
{
	struct {
		struct fuse_entry_out entry;
		struct fuse_open_out open;
	} out = {.open = {.fh = 0}};

	if (!find(name) && file_count < FILES_MAX)
		snprintf(names[file_count++], sizeof(names[0]), "%.60s", name);
	out.entry = entry_of(find(name));
	reply(unique, out.entry.nodeid ? 0 : ENOSPC, &out, sizeof(out));
}

static void serve(const struct fuse_in_header *in)
{
	const char *body = (const char *)(in + 1);
	struct fuse_attr_out attr = {.attr_valid = 3600, .attr = attr_of(in->nodeid)};
	struct fuse_init_out init = {.major = FUSE_KERNEL_VERSION,
	                             .minor = 31,
	                             .flags = FUSE_POSIX_LOCKS | FUSE_FLOCK_LOCKS,
	                             .max_write = 4096};
	struct fuse_open_out opened = {.fh = 0};

	switch (in->opcode) {
	case FUSE_INIT:
		reply(in->unique, 0, &init, sizeof(init));
		break;
	case FUSE_LOOKUP:
		look_up(in->unique, body);
		break;
	case FUSE_CREATE:
		create(in->unique, body + sizeof(struct fuse_create_in));
		break;
	case FUSE_GETATTR:
	case FUSE_SETATTR:
		reply(in->unique, 0, &attr, sizeof(attr));
		break;
	case FUSE_OPEN:
	case FUSE_OPENDIR:
		reply(in->unique, 0, &opened, sizeof(opened));
		break;
	case FUSE_SETLK:
	case FUSE_SETLKW:
	case FUSE_GETLK:
		reply(in->unique, ENOLCK, NULL, 0);
		break;
	case FUSE_READ:
	case FUSE_READDIR:
	case FUSE_RELEASE:
	case FUSE_RELEASEDIR:
	case FUSE_FLUSH:
		reply(in->unique, 0, NULL, 0);
		break;
	case FUSE_FORGET:
	case FUSE_BATCH_FORGET:
	case FUSE_INTERRUPT:
		break;
	default:
		reply(in->unique, ENOSYS, NULL, 0);
	}
}

int main(int argc, char **argv)
{
	char options[80];
	ssize_t bytes;

	device = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	if (argc != 2 || device < 0)
		return 77;
	snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", device);
	if (mount("refusefs", argv[1], "fuse.refusefs", MS_NOSUID | MS_NODEV, options)) {
		perror("refusefs: mount");
		return 77;
	}
	puts("ready");
	fflush(stdout);
	while ((bytes = read(device, buffer, sizeof(buffer))) > 0 || errno == EINTR || errno == ENOENT)
		if (bytes > 0)
			serve((const struct fuse_in_header *)(const void *)buffer);
	return 0;
}
