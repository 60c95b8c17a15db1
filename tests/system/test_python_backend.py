# SPDX-License-Identifier: Apache-2.0
"""A backend that others have compiled: the genuine Python backend of Triton, unchanged, in our server.

It asks for its server library by a name of its own; one entry of its dynamic section is changed to the usual name.
Metrics from a Python model kill the genuine 2.51 as well, with a lock_exception in the backend, and are left out
(test_metrics.c tests them by the C API). Loading models from one does so now and then, and is tried again.
"""

import contextlib
import itertools
import json
import os
import pathlib
import shutil
import signal
import subprocess
import textwrap
import urllib.error
import urllib.request

import numpy as np
import pytest
import tritonclient.http
from tritonclient.utils import InferenceServerException, triton_to_np_dtype

import embed
import regions
import repository
import server as servers
import triton

REFERENCE = servers.ROOT / ".deps/reference"
GENUINE = REFERENCE / "backends/python"

pytestmark = [
    pytest.mark.skipif(not (GENUINE / "triton_python_backend_stub").exists(),
                       reason="the genuine Python backend is not installed: make reference"),
    pytest.mark.skipif(servers.REFERENCE, reason="is about our server"),
    pytest.mark.skipif("CONCH_WITHOUT_TRITON" in os.environ, reason="nothing of the genuine Triton is asked (CONCH_WITHOUT_TRITON)"),
    pytest.mark.skipif(servers.SANITIZED and b"__tsan_init" in pathlib.Path(servers.BIN).read_bytes(),
                       reason="the thread sanitizer cannot see the locks of a library that it has not compiled"),
]

HEAD = """import json
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
"""


def write_python(root, name, body, *tensors, more=""):
    """Writes a model whose class has this body; tensors as of repository.tensor()."""
    config = 'backend: "python"\n' + "".join(repository.tensor(*tensor) for tensor in tensors) + more
    folder = repository.write_model(root, name, config + 'instance_group [ { count: 1 kind: KIND_CPU } ]\n')
    (folder / "1/model.py").write_text(HEAD + textwrap.indent(textwrap.dedent(body), "    "))


ECHO = """
def execute(self, requests):
    responses = []
    for request in requests:
        tensor = pb_utils.get_input_tensor_by_name(request, "IN")
        responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", tensor.as_numpy())]))
    return responses
"""

ADD_SUB = """
def initialize(self, args):
    config = json.loads(args["model_config"])
    self.kind = pb_utils.triton_string_to_numpy(pb_utils.get_output_config_by_name(config, "SUM")["data_type"])
    self.args = args

def execute(self, requests):
    responses = []
    for request in requests:
        a, b = (pb_utils.get_input_tensor_by_name(request, n).as_numpy() for n in ("A", "B"))
        responses.append(pb_utils.InferenceResponse([
            pb_utils.Tensor("SUM", (a + b).astype(self.kind)), pb_utils.Tensor("DIFFERENCE", (a - b).astype(self.kind))]))
    return responses
"""

WHO = """
def initialize(self, args):
    self.args = args

def execute(self, requests):
    responses = []
    for request in requests:
        told = {"args": {k: self.args[k] for k in ("model_name", "model_version", "model_instance_name",
                                                   "model_instance_kind", "model_instance_device_id")},
                "id": request.request_id(), "correlation": request.correlation_id(), "flags": request.flags(),
                "timeout": request.timeout(), "outputs": list(request.requested_output_names()),
                "parameters": json.loads(request.parameters()),
                "cancelled": request.is_cancelled()}
        text = np.array([json.dumps(told).encode()], dtype=np.object_)
        responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", text)]))
    return responses
"""

MOODY = """
def execute(self, requests):
    responses = []
    for request in requests:
        what = int(pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()[0])
        if what == 1:
            raise ValueError("all went wrong")
        if what == 2:
            responses.append(pb_utils.InferenceResponse(
                error=pb_utils.TritonError("this one went wrong", pb_utils.TritonError.NOT_FOUND)))
            continue
        if what == 3:
            return []
        responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([what], np.int32))]))
    return responses
"""

