/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ensembles of models whose backends are functions of this test: what the steps get, who has the
 * memory, and what becomes of errors, cancels and deadlines.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/pool.h"
#include "core/server/server.h"
#include "lib/fake_model.h"
#include "lib/fault.h"

enum { MAX_MEMBERS = 10, SEEN = 64 };

#define INPUT(name, dims)   "input { name: '" name "' data_type: TYPE_INT32 dims: [" dims "] } "
#define OUTPUT(name, dims)  "output { name: '" name "' data_type: TYPE_INT32 dims: [" dims "] } "
#define MEMBER              INPUT("I", "-1") OUTPUT("O", "-1")
#define MAP_IN(key, value)  "input_map { key: '" key "' value: '" value "' } "
#define MAP_OUT(key, value) "output_map { key: '" key "' value: '" value "' } "
#define STEP(more)          "step { model_name: 'm' model_version: -1 " more "} "
#define CHAIN(from, to)     STEP(MAP_IN("I", from) MAP_OUT("O", to))
#define ENSEMBLE(own, steps)                                                                       \
    "name: 'E' platform: 'ensemble' " own " ensemble_scheduling { " steps "} "

/* What a backend has seen of one request. */
struct seen {
    const void *input, *output;
    char id[32], parameter[32], correlation[32];
    uint64_t number, priority, timeout_us;
    uint32_t flags, n_dims;
    int64_t first_dim;
};

static struct {
    atomic_int n;
    struct seen all[SEEN];
} seen;

/* ---- Backends -------------------------------------------------------------------------------- */

static void note_seen(const struct request *r, const void *output)
{
    int n = atomic_fetch_add(&seen.n, 1);
    if (n >= SEEN)
        return;
    struct seen *s = &seen.all[n];
    const struct input *in = r->maker.n_inputs ? r->maker.inputs[0] : NULL;
    const char *correlation = r->maker.correlation_id.string;
    *s = (struct seen){.input = in && in->n_buffers ? in->buffers[0].base : NULL,
                       .output = output,
                       .number = r->maker.correlation_id.number,
                       .priority = r->maker.priority,
                       .timeout_us = r->maker.timeout_us,
                       .flags = r->maker.flags,
                       .n_dims = in ? in->n_backend_dims : 0,
                       .first_dim = in && in->n_backend_dims ? in->backend_shape[0] : 0};
    snprintf(s->id, sizeof(s->id), "%s", r->maker.id);
    snprintf(s->correlation, sizeof(s->correlation), "%s", correlation ? correlation : "");
    if (r->maker.n_parameters)
        snprintf(s->parameter, sizeof(s->parameter), "%s", r->maker.parameters[0].string);
}

/* Adds an output with the first input's shape and each of its numbers plus `add`. */
static struct status *add_sum(struct response *resp, const char *name, const struct input *in,
                              int add, const void **ret_base)
{
    struct output *out;
    struct status *st =
        response_add_output(resp, name, in->dtype, in->backend_shape, in->n_backend_dims, &out);
    if (!st)
        st = output_alloc(out, in->size_bytes);
    if (st)
        return st;
    const int32_t *from = in->buffers[0].base;
    for (size_t i = 0; i < in->size_bytes / sizeof(int32_t); i++)
        ((int32_t *)out->base)[i] = from[i] + add;
    *ret_base = out->base;
    return NULL;
}

static struct status *answer_sum(struct request *r, int add, uint32_t flags)
{
    struct response *resp = NULL;
    const void *base = NULL;
    struct status *st = response_new(r, &resp);
    if (st) {
        request_fail(r, st);
        return NULL;
    }
    for (uint32_t i = 0; i < r->maker.n_outputs && !st; i++)
        st = add_sum(resp, r->maker.outputs[i], r->maker.inputs[0], add, &base);
    if (st) {
        status_free(response_send(resp, RESPONSE_FINAL, st));
        return NULL;
    }
    note_seen(r, base);
    return response_send(resp, flags, NULL);
}

static void must_release(struct request *r)
{
    struct status *st = request_release(r);
    assert_null(st);
}

static struct status *execute_sum(struct instance *in, struct request **batch, uint32_t n)
{
    (void)in;
    for (uint32_t i = 0; i < n; i++) {
        status_free(answer_sum(batch[i], 1, RESPONSE_FINAL));
        must_release(batch[i]);
    }
    return NULL;
}

static atomic_int n_produced; /* responses that execute_three() has sent */

/* Answers three times, by +0, +1 and +2; the end comes alone. */
static struct status *execute_three(struct instance *in, struct request **batch, uint32_t n)
{
    (void)in;
    for (uint32_t i = 0; i < n; i++) {
        for (int k = 0; k < 3; k++) {
            status_free(answer_sum(batch[i], k, 0));
            atomic_fetch_add(&n_produced, 1);
        }
        status_free(request_send_flags(batch[i], RESPONSE_FINAL));
        must_release(batch[i]);
    }
    return NULL;
}

static struct status *execute_failure(struct instance *in, struct request **batch, uint32_t n)
{
    (void)in;
    for (uint32_t i = 0; i < n; i++) {
        note_seen(batch[i], NULL);
        request_fail(batch[i], status_new(STATUS_UNAVAILABLE, "out of cheese"));
        must_release(batch[i]);
    }
    return NULL;
}

/* Sets the three parameters of a sequence. */
static struct status *execute_sequence(struct instance *in, struct request **batch, uint32_t n)
{
    (void)in;
    struct response *resp;
    const void *base;
    assert_int_equal(n, 1);
    assert_null(response_new(batch[0], &resp));
    assert_null(add_sum(resp, "O", batch[0]->maker.inputs[0], 1, &base));
    struct parameter id = {.name = "sequence_id", .type = PARAMETER_STRING, .string = "seven"};
    struct parameter end = {.name = "sequence_end", .type = PARAMETER_BOOL, .boolean = true};
    assert_null(response_add_parameter(resp, &id));
    assert_null(response_add_parameter(resp, &end));
    assert_null(response_send(resp, RESPONSE_FINAL, NULL));
    must_release(batch[0]);
    return NULL;
}

