/* SPDX-License-Identifier: Apache-2.0 */
/* The choice of a check by the file's format. */
#include "fil/treefile.h"

#include <stdarg.h>
#include <stdio.h>

bool treefile_refuse(struct treefile_why *why, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    vsnprintf(why->text, sizeof(why->text), fmt, args);
    va_end(args);
    return false;
}

bool treefile_check(enum tree_format format, const char *data, size_t size, size_t *ret_size,
                    struct treefile_why *ret_why)
{
    *ret_size = size;
    if (size == 0)
        return treefile_refuse(ret_why, "the file is empty");
    switch (format) {
    case TREE_XGBOOST_JSON:
        return treefile_check_json(data, size, ret_why);
    case TREE_XGBOOST_UBJSON:
        return treefile_check_ubjson(data, size, ret_why);
    case TREE_XGBOOST_LEGACY:
        return treefile_check_legacy(data, size, ret_why);
    case TREE_LIGHTGBM:
        return treefile_check_lightgbm(data, size, ret_size, ret_why);
    case TREE_CHECKPOINT:
        break;
    }
    return treefile_check_checkpoint(data, size, ret_why);
}
