# SPDX-License-Identifier: Apache-2.0
"""The backend tensorrt without a GPU: the driver is tests/cuda/fake_cuda.c, TensorRT is tests/tensorrt/fake_nvinfer.c, as release 11 and
as release 10. What they compute is true: a wrong copy, shape or profile gives a wrong answer."""

import concurrent.futures
import json
import os
import urllib.request

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException

import repository
import server as servers
import triton

pytestmark = pytest.mark.sanitize    # all of it is about memory and threads
RNG = np.random.default_rng(18)
DRIVER = servers.BUILD / "tests/cuda"
ENVIRONMENT = {major: {"LD_LIBRARY_PATH": str(DRIVER), "CONCH_TENSORRT": str(servers.BUILD / f"tests/tensorrt/{major}/libnvinfer.so.{major}")}
               for major in (10, 11)}
PINNED_ONLY = {"CONCH_FAKE_PINNED_ONLY": "1"}    # a copy between the GPU and other memory of the host fails
ADD_SUB = """in A float -1x16
in B float -1x16
out SUM float -1x16
out DIFF float -1x16
profile 0 A 1x16 4x16 8x16
profile 0 B 1x16 4x16 8x16
op add A B SUM
op sub A B DIFF
"""
# The second profile is for long inputs of few rows.
PROFILES = """in X float -1x-1
out Y float -1x-1
profile 0 X 1x1 4x8 8x16
profile 1 X 1x1 1x64 2x128
op copy X Y
"""
TYPES = {"FP32": "float", "FP16": "half", "INT8": "int8", "INT32": "int32", "BOOL": "bool", "UINT8": "uint8", "INT64": "int64"}
SUMS = """in X float -1x1
in last float -1x1
in start int32 -1x1
out next float -1x1
profile 0 X 1x1 1x1 4x1
profile 0 last 1x1 1x1 4x1
profile 0 start 1x1 1x1 4x1
op accumulate X last next
"""
SEQUENCES = """max_batch_size: 4
input [ { name: "X" data_type: TYPE_FP32 dims: [ 1 ] } ]
output [ { name: "next" data_type: TYPE_FP32 dims: [ 1 ] } ]
sequence_batching { oldest { max_candidate_sequences: 4 }
  control_input [ { name: "start" control [ { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } ] } ]
  state [ { input_name: "last" output_name: "next" data_type: TYPE_FP32 dims: [ 1 ]
            initial_state { name: "zero" data_type: TYPE_FP32 dims: [ 1 ] zero_data: true } } ] }
"""
RAGGED = """in X float -1
in ends int32 -1
out Y float -1
profile 0 X 1 8 64
profile 0 ends 1 2 8
op copy X Y
"""
RAGGED_CONFIG = """max_batch_size: 8
input [ { name: "X" data_type: TYPE_FP32 dims: [ -1 ] allow_ragged_batch: true } ]
output [ { name: "Y" data_type: TYPE_FP32 dims: [ -1 ] } ]
batch_input [ { kind: BATCH_ACCUMULATED_ELEMENT_COUNT target_name: "ends" data_type: TYPE_INT32 source_input: "X" } ]
batch_output [ { kind: BATCH_SCATTER_WITH_INPUT_SHAPE target_name: "Y" source_input: "X" } ]
dynamic_batching { max_queue_delay_microseconds: 100000 }
"""
ONE_GPU = "instance_group [ { kind: KIND_GPU gpus: [ 0 ] } ]\n"
GRAPHS = "optimization { cuda { graphs: true } }\n"
HOW = "in X float -1x4\nout Y float -1x4\nprofile 0 X 1x4 2x4 8x4\nop how X Y\n"
BATCHED_IO = """max_batch_size: 8
input [ { name: "X" data_type: TYPE_FP32 dims: [ 4 ] } ]
output [ { name: "Y" data_type: TYPE_FP32 dims: [ 4 ] } ]
"""
GRAPH_SPECS = """instance_group [ { kind: KIND_GPU gpus: [ 0 ] profile: [ "0", "1" ] } ]
optimization { cuda { graphs: true
  graph_spec { batch_size: 8 input { key: "X" value { dim: [ 4 ] } }
               graph_lower_bound { batch_size: 5 input { key: "X" value { dim: [ 4 ] } } } }
  graph_spec { batch_size: 2 input { key: "X" value { dim: [ 9 ] } } } } }
"""
ZERO = {"execution_context_allocation_strategy": "ON_PROFILE_CHANGE"}