DECOUPLED = """
def execute(self, requests):
    for request in requests:
        sender = request.get_response_sender()
        n = int(pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()[0])
        for i in range(n):
            sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([i], np.int32))]))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
    return None
"""

SCRIPT = """
async def execute(self, requests):
    responses = []
    for request in requests:
        tensor = pb_utils.get_input_tensor_by_name(request, "IN")
        name = pb_utils.get_input_tensor_by_name(request, "MODEL").as_numpy()[0].decode()
        inner = pb_utils.InferenceRequest(
            model_name=name, requested_output_names=["OUTPUT0"],
            inputs=[pb_utils.Tensor("INPUT0", tensor.as_numpy())])
        once = inner.exec()
        if once.has_error():
            responses.append(pb_utils.InferenceResponse(error=once.error()))
            continue
        again = await inner.async_exec()
        one, two = (pb_utils.get_output_tensor_by_name(r, "OUTPUT0").as_numpy() for r in (once, again))
        responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", one + two)]))
    return responses
"""

COMPLETES = """
@staticmethod
def auto_complete_config(config):
    config.add_input({"name": "IN", "data_type": "TYPE_INT32", "dims": [-1]})
    config.add_output({"name": "OUT", "data_type": "TYPE_INT32", "dims": [-1]})
    config.set_max_batch_size(0)
    return config
""" + ECHO

CHILDREN = """
def execute(self, requests):
    import signal, subprocess
    child = subprocess.Popen(["sleep", "600"])
    child.terminate()
    codes = [child.wait(30), len(signal.pthread_sigmask(signal.SIG_BLOCK, []))]
    text = np.array([json.dumps(codes).encode()], dtype=object)
    return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", text)]) for request in requests]
"""

NUMBER = [("input", "IN", "INT32", [1]), ("output", "OUT", "INT32", [1])]
TEXT = [("input", "IN", "INT32", [1]), ("output", "OUT", "BYTES", [-1])]


def write_models(root):
    for datatype in ("FP32", "INT64", "BOOL", "UINT8", "FP16", "BYTES"):
        write_python(root, f"echo_{datatype.lower()}", ECHO, ("input", "IN", datatype, [-1, -1]),
                     ("output", "OUT", datatype, [-1, -1]))
    pair = [("input", "A", "FP32", [4]), ("input", "B", "FP32", [4]), ("output", "SUM", "FP32", [4]),
            ("output", "DIFFERENCE", "FP32", [4])]
    write_python(root, "add_sub", ADD_SUB, *pair, more="max_batch_size: 8\n")
    write_python(root, "who", WHO, *TEXT)
    write_python(root, "moody", MOODY, *NUMBER)
    write_python(root, "children", CHILDREN, *TEXT)
    write_python(root, "decoupled", DECOUPLED, *NUMBER, more="model_transaction_policy { decoupled: true }\n")
    write_python(root, "script", SCRIPT, ("input", "IN", "FP32", [-1]), ("input", "MODEL", "BYTES", [1]),
                 ("output", "OUT", "FP32", [-1]))
    write_python(root, "completes", COMPLETES)
    write_python(root, "fails", 'def initialize(self, args):\n    raise RuntimeError("not today")\n' + ECHO, *NUMBER)
    write_python(root, "syntax", "def execute(self, requests)\n    pass", *NUMBER)
    repository.write_identity(root, "identity", [("FP32", [-1])])
    repository.write_identity(root, "slow", [("FP32", [-1])], execute_delay_ms=100)
    return root


