/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Implicit states. The state that a backend publishes is what the next request of the sequence
 * finds, and no other. A backend's misuse is an error. The memory is freed.
 */
#include "core/sched/state.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/status.h"
#include "core/model/model.h"
#include "core/server/server.h"
#include "lib/fake_model.h"

#define START REQUEST_SEQUENCE_START
#define END   REQUEST_SEQUENCE_END

#define SILENT_FOR(idle_us, batching, states)                                                      \
    "input { name: \"A\" data_type: TYPE_INT32 dims: [ 1 ] }\n"                                    \
    "output { name: \"X\" data_type: TYPE_INT32 dims: [ 1 ] }\n" batching                          \
    " sequence_batching { max_sequence_idle_microseconds: " idle_us " " states " }"
#define MODEL(batching, states) SILENT_FOR("60000000", batching, states)
#define STATE(more)                                                                                \
    "state { input_name: \"SI\" output_name: \"SO\" data_type: TYPE_INT32 " more " } "

/* What the backend does with the state of a request. The function notes in `seen` what it found. */
typedef void (*script_fn)(struct request *r);
static script_fn script;
static char seen[4096];

static struct status *execute(struct instance *in, struct request **requests, uint32_t n)
{
    (void)in;
    for (uint32_t i = 0; i < n; i++) {
        if (i)
            snprintf(seen + strlen(seen), sizeof(seen) - strlen(seen), "| ");
        script(requests[i]);
    }
    for (uint32_t i = 0; i < n; i++)
        fake_answer(requests[i]);
    return NULL;
}

static const struct input *state_input(const struct request *r)
{
    assert_true(r->seq.n_injected == 1);
    assert_string_equal(r->seq.injected[0]->name, "SI");
    assert_ptr_equal(r->seq.injected[0]->request, r);
    return r->seq.injected[0];
}

/* "[1,2]:5,6 " */
static void see(struct request *r)
{
    const struct input *in = state_input(r);
    const int32_t *data = in->buffers[0].base;
    AUTO(buf) text = BUF_INIT(1024);
    assert_int_equal((uintptr_t)data % MEM_ALIGNMENT, 0);
    shape_print(&text, in->backend_shape, in->n_backend_dims);
    buf_addc(&text, ':');
    for (size_t i = 0; i < in->size_bytes / sizeof(*data); i++)
        buf_addf(&text, i ? ",%d" : "%d", data[i]);
    snprintf(seen + strlen(seen), sizeof(seen) - strlen(seen), "%s ", buf_text(&text));
}

static int32_t value_of(const struct request *r)
{
    return *(const int32_t *)r->maker.inputs[0]->buffers[0].base;
}

/* Sends a request with a value. The state that its backend saw is appended to `seen`. */
static void ask(struct fake_model *f, uint64_t id, uint32_t flags, int32_t value)
{
    struct fake_request fr;
    struct tensor_buffer data = {.base = &value, .size_bytes = sizeof(value)};
    struct input *in;
    int64_t shape[] = {1, 1};
    fake_request_make(&fr, f);
    fr.request.maker.correlation_id.number = id;
    fr.request.maker.flags = flags;
    assert_null(
        request_add_input(&fr.request, "A", 1, DTYPE_INT32, shape, 1 + f->model->batching, &in));
    assert_null(request_add_data(&fr.request, in, &data));
    assert_null(server_infer(&f->server, &fr.request));
    fake_request_wait(&fr);
    assert_false(fr.failed);
    fake_request_end(&fr);
}

static void expect(const char *text)
{
    assert_string_equal(seen, text);
    seen[0] = '\0';
}

/* Expects the error of a misuse. */
static void expect_status(struct status *st, const char *text)
{
    assert_non_null(st);
    assert_int_equal(status_code(st), STATUS_INVALID_ARG);
    assert_string_equal(status_message(st), text);
    status_free(st);
}

static int32_t *write_state(struct request *r, const int64_t *shape, uint32_t n_dims,
                            struct state **ret_state)
{
    int64_t elements;
    void *base;
    assert_null(states_output(r, "SO", DTYPE_INT32, shape, n_dims, ret_state));
    assert_int_equal(shape_elements(shape, n_dims, &elements), SHAPE_FINE);
    assert_null(state_buffer(*ret_state, (size_t)elements * sizeof(int32_t), &base));
    return base;
}

/* ---------------------------------------------------------------------------------------------- */

