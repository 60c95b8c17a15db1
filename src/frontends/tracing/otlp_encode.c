/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The messages are built in an arena and printed in one go, as protobuf or as JSON. Names and
 * attributes are those of the reference where it has the span; queue, batch and the frontend's
 * attributes are ours, with the names of OpenTelemetry's conventions. A lack of memory is noted in
 * the encoder and ends in otlp_encode().
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
#include "frontends/tracing/otlp_settings.h"
#include "frontends/tracing/traced.h"
#include "proto/otlp.pb-c.h"

enum { MAX_MESSAGE_BYTES = 512 << 20, MAX_ATTRIBUTES = 8 };
enum { KIND_INTERNAL = 1, KIND_SERVER = 2, STATUS_ERROR = 2 };
enum { FLAG_SAMPLED = 1, FLAG_KNOWS_REMOTE = 0x100, FLAG_IS_REMOTE = 0x200 };

struct encoder {
    struct arena arena;
    int64_t wall_ns;
    bool failed; /* no memory */
    Otlp__Span **spans;
    uint32_t n_spans, max_spans;
};

static void *encoder_alloc(struct encoder *e, size_t n_items, size_t item_bytes)
{
    void *p = arena_alloc(&e->arena, n_items * item_bytes);
    if (p)
        memset(p, 0, n_items * item_bytes);
    else
        e->failed = true;
    return p;
}

/* ENCODER_NEW - a message of that type, or NULL. */
#define ENCODER_NEW(e, type, init) ((type *)encoder_init(e, sizeof(type), (init_fn)(init)))

typedef void (*init_fn)(void *message);

static void *encoder_init(struct encoder *e, size_t size_bytes, init_fn init)
{
    void *m = encoder_alloc(e, 1, size_bytes);
    if (m)
        init(m);
    return m;
}

/* The text, which is borrowed; what is not UTF-8 in it becomes '?', or no collector would read it.
 */
static char *clean_text(struct encoder *e, const char *text)
{
    size_t length = strlen(text);
    if (LIKELY(utf8_is_valid(text, length)))
        return (char *)(uintptr_t)text;
    char *copy = arena_strndup(&e->arena, text, length);
    if (!copy) {
        e->failed = true;
        return (char *)(uintptr_t) "";
    }
    for (size_t i = 0; i < length;) {
        size_t n = utf8_sequence(text + i, length - i);
        if (n == 0)
            copy[i] = '?';
        i += n ? n : 1;
    }
    return copy;
}

/* ---- Parts of a span ------------------------------------------------------------------------ */

static Otlp__AnyValue *add_attribute(struct encoder *e, Otlp__KeyValue **list, size_t *n,
                                     const char *key)
{
    Otlp__KeyValue *pair = ENCODER_NEW(e, Otlp__KeyValue, otlp__key_value__init);
    Otlp__AnyValue *value = ENCODER_NEW(e, Otlp__AnyValue, otlp__any_value__init);
    if (!pair || !value)
        return NULL;
    pair->key = clean_text(e, key);
    pair->value = value;
    list[(*n)++] = pair;
    return value;
}

static void add_span_text(struct encoder *e, Otlp__Span *s, const char *key, const char *text)
{
    BUG_ON(s->n_attributes == MAX_ATTRIBUTES);
    Otlp__AnyValue *value = add_attribute(e, s->attributes, &s->n_attributes, key);
    if (!value)
        return;
    value->value_case = OTLP__ANY_VALUE__VALUE_STRING_VALUE;
    value->stringvalue = clean_text(e, text);
}

static void add_span_number(struct encoder *e, Otlp__Span *s, const char *key, int64_t number)
{
    BUG_ON(s->n_attributes == MAX_ATTRIBUTES);
    Otlp__AnyValue *value = add_attribute(e, s->attributes, &s->n_attributes, key);
    if (!value)
        return;
    value->value_case = OTLP__ANY_VALUE__VALUE_INT_VALUE;
    value->intvalue = number;
}

static uint64_t wall_time(const struct encoder *e, uint64_t ns)
{
    return ns + (uint64_t)e->wall_ns;
}

/* Makes room for one more event: 8 first, then twice as many each time. False: no memory. */
static bool reserve_event(struct encoder *e, Otlp__Span *s)
{
    size_t n = s->n_events;
    bool is_full = n == 0 || (n >= 8 && (n & (n - 1)) == 0);
    if (!is_full)
        return true;
    Otlp__Span__Event **events = encoder_alloc(e, n ? 2 * n : 8, sizeof(Otlp__Span__Event *));
    if (!events)
        return false;
    if (n > 0)
        memcpy(events, s->events, n * sizeof(Otlp__Span__Event *));
    s->events = events;
    return true;
}

