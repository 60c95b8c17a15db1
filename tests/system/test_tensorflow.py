# SPDX-License-Identifier: Apache-2.0
"""The backend tensorflow with its engine openvino: SavedModels that are written without TensorFlow, in our server and in the genuine
Triton; which signature is taken; configurations that do not fit; files that are no models. The other engine: test_tensorflow_engine.py."""

import concurrent.futures
import os
import pathlib

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

pytest.importorskip("openvino", reason="`make test-frameworks` installs OpenVINO")

import repository  # noqa: E402
import saved_models as models  # noqa: E402
import server as servers  # noqa: E402
import triton  # noqa: E402
from wire import read_reasons  # noqa: E402

CLOSE = {"rtol": 1e-5, "atol": 1e-6}
RNG = np.random.default_rng(1)
WEIGHTS = models.scores_weights(RNG)
BATCHES = "max_batch_size: 16\n"
QUEUE = BATCHES + "dynamic_batching { max_queue_delay_microseconds: 20000 }\n"


def library():
    import openvino

    return str(next((pathlib.Path(openvino.__file__).parent / "libs").glob("libopenvino_c.so*")))


def sides(kind="FP32", dims=(16,), names=("SUM", "DIFF")):
    return "".join(repository.tensor(side, n, kind, dims) for side, n in
                   (("input", "A"), ("input", "B"), *(("output", n) for n in names)))


def write(root, name, content, config="", **parameters):
    text = 'platform: "tensorflow_savedmodel"\n' + config
    for key, value in parameters.items():
        text += f'parameters {{ key: "{key}" value: {{ string_value: "{value}" }} }}\n'
    return models.write(repository.write_model(root, name, text), content)


TENSORS_OF_SUMS = repository.tensor("input", "x", "FP32", [1]) + repository.tensor("output", "y", "FP32", [1])
SEQUENCES = """max_batch_size: 4
sequence_batching { max_sequence_idle_microseconds: 60000000 oldest { max_candidate_sequences: 4 } control_input [
  { name: "START" control [ { kind: CONTROL_SEQUENCE_START fp32_false_true: [ 0, 100 ] } ] },
  { name: "READY" control [ { kind: CONTROL_SEQUENCE_READY fp32_false_true: [ 0, 1000 ] } ] } ]
 state [ { input_name: "last" output_name: "next" data_type: TYPE_FP32 dims: [ 1 ]
           initial_state: { name: "zero" data_type: TYPE_FP32 dims: [ 1 ] zero_data: true } } ] }
"""


RAGGED = QUEUE + """input [ { name: "x" data_type: TYPE_FP32 dims: [ -1 ] allow_ragged_batch: true } ]
output [ { name: "so_far" data_type: TYPE_FP32 dims: [ 1 ] }, { name: "doubled" data_type: TYPE_FP32 dims: [ -1 ] } ]
batch_input [ { kind: BATCH_ACCUMULATED_ELEMENT_COUNT target_name: "ends" data_type: TYPE_INT32 source_input: "x" } ]
batch_output [ { target_name: "doubled" kind: BATCH_SCATTER_WITH_INPUT_SHAPE source_input: "x" } ]
"""
RESHAPED = "max_batch_size: 4\n" + "".join(f'{side} [ {{ name: "{name}" data_type: TYPE_FP32 dims: [ 4, 4 ] reshape {{ shape: [ 16 ] }} }} ]\n'
                                           for side, name in (("input", "A"), ("input", "B"), ("output", "SUM"), ("output", "DIFF")))


