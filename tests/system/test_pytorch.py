# SPDX-License-Identifier: Apache-2.0
"""The backend pytorch: TorchScript models answer what their script says, in our server and in the genuine Triton; how tensors
belong to arguments and outputs; parameters; configurations that do not fit; files that are no models."""

import concurrent.futures
import io
import os
import re
import shutil
import subprocess
import zipfile

import ml_dtypes
import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
import tritonclient.utils.shared_memory as shared_memory
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

import repository
import server as servers
import torch_models
import triton

pytestmark = pytest.mark.skipif(not torch_models.MAKER.exists(),
                                reason="`tools/deps/install torch` installs PyTorch's headers; then configure and build again")

BATCHES = "max_batch_size: 8\ndynamic_batching { max_queue_delay_microseconds: 20000 }\n"
ROW = np.arange(16, dtype=np.float32).reshape(1, 16)


def ins(*tensors):
    return [("input", *tensor) for tensor in tensors]


def outs(*tensors):
    return [("output", *tensor) for tensor in tensors]


def pair(first, second, datatype="FP32", dims=(16,)):
    return (first, datatype, list(dims)), (second, datatype, list(dims))


TYPES = ["BOOL", "UINT8", "INT8", "INT16", "INT32", "INT64", "FP16", "FP32", "FP64"]


def write_all(root):
    write = torch_models.write_model
    add_sub = torch_models.ADD_SUB
    inputs, outputs = pair("INPUT0", "INPUT1"), pair("OUTPUT__0", "OUTPUT__1")
    write(root, "by_argument", add_sub, *ins(*inputs[::-1]), *outs(*outputs[::-1]), more=BATCHES)
    write(root, "by_index", add_sub, *ins(*pair("IN__1", "IN__0")), *outs(*outputs), more=BATCHES)
    write(root, "by_order", add_sub, *ins(*pair("left", "right")), *outs(*pair("sum", "difference")), more=BATCHES)
    write(root, "platform", add_sub, *ins(*inputs), *outs(*outputs), more=BATCHES, kind='platform: "pytorch_libtorch"\n')
    write(root, "alone", add_sub, *ins(*inputs), *outs(*outputs))
    write(root, "some", add_sub, *ins(*inputs), *outs(outputs[1]), more=BATCHES)
    for datatype in TYPES:
        write(root, f"same_{datatype.lower()}", "def forward(self, x):\n    return x", *ins(("x", datatype, [-1, -1])),
              *outs(("y", datatype, [-1, -1])))
    write(root, "twice_bf16", "def forward(self, x):\n    return x * 2", *ins(("x", "BF16", [-1, -1])), *outs(("y", "BF16", [-1, -1])))
    write(root, "reshaped", "def forward(self, x):\n    return x.transpose(1, 2).reshape(x.size(0), 4)", more="""max_batch_size: 4
input [ { name: "x" data_type: TYPE_FP32 dims: [ 4 ] reshape { shape: [ 2, 2 ] } } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ 2, 2 ] reshape { shape: [ 4 ] } } ]
""")
    write(root, "reshaped_single", "def forward(self, x):\n    assert x.dim() == 1\n    return x * 2", more="""max_batch_size: 4
input [ { name: "x" data_type: TYPE_FP32 dims: [ 1 ] reshape { shape: [ ] } } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ 1 ] reshape { shape: [ ] } } ]
""")
    for mode in ("true", "false"):
        write(root, f"inference_{mode}", "def forward(self, x):\n    return torch.tensor([torch.is_inference(x + 1)])", *ins(("x", "FP32", [1])),
              *outs(("y", "BOOL", [1])), INFERENCE_MODE=mode)
    write(root, "matrix", "def forward(self, a, b):\n    return torch.matmul(a, b)", *ins(("a", "FP32", [-1, -1]), ("b", "FP32", [-1, -1])),
          *outs(("product", "FP32", [-1, -1])))
    write(root, "dictionary", """
def forward(self, tensors: Dict[str, Tensor]) -> Dict[str, Tensor]:
    return {"twice": tensors["one"] * 2, "both": tensors["one"] + tensors["two"]}
""", *ins(*pair("two", "one")), *outs(*pair("both", "twice")), more=BATCHES)
    write(root, "strings", """
def forward(self, names: List[str], more: List[str]) -> List[str]:
    result : List[str] = []
    for i in range(len(names)):
        result.append(names[i] + more[i])
    return result
""", *ins(("names", "BYTES", [-1]), ("more", "BYTES", [-1])), *outs(("joined", "BYTES", [-1])))
    write(root, "mixed", """
def forward(self, names: List[str], x) -> Tuple[List[str], Tensor, Tensor]:
    return names, x.sum(), torch.tensor(len(names))
""", *ins(("names", "BYTES", [-1]), ("x", "FP32", [-1])),
          *outs(("OUT__0", "BYTES", [-1]), ("OUT__1", "FP32", [1]), ("OUT__2", "INT64", [1])))
    write(root, "optional", """
def forward(self, x, factor: Optional[Tensor] = None, summand: int = 1):
    if factor is not None:
        x = x * factor
    return x + summand
""", *ins(("x", "FP32", [4])), *outs(("y", "FP32", [4])),
          more='input [ { name: "factor" data_type: TYPE_FP32 dims: [ 1 ] optional: true } ]\n')
    write(root, "linear", "def forward(self, x):\n    return torch.relu(torch.linear(x, self.weight))", *ins(("x", "FP32", [4])),
          *outs(("y", "FP32", [3])), more=BATCHES, weights={"weight": [3, 4]}, INTRA_OP_THREAD_COUNT=1, INTER_OP_THREAD_COUNT=1,
          DISABLE_OPTIMIZED_EXECUTION="true", INFERENCE_MODE="false", ENABLE_CACHE_CLEANING="true", DISABLE_CUDNN="true",
          ENABLE_JIT_PROFILING="true", ENABLE_JIT_EXECUTOR="true", ENABLE_TENSOR_FUSER="false")
    write(root, "picky", """
def forward(self, x):
    assert bool((x >= 0).all()), "negative"
    return x * 2
""", *ins(("x", "FP32", [1])), *outs(("y", "FP32", [1])), more=BATCHES)
    write(root, "double", "def forward(self, x):\n    return x.double()", *ins(("x", "FP32", [1])), *outs(("y", "FP32", [1])))
    write(root, "few", "def forward(self, x):\n    return x", *ins(("x", "FP32", [1])), *outs(("OUT__1", "FP32", [1])))
    write(root, "scalar", "def forward(self, x):\n    return 5", *ins(("x", "FP32", [1])), *outs(("y", "FP32", [1])))
    return root


