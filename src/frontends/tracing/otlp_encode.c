/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each span is written in one pass, as protobuf or as JSON, straight from what the request's
 * threads have noted; only what a backend has reported is sorted into spans first. Names and
 * attributes are those of the reference where it has the span; queue, batch and the frontend's
 * attributes are ours, with the names of OpenTelemetry's conventions. A lack of memory is noted in
 * the encoder or in the body's buffer, and ends in otlp_encode().
 */
#include "frontends/tracing/otlp_encode.h"

#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/pbjson.h"
#include "base/status.h"
#include "base/utf8.h"
#include "core/server/server.h"
#include "frontends/ops/errors.h"
#include "frontends/tracing/otlp_settings.h"
#include "frontends/tracing/otlp_writer.h"
#include "frontends/tracing/traced.h"
#include "proto/otlp.pb-c.h"

enum { MAX_SCRATCH_BYTES = 512 << 20 };
enum { KIND_INTERNAL = 1, KIND_SERVER = 2, STATUS_ERROR = 2 };
enum { FLAG_SAMPLED = 1, FLAG_KNOWS_REMOTE = 0x100, FLAG_IS_REMOTE = 0x200 };

/* The bytes of the length that a message of each kind most likely has. */
enum { SMALL_LENGTH = 1, SPAN_LENGTH = 2, BATCH_LENGTH = 3 };

/* The fields of src/proto/otlp.proto. */
static const struct otlp_field of_resource_spans = {1, "resourceSpans"},
                               of_resource = {1, "resource"}, of_scope_spans = {2, "scopeSpans"},
                               of_resource_attributes = {1, "attributes"}, of_scope = {1, "scope"},
                               of_spans = {2, "spans"}, of_scope_name = {1, "name"},
                               of_scope_version = {2, "version"};
static const struct otlp_field of_trace_id = {1, "traceId"}, of_span_id = {2, "spanId"},
                               of_state = {3, "traceState"}, of_parent = {4, "parentSpanId"},
                               of_name = {5, "name"}, of_kind = {6, "kind"},
                               of_start = {7, "startTimeUnixNano"}, of_end = {8, "endTimeUnixNano"},
                               of_attributes = {9, "attributes"}, of_events = {11, "events"},
                               of_links = {13, "links"}, of_status = {15, "status"},
                               of_flags = {16, "flags"};
static const struct otlp_field of_link_flags = {6, "flags"}, of_status_message = {2, "message"},
                               of_status_code = {3, "code"};

struct encoder {
    struct otlp_writer out;
    struct arena arena; /* for texts that are mended, and what backends have reported */
    int64_t wall_ns;
    uint64_t last_id; /* of the spans that get their ids here */
    uint32_t n_spans;
    bool failed; /* no memory in the arena */
};

static void *encoder_alloc(struct encoder *e, size_t size_bytes)
{
    void *p = arena_alloc(&e->arena, size_bytes);
    e->failed |= !p;
    return p;
}

/* The text without what is not UTF-8, or no collector would read it. */
static const char *mend_text(struct encoder *e, const char *text, size_t length)
{
    char *copy = encoder_alloc(e, length + 1);
    if (!copy)
        return "";
    memcpy(copy, text, length + 1);
    for (size_t i = 0; i < length;) {
        size_t n = utf8_sequence(copy + i, length - i);
        if (n == 0)
            copy[i] = '?';
        i += n ? n : 1;
    }
    return copy;
}

/* The text, which is borrowed; what is not UTF-8 in it becomes '?'. */
static const char *clean_text(struct encoder *e, const char *text)
{
    size_t length = strlen(text);
    return LIKELY(utf8_is_valid(text, length)) ? text : mend_text(e, text, length);
}

/* The text is clean. */
static void put_clean_text(struct encoder *e, struct otlp_field f, const char *text)
{
    otlp_put_text(&e->out, f, text, strlen(text));
}

/* ---- Parts of a span ------------------------------------------------------------------------ */

/* KEY - a literal and its length. */
#define KEY(text) text, sizeof(text) - 1

/* Attributes of a span. The text is clean. */
static void put_span_text(struct encoder *e, const char *key, size_t key_length, const char *text)
{
    otlp_put_text_pair(&e->out, of_attributes, key, key_length, text, strlen(text));
}

static void put_span_number(struct encoder *e, const char *key, size_t key_length, int64_t number)
{
    otlp_put_int_pair(&e->out, of_attributes, key, key_length, number);
}