def write_all(root):
    write(root, "add_sub", models.add_sub([-1, 16]), QUEUE)
    write(root, "completed", models.add_sub([-1, 16]))
    write(root, "alone", models.add_sub([3, 16]))
    write(root, "scores", models.scores(WEIGHTS), QUEUE)
    write(root, "configured", models.scores(WEIGHTS), QUEUE + repository.tensor("input", "image", "FP32", [6, 6, 1])
          + repository.tensor("output", "channels", "FP32", [4]))
    write(root, "passed_on", models.passed_on(), BATCHES)
    write(root, "any_shape", models.only("Neg", np.float32, None), repository.tensor("input", "x", "FP32", [-1, 2]) + repository.tensor("output", "y", "FP32", [-1, 2]))
    write(root, "one_value", models.only("Neg", np.float32, []))
    write(root, "threads", models.add_sub([-1, 16]), BATCHES, TF_NUM_INTRA_THREADS="1")
    write(root, "sums", models.accumulate(), TENSORS_OF_SUMS + SEQUENCES)
    write(root, "ragged", models.ragged(), RAGGED)
    write(root, "reshaped", models.add_sub([-1, 16]), RESHAPED)
    for kind, number in (("FP64", np.float64), ("INT32", np.int32), ("INT64", np.int64), ("UINT8", np.uint8), ("INT8", np.int8), ("FP16", np.float16)):
        write(root, f"add_{kind.lower()}", models.add_sub([-1, 4], number), BATCHES)
    return root


@pytest.fixture(scope="module", params=["conch", "triton"])
def server(request, tmp_path_factory):
    root = write_all(tmp_path_factory.mktemp("tensorflow"))
    if request.param == "conch":
        with servers.Server(root, grpc=True) as running:
            yield running
        return
    if triton.missing():
        pytest.skip(triton.missing())
    # The wheel of Triton finds no Python packages of ours.
    with triton.Triton(root, flags=[f"--backend-config=tensorflow,openvino-library-path={library()}"]) as running:
        yield running


def ask(client, module, model, outputs=(), **inputs):
    given = []
    for name, array in inputs.items():
        given.append(module.InferInput(name, array.shape, np_to_triton_dtype(array.dtype)))
        given[-1].set_data_from_numpy(array)
    result = client.infer(model, given, outputs=[module.InferRequestedOutput(o) for o in outputs] or None)
    names = [o.name for o in result.get_response().outputs] if module is tritonclient.grpc else [o["name"] for o in result.get_response()["outputs"]]
    return {name: result.as_numpy(name) for name in names}


def infer(server, model, outputs=(), **inputs):
    with tritonclient.http.InferenceServerClient(server.url) as client:
        return ask(client, tritonclient.http, model, outputs, **inputs)


def pair(*shape, kind=np.float32):
    return {name: (RNG.standard_normal(shape) * 10).astype(kind) for name in "AB"}


def check_pair(answer, A, B):
    np.testing.assert_allclose(answer["SUM"], A + B, **CLOSE)
    np.testing.assert_allclose(answer["DIFF"], A - B, **CLOSE)
    assert answer["SUM"].dtype == A.dtype


@pytest.mark.parametrize("model", ["add_sub", "threads"])
def test_batches_of_any_size(server, model):
    for rows in (1, 16, 3, 3, 2):
        given = pair(rows, 16)
        check_pair(infer(server, model, **given), **given)


def test_requests_become_one_batch(server):
    requests = [RNG.standard_normal((rows, 6, 6, 1)).astype(np.float32) for rows in (1, 3, 2, 1, 4, 1)]
    with concurrent.futures.ThreadPoolExecutor(len(requests)) as pool:
        for images, answer in zip(requests, pool.map(lambda i: infer(server, "scores", image=i), requests)):
            for name, values in models.scores_answer(WEIGHTS, images).items():
                np.testing.assert_allclose(answer[name], values, **CLOSE)
    with tritonclient.http.InferenceServerClient(server.url) as client:
        counts = client.get_inference_statistics("scores")["model_stats"][0]
    assert counts["execution_count"] < counts["inference_stats"]["success"]["count"]


def test_a_configuration_may_leave_out_outputs(server):
    images = RNG.standard_normal((2, 6, 6, 1)).astype(np.float32)
    answer = infer(server, "configured", image=images)
    assert list(answer) == ["channels"]
    np.testing.assert_allclose(answer["channels"], models.scores_answer(WEIGHTS, images)["channels"], **CLOSE)


