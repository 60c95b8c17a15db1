# SPDX-License-Identifier: Apache-2.0
"""The backend openvino: models answer what OpenVINO itself answers, in our server and in the genuine Triton; parameters;
configurations that do not fit; files that are no models."""

import concurrent.futures
import os
import pathlib
import re

import ml_dtypes
import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

pytest.importorskip("openvino", reason="`make test-frameworks` installs OpenVINO")

import lite_models  # noqa: E402
import openvino_models as models  # noqa: E402
import repository  # noqa: E402
import saved_models  # noqa: E402
import server as servers  # noqa: E402
import triton  # noqa: E402
from wire import read_reasons  # noqa: E402

CLOSE = {"rtol": 1e-5, "atol": 1e-6}
RNG = np.random.default_rng(1)
CONVOLUTIONS = models.convolutions(RNG)
BATCHES = "max_batch_size: 16\n"
MANY = 70    # inputs
KINDS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float64"]
QUEUE = BATCHES + "dynamic_batching { max_queue_delay_microseconds: 20000 }\n"


def sides(datatype="FP32", dims=(16,), names=("SUM", "DIFF")):
    return "".join(repository.tensor(side, n, datatype, dims) for side, n in
                   (("input", "A"), ("input", "B"), *(("output", n) for n in names)))


CONTROLS = """ control_input [
  { name: "START" control [ { kind: CONTROL_SEQUENCE_START fp32_false_true: [ 0, 100 ] } ] },
  { name: "READY" control [ { kind: CONTROL_SEQUENCE_READY fp32_false_true: [ 0, 1000 ] } ] } ]
"""


def tensors_of_sums():
    return repository.tensor("input", "x", "FP32", [1]) + repository.tensor("output", "y", "FP32", [1])


def state(datatype, output="next", dims="1"):
    return (f' state [ {{ input_name: "last" output_name: "{output}" data_type: TYPE_{datatype} dims: [ {dims} ] '
            f'initial_state: {{ name: "zero" data_type: TYPE_{datatype} dims: [ {dims} ] zero_data: true }} }} ]\n')