@pytest.fixture(scope="module", params=["conch", "triton"])
def server(request, tmp_path_factory):
    root = write_all(tmp_path_factory.mktemp("scripts"))
    if request.param == "conch":
        with servers.Server(root, grpc=True) as running:
            yield running
        return
    if triton.missing():
        pytest.skip(triton.missing())
    with triton.Triton(root) as running:
        yield running


def ask(url, model, module=tritonclient.http, **tensors):
    """The client's result. tensors: name=array."""
    with module.InferenceServerClient(url) as client:
        inputs = []
        for name, value in tensors.items():
            inputs.append(module.InferInput(name, value.shape, np_to_triton_dtype(value.dtype)))
            inputs[-1].set_data_from_numpy(np.ascontiguousarray(value))
        return client.infer(model, inputs)


def text(*strings):
    return np.array([s.encode() for s in strings], dtype=np.object_)


# ---- What is answered


NAMES = {"by_argument": ("INPUT0", "INPUT1", "OUTPUT__0", "OUTPUT__1"), "by_index": ("IN__0", "IN__1", "OUTPUT__0", "OUTPUT__1"),
         "by_order": ("left", "right", "sum", "difference"), "platform": ("INPUT0", "INPUT1", "OUTPUT__0", "OUTPUT__1")}


@pytest.mark.parametrize("model", NAMES)
def test_names_choose_arguments_and_outputs(server, model):
    a, b, total, difference = NAMES[model]
    answer = ask(server.url, model, **{a: ROW, b: ROW * ROW})
    np.testing.assert_array_equal(answer.as_numpy(total), ROW + ROW * ROW)
    np.testing.assert_array_equal(answer.as_numpy(difference), ROW - ROW * ROW)


def test_requests_become_one_batch(server):
    sizes = [1, 3, 2, 1, 1]
    rows = [np.random.default_rng(i).normal(size=(n, 16)).astype(np.float32) for i, n in enumerate(sizes)]
    with concurrent.futures.ThreadPoolExecutor(len(sizes)) as pool:
        answers = pool.map(lambda x: ask(server.url, "by_argument", INPUT0=x, INPUT1=x * 3), rows)
        for x, answer in zip(rows, answers):
            np.testing.assert_array_equal(answer.as_numpy("OUTPUT__0"), x + x * 3)
            np.testing.assert_array_equal(answer.as_numpy("OUTPUT__1"), x - x * 3)


def test_models_that_do_not_batch(server):
    answer = ask(server.url, "alone", INPUT0=ROW[0], INPUT1=ROW[0])
    np.testing.assert_array_equal(answer.as_numpy("OUTPUT__0"), ROW[0] * 2)
    np.testing.assert_array_equal(answer.as_numpy("OUTPUT__1"), ROW[0] * 0)


def test_an_output_may_be_left_out_of_the_configuration(server):
    answer = ask(server.url, "some", INPUT0=ROW, INPUT1=ROW * 2)
    np.testing.assert_array_equal(answer.as_numpy("OUTPUT__1"), -ROW)


@pytest.mark.parametrize("datatype", TYPES)
def test_types(server, datatype):
    kind = {"BOOL": np.bool_, "FP16": np.float16, "FP32": np.float32, "FP64": np.float64}.get(datatype) or np.dtype(datatype.lower())
    value = np.array([[0, 1, 2], [3, 100, 7]]).astype(kind)
    np.testing.assert_array_equal(ask(server.url, f"same_{datatype.lower()}", x=value).as_numpy("y"), value)


def test_shapes_of_any_size(server):
    for n in (1, 5, 3, 200, 0):
        a = np.random.default_rng(n).integers(0, 9, (n, 7)).astype(np.float32)
        b = np.random.default_rng(n + 1).integers(0, 9, (7, n + 2)).astype(np.float32)
        np.testing.assert_array_equal(ask(server.url, "matrix", a=a, b=b).as_numpy("product"), a @ b)


def test_bf16(server):
    value = np.array([[0, 1, -2.5], [3, 100, 1e30]], ml_dtypes.bfloat16)
    with tritonclient.http.InferenceServerClient(server.url) as client:
        x = tritonclient.http.InferInput("x", value.shape, "BF16")
        x.set_data_from_numpy(value)
        answer = client.infer("twice_bf16", [x]).as_numpy("y")
    np.testing.assert_array_equal(answer.astype(np.float32), 2 * value.astype(np.float32))


