# SPDX-License-Identifier: Apache-2.0
"""Our backends give the same answers in our server and in the genuine Triton, asked by the real client."""

import concurrent.futures
import pathlib
import shutil
import time

import ml_dtypes
import numpy as np
import pytest
import tritonclient.http
from tritonclient.utils import InferenceServerException, triton_to_np_dtype

import onnx_models
import repository
import server as servers
import triton

EITHER = ["conch", "triton"]


def start(which, root, flags=(), ready=True):
    if which == "conch":
        return servers.Server(root, flags=flags, ready=ready)
    if triton.missing():
        pytest.skip(triton.missing())
    return triton.Triton(root, flags=flags, ready=ready)


# ---- What is served


def config(root, name, *tensors, backend="onnxruntime", more=""):
    """tensors: ("input"|"output", name, datatype, dims). There is one instance, unless `more` has a group."""
    text = f'name: "{name}"\nbackend: "{backend}"\n'
    text += "".join(repository.tensor(*tensor) for tensor in tensors)
    if "instance_group" not in more:
        text += "instance_group [ { count: 1 kind: KIND_CPU } ]\n"
    return repository.write_model(root, name, text + more)


BATCHING = "dynamic_batching { max_queue_delay_microseconds: 20000 }"


def write_models(root, which):
    for datatype in repository.DATATYPES:
        repository.write_identity(root, f"id_{datatype.lower()}", [(datatype, [-1, -1])])
        name = f"ort_{datatype.lower()}"
        onnx_models.identity(
            config(root, name, ("input", "IN", datatype, [-1, -1]), ("output", "OUT0", datatype, [-1, -1])),
            datatype, ("n", "m"),
        )
    repository.write_identity(root, "id_pair", [("FP32", [-1]), ("BYTES", [-1])])
    repository.write_identity(root, "id_batch", [("INT32", [2])], max_batch_size=8)
    repository.write_identity(root, "id_slow", [("INT32", [1])], execute_delay_ms=200)
    config(root, "id_staggered", ("input", "IN", "INT32", [1]), ("output", "OUT", "INT32", [1]), backend="identity", more=(
        "instance_group [ { count: 3 kind: KIND_CPU } ]\n" + "".join(
            f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n'
            for key, value in {"execute_delay_ms": 50, "instance_wise_delay_multiplier": 3}.items())))
    crossed = [("input", "A", "INT32", [-1]), ("input", "B", "INT32", [-1]),
               ("output", "B_COPY_OF_A", "INT32", [-1]), ("output", "A_COPY_OF_B", "INT32", [-1])]
    config(root, "id_crossed", *crossed, backend="identity")

    repository.copy_example(root, "add_sub")
    onnx_models.scalar(config(root, "scalar", ("input", "IN", "FP32", [1]), ("output", "OUT", "FP32", [1])))
    onnx_models.nonzero(config(root, "nonzero", ("input", "IN", "INT32", [-1]), ("output", "OUT", "INT64", [1, -1])))
    onnx_models.doubled(config(root, "doubled", ("input", "IN", "FP32", [-1]), ("output", "OUT", "FP32", [-1])))
    batching = f"max_batch_size: 8 {BATCHING}"
    onnx_models.table(
        config(root, "table", ("input", "INDEX", "INT64", [1]), ("output", "OUT", "FP32", [1]), more=batching)
    )
    onnx_models.join(
        config(root, "join", ("input", "A", "BYTES", [1]), ("input", "B", "BYTES", [1]),
               ("output", "OUT", "BYTES", [2]), more=batching)
    )
    onnx_models.identity(
        config(root, "three", ("input", "IN", "FP32", [-1]), ("output", "OUT0", "FP32", [-1]),
               ("output", "OUT1", "FP32", [-1]), ("output", "OUT2", "FP32", [-1])),
        "FP32", ("n",), outputs=3,
    )
    onnx_models.identity(
        config(root, "many", ("input", "IN", "FP32", [3]), ("output", "OUT0", "FP32", [3]),
               more="max_batch_size: 8 instance_group [ { count: 3 kind: KIND_CPU } ]"),
        "FP32", ("b", 3),
    )
    ragged = BATCHING
    for kind, target in (("input", "COUNT"), ("output", "OUT")):
        ragged += f' batch_{kind} [ {{ kind: BATCH_{"ELEMENT_COUNT" if kind == "input" else "SCATTER_WITH_INPUT_SHAPE"} '
        ragged += f'target_name: "{target}" source_input: "IN" {"data_type: TYPE_FP32" if kind == "input" else ""} }} ]'
    folder = config(root, "ragged", ("input", "IN", "FP32", [-1]), ("output", "OUT", "FP32", [-1]),
                    ("output", "PARTS", "FP32", [1]), more=f"max_batch_size: 8 {ragged}")
    text = (folder / "config.pbtxt").read_text()
    (folder / "config.pbtxt").write_text(text.replace("dims: [ -1 ] } ]", "dims: [ -1 ] allow_ragged_batch: true } ]", 1))
    onnx_models.ragged(folder)
    # The configuration is completed from the model.
    onnx_models.identity(repository.write_model(root, "auto_bare", None), "FP32", ("b", 3))
    onnx_models.identity(config(root, "auto_batch"), "FP32", ("b", 3, None))
    onnx_models.identity(config(root, "auto_fixed"), "INT8", (5, None))
    onnx_models.identity(config(root, "auto_output", ("input", "IN", "BYTES", [-1])), "BYTES", ("b", None))
    onnx_models.row_sums(config(root, "auto_sums"))
    onnx_models.scalar(config(root, "auto_scalar"))
    onnx_models.identity(config(root, "auto_own_size", more="max_batch_size: 1"), "FP32", ("b", 3))
    onnx_models.identity(config(root, "auto_larger", more="max_batch_size: 9"), "FP32", ("b", 3))
    onnx_models.identity(config(root, "auto_patient", more=f"max_batch_size: 9 {BATCHING}"), "FP32", ("b", 3))
    # Inputs and outputs are given, so nothing is completed.
    both = [("input", "IN", "FP32", [3]), ("output", "OUT0", "FP32", [3])]
    onnx_models.identity(config(root, "not_open", *both, more="max_batch_size: 9"), "FP32", ("b", 3))
    both = [("input", "IN", "FP32", [-1, 3]), ("output", "OUT0", "FP32", [-1, 3])]
    onnx_models.identity(config(root, "not_open_at_all", *both), "FP32", ("b", 3))
    return root


