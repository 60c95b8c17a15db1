/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The functions are looked for under the names that the driver exports. Their types are declared
 * here, as the driver's ABI has them, so that no header of CUDA is needed. Constant once started.
 */
#include "base/cuda.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>

#include "base/compiler.h"
#include "base/log.h"

static struct cuda_driver driver;
static int n_devices;

static bool find_functions(void *library)
{
    const struct {
        const char *name;
        void *slot; /* a pointer to a function */
    } wanted[] = {
        {"cuInit", &driver.init},
        {"cuDeviceGetCount", &driver.count_devices},
        {"cuDeviceGet", &driver.get_device},
        {"cuDevicePrimaryCtxRetain", &driver.retain_context},
        {"cuDevicePrimaryCtxRelease_v2", &driver.release_context},
        {"cuCtxPushCurrent_v2", &driver.push_context},
        {"cuCtxPopCurrent_v2", &driver.pop_context},
        {"cuIpcOpenMemHandle_v2", &driver.open_handle},
        {"cuIpcCloseMemHandle", &driver.close_handle},
        {"cuMemGetAddressRange_v2", &driver.get_range},
        {"cuMemcpyDtoH_v2", &driver.copy_to_host},
        {"cuMemcpyHtoD_v2", &driver.copy_to_device},
        {"cuGetErrorString", &driver.describe},
    };
    for (size_t i = 0; i < ARRAY_SIZE(wanted); i++) {
        void *address = dlsym(library, wanted[i].name);
        if (!address) {
            log_verbose(1, "no GPUs are used: the driver has no function %s", wanted[i].name);
            return false;
        }
        *(void **)wanted[i].slot = address;
    }
    return true;
}

const char *cuda_result_text(cuda_result result)
{
    const char *text = NULL;
    if (driver.describe(result, &text) != 0 || !text)
        return "unknown error";
    return text;
}

static void start_driver(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    int n = 0;
    if (!library) {
        log_verbose(1, "no GPUs are used: %s", dlerror());
        return;
    }
    if (!find_functions(library))
        return;
    cuda_result result = driver.init(0);
    if (result == 0)
        result = driver.count_devices(&n);
    if (result != 0)
        log_verbose(1, "no GPUs are used: the driver does not start: %s", cuda_result_text(result));
    else if (n > 0)
        n_devices = n;
}

int cuda_count_devices(void)
{
    static pthread_once_t started = PTHREAD_ONCE_INIT;
    pthread_once(&started, start_driver);
    return n_devices;
}

const struct cuda_driver *cuda_driver(void)
{
    return &driver;
}