def test_shapes_that_differ_from_those_of_the_model(server):
    """The one script sees [n,2,2] and returns [n,4], the other [n] and [n]."""
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    np.testing.assert_array_equal(ask(server.url, "reshaped", x=x).as_numpy("y"), x.reshape(3, 2, 2).transpose(0, 2, 1))
    assert ask(server.url, "reshaped_single", x=np.array([[7], [8]], np.float32)).as_numpy("y").tolist() == [[14], [16]]


@pytest.mark.parametrize("mode", ["true", "false"])
def test_the_parameter_of_the_inference_mode(server, mode):
    assert ask(server.url, f"inference_{mode}", x=ONE).as_numpy("y").tolist() == [mode == "true"]


def test_dictionaries(server):
    answer = ask(server.url, "dictionary", one=ROW, two=ROW + 5)
    np.testing.assert_array_equal(answer.as_numpy("twice"), ROW * 2)
    np.testing.assert_array_equal(answer.as_numpy("both"), ROW * 2 + 5)


def test_lists_of_strings(server):
    answer = ask(server.url, "strings", names=text("ä", "", "long " * 1000), more=text("1", "", "2"))
    assert answer.as_numpy("joined").tolist() == ["ä1".encode(), b"", b"long " * 1000 + b"2"]


def test_a_tuple_of_strings_and_single_values(server):
    answer = ask(server.url, "mixed", names=text("a", "b", "c"), x=np.array([1, 2, 3.5], np.float32))
    assert answer.as_numpy("OUT__0").tolist() == [b"a", b"b", b"c"]
    assert answer.as_numpy("OUT__1").tolist() == [6.5] and answer.as_numpy("OUT__2").tolist() == [3]


def test_arguments_that_may_lack(server):
    x = np.array([1, 2, 3, 4], np.float32)
    assert ask(server.url, "optional", x=x).as_numpy("y").tolist() == [2, 3, 4, 5]
    assert ask(server.url, "optional", x=x, factor=np.array([10], np.float32)).as_numpy("y").tolist() == [11, 21, 31, 41]


def test_parameters_and_weights(server):
    x = np.array([[1, 2, 3, 4], [-1, 0, 0, 0]], np.float32)
    weight = np.arange(12, dtype=np.float32).reshape(3, 4)
    np.testing.assert_array_equal(ask(server.url, "linear", x=x).as_numpy("y"), np.maximum(x @ weight.T, 0))


def test_a_request_that_the_script_refuses_fails_alone(server):
    values = [1, -1, 2, 3]
    with concurrent.futures.ThreadPoolExecutor(len(values)) as pool:
        asked = [pool.submit(ask, server.url, "picky", x=np.array([[v]], np.float32)) for v in values]
    for v, answer in zip(values, asked):
        if v < 0:
            with pytest.raises(InferenceServerException, match="PyTorch execute failure: .*negative"):
                answer.result()
        else:
            assert answer.result().as_numpy("y").tolist() == [[2 * v]]


ONE = np.ones(1, np.float32)
WRONG = {
    "double": "unexpected datatype TYPE_FP64 for inference output 'y', expecting TYPE_FP32",
    "few": "The output OUT__1 in the model configuration refers to an output index which doesn't exist. This model has 1 outputs",
    "scalar": "output 'y' must be of type Tensor, List[str] or Tuple containing one of these two types, or Dict[str, Tensor]; "
              "the model has returned IntType",
}


@pytest.mark.parametrize("model", WRONG)
def test_outputs_that_do_not_fit(server, model):
    with pytest.raises(InferenceServerException, match=re.escape(WRONG[model])):
        ask(server.url, model, x=ONE)


def test_a_script_that_writes_its_argument_writes_a_copy(tmp_path):
    """Else a client's shared memory would change."""
    torch_models.write_model(tmp_path, "m", "def forward(self, x):\n    return x.add_(1)", *ins(("x", "FP32", [-1])), *outs(("y", "FP32", [-1])))
    x, key = np.array([1, 2, 3], np.float32), f"/conch-torch-{os.getpid()}"
    region = shared_memory.create_shared_memory_region("x", key, x.nbytes)
    try:
        shared_memory.set_shared_memory_region(region, [x])
        with servers.Server(tmp_path, flags=["--allow-client-shm=true"]) as running:
            with tritonclient.http.InferenceServerClient(running.url) as client:
                client.register_system_shared_memory("x", key, x.nbytes)
                given = tritonclient.http.InferInput("x", [3], "FP32")
                given.set_shared_memory("x", x.nbytes)
                assert client.infer("m", [given]).as_numpy("y").tolist() == [2, 3, 4]
        assert shared_memory.get_contents_as_numpy(region, np.float32, [3]).tolist() == [1, 2, 3]
    finally:
        shared_memory.destroy_shared_memory_region(region)


