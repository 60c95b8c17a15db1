# SPDX-License-Identifier: Apache-2.0
"""Children of our Python backend that end, hang, or break the rules: each request has one answer, the model serves again, other
models are undisturbed, and no process, descriptor or mapping is left."""

import concurrent.futures
import os
import pathlib
import signal

import numpy as np
import pytest
import tritonclient.http
from tritonclient.utils import InferenceServerException

import python_models
import repository
import server as servers
from python_models import (DECOUPLED, ECHO, NUMBER, Streaming, children, infer, left_behind, number, only_in_conch, words,
                           write_python)

# What the process of a model does to itself; "fine" answers.
DOES = """
def initialize(self, args):
    self.folder = args["model_repository"]

def execute(self, requests):
    import ctypes, mmap, os, signal, socket, sys, threading, time
    what = pb_utils.get_input_tensor_by_name(requests[0], "WHAT").as_numpy()[0].decode()
    if what == "exit":
        os._exit(7)
    if what == "exit 0":
        os._exit(0)
    if what == "segv":
        ctypes.string_at(0)
    if what == "abort":
        os.abort()
    if what == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "close":
        os.closerange(3, 200)
    if what == "close the socket":
        os.close(3)
    if what == "hang":
        open(self.folder + "/hangs", "w").close()
        threading.Event().wait()
    if what == "spin":
        open(self.folder + "/hangs", "w").close()
        while True:
            pass
    if what == "fork":
        if os.fork() == 0:
            time.sleep(0.2)
            os._exit(0)
        os.wait()
    if what == "fork and answer twice":
        os.fork()
    if what == "memory":
        held = []
        while True:
            held.append(bytearray(64 << 20))
    if what.startswith("scribble"):
        noise = os.urandom(1 << 16)
        which = int(what.split()[1])
        if which == 3:
            s = socket.socket(fileno=os.dup(3))
            for i in range(200):
                s.send(noise[i * 40:(i + 1) * 40])
        else:
            size = os.fstat(which).st_size
            m = mmap.mmap(which, size)
            m[:min(size, len(noise))] = noise[:min(size, len(noise))]
            if size > 1 << 17:
                for at in range(0, size - len(noise), 1 << 17):
                    m[at:at + len(noise)] = noise
    if what == "truncate":
        for fd in (4, 5, 6):
            try:
                os.ftruncate(fd, 0)
            except OSError:
                pass
    return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([os.getpid()], np.int32))]) for request in requests]
"""
WHAT = ("input", "WHAT", "BYTES", [1])
OUT = ("output", "OUT", "INT32", [1])

# The models of the server that most tests share. A process that ends makes the pause before its next start longer, so tests that
# end several have a model for themselves.
MODELS = ("does", "breaks", "hang", "spin", "ends", "other")


@pytest.fixture(scope="module", name="ours")
def place_of_ours(host, tmp_path_factory):
    return python_models.place("ours", host, tmp_path_factory.mktemp("backends"))