def write_all(root):
    models.write(root, "add_sub", models.add_sub([-1, 16]), QUEUE)
    models.write(root, "alone", models.add_sub([3, 16]))
    models.write(root, "completed", models.with_layouts(models.add_sub([-1, 16])))
    models.write(root, "convolutions", CONVOLUTIONS, QUEUE)
    models.write(root, "one_image", models.convolutions(np.random.default_rng(2)), "max_batch_size: 1\n")
    models.write(root, "dynamic", models.dynamic())
    models.write(root, "strings", models.strings())
    models.write(root, "string_batches", models.strings(), QUEUE)
    models.write(root, "scalar", models.scalar())
    models.write(root, "many_inputs", models.of_many_inputs(MANY), BATCHES)
    models.write(root, "instances", models.add_sub([-1, 16]), BATCHES + "instance_group [ { count: 3 kind: KIND_CPU } ]\n")
    models.write_onnx(root, "onnx", QUEUE)
    models.write_saved_model(root, "saved_model", QUEUE + sides())
    for name, file, content in (("lite", "model.tflite", lite_models.tensorflow_lite(16)), ("paddle", "model.pdmodel", lite_models.paddle(16))):
        (repository.write_model(root, name, models.config_of(QUEUE + sides(), file)) / "1" / file).write_bytes(content)
    lists = ('input [ { name: "x" data_type: TYPE_FP32 dims: [ -1 ] allow_ragged_batch: true } ]\n' + repository.tensor("output", "so_far", "FP32", [1])
             + 'batch_input [ { kind: BATCH_ACCUMULATED_ELEMENT_COUNT target_name: "ends" data_type: TYPE_INT32 source_input: "x" } ]\n')
    models.write(root, "ragged", models.ragged(), QUEUE + lists)
    sequences = "sequence_batching { max_sequence_idle_microseconds: 60000000 "
    for name, strategy in (("direct", "direct { }"), ("oldest", "oldest { max_candidate_sequences: 4 }")):
        models.write(root, name, models.accumulate(), "max_batch_size: 4\n" + tensors_of_sums() + sequences + strategy + CONTROLS + state("FP32") + "}\n")
    shown = tensors_of_sums() + repository.tensor("output", "next", "FP32", [1])
    models.write(root, "shown", models.accumulate(), "max_batch_size: 4\n" + shown + sequences + CONTROLS + state("FP32") + "}\n")
    remembers = repository.tensor("input", "text", "BYTES", [1]) + repository.tensor("output", "before", "BYTES", [1])
    models.write(root, "remember", models.remember(), "max_batch_size: 4\n" + remembers + sequences + state("STRING") + "}\n")
    # Parameters
    models.write(root, "any_batch", models.add_sub([1, 16]), BATCHES)
    models.write(root, "exact", models.add_sub([-1, 16]), "max_batch_size: 4\n", SKIP_OV_DYNAMIC_BATCHSIZE="YES")
    models.write(root, "padded", models.add_sub([-1, 16]), "max_batch_size: 4\n", SKIP_OV_DYNAMIC_BATCHSIZE="yes", ENABLE_BATCH_PADDING="yes")
    models.write(root, "inside", models.fixed_inside(), "max_batch_size: 4\n", ENABLE_BATCH_PADDING="YES")
    models.write(root, "reshaped", models.add_sub([1, 16]), sides(dims=(-1, 5)), RESHAPE_IO_LAYERS="YES")
    models.write(root, "threads", models.add_sub([-1, 16]), BATCHES, INFERENCE_NUM_THREADS="1", COMPILATION_NUM_THREADS="1", NUM_STREAMS="AUTO",
                 PERFORMANCE_HINT="throughput")
    models.write(root, "bf16_hint", CONVOLUTIONS, BATCHES, HINT_BF16="YES")
    models.write(root, "reshaped_layouts", models.add_sub([1, 16]), sides(dims=(-1, 5)), RESHAPE_IO_LAYOUTS="yes")
    for i, device in enumerate(DEVICES):
        models.write(root, f"device{i}", models.add_sub([-1, 16]), BATCHES, TARGET_DEVICE=device, INFERENCE_NUM_THREADS="1")
    models.write(root, "exact_numbers", CONVOLUTIONS, BATCHES, INFERENCE_PRECISION_HINT="f32")
    models.write(root, "converted", models.add_sub([-1, 16]), BATCHES + sides("INT16"))
    for kind in KINDS:
        models.write(root, f"add_{kind}", models.add_sub([-1, 4], np.dtype(kind)), BATCHES)
    models.write(root, "add_bf16", models.add_sub([-1, 4], models.ov.Type.bf16), BATCHES)
    optional = "".join(f'input [ {{ name: "{n}" data_type: TYPE_FP32 dims: [ 16 ] optional: true }} ]\n' for n in "AB")
    models.write(root, "optional", models.add_sub([-1, 16]), BATCHES + optional)
    return root


@pytest.fixture(scope="module", params=["conch", "triton"])
def server(request, tmp_path_factory):
    root = write_all(tmp_path_factory.mktemp("openvino"))
    if request.param == "conch":
        with servers.Server(root, grpc=True) as running:
            yield running
        return
    if triton.missing():
        pytest.skip(triton.missing())
    # The wheel of Triton finds no Python packages of ours.
    with triton.Triton(root, flags=[f"--backend-config=openvino,library-path={library()}"]) as running:
        yield running


def library():
    import openvino

    return str(next((pathlib.Path(openvino.__file__).parent / "libs").glob("libopenvino_c.so*")))


def ask(client, module, model, outputs=(), **inputs):
    given = []
    for name, array in inputs.items():
        given.append(module.InferInput(name, array.shape, np_to_triton_dtype(array.dtype)))
        given[-1].set_data_from_numpy(array)
    result = client.infer(model, given, outputs=[module.InferRequestedOutput(o) for o in outputs] or None)
    return {o.name if module is tritonclient.grpc else o["name"]: result.as_numpy(o.name if module is tritonclient.grpc else o["name"])
            for o in (result.get_response().outputs if module is tritonclient.grpc else result.get_response()["outputs"])}


def infer(server, model, outputs=(), **inputs):
    with tritonclient.http.InferenceServerClient(server.url) as client:
        return ask(client, tritonclient.http, model, outputs, **inputs)


def pair(*shape, kind=np.float32):
    return {"A": (RNG.standard_normal(shape) * 10).astype(kind), "B": (RNG.standard_normal(shape) * 10).astype(kind)}