static uint64_t wall_time(const struct encoder *e, uint64_t ns)
{
    return ns + (uint64_t)e->wall_ns;
}

static void put_event(struct encoder *e, const char *name, uint64_t ns)
{
    otlp_put_event(&e->out, of_events, wall_time(e, ns), name, strlen(name));
}

static void put_link(struct encoder *e, const struct span_name *to)
{
    struct otlp_mark link = otlp_begin_item(&e->out, of_links, SMALL_LENGTH);
    otlp_put_id(&e->out, of_trace_id, to->trace_id, TRACE_ID_BYTES);
    otlp_put_id(&e->out, of_span_id, to->span_id, SPAN_ID_BYTES);
    otlp_put_fixed32(&e->out, of_link_flags, FLAG_SAMPLED);
    otlp_end(&e->out, link);
}

/* Ids differ from each other, and begin at random in each batch: Weyl's sequence. */
static uint64_t next_span_id(struct encoder *e)
{
    do {
        e->last_id += 0x9e3779b97f4a7c15;
    } while (e->last_id == 0);
    return e->last_id;
}

/* What a span begins with. */
struct span_start {
    const char *name;      /* clean */
    const uint8_t *id;     /* NULL: a new one */
    const uint8_t *parent; /* NULL: none */
    uint64_t from_ns, to_ns;
    int32_t kind; /* 0: KIND_INTERNAL */
    uint32_t more_flags;
};

/* Begins a span; the caller puts attributes, events, links and status, and ends it. */
static struct otlp_mark begin_span(struct encoder *e, const struct traced *t,
                                   const struct span_start *o)
{
    struct otlp_writer *w = &e->out;
    struct otlp_mark span = otlp_begin_item(w, of_spans, SPAN_LENGTH);
    uint64_t fresh = o->id ? 0 : next_span_id(e);
    otlp_put_id(w, of_trace_id, t->span.trace_id, TRACE_ID_BYTES);
    otlp_put_id(w, of_span_id, o->id ? o->id : (const uint8_t *)&fresh, SPAN_ID_BYTES);
    if (t->span.state)
        put_clean_text(e, of_state, t->span.state); /* trace_parent_add_state() takes ASCII alone */
    if (o->parent)
        otlp_put_id(w, of_parent, o->parent, SPAN_ID_BYTES);
    put_clean_text(e, of_name, o->name);
    otlp_put_int32(w, of_kind, o->kind ? o->kind : KIND_INTERNAL);
    otlp_put_fixed64(w, of_start, wall_time(e, o->from_ns));
    otlp_put_fixed64(w, of_end, wall_time(e, MAX(o->from_ns, o->to_ns)));
    otlp_put_fixed32(w, of_flags, FLAG_SAMPLED | FLAG_KNOWS_REMOTE | o->more_flags);
    e->n_spans++;
    return span;
}

/* ---- The frontend --------------------------------------------------------------------------- */

static void put_operation(struct encoder *e, const struct traced *t)
{
    int status = t->span.reply_status;
    if (t->stamps[STAMP_HTTP_RECV_START]) {
        put_span_text(e, KEY("http.request.method"), "POST");
        put_span_text(e, KEY("http.route"), t->span.name);
        if (status != TRACED_NO_STATUS)
            put_span_number(e, KEY("http.response.status_code"), status);
    } else {
        put_span_text(e, KEY("rpc.system"), "grpc");
        put_span_text(e, KEY("rpc.service"), "inference.GRPCInferenceService");
        put_span_text(e, KEY("rpc.method"), t->span.name);
        if (status != TRACED_NO_STATUS)
            put_span_number(e, KEY("rpc.grpc.status_code"), status);
    }
}

/* Do the conventions leave the status of the server's span unset? The code counts that the client
 * got; a client that has left, and each request of a stream, has got none. */
static bool is_fault_of_client(const struct traced *t)
{
    const struct ops_error *codes = ops_error_of(t->span.error);
    int status = t->span.reply_status;
    if (t->stamps[STAMP_HTTP_RECV_START]) {
        status = status == TRACED_NO_STATUS ? codes->http_status : status;
        return status >= 400 && status < 500;
    }
    switch (status == TRACED_NO_STATUS ? codes->grpc_status : status) {
    case 2:  /* UNKNOWN */
    case 4:  /* DEADLINE_EXCEEDED */
    case 12: /* UNIMPLEMENTED */
    case 13: /* INTERNAL */
    case 14: /* UNAVAILABLE */
    case 15: /* DATA_LOSS */
        return false;
    default:
        return true;
    }
}

