# SPDX-License-Identifier: Apache-2.0
"""Stopping: accepted requests are answered, and idle connections do not delay the end."""

import json
import re
import signal
import socket
import time

import pytest

import repository
from server import REFERENCE, Server, wait_for
from wire import Connection, ask, given, infer, request_bytes

OURS = pytest.mark.conch_only("a fault of 2.51 that is not copied")
ONE = b'{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1],"data":[7]}]}'


@pytest.fixture
def slow(models):
    """A server whose model takes 0.4 s for a request, one at a time."""
    repository.write_identity(models, "slow", [("FP32", [-1])], execute_delay_ms=400)
    repository.write_identity(models, "quick", [("FP32", [-1])])
    with Server(models) as server:
        yield server


def send_slow(server):
    connection = Connection(server)
    connection.send(request_bytes("POST", "/v2/models/slow/infer", ONE))
    wait_for(connection.taken, 60, "the server has read the request")
    return connection


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_accepted_requests_are_answered(slow, number):
    """One is executing, two wait in the queue; all are answered before the server ends."""
    connections = [send_slow(slow) for _ in range(3)]
    slow.signal(number)
    for connection in connections:
        answer = connection.response()
        assert answer.status == 200, answer
        assert answer.json()["outputs"][0]["data"] == [7.0]
        if REFERENCE:
            connection.socket.close()  # the stop would wait for this connection as long as it may
        else:
            assert connection.closed()
    assert slow.wait() == 0
    assert f"Signal ({int(number)}) received." in slow.log()


@OURS
def test_no_new_connections_while_stopping(slow):
    connection = send_slow(slow)
    slow.signal(signal.SIGTERM)

    def refused():
        try:
            socket.create_connection((slow.address, slow.port), timeout=60).close()
        except ConnectionRefusedError:
            return True
        except ConnectionResetError:    # it was not accepted yet when the port closed
            pass
        return False

    wait_for(refused, 60, "new connections are refused")
    assert connection.response().status == 200
    assert slow.wait() == 0


@OURS
def test_idle_connections_do_not_delay_the_end(slow):
    """If the stop waited for one until the exit timeout, the exit code would be 1."""
    idle = [Connection(slow) for _ in range(20)]
    for connection in idle[:10]:
        assert connection.request("GET", "/v2/health/live").status == 200
    slow.signal(signal.SIGTERM)
    for connection in idle:
        assert connection.closed()
    assert slow.wait() == 0


@OURS
def test_half_a_request_delays_the_end_no_longer_than_others(models):
    """The time limit of a body is longer than this test waits for the end."""
    repository.write_identity(models, "m", [("FP32", [-1])])
    flags = ["--exit-timeout-secs=1", "--http-stall-timeout-secs=3600"]
    with Server(models, flags=flags) as server, Connection(server) as connection:
        connection.send(request_bytes("POST", "/v2/models/m/infer", headers={"Content-Length": 1000}) + b"{")
        wait_for(connection.taken, 60, "the server has read it")
        server.signal(signal.SIGTERM)
        server.wait()


def test_the_exit_timeout_is_the_longest_wait(models):
    """The model takes longer than this test waits for the end."""
    repository.write_identity(models, "slow", [("FP32", [-1])], execute_delay_ms=3600_000)
    server = Server(models, flags=["--exit-timeout-secs=1"])
    with pytest.raises(AssertionError, match="ended with 1"):
        with server:
            connection = send_slow(server)
            server.signal(signal.SIGTERM)
            assert server.wait() == 1
            connection.socket.close()
    assert "Exit timeout expired. Exiting immediately." in server.log()


@OURS
def test_a_client_that_leaves_disturbs_no_other(slow):
    leaves, stays = send_slow(slow), send_slow(slow)
    leaves.socket.close()
    assert stays.response().status == 200


def test_a_server_starts_and_stops_several_times(models):
    repository.write_identity(models, "m", [("FP32", [-1])])
    for _ in range(3):
        with Server(models) as server:
            assert infer(server, "m", {"inputs": [given("INPUT0", "FP32", [1], [1])]}).status == 200


# ---- With a model that executes when the test opens its gate -------------------------------------

IN = b'{"inputs":[{"name":"IN","datatype":"INT32","shape":[1],"data":[7]}]}'


@pytest.fixture
def gated(models):
    return repository.Gated(models, "gated").shut("hold.execute")


def send_held(server):
    connection = Connection(server)
    connection.send(request_bytes("POST", "/v2/models/gated/infer", IN))
    wait_for(connection.taken, 60, "the server has read the request")
    return connection


def in_order(log, *texts):
    at = 0
    for text in texts:
        assert text in log[at:], f"{text!r} is not in {log[at:]}"
        at = log.index(text, at) + len(text)