def test_outputs_may_be_the_input_and_parts_of_it(tmp_path):
    """A run uses the tensors of the run before, whose outputs were those tensors and their views."""
    torch_models.write_model(tmp_path, "m", "def forward(self, x):\n    return x, x.reshape(-1)[1:], x.t()", *ins(("x", "FP32", [-1, -1])),
                             *outs(("same", "FP32", [-1, -1]), ("tail", "FP32", [-1]), ("turned", "FP32", [-1, -1])))
    with servers.Server(tmp_path) as running:
        for shape in ((2, 3), (2, 3), (3, 2), (1, 1), (0, 4), (40, 50), (2, 3)):
            x = np.random.default_rng(shape[0]).normal(size=shape).astype(np.float32)
            answer = ask(running.url, "m", x=x)
            np.testing.assert_array_equal(answer.as_numpy("same"), x)
            np.testing.assert_array_equal(answer.as_numpy("tail"), x.reshape(-1)[1:])
            np.testing.assert_array_equal(answer.as_numpy("turned"), x.T)


def test_over_grpc(tmp_path):
    write_all(tmp_path)
    with servers.Server(tmp_path, grpc=True) as running:
        answer = ask(running.grpc_url, "by_argument", tritonclient.grpc, INPUT0=ROW, INPUT1=ROW)
        np.testing.assert_array_equal(answer.as_numpy("OUTPUT__0"), ROW * 2)
        answer = ask(running.grpc_url, "strings", tritonclient.grpc, names=text("a"), more=text("b"))
        assert answer.as_numpy("joined").tolist() == [b"ab"]
        answer = ask(running.grpc_url, "dictionary", tritonclient.grpc, one=ROW, two=ROW)
        np.testing.assert_array_equal(answer.as_numpy("both"), ROW * 2)


# ---- Before the first request


WARMED = {"full": ("max_batch_size: 5\n", [16], {5}), "preferred": ("max_batch_size: 8\ndynamic_batching { preferred_batch_size: [ 2, 4, 8 ] }\n", [16], {2, 4, 8}),
          "single": ("max_batch_size: 1\n", [16], set()), "large": ("max_batch_size: 1024\n", [100000], set()), "open": ("max_batch_size: 4\n", [-1], set()),
          "oldest": ("max_batch_size: 6\nsequence_batching { oldest { max_candidate_sequences: 6 preferred_batch_size: [ 3 ] } }\n", [16], {3, 6})}


def test_models_are_warmed_with_the_batches_that_the_scheduler_makes(tmp_path):
    """What the script cannot do tells for which batches it was called: PyTorch compiles for the shapes of such calls, before any request."""
    script = "def forward(self, x):\n    if x.size(0) > 1:\n        x = x.view([x.size(0), 7777])\n    return x"
    for name, (more, dims, _) in WARMED.items():
        torch_models.write_model(tmp_path, name, script, *ins(("x", "FP32", dims)), *outs(("y", "FP32", dims)), more=more)
    with servers.Server(tmp_path, flags=["--log-verbose=1"]) as running:
        log = running.log()
        np.testing.assert_array_equal(ask(running.url, "full", x=ROW).as_numpy("y"), ROW)
    for name, (_, _, rows) in WARMED.items():
        said = re.findall(rf"model '{name}' is not warmed with a batch of (\d+): with zeroes it says: .*shape '\[(\d+), 7777\]' is invalid", log)
        assert {int(n) for pair in said for n in pair} == rows, (name, said)
        assert len(said) == len(rows), (name, said)


CONTROLS = """sequence_batching { direct { }
  control_input [ { name: "START__1" control [ { kind: CONTROL_SEQUENCE_START fp32_false_true: [ 0, 1 ] } ] },
                  { name: "END__2" control [ { kind: CONTROL_SEQUENCE_END int32_false_true: [ 0, 1 ] } ] },
                  { name: "READY__3" control [ { kind: CONTROL_SEQUENCE_READY bool_false_true: [ false, true ] } ] },
                  { name: "ID__4" control [ { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_INT64 } ] } ]
}
"""


@pytest.mark.parametrize("more, shape", [("max_batch_size: 5\n", [1, 1]), ("", [1])])
def test_models_with_controls_of_sequences_are_warmed(tmp_path, more, shape):
    """What the script says in its refusal: it is called with zeroes of the types and shapes that requests bring."""
    script = """
def forward(self, x, start, end, ready, id):
    assert False, "start {} {} {}, end {} {} {}, ready {} {} {}, id {} {} {}.".format(
        start.dtype, start.shape, int(start.sum()), end.dtype, end.shape, int(end.sum()), ready.dtype, ready.shape, int(ready.sum()),
        id.dtype, id.shape, int(id.sum()))
    return x
"""
    torch_models.write_model(tmp_path, "m", script, *ins(("x", "FP32", [1])), *outs(("y", "FP32", [1])), more=more + CONTROLS)
    with servers.Server(tmp_path, flags=["--log-verbose=1"]) as running, tritonclient.http.InferenceServerClient(running.url) as client:
        log = running.log()
        x = tritonclient.http.InferInput("x", shape, "FP32")
        x.set_data_from_numpy(np.zeros(shape, np.float32))
        with pytest.raises(InferenceServerException) as asked:
            client.infer("m", [x], sequence_id=7, sequence_start=True)

    def said(start, end, ready, number):    # 6, 3, 11 and 4 are PyTorch's numbers of FP32, INT32, BOOL and INT64
        return f"start 6 {shape} {start}, end 3 {shape} {end}, ready 11 {shape} {ready}, id 4 {shape} {number}."

    assert re.findall(r"model 'm' is not warmed with a batch of 1: with zeroes it says: .*?(start .*\d\.)", log) == [said(0, 0, 0, 0)], log
    assert said(1, 0, 1, 7) in str(asked.value)


# ---- Parameters that no answer depends on


def count_threads(server, name):
    """A thread has the name of the one that started it, unless it takes another."""
    return server.names_of_threads().count(name)