@pytest.mark.parametrize("kind", [np.float64, np.int32, np.int64, np.uint8, np.int8, np.float16])
def test_types(server, kind):
    given = {"A": RNG.integers(20, 40, (3, 4)).astype(kind), "B": RNG.integers(0, 20, (3, 4)).astype(kind)}
    check_pair(infer(server, f"add_{np_to_triton_dtype(np.dtype(kind)).lower()}", **given), **given)


def test_an_output_that_is_an_input(server):
    """Executed more than once: memory that is bound stays bound."""
    for rows in (2, 2, 3):
        x = RNG.standard_normal((rows, 4)).astype(np.float32)
        answer = infer(server, "passed_on", x=x)
        np.testing.assert_array_equal(answer["same"], x)
        np.testing.assert_array_equal(answer["y"], x + x)


def test_shapes(server):
    given = pair(3, 16)
    check_pair(infer(server, "alone", **given), **given)
    x = RNG.standard_normal((5, 2)).astype(np.float32)
    np.testing.assert_array_equal(infer(server, "any_shape", x=x)["y"], -x)
    np.testing.assert_array_equal(infer(server, "one_value", x=np.float32([3]))["y"], [-3])


def test_a_reshape(server):
    given = pair(3, 4, 4)
    check_pair(infer(server, "reshaped", **given), **given)


def check_ragged(server):
    """so_far is the sum of a list and of those before it in its batch: of all lists the last one has the sum of all."""
    answer = infer(server, "ragged", x=np.float32([[1, 2, 4]]))
    assert answer["so_far"].tolist() == [[7]] and answer["doubled"].tolist() == [[2, 4, 8]]
    requests = [np.full((1, n), 10.0 ** n, np.float32) for n in (1, 3, 2)]
    for _ in range(50):
        with concurrent.futures.ThreadPoolExecutor(len(requests)) as pool:
            answers = list(pool.map(lambda x: infer(server, "ragged", x=x), requests))
        for given, answer in zip(requests, answers):
            np.testing.assert_array_equal(answer["doubled"], 2 * given)
        if max(a["so_far"].item() for a in answers) == sum(float(r.sum()) for r in requests):
            return
    pytest.fail(f"no batch had all three: {answers}")


def test_ragged_batches(server):
    check_ragged(server)


def test_each_sequence_has_its_own_sum(server):
    def step(sequence, x, start=False, end=False):
        with tritonclient.http.InferenceServerClient(server.url) as client:
            tensor = tritonclient.http.InferInput("x", [1, 1], "FP32")
            tensor.set_data_from_numpy(np.float32([[x]]))
            return client.infer("sums", [tensor], sequence_id=sequence, sequence_start=start, sequence_end=end).as_numpy("y").item()

    assert [step(7, 1, start=True), step(8, 5, start=True)] == [1101, 1105]
    assert [step(7, 2), step(8, 6), step(7, 3, end=True), step(8, 7, end=True)] == [1003, 1011, 1006, 1018]


def test_configurations_are_completed(tmp_path):
    write(tmp_path, "batches", models.add_sub([-1, 16]))
    write(tmp_path, "plain", models.add_sub([3, 16]))
    # The dims of one tensor tell that there is no batch.
    write(tmp_path, "hinted", models.add_sub([-1, 16]), repository.tensor("input", "A", "FP32", [-1, 16]) + repository.tensor("input", "B", "FP32", [-1, 16]))
    with servers.Server(tmp_path, grpc=True) as running:
        with tritonclient.grpc.InferenceServerClient(running.grpc_url) as client:
            config = client.get_model_config("batches").config
            assert [(t.name, list(t.dims)) for t in config.input] == [("A", [16]), ("B", [16])]
            assert [(t.name, list(t.dims)) for t in config.output] == [("DIFF", [16]), ("SUM", [16])]
            assert config.max_batch_size == 4 and config.HasField("dynamic_batching")
            plain = client.get_model_config("plain").config
            assert plain.max_batch_size == 0 and [list(t.dims) for t in plain.input] == [[3, 16]] * 2
            assert client.get_model_config("hinted").config.max_batch_size == 0
            given = pair(4, 16)
            for model in ("batches", "hinted"):
                check_pair(ask(client, tritonclient.grpc, model, **given), **given)
        log = running.log()
        assert "autofilled max_batch_size to 4 for model 'batches'" in log
        assert "model 'plain' is executed by the engine openvino" in log


