/*
 * preload/start.h - start a keeper from inside a program that must not notice
 *
 * Answers for: a detached zkflockd for a runtime directory, and its word that it is ready.
 * Does not:    care which of two starters wins (the keeper does), or leave anything behind in the program: no
 *              SIGCHLD, no child for its wait(2), no descriptor, no memory, no changed signal.
 * Threads:     any thread, any signal handler, a vfork child; nothing is shared.
 * Specification: design section 9, "Starting the keeper"; clone(2); readiness by newline as in s6.
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ZKF_START_H
#define ZKF_START_H

#include "conversation.h"
#include "settings.h"

/*
 * zkf_start_keeper - start one for `directory` and wait until it, or another keeper that has the directory, is ready
 *
 * Returns 0, -EINTR, -ETIMEDOUT, or -ENOLCK: it can't be started, the log says why.
 */
int zkf_start_keeper(const struct zkf_settings *settings, const char *directory, const struct zkf_patience *patience);

#endif
