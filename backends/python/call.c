/* SPDX-License-Identifier: Apache-2.0 */
/*
 * call - see call.h.
 *
 * BYTES inputs are copied: the server checks their lengths when the call begins, and the child
 * could change them afterwards. Other inputs have no lengths, so a child that writes to them while
 * they are read harms the result of its own call alone.
 */
#include "python/call.h"

#include <stdlib.h>
#include <string.h>

#include "conch/backend.h"
#include "python/tensor.h"
#include "python/text.h"

enum { CALL_MAX_NAME = 4096 };

/* A function of Conch only; in other servers the loader leaves NULL. */
extern __typeof__(conch_request_set_parent) conch_request_set_parent __attribute__((weak));

struct calls {
    pthread_mutex_t mu;
    struct call *first; /* under mu */
};

/* One for all: a call may outlive its model. */
static TRITONSERVER_ResponseAllocator *shared_allocator;

struct call {
    struct call *next, *prev; /* under mu of the calls */
    bool is_listed;
    _Atomic uint32_t n_refs;
    struct child *child; /* a reference */
    uint64_t id;
    _Atomic uint32_t slot; /* where the next message goes, from 1; 0: it is a note */
    TRITONSERVER_InferenceRequest *request;
    /* Blocks of the child's memory, given back when the request is released: the message's, and
     * those of tensors. */
    uint64_t *blocks;
    uint32_t n_blocks, blocks_room;
    /* Copies of BYTES inputs. */
    void **copies;
    uint32_t n_copies, copies_room;
};

/* An output in the down memory. */
struct output_block {
    struct child *child;
    uint64_t at;
    bool is_kept; /* the child gets it */
};

/* ---- Memory for outputs --------------------------------------------------------------------- */

static TRITONSERVER_Error *
allocate_output(TRITONSERVER_ResponseAllocator *allocator, const char *tensor_name,
                size_t byte_size, TRITONSERVER_MemoryType memory_type, int64_t memory_type_id,
                void *userp, void **buffer, void **buffer_userp,
                TRITONSERVER_MemoryType *actual_memory_type, int64_t *actual_memory_type_id)
{
    struct call *k = userp;
    struct output_block *o = malloc(sizeof *o);

    (void)allocator;
    (void)memory_type;
    (void)memory_type_id;
    if (!o)
        return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
    *o = (struct output_block){.child = k->child};
    *buffer = channel_take(&k->child->channel, byte_size, &o->at);
    if (!*buffer) {
        free(o);
        return backend_error(TRITONSERVER_ERROR_UNAVAILABLE,
                             "the memory of model instance '%s' has no room for output '%s' of "
                             "%zu bytes",
                             k->child->name, tensor_name, byte_size);
    }
    *buffer_userp = o;
    *actual_memory_type = TRITONSERVER_MEMORY_CPU;
    *actual_memory_type_id = 0;
    return NULL;
}

static TRITONSERVER_Error *release_output(TRITONSERVER_ResponseAllocator *allocator, void *buffer,
                                          void *buffer_userp, size_t byte_size,
                                          TRITONSERVER_MemoryType memory_type,
                                          int64_t memory_type_id)
{
    struct output_block *o = buffer_userp;

    (void)allocator;
    (void)buffer;
    (void)byte_size;
    (void)memory_type;
    (void)memory_type_id;
    if (o && !o->is_kept)
        arena_drop(o->child->channel.down, o->at);
    free(o);
    return NULL;
}

TRITONSERVER_Error *calls_open(void)
{
    return TRITONSERVER_ResponseAllocatorNew(&shared_allocator, allocate_output, release_output,
                                             NULL);
}

void calls_close(void)
{
    if (shared_allocator)
        backend_ignore(TRITONSERVER_ResponseAllocatorDelete(shared_allocator), "an allocator");
    shared_allocator = NULL;
}

struct calls *calls_new(void)
{
    struct calls *all = calloc(1, sizeof *all);

