/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shim - see shim.h. Everything that may throw is called by guard(), which makes a text of it.
 */
#include "pytorch/shim/shim.h"

#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <torch/csrc/jit/ir/alias_analysis.h>
#include <torch/csrc/jit/passes/inliner.h>
#include <torch/csrc/jit/passes/tensorexpr_fuser.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/csrc/jit/runtime/profiling_graph_executor_impl.h>
#include <torch/script.h>
#include <torch/version.h>

#include <algorithm>
#include <cstring>
#include <list>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace
{

using torch::jit::IValue;

/* ---- Errors ---------------------------------------------------------------------------------- */

/* One line; of an error of the interpreter, which begins with a trace of the script, the last. */
char *copy_text(const std::string &text)
try {
    std::string line;
    size_t end = text.find_last_not_of(" \n"), from = 0;
    bool blank = false;

    if (text.find("The following operation failed") != text.npos && end != text.npos)
        if (text.rfind("Error: ", end) != text.npos)
            from = text.rfind('\n', text.rfind("Error: ", end)) + 1;
    for (size_t i = from; i < text.size() && line.size() < 1000; i++) {
        if (text[i] == '\n' || text[i] == ' ' || text[i] == '\t') {
            blank = true;
            continue;
        }
        if (blank && !line.empty())
            line += ' ';
        blank = false;
        line += text[i];
    }
    return strdup(line.c_str());
} catch (const std::bad_alloc &) {
    return strdup("out of memory");
}

template <typename F> char *guard(F f)
{
    try {
        f();
        return nullptr;
    } catch (const c10::Error &e) {
        return copy_text(e.what_without_backtrace());
    } catch (const std::bad_alloc &) {
        return strdup("out of memory");
    } catch (const std::exception &e) {
        return copy_text(e.what());
    } catch (...) {
        return strdup("an unknown exception");
    }
}

/* ---- Types ----------------------------------------------------------------------------------- */

const struct {
    TRITONSERVER_DataType server;
    at::ScalarType torch;
} types[] = {
    {TRITONSERVER_TYPE_BOOL, at::kBool},  {TRITONSERVER_TYPE_UINT8, at::kByte},
    {TRITONSERVER_TYPE_INT8, at::kChar},  {TRITONSERVER_TYPE_INT16, at::kShort},
    {TRITONSERVER_TYPE_INT32, at::kInt},  {TRITONSERVER_TYPE_INT64, at::kLong},
    {TRITONSERVER_TYPE_FP16, at::kHalf},  {TRITONSERVER_TYPE_BF16, at::kBFloat16},
    {TRITONSERVER_TYPE_FP32, at::kFloat}, {TRITONSERVER_TYPE_FP64, at::kDouble},
};

at::ScalarType torch_type(TRITONSERVER_DataType type)
{
    for (const auto &t : types)
        if (t.server == type)
            return t.torch;
    throw std::invalid_argument("a data type that PyTorch does not have");
}

TRITONSERVER_DataType server_type(at::ScalarType type)
{
    for (const auto &t : types)
        if (t.torch == type)
            return t.server;
    return TRITONSERVER_TYPE_INVALID;
}

/* ---- Models ---------------------------------------------------------------------------------- */

struct Model : shim_model {
    torch::jit::Module module;
    std::unique_ptr<torch::jit::Method> forward;
    std::vector<shim_argument> list;
    std::vector<std::string> texts;
    bool only_tensors; /* each argument is one */
};

shim_kind kind_of(const c10::Type &type)
{
    switch (type.kind()) {
    case c10::TypeKind::TensorType:
        return SHIM_TENSOR;
    case c10::TypeKind::ListType:
        return type.containedTypes()[0]->kind() == c10::TypeKind::StringType ? SHIM_STRINGS
                                                                             : SHIM_OTHER;
    case c10::TypeKind::DictType:
        return type.containedTypes()[0]->kind() == c10::TypeKind::StringType &&
                       type.containedTypes()[1]->kind() == c10::TypeKind::TensorType
                   ? SHIM_DICT
                   : SHIM_OTHER;
    case c10::TypeKind::OptionalType:
        return kind_of(*type.containedTypes()[0]) == SHIM_TENSOR ? SHIM_TENSOR : SHIM_OTHER;
    default:
        return SHIM_OTHER;
    }
}

/* The file says where in its storage a tensor lies; PyTorch believes it. */
void check_bounds(const at::Tensor &t)
{
    if (!t.defined() || !t.has_storage() || t.numel() == 0)
        return;
    uint64_t last = (uint64_t)t.storage_offset(), bytes;
    bool bad = t.storage_offset() < 0;

    for (int64_t d = 0; d < t.dim() && !bad; d++) {
        uint64_t step;

        bad = t.size(d) < 0 || t.stride(d) < 0 ||
              __builtin_mul_overflow((uint64_t)t.size(d) - 1, (uint64_t)t.stride(d), &step) ||
              __builtin_add_overflow(last, step, &last);
    }
    bad = bad || __builtin_mul_overflow(last + 1, (uint64_t)t.element_size(), &bytes) ||
          bytes > t.storage().nbytes();
    if (bad)
        throw std::invalid_argument("a tensor of " + c10::str(t.sizes()) + " lies outside of the " +
                                    std::to_string(t.storage().nbytes()) +
                                    " bytes that the file has for it");
}

void check_constants(const torch::jit::Block *block)
{
    for (const auto *node : block->nodes()) {
        if (node->kind() == torch::jit::prim::Constant)
            for (auto name : node->attributeNames())
                if (node->kindOf(name) == torch::jit::AttributeKind::t)
                    check_bounds(node->t(name));
        for (const auto *inner : node->blocks())
            check_constants(inner);
    }
}

/* Memory counts once, however many tensors lie in it, and whatever shapes they claim. */
void check_tensors(Model &m, const torch::jit::Graph &graph)
{
    std::set<const void *> counted;

    IValue(m.module._ivalue()).visit([&](const IValue &v) {
        if (v.isTensor()) {
            const at::Tensor &t = v.toTensor();

            check_bounds(t);
            if (t.defined() && t.has_storage() &&
                counted.insert(t.storage().unsafeGetStorageImpl()).second)
                m.size += t.storage().nbytes();
        }
        return false;
    });
    check_constants(graph.block());
}

/* May a node of the graph write anything? */
bool writes_anything(const torch::jit::Block *block, const torch::jit::AliasDb &aliases)
{
    for (auto *node : const_cast<torch::jit::Block *>(block)->nodes()) {
        if (aliases.isMutable(node))
            return true;
        for (const auto *inner : node->blocks())
            if (writes_anything(inner, aliases))
                return true;
    }
    return false;
}

/* Looks for what writes attributes, also by operators that write in place. */
bool writes_attributes(const torch::jit::Block *block, const torch::jit::AliasDb &aliases)
{
    for (const auto *node : block->nodes()) {
        if (node->kind() == torch::jit::prim::SetAttr ||
            node->kind() == torch::jit::prim::CallMethod)
            return true;
        if (node->kind() == torch::jit::prim::GetAttr && aliases.hasWriters(node->output()))
            return true;
        for (const auto *inner : node->blocks())
            if (writes_attributes(inner, aliases))
                return true;
    }
    return false;
}

bool trains(const torch::jit::Module &module)
{
    for (const auto &m : module.modules())
        if (m.hasattr("training") && m.attr("training").toBool())
            return true;
    return false;
}

void find_writers(Model &m, std::shared_ptr<torch::jit::Graph> graph)
{
    m.writes_itself = m.writes_argument = true;
    char *error = guard([&] {
        torch::jit::AliasDb aliases(graph);
        bool argument = false;

        for (size_t i = 1; i < graph->inputs().size(); i++)
            argument = argument || aliases.hasWriters(graph->inputs()[i]);
        /* It is not known which members of a dictionary are written. */
        if (m.n_arguments == 1 && m.list[0].kind == SHIM_DICT)
            argument = argument || writes_anything(graph->block(), aliases);
        m.writes_argument = argument;
        /* Batch normalisation that trains writes its statistics, which its schema does not say. */
        m.writes_itself = trains(m.module) || writes_attributes(graph->block(), aliases);
    });
    free(error);
}

void describe_arguments(Model &m)
{
    const auto &arguments = m.forward->function().getSchema().arguments();

    m.texts.reserve(2 * arguments.size());
    for (size_t i = 1; i < arguments.size(); i++) {
        const auto &a = arguments[i];

        m.texts.push_back(a.name());
        m.texts.push_back(a.type()->annotation_str());
        m.list.push_back(
            {m.texts[m.texts.size() - 2].c_str(), m.texts.back().c_str(), kind_of(*a.type()),
             a.default_value().has_value() || a.type()->kind() == c10::TypeKind::OptionalType});
    }
    m.arguments = m.list.data();
    m.n_arguments = m.list.size();
    m.only_tensors = std::all_of(m.list.begin(), m.list.end(),
                                 [](const shim_argument &a) { return a.kind == SHIM_TENSOR; });
}

std::unique_ptr<Model> make_model(torch::jit::Module module)
{
    auto m = std::make_unique<Model>();

    m->module = std::move(module);
    m->size = 0;
    m->forward = std::make_unique<torch::jit::Method>(m->module.get_method("forward"));
    auto graph = m->forward->graph()->copy();
    torch::jit::Inline(*graph);
    check_tensors(*m, *graph);
    describe_arguments(*m);
    find_writers(*m, graph);
    return m;
}

char *load(const char *path, size_t, struct shim_model **ret_model)
{
    return guard([&] { *ret_model = make_model(torch::jit::load(path, at::kCPU)).release(); });
}

char *copy(const struct shim_model *model, struct shim_model **ret_model)
{
    return guard([&] {
        *ret_model = make_model(static_cast<const Model *>(model)->module.deepcopy()).release();
    });
}

void free_model(struct shim_model *model)
{
    delete static_cast<Model *>(model);
}

/* ---- Runs ------------------------------------------------------------------------------------ */

IValue make_strings(const shim_tensor &in)
{
    c10::List<std::string> strings;
    const char *at = static_cast<const char *>(in.data), *end = at + in.size;

    while (end - at >= 4) {
        uint32_t length;

        memcpy(&length, at, 4);
        if (length > (size_t)(end - at) - 4)
            throw std::invalid_argument("a string that ends beyond its tensor");
        strings.emplace_back(std::string(at + 4, length));
        at += 4 + length;
    }
    return strings;
}

/* What a run is given and returns. Its memory serves the next run of the same instance. */
struct Result : shim_result {
    std::vector<IValue> stack; /* of the interpreter: the module and the arguments */
    std::vector<at::Tensor>
        given;    /* for each input: a tensor in memory of ours, once there is one */
    IValue value; /* what forward() has returned */
    std::vector<shim_tensor> list;
    std::list<at::Tensor> copies; /* of outputs that are not dense or not in this memory */
    std::list<std::string> texts; /* names, and lists of strings; usually none */
    std::list<int64_t> lengths;
};

/* May a tensor of an earlier run get other memory? Not if that run's script has kept it, or a view
 * of it. To make one takes longer than to execute a small operator. */
bool is_free(const at::Tensor &t, at::ScalarType type)
{
    return t.defined() && t.use_count() == 1 && t.storage().use_count() == 1 &&
           t.scalar_type() == type;
}

void move_tensor(at::Tensor &t, void *data, at::IntArrayRef shape)
{
    if (t.sizes() != shape)
        t.unsafeGetTensorImpl()->set_sizes_contiguous(shape);
    t.storage().set_nbytes((size_t)t.numel() * t.element_size());
    t.storage().set_data_ptr_noswap(at::DataPtr(data, at::Device(at::kCPU)));
}

IValue make_argument(const Model &m, Result &r, const shim_tensor &in, size_t i)
{
    if (in.type == TRITONSERVER_TYPE_BYTES)
        return make_strings(in);
    at::ScalarType type = torch_type(in.type);
    at::IntArrayRef shape(in.shape, in.rank);
    void *data = const_cast<void *>(in.data);
    at::Tensor &t = r.given[i];

    if (is_free(t, type))
        move_tensor(t, data, shape);
    else
        t = at::from_blob(data, shape, at::TensorOptions().dtype(type));
    return m.writes_argument ? t.clone() : t;
}

/* Fills the stack. Returns whether all arguments are tensors, as the script wants them. */
bool make_arguments(const Model &m, Result &r, const shim_tensor *inputs, size_t n)
{
    bool plain = m.only_tensors;

    r.given.resize(n);
    r.stack.reserve(n + 1);
    r.stack.push_back(m.module._ivalue());
    if (m.n_arguments == 1 && m.list[0].kind == SHIM_DICT) {
        c10::Dict<std::string, at::Tensor> dict;

        for (size_t i = 0; i < n; i++)
            if (inputs[i].type != TRITONSERVER_TYPE_INVALID)
                dict.insert(inputs[i].name, make_argument(m, r, inputs[i], i).toTensor());
        r.stack.emplace_back(std::move(dict));
        return false;
    }
    if (n != m.n_arguments)
        throw std::invalid_argument("another number of arguments");
    for (size_t i = 0; i < n; i++) {
        if (inputs[i].type != TRITONSERVER_TYPE_INVALID) {
            r.stack.push_back(make_argument(m, r, inputs[i], i));
        } else {
            const auto &argument = m.forward->function().getSchema().arguments()[i + 1];

            r.stack.push_back(argument.default_value() ? *argument.default_value() : IValue());
        }
        plain = plain && r.stack.back().isTensor();
    }
    return plain;
}

void put_strings(Result &r, shim_tensor &out, const c10::List<IValue> &list)
{
    std::string text;

    for (size_t i = 0; i < list.size(); i++) {
        const std::string &s = list.get(i).toStringRef();
        uint32_t length = (uint32_t)s.size();

        if (s.size() > UINT32_MAX)
            throw std::length_error("a string of more than 4 GiB");
        text.append(reinterpret_cast<const char *>(&length), 4);
        text.append(s);
    }
    r.texts.push_back(std::move(text));
    r.lengths.push_back((int64_t)list.size());
    out.type = TRITONSERVER_TYPE_BYTES;
    out.rank = 1;
    out.shape = &r.lengths.back();
    out.data = r.texts.back().data();
    out.size = r.texts.back().size();
}

void put_tensor(Result &r, shim_tensor &out, const at::Tensor &tensor)
{
    const at::Tensor *dense;

    if (!tensor.defined() || tensor.layout() != at::kStrided ||
        server_type(tensor.scalar_type()) == TRITONSERVER_TYPE_INVALID) {
        out.kind = !tensor.defined()                 ? "an undefined tensor"
                   : tensor.layout() != at::kStrided ? "a tensor that is not dense"
                                                     : at::toString(tensor.scalar_type());
        return;
    }
    /* Each of these calls would cost as much as a small script, also where it has nothing to do. */
    if (tensor.is_cpu() && tensor.is_contiguous() && !tensor.is_neg())
        dense = &tensor;
    else
        dense = &r.copies.emplace_back(tensor.to(at::kCPU).contiguous().resolve_neg());
    const at::Tensor &t = *dense;
    out.type = server_type(t.scalar_type());
    out.rank = (uint32_t)t.dim();
    out.shape = t.sizes().data();
    out.data = t.data_ptr();
    out.size = (uint64_t)t.numel() * t.element_size();
}

void put_output(Result &r, const IValue &value, const char *name)
{
    shim_tensor out = {};

    out.name = name;
    out.type = TRITONSERVER_TYPE_INVALID;
    if (value.isTensor())
        put_tensor(r, out, value.toTensor());
    else if (value.isList() && value.toList().elementType()->kind() == c10::TypeKind::StringType)
        put_strings(r, out, value.toList());
    else
        out.kind = c10::typeKindToString(value.type()->kind());
    r.list.push_back(out);
}

void put_outputs(Result &r)
{
    const IValue &value = r.value;
    size_t n = value.isTuple()         ? value.toTupleRef().elements().size()
               : value.isGenericDict() ? value.toGenericDict().size()
                                       : 1;

    r.list.reserve(n);
    r.named = value.isGenericDict() &&
              value.toGenericDict().keyType()->kind() == c10::TypeKind::StringType;
    if (value.isTuple()) {
        for (const IValue &element : value.toTupleRef().elements())
            put_output(r, element, nullptr);
    } else if (r.named) {
        for (const auto &item : value.toGenericDict()) {
            r.texts.push_back(item.key().toStringRef());
            put_output(r, item.value(), r.texts.back().c_str());
        }
    } else {
        put_output(r, value, nullptr);
    }
    r.outputs = r.list.data();
    r.n_outputs = r.list.size();
}

/* OpenMP has the number of threads for each thread that calls it; PyTorch gives a new thread the
 * number that was set last, by whatever model. */
void use_threads(const struct shim_options *options)
{
    static thread_local int32_t used = 0;
    static const int32_t otherwise = at::get_num_threads();
    int32_t most = options->most_threads > 0 ? options->most_threads : otherwise;
    int32_t wanted = options->threads > 0 ? options->threads : std::min(otherwise, most);

    if (used != wanted)
        at::set_num_threads(wanted);
    used = wanted;
}

void clear(struct shim_result *result)
{
    Result &r = *static_cast<Result *>(result);

    r.stack.clear();
    r.value = IValue();
    r.list.clear();
    r.copies.clear();
    r.texts.clear();
    r.lengths.clear();
    r.outputs = nullptr;
    r.n_outputs = 0;
    r.named = false;
}

void release(struct shim_result *result)
{
    delete static_cast<Result *>(result);
}

char *run(struct shim_model *model, const struct shim_options *options, const shim_tensor *inputs,
          size_t n, struct shim_result **result)
{
    bool is_complete = false;
    char *error = guard([&] {
        Model &m = *static_cast<Model *>(model);

        if (!*result)
            *result = new Result();
        Result &r = *static_cast<Result *>(*result);

        use_threads(options);
        torch::jit::GraphOptimizerEnabledGuard optimizes(options->optimizes);
        c10::InferenceMode inference(options->inference);
        at::NoGradGuard without_gradients;
        auto &function = m.forward->function();

        /* There is nothing to check and to fill in where all arguments are there. */
        if (!make_arguments(m, r, inputs, n))
            function.getSchema().checkAndNormalizeInputs(r.stack, {});
        function.run(r.stack);
        r.value = std::move(r.stack.front());
        r.stack.clear();
        put_outputs(r);
        is_complete = true;
    });

    if (!is_complete) {
        release(*result);
        *result = nullptr;
    }
    return error;
}

/* ---- Settings -------------------------------------------------------------------------------- */

char *set_inter_op_threads(int32_t n)
{
    return guard([n] {
        if ((int64_t)at::get_num_interop_threads() != n)
            at::set_num_interop_threads(n);
    });
}

void set_profiling(bool on)
{
    torch::jit::getProfilingMode() = on;
}

void set_executor(bool profiles)
{
    torch::jit::getExecutorMode() = profiles;
}

void set_fuser(bool on)
{
    torch::jit::setTensorExprFuserEnabled(on);
}

/* ---- Version --------------------------------------------------------------------------------- */

/* What the loaded library says of itself: "… TORCH_VERSION=1.13.1, …". Empty: nothing. */
std::string read_running_version()
{
    static const std::string key = "TORCH_VERSION=";
    std::string version;

    free(guard([&version] {
        std::string settings = at::show_config();
        size_t at = settings.find(key);

        if (at != settings.npos)
            version = settings.substr(at + key.size(),
                                      settings.find_first_of(", \n", at) - at - key.size());
    }));
    return version;
}

} // namespace

extern "C" __attribute__((visibility("default"))) const struct shim *conch_torch(int version)
{
    static const std::string running = read_running_version();
    static const struct shim shim = {TORCH_VERSION,
                                     running.empty() ? nullptr : running.c_str(),
                                     reinterpret_cast<void *>(&at::set_num_threads),
                                     load,
                                     copy,
                                     free_model,
                                     run,
                                     clear,
                                     release,
                                     set_inter_op_threads,
                                     set_profiling,
                                     set_executor,
                                     set_fuser};

    return version == SHIM_VERSION ? &shim : nullptr;
}
