/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rules for the values of a setting, and the sampling. Requests count in n_requests, which all
 * loops share; all else is written only when a trace begins or ends. Thread: any.
 */
#include "frontends/tracing/trace_setting.h"

#include <string.h>

#include "base/mem.h"
#include "base/status.h"
#include "core/trace/trace.h"

struct trace_setting *trace_setting_new(const struct trace_values *values, const bool is_own[],
                                        const char *path)
{
    struct trace_setting *s = mem_zalloc_on_line(sizeof(*s));
    s->values = *values;
    memcpy(s->is_own, is_own, sizeof(s->is_own));
    s->is_off =
        path ? trace_fault(values, path) != NULL : values->of[TRACE_LEVEL] == TRACE_DISABLED;
    atomic_init(&s->refs, 1);
    atomic_init(&s->n_open, 1);
    atomic_init(&s->left, (int)values->of[TRACE_COUNT]);
    list_init(&s->due);
    return s;
}

void trace_setting_ref(struct trace_setting *s)
{
    atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
}

void trace_setting_unref(struct trace_setting *s)
{
    if (s && atomic_fetch_sub(&s->refs, 1) == 1)
        mem_free_on_line(s);
}

struct trace_values trace_setting_now(const struct trace_setting *s)
{
    struct trace_values now = s->values;
    now.of[TRACE_COUNT] = atomic_load_explicit(&s->left, memory_order_relaxed);
    return now;
}

bool trace_setting_hits(struct trace_setting *s, bool has_parent)
{
    if (s->is_off || atomic_load_explicit(&s->left, memory_order_relaxed) == 0)
        return false;
    uint64_t n = 1 + atomic_fetch_add_explicit(&s->n_requests, 1, memory_order_relaxed);
    uint64_t rate = (uint64_t)s->values.of[TRACE_RATE];
    return has_parent || (rate > 0 && n % rate == 0);
}

/* Adds to a count that has not ended at 0, or is below it. */
static bool step_unless_zero(atomic_int *count, int step)
{
    int was = atomic_load(count);
    while (was > 0) {
        if (atomic_compare_exchange_weak(count, &was, was + step))
            return true;
    }
    return was < 0;
}

bool trace_setting_begin(struct trace_setting *s)
{
    unsigned int n = atomic_load(&s->n_open);
    do {
        if (n == 0)
            return false;
    } while (!atomic_compare_exchange_weak(&s->n_open, &n, n + 1));
    return true;
}

bool trace_setting_take(struct trace_setting *s)
{
    return step_unless_zero(&s->left, -1);
}

const char *trace_fault(const struct trace_values *values, const char *path)
{
    if (values->of[TRACE_LEVEL] == TRACE_DISABLED)
        return "tracing is disabled";
    if (values->of[TRACE_RATE] == 0)
        return "sample rate must be non-zero";
    return !path || *path ? NULL : "trace file name is not given";
}

void trace_change_apply(const struct trace_change *change, const struct trace_setting *present,
                        const struct trace_values *fallback, struct trace_values *ret_values,
                        bool ret_is_own[])
{
    struct trace_values now = present ? trace_setting_now(present) : *fallback;
    *ret_values = *fallback;
    for (int i = 0; i < N_TRACE_FIELDS; i++) {
        bool was_own = present && present->is_own[i];
        bool is_set = change->fields[i].kind == TRACE_SET;
        ret_is_own[i] = is_set || (was_own && change->fields[i].kind != TRACE_CLEAR);
        if (ret_is_own[i])
            ret_values->of[i] = is_set ? change->fields[i].to : now.of[i];
    }
}

/* ---- Texts of clients ------------------------------------------------------------------------ */

const char *trace_field_name(enum trace_field field)
{
    static const char *const names[] = {
        [TRACE_LEVEL] = "trace_level",
        [TRACE_RATE] = "trace_rate",
        [TRACE_COUNT] = "trace_count",
        [TRACE_LOG_FREQUENCY] = "log_frequency",
    };
    return names[field];
}

struct status *trace_change_level(struct trace_change *change, const char *word, size_t n_words)
{
    int64_t bits = strcmp(word, "TIMESTAMPS") == 0 ? TRACE_TIMESTAMPS
                   : strcmp(word, "TENSORS") == 0  ? TRACE_TENSORS
                                                   : TRACE_DISABLED;
    if (strcmp(word, "OFF") == 0 && n_words > 1)
        return status_new(STATUS_INVALID_ARG, "Expect only one trace level 'OFF' is specified");
    if (bits == TRACE_DISABLED && strcmp(word, "OFF") != 0)
        return NULL;
    change->fields[TRACE_LEVEL].kind = TRACE_SET;
    change->fields[TRACE_LEVEL].to |= bits;
    return NULL;
}

enum reading { READ_FINE, READ_NONE, READ_RANGE };

/* Reads as C++'s stoi() does: blanks, a sign, digits; the rest does not matter. */
static enum reading read_stoi(const char *text, int64_t *ret)
{
    text += strspn(text, " \t\n\v\f\r");
    bool negative = *text == '-';
    if (*text == '-' || *text == '+')
        text++;
    if (*text < '0' || *text > '9')
        return READ_NONE;
    int64_t n = 0;
    for (; *text >= '0' && *text <= '9' && n <= INT32_MAX; text++)
        n = n * 10 + (*text - '0');
    n = negative ? -n : n;
    *ret = n;
    return n > INT32_MAX || n < INT32_MIN ? READ_RANGE : READ_FINE;
}

struct status *trace_change_number(struct trace_change *change, enum trace_field field,
                                   const char *text, const char *before_got)
{
    const char *name = trace_field_name(field), *range = "0, 4294967295";
    int64_t number = 0;
    enum reading reading = read_stoi(text, &number);
    if (field == TRACE_COUNT)
        range = "-1, 2147483647";
    if (reading == READ_NONE)
        return status_new(STATUS_INVALID_ARG, "Unable to parse '%s', got: %s", name, text);
    if (reading == READ_RANGE)
        return status_new(STATUS_INVALID_ARG,
                          "Unable to parse '%s', value is out of range [ %s ], got: %s", name,
                          range, text);
    if (field == TRACE_COUNT && number < -1)
        return status_new(STATUS_INVALID_ARG,
                          "Unable to parse '%s'. Expecting value >= -1, got:%s%s", name, before_got,
                          text);
    change->fields[field].kind = TRACE_SET;
    change->fields[field].to = field == TRACE_COUNT ? number : (int64_t)(uint32_t)number;
    return NULL;
}

struct status *trace_refuse_file(void)
{
    return status_new(STATUS_UNSUPPORTED,
                      "trace file location can not be updated through network protocol");
}
