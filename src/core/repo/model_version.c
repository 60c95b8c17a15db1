/* SPDX-License-Identifier: Apache-2.0 */
/* The names of the states of versions. Threads: any; all is constant. */
#include "core/repo/model_version.h"

const char *version_state_name(enum version_state state)
{
    static const char *const names[] = {"UNKNOWN", "LOADING", "READY", "UNLOADING", "UNAVAILABLE"};
    return names[state];
}