def test_operators_use_as_many_threads_as_the_parameter_says(tmp_path):
    """The model that is asked last has one: PyTorch keeps threads for another purpose, too, as many as the last model has."""
    for n in (5, 3, 1):
        torch_models.write_model(tmp_path, f"m{n}", "def forward(self, x):\n    return x * 2", *ins(("x", "FP32", [-1])), *outs(("y", "FP32", [-1])),
                                 INTRA_OP_THREAD_COUNT=n, CONCH_EXECUTION="thread")
    with servers.Server(tmp_path) as running:
        for n in (5, 3, 1):
            assert count_threads(running, f"m{n}_0_0") == 1
            ask(running.url, f"m{n}", x=np.ones(1 << 20, np.float32))
        servers.wait_for(lambda: [count_threads(running, f"m{n}_0_0") for n in (5, 3, 1)] == [5, 3, 1], 20, "each has its threads")


@pytest.mark.parametrize("n", [3, 5])
def test_forks_use_as_many_threads_as_the_parameter_says(tmp_path, n):
    """torch_script knows no fork(), which files have in the place of torch.jit.fork()."""
    folder = torch_models.write_model(tmp_path, "m", "def forward(self, x):\n    return torch.relu(x)", *ins(("x", "FP32", [-1])),
                                      *outs(("y", "FP32", [-1])), INTER_OP_THREAD_COUNT=n)
    file = folder / "1" / "model.pt"
    file.write_bytes(rewritten(file.read_bytes(), lambda _, content: content.replace(b"torch.relu(x)", b"torch.wait(fork(torch.relu, x))")))
    with servers.Server(tmp_path) as running:
        assert ask(running.url, "m", x=ONE).as_numpy("y").tolist() == [1]
        servers.wait_for(lambda: count_threads(running, "PTThreadPool") == n, 20, "they have their names")


# What PyTorch's log says of a script: it was watched, was compiled in the newer way and in the older, and operators were joined.
PASSES = {"Profiled Graph:", "Optimized Graph:", "After compileSpec optimizations:", "Before TExprFuser:"}
SETTINGS = {
    (): {"Profiled Graph:", "Optimized Graph:", "Before TExprFuser:"},
    ("DISABLE_OPTIMIZED_EXECUTION", "false"): {"Profiled Graph:", "Optimized Graph:", "Before TExprFuser:"},
    ("DISABLE_OPTIMIZED_EXECUTION", "true"): set(),
    ("ENABLE_JIT_PROFILING", "true"): {"Profiled Graph:", "Optimized Graph:", "Before TExprFuser:"},
    ("ENABLE_JIT_PROFILING", "false"): set(),
    ("ENABLE_JIT_EXECUTOR", "true"): {"Profiled Graph:", "Optimized Graph:", "Before TExprFuser:"},
    ("ENABLE_JIT_EXECUTOR", "false"): {"After compileSpec optimizations:"},
    ("ENABLE_TENSOR_FUSER", "true"): {"Profiled Graph:", "Optimized Graph:", "Before TExprFuser:"},
    ("ENABLE_TENSOR_FUSER", "false"): {"Profiled Graph:", "Optimized Graph:"},
}


@pytest.mark.parametrize("setting", SETTINGS, ids="=".join)
def test_settings_decide_how_a_script_is_compiled(tmp_path, setting):
    torch_models.write_model(tmp_path, "m", "def forward(self, x):\n    return torch.relu(x * 2 + 1)", *ins(("x", "FP32", [1])), *outs(("y", "FP32", [1])),
                             **({setting[0]: setting[1]} if setting else {}))
    env = {"PYTORCH_JIT_LOG_LEVEL": "profiling_graph_executor_impl:graph_executor:tensorexpr_fuser"}
    with servers.Server(tmp_path, env=env) as running:
        assert ask(running.url, "m", x=ONE).as_numpy("y").tolist() == [3]
        assert {text for text in PASSES if text in running.log()} == SETTINGS[setting], running.log()


# ---- Instances, sequences


@pytest.mark.parametrize("sharing, counts", [("", [[1, 1, 1], [2, 2, 2]]), ("true", [[1, 2, 3], [4, 5, 6]])])
def test_a_script_that_counts_has_a_count_for_each_instance(tmp_path, sharing, counts):
    """Three sequences have an instance each. With ENABLE_WEIGHT_SHARING they count together."""
    more = "instance_group [ { count: 3 kind: KIND_CPU } ]\n" + """sequence_batching { max_sequence_idle_microseconds: 60000000
  control_input [ { name: "READY__1" control [ { kind: CONTROL_SEQUENCE_READY fp32_false_true: [ 0, 1 ] } ] } ] }
"""
    torch_models.write_model(tmp_path, "m", """
def forward(self, x, ready):
    self.count.add_(1)
    return x + self.count
""", *ins(("x", "FP32", [1])), *outs(("y", "FP32", [1])), more=more, weights={"count": [1]},
                             **({"ENABLE_WEIGHT_SHARING": sharing} if sharing else {}))
    with servers.Server(tmp_path) as running, tritonclient.http.InferenceServerClient(running.url) as client:
        x = tritonclient.http.InferInput("x", [1], "FP32")
        x.set_data_from_numpy(np.zeros(1, np.float32))
        rounds = [[client.infer("m", [x], sequence_id=i, sequence_start=first, sequence_end=not first).as_numpy("y")[0]
                   for i in (1, 2, 3)] for first in (True, False)]
    assert rounds == counts


