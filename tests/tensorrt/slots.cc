// SPDX-License-Identifier: Apache-2.0
//
// Compares the positions of backends/tensorrt/trt_api.h with TensorRT's own headers, of release 10
// or 11: each function is called through the class of the headers, on an object whose table counts.
// Built where CONCH_TENSORRT_INCLUDE has NvInfer.h.
#include <NvInferRuntime.h>

#include <cstdio>
#include <cstring>
#include <utility>

#include "tensorrt/trt_api.h"

namespace
{

constexpr int TABLE = 80;
int called;

template <int N> void note()
{
    called = N;
}

template <size_t... N> void fill(trt_function **table, std::index_sequence<N...>)
{
    ((table[N] = note<int(N)>), ...);
}

int failures;

void check(const char *name, int in10, int in11)
{
    const int expected = NV_TENSORRT_MAJOR == 10 ? in10 : in11;

    if (called != expected) {
        std::printf("%s: the headers of TensorRT %d have it at %d, trt_api.h at %d\n", name,
                    NV_TENSORRT_MAJOR, called, expected);
        failures++;
    }
}

// What TensorRT hands out: an object with a destructor, and a pointer to one with the functions.
struct Handed {
    trt_object theirs;
    trt_inner inner;
};

struct Logger : nvinfer1::ILogger {
    void log(Severity severity, const char *text) noexcept override
    {
        called = text == nullptr ? int(severity) : -1;
    }
};

struct Allocator : nvinfer1::IOutputAllocator {
    void *reallocateOutputAsync(const char *, void *, uint64_t, uint64_t, cudaStream_t) override
    {
        return &called;
    }
    void notifyShape(const char *, const nvinfer1::Dims &dims) noexcept override
    {
        called = dims.nbDims;
    }
};

} // namespace

int main()
{
    static trt_function *table[TABLE];
    Handed handed = {{table, &handed.inner}, {table}};
    auto *runtime = reinterpret_cast<nvinfer1::IRuntime *>(&handed);
    auto *engine = reinterpret_cast<nvinfer1::ICudaEngine *>(&handed);
    auto *context = reinterpret_cast<nvinfer1::IExecutionContext *>(&handed);
    auto position = [](const char *name) {
        static const struct {
            const char *name;
            int in10, in11;
        } all[] = {
#define SLOT(name, in10, in11, result, parameters) {#name, in10, in11},
            TRT_SLOTS(SLOT)};
        for (const auto &one : all)
            if (std::strcmp(one.name, name) == 0)
                check(name, one.in10, one.in11);
    };

    fill(table, std::make_index_sequence<TABLE>());
    // clang-format off
#define CHECK(name, call) (called = -1, (void)(call), position(#name))
    CHECK(runtime_deserialize, runtime->deserializeCudaEngine("x", 1));
    called = -1; runtime->setDLACore(1); position("runtime_set_dla_core");
    CHECK(runtime_n_dla_cores, runtime->getNbDLACores());
    called = -1; runtime->setEngineHostCodeAllowed(true); position("runtime_allow_host_code");
    CHECK(engine_new_context, engine->createExecutionContext(nvinfer1::ExecutionContextAllocationStrategy::kSTATIC));
    CHECK(engine_n_profiles, engine->getNbOptimizationProfiles());
    CHECK(engine_shape, engine->getTensorShape("x"));
    CHECK(engine_type, engine->getTensorDataType("x"));
    CHECK(engine_place, engine->getTensorLocation("x"));
    CHECK(engine_is_shape, engine->isShapeInferenceIO("x"));
    CHECK(engine_mode, engine->getTensorIOMode("x"));
    CHECK(engine_format, engine->getTensorFormat("x"));
    CHECK(engine_profile_shape, engine->getProfileShape("x", 0, nvinfer1::OptProfileSelector::kMAX));
    CHECK(engine_n_tensors, engine->getNbIOTensors());
    CHECK(engine_tensor_name, engine->getIOTensorName(0));
#if NV_TENSORRT_MAJOR > 10 || NV_TENSORRT_MINOR > 0
    CHECK(engine_device_memory, engine->getDeviceMemorySizeV2());
#endif
    CHECK(context_all_specified, context->allInputDimensionsSpecified());
    CHECK(context_set_profile, context->setOptimizationProfileAsync(0, nullptr));
    CHECK(context_set_shape, context->setInputShape("x", nvinfer1::Dims{}));
    CHECK(context_shape, context->getTensorShape("x"));
    CHECK(context_set_address, context->setTensorAddress("x", nullptr));
    CHECK(context_set_allocator, context->setOutputAllocator("x", nullptr));
    CHECK(context_enqueue, context->enqueueV3(nullptr));
    // clang-format on
    called = -1;
    delete runtime;
    if (called != TRT_DELETE) {
        std::printf("delete calls %d, not %d\n", called, TRT_DELETE);
        failures++;
    }

    // Their side of the objects that are ours: the positions of the functions that TensorRT calls.
    Logger logger;
    auto *told = reinterpret_cast<trt_inner *>(static_cast<nvinfer1::ILogger *>(&logger));
    called = -1;
    reinterpret_cast<void (*)(trt_inner *, int32_t, const char *)>(
        told->table[NV_TENSORRT_MAJOR == 10 ? 0 : 4])(told, TRT_WARNING, nullptr);
    if (called != TRT_WARNING) {
        std::puts("a logger's log() is elsewhere");
        failures++;
    }
    Allocator allocator;
    auto *asked =
        reinterpret_cast<trt_inner *>(static_cast<nvinfer1::IOutputAllocator *>(&allocator));
    trt_dims dims = {3, {1, 2, 3}};
    void *at =
        reinterpret_cast<void *(*)(trt_inner *, const char *, void *, uint64_t, uint64_t, void *)>(
            asked->table[5])(asked, "x", nullptr, 1, 1, nullptr);
    reinterpret_cast<void (*)(trt_inner *, const char *, const trt_dims *)>(asked->table[6])(
        asked, "x", &dims);
    if (at != &called || called != 3) {
        std::puts("an allocator's functions are elsewhere");
        failures++;
    }
    const auto info = reinterpret_cast<trt_interface (*)(trt_inner *)>(asked->table[1])(asked);
    if (std::strcmp(info.kind, "IOutputAllocator") != 0 || info.major != 1 || info.minor != 0) {
        std::puts("an interface tells of itself in another way");
        failures++;
    }
    static_assert(sizeof(trt_dims) == sizeof(nvinfer1::Dims) && sizeof(nvinfer1::Dims) == 72);
    static_assert(int(nvinfer1::DataType::kINT64) == TRT_INT64 &&
                  int(nvinfer1::DataType::kBF16) == TRT_BF16 &&
                  int(nvinfer1::DataType::kUINT8) == TRT_UINT8 &&
                  int(nvinfer1::DataType::kBOOL) == TRT_BOOL);
    static_assert(int(nvinfer1::TensorIOMode::kINPUT) == TRT_INPUT &&
                  int(nvinfer1::TensorLocation::kHOST) == TRT_ON_HOST);
    static_assert(int(nvinfer1::OptProfileSelector::kMAX) == TRT_MAX &&
                  int(nvinfer1::TensorFormat::kLINEAR) == TRT_LINEAR);
    std::printf("TensorRT %d.%d: %d differences\n", NV_TENSORRT_MAJOR, NV_TENSORRT_MINOR, failures);
    return failures != 0;
}
