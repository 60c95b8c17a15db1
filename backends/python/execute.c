/* SPDX-License-Identifier: Apache-2.0 */
/*
 * execute - see execute.h.
 *
 *     collect    what the message says of each request, into arrays that the instance keeps
 *     send       one block: the fields, then each input's bytes, gathered straight into it
 *     await      the thread sleeps until the answer, the end of the child, or the time limit; or
 *                leaves, and the server calls execute_finish() on the thread that gets the answer
 *     read       responses are made of the answer
 *     finish     statistics, responses, releases
 *
 * A request that cannot be collected is answered with its own error; the others go on.
 */
#include "python/execute.h"

#include <stdlib.h>
#include <string.h>

#include "python/instance.h"
#include "python/respond.h"

#define NS_PER_MS UINT64_C(1000000)
/* An answer with more is not copied on the server's event loops. */
#define LARGE_ANSWER_BYTES (1u << 20)

/* A function of Conch only; in other servers the loader leaves NULL. */
extern __typeof__(conch_model_instance_leave) conch_model_instance_leave __attribute__((weak));

struct execute_input {
    TRITONBACKEND_Input *handle;
    const char *name;
    TRITONSERVER_DataType type;
    const int64_t *shape;
    uint32_t rank, n_buffers;
    uint64_t size_bytes, at;
};

/* One request. */
struct execute_part {
    TRITONBACKEND_Request *request;
    TRITONBACKEND_Response *response; /* its content is the answer */
    TRITONSERVER_Error *err;          /* the answer instead */
    uint64_t key;
    bool is_sent, is_rescheduled, has_answer;
    /* Slices of the instance's arrays. */
    uint32_t first_input, n_inputs, first_output, n_outputs;
    size_t text, text_len;
    const char *id, *correlation_text, *trace;
    uint64_t correlation, timeout_us, rows;
    uint32_t flags;
};

/* One execution. */
struct run {
    struct instance *in;
    struct execution *e;
    struct child *child;
    uint32_t n_sent;
    uint64_t at, size_bytes; /* of the message, then of the answer */
    uint64_t start_ns, compute_ns, computed_ns;
};

static TRITONSERVER_Error *lack_memory(void)
{
    return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
}

static bool reserve_room(void **array, uint32_t *room, uint32_t n, size_t item)
{
    if (n <= *room)
        return true;
    const uint64_t more = (uint64_t)n * 2 > 16 ? (uint64_t)n * 2 : 16;
    void *grown = more > UINT32_MAX ? NULL : realloc(*array, more * item);
    if (!grown)
        return false;
    *array = grown;
    *room = (uint32_t)more;
    return true;
}

void execution_done(struct execution *e)
{
    free(e->parts);
    free(e->inputs);
    free(e->outputs);
    text_done(&e->text);
    free(e->sent);
    free(e->keys);
    free(e->run);
    *e = (struct execution){0};
}

/* ---- Collect -------------------------------------------------------------------------------- */

static TRITONSERVER_Error *collect_parameters(struct execution *e, struct execute_part *part)
{
    uint32_t n;

    part->text = e->text.len;
    part->text_len = 0;
    TRY(TRITONBACKEND_RequestParameterCount(part->request, &n));
    for (uint32_t i = 0; i < n; i++) {
        const char *key;
        TRITONSERVER_ParameterType type;
        const void *value;

        TRY(TRITONBACKEND_RequestParameter(part->request, i, &key, &type, &value));
        if (!text_add_member(&e->text, i == 0, key, type, value))
            return lack_memory();
    }
    if (n && !text_add(&e->text, "}", 1))
        return lack_memory();
    part->text_len = e->text.len - part->text;
    return NULL;
}

static TRITONSERVER_Error *collect_input(struct execution *e, const struct execute_part *part,
                                         uint32_t i)
{
    struct execute_input *in = &e->inputs[e->n_inputs];

    TRY(TRITONBACKEND_RequestInputByIndex(part->request, i, &in->handle));
    TRY(TRITONBACKEND_InputProperties(in->handle, &in->name, &in->type, &in->shape, &in->rank,
                                      &in->size_bytes, &in->n_buffers));
    if (in->rank > PROTOCOL_MAX_RANK)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG, "input '%s' has %u dimensions",
                             in->name, (unsigned int)in->rank);
    e->n_inputs++;
    return NULL;
}

