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

/* A larger file is no configuration but a mistake. */
#define CONFIG_BYTES_MAX (4 << 20)

/* Written by whoever has loaded a newer object, release; read by all, acquire. */
static _Atomic(struct zkf_settings *) current;

static void *map_memory(size_t bytes)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return memory == MAP_FAILED ? NULL : memory;
}

static void unload(struct zkf_settings *settings)
{
	if (settings->text_map_bytes)
		munmap((void *)(uintptr_t)settings->text, settings->text_map_bytes);
	munmap(settings, settings->map_bytes);
}

static const char *config_file(void)
{
	const char *file = secure_getenv("ZKFLOCK_CONF");

	return file && *file ? file : ZKF_CONFIG_FILE;
}

static void identify(struct zkf_identity *identity, const struct stat64 *st)
{
	const int64_t ns_per_s = 1000000000;

	identity->dev = st->st_dev;
	identity->ino = st->st_ino;
	identity->size = st->st_size;
	identity->mtime_ns = st->st_mtim.tv_sec * ns_per_s + st->st_mtim.tv_nsec;
	identity->ctime_ns = st->st_ctim.tv_sec * ns_per_s + st->st_ctim.tv_nsec;
}

static bool same_identity(const struct zkf_identity *a, const struct zkf_identity *b)
{
	return a->dev == b->dev && a->ino == b->ino && a->size == b->size && a->mtime_ns == b->mtime_ns &&
	       a->ctime_ns == b->ctime_ns;
}

/* A file's bytes in a mapping of their own. */
struct zkf_text {
	char *bytes;
	size_t len, map_bytes;
	struct zkf_identity identity;
};

/* Fill a mapping that has room for one byte more than the file had; -EAGAIN if the file has grown meanwhile. */
static int fill_text(int fd, struct zkf_text *text)
{
	while (text->len < text->map_bytes) {
		ssize_t got = zkf_real_read(fd, text->bytes + text->len, text->map_bytes - text->len);

		if (got == -EINTR)
			continue;
		if (got <= 0)
			return (int)got;
		text->len += (size_t)got;
	}
	return -EAGAIN;
}

static int read_open_file(int fd, struct zkf_text *text)
{
	struct stat64 st;
	int result;

	if (fstat64(fd, &st))
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EINVAL;
	if (st.st_size > CONFIG_BYTES_MAX)
		return -EFBIG;
	identify(&text->identity, &st);
	text->len = 0;
	text->map_bytes = (size_t)st.st_size + 1;
	text->bytes = map_memory(text->map_bytes);
	if (!text->bytes)
		return -ENOMEM;
	result = fill_text(fd, text);
	if (result)
		munmap(text->bytes, text->map_bytes);
	return result;
}

