/*
 * tests/sanitize/options.c - where a sanitizer reports, in keepers and tools that are built with one
 *
 * Answers for: the reports being found.  The library starts the keeper with an environment of its own, so that *_OPTIONS of
 *              the tests do not reach it, and its standard error is the log of a directory that a test removes.
 * Threads:     called by the sanitizer's runtime before main.
 * SPDX-License-Identifier: Apache-2.0
 */
const char *__asan_default_options(void);
const char *__ubsan_default_options(void);
const char *__tsan_default_options(void);

/* No leaks: a keeper that is killed, or that leaves its session for another one, frees nothing. */
__attribute__((visibility("default"))) const char *__asan_default_options(void)
{
	return "detect_leaks=0:log_path=" ZKF_REPORTS;
}

__attribute__((visibility("default"))) const char *__ubsan_default_options(void)
{
	return "print_stacktrace=1:halt_on_error=1:log_path=" ZKF_REPORTS;
}

__attribute__((visibility("default"))) const char *__tsan_default_options(void)
{
	return "second_deadlock_stack=1:suppressions=" ZKF_SUPPRESSIONS ":log_path=" ZKF_REPORTS;
}
