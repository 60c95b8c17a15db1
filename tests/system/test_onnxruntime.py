# SPDX-License-Identifier: Apache-2.0
"""Models of ONNX Runtime, written here: every type, completion from the file, several versions and instances."""

import concurrent.futures

import numpy
import onnx
import pytest
import tritonclient.http as triton
from onnx import TensorProto, helper

import onnx_models
import repository
from server import Server
from wire import ask, given, infer


def as_written(inputs, outputs):
    """A configuration that leaves nothing to be completed: no batch dimension, shapes as in the file."""

    def dims(shape):
        return [-1 if isinstance(dim, str) else dim for dim in shape]

    return "".join(
        repository.tensor(side, name, datatype, dims(shape))
        for side, tensors in (("input", inputs), ("output", outputs))
        for name, datatype, shape in tensors
    )


def write_onnx(root, name, nodes, inputs, outputs, config=as_written, versions=(1,)):
    """A model of ONNX nodes; inputs and outputs are (name, wire type, shape)."""
    if callable(config):
        config = config(inputs, outputs)

    def infos(tensors):
        return [helper.make_tensor_value_info(n, onnx_models.ELEMENTS[t], shape) for n, t, shape in tensors]

    graph = helper.make_graph(nodes, name, infos(inputs), infos(outputs))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    folder = repository.write_model(root, name, config, versions)
    for version in versions:
        onnx.save(model, folder / str(version) / "model.onnx")
    return folder


def write_copy(root, name, datatype, shape, config=as_written, versions=(1,)):
    node = helper.make_node("Identity", ["IN"], ["OUT"])
    return write_onnx(root, name, [node], [("IN", datatype, shape)], [("OUT", datatype, shape)], config, versions)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    root = tmp_path_factory.mktemp("onnx")
    for datatype in onnx_models.ELEMENTS:
        write_copy(root, f"copy_{datatype.lower()}", datatype, ["n"])
    write_copy(root, "matrix", "FP32", ["rows", 3])
    write_copy(root, "batching", "FP32", ["b", 3], None)
    write_copy(root, "fixed", "FP32", [2, 3], None)
    write_copy(root, "any_rank", "FP32", None, as_written([("IN", "FP32", [2])], [("OUT", "FP32", [2])]))
    two = repository.tensor("input", "IN", "FP32", [3]) + repository.tensor("output", "OUT", "FP32", [3])
    write_copy(root, "many", "FP32", ["b", 3], f"max_batch_size: 8\n{two}instance_group [ {{ count: 3 kind: KIND_CPU }} ]\n")
    turn = helper.make_node("Transpose", ["IN"], ["OUT"])
    write_onnx(root, "turned", [turn], [("IN", "FP32", ["a", "b"])], [("OUT", "FP32", ["b", "a"])])
    write_copy(root, "versions", "FP32", ["n"], versions=(1, 2))
    write_onnx(
        root,
        "lengths",
        [helper.make_node("NonZero", ["IN"], ["OUT"])],
        [("IN", "FP32", ["n"])],
        [("OUT", "INT64", [1, "m"])],
    )
    write_onnx(
        root,
        "reshape",
        [helper.make_node("Reshape", ["IN", "SHAPE"], ["OUT"])],
        [("IN", "FP32", ["n"]), ("SHAPE", "INT64", [2])],
        [("OUT", "FP32", ["a", "b"])],
    )
    with Server(root) as running:
        yield running


@pytest.fixture
def client(server):
    server.assert_alive()
    with triton.InferenceServerClient(server.url, connection_timeout=60, network_timeout=60) as client:
        yield client
    server.assert_alive()


def copied(client, model, array, datatype):
    sent = triton.InferInput("IN", list(array.shape), datatype)
    sent.set_data_from_numpy(array)
    return client.infer(model, [sent]).as_numpy("OUT")


@pytest.mark.parametrize("datatype", [name for name in onnx_models.ELEMENTS if name not in ("BYTES", "BF16")])
def test_tensors_of_each_type_are_executed(client, datatype):
    dtype = helper.tensor_dtype_to_np_dtype(onnx_models.ELEMENTS[datatype])
    sent = (numpy.arange(7) % 2).astype(dtype) if datatype == "BOOL" else numpy.arange(7).astype(dtype)
    got = copied(client, f"copy_{datatype.lower()}", sent, datatype)
    assert got.dtype == dtype
    assert (got == sent).all()