@pytest.fixture(scope="module")
def surroundings(tmp_path_factory):
    """A backend directory with the genuine backend beside ours, and the environment that its programs need."""
    folder = tmp_path_factory.mktemp("backends")
    shutil.copytree(GENUINE, folder / "python", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "identity").symlink_to(pathlib.Path(servers.BACKENDS).resolve() / "identity")
    libraries = next((REFERENCE / "venv/lib").glob("python3.*/site-packages/nvidia_pytriton.libs"))
    name = next(libraries.glob("libtritonserver-*.so")).name
    subprocess.run(["patchelf", "--replace-needed", name, "libtritonserver.so", folder / "python/libtriton_python.so"],
                   check=True)
    environment = {
        "PATH": f"{REFERENCE}/venv/bin:{os.environ['PATH']}",
        "LD_LIBRARY_PATH": f"{servers.BUILD / 'lib'}:{libraries}",
        # The backend's own leaks do not count.
        "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0",
    }
    return folder, environment


# The backend uses it for its shared memory, and passes it to its processes as an argument: other tests run on this
# machine, too.
MARK = f"conch_test_{os.getpid()}_"
NUMBERS = itertools.count()    # for servers with a mark of their own


def left_behind(mark=MARK):
    """Our shared memory and processes of the backend."""
    shared = [p.name for p in pathlib.Path("/dev/shm").glob(f"{mark}*")]
    stubs = subprocess.run(["pgrep", "-f", f"triton_python_backend_stub .*{mark}"], capture_output=True, text=True, check=False)
    return shared, stubs.stdout.split()


def sweep(mark):
    """Cleans up after a backend that died, or was killed with the genuine server. Its processes end when they notice that,
    or wait for ever for a lock in the shared memory."""
    subprocess.run(["pkill", "-KILL", "-f", f"triton_python_backend_stub .*{mark}"], check=False)
    servers.wait_for(lambda: not left_behind(mark)[1], 60, "processes of the backend have gone")
    for name in left_behind(mark)[0]:
        pathlib.Path("/dev/shm", name).unlink(missing_ok=True)


@pytest.fixture(scope="module")
def served(surroundings, tmp_path_factory):
    backends, environment = surroundings
    root = write_models(tmp_path_factory.mktemp("models"))
    with servers.Server(root, env=environment, ready=False, flags=[
            f"--backend-directory={backends}", "--exit-on-error=false", f"--backend-config=python,shm-region-prefix-name={MARK}",
            "--allow-client-shm=true"]) as running:
        servers.wait_for(lambda: "starts without some of its models" in running.log(), 120, "all is loaded")
        assert all(left_behind()), "it has memory and processes, and they are found"
        yield running
    assert left_behind() == ([], []), "processes or shared memory of the backend are left"


def test_the_backends_memory_is_no_clients(served):
    """A client that may register shared memory gets none of the objects that the server shares with the backend's processes,
    whatever their prefix. The answer is that of an object that the server may not open."""
    names = left_behind()[0]
    assert names
    for name in names:
        code, text = regions.register(served, "stolen", f"/{name}", 64)
        assert (code, json.loads(text)["error"]) == (500, f"Unable to open shared memory region: '/{name}': Permission denied")
    assert regions.status(served) == (200, "[]")


def index(running):
    asked = urllib.request.Request(f"http://{running.url}/v2/repository/index", method="POST")
    with urllib.request.urlopen(asked) as reply:
        return {model["name"]: model for model in json.load(reply)}


@pytest.fixture
def client(served):
    served.assert_alive()
    with tritonclient.http.InferenceServerClient(served.url, concurrency=2) as made:
        yield made
    served.assert_alive()


def infer(client, model, inputs, **options):
    """inputs: {name: (datatype, array)}"""
    sent = []
    for name, (datatype, array) in inputs.items():
        tensor = tritonclient.http.InferInput(name, array.shape, datatype)
        tensor.set_data_from_numpy(array)
        sent.append(tensor)
    return client.infer(model, sent, **options)


def number(value):
    return {"IN": ("INT32", np.array([value], np.int32))}


