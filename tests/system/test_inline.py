# SPDX-License-Identifier: Apache-2.0
"""Which models execute on an event loop, and that no model can block it: each server here has one loop."""

import os
import signal
import subprocess

import pytest

import onnx_models
import repository
import server as servers
from server import Server, wait_for
from wire import Connection, ask, given, infer, is_readable, request_bytes

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

import numpy  # noqa: E402

pytestmark = pytest.mark.conch_only("the genuine Triton has a thread for each instance")
ONE_LOOP = ["--http-thread-count=1"]
GATE_BODY = b'{"inputs":[{"name":"IN","datatype":"INT32","shape":[1],"data":[7]}]}'


def healthy(server):
    """On a connection of its own, which the loop must accept."""
    return ask(server, "GET", "/v2/health/live").status == 200


# ---- A model that never ends -----------------------------------------------------------------------------------------


def write_loop(root, name):
    """OUT = N, after N rounds of nothing."""
    body = helper.make_graph(
        [helper.make_node("Identity", ["go_in"], ["go_out"]), helper.make_node("Add", ["sum_in", "one"], ["sum_out"])],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("go_in", TensorProto.BOOL, []),
            helper.make_tensor_value_info("sum_in", TensorProto.INT64, [1]),
        ],
        [helper.make_tensor_value_info("go_out", TensorProto.BOOL, []), helper.make_tensor_value_info("sum_out", TensorProto.INT64, [1])],
        [numpy_helper.from_array(numpy.array([1], numpy.int64), "one")],
    )
    folder = repository.write_model(
        root, name,
        'backend: "onnxruntime"\n' + repository.tensor("input", "N", "INT64", [1]) + repository.tensor("output", "OUT", "INT64", [1])
        + "instance_group [ { count: 1 kind: KIND_CPU } ]\n",
    )
    onnx_models.write(
        folder,
        [onnx_models.tensor("N", "INT64", [1])],
        [onnx_models.tensor("OUT", "INT64", [1])],
        [helper.make_node("Loop", ["N", "", "zero"], ["OUT"], body=body)],
        [numpy_helper.from_array(numpy.array([0], numpy.int64), "zero")],
    )


def rounds(server, n):
    answer = infer(server, "loop", {"inputs": [given("N", "INT64", [1], [n])]})
    assert answer.status == 200, answer
    assert answer.json()["outputs"][0]["data"] == [n]


def begin_for_ever(server):
    """Asks for 2^62 rounds, after four short requests, on a connection that stays open."""
    for n in (1, 2, 3, 4):
        rounds(server, n)
    before = executions(server, "loop")
    connection = Connection(server)
    body = b'{"inputs":[{"name":"N","datatype":"INT64","shape":[1],"data":[%d]}]}' % 2**62
    connection.send(request_bytes("POST", "/v2/models/loop/infer", body))
    wait_for(connection.taken, 60, "the server has read the request")
    assert executions(server, "loop") == before
    return connection


def executions(server, model):
    (stats,) = ask(server, "GET", f"/v2/models/{model}/stats").json()["model_stats"]
    return stats["execution_count"]


@pytest.fixture
def endless(models):
    write_loop(models, "loop")
    repository.write_identity(models, "quick", [("INT32", [1])])
    return models


@pytest.mark.sanitize
def test_an_endless_model_holds_up_no_client_and_ends_with_its_own(endless):
    with Server(endless, flags=ONE_LOOP) as server:
        connection = begin_for_ever(server)
        for _ in range(20):
            assert healthy(server)
            assert infer(server, "quick", {"inputs": [given("INPUT0", "INT32", [1], [3])]}).status == 200
        connection.socket.close()
        rounds(server, 5)    # its one instance is free again


def test_an_endless_model_does_not_hold_up_the_stop(endless):
    with Server(endless, flags=[*ONE_LOOP, "--exit-timeout-secs=2"]) as server:
        connection = begin_for_ever(server)
        server.signal(signal.SIGTERM)
        server.wait_log("Signal (15) received.")
        assert server.wait() in (0, 1)    # 1: the execution did not end in time
        connection.socket.close()
        server.assert_no_report()
        server.process.returncode = 0


# ---- A model that is nearly always short -----------------------------------------------------------------------------


def hold(server, gated):
    """Sends a request that the backend holds, on a connection of its own."""
    gated.shut("hold.execute")
    connection = Connection(server)
    connection.send(request_bytes("POST", f"/v2/models/{gated.name}/infer", GATE_BODY))
    gated.await_reached("hold.execute")
    return connection


