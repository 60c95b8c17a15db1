/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_script - compiles TorchScript, the functions of a module, and saves the module. Python's
 * PyTorch is not needed. Each job on stdin is a line and as many bytes of script as it says:
 *
 *     BYTES FILE [NAME=D0,D1,…[@VALUES] …]
 *
 * Each NAME is a parameter of that shape, 32-bit floats: those of the file VALUES, or 0, 1, 2, …
 * The answer on stdout is a line: `ok`, or an error.
 */
#include <torch/script.h>

#include <fstream>
#include <iostream>
#include <sstream>

namespace
{

/* Adds the parameter that a text like weight=3,4@/tmp/values tells. */
void add_parameter(torch::jit::Module &module, const std::string &text)
{
    size_t equals = text.find('='), at = std::min(text.find('@'), text.size());
    std::istringstream dimensions(text.substr(equals + 1, at - equals - 1));
    std::vector<int64_t> shape;
    std::string dimension;
    int64_t n = 1;

    while (std::getline(dimensions, dimension, ',')) {
        shape.push_back(std::stoll(dimension));
        n *= shape.back();
    }
    at::Tensor values = at::arange(n, at::kFloat);
    if (at < text.size()) {
        std::ifstream file(text.substr(at + 1), std::ios::binary);

        if (!file.read((char *)values.data_ptr<float>(), n * (std::streamsize)sizeof(float)))
            throw std::runtime_error("cannot read " + text.substr(at + 1));
    }
    module.register_parameter(text.substr(0, equals), values.reshape(shape), false);
}

void do_job(std::istringstream &line, const std::string &script)
{
    torch::jit::Module module("Model");
    std::string file, parameter;

    line >> file;
    while (line >> parameter)
        add_parameter(module, parameter);
    module.define(script);
    module.save(file);
}

} // namespace

int main()
{
    std::string text;

    while (std::getline(std::cin, text)) {
        std::istringstream line(text);
        size_t n = 0;

        line >> n;
        std::string script(n, '\0'), answer = "ok";
        std::cin.read(&script[0], (std::streamsize)n);
        try {
            do_job(line, script);
        } catch (const std::exception &e) {
            answer = e.what();
        }
        for (char &c : answer)
            c = c == '\n' ? ' ' : c;
        std::cout << answer << std::endl;
    }
    return 0;
}