def test_the_models_are_loaded(served):
    models = index(served)
    bad = {name: model["reason"] for name, model in models.items() if model["state"] != "READY"}
    assert set(bad) == {"fails", "syntax"}
    assert "RuntimeError: not today" in bad["fails"]
    assert "SyntaxError" in bad["syntax"]


def test_a_python_model_adds_and_subtracts(client):
    a, b = np.arange(8, dtype=np.float32).reshape(2, 4), np.full((2, 4), 0.5, np.float32)
    got = infer(client, "add_sub", {"A": ("FP32", a), "B": ("FP32", b)})
    assert np.array_equal(got.as_numpy("SUM"), a + b)
    assert np.array_equal(got.as_numpy("DIFFERENCE"), a - b)


@pytest.mark.parametrize("shape", [(1, 1), (2, 3), (1, 70000)], ids=str)
@pytest.mark.parametrize("datatype", ["FP32", "INT64", "BOOL", "UINT8", "FP16"])
def test_tensors_of_each_type_pass_through_a_python_model(client, datatype, shape):
    array = np.random.default_rng(3).integers(0, 2, shape).astype(triton_to_np_dtype(datatype))
    got = infer(client, f"echo_{datatype.lower()}", {"IN": (datatype, array)}).as_numpy("OUT")
    assert got.dtype == array.dtype
    assert np.array_equal(got, array)


def test_strings_pass_through_a_python_model(client):
    array = np.array([[b"", b"a"], [b"\x00\xff", "ü€".encode() * 1000]], dtype=object)
    assert np.array_equal(infer(client, "echo_bytes", {"IN": ("BYTES", array)}).as_numpy("OUT"), array)


def test_a_python_model_gets_its_arguments(client):
    got = infer(client, "who", number(1), request_id="r7", sequence_id=42, sequence_start=True, timeout=5000000,
                parameters={"text": "x", "number": 3, "flag": True})
    told = json.loads(got.as_numpy("OUT")[0])
    assert told == {
        "args": {"model_name": "who", "model_version": "1", "model_instance_name": "who_0_0",
                 "model_instance_kind": "CPU", "model_instance_device_id": "0"},
        "id": "r7", "correlation": 42, "flags": 1, "timeout": 5000000, "outputs": ["OUT"],
        "parameters": {"text": "x", "number": 3, "flag": True}, "cancelled": False,
    }


def test_errors_of_a_python_model_are_answers(client):
    with pytest.raises(InferenceServerException) as raised:
        infer(client, "moody", number(1))
    assert "ValueError: all went wrong" in raised.value.message()
    with pytest.raises(InferenceServerException, match="this one went wrong"):
        infer(client, "moody", number(2))
    with pytest.raises(InferenceServerException, match="Number of InferenceResponse objects do not match"):
        infer(client, "moody", number(3))
    assert infer(client, "moody", number(4)).as_numpy("OUT")[0] == 4


def test_scripts_ask_other_models(client):
    array = np.array([1, 2.5], np.float32)

    def ask(model):
        return infer(client, "script", {"IN": ("FP32", array), "MODEL": ("BYTES", np.array([model], object))})

    assert np.array_equal(ask(b"identity").as_numpy("OUT"), 2 * array)
    assert np.array_equal(ask(b"slow").as_numpy("OUT"), 2 * array)
    with pytest.raises(InferenceServerException, match="'nobody' is not found"):
        ask(b"nobody")
    with pytest.raises(InferenceServerException, match="unexpected inference output 'OUTPUT0' for model 'echo_fp32'"):
        ask(b"echo_fp32")


def test_a_python_model_completes_its_configuration(client, served):
    with urllib.request.urlopen(f"http://{served.url}/v2/models/completes/config") as reply:
        config = json.load(reply)
    assert [(t["name"], t["data_type"], t["dims"]) for t in config["input"]] == [("IN", "TYPE_INT32", [-1])]
    array = np.arange(5, dtype=np.int32)
    assert np.array_equal(infer(client, "completes", {"IN": ("INT32", array)}).as_numpy("OUT"), array)