@pytest.mark.parametrize("datatype", ["FP16", "BF16"])
def test_half_precision_bytes(server, datatype):
    sent = bytes(range(20))
    document = {
        "inputs": [{"name": "IN", "datatype": datatype, "shape": [10], "parameters": {"binary_data_size": 20}}],
        "outputs": [{"name": "OUT", "parameters": {"binary_data": True}}],
    }
    answer = infer(server, f"copy_{datatype.lower()}", document, sent)
    assert answer.status == 200, answer
    assert answer.body.endswith(sent)


def test_strings_are_executed(client):
    sent = numpy.array([b"", b"one", "ünï 🐚".encode(), b"x" * 100_000], dtype=object)
    assert list(copied(client, "copy_bytes", sent, "BYTES")) == list(sent)


def test_a_tensor_without_elements_is_executed(client):
    answer = client.infer("matrix", [input_of(numpy.zeros((0, 3), numpy.float32))])
    assert answer.get_output("OUT")["shape"] == [0, 3]


def input_of(array, name="IN", datatype="FP32"):
    sent = triton.InferInput(name, list(array.shape), datatype)
    sent.set_data_from_numpy(array)
    return sent


def test_a_large_tensor_is_executed(client):
    sent = numpy.random.default_rng(1).standard_normal((100_000, 3)).astype(numpy.float32)
    assert (copied(client, "matrix", sent, "FP32") == sent).all()


@pytest.mark.parametrize("values", [[0, 0, 0], [1], [0, 2, 0, 4], []])
def test_the_model_decides_the_output_shape(client, values):
    array = numpy.array(values, numpy.float32)
    answer = client.infer("lengths", [input_of(array)])
    expected = numpy.nonzero(array)[0]
    assert answer.get_output("OUT")["shape"] == [1, len(expected)]
    if len(expected):
        assert (answer.as_numpy("OUT")[0] == expected).all()


def test_a_configuration_is_completed_from_the_file(server):
    document = ask(server, "GET", "/v2/models/fixed").json()
    assert document["platform"] == "onnxruntime_onnx"
    assert document["inputs"] == [{"name": "IN", "datatype": "FP32", "shape": [2, 3]}]
    config = ask(server, "GET", "/v2/models/fixed/config").json()
    assert (config["backend"], config["max_batch_size"]) == ("onnxruntime", 0)
    assert config["input"][0]["dims"] == [2, 3]


def test_completion_finds_a_batch_dimension(server):
    config = ask(server, "GET", "/v2/models/batching/config").json()
    assert config["max_batch_size"] == 4
    assert config["input"][0]["dims"] == [3]
    assert ask(server, "GET", "/v2/models/batching").json()["inputs"][0]["shape"] == [-1, 3]


def test_a_completed_model_executes_batches(client):
    for batch in (1, 4):
        sent = numpy.arange(batch * 3, dtype=numpy.float32).reshape(batch, 3)
        assert (copied(client, "batching", sent, "FP32") == sent).all()
    with pytest.raises(triton.InferenceServerException, match="inference request batch-size must be <= 4"):
        copied(client, "batching", numpy.zeros((5, 3), numpy.float32), "FP32")


def test_the_highest_version_serves(server):
    assert ask(server, "GET", "/v2/models/versions").json()["versions"] == ["2"]


def test_an_error_of_the_model_is_the_answer(server):
    """A reshape of 4 elements to 3 × 3 fails while it executes; the next request is served."""

    def reshape(shape):
        return infer(
            server,
            "reshape",
            {"inputs": [given("IN", "FP32", [4], [1, 2, 3, 4]), given("SHAPE", "INT64", [2], shape)]},
        )

    failed = reshape([3, 3])
    assert failed.status == 500, failed
    assert "reshape" in failed.error.lower()
    assert reshape([2, 2]).json()["outputs"][0]["shape"] == [2, 2]


def test_one_memory_serves_many_shapes(client):
    """Tensors of different shapes and contents follow each other in the same memory, as those of one client do."""
    shapes = [(2, 8), (2, 8), (8, 2), (4, 4), (16, 1), (1, 16), (2, 8), (3, 5), (40, 50), (2, 8)]
    for turn, (rows, columns) in enumerate(shapes * 3):
        sent = numpy.arange(rows * columns, dtype=numpy.float32).reshape(rows, columns) + turn
        got = copied(client, "turned", sent, "FP32")
        assert got.shape == (columns, rows)
        assert (got == sent.T).all()


