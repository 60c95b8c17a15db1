/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A code that the table lacks is answered as the first row. No frontend uses the gRPC columns yet.
 * Constant data; any thread.
 */
#include "frontends/ops/errors.h"

/* clang-format off */
static const struct ops_error table[] = {
    /* code                       HTTP  gRPC */
    {STATUS_UNKNOWN,              400,   2, "UNKNOWN"},
    {STATUS_INTERNAL,             500,  13, "INTERNAL"},
    {STATUS_NOT_FOUND,            404,   5, "NOT_FOUND"},
    {STATUS_INVALID_ARG,          400,   3, "INVALID_ARGUMENT"},
    {STATUS_UNAVAILABLE,          503,  14, "UNAVAILABLE"},
    {STATUS_UNSUPPORTED,          501,  12, "UNIMPLEMENTED"},
    {STATUS_ALREADY_EXISTS,       400,   6, "ALREADY_EXISTS"},
    {STATUS_CANCELLED,            400,   1, "CANCELLED"},
    {STATUS_TIMED_OUT,            504,   4, "DEADLINE_EXCEEDED"},
};
/* clang-format on */

const struct ops_error *ops_error_of(enum status_code code)
{
    for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
        if (table[i].code == code)
            return &table[i];
    }
    return &table[0];
}