# ---- Which signature


def two_signatures():
    graph = models.add_sub_graph([-1, 16])
    return models.saved_model(models.meta_graph(graph, {n: models.add_sub_signature([-1, 16]) for n in ("first", "second", "__saved_model_init_op")}))


SIGNATURES = {
    "two": (two_signatures(), {}, "unable to load model 'two', expected 'serving_default' signature; '{}' has the signatures: 'first', 'second' "
            "(the parameter TF_SIGNATURE_DEF names one)"),
    "other": (models.add_sub([-1, 16]), {"TF_SIGNATURE_DEF": "train"}, "expected 'train' signature; '{}' has the signatures: 'serving_default' "),
    "tag": (models.add_sub([-1, 16]), {"TF_GRAPH_TAG": "gpu"}, "unable to load model 'tag', expected 'gpu' tag; '{}' has the tags: 'serve'"),
    "untagged": (models.add_sub([-1, 16], tags=("train", "tpu")), {}, "expected 'serve' tag; '{}' has the tags: 'train', 'tpu'"),
    "named": (models.add_sub([-1, 16], name="only"), {}, "OpenVINO reads the signature 'serving_default' of the tag 'serve' alone"),
    "twice": (models.passed_on(again="double:0"), {}, "model 'twice': OpenVINO "),
    "identity": (models.only("Identity", np.float32, [-1]), {}, "model 'identity': OpenVINO does not read the output 'y' of the file"),
    "changes": (models.counter(), {}, "model 'changes' changes its variables (AssignAddVariableOp), and OpenVINO does not"),
}

REFUSED = {
    "columns": (BATCHES + sides(dims=(15,)), {}, "model 'columns', tensor 'A': the model expects 2 dimensions (shape [-1,16]) but the model configuration "
                "specifies 2 dimensions (an initial batch dimension because max_batch_size > 0 followed by the explicit tensor shape, making complete "
                "shape [-1,15])"),
    "dimensions": (sides(dims=(16,)), {}, "the model expects 2 dimensions (shape [-1,16]) but the model configuration specifies 1 dimensions (shape [16])"),
    "exact": (sides(dims=(-1, 16), names=()) + repository.tensor("output", "SUM", "FP32", [3, 16]), {}, "model 'exact', tensor 'SUM': the model expects 2"),
    "name": (repository.tensor("input", "x", "FP32", [-1, 16]) + repository.tensor("input", "B", "FP32", [-1, 16])
             + repository.tensor("output", "SUM", "FP32", [-1, 16]), {}, "unexpected inference input 'x', allowed inputs are: A, B"),
    "output": (sides(dims=(-1, 16), names=("y",)), {}, "unexpected inference output 'y', allowed outputs are: DIFF, SUM"),
    "fewer": (repository.tensor("input", "A", "FP32", [-1, 16]) + repository.tensor("output", "SUM", "FP32", [-1, 16]), {},
              "unable to load model 'fewer', configuration expects 1 inputs, model provides 2"),
    "types": (sides("INT32", dims=(-1, 16)), {}, "unable to load model 'types', configuration expects datatype TYPE_INT32 for input 'A', model provides TYPE_FP32"),
    "intra": (BATCHES, {"TF_NUM_INTRA_THREADS": "-1"}, "parameter 'TF_NUM_INTRA_THREADS' must be non-negative number for TensorFlow model 'intra'"),
    "inter": (BATCHES, {"TF_NUM_INTER_THREADS": "many"}, "TF_NUM_INTER_THREADS"),
    "share": (BATCHES, {"MAX_SESSION_SHARE_COUNT": "0"}, "parameter 'MAX_SESSION_SHARE_COUNT' must be positive number for TensorFlow model 'share'"),
    "own": (BATCHES, {"TF_USE_PER_SESSION_THREADS": "perhaps"}, "TF_USE_PER_SESSION_THREADS"),
    "accelerator": (BATCHES + 'optimization { execution_accelerators { cpu_execution_accelerator: [ { name: "openvino" } ] } }\n', {},
                    "unable to load model 'accelerator', CPU Execution Accelerator is not supported in TensorFlow backend (optimization."
                    "execution_accelerators has 'openvino')"),
    "ragged": (BATCHES + 'input [ { name: "A" data_type: TYPE_FP32 dims: [ 16 ] allow_ragged_batch: true } ]\n' + repository.tensor("input", "B", "FP32", [16])
               + repository.tensor("output", "SUM", "FP32", [16]), {}, "unable to load model 'ragged', configuration expects model provides input with shape [-1] "
               "for ragged input 'A', model provides [-1,16]"),
    "init": (BATCHES, {"TF_INIT_OPS_FILE": "init_ops.json"}, "model 'init' has init ops (TF_INIT_OPS_FILE), which OpenVINO does not know"),
    "operators": (BATCHES + 'model_operations { op_library_filename: "ops.so" }\n', {},
                  "model 'operators' has operators of TensorFlow (op_library_filename), which OpenVINO does not know"),
    "extension": (BATCHES, {"CPU_EXTENSION_PATH": "/tmp/libmine.so"}, "--backend-config=tensorflow,allow-extensions=1 permits it"),
}