def test_instances_execute_at_the_same_time(server):
    def work(number):
        with triton.InferenceServerClient(server.url, connection_timeout=60, network_timeout=60) as client:
            for turn in range(30):
                sent = numpy.full((number % 8 + 1, 3), number * 100 + turn, numpy.float32)
                assert (copied(client, "many", sent, "FP32") == sent).all()
        return 1

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        assert sum(pool.map(work, range(16), timeout=120)) == 16


def test_the_library_sends_no_telemetry(models, tmp_path):
    """Libraries from 1.29 on would store telemetry in the home folder and send it."""
    write_copy(models, "copy", "FP32", ["n"])
    home = tmp_path / "home"
    home.mkdir()
    asked = {"ORT_DISABLE_TELEMETRY", "ORT_RUNNING_UNIT_TESTS", "CI", "XDG_CACHE_HOME"}
    wrap = ["env", *(f"--unset={name}" for name in sorted(asked)), f"HOME={home}"]
    with Server(models, wrap=wrap) as running:
        assert infer(running, "copy", {"inputs": [given("IN", "FP32", [2], [1, 2])]}).json()["outputs"][0]["data"] == [1, 2]
    assert list(home.rglob("*")) == []


# ---- Optional inputs -------------------------------------------------------------------------------


def vector(side, name, optional=False):
    return f'{side} [ {{ name: "{name}" data_type: TYPE_FP32 dims: [ 2 ] {"optional: true" if optional else ""} }} ]\n'


def write_sum(root, name, config):
    """OUT = IN + W, where the file has the value [10, 20] for W."""
    def info(tensor):
        return helper.make_tensor_value_info(tensor, TensorProto.FLOAT, [2])

    graph = helper.make_graph([helper.make_node("Add", ["IN", "W"], ["OUT"])], name, [info("IN"), info("W")], [info("OUT")],
                              [helper.make_tensor("W", TensorProto.FLOAT, [2], [10, 20])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.save(model, repository.write_model(root, name, config) / "1" / "model.onnx")


@pytest.fixture(scope="module")
def optional(tmp_path_factory):
    root = tmp_path_factory.mktemp("optional")
    begin = 'backend: "onnxruntime"\n' + vector("input", "IN") + vector("output", "OUT")
    write_sum(root, "named", begin + vector("input", "W", optional=True))
    write_sum(root, "unnamed", begin)
    write_sum(root, "completed", None)
    write_onnx(root, "both", [helper.make_node("Add", ["A", "B"], ["OUT"])], [("A", "FP32", [2]), ("B", "FP32", [2])], [("OUT", "FP32", [2])],
               'backend: "onnxruntime"\n' + vector("input", "A") + vector("input", "B", optional=True) + vector("output", "OUT"))
    with Server(root) as running:
        yield running


def added(server, model, **inputs):
    return infer(server, model, {"inputs": [given(name, "FP32", [2], values) for name, values in inputs.items()]})


def test_an_input_with_a_value_in_the_file_is_optional(optional):
    assert added(optional, "named", IN=[1, 2]).json()["outputs"][0]["data"] == [11, 22]
    assert added(optional, "named", IN=[1, 2], W=[3, 4]).json()["outputs"][0]["data"] == [4, 6]
    assert added(optional, "named", IN=[1, 2]).json()["outputs"][0]["data"] == [11, 22]


@pytest.mark.parametrize("model", ["unnamed", "completed"])
def test_a_missing_input_has_the_value_of_the_file(optional, model):
    assert added(optional, model, IN=[1, 2]).json()["outputs"][0]["data"] == [11, 22]
    assert "expected 1 inputs but got 2 inputs" in added(optional, model, IN=[1, 2], W=[3, 4]).error


def test_a_missing_input_without_a_value_is_an_error(optional):
    """The configuration makes it optional; then ONNX Runtime reports that it is missing."""
    assert added(optional, "both", A=[1, 2], B=[3, 4]).json()["outputs"][0]["data"] == [4, 6]
    answer = added(optional, "both", A=[1, 2])
    assert answer.status == 500 and "Missing Input: B" in answer.error, answer
    assert added(optional, "both", A=[1, 2], B=[3, 4]).status == 200


def test_a_model_of_unknown_rank_has_the_configured_shape(server):
    """It is not a scalar: the configuration gives its shape."""
    answer = infer(server, "any_rank", {"inputs": [given("IN", "FP32", [2], [1, 2])]})
    assert answer.status == 200, answer
    assert answer.json()["outputs"][0]["data"] == [1, 2]