    if (all && pthread_mutex_init(&all->mu, NULL)) {
        free(all);
        return NULL;
    }
    return all;
}

void calls_free(struct calls *all)
{
    if (!all)
        return;
    pthread_mutex_destroy(&all->mu);
    free(all);
}

/* ---- A call --------------------------------------------------------------------------------- */

static void list_call(struct call *k)
{
    struct calls *all = k->child->calls;

    pthread_mutex_lock(&all->mu);
    k->next = all->first;
    if (all->first)
        all->first->prev = k;
    all->first = k;
    k->is_listed = true;
    pthread_mutex_unlock(&all->mu);
}

static void unlist_call(struct call *k)
{
    struct calls *all = k->child->calls;

    pthread_mutex_lock(&all->mu);
    if (k->is_listed) {
        if (k->prev)
            k->prev->next = k->next;
        else
            all->first = k->next;
        if (k->next)
            k->next->prev = k->prev;
        k->is_listed = false;
    }
    pthread_mutex_unlock(&all->mu);
}

static void give_inputs_back(struct call *k)
{
    for (uint32_t i = 0; i < k->n_blocks; i++)
        channel_give_back(&k->child->channel, k->blocks[i]);
    k->n_blocks = 0;
}

static void unref_call(struct call *k)
{
    if (atomic_fetch_sub(&k->n_refs, 1) != 1)
        return;
    unlist_call(k);
    give_inputs_back(k);
    if (k->request)
        backend_ignore(TRITONSERVER_InferenceRequestDelete(k->request), "a request");
    for (uint32_t i = 0; i < k->n_copies; i++)
        free(k->copies[i]);
    free(k->copies);
    free(k->blocks);
    child_unref(k->child);
    free(k);
}

/* add_room - room for one more item. */
static bool add_room(void **items, uint32_t n, uint32_t *room, size_t size)
{
    if (n < *room)
        return true;
    const uint32_t more = *room ? *room * 2 : 8;
    void *grown = realloc(*items, more * size);
    if (!grown)
        return false;
    *items = grown;
    *room = more;
    return true;
}

static TRITONSERVER_Error *short_of_memory(void)
{
    return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
}

/* ---- What the child gets -------------------------------------------------------------------- */

/* One response: an error, tensors, or flags alone. */
struct reply {
    uint32_t flags;
    TRITONSERVER_Error *err;
    TRITONSERVER_InferenceResponse *response;
    uint32_t n_outputs;
    struct text parameters;
};

static void pack_output(struct packer *p, TRITONSERVER_InferenceResponse *response, uint32_t i)
{
    const char *name;
    TRITONSERVER_DataType type;
    const int64_t *shape;
    uint64_t rank;
    const void *base;
    size_t size_bytes;
    TRITONSERVER_MemoryType memory_type;
    int64_t memory_type_id;
    void *userp = NULL;
    TRITONSERVER_Error *err =
        TRITONSERVER_InferenceResponseOutput(response, i, &name, &type, &shape, &rank, &base,
                                             &size_bytes, &memory_type, &memory_type_id, &userp);

    if (err) { /* the index is one of its own */
        backend_ignore(err, "an output");
        return;
    }
    struct output_block *o = userp;

    pack_text(p, name);
    pack_u32(p, type);
    pack_u32(p, (uint32_t)rank);
    for (uint64_t d = 0; d < rank; d++)
        pack_i64(p, shape[d]);
    pack_u64(p, size_bytes);
    pack_u64(p, o ? o->at : 0);
    pack_u64(p, o ? o->at : 0);
    if (o && p->to)
        o->is_kept = true;
}

