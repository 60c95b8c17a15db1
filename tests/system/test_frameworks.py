# SPDX-License-Identifier: Apache-2.0
"""The same graphs in the formats of all frameworks: each answers what ONNX Runtime answers about the ONNX file, alone and in batches, over
HTTP, gRPC and by the C API. `make run FRAMEWORKS=1` serves a model of each format."""

import concurrent.futures
import os
import re
import sys

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import np_to_triton_dtype, triton_to_np_dtype

for _module in ("onnx", "onnxruntime", "openvino", "treelite", "xgboost", "lightgbm", "sklearn"):
    pytest.importorskip(_module, reason="`make test-frameworks` installs the frameworks")

import onnx  # noqa: E402
import onnx.parser  # noqa: E402
import onnxruntime  # noqa: E402
import openvino  # noqa: E402

import embed  # noqa: E402
import framework_models  # noqa: E402
import openvino_models  # noqa: E402
import repository  # noqa: E402
import server as servers  # noqa: E402
import torch_models  # noqa: E402
from test_examples import demo_env, run  # noqa: E402

pytestmark = [
    pytest.mark.skipif(not torch_models.MAKER.exists(),
                       reason="`tools/deps/install torch` installs PyTorch's headers; then configure and build again"),
    pytest.mark.skipif(servers.SANITIZED, reason="Debian's TBB, which comes with PyTorch, loads a library in a way that sanitizers refuse"),
]

CLOSE = {"rtol": 1e-4, "atol": 1e-6}
RNG = np.random.default_rng(5)
BATCHES = "max_batch_size: 16\ndynamic_batching { max_queue_delay_microseconds: 20000 }\n"
NETWORKS = ["openvino", "tensorflow", "torch", "python"]
FORESTS = ["xgboost", "lightgbm", "scikit_learn"]


# ---- The graphs


class Graph:
    """text: in ONNX's language. script: the same as TorchScript. tensors: those of a configuration. given(rows): inputs of a request. weights:
    {name: array} of both. sequence: the configuration's part about sequences. batched: do requests have rows?"""

    def __init__(self, text, script, tensors, given, weights=(), sequence="", batched=True):
        self.script, self.tensors, self.given, self.weights, self.batched = script, tensors, given, dict(weights), batched
        self.head = "max_batch_size: 16\n" + sequence if sequence else BATCHES if batched else ""
        self.model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
        self.model.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in self.weights.items())
        self.session = onnxruntime.InferenceSession(self.model.SerializeToString())

    def expected(self, **given):
        return dict(zip((o.name for o in self.session.get_outputs()), self.session.run(None, given), strict=True))

    def text_of_tensors(self):
        return "".join(repository.tensor(*t) for t in self.tensors)

    def write_onnx(self, root, name, backend="onnxruntime"):
        config = f'backend: "{backend}"\ndefault_model_filename: "model.onnx"\n{self.head}{self.text_of_tensors()}'
        if backend == "openvino":
            config += framework_models.EXACT
        onnx.save(self.model, repository.write_model(root, name, config) / "1/model.onnx")

    def write_openvino(self, root, name):
        folder = repository.write_model(root, name, f'backend: "openvino"\n{self.head}{self.text_of_tensors()}{framework_models.EXACT}')
        onnx.save(self.model, folder / "graph.onnx")
        openvino.save_model(openvino.convert_model(folder / "graph.onnx"), folder / "1/model.xml", compress_to_fp16=False)

    def write_torch(self, root, name):
        more = self.head + "instance_group [ { count: 1 kind: KIND_CPU } ]\n"
        torch_models.write_model(root, name, self.script, *self.tensors, more=more, weights=self.weights)


