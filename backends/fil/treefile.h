/* SPDX-License-Identifier: Apache-2.0 */
/*
 * treefile - the file of a forest, checked before treelite reads it.
 *
 * treelite believes a file: it allocates what a number in it says, and follows the numbers of
 * nodes, categories and leaves without a test. These checks walk the file and refuse what would
 * lead treelite outside of memory, into an endless loop or to more memory than the file's size
 * explains. Whether the forest makes sense is treelite's to say, and what it has made of the file
 * is checked once more before the first prediction (forest.h).
 *
 * Threads: no state is kept; any thread.
 */
#ifndef BACKENDS_FIL_TREEFILE_H
#define BACKENDS_FIL_TREEFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum tree_format {
    TREE_XGBOOST_LEGACY, /* XGBoost's binary format, which its release 3.1 no longer writes */
    TREE_XGBOOST_JSON,
    TREE_XGBOOST_UBJSON,
    TREE_LIGHTGBM,
    TREE_CHECKPOINT, /* treelite's own */
};

/* Why a file was refused: one line. */
struct treefile_why {
    char text[200];
};

/* The most classes, and the most values that one row is answered with. */
#define TREE_MAX_OUTPUTS 65536

/* The most features of a row, which takes 64 MB then. */
#define TREE_MAX_FEATURES (1 << 24)

/* Containers nest no deeper in a JSON or UBJSON file. */
#define TREE_MAX_DEPTH 64

/*
 * treefile_check - may treelite read this file?
 * @data      with a zero byte behind its size bytes
 * @ret_size  how many bytes to give to treelite: what is behind the trees of a LightGBM file is not
 *            for it
 * Returns false with a reason.
 */
bool treefile_check(enum tree_format format, const char *data, size_t size, size_t *ret_size,
                    struct treefile_why *ret_why);

/* The checks of each family, which treefile_check() calls. */
bool treefile_check_json(const char *data, size_t size, struct treefile_why *why);
bool treefile_check_ubjson(const char *data, size_t size, struct treefile_why *why);
bool treefile_check_legacy(const char *data, size_t size, struct treefile_why *why);
bool treefile_check_lightgbm(const char *data, size_t size, size_t *ret_size,
                             struct treefile_why *why);
bool treefile_check_checkpoint(const char *data, size_t size, struct treefile_why *why);

/* treefile_refuse - write the reason; returns false. */
bool treefile_refuse(struct treefile_why *why, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

#endif
