# SPDX-License-Identifier: Apache-2.0
"""The resources of a server: descriptors, threads and memory are freed, and their limits are survived."""

import json
import os

import pytest

import repository
from server import SANITIZED, Server, wait_for
from wire import Connection, ask, given, infer, request_bytes

OURS = pytest.mark.conch_only("not asked of the genuine Triton")
PATH = "/v2/models/any_fp32/infer"
BODY = json.dumps({"inputs": [given("INPUT0", "FP32", [1], [1])]}).encode()
LARGE = 20_000_000


def descriptors(server):
    return len(os.listdir(f"/proc/{server.pid}/fd"))


def status(server, field):
    with open(f"/proc/{server.pid}/status", encoding="ascii") as file:
        for line in file:
            if line.startswith(field + ":"):
                return int(line.split()[1])
    raise AssertionError(field)


def large_request(server):
    document = {
        "inputs": [{"name": "INPUT0", "datatype": "UINT8", "shape": [LARGE], "parameters": {"binary_data_size": LARGE}}],
        "outputs": [{"name": "OUTPUT0", "parameters": {"binary_data": True}}],
    }
    answer = infer(server, "any_uint8", document, bytes(LARGE))
    assert answer.status == 200
    assert len(answer.body) > LARGE


def test_descriptors_are_closed(server):
    assert ask(server, "POST", PATH, BODY).status == 200
    before = descriptors(server)
    connections = [Connection(server) for _ in range(200)]
    for connection in connections:
        connection.send(request_bytes("POST", PATH, BODY))
    for connection in connections:
        assert connection.response().status == 200
    assert descriptors(server) > before + 150
    for connection in connections:
        connection.socket.close()
    wait_for(lambda: descriptors(server) <= before, 60, "closed connections give their descriptors back")


def test_threads_do_not_grow_with_connections(server):
    before = status(server, "Threads")
    connections = [Connection(server) for _ in range(100)]
    for connection in connections:
        assert connection.request("POST", PATH, BODY).status == 200
    assert status(server, "Threads") <= before + 8
    for connection in connections:
        connection.socket.close()


@OURS
@pytest.mark.skipif(SANITIZED, reason="a sanitizer takes memory of its own")
def test_an_idle_server_without_models_is_small(models):
    with Server(models) as server:
        assert status(server, "VmRSS") < 20_000, "kB"


@OURS
@pytest.mark.skipif(SANITIZED, reason="a sanitizer keeps freed memory")
def test_memory_of_large_requests_is_freed(server):
    for _ in range(5):
        large_request(server)
    before = status(server, "VmRSS")
    for _ in range(40):
        large_request(server)
    # 40 × 20 MB went in and out.
    assert status(server, "VmRSS") - before < 100_000, "kB"


@OURS
@pytest.mark.skipif(SANITIZED, reason="a sanitizer keeps freed memory")
def test_memory_of_refused_requests_is_freed(server):
    def round_of(n):
        with Connection(server) as connection:
            for _ in range(n):
                answer = connection.request("POST", PATH, b'{"inputs":[' + b"[" * 20000)
                assert answer.status == 500

    round_of(200)
    before = status(server, "VmRSS")
    round_of(2000)
    assert status(server, "VmRSS") - before < 30_000, "kB"


@OURS
def test_a_limit_of_descriptors_is_survived(models):
    """More clients connect than there are descriptors; when some have closed, others are served."""
    repository.write_identity(models, "any_fp32", [("FP32", [-1])])
    with Server(models, wrap=["prlimit", "--nofile=80"]) as server:
        crowd = []
        for _ in range(150):    # each asks at once: while others wait, a connection that asks for nothing is closed
            crowd.append(Connection(server))
            crowd[-1].send(request_bytes("POST", PATH, BODY))
        assert crowd[0].response().status == 200
        for connection in crowd:
            connection.socket.close()
        assert ask(server, "POST", PATH, BODY).status == 200
        wait_for(lambda: descriptors(server) < 60, 60, "closed connections give their descriptors back")
        assert ask(server, "POST", PATH, BODY).status == 200


@OURS
def test_a_body_that_is_announced_takes_no_memory(server):
    """2 GB are announced on many connections, of which a few bytes arrive."""
    before = status(server, "VmRSS")
    head = request_bytes("POST", PATH, headers={"Content-Length": 2_000_000_000})
    connections = [Connection(server) for _ in range(40)]
    for connection in connections:
        connection.send(head + b"{")
    for connection in connections:
        wait_for(connection.taken, 60, "the server has read it")
    assert ask(server, "POST", PATH, BODY).status == 200
    assert status(server, "VmRSS") - before < 100_000, "kB"
    for connection in connections:
        connection.socket.close()


@OURS
def test_two_servers_share_a_port(models):
    repository.write_identity(models, "any_fp32", [("FP32", [-1])])
    with Server(models, flags=["--reuse-http-port=true"]) as first:
        with Server(models, flags=["--reuse-http-port=true"], port=first.port) as second:
            assert second.port == first.port
            second.wait_log("Loaded 1 of 1 models")    # it may have been the first server that answered the readiness request
            assert ask(first, "POST", PATH, BODY).status == 200
        assert ask(first, "POST", PATH, BODY).status == 200
