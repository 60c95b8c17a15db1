/* SPDX-License-Identifier: Apache-2.0 */
/* Which graphs of OpenVINO's own format are small. tests/system/test_openvino.py loads files that
 * OpenVINO has written. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/backend.c"
#include "common/doc.c"
#include "openvino/ir.c"
#include "openvino/ir_cost.c"

#define DIM(n)       "<dim>" #n "</dim>"
#define SHAPE1(a)    DIM(a)
#define SHAPE2(a, b) DIM(a) DIM(b)
#define TYPED(t, s)  "<port id=\"0\" precision=\"" t "\">" s "</port>"
#define PORT(shape)  TYPED("FP32", shape)
#define LAYER(type, version, data, in, out)                                                        \
    "<layer id=\"1\" name=\"x\" type=\"" type "\" version=\"" version "\">" data "<input>" in      \
    "</input><output>" out "</output></layer>"
#define INPUT(shape)                                                                               \
    "<layer id=\"0\" name=\"x\" type=\"Parameter\" version=\"opset1\"><output>" PORT(              \
        shape) "</output></layer>"
#define NET(layers)             "<?xml version=\"1.0\"?><net name=\"m\"><layers>" layers "</layers></net>"
#define OP(type, data, in, out) NET(INPUT(SHAPE2(-1, 16)) LAYER(type, "opset1", data, in, out))

static uint64_t cost_of(const char *text, int64_t batch)
{
    uint64_t cost = 0;

    return ir_cost_is_small(text, batch, &cost) ? cost : 0;
}

static void the_cost_follows_from_the_batch(void **unused)
{
    const char *sum = OP("Add", "", PORT(SHAPE2(-1, 16)) PORT(SHAPE2(1, 16)), PORT(SHAPE2(-1, 16)));

    (void)unused;
    assert_int_equal(cost_of(sum, 1), 2 * COST_OPERATOR + 2 * 16);
    assert_int_equal(cost_of(sum, 10), 2 * COST_OPERATOR + 2 * 160);
    assert_int_equal(cost_of(sum, 100000), 0);
    assert_int_equal(cost_of(sum, INT64_MAX), 0);
    assert_int_equal(cost_of(sum, 0), 0); /* any number of rows */
    assert_int_equal(cost_of(NET(INPUT(SHAPE2(2, 3))), 0), COST_OPERATOR + 6);
}

static void an_open_dimension_is_the_batch(void **unused)
{
    (void)unused;
    assert_int_equal(cost_of(NET(INPUT(SHAPE2(4, -1))), 4), 0);
    assert_int_equal(cost_of(NET(INPUT(SHAPE2(-1, -1))), 4), 0);
    /* Not that of an input. */
    assert_int_equal(cost_of(OP("Add", "", PORT(SHAPE1(16)), PORT(SHAPE1(-1))), 4), 0);
    /* A row has other elements than before, so there are more rows. */
    assert_int_equal(cost_of(OP("Reshape", "", PORT(SHAPE2(-1, 16)), PORT(SHAPE2(-1, 2))), 4), 0);
    assert_true(cost_of(OP("Reshape", "", PORT(SHAPE2(-1, 16)), PORT(DIM(-1) DIM(2) DIM(8))), 4));
    assert_int_equal(cost_of(OP("Gather", "", PORT(SHAPE2(-1, 16)), PORT(SHAPE2(-1, 2))), 4), 0);
    assert_int_equal(
        cost_of(OP("Concat", "<data axis=\"0\" />", PORT(SHAPE2(-1, 16)), PORT(SHAPE2(-1, 16))), 4),
        0);
    assert_int_equal(
        cost_of(OP("Concat", "<data axis=\"-2\" />", PORT(SHAPE2(-1, 16)), PORT(SHAPE2(-1, 16))),
                4),
        0);
    assert_true(cost_of(
        OP("Concat", "<data axis=\"1\" />", PORT(SHAPE2(-1, 16)), PORT(SHAPE2(-1, 16))), 4));
    /* The batch with itself. */
    assert_int_equal(cost_of(OP("MatMul", "<data transpose_a=\"true\" transpose_b=\"false\" />",
                                PORT(SHAPE2(-1, 16)) PORT(SHAPE2(-1, 16)), PORT(SHAPE2(16, 16))),
                             4),
                     0);
}

