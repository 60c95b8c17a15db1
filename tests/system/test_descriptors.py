# SPDX-License-Identifier: Apache-2.0
"""When descriptors run out, idle connections are closed for new ones, and the server goes on."""

import concurrent.futures
import json
import os
import re
import resource
import select

import pytest

import preload
import repository
from server import SANITIZED, Server, wait_for
from wire import Connection, ask, given, request_bytes

pytestmark = [
    pytest.mark.conch_only("2.51 accepts nothing any more"),
    pytest.mark.skipif(SANITIZED, reason="a sanitizer's run-time has descriptors of its own"),
]

LIMIT = 64
LOOPS = 2
ONE = json.dumps({"inputs": [given("IN", "INT32", [1], [7])]}).encode()


def limited(models, *flags):
    """A server with at most LIMIT descriptors, which it cannot raise."""
    return Server(models, wrap=("prlimit", f"--nofile={LIMIT}:{LIMIT}"), flags=flags)


def reserved_in_use(server):
    """Returns how many of the descriptors reserved for other uses are in use."""
    return sum(int(fd) >= LIMIT - LIMIT // 4 for fd in os.listdir(f"/proc/{server.pid}/fd"))


def health(connection):
    return connection.request("GET", "/v2/health/ready").status


def is_open(connection):
    """Is the connection open, as far as the client can see?"""
    poll = select.poll()
    poll.register(connection.socket, select.POLLIN)
    return not poll.poll(0)


@pytest.fixture
def close_all():
    made = []
    yield made
    for connection in made:
        connection.socket.close()


def test_idle_connections_make_room(models, close_all):
    """More connections than there are descriptors, each of which is answered. A connection that is used now and then stays
    open."""
    repository.write_identity(models, "first", [("FP32", [-1])])
    repository.write_identity(models, "second", [("FP32", [-1])])
    gated = repository.Gated(models, "gated").shut("hold.execute")
    flags = ("--allow-metrics=true", "--metrics-port=0", "--model-control-mode=explicit", "--load-model=first", "--load-model=gated")
    flags += (f"--http-thread-count={LOOPS}",)
    with limited(models, *flags) as server:
        used, waiting = Connection(server), Connection(server)
        close_all += [used, waiting]
        waiting.send(request_bytes("POST", "/v2/models/gated/infer", ONE))
        gated.await_reached("hold.execute")
        idle = []
        for number in range(3 * LIMIT):
            idle.append(Connection(server))
            close_all.append(idle[-1])
            assert health(idle[-1]) == 200
            assert health(used) == 200, number
        assert not is_open(idle[0]) and is_open(idle[-1])
        assert sum(map(is_open, idle)) > LIMIT // 4
        assert "descriptors are running short" in server.log()

        # A quarter is reserved for metrics and for files that a load opens. Each loop may have used one before it saw
        # the shortage.
        wait_for(lambda: reserved_in_use(server) <= LOOPS, 60, "the reserve is left alone")
        class Metrics:
            address = server.address
            port = int(re.search(r"Started Metrics Service at \S*:(\d+)", server.log())[1])

        assert b"nv_inference_count" in ask(Metrics, "GET", "/metrics").body
        assert ask(server, "POST", "/v2/repository/models/second/load").status == 200
        assert ask(server, "GET", "/v2/models/second/ready").status == 200
        gated.open("hold.execute")
        assert waiting.response().status == 200


def test_connections_with_a_request_are_not_closed(models, close_all):
    """All connections have a request that executes or waits. Further clients stay in the kernel's queue until there is room."""
    gated = repository.Gated(models, "gated").shut("hold.execute")
    with limited(models) as server:
        for _ in range(LIMIT + 20):
            connection = Connection(server)
            close_all.append(connection)
            connection.send(request_bytes("POST", "/v2/models/gated/infer", ONE, {"Connection": "close"}))
        gated.await_reached("hold.execute")
        server.wait_log("no more connections are accepted for now: no descriptors are left, and no connection is idle")
        gated.open("hold.execute")
        for connection in close_all:
            answer = connection.response()
            assert answer.status == 200 and answer.json()["outputs"][0]["data"] == [7]


def test_connections_with_half_a_head_make_room(models, close_all):
    """Each possible connection has half a head. A client with a whole request is answered before they are refused."""
    repository.write_identity(models, "first", [("FP32", [-1])])
    with limited(models) as server:
        for _ in range(LIMIT + 20):
            connection = Connection(server)
            close_all.append(connection)
            connection.send(b"GET /v2/health/ready HTTP/1.1\r\nHost")
        client = Connection(server)
        close_all.append(client)
        assert health(client) == 200
        said = [connection.socket.recv(100) for connection in close_all[:-1] if not is_open(connection)]
        assert said and not any(said), said


def test_the_limit_is_raised_as_far_as_it_may(models):
    repository.write_identity(models, "first", [("FP32", [-1])])
    with Server(models, wrap=("prlimit", "--nofile=100:200"), flags=("--log-verbose=1",)) as server:
        assert resource.prlimit(server.pid, resource.RLIMIT_NOFILE) == (200, 200)
        server.wait_log("descriptors: at most 200 instead of 100")


def test_a_loop_in_a_long_execution_keeps_no_client_out(models):
    """One of two loops is inside an execution, which the model's parameter puts there. New clients are accepted and
    answered by the other loop."""
    gated = repository.Gated(models, "gated", more='parameters { key: "CONCH_EXECUTION" value { string_value: "inline" } }\n')
    gated.shut("hold.execute")
    two = preload.environment("processors", PROCESSORS="2")
    with Server(models, flags=("--http-thread-count=2",), env=two) as server, concurrent.futures.ThreadPoolExecutor() as pool:
        slow = pool.submit(ask, server, "POST", "/v2/models/gated/infer", ONE)
        gated.await_reached("hold.execute")
        wait_for(lambda: answers_within(server, 5), 60, "it is seen that the loop stands still")
        for _ in range(50):
            assert ask(server, "GET", "/v2/health/live").status == 200
        gated.open("hold.execute")
        assert slow.result(60).status == 200


def answers_within(server, seconds):
    try:
        with Connection(server, timeout_s=seconds) as connection:
            return connection.request("GET", "/v2/health/live").status == 200
    except TimeoutError:
        return False