def write(root, name, plan, config="", version=11, end="end\n", **parameters):
    for key, value in parameters.items():
        config += f'parameters {{ key: "{key}" value: {{ string_value: "{value}" }} }}\n'
    folder = repository.write_model(root, name, 'platform: "tensorrt_plan"\n' + config)
    (folder / "1/model.plan").write_text(f"fakeplan {version}\n{plan}{end}")
    return folder


def write_all(root, major):
    write(root, "add_sub", ADD_SUB, version=major)
    write(root, "gathers", ADD_SUB, "dynamic_batching { max_queue_delay_microseconds: 200000 }\n" + ONE_GPU, major)
    write(root, "whole", ADD_SUB.replace("-1x16", "2x16"), version=major)
    write(root, "profiles", PROFILES, 'instance_group [ { kind: KIND_GPU gpus: [ 1 ] profile: [ "0", "1" ] } ]\n', major, **ZERO)
    write(root, "second", PROFILES, 'instance_group [ { kind: KIND_GPU count: 2 gpus: [ 0 ] profile: [ "1" ] } ]\n'
          'optimization { priority: PRIORITY_MAX cuda { graphs: true } }\n', major)
    write(root, "unasked", ADD_SUB, 'output [ { name: "DIFF" data_type: TYPE_FP32 dims: [ 16 ] } ]\n', major)
    write(root, "late", "in X float 6\nout Y float -1\nop positive X Y\n", version=major)
    write(root, "scalar", "in X float .\nout Y float .\nop copy X Y\n", version=major)
    write(root, "sums", SUMS, SEQUENCES, major)
    write(root, "ragged", RAGGED, RAGGED_CONFIG + ONE_GPU, major)
    write(root, "ones", "in S int32 2 shape\nout Y float -1x-1\nop ones S Y\n", version=major)
    write(root, "batch_ones", "in X float -1x1\nin S int64 3 shape\nout Y float -1x-1x-1\nprofile 0 X 1x1 1x1 8x1\nop ones S Y\n",
          "dynamic_batching { max_queue_delay_microseconds: 100000 }\n" + ONE_GPU, major)
    write(root, "crash", "in X float 4\nout Y float 4\nop copy X Y\nop crash\n", version=major)
    write(root, "graphs", HOW, GRAPHS + ONE_GPU, major)
    write(root, "no_graphs", HOW, ONE_GPU, major)
    write(root, "graphs_preferred", HOW, GRAPHS + ONE_GPU + BATCHED_IO + "dynamic_batching { preferred_batch_size: [ 5 ] }\n", major)
    write(root, "graphs_usual", HOW, GRAPHS + ONE_GPU + BATCHED_IO, major)
    write(root, "graphs_whole", "in X float 2x3\nout Y float 2x3\nop how X Y\n", GRAPHS, major)
    write(root, "graphs_spec", PROFILES.replace("copy", "how"), GRAPH_SPECS, major)
    write(root, "graphs_late", "in X float 3\nout Y float -1\nop positive X Y\n", GRAPHS + ONE_GPU, major)
    write(root, "graphs_shape", "in S int32 2 shape\nout Y float -1x-1\nop ones S Y\n", GRAPHS + ONE_GPU, major)
    for name, theirs in TYPES.items():
        write(root, f"type_{name}", f"in X {theirs} -1x3\nout Y {theirs} -1x3\nprofile 0 X 0x3 1x3 4x3\nop copy X Y\n", version=major)


@pytest.fixture(scope="module", params=[11, 10], ids=["release11", "release10"])
def server(tmp_path_factory, request):
    models = tmp_path_factory.mktemp("models")
    write_all(models, request.param)
    env = {**ENVIRONMENT[request.param], **(PINNED_ONLY if request.param == 11 else {})}
    with servers.Server(models, grpc=True, flags=["--log-verbose=1"], env=env) as made:
        yield made


def ask(client, module, model, outputs=None, **given):
    inputs = []
    for name, array in given.items():
        if name in ("sequence_id", "sequence_start", "sequence_end"):
            continue
        inputs.append(module.InferInput(name, list(array.shape), module_type(array)).set_data_from_numpy(array))
    options = {k: v for k, v in given.items() if k.startswith("sequence_")}
    wanted = [module.InferRequestedOutput(name) for name in outputs] if outputs else None
    return client.infer(model, inputs, outputs=wanted, **options)


def module_type(array):
    return {"float32": "FP32", "float16": "FP16", "bool": "BOOL"}.get(array.dtype.name, array.dtype.name.upper())