static void add_up(struct request *r)
{
    struct state *state;
    see(r);
    const struct input *in = state_input(r);
    int32_t sum = *(const int32_t *)in->buffers[0].base + value_of(r);
    *write_state(r, in->backend_shape, in->n_backend_dims, &state) = sum;
    assert_null(state_update(state));
}

static void a_state_belongs_to_its_sequence(void **test_state)
{
    (void)test_state;
    struct fake_model f;
    fake_model_make(&f, MODEL("max_batch_size: 1", STATE("dims: [ 1 ]")), 2, execute);
    script = add_up;
    ask(&f, 1, START, 5);
    ask(&f, 2, START, 70);
    ask(&f, 1, 0, 6);
    ask(&f, 2, 0, 80);
    ask(&f, 1, 0, 7);
    expect("[1,1]:0 [1,1]:0 [1,1]:5 [1,1]:70 [1,1]:11 ");
    ask(&f, 1, START, 1); /* begins anew, without an END */
    ask(&f, 1, END, 1);
    ask(&f, 1, START | END, 1);
    ask(&f, 2, END, 1);
    expect("[1,1]:0 [1,1]:1 [1,1]:0 [1,1]:150 ");
    fake_model_end(&f);
}

static void write_but_do_not_publish(struct request *r)
{
    const struct input *in = state_input(r);
    struct state *state;
    see(r);
    *write_state(r, in->backend_shape, in->n_backend_dims, &state) = value_of(r);
    if (value_of(r) > 100)
        assert_null(state_update(state));
}

static void an_unpublished_state_is_not_seen(void **test_state)
{
    (void)test_state;
    struct fake_model f;
    fake_model_make(&f, MODEL("", STATE("dims: [ 1 ]")), 1, execute);
    script = write_but_do_not_publish;
    ask(&f, 1, START, 5);
    ask(&f, 1, 0, 101);
    ask(&f, 1, 0, 6);
    ask(&f, 1, 0, 102);
    ask(&f, 1, END, 7);
    expect("[1]:0 [1]:0 [1]:101 [1]:101 [1]:102 ");
    fake_model_end(&f);
}

/* While a backend has a request, the state that it was shown does not change. */
static void publish_twice(struct request *r)
{
    const struct input *in = state_input(r);
    struct state *state;
    int32_t before = *(const int32_t *)in->buffers[0].base;
    see(r);
    for (int32_t i = 0; i < 3; i++) {
        *write_state(r, in->backend_shape, in->n_backend_dims, &state) = value_of(r) + i;
        assert_null(state_update(state));
        assert_int_equal(*(const int32_t *)in->buffers[0].base, before);
    }
}

static void the_last_published_state_counts(void **test_state)
{
    (void)test_state;
    struct fake_model f;
    fake_model_make(&f, MODEL("", STATE("dims: [ 1 ]")), 1, execute);
    script = publish_twice;
    ask(&f, 1, START, 10);
    ask(&f, 1, 0, 20);
    ask(&f, 1, END, 30);
    expect("[1]:0 [1]:12 [1]:22 ");
    fake_model_end(&f);
}

static void append(struct request *r)
{
    const struct input *in = state_input(r);
    const int32_t *from = in->buffers[0].base;
    struct state *state;
    see(r);
    int64_t shape[2] = {in->backend_shape[0], in->backend_shape[1] + 1};
    int32_t *to = write_state(r, shape, 2, &state);
    memcpy(to, from, in->size_bytes);
    to[shape[1] - 1] = value_of(r);
    assert_null(state_update(state));
}

static void a_state_may_grow(void **test_state)
{
    (void)test_state;
    struct fake_model f;
    fake_model_make(&f, MODEL("max_batch_size: 2", STATE("dims: [ -1 ]")), 1, execute);
    script = append;
    ask(&f, 1, START, 5);
    ask(&f, 1, 0, 6);
    ask(&f, 2, START, 9); /* the first slot is empty: a padding with zeros of the same shape */
    ask(&f, 2, 0, 8);
    ask(&f, 1, END, 7);
    expect("[1,1]:0 [1,2]:0,5 [1,1]:0 | [1,1]:0 [1,2]:0,0 | [1,2]:0,9 [1,3]:0,5,6 ");
    ask(&f, 2, START, 1);
    ask(&f, 2, END, 1);
    expect("[1,1]:0 | [1,1]:0 [1,2]:0,0 | [1,2]:0,1 ");
    fake_model_end(&f);
}