static void pack_reply(struct packer *p, const void *arg)
{
    const struct reply *r = arg;

    pack_u32(p, r->flags);
    if (r->err) {
        pack_u8(p, RESPONSE_ERROR);
        pack_u32(p, TRITONSERVER_ErrorCode(r->err));
        pack_text(p, TRITONSERVER_ErrorMessage(r->err));
    } else if (r->response) {
        pack_u8(p, RESPONSE_TENSORS);
        pack_str(p, r->parameters.bytes, r->parameters.len);
        pack_u32(p, r->n_outputs);
        for (uint32_t i = 0; i < r->n_outputs; i++)
            pack_output(p, r->response, i);
    } else {
        pack_u8(p, RESPONSE_NONE);
        pack_u32(p, 0);
    }
}

static TRITONSERVER_Error *read_parameters_of(TRITONSERVER_InferenceResponse *response,
                                              struct text *t)
{
    uint32_t n;

    TRY(TRITONSERVER_InferenceResponseParameterCount(response, &n));
    for (uint32_t i = 0; i < n; i++) {
        const char *name;
        TRITONSERVER_ParameterType type;
        const void *value;

        TRY(TRITONSERVER_InferenceResponseParameter(response, i, &name, &type, &value));
        if (!text_add_member(t, i == 0, name, type, value))
            return short_of_memory();
    }
    return n && !text_add(t, "}", 1) ? short_of_memory() : NULL;
}

static TRITONSERVER_Error *hand_outputs(struct child *c, const struct reply *r)
{
    for (uint32_t i = 0; i < r->n_outputs; i++) {
        const char *name;
        TRITONSERVER_DataType type;
        const int64_t *shape;
        uint64_t rank;
        const void *base;
        size_t size_bytes;
        TRITONSERVER_MemoryType memory_type;
        int64_t memory_type_id;
        void *userp = NULL;

        TRY(TRITONSERVER_InferenceResponseOutput(r->response, i, &name, &type, &shape, &rank, &base,
                                                 &size_bytes, &memory_type, &memory_type_id,
                                                 &userp));
        if (userp)
            block_hand(c->channel.down, ((struct output_block *)userp)->at);
    }
    return NULL;
}

/* send_reply - the message, into the slot or by a note. */
static bool send_reply(struct call *k, const struct note *note)
{
    const uint32_t slot = atomic_exchange(&k->slot, 0);

    if (!slot)
        return channel_send(&k->child->channel, note);
    channel_fill_slot(&k->child->channel, slot - 1, note->at, note->size_bytes);
    return true;
}

/* say_reply - sends it. A child that cannot get it would wait for ever, and is ended. */
static void say_reply(struct call *k, struct reply *r)
{
    struct child *c = k->child;
    struct note note = {.kind = NOTE_CALL_RESPONSE, .id = k->id, .n_blocks = 1};
    TRITONSERVER_Error *made = NULL;

    if (r->response && !r->err)
        r->err = made = TRITONSERVER_InferenceResponseError(r->response);
    if (made)
        made = NULL; /* the response's */
    if (r->response && !r->err)
        made = r->err = read_parameters_of(r->response, &r->parameters);
    if (r->response && !r->err)
        made = r->err = TRITONSERVER_InferenceResponseOutputCount(r->response, &r->n_outputs);
    bool said = channel_pack(&c->channel, pack_reply, r, &note.at, &note.size_bytes);
    if (said && r->response && !r->err)
        backend_ignore(hand_outputs(c, r), "an output");
    said = said && send_reply(k, &note);
    if (!said && !atomic_load(&c->ended))
        child_condemn(c, "does not read what is sent to it, or its memory is full");
    TRITONSERVER_ErrorDelete(made);
    text_done(&r->parameters);
}

/* ---- What the server says ------------------------------------------------------------------- */

static void on_response(TRITONSERVER_InferenceResponse *response, const uint32_t flags, void *userp)
{
    struct call *k = userp;
    const bool is_last = (flags & TRITONSERVER_RESPONSE_COMPLETE_FINAL) != 0;
    struct reply r = {.flags = is_last ? CALL_LAST : 0, .response = response};

    if (is_last)
        unlist_call(k);
    if ((response || is_last) && !atomic_load(&k->child->ended))
        say_reply(k, &r);
    if (response)
        backend_ignore(TRITONSERVER_InferenceResponseDelete(response), "a response");
    if (is_last)
        unref_call(k);
}