def infer(server, model, outputs=None, **given):
    with tritonclient.http.InferenceServerClient(server.url, network_timeout=60) as client:
        result = ask(client, tritonclient.http, model, outputs, **given)
        return {o["name"]: result.as_numpy(o["name"]) for o in result.get_response()["outputs"]}


def config_of(server, model):
    with urllib.request.urlopen(f"http://{server.url}/v2/models/{model}/config", timeout=60) as answer:
        return json.load(answer)


def pair(rows, width=16):
    return {name: RNG.standard_normal((rows, width)).astype(np.float32) for name in "AB"}


def check_pair(answer, A, B):    # noqa: N803
    np.testing.assert_array_equal(answer["SUM"], A + B)
    np.testing.assert_array_equal(answer["DIFF"], A - B)


# ---- What is computed


def test_a_configuration_is_completed_from_the_plan(server):
    config = config_of(server, "add_sub")
    assert (config["max_batch_size"], config["instance_group"][0]["kind"], config["instance_group"][0]["gpus"]) == (8, "KIND_GPU", [0, 1])
    assert "dynamic_batching" in config
    assert [(t["name"], t["data_type"], t["dims"]) for t in config["input"] + config["output"]] == [
        (name, "TYPE_FP32", [16]) for name in ("A", "B", "SUM", "DIFF")]
    assert (config_of(server, "whole")["max_batch_size"], config_of(server, "whole")["input"][0]["dims"]) == (0, [2, 16])
    assert config_of(server, "profiles")["max_batch_size"] == 8, "the largest of the group's profiles"
    assert config_of(server, "second")["max_batch_size"] == 2


@pytest.mark.parametrize("rows", [1, 3, 8])
def test_batches(server, rows):
    given = pair(rows)
    check_pair(infer(server, "add_sub", **given), **given)


def test_a_model_that_does_not_batch(server):
    given = pair(2)
    check_pair(infer(server, "whole", **given), **given)


def test_over_grpc(server):
    given = pair(5)
    with tritonclient.grpc.InferenceServerClient(server.grpc_url) as client:
        result = ask(client, tritonclient.grpc, "add_sub", **given)
        check_pair({name: result.as_numpy(name) for name in ("SUM", "DIFF")}, **given)


def test_a_single_number(server):
    assert infer(server, "scalar", X=np.array([7], np.float32))["Y"].tolist() == [7]


def test_requests_that_come_together_are_one_batch(server):
    given = [pair(1) for _ in range(8)]
    before = executions(server, "gathers")
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for one, answer in zip(given, pool.map(lambda one: infer(server, "gathers", **one), given)):
            check_pair(answer, **one)
    assert executions(server, "gathers") - before < 8


def executions(server, model):
    with urllib.request.urlopen(f"http://{server.url}/v2/models/{model}/stats", timeout=60) as answer:
        return json.load(answer)["model_stats"][0]["execution_count"]


def test_many_requests_at_once_on_both_gpus(server):
    given = [pair(1 + i % 8) for i in range(200)]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for one, answer in zip(given, pool.map(lambda one: infer(server, "add_sub", **one), given)):
            check_pair(answer, **one)


@pytest.mark.parametrize("shape", [(8, 16), (1, 1), (2, 128), (1, 17)])
def test_the_profile_that_allows_the_shape_is_taken(server, shape):
    x = RNG.standard_normal(shape).astype(np.float32)
    np.testing.assert_array_equal(infer(server, "profiles", X=x)["Y"], x)


def test_a_shape_that_no_profile_allows_is_refused(server):
    with pytest.raises(InferenceServerException, match="failed to find any Optimization Profile among the 2 of this instance of profiles"):
        infer(server, "profiles", X=np.zeros((8, 17), np.float32))
    with pytest.raises(InferenceServerException, match="invalid shape for input 'X' for second. Error details: model expected the shape of "
                                                       "dimension 1 to be between 1 and 128 but received 129"):
        infer(server, "second", X=np.zeros((1, 129), np.float32))
    x = np.ones((2, 100), np.float32)
    np.testing.assert_array_equal(infer(server, "second", X=x)["Y"], x)


def test_requests_of_a_batch_that_no_profile_allows_are_answered_alone(server):
    """Rows of 100 and 12 numbers may wait in one queue: each is answered."""
    given = [np.full((1, width), width, np.float32) for width in (100, 12, 100, 12)]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for x, answer in zip(given, pool.map(lambda x: infer(server, "profiles", X=x), given)):
            np.testing.assert_array_equal(answer["Y"], x)