static void add_in_place(struct request *r)
{
    const struct input *in = state_input(r);
    struct state *state;
    see(r);
    int32_t *to = write_state(r, in->backend_shape, in->n_backend_dims, &state);
    assert_ptr_equal(to, in->buffers[0].base);
    *to += value_of(r);
    if (value_of(r) % 2)
        assert_null(state_update(state)); /* changes nothing */
    if (value_of(r) == 8) {
        int64_t two = 2;
        to = write_state(r, &two, 1, &state);
        assert_ptr_not_equal(to, in->buffers[0].base); /* from the next request on */
        to[0] = to[1] = 1;
    }
}

static void one_buffer_may_be_input_and_output(void **test_state)
{
    (void)test_state;
    struct fake_model f;
    fake_model_make(&f, MODEL("", STATE("dims: [ -1 ] use_same_buffer_for_input_output: true")), 1,
                    execute);
    script = add_in_place;
    ask(&f, 1, START, 5);
    ask(&f, 1, 0, 6);
    ask(&f, 1, 0, 8);
    ask(&f, 1, 0, 2);
    ask(&f, 1, START, 3);
    ask(&f, 1, END, 3);
    expect("[1]:0 [1]:5 [1]:11 [2]:1,1 [1]:0 [1]:3 ");
    fake_model_end(&f);
}

/* Each sequence begins with the same state, whatever a backend does to the one that it was
 * shown: the backend has a copy. */
static void spoil(struct request *r)
{
    see(r);
    memset((void *)(uintptr_t)state_input(r)->buffers[0].base, 0x55, state_input(r)->size_bytes);
}

static void each_sequence_begins_with_its_own_copy(void **test_state)
{
    (void)test_state;
    struct fake_model f;
    fake_model_make(&f, MODEL("", STATE("dims: [ 2 ]")), 1, execute);
    script = spoil;
    ask(&f, 1, START | END, 0);
    ask(&f, 2, START | END, 0);
    ask(&f, 1, START | END, 0); /* in the same memory */
    expect("[2]:0,0 [2]:0,0 [2]:0,0 ");
    fake_model_end(&f);
}

static void an_initial_state_has_a_shape(void **test_state)
{
    (void)test_state;
    struct fake_model f;
    fake_model_make(&f,
                    MODEL("", STATE("dims: [ -1, 2 ] initial_state { name: \"i\" data_type: "
                                    "TYPE_INT32 dims: [ 3, 2 ] zero_data: true }")),
                    1, execute);
    script = see;
    ask(&f, 1, START | END, 5);
    expect("[3,2]:0,0,0,0,0,0 ");
    fake_model_end(&f);
}

/* ---------------------------------------------------------------------------------------------- */

static void misuse(struct request *r)
{
    const int64_t one[] = {1}, negative[] = {2, -1}, many[MAX_STATE_DIMS + 1] = {1};
    const int64_t huge[] = {INT64_MAX, 2};
    struct state *state = NULL, *again;
    size_t size_bytes;
    void *base;
    expect_status(states_output(r, "no", DTYPE_INT32, one, 1, &state),
                  "state 'no' is not a valid state name.");
    expect_status(states_output(r, "SI", DTYPE_INT32, one, 1, &state),
                  "state 'SI' is not a valid state name.");
    expect_status(states_output(r, "SO", DTYPE_INT32, negative, 2, &state),
                  "state 'SO': [2,-1] is no shape of a tensor");
    expect_status(states_output(r, "SO", DTYPE_INT32, huge, 2, &state),
                  "state 'SO': [9223372036854775807,2] is no shape of a tensor");
    expect_status(states_output(r, "SO", DTYPE_INT32, many, ARRAY_SIZE(many), &state),
                  "state 'SO' has 33 dimensions, more than 32");
    assert_null(state);

    assert_null(states_output(r, "SO", DTYPE_INT32, one, 1, &state));
    expect_status(state_update(state), "state 'SO' has no buffer that could be its update");
    expect_status(state_buffer_bytes(state, &size_bytes),
                  "state 'SO' has no buffer yet, so it has no attributes");
    struct status *st = state_buffer(state, SIZE_MAX, &base);
    assert_int_equal(status_code(st), STATUS_UNAVAILABLE);
    status_free(st);
    assert_null(state_buffer(state, 8, &base));
    assert_null(state_buffer_bytes(state, &size_bytes));
    assert_int_equal(size_bytes, 8);
    expect_status(state_update(state),
                  "state 'SO': its buffer has 8 bytes, which is not the size of INT32 [1]");
    assert_null(states_output(r, "SO", (enum dtype)99, one, 1, &again));
    assert_ptr_equal(again, state);
    expect_status(state_update(state),
                  "state 'SO': its buffer has 8 bytes, which is not the size of <invalid> [1]");
    see(r);
}

