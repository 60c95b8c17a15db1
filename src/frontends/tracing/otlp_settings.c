/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The variables are those of OpenTelemetry's specification; of each pair the one for traces alone
 * wins. Values of lists are percent-encoded. Thread: any.
 */
#include "frontends/tracing/otlp_settings.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/status.h"
#include "base/str.h"

enum { MAX_QUEUE_SIZE = 1 << 20, MAX_DELAY_MS = 3600 * 1000, MAX_PAIRS = 128 };

/* ---- Pairs ---------------------------------------------------------------------------------- */

static void set_pair(struct otlp_pairs *p, const char *name, size_t name_length, const char *value,
                     size_t length)
{
    for (size_t i = 0; i < p->n; i++) {
        if (strlen(p->items[i].name) == name_length &&
            memcmp(p->items[i].name, name, name_length) == 0) {
            mem_free(p->items[i].value);
            p->items[i].value = mem_strndup(value, length);
            return;
        }
    }
    p->items = mem_realloc(p->items, (p->n + 1) * sizeof(*p->items));
    p->items[p->n++] =
        (struct otlp_pair){mem_strndup(name, name_length), mem_strndup(value, length)};
}

/* Adds a pair whose name may be there already. */
static void show_pair(struct otlp_settings *s, const char *name, const char *value)
{
    s->shown.items = mem_realloc(s->shown.items, (s->shown.n + 1) * sizeof(*s->shown.items));
    s->shown.items[s->shown.n++] = (struct otlp_pair){mem_strdup(name), mem_strdup(value)};
}

static void set_text_pair(struct otlp_pairs *p, const char *name, const char *value)
{
    set_pair(p, name, strlen(name), value, strlen(value));
}

static void free_pairs(struct otlp_pairs *p)
{
    for (size_t i = 0; i < p->n; i++) {
        mem_free(p->items[i].name);
        mem_free(p->items[i].value);
    }
    mem_free(p->items);
}

static int percent_digit(char c)
{
    const char *digits = "0123456789abcdef", *at = c ? strchr(digits, c | 32) : NULL;
    return at ? (int)(at - digits) : -1;
}

/* Decodes "%2C" and the like in place; returns the new length. False: a control character, or a
 * percent sign without digits. */
static bool decode_percents(char *text, size_t *length)
{
    size_t n = 0;
    for (size_t i = 0; i < *length; i++) {
        char c = text[i];
        if (c == '%') {
            int high = i + 2 < *length ? percent_digit(text[i + 1]) : -1;
            int low = high >= 0 ? percent_digit(text[i + 2]) : -1;
            if (low < 0)
                return false;
            c = (char)(high << 4 | low);
            i += 2;
        }
        if ((unsigned char)c < ' ' || c == 127)
            return false;
        text[n++] = c;
    }
    *length = n;
    text[n] = '\0';
    return true;
}

static void trim_blanks(char **text, size_t *length)
{
    while (*length > 0 && (**text == ' ' || **text == '\t')) {
        (*text)++;
        (*length)--;
    }
    while (*length > 0 && ((*text)[*length - 1] == ' ' || (*text)[*length - 1] == '\t'))
        (*length)--;
}

/* A pair "name=value" of a list, which may be changed. */
static bool add_listed_pair(struct otlp_pairs *p, char *text, size_t length)
{
    char *equals = memchr(text, '=', length);
    if (!equals || p->n >= MAX_PAIRS)
        return false;
    char *name = text, *value = equals + 1;
    size_t name_length = (size_t)(equals - text), value_length = length - name_length - 1;
    trim_blanks(&name, &name_length);
    trim_blanks(&value, &value_length);
    *equals = '\0'; /* where the decoded name may end */
    if (name_length == 0 || !decode_percents(name, &name_length))
        return false;
    char *copy = mem_strndup(value, value_length);
    bool is_fine = decode_percents(copy, &value_length);
    if (is_fine)
        set_pair(p, name, name_length, copy, value_length);
    mem_free(copy);
    return is_fine;
}

