# SPDX-License-Identifier: Apache-2.0
"""PyTriton 0.7.0 as it is, with our server in the place of its own (tools/pytriton-dist, docs/pytriton.md).

The parameter names the server and the Python backend: "conch" has our backend, "borrowed" is our server with the genuine
backend, "triton" the genuine server, which is asked the same. pytriton_app.py is the program that serves.
"""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import uuid
from concurrent import futures

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

import server as servers

REFERENCE = servers.ROOT / ".deps/reference"
PACKAGES = next((REFERENCE / "venv/lib").glob("python3.*/site-packages"), REFERENCE)
OURS = pathlib.Path(servers.BACKENDS) / "python/libtriton_python.so"
BACKENDS = {"conch": OURS.parent, "borrowed": REFERENCE / "backends/python"}
APP = pathlib.Path(__file__).with_name("pytriton_app.py")
DIST = servers.ROOT / "tools/pytriton-dist"
TOKEN_HEADER = {"triton-access-token": "a-secret"}
TOKEN_METADATA = {"triton-grpc-protocol-triton-access-token": "a-secret"}
WITHIN_S = 150

pytestmark = [
    pytest.mark.skipif(not (PACKAGES / "pytriton").exists() or not (PACKAGES / "zmq").exists(), reason="PyTriton is not installed: make reference"),
    pytest.mark.skipif(servers.REFERENCE, reason="starts its servers itself"),
    pytest.mark.skipif(servers.SANITIZED, reason="a sanitizer has to be the first library of a process"),
    pytest.mark.skipif("CONCH_WITHOUT_TRITON" in os.environ, reason="nothing of the genuine Triton is asked (CONCH_WITHOUT_TRITON)"),
]

ours = pytest.param("conch", marks=pytest.mark.skipif(not OURS.exists(), reason="this build has no Python backend"))
# Its processes at times do not end after an error, or answer no more, in the genuine server, too, whose tests are repeated anyway.
borrowed = pytest.param("borrowed", marks=pytest.mark.flaky(reruns=2))
each_server = pytest.mark.parametrize("kind", [ours, borrowed, "triton"], scope="module")
our_servers = pytest.mark.parametrize("kind", [ours, borrowed], scope="module")


@pytest.fixture(scope="module")
def dist(tmp_path_factory):
    """A function: the folder for TRITONSERVER_DIST_DIR of a kind."""
    made = {"triton": "-"}

    def get(kind):
        if kind not in made:
            made[kind] = tmp_path_factory.mktemp("dist") / kind
            subprocess.run([DIST, f"--python-backend={BACKENDS[kind]}", servers.BUILD, made[kind]], check=True, timeout=60)
        return made[kind]

    return get


# In the program as sitecustomize: tells when serve() waits. Before that, SIGINT ends Python by a traceback wherever it is, and
# threads of PyTriton may then keep the program for good; in that wait, PyTriton catches it.
TELLS = """
import threading
wait = threading.Condition.wait
def tell(self, timeout=None):
    if timeout == 10.0 and threading.current_thread() is threading.main_thread():
        print("\\nTHE PROGRAM WAITS", flush=True)
    return wait(self, timeout)
threading.Condition.wait = tell
"""