static struct status *execute_nothing(struct instance *in, struct request **batch, uint32_t n)
{
    (void)in;
    for (uint32_t i = 0; i < n; i++)
        must_release(batch[i]);
    return NULL;
}

static struct status *execute_unknown(struct instance *in, struct request **batch, uint32_t n)
{
    (void)in;
    (void)n;
    struct response *resp;
    const void *base;
    assert_null(response_new(batch[0], &resp));
    assert_null(add_sum(resp, "OTHER", batch[0]->maker.inputs[0], 1, &base));
    assert_null(response_send(resp, RESPONSE_FINAL, NULL));
    must_release(batch[0]);
    return NULL;
}

/* Holds its requests until the test lets them go. */
static struct {
    pthread_mutex_t mu;
    pthread_cond_t cv;
    bool open;
    int n_inside;
} gate = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false, 0};

static struct status *execute_gated(struct instance *in, struct request **batch, uint32_t n)
{
    pthread_mutex_lock(&gate.mu);
    gate.n_inside++;
    pthread_cond_broadcast(&gate.cv);
    while (!gate.open)
        pthread_cond_wait(&gate.cv, &gate.mu);
    gate.n_inside--;
    pthread_mutex_unlock(&gate.mu);
    return execute_sum(in, batch, n);
}

static void wait_inside(void)
{
    pthread_mutex_lock(&gate.mu);
    while (gate.n_inside == 0)
        pthread_cond_wait(&gate.cv, &gate.mu);
    pthread_mutex_unlock(&gate.mu);
}

static void set_gate(bool open)
{
    pthread_mutex_lock(&gate.mu);
    gate.open = open;
    pthread_cond_broadcast(&gate.cv);
    pthread_mutex_unlock(&gate.mu);
}

/* ---- The ensemble ---------------------------------------------------------------------------- */

struct fixture {
    uint32_t n_members;
    struct fake_model members[MAX_MEMBERS];
    struct fake_model whole; /* only its model is used */
};

struct member {
    const char *config;
    fake_execute_fn execute;
};

/* @clock  NULL: the machine's */
static void set_up_timed(struct fixture *f, struct clock_fake *clock, const char *text,
                         const struct member *members)
{
    struct config_facts facts = {.model_name = "E"};
    struct model *all[MAX_MEMBERS];
    struct model_config *config;
    memset(f, 0, sizeof(*f));
    atomic_store(&seen.n, 0);
    assert_null(model_config_parse_text(text, strlen(text), "config.pbtxt", &config));
    struct status *st = model_config_prepare(config, &facts);
    if (st && status_code(st) != STATUS_UNSUPPORTED)
        fail_msg("%s", status_message(st));
    status_free(st);
    f->n_members = (uint32_t)config->pb->ensemble_scheduling->n_step;
    for (uint32_t i = 0; i < f->n_members; i++) {
        struct server_options *options = server_options_new();
        options->clock = clock ? &clock->clock : NULL;
        fake_model_make_with(&f->members[i], options, members[i].config, 1, members[i].execute);
        f->members[i].model->decoupled = members[i].execute == execute_three;
        all[i] = f->members[i].model;
    }
    struct model *m = model_new(&f->members[0].server.services, "E", 1, "/nowhere", config);
    f->whole.model = m;
    assert_null(model_make_specs(m));
    m->n_members = f->n_members;
    m->members = all;
    assert_null(scheduler_new(m, &m->scheduler));
    m->members = mem_zalloc(sizeof(all));
    memcpy(m->members, all, sizeof(all));
    model_open(m);
}

static void set_up(struct fixture *f, const char *text, const struct member *members)
{
    set_up_timed(f, NULL, text, members);
}

static void tear_down(struct fixture *f)
{
    struct model *m = f->whole.model;
    model_stop(m);
    mutex_lock(&f->members[0].server.drain_mu);
    while (model_inflight(m))
        cond_wait(&f->members[0].server.drained, &f->members[0].server.drain_mu);
    mutex_unlock(&f->members[0].server.drain_mu);
    model_close_refs(m);
    scheduler_free(TAKE(m->scheduler));
    mem_free(TAKE(m->members));
    m->n_members = 0;
    model_expect_returned(m->owner, MEM_INSTANCES);
    model_unref(m);
    for (uint32_t i = 0; i < f->n_members; i++)
        fake_model_end(&f->members[i]);
}

static void set_up_chain(struct fixture *f, fake_execute_fn a, fake_execute_fn b, fake_execute_fn c)
{
    set_up(f,
           ENSEMBLE(INPUT("X", "-1") OUTPUT("Y", "-1"),
                    CHAIN("X", "A") CHAIN("A", "B") CHAIN("B", "Y")),
           (struct member[]){{MEMBER, a}, {MEMBER, b}, {MEMBER, c}});
}

/* A request that keeps its responses, and allocates outputs in its own way. */
struct asked {
    struct request request;
    struct pool *pool;
    pthread_mutex_t mu;
    pthread_cond_t cv;
    int n_responses, n_final, n_released, n_destroyed, n_allocated, n_freed;
    struct response *responses[8];
    char memory[4096];
    const void *allocated[8];
};

static struct asked *asked_of(struct request *r)
{
    return CONTAINER_OF(r, struct asked, request);
}

static struct status *alloc_by_hand(struct request *r, struct output *out, size_t size_bytes)
{
    struct asked *a = asked_of(r);
    out->memory_type = MEMORY_CPU;
    out->base = mem_try_alloc(size_bytes);
    if (!out->base)
        return status_no_memory();
    pthread_mutex_lock(&a->mu);
    if (a->n_allocated < 8)
        a->allocated[a->n_allocated] = out->base;
    a->n_allocated++;
    pthread_mutex_unlock(&a->mu);
    return NULL;
}