def check_pair(answer, A, B):
    np.testing.assert_allclose(answer["SUM"], A + B, **CLOSE)
    np.testing.assert_allclose(answer["DIFF"], A - B, **CLOSE)
    assert answer["SUM"].dtype == A.dtype


DEVICES = ["AUTO", "auto:cpu", "HETERO:CPU", "MULTI:CPU"]


@pytest.mark.parametrize("model", ["add_sub", "onnx", "saved_model", "lite", "paddle", "instances", "any_batch", "threads",
                                   *(f"device{i}" for i in range(len(DEVICES)))])
def test_batches_of_any_size(server, model):
    for rows in (1, 16, 3, 3, 2):
        given = pair(rows, 16)
        check_pair(infer(server, model, **given), **given)


def test_the_answers_are_openvinos(server):
    images = RNG.standard_normal((6, 1, 8, 8)).astype(np.float32)
    for rows in (slice(0, 1), slice(0, 6), slice(1, 3)):
        expected = models.answers(CONVOLUTIONS, image=images[rows])
        answer = infer(server, "convolutions", image=images[rows])
        np.testing.assert_allclose(answer["scores"], expected["scores"], **CLOSE)
        np.testing.assert_array_equal(answer["best"], expected["best"])
    only = infer(server, "convolutions", ["best"], image=images[:2])
    assert list(only) == ["best"]
    np.testing.assert_array_equal(only["best"], models.answers(CONVOLUTIONS, image=images[:2])["best"])
    other = infer(server, "one_image", image=images[:1])
    expected = models.answers(models.convolutions(np.random.default_rng(2)), image=images[:1])
    np.testing.assert_allclose(other["scores"], expected["scores"], **CLOSE)


@pytest.mark.sanitize
@pytest.mark.parametrize("model", ["add_sub", "onnx", "saved_model", "lite", "paddle"])
def test_requests_become_one_batch(server, model):
    requests = [pair(rows, 16) for rows in (1, 3, 2, 1, 4, 1, 2, 1)]
    with concurrent.futures.ThreadPoolExecutor(len(requests)) as pool:
        for given, answer in zip(requests, pool.map(lambda g: infer(server, model, **g), requests)):
            check_pair(answer, **given)
    with tritonclient.http.InferenceServerClient(server.url) as client:
        counts = client.get_inference_statistics(model)["model_stats"][0]
    assert counts["execution_count"] < counts["inference_stats"]["success"]["count"]


def test_a_shape_without_batches(server):
    given = pair(3, 16)
    check_pair(infer(server, "alone", **given), **given)


def test_dynamic_axes(server):
    for shape in ((2, 3), (5, 1), (1, 7), (2, 3), (0, 3)):
        x = (RNG.integers(0, 3, shape)).astype(np.float32)
        answer = infer(server, "dynamic", x=x)
        np.testing.assert_allclose(answer["sums"], x.sum(1, keepdims=True), **CLOSE)
        np.testing.assert_array_equal(answer["turned"], x.T)
        np.testing.assert_array_equal(answer["places"], np.stack(np.nonzero(x)))


def test_empty_tensors(server):
    given = pair(0, 16)
    answer = infer(server, "reshaped", A=given["A"][:, :5], B=given["B"][:, :5])
    assert answer["SUM"].shape == (0, 5)


def texts(*values):
    return np.array(values, object)


def test_strings(server):
    for given in (texts(b"hello", "wörld".encode(), b"x" * 1000, b"", b"a\0b\0"), texts(b"one")):
        answer = infer(server, "strings", text=given)
        assert list(answer["same"]) == list(given)
        assert list(answer["lengths"]) == [len(t) for t in given]
    with pytest.raises(InferenceServerException, match="input 'text': OpenVINO takes no strings without elements"):
        infer(server, "strings", text=texts())
    requests = [texts(b"a", b"bb"), texts(b"ccc" * 100), texts(b"", b"d", b"e\0")]
    with concurrent.futures.ThreadPoolExecutor(len(requests)) as pool:
        for given, answer in zip(requests, pool.map(lambda g: infer(server, "string_batches", text=g.reshape(-1, 1)), requests)):
            assert list(answer["same"].reshape(-1)) == list(given)


