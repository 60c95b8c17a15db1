/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What lies in a model's folder, in a few numbers: they change when a file comes, goes or is
 * written. So a load can tell which versions need not be loaded again (reference/behaviours §13.7,
 * §13.8). Nothing is read but names, sizes and times; what Python leaves in __pycache__ does not
 * count.
 */
#ifndef CONCH_CORE_REPO_FINGERPRINT_H
#define CONCH_CORE_REPO_FINGERPRINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct storage;

struct fingerprint {
    bool known;      /* false: it could not be taken, so everything may have changed */
    uint64_t common; /* of all but the folders of versions: what concerns each of them */
    size_t n_versions;
    struct {
        int64_t version;
        uint64_t value;
    } * versions;
};

/*
 * fingerprint_take - of that folder in the storage; ended by fingerprint_done(). A folder that
 * cannot be looked at, or has more than FINGERPRINT_MAX_FILES files, gives one that is not known.
 *
 * Thread: control. Reads folders; waits a moment (20 ms at most) when a file was written just now.
 */
enum { FINGERPRINT_MAX_FILES = 1 << 17, FINGERPRINT_MAX_DEPTH = 32 };
struct fingerprint fingerprint_take(const struct storage *storage, const char *folder);
void fingerprint_done(struct fingerprint *f);

/* fingerprint_same - nothing has come, gone or changed. */
bool fingerprint_same(const struct fingerprint *a, const struct fingerprint *b);

/* fingerprint_same_version - nothing has changed that concerns this version. */
bool fingerprint_same_version(const struct fingerprint *a, const struct fingerprint *b,
                              int64_t version);

#endif