static void put_status(struct encoder *e, const char *message)
{
    struct otlp_mark status = otlp_begin_message(&e->out, of_status, SMALL_LENGTH);
    put_clean_text(e, of_status_message, clean_text(e, message));
    otlp_put_int32(&e->out, of_status_code, STATUS_ERROR);
    otlp_end(&e->out, status);
}

static void put_stamps(struct encoder *e, const struct traced *t)
{
    otlp_begin_list(&e->out, of_events);
    for (int i = 0; i < N_STAMPS; i++) {
        if (t->stamps[i])
            put_event(e, stamp_names[i], t->stamps[i]);
    }
    otlp_end_list(&e->out);
}

static void add_root_span(struct encoder *e, const struct traced *t)
{
    const struct traced_span *span = &t->span;
    uint64_t start_ns = MAX(t->stamps[STAMP_HTTP_RECV_START], t->stamps[STAMP_GRPC_WAITREAD_START]);
    struct otlp_mark mark = begin_span(e, t,
                                       &(struct span_start){
                                           .name = "InferRequest",
                                           .id = span->root_id,
                                           .parent = span->has_parent ? span->parent_id : NULL,
                                           .from_ns = start_ns ? start_ns : span->ended_ns,
                                           .to_ns = span->ended_ns,
                                           .kind = KIND_SERVER,
                                           .more_flags = span->has_parent ? FLAG_IS_REMOTE : 0,
                                       });
    bool is_error = span->error_text && !is_fault_of_client(t);
    if (span->name || span->error_text) {
        otlp_begin_list(&e->out, of_attributes);
        if (span->name)
            put_operation(e, t);
        if (is_error)
            put_span_text(e, KEY("error.type"), status_code_name(span->error));
        else if (span->error_text)
            put_span_text(e, KEY("conch.refusal"), clean_text(e, span->error_text));
        otlp_end_list(&e->out);
    }
    if (start_ns && t->root.trace.level & TRACE_TIMESTAMPS)
        put_stamps(e, t);
    if (is_error)
        put_status(e, span->error_text);
    otlp_end(&e->out, mark);
}

/* ---- What backends report ------------------------------------------------------------------- */

struct reported_event {
    struct reported_event *next;
    const char *name;
    uint64_t ns;
};

/* A span that a backend has begun, or the model's own, within which the others are. */
struct reported_span {
    struct reported_span *next;  /* in the order of their beginning */
    struct reported_span *outer; /* NULL: the model's */
    const char *name;
    uint8_t id[SPAN_ID_BYTES];
    uint64_t from_ns, to_ns;
    struct reported_event *events, **last;
};

static bool name_ends_with(const char *text, const char *ending)
{
    size_t length = strlen(text), n = strlen(ending);
    return length > n && strcmp(text + length - n, ending) == 0;
}

/* A name that a record has as JSON, in plain. */
static const char *decode_name(struct encoder *e, const char *json)
{
    struct json j;
    struct json_str text;
    size_t length = strlen(json);
    char *quoted = encoder_alloc(e, length + 3);
    if (!quoted)
        return "";
    snprintf(quoted, length + 3, "\"%s\"", json);
    json_init(&j, quoted, length + 2, &e->arena);
    if (!json_read_string(&j, &text))
        return clean_text(e, json);
    char *name = arena_strndup(&e->arena, text.at, text.length);
    e->failed |= !name;
    return name ? clean_text(e, name) : "";
}

static void add_reported_event(struct encoder *e, struct reported_span *s, const char *name,
                               uint64_t ns)
{
    struct reported_event *event = encoder_alloc(e, sizeof(*event));
    if (!event)
        return;
    *event = (struct reported_event){NULL, name, ns};
    *s->last = event;
    s->last = &event->next;
}

/* Begins a span within the one that is open, and returns it. */
static struct reported_span *begin_reported(struct encoder *e, struct reported_span *open,
                                            const char *name, uint64_t ns, uint64_t last_ns)
{
    struct reported_span *s = encoder_alloc(e, sizeof(*s));
    char *short_name = arena_strndup(&e->arena, name, strlen(name) - strlen("_START"));
    if (!s || !short_name) {
        e->failed = true;
        return open;
    }
    *s = (struct reported_span){
        .outer = open,
        .name = short_name,
        .from_ns = ns,
        .to_ns = last_ns, /* unless it is ended */
        .last = &s->events,
    };
    uint64_t id = next_span_id(e);
    memcpy(s->id, &id, SPAN_ID_BYTES);
    add_reported_event(e, s, name, ns);
    return s;
}

