/* SPDX-License-Identifier: Apache-2.0 */
/*
 * respond - see respond.h. A response by a sender uses the request's factory: the request may have
 * been released. The functions for statistics of responses are weak symbols, since older servers
 * have none.
 */
#include "python/respond.h"

#include <stdlib.h>
#include <string.h>

#include "common/bytes.h"
#include "python/tensor.h"

#define IF_THERE(function) extern __typeof__(function) function __attribute__((weak))
IF_THERE(TRITONBACKEND_ModelInstanceResponseStatisticsNew);
IF_THERE(TRITONBACKEND_ModelInstanceResponseStatisticsDelete);
IF_THERE(TRITONBACKEND_ModelInstanceResponseStatisticsSetModelInstance);
IF_THERE(TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseFactory);
IF_THERE(TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseStart);
IF_THERE(TRITONBACKEND_ModelInstanceResponseStatisticsSetComputeOutputStart);
IF_THERE(TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseEnd);
IF_THERE(TRITONBACKEND_ModelInstanceResponseStatisticsSetError);
IF_THERE(TRITONBACKEND_ModelInstanceReportResponseStatistics);

/* ---- Content -------------------------------------------------------------------------------- */

static TRITONSERVER_Error *copy_to_output(const struct tensor *t, TRITONBACKEND_Response *response)
{
    TRITONBACKEND_Output *output;
    void *to;

    TRY(TRITONBACKEND_ResponseOutput(response, &output, t->name, t->type, t->shape, t->rank));
    TRY(backend_output_alloc(output, t->size_bytes, &to));
    if (t->size_bytes)
        memcpy(to, t->data, t->size_bytes);
    /* The copy is checked: the child may write to its own memory at any time. */
    if (t->type == TRITONSERVER_TYPE_BYTES)
        return bytes_check(t->name, to, t->size_bytes, t->n_elements);
    return NULL;
}

static TRITONSERVER_Error *add_numeric(const struct doc_value *v, TRITONBACKEND_Response *response)
{
    char *end, text[64];
    const size_t len = v->raw_len < sizeof text ? v->raw_len : sizeof text - 1;

    memcpy(text, v->raw, len);
    text[len] = 0;
    if (!strpbrk(text, ".eE"))
        return TRITONBACKEND_ResponseSetIntParameter(response, v->key, strtoll(text, &end, 10));
    return TRITONBACKEND_ResponseSetDoubleParameter(response, v->key, strtod(text, &end));
}

static TRITONSERVER_Error *add_response_parameter(const struct doc_value *v,
                                                  TRITONBACKEND_Response *response)
{
    switch (v->type) {
    case DOC_BOOL:
        return TRITONBACKEND_ResponseSetBoolParameter(response, v->key, v->boolean);
    case DOC_NUMBER:
        return add_numeric(v, response);
    case DOC_STRING:
        return TRITONBACKEND_ResponseSetStringParameter(response, v->key, v->string);
    default:
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                             "parameter '%s' of a response is neither a string, a number nor a "
                             "boolean",
                             v->key);
    }
}

static TRITONSERVER_Error *add_parameters(const char *text, size_t len,
                                          TRITONBACKEND_Response *response)
{
    const char *why;
    TRITONSERVER_Error *err = NULL;
    struct doc *d = doc_parse(text, len, &why);

    if (!d)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                             "the parameters of a response are no JSON: %s", why);
    for (const struct doc_value *v = doc_first(doc_root(d)); v && !err; v = v->next)
        err = v->key ? add_response_parameter(v, response) : NULL;
    doc_free(d);
    return err;
}

bool respond_tensors(struct child *c, struct unpacker *u, TRITONBACKEND_Response *response,
                     TRITONSERVER_Error **ret_err)
{
    struct tensor t;
    TRITONSERVER_Error *err = NULL;
    size_t len;
    const char *parameters = unpack_str(u, &len);

    if (response && len)
        err = add_parameters(parameters, len, response);
    const uint32_t n = unpack_count(u, PROTOCOL_MAX_TENSORS, TENSOR_LEAST_BYTES);
    for (uint32_t i = 0; i < n; i++) {
        if (!tensor_read(&t, &c->channel, u)) {
            u->failed = true;
            break;
        }
        if (response && !err)
            err = copy_to_output(&t, response);
        if (t.block)
            channel_give_back(&c->channel, t.block);
    }
    if (u->failed) {
        TRITONSERVER_ErrorDelete(err);
        err = NULL;
    }
    *ret_err = err;
    return !u->failed;
}

TRITONSERVER_Error *respond_error(struct unpacker *u)
{
    size_t len;
    const uint32_t code = unpack_u32(u);
    const char *text = unpack_str(u, &len);

    return backend_error(code <= TRITONSERVER_ERROR_CANCELLED ? (TRITONSERVER_Error_Code)code
                                                              : TRITONSERVER_ERROR_INTERNAL,
                         "%.*s", (int)(len < INT32_MAX ? len : INT32_MAX), text);
}

/* ---- Statistics ----------------------------------------------------------------------------- */

static TRITONSERVER_Error *prepare_statistics(const struct child *c, struct pending *p)
{
    if (!p->statistics)
        TRY(TRITONBACKEND_ModelInstanceResponseStatisticsNew(&p->statistics));
    TRY(TRITONBACKEND_ModelInstanceResponseStatisticsSetModelInstance(p->statistics, c->instance));
    return TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseFactory(p->statistics,
                                                                           p->factory);
}

