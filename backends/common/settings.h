/* SPDX-License-Identifier: Apache-2.0 */
/*
 * settings - reads what --backend-config says to a backend, with errors that name the setting.
 *
 * Threads: no state is kept; any thread.
 */
#ifndef BACKENDS_COMMON_SETTINGS_H
#define BACKENDS_COMMON_SETTINGS_H

#include "common/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * settings_int, settings_bool - a setting as a number, as yes or no.
 * @settings   as backend_settings() gives them
 * @backend    the backend's name, for the error
 * @otherwise  the result if the setting was not given
 * Errors: INVALID_ARG  no whole number from min to max; a word that backend_read_bool() refuses
 */
TRITONSERVER_Error *settings_int(const struct doc *settings, const char *backend, const char *name,
                                 int64_t min, int64_t max, int64_t otherwise, int64_t *ret_number);
TRITONSERVER_Error *settings_bool(const struct doc *settings, const char *backend, const char *name,
                                  bool otherwise, bool *ret_yes);

/*
 * settings_warn_of_unknown - log a warning for each setting that has no effect: a misspelt setting
 * would have none without a word.
 * @known  the backend's own settings, up to a NULL; those that the server passes to every backend
 *         are known, too
 */
void settings_warn_of_unknown(const struct doc *settings, const char *backend,
                              const char *const *known);

#ifdef __cplusplus
}
#endif
#endif