static void add_event(struct encoder *e, Otlp__Span *s, const char *name, uint64_t ns)
{
    Otlp__Span__Event *event = ENCODER_NEW(e, Otlp__Span__Event, otlp__span__event__init);
    if (!event)
        return;
    event->name = clean_text(e, name);
    event->timeunixnano = wall_time(e, ns);
    if (reserve_event(e, s))
        s->events[s->n_events++] = event;
}

static void add_span_link(struct encoder *e, Otlp__Span *s, const struct span_name *to)
{
    Otlp__Span__Link *link = ENCODER_NEW(e, Otlp__Span__Link, otlp__span__link__init);
    if (!link)
        return;
    link->traceid = (ProtobufCBinaryData){TRACE_ID_BYTES, (uint8_t *)(uintptr_t)to->trace_id};
    link->spanid = (ProtobufCBinaryData){SPAN_ID_BYTES, (uint8_t *)(uintptr_t)to->span_id};
    link->flags = FLAG_SAMPLED;
    s->links[s->n_links++] = link;
}

/* What a span begins with. */
struct span_start {
    const char *name;
    const uint8_t *id;     /* NULL: a new one */
    const uint8_t *parent; /* NULL: none */
    uint64_t from_ns, to_ns;
    uint32_t max_links;
};

/* Adds a span to the request; NULL: no memory. */
static Otlp__Span *add_span(struct encoder *e, const struct traced *t, const struct span_start *o)
{
    Otlp__Span *s = ENCODER_NEW(e, Otlp__Span, otlp__span__init);
    uint8_t *id = (uint8_t *)(uintptr_t)o->id;
    if (!id && (id = encoder_alloc(e, 1, SPAN_ID_BYTES)))
        span_id_new(id);
    if (!s || !id)
        return NULL;
    s->attributes = encoder_alloc(e, MAX_ATTRIBUTES, sizeof(*s->attributes));
    s->links = encoder_alloc(e, o->max_links, sizeof(*s->links));
    if (e->failed)
        return NULL;
    BUG_ON(e->n_spans == e->max_spans);
    s->traceid = (ProtobufCBinaryData){TRACE_ID_BYTES, (uint8_t *)(uintptr_t)t->span.trace_id};
    s->spanid = (ProtobufCBinaryData){SPAN_ID_BYTES, id};
    if (o->parent)
        s->parentspanid = (ProtobufCBinaryData){SPAN_ID_BYTES, (uint8_t *)(uintptr_t)o->parent};
    if (t->span.state)
        s->tracestate = t->span.state;
    s->name = clean_text(e, o->name);
    s->kind = KIND_INTERNAL;
    s->starttimeunixnano = wall_time(e, o->from_ns);
    s->endtimeunixnano = wall_time(e, MAX(o->from_ns, o->to_ns));
    s->flags = FLAG_SAMPLED | FLAG_KNOWS_REMOTE;
    e->spans[e->n_spans++] = s;
    return s;
}

/* ---- The frontend --------------------------------------------------------------------------- */

static void add_operation(struct encoder *e, Otlp__Span *s, const struct traced *t)
{
    if (!t->span.name)
        return;
    if (t->stamps[STAMP_HTTP_RECV_START]) {
        add_span_text(e, s, "http.request.method", "POST");
        add_span_text(e, s, "http.route", t->span.name);
    } else {
        add_span_text(e, s, "rpc.system", "grpc");
        add_span_text(e, s, "rpc.service", "inference.GRPCInferenceService");
        add_span_text(e, s, "rpc.method", t->span.name);
    }
}

static void add_failure(struct encoder *e, Otlp__Span *s, const struct traced *t)
{
    if (!t->span.error)
        return;
    add_span_text(e, s, "error.type", t->span.error);
    s->status = ENCODER_NEW(e, Otlp__Span__Status, otlp__span__status__init);
    if (!s->status)
        return;
    s->status->code = STATUS_ERROR;
    s->status->message = clean_text(e, t->span.error_text);
}