def reasons_of(root, *flags, env=None):
    """{model: why it is not ready}, of a server that goes on without these models."""
    # OpenVINO itself loses eight bytes.
    env = {"ASAN_OPTIONS": f"{os.environ.get('ASAN_OPTIONS', '')}:detect_leaks=0", **(env or {})}
    with servers.Server(root, flags=["--exit-on-error=false", "--strict-readiness=false", *flags], env=env, ready=False) as running:
        return read_reasons(running)


ENGINE = "--backend-config=tensorflow,engine=openvino"


def test_signatures_and_tags(tmp_path):
    paths = {name: write(tmp_path, name, content, **parameters) for name, (content, parameters, _) in SIGNATURES.items()}
    write(tmp_path, "both_tags", models.saved_model(*(models.meta_graph(models.add_sub_graph([-1, n]), {"serving_default": models.add_sub_signature([-1, n])}, t)
                                                      for n, t in ((3, ("serve", "gpu")), (5, ("serve",))))), BATCHES + sides(dims=(5,)))
    reasons = reasons_of(tmp_path, ENGINE)
    for name, (_, _, text) in SIGNATURES.items():
        assert text.format(paths[name]) in reasons[name], (name, reasons[name])
    # Of two graphs with the tag the one without others is taken.
    assert "dimensions" not in reasons["both_tags"], reasons["both_tags"]


def test_configurations_that_do_not_fit(tmp_path):
    for name, (config, parameters, _) in REFUSED.items():
        write(tmp_path, name, models.add_sub([-1, 16]), config, **parameters)
    write(tmp_path, "no_batch", models.add_sub([3, 16]), BATCHES + sides())
    write(tmp_path, "no_batch_either", models.add_sub([3, 16]), BATCHES)
    write(tmp_path, "control", models.add_sub([-1, 1]), TENSORS_OF_SUMS + SEQUENCES)
    write(tmp_path, "strings", models.only("Identity", models.STRING, [-1]), repository.tensor("input", "x", "FP32", [-1]) + repository.tensor("output", "y", "FP32", [-1]))
    write(tmp_path, "handle", models.only("Identity", 20, [-1]))
    reasons = reasons_of(tmp_path, ENGINE)
    texts = {name: text for name, (_, _, text) in REFUSED.items()}
    texts["no_batch"] = "the first dimension must be -1; but shape expected by the model is [3,16]"
    texts["no_batch_either"] = "configuration specified max-batch 16 but model signature does not support batching"
    texts["control"] = "configuration specified sequence control 'START', but model does not provide that input"
    texts["strings"] = "configuration expects datatype TYPE_FP32 for input 'x', model provides TYPE_STRING"
    texts["handle"] = "input 'x' of signature 'serving_default' is a tensor that no configuration has (dense, type 20 in TensorFlow)"
    for name, text in texts.items():
        assert text in reasons[name], (name, reasons[name])