static TRITONSERVER_Error *collect_tensors(struct execution *e, struct execute_part *part)
{
    uint32_t n_inputs, n_outputs;

    TRY(TRITONBACKEND_RequestInputCount(part->request, &n_inputs));
    TRY(TRITONBACKEND_RequestOutputCount(part->request, &n_outputs));
    if (n_inputs > PROTOCOL_MAX_TENSORS || n_outputs > PROTOCOL_MAX_TENSORS)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG, "a request has too many tensors");
    if (!reserve_room((void **)&e->inputs, &e->inputs_room, e->n_inputs + n_inputs,
                      sizeof *e->inputs) ||
        !reserve_room((void **)&e->outputs, &e->outputs_room, e->n_outputs + n_outputs,
                      sizeof *e->outputs))
        return lack_memory();
    part->first_input = e->n_inputs;
    part->n_inputs = n_inputs;
    for (uint32_t i = 0; i < n_inputs; i++)
        TRY(collect_input(e, part, i));
    part->first_output = e->n_outputs;
    part->n_outputs = n_outputs;
    for (uint32_t i = 0; i < n_outputs; i++)
        TRY(TRITONBACKEND_RequestOutputName(part->request, i, &e->outputs[e->n_outputs++]));
    return NULL;
}

static TRITONSERVER_Error *collect_trace(struct execute_part *part)
{
    TRITONSERVER_InferenceTrace *trace = NULL;

    TRY(TRITONBACKEND_RequestTrace(part->request, &trace));
    return trace ? TRITONSERVER_InferenceTraceContext(trace, &part->trace) : NULL;
}

static TRITONSERVER_Error *collect_correlation(struct execute_part *part)
{
    TRITONSERVER_Error *err = TRITONBACKEND_RequestCorrelationId(part->request, &part->correlation);

    if (!err)
        return NULL;
    TRITONSERVER_ErrorDelete(err); /* it is a text, then */
    return TRITONBACKEND_RequestCorrelationIdString(part->request, &part->correlation_text);
}

static TRITONSERVER_Error *collect_request(const struct instance *in, struct execution *e,
                                           struct execute_part *part)
{
    TRY(TRITONBACKEND_RequestId(part->request, &part->id));
    TRY(collect_correlation(part));
    TRY(TRITONBACKEND_RequestFlags(part->request, &part->flags));
    TRY(TRITONBACKEND_InferenceRequestTimeoutMicroseconds(part->request, &part->timeout_us));
    TRY(collect_parameters(e, part));
    TRY(collect_trace(part));
    TRY(collect_tensors(e, part));
    if (in->arguments.max_batch_size > 0 && part->n_inputs && e->inputs[part->first_input].rank)
        part->rows = (uint64_t)e->inputs[part->first_input].shape[0];
    return NULL;
}

static bool reserve_parts(struct execution *e, uint32_t n)
{
    if (n <= e->parts_room)
        return true;
    const uint32_t room = n < 16 ? 16 : n;
    struct execute_part *parts = realloc(e->parts, (size_t)room * sizeof *parts);
    if (parts)
        e->parts = parts;
    TRITONBACKEND_Request **sent = realloc(e->sent, (size_t)room * sizeof(*sent));
    if (sent)
        e->sent = sent;
    uint64_t *keys = realloc(e->keys, (size_t)room * sizeof *keys);
    if (keys)
        e->keys = keys;
    if (!parts || !sent || !keys)
        return false;
    e->parts_room = room;
    return true;
}

static void collect_batch(struct run *r, TRITONBACKEND_Request **requests, uint32_t n)
{
    struct execution *e = r->e;

    e->n_parts = n;
    e->n_inputs = e->n_outputs = 0;
    e->text.len = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct execute_part *part = &e->parts[i];
        const uint32_t n_inputs = e->n_inputs;

        *part = (struct execute_part){.request = requests[i], .rows = 1};
        part->err = r->child ? collect_request(r->in, e, part)
                             : backend_error(TRITONSERVER_ERROR_UNAVAILABLE,
                                             "Stub process '%s' is not healthy.", r->in->name);
        part->is_sent = !part->err;
        part->has_answer = !part->is_sent;
        if (part->err)
            e->n_inputs = n_inputs;
    }
}

