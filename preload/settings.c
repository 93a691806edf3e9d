/*
 * preload/settings.c - the configuration and environment; see settings.h
 *
 * Answers for: see settings.h.
 * Does not:    see settings.h.
 * Threads:     see settings.h.  Memory is from mmap, since a program's own malloc may be what called us.
 * Specification: see settings.h.
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include "settings.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "log.h"
#include "page.h"
#include "real.h"
#include "runtime.h"

/* Written by whoever has loaded a newer object, release; read by all, acquire. */
static _Atomic(struct zkf_settings *) current;

/* When a process without a page looks for one again, CLOCK_BOOTTIME ns.  Written by whoever looks; any order will do. */
static _Atomic int64_t next_look_ns;
#define LOOK_NS 1000000000

static void *map_memory(size_t bytes)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return memory == MAP_FAILED ? NULL : memory;
}

static void unload(struct zkf_settings *settings)
{
	if (!settings->borrowed)
		zkf_files_free(settings->files);
	zkf_files_free(settings->doubt);
	munmap(settings, settings->map_bytes);
}

static const char *config_file(void)
{
	const char *file = secure_getenv("ZKFLOCK_CONF");

	return file && *file ? file : ZKF_CONFIG_FILE;
}

/* A device or a FIFO is no configuration. */
static int open_config(const char *path, int flags)
{
	int fd = zkf_real_open(path, O_RDONLY | flags);
	struct stat64 st;

	if (fd < 0 || (flags & O_DIRECTORY))
		return fd;
	if (!fstat64(fd, &st) && S_ISREG(st.st_mode))
		return fd;
	zkf_real_close(fd);
	return -EINVAL;
}

static void copy_string(char *out, size_t capacity, const char *string)
{
	size_t len = string ? strnlen(string, capacity - 1) : 0;

	memcpy(out, string ? string : "", len);
	out[len] = '\0';
}

/* The keeper, and we ourselves later, may look from another working directory. */
static void copy_absolute(char *out, size_t capacity, const char *file)
{
	size_t len = 0;

	if (*file != '/' && syscall(SYS_getcwd, out, capacity - 1) > 0) {
		len = strlen(out);
		out[len++] = '/';
	}
	copy_string(out + len, capacity - len, file);
}

/* look_in - map the page of one of the runtime directories; where none is leased, of a keeper that has no session */
static void look_in(const struct zkf_runtime *runtime)
{
	static const enum zkf_page_want wants[] = {ZKF_PAGE_LEASED, ZKF_PAGE_FOUND};
	int want, i;

	for (want = 0; want < 2; want++)
		for (i = 0; i < runtime->count; i++)
			if (!zkf_runtime_trust(runtime->paths[i]) && !zkf_page_map(runtime->paths[i], wants[want]))
				return;
}

/*
 * The page tells when the rules have changed, also to a program whose files are all unmapped and that never asks the
 * keeper.  One that has no page since no keeper ran looks again, but not at every call: that costs a system call.
 */
static const struct zkf_page *find_page(const struct zkf_settings *settings)
{
	const struct zkf_page *page = zkf_page_current();
	struct zkf_runtime runtime;
	int64_t now_ns;

	if (page)
		return page;
	now_ns = zkf_real_now_ns();
	if (now_ns < atomic_load_explicit(&next_look_ns, memory_order_relaxed))
		return NULL;
	atomic_store_explicit(&next_look_ns, now_ns + LOOK_NS, memory_order_relaxed);
	/* An unusable directory is reported by the conversation that follows: once. */
	if (zkf_runtime_usable(settings) && !zkf_runtime_find(&runtime, settings))
		look_in(&runtime);
	return zkf_page_current();
}

static uint32_t page_generation(const struct zkf_page *page)
{
	return page ? atomic_load(&page->header.config_generation) : 0;
}

static void find_root(uint64_t *dev, uint64_t *ino)
{
	struct stat64 st;
	bool found = !stat64("/", &st);

	*dev = found ? st.st_dev : 0;
	*ino = found ? st.st_ino : 0;
}

/*
 * A process that has called chroot(2) since sees other paths than the rules speak of, where it has a /proc at all: they
 * say nothing about what is not mapped.
 */
static bool root_is_another(const struct zkf_settings *settings)
{
	uint64_t dev, ino;

	find_root(&dev, &ino);
	return dev != settings->root_dev || ino != settings->root_ino;
}

