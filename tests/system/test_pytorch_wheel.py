# SPDX-License-Identifier: Apache-2.0
"""The backend pytorch with a PyTorch of the user's own, its newest package: how its part in C++ is compiled for it and found, and
that models which Python's PyTorch writes answer what it answers."""

import re
import shutil
import subprocess

import numpy as np
import pytest
import tritonclient.http
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

import repository
import server as servers
import torch_wheel

pytestmark = pytest.mark.skipif(torch_wheel.MISSING is not None, reason=torch_wheel.MISSING or "")

BUILD = repository.BUILD / "backends" / "pytorch" / "shim" / "build"
ENV = {"CONCH_TORCH": str(torch_wheel.LIBRARY)}

CONFIG = """
backend: "pytorch" max_batch_size: 8
input [ { name: "x" data_type: TYPE_FP32 dims: [ 3, 32, 32 ] } ]
output [ { name: "OUTPUT__0" data_type: TYPE_FP32 dims: [ 10 ] }, { name: "OUTPUT__1" data_type: TYPE_FP32 dims: [ 4 ] } ]
instance_group [ { count: 2 kind: KIND_CPU } ]
"""

# A convolution net with the layers that classifiers have; its answers for one batch are saved beside it.
WRITE = """
import sys
import numpy, torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3), nn.GELU(),
                                  nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(64, 32), nn.LayerNorm(32), nn.SiLU(), nn.Dropout(0.5))
        self.scores, self.box = nn.Linear(32, 10), nn.Linear(32, 4)

    def forward(self, x):
        y = self.body(x)
        return torch.softmax(self.scores(y), 1), self.box(y)

folder, kind = sys.argv[1:]
torch.manual_seed(7)
net = Net().eval()
x = torch.rand(5, 3, 32, 32)
script = torch.jit.script(net) if kind == "script" else torch.jit.trace(net, x)
script.save(folder + "/1/model.pt")
with torch.inference_mode():
    numpy.savez(folder + "/answers.npz", x=x.numpy(), scores=net(x)[0].numpy(), box=net(x)[1].numpy())
"""


@pytest.fixture(scope="module")
def shim(tmp_path_factory):
    """libconch_torch.so for the package, made by the command that users run."""
    file = tmp_path_factory.mktemp("shim") / "libconch_torch.so"
    assert subprocess.run([str(BUILD), str(torch_wheel.TORCH), str(file)], check=True, capture_output=True, text=True).stdout == f"{file}\n"
    return file


