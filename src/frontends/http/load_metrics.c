/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The values are read when a reply begins, and only for clients that ask. No state; any thread.
 */
#include "frontends/http/load_metrics.h"

#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/json.h"
#include "core/metrics/family.h"

static const char family[] = "nv_trt_llm_kv_cache_block_metrics";

enum { TOKENS_PER, USED, MOST, N_TYPES };

static const char *const labels_of[N_TYPES] = {
    [TOKENS_PER] = "kv_cache_block_type=\"tokens_per\"",
    [USED] = "kv_cache_block_type=\"used\"",
    [MOST] = "kv_cache_block_type=\"max\"",
};

/* Of several models the last one by its labels counts, as in the reference. */
struct block_metrics {
    const char *labels[N_TYPES]; /* NULL: not set */
    double values[N_TYPES];
};

static bool has_label(const char *labels, const char *label)
{
    const char *found = strstr(labels, label);
    return found && (found == labels || found[-1] == ',');
}

static void take_block_value(void *arg, const char *labels, double value)
{
    struct block_metrics *m = arg;
    for (int i = 0; i < N_TYPES; i++) {
        if (value < 0 || !has_label(labels, labels_of[i]) ||
            (m->labels[i] && strcmp(m->labels[i], labels) > 0))
            continue;
        m->labels[i] = labels;
        m->values[i] = value;
    }
}

static void print_json_load(struct buf *b, double used, uint64_t capacity)
{
    buf_adds(b, "JSON {\"named_metrics\":{\"kv_cache_utilization\":");
    json_write_double(b, used);
    buf_adds(b, ",\"max_token_capacity\":");
    json_write_uint64(b, capacity);
    buf_adds(b, "}}");
}

static void print_text_load(struct buf *b, double used, uint64_t capacity)
{
    buf_addf(b,
             "TEXT named_metrics.kv_cache_utilization=%f, "
             "named_metrics.max_token_capacity=%llu",
             used, (unsigned long long)capacity);
}

static bool format_is(const char *text, size_t length, const char *wanted)
{
    return length == strlen(wanted) && memcmp(text, wanted, length) == 0;
}

enum load_metrics_form load_metrics_form_of(const char *name, size_t length)
{
    return format_is(name, length, "json")   ? LOAD_METRICS_JSON
           : format_is(name, length, "text") ? LOAD_METRICS_TEXT
                                             : LOAD_METRICS_NONE;
}

size_t load_metrics_header(enum load_metrics_form form, char text[LOAD_METRICS_BYTES])
{
    struct block_metrics m = {{NULL}, {0}};
    text[0] = '\0';
    if (form == LOAD_METRICS_NONE)
        return 0;
    metric_family_visit(family, take_block_value, &m);
    if (!m.labels[TOKENS_PER] || !m.labels[USED] || !m.labels[MOST])
        return 0;
    AUTO(buf) value = BUF_INIT(LOAD_METRICS_BYTES);
    double used = m.values[MOST] > 0 ? m.values[USED] / m.values[MOST] : 0;
    double capacity = MIN(m.values[MOST] * m.values[TOKENS_PER], 9e18);
    if (form == LOAD_METRICS_JSON)
        print_json_load(&value, used, (uint64_t)capacity);
    else
        print_text_load(&value, used, (uint64_t)capacity);
    int n = snprintf(text, LOAD_METRICS_BYTES, "endpoint-load-metrics: %s\r\n", buf_text(&value));
    return n < LOAD_METRICS_BYTES ? (size_t)n : 0;
}