/* Adds a list "name=value,name=value" of a variable. */
static void read_listed_pairs(const char *variable, const char *list, struct otlp_pairs *p)
{
    char *copy = mem_strdup(list), *next;
    for (char *text = copy; text; text = next) {
        char *comma = strchr(text, ',');
        size_t length = comma ? (size_t)(comma - text) : strlen(text);
        next = comma ? comma + 1 : NULL;
        if (length > 0 && !add_listed_pair(p, text, length))
            log_warn("%s: ignored what is no <name>=<value>", variable);
    }
    mem_free(copy);
}

/* ---- Numbers and words ---------------------------------------------------------------------- */

static bool read_bounded(const char *text, uint64_t min, uint64_t max, uint64_t *ret)
{
    uint64_t number;
    if (!str_to_uint64(text, strlen(text), &number) || number < min || number > max)
        return false;
    *ret = number;
    return true;
}

/* Where values come from. */
struct otlp_source {
    const char *const *given;
    size_t n_given;
    char *(*variable)(const char *name);
};

/* The last value of a setting on the command line; NULL: none. */
static const char *find_given_setting(const struct otlp_source *source, const char *name)
{
    const char *found = NULL;
    size_t length = strlen(name);
    for (size_t i = 0; i < source->n_given; i++) {
        if (strncmp(source->given[i], name, length) == 0 && source->given[i][length] == '=')
            found = source->given[i] + length + 1;
    }
    return found;
}

/* The value of a variable; an empty one is none. */
static const char *find_variable(const struct otlp_source *source, const char *name)
{
    const char *text = source->variable(name);
    return text && *text ? text : NULL;
}

/* A number that a variable sets. */
static void read_number_variable(const struct otlp_source *source, const char *name, uint64_t min,
                                 uint64_t max, uint64_t *number)
{
    const char *text = find_variable(source, name);
    if (text && !read_bounded(text, min, max, number))
        log_warn("%s: ignored '%s', which is no number from %llu to %llu", name, text,
                 (unsigned long long)min, (unsigned long long)max);
}

/* A number of the batch processor; @number has the default. */
static struct status *read_bsp(const struct otlp_source *source, const char *setting,
                               const char *variable, uint64_t min, uint64_t max,
                               struct otlp_settings *s, uint64_t *number)
{
    char text[24];
    const char *given = find_given_setting(source, setting);
    read_number_variable(source, variable, min, max, number);
    if (given && !read_bounded(given, min, max, number))
        return status_new(STATUS_INVALID_ARG,
                          "trace setting '%s' must be a number from %llu to %llu, got: %s", setting,
                          (unsigned long long)min, (unsigned long long)max, given);
    snprintf(text, sizeof(text), "%llu", (unsigned long long)*number);
    show_pair(s, setting, text);
    return NULL;
}

static struct status *read_bsps(const struct otlp_source *source, struct otlp_settings *s)
{
    uint64_t delay_ms = 5000, queue = 2048, batch = 512;
    struct status *st = read_bsp(source, "bsp_max_queue_size", "OTEL_BSP_MAX_QUEUE_SIZE", 1,
                                 MAX_QUEUE_SIZE, s, &queue);
    if (!st)
        st = read_bsp(source, "bsp_schedule_delay", "OTEL_BSP_SCHEDULE_DELAY", 0, MAX_DELAY_MS, s,
                      &delay_ms);
    if (!st)
        st = read_bsp(source, "bsp_max_export_batch_size", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 1,
                      MAX_QUEUE_SIZE, s, &batch);
    s->schedule_delay_ms = delay_ms;
    s->max_queue_size = (uint32_t)queue;
    s->max_batch_size = (uint32_t)MIN(batch, queue);
    s->export_timeout_ms = 30000;
    read_number_variable(source, "OTEL_BSP_EXPORT_TIMEOUT", 1, MAX_DELAY_MS, &s->export_timeout_ms);
    return st;
}