@pytest.fixture(scope="module", params=EITHER)
def served(request, tmp_path_factory):
    with start(request.param, write_models(tmp_path_factory.mktemp("models"), request.param)) as running:
        yield running


@pytest.fixture
def client(served):
    served.assert_alive()
    with tritonclient.http.InferenceServerClient(served.url, concurrency=1) as made:
        yield made
    served.assert_alive()


# ---- Requests


def infer(client, model, inputs, outputs=None, binary=True):
    """inputs: {name: (datatype, array)}; returns the outputs as {name: array}."""
    sent = []
    for name, (datatype, array) in inputs.items():
        tensor = tritonclient.http.InferInput(name, array.shape, datatype)
        tensor.set_data_from_numpy(array, binary_data=binary)
        sent.append(tensor)
    wanted = None
    if outputs is not None:
        wanted = [tritonclient.http.InferRequestedOutput(name, binary_data=binary) for name in outputs]
    result = client.infer(model, sent, outputs=wanted)
    return {output["name"]: result.as_numpy(output["name"]) for output in result.get_response()["outputs"]}


def sample(datatype, shape):
    """Values from the whole range, with those that a careless copy would lose."""
    n = int(np.prod(shape))
    if datatype == "BYTES":
        few = [b"", b"a", b"\x00\xff\x00", "ü€".encode(), b"x" * 300]
        return np.array([few[i % len(few)] for i in range(n)], dtype=object).reshape(shape)
    random = np.random.default_rng(7)
    if datatype == "BOOL":
        return random.integers(0, 2, shape).astype(bool)
    if datatype == "BF16":
        return random.standard_normal(shape).astype(ml_dtypes.bfloat16)
    kind = np.dtype(triton_to_np_dtype(datatype))
    if kind.kind == "f":
        return random.standard_normal(shape).astype(kind)
    info = np.iinfo(kind)
    return random.integers(info.min, info.max, shape, dtype=kind, endpoint=True)


def assert_same(got, expected):
    assert got.shape == expected.shape
    assert np.array_equal(got, expected), (got, expected)


