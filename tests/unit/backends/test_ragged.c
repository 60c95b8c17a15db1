/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/fake_backend_api.h"

#include "common/batch.c"
#include "common/gather.c"
#include "common/ragged.c"

static struct doc *config_of(const char *text)
{
    const char *why = NULL;
    struct doc *d = doc_parse(text, strlen(text), &why);

    if (!d)
        fail_msg("%s: %s", text, why);
    return d;
}

/* Three requests of the shapes [1,3], [2,2], [1,0]. */
static struct batch begin(TRITONBACKEND_Request *r)
{
    static const int shapes[3][2] = {{1, 3}, {2, 2}, {1, 0}};
    TRITONBACKEND_Request *list[3];
    struct batch b = {0};

    memset(r, 0, 3 * sizeof(*r));
    for (uint32_t i = 0; i < 3; i++) {
        fake_input(&r[i], "IN", TRITONSERVER_TYPE_FP32, NULL, 0, 2, shapes[i][0], shapes[i][1]);
        list[i] = &r[i];
    }
    fake_requests = r;
    fake_n_requests = 3;
    fake_must(batch_begin(&b, NULL, list, 3, true));
    return b;
}

static void end(struct batch *b)
{
    batch_finish(b, NULL);
    batch_done(b);
    fake_forget(fake_requests, 3);
}

static void each_kind_of_batch_input_is_computed(void **state)
{
    static const struct {
        enum ragged_kind kind;
        uint32_t rank;
        int64_t shape[2];
        size_t n;
        int32_t values[5];
    } cases[] = {
        {RAGGED_ELEMENT_COUNT, 1, {3}, 3, {3, 4, 0}},
        {RAGGED_ACCUMULATED, 1, {3}, 3, {3, 7, 7}},
        {RAGGED_ACCUMULATED_WITH_ZERO, 1, {4}, 4, {0, 3, 7, 7}},
        {RAGGED_MAX_AS_SHAPE, 1, {4}, 4, {0, 0, 0, 0}},
        {RAGGED_ITEM_SHAPE, 2, {4, 1}, 4, {3, 2, 2, 0}},
        {RAGGED_ITEM_SHAPE_FLATTEN, 1, {4}, 4, {3, 2, 2, 0}},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        for (int real = 0; real < 2; real++) {
            struct ragged_input in = {"T", "IN", cases[i].kind,
                                      real ? TRITONSERVER_TYPE_FP32 : TRITONSERVER_TYPE_INT32};
            TRITONBACKEND_Request r[3];
            struct batch b = begin(r);
            struct gathered g = {0};

            fake_must(ragged_gather(&g, &b, &in));
            assert_int_equal(g.type, in.type);
            assert_int_equal(g.rank, cases[i].rank);
            assert_memory_equal(g.shape, cases[i].shape, g.rank * sizeof(int64_t));
            assert_int_equal(g.size, cases[i].n * 4);
            for (size_t k = 0; k < cases[i].n; k++) {
                if (real)
                    assert_float_equal(((const float *)g.data)[k], (float)cases[i].values[k], 0);
                else
                    assert_int_equal(((const int32_t *)g.data)[k], cases[i].values[k]);
            }
            end(&b);
            gathered_done(&g);
        }
    }
}