def let_go(gated, connection):
    gated.open("hold.execute")
    answer = connection.response()
    assert answer.status == 200, answer
    connection.socket.close()
    (gated.folder / "hold.execute.reached").unlink()


def test_one_long_execution_in_three_hundred_holds_up_no_client(models):
    gated = repository.Gated(models, "gated")
    with Server(models, flags=ONE_LOOP) as server:
        for _ in range(2):
            for _ in range(300):
                assert infer(server, "gated", {"inputs": [given("IN", "INT32", [1], [7])]}).status == 200
            connection = hold(server, gated)
            for _ in range(20):
                assert healthy(server)
            let_go(gated, connection)
        assert "has held up" not in server.log()


# ---- A backend that promises too much --------------------------------------------------------------------------------


def thread_of(server, model="gated"):
    answer = infer(server, model, {"inputs": [given("IN", "INT32", [1], [7])]})
    assert answer.status == 200, answer
    return answer.json()["parameters"]["thread"]


def hold_loop(server, gated):
    """The same, executed on the loop: repeats until the log says that the loop stands still, with all its connections."""
    told = "model 'gated' version 1, instance 'gated_0_0': an inline execution has held up its thread for "
    while True:
        wait_for(lambda: thread_of(server).startswith("http"), 60, "the model has proved itself")
        connection, probe = hold(server, gated), Connection(server)
        probe.send(request_bytes("GET", "/v2/health/live"))
        try:
            wait_for(lambda: told in server.log() or is_readable(probe.socket), 60, "the log says it")
        except AssertionError:
            gated.open("hold.execute")
            raise
        if told in server.log():
            return connection
        let_go(gated, connection)    # executed on the worker after all


@pytest.mark.skipif(servers.SANITIZED, reason="with a sanitizer no backend is quick enough to execute inline; see unit/core/threads/test_watchdog.c")
def test_a_false_promise_is_noticed_during_the_execution(models):
    gated = repository.Gated(models, "gated").shut("bounded")
    with Server(models, flags=ONE_LOOP) as server:
        connection = hold_loop(server, gated)
        assert "the model executes on threads of its own from now on" in server.log()
        let_go(gated, connection)
        assert healthy(server)

        for _ in range(64):    # small inputs do not restore inline execution so soon
            assert thread_of(server) == "gated_0_0"
        connection = hold(server, gated)
        for _ in range(20):
            assert healthy(server)
        let_go(gated, connection)
        assert server.log().count("has held up") == 1


def test_the_option_inline_is_obeyed_with_a_warning(models):
    gated = repository.Gated(models, "gated", more='parameters { key: "CONCH_EXECUTION" value { string_value: "inline" } }\n')
    gated.shut("bounded")
    with Server(models, flags=ONE_LOOP) as server:
        connection = hold(server, gated)
        server.wait_log("ms, and goes on; its CONCH_EXECUTION says 'inline'")
        let_go(gated, connection)
        assert thread_of(server).startswith("http")


# ---- Which models are bounded ----------------------------------------------------------------------------------------


def weights(name, *dims):
    return numpy_helper.from_array(numpy.zeros(dims, numpy.float32), name)


