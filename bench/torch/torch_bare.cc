/* SPDX-License-Identifier: Apache-2.0 */
/* torch_bare - see torch_bare.h. One model, one thread. */
#include "torch_bare.h"

#include <torch/script.h>

#include <map>
#include <string>

static torch::jit::Module module;
static at::Tensor first, second;
static std::map<int64_t, std::vector<torch::jit::IValue>> inputs; /* by the number of rows */

const char *torch_bare_open(const char *path, float *a, float *b, int64_t rows, int64_t columns)
{
    static std::string error;

    try {
        c10::InferenceMode inference;

        module = torch::jit::load(path);
        first = at::from_blob(a, {rows, columns});
        second = at::from_blob(b, {rows, columns});
    } catch (const std::exception &e) {
        error = e.what();
        return error.c_str();
    }
    return nullptr;
}

void torch_bare_run(int64_t n)
{
    c10::InferenceMode inference;
    auto &ready = inputs[n];

    if (ready.empty())
        ready = {first.narrow(0, 0, n), second.narrow(0, 0, n)};
    module.forward(ready);
}