static void free_by_hand(struct request *r, struct output *out)
{
    struct asked *a = asked_of(r);
    mem_free(out->base);
    pthread_mutex_lock(&a->mu);
    a->n_freed++;
    pthread_mutex_unlock(&a->mu);
}

static void keep_response(struct request *r, struct response *resp, uint32_t flags)
{
    struct asked *a = asked_of(r);
    pthread_mutex_lock(&a->mu);
    assert_int_equal(a->n_final, 0);
    if (resp) {
        assert_true(a->n_responses < 8);
        a->responses[a->n_responses++] = resp;
    }
    a->n_final += (flags & RESPONSE_FINAL) != 0;
    pthread_cond_broadcast(&a->cv);
    pthread_mutex_unlock(&a->mu);
}

static void note_release(struct request *r, uint32_t flags)
{
    struct asked *a = asked_of(r);
    (void)flags;
    pthread_mutex_lock(&a->mu);
    a->n_released++;
    pthread_cond_broadcast(&a->cv);
    pthread_mutex_unlock(&a->mu);
}

static void note_destroy(struct request *r)
{
    struct asked *a = asked_of(r);
    pthread_mutex_lock(&a->mu);
    a->n_destroyed++;
    pthread_cond_broadcast(&a->cv);
    pthread_mutex_unlock(&a->mu);
}

static const struct request_ops by_hand = {
    .alloc_output = alloc_by_hand,
    .free_output = free_by_hand,
    .respond = keep_response,
    .release = note_release,
    .destroy = note_destroy,
};

static const struct request_ops pooled = {
    .alloc_output = response_alloc_pooled,
    .free_output = response_free_pooled,
    .respond = keep_response,
    .release = note_release,
    .destroy = note_destroy,
};

static void make_request(struct asked *a, struct fixture *f, const struct request_ops *ops)
{
    memset(a, 0, sizeof(*a));
    pthread_mutex_init(&a->mu, NULL);
    pthread_cond_init(&a->cv, NULL);
    a->pool = pool_new("test", 1 << 20, 0);
    model_ref(f->whole.model);
    request_init(&a->request, ops, f->whole.model, a->memory, sizeof(a->memory), a->pool);
}

static struct status *add_numbers(struct asked *a, const char *name, const int32_t *numbers,
                                  const int64_t *shape, size_t n_dims)
{
    struct input *in;
    int64_t n = 1;
    for (size_t i = 0; i < n_dims; i++)
        n *= shape[i];
    struct status *st =
        request_add_input(&a->request, name, strlen(name), DTYPE_INT32, shape, n_dims, &in);
    if (st)
        return st;
    return request_add_data(
        &a->request, in,
        &(struct tensor_buffer){.base = numbers, .size_bytes = (size_t)n * sizeof(*numbers)});
}

static const int32_t numbers[] = {10, 20, 30, 40};

static void wait_for_end(struct asked *a)
{
    pthread_mutex_lock(&a->mu);
    while (a->n_final == 0 || a->n_released == 0)
        pthread_cond_wait(&a->cv, &a->mu);
    pthread_mutex_unlock(&a->mu);
}

static void ask(struct asked *a, struct fixture *f, const struct request_ops *ops)
{
    make_request(a, f, ops);
    assert_null(add_numbers(a, "X", numbers, (int64_t[]){4}, 1));
    assert_null(server_infer(&f->members[0].server, &a->request));
    wait_for_end(a);
}

static void end_request(struct asked *a)
{
    for (int i = 0; i < a->n_responses; i++)
        response_free(a->responses[i]);
    request_unref(&a->request);
    pthread_mutex_lock(&a->mu);
    while (a->n_destroyed == 0)
        pthread_cond_wait(&a->cv, &a->mu);
    pthread_mutex_unlock(&a->mu);
    assert_int_equal(a->n_allocated, a->n_freed);
    pool_free(a->pool);
    pthread_cond_destroy(&a->cv);
    pthread_mutex_destroy(&a->mu);
}

static void expect_numbers(const struct response *resp, uint32_t output, int32_t first, uint32_t n)
{
    assert_null(resp->error);
    assert_true(resp->n_outputs > output);
    const struct output *out = resp->outputs[output];
    assert_int_equal(out->size_bytes, n * sizeof(int32_t));
    for (uint32_t i = 0; i < n; i++)
        assert_int_equal(((const int32_t *)out->base)[i], first + 10 * (int32_t)i);
}

static void expect_error(const struct asked *a, enum status_code code, const char *text)
{
    assert_int_equal(a->n_responses, 1);
    assert_non_null(a->responses[0]->error);
    assert_string_equal(status_message(a->responses[0]->error), text);
    assert_int_equal(status_code(a->responses[0]->error), code);
}

/* ---- Data flow ------------------------------------------------------------------------------- */

static void no_step_copies(void **unused)
{
    (void)unused;
    struct fixture f;
    struct asked a;
    set_up_chain(&f, execute_sum, execute_sum, execute_sum);
    ask(&a, &f, &by_hand);
    assert_int_equal(a.n_responses, 1);
    expect_numbers(a.responses[0], 0, 13, 4);
    assert_string_equal(a.responses[0]->outputs[0]->name, "Y");
    assert_ptr_equal(seen.all[0].input, numbers);
    assert_ptr_equal(seen.all[1].input, seen.all[0].output);
    assert_ptr_equal(seen.all[2].input, seen.all[1].output);
    assert_int_equal(a.n_allocated, 1); /* only what leaves */
    assert_ptr_equal(seen.all[2].output, a.allocated[0]);
    assert_ptr_equal(a.responses[0]->outputs[0]->base, a.allocated[0]);
    end_request(&a);
    tear_down(&f);
}