def test_instances_share_weights(tmp_path):
    """Four instances of 16 MB: not 64."""
    torch_models.write_model(tmp_path, "m", "def forward(self, x):\n    return x + self.weight[0, 0]", *ins(("x", "FP32", [1])),
                             *outs(("y", "FP32", [1])), more="instance_group [ { count: 4 kind: KIND_CPU } ]\n",
                             weights={"weight": [2048, 2048]})
    sizes = []
    for share in ("true", "false"):
        config = tmp_path / "m" / "config.pbtxt"
        config.write_text(config.read_text().split("parameters")[0]
                          + f'parameters {{ key: "ENABLE_WEIGHT_SHARING" value {{ string_value: "{share}" }} }}\n')
        with servers.Server(tmp_path) as running:
            assert ask(running.url, "m", x=ONE).as_numpy("y").tolist() == [1]
            status = open(f"/proc/{running.pid}/status").read()
            sizes.append(int(re.search(r"RssAnon:\s+(\d+)", status)[1]))
    assert 40 << 10 < sizes[1] - sizes[0] < 60 << 10, sizes


def test_instances_that_share_weights_run_at_the_same_time(tmp_path):
    """Requests of many sizes on four instances, each answered with its own product."""
    weight = np.arange(64 * 64, dtype=np.float32).reshape(64, 64)
    torch_models.write_model(tmp_path, "m", """
def forward(self, x):
    y = torch.matmul(x, self.weight)
    if x.size(0) > 3:
        y = y + 1
    return y
""", *ins(("x", "FP32", [64])), *outs(("y", "FP32", [64])), weights={"weight": [64, 64]},
                             more="max_batch_size: 8\ninstance_group [ { count: 4 kind: KIND_CPU } ]\n")

    def request(i):
        x = np.random.default_rng(i).integers(0, 3, (1 + i % 8, 64)).astype(np.float32)
        y = ask(running.url, "m", x=x).as_numpy("y")
        return np.array_equal(y, x @ weight + (len(x) > 3))

    with servers.Server(tmp_path) as running, concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert all(pool.map(request, range(400)))


def test_implicit_state(tmp_path):
    """The sum of a sequence: the output of one request is an input of the next."""
    state = """
sequence_batching {
  max_sequence_idle_microseconds: 60000000
  control_input [ { name: "START__1" control [ { kind: CONTROL_SEQUENCE_START fp32_false_true: [ 0, 1 ] } ] } ]
  state [ { input_name: "STATE__2" output_name: "STATE_OUT__1" data_type: TYPE_FP32 dims: [ 1 ] } ]
}
max_batch_size: 4
"""
    torch_models.write_model(tmp_path, "sum", """
def forward(self, x, start, state):
    total = torch.where(start > 0, x, x + state)
    return total, total
""", *ins(("x", "FP32", [1])), *outs(("OUT__0", "FP32", [1])), more=state)
    with servers.Server(tmp_path) as running:
        with tritonclient.http.InferenceServerClient(running.url) as client:
            sums = {1: 0, 2: 0}
            for i in range(4):
                for sequence in sums:
                    x = tritonclient.http.InferInput("x", [1, 1], "FP32")
                    x.set_data_from_numpy(np.full((1, 1), i + 10 * sequence, np.float32))
                    answer = client.infer("sum", [x], sequence_id=sequence, sequence_start=i == 0, sequence_end=i == 3)
                    sums[sequence] += i + 10 * sequence
                    assert answer.as_numpy("OUT__0").tolist() == [[sums[sequence]]]


# ---- What is refused


def refused_configurations(root):
    """{model: text of its error}"""
    write, add_sub = torch_models.write_model, torch_models.ADD_SUB
    x, y, one = ("x", "FP32", [1]), ("y", "FP32", [1]), "def forward(self, x):\n    return x"
    write(root, "many", one, *ins(x, ("z", "FP32", [1])), *outs(y))
    write(root, "lacking", add_sub, *ins(("INPUT0", "FP32", [1])), *outs(y))
    write(root, "beyond", one, *ins(("IN__1", "FP32", [1])), *outs(y))
    write(root, "twice", add_sub, *ins(*pair("IN__0", "X__0")), *outs(y))
    write(root, "unsigned", one, *ins(("x", "UINT64", [1])), *outs(y))
    write(root, "texts", one, *ins(("x", "BYTES", [1])), *outs(y))
    write(root, "table", "def forward(self, x: List[str]):\n    return x", *ins(("x", "BYTES", [1, 1])), *outs(("y", "BYTES", [1])))
    write(root, "number", "def forward(self, x: int):\n    return torch.ones(x)", *ins(x), *outs(y))
    write(root, "flag", one, *ins(x), *outs(y), INFERENCE_MODE="maybe")
    write(root, "threads", one, *ins(x), *outs(y), INTRA_OP_THREAD_COUNT="0")
    sequence = """sequence_batching {
  control_input [ { name: "START" control [ { kind: CONTROL_SEQUENCE_START fp32_false_true: [ 0, 1 ] } ] } ] }
"""
    write(root, "control", add_sub, *ins(("IN__0", "FP32", [1])), *outs(y), more=sequence)
    write(root, "nothing", "def other(self, x):\n    return x", *ins(x), *outs(y))
    return {
        "many": "configuration expects 2 inputs, model provides 1",
        "lacking": "configuration expects 1 inputs, model provides 2: none is the argument 'INPUT1' of forward()",
        "beyond": "model 'beyond', input 'IN__1': its index is 1, but forward() has 1 arguments",
        "twice": "model 'twice': inputs 'IN__0' and 'X__0' are the same argument",
        "unsigned": "unsupported datatype TYPE_UINT64 for input 'x' for model 'unsigned'",
        "texts": "configuration expects datatype TYPE_STRING for input 'x', model provides Tensor",
        "table": "Triton only supports 1 dimensional List of String as input for 'x' for model 'table'",
        "number": "An input of type 'int' was detected in the model.",
        "flag": "parameter 'INFERENCE_MODE' must be true or false, got 'maybe'",
        "threads": "parameter 'INTRA_OP_THREAD_COUNT' must be a whole number from 1 to 4096, got '0'",
        "control": "model 'control': input 'START' does not follow <name>__<index> naming convention",
        "nothing": "failed to load model 'nothing' from",
    }