# ---- Backends that are written in Python

TIMES = """
@staticmethod
def auto_complete_config(config):
    config.add_input({"name": "IN", "data_type": "TYPE_INT32", "dims": [1]})
    config.add_output({"name": "OUT", "data_type": "TYPE_INT32", "dims": [1]})
    config.set_max_batch_size(0)
    return config

def execute(self, requests):
    return [pb_utils.InferenceResponse([pb_utils.Tensor(
        "OUT", FACTOR * pb_utils.get_input_tensor_by_name(request, "IN").as_numpy())]) for request in requests]
"""


def write_backend(backends, name, factor):
    (backends / name).mkdir()
    (backends / name / "model.py").write_text(f"FACTOR = {factor}\n{HEAD}{textwrap.indent(TIMES, '    ')}")


def write_of(root, name, backend, more=""):
    return repository.write_model(root, name, f'backend: "{backend}"\n{more}instance_group [ {{ count: 1 kind: KIND_CPU }} ]\n')


@pytest.fixture(params=["conch", "triton"])
def in_either(request, surroundings, tmp_path):
    """A folder of backends with the Python backend, and a function that serves models by them."""
    backends, environment = tmp_path / "backends", surroundings[1]
    backends.mkdir()
    mark = f"either_{next(NUMBERS)}_of_{os.getpid()}_"
    flags = (f"--backend-directory={backends}", "--exit-on-error=false", f"--backend-config=shm-region-prefix-name={mark}")

    def serve(models):
        if request.param == "triton":
            return triton.Triton(models, flags=flags, ready=False)
        return servers.Server(models, env=environment, ready=False, flags=flags)

    if request.param == "triton" and triton.missing():
        pytest.skip(triton.missing())
    shutil.copytree(surroundings[0] / "python" if request.param == "conch" else GENUINE, backends / "python")
    yield backends, serve
    if request.param == "triton":
        sweep(mark)
    assert left_behind(mark) == ([], []), "processes or shared memory of the backend are left"


def test_backends_written_in_python_serve(in_either, tmp_path):
    """A folder of the backend directory with a model.py is a backend. Each has its own code, and one Python backend runs them."""
    backends, serve = in_either
    write_backend(backends, "twice", 2)
    write_backend(backends, "thrice", 3)
    models = tmp_path / "models"
    write_of(models, "a", "twice")
    write_of(models, "b", "thrice", 'runtime: "model.py"\n')
    write_of(models, "c", "twice")
    write_of(models, "d", "twice", 'parameters { key: "EXECUTION_ENV_PATH" value { string_value: "" } }\n')
    # A library of that name wins.
    (models / "c/1/libtriton_twice.so").write_bytes((pathlib.Path(servers.BACKENDS) / "identity/libtriton_identity.so").read_bytes())
    with serve(models) as running:
        with tritonclient.http.InferenceServerClient(running.url) as asked:
            for name, factor in {"a": 2, "b": 3, "d": 2}.items():
                assert infer(asked, name, number(7)).as_numpy("OUT").tolist() == [7 * factor]
                config = asked.get_model_config(name)
                assert config["runtime"] == "model.py"
            assert asked.get_model_config("c")["runtime"] == ""