static void every_response_has_three_parameters(void **unused)
{
    (void)unused;
    struct fixture f;
    struct asked a;
    set_up_chain(&f, execute_sum, execute_sum, execute_sum);
    ask(&a, &f, &pooled);
    const struct parameter *p = a.responses[0]->parameters;
    assert_int_equal(a.responses[0]->n_parameters, 3);
    assert_string_equal(p[0].name, "sequence_id");
    assert_int_equal(p[0].type, PARAMETER_INT);
    assert_int_equal(p[0].int64, 0);
    assert_string_equal(p[1].name, "sequence_start");
    assert_false(p[1].boolean);
    assert_string_equal(p[2].name, "sequence_end");
    assert_false(p[2].boolean);
    end_request(&a);
    tear_down(&f);
}

static void each_step_inherits_what_the_request_has(void **unused)
{
    (void)unused;
    struct fixture f;
    struct asked a;
    set_up_chain(&f, execute_sum, execute_sum, execute_sum);
    make_request(&a, &f, &pooled);
    a.request.maker.flags = REQUEST_SEQUENCE_START;
    a.request.maker.correlation_id.number = 42;
    a.request.maker.priority = 3;
    a.request.maker.timeout_us = 60000000;
    assert_null(request_set_id(&a.request, "me", 2));
    struct parameter p = {.name = "k", .type = PARAMETER_STRING, .string = "v"};
    assert_null(request_add_parameter(&a.request, &p));
    assert_null(add_numbers(&a, "X", numbers, (int64_t[]){4}, 1));
    assert_null(server_infer(&f.members[0].server, &a.request));
    wait_for_end(&a);
    for (int i = 0; i < 3; i++) {
        const struct seen *s = &seen.all[i];
        assert_string_equal(s->id, "me");
        assert_string_equal(s->parameter, "v");
        assert_int_equal(s->number, 42);
        assert_int_equal(s->priority, 3);
        assert_int_equal(s->timeout_us, 60000000);
        assert_int_equal(s->flags, REQUEST_SEQUENCE_START);
    }
    assert_int_equal(a.responses[0]->parameters[0].int64, 42);
    assert_true(a.responses[0]->parameters[1].boolean);
    end_request(&a);
    tear_down(&f);
}

static void parameters_of_a_response_replace_what_steps_inherit(void **unused)
{
    (void)unused;
    struct fixture f;
    struct asked a;
    set_up_chain(&f, execute_sum, execute_sequence, execute_sum);
    make_request(&a, &f, &pooled);
    a.request.maker.flags = REQUEST_SEQUENCE_START;
    assert_null(request_set_correlation_string(&a.request, "six", 3));
    assert_null(add_numbers(&a, "X", numbers, (int64_t[]){4}, 1));
    assert_null(server_infer(&f.members[0].server, &a.request));
    wait_for_end(&a);
    assert_string_equal(seen.all[0].correlation, "six");
    assert_int_equal(seen.all[0].flags, REQUEST_SEQUENCE_START);
    assert_string_equal(seen.all[1].correlation, "seven"); /* of the third step */
    assert_int_equal(seen.all[1].flags, REQUEST_SEQUENCE_END);
    assert_string_equal(a.responses[0]->parameters[0].string, "seven");
    assert_true(a.responses[0]->parameters[2].boolean);
    end_request(&a);
    tear_down(&f);
}

static void a_batch_dimension_comes_and_goes(void **unused)
{
    (void)unused;
    struct fixture f;
    struct asked a;
    set_up(&f,
           ENSEMBLE("max_batch_size: 4 " INPUT("X", "4") OUTPUT("Y", "4"),
                    CHAIN("X", "A") CHAIN("A", "B") CHAIN("B", "Y")),
           (struct member[]){{"max_batch_size: 4 " INPUT("I", "4") OUTPUT("O", "4"), execute_sum},
                             {INPUT("I", "4") OUTPUT("O", "4"), execute_sum},
                             {"max_batch_size: 4 " INPUT("I", "4") OUTPUT("O", "4"), execute_sum}});
    make_request(&a, &f, &pooled);
    assert_null(add_numbers(&a, "X", numbers, (int64_t[]){1, 4}, 2));
    assert_null(server_infer(&f.members[0].server, &a.request));
    wait_for_end(&a);
    expect_numbers(a.responses[0], 0, 13, 4);
    assert_int_equal(seen.all[0].n_dims, 2);
    assert_int_equal(seen.all[1].n_dims, 1);
    assert_int_equal(seen.all[2].n_dims, 2);
    assert_int_equal(seen.all[2].first_dim, 1);
    assert_int_equal(a.responses[0]->outputs[0]->n_dims, 2);
    end_request(&a);
    tear_down(&f);
}

static void only_the_steps_of_requested_outputs_run(void **unused)
{
    (void)unused;
    struct fixture f;
    struct asked a;
    set_up(&f,
           ENSEMBLE(INPUT("X", "-1") OUTPUT("Y", "-1") OUTPUT("Z", "-1"),
                    CHAIN("X", "Y") CHAIN("Y", "Z")),
           (struct member[]){{MEMBER, execute_sum}, {MEMBER, execute_failure}});
    make_request(&a, &f, &by_hand);
    assert_null(add_numbers(&a, "X", numbers, (int64_t[]){4}, 1));
    assert_null(request_add_output(&a.request, "Y", 1));
    assert_null(server_infer(&f.members[0].server, &a.request));
    wait_for_end(&a);
    expect_numbers(a.responses[0], 0, 11, 4);
    assert_int_equal(atomic_load(&seen.n), 1);
    end_request(&a);
    tear_down(&f);
}

static void an_output_that_a_step_reads_leaves_after_that(void **unused)
{
    (void)unused;
    struct fixture f;
    struct asked a;
    set_up(&f,
           ENSEMBLE(INPUT("X", "-1") OUTPUT("Z", "-1") OUTPUT("Y", "-1"),
                    CHAIN("X", "Y") CHAIN("Y", "Z")),
           (struct member[]){{MEMBER, execute_sum}, {MEMBER, execute_sum}});
    ask(&a, &f, &by_hand);
    assert_int_equal(a.responses[0]->n_outputs, 2);
    assert_string_equal(a.responses[0]->outputs[0]->name, "Z"); /* as configured */
    expect_numbers(a.responses[0], 0, 12, 4);
    expect_numbers(a.responses[0], 1, 11, 4);
    assert_int_equal(a.n_allocated, 2);
    assert_ptr_equal(seen.all[1].input, a.allocated[0]); /* the client's memory */
    end_request(&a);
    tear_down(&f);
}

