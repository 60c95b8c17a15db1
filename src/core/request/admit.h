/* SPDX-License-Identifier: Apache-2.0 */
/* Does a request fit its model? */
#ifndef CONCH_CORE_REQUEST_ADMIT_H
#define CONCH_CORE_REQUEST_ADMIT_H

#include "base/compiler.h"

struct request;
struct status;

/*
 * request_admit - checks the request against its model, in the order of reference/behaviours §7;
 * resolves raw inputs, specs, reshapes and the batch size.
 */
NODISCARD struct status *request_admit(struct request *r);

#endif