def test_outputs_that_nobody_asks_for_are_computed_all_the_same(server):
    given = pair(4)
    answer = infer(server, "unasked", **given)
    assert list(answer) == ["DIFF"]
    np.testing.assert_array_equal(answer["DIFF"], given["A"] - given["B"])
    answer = infer(server, "add_sub", outputs=["SUM"], **given)
    assert list(answer) == ["SUM"]


@pytest.mark.parametrize("values", [[1, -2, 3, -4, 5, 6], [-1] * 6, [7] * 6])
def test_an_output_whose_size_is_found_late(server, values):
    x = np.array(values, np.float32)
    np.testing.assert_array_equal(infer(server, "late", X=x)["Y"], x[x > 0])


@pytest.mark.parametrize("datatype", TYPES)
def test_types(server, datatype):
    kinds = {"FP32": np.float32, "FP16": np.float16, "BOOL": bool}
    x = (RNG.standard_normal((3, 3)) * 9).astype(kinds.get(datatype) or getattr(np, datatype.lower()))
    np.testing.assert_array_equal(infer(server, f"type_{datatype}", X=x)["Y"], x)


def test_states_of_sequences(server):
    with tritonclient.http.InferenceServerClient(server.url) as client:
        sums = {1: 0.0, 2: 0.0}
        for step in range(5):
            for sequence in (1, 2):
                sums[sequence] += step + sequence
                result = ask(client, tritonclient.http, "sums", X=np.array([[step + sequence]], np.float32), sequence_id=sequence,
                             sequence_start=step == 0, sequence_end=step == 4)
                assert result.as_numpy("next").tolist() == [[sums[sequence]]]


def test_ragged_batches(server):
    given = [np.arange(n, dtype=np.float32).reshape(1, n) for n in (3, 5, 1, 7)]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for x, answer in zip(given, pool.map(lambda x: infer(server, "ragged", X=x), given)):
            np.testing.assert_array_equal(answer["Y"], x)


def test_values_of_shapes(server):
    assert config_of(server, "ones")["input"][0]["is_shape_tensor"] is True
    assert infer(server, "ones", S=np.array([2, 3], np.int32))["Y"].shape == (2, 3)
    with pytest.raises(InferenceServerException, match=r"unexpected shape for input 'S'"):
        infer(server, "ones", S=np.array([2, 3, 4], np.int32))


def test_values_of_shapes_in_a_batch(server):
    """Requests with other values are executed apart."""
    config = config_of(server, "batch_ones")
    assert (config["max_batch_size"], config["input"][1]["dims"]) == (8, [2])
    values = [[2, 3], [2, 3], [4, 1], [2, 3]]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        answers = pool.map(lambda v: infer(server, "batch_ones", X=np.zeros((1, 1), np.float32), S=np.array([v], np.int64)), values)
        assert [answer["Y"].shape for answer in answers] == [(1, *v) for v in values]


def test_a_launch_that_fails_fails_its_request(server):
    with pytest.raises(InferenceServerException, match=r"unable to enqueue for inference: Error Code 1: Cuda Runtime \(an illegal memory"):
        infer(server, "crash", X=np.zeros(4, np.float32))
    check_pair(infer(server, "add_sub", **(given := pair(1))), **given)


def how(server, model, shape):
    """How each was computed: "graph", or "launch"; the answer is right but for that."""
    x = RNG.integers(0, 100, shape).astype(np.float32)
    difference = infer(server, model, X=x)["Y"] - x
    assert difference.shape == shape and len(np.unique(difference)) == 1, difference
    return {0: "graph", 1000: "launch"}[int(difference.flat[0])]


def test_cuda_graphs_are_captured_for_the_usual_batches(server):
    """With a scheduler that batches these are 1, the preferred sizes and the largest; without one, some more."""
    assert [how(server, "graphs", (rows, 4)) for rows in range(1, 9)] == ["graph", *["launch"] * 6, "graph"]
    assert [how(server, "graphs_preferred", (rows, 4)) for rows in range(1, 9)] == [
        "graph", "launch", "launch", "launch", "graph", "launch", "launch", "graph"]
    assert [how(server, "graphs_usual", (rows, 4)) for rows in range(1, 9)] == ["graph"] * 4 + ["launch", "graph", "launch", "graph"]
    assert how(server, "graphs_whole", (2, 3)) == "graph"
    assert "captured 2 CUDA graphs for graphs_0_0" in server.log()


def test_without_the_setting_there_are_no_graphs(server):
    assert how(server, "no_graphs", (1, 4)) == "launch"
    assert "CUDA graphs for no_graphs" not in server.log()