static void a_response_of_a_decoupled_step_makes_a_wave(void **unused)
{
    (void)unused;
    struct fixture f;
    struct asked a;
    set_up_chain(&f, execute_sum, execute_three, execute_sum);
    assert_true(f.whole.model->decoupled);
    assert_true(model_config_decoupled(f.whole.model->config));
    ask(&a, &f, &by_hand);
    assert_int_equal(a.n_responses, 3);
    for (int i = 0; i < 3; i++) {
        bool found = false;
        for (int j = 0; j < 3; j++)
            found |= ((const int32_t *)a.responses[j]->outputs[0]->base)[0] == 12 + i;
        assert_true(found);
    }
    end_request(&a);
    tear_down(&f);
    set_up_chain(&f, execute_sum, execute_sum, execute_three); /* the outputs leave at once */
    ask(&a, &f, &by_hand);
    assert_int_equal(a.n_responses, 3);
    for (int i = 0; i < 3; i++)
        expect_numbers(a.responses[i], 0, 12 + i, 4);
    end_request(&a);
    tear_down(&f);
}

/* ---- Errors ---------------------------------------------------------------------------------- */

static void an_error_of_a_step_names_the_ensemble(void **unused)
{
    (void)unused;
    struct fixture f;
    struct asked a;
    set_up_chain(&f, execute_sum, execute_failure, execute_sum);
    ask(&a, &f, &by_hand);
    expect_error(&a, STATUS_UNAVAILABLE, "in ensemble 'E', out of cheese (step 1, model 'm')");
    assert_int_equal(atomic_load(&seen.n), 2);
    end_request(&a);
    tear_down(&f);
}

static void bad_answers_of_a_step_are_errors(void **unused)
{
    (void)unused;
    struct fixture f;
    struct asked a;
    set_up_chain(&f, execute_nothing, execute_sum, execute_sum);
    ask(&a, &f, &by_hand);
    expect_error(&a, STATUS_INTERNAL,
                 "in ensemble 'E', model 'm' released the request without a final response "
                 "(step 0, model 'm')");
    end_request(&a);
    tear_down(&f);
    set_up_chain(&f, execute_sum, execute_unknown, execute_sum);
    ask(&a, &f, &by_hand);
    expect_error(&a, STATUS_INVALID_ARG,
                 "in ensemble 'E', unexpected inference output 'OTHER' for model 'm' "
                 "(step 1, model 'm')");
    end_request(&a);
    tear_down(&f);
    set_up(
        &f, ENSEMBLE(INPUT("X", "-1") OUTPUT("Y", "-1"), CHAIN("X", "A") CHAIN("A", "Y")),
        (struct member[]){{MEMBER, execute_sum}, {INPUT("I", "3") OUTPUT("O", "3"), execute_sum}});
    ask(&a, &f, &by_hand);
    expect_error(&a, STATUS_INVALID_ARG,
                 "in ensemble 'E', [request id: <id_unknown>] unexpected shape for input 'I' for "
                 "model 'm'. Expected [3], got [4].  (step 1, model 'm')");
    end_request(&a);
    tear_down(&f);
}

static void a_step_that_is_not_decoupled_answers_once(void **unused)
{
    (void)unused;
    struct fixture f;
    struct asked a;
    set_up_chain(&f, execute_sum, execute_three, execute_sum);
    f.whole.model->scheduler->ops->free(TAKE(f.whole.model->scheduler));
    f.members[1].model->decoupled = false; /* but its backend goes on as before */
    assert_null(scheduler_new(f.whole.model, &f.whole.model->scheduler));
    ask(&a, &f, &by_hand);
    expect_error(&a, STATUS_INTERNAL,
                 "in ensemble 'E', step 1, model 'm', has sent more than one response, but is not "
                 "decoupled");
    end_request(&a);
    tear_down(&f);
}

static void a_cancelled_request_executes_no_further_step(void **unused)
{
    (void)unused;
    struct fixture f;
    struct asked a;
    set_gate(false);
    set_up_chain(&f, execute_gated, execute_sum, execute_sum);
    make_request(&a, &f, &by_hand);
    assert_null(add_numbers(&a, "X", numbers, (int64_t[]){4}, 1));
    assert_null(server_infer(&f.members[0].server, &a.request));
    wait_inside();
    request_cancel(&a.request);
    set_gate(true);
    wait_for_end(&a);
    expect_error(&a, STATUS_CANCELLED, "in ensemble 'E', ");
    assert_int_equal(atomic_load(&seen.n), 1);
    end_request(&a);
    tear_down(&f);
}

static void a_cancel_takes_the_step_out_of_its_queue(void **unused)
{
    (void)unused;
    struct fixture f;
    struct asked a, b;
    set_gate(false);
    set_up_chain(&f, execute_gated, execute_sum, execute_sum);
    make_request(&a, &f, &by_hand);
    assert_null(add_numbers(&a, "X", numbers, (int64_t[]){4}, 1));
    assert_null(server_infer(&f.members[0].server, &a.request));
    wait_inside();
    make_request(&b, &f, &by_hand);
    assert_null(add_numbers(&b, "X", numbers, (int64_t[]){4}, 1));
    assert_null(server_infer(&f.members[0].server, &b.request));
    request_cancel(&b.request);
    wait_for_end(&b); /* while the other one is still inside */
    expect_error(&b, STATUS_CANCELLED, "in ensemble 'E', ");
    set_gate(true);
    wait_for_end(&a);
    expect_numbers(a.responses[0], 0, 13, 4);
    end_request(&a);
    end_request(&b);
    tear_down(&f);
}