/* The environment, or what a former object has of it: what the process has begun with it goes on with. */
static void fill_environment(struct zkf_settings *settings, const struct zkf_settings *old)
{
	if (old) {
		settings->root_dev = old->root_dev;
		settings->root_ino = old->root_ino;
		memcpy(settings->file, old->file, sizeof(settings->file));
		memcpy(settings->runtime_dir, old->runtime_dir, sizeof(settings->runtime_dir));
		memcpy(settings->xdg_runtime_dir, old->xdg_runtime_dir, sizeof(settings->xdg_runtime_dir));
		return;
	}
	find_root(&settings->root_dev, &settings->root_ino);
	copy_absolute(settings->file, sizeof(settings->file), config_file());
	copy_string(settings->runtime_dir, sizeof(settings->runtime_dir), secure_getenv("ZKFLOCK_RUNTIME_DIR"));
	copy_string(settings->xdg_runtime_dir, sizeof(settings->xdg_runtime_dir), secure_getenv("XDG_RUNTIME_DIR"));
}

/* The rules are parsed in place, and what they did not need is given back. */
static void trim(struct zkf_settings *settings)
{
	size_t used = sizeof(*settings) + settings->config.rule_count * sizeof(settings->rules[0]);

	used = (used + 65535) & ~(size_t)65535;
	if (used >= settings->map_bytes)
		return;
	munmap((char *)settings + used, settings->map_bytes - used);
	settings->map_bytes = used;
}

/*
 * A settings object, or a negative errno when the files can't be had; a broken text makes an object too.
 *
 * The generation is read before the files: who reads them while the keeper takes newer ones reads them once more.
 */
static int load(const struct zkf_settings *old, struct zkf_settings **out)
{
	const size_t bytes =
		(sizeof(struct zkf_settings) + ZKF_RULES_MAX * sizeof(struct zkf_rule) + 65535) & ~(size_t)65535;
	struct zkf_settings *settings = map_memory(bytes);
	int result;

	if (!settings)
		return -ENOMEM;
	settings->map_bytes = bytes;
	fill_environment(settings, old);
	atomic_init(&settings->generation, page_generation(find_page(settings)));
	result = zkf_files_load(settings->file, open_config, &settings->files, NULL);
	if (result) {
		unload(settings);
		return result;
	}
	settings->error = zkf_config_parse(&settings->config, settings->rules, ZKF_RULES_MAX, settings->files->list,
	                                   settings->files->count, &settings->problem);
	trim(settings);
	*out = settings;
	return 0;
}

/* A copy of `old` that knows no better but says so. */
static int make_stale(const struct zkf_settings *old, uint32_t generation, struct zkf_files *doubt,
                      struct zkf_settings **out)
{
	struct zkf_settings *settings = map_memory(old->map_bytes);

	if (!settings)
		return -ENOMEM;
	memcpy(settings, old, old->map_bytes);
	settings->stale = true;
	settings->borrowed = true;
	settings->doubt = doubt;
	atomic_init(&settings->generation, generation);
	*out = settings;
	return 0;
}

/* Publish `fresh` in the place of `old`; the loser of a race takes the winner's. */
static struct zkf_settings *publish(struct zkf_settings *old, struct zkf_settings *fresh)
{
	if (atomic_compare_exchange_strong(&current, &old, fresh))
		return fresh;
	unload(fresh);
	return old;
}

/*
 * Look at the files again: the keeper has new rules, or ours are broken.  Where they can't be read any more (chroot,
 * privileges given up), or are broken by now, the old rules may lack a file that is a cluster lock: from then on the
 * keeper, who has good ones, is asked about each that may be meant.
 */
static struct zkf_settings *refresh(struct zkf_settings *old, uint32_t generation)
{
	struct zkf_settings *fresh = NULL, *stale;
	struct zkf_files *doubt = NULL;

	if (!load(old, &fresh)) {
		if (!old->stale && zkf_files_same(old->files, fresh->files)) {
			atomic_store_explicit(&old->generation,
			                      atomic_load_explicit(&fresh->generation, memory_order_relaxed),
			                      memory_order_relaxed);
			unload(fresh);
			return old;
		}
		if (!fresh->error || old->error)
			return publish(old, fresh);
		doubt = fresh->files;
		fresh->files = NULL;
		unload(fresh);
	}
	if (old->error)
		return old;
	if (!make_stale(old, generation, doubt, &stale))
		return publish(old, stale);
	zkf_files_free(doubt);
	return old;
}

static int get(struct zkf_settings **out)
{
	struct zkf_settings *settings = atomic_load_explicit(&current, memory_order_acquire);
	const struct zkf_page *page;
	struct zkf_settings *fresh;
	uint32_t generation;
	int result;

	if (!settings) {
		/* A failure is not kept: the files may be there the next time. */
		result = load(NULL, &fresh);
		if (result)
			return result;
		settings = publish(NULL, fresh);
	} else {
		page = find_page(settings);
		generation = page_generation(page);
		if (page && atomic_load_explicit(&settings->generation, memory_order_relaxed) != generation)
			settings = refresh(settings, generation);
	}
	*out = settings;
	return 0;
}

const struct zkf_settings *zkf_settings_loaded(void)
{
	return atomic_load_explicit(&current, memory_order_acquire);
}