def test_a_python_backend_has_its_environment_beside_it(in_either, tmp_path):
    """The environment is the model's, unless the model names another one."""
    backends, serve = in_either
    write_backend(backends, "twice", 2)
    activate = tmp_path / "environment/bin/activate"
    activate.parent.mkdir(parents=True)
    activate.write_text("true\n")
    packed = backends / "twice/pb_exec_env_model.py.tar.gz"
    subprocess.run(["tar", "czf", packed, "-C", tmp_path / "environment", "."], check=True)
    models = tmp_path / "models"
    write_of(models, "a", "twice")
    write_of(models, "b", "twice", f'parameters {{ key: "EXECUTION_ENV_PATH" value {{ string_value: "{activate.parents[1]}" }} }}\n')
    with serve(models) as running:
        with tritonclient.http.InferenceServerClient(running.url) as asked:
            paths = {name: asked.get_model_config(name)["parameters"]["EXECUTION_ENV_PATH"]["string_value"] for name in "ab"}
            assert paths == {"a": str(packed), "b": str(activate.parents[1])}
            assert infer(asked, "a", number(7)).as_numpy("OUT").tolist() == [14]


def test_the_error_names_what_a_python_backend_lacks(in_either, tmp_path):
    """The Python backend, which both servers search in the same folders, or the model.py that it is to run."""
    backends, serve = in_either
    write_backend(backends, "twice", 2)
    (backends / "empty").mkdir()
    models = tmp_path / "models"
    write_of(models, "a", "twice")
    write_of(models, "b", "empty", 'runtime: "model.py"\n')
    with serve(models) as running:
        assert (f"unable to find Python backend based backend library 'model.py' for model 'b', searched: "
                f"'{backends}/empty/model.py'") in running.log()
    shutil.rmtree(backends / "python")
    places = " ".join(f"'{place}'" for place in (models / "a/1", models / "a", backends / "twice", backends / "python"))
    with serve(models) as running:
        assert f"unable to find backend library 'libtriton_python.so' for model 'a', searched: {places}" in running.log()
        assert "unable to find backend library 'libtriton_python.so' for model 'b', searched: " in running.log()


def test_decoupled_python_models_are_refused_over_http(served):
    body = json.dumps({"inputs": [{"name": "IN", "datatype": "INT32", "shape": [1], "data": [1]}]}).encode()
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"http://{served.url}/v2/models/decoupled/infer", body)
    assert "doesn't support models with decoupled transaction policy" in json.load(refused.value)["error"]


def test_a_decoupled_python_model_sends_several_responses(surroundings, tmp_path):
    backends, environment = surroundings
    write_python(tmp_path, "decoupled", DECOUPLED, *NUMBER, more="model_transaction_policy { decoupled: true }\n")
    lines = embed.run(tmp_path, [f"infer r{n} decoupled -1 - IN:INT32:1:{n}" for n in (0, 1, 5)], backends=backends,
                      env=environment)
    for n in (0, 1, 5):
        assert embed.of(lines, f"r{n}") == [f"response OUT:INT32:1:{i}" for i in range(n)] + ["final"]


CONTROL = """
def execute(self, requests):
    responses = []
    for request in requests:
        what, name = (pb_utils.get_input_tensor_by_name(request, n).as_numpy()[0].decode() for n in ("DO", "NAME"))
        said = "ok"
        try:
            if what == "load":
                pb_utils.load_model(model_name=name)
            elif what == "load with":
                pb_utils.load_model(model_name=name, config=self.config, files={"file:4/weights": b"some"})
            elif what == "unload":
                pb_utils.unload_model(model_name=name)
            else:
                said = "yes" if pb_utils.is_model_ready(model_name=name) else "no"
        except Exception as e:
            said = str(e)
        responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([said.encode()], dtype=np.object_))]))
    return responses

def initialize(self, args):
    tensor = {"data_type": "TYPE_FP32", "dims": [-1]}
    self.config = json.dumps({"backend": "identity", "input": [{"name": "INPUT0", **tensor}], "output": [{"name": "OUTPUT0", **tensor}]})
"""


