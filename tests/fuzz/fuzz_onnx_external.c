/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The walk through an ONNX file for the names of other files. Whatever the bytes, the walk ends,
 * and a refusal has a reason with one of two codes.
 */
#include "onnxruntime/external.c"

#include <assert.h>
#include <sys/mman.h>

/* The few helpers of common/ that it needs, so that this target needs no library. */
#include "common/backend.c"
#include "common/doc.c"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int fd = memfd_create("onnx", MFD_CLOEXEC);
    TRITONSERVER_Error *err;
    struct external external;
    char path[64];

    assert(fd >= 0);
    assert(write(fd, data, size) == (ssize_t)size);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    err = external_check(path, &external);
    if (err) {
        TRITONSERVER_Error_Code code = TRITONSERVER_ErrorCode(err);

        assert(code == TRITONSERVER_ERROR_NOT_FOUND || code == TRITONSERVER_ERROR_INVALID_ARG);
        assert(strncmp(TRITONSERVER_ErrorMessage(err), "external data of '", 18) == 0);
    }
    external_done(&external);
    TRITONSERVER_ErrorDelete(err);
    close(fd);
    return 0;
}
