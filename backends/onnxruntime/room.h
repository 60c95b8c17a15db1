/* SPDX-License-Identifier: Apache-2.0 */
/*
 * room - address space that is left under a limit (RLIMIT_AS, `ulimit -v`).
 *
 * ONNX Runtime's calls return errors where there is none left, but not all: an environment or a
 * pool that is half made may wait for ever, or crash when it is made again. So it is asked to make
 * one only while there is more left than that is likely to want.
 */
#ifndef BACKENDS_ONNXRUNTIME_ROOM_H
#define BACKENDS_ONNXRUNTIME_ROOM_H

#include "common/backend.h"

/*
 * room_check - whether there is room for that many bytes now.
 * @what   for what: "the session"
 * Errors: UNAVAILABLE  there is not
 */
TRITONSERVER_Error *room_check(size_t bytes, const char *what);

/* room_is_limited - has this process a limit of address space or data? */
bool room_is_limited(void);

#endif