static void on_released(TRITONSERVER_InferenceRequest *request, const uint32_t flags, void *userp)
{
    struct call *k = userp;

    (void)request;
    if (!(flags & TRITONSERVER_REQUEST_RELEASE_ALL))
        return;
    give_inputs_back(k);
    unref_call(k);
}

/* ---- Making the request --------------------------------------------------------------------- */

/* What the message says, in its order; the request is made when the model is known. */
struct wanted {
    char model[CALL_MAX_NAME], id[CALL_MAX_NAME], text[CALL_MAX_NAME];
    int64_t version;
    uint64_t parent, correlation, timeout_us, priority;
    uint8_t is_decoupled, correlation_kind;
    uint32_t slot, flags;
    const char *parameters;
    size_t parameters_len;
};

static TRITONSERVER_Error *check_transactions(const struct child *c, const struct wanted *w)
{
    uint32_t transactions;

    TRY(TRITONSERVER_ServerModelTransactionProperties(c->server, w->model, w->version,
                                                      &transactions, NULL));
    if (!w->is_decoupled && transactions & TRITONSERVER_TXN_DECOUPLED)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                             "Failed for execute the inference request. Model '%s' is using the "
                             "decoupled. The current BLS request call doesn't support models "
                             "using the decoupled transaction policy. Please use 'decoupled=True' "
                             "argument to the 'exec' or 'async_exec' calls for decoupled models.'",
                             w->model);
    return NULL;
}

static TRITONSERVER_Error *set_call_correlation(TRITONSERVER_InferenceRequest *request,
                                                const struct wanted *w)
{
    if (w->correlation_kind == 2)
        return TRITONSERVER_InferenceRequestSetCorrelationIdString(request, w->text);
    return w->correlation_kind == 1
               ? TRITONSERVER_InferenceRequestSetCorrelationId(request, w->correlation)
               : NULL;
}

static TRITONSERVER_Error *set_one_parameter(TRITONSERVER_InferenceRequest *request,
                                             const struct doc_value *v)
{
    char digits[64], *end;
    const size_t len = v->raw_len < sizeof digits ? v->raw_len : sizeof digits - 1;

    if (v->type == DOC_STRING)
        return TRITONSERVER_InferenceRequestSetStringParameter(request, v->key, v->string);
    if (v->type == DOC_BOOL)
        return TRITONSERVER_InferenceRequestSetBoolParameter(request, v->key, v->boolean);
    if (v->type != DOC_NUMBER)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                             "parameter '%s' is neither a string, a number nor a boolean", v->key);
    memcpy(digits, v->raw, len);
    digits[len] = 0;
    if (strpbrk(digits, ".eE"))
        return TRITONSERVER_InferenceRequestSetDoubleParameter(request, v->key,
                                                               strtod(digits, &end));
    return TRITONSERVER_InferenceRequestSetIntParameter(request, v->key, strtoll(digits, &end, 10));
}

static TRITONSERVER_Error *set_call_parameters(TRITONSERVER_InferenceRequest *request,
                                               const struct wanted *w)
{
    const char *why;
    TRITONSERVER_Error *err = NULL;

    if (!w->parameters_len)
        return NULL;
    struct doc *d = doc_parse(w->parameters, w->parameters_len, &why);
    if (!d)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                             "the parameters of a request are no JSON: %s", why);
    for (const struct doc_value *v = doc_first(doc_root(d)); v && !err; v = v->next)
        err = v->key ? set_one_parameter(request, v) : NULL;
    doc_free(d);
    return err;
}

