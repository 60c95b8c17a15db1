/* SPDX-License-Identifier: Apache-2.0 */
/* Which version of a model is meant, and the states of versions that the index shows. */
#ifndef CONCH_CORE_REPO_MODEL_VERSION_H
#define CONCH_CORE_REPO_MODEL_VERSION_H

/* Instead of a version's number: the highest one that is READY. */
#define CONCH_VERSION_LATEST (-1)

/* README.md has the transitions. The index has one name for the last two. */
enum version_state {
    VERSION_NONE, /* of a model of which no version has been loaded */
    VERSION_LOADING,
    VERSION_READY,
    VERSION_UNLOADING,
    VERSION_UNLOADED,
    VERSION_FAILED, /* it does not serve, for a reason of its own */
};

/* version_state_name - what the index shows; "" for VERSION_NONE. */
const char *version_state_name(enum version_state state);
/* version_state_reason - the reason that the index shows for each version in that state; "" = none.
 * A version that has FAILED has a reason of its own instead. */
const char *version_state_reason(enum version_state state);

#endif
