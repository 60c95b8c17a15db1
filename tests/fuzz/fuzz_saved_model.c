/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The signatures and the graph of a SavedModel. Whatever the bytes, the reading ends, a refusal has
 * a reason with the file's name, and what is found is whole.
 */
#include "tensorflow/saved_model.c"

#include <assert.h>
#include <sys/mman.h>

/* The few helpers that it needs, so that this target needs no library. */
#include "common/backend.c"
#include "common/doc.c"
#include "common/message.c"
#include "tensorflow/graph.c"
#include "tensorflow/graph_check.c"

static void check_side(const struct saved_side *side)
{
    for (size_t i = 0; i < side->n; i++) {
        const struct saved_tensor *t = &side->tensors[i];

        assert(t->name && t->rank <= SAVED_MAX_RANK && (!t->any_rank || t->rank == 0));
        assert(i == 0 || strcmp(side->tensors[i - 1].name, t->name) < 0);
        assert(saved_tensor_named(side, t->name) == t);
        for (size_t d = 0; d < t->rank; d++)
            assert(t->dims[d] >= -1);
    }
}

static void read_and_check(const char *path, const char *tag, const char *signature)
{
    struct saved_signature s = {0};
    TRITONSERVER_Error *err = saved_model_read("m", path, tag, signature, &s);

    if (err) {
        TRITONSERVER_Error_Code code = TRITONSERVER_ErrorCode(err);

        assert(code == TRITONSERVER_ERROR_INVALID_ARG || code == TRITONSERVER_ERROR_UNSUPPORTED);
        assert(strstr(TRITONSERVER_ErrorMessage(err), path));
        assert(!s.name);
        TRITONSERVER_ErrorDelete(err);
        return;
    }
    assert(s.name && s.n_tags > 0 && (!signature || strcmp(s.name, signature) == 0));
    check_side(&s.inputs);
    check_side(&s.outputs);
    saved_signature_done(&s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int fd = memfd_create("model", MFD_CLOEXEC);
    char path[64];

    assert(fd >= 0);
    assert(write(fd, data, size) == (ssize_t)size);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    read_and_check(path, NULL, NULL);
    read_and_check(path, "gpu", "first");
    close(fd);
    return 0;
}