def test_cuda_graphs_for_shapes_of_the_configuration(server):
    """The first is for batches of 5 to 8 rows, the second for 2 rows of 9, by the second profile."""
    assert [how(server, "graphs_spec", (rows, 4)) for rows in (4, 5, 6, 8)] == ["launch", "graph", "graph", "graph"]
    assert "model 'graphs_spec': not all" not in server.log()
    assert [how(server, "graphs_spec", shape) for shape in ((2, 9), (1, 9), (2, 8), (6, 3))] == ["graph", "launch", "launch", "launch"]


def test_graphs_and_launches_take_turns(server):
    given = [(1 + i % 8, 4) for i in range(200)]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda shape: how(server, "graphs", shape), given))
    assert set(answers) <= {"graph", "launch"} and "graph" in answers


def test_graphs_that_cannot_be_captured_warn_once(server, tmp_path):
    for model, why in (("graphs_late", "the size of output 'Y' depends on the values of inputs"), ("graphs_shape", "tensor 'S' is in the host's memory")):
        text = f"model '{model}': not all CUDA graphs are captured for {model}_0_0: {why}"
        assert server.log().count(text) == 1, server.log()
    assert infer(server, "graphs_late", X=np.array([1, -1, 2], np.float32))["Y"].tolist() == [1, 2]
    assert infer(server, "graphs_shape", S=np.array([2, 3], np.int32))["Y"].shape == (2, 3)
    write(tmp_path, "m", HOW, GRAPHS + ONE_GPU)
    with servers.Server(tmp_path, env={**ENVIRONMENT[11], "CONCH_FAKE_NO_GRAPHS": "1"}) as running:
        assert [how(running, "m", (rows, 4)) for rows in (1, 8)] == ["launch", "launch"]
        assert running.log().count("not all CUDA graphs are captured for m_0_0: unable to finish CUDA graph: operation failed due to a previous") == 1


SPECS = {
    "more": ("graph_spec { batch_size: 9 }", "graph spec expects 'batch_size' to be >= 1 and <= 8"),
    "none": ("graph_spec { }", "graph spec expects 'batch_size' to be >= 1 and <= 8"),
    "above": ("graph_spec { batch_size: 4 graph_lower_bound { batch_size: 5 } }",
              "graph lower bound spec expects 'batch_size' to be <= graph spec 'batch_size'"),
    "lacks": ('graph_spec { batch_size: 4 input { key: "X" value { dim: [ 4 ] } } graph_lower_bound { batch_size: 1 } }',
              "graph lower bound spec expects shape for input 'X'"),
    "ranks": ('graph_spec { batch_size: 4 input { key: "X" value { dim: [ 4 ] } } graph_lower_bound { batch_size: 1 '
              'input { key: "X" value { dim: [ 4, 4 ] } } } }', "graph lower bound spec expects to have '1' dimensions, got 2"),
    "dims": ('graph_spec { batch_size: 4 input { key: "X" value { dim: [ 4 ] } } graph_lower_bound { batch_size: 1 '
             'input { key: "X" value { dim: [ 5 ] } } } }', "graph lower bound spec expects input 'X' to have dimension <= 4"),
    "negative": ('graph_spec { batch_size: 4 input { key: "X" value { dim: [ -1 ] } } }', "graph spec expects input 'X' to have dimension >= 0"),
}


def test_wishes_for_graphs_are_checked(tmp_path):
    for name, (spec, _) in SPECS.items():
        write(tmp_path, name, HOW, f"optimization {{ cuda {{ graphs: true {spec} }} }}\n" + ONE_GPU)
    whole = 'optimization { cuda { graphs: true graph_spec { batch_size: 1 } } }\n'
    write(tmp_path, "whole", "in X float 2x3\nout Y float 2x3\nop how X Y\n", whole)
    log = log_of_failures(tmp_path)
    for name, (_, text) in SPECS.items():
        assert f"failed to load '{name}' version 1: Invalid argument: {text}" in log, (name, log)
    assert "graph spec expects 'batch_size' to be 0 if 'max_batch_size' is 0" in log


def test_engines_are_shared_by_the_instances_of_a_gpu(server):
    log = server.log()
    assert log.count("model 'second': an engine on GPU 0 from ") == 1
    assert [log.count(f"model 'add_sub': an engine on GPU {gpu} from ") for gpu in (0, 1)] == [1, 1]


def test_loads_and_unloads_leave_nothing(tmp_path):
    write(tmp_path, "m", ADD_SUB)
    with servers.Server(tmp_path, flags=["--model-control-mode=explicit"], env=ENVIRONMENT[11]) as running:
        with tritonclient.http.InferenceServerClient(running.url) as client:
            for _ in range(20):
                client.load_model("m")
                check_pair(infer(running, "m", **(given := pair(8))), **given)
                client.unload_model("m")
                servers.wait_for(lambda: not client.is_model_ready("m"), 60, "the unload")


