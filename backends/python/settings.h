/* SPDX-License-Identifier: Apache-2.0 */
/*
 * settings - what `--backend-config=python,…` says (reference/features §11). Settings that only the
 * genuine backend needs, since it has named shared memory and threads for calls, are checked in the
 * same way and have no effect.
 */
#ifndef BACKENDS_PYTHON_SETTINGS_H
#define BACKENDS_PYTHON_SETTINGS_H

#include "common/backend.h"

struct settings {
    uint64_t first_bytes;    /* of each of the two memories of an instance: shm-default-byte-size */
    uint64_t growth_bytes;   /* the least by which they grow: shm-growth-byte-size */
    uint64_t max_bytes;      /* they never become larger: all memory of the machine */
    uint64_t timeout_ns;     /* for a child to start, and to end: stub-timeout-seconds */
    char *backend_directory; /* where backends lie that are written in Python; NULL: not known */
};

/*
 * settings_read - the settings of a backend; the caller ends them by settings_done().
 * Errors: INVALID_ARG  a value that is no number, or out of its range
 */
TRITONSERVER_Error *settings_read(const struct doc *config, struct settings *ret_settings);
void settings_done(struct settings *s);

#endif