def test_ragged_batches(server):
    """The sum of a list and of those before it in its batch: of all lists the last one has the sum of all."""
    assert infer(server, "ragged", x=np.array([[1, 2, 4]], np.float32))["so_far"].tolist() == [[7]]
    requests = [np.full((1, n), 10.0 ** n, np.float32) for n in (1, 3, 2)]
    for _ in range(20):
        with concurrent.futures.ThreadPoolExecutor(len(requests)) as pool:
            got = sorted(answer["so_far"].item() for answer in pool.map(lambda x: infer(server, "ragged", x=x), requests))
        if got[-1] == sum(float(r.sum()) for r in requests):
            return
    pytest.fail(f"no batch had all three: {got}")


def test_many_inputs(server):
    """Whose shapes are changed, since the file is of one row."""
    given = {f"x{i}": np.full((3, 2), i, np.float32) for i in range(MANY)}
    np.testing.assert_array_equal(infer(server, "many_inputs", **given)["y"], np.full((3, 2), MANY * (MANY - 1) / 2))


def test_one_value(server):
    answer = infer(server, "scalar", x=np.array([2], np.float32))
    np.testing.assert_array_equal(answer["y"], np.array([3], np.float32))


@pytest.mark.parametrize("kind", KINDS)
def test_types(server, kind):
    given = {"A": np.full((3, 4), 9, kind), "B": np.full((3, 4), 4, kind)} if kind.startswith("uint") else pair(3, 4, kind=kind)
    answer = infer(server, f"add_{kind}", **given)
    np.testing.assert_allclose(answer["SUM"], given["A"] + given["B"], rtol=2e-3)
    assert answer["SUM"].dtype == given["A"].dtype


def test_bf16(server):
    """Small whole numbers, which eight bits have."""
    given = {"A": np.arange(12, dtype=np.float32).reshape(3, 4), "B": np.full((3, 4), 2, np.float32)}
    tensors = [tritonclient.http.InferInput(n, [3, 4], "BF16").set_data_from_numpy(array.astype(ml_dtypes.bfloat16)) for n, array in given.items()]
    with tritonclient.http.InferenceServerClient(server.url) as client:
        answer = client.infer("add_bf16", tensors)
    np.testing.assert_array_equal(answer.as_numpy("SUM").astype(np.float32), given["A"] + given["B"])
    assert answer.get_output("DIFF")["datatype"] == "BF16"


def test_an_optional_input_is_needed(server):
    """OpenVINO's models need all their inputs: the error says so, and names the one that the request lacks."""
    given = pair(2, 16)
    check_pair(infer(server, "optional", **given), **given)
    with pytest.raises(InferenceServerException, match="input name B; the model needs this input, though it is optional"):
        infer(server, "optional", A=given["A"])


def test_the_configurations_types_are_converted(server):
    given = pair(2, 16, kind=np.int16)
    answer = infer(server, "converted", **given)
    np.testing.assert_array_equal(answer["SUM"], given["A"] + given["B"])
    assert answer["DIFF"].dtype == np.int16


# ---- States of sequences


def step(server, model, sequence, place, outputs=(), **inputs):
    with tritonclient.http.InferenceServerClient(server.url, network_timeout=60) as client:
        given = []
        for name, array in inputs.items():
            given.append(tritonclient.http.InferInput(name, array.shape, np_to_triton_dtype(array.dtype)))
            given[-1].set_data_from_numpy(array)
        result = client.infer(model, given, outputs=[tritonclient.http.InferRequestedOutput(o) for o in outputs] or None, sequence_id=sequence,
                              sequence_start=place == "first", sequence_end=place == "last")
        return {o["name"]: result.as_numpy(o["name"]).reshape(-1).tolist() for o in result.get_response()["outputs"]}


def places(values):
    return [("first" if i == 0 else "last" if i == len(values) - 1 else "", value) for i, value in enumerate(values)]


def number(value):
    return np.full((1, 1), value, np.float32)


@pytest.mark.parametrize("model", ["direct", "oldest"])
def test_each_sequence_has_its_own_sum(server, model):
    """Several at once, so that batches have requests of several sequences."""
    sequences = {n: [float(10 * n + i) for i in range(5)] for n in range(1, 7)}

    def run(n):
        return [step(server, model, n, place, x=number(value)) for place, value in places(sequences[n])]

    for _ in range(2):
        with concurrent.futures.ThreadPoolExecutor(len(sequences)) as pool:
            got = dict(zip(sequences, pool.map(run, sequences), strict=True))
        for n, values in sequences.items():
            assert got[n] == [{"y": [sum(values[:i + 1]) + 1000 + 100 * (i == 0)]} for i in range(5)], n