/* ---- Send ----------------------------------------------------------------------------------- */

static void pack_correlation(struct packer *p, const struct execute_part *part)
{
    if (part->correlation_text) {
        pack_u8(p, 2);
        pack_text(p, part->correlation_text);
    } else {
        pack_u8(p, 1);
        pack_u64(p, part->correlation);
    }
}

static void pack_input(struct packer *p, const struct execute_input *in)
{
    pack_text(p, in->name);
    pack_u32(p, in->type);
    pack_u32(p, in->rank);
    for (uint32_t d = 0; d < in->rank; d++)
        pack_i64(p, in->shape[d]);
    pack_u64(p, in->size_bytes);
    pack_u64(p, in->at);
    pack_u64(p, 0);
}

static void pack_request(struct packer *p, const struct execution *e,
                         const struct execute_part *part)
{
    pack_u64(p, part->key);
    pack_text(p, part->id);
    pack_correlation(p, part);
    pack_u32(p, part->flags);
    pack_u64(p, part->timeout_us);
    pack_u64(p, 0); /* priority: a backend is not told */
    pack_str(p, part->text_len ? e->text.bytes + part->text : NULL, part->text_len);
    pack_text(p, part->trace);
    pack_u32(p, part->n_outputs);
    for (uint32_t i = 0; i < part->n_outputs; i++)
        pack_text(p, e->outputs[part->first_output + i]);
    pack_u32(p, part->n_inputs);
    for (uint32_t i = 0; i < part->n_inputs; i++)
        pack_input(p, &e->inputs[part->first_input + i]);
}

static void pack_batch(struct packer *p, const struct run *r)
{
    pack_u32(p, COMMAND_EXECUTE);
    pack_u32(p, r->n_sent);
    for (uint32_t i = 0; i < r->e->n_parts; i++) {
        if (r->e->parts[i].is_sent)
            pack_request(p, r->e, &r->e->parts[i]);
    }
}

/* place_inputs - where each input's bytes lie behind the fields. Returns the size of all; 0: more
 * than can be. */
static uint64_t place_inputs(const struct run *r, uint64_t fields)
{
    uint64_t size = (fields + BLOCK_ALIGN - 1) / BLOCK_ALIGN * BLOCK_ALIGN;

    for (uint32_t i = 0; i < r->e->n_inputs; i++) {
        struct execute_input *in = &r->e->inputs[i];

        in->at = size;
        if (in->size_bytes > UINT64_MAX / 2 - size)
            return 0;
        size += (in->size_bytes + BLOCK_ALIGN - 1) / BLOCK_ALIGN * BLOCK_ALIGN;
    }
    return size;
}

static TRITONSERVER_Error *copy_inputs(const struct execution *e, const struct execute_part *part,
                                       char *block)
{
    for (uint32_t i = 0; i < part->n_inputs; i++) {
        const struct execute_input *in = &e->inputs[part->first_input + i];

        TRY(backend_input_copy(in->handle, in->n_buffers, block + in->at, in->size_bytes));
    }
    return NULL;
}

/* The error becomes the answer of all that have been sent, or were to be. */
static void fail_sent(struct run *r, TRITONSERVER_Error *err)
{
    for (uint32_t i = 0; i < r->e->n_parts; i++) {
        struct execute_part *part = &r->e->parts[i];

        if (!part->is_sent || part->has_answer)
            continue;
        /* The answer may have said something of it before it became impossible. */
        TRITONSERVER_ErrorDelete(part->err);
        part->is_rescheduled = false;
        part->has_answer = true;
        part->err =
            backend_error(TRITONSERVER_ErrorCode(err), "%s", TRITONSERVER_ErrorMessage(err));
    }
    TRITONSERVER_ErrorDelete(err);
}

/* copy_all - the inputs of all parts; one whose buffers cannot be read is not sent. */
static void copy_all(struct run *r, char *block)
{
    for (uint32_t i = 0; i < r->e->n_parts; i++) {
        struct execute_part *part = &r->e->parts[i];

        if (!part->is_sent)
            continue;
        part->err = copy_inputs(r->e, part, block);
        if (part->err) {
            part->is_sent = false;
            part->has_answer = true;
        }
    }
}

