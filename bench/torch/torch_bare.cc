/* SPDX-License-Identifier: Apache-2.0 */
/* torch_bare - see torch_bare.h. */
#include "torch_bare.h"

#include <ATen/Parallel.h>
#include <torch/script.h>

#include <map>
#include <string>

struct torch_bare {
    torch::jit::Module module;
    std::vector<at::Tensor> inputs;
    std::map<int64_t, std::vector<torch::jit::IValue>> ready; /* by the number of rows */
};

struct torch_bare *torch_bare_open(const char *path, float *const *inputs, size_t n_inputs,
                                   int64_t rows, int64_t columns, const char **ret_error)
{
    static std::string error;

    try {
        c10::InferenceMode inference;
        auto *bare = new torch_bare{torch::jit::load(path), {}, {}};

        for (size_t i = 0; i < n_inputs; i++)
            bare->inputs.push_back(at::from_blob(inputs[i], {rows, columns}));
        return bare;
    } catch (const std::exception &e) {
        error = e.what();
        *ret_error = error.c_str();
    }
    return nullptr;
}

void torch_bare_run(void *of, int64_t n)
{
    static thread_local bool started;
    c10::InferenceMode inference;
    auto *bare = (torch_bare *)of;
    auto &ready = bare->ready[n];

    if (!started)
        at::set_num_threads(1); /* of this thread */
    started = true;
    for (size_t i = ready.size(); i < bare->inputs.size(); i++)
        ready.push_back(bare->inputs[i].narrow(0, 0, n));
    bare->module.forward(ready);
}
