/*
 * keeper/rules.c - see rules.h
 * SPDX-License-Identifier: Apache-2.0
 */
#include "rules.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../mapping/files.h"
#include "fault.h"
#include "lock.h"
#include "log.h"
#include "metrics.h"
#include "publish.h"
#include "server.h"

#define CONFIG_PATH "/etc/zkflock.conf"

/* A configuration and what its slices point into. */
struct rules {
	struct zkf_files *files;
	struct zkf_rule *array;
	struct zkf_config config;
};

/*
 * Memory that the guard and its keepers share: the files of the last good reload.  The keeper fills the half that is not
 * in use and then says so; killed in between it leaves the other one.
 */
struct shared {
	_Atomic unsigned half;
	char *halves[2];
};

/* Written by zkf_rules_init, then by the loop. */
static struct rules *first, *now;
static struct shared *shared;

/* As the library has it: a FIFO would be an empty configuration, and that takes all rules away. */
static int open_file(const char *path, int flags)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | flags);
	struct stat status;

	if (fd < 0)
		return -errno;
	if ((flags & O_DIRECTORY) || (!fstat(fd, &status) && S_ISREG(status.st_mode)))
		return fd;
	close(fd);
	return -EINVAL;
}

static const char *config_path(void)
{
	const char *path = secure_getenv("ZKFLOCK_CONF");

	return path && *path ? path : CONFIG_PATH;
}

static void rules_free(struct rules *rules)
{
	zkf_files_free(rules->files);
	free(rules->array);
	free(rules);
}

/* rules_parse - of files that are its own from here on, also when it fails */
static int rules_parse(struct zkf_files *files, struct rules **made, char *why, size_t why_bytes)
{
	struct rules *rules = zkf_calloc(1, sizeof(*rules));
	size_t most = zkf_config_rules_max(files->list, files->count);
	struct zkf_config_error error;
	int result = -ENOMEM;

	snprintf(why, why_bytes, "out of memory");
	if (!rules) {
		zkf_files_free(files);
		return -ENOMEM;
	}
	rules->files = files;
	rules->array = zkf_calloc(most + 1, sizeof(*rules->array));
	if (rules->array) {
		result = zkf_config_parse(&rules->config, rules->array, most, files->list, files->count, &error);
		if (result < 0)
			snprintf(why, why_bytes, "%s:%d: %s", error.place.file, error.place.line, error.text);
	}
	if (result < 0) {
		rules_free(rules);
		return result == -ENOMEM ? -ENOMEM : -EINVAL;
	}
	*made = rules;
	return 0;
}

static int rules_read(struct rules **made, char *why, size_t why_bytes)
{
	struct zkf_files_failure failure;
	struct zkf_files *files;
	int result = zkf_files_load(config_path(), open_file, &files, &failure);

	if (result == 0)
		return rules_parse(files, made, why, why_bytes);
	snprintf(why, why_bytes, "%s: %s", failure.path, failure.why ? failure.why : strerror(-result));
	return result == -ENOMEM ? -ENOMEM : -EINVAL;
}

/* Without this memory a keeper that is started again goes by the first rules: worth a word, not the start. */
static void shared_init(void)
{
	size_t half = zkf_files_bytes_max(), bytes = sizeof(*shared) + 65536 + 2 * half;
	char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (memory == MAP_FAILED) {
		zkf_log(ZKF_LOG_WARN, "keeper rules error=\"no memory to leave them to a keeper that follows\"");
		return;
	}
	shared = (struct shared *)(void *)memory;
	shared->halves[0] = memory + 65536;
	shared->halves[1] = memory + 65536 + half;
}

/* shared_keep - from now on what a keeper that follows goes by */
static void shared_keep(const struct zkf_files *files)
{
	unsigned half;

	if (!shared)
		return;
	half = !shared->half;
	zkf_files_copy((struct zkf_files *)(void *)shared->halves[half], files);
	shared->half = half;
}