class App:
    """pytriton_app.py as a process: serves inside `with`, and leaves nothing behind. program: the text of another one, which
    is only started."""

    def __init__(self, dist, what="serve", program=None, env=None, **settings):
        self.mark = f"CONCH_TEST_APP={uuid.uuid4()}"
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="pt"))    # a short path: it has sockets
        if what != "remote":
            settings = {"http_port": servers.free_port(), "grpc_port": servers.free_port(), "metrics_port": servers.free_port(),
                        "http_address": "127.0.0.1", "grpc_address": "127.0.0.1", "token": "a-secret", **settings}
        self.settings = settings
        self.ends_with = 0    # the exit code
        self.args = [REFERENCE / "venv/bin/python", APP, dist, self.folder / "w", what, *(f"{k}={v}" for k, v in settings.items())]
        name, value = self.mark.split("=")
        (self.folder / "tells").mkdir()
        (self.folder / "tells/sitecustomize.py").write_text(TELLS)
        self.env = {**os.environ, name: value, "PYTRITON_HOME": str(self.folder), "PYTHONPATH": str(self.folder / "tells"), **(env or {})}
        self.is_ours = program is None
        if not self.is_ours:
            (self.folder / "program.py").write_text(program)
            self.args = [REFERENCE / "venv/bin/python", self.folder / "program.py"]

    def __enter__(self):
        self.process = subprocess.Popen(self.args, env=self.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.out = servers.Output(self.process.stdout)
        if not self.is_ours:
            return self
        try:
            servers.wait_for(lambda: "\nAPP " in self.out.text() or self.process.poll() is not None, WITHIN_S, "the program serves")
            assert self.process.poll() is None, self.out.text()
        except BaseException:
            self.clean()
            raise
        self.told = json.loads(self.out.text().split("\nAPP ", 1)[1].split("\n", 1)[0])
        self.http = f"127.0.0.1:{self.settings['http_port']}" if "http_port" in self.settings else None
        self.grpc = f"127.0.0.1:{self.settings['grpc_port']}" if "grpc_port" in self.settings else None
        return self

    def __exit__(self, kind, value, trace):
        try:
            self.process.stdin.close()
            code = self.process.wait(WITHIN_S)
            self.await_nothing_left()
            if kind is None:
                assert code == self.ends_with, self.out.text()
        finally:
            self.clean()

    def interrupt(self):
        """As Ctrl-C does while the program serves."""
        servers.wait_for(lambda: "\nTHE PROGRAM WAITS" in self.out.text() or self.process.poll() is not None, WITHIN_S, "it waits")
        self.process.send_signal(signal.SIGINT)

    def shared(self):
        return list(pathlib.Path("/dev/shm").glob(f"pytrtion{self.process.pid}-*"))

    def await_nothing_left(self):
        servers.wait_for(lambda: not servers.processes_with(self.mark), WITHIN_S, f"the processes have ended: {self.out.text()[-3000:]}")

    def clean(self):
        """Whatever has happened, nothing stays."""
        for process in servers.processes_with(self.mark):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        self.process.wait(WITHIN_S)
        for path in self.shared():
            path.unlink(missing_ok=True)
        shutil.rmtree(self.folder, ignore_errors=True)


@pytest.fixture(scope="module")
def app(kind, dist):
    with App(dist(kind), http_header_forward_pattern="x-.*", grpc_header_forward_pattern="x-.*") as running:
        yield running
    assert running.shared() == []


@pytest.fixture(params=["http", "grpc"])
def client(app, request):
    module = tritonclient.http if request.param == "http" else tritonclient.grpc
    with module.InferenceServerClient(app.http if request.param == "http" else app.grpc) as made:
        made.module = module
        yield made


def infer(client, model, outputs=None, **arrays):
    options = arrays.pop("options", {})
    inputs = []
    for name, array in arrays.items():
        given = client.module.InferInput(name, array.shape, np_to_triton_dtype(array.dtype))
        given.set_data_from_numpy(array)
        inputs.append(given)
    wanted = [client.module.InferRequestedOutput(name) for name in outputs] if outputs else None
    return client.infer(model, inputs, outputs=wanted, client_timeout=WITHIN_S, **options) if client.module is tritonclient.grpc else \
        client.infer(model, inputs, outputs=wanted, **options)


def serves(client, model):
    with contextlib.suppress(OSError):
        return client.is_model_ready(model)


def fails(client, model, **arrays):
    with pytest.raises(InferenceServerException) as raised:
        infer(client, model, **arrays)
    return raised.value.message()


@each_server
@pytest.mark.parametrize("dtype", [np.float32, np.bool_], ids=lambda t: t.__name__)
def test_tensors_pass(client, dtype):
    name = {np.float32: "fp32", np.bool_: "bool"}[dtype]
    for shape in (1, 1), (3, 5), (2, 50000):
        array = np.random.default_rng(1).integers(0, 2, shape).astype(dtype)
        got = infer(client, f"identity_{name}", value=array).as_numpy("copy")
        assert got.dtype == array.dtype
        assert np.array_equal(got, array)


@each_server
def test_strings_pass(client):
    array = np.array([[b"", b"a"], [b"x" * 100, "ü€".encode() * 50]], dtype=object)
    assert np.array_equal(infer(client, "identity_bytes", value=array).as_numpy("copy"), array)


@each_server
def test_inputs_are_optional(client):
    one, two = np.full((2, 3), 1, np.float32), np.full((2, 3), 2, np.float32)
    for given, total in ({}, 0), ({"b": two}, 2), ({"c": one}, 1), ({"b": one, "c": two}, 3):
        got = infer(client, "add_sub", a=one, **given)
        assert np.array_equal(got.as_numpy("sum"), one + total)
        assert np.array_equal(got.as_numpy("difference"), one - total)
    # The server counts the inputs that must be there, and does not look for their names.
    assert "missing 1 required positional argument: 'a'" in fails(client, "add_sub", b=one)


@each_server
def test_an_input_may_be_one_value_for_a_batch(client):
    got = infer(client, "powers", value=np.array([[1, 2, 3]]), power=np.array([[3]]))
    assert got.as_numpy("result").tolist() == [[1, 8, 27]]


@each_server
def test_shapes_vary(client):
    for rows, columns in (1, 1), (2, 7), (40, 3):
        matrix = np.arange(2 * rows * columns, dtype=np.float32).reshape(2, rows, columns)
        text = np.array([[b"a" * rows], [b"b" * columns]], dtype=object)
        got = infer(client, "shapes", matrix=matrix, text=text)
        assert np.array_equal(got.as_numpy("transposed"), matrix.swapaxes(1, 2))
        assert got.as_numpy("longest").tolist() == [[max(rows, columns)]] * 2


@each_server
def test_errors_have_their_texts(client):
    assert infer(client, "moody", what=np.array([[7]], np.int32)).as_numpy("same").tolist() == [[7]]
    assert "ValueError: all went wrong" in fails(client, "moody", what=np.array([[1]], np.int32))
    assert "other" in fails(client, "moody", what=np.array([[2]], np.int32))
    assert "float64" in fails(client, "moody", what=np.array([[3]], np.int32))
    assert infer(client, "moody", what=np.array([[8]], np.int32)).as_numpy("same").tolist() == [[8]]


@each_server
def test_parameters_and_headers_reach_the_function(client):
    options = {"parameters": {"text": "t", "number": 3, "flag": True}, "headers": {"x-mine": "h", "y-not": "n"}}
    got = infer(client, "told", value=np.array([1], np.int32), options=options)
    assert json.loads(got.as_numpy("text")[0]) == {"text": "t", "number": 3, "flag": True, "x-mine": "h"}
    assert json.loads(got.as_numpy("outputs")[0]) == ["outputs", "text"]
    got = infer(client, "told", outputs=["outputs"], value=np.array([1], np.int32))
    assert json.loads(got.as_numpy("outputs")[0]) == ["outputs"]
    assert got.as_numpy("text") is None


@each_server
def test_requests_make_a_batch(client, app):
    def ask(_):
        module = client.module
        with module.InferenceServerClient(app.http if module is tritonclient.http else app.grpc) as own:
            own.module = module
            return infer(own, "batched", value=np.zeros((1, 1), np.float32)).as_numpy("size")[0, 0]

    with futures.ThreadPoolExecutor(4) as pool:
        assert list(pool.map(ask, range(4))) == [4] * 4


@each_server
def test_functions_of_one_model_run_at_once(client, app):
    """Each function has an instance; requests that come together are with both of them."""
    def ask(_):
        module = client.module
        with module.InferenceServerClient(app.http if module is tritonclient.http else app.grpc) as own:
            own.module = module
            return infer(own, "together", value=np.zeros((1, 1), np.float32)).as_numpy("name")[0, 0]

    with futures.ThreadPoolExecutor(2) as pool:
        for _ in range(5):
            assert sorted(pool.map(ask, range(2))) == [b"one", b"two"]


def stream(app, n):
    """What a decoupled model answers over a stream: numbers, then perhaps an error's text."""
    answers = []
    with tritonclient.grpc.InferenceServerClient(app.grpc) as client:
        ended = futures.Future()

        def note(result, error):
            answers.append(error.message() if error else result)
            if error or result.get_response().parameters["triton_final_response"].bool_param:
                ended.done() or ended.set_result(None)

        client.start_stream(note)
        given = tritonclient.grpc.InferInput("n", [1], "INT32")
        given.set_data_from_numpy(np.array([n], np.int32))
        client.async_stream_infer("numbers", [given], enable_empty_final_response=True)
        ended.result(WITHIN_S)
        client.stop_stream()
    return [a if isinstance(a, str) else a.as_numpy("number") for a in answers]


@each_server
def test_a_generator_answers_several_times(app):
    for n in 0, 2, 50:
        got = [a[0] for a in stream(app, n) if a is not None and not isinstance(a, str)]
        assert got == list(range(n))
    got = stream(app, 3)
    assert [a[0] for a in got[:3]] == [0, 1, 2]
    assert "ValueError: 3 is odd" in got[3]


@each_server
def test_the_token_guards_five_parts(app):
    """PyTriton restricts them by a token, over both protocols."""
    with tritonclient.http.InferenceServerClient(app.http) as http, tritonclient.grpc.InferenceServerClient(app.grpc) as grpc:
        for client, header in (http, TOKEN_HEADER), (grpc, TOKEN_METADATA):
            for call in (client.get_inference_statistics, client.get_model_repository_index, client.get_trace_settings,
                         client.get_log_settings, client.get_system_shared_memory_status):
                with pytest.raises(InferenceServerException, match="This (API|protocol) is restricted, expecting header"):
                    call()
                call(headers=header)
            with pytest.raises(InferenceServerException, match="restricted"):
                client.unload_model("powers")
            assert client.is_model_ready("powers")
            assert client.get_server_metadata()
            assert client.get_model_config("powers")


@each_server
def test_a_second_program_adds_a_model(app, dist, kind):
    """RemoteTriton: the functions are in another process than the one that has started the server."""
    with App(dist(kind), "remote", url=f"http://{app.http}", token="a-secret") as remote:
        assert remote.told["inputs"] == ["value", "power"]
        with tritonclient.http.InferenceServerClient(app.http) as client:
            client.module = tritonclient.http
            got = infer(client, "remote", value=np.array([[2, 3]]), power=np.array([[2]]))
            assert got.as_numpy("result").tolist() == [[4, 9]]
    with tritonclient.http.InferenceServerClient(app.http) as client:
        servers.wait_for(lambda: not client.is_model_ready("remote"), WITHIN_S, "its model is unloaded")
        assert client.is_model_ready("powers")


@each_server
def test_a_fatal_error_ends_the_program(dist, kind):
    with App(dist(kind), "fatal") as app, tritonclient.http.InferenceServerClient(app.http) as client:
        client.module = tritonclient.http
        with pytest.raises((InferenceServerException, OSError)):
            infer(client, "ends", value=np.zeros((1, 1), np.float32))
        app.process.wait(WITHIN_S)
        app.await_nothing_left()
        assert app.shared() == []
    assert "nothing helps any more" in app.out.text()


@our_servers
def test_every_setting_reaches_the_server(dist, kind, tmp_path):
    log = tmp_path / "server.log"
    with App(dist(kind), "settings", log_file=log) as app, tritonclient.http.InferenceServerClient(app.http) as client:
        client.module = tritonclient.http
        assert infer(client, "remote", value=np.array([[2]]), power=np.array([[5]])).as_numpy("result").tolist() == [[32]]
        assert client.get_server_metadata()["name"] == "mine"
        settings = client.get_log_settings(headers=TOKEN_HEADER)
        assert (settings["log_file"], settings["log_verbose_level"]) == (str(log), 1)
    assert "loading: remote:1" in log.read_text()


@our_servers
def test_the_program_of_the_page_serves(dist, kind):
    """As it stands there, but for the folder; the ports are set by PyTriton's own variables."""
    page = (servers.ROOT / "docs/pytriton.md").read_text()
    program = page.split("```python\n", 1)[1].split("```", 1)[0].replace("/tmp/conch-dist", str(dist(kind)))
    ports = {f"PYTRITON_TRITON_CONFIG_{name}_PORT": str(servers.free_port()) for name in ("HTTP", "GRPC", "METRICS")}
    http = f"127.0.0.1:{ports['PYTRITON_TRITON_CONFIG_HTTP_PORT']}"
    with App("-", program=program, env=ports) as app, tritonclient.http.InferenceServerClient(http) as client:
        client.module = tritonclient.http
        servers.wait_for(lambda: app.process.poll() is not None or serves(client, "add"), WITHIN_S, "the program serves")
        one = np.ones((1, 3), np.float32)
        assert infer(client, "add", a=one, b=one).as_numpy("sum").tolist() == [[2, 2, 2]]
        app.interrupt()


@our_servers
def test_an_interrupt_ends_program_and_server(dist, kind):
    with App(dist(kind), "fatal") as app:
        app.interrupt()
        app.process.wait(WITHIN_S)
        app.await_nothing_left()
        assert app.shared() == []
    assert "All models are stopped, unloading models" in app.out.text()


@our_servers
@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGKILL], ids=lambda s: s.name)
def test_the_server_ends_with_its_program(dist, kind, by):
    with App(dist(kind), "fatal") as app:
        app.ends_with = -by
        app.process.send_signal(by)
        app.process.wait(WITHIN_S)
        app.await_nothing_left()


@our_servers
def test_a_server_that_is_killed_ends_its_program(dist, kind):
    with App(dist(kind), "fatal") as app:
        server = servers.processes_with(app.mark, "bin/tritonserver")
        os.kill(server[0], signal.SIGKILL)
        app.process.wait(WITHIN_S)
        app.await_nothing_left()
