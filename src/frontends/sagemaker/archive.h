/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The request that loads a model at a multi-model endpoint of SageMaker, and where the model lies
 * in the archive that SageMaker has unpacked for it (reference/features §1.3, reference/behaviours
 * §24.1).
 */
#ifndef CONCH_FRONTENDS_SAGEMAKER_ARCHIVE_H
#define CONCH_FRONTENDS_SAGEMAKER_ARCHIVE_H

#include <stddef.h>

#include "base/compiler.h"

struct arena;
struct status;

/* {"model_name": …, "url": …}; "" for a member that is missing. */
struct load_request {
    const char *model_name, *url;
};

/*
 * load_request_read - reads the members; a body that is no object has none. Thread: any.
 *
 * @body   well-formed JSON (json_check()), or empty
 * @arena  holds the texts
 * Errors: STATUS_INVALID_ARG  a member is no string, or has a zero byte
 */
NODISCARD struct status *load_request_read(const char *body, size_t size, struct arena *arena,
                                           struct load_request *ret);

/* The folder of a repository that has the model. */
struct archive {
    char *repository;
    char *folder; /* in it */
};

/*
 * archive_find - finds the model in an archive. The url is a path of the form
 * <root>/<hash>/model[/<folder>]. With a config.pbtxt there it is the model's own folder. Otherwise
 * the model is the one that is there: the only folder, the only one with a config.pbtxt, or the
 * ensemble among several. The caller ends *ret with archive_done().
 *
 * Thread: control. Reads folders and files.
 * @root   "/opt/ml/models"
 * Errors: STATUS_NOT_FOUND    the path leads to /dev, /proc or /sys
 *         STATUS_INVALID_ARG  it has another form; there is no such folder, or no model in it;
 *                             there are several
 */
NODISCARD struct status *archive_find(const char *root, const char *url, struct archive *ret);
void archive_done(struct archive *a);

#endif