def test_a_state_may_be_an_output_too(server):
    assert step(server, "shown", 5, "first", x=number(1)) == {"y": [1101.0], "next": [1.0]}
    assert step(server, "shown", 5, "", ["y"], x=number(2)) == {"y": [1003.0]}
    assert step(server, "shown", 5, "last", ["next"], x=number(4)) == {"next": [7.0]}


def test_a_state_may_have_strings_of_any_length(server):
    values = [b"one", b"", b"a longer one than those before", b"end"]
    got = [step(server, "remember", 9, place, text=texts(value).reshape(1, 1)) for place, value in places(values)]
    assert [g["before"] for g in got] == [[value] for value in [b"", *values[:-1]]]


# ---- Parameters


def test_a_fixed_batch_is_exact_or_padded(server):
    given = pair(4, 16)
    check_pair(infer(server, "exact", **given), **given)
    with pytest.raises(InferenceServerException, match="expected requests with batch size '4', got '3'.* 'ENABLE_BATCH_PADDING'"):
        infer(server, "exact", **pair(3, 16))
    for rows in (4, 1, 3):
        given = pair(rows, 16)
        check_pair(infer(server, "padded", **given), **given)


def test_a_graph_with_its_own_batch(server):
    for rows in (4, 3, 1):
        x = RNG.standard_normal((rows, 6)).astype(np.float32)
        np.testing.assert_allclose(infer(server, "inside", x=x)["y"], x.reshape(rows, 2, 3).sum(2), **CLOSE)


@pytest.mark.parametrize("model", ["reshaped", "reshaped_layouts"])
def test_reshaped_inputs(server, model):
    for rows in (1, 7):
        given = pair(rows, 5)
        check_pair(infer(server, model, **given), **given)


def test_a_hint_of_bf16(server):
    """It is a hint: processors without BF16 compute as before."""
    images = RNG.standard_normal((2, 1, 8, 8)).astype(np.float32)
    np.testing.assert_allclose(infer(server, "bf16_hint", image=images)["scores"], models.answers(CONVOLUTIONS, image=images)["scores"], atol=0.02)


def test_a_hint_of_precision(server):
    """On processors with BF16, OpenVINO computes with it by default: 8 bits of each number are right, here 23."""
    images = RNG.standard_normal((2, 1, 8, 8)).astype(np.float32)
    expected = models.answers(CONVOLUTIONS, {"INFERENCE_PRECISION_HINT": "f32"}, image=images)
    np.testing.assert_allclose(infer(server, "exact_numbers", image=images)["scores"], expected["scores"], **CLOSE)


@pytest.mark.parametrize("device, devices", [("CPU", ["CPU"]), ("AUTO", ["CPU"]), ("auto:cpu", ["CPU"]), ("HETERO:CPU", ["CPU"])])
def test_properties_reach_the_devices(tmp_path, device, devices):
    """Also those of which another one is made."""
    wanted = {"INFERENCE_NUM_THREADS": "2", "NUM_STREAMS": "2", "INFERENCE_PRECISION_HINT": "f32"}
    models.write(tmp_path, "m", CONVOLUTIONS, BATCHES, TARGET_DEVICE=device, **wanted)
    with servers.Server(tmp_path, flags=["--log-verbose=1"]) as running:
        images = RNG.standard_normal((2, 1, 8, 8)).astype(np.float32)
        expected = models.answers(CONVOLUTIONS, {"INFERENCE_PRECISION_HINT": "f32"}, image=images)
        np.testing.assert_allclose(infer(running, "m", image=images)["scores"], expected["scores"], **CLOSE)
        log = running.log()
    for name, value in wanted.items():
        assert re.findall(rf"model 'm': {name} of (\w+) is {value}", log) == devices, log


def test_inputs_of_another_shape(server):
    with pytest.raises(InferenceServerException, match="unexpected shape for input '[AB]'"):
        infer(server, "add_sub", **pair(2, 15))


