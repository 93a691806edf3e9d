/*
 * preload/log.c - one line on descriptor 2; see log.h
 *
 * Answers for: see log.h.
 * Does not:    see log.h.
 * Threads:     see log.h; `level_wanted` is written by whoever logs first, with the same value by all, relaxed.
 * Specification: see log.h.
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include "log.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "real.h"

static const char *const level_names[] = {"none", "error", "warn", "info", "debug"};

/* Level + 1; 0 until somebody has looked. */
static atomic_int level_wanted;

static int wanted(void)
{
	int level = atomic_load_explicit(&level_wanted, memory_order_relaxed);
	const char *name;

	if (level)
		return level - 1;
	name = secure_getenv("ZKFLOCK_LOG");
	for (level = ZKF_LOG_DEBUG; level > ZKF_LOG_NONE; level--)
		if (name && !strcmp(name, level_names[level]))
			break;
	atomic_store_explicit(&level_wanted, level + 1, memory_order_relaxed);
	return level;
}

bool zkf_log_wanted(enum zkf_log_level level)
{
	return (int)level <= wanted();
}

bool zkf_log_begin(struct zkf_line *line, enum zkf_log_level level, const char *subject)
{
	if ((int)level > wanted())
		return false;
	line->len = 0;
	line->cut = false;
	zkf_log_string(line, "zkflock: ");
	zkf_log_string(line, level_names[level]);
	zkf_log_string(line, " ");
	zkf_log_string(line, subject);
	return true;
}

void zkf_log_bytes(struct zkf_line *line, const char *bytes, size_t len)
{
	const size_t room = sizeof(line->text) - sizeof("...\n");
	size_t i;

	for (i = 0; i < len; i++) {
		unsigned char byte = (unsigned char)bytes[i];

		if (line->len == room) {
			line->cut = true;
			return;
		}
		line->text[line->len++] = byte < ' ' || byte == 0x7f ? '?' : (char)byte;
	}
}

void zkf_log_string(struct zkf_line *line, const char *string)
{
	zkf_log_bytes(line, string, strlen(string));
}

size_t zkf_format_number(char *out, int64_t number)
{
	uint64_t rest = number < 0 ? -(uint64_t)number : (uint64_t)number;
	char digits[21];
	size_t count = 0, len = 0;

	do {
		digits[count++] = (char)('0' + rest % 10);
		rest /= 10;
	} while (rest);
	if (number < 0)
		out[len++] = '-';
	while (count)
		out[len++] = digits[--count];
	out[len] = '\0';
	return len;
}

void zkf_log_number(struct zkf_line *line, int64_t number)
{
	char digits[24];
	size_t len = zkf_format_number(digits, number);

	zkf_log_bytes(line, digits, len);
}

void zkf_log_errno(struct zkf_line *line, int error)
{
#ifdef __GLIBC__
	const char *name = strerrorname_np(-error);
#else
	const char *name = NULL;
#endif

	if (name)
		zkf_log_string(line, name);
	else
		zkf_log_number(line, -error);
}

/*
 * A standard error that nobody reads any more must not kill the program through us: SIGPIPE is held back meanwhile,
 * and taken away again if it was our write that raised it.  It is sent to the writing thread, so no other has it.
 */
void zkf_log_end(struct zkf_line *line)
{
	const size_t set_bytes = 8;
	const uint64_t pipe_only = (uint64_t)1 << (SIGPIPE - 1);
	uint64_t before = 0, pending = 0;
	struct timespec at_once = {0};

	if (line->cut) {
		memcpy(line->text + line->len, "...", 3);
		line->len += 3;
	}
	line->text[line->len++] = '\n';
	syscall(SYS_rt_sigprocmask, SIG_BLOCK, &pipe_only, &before, set_bytes);
	syscall(SYS_rt_sigpending, &pending, set_bytes);
	if (zkf_real_write(STDERR_FILENO, line->text, line->len) == -EPIPE && !(pending & pipe_only))
		syscall(SYS_rt_sigtimedwait, &pipe_only, NULL, &at_once, set_bytes);
	syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before, NULL, set_bytes);
}
