/* SPDX-License-Identifier: Apache-2.0 */
/*
 * framework - the library of a framework, which a backend finds when the server runs.
 *
 * A backend does not link to its framework: users have it in different places and versions, and a
 * server without models of that framework does not need it. The places that are searched, in this
 * order:
 *
 *   1. the file that the user names: the setting library-path, or else an environment variable;
 *      then no other place is searched
 *   2. patterns below the backend's own folder
 *   3. names that the system's loader knows
 *   4. Python packages: of each python3 on the PATH, of ~/.local, and Debian's in /usr/local, /usr
 *
 * A library is never unloaded: its threads may still return from its code, and its thread-local
 * objects have destructors in it.
 *
 * Threads: no state is kept; any thread.
 */
#ifndef BACKENDS_COMMON_FRAMEWORK_H
#define BACKENDS_COMMON_FRAMEWORK_H

#include "common/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

/* For `environment`: threads of the framework's OpenMP sleep when idle. They would spin for a while
 * after each execution, and would take the processor from others. */
#define FRAMEWORK_OPENMP_SLEEPS ((const char *const[]){"OMP_WAIT_POLICY", "PASSIVE", NULL})

struct framework {
    const char *title;         /* for errors: "ONNX Runtime's library libonnxruntime.so" */
    const char *variable;      /* the environment variable that names the file */
    const char *const *beside; /* patterns below the backend's folder, each with a leading slash; up
                                  to a NULL */
    const char *const *system; /* file names, up to a NULL */
    const char *package;       /* pattern below site-packages, without a leading slash */
    const char *how_to_get;    /* what an administrator may do, for the error */
    const char *const *environment; /* names and values of at most 16 variables that it reads when
                                       it is loaded, up to a NULL; or NULL. What the user has not
                                       set is set for as long: processes that the server starts
                                       later do not have it */
};

/*
 * framework_find - find the library and load it. Of several files that fit a pattern the newest
 * version is loaded.
 * @backend_dir  the folder of the backend
 * @file         the file that the user names, or NULL
 * @ret_handle   for dlsym()
 * Errors: NOT_FOUND  no place has a library that can be loaded; the text lists the places and says
 *                    how to get one
 */
TRITONSERVER_Error *framework_find(const struct framework *f, const char *backend_dir,
                                   const char *file, void **ret_handle);

/* framework_path - the file that holds this function; the caller frees it. NULL: it is unknown. */
char *framework_path(void *function);

/*
 * framework_version_text - what `conch --version` prints of the library, or the error's text; the
 * caller frees it.
 * @err      taken; NULL if the library was found
 * @details  printed behind the path; may be ""
 */
char *framework_version_text(TRITONSERVER_Error *err, const char *name, const char *version,
                             const char *path, const char *details);

#ifdef __cplusplus
}
#endif
#endif
