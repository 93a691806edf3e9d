/*
 * tests/fuzz/fuzz.h - what the fuzz targets share
 *
 * Answers for: an assertion that no build switch turns off, and the target's one function.
 * Each fuzz_NAME.c is a target for libFuzzer (make fuzz), and, with replay.c, a program for every compiler that runs the
 * seeds of tests/fuzz/NAME/ and mutations of them.
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ZKF_FUZZ_H
#define ZKF_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define MUST(condition)                                                                                                \
	do {                                                                                                           \
		if (!(condition)) {                                                                                    \
			fprintf(stderr, "%s:%d: must be: %s\n", __FILE__, __LINE__, #condition);                       \
			abort();                                                                                       \
		}                                                                                                      \
	} while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
