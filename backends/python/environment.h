/* SPDX-License-Identifier: Apache-2.0 */
/*
 * environment - the Python that runs a model: which interpreter, and with which variables.
 *
 * A model's parameter EXECUTION_ENV_PATH names an environment (conda or venv): a folder, or an
 * archive of one. Without it, the first python3 on the server's PATH runs the model, else
 * /usr/bin/python3.
 *
 * An archive is unpacked once for each content, whatever its name, into a folder of the cache:
 *
 *     $CONCH_PYTHON_CACHE, or $TMPDIR/conch-python-<uid>, or /tmp/conch-python-<uid>
 *         <SHA-256 of the archive>/        the environment
 *         <SHA-256 of the archive>.part/   while it is unpacked
 *         <SHA-256 of the archive>.lock    locked by all that use it, in this process and in others
 *
 * Loads of the same content at the same time wait for the one that unpacks. The last user removes
 * the environment; one that a killed server left is removed when an archive is opened next.
 *
 * No script of an environment runs. What its `activate` would set is set for the child instead.
 *
 * Threads: any; an environment is constant. Opening one may take as long as unpacking takes.
 */
#ifndef BACKENDS_PYTHON_ENVIRONMENT_H
#define BACKENDS_PYTHON_ENVIRONMENT_H

#include "triton/core/tritonserver.h"

#ifdef __cplusplus
extern "C" {
#endif

struct environment;

/*
 * environment_open - find the environment of a model.
 * @model_dir  the model's folder, for which $$TRITON_MODEL_DIRECTORY in `setting` stands
 * @setting    EXECUTION_ENV_PATH; NULL or empty: none
 * Errors: NOT_FOUND    nothing has this name
 *         INVALID_ARG  neither a folder nor an archive; an entry that would lie outside; above the
 *                      limits of entries or bytes
 *         UNAVAILABLE  libarchive is not installed; no memory
 *         INTERNAL     the cache's folder is not usable
 */
TRITONSERVER_Error *environment_open(const char *model_dir, const char *setting,
                                     struct environment **ret_environment);

/* environment_close - to be called when no child runs in it any more. The last user's call removes
 * what was unpacked. NULL is fine. */
void environment_close(struct environment *e);

/* environment_python - the interpreter's absolute path. */
const char *environment_python(const struct environment *e);

/* environment_variables - what differs in the child's environment from the server's, ended by NULL:
 * "NAME=value", or "NAME" for a variable that the child must not have. */
const char *const *environment_variables(const struct environment *e);

#ifdef __cplusplus
}
#endif
#endif