def test_what_has_no_effect_is_said(tmp_path):
    accelerators = "".join(f'gpu_execution_accelerator: [ {{ name: "{n}" }} ] ' for n in ("auto_mixed_precision", "tensorrt"))
    write(tmp_path, "m", models.add_sub([-1, 16]), f"{BATCHES}optimization {{ graph {{ level: 1 }} execution_accelerators {{ {accelerators} }} }}\n",
          TF_USE_PER_SESSION_THREADS="On", TF_NUM_INTER_THREADS="-1")
    with servers.Server(tmp_path, flags=[ENGINE, "--backend-config=tensorflow,version=2"]) as running:
        log = running.log()
        assert "model 'm': optimization.graph.level 1 has no effect: it is for TensorFlow's compiler XLA, and OpenVINO executes this model" in log
        for name in ("auto_mixed_precision", "tensorrt"):
            assert f"model 'm': GPU Execution Accelerator '{name}' will be ignored for model instance on CPU" in log
        assert "version" not in [line for line in log.splitlines() if "setting" in line]
        given = pair(2, 16)
        check_pair(infer(running, "m", **given), **given)


def test_conch_check_knows_the_parameters(tmp_path):
    accelerators = 'optimization {{ execution_accelerators {{ {}_execution_accelerator {{ name: "{}" }} }} }}\n'
    write(tmp_path, "bad", models.add_sub([-1, 16]), BATCHES + accelerators.format("cpu", "openvino"), TF_NUM_INTER_THREADS="many",
          TF_USE_PER_SESSION_THREADS="yes", MAX_SESSION_SHARE_COUNT="0", TF_GRAPH_TAGS="serve")
    write(tmp_path, "fine", models.add_sub([-1, 16]), BATCHES + accelerators.format("gpu", "auto_mixed_precision"), TF_NUM_INTER_THREADS="-1",
          TF_USE_PER_SESSION_THREADS="On", TF_INIT_OPS_FILE="init_ops.json")
    code, out, err = servers.run_to_end("check", str(tmp_path))
    assert (code, err) == (1, "")
    for text in ("unknown Execution Accelerator 'openvino' is requested [E-unsupported]",
                 "parameter 'TF_NUM_INTER_THREADS' must be a whole number from -2147483648 to 4096, got 'many' [E-parameter]",
                 "parameter 'TF_USE_PER_SESSION_THREADS' must be true, false, 1, 0, on, off, True, False, TRUE, FALSE, On, Off, ON or OFF, got 'yes' [E-parameter]",
                 "parameter 'MAX_SESSION_SHARE_COUNT' must be a whole number from 1 to 4096, got '0' [E-parameter]", "TF_GRAPH_TAGS"):
        assert text in out, out
    assert "/fine/" not in out, out


# ---- Files


