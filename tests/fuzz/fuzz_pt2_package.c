/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Packages of AOTInductor before their code is loaded. The first byte chooses: the whole package,
 * or the code alone. Whatever the bytes, the check ends inside of them, and a refusal has a reason.
 */
#include "common/backend.c"
#include "common/doc.c"
#include "common/libarchive.c"
#include "pytorch/code.c"
#include "pytorch/package.c"

#include <assert.h>

static void end_refusal(TRITONSERVER_Error *err)
{
    assert(*TRITONSERVER_ErrorMessage(err));
    TRITONSERVER_ErrorDelete(err);
}

static void check_code_alone(const uint8_t *data, size_t size)
{
    unsigned char *copy = malloc(size + 1);
    TRITONSERVER_Error *err;

    assert(copy);
    memcpy(copy, data, size);
    err = code_check(copy, size, "x86_64");
    if (err)
        end_refusal(err);
    free(copy);
}

static void check_package(const uint8_t *data, size_t size)
{
    static char features[] = " avx2 fma f16c avx512_vnni ";
    const struct processor processor = {.machine = "x86_64", .features = features};
    int fd = memfd_create("package", MFD_CLOEXEC);
    struct package package;
    TRITONSERVER_Error *err;
    char path[64];

    assert(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    err = package_open(path, &processor, &package);
    if (err) {
        end_refusal(err);
    } else {
        assert(package.size > 0 && package.size <= size * MAX_GROWTH);
        package_close(&package);
    }
    close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    if (data[0] % 2 == 0)
        check_code_alone(data + 1, size - 1);
    else
        check_package(data + 1, size - 1);
    return 0;
}