def test_over_grpc(tmp_path):
    models.write(tmp_path, "m", models.with_layouts(models.add_sub([-1, 16])))
    models.write(tmp_path, "plain", models.dynamic())
    models.write(tmp_path, "part", models.with_layouts(models.strings(), "C"))
    with servers.Server(tmp_path, grpc=True) as running:
        with tritonclient.grpc.InferenceServerClient(running.grpc_url) as client:
            config = client.get_model_config("m").config
            assert [(t.name, list(t.dims)) for t in config.input] == [("A", [16]), ("B", [16])]
            assert sorted(t.name for t in config.output) == ["DIFF", "SUM"]
            assert config.max_batch_size == 4 and config.HasField("dynamic_batching")
            plain = client.get_model_config("plain").config
            assert plain.max_batch_size == 0 and [list(t.dims) for t in plain.input] == [[-1, -1]]
            assert client.get_model_config("part").config.max_batch_size == 0
            given = pair(4, 16)
            check_pair(ask(client, tritonclient.grpc, "m", **given), **given)
        assert "autofilled max_batch_size to 4 for model 'm'" in running.log()


# ---- What is refused


REFUSED = {
    "columns": (BATCHES + sides(dims=(15,)), {}, "the model expects 2 dimensions (shape [-1,16]) but the model configuration specifies 2 dimensions "
                "(an initial batch dimension because max_batch_size > 0 followed by the explicit tensor shape, making complete shape [16,15])"),
    "dimensions": (sides(dims=(16,)), {}, "the model expects 2 dimensions (shape [-1,16]) but the model configuration specifies 1 dimensions (shape [16])"),
    "outputs": (sides(dims=(-1, 16), names=()) + repository.tensor("output", "SUM", "FP32", [-1, 15]), {}, "tensor 'SUM': the model expects 2 dimensions"),
    "name": (repository.tensor("input", "x", "FP32", [-1, 16]) + repository.tensor("input", "B", "FP32", [-1, 16])
             + repository.tensor("output", "SUM", "FP32", [-1, 16]), {}, "unexpected inference input 'x', allowed inputs are: A, B"),
    "output": (sides(dims=(-1, 16), names=("y",)), {}, "unexpected inference output 'y', allowed outputs are: DIFF, SUM"),
    "fewer": (repository.tensor("input", "A", "FP32", [-1, 16]) + repository.tensor("output", "SUM", "FP32", [-1, 16]), {},
              "configuration expects 1 inputs, model provides 2"),
    "strings": (sides("BYTES", dims=(-1, 16)), {}, "configuration expects datatype TYPE_STRING for input 'A', model provides TYPE_FP32"),
    "gpu": (BATCHES + "instance_group [ { kind: KIND_GPU gpus: [ 0 ] } ]\n", {}, ""),
    "threads": (BATCHES, {"INFERENCE_NUM_THREADS": "many"}, "expected the parameter 'INFERENCE_NUM_THREADS' to be a non-negative number, got many"),
    "compilers": (BATCHES, {"COMPILATION_NUM_THREADS": "-1"}, "expected the parameter 'COMPILATION_NUM_THREADS' to be a non-negative number, got -1"),
    "hint": (BATCHES, {"HINT_BF16": "no"}, "expected the parameter 'HINT_BF16' to be YES, got no"),
    "precision": (BATCHES, {"INFERENCE_PRECISION_HINT": "f64"}, "expected the parameter 'INFERENCE_PRECISION_HINT' to be F32/BF16/F16, got f64"),
    "streams": (BATCHES, {"NUM_STREAMS": "some"}, "expected the parameter 'NUM_STREAMS' to be either AUTO/NUMA/<int_value>, got some"),
    "mode": (BATCHES, {"PERFORMANCE_HINT": "fast"}, "expected the parameter 'PERFORMANCE_HINT' to be LATENCY/THROUGHPUT/CUMULATIVE_THROUGHPUT, got fast"),
    "device": (BATCHES, {"TARGET_DEVICE": "ABACUS"}, "model 'device': OpenVINO finds no device ABACUS here (TARGET_DEVICE is ABACUS); it finds: CPU"),
    "devices": (BATCHES, {"TARGET_DEVICE": "HETERO:CPU,GPU.1"}, "OpenVINO finds no device GPU.1 here (TARGET_DEVICE is HETERO:CPU,GPU.1); it finds: CPU"),
    "reshape": (sides(dims=(-1, 5)), {}, "the model expects 2 dimensions (shape [-1,16])"),
    "extension": (BATCHES, {"CPU_EXTENSION_PATH": "/tmp/libmine.so"},
                  "CPU_EXTENSION_PATH '/tmp/libmine.so' is code that would run in the server; --backend-config=openvino,allow-extensions=1 permits it"),
}