def damaged(content):
    """{what: content} of files that are no model any more."""
    graph = models.add_sub_graph([-1, 16])
    yield "empty", b""
    yield "cut", content[:len(content) // 2]
    yield "cut_late", content[:-5]
    yield "noise", np.random.default_rng(3).bytes(5000)
    yield "longer", content + b"\x12\xff\xff\xff\x7f"
    yield "unknown", models.saved_model(models.meta_graph(graph.replace(b"AddV2", b"Marve"), {"serving_default": models.add_sub_signature([-1, 16])}))
    yield "negative", models.add_sub([-1, -16])
    yield "nowhere", models.saved_model(models.meta_graph(models.placeholder("in_a", np.float32, [1]), {"serving_default": models.add_sub_signature([-1, 16])}))
    yield "no_graph", models.saved_model(models.meta_graph(b"", {"serving_default": models.add_sub_signature([-1, 16])}))
    yield "nul", models.add_sub([-1, 16]).replace(b"SUM", b"S\0M")
    yield "zip", b"PK\3\4" + bytes(100)
    if servers.SANITIZED:    # which end the process when OpenVINO asks for so much memory
        return
    many = models.constant("in_b", np.float32([1]), [1 << 40, 1 << 20])
    yield "elements", models.saved_model(models.meta_graph(models.placeholder("in_a", np.float32, [-1, 16]) + many
                                                           + models.node("plus", "AddV2", ["in_a", "in_b"], T=models.of_type(np.float32)), {
        "serving_default": models.signature({"A": ("in_a:0", np.float32, [-1, 16])}, {"SUM": ("plus:0", np.float32, [-1, 16])})}))


def test_files_that_are_no_models(tmp_path):
    """Each is refused with one line, and the server serves on."""
    bad = [what for what, content in damaged(models.add_sub([-1, 16])) if write(tmp_path, what, content, BATCHES)]
    repository.write_model(tmp_path, "nothing", 'platform: "tensorflow_savedmodel"\n')
    (repository.write_model(tmp_path, "hollow", 'platform: "tensorflow_savedmodel"\n') / "1/model.savedmodel").mkdir()
    write(tmp_path, "whole", models.add_sub([-1, 16]), BATCHES)
    env = {"ASAN_OPTIONS": f"{os.environ.get('ASAN_OPTIONS', '')}:detect_leaks=0"}
    with servers.Server(tmp_path, flags=["--exit-on-error=false", "--strict-readiness=false", ENGINE], env=env, ready=False) as running:
        reasons = read_reasons(running)
        for what in [*bad, "nothing", "hollow"]:
            assert reasons[what] and "\n" not in reasons[what], (what, reasons[what])
        for what in ("cut", "cut_late", "noise", "longer", "negative", "nul", "zip"):
            assert f"'{tmp_path / what}/1/model.savedmodel/saved_model.pb' is damaged, or no SavedModel" in reasons[what], (what, reasons[what])
        assert "expected 'serve' tag" in reasons["empty"] and "Marve" in reasons["unknown"]
        assert "model.savedmodel" in reasons["nothing"] and "saved_model.pb" in reasons["hollow"]
        given = pair(2, 16)
        check_pair(infer(running, "whole", **given), **given)


def test_a_missing_library_fails_only_its_models(tmp_path):
    write(tmp_path, "m", models.add_sub([-1, 16]))
    repository.write_identity(tmp_path, "other", [("FP32", [1])])
    missing = str(tmp_path / "libopenvino_c.so")
    reasons = reasons_of(tmp_path, ENGINE, env={"CONCH_OPENVINO": missing})
    assert f"OpenVINO's library libopenvino_c.so cannot be loaded; tried {missing}; get it with `pip install openvino`" in reasons["m"]
    assert not reasons["other"]


def test_a_wrong_engine(tmp_path):
    write(tmp_path, "m", models.add_sub([-1, 16]))
    assert "--backend-config=tensorflow,engine=steam: " in reasons_of(tmp_path, "--backend-config=tensorflow,engine=steam")["m"]


def test_gpus_are_refused(tmp_path):
    write(tmp_path, "m", models.add_sub([-1, 16]), BATCHES + "instance_group [ { kind: KIND_GPU gpus: [ 0 ] } ]\n")
    assert reasons_of(tmp_path)["m"]


def test_a_request_of_another_shape(server):
    with pytest.raises(InferenceServerException, match="unexpected shape for input '[AB]'"):
        infer(server, "add_sub", **pair(1, 15))
