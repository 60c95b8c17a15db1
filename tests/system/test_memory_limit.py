# SPDX-License-Identifier: Apache-2.0
"""Lack of address space, from what a program needs to start up to plenty: the server serves, or reports why it does not.
It never dies of a signal, whichever thread finds no memory."""

import concurrent.futures
import os
import pathlib
import re
import signal
import threading
import urllib.error
import urllib.request

import numpy
import pytest

import onnx_models
import preload
import repository
from server import SANITIZED, STOP_WITHIN_S, Server, wait_for

pytestmark = [
    pytest.mark.conch_only("the genuine server needs more than this to begin"),
    pytest.mark.skipif(SANITIZED, reason="the sanitizers reserve address space of terabytes"),
]

PORT = re.compile(r"Started HTTPService at \S*:(\d+)")
MIB = 1 << 20


def ask(port, path, body=None):
    """Was there an answer, of whatever kind?"""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/{path}", data=body, timeout=30) as answer:
            answer.read()
    except urllib.error.HTTPError as error:
        error.read()
    except OSError:    # the connection was not accepted, or cut off, which is allowed, too
        return


def limited(models, limit_mib, ask_it, *flags, wrap=()):
    """Starts the server, calls ask_it(port) if it serves, and stops it: (exit code, what ask_it returned or None, the log)."""
    server = Server(models, flags=["--http-thread-count=2", "--exit-timeout-secs=20", *flags],
                    wrap=[*wrap, "prlimit", f"--as={limit_mib * MIB}", "--"]).start()
    try:
        wait_for(lambda: server.process.poll() is not None or "Loaded " in server.log(), 120, "it has started, or not")
        found = PORT.search(server.log())
        result = ask_it(found[1]) if found and server.process.poll() is None else None
        if server.process.poll() is None:
            server.signal(signal.SIGTERM)
        code = server.process.wait(STOP_WITHIN_S)
    finally:
        server.process.kill()
    server.out.join()
    server.err.join()
    return code, result, server.log()


def load_and_ask(port):
    image = b'{"inputs":[{"name":"image","datatype":"FP32","shape":[1,64],"data":[%s]}]}' % b",".join([b"1"] * 64)
    for _ in range(3):    # the first load may fail, and must not harm the next one
        ask(port, "repository/models/digits/load", b"")
        ask(port, "models/digits/infer", image)
        ask(port, "repository/index", b"")


@pytest.fixture
def both(models):
    repository.copy_example(models, "digits")
    repository.write_identity(models, "m", [("FP32", [-1])])
    return models


# 33 starts: some end before a thread of theirs runs, some when a model is loaded, some after that.
@pytest.mark.parametrize("mode", ["none", "explicit"])
def test_a_start_succeeds_or_gives_its_reason(both, mode):
    flags = [f"--model-control-mode={mode}"] + (["--load-model=m"] if mode == "explicit" else [])
    # On two processors at most: ONNX Runtime has a thread for each, with a stack of 8 MiB.
    processors = ",".join(map(str, sorted(os.sched_getaffinity(0))[:2]))
    codes = []
    for limit_mib in [*range(22, 92, 7), *range(92, 230, 6)]:
        code, _, log = limited(both, limit_mib, load_and_ask, *flags, wrap=["taskset", "--cpu-list", processors])
        assert code in (0, 1), f"{limit_mib} MiB: ended with {code}\n{log}"
        if code == 1:
            assert re.search(r"^error: |^conch: |\bE\d{4} .*\"(failed|error)", log, re.MULTILINE), f"{limit_mib} MiB:\n{log}"
        codes.append(code)
    assert codes[0] == 1 and codes[-1] == 0, codes    # the range covers both ends
    assert len(codes) == 33


# ---- A large machine -----------------------------------------------------------------------------


def idle_kb(models, n_processors):
    """The memory of a server without models."""
    env = preload.environment("processors", PROCESSORS=str(n_processors))
    with Server(models, flags=["--http-thread-count=2"], env=env) as server:
        status = pathlib.Path(f"/proc/{server.pid}/status").read_text(encoding="ascii")
    return int(re.search(r"^RssAnon:\s+(\d+) kB", status, re.M)[1])


def test_a_large_machine_makes_the_server_no_larger(models):
    """Except for its own threads, whose number the options give."""
    assert idle_kb(models, 128) < idle_kb(models, 1) + 2000


# ---- ONNX Runtime's threads

ROW = 512
HELD_FLAGS = ["--model-control-mode=explicit", "--load-model=m", "--backend-config=onnxruntime,intra_op_thread_count=4"]


@pytest.fixture
def heavy(models):
    """A model whose runs keep several threads of the library's pool busy."""
    onnx = pytest.importorskip("onnx")
    repository.write_identity(models, "m", [("FP32", [-1])])
    weights = onnx.numpy_helper.from_array(numpy.ones((ROW, ROW), numpy.float32), "W")
    node = onnx.helper.make_node
    onnx_models.write(
        models / "heavy", [onnx_models.tensor("IN", "FP32", ["b", ROW])], [onnx_models.tensor("OUT", "FP32", ["b", ROW])],
        [node("MatMul", ["IN", "W"], ["T"]), node("Softmax", ["T"], ["U"]), node("MatMul", ["U", "W"], ["OUT"])], [weights])
    (models / "heavy" / "config.pbtxt").write_text('backend: "onnxruntime"\nmax_batch_size: 64\n')
    return models


