# SPDX-License-Identifier: Apache-2.0
"""The backend tensorflow with TensorFlow itself (`make test-frameworks`, a download of 274 MB): models that TensorFlow writes answer
what it answers, in our server and in the genuine Triton; which engine is taken."""

import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess

import ml_dtypes
import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
import tritonclient.utils.shared_memory as shared_memory
from tritonclient.utils import InferenceServerException

import repository
import saved_models
import server as servers
import triton
from python_models import ECHO, NUMBER, children, write_python
from test_tensorflow import RAGGED, SEQUENCES, TENSORS_OF_SUMS, ask, check_ragged, infer, pair, reasons_of, write
from wire import read_reasons

VENV = pathlib.Path(__file__).resolve().parents[2] / ".deps/tensorflow/venv"
LIBRARY = next(VENV.glob("lib/python3*/site-packages/tensorflow/libtensorflow_cc.so*"), None)
pytestmark = pytest.mark.skipif(not LIBRARY, reason="`make test-frameworks` installs TensorFlow (274 MB)")

CLOSE = {"rtol": 1e-4, "atol": 1e-5}
ENGINE = "--backend-config=tensorflow,engine=tensorflow"
GRAPHDEFS = ("graph", "variables")
KINDS = {"float64": "FP64", "float16": "FP16", **{k: k.upper() for k in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")}}
BATCHES = "max_batch_size: 8\ndynamic_batching { max_queue_delay_microseconds: 20000 }\n"


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    folder = tmp_path_factory.mktemp("exported")
    done = subprocess.run([VENV / "bin/python", pathlib.Path(__file__).with_name("tensorflow_export.py"), folder], capture_output=True, text=True,
                          timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


def add(root, exported, name, config="", as_name=None, **parameters):
    """An exported model in a repository."""
    text = ('platform: "tensorflow_graphdef"\n' if name in GRAPHDEFS else 'platform: "tensorflow_savedmodel"\n') + config
    text += "".join(f'parameters {{ key: "{key}" value: {{ string_value: "{value}" }} }}\n' for key, value in parameters.items())
    folder = repository.write_model(root, as_name or name, text) / "1"
    if name in GRAPHDEFS:
        shutil.copy(exported / name / "model.graphdef", folder)
    else:
        shutil.copytree(exported / name / "model.savedmodel", folder / "model.savedmodel")


GRAPH = "max_batch_size: 4\n" + "".join(repository.tensor(*t) for t in (
    ("input", "x", "FP32", [4]), ("input", "text", "BYTES", [1]), ("output", "y", "FP32", [2]), ("output", "joined:0", "BYTES", [1])))


VARIABLES = "max_batch_size: 4\ndynamic_batching { max_queue_delay_microseconds: 20000 }\n" + repository.tensor("input", "x", "FP32", [2]) + (
    'input [ { name: "shift" data_type: TYPE_FP32 dims: [ 2 ] optional: true } ]\n') + repository.tensor("output", "y", "FP32", [2])


def write_all(root, exported):
    for name in ("convolutions", "dense", "strings", "vocabulary", "fails"):
        add(root, exported, name, BATCHES)
    for name in ("shapes", "counter", *(f"type_{k}" for k in KINDS)):
        add(root, exported, name)
    add(root, exported, "graph", GRAPH)
    add(root, exported, "dense", "max_batch_size: 8\n", as_name="other", TF_SIGNATURE_DEF="other")
    add(root, exported, "dense", "max_batch_size: 8\ninstance_group [ { count: 3 kind: KIND_CPU } ]\noptimization { graph { level: -1 } }\n",
        as_name="threads", TF_NUM_INTRA_THREADS="1", TF_NUM_INTER_THREADS="2", TF_USE_PER_SESSION_THREADS="true", MAX_SESSION_SHARE_COUNT="2")
    write(root, "sums", saved_models.accumulate(), TENSORS_OF_SUMS + SEQUENCES)
    write(root, "ragged", saved_models.ragged(), RAGGED)
    add(root, exported, "remembers")
    add(root, exported, "type_bfloat16")
    add(root, exported, "strings", repository.tensor("input", "text", "BYTES", [-1, 1]) + "".join(
        repository.tensor("output", name, kind, [-1, 1]) for name, kind in (("upper", "BYTES"), ("length", "INT32"), ("same", "BYTES"))), as_name="texts")
    add(root, exported, "counter", as_name="warmed", config="instance_group [ { count: 1 kind: KIND_CPU } ]\n"
        "model_warmup [ { name: \"zeroes\" batch_size: 1 count: 3 inputs { key: \"x\" value { "
        "data_type: TYPE_FP32 dims: [ 16 ] zero_data: true } } } ]\n")
    for name in ("beside", "above"):
        add(root, exported, "variables", VARIABLES, as_name=name, TF_INIT_OPS_FILE="init_ops.json")
        (root / name / {"beside": "1", "above": "."}[name] / "init_ops.json").write_text('{"init_ops": ["init"]}')
    return root


@pytest.fixture(scope="module", params=["conch", "triton"])
def server(request, tmp_path_factory, exported):
    root = write_all(tmp_path_factory.mktemp("tensorflow"), exported)
    if request.param == "conch":
        with servers.Server(root, grpc=True, flags=[ENGINE]) as running:
            yield running
        return
    if triton.missing():
        pytest.skip(triton.missing())
    with triton.Triton(root, flags=[ENGINE, f"--backend-config=tensorflow,library-path={LIBRARY}"]) as running:
        yield running


def cases(exported, name):
    """The inputs and the answers that TensorFlow has kept."""
    for file in sorted((exported / name).glob("*.npz")):
        arrays = np.load(file)
        yield tuple({key[len(side):]: arrays[key].astype(object) if arrays[key].dtype.kind == "S" else arrays[key] for key in arrays if key.startswith(side)}
                    for side in ("in_", "out_"))


def check(answer, expected):
    assert set(answer) == set(expected)
    for name, values in expected.items():
        values = values.reshape(1) if values.ndim == 0 else values
        if values.dtype == object:
            assert [bytes(v) for v in answer[name].reshape(-1)] == list(values.reshape(-1)) and answer[name].shape == values.shape
        else:
            np.testing.assert_allclose(answer[name], values, **CLOSE)
            assert answer[name].dtype == values.dtype and answer[name].shape == values.shape


@pytest.mark.parametrize("model", ["convolutions", "dense", "strings", "vocabulary", "shapes", "fails", *(f"type_{k}" for k in KINDS)])
def test_the_answers_are_tensorflows(server, exported, model):
    for inputs, expected in cases(exported, model):
        check(infer(server, model, **inputs), expected)


def test_a_graphdef(server, exported):
    for inputs, expected in cases(exported, "graph"):
        check(infer(server, "graph", **inputs), {"y": expected["y"], "joined:0": expected["joined"]})


def test_another_signature_and_threads(server, exported):
    for inputs, expected in cases(exported, "dense"):
        assert list(infer(server, "other", **inputs)) == ["z"]
        check(infer(server, "threads", **inputs), expected)


def test_requests_become_one_batch(server, exported):
    (inputs, expected), *_ = [case for case in cases(exported, "strings")]
    rows = [slice(0, 1), slice(1, 3), slice(2, 3), slice(0, 3)]
    with concurrent.futures.ThreadPoolExecutor(len(rows)) as pool:
        for part, answer in zip(rows, pool.map(lambda r: infer(server, "strings", text=inputs["text"][r]), rows)):
            check(answer, {name: values[part] for name, values in expected.items()})
    with tritonclient.http.InferenceServerClient(server.url) as client:
        counts = client.get_inference_statistics("strings")["model_stats"][0]
    assert counts["execution_count"] < counts["inference_stats"]["success"]["count"]


def test_a_request_that_fails_does_not_fail_others(server):
    rows = [np.float32([[1, 4, 9, 16]]), np.float32([[1, -4, 9, 16]]), np.float32([[0, 1, 0, 1]])]

    def one(x):
        try:
            return infer(server, "fails", x=x)["y"]
        except InferenceServerException as why:
            return str(why)

    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        first, second, third = pool.map(one, rows)
    np.testing.assert_allclose(first, np.sqrt(rows[0]), **CLOSE)
    np.testing.assert_allclose(third, np.sqrt(rows[2]), **CLOSE)
    assert "TensorFlow, running the model: " in second and "below zero" in second and "\n" not in second.strip()


def test_variables_change_and_keep_no_memory_of_requests(server):
    """The variable has the input of the run before, although the memory of that request is another's by now."""
    last, rng = None, np.random.default_rng(7)
    for n in range(1, 9):
        x = rng.standard_normal(16).astype(np.float32)
        answer = infer(server, "counter", x=x)
        assert answer["n"].tolist() == [n]
        if last is not None:
            np.testing.assert_array_equal(answer["before"], last)
        last = x


def test_strings_that_a_variable_keeps(server):
    """They outlive their request: long ones, which have memory of their own, and short ones."""
    last = None
    for n in range(8):
        text = np.array([b"%d" % n * (200 if n % 2 else 1)], object)
        before = infer(server, "remembers", text=text)["before"]
        infer(server, "strings", text=np.array([[b"another" * 30]], object))
        assert last is None or list(before) == list(last)
        last = text


def test_strings_without_elements(server):
    answer = infer(server, "texts", text=np.empty((0, 1), object))
    assert {name: array.shape for name, array in answer.items()} == {"upper": (0, 1), "length": (0, 1), "same": (0, 1)}


def test_bf16(server):
    with tritonclient.http.InferenceServerClient(server.url) as client:
        x = tritonclient.http.InferInput("x", [2, 4], "BF16")
        x.set_data_from_numpy(np.array([[1, 2, 3, 4], [-0.5, 0, 100, 0.25]], ml_dtypes.bfloat16))
        answer = client.infer("type_bfloat16", [x])
        assert answer.get_response()["outputs"][0]["datatype"] == "BF16"
        assert answer.as_numpy("y").astype(np.float32).tolist() == [[2, 4, 6, 8], [-1, 0, 200, 0.5]]


def test_ragged_batches(server):
    check_ragged(server)


def test_a_warm_up_executes_the_model(server):
    answer = infer(server, "warmed", x=np.ones(16, np.float32))
    assert answer["n"].tolist() == [4] and not answer["before"].any()


@pytest.mark.parametrize("model", ["beside", "above"])
def test_init_ops_and_optional_inputs(server, model):
    """A GraphDef of TensorFlow 1 whose variable has a value after its init op alone; requests may lack an input that has a default."""
    x = np.float32([[1, 2], [3, 4]])
    requests = [{"x": x}, {"x": x, "shift": np.float32([[10, 20], [30, 40]])}, {"x": 2 * x}]
    with concurrent.futures.ThreadPoolExecutor(len(requests)) as pool:
        for given, answer in zip(requests, pool.map(lambda g: infer(server, model, **g), requests)):
            np.testing.assert_array_equal(answer["y"], given["x"] + 5 + given.get("shift", 0))


def test_each_sequence_has_its_own_sum(server):
    def step(sequence, x, start=False, end=False):
        with tritonclient.http.InferenceServerClient(server.url) as client:
            tensor = tritonclient.http.InferInput("x", [1, 1], "FP32")
            tensor.set_data_from_numpy(np.float32([[x]]))
            return client.infer("sums", [tensor], sequence_id=sequence, sequence_start=start, sequence_end=end).as_numpy("y").item()

    assert [step(7, 1, start=True), step(8, 5, start=True)] == [1101, 1105]
    assert [step(7, 2), step(8, 6), step(7, 3, end=True), step(8, 7, end=True)] == [1003, 1011, 1006, 1018]


def test_which_engine_is_taken(tmp_path, exported):
    for name in ("dense", "strings", "counter"):
        add(tmp_path, exported, name)
    add(tmp_path, exported, "graph", GRAPH)
    write(tmp_path, "plain", saved_models.add_sub([-1, 16]))
    with servers.Server(tmp_path, grpc=True) as running:
        log = running.log()
        assert "model 'plain' is executed by the engine openvino" in log
        assert re.search("model 'strings' is executed by the engine tensorflow: openvino error in reading model : .*StringUpper", log)
        assert "model 'counter' is executed by the engine tensorflow: model 'counter' changes its variables (Assign" in log
        assert "model 'graph' is executed by the engine tensorflow: model 'graph': OpenVINO does not tell" in log
        with tritonclient.grpc.InferenceServerClient(running.grpc_url) as client:
            given = pair(3, 16)
            np.testing.assert_allclose(ask(client, tritonclient.grpc, "plain", **given)["SUM"], given["A"] + given["B"], **CLOSE)
            for inputs, expected in cases(exported, "strings"):
                check(ask(client, tritonclient.grpc, "strings", **inputs), expected)


def test_the_compiler_xla(tmp_path, exported):
    """TensorFlow tells once that it has compiled something; of a model without a level, or with -1, it compiles nothing."""
    for name, level in (("plain", None), ("off", -1), ("on", 1), ("more", 2)):
        add(tmp_path, exported, "dense", BATCHES + (f"optimization {{ graph {{ level: {level} }} }}\n" if level else ""), as_name=name)
    env = {"TF_XLA_FLAGS": "--tf_xla_cpu_global_jit --tf_xla_min_cluster_size=1", "TF_CPP_MIN_LOG_LEVEL": "0"}
    for compiled in ("on", "more"):
        with servers.Server(tmp_path, flags=[ENGINE, "--model-control-mode=explicit", "--load-model=plain", "--load-model=off"], env=env) as running:
            for model in ("plain", "off", compiled):
                if model == compiled:
                    assert "Compiled cluster using XLA" not in running.log()
                    with tritonclient.http.InferenceServerClient(running.url, network_timeout=60) as client:
                        client.load_model(model)
                for inputs, expected in cases(exported, "dense"):
                    check(infer(running, model, **inputs), expected)
            running.wait_log("Compiled cluster using XLA")
            assert "has no effect on CPUs" not in running.log()
    with servers.Server(tmp_path, flags=[ENGINE, "--model-control-mode=explicit", "--load-model=off", "--load-model=on"]) as running:
        log = running.log()
        assert ("model 'on': optimization.graph.level 1 has no effect on CPUs unless the server's environment has TF_XLA_FLAGS=--tf_xla_cpu_global_jit"
                in log) and "model 'off': optimization" not in log


def switches_of_pool(running):
    """How often the threads of TensorFlow's pool for operators have waited for work; in each execution by the pool it grows."""
    tasks = [task for task in pathlib.Path(f"/proc/{running.pid}/task").iterdir() if (task / "comm").read_text().startswith("tf_Compute")]
    return sum(int(re.search(r"^voluntary_ctxt_switches:\s+(\d+)", (task / "status").read_text(), re.M).group(1)) for task in tasks)


def test_threads_for_operators(tmp_path, exported):
    """Below 0 the thread of the instance computes, as it does for a small model by default; with 2 TensorFlow's pool does."""
    for name, number in (("default", "0"), ("below", "-1"), ("far", "-7"), ("pool", "2")):
        add(tmp_path, exported, "dense", BATCHES, as_name=name, TF_NUM_INTER_THREADS=number)
    (inputs, expected), *_ = cases(exported, "dense")
    with servers.Server(tmp_path, flags=[ENGINE]) as running:
        grown = {}
        for name in ("default", "below", "far", "pool"):
            check(infer(running, name, **inputs), expected)
            before = switches_of_pool(running)
            for _ in range(10):
                check(infer(running, name, **inputs), expected)
            grown[name] = switches_of_pool(running) > before
        assert grown == {"default": False, "below": False, "far": False, "pool": True}


def test_operators_that_are_placed_on_a_gpu(tmp_path):
    floats = saved_models.of_type(np.float32)
    graph = saved_models.placeholder("in_x", np.float32, [-1, 4]) + saved_models.field(
        1, saved_models.node_body("out", "Neg", ["in_x"], T=floats) + saved_models.field(4, "/device:GPU:0"))
    signature = saved_models.signature({"x": ("in_x:0", np.float32, [-1, 4])}, {"y": ("out:0", np.float32, [-1, 4])})
    write(tmp_path, "placed", saved_models.saved_model(saved_models.meta_graph(graph, {"serving_default": signature})))
    x = np.float32([[1, 2, 3, 4]])
    with servers.Server(tmp_path, flags=[ENGINE]) as running:
        np.testing.assert_array_equal(infer(running, "placed", x=x)["y"], -x)
    assert "/device:GPU:0" in reasons_of(tmp_path, ENGINE, "--backend-config=tensorflow,allow-soft-placement=false")["placed"]


def write_operator(root, name, operator):
    """A model of one of the operators in tensorflow_op.c, and the library of them."""
    floats = saved_models.placeholder("in_x", np.float32, [-1, 4]) + saved_models.node("out", operator, ["in_x"])
    signature = saved_models.signature({"x": ("in_x:0", np.float32, [-1, 4])}, {"y": ("out:0", np.float32, [-1, 4])})
    write(root, name, saved_models.saved_model(saved_models.meta_graph(floats, {"serving_default": signature})),
          'model_operations { op_library_filename: "ops.so" }\n')
    source = pathlib.Path(__file__).with_name("tensorflow_op.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", root / name / "ops.so", source, f"-L{LIBRARY.parent}", "-l:libtensorflow_framework.so.2"],
                   check=True)


def test_libraries_of_operators(tmp_path):
    write_operator(tmp_path, "twice", "ConchTwice")
    assert ("model 'twice': the library of operators 'ops.so' (op_library_filename) is code that would run in the server; "
            "--backend-config=tensorflow,allow-extensions=1 permits it") in reasons_of(tmp_path)["twice"]
    with servers.Server(tmp_path, flags=["--backend-config=tensorflow,allow-extensions=1"]) as running:
        x = np.float32([[1, 2, 3, 4]])
        np.testing.assert_array_equal(infer(running, "twice", x=x)["y"], 2 * x)
    library = tmp_path / "twice/ops.so"
    for content, text in ((library.read_bytes()[:6000], "op_library_filename '{}': the file ends before the library does"),
                          (b"no library", "TensorFlow, loading a library of operators: "), (None, "op_library_filename '{}': No such file or directory")):
        library.unlink()
        if content is not None:
            library.write_bytes(content)
        assert text.format(library) in reasons_of(tmp_path, "--backend-config=tensorflow,allow-extensions=1")["twice"]


def test_operators_of_libraries_may_keep_their_inputs(tmp_path):
    """The tensor that the operator keeps is no memory of the request: the client writes to that before the next one."""
    write_operator(tmp_path, "before", "ConchBefore")
    x = np.float32([[1, 2, 3, 4]])
    with servers.Server(tmp_path, flags=["--backend-config=tensorflow,allow-extensions=1", "--allow-client-shm=true"]) as running, \
            tritonclient.http.InferenceServerClient(running.url) as client:
        name = f"/conch-kept-{os.getpid()}"
        region = shared_memory.create_shared_memory_region("kept", name, x.nbytes)
        try:
            client.register_system_shared_memory("kept", name, x.nbytes)
            tensor = tritonclient.http.InferInput("x", [1, 4], "FP32")
            tensor.set_shared_memory("kept", x.nbytes)
            for n in range(1, 4):
                shared_memory.set_shared_memory_region(region, [n * x])
                np.testing.assert_array_equal(client.infer("before", [tensor]).as_numpy("y"), max(n - 1, 1) * x)
        finally:
            client.unregister_system_shared_memory()
            shared_memory.destroy_shared_memory_region(region)


def test_sessions_are_shared_by_so_many_instances(tmp_path, exported):
    """An instance that ends gives its place in the session, which has the counter, to the next one. Two sessions would have a counter each."""
    def config(count):
        return (f'platform: "tensorflow_savedmodel"\ninstance_group [ {{ count: {count} kind: KIND_CPU }} ]\n'
                'parameters { key: "MAX_SESSION_SHARE_COUNT" value: { string_value: "2" } }\n')

    add(tmp_path, exported, "counter")
    (tmp_path / "counter/config.pbtxt").write_text(config(2))
    with servers.Server(tmp_path, flags=[ENGINE, "--model-control-mode=explicit", "--load-model=counter"]) as running:
        with tritonclient.http.InferenceServerClient(running.url, network_timeout=60) as client:
            for count in (1, 2):
                (tmp_path / "counter/config.pbtxt").write_text(config(count))
                client.load_model("counter")

        def count_on(_):
            return infer(running, "counter", x=np.zeros(16, np.float32))["n"].item()

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            list(pool.map(count_on, range(100)))
        assert count_on(None) == 101
    (tmp_path / "counter/config.pbtxt").write_text(config(2).replace('"2"', '"1"'))
    with servers.Server(tmp_path, flags=[ENGINE, "--model-control-mode=explicit", "--load-model=counter"]) as running:
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            list(pool.map(count_on, range(100)))
        assert count_on(None) < 101


@pytest.mark.parametrize("sharers, sessions", [(None, 1), (2, 2), (1, 3)])
def test_the_memory_of_sessions_is_reported(tmp_path, exported, sharers, sessions):
    more = {"MAX_SESSION_SHARE_COUNT": sharers} if sharers else {}
    add(tmp_path, exported, "dense", "instance_group [ { count: 3 kind: KIND_CPU } ]\n", **more)
    folder = tmp_path / "dense/1/model.savedmodel"
    (folder / "assets").mkdir(exist_ok=True)
    (folder / "assets/words").write_bytes(bytes(1 << 20))
    size = sessions * sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    with servers.Server(tmp_path, flags=[ENGINE]) as running, tritonclient.http.InferenceServerClient(running.url) as client:
        (usage,) = client.get_inference_statistics("dense")["model_stats"][0]["memory_usage"]
        assert size < usage["byte_size"] < size + (64 << 10)


def test_a_missing_library_fails_only_its_models(tmp_path, exported):
    add(tmp_path, exported, "strings")
    write(tmp_path, "plain", saved_models.add_sub([-1, 16]))
    missing = str(tmp_path / "libtensorflow.so")
    reasons = reasons_of(tmp_path, env={"CONCH_TENSORFLOW": missing})
    assert "StringUpper" in reasons["strings"]
    assert f"TensorFlow's library libtensorflow_cc.so cannot be loaded; tried {missing}; get it with `pip install tensorflow-cpu`" in reasons["strings"]
    assert not reasons["plain"]
    other = str(repository.BUILD / "lib" / "libtritonserver.so")
    assert "has no TF_Version: release 2.4 or a later one is needed" in reasons_of(tmp_path, ENGINE, env={"CONCH_TENSORFLOW": other})["plain"]


def test_files_and_configurations_that_do_not_fit(tmp_path, exported):
    good = (exported / "graph/model.graphdef").read_bytes()
    for name, content in (("cut", good[:len(good) // 2]), ("noise", b"\x0a" + bytes(range(1, 250))), ("text", good.replace(b"joined", b"join\xff\x80")), ("empty", b""), ("unknown", good.replace(b"MatMul", b"Marvel"))):
        add(tmp_path, exported, "graph", GRAPH, as_name=name)
        (tmp_path / name / "1/model.graphdef").write_bytes(content)
    add(tmp_path, exported, "graph", GRAPH.replace('"x"', '"nothing"'), as_name="input")
    add(tmp_path, exported, "graph", GRAPH.replace("TYPE_FP32", "TYPE_INT32", 1), as_name="type")
    add(tmp_path, exported, "dense", as_name="variables")
    (tmp_path / "variables/1/model.savedmodel/variables/variables.index").write_bytes(bytes(100))
    write(tmp_path, "place", saved_models.saved_model(saved_models.meta_graph(saved_models.placeholder("in_a", np.float32, [1]), {
        "serving_default": saved_models.signature({"A": ("in_a:0", np.float32, [1])}, {"B": ("in_b:0", np.float32, [1])})})))
    write(tmp_path, "types", saved_models.saved_model(saved_models.meta_graph(saved_models.placeholder("in_a", np.float32, [1]), {
        "serving_default": saved_models.signature({"A": ("in_a:0", np.float64, [1])}, {"B": ("in_a:0", np.float32, [1])})})))
    inits = {"init_missing": (None, "No such file or directory"), "init_text": ("init", "TF_INIT_OPS_FILE 'init_ops.json': "),
             "init_list": ('{"init_ops": []}', "it has no list 'init_ops'"), "init_name": ('{"init_ops": ["start"]}', "the graph has no operation 'start'"),
             "init_large": (" " * (1 << 20) + "{}", "it is no regular file of at most 1 MiB"), "init_fails": ('{"init_ops": ["y"]}', "TensorFlow, running an init op: ")}
    for name, (text, _) in inits.items():
        add(tmp_path, exported, "variables", VARIABLES, as_name=name, TF_INIT_OPS_FILE="init_ops.json")
        if text is not None:
            (tmp_path / name / "1/init_ops.json").write_text(text)
    add(tmp_path, exported, "variables", VARIABLES, as_name="init_outside", TF_INIT_OPS_FILE="../init_ops.json")
    for name, place in (("number", "y:4294967296"), ("letters", "y:0x"), ("nothing", "y:"), ("minus", "y:-1")):
        add(tmp_path, exported, "graph", GRAPH.replace('"y"', f'"{place}"'), as_name=f"place_{name}")
    reasons = reasons_of(tmp_path, ENGINE)
    for name in ("number", "letters", "nothing", "minus"):
        assert "unexpected inference output 'y:" in reasons[f"place_{name}"], reasons[f"place_{name}"]
    for name, text in {**{name: text for name, (_, text) in inits.items()}, "init_outside": "it is outside the folder"}.items():
        assert text in reasons[name] and f"'{name}'" in reasons[name] + f"'{name}'" * (name == "init_fails"), (name, reasons[name])
    for name, text in {"cut": "is refused: it is damaged", "noise": "is refused: it is damaged", "text": "TensorFlow, reading the GraphDef: ", "empty": "unexpected inference input 'x'",
                       "unknown": "Marvel", "input": "unexpected inference input 'nothing', allowed inputs are: text, x",
                       "type": "configuration expects datatype TYPE_INT32 for input 'x', model provides TYPE_FP32",
                       "variables": "TensorFlow, loading the SavedModel: ", "place": "its graph has no tensor 'in_b:0'",
                       "types": "tensor 'A' has another type in the graph than in the signature"}.items():
        assert text in reasons[name] and "\n" not in reasons[name], (name, reasons[name])


def test_graphs_that_would_end_the_process(tmp_path):
    """TensorFlow 2.21 aborts over the first four, the stack ends, or memory grows without end, over the others. A GraphDef is looked at, too."""
    circle = "calls itself, by others or at once"
    refused = {"elements": (saved_models.with_constant([1 << 62, 1 << 62]), "a constant of more than 2^63 elements"),
               "rank": (saved_models.with_constant([1] * 255), "a constant of more than 254 dimensions"),
               "itself": (saved_models.calls(["f", "f"]), circle), "each_other": (saved_models.calls(["f", "g", "h", "f"]), circle),
               "passed": (saved_models.passed(), circle),
               "gradient": (saved_models.gradient(True), circle),
               "deep": (saved_models.calls([f"f{i}" for i in range(5000)]), "call each other more than 256 deep"),
               "nodes": (saved_models.with_nodes(4_000_001), "more than 4000000 nodes")}
    for name, (content, _) in refused.items():
        write(tmp_path, name, content)
    write(tmp_path, "fine", saved_models.calls([f"f{i}" for i in range(50)]))
    write(tmp_path, "slope", saved_models.gradient(False))
    write(tmp_path, "many", saved_models.with_constant([1 << 40]))
    graph = repository.write_model(tmp_path, "graph", 'platform: "tensorflow_graphdef"\n' + repository.tensor("input", "in_x", "FP32", [-1])
                                   + repository.tensor("output", "large", "FP32", [-1]))
    (graph / "1/model.graphdef").write_bytes(saved_models.placeholder("in_x", np.float32, [-1])
                                             + saved_models.constant("large", np.float32([1]), [1 << 62, 1 << 62]))
    with servers.Server(tmp_path, flags=["--exit-on-error=false", "--strict-readiness=false", ENGINE], ready=False) as running:
        reasons = read_reasons(running)
        for name, (_, text) in {**refused, "graph": refused["elements"]}.items():
            assert f"unable to load model '{name}', the graph in '{tmp_path / name}/1/model." in reasons[name] and text in reasons[name], (name, reasons[name])
        x = np.float32([[1], [2]])
        np.testing.assert_array_equal(infer(running, "fine", x=x)["y"], -x)
        np.testing.assert_array_equal(infer(running, "slope", x=x)["y"], -x)
        with pytest.raises(InferenceServerException, match="TensorFlow, running the model: "):
            infer(running, "many", x=x)


def test_variables_that_are_missing(tmp_path, exported):
    add(tmp_path, exported, "dense")
    shutil.rmtree(tmp_path / "dense/1/model.savedmodel/variables")
    with servers.Server(tmp_path, flags=[ENGINE]) as running:
        assert f"model 'dense' has variables, but there is no '{tmp_path}/dense/1/model.savedmodel/variables/variables.index'" in running.log()
        with pytest.raises(InferenceServerException, match="TensorFlow, running the model: "):
            infer(running, "dense", x=np.zeros((1, 16), np.float32))


def test_version_names_both_libraries():
    code, out, err = servers.run_to_end("--version", env={"CONCH_TENSORFLOW": str(LIBRARY)})
    assert (code, err) == (0, "")
    line = next(line for line in out.splitlines() if line.startswith("tensorflow: "))
    assert line.endswith(f"; TensorFlow 2.21.0 from {os.path.realpath(LIBRARY)}")


@pytest.mark.skipif(os.environ.get("TF_CPP_MIN_LOG_LEVEL") is not None, reason="it is set here")
def test_other_processes_do_not_get_its_variables(tmp_path, exported):
    add(tmp_path, exported, "dense", BATCHES)
    write_python(tmp_path, "later", ECHO, *NUMBER)
    with servers.Server(tmp_path, flags=[ENGINE, "--model-control-mode=explicit", "--load-model=dense"],
                        env={"PATH": f"{servers.ROOT / '.deps/venv/bin'}:{os.environ['PATH']}"}) as running:
        log = running.log()
        assert "SavedModel" not in log and "cpu_feature_guard" not in log, log
        with tritonclient.http.InferenceServerClient(running.url, network_timeout=60) as client:
            client.load_model("later")
        (child,) = children(running)
        assert "TF_CPP_MIN_LOG_LEVEL" not in pathlib.Path(f"/proc/{child}/environ").read_text(encoding="utf-8")