static TRITONSERVER_Error *set_parent(const struct call *k, const struct wanted *w)
{
    TRITONSERVER_Error *err = NULL;
    struct child *c = k->child;

    if (!conch_request_set_parent || !w->parent)
        return NULL;
    pthread_mutex_lock(&c->mu);
    const struct pending *p = child_find_locked(c, w->parent);
    if (p && p->request)
        err = conch_request_set_parent(k->request, p->request);
    pthread_mutex_unlock(&c->mu);
    return err;
}

static TRITONSERVER_Error *fill_call_request(struct call *k, const struct wanted *w)
{
    TRY(TRITONSERVER_InferenceRequestNew(&k->request, k->child->server, w->model, w->version));
    TRY(check_transactions(k->child, w));
    if (*w->id)
        TRY(TRITONSERVER_InferenceRequestSetId(k->request, w->id));
    TRY(set_call_correlation(k->request, w));
    TRY(TRITONSERVER_InferenceRequestSetFlags(k->request, w->flags));
    if (w->timeout_us)
        TRY(TRITONSERVER_InferenceRequestSetTimeoutMicroseconds(k->request, w->timeout_us));
    if (w->priority)
        TRY(TRITONSERVER_InferenceRequestSetPriorityUInt64(k->request, w->priority));
    return set_call_parameters(k->request, w);
}

/* keep_copy - of the bytes of an input. NULL: no memory. */
static const void *keep_copy(struct call *k, const struct tensor *t)
{
    void *copy = malloc(t->size_bytes ? t->size_bytes : 1);

    if (!copy || !add_room((void **)&k->copies, k->n_copies, &k->copies_room, sizeof(*k->copies))) {
        free(copy);
        return NULL;
    }
    memcpy(copy, t->data, t->size_bytes);
    k->copies[k->n_copies++] = copy;
    return copy;
}

static TRITONSERVER_Error *add_call_input(struct call *k, const struct tensor *t)
{
    const void *data = t->data;

    if (t->type == TRITONSERVER_TYPE_BYTES) {
        data = keep_copy(k, t);
        if (!data)
            return short_of_memory();
    }
    TRY(TRITONSERVER_InferenceRequestAddInput(k->request, t->name, t->type, t->shape, t->rank));
    if (!t->size_bytes)
        return NULL;
    return TRITONSERVER_InferenceRequestAppendInputData(k->request, t->name, data, t->size_bytes,
                                                        TRITONSERVER_MEMORY_CPU, 0);
}

static bool read_call_head(struct wanted *w, struct unpacker *u)
{
    tensor_text(u, w->model, sizeof w->model);
    w->version = unpack_i64(u);
    w->parent = unpack_u64(u);
    w->is_decoupled = unpack_u8(u);
    w->slot = unpack_u32(u);
    tensor_text(u, w->id, sizeof w->id);
    w->correlation_kind = unpack_u8(u);
    if (w->correlation_kind == 1)
        w->correlation = unpack_u64(u);
    else if (w->correlation_kind == 2)
        tensor_text(u, w->text, sizeof w->text);
    w->flags = unpack_u32(u);
    w->timeout_us = unpack_u64(u);
    w->priority = unpack_u64(u);
    w->parameters = unpack_str(u, &w->parameters_len);
    size_t len;
    (void)unpack_str(u, &len); /* the trace: the parent has it */
    (void)unpack_u8(u);        /* where outputs should be: on the host in any case */
    (void)unpack_u64(u);
    return !u->failed && w->correlation_kind <= 2 && w->slot <= PROTOCOL_SLOTS;
}

/* read_call_outputs, read_call_inputs - false: impossible. *err: the first error; what follows is
 * read, so that its blocks are given back. */
static bool read_call_outputs(struct call *k, struct unpacker *u, TRITONSERVER_Error **err)
{
    char name[CALL_MAX_NAME];
    const uint32_t n = unpack_count(u, PROTOCOL_MAX_TENSORS, 4);

    for (uint32_t i = 0; i < n && !u->failed; i++) {
        tensor_text(u, name, sizeof name);
        if (!u->failed && !*err)
            *err = TRITONSERVER_InferenceRequestAddRequestedOutput(k->request, name);
    }
    return !u->failed;
}

