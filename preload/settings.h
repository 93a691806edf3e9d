/*
 * preload/settings.h - the configuration and environment, as this process has found them
 *
 * Answers for: reading the configuration at the first lock call and again when the keeper has read new rules; the
 *              question whether a descriptor may be a cluster lock.
 * Does not:    parse (mapping/config.c), or work before it is asked.
 * Threads:     a settings object is immutable, but for `generation`; published by compare-exchange; never unmapped,
 *              since another thread, or the parent of a vfork child, may be reading it.
 * Specification: design section 9; zkflock.conf(5).
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ZKF_SETTINGS_H
#define ZKF_SETTINGS_H

#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/un.h>

#include "keeper/wire.h"
#include "mapping/config.h"
#include "mapping/files.h"

#include "libc.h"

#define ZKF_CONFIG_FILE "/etc/zkflock.conf"

/* Longest runtime directory, with its NUL: "/socket" must fit behind it into an address. */
#define ZKF_DIRECTORY_BYTES (sizeof(((struct sockaddr_un *)0)->sun_path) - sizeof("/socket") + 1)

struct zkf_settings {
	int error;                   /* 0; -EINVAL: the text is broken, see `problem`; config is void then */
	bool stale;                  /* the files could not be read again: the rules may lack a cluster lock */
	_Atomic uint32_t generation; /* the page's config_generation at which the files were last seen to be these */
	struct zkf_config config;
	struct zkf_config_error problem;
	struct zkf_files *files; /* what the rules point into; lives as long */
	struct zkf_files *doubt; /* stale: broken files that were found instead, or NULL: none could be read */
	bool borrowed;           /* files is another object's */
	size_t map_bytes;
	uint64_t root_dev, root_ino; /* of "/" when the process began: 0, 0 if it could not be found out */
	/* The environment at the time of loading: a program that clears its environment keeps its keeper. */
	char file[PATH_MAX];
	char runtime_dir[PATH_MAX];     /* ZKFLOCK_RUNTIME_DIR, or "" */
	char xdg_runtime_dir[PATH_MAX]; /* XDG_RUNTIME_DIR, or "" */
	struct zkf_rule rules[];
};

enum zkf_verdict {
	ZKF_VERDICT_KERNEL, /* not a cluster lock: the kernel's lock alone */
	ZKF_VERDICT_ASK,    /* the keeper knows */
	ZKF_VERDICT_REFUSE, /* no telling: fail with -ENOLCK; zkf_refuse logs why */
};

/*
 * zkf_judge - may this descriptor's lock be a cluster lock?
 *
 * st        its fstat
 * settings  set when the verdict is ASK
 *
 * Looks at the shared page first: a file that the keeper knows keeps its name while it is in use, also when it has been
 * renamed.  Then at the path.  A path that can't be found out (no /proc, a chroot, a sandbox) is ASK: the keeper
 * looks at the descriptor itself.
 */
enum zkf_verdict zkf_judge(int fd, const struct stat64 *st, enum zkf_kind kind, const struct zkf_settings **settings);

/* zkf_refuse - log why zkf_judge refused; returns -ENOLCK */
int zkf_refuse(int fd, const struct stat64 *st);

/* zkf_settings_loaded - the settings that an earlier call has read, or NULL: no work is done */
const struct zkf_settings *zkf_settings_loaded(void);

/* zkf_settings_rule - the rule for a descriptor, or NULL: none, or its path can't be found out */
const struct zkf_rule *zkf_settings_rule(const struct zkf_settings *settings, int fd);

/*
 * zkf_descriptor_path - the path of a descriptor as the kernel prints it, without " (deleted)"
 *
 * Returns its length, not NUL-terminated, or a negative errno; -ENAMETOOLONG when it does not fit.
 */
int zkf_descriptor_path(int fd, const struct stat64 *st, char *path, size_t capacity);

#endif