STATES_REFUSED = {
    "state_output": (state("FP32", output="sum"), "unexpected inference output 'sum', allowed outputs are: next, y"),
    "state_type": (state("STRING"), "configuration expects datatype TYPE_STRING for input 'last', model provides TYPE_FP32"),
    "state_dims": (state("FP32", dims="2"), "tensor 'last': the model expects 2 dimensions (shape [-1,1])"),
}


def log_of_failures(root, *flags, env=None):
    with servers.Server(root, flags=["--exit-on-error=false", "--strict-readiness=false", *flags], env=env, ready=False) as running:
        return running.log()


def test_configurations_that_do_not_fit(tmp_path):
    for name, (config, parameters, _) in REFUSED.items():
        models.write(tmp_path, name, models.add_sub([-1, 16]), config, **parameters)
    for name, (sequences, _) in STATES_REFUSED.items():
        models.write(tmp_path, name, models.accumulate(), "max_batch_size: 4\n" + tensors_of_sums() + "sequence_batching {" + CONTROLS + sequences + "}\n")
    log = log_of_failures(tmp_path)
    for name, (_, text) in STATES_REFUSED.items():
        assert text in log, (name, log)
    for name, (_, _, text) in REFUSED.items():
        assert text in log, (name, log)
    assert log.count("failed to load") >= len(REFUSED), log


def test_a_missing_library_fails_only_its_models(tmp_path):
    models.write(tmp_path, "m", models.add_sub([-1, 16]))
    repository.write_identity(tmp_path, "other", [("FP32", [1])])
    missing = str(tmp_path / "libopenvino_c.so")
    log = log_of_failures(tmp_path, env={"CONCH_OPENVINO": missing})
    assert f"OpenVINO's library libopenvino_c.so cannot be loaded; tried {missing}; get it with `pip install openvino`" in log
    assert "the server starts without some of its models" in log


def test_another_library_is_refused(tmp_path):
    """One that has none of OpenVINO's functions."""
    models.write(tmp_path, "m", models.add_sub([-1, 16]))
    other = repository.BUILD / "lib" / "libtritonserver.so"
    log = log_of_failures(tmp_path, env={"CONCH_OPENVINO": str(other)})
    assert "has no ov_get_openvino_version: release 2025 or a later one is needed" in log