@OURS
def test_a_slow_model_does_not_hold_up_a_fast_one(models, gated):
    """A long execution must not stand between a connection and another model."""
    repository.write_identity(models, "quick", [("FP32", [-1])])
    with Server(models) as server:
        waiting = send_held(server)
        for _ in range(20):
            assert infer(server, "quick", {"inputs": [given("INPUT0", "FP32", [1], [1])]}).status == 200
            assert ask(server, "GET", "/v2/health/ready").status == 200
        gated.open("hold.execute")
        assert waiting.response().status == 200


@pytest.mark.sanitize
@OURS
def test_requests_of_clients_that_have_left_are_not_executed(models, gated):
    """Ten are asked, nine clients leave. When the server has noticed that, another one asks. Two are executed."""
    with Server(models, flags=["--http-thread-count=1"]) as server:
        waiting = [send_held(server) for _ in range(10)]
        for connection in waiting[1:]:
            connection.socket.close()
        # The one thread handles events in order: this answer comes after the nine ends.
        assert ask(server, "GET", "/v2/health/live").status == 200
        last = send_held(server)
        gated.open("hold.execute")
        assert waiting[0].response().status == last.response().status == 200
        (told,) = ask(server, "GET", "/v2/models/gated/stats").json()["model_stats"]
        assert told["inference_stats"]["success"]["count"] == told["execution_count"] == 2


@OURS
def test_the_stop_lasts_as_long_as_the_longest_request(models, gated):
    """The stop is not shorter: it waits for the request. It is not longer: the rest takes no time. The log says what it
    waits for."""
    with Server(models) as server:
        held, idle = send_held(server), Connection(server)
        server.signal(signal.SIGTERM)
        assert idle.closed()
        first = re.compile("Timeout [123][0-9]: Found 1 HTTP service connections")    # 30, unless a loop was late to close the idle one
        wait_for(lambda: first.search(server.log()), 60, "one is left")
        later = re.compile("Timeout [12][0-9]: Found 1 HTTP service connections")    # a second or more: it goes on waiting
        wait_for(lambda: later.search(server.log()), 60, "it waits")
        gated.open("hold.execute")
        answer = held.response()
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        assert answer.json()["outputs"][0]["data"] == [7]
        assert held.closed()
        assert server.wait() == 0    # at the end of the exit timeout it would be 1
    log = server.out.text()
    assert log.count("Signal (") == 1
    in_order(
        log,
        "Signal (15) received.",
        ": Found 1 HTTP service connections",
        "Waiting for in-flight requests to complete.",
        "Found 0 model versions that have in-flight inferences",
        "All models are stopped, unloading models",
        "successfully unloaded 'gated' version 1",
        "Found 0 live models and 0 in-flight non-inference requests",
    )


@OURS
@pytest.mark.parametrize("seconds", [0, 1])
def test_a_request_that_does_not_end_is_abandoned_at_the_timeout(models, gated, seconds):
    server = Server(models, flags=[f"--exit-timeout-secs={seconds}"])
    with pytest.raises(AssertionError, match="ended with 1"):
        with server:
            held = send_held(server)
            gated.await_reached("hold.execute")    # requests that do not execute yet are cancelled, and all end in time
            server.signal(signal.SIGINT)
            assert server.wait(25) == 1    # the default is 30 s
            assert held.closed()
    in_order(
        server.out.text(),
        "Signal (2) received.",
        "Timeout 0: Found 1 HTTP service connections",
        "Model 'gated' (version 1) has 1 in-flight inferences",
        "Timeout 0: Found 1 model versions that have in-flight inferences",
    )
    assert "failed to stop server: Internal - Exit timeout expired. Exiting immediately." in server.err.text()


@OURS
def test_clients_that_left_do_not_delay_the_end(models, gated):
    """The backend has one request, and finishes it. The requests behind it, whose clients have left, are dropped."""
    with Server(models) as server:
        clients = [send_held(server) for _ in range(5)]
        gated.await_reached("hold.execute")
        for client in clients:
            client.socket.close()
        server.signal(signal.SIGTERM)
        server.wait_log("HTTP service connections")
        gated.open("hold.execute")
        assert server.wait() == 0


# ---- With a loop that does not return ------------------------------------------------------------

INLINE = 'parameters { key: "CONCH_EXECUTION" value: { string_value: "inline" } }\n'


