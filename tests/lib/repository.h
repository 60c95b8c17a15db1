/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model repository in a temporary folder, for tests in C.
 */
#ifndef CONCH_TESTS_LIB_REPOSITORY_H
#define CONCH_TESTS_LIB_REPOSITORY_H

#include <stddef.h>

struct test_repository {
    char path[64];
};

void repository_make(struct test_repository *repo);
/* repository_add - makes the model's folder with a config.pbtxt and one empty version folder. */
void repository_add(struct test_repository *repo, const char *model, const char *config,
                    int version);
/* repository_add_file - writes a file at a path below the repository, and makes the folder of
 * the file. */
void repository_add_file(struct test_repository *repo, const char *path, const void *bytes,
                         size_t n_bytes);
void repository_remove(struct test_repository *repo);

#endif