def execute(port):
    rows = 64
    head = (b'{"inputs":[{"name":"IN","datatype":"FP32","shape":[%d,%d],"parameters":{"binary_data_size":%d}}],'
            b'"outputs":[{"name":"OUT","parameters":{"binary_data":true}}]}') % (rows, ROW, rows * ROW * 4)
    asked = urllib.request.Request(
        f"http://127.0.0.1:{port}/v2/models/heavy/infer", data=head + bytes(rows * ROW * 4),
        headers={"Inference-Header-Content-Length": str(len(head)), "Content-Type": "application/octet-stream"})
    try:
        with urllib.request.urlopen(asked, timeout=30) as answer:
            return len(answer.read()) > rows * ROW * 4
    except OSError:    # an error, or the connection was cut off
        return False


def load_and_execute(port):
    """Loads and executes, again and again; returns how many runs succeeded."""
    n_done = 0
    for _ in range(2):
        ask(port, "repository/models/heavy/load", b"")
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            n_done += sum(pool.map(lambda _: execute(port), range(18)))
        ask(port, "repository/models/heavy/unload", b"")
    return n_done


def test_models_execute_or_their_clients_get_the_reason(heavy):
    """Before, a pool of the library's own that got only some of its threads waited for ever for the others."""
    runs = []
    for limit_mib in [*range(150, 250, 4), 400]:
        code, n_done, log = limited(heavy, limit_mib, load_and_execute, *HELD_FLAGS)
        assert code in (0, 1), f"{limit_mib} MiB: ended with {code}\n{log}"
        runs.append(n_done or 0)
    assert runs[0] == 0 and runs[-1] == 36, runs    # the range covers both ends


# ---- C++ exceptions on those threads: they are not caught, and a run waits for ever ---------------

SORTED = 4_000_000
ASK_SORTED = b'{"inputs":[{"name":"IN","datatype":"FP32","shape":[1],"data":[3]}]}'


@pytest.fixture
def sorting(models):
    """A model that sorts four rows in parallel, each with 64 MB that are allocated by the sorting thread."""
    onnx = pytest.importorskip("onnx")
    node = onnx.helper.make_node

    def constant(name, values):
        return onnx.numpy_helper.from_array(numpy.array(values, numpy.int64), name)

    onnx_models.write(
        models / "sorting", [onnx_models.tensor("IN", "FP32", [1])], [onnx_models.tensor("OUT", "FP32", [1])],
        [node("Expand", ["IN", "SHAPE"], ["ROWS"]), node("TopK", ["ROWS", "K"], ["BEST", "AT"], axis=1),
         node("ReduceMax", ["BEST"], ["MAX"], keepdims=0), node("Reshape", ["MAX", "ONE"], ["OUT"])],
        [constant("SHAPE", [4, SORTED]), constant("K", [SORTED // 4]), constant("ONE", [1])])
    (models / "sorting" / "config.pbtxt").write_text('backend: "onnxruntime"\nmax_batch_size: 0\n')
    return models


def post(port, path, body):
    """Returns (status, text); fails without an answer."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/{path}", data=body, timeout=30) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def sort(port):
    """Returns how many of two clients the model has served; the others got the reason."""
    if post(port, "repository/models/sorting/load", b"")[0] != 200:
        return 0
    n_done = 0
    for _ in range(2):
        status, text = post(port, "models/sorting/infer", ASK_SORTED)
        assert status == 200 or b"bad_alloc" in text or b"Failed to allocate" in text, text
        n_done += status == 200
    return n_done


def test_memory_that_a_running_model_wants_is_refused(sorting):
    """On its default threads. With other settings the same limits ended in endless runs, and in crashes."""
    runs = []
    for limit_mib in range(120, 480, 20):
        code, n_done, log = limited(sorting, limit_mib, sort, "--model-control-mode=explicit")
        assert code in (0, 1), f"{limit_mib} MiB: ended with {code}\n{log}"
        assert "has lost a thread" not in log
        runs.append(n_done or 0)
    assert runs[0] == 0 and runs[-1] == 2, runs    # the range covers both ends


def test_a_lost_thread_is_logged(sorting):
    """With the option, the library has threads all the same. What then happens to the run is up to ONNX Runtime: an error,
    a wait for ever or a crash. The log always reports it."""
    n_lost = 0
    flags = ["--http-thread-count=2", "--model-control-mode=explicit", "--load-model=sorting",
             "--backend-config=onnxruntime,intra_op_thread_count=4"]
    for limit_mib in range(280, 520, 20):
        server = Server(sorting, flags=flags, wrap=["prlimit", f"--as={limit_mib * MIB}", "--"]).start()
        try:
            wait_for(lambda: server.process.poll() is not None or "Loaded " in server.log(), 120, "it has started, or not")
            found = PORT.search(server.log())
            asker = threading.Thread(target=ask, args=(found[1], "models/sorting/infer", ASK_SORTED), daemon=True)
            asker.start()
            wait_for(lambda: "has lost a thread" in server.log() or not asker.is_alive(), 60, "an answer, an end, or a word")
            n_lost += "has lost a thread" in server.log()
        finally:
            server.process.kill()
        server.process.wait()
        asker.join()
        server.out.join()
        server.err.join()
    assert n_lost > 0
