/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The estimate of the cost of an ONNX file. Whatever the bytes, the estimate ends, and a file that
 * it calls small is small.
 */
#include "common/onnx_cost.c"

#include <assert.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/message.c"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int fd = memfd_create("onnx", MFD_CLOEXEC);
    uint64_t cost;
    char path[64];

    assert(fd >= 0);
    assert(write(fd, data, size) == (ssize_t)size);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    for (int64_t batch = 0; batch < 1000; batch = 16 * batch + 1)
        assert(!onnx_cost_is_small(path, batch, &cost) || cost <= COST_SMALL);
    close(fd);
    return 0;
}
