/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fingerprint is a few numbers that change when a file in a model's folder is added, removed or
 * written. With it a load knows which versions need not be loaded again (reference/behaviours
 * §13.7, §13.8). It is made of names, sizes and times, not of file contents; Python's __pycache__
 * folders do not count.
 */
#ifndef CONCH_CORE_REPO_FINGERPRINT_H
#define CONCH_CORE_REPO_FINGERPRINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct storage;

struct fingerprint {
    bool known;      /* false: it could not be taken, so any file may have changed */
    uint64_t common; /* of all files outside the version folders: they concern every version … */
    uint64_t config; /* … but for those with configurations */
    size_t n_versions;
    struct {
        int64_t version;
        uint64_t value;
    } * versions;
};

/*
 * fingerprint_take - the fingerprint of that folder in the storage; the caller ends it with
 * fingerprint_done(). It has known == false if the folder cannot be read, or has more than
 * FINGERPRINT_MAX_FILES files.
 *
 * Thread: control. Reads folders; waits up to 20 ms when a file was written just now.
 */
enum { FINGERPRINT_MAX_FILES = 1 << 17, FINGERPRINT_MAX_DEPTH = 32 };
struct fingerprint fingerprint_take(const struct storage *storage, const char *folder);
void fingerprint_done(struct fingerprint *f);

/* fingerprint_same - no file was added, removed or changed between the two. */
bool fingerprint_same(const struct fingerprint *a, const struct fingerprint *b);

/* fingerprint_same_version - no file that concerns this version has changed between the two. */
bool fingerprint_same_version(const struct fingerprint *a, const struct fingerprint *b,
                              int64_t version);

/* fingerprint_same_files - the same, but the configuration may have changed. */
bool fingerprint_same_files(const struct fingerprint *a, const struct fingerprint *b,
                            int64_t version);

#endif
