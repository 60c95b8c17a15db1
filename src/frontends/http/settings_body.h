/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bodies of requests that change settings: {"log_info": true}, {"trace_rate": "10"}. An empty
 * body, and JSON that is not an object, name no setting. Unknown members are ignored.
 *
 * Thread: any.
 */
#ifndef CONCH_FRONTENDS_HTTP_SETTINGS_BODY_H
#define CONCH_FRONTENDS_HTTP_SETTINGS_BODY_H

#include <stddef.h>

#include "base/compiler.h"

struct arena;
struct log_settings;
struct status;
struct trace_change;

struct settings_body {
    const char *text; /* well-formed JSON (request_json_check()), or empty */
    size_t size_bytes;
    struct arena *arena; /* for strings with escapes */
};

/*
 * settings_body_read_log - puts what the body names into the settings (reference/behaviours §23).
 * A member that is null names nothing.
 *
 * @body      a struct settings_body, as ops_change_log_settings() hands it on
 * Errors: STATUS_INTERNAL     a value of another type; or no memory
 *         STATUS_UNSUPPORTED  the body names a file
 *         STATUS_UNAVAILABLE  an unknown format
 */
NODISCARD struct status *settings_body_read_log(const void *body, struct log_settings *settings);

/*
 * settings_body_read_trace - the change of traces that the body asks for (reference/behaviours
 * §22.1, §22.3). A member that is null clears the setting.
 *
 * Errors: STATUS_INTERNAL     a value of another type; or no memory
 *         STATUS_UNSUPPORTED  the body names a file
 *         STATUS_INVALID_ARG  a value that no such setting has
 */
NODISCARD struct status *settings_body_read_trace(const struct settings_body *body,
                                                  struct trace_change *ret);

#endif