static void after_the_deadline_no_step_begins(void **unused)
{
    (void)unused;
    struct fixture f;
    struct asked a;
    set_gate(false);
    set_up_chain(&f, execute_gated, execute_sum, execute_sum);
    make_request(&a, &f, &by_hand);
    a.request.maker.deadline_ns = clock_now_ns(f.whole.model->clock) + 50 * NS_PER_MS;
    assert_null(add_numbers(&a, "X", numbers, (int64_t[]){4}, 1));
    assert_null(server_infer(&f.members[0].server, &a.request));
    wait_inside();
    while (!request_is_late(&a.request))
        sched_yield();
    set_gate(true);
    wait_for_end(&a);
    expect_error(&a, STATUS_TIMED_OUT, "in ensemble 'E', Deadline Exceeded (step 1, model 'm')");
    assert_int_equal(atomic_load(&seen.n), 1);
    end_request(&a);
    tear_down(&f);
}

/* ---- Conditions ------------------------------------------------------------------------------ */

static const char conditional[] = ENSEMBLE(
    INPUT("X", "-1") "input { name: 'C' data_type: TYPE_BOOL dims: 1 optional: true } " OUTPUT(
        "Y", "-1") OUTPUT("Z", "-1"),
    CHAIN("X", "Y") STEP(MAP_IN("I", "X") MAP_IN("CONCH_IF", "C") MAP_OUT("O", "Z")));

static void ask_if(struct asked *a, struct fixture *f, const bool *condition)
{
    struct input *in;
    make_request(a, f, &by_hand);
    assert_null(add_numbers(a, "X", numbers, (int64_t[]){4}, 1));
    if (condition) {
        assert_null(request_add_input(&a->request, "C", 1, DTYPE_BOOL, (int64_t[]){1}, 1, &in));
        assert_null(request_add_data(&a->request, in,
                                     &(struct tensor_buffer){.base = condition, .size_bytes = 1}));
    }
    assert_null(server_infer(&f->members[0].server, &a->request));
    wait_for_end(a);
}

static void a_false_condition_skips_the_step(void **unused)
{
    (void)unused;
    static const bool yes = true, no = false;
    const bool *const conditions[] = {&yes, &no, NULL};
    struct fixture f;
    struct asked a;
    set_up(&f, conditional, (struct member[]){{MEMBER, execute_sum}, {MEMBER, execute_sum}});
    for (int i = 0; i < 3; i++) {
        ask_if(&a, &f, conditions[i]);
        assert_int_equal(a.responses[0]->n_outputs, i == 0 ? 2 : 1);
        expect_numbers(a.responses[0], 0, 11, 4);
        assert_string_equal(a.responses[0]->outputs[0]->name, "Y");
        end_request(&a);
    }
    assert_int_equal(atomic_load(&seen.n), 4);
    tear_down(&f);
}

/* ---- Limits ---------------------------------------------------------------------------------- */

static const char limited[] = ENSEMBLE(INPUT("X", "-1") OUTPUT("Y", "-1"),
                                       "max_inflight_requests: 1 " CHAIN("X", "A") CHAIN("A", "Y"));

static const struct member producer_and_gate[] = {{MEMBER, execute_three}, {MEMBER, execute_gated}};

/* Begins a request whose producer waits: its second response is one too many. */
static void begin_limited(struct asked *a, struct fixture *f, struct clock_fake *clock)
{
    set_gate(false);
    atomic_store(&n_produced, 0);
    set_up_timed(f, clock, limited, producer_and_gate);
    make_request(a, f, &by_hand);
    assert_null(add_numbers(a, "X", numbers, (int64_t[]){4}, 1));
    assert_null(server_infer(&f->members[0].server, &a->request));
    wait_inside();
    while (atomic_load(&seen.n) < 2)
        sched_yield();
    assert_int_equal(atomic_load(&n_produced), 1);
}

static void a_producer_waits_for_the_steps_behind_it(void **unused)
{
    (void)unused;
    struct fixture f;
    struct asked a;
    begin_limited(&a, &f, NULL);
    set_gate(true);
    wait_for_end(&a);
    assert_int_equal(a.n_responses, 3);
    for (int i = 0; i < 3; i++)
        expect_numbers(a.responses[i], 0, 11 + i, 4);
    end_request(&a);
    tear_down(&f);
}

static void wait_produced(void)
{
    while (atomic_load(&n_produced) < 3)
        sched_yield();
}

static void a_cancel_ends_the_producers_wait(void **unused)
{
    (void)unused;
    struct fixture f;
    struct asked a;
    begin_limited(&a, &f, NULL);
    request_cancel(&a.request);
    wait_produced(); /* while the other step is still inside */
    set_gate(true);
    wait_for_end(&a);
    assert_non_null(a.responses[a.n_responses - 1]->error);
    assert_int_equal(status_code(a.responses[a.n_responses - 1]->error), STATUS_CANCELLED);
    end_request(&a);
    tear_down(&f);
}

static void a_producer_waits_for_300_seconds_only(void **unused)
{
    (void)unused;
    struct fixture f;
    struct asked a;
    struct clock_fake clock;
    clock_fake_init(&clock, 1000 * NS_PER_S);
    begin_limited(&a, &f, &clock);
    while (atomic_load(&n_produced) < 3) {
        clock_fake_advance(&clock, 301 * NS_PER_S);
        sched_yield();
    }
    set_gate(true);
    wait_for_end(&a);
    assert_int_equal(a.n_responses, 3);
    end_request(&a);
    tear_down(&f);
}

/* ---- Threads --------------------------------------------------------------------------------- */

#define INLINE MEMBER "parameters { key: 'CONCH_EXECUTION' value { string_value: 'inline' } }"

static pthread_t executed_by[3];
static void *frames[3];
static atomic_int n_executed;

static struct status *execute_here(struct instance *in, struct request **batch, uint32_t n)
{
    int i = atomic_fetch_add(&n_executed, 1);
    executed_by[i] = pthread_self();
    frames[i] = __builtin_frame_address(0);
    return execute_sum(in, batch, n);
}

static struct request *kept;

