# SPDX-License-Identifier: Apache-2.0
"""Our Python backend: the life of an instance's process. It crashes, hangs, forks, closes what it has, fills its memory; its
requests are answered, its model comes back, other models go on, and nothing of it is left.
"""

import os
import pathlib
import signal
import textwrap
import threading
import urllib.request

import grpc
import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import InferenceServerException

import repository
import server as servers

pytestmark = [
    pytest.mark.conch_only("is about our Python backend"),
    pytest.mark.skipif(not (pathlib.Path(servers.BACKENDS) / "python/start.py").exists(), reason="the Python backend is not built"),
]

# Debian's interpreter, whose NumPy every machine has that runs these tests.
ENVIRONMENT = {"PATH": "/usr/bin:/bin"} if pathlib.Path("/usr/lib/python3/dist-packages/numpy").exists() else {
    "PATH": f"{servers.ROOT}/.deps/venv/bin:/usr/bin:/bin"}

HEAD = """import json, os, signal, struct, sys, time
import numpy as np
import triton_python_backend_utils as pb_utils

def number(request):
    return int(pb_utils.get_input_tensor_by_name(request, "IN").as_numpy().flat[0])

def answer(value):
    return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([value], np.int32))])

class TritonPythonModel:
"""

NUMBER = [("input", "IN", "INT32", [1]), ("output", "OUT", "INT32", [1])]


def write(root, name, body, *tensors, more=""):
    config = 'backend: "python"\n' + "".join(repository.tensor(*tensor) for tensor in tensors or NUMBER) + more
    version = repository.write_model(root, name, config) / "1"
    version.mkdir(exist_ok=True)
    (version / "model.py").write_text(HEAD + textwrap.indent(textwrap.dedent(body), "    "))


# What it does depends on its input; 0 and above: answers with it.
ODD = """
def execute(self, requests):
    for request in requests:
        n = number(request)
        if n == -1:
            os.kill(os.getpid(), signal.SIGKILL)
        if n == -2:
            os._exit(7)
        if n == -3:
            os.kill(os.getpid(), signal.SIGSEGV)
        if n == -4:
            os.closerange(3, 7)
            time.sleep(1000)
        if n == -5:
            open(os.path.join(os.path.dirname(__file__), "sleeps"), "w").close()
            time.sleep(1000)
        if n == -6:
            if os.fork() == 0:
                time.sleep(1000)
        if n == -7:
            os.write(3, b"x" * 7)
            time.sleep(1000)
        if n == -8:
            sys.exit(3)
        if n == -9:
            os.kill(os.getpid(), signal.SIGSTOP)
        if n == -11:    # a call whose response goes into a slot that does not exist
            call = struct.pack("<I5sqQBIIBIQQIIBQII", 5, b"other", -1, 0, 0, 33, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
            at = os.fstat(6).st_size - 4096
            os.pwrite(6, call, at)
            os.write(3, struct.pack("<IIQQQ", 8, 1, 1, at, len(call)))
            time.sleep(1000)
        if n == -10:
            held = []
            while True:
                held.append(np.ones(1 << 20, np.int8))
    return [answer(number(request)) for request in requests]
"""

DECOUPLED = """
def execute(self, requests):
    for request in requests:
        n = number(request)
        sender = request.get_response_sender()
        for i in range(abs(n)):
            sender.send(answer(i))
        if n < 0:
            raise ValueError("enough")
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""

READY = """
def initialize(self, args):
    self.ready, self.folder = 1, args["model_repository"]

def is_ready(self):
    if self.ready == 2:
        raise ValueError("no idea")
    while os.path.exists(self.folder + "/thinks"):
        time.sleep(0.01)
    return self.ready == 1

def execute(self, requests):
    self.ready = number(requests[0])
    return [answer(0) for request in requests]
"""

METRICS = """
def initialize(self, args):
    self.family = pb_utils.MetricFamily(name="my_sum", description="what was asked", kind=pb_utils.MetricFamily.COUNTER)
    self.metric = self.family.Metric(labels={"model": "metrics"})

def execute(self, requests):
    self.metric.increment(number(requests[0]))
    return [answer(int(self.metric.value()))]