# ---- What is refused


def log_of_failures(root, *flags, env=None):
    with servers.Server(root, flags=["--exit-on-error=false", "--strict-readiness=false", *flags], env={**ENVIRONMENT[11], **(env or {})},
                        ready=False) as running:
        running.assert_alive()
        return running.log()


IO = {name: repository.tensor("input" if name in "AB" else "output", name, "FP32", [16]) for name in ("A", "B", "SUM", "DIFF")}
REFUSED = {
    "name": (IO["A"] + repository.tensor("input", "x", "FP32", [16]) + IO["SUM"], "unexpected inference input 'x', allowed inputs are: A, B"),
    "output": (IO["A"] + IO["B"] + repository.tensor("output", "y", "FP32", [16]), "unexpected inference output 'y', allowed outputs are: DIFF, SUM"),
    "side": (IO["A"] + IO["B"] + repository.tensor("output", "A", "FP32", [16]), "unexpected inference output 'A', allowed outputs are: DIFF, SUM"),
    "fewer": (IO["A"] + IO["SUM"], "the model has an input 'B', which the configuration lacks"),
    "type": (IO["A"].replace("FP32", "FP16") + IO["B"] + IO["SUM"],
             "unexpected datatype TYPE_FP32 for inference input 'A', expecting TYPE_FP16 for type"),
    "columns": ("max_batch_size: 4\n" + IO["A"].replace("16", "15") + IO["B"] + IO["SUM"],
                "model 'columns', tensor 'A': the model expects 2 dimensions (shape [-1,16]) but the model configuration specifies 2 dimensions (an "
                "initial batch dimension because max_batch_size > 0 followed by the explicit tensor shape, making complete shape [-1,15])"),
    "batch": ("max_batch_size: 16\n", "configuration specified max-batch 16 but TensorRT engine only supports max-batch 8"),
    "profile": ('instance_group [ { kind: KIND_GPU profile: [ "3" ] } ]\n',
                "configuration specified invalid profile 3. Number of profiles supported by TensorRT engine: 1"),
    "cpu": ("instance_group [ { kind: KIND_CPU } ]\n", "unable to load model 'cpu', TensorRT backend supports only GPU device"),
    "model_kind": ("instance_group [ { kind: KIND_MODEL } ]\n", "unable to load model 'model_kind', TensorRT backend supports only GPU device"),
    "dla": ("instance_group [ { kind: KIND_GPU secondary_devices [ { kind: KIND_NVDLA device_id: 5 } ] } ]\n",
            "unable to create TensorRT runtime with DLA Core ID: 5, available number of DLA cores: 2"),
    "strategy": ('parameters { key: "execution_context_allocation_strategy" value: { string_value: "USER" } }\n',
                 "Invalid value for 'execution_context_allocation_strategy': 'USER' for model instance 'strategy'. Supported values are 'STATIC'"),
    "many": ('parameters { key: "enable_multi_device" value: { string_value: "true" } }\n', "model 'many': enable_multi_device is not supported"),
}


def test_marks_of_shape_tensors_are_checked(tmp_path):
    write(tmp_path, "marked", ADD_SUB, IO["A"].replace("dims", "is_shape_tensor: true dims") + IO["B"] + IO["SUM"])
    write(tmp_path, "unmarked", "in S int32 2 shape\nout Y float -1x-1\nop ones S Y\n",
          repository.tensor("input", "S", "INT32", [2]) + repository.tensor("output", "Y", "FP32", [-1, -1]))
    log = log_of_failures(tmp_path)
    assert "input 'A' for model 'marked' is incorrectly marked as a shape tensor in the model configuration." in log
    assert "input 'S' for model 'unmarked' is a shape tensor but the model configuration doesn't mark it as a shape tensor." in log


def test_configurations_that_do_not_fit(tmp_path):
    for name, (config, _) in REFUSED.items():
        write(tmp_path, name, ADD_SUB, config)
    write(tmp_path, "good", ADD_SUB)
    log = log_of_failures(tmp_path)
    for name, (_, text) in REFUSED.items():
        assert text in log, (name, log)
    assert "failed to load 'good'" not in log and log.count("failed to load '") == len(REFUSED), log