static struct status *execute_and_keep(struct instance *in, struct request **batch, uint32_t n)
{
    (void)in;
    assert_int_equal(n, 1);
    status_free(answer_sum(batch[0], 1, RESPONSE_FINAL));
    kept = batch[0];
    return NULL;
}

/* An answer inside a short execution is reported with the release, yet does not wait for one that
 * comes after the execution. */
static void a_request_that_is_kept_does_not_keep_its_answer(void **unused)
{
    (void)unused;
    for (int keeper = 0; keeper < 3; keeper++) {
        struct fixture f;
        struct asked a;
        struct inline_budget budget = {.left_ns = 1000 * NS_PER_S, .is_embedders = true};
        struct member members[] = {
            {INLINE, execute_sum}, {INLINE, execute_sum}, {INLINE, execute_sum}};
        members[keeper].execute = execute_and_keep;
        set_up(&f,
               ENSEMBLE(INPUT("X", "-1") OUTPUT("Y", "-1"),
                        CHAIN("X", "A") CHAIN("A", "B") CHAIN("B", "Y")),
               members);
        server_watch(&f.members[0].server, &budget);
        make_request(&a, &f, &by_hand);
        a.request.maker.inline_budget = &budget;
        assert_null(add_numbers(&a, "X", numbers, (int64_t[]){4}, 1));
        assert_null(server_infer(&f.members[0].server, &a.request));
        pthread_mutex_lock(&a.mu);
        while (a.n_final == 0)
            pthread_cond_wait(&a.cv, &a.mu);
        assert_int_equal(a.n_released, 0);
        pthread_mutex_unlock(&a.mu);
        expect_numbers(a.responses[0], 0, 13, 4);
        must_release(kept);
        wait_for_end(&a);
        end_request(&a);
        inline_watch_close(&budget.watch);
        tear_down(&f);
    }
}

/* The same model three times, each after the execution before, and as deep in the stack. */
static void steps_that_execute_inline_follow_each_other(void **unused)
{
    (void)unused;
    struct fixture f;
    struct asked a;
    struct inline_budget budget = {.left_ns = 1000 * NS_PER_S, .is_embedders = true};
    set_up(
        &f,
        ENSEMBLE(INPUT("X", "-1") OUTPUT("Y", "-1"),
                 CHAIN("X", "A") CHAIN("A", "B") CHAIN("B", "Y")),
        (struct member[]){{INLINE, execute_here}, {INLINE, execute_here}, {INLINE, execute_here}});
    struct model *others[] = {f.whole.model->members[1], f.whole.model->members[2]};
    f.whole.model->members[1] = f.whole.model->members[2] = f.whole.model->members[0];
    atomic_store(&n_executed, 0);
    server_watch(&f.members[0].server, &budget);
    make_request(&a, &f, &by_hand);
    a.request.maker.inline_budget = &budget;
    assert_null(add_numbers(&a, "X", numbers, (int64_t[]){4}, 1));
    assert_null(server_infer(&f.members[0].server, &a.request));
    assert_int_equal(a.n_final, 1); /* already */
    expect_numbers(a.responses[0], 0, 13, 4);
    for (int i = 0; i < 3; i++)
        assert_true(pthread_equal(executed_by[i], pthread_self()));
    assert_ptr_equal(frames[1], frames[2]);
    end_request(&a);
    inline_watch_close(&budget.watch);
    f.whole.model->members[1] = others[0];
    f.whole.model->members[2] = others[1];
    tear_down(&f);
}

static const struct instance *answered_inside[2]; /* in whose execution the client was called */

static void note_where_answered(struct request *r, struct response *resp, uint32_t flags)
{
    answered_inside[0] = instance_executing();
    keep_response(r, resp, flags);
}

static void note_where_released(struct request *r, uint32_t flags)
{
    answered_inside[1] = instance_executing();
    note_release(r, flags);
}

/* So the time of the client's callbacks does not count as that of the last model. */
static void the_client_is_called_after_the_last_execution(void **unused)
{
    (void)unused;
    struct fixture f;
    struct asked a;
    struct inline_budget budget = {.left_ns = 1000 * NS_PER_S, .is_embedders = true};
    struct request_ops ops = by_hand;
    ops.respond = note_where_answered;
    ops.release = note_where_released;
    set_up(&f, ENSEMBLE(INPUT("X", "-1") OUTPUT("Y", "-1"), CHAIN("X", "A") CHAIN("A", "Y")),
           (struct member[]){{INLINE, execute_here}, {INLINE, execute_here}});
    atomic_store(&n_executed, 0);
    answered_inside[0] = answered_inside[1] = f.members[0].model->instances[0];
    server_watch(&f.members[0].server, &budget);
    make_request(&a, &f, &ops);
    a.request.maker.inline_budget = &budget;
    assert_null(add_numbers(&a, "X", numbers, (int64_t[]){4}, 1));
    assert_null(server_infer(&f.members[0].server, &a.request));
    assert_int_equal(a.n_final, 1);
    assert_int_equal(a.n_released, 1);
    assert_null(answered_inside[0]);
    assert_null(answered_inside[1]);
    end_request(&a);
    inline_watch_close(&budget.watch);
    tear_down(&f);
}

static struct clock_fake inline_clock;
static atomic_uint_least64_t oldest_ns; /* the first time at which a step was queued */

static struct status *execute_timed(struct instance *in, struct request **batch, uint32_t n)
{
    if (batch[0]->admitted.queue_ns < atomic_load(&oldest_ns))
        atomic_store(&oldest_ns, batch[0]->admitted.queue_ns);
    clock_fake_advance(&inline_clock,
                       NS_PER_US); /* an execution that has taken no time says none */
    return execute_sum(in, batch, n);
}