"""


def write_all(root):
    for name in ("odd", "other"):
        write(root, name, ODD)
    write(root, "limited", ODD, more='parameters { key: "CONCH_EXECUTE_TIMEOUT_MS" value { string_value: "300" } }\n')
    write(root, "decoupled", DECOUPLED, more="model_transaction_policy { decoupled: true }\n")
    write(root, "ready", READY)
    write(root, "metrics", METRICS)
    return root


@pytest.fixture(name="served", scope="module")
def serve(tmp_path_factory):
    models = write_all(tmp_path_factory.mktemp("models"))
    with servers.Server(models, env=ENVIRONMENT, grpc=True,
                        flags=["--allow-metrics=true", "--metrics-port=0", "--backend-config=python,stub-timeout-seconds=3"]) as running:
        running.models = models
        yield running
        children = children_of(running)
    assert not [child for child in children if pathlib.Path(f"/proc/{child}").exists()]


@pytest.fixture(name="client")
def connect(served):
    served.assert_alive()
    with tritonclient.http.InferenceServerClient(served.url, concurrency=8, network_timeout=60) as made:
        yield made
    served.assert_alive()


def children_of(served, name=""):
    """Its processes of Python models."""
    found = []
    for task in pathlib.Path(f"/proc/{served.process.pid}/task").iterdir():
        found += read_of_process(task / "children").split()
    return [int(pid) for pid in found if f"/start.py\0{name}" in read_of_process(f"/proc/{pid}/cmdline")]


def test_a_client_finds_no_memory_of_the_server_by_a_name(served):
    """Clients may register objects of /dev/shm: what the server and its children have there would be theirs to read."""
    children = children_of(served)
    assert children
    for process in [served.process.pid, *children]:
        folder = pathlib.Path(f"/proc/{process}")
        opened = [link_of_process(path) for path in (folder / "fd").iterdir()]
        mapped = (folder / "maps").read_text().splitlines()
        assert any("memfd:" in line for line in mapped), "it has no memory for tensors"
        assert not [text for text in opened + mapped if "/dev/shm/" in text]


def read_of_process(path):
    """A file of a process or thread, which may end at any time."""
    try:
        return pathlib.Path(path).read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def link_of_process(path):
    """Where a descriptor leads, which may be closed at any time."""
    try:
        return os.readlink(path)
    except FileNotFoundError:
        return ""


def infer(client, model, value):
    tensor = tritonclient.http.InferInput("IN", [1], "INT32")
    tensor.set_data_from_numpy(np.array([value], np.int32))
    return int(client.infer(model, [tensor]).as_numpy("OUT")[0])


def serves_again(client, model, within_s=60):
    def asks():
        try:
            return infer(client, model, 5) == 5
        except InferenceServerException as e:
            assert "is not healthy" in e.message()
            return False
    servers.wait_for(asks, within_s, f"{model} serves again")


@pytest.mark.parametrize("value,cause", [
    (-1, "was killed by signal 9"), (-2, "exited with code 7"), (-3, "was killed by signal 11"),
    (-7, "has sent an impossible message"), (-11, r"has sent an impossible message \(8\)"), (-8, "SystemExit|exited with code 3"),
], ids=str)
def test_a_crash_is_answered_with_its_cause(client, value, cause):
    before = infer(client, "other", 3)
    with pytest.raises(InferenceServerException, match=cause):
        infer(client, "odd", value)
    assert infer(client, "other", 3) == before, "other models go on"
    serves_again(client, "odd")


def test_all_requests_that_are_with_it_are_answered(client, served):
    serves_again(client, "odd")
    answers = []

    def ask(value):
        with tritonclient.http.InferenceServerClient(served.url, network_timeout=60) as own:
            try:
                answers.append(infer(own, "odd", value))
            except InferenceServerException as e:
                answers.append(e.message())

    threads = [threading.Thread(target=ask, args=(value,)) for value in (-5, 1, 2, 3)]
    for thread in threads:
        thread.start()
    servers.wait_for((served.models / "odd/1/sleeps").exists, 60, "it has one of them")
    (child,) = children_of(served, "odd")
    os.kill(child, signal.SIGKILL)
    for thread in threads:
        thread.join(60)
    assert len(answers) == 4
    assert any("was killed by signal 9" in str(answer) for answer in answers)
    serves_again(client, "odd")


def test_a_model_that_has_crashed_is_not_ready_until_it_serves(client, served):
    serves_again(client, "odd")
    (child,) = children_of(served, "odd")
    os.kill(child, signal.SIGKILL)
    servers.wait_for(lambda: not pathlib.Path(f"/proc/{child}").exists(), 60, "it has ended")
    servers.wait_for(lambda: children_of(served, "odd"), 60, "another one starts")
    serves_again(client, "odd")
    servers.wait_for(lambda: client.is_model_ready("odd"), 60, "it is ready")
    assert client.is_model_ready("other")


def memory_group():
    """The folder of a new group of processes below our own that may have 100 MB; None: this user may not make one."""
    for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines():
        _, kinds, path = line.split(":", 2)
        if kinds not in ("", "memory"):
            continue
        folder = pathlib.Path("/sys/fs/cgroup", kinds, path.lstrip("/"), f"conch_test_{os.getpid()}")
        try:
            folder.mkdir()
        except OSError:
            continue
        for name in ("memory.max", "memory.limit_in_bytes"):
            if (folder / name).exists():
                (folder / name).write_text(str(100 << 20))
                return folder
        folder.rmdir()
    return None


def test_a_process_that_fills_its_groups_memory_says_so_if_the_user_may_make_a_group(client, served):
    folder = memory_group()
    if not folder:
        pytest.skip("this user may not make a group of processes with a limit")
    try:
        serves_again(client, "odd")
        (child,) = children_of(served, "odd")
        (folder / "cgroup.procs").write_text(str(child))
        with pytest.raises(InferenceServerException, match="was killed by signal 9 .*, since memory ran out"):
            infer(client, "odd", -10)
        assert infer(client, "other", 3) == 3
        serves_again(client, "odd")
    finally:
        folder.rmdir()


def test_is_ready_has_five_seconds(client, served):
    """Meanwhile other models are asked, and the model serves."""
    folder = served.models / "ready"
    (folder / "thinks").touch()
    servers.wait_for(lambda: not client.is_model_ready("ready"), 30, "it is not ready")
    assert client.is_model_ready("other")
    assert infer(client, "ready", 1) == 0
    (folder / "thinks").unlink()
    servers.wait_for(lambda: client.is_model_ready("ready"), 30, "it is ready")


def test_a_model_has_one_thread_for_each_instance_at_work_and_all_models_one_more(tmp_path):
    for name in ("a", "b"):
        write(tmp_path, name, ODD)
    with servers.Server(tmp_path, env=ENVIRONMENT) as running:
        with tritonclient.http.InferenceServerClient(running.url, network_timeout=60) as client:
            for name in ("a", "b"):
                assert infer(client, name, 1) == 1
        servers.wait_for(lambda: "model-load" not in running.names_of_threads(), 60, "nothing is loaded any more")
        names = running.names_of_threads()
    assert names.count("python") == 1
    assert max(names.count("a_0_0"), names.count("b_0_0")) <= 1    # they end when their instance is idle
    assert len([name for name in names if not name.startswith("http-")]) <= 9, names


def test_a_process_that_closes_its_descriptors_is_noticed_at_once(client):
    """It goes on and never answers, and its model has no time limit."""
    serves_again(client, "odd")
    with pytest.raises(InferenceServerException, match="has closed its socket"):
        infer(client, "odd", -4)
    serves_again(client, "odd")


def test_an_execution_that_takes_too_long_is_ended(client):
    for value in (-5, -9):
        with pytest.raises(InferenceServerException, match="has not answered within 300 ms"):
            infer(client, "limited", value)
        serves_again(client, "limited")


def test_a_fork_of_the_child_keeps_nothing(client, served):
    assert infer(client, "odd", -6) == -6
    (child,) = children_of(served, "odd")
    (fork,) = pathlib.Path(f"/proc/{child}/task/{child}/children").read_text().split()
    with pytest.raises(InferenceServerException, match="exited with code 7"):
        infer(client, "odd", -2)
    servers.wait_for(lambda: not pathlib.Path(f"/proc/{fork}").exists()
                     or pathlib.Path(f"/proc/{fork}/stat").read_text().split()[2] == "Z", 60, "the fork has ended, too")
    serves_again(client, "odd")


def test_restarts_are_counted(client, served):
    def count():
        lines = metrics_of(served)
        return sum(float(line.split()[-1]) for line in lines if line.startswith('conch_python_restarts_total{model="odd"'))

    before = count()
    with pytest.raises(InferenceServerException):
        infer(client, "odd", -1)
    serves_again(client, "odd")
    assert count() == before + 1


def metrics_of(served):
    url = next(line for line in served.log().splitlines() if "Started Metrics Service at " in line)
    address = url.split("Started Metrics Service at ")[1].split('"')[0].replace("0.0.0.0", "127.0.0.1")
    with urllib.request.urlopen(f"http://{address}/metrics") as reply:
        return reply.read().decode().splitlines()


def test_metrics_of_a_model(client, served):
    assert infer(client, "metrics", 3) == 3
    assert infer(client, "metrics", 4) == 7
    assert any(line.startswith('my_sum{model="metrics"} 7') for line in metrics_of(served))


def test_readiness_is_asked_of_the_model(client):
    assert client.is_model_ready("ready")
    for value in (0, 2):
        infer(client, "ready", value)
        servers.wait_for(lambda: not client.is_model_ready("ready"), 60, "it is not ready")
    infer(client, "ready", 1)
    servers.wait_for(lambda: client.is_model_ready("ready"), 60, "it is ready")


def stream(served, value):
    """The responses of the decoupled model; an error ends them."""
    got, ended = [], threading.Event()

    def on_response(result, error):
        if error:
            got.append(error.message())
            ended.set()
            return
        response = result.get_response()
        if response.outputs:
            got.append(int(result.as_numpy("OUT")[0]))
        if response.parameters["triton_final_response"].bool_param:
            ended.set()

    with tritonclient.grpc.InferenceServerClient(served.grpc_url) as client:
        client.start_stream(on_response)
        tensor = tritonclient.grpc.InferInput("IN", [1], "INT32")
        tensor.set_data_from_numpy(np.array([value], np.int32))
        client.async_stream_infer("decoupled", [tensor], enable_empty_final_response=True)
        assert ended.wait(60)
        client.stop_stream()
    return got


@pytest.mark.parametrize("n", [0, 1, 1000])
def test_a_decoupled_model_sends_any_number_of_responses(served, n):
    assert stream(served, n) == list(range(n))


def test_an_exception_comes_behind_what_was_sent(served):
    *numbers, error = stream(served, -200)
    assert numbers == list(range(200))
    assert "ValueError: enough" in error


FLOOD = """
def execute(self, requests):
    for request in requests:
        sender = request.get_response_sender()
        for i in range(number(request)):
            sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.full(25000, i, np.int32))]))
            if i == 0:
                open(os.path.join(os.path.dirname(__file__), "begins"), "w").close()
        open(os.path.join(os.path.dirname(__file__), "ends"), "w").close()
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""


