/* SPDX-License-Identifier: Apache-2.0 */
/* The texts of the states, for the index and for messages. Threads: any; all is constant. */
#include "core/repo/model_version.h"

static const struct {
    const char *name, *reason;
} texts[] = {
    [VERSION_NONE] = {"", ""},
    [VERSION_LOADING] = {"LOADING", ""},
    [VERSION_READY] = {"READY", ""},
    [VERSION_UNLOADING] = {"UNLOADING", ""},
    [VERSION_UNLOADED] = {"UNAVAILABLE", "unloaded"},
    [VERSION_FAILED] = {"UNAVAILABLE", ""},
};

const char *version_state_name(enum version_state state)
{
    return texts[state].name;
}

const char *version_state_reason(enum version_state state)
{
    return texts[state].reason;
}