static uint32_t list_sent(struct execution *e)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < e->n_parts; i++) {
        if (e->parts[i].is_sent)
            e->sent[n++] = e->parts[i].request;
    }
    return n;
}

static void note_keys(struct execution *e)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < e->n_parts; i++) {
        if (e->parts[i].is_sent)
            e->parts[i].key = e->keys[n++];
    }
}

/* make_batch_message - in a block that has not been handed over yet. */
static TRITONSERVER_Error *make_batch_message(struct run *r)
{
    struct packer count = {0};
    uint64_t at;

    r->n_sent = list_sent(r->e);
    pack_batch(&count, r);
    const uint64_t size = place_inputs(r, count.used);
    char *block = size ? channel_take(&r->child->channel, size, &at) : NULL;
    if (!block)
        return backend_error(TRITONSERVER_ERROR_UNAVAILABLE,
                             "the memory of model instance '%s' has no room for %llu bytes",
                             r->in->name, (unsigned long long)size);
    copy_all(r, block);
    r->n_sent = list_sent(r->e);
    if (r->n_sent && !child_register(r->child, r->e->sent, r->n_sent, r->e->keys)) {
        arena_drop(r->child->channel.down, at);
        return lack_memory();
    }
    note_keys(r->e);
    for (uint32_t i = 0; i < r->e->n_inputs; i++)
        r->e->inputs[i].at += at;
    struct packer p = {.to = block, .room = size};
    pack_batch(&p, r);
    r->at = at;
    r->size_bytes = size;
    return NULL;
}

/* prepare_batch - false: there is nothing to send, and all parts have their answers. */
static bool prepare_batch(struct run *r)
{
    if (!list_sent(r->e))
        return false;
    TRITONSERVER_Error *err = make_batch_message(r);
    if (err) {
        fail_sent(r, err);
        for (uint32_t i = 0; i < r->e->n_parts; i++)
            r->e->parts[i].is_sent = false;
        return false;
    }
    if (!r->n_sent) {
        arena_drop(r->child->channel.down, r->at);
        return false;
    }
    block_hand(r->child->channel.down, r->at);
    return true;
}

/* leave - may this thread leave now, so that the server finishes the execution? */
static bool leave(struct run *r)
{
    struct instance *in = r->in;

    if (!in->leaves)
        return false;
    if (in->event_of != r->child->number) {
        TRITONSERVER_Error *err = instance_set_event(in, r->child);

        if (err) {
            TRITONSERVER_ErrorDelete(err);
            return false;
        }
    }
    return conch_model_instance_leave(in->handle);
}

/* send_batch - true: this thread leaves. */
static bool send_batch(struct run *r)
{
    struct channel *c = &r->child->channel;

    r->compute_ns = backend_now_ns();
    if (leave(r)) {
        channel_ring_for_event(c, r->at, r->size_bytes);
        /* What was signalled before the thread left is forgotten. */
        if (atomic_load(&r->child->ended))
            channel_signal(c);
        return true;
    }
    channel_ring(c, r->at, r->size_bytes);
    return false;
}

/* ---- Await and read ------------------------------------------------------------------------- */

/* read_tensors - false: impossible. */
static bool read_tensors(struct run *r, struct unpacker *u, struct execute_part *part)
{
    TRITONSERVER_Error *err = TRITONBACKEND_ResponseNew(&part->response, part->request),
                       *content = NULL;

    if (err)
        part->response = NULL;
    const bool possible = respond_tensors(r->child, u, part->response, &content);
    part->err = err ? err : content;
    part->has_answer = possible;
    return possible;
}

static bool read_answer_of(struct run *r, struct unpacker *u, struct execute_part *part)
{
    const uint8_t kind = unpack_u8(u);

    if (u->failed)
        return false;
    switch (kind) {
    case RESPONSE_NONE:
        part->is_rescheduled = (unpack_u32(u) & TRITONSERVER_REQUEST_RELEASE_RESCHEDULE) != 0;
        return !u->failed;
    case RESPONSE_ERROR:
        part->err = respond_error(u);
        part->has_answer = true;
        return !u->failed;
    case RESPONSE_TENSORS:
        return read_tensors(r, u, part);
    default:
        return false;
    }
}