@contextlib.contextmanager
def explicit_server(surroundings, models):
    """A server in mode explicit with the model that loads and unloads others: (server, client, a function that asks that
    model)."""
    backends, environment = surroundings
    mark = f"explicit_{next(NUMBERS)}_of_{os.getpid()}_"
    flags = [f"--backend-directory={backends}", f"--backend-config=python,shm-region-prefix-name={mark}",
             "--model-control-mode=explicit", "--load-model=control"]
    try:
        with servers.Server(models, env=environment, flags=flags) as running:
            with tritonclient.http.InferenceServerClient(running.url) as client:
                def ask(what, name):
                    words = {"DO": what, "NAME": name}
                    got = infer(client, "control", {k: ("BYTES", np.array([w.encode()], np.object_)) for k, w in words.items()})
                    return got.as_numpy("OUT")[0].decode()

                yield running, client, ask
    except BackendDied:
        sweep(mark)
        raise
    assert left_behind(mark) == ([], []), "processes or shared memory of the backend are left"


@pytest.fixture(name="controlled")
def write_controlled(models):
    write_python(models, "control", CONTROL, ("input", "DO", "BYTES", [1]), ("input", "NAME", "BYTES", [1]),
                 ("output", "OUT", "BYTES", [1]))
    repository.write_identity(models, "m", [("FP32", [-1])])
    return models


class BackendDied(Exception):
    """A Python model that loads another one kills the backend by a lock of the backend's own, in the genuine server as
    well. Or the backend gives the model, in place of the server's answer, the contents of freed memory."""


def load_and_unload(client, ask):
    assert "'m' is not found" in ask("ready?", "m")
    assert ask("load", "m") == "ok"
    assert ask("ready?", "m") == "yes"
    assert ask("load with", "m") == "ok"
    assert client.get_model_metadata("m")["versions"] == ["4"]
    assert ask("unload", "m") == "ok"
    assert "'m' has no available versions" in ask("ready?", "m")
    assert "failed to load 'nobody', failed to poll from model repository" in ask("load", "nobody")
    assert ask("unload", "nobody") == "ok"


def legible(text):
    if not text.isprintable():
        raise BackendDied(repr(text))
    return text


def try_to_load_and_unload(surroundings, models):
    with explicit_server(surroundings, models) as (server, client, ask):
        try:
            load_and_unload(client, lambda *words: legible(ask(*words)))
        except BackendDied:
            raise
        except Exception:
            if "boost::interprocess::lock_exception" in server.err.text():
                raise BackendDied from None
            raise


def test_a_python_model_loads_and_unloads_others(surroundings, controlled):
    """It dies in two of five tries here, and in one of seven in the genuine server."""
    for tries_left in range(19, -1, -1):
        try:
            try_to_load_and_unload(surroundings, controlled)
            return
        except BackendDied:
            assert tries_left > 0


def test_a_python_model_may_come_with_a_load_request(surroundings, controlled):
    """Its processes start and end with it, and a reload replaces them."""
    with explicit_server(surroundings, controlled) as (_, client, _):
        come_and_go(client)


def come_and_go(client):
    config = {"backend": "python", "input": [{"name": "IN", "data_type": "TYPE_INT32", "dims": [1]}],
              "output": [{"name": "OUT", "data_type": "TYPE_INT32", "dims": [1]}]}
    for plus in (1, 2):
        body = ECHO.replace("tensor.as_numpy()", f"tensor.as_numpy() + np.int32({plus})")
        content = (HEAD + textwrap.indent(textwrap.dedent(body), "    ")).encode()
        client.load_model("new", config=json.dumps(config), files={"file:1/model.py": content})
        assert infer(client, "new", number(40)).as_numpy("OUT").tolist() == [40 + plus]
    client.unload_model("new")
    servers.wait_for(lambda: [row["name"] for row in client.get_model_repository_index()] == ["control", "m"], 60, "it has gone")


def test_children_of_a_model_can_be_ended(client):
    """By subprocess.Popen(...).terminate(): the children have the mask that the server was started with."""
    (text,) = infer(client, "children", number(1)).as_numpy("OUT")
    assert json.loads(text) == [-signal.SIGTERM, 0]
