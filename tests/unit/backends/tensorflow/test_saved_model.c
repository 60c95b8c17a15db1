/* SPDX-License-Identifier: Apache-2.0 */
/* Signatures and graphs of SavedModels: the seeds of fuzz_saved_model, which tests/system/
 * saved_models.py has written. tests/system/test_tensorflow.py loads such files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "common/backend.c"
#include "common/doc.c"
#include "common/message.c"
#include "tensorflow/graph.c"
#include "tensorflow/graph_check.c"
#include "tensorflow/saved_model.c"

static TRITONSERVER_Error *read_seed(const char *name, const char *tag, const char *signature,
                                     struct saved_signature *s)
{
    char path[512];

    snprintf(path, sizeof(path), "%s/tests/fuzz/corpus/saved_model/%s", CONCH_SOURCE_DIR, name);
    return saved_model_read("m", path, tag, signature, s);
}

static void assert_read(const char *name, const char *tag, const char *signature,
                        struct saved_signature *s)
{
    TRITONSERVER_Error *err = read_seed(name, tag, signature, s);

    if (err)
        fail_msg("%s: %s", name, TRITONSERVER_ErrorMessage(err));
}

static void assert_refused(const char *name, const char *tag, const char *signature,
                           const char *text)
{
    struct saved_signature s = {0};
    TRITONSERVER_Error *err = read_seed(name, tag, signature, &s);

    assert_non_null(err);
    if (!strstr(TRITONSERVER_ErrorMessage(err), text))
        fail_msg("%s: %s", name, TRITONSERVER_ErrorMessage(err));
    TRITONSERVER_ErrorDelete(err);
    assert_null(s.name);
}

static void test_tensors(void **state)
{
    struct saved_signature s;

    (void)state;
    assert_read("add_sub", NULL, NULL, &s);
    assert_string_equal(s.name, "serving_default");
    assert_true(s.is_default);
    assert_int_equal(s.inputs.n, 2);
    assert_int_equal(s.outputs.n, 2);
    assert_string_equal(s.inputs.tensors[0].name, "A");
    assert_string_equal(s.inputs.tensors[0].place, "in_a:0");
    assert_string_equal(s.outputs.tensors[0].name, "DIFF");
    assert_string_equal(s.outputs.tensors[0].place, "minus:0");
    assert_int_equal(s.inputs.tensors[1].type, 1);
    assert_int_equal(s.inputs.tensors[1].rank, 2);
    assert_int_equal(s.inputs.tensors[1].dims[0], -1);
    assert_int_equal(s.inputs.tensors[1].dims[1], 4);
    assert_null(saved_tensor_named(&s.inputs, "C"));
    saved_signature_done(&s);
    assert_read("any_shape", NULL, NULL, &s);
    assert_true(s.inputs.tensors[0].any_rank);
    assert_int_equal(s.inputs.tensors[0].type, 7);
    saved_signature_done(&s);
    assert_read("scalar", NULL, NULL, &s);
    assert_false(s.inputs.tensors[0].any_rank);
    assert_int_equal(s.inputs.tensors[0].rank, 0);
    saved_signature_done(&s);
}

static void test_tags_and_signatures(void **state)
{
    struct saved_signature s;

    (void)state;
    assert_read("tags", NULL, NULL, &s);
    assert_int_equal(s.n_tags, 1);
    saved_signature_done(&s);
    assert_read("tags", "gpu", NULL, &s);
    assert_int_equal(s.n_tags, 2);
    assert_string_equal(s.tags[0], "serve");
    assert_string_equal(s.tags[1], "gpu");
    assert_false(s.is_default);
    saved_signature_done(&s);
    assert_read("two", NULL, "second", &s);
    assert_string_equal(s.name, "second");
    assert_false(s.is_default);
    saved_signature_done(&s);
    /* Of two of one name the last one counts, as TensorFlow reads it. */
    assert_read("again", NULL, NULL, &s);
    assert_int_equal(s.inputs.n, 2);
    assert_string_equal(s.inputs.tensors[0].name, "A");
    saved_signature_done(&s);
    assert_refused("two", NULL, NULL, "signatures: 'first', 'second' (the parameter");
    assert_refused("two", NULL, "__saved_model_init_op", "expected '__saved_model_init_op'");
    assert_refused("add_sub", "train", NULL, "expected 'train' tag");
    assert_refused("empty", NULL, NULL, "has the tags: none");
}

static void test_what_an_execution_does(void **state)
{
    struct saved_signature s;

    (void)state;
    assert_read("add_sub", NULL, NULL, &s);
    assert_string_equal(s.facts.writer, "");
    assert_false(s.facts.keeps);
    assert_int_equal(s.facts.n_nodes, 4);
    saved_signature_done(&s);
    /* In a function, which only a control dependency reaches. */
    assert_read("counter", NULL, NULL, &s);
    assert_string_equal(s.facts.writer, "AssignAddVariableOp");
    saved_signature_done(&s);
    /* The same function, which another one is given. */
    assert_read("given", NULL, NULL, &s);
    assert_string_equal(s.facts.writer, "AssignAddVariableOp");
    saved_signature_done(&s);
    /* The same function as an operator of its own. */
    assert_read("called", NULL, NULL, &s);
    assert_string_equal(s.facts.writer, "AssignAddVariableOp");
    assert_true(s.facts.keeps);
    saved_signature_done(&s);
    /* A queue keeps the input, and no variable changes. */
    assert_read("queue", NULL, NULL, &s);
    assert_string_equal(s.facts.writer, "");
    assert_true(s.facts.keeps);
    saved_signature_done(&s);
    /* Nodes that need each other. */
    assert_read("nodes", NULL, NULL, &s);
    assert_int_equal(s.facts.n_nodes, 3);
    saved_signature_done(&s);
}

static void test_what_tensorflow_cannot_read(void **state)
{
    struct saved_signature s;

    (void)state;
    assert_refused("elements", NULL, NULL, "a constant of more than 2^63 elements");
    assert_refused("rank", NULL, NULL, "a constant of more than 254 dimensions");
    assert_refused("loop", NULL, NULL, "a function that calls itself, by others or at once");
    assert_refused("circle", NULL, NULL, "a function that calls itself, by others or at once");
    /* A function that is passed to another, which may call it. */
    assert_refused("passed", NULL, NULL, "a function that calls itself, by others or at once");
    /* The gradient of a function, which asks for that gradient. */
    assert_refused("gradient", NULL, NULL, "a function that calls itself, by others or at once");
    assert_read("slope", NULL, NULL, &s);
    saved_signature_done(&s);
    assert_refused("nested", NULL, NULL, "is refused: it is damaged");
    assert_refused("deep", NULL, NULL, "its functions call each other more than 256 deep");
    /* Two libraries of functions, which protobuf would join. */
    assert_refused("split", NULL, NULL, "is refused: it is damaged");
    assert_read("large", NULL, NULL, &s);
    saved_signature_done(&s);
    assert_read("calls", NULL, NULL, &s);
    assert_int_equal(s.facts.n_nodes, 5);
    saved_signature_done(&s);
}

static void test_damaged_files(void **state)
{
    (void)state;
    assert_refused("cut", NULL, NULL, "is damaged, or no SavedModel");
    assert_refused("nul", NULL, NULL, "is damaged, or no SavedModel");
    assert_refused("missing", NULL, NULL, "No such file");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tensors),
        cmocka_unit_test(test_tags_and_signatures),
        cmocka_unit_test(test_what_an_execution_does),
        cmocka_unit_test(test_what_tensorflow_cannot_read),
        cmocka_unit_test(test_damaged_files),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
