/* SPDX-License-Identifier: Apache-2.0 */
/*
 * New versions of ONNX Runtime have new settings, so there is no list of all: a setting is one of a
 * file if a word of its name says so. Those whose names do not tell, or tell what is not so, are in
 * two lists.
 */
#include "onnxruntime/filesetting.h"

#include <string.h>

static bool is_one_of(const char *name, size_t len, const char *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strlen(list[i]) == len && strncmp(list[i], name, len) == 0)
            return true;
    return false;
}
#define IS_ONE_OF(name, len, list) is_one_of(name, len, list, sizeof(list) / sizeof(list[0]))

static const char *const words[] = {
    "cache",    "dir",       "directory", "dump",    "file",   "filename",
    "filepath", "files",     "folder",    "folders", "lib",    "library",
    "libs",     "libraries", "path",      "paths",   "prefix", "profiling",
};

/* Their names do not tell: they switch writing on, or have a file's name in their value. */
static const char *const files_all_the_same[] = {
    "ep.context_enable",                           /* a model with what a provider has made */
    "session.resource_cuda_partitioning_settings", /* a file of sizes, behind a comma */
    "load_config",                                 /* OpenVINO */
    "qnn.lora_config",                             /* QNN */
};

/* Their names tell what is not so. */
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

TRITONSERVER_Error *filesetting_check(const char *what, const char *name, const char *value,
                                      bool allowed)
{
    size_t len = strlen(name);
    bool switched_off =
        strcmp(value, "") == 0 || strcmp(value, "0") == 0 || strcasecmp(value, "false") == 0;

    if (allowed || switched_off || IS_ONE_OF(name, len, no_files) ||
        !(has_word(name) || IS_ONE_OF(name, len, files_all_the_same)))
        return NULL;
    return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                         "%s '%s' has ONNX Runtime read or write files, got '%s'; "
                         "--backend-config=onnxruntime,allow-file-settings=1 permits that",
                         what, name, value);
}