/* A worker that begins the next steps takes no time from what it did long ago. */
static void steps_of_a_worker_are_queued_now(void **unused)
{
    (void)unused;
    struct fixture f;
    clock_fake_init(&inline_clock, 1000 * NS_PER_S);
    set_up_timed(&f, &inline_clock,
                 ENSEMBLE(INPUT("X", "-1") OUTPUT("Y", "-1"),
                          CHAIN("X", "A") CHAIN("A", "B") CHAIN("B", "Y")),
                 (struct member[]){
                     {INLINE, execute_timed}, {INLINE, execute_timed}, {INLINE, execute_timed}});
    for (int i = 0; i < 2; i++) {
        struct asked a;
        uint64_t now_ns = clock_now_ns(&inline_clock.clock);
        atomic_store(&oldest_ns, UINT64_MAX);
        ask(&a, &f, &by_hand); /* without a budget: the first step's worker executes them all */
        expect_numbers(a.responses[0], 0, 13, 4);
        assert_true(atomic_load(&oldest_ns) >= now_ns);
        end_request(&a);
        clock_fake_advance(&inline_clock, NS_PER_S);
    }
    tear_down(&f);
}

/* Does not end before the step behind has executed. */
static struct status *execute_before_the_next(struct instance *in, struct request **batch,
                                              uint32_t n)
{
    struct timespec until;
    struct status *st = execute_sum(in, batch, n);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 20;
    pthread_mutex_lock(&gate.mu);
    while (!gate.open)
        assert_int_equal(pthread_cond_timedwait(&gate.cv, &gate.mu, &until), 0);
    pthread_mutex_unlock(&gate.mu);
    return st;
}

static struct status *execute_and_open(struct instance *in, struct request **batch, uint32_t n)
{
    struct status *st = execute_sum(in, batch, n);
    set_gate(true);
    return st;
}

/*
 * The next request of a sequence cannot overtake one whose step has ended: the step behind is
 * queued while the execution still has the instance.
 */
static void a_sequence_keeps_its_order_from_step_to_step(void **unused)
{
    (void)unused;
    struct fixture f;
    struct asked a;
    struct inline_budget budget = {.left_ns = 1000 * NS_PER_S, .is_embedders = true};
    set_up(&f, ENSEMBLE(INPUT("X", "-1") OUTPUT("Y", "-1"), CHAIN("X", "A") CHAIN("A", "Y")),
           (struct member[]){{INLINE, execute_before_the_next}, {MEMBER, execute_and_open}});
    set_gate(false);
    server_watch(&f.members[0].server, &budget);
    make_request(&a, &f, &by_hand);
    a.request.maker.correlation_id.number = 7;
    a.request.maker.inline_budget = &budget;
    assert_null(add_numbers(&a, "X", numbers, (int64_t[]){4}, 1));
    assert_null(server_infer(&f.members[0].server, &a.request));
    wait_for_end(&a);
    expect_numbers(a.responses[0], 0, 12, 4);
    end_request(&a);
    inline_watch_close(&budget.watch);
    tear_down(&f);
}

/* ---- Memory ---------------------------------------------------------------------------------- */

static struct status *ask_once(void *arg)
{
    struct fixture *f = arg;
    struct asked a;
    make_request(&a, f, &by_hand);
    struct status *result = add_numbers(&a, "X", numbers, (int64_t[]){4}, 1);
    if (!result)
        result = server_infer(&f->members[0].server, &a.request);
    if (result) { /* it has not begun */
        a.n_final = a.n_released = 1;
    } else {
        wait_for_end(&a);
        for (int i = 0; i < a.n_responses; i++)
            result = result ? result : TAKE(a.responses[i]->error);
        if (!result && a.n_responses == 0)
            result = status_no_memory(); /* not even an error could be made */
    }
    end_request(&a);
    return result;
}

static void each_allocation_may_fail(void **unused)
{
    (void)unused;
    struct fixture f;
    set_up(&f,
           ENSEMBLE(INPUT("X", "-1") OUTPUT("Y", "-1") OUTPUT("Z", "-1"),
                    CHAIN("X", "A") CHAIN("A", "Y") CHAIN("A", "Z")),
           (struct member[]){{MEMBER, execute_sum}, {MEMBER, execute_sum}, {MEMBER, execute_sum}});
    assert_true(fault_each_allocation(ask_once, &f) > 5);
    tear_down(&f);
    set_up_chain(&f, execute_sum, execute_three, execute_sum);
    assert_true(fault_each_allocation(ask_once, &f) > 5);
    tear_down(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_step_copies),
        cmocka_unit_test(every_response_has_three_parameters),
        cmocka_unit_test(each_step_inherits_what_the_request_has),
        cmocka_unit_test(parameters_of_a_response_replace_what_steps_inherit),
        cmocka_unit_test(a_batch_dimension_comes_and_goes),
        cmocka_unit_test(only_the_steps_of_requested_outputs_run),
        cmocka_unit_test(an_output_that_a_step_reads_leaves_after_that),
        cmocka_unit_test(a_response_of_a_decoupled_step_makes_a_wave),
        cmocka_unit_test(an_error_of_a_step_names_the_ensemble),
        cmocka_unit_test(bad_answers_of_a_step_are_errors),
        cmocka_unit_test(a_step_that_is_not_decoupled_answers_once),
        cmocka_unit_test(a_cancelled_request_executes_no_further_step),
        cmocka_unit_test(a_cancel_takes_the_step_out_of_its_queue),
        cmocka_unit_test(after_the_deadline_no_step_begins),
        cmocka_unit_test(a_false_condition_skips_the_step),
        cmocka_unit_test(a_producer_waits_for_the_steps_behind_it),
        cmocka_unit_test(a_cancel_ends_the_producers_wait),
        cmocka_unit_test(a_producer_waits_for_300_seconds_only),
        cmocka_unit_test(steps_that_execute_inline_follow_each_other),
        cmocka_unit_test(the_client_is_called_after_the_last_execution),
        cmocka_unit_test(a_request_that_is_kept_does_not_keep_its_answer),
        cmocka_unit_test(steps_of_a_worker_are_queued_now),
        cmocka_unit_test(a_sequence_keeps_its_order_from_step_to_step),
        cmocka_unit_test(each_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
