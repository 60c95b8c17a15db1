/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The columns of base/status.def for wire protocols. A code that the table lacks gets the row of
 * STATUS_UNKNOWN. Constant data; any thread.
 */
#include "frontends/ops/errors.h"

static const struct ops_error table[] = {
#define STATUS_CODE(code, name, public, http, grpc, grpc_name) {http, grpc, #grpc_name},
#include "base/status.def"
};

const struct ops_error *ops_error_of(enum status_code code)
{
    return &table[(size_t)code < ARRAY_SIZE(table) ? code : STATUS_UNKNOWN];
}
