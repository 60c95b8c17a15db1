/* SPDX-License-Identifier: Apache-2.0 */
/*
 * replay - gives every file of the folders on the command line to the fuzz target that it is linked
 * with. In builds without libFuzzer this makes a corpus a regression test.
 */

#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int file_replay(const char *path)
{
    FILE *f = fopen(path, "rb");
    uint8_t *data = NULL;
    size_t size = 0, max = 0, n;

    if (!f) {
        perror(path);
        return -1;
    }
    do {
        if (size == max) {
            uint8_t *bigger = realloc(data, max = max ? 2 * max : 4096);

            if (!bigger)
                abort();
            data = bigger;
        }
        n = fread(data + size, 1, max - size, f);
        size += n;
    } while (n);
    fclose(f);

    /* An exact copy, so that a sanitizer sees the first byte read beyond the end. */
    uint8_t *exact = malloc(size ? size : 1);

    if (!exact)
        abort();
    memcpy(exact, data, size);
    free(data);
    LLVMFuzzerTestOneInput(exact, size);
    free(exact);
    return 0;
}

int main(int argc, char **argv)
{
    size_t n_files = 0;

    for (int i = 1; i < argc; i++) {
        DIR *dir = opendir(argv[i]);
        const struct dirent *entry;

        if (!dir) {
            perror(argv[i]);
            return 1;
        }
        while ((entry = readdir(dir))) {
            char path[4096];

            if (entry->d_name[0] == '.')
                continue;
            snprintf(path, sizeof(path), "%s/%s", argv[i], entry->d_name);
            if (file_replay(path))
                return 1;
            n_files++;
        }
        closedir(dir);
    }
    printf("%zu inputs replayed\n", n_files);
    return n_files ? 0 : 1;
}