static void add_root_span(struct encoder *e, const struct traced *t)
{
    const struct traced_span *span = &t->span;
    uint64_t start_ns = MAX(t->stamps[STAMP_HTTP_RECV_START], t->stamps[STAMP_GRPC_WAITREAD_START]);
    Otlp__Span *s = add_span(e, t,
                             &(struct span_start){
                                 .name = "InferRequest",
                                 .id = span->root_id,
                                 .parent = span->has_parent ? span->parent_id : NULL,
                                 .from_ns = start_ns ? start_ns : span->begun_ns,
                                 .to_ns = span->ended_ns,
                             });
    if (!s)
        return;
    s->kind = KIND_SERVER;
    if (span->has_parent)
        s->flags |= FLAG_IS_REMOTE;
    add_operation(e, s, t);
    add_failure(e, s, t);
    for (int i = 0; i < N_STAMPS; i++) {
        if (t->stamps[i] && t->root->trace.level & TRACE_TIMESTAMPS)
            add_event(e, s, stamp_names[i], t->stamps[i]);
    }
}

/* ---- A request of the core ------------------------------------------------------------------ */

/* The times of a part; 0: there is none. */
struct part_times {
    uint64_t of[TRACE_CUSTOM_ACTIVITY];
    uint64_t last_ns;
    uint32_t n_custom;
};

static struct part_times find_times(const struct trace_part *p)
{
    struct part_times times = {0};
    for (const struct trace_record *r = p->records; r; r = r->next) {
        times.last_ns = MAX(times.last_ns, r->ns);
        if (r->activity == TRACE_CUSTOM_ACTIVITY)
            times.n_custom++;
        else if ((size_t)r->activity < ARRAY_SIZE(times.of) && times.of[r->activity] == 0)
            times.of[r->activity] = r->ns;
    }
    return times;
}

/* The span above a part's: its ensemble's, or the frontend's. */
static const uint8_t *find_parent_span(const struct traced *t, const struct trace_part *part)
{
    for (const struct trace_part *p = atomic_load(&t->parts); p; p = p->next) {
        if (p->trace.id == part->trace.parent_id)
            return p->span_id;
    }
    return t->span.root_id;
}

static void add_identity(struct encoder *e, Otlp__Span *s, const struct trace *trace)
{
    add_span_text(e, s, "triton.model_name", trace->model_name);
    add_span_number(e, s, "triton.model_version", trace->model_version);
    add_span_number(e, s, "triton.trace_id", (int64_t)trace->id);
    add_span_number(e, s, "triton.trace_parent_id", (int64_t)trace->parent_id);
    if (*trace->request_id)
        add_span_text(e, s, "triton.request_id", trace->request_id);
}

static void add_activity_event(struct encoder *e, Otlp__Span *s, const struct part_times *times,
                               enum trace_activity activity)
{
    if (times->of[activity])
        add_event(e, s, trace_activity_name(activity), times->of[activity]);
}

static void add_queue_span(struct encoder *e, const struct traced *t, const struct trace_part *p,
                           const struct part_times *times)
{
    add_span(e, t,
             &(struct span_start){
                 .name = "queue",
                 .parent = p->span_id,
                 .from_ns = times->of[TRACE_QUEUE_START],
                 .to_ns = times->of[TRACE_COMPUTE_START],
             });
}

static void add_compute_span(struct encoder *e, const struct traced *t, const struct trace_part *p,
                             const struct part_times *times)
{
    Otlp__Span *s = add_span(e, t,
                             &(struct span_start){
                                 .name = "compute",
                                 .parent = p->span_id,
                                 .from_ns = times->of[TRACE_COMPUTE_START],
                                 .to_ns = times->of[TRACE_COMPUTE_END],
                                 .max_links = 1,
                             });
    if (!s)
        return;
    for (int i = TRACE_COMPUTE_START; i <= TRACE_COMPUTE_END; i++)
        add_activity_event(e, s, times, (enum trace_activity)i);
    if (p->n_batch > 0 && !p->leads_batch)
        add_span_link(e, s, &p->batch);
}

static void add_batch_span(struct encoder *e, const struct traced *t, const struct trace_part *p,
                           const struct part_times *times)
{
    uint32_t n_links = 0;
    for (const struct traced_link *l = p->links; l; l = l->next)
        n_links++;
    Otlp__Span *s = add_span(e, t,
                             &(struct span_start){
                                 .name = "batch",
                                 .id = p->batch.span_id,
                                 .parent = p->span_id,
                                 .from_ns = times->of[TRACE_COMPUTE_START],
                                 .to_ns = times->of[TRACE_COMPUTE_END],
                                 .max_links = n_links,
                             });
    if (!s)
        return;
    add_span_number(e, s, "conch.batch.requests", p->n_batch);
    for (const struct traced_link *l = p->links; l; l = l->next)
        add_span_link(e, s, &l->to);
}

