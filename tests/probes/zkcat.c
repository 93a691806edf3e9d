/*
 * tests/probes/zkcat.c - look at a ZooKeeper server from a test
 *
 *     zkcat HOST:PORT,... ls PATH | get PATH | count PATH | create PATH [DATA] | ephemeral PATH [DATA] | delete PATH |
 *                         protect PATH | open PATH | acl PATH
 *
 * ls      children, sorted, one a line
 * get     the data
 * count   znodes below PATH, at any depth; 0 when PATH itself is missing
 * create  a persistent znode, parents too; data may be empty
 * ephemeral  the same for the last component, then hold it until killed
 * delete  a znode and all below it
 * protect, open  from now on everybody may only read and administer it, or do everything
 * acl     who may do what: one "scheme:id:permissions" a line
 *
 * With ZKCAT_AUTH=USER:PASSWORD in its environment it says first that it is that.
 *
 * Exit status 0, 1 (ZooKeeper said no: the message names the code), 2 (no connection within 10 s), 64 (usage).
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zookeeper/zookeeper.h>

#define PATH_BYTES 8192
#define DATA_BYTES (1024 * 1024)

static int fail(int code, const char *path)
{
	fprintf(stderr, "zkcat: %s: %s\n", path, zerror(code));
	return 1;
}

static void child_path(char *out, const char *parent, const char *child)
{
	snprintf(out, PATH_BYTES, "%s/%s", strcmp(parent, "/") == 0 ? "" : parent, child);
}

static int by_name(const void *left, const void *right)
{
	return strcmp(*(char *const *)left, *(char *const *)right);
}

static int list(zhandle_t *zk, const char *path)
{
	struct String_vector children = {0, NULL};
	int code = zoo_get_children(zk, path, 0, &children);

	if (code != ZOK)
		return fail(code, path);
	if (children.count > 0)
		qsort(children.data, (size_t)children.count, sizeof(*children.data), by_name);
	for (int i = 0; i < children.count; i++)
		puts(children.data[i]);
	deallocate_String_vector(&children);
	return 0;
}

/* Adds the znodes below path to *count.  One that goes while we look was not there. */
static int count_below(zhandle_t *zk, const char *path, long *count)
{
	struct String_vector children = {0, NULL};
	char below[PATH_BYTES];
	int code = zoo_get_children(zk, path, 0, &children), result = 0;

	if (code == ZNONODE)
		return 0;
	if (code != ZOK)
		return fail(code, path);
	*count += children.count;
	for (int i = 0; i < children.count && result == 0; i++) {
		child_path(below, path, children.data[i]);
		result = count_below(zk, below, count);
	}
	deallocate_String_vector(&children);
	return result;
}

static int delete_below(zhandle_t *zk, const char *path)
{
	struct String_vector children = {0, NULL};
	char below[PATH_BYTES];
	int code = zoo_get_children(zk, path, 0, &children), result = 0;

	if (code != ZOK)
		return fail(code, path);
	for (int i = 0; i < children.count && result == 0; i++) {
		child_path(below, path, children.data[i]);
		result = delete_below(zk, below);
	}
	deallocate_String_vector(&children);
	if (result != 0)
		return result;
	code = zoo_delete(zk, path, -1);
	return code == ZOK || code == ZNONODE ? 0 : fail(code, path);
}

static int get(zhandle_t *zk, const char *path)
{
	char *data = malloc(DATA_BYTES);
	int bytes = DATA_BYTES, code;

	if (!data)
		return 1;
	code = zoo_get(zk, path, 0, data, &bytes, NULL);
	if (code == ZOK && bytes > 0)
		fwrite(data, 1, (size_t)bytes, stdout);
	free(data);
	return code == ZOK ? 0 : fail(code, path);
}

static int create(zhandle_t *zk, const char *path, const char *data, bool ephemeral)
{
	char parent[PATH_BYTES];
	int code;

	for (const char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		snprintf(parent, sizeof(parent), "%.*s", (int)(slash - path), path);
		code = zoo_create(zk, parent, "", 0, &ZOO_OPEN_ACL_UNSAFE, ZOO_PERSISTENT, NULL, 0);
		if (code != ZOK && code != ZNODEEXISTS)
			return fail(code, parent);
	}
	code = zoo_create(zk, path, data, (int)strlen(data), &ZOO_OPEN_ACL_UNSAFE,
	                  ephemeral ? ZOO_EPHEMERAL : ZOO_PERSISTENT, NULL, 0);
	if (code != ZOK)
		return fail(code, path);
	if (ephemeral) {
		puts("created");
		fflush(stdout);
	}
	while (ephemeral)
		pause();
	return 0;
}

static int set_permissions(zhandle_t *zk, const char *path, int32_t permissions)
{
	struct ACL everybody = {.perms = permissions, .id = ZOO_ANYONE_ID_UNSAFE};
	struct ACL_vector list = {.count = 1, .data = &everybody};
	int code = zoo_set_acl(zk, path, -1, &list);

	return code == ZOK ? 0 : fail(code, path);
}

static int print_acl(zhandle_t *zk, const char *path)
{
	struct ACL_vector list = {0, NULL};
	struct Stat status;
	int code = zoo_get_acl(zk, path, &list, &status);

	if (code != ZOK)
		return fail(code, path);
	for (int i = 0; i < list.count; i++)
		printf("%s:%s:%d\n", list.data[i].id.scheme, list.data[i].id.id, list.data[i].perms);
	deallocate_ACL_vector(&list);
	return 0;
}

int main(int argc, char **argv)
{
	const char *who = getenv("ZKCAT_AUTH");
	zhandle_t *zk;
	long count = 0;
	int result = 64;

	if (argc < 4)
		return 64;
	zoo_set_debug_level(ZOO_LOG_LEVEL_ERROR);
	zk = zookeeper_init(argv[1], NULL, 10000, NULL, NULL, 0);
	for (int tries = 0; zk && zoo_state(zk) != ZOO_CONNECTED_STATE && tries < 1000; tries++)
		usleep(10000);
	if (!zk || zoo_state(zk) != ZOO_CONNECTED_STATE) {
		fprintf(stderr, "zkcat: %s: no connection\n", argv[1]);
		return 2;
	}
	if (who && zoo_add_auth(zk, "digest", who, (int)strlen(who), NULL, NULL) != ZOK)
		return 2;
	if (strcmp(argv[2], "ls") == 0) {
		result = list(zk, argv[3]);
	} else if (strcmp(argv[2], "get") == 0) {
		result = get(zk, argv[3]);
	} else if (strcmp(argv[2], "count") == 0) {
		result = count_below(zk, argv[3], &count);
		printf("%ld\n", count);
	} else if (strcmp(argv[2], "create") == 0 || strcmp(argv[2], "ephemeral") == 0) {
		result = create(zk, argv[3], argc > 4 ? argv[4] : "", argv[2][0] == 'e');
	} else if (strcmp(argv[2], "protect") == 0) {
		result = set_permissions(zk, argv[3], ZOO_PERM_READ | ZOO_PERM_ADMIN);
	} else if (strcmp(argv[2], "open") == 0) {
		result = set_permissions(zk, argv[3], ZOO_PERM_ALL);
	} else if (strcmp(argv[2], "acl") == 0) {
		result = print_acl(zk, argv[3]);
	} else if (strcmp(argv[2], "delete") == 0) {
		result = delete_below(zk, argv[3]);
	}
	zookeeper_close(zk);
	return result;
}