BROKEN = {
    "empty": ("", "the file is empty"),
    "other": ("not a plan", "Magic tag does not match"),
    "cut": (f"fakeplan 11\n{ADD_SUB}"[:100], "Magic tag does not match"),
    "older": (f"fakeplan 10\n{ADD_SUB}end\n", "The engine plan file is not compatible with this version of TensorRT"),
    "type": ("fakeplan 11\nin X fp8 4\nout Y fp8 4\nop copy X Y\nend\n", "tensor 'X' has a type that the server does not have (number 6 in TensorRT)"),
    "format": ("fakeplan 11\nin X half 4x4x4 format 2\nout Y half 4x4x4\nop copy X Y\nend\n", "tensor 'X' uses a non-linear IO format"),
    "rank": ("fakeplan 11\nin X float -1x4\nout Y float -1x4\nprofile 0 X 1 2 4\nop copy X Y\nend\n",
             "optimization profile 0 has 1 dimensions for tensor 'X', which has 2"),
}


def test_files_that_are_no_plans(tmp_path):
    for name, (text, _) in BROKEN.items():
        (write(tmp_path, name, "") / "1/model.plan").write_text(text)
    write(tmp_path, "folder", "")
    os.remove(tmp_path / "folder/1/model.plan")
    log = log_of_failures(tmp_path)
    for name, (_, text) in BROKEN.items():
        assert text in log, (name, log)
    assert "the step before has failed" not in log, "one error tells all"
    assert log.count("failed to load '") == len(BROKEN) + 1, log


def test_plans_for_other_versions_need_their_setting(tmp_path):
    write(tmp_path, "m", ADD_SUB, version=10)
    with servers.Server(tmp_path, flags=["--backend-config=tensorrt,version-compatible=true"], env=ENVIRONMENT[11]) as running:
        check_pair(infer(running, "m", **(given := pair(2))), **given)


def test_a_machine_without_a_driver(tmp_path):
    write(tmp_path, "m", ADD_SUB)
    repository.write_identity(tmp_path, "other", [("FP32", [1])])
    log = log_of_failures(tmp_path, env={"LD_LIBRARY_PATH": ""})
    assert "TensorRT needs a GPU, and CUDA's driver cannot be used: libcuda.so.1: cannot open shared object file" in log
    log = log_of_failures(tmp_path, env={"CONCH_FAKE_GPUS": "0"})
    assert "TensorRT needs a GPU, and CUDA's driver cannot be used: it has no GPU" in log


@triton.needed
@pytest.mark.parametrize("driver, reason", [
    ("", "Unavailable: TensorRT needs a GPU, and CUDA's driver cannot be used: libcuda.so.1: cannot open shared object file"),
    (DRIVER, "Invalid argument: unable to load model 'whole', TensorRT backend supports only GPU device")], ids=["no driver", "the stand-in"])
def test_the_genuine_triton_tells_what_is_missing(tmp_path, driver, reason):
    """It loads our backend and TensorRT. Its own CUDA finds no GPU by the stand-in for the driver, so it gives the backend none."""
    write(tmp_path, "whole", ADD_SUB)
    write(tmp_path, "gpu", ADD_SUB, ONE_GPU)
    running = triton.Triton(tmp_path, flags=["--exit-on-error=false", "--strict-readiness=false"], ready=False)
    running.env |= {**ENVIRONMENT[11], "LD_LIBRARY_PATH": str(driver)}
    with running:
        running.wait_log("failed to load 'whole' version 1: " + reason)
        running.wait_log("failed to load 'gpu' version 1: Invalid argument: instance group gpu_0 of model gpu specifies invalid or unsupported gpu id 0")
        assert f"TensorRT 11.2.3 from {ENVIRONMENT[11]['CONCH_TENSORRT']}" in running.log()


def test_a_runtime_that_does_not_start(tmp_path):
    """The library returns a small number then, not NULL."""
    write(tmp_path, "m", ADD_SUB)
    log = log_of_failures(tmp_path, env={"CONCH_FAKE_NO_RUNTIME": "1"})
    assert "unable to create TensorRT runtime: CUDA initialization failure with error: 35" in log


