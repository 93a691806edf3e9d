/*
 * tests/fuzz/replay.c - a fuzz target without libFuzzer: seeds, and mutations of them
 *
 *     fuzz/NAME COUNT SEED DIRECTORY
 *
 * Runs every file of DIRECTORY, then COUNT inputs made of them by chance: bytes flipped, cut out, doubled, two joined.
 * Prints how many it has run; ends by a signal when something is wrong, and leaves the input in crash-NAME.
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include "fuzz.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#define SEEDS_MAX 256
#define BYTES_MAX 8192

static struct {
	uint8_t *bytes;
	size_t size;
} seeds[SEEDS_MAX];
static int seed_count;
/* The input that is being run, for who looks at a crash. */
static uint8_t input[BYTES_MAX];
static size_t input_size;

static void crashed(int number)
{
	FILE *out = fopen("/dev/fd/2", "w");

	if (out)
		fprintf(out, "the input, %zu bytes:\n", input_size);
	for (size_t i = 0; out && i < input_size; i++)
		fprintf(out, "%02x", input[i]);
	if (out)
		fclose(out);
	signal(number, SIG_DFL);
	raise(number);
}

static void read_seed(const char *directory, const char *name)
{
	char path[4096];
	uint8_t *bytes = malloc(BYTES_MAX);
	FILE *in;

	snprintf(path, sizeof(path), "%s/%s", directory, name);
	in = fopen(path, "rb");
	if (!in || !bytes) {
		perror(path);
		exit(2);
	}
	seeds[seed_count].size = fread(bytes, 1, BYTES_MAX, in);
	seeds[seed_count++].bytes = bytes;
	fclose(in);
}

static size_t mutate(uint8_t *to)
{
	const int one = (int)(random() % seed_count), other = (int)(random() % seed_count);
	size_t size = seeds[one].size;

	memcpy(to, seeds[one].bytes, size);
	for (long changes = 1 + random() % 4; changes > 0; changes--) {
		size_t at = size ? (size_t)random() % size : 0, bytes = size - at;

		switch (random() % 5) {
		case 0:
			if (size)
				to[at] ^= (uint8_t)(1 << random() % 8);
			break;
		case 1:
			if (size)
				to[at] = (uint8_t)random();
			break;
		case 2: /* cut out */
			bytes = bytes ? (size_t)random() % bytes : 0;
			memmove(to + at, to + at + bytes, size - at - bytes);
			size -= bytes;
			break;
		case 3: /* twice */
			bytes = bytes ? (size_t)random() % bytes : 0;
			if (size + bytes <= BYTES_MAX) {
				memmove(to + at + bytes, to + at, size - at);
				size += bytes;
			}
			break;
		default: /* goes on as another one */
			if (at + seeds[other].size <= BYTES_MAX) {
				memcpy(to + at, seeds[other].bytes, seeds[other].size);
				size = at + seeds[other].size;
			}
		}
	}
	return size;
}

static void run(void)
{
	/* Memory of its exact size: a sanitizer sees a byte that is read beyond it. */
	uint8_t *exact = malloc(input_size ? input_size : 1);

	if (!exact)
		exit(2);
	memcpy(exact, input, input_size);
	LLVMFuzzerTestOneInput(exact, input_size);
	free(exact);
}

int main(int argc, char **argv)
{
	struct dirent *entry;
	DIR *directory;
	long count;

	if (argc != 4)
		return 64;
	count = atol(argv[1]);
	srandom((unsigned)atol(argv[2]));
	directory = opendir(argv[3]);
	if (!directory)
		return 2;
	while (seed_count < SEEDS_MAX && (entry = readdir(directory)) != NULL)
		if (entry->d_name[0] != '.')
			read_seed(argv[3], entry->d_name);
	closedir(directory);
	if (!seed_count)
		return 2;
	signal(SIGABRT, crashed);
	signal(SIGSEGV, crashed);
	for (int i = 0; i < seed_count; i++) {
		input_size = seeds[i].size;
		memcpy(input, seeds[i].bytes, input_size);
		run();
	}
	for (long i = 0; i < count; i++) {
		input_size = mutate(input);
		run();
	}
	printf("%ld\n", seed_count + count);
	return 0;
}