LENIENT = ["--exit-on-error=false", "--strict-readiness=false"]


def test_configurations_that_do_not_fit(tmp_path):
    expected = refused_configurations(tmp_path)
    with servers.Server(tmp_path, flags=LENIENT, ready=False) as running:
        for name, message in expected.items():
            assert message in running.log(), (name, running.log())


def rewritten(data, change):
    """The archive with each member as change(name, bytes) returns it."""
    result = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(result, "w") as new:
        for name in old.namelist():
            new.writestr(name, change(name, old.read(name)))
    return result.getvalue()


def damaged(data):
    """{what: bytes} of a file that is no model any more; its weight is [17, 19]."""
    half = len(data) // 2
    yield "empty", b""
    yield "cut", data[:half]
    yield "zeroes", data[:half] + bytes(len(data) - half)
    yield "noise", np.random.default_rng(3).bytes(5000)
    if not servers.SANITIZED:    # PyTorch forgets what it has allocated for this one
        yield "zip", rewritten(data, lambda name, content: b"hello")

    def widen(name, content):
        return content.replace(b"K\x11K\x13", b"\x8a\x08" + (1 << 40).to_bytes(8, "little") + b"K\x13", 1) if name.endswith("data.pkl") else content

    def taller(name, content):
        return content.replace(b"K\x11K\x13", b"K\x12K\x13", 1) if name.endswith("data.pkl") else content

    def operator(name, content):
        return content.replace(b"torch.linear", b"torch.linfar") if name.endswith(".py") else content

    yield "wide", rewritten(data, widen)
    yield "tall", rewritten(data, taller)
    yield "operator", rewritten(data, operator)


def test_files_that_are_no_models(tmp_path):
    """Each is refused with one line that names the file, and the server serves on."""
    tensors = *ins(("x", "FP32", [19])), *outs(("y", "FP32", [17]))
    whole = torch_models.write_model(tmp_path, "whole", "def forward(self, x):\n    return torch.linear(x, self.weight)", *tensors,
                                     weights={"weight": [17, 19]})
    data = (whole / "1" / "model.pt").read_bytes()
    # Written anew with nothing changed, it is a model: what the others are refused for is the damage.
    torch_models.write_model(tmp_path, "again", rewritten(data, lambda name, content: content), *tensors)
    bad = {}
    for what, content in damaged(data):
        assert content != data, what
        bad[what] = torch_models.write_model(tmp_path, what, content, *tensors) / "1" / "model.pt"
    with servers.Server(tmp_path, flags=LENIENT, ready=False) as running:
        log = running.log()
        for what, file in bad.items():
            assert f"failed to load model '{what}' from '{file}': " in log, (what, log)
        for rows in (1 << 40, 18):    # newer releases look, too
            assert (f"a tensor of [{rows}, 19] lies outside of the 1292 bytes that the file has for it" in log
                    or re.search(rf"Tensor: sizes {rows} 19, strides 19 1, .* but storage only has 1292 bytes", log)), log
        assert "Unknown builtin op: aten::linfar" in log
        for model in ("whole", "again"):
            answer = ask(running.url, model, x=np.ones(19, np.float32)).as_numpy("y")
            np.testing.assert_array_equal(answer, np.arange(17 * 19, dtype=np.float32).reshape(17, 19).sum(1))


def test_a_tensor_that_claims_more_rows_than_it_has_counts_with_what_it_has(tmp_path):
    """All its 2^40 rows lie at the same place, as those of expand() do: no memory lies outside, and 1292 bytes are there."""
    tensors = *ins(("x", "FP32", [-1])), *outs(("y", "FP32", [-1]))
    whole = torch_models.write_model(tmp_path, "whole", "def forward(self, x):\n    return x + self.weight[0, 0]", *tensors,
                                     weights={"weight": [17, 19]})

    def expand(name, content):
        many = b"\x8a\x08" + (1 << 40).to_bytes(8, "little")
        return content.replace(b"K\x11K\x13", many + b"K\x13", 1).replace(b"K\x13K\x01", b"K\x00K\x01", 1) if name.endswith("data.pkl") else content

    data = (whole / "1" / "model.pt").read_bytes()
    assert rewritten(data, expand) != rewritten(data, lambda name, content: content)
    torch_models.write_model(tmp_path, "rows", rewritten(data, expand), *tensors)
    with servers.Server(tmp_path, flags=["--log-verbose=1"]) as running:
        assert ask(running.url, "rows", x=ONE).as_numpy("y").tolist() == [1]
        for model in ("whole", "rows"):
            assert f"model '{model}': 1292 bytes of tensors" in running.log(), running.log()