def test_a_client_that_reads_slowly_holds_back_its_own_model_alone(tmp_path):
    write(tmp_path, "flood", FLOOD, ("input", "IN", "INT32", [1]), ("output", "OUT", "INT32", [-1]),
          more="model_transaction_policy { decoupled: true }\n")
    write(tmp_path, "odd", ODD)
    write(tmp_path, "decoupled", DECOUPLED, more="model_transaction_policy { decoupled: true }\n")
    n = 2000
    asked = service_pb2.ModelInferRequest(model_name="flood", raw_input_contents=[np.array([n], np.int32).tobytes()])
    asked.inputs.add(name="IN", datatype="INT32", shape=[1])
    with servers.Server(tmp_path, env=ENVIRONMENT, grpc=True, flags=["--grpc-max-response-pool-size=2"]) as running:
        with grpc.insecure_channel(running.grpc_url) as channel:
            stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
            responses = stub.ModelStreamInfer(iter([asked]))
            servers.wait_for((tmp_path / "flood/1/begins").exists, 60, "it begins")
            with tritonclient.http.InferenceServerClient(running.url, network_timeout=60) as client:
                for _ in range(3):
                    assert infer(client, "odd", 5) == 5
                    assert stream(running, 20) == list(range(20))
            assert not (tmp_path / "flood/1/ends").exists(), "it is held back"
            got = [int.from_bytes(r.infer_response.raw_output_contents[0][:4], "little") for r in responses
                   if r.infer_response.raw_output_contents]
            assert got == list(range(n))