int zkf_descriptor_path(int fd, const struct stat64 *st, char *path, size_t capacity)
{
	char link[sizeof("/proc/self/fd/") + 24] = "/proc/self/fd/";
	ssize_t len;

	zkf_format_number(link + strlen(link), fd);
	len = readlink(link, path, capacity);
	if (len < 0)
		return -errno;
	if ((size_t)len == capacity)
		return -ENAMETOOLONG;
	return (int)zkf_path_trim_deleted(path, (size_t)len, st->st_nlink);
}

static bool covered_by_page(const struct stat64 *st, enum zkf_kind kind)
{
	const struct zkf_page *page = zkf_page_current();
	uint64_t state;

	return page && zkf_page_find(page, st->st_dev, st->st_ino, kind, &state) &&
	       (ZKF_STATE_MODE(state) != ZKF_NONE || (state & ZKF_STATE_RECALLED));
}

static bool may_mean(const struct zkf_files *files, const char *path, size_t len)
{
	size_t i;

	for (i = 0; i < files->count; i++)
		if (zkf_config_may_match(files->list[i].text, files->list[i].len, path, len))
			return true;
	return false;
}

static enum zkf_verdict judge_path(int fd, const struct stat64 *st, struct zkf_settings *settings)
{
	char path[PATH_MAX];
	int len = zkf_descriptor_path(fd, st, path, sizeof(path));
	const struct zkf_rule *rule;

	if (settings->error && (len < 0 || may_mean(settings->files, path, (size_t)len)))
		return ZKF_VERDICT_REFUSE;
	if (len < 0)
		return ZKF_VERDICT_ASK;
	if (settings->error)
		return ZKF_VERDICT_KERNEL;
	rule = zkf_config_match(&settings->config, path, (size_t)len);
	if ((rule && !rule->excluded) || (settings->doubt && may_mean(settings->doubt, path, (size_t)len)) ||
	    root_is_another(settings))
		return ZKF_VERDICT_ASK;
	return ZKF_VERDICT_KERNEL;
}

enum zkf_verdict zkf_judge(int fd, const struct stat64 *st, enum zkf_kind kind, const struct zkf_settings **out)
{
	struct zkf_settings *settings, *again;
	enum zkf_verdict verdict;

	if (get(&settings))
		return ZKF_VERDICT_REFUSE;
	*out = settings;
	if (!settings->error && ((settings->stale && !settings->doubt) || covered_by_page(st, kind)))
		return ZKF_VERDICT_ASK;
	verdict = judge_path(fd, st, settings);
	if (verdict != ZKF_VERDICT_REFUSE)
		return verdict;
	/* Broken rules: mended meanwhile?  The keeper can't tell us, it may not even run. */
	again = refresh(settings, atomic_load_explicit(&settings->generation, memory_order_relaxed));
	*out = again;
	return again == settings ? verdict : judge_path(fd, st, again);
}

static void log_broken(struct zkf_line *line, const struct zkf_settings *settings)
{
	zkf_log_string(line, settings->problem.place.file);
	zkf_log_string(line, ":");
	zkf_log_number(line, settings->problem.place.line);
	zkf_log_string(line, ": ");
	zkf_log_string(line, settings->problem.text);
}

static void log_missing(struct zkf_line *line)
{
	struct zkf_files_failure failure;
	struct zkf_files *files;
	int error = zkf_files_load(config_file(), open_config, &files, &failure);

	if (!error) {
		zkf_files_free(files);
		return; /* there by now: the next call will find them */
	}
	zkf_log_string(line, failure.path);
	zkf_log_string(line, ": cannot be read error=");
	zkf_log_errno(line, error);
	if (failure.why) {
		zkf_log_string(line, ": ");
		zkf_log_string(line, failure.why);
	}
	zkf_log_string(line, "; without rules no lock is safe: mend the file, or name another one in ZKFLOCK_CONF");
}

int zkf_refuse(int fd, const struct stat64 *st)
{
	struct zkf_settings *settings;
	struct zkf_line line;
	char path[PATH_MAX];
	int len;

	if (!zkf_log_begin(&line, ZKF_LOG_ERROR, "configuration "))
		return -ENOLCK;
	if (get(&settings))
		log_missing(&line);
	else
		log_broken(&line, settings);
	len = zkf_descriptor_path(fd, st, path, sizeof(path));
	zkf_log_string(&line, " refused=");
	zkf_log_bytes(&line, path, len < 0 ? 0 : (size_t)len);
	zkf_log_end(&line);
	return -ENOLCK;
}

const struct zkf_rule *zkf_settings_rule(const struct zkf_settings *settings, int fd)
{
	char path[PATH_MAX];
	struct stat64 st;
	int len;

	if (settings->error || fstat64(fd, &st))
		return NULL;
	len = zkf_descriptor_path(fd, &st, path, sizeof(path));
	return len < 0 ? NULL : zkf_config_match(&settings->config, path, (size_t)len);
}
