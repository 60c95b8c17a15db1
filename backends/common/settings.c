/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The values are texts: a setting comes from the command line.
 */
#include "common/settings.h"

#include <stdlib.h>
#include <string.h>

TRITONSERVER_Error *settings_int(const struct doc *settings, const char *backend, const char *name,
                                 int64_t min, int64_t max, int64_t otherwise, int64_t *ret_number)
{
    const char *text = backend_setting(settings, name);
    long long number = otherwise;
    char *end;

    if (text) {
        number = strtoll(text, &end, 10);
        if (end == text || *end != '\0' || number < min || number > max)
            return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                                 "--backend-config=%s,%s must be a whole number from %lld to %lld, "
                                 "got '%s'",
                                 backend, name, (long long)min, (long long)max, text);
    }
    *ret_number = number;
    return NULL;
}

TRITONSERVER_Error *settings_bool(const struct doc *settings, const char *backend, const char *name,
                                  bool otherwise, bool *ret_yes)
{
    const char *text = backend_setting(settings, name);

    *ret_yes = otherwise;
    if (text && !backend_read_bool(text, ret_yes))
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                             "--backend-config=%s,%s must be 0, 1, true or false, got '%s'",
                             backend, name, text);
    return NULL;
}

static bool is_known_name(const char *name, const char *const *list)
{
    for (; *list; list++)
        if (strcmp(name, *list) == 0)
            return true;
    return false;
}

void settings_warn_of_unknown(const struct doc *settings, const char *backend,
                              const char *const *known)
{
    static const char *const everywhere[] = {"auto-complete-config", "backend-directory",
                                             "default-max-batch-size", "min-compute-capability",
                                             NULL};
    const struct doc_value *v = doc_first(doc_get(doc_root(settings), "cmdline"));

    for (; v; v = v->next)
        if (!is_known_name(v->key, known) && !is_known_name(v->key, everywhere))
            BACKEND_LOG(WARN,
                        "--backend-config: '%s' is no setting of %s, so '%s' has no effect on it",
                        v->key, backend, doc_string(v, ""));
}
