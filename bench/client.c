/*
 * bench/client.c - the least that a lock by ZooKeeper's own C client costs: create, children, delete, one after the other
 *
 *     client HOST:PORT PATH SECONDS
 *
 * Nobody else wants the lock, so nothing is watched.  Prints "cycles N ns N".  Exit status 0, 1 (ZooKeeper said no), 64.
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include <zookeeper/zookeeper.h>

static int64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static int cycle(zhandle_t *zk, const char *directory)
{
	struct String_vector children = {0, NULL};
	char node[512], made[512];
	int code;

	snprintf(node, sizeof(node), "%s/lock-", directory);
	code = zoo_create(zk, node, "", 0, &ZOO_OPEN_ACL_UNSAFE, ZOO_EPHEMERAL_SEQUENTIAL, made, sizeof(made));
	if (code == ZOK)
		code = zoo_get_children(zk, directory, 0, &children);
	if (code == ZOK) {
		deallocate_String_vector(&children);
		code = zoo_delete(zk, made, -1);
	}
	return code;
}

int main(int argc, char **argv)
{
	int64_t start, now, limit_ns, cycles = 0;
	zhandle_t *zk;
	int code = ZOK;

	if (argc != 4)
		return 64;
	limit_ns = (int64_t)(atof(argv[3]) * 1e9);
	zoo_set_debug_level(ZOO_LOG_LEVEL_ERROR);
	zk = zookeeper_init(argv[1], NULL, 10000, NULL, NULL, 0);
	for (int tries = 0; zk && zoo_state(zk) != ZOO_CONNECTED_STATE && tries < 10000; tries++)
		usleep(1000);
	if (!zk)
		return 1;
	zoo_set_servers_resolution_delay(zk, -1); /* else it looks names up in every turn of its loop */
	zoo_create(zk, argv[2], "", 0, &ZOO_OPEN_ACL_UNSAFE, ZOO_PERSISTENT, NULL, 0);
	for (start = now = now_ns(); code == ZOK && now - start < limit_ns; now = now_ns(), cycles++)
		code = cycle(zk, argv[2]);
	if (code == ZOK)
		printf("cycles %lld ns %lld\n", (long long)cycles, (long long)((now - start) / (cycles ? cycles : 1)));
	else
		fprintf(stderr, "client: %s: %s\n", argv[2], zerror(code));
	zookeeper_close(zk);
	return code != ZOK;
}