def damaged(xml, weights):
    """{what: (xml, weights)} of files that are no model any more."""
    half = len(xml) // 2
    yield "empty", b"", weights
    yield "cut", xml[:half], weights
    yield "noise", np.random.default_rng(3).bytes(5000), weights
    yield "short_weights", xml, weights[:len(weights) // 2]
    yield "no_weights", xml, None
    yield "newer", xml.replace(b'version="11"', b'version="99"', 1), weights
    yield "unknown", xml.replace(b'type="Convolution"', b'type="Marvel"', 1), weights
    yield "opset", xml.replace(b'type="Convolution" version="opset1"', b'type="Convolution" version="opset77"', 1), weights
    yield "offset", xml.replace(b'offset="0"', b'offset="1099511627776"', 1), weights
    yield "elements", xml.replace(b'shape="?,1,8,8"', b'shape="?,1,1048576,1099511627776"', 1), weights
    yield "edge", xml.replace(b'to-layer="', b'to-layer="7', 1), weights


def test_files_that_are_no_models(tmp_path):
    """Each is refused with a line that names what failed, and the server serves on."""
    path = models.write(tmp_path, "whole", CONVOLUTIONS, BATCHES)
    xml, weights = path.read_bytes(), path.with_suffix(".bin").read_bytes()
    bad = []
    for what, text, bin_ in damaged(xml, weights):
        assert (text, bin_) != (xml, weights), what
        file = models.write(tmp_path, what, CONVOLUTIONS, BATCHES)
        file.write_bytes(text)
        file.with_suffix(".bin").write_bytes(bin_ or b"")
        if bin_ is None:
            file.with_suffix(".bin").unlink()
        bad.append(what)
    models.write_onnx(tmp_path, "bad_onnx")
    (tmp_path / "bad_onnx/1/model.onnx").write_bytes(b"\x08\x07" + bytes(500))
    models.write_saved_model(tmp_path, "bad_saved_model")
    (tmp_path / "bad_saved_model/1/model.saved_model/saved_model.pb").write_bytes(saved_models.add_sub([-1, 16])[:90])
    repository.write_model(tmp_path, "nothing", models.config_of(""))
    # OpenVINO itself loses eight bytes.
    env = {"ASAN_OPTIONS": f"{os.environ.get('ASAN_OPTIONS', '')}:detect_leaks=0"}
    with servers.Server(tmp_path, flags=["--exit-on-error=false", "--strict-readiness=false"], env=env, ready=False) as running:
        reasons = read_reasons(running)
        for what in [*bad, "bad_onnx", "bad_saved_model"]:
            place = f"openvino error in reading model : .*{tmp_path / what / '1' / 'model'}" if what != "elements" else "openvino error in loading model : "
            assert re.search(place, reasons[what]), (what, reasons[what])
            assert "\n" not in reasons[what]
        assert "model.xml" in reasons["nothing"]
        images = RNG.standard_normal((2, 1, 8, 8)).astype(np.float32)
        np.testing.assert_allclose(infer(running, "whole", image=images)["scores"], models.answers(CONVOLUTIONS, image=images)["scores"], **CLOSE)


def test_a_file_of_weights_that_changes_under_a_loaded_model(tmp_path):
    """It is cut off in place, as a copy over it begins. The model looks up rows of its weights, which OpenVINO would map from the file."""
    table = np.arange(40000 * 16, dtype=np.float32).reshape(-1, 16)
    x = models.parameter("x", [-1, 1], np.int32)
    rows = models.named(models.ops.gather(models.ops.constant(table), x, models.ops.constant(np.int64(0))), "rows")
    file = models.write(tmp_path, "m", models.ov.Model([rows], [x], "m"), "max_batch_size: 4\n")
    with servers.Server(tmp_path) as running:
        for place in (0, 39999):
            np.testing.assert_array_equal(infer(running, "m", x=np.array([[place]], np.int32))["rows"], table[[[place]]])
            file.with_suffix(".bin").write_bytes(b"")


@pytest.mark.parametrize("device", ["CPU", "HETERO:CPU"])
def test_compiled_models_are_kept(tmp_path, device):
    cache = tmp_path / "cache"
    cache.mkdir()
    models.write(tmp_path / "models", "m", CONVOLUTIONS, BATCHES, TARGET_DEVICE=device)
    for _ in range(2):
        with servers.Server(tmp_path / "models", flags=[f"--backend-config=openvino,cache-dir={cache}"]) as running:
            images = RNG.standard_normal((2, 1, 8, 8)).astype(np.float32)
            np.testing.assert_allclose(infer(running, "m", image=images)["scores"], models.answers(CONVOLUTIONS, image=images)["scores"], **CLOSE)
        assert len(list(cache.glob("*.blob"))) == 1


def test_variables_are_warned_of(tmp_path):
    x = models.parameter("x", [1])
    total = models.ops.add(x, models.ops.read_value(models.ops.constant(np.zeros(1, np.float32)), "total"))
    keeps = models.ops.assign(total, "total")
    models.write(tmp_path, "total", models.ov.Model([models.named(models.ops.relu(total), "y")], [keeps], [x], "total"), "")
    models.write(tmp_path, "sums", models.add_sub([1, 16]), "")
    with servers.Server(tmp_path) as running:
        assert [infer(running, "total", x=np.ones(1, np.float32))["y"].item() for _ in range(2)] == [1, 2]
        assert re.findall(r"model '(\w+)' has variables", running.log()) == ["total"]


def test_version_names_the_library():
    code, out, err = servers.run_to_end("--version", env={"CONCH_OPENVINO": library()})
    assert (code, err) == (0, "")
    line = next(line for line in out.splitlines() if line.startswith("openvino: "))
    assert line == f"openvino: OpenVINO {__import__('openvino').__version__} from {os.path.realpath(library())}"
