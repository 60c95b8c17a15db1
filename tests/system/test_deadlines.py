# SPDX-License-Identifier: Apache-2.0
"""Deadlines of calls to a busy instance: of Triton's own client over gRPC, and of HTTP. tests/plugins/gate executes when the
test lets it."""

import json
import socket
import time

import numpy as np
import pytest
import tritonclient.grpc as client
from tritonclient.utils import InferenceServerException

import repository
from server import BUILD, Server, wait_for
from wire import ask

pytestmark = pytest.mark.conch_only("is about late work, which the genuine Triton executes")

TIMEOUT_S, CALLS = 0.1, 20

GATE = ('backend: "gate"\ninstance_group { count: 1 kind: KIND_CPU }\n' + repository.tensor("input", "IN", "INT32", [-1])
        + repository.tensor("output", "OUT", "INT32", [-1]))


def count_executions(server, model):
    stats = ask(server, "GET", f"/v2/models/{model}/stats").json()["model_stats"][0]
    return stats["execution_count"], stats["inference_stats"]["success"]["count"]


@pytest.mark.parametrize("batching", ["", "dynamic_batching { }\n"])
def test_late_calls_never_reach_a_busy_instance(tmp_path, batching):
    folder = repository.write_model(tmp_path, "gate", GATE + batching)
    hold = folder / "hold.execute"
    given = client.InferInput("IN", [1], "INT32")
    given.set_data_from_numpy(np.array([7], np.int32))
    with Server(tmp_path, flags=[f"--backend-directory={BUILD}/tests/backends"], grpc=True) as server, \
            client.InferenceServerClient(server.grpc_url) as triton:
        hold.touch()
        first, late = [], []
        triton.async_infer("gate", [given], lambda result, error: first.append(error or result))
        wait_for((folder / "hold.execute.reached").exists, 60, "the instance is busy")
        begun = time.monotonic()
        for _ in range(CALLS):
            triton.async_infer("gate", [given], lambda result, error: late.append((error, time.monotonic())), client_timeout=TIMEOUT_S)
        wait_for(lambda: len(late) == CALLS, 60, "all late calls have ended")
        for error, ended in late:
            assert isinstance(error, InferenceServerException) and "DEADLINE_EXCEEDED" in str(error), error
            assert ended - begun >= TIMEOUT_S
        assert not first    # they have ended while the instance was busy
        hold.unlink()
        wait_for(lambda: first, 60, "the first call is answered")
        assert first[0].as_numpy("OUT").tolist() == [7]
        triton.infer("gate", [given])    # behind all others
        assert count_executions(server, "gate") == (2, 2)


# ---- HTTP: the header Conch-Timeout-Ms -------------------------------------------------------------

BODY = json.dumps({"inputs": [{"name": "IN", "datatype": "INT32", "shape": [1], "data": [7]}]}).encode()


@pytest.fixture(name="gate", scope="module")
def gate_(tmp_path_factory):
    root = tmp_path_factory.mktemp("http")
    folder = repository.write_model(root, "gate", GATE)
    with Server(root, flags=[f"--backend-directory={BUILD}/tests/backends"]) as server:
        server.hold = folder / "hold.execute"
        server.reached = folder / "hold.execute.reached"
        yield server


def infer(server, timeout, **more):
    return ask(server, "POST", "/v2/models/gate/infer", BODY, {"Conch-Timeout-Ms": timeout, **more})


@pytest.mark.parametrize("timeout", ["60000", "4294967295", "99999999999999999999999"])
def test_a_request_within_its_time_is_answered(gate, timeout):
    answer = infer(gate, timeout)
    assert (answer.status, answer.json()["outputs"][0]["data"]) == (200, [7])


@pytest.mark.parametrize("timeout", ["", "x", "-1", "1.5", "10 0", "1s"])
def test_a_time_that_is_no_number_is_refused(gate, timeout):
    answer = infer(gate, timeout)
    assert (answer.status, answer.json()) == (400, {"error": f"the header Conch-Timeout-Ms must be a number of milliseconds, got '{timeout}'"})


def test_a_request_without_time_is_never_executed(gate):
    before = count_executions(gate, "gate")
    answer = infer(gate, "0")
    assert (answer.status, answer.json()) == (504, {"error": "Deadline Exceeded"})
    assert infer(gate, "60000").status == 200
    assert count_executions(gate, "gate") == (before[0] + 1, before[1] + 1)


LATE = b'HTTP/1.1 504 Gateway Timeout\r\nContent-Type: text/plain\r\nContent-Length: 29\r\n\r\n{"error":"Deadline Exceeded"}'


def request(timeout_ms=None):
    given = b"Conch-Timeout-Ms: %d\r\n" % timeout_ms if timeout_ms is not None else b""
    return b"POST /v2/models/gate/infer HTTP/1.1\r\nHost: x\r\n%sContent-Length: %d\r\n\r\n" % (given, len(BODY)) + BODY


def connect(server):
    return socket.create_connection((server.address, server.port), timeout=60)


def open_gate(server):
    server.hold.unlink()
    server.reached.unlink(missing_ok=True)


def assert_goes_on(client):
    client.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n")
    assert receive(client, 15).startswith(b"HTTP/1.1 200 OK")


def test_late_requests_are_answered_while_they_wait(gate):
    gate.hold.touch()
    before = count_executions(gate, "gate")
    with connect(gate) as busy, connect(gate) as waits:
        busy.sendall(request())
        wait_for(gate.reached.exists, 60, "the instance is busy")
        waits.sendall(2 * request(100))
        assert receive(waits, 2 * len(LATE)) == 2 * LATE
        open_gate(gate)
        assert receive(busy, 15) == b"HTTP/1.1 200 OK"
        assert_goes_on(waits)
    assert infer(gate, "60000").status == 200    # behind all others
    assert count_executions(gate, "gate")[0] == before[0] + 2


def test_a_late_request_is_answered_while_it_executes(gate):
    gate.hold.touch()
    for timeout_ms in (100, 1000, 10000, 30000):    # so long that it executes when its time is over
        with connect(gate) as client:
            client.sendall(request(timeout_ms))
            assert receive(client, len(LATE)) == LATE
            assert_goes_on(client)
        if gate.reached.exists():
            break
    assert gate.reached.exists()
    open_gate(gate)
    assert infer(gate, "60000").status == 200


def test_a_client_that_leaves_before_its_time_is_over_leaves_nothing(gate):
    gate.hold.touch()
    with connect(gate) as busy:
        busy.sendall(request())
        wait_for(gate.reached.exists, 60, "the instance is busy")
        for _ in range(20):
            with connect(gate) as client:
                client.sendall(request(50))
        open_gate(gate)
        assert receive(busy, 15) == b"HTTP/1.1 200 OK"
    assert infer(gate, "60000").status == 200


def receive(client, n_bytes):
    got = b""
    while len(got) < n_bytes:
        more = client.recv(n_bytes - len(got))
        assert more, got
        got += more
    return got
