/* SPDX-License-Identifier: Apache-2.0 */
/*
 * room - address space that is left under a limit (RLIMIT_AS, `ulimit -v`).
 *
 * Most of ONNX Runtime's calls return an error when there is none left. But an environment or a
 * pool that is half made may wait for ever, or crash when it is made again. So we make one only
 * while there is more address space left than it is likely to need.
 */
#ifndef BACKENDS_ONNXRUNTIME_ROOM_H
#define BACKENDS_ONNXRUNTIME_ROOM_H

#include "common/backend.h"

/*
 * room_check - is there room for that many bytes now?
 * @what   the object that needs it, for the error: "the session"
 * Errors: UNAVAILABLE  there is no room
 */
TRITONSERVER_Error *room_check(size_t bytes, const char *what);

/* room_is_limited - has this process a limit of address space or data? */
bool room_is_limited(void);

#endif
