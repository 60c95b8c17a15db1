/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/repository.h"

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static void check(int failed, const char *what)
{
    if (failed) {
        perror(what);
        abort();
    }
}

void repository_make(struct test_repository *repo)
{
    snprintf(repo->path, sizeof(repo->path), "/tmp/conch-test-XXXXXX");
    check(!mkdtemp(repo->path), "mkdtemp");
}

void repository_add(struct test_repository *repo, const char *model, const char *config,
                    int version)
{
    char path[512];
    snprintf(path, sizeof(path), "%s/%s", repo->path, model);
    check(mkdir(path, 0755), path);
    snprintf(path, sizeof(path), "%s/%s/%d", repo->path, model, version);
    check(mkdir(path, 0755), path);
    snprintf(path, sizeof(path), "%s/%s/config.pbtxt", repo->path, model);
    FILE *f = fopen(path, "we");
    check(!f, path);
    check(fputs(config, f) < 0, path);
    check(fclose(f), path);
}

void repository_add_file(struct test_repository *repo, const char *path, const void *bytes,
                         size_t n_bytes)
{
    char whole[512];
    snprintf(whole, sizeof(whole), "%s/%s", repo->path, path);
    char *name = strrchr(whole, '/');
    *name = '\0';
    check(mkdir(whole, 0755) && errno != EEXIST, whole);
    *name = '/';
    FILE *f = fopen(whole, "we");
    check(!f, whole);
    check(fwrite(bytes, 1, n_bytes, f) != n_bytes, whole);
    check(fclose(f), whole);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

void repository_remove(struct test_repository *repo)
{
    check(nftw(repo->path, remove_one, 16, FTW_DEPTH | FTW_PHYS), repo->path);
}