SHAPES = [(1, 1), (2, 3), (0, 4), (3, 0), (1, 1000)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("datatype", repository.DATATYPES)
@pytest.mark.parametrize("backend", ["id", "ort"])
def test_every_type_and_shape(client, backend, datatype, shape):
    array = sample(datatype, shape)
    name = {"id": "INPUT0", "ort": "IN"}[backend]
    got = infer(client, f"{backend}_{datatype.lower()}", {name: (datatype, array)})
    assert_same(got.popitem()[1], array)
    assert not got


@pytest.mark.parametrize("backend", ["id", "ort"])
@pytest.mark.parametrize("datatype", ["INT64", "FP32", "BOOL"])
def test_tensors_survive_json(client, backend, datatype):
    array = sample(datatype, (2, 5))
    name, out = {"id": ("INPUT0", "OUTPUT0"), "ort": ("IN", "OUT0")}[backend]
    got = infer(client, f"{backend}_{datatype.lower()}", {name: (datatype, array)}, [out], binary=False)
    assert_same(got[out], array)


def test_identity_pairs_by_position(client):
    a, b = np.arange(3, dtype=np.int32), np.arange(5, dtype=np.int32)
    got = infer(client, "id_crossed", {"B": ("INT32", b), "A": ("INT32", a)})
    assert_same(got["B_COPY_OF_A"], a)
    assert_same(got["A_COPY_OF_B"], b)


def test_identity_writes_only_what_is_asked_for(client):
    numbers, texts = sample("FP32", (4,)), sample("BYTES", (3,))
    inputs = {"INPUT0": ("FP32", numbers), "INPUT1": ("BYTES", texts)}
    got = infer(client, "id_pair", inputs, ["OUTPUT1"])
    assert list(got) == ["OUTPUT1"]
    assert_same(got["OUTPUT1"], texts)


def test_identity_of_a_batch(client):
    array = sample("INT32", (8, 2))
    assert_same(infer(client, "id_batch", {"INPUT0": ("INT32", array)})["OUTPUT0"], array)


def test_identity_delays_its_execution(client):
    began = time.monotonic()
    infer(client, "id_slow", {"INPUT0": ("INT32", sample("INT32", (1,)))})
    assert time.monotonic() - began >= 0.2


def test_later_instances_of_identity_take_longer(served):
    """50, 150 and 300 ms, if three requests arrive before the first instance is free again."""
    def took(_):
        with tritonclient.http.InferenceServerClient(served.url) as own:
            began = time.monotonic()
            infer(own, "id_staggered", {"IN": ("INT32", sample("INT32", (1,)))})
            return time.monotonic() - began

    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        servers.wait_for(lambda: all(took_s >= least for took_s, least in zip(sorted(pool.map(took, range(3))), (0.05, 0.15, 0.3))),
                         60, "three instances at work")


# ---- onnxruntime


def test_add_sub_adds_and_subtracts(client):
    a, b = sample("INT32", (8, 16)) // 4, sample("INT32", (8, 16)) // 8
    got = infer(client, "add_sub", {"INPUT0": ("INT32", a), "INPUT1": ("INT32", b)})
    assert_same(got["OUTPUT0"], a + b)
    assert_same(got["OUTPUT1"], a - b)


def test_scalars_are_executed(client):
    for model in ("scalar", "auto_scalar"):
        got = infer(client, model, {"IN": ("FP32", np.array([2.5], np.float32))})
        assert_same(got["OUT"], np.array([5.0], np.float32))


def test_an_output_shape_may_depend_on_the_values(client):
    for values in ([0, 3, 0, 4], [0, 0], [1] * 100):
        array = np.array(values, np.int32)
        got = infer(client, "nonzero", {"IN": ("INT32", array)})
        assert_same(got["OUT"], np.array(np.nonzero(array)))


def test_an_undeclared_output_shape_is_an_error(client):
    for n in (3, 1, 50):
        array = sample("FP32", (n,))
        got = infer(client, "doubled", {"IN": ("FP32", array)})
        assert_same(got["OUT"], np.concatenate([array, array]))


@pytest.mark.parametrize("wanted", [["OUT1"], ["OUT2", "OUT0"], ["OUT0", "OUT1", "OUT2"]], ids="+".join)
def test_only_requested_outputs_are_computed(client, wanted):
    array = sample("FP32", (6,))
    got = infer(client, "three", {"IN": ("FP32", array)}, wanted)
    assert sorted(got) == sorted(wanted)
    for output in got.values():
        assert_same(output, array)


def in_parallel(served, model, inputs_of, n):
    """Sends n requests at once, each on its own connection; returns results or exceptions, in order."""

    def one(i):
        with tritonclient.http.InferenceServerClient(served.url) as own:
            try:
                return infer(own, model, inputs_of(i))
            except InferenceServerException as error:
                return error

    with concurrent.futures.ThreadPoolExecutor(n) as pool:
        return list(pool.map(one, range(n)))


def test_batches_of_strings_are_split_by_requests(served):
    def texts(i, side):
        return np.array([[f"{side}{i}.{row}".encode() * (i + row)] for row in range(1 + i % 3)], dtype=object)

    for _ in range(3):
        answers = in_parallel(served, "join", lambda i: {s: ("BYTES", texts(i, s)) for s in "AB"}, 12)
        for i, got in enumerate(answers):
            assert_same(got["OUT"], np.concatenate([texts(i, "A"), texts(i, "B")], axis=1))


def test_requests_of_any_length_form_a_batch(served):
    """The model gets one list of all elements, and how many belong to each request. Each request gets an output of its
    input's shape."""
    def items(i):
        return np.arange(1 + i % 5, dtype=np.float32).reshape(1, -1) + i

    for _ in range(3):
        for i, got in enumerate(in_parallel(served, "ragged", lambda i: {"IN": ("FP32", items(i))}, 12)):
            assert_same(got["OUT"], 2 * items(i))
            assert_same(got["PARTS"], np.array([[items(i).size]], np.float32))


def test_a_request_that_the_model_refuses_fails_no_other(served):
    def index(i):
        return np.array([[7]] if i == 5 else [[i % 3]] * (1 + i % 2), np.int64)

    for _ in range(5):
        answers = in_parallel(served, "table", lambda i: {"INDEX": ("INT64", index(i))}, 12)
        for i, got in enumerate(answers):
            if i == 5:
                assert "model 'table': onnx runtime error" in got.message()
            else:
                assert_same(got["OUT"], (index(i) * 10 + 10).astype(np.float32))


def test_instances_of_one_model_execute_at_the_same_time(served):
    def rows(i):
        return np.arange(3 * (1 + i % 8), dtype=np.float32).reshape(-1, 3) + i

    for _ in range(5):
        answers = in_parallel(served, "many", lambda i: {"IN": ("FP32", rows(i))}, 16)
        for i, got in enumerate(answers):
            assert_same(got["OUT0"], rows(i))


def test_one_error_names_model_and_cause(client):
    with pytest.raises(InferenceServerException) as error:
        infer(client, "table", {"INDEX": ("INT64", np.array([[-9]], np.int64))})
    assert "model 'table': onnx runtime error" in error.value.message()
    assert "out of" in error.value.message()
    assert "\n" not in error.value.message()


# ---- The configuration completed from the model


def completed(client, model):
    """The model's configuration of its tensors and its batching."""
    got = client.get_model_config(model)

    def tensors(side):
        return [(t["name"], t["data_type"], t["dims"], t.get("reshape", {}).get("shape")) for t in got[side]]

    return got["max_batch_size"], tensors("input"), tensors("output"), got.get("dynamic_batching")


def batches_of(size, delay_us=0):
    """The expected dynamic_batching."""
    return {"preferred_batch_size": [size], "max_queue_delay_microseconds": delay_us, "preserve_ordering": False, "priority_levels": 0,
            "default_priority_level": 0, "priority_queue_policy": {}}


COMPLETED = {
    "auto_batch": (4, [("IN", "TYPE_FP32", [3, -1], None)], [("OUT0", "TYPE_FP32", [3, -1], None)], batches_of(4)),
    "auto_fixed": (0, [("IN", "TYPE_INT8", [5, -1], None)], [("OUT0", "TYPE_INT8", [5, -1], None)], None),
    "auto_output": (4, [("IN", "TYPE_STRING", [-1], None)], [("OUT0", "TYPE_STRING", [-1], None)], batches_of(4)),
    "auto_sums": (4, [("IN", "TYPE_FP32", [3], None)], [("OUT", "TYPE_FP32", [1], [])], batches_of(4)),
    "auto_bare": (4, [("IN", "TYPE_FP32", [3], None)], [("OUT0", "TYPE_FP32", [3], None)], batches_of(4)),
    "auto_scalar": (0, [("IN", "TYPE_FP32", [1], None)], [("OUT", "TYPE_FP32", [1], None)], None),
    "auto_own_size": (1, [("IN", "TYPE_FP32", [3], None)], [("OUT0", "TYPE_FP32", [3], None)], None),
    "auto_larger": (9, [("IN", "TYPE_FP32", [3], None)], [("OUT0", "TYPE_FP32", [3], None)], batches_of(9)),
    "auto_patient": (9, [("IN", "TYPE_FP32", [3], None)], [("OUT0", "TYPE_FP32", [3], None)], batches_of(9, 20000)),
    "not_open": (9, [("IN", "TYPE_FP32", [3], None)], [("OUT0", "TYPE_FP32", [3], None)], None),
    "not_open_at_all": (0, [("IN", "TYPE_FP32", [-1, 3], None)], [("OUT0", "TYPE_FP32", [-1, 3], None)], None),
    "scalar": (0, [("IN", "TYPE_FP32", [1], None)], [("OUT", "TYPE_FP32", [1], None)], None),
}


@pytest.mark.parametrize("model", COMPLETED)
def test_a_configuration_is_completed_from_the_model(served, client, model):
    assert completed(client, model) == COMPLETED[model]


@pytest.mark.parametrize("which", EITHER)
@pytest.mark.parametrize("size, batching", [(0, None), (1, None), (2, batches_of(2)), (16, batches_of(16))])
def test_a_configuration_is_completed_with_the_default_batch_size(tmp_path, which, size, batching):
    onnx_models.identity(config(tmp_path, "m"), "FP32", ("b", 3))
    with start(which, tmp_path, [f"--backend-config=onnxruntime,default-max-batch-size={size}"]) as running:
        with tritonclient.http.InferenceServerClient(running.url) as client:
            dims = [3] if size else [-1, 3]
            assert completed(client, "m") == (size, [("IN", "TYPE_FP32", dims, None)], [("OUT0", "TYPE_FP32", dims, None)], batching)


@pytest.mark.parametrize("which", EITHER)
@pytest.mark.parametrize("setting, completes", [
    ("auto-complete-config=false", False), ("auto-complete-config=1", False), ("auto-complete-config=TRUE", True),
    ("onnxruntime,auto-complete-config=false", True),
])
def test_completion_may_be_forbidden_by_a_setting_for_all(tmp_path, which, setting, completes):
    """The same holds for a model without a config.pbtxt, which --disable-auto-complete-config refuses altogether."""
    onnx_models.identity(repository.write_model(tmp_path, "m", None), "FP32", (3,))
    with start(which, tmp_path, [f"--backend-config={setting}", "--exit-on-error=false"], ready=None) as running:
        running.wait_log("| Model")
        assert ("configuration expects 0 inputs, model provides 1" in running.log()) == (not completes)


def test_a_batch_may_have_items_without_dimensions(client):
    array = np.arange(12, dtype=np.float32).reshape(4, 3)
    got = infer(client, "auto_sums", {"IN": ("FP32", array)})
    assert_same(got["OUT"].reshape(-1), array.sum(axis=1))


# ---- Models that cannot be loaded

IN, OUT = ("input", "IN", "FP32", [-1]), ("output", "OUT0", "FP32", [-1])


def broken(root, which):
    """Writes models that fail to load: {name: their log line}."""
    shutil.rmtree(config(root, "no_file", IN, OUT) / "1")
    (root / "no_file" / "1").mkdir()
    corrupt = config(root, "corrupt", IN, OUT)
    (corrupt / "1" / "model.onnx").write_bytes(b"\x08\x08this is no model")
    onnx_models.identity(config(root, "inputs_2", IN, ("input", "IN2", "FP32", [-1]), OUT), "FP32")
    onnx_models.identity(config(root, "input_name", ("input", "X", "FP32", [-1]), OUT), "FP32", outputs=2)
    onnx_models.identity(config(root, "output_name", IN, ("output", "Y", "FP32", [-1])), "FP32", outputs=2)
    onnx_models.identity(config(root, "type", ("input", "IN", "INT8", [-1]), OUT), "FP32")
    onnx_models.identity(
        config(root, "rank", ("input", "IN", "FP32", [16, 1]), OUT, more="max_batch_size: 4"), "FP32", ("b", 16)
    )
    onnx_models.identity(config(root, "dims", ("input", "IN", "FP32", [3]), OUT), "FP32", (4,))
    onnx_models.identity(config(root, "autofill", more="max_batch_size: 4"), "FP32", (4,))
    onnx_models.sequence(config(root, "sequence"))
    onnx_models.identity(
        config(root, "threads", IN, OUT,
               more='parameters { key: "intra_op_thread_count" value { string_value: "many" } }'),
        "FP32",
    )
    onnx_models.identity(
        config(root, "accelerator", IN, OUT,
               more='optimization { execution_accelerators { cpu_execution_accelerator [ { name: "openvino" } ] } }'),
        "FP32",
    )
    onnx_models.scalar(config(root, "scalar_2", ("input", "IN", "FP32", [2]), ("output", "OUT", "FP32", [1])))
    onnx_models.scalar(config(root, "scalar_any", ("input", "IN", "FP32", [1]), ("output", "OUT", "FP32", [-1, 1])))
    config(root, "id_count", IN, backend="identity")
    config(root, "id_type", IN, ("output", "OUT0", "INT8", [-1]), backend="identity")
    return {
        "no_file": "no_file/1/model.onnx' of model 'no_file': No such file or directory",
        "corrupt": "Protobuf parsing failed",
        "inputs_2": "unable to load model 'inputs_2', configuration expects 2 inputs, model provides 1",
        "input_name": "unexpected inference input 'X', allowed inputs are: IN",
        "output_name": "unexpected inference output 'Y', allowed outputs are: OUT0, OUT1",
        "type": "unable to load model 'type', configuration expects datatype TYPE_INT8 for input 'IN', "
                "model provides TYPE_FP32",
        "rank": "model 'rank', tensor 'IN': the model expects 2 dimensions (shape [-1,16]) but the model "
                "configuration specifies 3 dimensions (an initial batch dimension because max_batch_size > 0 "
                "followed by the explicit tensor shape, making complete shape [-1,16,1])",
        "dims": "model 'dims', tensor 'IN': the model expects 1 dimensions (shape [4]) but the model "
                "configuration specifies 1 dimensions (shape [3])",
        "autofill": "autofill failed for model 'autofill': model does not support batching while non-zero "
                    "max_batch_size is specified",
        "sequence": "model 'sequence': 'OUT' is no tensor",
        "threads": "parameter 'intra_op_thread_count' must be a whole number from 0 to 4096, got 'many'",
        "accelerator": "execution accelerator 'openvino' needs OpenVINOExecutionProvider",
        **{model: f"unable to load model '{model}', scalar tensor '{tensor}', should only provide 1 in the model configuration when the "
                  f"model doesn't support batching. Model configuration provided: {dims}."
           for model, tensor, dims in (("scalar_2", "IN", "[2]"), ("scalar_any", "OUT", "[-1,1]"))},
        "id_count": "model 'id_count': identity needs as many outputs as inputs",
        "id_type": "model 'id_type': identity copies input 'IN' to output 'OUT0', but their types are "
                   "TYPE_FP32 and TYPE_INT8",
    }


@pytest.mark.parametrize("which", EITHER)
def test_a_model_that_cannot_be_loaded_gives_its_reason(which, tmp_path):
    expected = broken(tmp_path, which)
    repository.write_identity(tmp_path, "fine", [("FP32", [-1])])
    flags = ("--exit-on-error=false", "--strict-readiness=false")
    with start(which, tmp_path, flags) as server:
        with tritonclient.http.InferenceServerClient(server.url) as client:
            assert client.is_model_ready("fine")
            for name, text in expected.items():
                assert not client.is_model_ready(name)
                assert text in server.log(), (name, server.log())


def test_the_error_of_a_missing_library_names_the_folders(tmp_path):
    repository.copy_example(tmp_path, "add_sub")
    args = [f"--model-repository={tmp_path}", f"--backend-directory={servers.BACKENDS}", "--http-port=0",
            "--allow-grpc=false", "--allow-metrics=false"]
    nowhere = str(tmp_path / "nowhere" / "libonnxruntime.so")
    code, out, err = servers.run_to_end(*args, env={"CONCH_ONNXRUNTIME": nowhere})
    assert code == 1
    lines = [line for line in (out + err).splitlines() if "libonnxruntime.so cannot be loaded" in line]
    assert lines and all(nowhere in line and "make deps" in line for line in lines), out + err


def test_the_library_of_a_setting_wins(tmp_path):
    repository.copy_example(tmp_path, "add_sub")
    found = next(pathlib.Path(servers.ROOT / ".deps/onnxruntime").glob("libonnxruntime.so*"))
    copy = tmp_path.parent / "libonnxruntime-elsewhere.so"
    copy.symlink_to(found)
    flags = [f"--backend-config=onnxruntime,library-path={copy}"]
    with servers.Server(tmp_path, flags=flags, env={"CONCH_ONNXRUNTIME": "/nowhere"}) as server:
        with tritonclient.http.InferenceServerClient(server.url) as client:
            assert client.is_model_ready("add_sub")
