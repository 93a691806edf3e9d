/*
 * preload/runtime.c - where the keeper lives; see runtime.h
 *
 * Answers for: see runtime.h.
 * Does not:    see runtime.h.
 * Threads:     see runtime.h.
 * Specification: see runtime.h.
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include "runtime.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "log.h"

static int from_variable(struct zkf_runtime *runtime, const char *directory)
{
	struct zkf_line line;

	if (*directory == '/' && strlen(directory) < ZKF_DIRECTORY_BYTES) {
		strcpy(runtime->paths[0], directory);
		runtime->count = 1;
		return 0;
	}
	if (zkf_log_begin(&line, ZKF_LOG_ERROR, "runtime ZKFLOCK_RUNTIME_DIR=")) {
		zkf_log_string(&line, directory);
		zkf_log_string(&line, " must be an absolute path shorter than bytes=");
		zkf_log_number(&line, (int64_t)ZKF_DIRECTORY_BYTES);
		zkf_log_end(&line);
	}
	return -EINVAL;
}

/* XDG_RUNTIME_DIR as left behind by su(1) or sudo(8) is another user's: it does not count. */
static void user_directory(char *path, const char *xdg)
{
	const size_t room = ZKF_DIRECTORY_BYTES - sizeof("/zkflock");
	struct stat64 st;

	if (*xdg == '/' && strlen(xdg) <= room && !stat64(xdg, &st) && st.st_uid == geteuid())
		strcpy(stpcpy(path, xdg), "/zkflock");
	else
		zkf_format_number(stpcpy(path, "/tmp/zkflock-"), geteuid());
}

bool zkf_runtime_usable(const struct zkf_settings *settings)
{
	const char *directory = settings->runtime_dir;

	return !*directory || (*directory == '/' && strlen(directory) < ZKF_DIRECTORY_BYTES);
}

int zkf_runtime_find(struct zkf_runtime *runtime, const struct zkf_settings *settings)
{
	if (*settings->runtime_dir)
		return from_variable(runtime, settings->runtime_dir);
	strcpy(runtime->paths[0], ZKF_SYSTEM_DIRECTORY);
	runtime->count = 1;
	if (geteuid()) {
		user_directory(runtime->paths[1], settings->xdg_runtime_dir);
		runtime->count = 2;
	}
	return 0;
}

int zkf_runtime_trust(const char *directory)
{
	struct stat64 st;

	/* lstat: a link in /tmp is whoever's made it. */
	if (lstat64(directory, &st))
		return errno == ENOTDIR || errno == EACCES ? -ENOENT : -errno;
	if (!S_ISDIR(st.st_mode) || (st.st_uid != 0 && st.st_uid != geteuid()) || (st.st_mode & (S_IWGRP | S_IWOTH)))
		return -EPERM;
	return 0;
}
