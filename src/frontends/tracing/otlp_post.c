/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libcurl is loaded at run time: linked, it would load thirty libraries (LDAP, Kerberos, SSH, …)
 * into every server. One handle is kept, so that requests use one connection. Redirects are not
 * followed, and only HTTP and HTTPS are spoken. An answer is cut off at OTLP_ANSWER_BYTES.
 */
#include "frontends/tracing/otlp_post.h"

#include <curl/curl.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/status.h"
#include "core/server/server.h"
#include "frontends/tracing/otlp_settings.h"

/* ---- libcurl -------------------------------------------------------------------------------- */

#define CURL_FUNCTIONS(F)                                                                          \
    F(curl_global_init)                                                                            \
    F(curl_easy_init)                                                                              \
    F(curl_easy_cleanup)                                                                           \
    F(curl_easy_setopt)                                                                            \
    F(curl_easy_perform)                                                                           \
    F(curl_easy_getinfo)                                                                           \
    F(curl_easy_strerror)                                                                          \
    F(curl_slist_append)                                                                           \
    F(curl_slist_free_all)

/* The header makes macros of these, which check the types of constant arguments only. */
#undef curl_easy_setopt
#undef curl_easy_getinfo

#define DECLARE(name) static __typeof__(&(name)) lib_##name;
CURL_FUNCTIONS(DECLARE)

static pthread_once_t curl_once = PTHREAD_ONCE_INIT;
static char curl_missing[256]; /* why it is not there; empty: it is */

static void load_curl(void)
{
    void *handle = dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL); /* never unloaded */
    if (!handle)
        handle = dlopen("libcurl-gnutls.so.4", RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        const char *why = dlerror();
        snprintf(curl_missing, sizeof(curl_missing), "%s", why ? why : "it is missing");
        return;
    }
