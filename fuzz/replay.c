// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Runs a fuzz target over every file of the folders named, without libFuzzer: what fuzzing once
 * found stays a test, under any compiler.  Prints each name before it runs it, so that the last
 * one of a crash is the culprit; then how many there were.  No file at all is a failure.
 */
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "fuzz.h"

static void fail(const char *what, const char *path)
{
	fprintf(stderr, "replay: cannot %s %s: %m\n", what, path);
	exit(1);
}

/* A block of exactly the file's size, for a sanitizer to see a read beyond it. */
static void run_file(const char *path)
{
	CLEANUP_FREE uint8_t *data = NULL;
	struct stat st;
	FILE *f = fopen(path, "rb");
	size_t bytes;

	if (!f || fstat(fileno(f), &st))
		fail("open", path);
	bytes = (size_t)st.st_size;
	data = malloc(bytes ? bytes : 1);
	if (!data || fread(data, 1, bytes, f) != bytes)
		fail("read", path);
	fclose(f);
	puts(path);
	fflush(stdout);
	LLVMFuzzerTestOneInput(data, bytes);
}

static int is_visible(const struct dirent *entry)
{
	return entry->d_name[0] != '.';
}

static unsigned int run_folder(const char *folder)
{
	struct dirent **entries;
	int n = scandir(folder, &entries, is_visible, alphasort);

	if (n < 0)
		fail("list", folder);
	for (int i = 0; i < n; i++) {
		CLEANUP_FREE char *path = NULL;

		if (asprintf(&path, "%s/%s", folder, entries[i]->d_name) < 0)
			fail("name a file of", folder);
		free(entries[i]);
		run_file(path);
	}
	free(entries);
	return (unsigned int)n;
}

int main(int argc, char **argv)
{
	unsigned int inputs = 0;

	for (int i = 1; i < argc; i++)
		inputs += run_folder(argv[i]);
	printf("%u inputs\n", inputs);
	return inputs ? 0 : 1;
}