static TRITONSERVER_Error *try_to_report(const struct child *c, struct pending *p,
                                         uint64_t output_ns, uint64_t end_ns,
                                         TRITONSERVER_Error *err)
{
    TRY(prepare_statistics(c, p));
    TRY(TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseStart(p->statistics, p->since_ns));
    TRY(TRITONBACKEND_ModelInstanceResponseStatisticsSetComputeOutputStart(p->statistics,
                                                                           output_ns));
    TRY(TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseEnd(p->statistics, end_ns));
    TRY(TRITONBACKEND_ModelInstanceResponseStatisticsSetError(p->statistics, err));
    return TRITONBACKEND_ModelInstanceReportResponseStatistics(p->statistics);
}

static void report_sent(const struct child *c, struct pending *p, uint64_t output_ns,
                        TRITONSERVER_Error *err)
{
    const uint64_t end_ns = backend_now_ns();

    if (TRITONBACKEND_ModelInstanceResponseStatisticsNew)
        backend_ignore(try_to_report(c, p, output_ns, end_ns, err), c->name);
    p->since_ns = end_ns;
}

void respond_forget_statistics(struct pending *p)
{
    if (p->statistics)
        TRITONSERVER_ErrorDelete(
            TRITONBACKEND_ModelInstanceResponseStatisticsDelete(p->statistics));
    p->statistics = NULL;
}

/* ---- By a sender ---------------------------------------------------------------------------- */

/* begin_response - the reader has this entry from here: its factory is there. NULL: nobody waits
 * for a response any more. */
static struct pending *begin_response(struct child *c, uint64_t key, bool is_final)
{
    TRITONSERVER_Error *err = NULL;

    pthread_mutex_lock(&c->mu);
    struct pending *p = child_find_locked(c, key);
    if (p && (p->is_final || p->busy))
        p = NULL;
    if (p && !p->factory)
        err = p->request ? TRITONBACKEND_ResponseFactoryNew(&p->factory, p->request) : NULL;
    if (p && !p->factory) {
        p = NULL;
    } else if (p) {
        p->busy = true;
        p->is_final = is_final;
    }
    pthread_mutex_unlock(&c->mu);
    backend_ignore(err, c->name);
    return p;
}

static void end_response(struct child *c, struct pending *p)
{
    pthread_mutex_lock(&c->mu);
    p->busy = false;
    if (p->is_final)
        child_forget_locked(c, p);
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->mu);
}

/* send_filled - sends a response with tensors or an error. False: the message is impossible. */
static bool send_filled(struct child *c, struct pending *p, struct unpacker *u, uint32_t flags,
                        bool is_error)
{
    TRITONBACKEND_Response *response = NULL;
    const uint64_t output_ns = backend_now_ns();
    TRITONSERVER_Error *err = TRITONBACKEND_ResponseNewFromFactory(&response, p->factory),
                       *content = NULL;
    bool possible = true;

    if (err)
        response = NULL;
    if (is_error)
        content = respond_error(u);
    else
        possible = respond_tensors(c, u, response, &content);
    if (!possible || u->failed) {
        if (response)
            TRITONSERVER_ErrorDelete(TRITONBACKEND_ResponseDelete(response));
        TRITONSERVER_ErrorDelete(content);
        TRITONSERVER_ErrorDelete(err);
        return false;
    }
    report_sent(c, p, output_ns, err ? err : content);
    if (!err)
        err = TRITONBACKEND_ResponseSend(response, flags, content);
    backend_ignore(err, c->name);
    TRITONSERVER_ErrorDelete(content);
    return true;
}

static bool send_flags(struct child *c, struct pending *p, uint32_t flags)
{
    if (flags & TRITONSERVER_RESPONSE_COMPLETE_FINAL) {
        report_sent(c, p, 0, NULL);
        backend_ignore(TRITONBACKEND_ResponseFactorySendFlags(p->factory, flags), c->name);
    }
    return true;
}

/* skip_content - gives back the blocks of a response that nobody wants. */
static bool skip_content(struct child *c, struct unpacker *u, uint8_t kind)
{
    TRITONSERVER_Error *err;

    if (kind == RESPONSE_TENSORS)
        return respond_tensors(c, u, NULL, &err);
    return kind <= RESPONSE_TENSORS;
}

bool respond_by_sender(struct child *c, uint64_t key, struct unpacker *u)
{
    const uint32_t flags = unpack_u32(u);
    const uint8_t kind = unpack_u8(u);
    bool possible;

    if (u->failed || flags & ~(uint32_t)TRITONSERVER_RESPONSE_COMPLETE_FINAL ||
        kind > RESPONSE_TENSORS)
        return false;
    struct pending *p = begin_response(c, key, (flags & TRITONSERVER_RESPONSE_COMPLETE_FINAL) != 0);
    if (!p)
        return skip_content(c, u, kind);
    if (kind == RESPONSE_NONE)
        possible = send_flags(c, p, flags);
    else
        possible = send_filled(c, p, u, flags, kind == RESPONSE_ERROR);
    /* The end of the child answers the request. */
    if (!possible) {
        pthread_mutex_lock(&c->mu);
        p->is_final = false;
        pthread_mutex_unlock(&c->mu);
    }
    end_response(c, p);
    return possible;
}

void respond_never(struct child *c, uint64_t key)
{
    pthread_mutex_lock(&c->mu);
    struct pending *p = child_find_locked(c, key);
    if (p && p->executes)
        p->dropped = true;
    const bool now = p && !p->executes;
    pthread_mutex_unlock(&c->mu);
    p = now ? begin_response(c, key, true) : NULL;
    if (!p)
        return;
    child_fail(c, p->factory, respond_dropped_error(c));
    end_response(c, p);
}

TRITONSERVER_Error *respond_dropped_error(const struct child *c)
{
    return backend_error(TRITONSERVER_ERROR_INTERNAL,
                         "model instance '%s' has dropped the request without a final response",
                         c->name);
}