#define RESOLVE(name)                                                                              \
    lib_##name = (__typeof__(&(name)))dlsym(handle, #name);                                        \
    if (!lib_##name)                                                                               \
        snprintf(curl_missing, sizeof(curl_missing), "it has no %s()", #name);
    CURL_FUNCTIONS(RESOLVE)
    if (!curl_missing[0] && lib_curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        snprintf(curl_missing, sizeof(curl_missing), "it cannot be initialised");
}

/* ---- Answers -------------------------------------------------------------------------------- */

uint64_t otlp_retry_after_ms(const char *value, size_t length)
{
    uint64_t seconds = 0;
    for (size_t i = 0; i < length; i++) {
        if (value[i] < '0' || value[i] > '9')
            return 0; /* a date, or nothing that we know */
        seconds = MIN(seconds * 10 + (uint64_t)(value[i] - '0'), (uint64_t)UINT32_MAX);
    }
    return seconds * 1000;
}

/* The value of a header line, if it has that name ("retry-after:"). */
static const char *find_header_value(const char *line, size_t n_bytes, const char *name,
                                     size_t *ret_length)
{
    size_t length = strlen(name);
    if (n_bytes < length || strncasecmp(line, name, length) != 0)
        return NULL;
    const char *at = line + length, *end = line + n_bytes;
    while (at < end && (*at == ' ' || *at == '\t'))
        at++;
    while (end > at && (end[-1] == ' ' || end[-1] == '\r' || end[-1] == '\n'))
        end--;
    *ret_length = (size_t)(end - at);
    return at;
}

static size_t take_header(char *line, size_t size, size_t n, void *arg)
{
    struct otlp_post *post = arg;
    size_t n_bytes = size * n, length;
    const char *value = find_header_value(line, n_bytes, "retry-after:", &length);
    if (value)
        post->retry_after_ms = otlp_retry_after_ms(value, length);
    value = find_header_value(line, n_bytes, "content-type:", &length);
    if (value)
        post->is_json = length >= 16 && strncasecmp(value, "application/json", 16) == 0;
    return n_bytes;
}

static size_t take_answer_bytes(char *bytes, size_t size, size_t n, void *arg)
{
    struct otlp_post *post = arg;
    size_t n_bytes = size * n, room = post->body.max - MIN(post->body.size, post->body.max);
    buf_add(&post->body, bytes, MIN(n_bytes, room > 0 ? room - 1 : 0));
    return n_bytes;
}

/* ---- Requests ------------------------------------------------------------------------------- */

struct otlp_poster {
    CURL *curl;
    struct curl_slist *headers, *packed_headers; /* the second with Content-Encoding */
    bool (*is_over)(void *arg);
    void *arg;
};

static int look_if_over(void *arg, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
    struct otlp_poster *p = arg;
    (void)a;
    (void)b;
    (void)c;
    (void)d;
    return p->is_over(p->arg) ? 1 : 0;
}

static bool add_header(struct curl_slist **list, const char *name, const char *value)
{
    char *line = mem_printf("%s: %s", name, value);
    struct curl_slist *longer = lib_curl_slist_append(*list, line);
    mem_free(line);
    if (longer)
        *list = longer;
    return longer != NULL;
}

static bool make_headers(const struct otlp_settings *s, bool is_packed, struct curl_slist **list)
{
    const char *type = s->is_json ? "application/json" : "application/x-protobuf";
    bool is_fine = add_header(list, "Content-Type", type) &&
                   (!is_packed || add_header(list, "Content-Encoding", "gzip")) &&
                   add_header(list, "Expect", ""); /* no question before a large body */
    for (size_t i = 0; i < s->headers.n && is_fine; i++)
        is_fine = add_header(list, s->headers.items[i].name, s->headers.items[i].value);
    return is_fine;
}

/* SET - sets an option of the handle; all of them must succeed. */
#define SET(option, value) (lib_curl_easy_setopt(p->curl, option, value) == CURLE_OK)

static bool set_files(struct otlp_poster *p, const struct otlp_settings *s)
{
    return (!s->ca_file || SET(CURLOPT_CAINFO, s->ca_file)) &&
           (!s->client_certificate || SET(CURLOPT_SSLCERT, s->client_certificate)) &&
           (!s->client_key || SET(CURLOPT_SSLKEY, s->client_key));
}

static bool set_up(struct otlp_poster *p, const struct otlp_settings *s)
{
    char *agent = mem_printf("conch/%s", server_version(NULL));
    bool is_fine =
        SET(CURLOPT_URL, s->url) && SET(CURLOPT_PROTOCOLS_STR, "http,https") &&
        SET(CURLOPT_NOSIGNAL, 1L) && SET(CURLOPT_POST, 1L) && SET(CURLOPT_FOLLOWLOCATION, 0L) &&
        SET(CURLOPT_TIMEOUT_MS, (long)s->timeout_ms) && SET(CURLOPT_USERAGENT, agent) &&
        SET(CURLOPT_HEADERFUNCTION, take_header) && SET(CURLOPT_WRITEFUNCTION, take_answer_bytes) &&
        SET(CURLOPT_XFERINFOFUNCTION, look_if_over) && SET(CURLOPT_XFERINFODATA, (void *)p) &&
        SET(CURLOPT_NOPROGRESS, 0L);
    mem_free(agent);
    return is_fine && set_files(p, s);
}

struct status *otlp_poster_new(const struct otlp_settings *settings, bool (*is_over)(void *arg),
                               void *arg, struct otlp_poster **ret)
{
    pthread_once(&curl_once, load_curl);
    if (curl_missing[0])
        return status_new(STATUS_UNAVAILABLE,
                          "traces by OpenTelemetry need libcurl (Debian: libcurl4): %s",
                          curl_missing);
    struct otlp_poster *p = mem_zalloc(sizeof(*p));
    p->is_over = is_over;
    p->arg = arg;
    p->curl = lib_curl_easy_init();
    if (!p->curl || !make_headers(settings, false, &p->headers) ||
        !make_headers(settings, true, &p->packed_headers) || !set_up(p, settings)) {
        otlp_poster_free(p);
        return status_new(STATUS_UNAVAILABLE, "libcurl cannot send to '%s'", settings->url);
    }
    *ret = p;
    return NULL;
}

void otlp_poster_free(struct otlp_poster *p)
{
    if (!p)
        return;
    lib_curl_slist_free_all(p->headers);
    lib_curl_slist_free_all(p->packed_headers);
    if (p->curl)
        lib_curl_easy_cleanup(p->curl);
    mem_free(p);
}

void otlp_poster_send(struct otlp_poster *p, const void *body, size_t n_bytes, bool is_packed,
                      struct otlp_post *ret)
{
    ret->status = 0;
    ret->is_json = false;
    ret->retry_after_ms = 0;
    ret->error[0] = '\0';
    buf_reset(&ret->body);
    bool is_fine = SET(CURLOPT_HTTPHEADER, is_packed ? p->packed_headers : p->headers) &&
                   SET(CURLOPT_POSTFIELDS, body) &&
                   SET(CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)n_bytes) &&
                   SET(CURLOPT_HEADERDATA, (void *)ret) && SET(CURLOPT_WRITEDATA, (void *)ret);
    CURLcode code = is_fine ? lib_curl_easy_perform(p->curl) : CURLE_OUT_OF_MEMORY;
    if (code == CURLE_OK)
        lib_curl_easy_getinfo(p->curl, CURLINFO_RESPONSE_CODE, &ret->status);
    else
        snprintf(ret->error, sizeof(ret->error), "%s", lib_curl_easy_strerror(code));
}