def floats(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def texts(rows):
    return np.array([f"text-{'ä' * i}" for i in range(rows)], object)


SEQUENCE = """sequence_batching { max_sequence_idle_microseconds: 60000000
  state [ { input_name: "LAST__1" output_name: "NEXT__1" data_type: TYPE_FP32 dims: [ 1 ]
            initial_state: { name: "zero" data_type: TYPE_FP32 dims: [ 1 ] zero_data: true } } ] }
"""
GRAPHS = {
    "add_sub": Graph("g (float[n,16] A, float[n,16] B) => (float[n,16] SUM__0, float[n,16] DIFF__1) { SUM__0 = Add(A, B) DIFF__1 = Sub(A, B) }",
                     "def forward(self, A, B):\n    return A + B, A - B",
                     [*(("input", n, "FP32", [16]) for n in "AB"), *(("output", n, "FP32", [16]) for n in ("SUM__0", "DIFF__1"))],
                     lambda rows: {"A": floats(rows, 16), "B": floats(rows, 16)}),
    "convolutions": Graph("""g (float[n,1,8,8] image) => (float[n,10] scores, int64[n,1] best) {
    a = Conv<pads = [1,1,1,1]>(image, w1)  b = Relu(a)  c = Conv<pads = [1,1,1,1]>(b, w2)  d = Relu(c)
    e = MaxPool<kernel_shape = [2,2], strides = [2,2]>(d)  f = Flatten(e)  h = MatMul(f, w3)
    scores = Softmax(h)  best = ArgMax<axis = 1>(h) }""", """
def forward(self, image):
    x = torch.relu(torch.conv2d(image, self.w1, None, [1, 1], [1, 1]))
    x = torch.relu(torch.conv2d(x, self.w2, None, [1, 1], [1, 1]))
    x = torch.matmul(torch.flatten(torch.max_pool2d(x, [2, 2]), 1), self.w3)
    return torch.softmax(x, 1), torch.argmax(x, 1, True)
""", [("input", "image", "FP32", [1, 8, 8]), ("output", "scores", "FP32", [10]), ("output", "best", "INT64", [1])],
                          lambda rows: {"image": floats(rows, 1, 8, 8)},
                          {"w1": floats(8, 1, 3, 3) / 3, "w2": floats(16, 8, 3, 3) / 6, "w3": floats(256, 10) / 8}),
    "dynamic": Graph("""g (float[r,c] x) => (float[r,1] sums, float[c,r] turned)
    { axes = Constant<value = int64[1] {1}>() sums = ReduceSum(x, axes) turned = Transpose<perm = [1,0]>(x) }""",
                     "def forward(self, x):\n    return x.sum(1, True), x.t()",
                     [("input", "x", "FP32", [-1, -1]), ("output", "sums", "FP32", [-1, 1]), ("output", "turned", "FP32", [-1, -1])],
                     lambda rows: {"x": floats(rows, 1 + 2 * rows)}, batched=False),
    "strings": Graph("g (string[n] text) => (string[n] same) { same = Identity(text) }",
                     "def forward(self, text: List[str]) -> List[str]:\n    return text",
                     [("input", "text", "BYTES", [-1]), ("output", "same", "BYTES", [-1])], lambda rows: {"text": texts(rows)}, batched=False),
    "state": Graph("g (float[n,1] X__0, float[n,1] LAST__1) => (float[n,1] Y__0, float[n,1] NEXT__1) { NEXT__1 = Add(X__0, LAST__1) "
                   "two = Constant<value = float {2.0}>() Y__0 = Mul(NEXT__1, two) }",
                   "def forward(self, x, last):\n    return (x + last) * 2, x + last",
                   [("input", "X__0", "FP32", [1]), ("output", "Y__0", "FP32", [1])], lambda rows: {"X__0": floats(rows, 1)}, sequence=SEQUENCE),
}
# OpenVINO's reader of ONNX has no Identity of strings; its own format has them.
FORMATS = {name: ["onnx", "openvino_onnx", "openvino", "torch"] for name in GRAPHS} | {"strings": ["onnx", "openvino", "torch"]}
ASKED = [(name, kind) for name in GRAPHS if name != "state" for kind in FORMATS[name]]


def write_graphs(root):
    for name, graph in GRAPHS.items():
        graph.write_onnx(root, f"{name}_onnx")
        graph.write_torch(root, f"{name}_torch")
        if name == "strings":
            openvino_models.write(root, "strings_openvino", openvino_models.strings(), graph.text_of_tensors())
        else:
            graph.write_openvino(root, f"{name}_openvino")
            graph.write_onnx(root, f"{name}_openvino_onnx", "openvino")


# ---- The servers, and requests by three ways


class Places:
    """A server, and a program with our library, that serve the same models."""

    def __init__(self, server, session):
        self.server, self.session = server, session

    def ask(self, way, model, given, **sequence):
        """{output: array}"""
        if way == "c":
            return self.ask_by_c(model, given, **sequence)
        module = {"http": tritonclient.http, "grpc": tritonclient.grpc}[way]
        with module.InferenceServerClient(self.server.url if way == "http" else self.server.grpc_url) as client:
            inputs = []
            for name, array in given.items():
                inputs.append(module.InferInput(name, array.shape, np_to_triton_dtype(array.dtype)))
                inputs[-1].set_data_from_numpy(array)
            answer = client.infer(model, inputs, **sequence)
            outputs = answer.get_response()["outputs"] if way == "http" else answer.get_response().outputs
            names = [o["name"] if way == "http" else o.name for o in outputs]
            return {name: answer.as_numpy(name) for name in names}

    def ask_by_c(self, model, given, sequence_id=0, sequence_start=False, sequence_end=False):
        words = [f"{name}:{np_to_triton_dtype(array.dtype)}:{','.join(map(str, array.shape))}:{','.join(map(plain, array.flat))}"
                 for name, array in given.items()]
        words += [f"@id:{sequence_id}"] * bool(sequence_id) + ["@start"] * sequence_start + ["@end"] * sequence_end
        lines = self.session.do(f"infer 1 {model} -1 - {' '.join(words)}")
        answer = re.match(r"1 response (.*) final$", lines[0])
        assert answer, lines
        return dict(map(array_of, re.split(r" (?=[^ ]+:[A-Z0-9]+:)", answer[1])))


def plain(value):
    return value if isinstance(value, str) else repr(float(value))


def array_of(text):
    name, datatype, shape, elements = text.split(":", 3)
    elements = [e.encode() if datatype == "BYTES" else float(e) for e in elements.split(",")]
    return name, np.array(elements, triton_to_np_dtype(datatype)).reshape([int(d) for d in shape.split(",")])


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    root = tmp_path_factory.mktemp("formats")
    left_out = framework_models.write_all(root)
    assert list(left_out) == ["TensorRT"], left_out
    for example in ("digits", "digits_name"):
        repository.copy_example(root, example)
    write_graphs(root)
    path = {"PATH": f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"}    # its NumPy is for the model in Python
    with servers.Server(root, grpc=True, env=path) as server, embed.Session(root, env=path) as session:
        yield Places(server, session)


WAYS = ["http", "grpc", "c"]


# ---- What is answered


def same(answer, expected):
    assert answer.keys() >= expected.keys()
    for name, array in expected.items():
        if array.dtype == object:
            assert [t.decode() for t in answer[name].flat] == list(array.flat), name
        else:
            np.testing.assert_allclose(answer[name], array, err_msg=name, **CLOSE)
            assert answer[name].dtype == array.dtype


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name, kind", ASKED)
def test_graphs_alone(places, name, kind, way):
    for rows in (1, 3, 16, 1):
        given = GRAPHS[name].given(rows)
        same(places.ask(way, f"{name}_{kind}", given), GRAPHS[name].expected(**given))


@pytest.mark.parametrize("way", ["http", "grpc"])
@pytest.mark.parametrize("name, kind", [(name, kind) for name, kind in ASKED if GRAPHS[name].batched])
def test_graphs_in_batches(places, name, kind, way):
    requests = [GRAPHS[name].given(rows) for rows in (1, 3, 2, 1, 4, 1, 2, 1)]
    with concurrent.futures.ThreadPoolExecutor(len(requests)) as pool:
        for given, answer in zip(requests, pool.map(lambda g: places.ask(way, f"{name}_{kind}", g), requests)):
            same(answer, GRAPHS[name].expected(**given))
    with tritonclient.http.InferenceServerClient(places.server.url) as client:
        counts = client.get_inference_statistics(f"{name}_{kind}")["model_stats"][0]
    assert counts["execution_count"] < counts["inference_stats"]["success"]["count"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", FORMATS["state"])
def test_states(places, kind, way):
    graph, last = GRAPHS["state"], np.zeros((1, 1), np.float32)
    for i in range(4):
        given = graph.given(1)
        expected = graph.expected(**given, LAST__1=last)
        answer = places.ask(way, f"state_{kind}", given, sequence_id=77, sequence_start=i == 0, sequence_end=i == 3)
        same(answer, {"Y__0": expected["Y__0"]})
        last = expected["NEXT__1"]


def held_out():
    data = np.load(repository.EXAMPLES.parent / "digits/held_out.npz")
    return data["images"].astype(np.float32), data["labels"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", NETWORKS)
def test_the_network_of_the_digits(places, kind, way):
    session = onnxruntime.InferenceSession(framework_models.NETWORK)
    images, _ = held_out()
    for rows in (slice(0, 1), slice(1, 51), slice(51, 115)):
        same(places.ask(way, f"digits_{kind}", {"image": images[rows]}), {"scores": session.run(None, {"image": images[rows]})[0]})


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", FORESTS)
def test_forests_read_the_digits(places, kind, way):
    images, labels = held_out()
    seen = np.concatenate([places.ask(way, f"digits_{kind}", {"input__0": images[i:i + 50]})["output__0"].argmax(1) for i in range(0, 450, 50)])
    assert (seen == labels).mean() > 0.95


@pytest.mark.parametrize("way", WAYS)
def test_an_ensemble_of_two_frameworks(places, way):
    images, _ = held_out()
    answer = places.ask(way, "digits_ensemble", {"image": images[:5]})
    assert answer["name"].flatten().tolist() == [b"four", b"seven", b"nine", b"six", b"six"]
    assert (answer["score"] > 0.9).all()


@pytest.mark.parametrize("first, second", [("torch", "openvino"), ("openvino", "torch")])
def test_frameworks_load_in_any_order(tmp_path, first, second):
    """Debian's PyTorch and OpenVINO both bring TBB, and the one that is loaded first serves both. It brings hwloc."""
    GRAPHS["add_sub"].write_torch(tmp_path, "torch")
    GRAPHS["add_sub"].write_openvino(tmp_path, "openvino")
    given = GRAPHS["add_sub"].given(2)
    with servers.Server(tmp_path, flags=["--model-control-mode=explicit", f"--load-model={first}"]) as running:
        with tritonclient.http.InferenceServerClient(running.url) as client:
            client.load_model(second)
        for name in (first, second):
            same(Places(running, None).ask("http", name, given), GRAPHS["add_sub"].expected(**given))


# ---- The demonstration


def test_the_demonstration_has_a_model_of_each_format(tmp_path):
    code, out, err = run("tools/run-demo", env={**demo_env(tmp_path, servers.free_port()), "ONCE": "1", "FRAMEWORKS": "1"})
    assert code == 0, out + err
    rows = dict(re.findall(r"^(digits\w*) +(\w+) +4 7 9 6 6 6 6 6 1 1   4[345]\d of 450 right$", out, re.MULTILINE))
    assert rows == {"digits": "onnxruntime", "digits_ensemble": "ensemble", "digits_openvino": "openvino", "digits_python": "python",
                    "digits_tensorflow": "tensorflow", "digits_torch": "pytorch", **{f"digits_{forest}": "fil" for forest in FORESTS}}
    assert "without a model of TensorRT: " in out
    assert '{"model_name":"digits_openvino","model_version":"1","outputs":[{"name":"scores"' in out