@pytest.fixture(scope="module")
def _running(ours, tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    for name in MODELS:
        write_python(root, name, DOES, WHAT, OUT)
    with ours.start(root) as running:
        running.root = root
        yield running


@pytest.fixture
def running(_running):
    _running.assert_alive()
    await_fine(_running, "does")
    yield _running
    _running.assert_alive()


def pid_of(server, model="does"):
    return int(infer(server, model, words(WHAT="fine")).as_numpy("OUT")[0])


def await_fine(server, model="does", within_s=60):
    def fine():
        try:
            return pid_of(server, model)
        except InferenceServerException:
            return None

    return servers.wait_for(fine, within_s, f"{model} serves again")


def answers(server, model, tensors):
    try:
        infer(server, model, tensors)
    except InferenceServerException:
        return False
    return True


def is_ready(server, model):
    with tritonclient.http.InferenceServerClient(server.url) as client:
        return client.is_model_ready(model)


ENDS = {"exit": "exit code 7|ended with 7|code 7", "exit 0": "", "segv": "signal 11|SIGSEGV|Segmentation", "abort": "signal 6|SIGABRT|Abort",
        "kill": "signal 9|SIGKILL|Killed"}


@pytest.mark.parametrize("what", ENDS)
def test_a_process_that_ends_is_started_again(running, ours, what):
    """Its request is answered with the cause; the other model does not notice."""
    other, before = pid_of(running, "other"), pid_of(running)
    with pytest.raises(InferenceServerException) as raised:
        infer(running, "does", words(WHAT=what))
    assert raised.value.status() in ("503", "500")
    assert any(cause in raised.value.message() for cause in ENDS[what].split("|")), raised.value.message()
    assert "/" not in raised.value.message(), "no file's name goes to a client"
    after = await_fine(running)
    assert after != before
    assert pid_of(running, "other") == other
    servers.wait_for(lambda: len(children(running)) == len(MODELS), 60, "only its successor runs")


@pytest.mark.parametrize("what", ["close", "close the socket", "fork", "fork and answer twice", "scribble 3", "scribble 4", "scribble 5",
                                  "scribble 6", "truncate"])
def test_a_process_that_breaks_the_rules_harms_itself_alone(running, what):
    """Whatever the answer is: there is one, the server lives, and the model serves again."""
    other, before = pid_of(running, "other"), pid_of(running, "breaks")
    try:
        infer(running, "breaks", words(WHAT=what))
    except InferenceServerException as e:
        assert e.message()
    await_fine(running, "breaks")
    # The answer takes another way than the socket and may pass it; what is in the socket, or its end, ends the process.
    if what in ("close", "close the socket", "scribble 3"):
        servers.wait_for(lambda: await_fine(running, "breaks") != before, 30, "another process serves")
    for _ in range(3):
        pid_of(running, "breaks")
    assert pid_of(running, "other") == other
    servers.wait_for(lambda: len(children(running)) == len(MODELS), 30, "one process for each instance")


@pytest.mark.parametrize("what", ["hang", "spin"])
def test_a_process_that_is_killed_while_it_executes(running, what):
    pid = pid_of(running, what)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        asked = pool.submit(infer, running, what, words(WHAT=what))
        servers.wait_for((running.root / what / "hangs").exists, 30, "it executes")
        os.kill(pid, signal.SIGSTOP)
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(InferenceServerException):
            asked.result(30)
    await_fine(running, what)


@only_in_conch("2.51 does not ask an instance whether it is ready")
def test_while_a_process_starts_its_model_is_not_ready(ours, tmp_path):
    """And only that model. The first start again comes at once."""
    root = tmp_path / "models"
    slow = DOES.replace("def initialize(self, args):\n", """def initialize(self, args):
    import os, time
    while os.path.exists(args["model_repository"] + "/hold"):
        time.sleep(0.01)
""")
    folder = write_python(root, "slow", slow, WHAT, OUT)
    write_python(root, "other", DOES, WHAT, OUT)
    with ours.start(root) as running:
        (folder / "hold").touch()
        os.kill(pid_of(running, "slow"), signal.SIGKILL)
        servers.wait_for(lambda: not is_ready(running, "slow"), 60, "it is not ready")
        assert is_ready(running, "other")
        with pytest.raises(InferenceServerException) as raised:
            infer(running, "slow", words(WHAT="fine"))
        assert raised.value.status() == "503"
        (folder / "hold").unlink()
        servers.wait_for(lambda: is_ready(running, "slow"), 30, "it is ready again")
        pid_of(running, "slow")


def descriptors(server):
    return len(os.listdir(f"/proc/{server.pid}/fd"))


def mappings(server):
    return pathlib.Path(f"/proc/{server.pid}/maps").read_text().count("memfd")


def test_nothing_is_left_of_several_ends(running):
    """Few, since the pauses before further starts grow."""
    servers.wait_for(lambda: len(children(running)) == len(MODELS), 60, "one process for each instance")
    before = descriptors(running), mappings(running)
    for _ in range(4):
        with pytest.raises(InferenceServerException):
            infer(running, "ends", words(WHAT="exit"))
        await_fine(running, "ends")
    servers.wait_for(lambda: len(children(running)) == len(MODELS), 60, "one process for each instance")
    servers.wait_for(lambda: descriptors(running) <= before[0] + 2, 60, "the descriptors, and two connections of clients, are all")
    servers.wait_for(lambda: mappings(running) <= before[1], 60, "the mappings of the ended processes are gone")


def test_each_request_of_many_has_one_answer_when_the_process_ends(running):
    pid = pid_of(running)

    def ask(i):
        try:
            infer(running, "does", words(WHAT="fine"))
            return "answer"
        except InferenceServerException as e:
            return e.status()

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(ask, i) for i in range(200)]
        servers.wait_for(lambda: sum(a.done() for a in asked) > 20, 30, "some are answered")
        os.kill(pid, signal.SIGKILL)
        got = [a.result(60) for a in asked]
    assert set(got) <= {"answer", "503"}
    assert got.count("answer") > 20