def test_copies_use_pinned_memory_unless_it_is_switched_off(tmp_path):
    for side in ("input", "output"):
        write(tmp_path, f"no_{side}", ADD_SUB, ONE_GPU + f"optimization {{ {side}_pinned_memory {{ enable: false }} }}\n")
    write(tmp_path, "both", ADD_SUB, ONE_GPU)
    with servers.Server(tmp_path, env={**ENVIRONMENT[11], **PINNED_ONLY}) as running:
        for rows in (1, 8, 2):
            check_pair(infer(running, "both", **(given := pair(rows))), **given)
        with pytest.raises(InferenceServerException, match="failed to copy an input to the GPU: an illegal memory access"):
            infer(running, "no_input", **pair(1))
        with pytest.raises(InferenceServerException, match="failed to copy an output from the GPU: an illegal memory access"):
            infer(running, "no_output", **pair(1))
    for env in ({}, {"CONCH_FAKE_NO_PINNED": "1"}):
        with servers.Server(tmp_path, env={**ENVIRONMENT[11], **env}) as running:
            for model in ("both", "no_input", "no_output"):
                check_pair(infer(running, model, **(given := pair(3))), **given)


def test_a_missing_library_fails_only_its_models(tmp_path):
    write(tmp_path, "m", ADD_SUB)
    repository.write_identity(tmp_path, "other", [("FP32", [1])])
    missing = str(tmp_path / "libnvinfer.so")
    log = log_of_failures(tmp_path, env={"CONCH_TENSORRT": missing})
    assert f"TensorRT's library libnvinfer.so cannot be loaded; tried {missing}; get TensorRT 10 or 11" in log
    assert "the server starts without some of its models" in log


@pytest.mark.parametrize("number, text", [(8601, "TensorRT 8.6.1"), (100003, "TensorRT 10.0.3"), (120100, "TensorRT 12.1.0")])
def test_a_library_of_another_release_is_refused(tmp_path, number, text):
    write(tmp_path, "m", ADD_SUB)
    log = log_of_failures(tmp_path, env={"CONCH_FAKE_TENSORRT": str(number)})
    assert f"{text} in " in log and "is of a release that this backend does not know; it knows 10 (from 10.1 on) and 11" in log


def test_memory_of_the_gpu_that_is_not_enough(tmp_path):
    write(tmp_path, "m", "in X float -1x100000\nout Y float -1x100000\nprofile 0 X 1x100000 1x100000 8x100000\nop copy X Y\n", ONE_GPU)
    with servers.Server(tmp_path, env={**ENVIRONMENT[11], "CONCH_FAKE_GPU_BYTES": "2000000"}) as running:
        x = np.ones((1, 100000), np.float32)
        np.testing.assert_array_equal(infer(running, "m", X=x)["Y"], x)
        with pytest.raises(InferenceServerException, match="no memory for 3211264 bytes on the GPU: out of memory"):
            infer(running, "m", X=np.ones((8, 100000), np.float32))
        np.testing.assert_array_equal(infer(running, "m", X=x)["Y"], x)


def test_settings(tmp_path):
    write(tmp_path, "m", ADD_SUB)
    flags = [f"--backend-config=tensorrt,{setting}" for setting in ("execution-policy=DEVICE_BLOCKING", "coalesce-request-input=true", "colour=red")]
    plugins = f"--backend-config=tensorrt,plugins={tmp_path}/libmine.so;{DRIVER}/libcuda.so.1"
    with servers.Server(tmp_path, flags=[*flags, plugins], env=ENVIRONMENT[11]) as running:
        check_pair(infer(running, "m", **(given := pair(2))), **given)
        assert "colour" in running.log()
        assert f"{tmp_path}/libmine.so: cannot open shared object file" in running.log()
        assert f"plugins for TensorRT from {DRIVER}/libcuda.so.1" in running.log()
    log = log_of_failures(tmp_path, "--backend-config=tensorrt,execution-policy=FAST")
    assert "execution-policy=FAST: expected BLOCKING or DEVICE_BLOCKING" in log


def test_a_file_for_each_compute_capability(tmp_path):
    """The fake's GPUs have 9.0 and 9.1."""
    folder = write(tmp_path, "m", ADD_SUB, 'cc_model_filenames [ { key: "9.1" value: "newer.plan" } ]\ninstance_group [ { kind: KIND_GPU gpus: [ 0, 1 ] } ]\n')
    (folder / "1/newer.plan").write_text(f"fakeplan 11\n{ADD_SUB}end\n")
    with servers.Server(tmp_path, flags=["--log-verbose=1"], env=ENVIRONMENT[11]) as running:
        assert f"an engine on GPU 0 from {folder}/1/model.plan" in running.log()
        assert f"an engine on GPU 1 from {folder}/1/newer.plan" in running.log()


def test_the_version_names_the_library():
    code, out = servers.run_to_end("--version", env={**os.environ, **ENVIRONMENT[11]})[:2]
    assert code == 0 and f"tensorrt: TensorRT 11.2.3 from {ENVIRONMENT[11]['CONCH_TENSORRT']}" in out