static bool read_answers(struct run *r, struct unpacker *u)
{
    if (unpack_u32(u) != r->n_sent)
        return false;
    for (uint32_t i = 0; i < r->e->n_parts; i++) {
        if (r->e->parts[i].is_sent && !read_answer_of(r, u, &r->e->parts[i]))
            return false;
    }
    return true;
}

/* read_answer - the answer bell's message. */
static bool read_answer(struct run *r)
{
    struct unpacker u;
    size_t len;

    if (!channel_open_message(&r->child->channel, r->at, r->size_bytes, &u))
        return false;
    const uint8_t failed = unpack_u8(&u);
    if (failed == 1) {
        const char *text = unpack_str(&u, &len);

        if (u.failed)
            return false;
        /* What its senders have sent before comes first. */
        child_drain(r->child);
        fail_sent(r,
                  backend_error(TRITONSERVER_ERROR_INTERNAL, "%.*s", (int)(len & INT32_MAX), text));
    } else if (failed || u.failed || !read_answers(r, &u)) {
        return false;
    }
    channel_give_back(&r->child->channel, r->at);
    return true;
}

static void await_answer(struct run *r)
{
    const struct model *m = r->in->model;
    const uint64_t deadline_ns =
        m->execute_timeout_ns ? backend_now_ns() + m->execute_timeout_ns : 0;

    switch (channel_await(&r->child->channel, deadline_ns, m->spin_ns, &r->child->ended, &r->at,
                          &r->size_bytes)) {
    case CHANNEL_ANSWERED:
        r->computed_ns = backend_now_ns();
        if (read_answer(r))
            return;
        child_condemn(r->child, "has sent an impossible answer");
        break;
    case CHANNEL_TIMED_OUT:
        child_condemn(r->child, "has not answered within %llu ms (CONCH_EXECUTE_TIMEOUT_MS)",
                      (unsigned long long)(m->execute_timeout_ns / NS_PER_MS));
        break;
    default:
        break;
    }
    r->computed_ns = backend_now_ns();
    fail_sent(r, child_ended_error(r->child));
}

/* ---- Finish --------------------------------------------------------------------------------- */

/* claim_locked - the final response of this part is ours to send, or its sender has sent it. */
static void claim_locked(struct child *c, struct execute_part *part)
{
    struct pending *p = child_find_locked(c, part->key);

    while (p->busy && part->has_answer)
        pthread_cond_wait(&c->changed, &c->mu);
    if (p->dropped && !part->has_answer && !part->is_rescheduled && !p->is_final) {
        part->has_answer = true;
        part->err = respond_dropped_error(c);
    }
    if (p->is_final && part->has_answer) { /* too late */
        if (part->response)
            TRITONSERVER_ErrorDelete(TRITONBACKEND_ResponseDelete(part->response));
        TRITONSERVER_ErrorDelete(part->err);
        part->response = NULL;
        part->err = NULL;
        part->has_answer = false;
    }
    if (p->is_final)
        part->is_rescheduled = false;
    if (part->has_answer || part->is_rescheduled)
        p->is_final = true;
}

static void claim_all(const struct run *r)
{
    pthread_mutex_lock(&r->child->mu);
    for (uint32_t i = 0; i < r->e->n_parts; i++) {
        if (r->e->parts[i].is_sent)
            claim_locked(r->child, &r->e->parts[i]);
    }
    pthread_mutex_unlock(&r->child->mu);
}

/* leave_locked - this thread has done with the entry. One that is still to be answered by its
 * sender needs a factory; or, without a reader to come, an error. */
static void leave_locked(struct child *c, struct execute_part *part)
{
    struct pending *p = child_find_locked(c, part->key);
    TRITONSERVER_Error *err = NULL;

    p->executes = false;
    if (p->is_final) {
        child_forget_locked(c, p);
        return;
    }
    if (!p->factory && !c->is_swept && !p->dropped)
        err = TRITONBACKEND_ResponseFactoryNew(&p->factory, part->request);
    if (err)
        p->factory = NULL;
    if (err || c->is_swept || p->dropped) {
        p->is_final = true;
        part->has_answer = true;
        part->err = err ? err : p->dropped ? respond_dropped_error(c) : child_ended_error(c);
        child_forget_locked(c, p);
        return;
    }
    p->request = NULL;
}