static void products_cost_what_each_element_is_made_of(void **unused)
{
    const char *product = OP("MatMul", "<data transpose_a=\"false\" transpose_b=\"false\" />",
                             PORT(SHAPE2(-1, 16)) PORT(SHAPE2(16, 10)), PORT(SHAPE2(-1, 10)));
    const char *window = OP("Convolution", "<data strides=\"1, 1\" />",
                            PORT(DIM(-1) DIM(3) DIM(8) DIM(8)) PORT(DIM(4) DIM(3) DIM(5) DIM(5)),
                            PORT(DIM(-1) DIM(4) DIM(4) DIM(4)));
    const char *groups =
        OP("GroupConvolution", "",
           PORT(DIM(-1) DIM(4) DIM(8) DIM(8)) PORT(DIM(2) DIM(2) DIM(2) DIM(5) DIM(5)),
           PORT(DIM(-1) DIM(4) DIM(4) DIM(4)));
    const char *pool = OP("MaxPool", "<data kernel=\"2, 3\" />", PORT(DIM(-1) DIM(1) DIM(4) DIM(6)),
                          PORT(DIM(-1) DIM(1) DIM(2) DIM(2)));
    uint64_t rest = 2 * COST_OPERATOR + 2 * 16;

    (void)unused;
    assert_int_equal(cost_of(product, 2), rest + 2 * 10 * 16);
    assert_int_equal(cost_of(window, 2), rest + 2 * 4 * 16 * 75);
    assert_int_equal(cost_of(groups, 2), rest + 2 * 4 * 16 * 50);
    assert_int_equal(cost_of(pool, 2), rest + 2 * 4 * 6);
    assert_int_equal(cost_of(OP("MaxPool", "", PORT(SHAPE2(-1, 4)), PORT(SHAPE2(-1, 4))), 2), 0);
    assert_int_equal(cost_of(OP("MaxPool", "<data kernel=\"9999999, 9999999\" />",
                                PORT(SHAPE2(-1, 4)), PORT(SHAPE2(-1, 4))),
                             2),
                     0);
    assert_int_equal(cost_of(OP("MatMul", "", PORT(SHAPE2(16000, 16000)) PORT(SHAPE2(16000, 1)),
                                PORT(SHAPE2(16000, 1))),
                             2),
                     0);
    assert_int_equal(cost_of(OP("MatMul", "", PORT(SHAPE2(-1, 16)), PORT(SHAPE2(-1, 16))), 2), 0);
}

static void other_graphs_are_not_small(void **unused)
{
    static const char sum[] =
        "<input>" PORT(SHAPE1(2)) "</input><output>" PORT(SHAPE1(2)) "</output>";
    char text[512];

    (void)unused;
    assert_true(cost_of(NET(LAYER("Add", "opset1", "", PORT(SHAPE1(2)), PORT(SHAPE1(2)))), 0));
    assert_int_equal(cost_of(NET(LAYER("Add", "mine", "", PORT(SHAPE1(2)), PORT(SHAPE1(2)))), 0),
                     0);
    assert_int_equal(cost_of(NET(LAYER("Add", "opset", "", PORT(SHAPE1(2)), PORT(SHAPE1(2)))), 0),
                     0);
    assert_int_equal(cost_of(NET(LAYER("Loop", "opset5", "", PORT(SHAPE1(2)), PORT(SHAPE1(2)))), 0),
                     0);
    assert_int_equal(
        cost_of(NET(LAYER("Add", "opset1", "<body>", PORT(SHAPE1(2)), PORT(SHAPE1(2)))), 0), 0);
    assert_int_equal(
        cost_of(NET(LAYER("Add", "opset1", "<!-- -->", PORT(SHAPE1(2)), PORT(SHAPE1(2)))), 0), 0);
    assert_int_equal(
        cost_of(NET(LAYER("Add", "opset1", "", TYPED("STRING", SHAPE1(2)), PORT(SHAPE1(2)))), 0),
        0);
    assert_int_equal(cost_of(NET(LAYER("Add", "opset1", "", "", PORT(SHAPE1(2)))), 0), 0);
    assert_int_equal(cost_of(NET(LAYER("Add", "opset1", "", PORT(SHAPE1(0)), PORT(SHAPE1(0)))), 0),
                     0);
    assert_int_equal(cost_of(NET(LAYER("Add", "opset1", "", PORT(SHAPE1(99999999999999999999)),
                                       PORT(SHAPE1(2)))),
                             0),
                     0);
    assert_int_equal(
        cost_of(NET(LAYER("Add", "opset1", "", PORT(SHAPE2(9999999, 9999999)), PORT(SHAPE1(2)))),
                0),
        0);
    assert_int_equal(
        cost_of(NET(LAYER("Add", "opset1", "", PORT("<dim>two</dim>"), PORT(SHAPE1(2)))), 0), 0);
    assert_int_equal(cost_of("", 1), 0);
    assert_int_equal(cost_of("<net>", 1), 0);
    assert_int_equal(cost_of("<dim>1", 1), 0);
    assert_int_equal(cost_of("<layer type=\"Add\" version=\"opset1\"><port precision=\"FP32\">", 1),
                     0);
    /* A layer that ends with the text. */
    snprintf(text, sizeof(text), "<layer type=\"Add\" version=\"opset1\">%s", sum);
    assert_true(cost_of(text, 1));
    snprintf(text, sizeof(text), "<layer type=\"NonZero\" version=\"opset1\">%s", sum);
    assert_int_equal(cost_of(text, 1), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_cost_follows_from_the_batch),
        cmocka_unit_test(an_open_dimension_is_the_batch),
        cmocka_unit_test(products_cost_what_each_element_is_made_of),
        cmocka_unit_test(other_graphs_are_not_small),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