static bool read_call_inputs(struct call *k, struct unpacker *u, TRITONSERVER_Error **err)
{
    struct tensor t;
    const uint32_t n = unpack_count(u, PROTOCOL_MAX_TENSORS, TENSOR_LEAST_BYTES);

    for (uint32_t i = 0; i < n; i++) {
        if (!tensor_read(&t, &k->child->channel, u))
            return false;
        if (!*err)
            *err = add_call_input(k, &t);
        if (!t.block)
            continue;
        if (add_room((void **)&k->blocks, k->n_blocks, &k->blocks_room, sizeof(*k->blocks)))
            k->blocks[k->n_blocks++] = t.block;
        else if (!*err)
            *err = short_of_memory();
    }
    return !u->failed;
}

static TRITONSERVER_Error *submit_call(struct call *k, const struct wanted *w)
{
    TRY(TRITONSERVER_InferenceRequestSetReleaseCallback(k->request, on_released, k));
    TRY(TRITONSERVER_InferenceRequestSetResponseCallback(k->request, shared_allocator, k,
                                                         on_response, k));
    TRY(set_parent(k, w));
    atomic_fetch_add(&k->n_refs, 2); /* the release, and the final response */
    list_call(k);
    TRITONSERVER_Error *err = TRITONSERVER_ServerInferAsync(k->child->server, k->request, NULL);
    if (err) {
        unlist_call(k);
        atomic_fetch_sub(&k->n_refs, 2);
    }
    return err;
}

bool call_start(struct child *c, uint64_t id, struct unpacker *u, uint64_t message)
{
    struct call *k = calloc(1, sizeof *k);
    struct wanted w = {0};

    if (!k || !add_room((void **)&k->blocks, 0, &k->blocks_room, sizeof(*k->blocks))) {
        free(k);
        child_condemn(c, "has made a call for which there is no memory");
        return true;
    }
    atomic_store(&k->n_refs, 1);
    k->child = child_ref(c);
    k->id = id;
    k->blocks[k->n_blocks++] = message;
    bool possible = read_call_head(&w, u);
    atomic_store(&k->slot, possible ? w.slot : 0);
    TRITONSERVER_Error *err = possible ? fill_call_request(k, &w) : NULL;
    possible = possible && read_call_outputs(k, u, &err) && read_call_inputs(k, u, &err);
    if (possible && !err)
        err = submit_call(k, &w);
    if (possible && err) {
        struct reply r = {.flags = CALL_LAST, .err = err};

        say_reply(k, &r);
    }
    TRITONSERVER_ErrorDelete(err);
    unref_call(k);
    return possible;
}

/* ---- Cancels -------------------------------------------------------------------------------- */

/* ref_call - the first call with this id; any: the first of all. A call that it has cancelled
 * leaves the list. */
static struct call *take_listed(struct calls *all, uint64_t id, bool any)
{
    pthread_mutex_lock(&all->mu);
    struct call *k = all->first;
    while (k && !any && k->id != id)
        k = k->next;
    if (k)
        atomic_fetch_add(&k->n_refs, 1);
    pthread_mutex_unlock(&all->mu);
    if (k)
        unlist_call(k);
    return k;
}

static bool cancel_next(struct child *c, uint64_t id, bool any)
{
    struct call *k = take_listed(c->calls, id, any);

    if (!k)
        return false;
    backend_ignore(TRITONSERVER_InferenceRequestCancel(k->request), "cancelling a call");
    unref_call(k);
    return true;
}

void call_cancel(struct child *c, uint64_t id)
{
    (void)cancel_next(c, id, false);
}

void calls_cancel(struct child *c)
{
    while (cancel_next(c, 0, true))
        ;
}