def test_a_hung_model_is_ended_when_it_is_unloaded(tmp_path):
    write(tmp_path, "odd", ODD)
    with servers.Server(tmp_path, env=ENVIRONMENT, flags=[
            "--model-control-mode=explicit", "--load-model=odd", "--backend-config=python,stub-timeout-seconds=1"]) as running:
        with tritonclient.http.InferenceServerClient(running.url) as client:
            (child,) = children_of(running)
            os.kill(child, signal.SIGSTOP)
            client.unload_model("odd")
            servers.wait_for(lambda: not pathlib.Path(f"/proc/{child}").exists(), 60, "it has ended")
            assert not children_of(running)


def descriptors(running):
    return sorted(os.readlink(f"/proc/{running.process.pid}/fd/{fd}") for fd in os.listdir(f"/proc/{running.process.pid}/fd"))


def mappings(running):
    return [line for line in pathlib.Path(f"/proc/{running.process.pid}/maps").read_text().splitlines() if "conch-python" in line]


def test_nothing_is_left_of_an_unloaded_model(tmp_path):
    write(tmp_path, "odd", ODD)
    write(tmp_path, "decoupled", DECOUPLED, more="model_transaction_policy { decoupled: true }\n")
    with servers.Server(tmp_path, env=ENVIRONMENT, flags=["--model-control-mode=explicit"]) as running:
        with tritonclient.http.InferenceServerClient(running.url) as client:
            client.is_server_live()
            before = descriptors(running)
            for _ in range(2):
                client.load_model("odd")
                client.load_model("decoupled")
                assert infer(client, "odd", 5) == 5
                assert len(mappings(running)) >= 6
                for pid in (running.process.pid, *children_of(running)):
                    assert "/dev/shm" not in read_of_process(f"/proc/{pid}/maps")
                client.unload_model("odd")
                client.unload_model("decoupled")
                servers.wait_for(lambda: not children_of(running), 60, "they have ended")
            servers.wait_for(lambda: not mappings(running), 60, "their memory is back")
            servers.wait_for(lambda: [fd for fd in descriptors(running) if "memfd" in fd or "pidfd" in fd] == [], 60,
                             "their descriptors are back")
            assert "are not back" not in running.log(), "the server has all that the backend has made"
            servers.wait_for(lambda: len([fd for fd in descriptors(running) if "socket" not in fd])
                             <= len([fd for fd in before if "socket" not in fd]), 60, "the watcher's are back, too")


