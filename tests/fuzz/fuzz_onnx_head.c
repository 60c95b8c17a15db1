/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The head of an ONNX file. Whatever the bytes, reading ends; an error has one of its codes, and
 * what is read has its invariants.
 */
#include "core/config/onnx_head.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/status.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect(bool fine)
{
    if (!fine)
        abort();
}

static size_t check_values(const struct onnx_value *values, size_t n)
{
    size_t sum = 0; /* every byte is read, for the sanitizer */
    for (size_t i = 0; i < n; i++) {
        const struct onnx_value *v = &values[i];
        sum += strlen(v->name);
        expect(v->has_shape || v->rank == 0);
        expect(v->kind == ONNX_TENSOR || !v->has_shape);
        expect(!v->has_maps || v->kind == ONNX_MAP || v->kind == ONNX_SEQUENCE);
        for (size_t d = 0; d < v->rank; d++)
            expect(v->dims[d] >= -1);
        onnx_config_type(v->element);
    }
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int fd = memfd_create("onnx", MFD_CLOEXEC);
    struct onnx_head *head = NULL;
    expect(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    struct status *st = onnx_head_read(fd, &head);
    if (st) {
        expect(status_code(st) == STATUS_INVALID_ARG && !head);
    } else {
        size_t sum = check_values(head->inputs, head->n_inputs);
        sum += check_values(head->outputs, head->n_outputs);
        for (size_t i = 0; i < head->n_external; i++)
            sum += strlen(head->external[i].location) + strlen(head->external[i].tensor);
        expect(head->is_partial || sum <= 2 * size);
        expect(head->has_graph || (!head->n_inputs && !head->n_outputs));
    }
    status_free(st);
    onnx_head_free(head);
    close(fd);
    return 0;
}