def test_small_onnx_models_are_known_to_be_bounded(models):
    node = helper.make_node
    small = {"digits", "add_sub"}
    for name in ("digits", "add_sub"):
        repository.copy_example(models, name)
    out = [onnx_models.tensor("OUT", "FP32", None)]

    def write(name, inputs, nodes, initializers=(), max_batch_size=0, is_small=False):
        folder = repository.write_model(models, name, f'backend: "onnxruntime"\nmax_batch_size: {max_batch_size}\n')
        onnx_models.write(folder, [onnx_models.tensor(*i) for i in inputs], out, nodes, initializers)
        if is_small:
            small.add(name)

    x4 = [("IN", "FP32", [4, 4])]
    write("matmul", [("IN", "FP32", ["b", 8])], [node("MatMul", ["IN", "w"], ["OUT"])], [weights("w", 8, 8)], 16, True)
    write("matmul_of_many", [("IN", "FP32", ["b", 512])], [node("MatMul", ["IN", "w"], ["OUT"])], [weights("w", 512, 512)], 16)
    write("matmul_free", [("IN", "FP32", ["n", "n"])], [node("MatMul", ["IN", "IN"], ["OUT"])])
    write("elements", x4, [node("Add", ["IN", "IN"], ["a"]), node("Sigmoid", ["a"], ["OUT"])], is_small=True)
    write("completed", [("IN", "FP32", ["n"])], [node("Relu", ["IN"], ["OUT"])], is_small=True)    # n is the batch
    write("free_behind", [("IN", "FP32", ["b", "n"])], [node("Relu", ["IN"], ["OUT"])], max_batch_size=4)
    write("outer", [("A", "FP32", [2000, 1]), ("B", "FP32", [1, 2000])], [node("Mul", ["A", "B"], ["OUT"])])
    write("conv", [("IN", "FP32", ["b", 1, 8, 8])],
          [node("Conv", ["IN", "w"], ["c"], pads=[1, 1, 1, 1]), node("MaxPool", ["c"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
           node("Flatten", ["p"], ["OUT"])],
          [weights("w", 4, 1, 3, 3)], 4, True)
    write("reshape", x4, [node("Reshape", ["IN", "to"], ["r"]), node("Gemm", ["r", "w"], ["OUT"])],
          [numpy_helper.from_array(numpy.array([1, -1], numpy.int64), "to"), weights("w", 16, 3)], is_small=True)
    write("unknown", x4, [node("CumSum", ["IN", "axis"], ["OUT"])], [numpy_helper.from_array(numpy.array(0, numpy.int64), "axis")])
    then = helper.make_graph([node("Identity", ["IN"], ["t"])], "then", [], [onnx_models.tensor("t", "FP32", [4, 4])])
    write("branch", [*x4, ("YES", "BOOL", [1])], [node("If", ["YES"], ["OUT"], then_branch=then, else_branch=then)])
    write_loop(models, "loop")

    with Server(models, flags=["--log-verbose=1"]) as server:
        told = {line.split("model '")[1].split("'")[0] for line in server.log().splitlines() if " is small: a run takes" in line}
        assert told == small, server.log()


# ---- Embedders -------------------------------------------------------------------------------------------------------

N_ASKED = 2000


def embedded(models, model, inline, *more):
    """Runs tests/programs/inline.c; returns what it prints, as numbers."""
    program = [servers.BUILD / "tests/inline", models, servers.BACKENDS, model, str(N_ASKED), "yes" if inline else "no", *more]
    done = subprocess.run(program, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0 and not servers.SANITIZER.search(done.stderr), done
    return dict((word.split("=")[0], int(word.split("=")[1])) for word in done.stdout.split())


@pytest.fixture
def for_embedders(models):
    repository.write_identity(models, "plain", [("FP32", [1])], max_batch_size=4)
    repository.write_identity(models, "waits", [("FP32", [1])], max_batch_size=4, execute_delay_ms=1)
    for strategy in ("direct", "oldest"):
        config = f'backend: "identity"\nmax_batch_size: 4\nsequence_batching {{ {strategy} {{ }} }}\n'
        config += repository.tensor("input", "INPUT0", "FP32", [1]) + repository.tensor("output", "OUTPUT0", "FP32", [1])
        repository.write_model(models, strategy, config + "instance_group [ { count: 1 kind: KIND_CPU } ]\n")
    return models


def test_embedders_that_ask_for_inline_are_answered_inside_the_call(for_embedders):
    # All requests except those that prove the model, if the machine is not busy; a sanitizer or pauses make fast models
    # slow.
    at_least = 0 if servers.SANITIZED or "PAUSES" in os.environ else N_ASKED / 4

    def are_inside(model, *more):
        got = embedded(for_embedders, model, True, *more)
        assert got["answered"] == 2 * N_ASKED
        assert got["nested"] == 0    # a callback's request waits until the callback is over
        return got["inside"] > at_least

    for model, more in (("plain", []), ("oldest", ["sequence"])):
        wait_for(lambda: are_inside(model, *more), 120, "the model has proved itself")    # noqa: B023 - it is over then


@pytest.mark.sanitize
def test_embedders_are_not_answered_inside_the_call_by_default(for_embedders):
    assert embedded(for_embedders, "plain", False) == {"inside": 0, "nested": 0, "answered": 2 * N_ASKED}
    # Paddings may stand between the requests of a batch.
    assert embedded(for_embedders, "direct", True, "sequence") == {"inside": 0, "nested": 0, "answered": 2 * N_ASKED}


def test_unbounded_models_do_not_answer_inside_the_call(for_embedders, monkeypatch):
    monkeypatch.setitem(globals(), "N_ASKED", 50)
    assert embedded(for_embedders, "waits", True) == {"inside": 0, "nested": 0, "answered": 100}
