/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Elements of BYTES tensors, as clients send them. Elements that are read must lie in the data, and
 * must be the same when they are written again.
 */
#include "common/backend.c"
#include "common/bytes.c"
#include "common/doc.c"

#include <assert.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct bytes_reader r = bytes_begin(data, size);
    char *copy = malloc(size + 1), *to = copy;
    TRITONSERVER_Error *err;

    assert(copy);
    for (;;) {
        const char *element;
        uint32_t len;

        err = bytes_next(&r, "IN", &element, &len);
        if (err)
            break;
        assert(element >= (const char *)data && element + len <= (const char *)data + size);
        assert(bytes_size(len) <= size - (size_t)(to - copy));
        to = bytes_put(to, element, len);
    }
    assert(TRITONSERVER_ErrorCode(err) == TRITONSERVER_ERROR_INVALID_ARG);
    TRITONSERVER_ErrorDelete(err);
    assert(memcmp(copy, data, (size_t)(to - copy)) == 0);
    assert((size_t)(to - copy) + r.left == size);

    err = bytes_check("IN", data, size, r.n_read);
    assert(!err == (r.left == 0));
    TRITONSERVER_ErrorDelete(err);
    err = bytes_check("IN", data, size, r.n_read + 1);
    assert(err);
    TRITONSERVER_ErrorDelete(err);
    free(copy);
    return 0;
}