@OURS
@pytest.mark.parametrize("seconds", [0, 2])
def test_a_blocked_loop_does_not_delay_the_end(models, seconds):
    """A model that executes on the loops does not return: the stop ends at its timeout all the same."""
    gated = repository.Gated(models, "gated", more=INLINE).shut("hold.execute")
    server = Server(models, flags=[f"--exit-timeout-secs={seconds}", "--http-thread-count=1"])
    with pytest.raises(AssertionError, match="ended with 1"):
        with server:
            held = send_held(server)
            gated.await_reached("hold.execute")
            from_s = time.monotonic()
            server.signal(signal.SIGTERM)
            assert server.wait(25) == 1    # the default is 30 s; before, it never ended
            assert time.monotonic() - from_s >= seconds
            held.socket.close()
    in_order(server.err.text(), "the event loop 'http-0' does not answer: what it executes has not come back",
             "failed to stop server: Internal - Exit timeout expired. Exiting immediately.")
    assert "Model 'gated' (version 1) has 1 in-flight inferences" in server.out.text()


@pytest.mark.sanitize
@OURS
def test_a_stop_waits_for_a_loop_that_returns_in_time(models):
    """The other loop stops meanwhile, and the blocked one stops when it returns."""
    gated = repository.Gated(models, "gated", more=INLINE).shut("hold.execute")
    with Server(models) as server:
        idle = [Connection(server) for _ in range(4)]    # on any loop
        for connection in idle:
            assert connection.request("GET", "/v2/health/live").status == 200
        held = send_held(server)
        gated.await_reached("hold.execute")
        server.signal(signal.SIGTERM)
        server.wait_log("HTTP service connections")
        gated.open("hold.execute")
        assert held.response().status == 200
        for connection in [*idle, held]:
            assert connection.closed()
        assert server.wait() == 0


@OURS
def test_a_model_that_does_not_end_is_abandoned_at_the_timeout(models):
    """No request is in flight, but the backend keeps the thread that unloads its model."""
    gated = repository.Gated(models, "gated").shut("hold.unload")
    server = Server(models, flags=["--exit-timeout-secs=1"])
    with pytest.raises(AssertionError, match="ended with 1"):
        with server:
            server.signal(signal.SIGTERM)
            gated.await_reached("hold.unload")
            assert server.wait(25) == 1
    in_order(server.err.text(), "Model 'gated' (version 1) is still being unloaded",
             "failed to stop server: Exit timeout expired. Exiting immediately.")


# ---- Sequences -----------------------------------------------------------------------------------


def write_sequences(models):
    """A model whose sequences last until a client ends them."""
    config = 'name: "s"\nbackend: "identity"\n' + repository.tensor("input", "INPUT0", "FP32", [-1])
    config += repository.tensor("output", "OUTPUT0", "FP32", [-1]) + "instance_group [ { count: 1 kind: KIND_CPU } ]\n"
    config += "sequence_batching { max_sequence_idle_microseconds: 3600000000 oldest { max_candidate_sequences: 4 } }\n"
    repository.write_model(models, "s", config)


def of_sequence(connection, number, **flags):
    """The answer to one request of a sequence."""
    body = {"parameters": {"sequence_id": number, **flags}, "inputs": [given("INPUT0", "FP32", [1], [number])]}
    return connection.request("POST", "/v2/models/s/infer", json.dumps(body).encode())


@pytest.mark.sanitize
@OURS
def test_sequences_in_progress_are_served_to_their_end(models):
    """Sequences go on over their own connections, on which no other sequence can begin; other connections are closed."""
    write_sequences(models)
    with Server(models, flags=["--exit-timeout-secs=600"]) as server:
        first, second, idle = (Connection(server) for _ in range(3))
        assert idle.request("GET", "/v2/health/live").status == 200
        for number, connection in enumerate((first, second), 1):
            answer = of_sequence(connection, number, sequence_start=True)
            assert answer.status == 200, answer
        server.signal(signal.SIGTERM)
        assert idle.closed()
        server.wait_log(": Found 2 HTTP service connections")
        for number in (1, 1, 1):
            answer = of_sequence(first, number)
            assert answer.status == 200 and answer.headers.get("connection") != "close"
        answer = of_sequence(first, 1, sequence_end=True)
        assert answer.status == 200
        answer = of_sequence(second, 2)
        assert answer.status == 200
        assert of_sequence(second, 2, sequence_end=True).status == 200
        assert first.closed() and second.closed()
        assert server.wait() == 0
    assert "Timeout 0" not in server.out.text()


@OURS
def test_sequences_of_clients_that_left_do_not_delay_the_end(models):
    write_sequences(models)
    with Server(models, flags=["--exit-timeout-secs=600"]) as server:
        with Connection(server) as connection:
            assert of_sequence(connection, 1, sequence_start=True).status == 200
        server.signal(signal.SIGTERM)
        assert server.wait() == 0