STREAMS = """
def execute(self, requests):
    import os
    for request in requests:
        sender = request.get_response_sender()
        sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([os.getpid()], np.int32))]))
        self.kept = getattr(self, "kept", []) + [sender]
"""


def test_open_streams_end_with_the_process(ours, tmp_path):
    root = tmp_path / "models"
    write_python(root, "streams", STREAMS, *NUMBER, more=DECOUPLED)
    with ours.start(root) as running:
        with Streaming(running) as stream:
            for _ in range(3):
                stream.send("streams", number(1))
            pids = {int(stream.next()[0].as_numpy("OUT")[0]) for _ in range(3)}
            (pid,) = pids
            os.kill(pid, signal.SIGKILL)
            for _ in range(3):
                _, error = stream.next(30)
                assert error

        def again():
            with Streaming(running) as stream:
                stream.send("streams", number(1))
                result, _ = stream.next()
                return result and int(result.as_numpy("OUT")[0])

        later = servers.wait_for(again, 30, "it serves again")
        assert later != pid
        os.kill(later, signal.SIGKILL)    # the model never ends a request


CALLS = """
def execute(self, requests):
    import os
    inner = pb_utils.InferenceRequest(model_name="slow", requested_output_names=["OUTPUT0"],
                                      inputs=[pb_utils.Tensor("INPUT0", np.array([1], np.float32))])
    if pb_utils.get_input_tensor_by_name(requests[0], "IN").as_numpy()[0] == 1:
        import threading
        threading.Timer(0.05, lambda: os._exit(1)).start()
    inner.exec()
    return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([5], np.int32))]) for request in requests]
"""


def test_a_process_may_end_amidst_a_call(ours, tmp_path):
    root = tmp_path / "models"
    write_python(root, "calls", CALLS, *NUMBER)
    repository.write_identity(root, "slow", [("FP32", [-1])], execute_delay_ms=300)
    with ours.start(root) as running:
        for _ in range(3):
            with pytest.raises(InferenceServerException):
                infer(running, "calls", number(1))
            servers.wait_for(lambda: answers(running, "calls", number(0)), 30, "it serves again")


# Gets the signal at the step of a message that its input names.
STEPS = """
def execute(self, requests):
    import os, signal, threading
    what = pb_utils.get_input_tensor_by_name(requests[0], "WHAT").as_numpy()[0].decode()
    name, _, step = what.partition(" ")
    end = lambda: os.kill(os.getpid(), getattr(signal, name))
    if step == "the message is read":
        end()
    if step == "a note is on its way":
        pb_utils.Logger.log_info("soon")
        requests[0].is_cancelled()
        end()
    if step == "a call is under way":
        inner = pb_utils.InferenceRequest(model_name="slow", requested_output_names=["OUTPUT0"],
                                          inputs=[pb_utils.Tensor("INPUT0", np.array([1], np.float32))])
        threading.Timer(0.02, end).start()
        inner.exec()
        threading.Event().wait()

    class Ends(pb_utils.Tensor):
        def __del__(self):
            end()

    kind = Ends if step == "the answer is sent" else pb_utils.Tensor
    held = pb_utils.empty("OUT", np.int32, [1])
    held.as_numpy()[0] = os.getpid()
    if step == "the answer is made":
        end()
    return [pb_utils.InferenceResponse([kind("OUT", held.as_numpy())]) for request in requests]
"""
EACH_STEP = {f"{sort}_{i}": f"{sort} {step}" for sort in ("SIGKILL", "SIGSTOP") for i, step in enumerate(
    ("the message is read", "a note is on its way", "a call is under way", "the answer is made", "the answer is sent"))}