/* ---- What backends report ------------------------------------------------------------------- */

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
    char *quoted = encoder_alloc(e, length + 3, 1);
    if (!quoted)
        return "";
    snprintf(quoted, length + 3, "\"%s\"", json);
    json_init(&j, quoted, length + 2, &e->arena);
    if (!json_read_string(&j, &text))
        return json;
    char *name = arena_strndup(&e->arena, text.at, text.length);
    e->failed |= !name;
    return name ? name : "";
}

/* A span that a backend has begun and not ended. */
struct open_span {
    Otlp__Span *span;
    struct open_span *outer;
};

static struct open_span *begin_reported(struct encoder *e, const struct traced *t,
                                        struct open_span *outer, const char *name, uint64_t ns,
                                        const struct part_times *times)
{
    size_t length = strlen(name) - strlen("_START");
    struct open_span *open = encoder_alloc(e, 1, sizeof(*open));
    char *short_name = arena_strndup(&e->arena, name, length);
    if (!open || !short_name) {
        e->failed = true;
        return outer;
    }
    open->outer = outer;
    open->span = add_span(e, t,
                          &(struct span_start){
                              .name = short_name,
                              .parent = outer->span->spanid.data,
                              .from_ns = ns,
                              .to_ns = times->last_ns, /* unless it is ended */
                          });
    if (!open->span)
        return outer;
    add_event(e, open->span, name, ns);
    return open;
}

/* The innermost span of that name that is open, with which those within it end; NULL: none. */
static struct open_span *end_reported(struct encoder *e, struct open_span *open, const char *name,
                                      uint64_t ns)
{
    size_t length = strlen(name) - strlen("_END");
    for (struct open_span *o = open; o->outer; o = o->outer) {
        if (strlen(o->span->name) != length || memcmp(o->span->name, name, length) != 0)
            continue;
        for (; open != o; open = open->outer)
            open->span->endtimeunixnano = wall_time(e, ns);
        add_event(e, o->span, name, ns);
        o->span->endtimeunixnano = MAX(o->span->starttimeunixnano, wall_time(e, ns));
        return o->outer;
    }
    return NULL;
}

/*
 * Names that end with _START and _END begin and end spans; others are events of the innermost span
 * that is open. This is what the reference's manual says.
 */
static void add_reported(struct encoder *e, const struct traced *t, const struct trace_part *p,
                         Otlp__Span *model, const struct part_times *times)
{
    struct open_span outermost = {model, NULL}, *open = &outermost;
    for (const struct trace_record *r = p->records; r && !e->failed; r = r->next) {
        if (r->activity != TRACE_CUSTOM_ACTIVITY || !r->name)
            continue;
        const char *name = decode_name(e, r->name);
        struct open_span *ended =
            name_ends_with(name, "_END") ? end_reported(e, open, name, r->ns) : NULL;
        if (ended)
            open = ended;
        else if (name_ends_with(name, "_START"))
            open = begin_reported(e, t, open, name, r->ns, times);
        else
            add_event(e, open->span, name, r->ns);
    }
}

static void add_part_spans(struct encoder *e, const struct traced *t, const struct trace_part *p)
{
    struct part_times times = find_times(p);
    if (times.of[TRACE_REQUEST_START] == 0)
        return; /* without the level TIMESTAMPS nothing is known of it */
    Otlp__Span *s = add_span(e, t,
                             &(struct span_start){
                                 .name = p->trace.model_name,
                                 .id = p->span_id,
                                 .parent = find_parent_span(t, p),
                                 .from_ns = times.of[TRACE_REQUEST_START],
                                 .to_ns = times.last_ns,
                             });
    if (!s)
        return;
    add_identity(e, s, &p->trace);
    add_activity_event(e, s, &times, TRACE_REQUEST_START);
    add_activity_event(e, s, &times, TRACE_QUEUE_START);
    if (times.of[TRACE_QUEUE_START] && times.of[TRACE_COMPUTE_START])
        add_queue_span(e, t, p, &times);
    if (times.of[TRACE_COMPUTE_START]) {
        add_compute_span(e, t, p, &times);
        if (p->leads_batch)
            add_batch_span(e, t, p, &times);
    }
    if (times.n_custom > 0)
        add_reported(e, t, p, s, &times);
    add_activity_event(e, s, &times, TRACE_REQUEST_END);
}

/* ---- A request to the collector ------------------------------------------------------------- */