/* Ends the innermost span of that name that is open, and those within it. Returns the one that is
 * open then; NULL: none has that name. */
static struct reported_span *end_reported(struct encoder *e, struct reported_span *open,
                                          const char *name, uint64_t ns)
{
    size_t length = strlen(name) - strlen("_END");
    for (struct reported_span *s = open; s->outer; s = s->outer) {
        if (strlen(s->name) != length || memcmp(s->name, name, length) != 0)
            continue;
        for (; open != s->outer; open = open->outer)
            open->to_ns = ns;
        add_reported_event(e, s, name, ns);
        return open;
    }
    return NULL;
}

/*
 * Sorts what a backend has reported: names that end with _START and _END begin and end spans;
 * others are events of the innermost span that is open. This is what the reference's manual says.
 */
static void sort_reported(struct encoder *e, const struct trace_part *p, struct reported_span *all)
{
    struct reported_span *open = all, **last = &all->next;
    for (const struct trace_record *r = p->records; r && !e->failed; r = r->next) {
        if (!r->name)
            continue;
        const char *name = decode_name(e, r->name);
        struct reported_span *ended =
            name_ends_with(name, "_END") ? end_reported(e, open, name, r->ns) : NULL;
        if (ended) {
            open = ended;
        } else if (name_ends_with(name, "_START")) {
            open = begin_reported(e, open, name, r->ns, p->times.last_ns);
            if (!e->failed)
                *last = open;
            last = &open->next;
        } else {
            add_reported_event(e, open, name, r->ns);
        }
    }
}

static void put_reported_events(struct encoder *e, const struct reported_span *s)
{
    for (const struct reported_event *event = s->events; event; event = event->next)
        put_event(e, event->name, event->ns);
}

static void add_reported_span(struct encoder *e, const struct traced *t,
                              const struct reported_span *s)
{
    struct otlp_mark mark = begin_span(e, t,
                                       &(struct span_start){
                                           .name = s->name,
                                           .id = s->id,
                                           .parent = s->outer->id,
                                           .from_ns = s->from_ns,
                                           .to_ns = s->to_ns,
                                       });
    otlp_begin_list(&e->out, of_events);
    put_reported_events(e, s);
    otlp_end_list(&e->out);
    otlp_end(&e->out, mark);
}

/* ---- A request of the core ------------------------------------------------------------------ */

/* The span above a part's: its ensemble's, or the frontend's. */
static const uint8_t *find_parent_span(const struct traced *t, const struct trace_part *part)
{
    for (const struct trace_part *p = atomic_load(&t->parts); p; p = p->next) {
        if (p->trace.id == part->trace.parent_id)
            return p->span_id;
    }
    return t->span.root_id;
}

static void put_model_identity(struct encoder *e, const struct trace *trace, const char *model_name)
{
    otlp_begin_list(&e->out, of_attributes);
    put_span_text(e, KEY("triton.model_name"), model_name);
    put_span_number(e, KEY("triton.model_version"), trace->model_version);
    put_span_number(e, KEY("triton.trace_id"), (int64_t)trace->id);
    put_span_number(e, KEY("triton.trace_parent_id"), (int64_t)trace->parent_id);
    if (*trace->request_id)
        put_span_text(e, KEY("triton.request_id"), clean_text(e, trace->request_id));
    otlp_end_list(&e->out);
}

static void put_activity(struct encoder *e, const struct trace_part *p,
                         enum trace_activity activity)
{
    if (p->times.of[activity])
        put_event(e, trace_activity_name(activity), p->times.of[activity]);
}

static void add_model_span(struct encoder *e, const struct traced *t, const struct trace_part *p,
                           const struct reported_span *reported)
{
    const char *name = clean_text(e, p->trace.model_name);
    struct otlp_mark mark = begin_span(e, t,
                                       &(struct span_start){
                                           .name = name,
                                           .id = p->span_id,
                                           .parent = find_parent_span(t, p),
                                           .from_ns = p->times.of[TRACE_REQUEST_START],
                                           .to_ns = p->times.last_ns,
                                       });
    put_model_identity(e, &p->trace, name);
    otlp_begin_list(&e->out, of_events);
    put_activity(e, p, TRACE_REQUEST_START);
    put_activity(e, p, TRACE_QUEUE_START);
    put_reported_events(e, reported);
    put_activity(e, p, TRACE_REQUEST_END);
    otlp_end_list(&e->out);
    otlp_end(&e->out, mark);
}