def test_a_missing_library_fails_only_its_models(tmp_path):
    torch_models.write_model(tmp_path, "m", torch_models.ADD_SUB, *ins(*pair("INPUT0", "INPUT1")), *outs(*pair("OUT__0", "OUT__1")))
    repository.write_identity(tmp_path, "other", [("FP32", [1])])
    missing = str(tmp_path / "libtorch_cpu.so")
    with servers.Server(tmp_path, flags=LENIENT, env={"CONCH_TORCH": missing}, ready=False) as running:
        assert f"PyTorch's library libtorch_cpu.so cannot be loaded; tried {missing}; get PyTorch " in running.log()
        assert "the server starts without some of its models" in running.log()


def test_a_backend_without_its_part_in_cpp_says_how_to_make_it(tmp_path):
    backends = tmp_path / "backends" / "pytorch"
    backends.mkdir(parents=True)
    shutil.copy(os.path.join(servers.BACKENDS, "pytorch", "libtriton_pytorch.so"), backends)
    torch_models.write_model(tmp_path / "models", "m", b"", *ins(("x", "FP32", [1])), *outs(("y", "FP32", [1])))
    flags = [*LENIENT, f"--backend-directory={backends.parent}"]
    with servers.Server(tmp_path / "models", flags=flags, env={"CONCH_TORCH": ""}, ready=False) as running:
        assert re.search(r"PyTorch from '(.*)/libtorch_cpu\.so[0-9.]*' needs a part of the backend pytorch that is compiled for it, and there is no "
                         rf"'\1/libconch_torch\.so'; run `{backends}/shim/build /usr '{backends}/libconch_torch\.so'`, which needs g\+\+ "
                         r"and PyTorch's headers \(Debian 12: libtorch-dev\)", running.log()), running.log()
        command = re.search(r"run `(.*?)`, which needs g", running.log())[1]
    # The command makes it.
    shutil.copytree(os.path.join(servers.BACKENDS, "pytorch", "shim"), backends / "shim")
    subprocess.run(command, shell=True, check=True)
    shutil.rmtree(tmp_path / "models")
    torch_models.write_model(tmp_path / "models", "m", torch_models.ADD_SUB, *ins(*pair("INPUT0", "INPUT1")), *outs(*pair("OUT__0", "OUT__1")))
    with servers.Server(tmp_path / "models", flags=flags, env={"CONCH_TORCH": ""}) as running:
        np.testing.assert_array_equal(ask(running.url, "m", INPUT0=ROW[0], INPUT1=ROW[0]).as_numpy("OUT__0"), 2 * ROW[0])


# What stands for a libconch_torch.so of another release, and of another build.
OTHERS = {
    "is for PyTorch 1.12.9, but this is 1.13.0": 'version == SHIM_VERSION ? &table : NULL',
    "is of another build of the backend": 'version == SHIM_VERSION - 1 ? &table : NULL',
}


@pytest.mark.parametrize("why", OTHERS)
def test_a_part_for_another_pytorch_is_refused(tmp_path, why):
    source, file = tmp_path / "other.c", tmp_path / "libconch_torch.so"
    source.write_text(f"""
#include "pytorch/shim/shim.h"
static const struct shim table = {{.version = "1.12.9", .running = "1.13.0"}};
const struct shim *conch_torch(int version)
{{
    return {OTHERS[why]};
}}
""")
    includes = [f"-I{servers.ROOT / folder}" for folder in ("include", "backends")]
    subprocess.run(["cc", "-shared", "-fPIC", *includes, "-o", str(file), str(source)], check=True)
    torch_models.write_model(tmp_path / "models", "m", b"", *ins(("x", "FP32", [1])), *outs(("y", "FP32", [1])))
    flags = [*LENIENT, f"--backend-config=pytorch,shim-path={file}"]
    with servers.Server(tmp_path / "models", flags=flags, ready=False) as running:
        assert f"and '{file}' {why}; run `" in running.log(), running.log()
    missing = tmp_path / "none.so"
    flags = [*LENIENT, f"--backend-config=pytorch,shim-path={missing}"]
    with servers.Server(tmp_path / "models", flags=flags, ready=False) as running:
        assert f"and '{missing}' cannot be loaded: {missing}: cannot open shared object file" in running.log(), running.log()


def test_a_library_of_another_name_does_not_get_the_part_of_this_one(tmp_path):
    """The part would bring a second PyTorch into the process, the one that it was compiled for."""
    library = tmp_path / "libtorch_cpu.so"
    subprocess.run(["cc", "-shared", "-x", "c", "/dev/null", "-Wl,-soname,libtorch_cpu.so.9", "-o", str(library)], check=True)
    torch_models.write_model(tmp_path / "models", "m", b"", *ins(("x", "FP32", [1])), *outs(("y", "FP32", [1])))
    with servers.Server(tmp_path / "models", flags=LENIENT, env={"CONCH_TORCH": str(library)}, ready=False) as running:
        assert f"PyTorch from '{library}' needs a part" in running.log(), running.log()
        assert f"and there is no '{tmp_path}/libconch_torch.so'" in running.log()
        assert "libconch_torch.so" not in open(f"/proc/{running.pid}/maps").read()


def test_version_names_the_library():
    code, out, err = servers.run_to_end("--version")
    assert (code, err) == (0, "")
    assert re.search(r"^pytorch: PyTorch [0-9.]+ from /.*libtorch_cpu\.so", out, re.M), out