static void sources_that_do_not_fit_are_refused(void **state)
{
    struct ragged_input in = {"T", "IN", RAGGED_ITEM_SHAPE, TRITONSERVER_TYPE_INT32};
    TRITONBACKEND_Request r[3];
    struct batch b = begin(r);
    struct gathered g = {0};

    (void)state;
    r[1].inputs[0].rank = 1;
    fake_expect(ragged_gather(&g, &b, &in),
                "the requests of a batch differ in the number of dimensions");
    r[1].inputs[0].rank = 0;
    fake_expect(ragged_gather(&g, &b, &in), "source input 'IN' has no batch dimension");
    in.source = "NOPE";
    fake_expect(ragged_gather(&g, &b, &in), "there is no NOPE");
    in.source = "IN";
    r[1].inputs[0].rank = 2;
    r[1].inputs[0].shape[1] = INT32_MAX;
    in.kind = RAGGED_ELEMENT_COUNT;
    fake_expect(ragged_gather(&g, &b, &in),
                "a batch input counts to 4294967294, which INT32 does not hold");
    in.kind = RAGGED_MAX_AS_SHAPE;
    r[1].inputs[0].shape[1] = INT64_MAX / 2;
    fake_expect(ragged_gather(&g, &b, &in), "batch input 'T' is too large");
    in.kind = RAGGED_ITEM_SHAPE_FLATTEN; /* as many values as rows times dimensions */
    r[1].inputs[0].shape[0] = INT64_MAX;
    r[1].inputs[0].shape[1] = 0;
    fake_expect(ragged_gather(&g, &b, &in), "a batch has too many elements");
    end(&b);
    gathered_done(&g);
}

static void batch_inputs_are_read_from_the_configuration(void **state)
{
    struct doc *d = config_of(
        "{\"input\": [{\"name\": \"IN\", \"allow_ragged_batch\": true}, {\"name\": \"B\"}],"
        " \"batch_input\": [{\"kind\": \"BATCH_ITEM_SHAPE\", \"target_name\": [\"X\", \"Y\"],"
        " \"data_type\": \"TYPE_FP32\", \"source_input\": [\"IN\"]},"
        " {\"target_name\": [\"Z\"], \"data_type\": \"TYPE_INT32\", \"source_input\": [\"IN\"]}],"
        " \"batch_output\": [{\"target_name\": [\"OUT\"], \"source_input\": [\"IN\"]}]}");
    struct ragged r;

    (void)state;
    fake_must(ragged_read(d, &r));
    assert_int_equal(r.n_inputs, 3);
    assert_string_equal(r.inputs[1].name, "Y");
    assert_int_equal(r.inputs[1].kind, RAGGED_ITEM_SHAPE);
    assert_int_equal(r.inputs[1].type, TRITONSERVER_TYPE_FP32);
    assert_string_equal(r.inputs[2].source, "IN");
    assert_int_equal(r.inputs[2].kind, RAGGED_ELEMENT_COUNT);
    assert_string_equal(ragged_source(&r, "OUT"), "IN");
    assert_null(ragged_source(&r, "X"));
    assert_true(ragged_allowed(d, "IN"));
    assert_false(ragged_allowed(d, "B"));
    assert_false(ragged_allowed(d, "C"));
    ragged_done(&r);
    doc_free(d);
}

static void invalid_configurations_are_refused(void **state)
{
    static const struct {
        const char *config, *error;
    } cases[] = {
        {"{\"batch_input\": [{\"kind\": \"OTHER\"}]}", "batch input kind 'OTHER' is unknown"},
        {"{\"batch_input\": [{\"data_type\": \"TYPE_INT64\"}]}",
         "batch input data type must be TYPE_INT32 or TYPE_FP32, got 'TYPE_INT64'"},
        {"{\"batch_input\": [{\"data_type\": \"TYPE_INT32\"}]}",
         "a batch input expects 1 source input, got 0"},
        {"{\"batch_output\": [{\"kind\": \"OTHER\"}]}", "batch output kind 'OTHER' is unknown"},
        {"{\"batch_output\": [{\"source_input\": [\"A\", \"B\"]}]}",
         "a batch output expects 1 source input, got 2"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct doc *d = config_of(cases[i].config);
        struct ragged r;

        fake_expect(ragged_read(d, &r), cases[i].error);
        doc_free(d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_kind_of_batch_input_is_computed),
        cmocka_unit_test(sources_that_do_not_fit_are_refused),
        cmocka_unit_test(batch_inputs_are_read_from_the_configuration),
        cmocka_unit_test(invalid_configurations_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
