/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replays a corpus through a fuzz target where libFuzzer is not there, so that every finding stays
 * found in the ordinary test run. For every file: the file, truncations of it, and copies with
 * single bytes changed; at the end the empty input and noise. All of it is deterministic. Each
 * input lies in its own allocation of exactly its size, so that ASan sees a read of one byte too
 * many. Prints TAP: one line per file.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define INPUT_MAX   (1u << 20)
#define MUTATIONS   64
#define NOISE_RUNS  256
#define NOISE_BYTES 512

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static unsigned n_tests;

static uint32_t next_noise(void)
{
	static uint64_t state = 0x9e3779b97f4a7c15ull;

	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (uint32_t)(state >> 16);
}

static void feed(const uint8_t *data, size_t n)
{
	uint8_t *copy = malloc(n ? n : 1);

	if (!copy)
		abort();
	memcpy(copy, data, n);
	LLVMFuzzerTestOneInput(copy, n);
	free(copy);
}

static void feed_all_forms(uint8_t *data, size_t n)
{
	size_t step = n / MUTATIONS + 1;

	feed(data, n);
	for (size_t len = 0; len < n; len += step)
		feed(data, len);
	for (size_t at = 0; at < n; at += step) {
		uint8_t old = data[at];
		static const uint8_t flips[] = {0x01, 0x80, 0xff};

		for (size_t i = 0; i < sizeof(flips); i++) {
			data[at] = old ^ flips[i];
			feed(data, n);
		}
		data[at] = old;
	}
}

static void result(int ok, const char *name)
{
	printf("%s %u - replay %s\n", ok ? "ok" : "not ok", ++n_tests, name);
	fflush(stdout);
}

static int replay_file(const char *path)
{
	uint8_t *data = malloc(INPUT_MAX);
	FILE *f = fopen(path, "rb");
	size_t n;

	if (!data || !f) {
		fprintf(stderr, "cannot read %s\n", path);
		free(data);
		if (f)
			fclose(f);
		return 0;
	}
	n = fread(data, 1, INPUT_MAX, f);
	fclose(f);
	/* Said before the run, so that a crash names its file. */
	printf("# %s, %zu bytes\n", path, n);
	fflush(stdout);
	feed_all_forms(data, n);
	free(data);
	return 1;
}

static int visible(const struct dirent *e)
{
	return e->d_name[0] != '.';
}

/* In the order of names. Returns how many failed. */
static int replay_dir(const char *dir)
{
	struct dirent **entries;
	int n = scandir(dir, &entries, visible, alphasort), failed = 0, files = 0;

	for (int i = 0; i < n; i++) {
		char path[4096];
		struct stat st;

		snprintf(path, sizeof(path), "%s/%s", dir, entries[i]->d_name);
		if (!stat(path, &st) && S_ISREG(st.st_mode)) {
			int ok = replay_file(path);

			result(ok, path);
			failed += !ok;
			files++;
		}
		free(entries[i]);
	}
	if (n >= 0)
		free(entries);
	if (files)
		return failed;
	fprintf(stderr, "no corpus in %s\n", dir);
	result(0, dir);
	return 1;
}

static void replay_noise(void)
{
	uint8_t noise[NOISE_BYTES];

	printf("# empty input and noise\n");
	fflush(stdout);
	feed(noise, 0);
	for (int run = 0; run < NOISE_RUNS; run++) {
		size_t n = next_noise() % sizeof(noise);

		for (size_t i = 0; i < n; i++)
			noise[i] = (uint8_t)next_noise();
		feed(noise, n);
	}
	result(1, "noise");
}

int main(int argc, char **argv)
{
	int failed = 0;

	for (int i = 1; i < argc; i++)
		failed += replay_dir(argv[i]);
	replay_noise();
	printf("1..%u\n", n_tests);
	return failed ? 1 : 0;
}