static int read_file(const char *file, struct zkf_text *text)
{
	int result, tries = 0;

	do {
		/* O_NONBLOCK: a FIFO must be refused, not waited for. */
		int fd = zkf_real_open(file, O_RDONLY | O_NONBLOCK);

		if (fd < 0)
			return fd;
		result = read_open_file(fd, text);
		zkf_real_close(fd);
	} while (result == -EAGAIN && ++tries < 5);
	return result;
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

/* A settings object for a file, or a negative errno when the file can't be had; a broken text makes an object too. */
static int load(const char *file, uint32_t generation, struct zkf_settings **out)
{
	struct zkf_text text = { 0 };
	struct zkf_settings *settings;
	size_t rules_max, bytes;
	int result = read_file(file, &text);

	if (result)
		return result;
	rules_max = zkf_config_rules_max(text.bytes, text.len);
	bytes = sizeof(*settings) + rules_max * sizeof(settings->rules[0]);
	settings = map_memory(bytes);
	if (!settings) {
		munmap(text.bytes, text.map_bytes);
		return -ENOMEM;
	}
	settings->map_bytes = bytes;
	settings->text = text.bytes;
	settings->text_bytes = text.len;
	settings->text_map_bytes = text.map_bytes;
	settings->identity = text.identity;
	atomic_init(&settings->generation, generation);
	copy_absolute(settings->file, sizeof(settings->file), file);
	copy_string(settings->runtime_dir, sizeof(settings->runtime_dir), secure_getenv("ZKFLOCK_RUNTIME_DIR"));
	copy_string(settings->xdg_runtime_dir, sizeof(settings->xdg_runtime_dir), secure_getenv("XDG_RUNTIME_DIR"));
	settings->error = zkf_config_parse(&settings->config, settings->rules, rules_max, text.bytes, text.len,
	                                   &settings->problem);
	*out = settings;
	return 0;
}

/* A copy of `old` that knows no better but says so. */
static int make_stale(const struct zkf_settings *old, uint32_t generation, struct zkf_settings **out)
{
	struct zkf_settings *settings = map_memory(old->map_bytes);

	if (!settings)
		return -ENOMEM;
	memcpy(settings, old, old->map_bytes);
	settings->stale = true;
	settings->text_map_bytes = 0; /* the text is old's */
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
 * Look at the file again: the keeper has new rules, or ours are broken.  Where it can't be read any more (chroot,
 * privileges given up) the old rules may lack a file that is a cluster lock by now: from then on the keeper is asked.
 */
static struct zkf_settings *refresh(struct zkf_settings *old, uint32_t generation)
{
	struct zkf_identity identity;
	struct zkf_settings *fresh;
	struct stat64 st;

	if (!stat64(old->file, &st)) {
		identify(&identity, &st);
		if (same_identity(&identity, &old->identity) && !old->stale) {
			atomic_store_explicit(&old->generation, generation, memory_order_relaxed);
			return old;
		}
	}
	if (!load(old->file, generation, &fresh)) {
		/* What the process has begun with it goes on with. */
		memcpy(fresh->runtime_dir, old->runtime_dir, sizeof(fresh->runtime_dir));
		memcpy(fresh->xdg_runtime_dir, old->xdg_runtime_dir, sizeof(fresh->xdg_runtime_dir));
		return publish(old, fresh);
	}
	if (old->error || make_stale(old, generation, &fresh))
		return old;
	return publish(old, fresh);
}

static int get(struct zkf_settings **out)
{
	struct zkf_settings *settings = atomic_load_explicit(&current, memory_order_acquire);
	const struct zkf_page *page = zkf_page_current();
	uint32_t generation = page ? atomic_load(&page->header.config_generation) : 0;
	struct zkf_settings *fresh;
	int result;

	if (!settings) {
		/* A failure is not kept: the file may be there the next time. */
		result = load(config_file(), generation, &fresh);
		if (result)
			return result;
		settings = publish(NULL, fresh);
	} else if (page && atomic_load_explicit(&settings->generation, memory_order_relaxed) != generation) {
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

	return page && zkf_page_find(page, st->st_dev, st->st_ino, kind, &state) && ZKF_STATE_MODE(state) != ZKF_NONE;
}

static enum zkf_verdict judge_path(int fd, const struct stat64 *st, struct zkf_settings *settings)
{
	char path[PATH_MAX];
	int len = zkf_descriptor_path(fd, st, path, sizeof(path));
	const struct zkf_rule *rule;

	if (settings->error &&
	    (len < 0 || zkf_config_may_match(settings->text, settings->text_bytes, path, (size_t)len)))
		return ZKF_VERDICT_REFUSE;
	if (len < 0)
		return ZKF_VERDICT_ASK;
	if (settings->error)
		return ZKF_VERDICT_KERNEL;
	rule = zkf_config_match(&settings->config, path, (size_t)len);
	return rule && !rule->excluded ? ZKF_VERDICT_ASK : ZKF_VERDICT_KERNEL;
}

enum zkf_verdict zkf_judge(int fd, const struct stat64 *st, enum zkf_kind kind, const struct zkf_settings **out)
{
	struct zkf_settings *settings, *again;
	enum zkf_verdict verdict;

	if (get(&settings))
		return ZKF_VERDICT_REFUSE;
	*out = settings;
	if (!settings->error && (settings->stale || covered_by_page(st, kind)))
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
	zkf_log_string(line, settings->file);
	zkf_log_string(line, ":");
	zkf_log_number(line, settings->problem.line);
	zkf_log_string(line, ": ");
	zkf_log_string(line, settings->problem.text);
}

static void log_missing(struct zkf_line *line, int error)
{
	zkf_log_string(line, config_file());
	zkf_log_string(line, ": cannot be read error=");
	zkf_log_errno(line, error);
	zkf_log_string(line, "; without rules no lock is safe: mend the file, or name another one in ZKFLOCK_CONF");
}

int zkf_refuse(int fd, const struct stat64 *st)
{
	struct zkf_settings *settings;
	struct zkf_line line;
	char path[PATH_MAX];
	int error, len;

	if (!zkf_log_begin(&line, ZKF_LOG_ERROR, "configuration "))
		return -ENOLCK;
	error = get(&settings);
	if (error)
		log_missing(&line, error);
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
