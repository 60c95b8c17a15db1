/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which requests are traced: the values of one setting, that of the server or of a model, and the
 * rules by which a client's change makes new ones (reference/behaviours §22). No setting is changed
 * once it is in use: a change makes another one, and requests that are traced keep theirs.
 *
 * Thread: any.
 */
#ifndef CONCH_FRONTENDS_TRACING_TRACE_SETTING_H
#define CONCH_FRONTENDS_TRACING_TRACE_SETTING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"
#include "base/list.h"

struct trace_file;

enum trace_field { TRACE_LEVEL, TRACE_RATE, TRACE_COUNT, TRACE_LOG_FREQUENCY, N_TRACE_FIELDS };

/* Level: bits of enum trace_level. Rate, frequency: uint32_t. Count: int32_t, -1 is no limit. */
struct trace_values {
    int64_t of[N_TRACE_FIELDS];
};

/* What a client asks for. */
struct trace_change {
    struct {
        enum { TRACE_KEEP, TRACE_SET, TRACE_CLEAR } kind;
        int64_t to; /* of TRACE_SET */
    } fields[N_TRACE_FIELDS];
};

struct trace_setting {
    atomic_uint refs;

    /* Constant. */
    struct trace_values values;
    bool is_own[N_TRACE_FIELDS]; /* set for this setting; other fields mirror the one above it */
    bool is_off;                 /* no request is traced by it */

    /*
     * 1 while the setting is in use, and 1 for each of its traces until that is written or dropped.
     * 0: nothing more comes; no trace begins.
     */
    atomic_uint n_open;
    atomic_bool is_replaced;
    atomic_int left; /* traces that may still begin; -1: any number */

    /* The writer's (trace_writer.c). */
    struct list due; /* in trace_writer.due, under its lock */
    bool is_due;     /* likewise */
    struct trace_file *file;
    uint32_t n_in_file;

    /* Each request that might be traced counts here; apart from what others read. */
    _Alignas(64) atomic_uint_least64_t n_requests;
};

/*
 * trace_setting_new - makes a setting with one reference, in use. The values' count is `left`.
 *
 * @path  of the file; NULL in mode opentelemetry
 */
struct trace_setting *trace_setting_new(const struct trace_values *values, const bool is_own[],
                                        const char *path);
void trace_setting_ref(struct trace_setting *s);
void trace_setting_unref(struct trace_setting *s);

/* trace_setting_now - the values, with the count as it is now. */
struct trace_values trace_setting_now(const struct trace_setting *s);

/*
 * trace_setting_hits - counts a request, and says whether it is to be traced: it is the one of
 * `rate`, or its client says that it belongs to a trace.
 */
bool trace_setting_hits(struct trace_setting *s, bool has_parent);

/*
 * trace_setting_begin - counts a trace in n_open, if the setting is still in use; the caller takes
 * it off again. trace_setting_take - takes one off the count of traces, if one is left.
 */
bool trace_setting_begin(struct trace_setting *s);
bool trace_setting_take(struct trace_setting *s);

/*
 * trace_fault - why nothing can be traced with these values; static text. NULL: it can.
 *
 * @path  NULL in mode opentelemetry, where a setting of the start may have rate 0 nevertheless:
 * then only requests that belong to a trace are traced
 */
const char *trace_fault(const struct trace_values *values, const char *path);

/*
 * trace_change_apply - the values that a change leads to, and which of them are set by it or were
 * before.
 *
 * @present   NULL: the model has had no setting of its own
 * @fallback  the values of fields that are not set
 */
void trace_change_apply(const struct trace_change *change, const struct trace_setting *present,
                        const struct trace_values *fallback, struct trace_values *ret_values,
                        bool ret_is_own[]);

/* ---- Texts of clients ------------------------------------------------------------------------ */

/* trace_field_name - "trace_level", "trace_rate", "trace_count", "log_frequency". */
const char *trace_field_name(enum trace_field field);

/*
 * trace_change_level - adds one word of a list of levels to the change. Unknown words have no
 * effect, as in the reference.
 *
 * @n_words  in the list
 * Errors: STATUS_INVALID_ARG  OFF beside other words
 */
NODISCARD struct status *trace_change_level(struct trace_change *change, const char *word,
                                            size_t n_words);

/*
 * trace_change_number - sets a number that a client has sent as text.
 *
 * @before_got  what stands between "got:" and the text when a count is too small: " " or "", as the
 *              reference's protocols have it
 * Errors: STATUS_INVALID_ARG  no number, out of range
 */
NODISCARD struct status *trace_change_number(struct trace_change *change, enum trace_field field,
                                             const char *text, const char *before_got);

/* trace_refuse_file - the error for a client that sets the trace file: STATUS_UNSUPPORTED. */
NODISCARD struct status *trace_refuse_file(void);

#endif