static void add_queue_span(struct encoder *e, const struct traced *t, const struct trace_part *p)
{
    struct otlp_mark mark = begin_span(e, t,
                                       &(struct span_start){
                                           .name = "queue",
                                           .parent = p->span_id,
                                           .from_ns = p->times.of[TRACE_QUEUE_START],
                                           .to_ns = p->times.of[TRACE_COMPUTE_START],
                                       });
    otlp_end(&e->out, mark);
}

static void add_compute_span(struct encoder *e, const struct traced *t, const struct trace_part *p)
{
    struct otlp_mark mark = begin_span(e, t,
                                       &(struct span_start){
                                           .name = "compute",
                                           .parent = p->span_id,
                                           .from_ns = p->times.of[TRACE_COMPUTE_START],
                                           .to_ns = p->times.of[TRACE_COMPUTE_END],
                                       });
    otlp_begin_list(&e->out, of_events);
    for (int i = TRACE_COMPUTE_START; i <= TRACE_COMPUTE_END; i++)
        put_activity(e, p, (enum trace_activity)i);
    otlp_end_list(&e->out);
    if (p->n_batch > 0 && !p->leads_batch) {
        otlp_begin_list(&e->out, of_links);
        put_link(e, &p->batch);
        otlp_end_list(&e->out);
    }
    otlp_end(&e->out, mark);
}

static void add_batch_span(struct encoder *e, const struct traced *t, const struct trace_part *p)
{
    struct otlp_mark mark = begin_span(e, t,
                                       &(struct span_start){
                                           .name = "batch",
                                           .id = p->batch.span_id,
                                           .parent = p->span_id,
                                           .from_ns = p->times.of[TRACE_COMPUTE_START],
                                           .to_ns = p->times.of[TRACE_COMPUTE_END],
                                       });
    otlp_begin_list(&e->out, of_attributes);
    put_span_number(e, KEY("conch.batch.requests"), p->n_batch);
    otlp_end_list(&e->out);
    if (p->links) {
        otlp_begin_list(&e->out, of_links);
        for (const struct traced_link *l = p->links; l; l = l->next)
            put_link(e, &l->to);
        otlp_end_list(&e->out);
    }
    otlp_end(&e->out, mark);
}

static void add_part_spans(struct encoder *e, const struct traced *t, const struct trace_part *p)
{
    struct reported_span reported = {.last = &reported.events};
    memcpy(reported.id, p->span_id, SPAN_ID_BYTES);
    if (p->times.of[TRACE_REQUEST_START] == 0)
        return; /* without the level TIMESTAMPS nothing is known of it */
    if (UNLIKELY(p->times.n_custom > 0))
        sort_reported(e, p, &reported);
    add_model_span(e, t, p, &reported);
    if (p->times.of[TRACE_QUEUE_START] && p->times.of[TRACE_COMPUTE_START])
        add_queue_span(e, t, p);
    if (p->times.of[TRACE_COMPUTE_START]) {
        add_compute_span(e, t, p);
        if (p->leads_batch)
            add_batch_span(e, t, p);
    }
    for (const struct reported_span *s = reported.next; s; s = s->next)
        add_reported_span(e, t, s);
}

/* ---- A request to the collector ------------------------------------------------------------- */

/* As add_part_spans() makes them, but each activity that a backend has reported counts. */
static uint32_t count_part_spans(const struct trace_part *p)
{
    const uint64_t *of = p->times.of;
    bool is_computed = of[TRACE_COMPUTE_START] != 0;
    if (of[TRACE_REQUEST_START] == 0)
        return 0;
    return 1 + (is_computed && of[TRACE_QUEUE_START] != 0) + is_computed +
           (is_computed && p->leads_batch) + p->times.n_custom;
}

uint32_t otlp_count_spans(const struct traced *t)
{
    uint32_t n = 1;
    for (const struct trace_part *p = atomic_load(&t->parts); p; p = p->next)
        n += count_part_spans(p);
    return n;
}