/* ---- The exporter --------------------------------------------------------------------------- */

/* OTEL_EXPORTER_OTLP_TRACES_<what>, else OTEL_EXPORTER_OTLP_<what>. */
static const char *find_exporter_variable(const struct otlp_source *source, const char *what)
{
    char name[64];
    snprintf(name, sizeof(name), "OTEL_EXPORTER_OTLP_TRACES_%s", what);
    const char *text = find_variable(source, name);
    snprintf(name, sizeof(name), "OTEL_EXPORTER_OTLP_%s", what);
    return text ? text : find_variable(source, name);
}

/* The address of traces below that of a collector. */
static char *add_traces_path(const char *endpoint)
{
    size_t length = strlen(endpoint);
    return mem_printf("%s%sv1/traces", endpoint, endpoint[length - 1] == '/' ? "" : "/");
}

static char *choose_url(const struct otlp_source *source, struct otlp_settings *s)
{
    const char *url = find_given_setting(source, "url");
    if (url)
        show_pair(s, "url", url);
    if (!url)
        url = find_variable(source, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT");
    if (url) /* without a scheme it is HTTP, as in the reference */
        return mem_printf("%s%s", strstr(url, "://") ? "" : "http://", url);
    url = find_variable(source, "OTEL_EXPORTER_OTLP_ENDPOINT");
    return add_traces_path(url ? url : "http://localhost:4318");
}

static struct status *read_url(const struct otlp_source *source, struct otlp_settings *s)
{
    s->url = choose_url(source, s);
    if (strncasecmp(s->url, "http://", 7) == 0 || strncasecmp(s->url, "https://", 8) == 0)
        return NULL;
    return status_new(STATUS_INVALID_ARG, "traces are sent by http or https, got: %s", s->url);
}

static struct status *read_protocol(const struct otlp_source *source, struct otlp_settings *s)
{
    const char *protocol = find_exporter_variable(source, "PROTOCOL");
    const char *packing = find_exporter_variable(source, "COMPRESSION");
    s->is_json = protocol && strcmp(protocol, "http/json") == 0;
    s->is_packed = packing && strcmp(packing, "gzip") == 0;
    if (packing && !s->is_packed && strcmp(packing, "none") != 0)
        log_warn("OTEL_EXPORTER_OTLP_COMPRESSION: ignored '%s', which is neither gzip nor none",
                 packing);
    if (!protocol || s->is_json || strcmp(protocol, "http/protobuf") == 0)
        return NULL;
    return status_new(STATUS_UNSUPPORTED,
                      "OTEL_EXPORTER_OTLP_PROTOCOL must be http/protobuf or http/json, got: %s",
                      protocol);
}

static char *copy_or_null(const char *text)
{
    return text ? mem_strdup(text) : NULL;
}

/* A name of HTTP: what has no blank, colon or quote in it. */
static bool is_http_name(const char *name)
{
    return *name && strspn(name, "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz"
                                 "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == strlen(name);
}

static void read_headers(const struct otlp_source *source, struct otlp_settings *s)
{
    const char *list = find_exporter_variable(source, "HEADERS");
    if (list)
        read_listed_pairs("OTEL_EXPORTER_OTLP_HEADERS", list, &s->headers);
    for (size_t i = 0; i < s->headers.n; i++) {
        if (!is_http_name(s->headers.items[i].name)) {
            log_warn("OTEL_EXPORTER_OTLP_HEADERS: a name of a header is invalid; all are ignored");
            free_pairs(&s->headers);
            s->headers = (struct otlp_pairs){0};
        }
    }
}

static struct status *read_exporter(const struct otlp_source *source, struct otlp_settings *s)
{
    struct status *st = read_url(source, s);
    if (!st)
        st = read_protocol(source, s);
    s->timeout_ms = 10000;
    read_number_variable(source, "OTEL_EXPORTER_OTLP_TIMEOUT", 1, MAX_DELAY_MS, &s->timeout_ms);
    read_number_variable(source, "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", 1, MAX_DELAY_MS,
                         &s->timeout_ms);
    s->ca_file = copy_or_null(find_exporter_variable(source, "CERTIFICATE"));
    s->client_certificate = copy_or_null(find_exporter_variable(source, "CLIENT_CERTIFICATE"));
    s->client_key = copy_or_null(find_exporter_variable(source, "CLIENT_KEY"));
    read_headers(source, s);
    return st;
}

/* ---- The resource --------------------------------------------------------------------------- */

static struct status *read_given_resource(const struct otlp_source *source, struct otlp_settings *s)
{
    static const char name[] = "resource=";
    for (size_t i = 0; i < source->n_given; i++) {
        if (strncmp(source->given[i], name, sizeof(name) - 1) != 0)
            continue;
        const char *text = source->given[i] + sizeof(name) - 1, *equals = strchr(text, '=');
        if (!equals || equals == text)
            return status_new(STATUS_INVALID_ARG,
                              "trace setting 'resource' must be <key>=<value>, got: %s", text);
        set_pair(&s->resource, text, (size_t)(equals - text), equals + 1, strlen(equals + 1));
        show_pair(s, "resource", text);
    }
    return NULL;
}

static struct status *read_resource(const struct otlp_source *source, struct otlp_settings *s)
{
    struct otlp_pairs *r = &s->resource;
    const char *list = find_variable(source, "OTEL_RESOURCE_ATTRIBUTES");
    const char *service = find_variable(source, "OTEL_SERVICE_NAME");
    set_text_pair(r, "service.name", "triton-inference-server");
    set_text_pair(r, "telemetry.sdk.name", "conch");
    set_text_pair(r, "telemetry.sdk.language", "c");
    if (list)
        read_listed_pairs("OTEL_RESOURCE_ATTRIBUTES", list, r);
    if (service)
        set_text_pair(r, "service.name", service);
    return read_given_resource(source, s);
}

/* ---- All ------------------------------------------------------------------------------------ */

static struct status *check_setting_names(const struct otlp_source *source)
{
    static const char *const names[] = {"url", "resource", "bsp_max_queue_size",
                                        "bsp_schedule_delay", "bsp_max_export_batch_size"};
    for (size_t i = 0; i < source->n_given; i++) {
        const char *equals = strchr(source->given[i], '=');
        size_t length = equals ? (size_t)(equals - source->given[i]) : 0;
        bool is_known = false;
        for (size_t k = 0; k < ARRAY_SIZE(names) && !is_known; k++)
            is_known =
                strlen(names[k]) == length && memcmp(names[k], source->given[i], length) == 0;
        if (!is_known)
            return status_new(STATUS_INVALID_ARG, "there is no such setting of traces: %s",
                              source->given[i]);
    }
    return NULL;
}

struct status *otlp_settings_new(const char *const given[], size_t n_given,
                                 char *(*variable)(const char *name), struct otlp_settings **ret)
{
    MEM_CHARGE(NULL, 0);
    const struct otlp_source source = {given, n_given, variable};
    struct status *st = check_setting_names(&source);
    if (st)
        return st;
    struct otlp_settings *s = mem_zalloc(sizeof(*s));
    st = read_exporter(&source, s);
    if (!st)
        st = read_resource(&source, s);
    if (!st)
        st = read_bsps(&source, s);
    if (!st)
        *ret = TAKE(s);
    otlp_settings_free(s);
    return st;
}

void otlp_settings_free(struct otlp_settings *s)
{
    if (!s)
        return;
    free_pairs(&s->headers);
    free_pairs(&s->resource);
    free_pairs(&s->shown);
    mem_free(s->url);
    mem_free(s->ca_file);
    mem_free(s->client_certificate);
    mem_free(s->client_key);
    mem_free(s);
}
