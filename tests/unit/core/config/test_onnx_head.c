/* SPDX-License-Identifier: Apache-2.0 */
#include "core/config/onnx_head.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/pbwire.h"
#include "base/status.h"

#define CORPUS CONCH_SOURCE_DIR "/tests/fuzz/corpus/onnx_head/"

static struct status *read_file_head(const char *name, struct onnx_head **ret_head)
{
    char path[512];
    int fd;
    snprintf(path, sizeof(path), CORPUS "%s", name);
    assert_null(file_open(path, 0, &fd));
    struct status *st = onnx_head_read(fd, ret_head);
    close(fd);
    return st;
}

static struct onnx_head *head_of(const char *name)
{
    struct onnx_head *head;
    assert_null(read_file_head(name, &head));
    assert_false(head->is_partial);
    assert_true(head->has_graph);
    return head;
}

static struct status *read_bytes_head(const char *bytes, size_t n_bytes,
                                      struct onnx_head **ret_head)
{
    int fd = memfd_create("onnx", MFD_CLOEXEC);
    assert_int_equal(write(fd, bytes, n_bytes), n_bytes);
    struct status *st = onnx_head_read(fd, ret_head);
    close(fd);
    return st;
}

static void assert_value(const struct onnx_value *v, const char *name, const char *type, int rank,
                         int64_t first)
{
    assert_string_equal(v->name, name);
    assert_int_equal(v->kind, ONNX_TENSOR);
    assert_string_equal(onnx_config_type(v->element), type);
    assert_int_equal(v->has_shape, rank >= 0);
    assert_int_equal(v->rank, rank < 0 ? 0 : rank);
    if (rank > 0)
        assert_int_equal(v->dims[0], first);
}

static void a_model_has_names_types_shapes_and_versions(void **state)
{
    (void)state;
    struct onnx_head *h = head_of("identity");
    assert_int_equal(h->ir_version, 8);
    assert_int_equal(h->opset, 18);
    assert_int_equal(h->n_inputs, 1);
    assert_int_equal(h->n_outputs, 1);
    assert_value(&h->inputs[0], "x", "TYPE_FP32", 2, -1);
    assert_int_equal(h->inputs[0].dims[1], 3);
    assert_value(&h->outputs[0], "y", "TYPE_FP32", 2, -1);
    onnx_head_free(h);
    h = head_of("scalar");
    assert_value(&h->inputs[0], "x", "TYPE_FP64", 0, 0);
    onnx_head_free(h);
    h = head_of("group"); /* an unknown group in front */
    assert_value(&h->inputs[0], "x", "TYPE_FP32", 2, -1);
    onnx_head_free(h);
}

static void what_the_file_leaves_open_is_open(void **state)
{
    (void)state;
    struct onnx_head *h = head_of("untyped");
    assert_value(&h->inputs[0], "x", "TYPE_FP32", -1, 0);
    assert_int_equal(h->outputs[0].kind, ONNX_UNTYPED);
    assert_null(onnx_config_type(h->outputs[0].element));
    onnx_head_free(h);
    h = head_of("complex");
    assert_int_equal(h->inputs[0].element, 14);
    assert_null(onnx_config_type(14));
    onnx_head_free(h);
}

static void inputs_with_a_value_in_the_file_are_known(void **state)
{
    (void)state;
    static const char *const names[] = {"default", "old_default"};
    for (size_t i = 0; i < 2; i++) {
        struct onnx_head *h = head_of(names[i]);
        assert_int_equal(h->n_inputs, 2);
        assert_false(h->inputs[0].has_default);
        assert_true(h->inputs[1].has_default);
        onnx_head_free(h);
    }
}

static void other_kinds_of_values_are_told_apart(void **state)
{
    (void)state;
    struct onnx_head *h = head_of("zipmap");
    assert_value(&h->outputs[0], "label", "TYPE_INT64", 1, -1);
    assert_int_equal(h->outputs[1].kind, ONNX_SEQUENCE);
    assert_true(h->outputs[1].has_maps);
    onnx_head_free(h);
    h = head_of("optional"); /* of a tensor, of a sequence */
    assert_value(&h->inputs[0], "x", "TYPE_INT64", 2, 2);
    assert_int_equal(h->outputs[0].kind, ONNX_SEQUENCE);
    assert_false(h->outputs[0].has_maps);
    onnx_head_free(h);
}