@pytest.fixture(scope="module")
def stepping(ours, tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    for name in EACH_STEP:
        write_python(root, name, STEPS, WHAT, OUT, more='parameters { key: "CONCH_EXECUTE_TIMEOUT_MS" value { string_value: "700" } }\n')
    repository.write_identity(root, "slow", [("FP32", [-1])], execute_delay_ms=100)
    with ours.start(root) as running:
        yield running


@only_in_conch("is the same in the genuine server")
@pytest.mark.parametrize("model", EACH_STEP)
def test_a_signal_at_each_step_of_a_message_has_an_answer(stepping, model):
    """Each model has one such end, after which a process starts at once. One that is stopped is ended by the time limit."""
    before = pid_of(stepping, model)
    if EACH_STEP[model].endswith("the answer is sent"):
        assert infer(stepping, model, words(WHAT=EACH_STEP[model])).as_numpy("OUT").tolist() == [before]
        answers(stepping, model, words(WHAT="fine"))
    else:
        with pytest.raises(InferenceServerException) as raised:
            infer(stepping, model, words(WHAT=EACH_STEP[model]))
        assert raised.value.status() == "503"
    assert await_fine(stepping, model) != before
    servers.wait_for(lambda: len(children(stepping)) == len(EACH_STEP), 30, "one process for each instance")


def test_a_stopped_process_is_ended_by_the_time_limit(ours, tmp_path):
    """CONCH_EXECUTE_TIMEOUT_MS: SIGSTOP is as good as an endless loop."""
    root = tmp_path / "models"
    limit = 'parameters { key: "CONCH_EXECUTE_TIMEOUT_MS" value { string_value: "1500" } }\n'
    write_python(root, "does", DOES, WHAT, OUT, more=limit)
    with ours.start(root) as running:
        pid = pid_of(running)
        os.kill(pid, signal.SIGSTOP)
        with pytest.raises(InferenceServerException) as raised:
            infer(running, "does", words(WHAT="fine"))
        assert raised.value.status() in ("503", "504", "500")
        assert await_fine(running) != pid


def test_a_model_that_hangs_is_unloaded(ours, tmp_path):
    """After stub-timeout-seconds its process is ended."""
    root = tmp_path / "models"
    body = DOES + "\ndef finalize(self):\n    import threading\n    threading.Event().wait()\n"
    write_python(root, "does", body, WHAT, OUT)
    flags = ["--backend-config=python,stub-timeout-seconds=1", "--model-control-mode=explicit", "--load-model=does"]
    with ours.start(root, flags=flags) as running:
        with tritonclient.http.InferenceServerClient(running.url) as client:
            client.unload_model("does")
        servers.wait_for(lambda: not children(running), 30, "its process has ended")


def test_a_server_that_is_killed_takes_its_processes_along(ours, tmp_path):
    root = tmp_path / "models"
    write_python(root, "does", DOES, WHAT, OUT)
    with ours.server(root) as running:
        assert left_behind(running)[1]
        try:
            running.kill()
            servers.wait_for(lambda: left_behind(running) == ([], []), 60, "they have ended")
        finally:
            running.start()
            running._await_start()


def test_a_process_without_memory_is_an_error(ours, tmp_path):
    """A limit of the process's own. What is at fault is told, and the model serves again."""
    root = tmp_path / "models"
    body = DOES.replace('    self.folder = args["model_repository"]\n', '''    self.folder = args["model_repository"]
    import resource
    resource.setrlimit(resource.RLIMIT_DATA, (1 << 30, 1 << 30))
''')
    write_python(root, "does", body, WHAT, OUT)
    with ours.start(root) as running:
        for _ in range(2):
            with pytest.raises(InferenceServerException) as raised:
                infer(running, "does", words(WHAT="memory"))
            assert "MemoryError" in raised.value.message()
            await_fine(running)


LOADS_BADLY = {
    "no_class": ("x = 1\n", "TritonPythonModel"),
    "exits": ("import os\nos._exit(3)\n", "exit code 3|ended with 3|code 3"),
    "exits_quietly": ("import sys\nsys.exit(0)\n", ""),
    "raises": ("raise OSError('import fails')\n", "OSError: import fails"),
    "segv": ("import ctypes\nctypes.string_at(0)\n", "signal 11|SIGSEGV|Segmentation"),
}


def test_models_that_cannot_start_say_why(ours, tmp_path):
    """2.51 hangs on a model without model.py (reference/behaviours §27.11)."""
    root = tmp_path / "models"
    for name, (text, _) in LOADS_BADLY.items():
        folder = write_python(root, name, ECHO, *NUMBER)
        (folder / "1/model.py").write_text(text)
    folder = write_python(root, "no_file", ECHO, *NUMBER)
    (folder / "1/model.py").unlink()
    write_python(root, "good", DOES, WHAT, OUT)
    write_python(root, "no_execute", "pass\n", *NUMBER)
    with ours.start(root, ready=False) as running:
        with pytest.raises(InferenceServerException, match="does not implement `execute` method"):
            infer(running, "no_execute", number(1))
        with tritonclient.http.InferenceServerClient(running.url) as client:
            models = {row["name"]: row for row in client.get_model_repository_index()}
        for name, (_, text) in {**LOADS_BADLY, "no_file": ("", "model.py")}.items():
            assert models[name]["state"] == "UNAVAILABLE", name
            assert any(part in models[name]["reason"] for part in text.split("|")), (name, models[name]["reason"])
        assert pid_of(running, "good")
        servers.wait_for(lambda: len(children(running)) == 2, 30, "no process of the others is left")


def test_an_interpreter_that_is_not_there_is_an_error(ours, tmp_path):
    root = tmp_path / "models"
    (tmp_path / "nothing").mkdir()
    write_python(root, "m", ECHO, *NUMBER, more=f'parameters {{ key: "EXECUTION_ENV_PATH" value {{ string_value: "{tmp_path}/nowhere" }} }}\n')
    with ours.start(root, ready=False) as running:
        with tritonclient.http.InferenceServerClient(running.url) as client:
            (row,) = client.get_model_repository_index()
        assert f"EXECUTION_ENV_PATH '{tmp_path}/nowhere': No such file or directory" in row["reason"]


@only_in_conch("is about our server")
@pytest.mark.parametrize("shm", ["size=64k", "ro"])
def test_dev_shm_is_not_needed_if_the_user_may_mount_it_otherwise(ours, tmp_path, shm):
    """In a mount namespace of the server, /dev/shm is 64 kB large, or read-only."""
    root = tmp_path / "models"
    tensors = [("input", "IN", "FP32", [-1]), ("output", "OUT", "FP32", [-1])]
    write_python(root, "echo", ECHO, *tensors)
    wrap = ["unshare", "-m", "--propagation=private", "sh", "-c", f"mount -t tmpfs -o {shm} tmpfs /dev/shm && exec \"$0\" \"$@\""]
    if os.system("unshare -m true 2>/dev/null") != 0:
        pytest.skip("this user may not make a mount namespace")
    with ours.start(root, wrap=wrap) as running:
        array = np.arange(3_000_000, dtype=np.float32)
        for _ in range(3):
            assert np.array_equal(infer(running, "echo", {"IN": array}, protocol="grpc").as_numpy("OUT"), array)
