/* SPDX-License-Identifier: Apache-2.0 */
/* The layouts that files of OpenVINO have. tests/system/test_openvino.py loads files that OpenVINO
 * has written. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/backend.c"
#include "common/doc.c"
#include "openvino/ir.c"
#include "openvino/layout.c"

#define LAYOUT(text)                                                                               \
    "<rt_info><attribute name=\"layout\" version=\"0\" layout=\"" text "\" /></rt_info>"

#define INPUT(id, layout)                                                                          \
    "<layer id=\"" id "\" name=\"x" id "\" type=\"Parameter\" version=\"opset1\"><output><port "   \
    "id=\"0\"><dim>-1</dim>" layout "</port></output></layer>"
#define RELU(id, layout)                                                                           \
    "<layer id=\"" id "\" name=\"y\" type=\"ReLU\" version=\"opset1\"><input><port id=\"0\">"      \
    "</port></input><output><port id=\"1\">" layout "</port></output></layer>"
#define RESULT(id)                                                                                 \
    "<layer id=\"" id "\" name=\"r\" type=\"Result\" version=\"opset1\"><input><port id=\"0\">"    \
    "</port></input></layer>"
#define EDGE(from, port, to)                                                                       \
    "<edge from-layer=\"" from "\" from-port=\"" port "\" to-layer=\"" to "\" to-port=\"0\" />"
#define NET(layers, edges)                                                                         \
    "<net name=\"m\" version=\"11\"><layers>" layers "</layers><edges>" edges "</edges></net>"
#define EDGES EDGE("0", "0", "1") EDGE("1", "1", "2")

static bool file_has_batch(const char *path)
{
    bool has = true;

    assert_null(layout_has_batch(path, &has));
    return has;
}

static bool has_batch(const char *text)
{
    char path[] = "/tmp/test_layout_XXXXXX.xml";
    int fd = mkstemps(path, 4);
    size_t len = strlen(text), at = 0;
    bool has;

    assert_true(fd >= 0);
    while (at < len) {
        ssize_t n = write(fd, text + at, len - at);

        assert_true(n > 0);
        at += (size_t)n;
    }
    close(fd);
    has = file_has_batch(path);
    unlink(path);
    return has;
}

static void all_tensors_need_the_layout(void **unused)
{
    (void)unused;
    assert_true(has_batch(
        NET(INPUT("0", LAYOUT("[N,C]")) RELU("1", LAYOUT("[N,...]")) RESULT("2"), EDGES)));
    assert_false(has_batch(NET(INPUT("0", LAYOUT("[N,C]")) RELU("1", "") RESULT("2"), EDGES)));
    assert_false(has_batch(NET(INPUT("0", "") RELU("1", LAYOUT("[N,C]")) RESULT("2"), EDGES)));
    assert_false(
        has_batch(NET(INPUT("0", LAYOUT("[C,N]")) RELU("1", LAYOUT("[N,C]")) RESULT("2"), EDGES)));
    assert_false(has_batch(NET(
        INPUT("0", LAYOUT("[N,C]")) INPUT("3", "") RELU("1", LAYOUT("[N,C]")) RESULT("2"), EDGES)));
}

static void an_output_has_the_layout_of_its_own_port(void **unused)
{
    (void)unused;
    /* Of the input, not of what was computed. */
    assert_true(
        has_batch(NET(INPUT("0", LAYOUT("[N]")) RELU("1", "") RESULT("2"), EDGE("0", "0", "2"))));
    assert_false(has_batch(
        NET(INPUT("0", LAYOUT("[N]")) RELU("1", LAYOUT("[N]")) RESULT("2"), EDGE("1", "7", "2"))));
    assert_false(
        has_batch(NET(INPUT("0", LAYOUT("[N]")) RELU("1", LAYOUT("[N]")) RESULT("2"), "")));
}

static void bodies_of_loops_do_not_count(void **unused)
{
    (void)unused;
    assert_true(has_batch(NET(
        INPUT("0", LAYOUT("[N]")) "<layer id=\"1\" type=\"Loop\"><output><port id=\"1\">" LAYOUT("[N]") "</port></output><body><layers>" INPUT(
            "0", "") "<body></body>" INPUT("1", "") "</layers></body></layer>" RESULT("2"),
        EDGES)));
}

static void other_files_have_none(void **unused)
{
    (void)unused;
    assert_false(has_batch(""));
    assert_false(has_batch("<layer "));
    assert_false(has_batch("<layer type=\"Parameter\""));
    assert_false(has_batch("<net><body><layer id=\"0\" type=\"Parameter\""));
    assert_false(has_batch(NET("", "")));
    assert_false(file_has_batch("/tmp/model.onnx"));
    assert_false(file_has_batch("xml"));
    assert_false(file_has_batch("/nowhere/model.xml"));
}

/* A layer with as many outputs as the model: to search the layers, the edges or the ports for each
 * of them would take hours. */
static void the_time_grows_with_the_file_alone(void **unused)
{
    enum { N = 100000, MOST_CPU_S = 20 };
    char *text = NULL;
    size_t len;
    clock_t began;

    (void)unused;
    for (int n_layouts = N - 1; n_layouts <= N; n_layouts++) {
        FILE *f = open_memstream(&text, &len);

        assert_non_null(f);
        fputs("<net><layers><layer id=\"0\" type=\"Split\"><output>", f);
        for (int i = 0; i < N; i++)
            fprintf(f, "<port id=\"%d\">%s</port>", i, i < n_layouts ? LAYOUT("[N,C]") : "");
        fputs("</output></layer>", f);
        for (int i = 0; i < N; i++)
            fprintf(f, "<layer id=\"%d\" type=\"Result\" />", i + 1);
        fputs("</layers><edges>", f);
        for (int i = 0; i < N; i++)
            fprintf(f, "<edge from-layer=\"0\" from-port=\"%d\" to-layer=\"%d\" />", i, i + 1);
        fputs("</edges></net>", f);
        assert_int_equal(fclose(f), 0);
        began = clock();
        assert_int_equal(has_batch(text), n_layouts == N);
        assert_true(clock() - began < (clock_t)MOST_CPU_S * CLOCKS_PER_SEC);
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_tensors_need_the_layout),
        cmocka_unit_test(an_output_has_the_layout_of_its_own_port),
        cmocka_unit_test(bodies_of_loops_do_not_count),
        cmocka_unit_test(other_files_have_none),
        cmocka_unit_test(the_time_grows_with_the_file_alone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