def test_no_child_outlives_a_killed_server(tmp_path):
    write(tmp_path, "odd", ODD)
    running = servers.Server(tmp_path, env=ENVIRONMENT)
    try:
        running.start()
        servers.wait_for(lambda: "Loaded 1 of 1 models" in running.log(), 60, "the model is there")
        (child,) = children_of(running)
    finally:
        running.kill()
    if child:
        servers.wait_for(lambda: not pathlib.Path(f"/proc/{child}").exists()
                         or pathlib.Path(f"/proc/{child}/stat").read_text().split()[2] == "Z", 60, "it ends, too")


@pytest.mark.parametrize("setting,text", [
    ("shm-default-byte-size=1", "shm-default-byte-size can't be smaller than 4 MiBs"),
    ("shm-growth-byte-size=0", "shm-growth-byte-size can't be smaller than or equal to zero."),
    ("stub-timeout-seconds=0", "stub-timeout-seconds can't be smaller than or equal to zero."),
    ("shm_message_queue_size=0", "shm_message_queue_size can't be smaller than or equal to zero."),
    ("thread-pool-size=0", "thread-pool-size can't be less than 1."),
])
def test_settings_have_limits(tmp_path, setting, text):
    write(tmp_path, "odd", ODD)
    with servers.Server(tmp_path, env=ENVIRONMENT, ready=False,
                        flags=["--exit-on-error=false", f"--backend-config=python,{setting}"]) as running:
        servers.wait_for(lambda: text in running.log(), 60, "it is refused")


