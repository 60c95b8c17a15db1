/* SPDX-License-Identifier: Apache-2.0 */
/* settings - see settings.h. The texts of errors are the genuine backend's. */
#include "python/settings.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MIB      (UINT64_C(1) << 20)
#define NS_PER_S UINT64_C(1000000000)

/* A whole number; the genuine backend reads 64 bits, and so far as there are digits. */
static TRITONSERVER_Error *parse_whole(const char *name, const char *text, int64_t *ret_number)
{
    char *end;

    errno = 0;
    const long long number = strtoll(text, &end, 10);
    if (end == text || *end || errno)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG, "%s is no whole number: '%s'", name,
                             text);
    *ret_number = number;
    return NULL;
}

static TRITONSERVER_Error *read_first(const char *text, struct settings *s)
{
    int64_t n;

    TRY(parse_whole("shm-default-byte-size", text, &n));
    if (n < (int64_t)MIB)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                             "shm-default-byte-size can't be smaller than 4 MiBs");
    s->first_bytes = (uint64_t)n;
    return NULL;
}

static TRITONSERVER_Error *read_growth(const char *text, struct settings *s)
{
    int64_t n;

    TRY(parse_whole("shm-growth-byte-size", text, &n));
    if (n <= 0)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                             "shm-growth-byte-size can't be smaller than or equal to zero.");
    s->growth_bytes = (uint64_t)n;
    return NULL;
}

static TRITONSERVER_Error *read_timeout(const char *text, struct settings *s)
{
    int64_t n;

    TRY(parse_whole("stub-timeout-seconds", text, &n));
    if (n <= 0)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                             "stub-timeout-seconds can't be smaller than or equal to zero.");
    s->timeout_ns = (uint64_t)(n > INT32_MAX ? INT32_MAX : n) * NS_PER_S;
    return NULL;
}

static TRITONSERVER_Error *read_queue(const char *text, struct settings *s)
{
    int64_t n;

    (void)s;
    TRY(parse_whole("shm_message_queue_size", text, &n));
    if (n <= 0)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                             "shm_message_queue_size can't be smaller than or equal to zero.");
    return NULL;
}

static TRITONSERVER_Error *read_pool(const char *text, struct settings *s)
{
    int64_t n;

    (void)s;
    TRY(parse_whole("thread-pool-size", text, &n));
    if (n < 1)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                             "thread-pool-size can't be less than 1.");
    return NULL;
}

static TRITONSERVER_Error *read_prefix(const char *text, struct settings *s)
{
    (void)s;
    if (!*text)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                             "shm-region-prefix-name must at least contain one character.");
    return NULL;
}

static TRITONSERVER_Error *read_directory(const char *text, struct settings *s)
{
    free(s->backend_directory);
    s->backend_directory = strdup(text);
    return s->backend_directory ? NULL
                                : backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
}

/* What the server itself tells every backend. */
static TRITONSERVER_Error *accept_anything(const char *text, struct settings *s)
{
    (void)text;
    (void)s;
    return NULL;
}

static const struct setting {
    const char *name;
    TRITONSERVER_Error *(*read)(const char *text, struct settings *s);
} all_settings[] = {
    {"shm-default-byte-size", read_first},
    {"shm-growth-byte-size", read_growth},
    {"stub-timeout-seconds", read_timeout},
    {"shm_message_queue_size", read_queue},
    {"thread-pool-size", read_pool},
    {"shm-region-prefix-name", read_prefix},
    {"backend-directory", read_directory},
    {"auto-complete-config", accept_anything},
    {"min-compute-capability", accept_anything},
    {"default-max-batch-size", accept_anything},
    {"additional-dependency-dirs", accept_anything},
};

static const struct setting *find_python_setting(const char *name)
{
    for (size_t i = 0; i < sizeof all_settings / sizeof all_settings[0]; i++) {
        if (strcmp(all_settings[i].name, name) == 0)
            return &all_settings[i];
    }
    return NULL;
}

static TRITONSERVER_Error *read_all(const struct doc *config, struct settings *s)
{
    const struct doc_value *given = doc_get(doc_root(config), "cmdline");

    for (const struct doc_value *v = doc_first(given); v; v = v->next) {
        const struct setting *setting = v->key ? find_python_setting(v->key) : NULL;

        if (v->type != DOC_STRING)
            continue;
        if (setting)
            TRY(setting->read(v->string, s));
        else
            BACKEND_LOG(WARN, "the Python backend has no setting '%s'", v->key);
    }
    return NULL;
}

TRITONSERVER_Error *settings_read(const struct doc *config, struct settings *ret_settings)
{
    const long pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
    struct settings s = {
        .first_bytes = MIB,
        .growth_bytes = MIB,
        .max_bytes = pages > 0 && page_bytes > 0 ? (uint64_t)pages * (uint64_t)page_bytes
                                                 : UINT64_C(1) << 36,
        .timeout_ns = 30 * NS_PER_S,
    };
    TRITONSERVER_Error *err = read_all(config, &s);

    if (err) {
        settings_done(&s);
        return err;
    }
    if (s.max_bytes < s.first_bytes)
        s.max_bytes = s.first_bytes;
    *ret_settings = s;
    return NULL;
}

void settings_done(struct settings *s)
{
    free(s->backend_directory);
    *s = (struct settings){0};
}