static void put_resource(struct encoder *e, const struct otlp_settings *settings)
{
    const struct otlp_pairs *pairs = &settings->resource;
    struct otlp_mark resource = otlp_begin_message(&e->out, of_resource, SPAN_LENGTH);
    otlp_begin_list(&e->out, of_resource_attributes);
    for (size_t i = 0; i < pairs->n; i++) {
        const char *name = clean_text(e, pairs->items[i].name);
        const char *value = clean_text(e, pairs->items[i].value);
        otlp_put_text_pair(&e->out, of_resource_attributes, name, strlen(name), value,
                           strlen(value));
    }
    otlp_end_list(&e->out);
    otlp_end(&e->out, resource);
}

static void put_scope(struct encoder *e)
{
    struct otlp_mark scope = otlp_begin_message(&e->out, of_scope, SMALL_LENGTH);
    put_clean_text(e, of_scope_name, "triton-server");
    put_clean_text(e, of_scope_version, server_version(NULL));
    otlp_end(&e->out, scope);
}

static void put_traces(struct encoder *e, const struct traced *const traces[], size_t n_traces)
{
    otlp_begin_list(&e->out, of_spans);
    for (size_t i = 0; i < n_traces; i++) { /* spans of a body that fails are counted, too */
        add_root_span(e, traces[i]);
        for (const struct trace_part *p = atomic_load(&traces[i]->parts); p; p = p->next)
            add_part_spans(e, traces[i], p);
        arena_reset(&e->arena);
    }
    otlp_end_list(&e->out);
}

struct status *otlp_encode(const struct otlp_settings *settings,
                           const struct traced *const traces[], size_t n_traces, int64_t wall_ns,
                           struct buf *body, uint32_t *ret_spans)
{
    struct encoder e = {.wall_ns = wall_ns};
    struct otlp_writer *w = &e.out;
    arena_init(&e.arena, NULL, 0, MAX_SCRATCH_BYTES, NULL, NULL);
    span_id_new((uint8_t *)&e.last_id);
    otlp_writer_init(w, body, settings->is_json);
    otlp_begin_list(w, of_resource_spans);
    struct otlp_mark resource_spans = otlp_begin_item(w, of_resource_spans, BATCH_LENGTH);
    put_resource(&e, settings);
    otlp_begin_list(w, of_scope_spans);
    struct otlp_mark scope_spans = otlp_begin_item(w, of_scope_spans, BATCH_LENGTH);
    put_scope(&e);
    put_traces(&e, traces, n_traces);
    otlp_end(w, scope_spans);
    otlp_end_list(w);
    otlp_end(w, resource_spans);
    otlp_end_list(w);
    otlp_writer_done(w);
    *ret_spans = e.n_spans;
    arena_done(&e.arena);
    return e.failed ? status_no_memory() : buf_status(body);
}

/* ---- Answers -------------------------------------------------------------------------------- */

static struct status *parse_json_answer(const char *body, size_t n_bytes, struct arena *arena,
                                        ProtobufCMessage **ret)
{
    return pbjson_parse(&otlp__export_response__descriptor, body, n_bytes, arena, ret);
}

static void *alloc_answer_part(void *arena, size_t size_bytes)
{
    return arena_alloc(arena, size_bytes);
}

static void free_nothing(void *arena, void *pointer)
{
    (void)arena;
    (void)pointer;
}

void otlp_read_answer(bool is_json, const char *body, size_t n_bytes, struct otlp_answer *ret)
{
    struct arena arena;
    ProtobufCMessage *message = NULL;
    *ret = (struct otlp_answer){0};
    arena_init(&arena, NULL, 0, 1 << 20, NULL, NULL);
    ProtobufCAllocator allocator = {alloc_answer_part, free_nothing, &arena};
    if (is_json)
        status_free(parse_json_answer(body, n_bytes, &arena, &message));
    else
        message = protobuf_c_message_unpack(&otlp__export_response__descriptor, &allocator, n_bytes,
                                            (const uint8_t *)body);
    const Otlp__ExportResponse *answer = (const Otlp__ExportResponse *)message;
    const Otlp__ExportResponse__PartialSuccess *partial = answer ? answer->partialsuccess : NULL;
    if (partial) {
        ret->n_rejected = (uint64_t)MAX(partial->rejectedspans, (int64_t)0);
        snprintf(ret->message, sizeof(ret->message), "%s", partial->errormessage);
    }
    arena_done(&arena);
}