@pytest.mark.parametrize("body,text", [
    ("def initialize(self, args):\n    raise RuntimeError('not today')\n" + ODD, "RuntimeError: not today"),
    ("def initialize(self, args):\n    os._exit(9)\n" + ODD, "exited with code 9"),
    ("@staticmethod\ndef auto_complete_config(config):\n    os._exit(9)\n" + ODD, "exited with code 9"),
    ("@staticmethod\ndef auto_complete_config(config):\n    raise RuntimeError('not now')\n" + ODD, "RuntimeError: not now"),
])
def test_a_load_that_fails_says_why(tmp_path, body, text):
    write(tmp_path, "m", body)
    with servers.Server(tmp_path, env=ENVIRONMENT, ready=False, flags=["--exit-on-error=false"]) as running:
        servers.wait_for(lambda: text in running.log(), 60, "it is refused")
        assert not children_of(running)
        assert "are not back" not in running.log(), "the server has all that the backend has made"


def test_an_interpreter_that_does_not_start_ends_in_time(tmp_path):
    write(tmp_path / "models", "m", ODD)
    (tmp_path / "python3").write_text("#!/bin/sh\nexec sleep 1000\n")
    (tmp_path / "python3").chmod(0o755)
    with servers.Server(tmp_path / "models", env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, ready=False, flags=[
            "--exit-on-error=false", "--backend-config=python,stub-timeout-seconds=1"]) as running:
        servers.wait_for(lambda: "has not started within its time" in running.log(), 60, "it is refused")
        assert not children_of(running)


def test_both_sides_poll_as_the_model_says(tmp_path):
    write(tmp_path, "m", """
        def execute(self, requests):
            return [answer(int(os.environ["CONCH_PYTHON_SPIN_US"])) for request in requests]
        """, more='parameters { key: "CONCH_PYTHON_SPIN_US" value { string_value: "50" } }\n')
    with servers.Server(tmp_path, env=ENVIRONMENT) as running:
        with tritonclient.http.InferenceServerClient(running.url, network_timeout=60) as client:
            for _ in range(20):
                assert infer(client, "m", 1) == 50


def test_a_model_without_its_file_is_refused(tmp_path):
    write(tmp_path, "m", ODD)
    (tmp_path / "m/1/model.py").unlink()
    (tmp_path / "m/1/other").touch()
    with servers.Server(tmp_path, env=ENVIRONMENT, ready=False, flags=["--exit-on-error=false"]) as running:
        servers.wait_for(lambda: "Python model file not found in" in running.log(), 60, "it is refused")


def file_bytes(running):
    """What the server's files without a name occupy."""
    return [os.stat(f"/proc/{running.pid}/fd/{fd}").st_blocks * 512 for fd in os.listdir(f"/proc/{running.pid}/fd")
            if "memfd:conch-python" in os.readlink(f"/proc/{running.pid}/fd/{fd}")]


@pytest.mark.parametrize("limit_mib", [1500, 4000])
def test_models_are_served_with_little_address_space(tmp_path, limit_mib):
    """ulimit -v, which the processes inherit, is below the memory of the machine."""
    for name in ("a", "b"):
        write(tmp_path, name, ODD)
    with servers.Server(tmp_path, env={**ENVIRONMENT, "OPENBLAS_NUM_THREADS": "1"}, wrap=("prlimit", f"--as={limit_mib << 20}")) as running:
        with tritonclient.http.InferenceServerClient(running.url, network_timeout=60) as client:
            assert [infer(client, name, 4) for name in ("a", "b")] == [4, 4]


def test_large_tensors_make_the_memory_grow(tmp_path):
    write(tmp_path, "echo", """
        def execute(self, requests):
            return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", pb_utils.get_input_tensor_by_name(r, "IN").as_numpy())])
                    for r in requests]
        """, ("input", "IN", "FP32", [-1]), ("output", "OUT", "FP32", [-1]))
    with servers.Server(tmp_path, env=ENVIRONMENT) as running:
        with tritonclient.http.InferenceServerClient(running.url, network_timeout=60) as client:
            for n in (1, 3000000, 17, 5000000):
                array = np.arange(n, dtype=np.float32)
                tensor = tritonclient.http.InferInput("IN", [n], "FP32")
                tensor.set_data_from_numpy(array)
                assert np.array_equal(client.infer("echo", [tensor]).as_numpy("OUT"), array)
        assert max(file_bytes(running)) >= 20000000
        servers.wait_for(lambda: max(file_bytes(running)) < 2 << 20, 60, "the memory of an idle model is back")
