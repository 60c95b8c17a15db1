/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The code of each protocol for a status code (reference/behaviours §1.3, §1.4). The
 * table is base/status.def.
 */
#ifndef CONCH_FRONTENDS_OPS_ERRORS_H
#define CONCH_FRONTENDS_OPS_ERRORS_H

#include "base/status.h"

struct ops_error {
    int http_status;
    int grpc_status;
    const char *grpc_name;
};

/* ops_error_of - the row of a code; static. */
const struct ops_error *ops_error_of(enum status_code code);

#endif