/* As add_part_spans() makes them, but each activity that a backend has reported counts. */
static uint32_t count_part_spans(const struct trace_part *p)
{
    struct part_times times = find_times(p);
    bool is_computed = times.of[TRACE_COMPUTE_START] != 0;
    if (times.of[TRACE_REQUEST_START] == 0)
        return 0;
    return 1 + (is_computed && times.of[TRACE_QUEUE_START] != 0) + is_computed +
           (is_computed && p->leads_batch) + times.n_custom;
}

uint32_t otlp_count_spans(const struct traced *t)
{
    uint32_t n = 1;
    for (const struct trace_part *p = atomic_load(&t->parts); p; p = p->next)
        n += count_part_spans(p);
    return n;
}

static void add_trace(struct encoder *e, const struct traced *t)
{
    add_root_span(e, t);
    for (const struct trace_part *p = atomic_load(&t->parts); p && !e->failed; p = p->next)
        add_part_spans(e, t, p);
}

static Otlp__Resource *make_resource(struct encoder *e, const struct otlp_settings *settings)
{
    const struct otlp_pairs *pairs = &settings->resource;
    Otlp__Resource *r = ENCODER_NEW(e, Otlp__Resource, otlp__resource__init);
    if (!r || !(r->attributes = encoder_alloc(e, pairs->n + 1, sizeof(*r->attributes))))
        return NULL;
    for (size_t i = 0; i < pairs->n && !e->failed; i++) {
        Otlp__AnyValue *value =
            add_attribute(e, r->attributes, &r->n_attributes, pairs->items[i].name);
        if (!value)
            break;
        value->value_case = OTLP__ANY_VALUE__VALUE_STRING_VALUE;
        value->stringvalue = clean_text(e, pairs->items[i].value);
    }
    return r;
}

/* The message around the spans; NULL: no memory. */
static Otlp__ExportRequest *make_export_request(struct encoder *e,
                                                const struct otlp_settings *settings)
{
    Otlp__ExportRequest *request = ENCODER_NEW(e, Otlp__ExportRequest, otlp__export_request__init);
    Otlp__ResourceSpans *resource = ENCODER_NEW(e, Otlp__ResourceSpans, otlp__resource_spans__init);
    Otlp__ScopeSpans *scope = ENCODER_NEW(e, Otlp__ScopeSpans, otlp__scope_spans__init);
    Otlp__ResourceSpans **resources = encoder_alloc(e, 1, sizeof(Otlp__ResourceSpans *));
    Otlp__ScopeSpans **scopes = encoder_alloc(e, 1, sizeof(Otlp__ScopeSpans *));
    Otlp__Scope *name = ENCODER_NEW(e, Otlp__Scope, otlp__scope__init);
    if (e->failed)
        return NULL;
    name->name = (char *)(uintptr_t) "triton-server";
    name->version = (char *)(uintptr_t)server_version(NULL);
    scope->scope = name;
    scope->spans = e->spans;
    scope->n_spans = e->n_spans;
    *scopes = scope;
    resource->resource = make_resource(e, settings);
    resource->scopespans = scopes;
    resource->n_scopespans = 1;
    *resources = resource;
    request->resourcespans = resources;
    request->n_resourcespans = 1;
    return e->failed ? NULL : request;
}

static void print_export_request(const Otlp__ExportRequest *request, bool is_json, struct buf *body)
{
    static const struct pbjson_style style = {.has_hex_bytes = true, .hides_defaults = true};
    if (is_json) {
        pbjson_print(&request->base, &style, body);
        return;
    }
    size_t n_bytes = otlp__export_request__get_packed_size(request);
    char *at = buf_reserve(body, n_bytes);
    if (at)
        body->size += otlp__export_request__pack(request, (uint8_t *)at);
}

struct status *otlp_encode(const struct otlp_settings *settings,
                           const struct traced *const traces[], size_t n_traces, int64_t wall_ns,
                           struct buf *body, uint32_t *ret_spans)
{
    struct encoder e = {.wall_ns = wall_ns};
    arena_init(&e.arena, NULL, 0, MAX_MESSAGE_BYTES, NULL, NULL);
    for (size_t i = 0; i < n_traces; i++)
        e.max_spans += otlp_count_spans(traces[i]);
    e.spans = encoder_alloc(&e, e.max_spans, sizeof(*e.spans));
    for (size_t i = 0; i < n_traces && !e.failed; i++)
        add_trace(&e, traces[i]);
    Otlp__ExportRequest *request = make_export_request(&e, settings);
    if (request)
        print_export_request(request, settings->is_json, body);
    *ret_spans = e.n_spans;
    arena_done(&e.arena);
    return request ? buf_status(body) : status_no_memory();
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
