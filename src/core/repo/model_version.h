/* SPDX-License-Identifier: Apache-2.0 */
/* Which version of a model is meant, and the states of versions, which the index shows. */
#ifndef CONCH_CORE_REPO_MODEL_VERSION_H
#define CONCH_CORE_REPO_MODEL_VERSION_H

/* Instead of a version's number: the highest one that is READY. */
#define CONCH_VERSION_LATEST (-1)

enum version_state {
    VERSION_UNKNOWN,
    VERSION_LOADING,
    VERSION_READY,
    VERSION_UNLOADING,
    VERSION_UNAVAILABLE,
};
const char *version_state_name(enum version_state state);

#endif
