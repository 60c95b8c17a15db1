/* SPDX-License-Identifier: Apache-2.0 */
/*
 * New versions of ONNX Runtime have new settings, so there is no list of all: a setting is one of a
 * file if a word of its name says so, and one of an address if a part of it does. Those whose names
 * do not tell, or tell what is not so, are in lists.
 */
#include "onnxruntime/permit.h"

#include <string.h>
#include <strings.h>

/* ---- Addresses ------------------------------------------------------------------------------ */

/* Numbers that a provider uses as a stream, a function, an array or a device in this process. */
static const char *const parts_of_addresses[] = {
    "user_compute_stream", /* and has_user_compute_stream */
    "aux_stream_array",
    "bytestream",
    "external_alloc",
    "external_free",
    "external_empty_cache",
    "_handle",
    "pointer",
    "_ptr",
    "_address",
};

/* Addresses whose names do not show it. */
static const char *const addresses_all_the_same[] = {
    "context", /* OpenVINO: of OpenCL */
    "dawnProcTable",
    "webgpuInstance",
    "webgpuDevice",
};

/* Providers' settings may have a prefix: ep.<provider>.<setting>. */
static bool is_address(const char *name)
{
    const char *dot = strrchr(name, '.'), *own = dot ? dot + 1 : name;

    for (size_t i = 0; i < sizeof(parts_of_addresses) / sizeof(parts_of_addresses[0]); i++)
        if (strcasestr(own, parts_of_addresses[i]))
            return true;
    for (size_t i = 0; i < sizeof(addresses_all_the_same) / sizeof(addresses_all_the_same[0]); i++)
        if (strcasecmp(own, addresses_all_the_same[i]) == 0)
            return true;
    return false;
}

/* ---- Files ---------------------------------------------------------------------------------- */

static bool is_in_list(const char *name, size_t len, const char *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strlen(list[i]) == len && strncmp(list[i], name, len) == 0)
            return true;
    return false;
}
#define IS_ONE_OF(name, len, list) is_in_list(name, len, list, sizeof(list) / sizeof(list[0]))

static const char *const words[] = {
    "cache",    "dir",       "directory", "dump",    "file",   "filename",
    "filepath", "files",     "folder",    "folders", "lib",    "library",
    "libs",     "libraries", "path",      "paths",   "prefix", "profiling",
};

/* Settings whose names do not show it: they enable writing, or their value has a file's name. */
static const char *const files_all_the_same[] = {
    "ep.context_enable",                           /* writes a model with a provider's results */
    "session.resource_cuda_partitioning_settings", /* a file of sizes, after a comma */
    "load_config",                                 /* OpenVINO */
    "qnn.lora_config",                             /* QNN */
};

/* Settings whose names look like files, and are not. */
static const char *const no_files[] = {
    "session.use_external_initializer_file_buffers_directly",
};

static bool has_word(const char *name)
{
    for (const char *at = name; *at;) {
        size_t len;

        at += strspn(at, "._-");
        len = strcspn(at, "._-");
        if (len > 0 && IS_ONE_OF(at, len, words))
            return true;
        at += len;
    }
    return false;
}

static bool is_file_setting(const char *name)
{
    size_t len = strlen(name);

    return !IS_ONE_OF(name, len, no_files) &&
           (has_word(name) || IS_ONE_OF(name, len, files_all_the_same));
}

/* ---- Both ------------------------------------------------------------------------------------ */

TRITONSERVER_Error *permit_check(const char *what, const char *name, const char *value,
                                 bool allows_files)
{
    if (strcmp(value, "") == 0 || strcmp(value, "0") == 0 || strcasecmp(value, "false") == 0)
        return NULL; /* switched off */
    if (is_address(name))
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                             "%s '%s' names an address in the server's memory, got '%s'; no "
                             "configuration can know one, so it cannot be set",
                             what, name, value);
    if (!allows_files && is_file_setting(name))
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                             "%s '%s' has ONNX Runtime read or write files, got '%s'; "
                             "--backend-config=onnxruntime,allow-file-settings=1 permits that",
                             what, name, value);
    return NULL;
}