int zkf_rules_init(char *why, size_t why_bytes)
{
	int result = rules_read(&first, why, why_bytes);

	if (result < 0)
		return result;
	now = first;
	shared_init();
	shared_keep(first->files);
	return 0;
}

void zkf_rules_inherit(void)
{
	const struct zkf_files *left = shared ? (const struct zkf_files *)(void *)shared->halves[shared->half] : NULL;
	char why[400];
	struct zkf_files *files;
	struct rules *rules;

	if (!left || zkf_files_same(left, first->files))
		return;
	files = mmap(NULL, left->map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (files == MAP_FAILED)
		return;
	zkf_files_copy(files, left);
	if (rules_parse(files, &rules, why, sizeof(why)) == 0)
		now = rules;
	else
		zkf_log(ZKF_LOG_ERROR, "keeper rules error=\"%s\" action=\"those of the first start\"", why);
}

const struct zkf_config *zkf_rules_config(void)
{
	return &first->config;
}

const struct zkf_config *zkf_rules_current(void)
{
	return &now->config;
}

static bool same_slice(const struct zkf_slice *a, const struct zkf_slice *b)
{
	return a->len == b->len && memcmp(a->ptr, b->ptr, a->len) == 0;
}

/* tell_fixed - of the settings that the session began with, which ones are others now? */
static void tell_fixed(const struct zkf_config *fresh, void (*tell)(void *context, const char *line), void *context)
{
	const struct zkf_config *old = &first->config;
	const bool changed[ZKF_SETTING_COUNT] = {
		[ZKF_ENSEMBLE] = !same_slice(&old->ensemble, &fresh->ensemble),
		[ZKF_ROOT] = !same_slice(&old->root, &fresh->root),
		[ZKF_SESSION_TIMEOUT] = old->session_timeout_ms != fresh->session_timeout_ms,
		[ZKF_TICK_TIME] = old->tick_time_ms != fresh->tick_time_ms,
		[ZKF_CREDENTIALS] = !same_slice(&old->credentials, &fresh->credentials),
	};
	char line[ZKF_RULES_WHY_BYTES];
	int i;

	for (i = 0; i < ZKF_SETTING_COUNT; i++) {
		const struct zkf_place *place = &fresh->places[i];

		if (!changed[i])
			continue;
		if (place->line)
			snprintf(line, sizeof(line), "%s:%d: %s is changed, and needs a restart of zkflockd",
			         place->file, place->line, zkf_setting_names[i]);
		else
			snprintf(line, sizeof(line), "%s: %s is set no more, and needs a restart of zkflockd",
			         config_path(), zkf_setting_names[i]);
		zkf_log(ZKF_LOG_WARN, "keeper reload why=\"%s\"", line);
		tell(context, line);
	}
}

int zkf_rules_reload(void (*tell)(void *context, const char *line), void *context)
{
	char why[ZKF_RULES_WHY_BYTES];
	struct rules *fresh, *old = now;
	int result = rules_read(&fresh, why, sizeof(why));

	if (result < 0) {
		zkf_log(ZKF_LOG_ERROR, "keeper reload error=\"%s\" action=\"the old rules stay\"", why);
		tell(context, why);
		return result;
	}
	tell_fixed(&fresh->config, tell, context);
	now = fresh;
	shared_keep(fresh->files);
	zkf_lock_init(fresh->config.connect_timeout_ms);
	zkf_metrics_use(fresh->config.metrics_file.ptr, fresh->config.metrics_file.len);
	zkf_server_rules(&fresh->config);
	/* Last: a program that reads them now meets a keeper that goes by them. */
	zkf_publish_config_changed();
	zkf_log(ZKF_LOG_INFO, "keeper reloaded rules=%zu files=%zu", fresh->config.rule_count, fresh->files->count);
	if (old != first)
		rules_free(old);
	return 0;
}