static void leave_all(const struct run *r)
{
    pthread_mutex_lock(&r->child->mu);
    for (uint32_t i = 0; i < r->e->n_parts; i++) {
        if (r->e->parts[i].is_sent)
            leave_locked(r->child, &r->e->parts[i]);
    }
    pthread_mutex_unlock(&r->child->mu);
}

static void report_part(const struct run *r, const struct execute_part *part)
{
    if (part->is_rescheduled)
        return;
    const uint64_t now_ns = backend_now_ns();
    const uint64_t compute_ns = r->compute_ns ? r->compute_ns : now_ns,
                   computed_ns = r->computed_ns ? r->computed_ns : now_ns;

    backend_ignore(TRITONBACKEND_ModelInstanceReportStatistics(r->in->handle, part->request,
                                                               !part->err, r->start_ns, compute_ns,
                                                               computed_ns, now_ns),
                   r->in->name);
}

static void send_answer(struct execute_part *part)
{
    if (!part->has_answer)
        return;
    if (part->err)
        backend_send_error(part->request, part->response, part->err);
    else
        backend_ignore(
            TRITONBACKEND_ResponseSend(part->response, TRITONSERVER_RESPONSE_COMPLETE_FINAL, NULL),
            "sending a response");
    part->has_answer = false;
}

static void release_executed(struct execute_part *part)
{
    if (part->is_rescheduled) {
        TRITONSERVER_Error *err =
            TRITONBACKEND_RequestRelease(part->request, TRITONSERVER_REQUEST_RELEASE_RESCHEDULE);

        if (!err)
            return;
        backend_send_error(part->request, NULL, err);
    }
    backend_ignore(TRITONBACKEND_RequestRelease(part->request, TRITONSERVER_REQUEST_RELEASE_ALL),
                   "releasing a request");
}

static void finish_batch(struct run *r)
{
    struct execution *e = r->e;
    uint64_t rows = 0;

    if (r->n_sent)
        claim_all(r);
    for (uint32_t i = 0; i < e->n_parts; i++) {
        report_part(r, &e->parts[i]);
        send_answer(&e->parts[i]);
    }
    if (r->n_sent)
        leave_all(r);
    for (uint32_t i = 0; i < e->n_parts; i++) {
        rows += e->parts[i].is_rescheduled ? 0 : e->parts[i].rows;
        send_answer(&e->parts[i]);
        release_executed(&e->parts[i]);
    }
    if (r->n_sent && rows)
        backend_ignore(
            TRITONBACKEND_ModelInstanceReportBatchStatistics(
                r->in->handle, rows, r->start_ns, r->compute_ns, r->computed_ns, backend_now_ns()),
            r->in->name);
}

static void end_batch(struct run *r)
{
    finish_batch(r);
    child_unref(r->child);
}

TRITONSERVER_Error *execute_batch(struct instance *in, TRITONBACKEND_Request **requests, uint32_t n)
{
    struct execution *e = &in->execution;

    if (!reserve_parts(e, n) || (!e->run && !(e->run = malloc(sizeof *e->run))))
        return lack_memory();
    struct run *r = e->run;
    *r = (struct run){.in = in, .e = e, .start_ns = backend_now_ns()};
    r->child = instance_child(in);
    collect_batch(r, requests, n);
    if (!prepare_batch(r)) {
        r->n_sent = 0;
    } else {
        if (send_batch(r))
            return NULL;
        await_answer(r);
    }
    end_batch(r);
    return NULL;
}

enum conch_finish execute_finish(struct instance *in, bool may_wait)
{
    struct run *r = in->execution.run;
    uint64_t bytes;

    if (!may_wait) {
        if (channel_look(&r->child->channel, &r->child->ended, &bytes) == CHANNEL_TIMED_OUT)
            return CONCH_FINISH_LATER;
        if (bytes > LARGE_ANSWER_BYTES)
            return CONCH_FINISH_ON_THREAD;
    }
    await_answer(r);
    end_batch(r);
    return CONCH_FINISH_OVER;
}