static void a_backends_misuse_is_an_error(void **test_state)
{
    (void)test_state;
    struct fake_model f;
    fake_model_make(&f, MODEL("", STATE("dims: [ 1 ]")), 1, execute);
    script = misuse;
    ask(&f, 1, START, 5);
    script = see;
    ask(&f, 1, END, 5);
    expect("[1]:0 [1]:0 ");
    fake_model_end(&f);
}

static void no_states(struct request *r)
{
    struct state *state;
    int64_t one = 1;
    expect_status(states_output(r, "SO", DTYPE_INT32, &one, 1, &state),
                  "unable to add state 'SO'. State configuration is missing for model 'm'.");
}

static void a_model_without_states_has_none(void **test_state)
{
    (void)test_state;
    struct fake_model f;
    fake_model_make(&f, MODEL("", ""), 1, execute);
    script = no_states;
    ask(&f, 1, START | END, 5);
    fake_model_end(&f);
}

static void a_state_that_cannot_be_made_fails_the_load(void **test_state)
{
    (void)test_state;
    struct fake_model f;
    struct scheduler *scheduler = NULL;
    fake_model_make(&f, MODEL("", STATE("dims: [ 1 ]")), 1, execute);
    Inference__ModelSequenceBatching__State *state =
        f.model->config->pb->sequence_batching->state[0];
    static const int64_t wrong[] = {INT64_MAX, -3};
    static const char *const texts[] = {
        "state input 'SI': [9223372036854775807] of INT32 is no shape of at most 4294967296 bytes",
        "state input 'SI': [-3] of INT32 is no shape of at most 4294967296 bytes",
    };
    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
        int64_t was = state->dims[0];
        state->dims[0] = wrong[i];
        expect_status(scheduler_new(f.model, &scheduler), texts[i]);
        state->dims[0] = was;
    }
    fake_model_end(&f);
}

/* ---------------------------------------------------------------------------------------------- */

static size_t owned(const struct fake_model *f)
{
    return mem_owner_bytes(f->model->owner, MEM_INSTANCES);
}

static void keep_a_lot(struct request *r)
{
    struct state *state;
    int64_t much = 100000;
    write_state(r, &much, 1, &state);
    assert_null(state_update(state));
}

#define ONE_SLOT "oldest { max_candidate_sequences: 1 }" STATE("dims: [ -1 ]")

/* However a sequence ends, its memory is freed. Nothing is allocated while the sequence goes on. */
static void the_end_of_a_sequence_frees_its_state(void **test_state)
{
    (void)test_state;
    struct fake_model f;
    fake_model_make(&f, MODEL("", ONE_SLOT), 1, execute);
    script = keep_a_lot;
    ask(&f, 1, START | END, 1); /* the slot is made */
    size_t before = owned(&f);
    for (int i = 0; i < 3; i++) {
        ask(&f, 2, START, 1);
        ask(&f, 2, START, 1);
        assert_in_range(owned(&f), before + 400000, before + 900000);
        size_t during = owned(&f);
        ask(&f, 2, 0, 1);
        ask(&f, 2, 0, 1);
        size_t at_most = owned(&f);
        assert_true(at_most >= during && at_most < before + 900000);
        for (int k = 0; k < 20; k++)
            ask(&f, 2, 0, 1);
        assert_int_equal(owned(&f), at_most);
        ask(&f, 2, END, 1);
        assert_int_equal(owned(&f), before);
    }
    fake_model_end(&f);

    fake_model_make(&f, SILENT_FOR("5000", "", ONE_SLOT), 1, execute);
    ask(&f, 1, START | END, 1);
    before = owned(&f);
    ask(&f, 3, START, 1);       /* becomes silent … */
    ask(&f, 4, START | END, 1); /* … and loses its slot */
    assert_int_equal(owned(&f), before);
    fake_model_end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_state_belongs_to_its_sequence),
        cmocka_unit_test(an_unpublished_state_is_not_seen),
        cmocka_unit_test(the_last_published_state_counts),
        cmocka_unit_test(a_state_may_grow),
        cmocka_unit_test(one_buffer_may_be_input_and_output),
        cmocka_unit_test(each_sequence_begins_with_its_own_copy),
        cmocka_unit_test(an_initial_state_has_a_shape),
        cmocka_unit_test(a_backends_misuse_is_an_error),
        cmocka_unit_test(a_model_without_states_has_none),
        cmocka_unit_test(a_state_that_cannot_be_made_fails_the_load),
        cmocka_unit_test(the_end_of_a_sequence_frees_its_state),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