static void files_with_the_data_of_tensors_are_listed_once(void **state)
{
    (void)state;
    struct onnx_head *h = head_of("external");
    assert_int_equal(h->n_external, 1);
    assert_string_equal(h->external[0].location, "weights.bin");
    assert_string_equal(h->external[0].tensor, "c");
    onnx_head_free(h);
    h = head_of("external_inside"); /* in both branches of a node */
    assert_int_equal(h->n_external, 1);
    assert_string_equal(h->external[0].location, "sub/weights.bin");
    onnx_head_free(h);
}

static void assert_refused(struct status *st, const char *begin)
{
    assert_non_null(st);
    assert_int_equal(status_code(st), STATUS_INVALID_ARG);
    assert_memory_equal(status_message(st), begin, strlen(begin));
    status_free(st);
}

static void what_is_no_model_is_refused(void **state)
{
    (void)state;
    struct onnx_head *h;
    assert_refused(read_bytes_head("", 0, &h), "the file is empty");
    assert_refused(read_file_head("text", &h), "the file is no ONNX model: at byte ");
    assert_refused(read_file_head("cut", &h), "the file is cut short: it has ");
}

/* Each beginning of a file is refused, or has no graph, or no import, which comes last. */
static void no_beginning_of_a_file_passes_as_the_file(void **state)
{
    (void)state;
    AUTO(buf) whole = BUF_INIT(1 << 16);
    assert_null(file_read(CORPUS "external", &whole));
    for (size_t n = 0; n < whole.size; n++) {
        struct onnx_head *h = NULL;
        struct status *st = read_bytes_head(buf_text(&whole), n, &h);
        assert_true(st || !h->has_graph || !h->has_imports);
        status_free(st);
        onnx_head_free(h);
    }
}

/* The weights are skipped: a file of 8 GiB, of which only the first bytes exist, is read at once.
 */
static void weights_are_not_read(void **state)
{
    (void)state;
    const size_t weights = (size_t)8 << 30;
    char head[4 * PBWIRE_MAX_VARINT], *at = head;
    struct onnx_head *h;
    /* ModelProto.graph.initializer.raw_data */
    size_t tensor = pbwire_bytes_size(9, weights), graph = pbwire_bytes_size(5, tensor);
    at = pbwire_put_head(at, 7, graph);
    at = pbwire_put_head(at, 5, tensor);
    at = pbwire_put_head(at, 9, weights);
    int fd = memfd_create("onnx", MFD_CLOEXEC);
    assert_int_equal(write(fd, head, (size_t)(at - head)), at - head);
    assert_int_equal(ftruncate(fd, (at - head) + (off_t)weights), 0);
    assert_null(onnx_head_read(fd, &h));
    assert_true(h->has_graph);
    onnx_head_free(h);
    /* One byte less. */
    assert_int_equal(ftruncate(fd, (at - head) + (off_t)weights - 1), 0);
    assert_refused(onnx_head_read(fd, &h), "the file is cut short: it has ");
    close(fd);
}

static void limits_leave_out_and_say_so(void **state)
{
    (void)state;
    enum { N = 70000 };
    AUTO(buf) graph = BUF_INIT(4 << 20);
    for (int i = 0; i < N; i++)
        buf_add(&graph, "\x5a\x03\x0a\x01x", 5); /* input { name: "x" } */
    AUTO(buf) model = BUF_INIT(5 << 20);
    char head[16];
    buf_add(&model, head, (size_t)(pbwire_put_head(head, 7, graph.size) - head));
    buf_add(&model, graph.data, graph.size);
    struct onnx_head *h;
    assert_null(read_bytes_head(model.data, model.size, &h));
    assert_true(h->is_partial);
    assert_int_equal(h->n_inputs, 1 << 16);
    onnx_head_free(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_model_has_names_types_shapes_and_versions),
        cmocka_unit_test(what_the_file_leaves_open_is_open),
        cmocka_unit_test(inputs_with_a_value_in_the_file_are_known),
        cmocka_unit_test(other_kinds_of_values_are_told_apart),
        cmocka_unit_test(files_with_the_data_of_tensors_are_listed_once),
        cmocka_unit_test(what_is_no_model_is_refused),
        cmocka_unit_test(no_beginning_of_a_file_passes_as_the_file),
        cmocka_unit_test(weights_are_not_read),
        cmocka_unit_test(limits_leave_out_and_say_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
