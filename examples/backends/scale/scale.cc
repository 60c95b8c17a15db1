/* SPDX-License-Identifier: Apache-2.0 */
// scale in C++: OUT = IN times the request's parameter `factor` (2 if it has none).
#include <chrono>
#include <cstring>
#include <stdexcept>
#include <string>

#include "triton/core/tritonbackend.h"

namespace
{

// An error of the interface as an exception. It must not leave a function that the server calls.
class Failure : public std::runtime_error
{
  public:
    Failure(TRITONSERVER_Error_Code code, const std::string &text)
        : std::runtime_error(text), code(code)
    {
    }
    const TRITONSERVER_Error_Code code;
};

void check(TRITONSERVER_Error *err)
{
    if (!err)
        return;
    Failure failure(TRITONSERVER_ErrorCode(err), TRITONSERVER_ErrorMessage(err));
    TRITONSERVER_ErrorDelete(err);
    throw failure;
}

uint64_t now_ns()
{
    auto now = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

double read_factor(TRITONBACKEND_Request *request)
{
    uint32_t n;
    check(TRITONBACKEND_RequestParameterCount(request, &n));
    for (uint32_t i = 0; i < n; i++) {
        TRITONSERVER_ParameterType type;
        const void *value;
        const char *key;
        check(TRITONBACKEND_RequestParameter(request, i, &key, &type, &value));
        if (std::string(key) != "factor")
            continue;
        if (type != TRITONSERVER_PARAMETER_DOUBLE)
            throw Failure(TRITONSERVER_ERROR_INVALID_ARG, "factor must be a DOUBLE");
        return *static_cast<const double *>(value);
    }
    return 2;
}

// Compute one request into its response.
void scale(TRITONBACKEND_Request *request, TRITONBACKEND_Response *response)
{
    const double factor = read_factor(request);
    TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
    uint64_t size, done = 0;
    TRITONBACKEND_Output *output;
    TRITONBACKEND_Input *input;
    uint32_t rank, n_buffers;
    const int64_t *shape;
    int64_t memory_id = 0;
    void *to;

    check(TRITONBACKEND_RequestInput(request, "IN", &input));
    check(TRITONBACKEND_InputProperties(input, nullptr, nullptr, &shape, &rank, &size, &n_buffers));
    check(TRITONBACKEND_ResponseOutput(response, &output, "OUT", TRITONSERVER_TYPE_FP32, shape,
                                       rank));
    check(TRITONBACKEND_OutputBuffer(output, &to, size, &memory, &memory_id));
    // The data may come in pieces, and a piece may end anywhere: put them together first.
    for (uint32_t i = 0; i < n_buffers; i++) {
        const void *from;
        uint64_t n;
        check(TRITONBACKEND_InputBuffer(input, i, &from, &n, &memory, &memory_id));
        if (n > 0)
            std::memcpy(static_cast<char *>(to) + done, from, n);
        done += n;
    }
    for (uint64_t i = 0; i < size / sizeof(float); i++) {
        char *at = static_cast<char *>(to) + i * sizeof(float); // may be any address
        float number;
        std::memcpy(&number, at, sizeof(number));
        number *= static_cast<float>(factor);
        std::memcpy(at, &number, sizeof(number));
    }
}

// Nobody waits for these errors: the answer has gone.
void drop(TRITONSERVER_Error *err)
{
    TRITONSERVER_ErrorDelete(err);
}

void run(TRITONBACKEND_ModelInstance *instance, TRITONBACKEND_Request *request)
{
    TRITONBACKEND_Response *response = nullptr;
    TRITONSERVER_Error *err = nullptr;
    const uint64_t start = now_ns();
    try {
        check(TRITONBACKEND_ResponseNew(&response, request));
        scale(request, response);
    } catch (const Failure &f) {
        err = TRITONSERVER_ErrorNew(f.code, f.what());
    } catch (const std::exception &e) {
        err = TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INTERNAL, e.what());
    }
    const uint64_t end = now_ns();
    drop(TRITONBACKEND_ModelInstanceReportStatistics(instance, request, !err, start, start, end,
                                                     end));
    if (response) // taken by the call, whatever it returns; without one the release answers
        drop(TRITONBACKEND_ResponseSend(response, TRITONSERVER_RESPONSE_COMPLETE_FINAL, err));
    drop(err);
    drop(TRITONBACKEND_RequestRelease(request, TRITONSERVER_REQUEST_RELEASE_ALL));
}

} // namespace

// The only function that a backend must have. Its name and linkage are those of the header.
TRITONSERVER_Error *TRITONBACKEND_ModelInstanceExecute(TRITONBACKEND_ModelInstance *instance,
                                                       TRITONBACKEND_Request **requests,
                                                       const uint32_t request_count)
{
    for (uint32_t i = 0; i < request_count; i++)
        run(instance, requests[i]);
    return nullptr;
}