@pytest.mark.parametrize("kind", ["script", "trace"])
def test_models_of_python_answer_what_python_answers(shim, tmp_path, kind):
    folder = repository.write_model(tmp_path / "models", "net", CONFIG)
    torch_wheel.run_python(tmp_path, WRITE, folder, kind)
    known = np.load(folder / "answers.npz")
    flags = [f"--backend-config=pytorch,shim-path={shim}"]
    with servers.Server(tmp_path / "models", flags=flags, env=ENV) as running, tritonclient.http.InferenceServerClient(running.url) as client:
        for rows in (slice(0, 1), slice(0, 5), slice(2, 4)):
            x = tritonclient.http.InferInput("x", known["x"][rows].shape, "FP32")
            x.set_data_from_numpy(known["x"][rows])
            answer = client.infer("net", [x])
            np.testing.assert_allclose(answer.as_numpy("OUTPUT__0"), known["scores"][rows], rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(answer.as_numpy("OUTPUT__1"), known["box"][rows], rtol=1e-5, atol=1e-6)
        libraries = {line.split("/")[-1] for line in open(f"/proc/{running.pid}/maps").read().splitlines() if "/" in line}
    assert "libtorch_cpu.so" in libraries
    assert not [name for name in libraries if re.match(r"libtorch_cuda|libcublas|libcudnn|libtorch\.so|libtorch_cpu\.so\.", name)], libraries


# Packages of AOTInductor for this processor, and what Python answers.
COMPILE = """
import sys
import numpy, torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.linear = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Linear(8, 5)

    def forward(self, x):
        y = torch.relu(self.norm(self.conv(x))).mean((2, 3))
        return torch.softmax(self.linear(y), 1), y.T.contiguous().T

class AddSub(nn.Module):
    def forward(self, a, b):
        return a + b, a - b

class Looks(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.arange(10.)[:, None].repeat(1, 16))

    def forward(self, index, x):
        return self.table[index[:, 0]] + x

class Sorts(nn.Module):
    def forward(self, x):
        return torch.sort(x)[0]

def compile(name, module, *examples):
    batch = torch.export.Dim("batch", min=2, max=64)
    program = torch.export.export(module, examples, dynamic_shapes=tuple({0: batch} for _ in examples))
    torch._inductor.aoti_compile_and_package(program, package_path=f"{root}/{name}/1/model.pt2",
                                             inductor_configs={"aot_inductor.check_lowerbound": name == "strict"})

root = sys.argv[1]
torch.manual_seed(7)
with torch.no_grad():
    net, x = Net().eval(), torch.rand(6, 3, 12, 12)
    scores, features = net(x)
numpy.savez(root + "/answers.npz", x=x.numpy(), scores=scores.numpy(), features=features.numpy())
if len(sys.argv) > 2:
    compile("sorts", Sorts(), torch.rand(64, 1000))
    sys.exit()
compile("net", net, torch.rand(6, 3, 12, 12))
compile("add_sub", AddSub(), torch.rand(2, 16), torch.rand(2, 16))
compile("strict", AddSub(), torch.rand(2, 16), torch.rand(2, 16))
compile("looks", Looks(), torch.zeros(6, 1, dtype=torch.int64), torch.rand(6, 16))
"""

NET = """
platform: "torch_aoti" max_batch_size: 8
input [ { name: "x" data_type: TYPE_FP32 dims: [ 3, 12, 12 ] } ]
output [ { name: "scores" data_type: TYPE_FP32 dims: [ 5 ] }, { name: "features" data_type: TYPE_FP32 dims: [ 8 ] } ]
instance_group [ { count: 2 kind: KIND_CPU } ]
"""
ADD_SUB = """
platform: "torch_aoti" max_batch_size: 8
input [ { name: "a" data_type: TYPE_FP32 dims: [ -1 ] }, { name: "b" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "sum" data_type: TYPE_FP32 dims: [ 16 ] }, { name: "difference" data_type: TYPE_FP32 dims: [ 16 ] } ]
instance_group [ { count: 1 kind: KIND_CPU } ]
"""
LOOKS = """
platform: "torch_aoti"
input [ { name: "index" data_type: TYPE_INT64 dims: [ -1, 1 ] }, { name: "x" data_type: TYPE_FP32 dims: [ -1, 16 ] } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ -1, 16 ] } ]
instance_group [ { count: 1 kind: KIND_CPU } ]
"""


def ask(client, model, **tensors):
    inputs = []
    for name, value in tensors.items():
        inputs.append(tritonclient.http.InferInput(name, value.shape, np_to_triton_dtype(value.dtype)))
        inputs[-1].set_data_from_numpy(value)
    return client.infer(model, inputs)


def test_packages_of_aotinductor_answer_what_python_answers(tmp_path):
    """Without the part in C++, and without CUDA. Shapes that the code was not compiled for are errors."""
    for name, config in (("net", NET), ("add_sub", ADD_SUB), ("strict", ADD_SUB), ("looks", LOOKS)):
        repository.write_model(tmp_path / "models", name, config)
    torch_wheel.run_python(tmp_path, COMPILE, tmp_path / "models")
    known = np.load(tmp_path / "models" / "answers.npz")
    flags = ["--backend-config=pytorch,allow-native-code=1", f"--backend-config=pytorch,shim-path={tmp_path / 'none.so'}"]
    with servers.Server(tmp_path / "models", flags=flags, env=ENV) as running, tritonclient.http.InferenceServerClient(running.url) as client:
        for rows in (slice(0, 1), slice(0, 6), slice(2, 4)):
            answer = ask(client, "net", x=known["x"][rows])
            np.testing.assert_allclose(answer.as_numpy("scores"), known["scores"][rows], rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(answer.as_numpy("features"), known["features"][rows], rtol=1e-4, atol=1e-5)
        a = np.arange(32, dtype=np.float32).reshape(2, 16)
        np.testing.assert_array_equal(ask(client, "add_sub", a=a, b=a * a).as_numpy("difference"), a - a * a)
        np.testing.assert_array_equal(ask(client, "strict", a=a, b=a * a).as_numpy("sum"), a + a * a)
        with pytest.raises(InferenceServerException, match=r"input_handles\[0\]: unmatched dim value at 1, *expected: 16, but got: 3"):
            ask(client, "add_sub", a=a[:, :3].copy(), b=a)
        with pytest.raises(InferenceServerException, match="dim value is too small at 0"):
            ask(client, "strict", a=a[:1], b=a[:1])
        check_refused_runs(client)
        maps = open(f"/proc/{running.pid}/maps").read()
    assert "libtorch_cpu.so" in maps and not re.search(r"/libtorch\.so|libtorch_cuda|libconch_torch", maps)


def check_refused_runs(client):
    """The code finds while it runs that rows do not fit, or that an index is none of the table. The next answers are right."""
    for n in (3, 60):
        x, places = np.random.default_rng(n).random((n, 16), np.float32), np.arange(n)[:, None] % 10
        for given in ({"index": np.maximum(places, 77 * (places == places[-1])), "x": x}, {"index": places, "x": x[1:]}):
            with pytest.raises(InferenceServerException, match="the compiled model has failed: (index out of bounds|expected size)"):
                ask(client, "looks", **given)
            np.testing.assert_array_equal(ask(client, "looks", index=places, x=x).as_numpy("y"), np.float32(places) + x)


SORTS = """
platform: "torch_aoti" max_batch_size: 64
input [ { name: "x" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ 1000 ] } ]
instance_group [ { count: 1 kind: KIND_CPU } ]
parameters { key: "CONCH_EXECUTION" value { string_value: "thread" } }
"""


def test_operators_that_a_package_calls_use_as_many_threads_as_the_parameter_says(tmp_path):
    """The code calls PyTorch to sort. A thread has the name of the one that started it."""
    for n in (4, 1, 3):
        repository.write_model(tmp_path / "models", f"s{n}", SORTS + f'parameters {{ key: "INTRA_OP_THREAD_COUNT" value {{ string_value: "{n}" }} }}\n')
    (tmp_path / "models" / "sorts" / "1").mkdir(parents=True)
    torch_wheel.run_python(tmp_path, COMPILE, tmp_path / "models", "sorts")
    for n in (4, 1, 3):
        shutil.copy(tmp_path / "models" / "sorts" / "1" / "model.pt2", tmp_path / "models" / f"s{n}" / "1")
    shutil.rmtree(tmp_path / "models" / "sorts")
    x = np.random.default_rng(1).normal(size=(64, 1000)).astype(np.float32)
    flags = ["--backend-config=pytorch,allow-native-code=1"]
    with servers.Server(tmp_path / "models", flags=flags, env=ENV) as running, tritonclient.http.InferenceServerClient(running.url) as client:
        for n in (4, 1, 3):
            np.testing.assert_array_equal(ask(client, f"s{n}", x=x).as_numpy("y"), np.sort(x))
            servers.wait_for(lambda: running.names_of_threads().count(f"s{n}_0_0") == n, 20, f"{n} threads")


def version_line(env, *flags):
    code, out, _ = servers.run_to_end("--version", *flags, env=env)
    assert code == 0
    return re.search(r"^pytorch: (.*)$", out, re.M)[1]


def test_the_part_in_cpp_is_found_beside_the_library(shim, tmp_path):
    """A package whose folder has the part, and one whose folder does not: the error has the command that makes it."""
    torch = tmp_path / "torch"
    (torch / "lib").mkdir(parents=True)
    for file in torch_wheel.TORCH.glob("lib/lib*.so*"):
        if re.match(r"lib(torch_cpu|c10)\.so|libgomp", file.name):
            (torch / "lib" / file.name).hardlink_to(file)
    (tmp_path / "nvidia").symlink_to(torch_wheel.TORCH.parent / "nvidia")
    env = {"CONCH_TORCH": str(torch / "lib" / "libtorch_cpu.so")}
    line = version_line(env)
    assert f"there is no '{torch}/lib/libconch_torch.so'; run `{BUILD} '{torch}'`" in line, line
    shutil.copy(shim, torch / "lib")
    assert version_line(env) == f"PyTorch {torch_wheel.VERSION} from {torch}/lib/libtorch_cpu.so"


def test_the_model_in_python_of_the_page(tmp_path):
    """docs/pytorch.md has it; its Python is the package's."""
    page = (servers.ROOT / "docs" / "pytorch.md").read_text()
    model = re.search(r'`models/net/1/model.py`:\n\n```python\n(.*?)```', page, re.S)[1]
    config = re.search(r'    models/net/config.pbtxt    (backend: "python".*?)\n\n', page, re.S)[1]
    folder = repository.write_model(tmp_path, "net", config)
    (folder / "1" / "model.py").write_text(model)
    env = {"PATH": f"{torch_wheel.PYTHON.parent}:/usr/bin:/bin", "LD_LIBRARY_PATH": str(torch_wheel.stand_ins())}
    with servers.Server(tmp_path, env=env) as running, tritonclient.http.InferenceServerClient(running.url) as client:
        x = np.arange(12, dtype=np.float32).reshape(3, 4) / 10
        both, last = ask(client, "net", x=x).as_numpy("y"), ask(client, "net", x=x[2:]).as_numpy("y")
        assert both.shape == (3, 3)
        np.testing.assert_allclose(both.sum(1), 1, rtol=1e-5)
        np.testing.assert_allclose(both[2:], last, rtol=1e-5)
