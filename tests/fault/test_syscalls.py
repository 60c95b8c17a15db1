# SPDX-License-Identifier: Apache-2.0
"""A real server whose system calls fail now and then, all in ways that clients must not notice.

faultlib.c makes the faults; only the server runs under it. Every request must be answered correctly, in order, on its
own connection: none of the faults is a reason to drop one.
"""

import concurrent.futures
import json
import pathlib
import resource
import signal
import struct
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "system"))

import repository  # noqa: E402
from faulty import SOFT, Faulty, assert_descriptors_come_back, descriptors  # noqa: E402
from server import Server, wait_for  # noqa: E402
from wire import Connection, ask, request_bytes  # noqa: E402

SEEDS = (1, 2, 3)
CLIENTS = 8
ROUNDS = 12


@pytest.fixture
def models(tmp_path):
    root = tmp_path / "models"
    root.mkdir()
    repository.write_identity(root, "here", [("FP32", [-1])])
    repository.write_identity(root, "there", [("INT32", [-1])], CONCH_EXECUTION="thread")
    return root


def binary_request(model, datatype, payload, count):
    head = {
        "inputs": [
            {"name": "INPUT0", "datatype": datatype, "shape": [count], "parameters": {"binary_data_size": len(payload)}}
        ],
        "outputs": [{"name": "OUTPUT0", "parameters": {"binary_data": True}}],
    }
    text = json.dumps(head).encode()
    headers = {"Inference-Header-Content-Length": len(text)}
    return request_bytes("POST", f"/v2/models/{model}/infer", text + payload, headers)


def json_request(model, datatype, values, request_id):
    text = json.dumps(
        {"id": request_id, "inputs": [{"name": "INPUT0", "datatype": datatype, "shape": [len(values)], "data": values}]}
    )
    return request_bytes("POST", f"/v2/models/{model}/infer", text.encode())


def chunked(request, size):
    head, _, body = request.partition(b"\r\n\r\n")
    lines = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"content-length:")]
    pieces = b"".join(
        b"%x\r\n%s\r\n" % (len(body[at : at + size]), body[at : at + size]) for at in range(0, len(body), size)
    )
    return b"\r\n".join([*lines, b"Transfer-Encoding: chunked"]) + b"\r\n\r\n" + pieces + b"0\r\n\r\n"


def assert_payload(answer, payload):
    assert answer.status == 200, answer
    head = int(answer.headers["inference-header-content-length"])
    assert answer.body[head:] == payload


def assert_values(answer, values, request_id):
    assert answer.status == 200, answer
    assert answer.json()["id"] == request_id
    assert answer.json()["outputs"][0]["data"] == values


def client(server, number):
    """All kinds of requests, one connection per round; raises on a wrong answer."""
    for turn in range(ROUNDS):
        mark = number * 1000 + turn
        small = struct.pack("=4i", mark, 1, 2, 3)
        large = struct.pack("=i", mark) * 150_000
        with Connection(server) as connection:
            assert connection.request("GET", "/v2/health/ready").status == 200
            assert connection.request("GET", "/v2/models/here").json()["name"] == "here"

            connection.send(binary_request("there", "INT32", small, 4))
            assert_payload(connection.response(), small)
            connection.send(binary_request("here", "FP32", large, 150_000))
            assert_payload(connection.response(), large)
            connection.send(chunked(binary_request("there", "INT32", large, 150_000), 7_000))
            assert_payload(connection.response(), large)

            # Pipelined: answers in order, whichever model is faster.
            models = [("here", "FP32", 1.5), ("there", "INT32", 7)] * 5
            connection.send(
                b"".join(json_request(m, t, [v, mark], f"{mark}-{i}") for i, (m, t, v) in enumerate(models))
            )
            for i, (_, _, value) in enumerate(models):
                assert_values(connection.response(), [value, mark], f"{mark}-{i}")

            assert connection.request("GET", "/v2/models/none").status == 404
        # One more, which closes by itself.
        assert ask(server, "GET", "/v2/health/live", headers={"Connection": "close"}).status == 200


@pytest.mark.parametrize("seed", SEEDS)
def test_clients_do_not_notice_faults(models, tmp_path, seed):
    with Faulty(models, seed, tmp_path / "counts") as server:
        ask(server, "GET", "/v2/health/ready")
        before = descriptors(server)
        with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
            for done in [pool.submit(client, server, number) for number in range(CLIENTS)]:
                done.result(timeout=120)
        server.assert_alive()
        assert_descriptors_come_back(server, before)
        given = server.counts()
    # Each kind occurred, often enough to matter.
    assert min(given[kind] for kind in SOFT) > 0, given
    assert given["interrupted"] > 100 and given["short"] > 100, given


def test_clients_that_vanish_leave_nothing(models, tmp_path):
    with Faulty(models, 4, tmp_path / "counts") as server:
        ask(server, "GET", "/v2/health/ready")
        before = descriptors(server)
        large = binary_request("there", "INT32", bytes(600_000), 150_000)
        for turn in range(40):
            with Connection(server) as connection:
                # Somewhere in the head, in the body, or while the answer is sent.
                connection.send(large[: (40, 300_000, len(large))[turn % 3]])
        assert ask(server, "GET", "/v2/health/ready").status == 200
        assert_descriptors_come_back(server, before)


def accepted(server):
    """The ports of the clients whose connections the server has accepted: clients in the kernel's queue belong to no
    process yet."""
    rows = [line.split() for line in pathlib.Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]]
    here, listens, nobody = f":{server.port:04X}", "0A", "0"
    return {int(row[2].split(":")[1], 16) for row in rows if row[1].endswith(here) and row[3] != listens and row[9] != nobody}


def test_without_descriptors_new_connections_wait(models):
    """The real limit, not a simulated one: a client in the middle of a request goes on, a new one waits and is served later."""
    with Server(models) as server:
        ask(server, "GET", "/v2/health/ready")
        wait_for(lambda: not accepted(server), 60, "the first questions' connections have been closed")
        before = descriptors(server)
        limit = before + 10
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (limit, limit))
        request = binary_request("here", "FP32", bytes(16), 4)
        half, rest = request[:-8], request[-8:]  # a client with half a request is not idle, and keeps its descriptor
        connections = [Connection(server) for _ in range(20)]
        for connection in connections:
            connection.send(half)
        wait_for(lambda: descriptors(server) >= limit, 60, "all descriptors are in use")

        ports = accepted(server)
        inside = [connection for connection in connections if connection.socket.getsockname()[1] in ports]
        waiting = [connection for connection in connections if connection not in inside]
        assert len(inside) == 10
        for _ in range(2):  # they go on as usual
            for connection in inside:
                connection.send(rest + half)
                assert_payload(connection.response(), bytes(16))

        # The others are not served, and waiting uses almost no CPU: 3 s without a busy loop.
        cpu_before = server.cpu_s()
        waiting[0].socket.settimeout(3)
        with pytest.raises(TimeoutError):
            waiting[0].response()
        waiting[0].socket.settimeout(60)
        assert server.cpu_s() - cpu_before < 1
        assert accepted(server) == ports
        for connection in inside:
            connection.send(rest)
            assert_payload(connection.response(), bytes(16))
            connection.socket.close()
        for connection in waiting:
            connection.send(rest)
            assert_payload(connection.response(), bytes(16))
            connection.socket.close()
        assert_descriptors_come_back(server, before)
        assert "no more connections are accepted for now" in server.log()


def test_a_signal_under_faults_stops_the_server(models, tmp_path):
    """SIGTERM while every call may fail: accepted requests are answered, and the server exits with 0."""
    with Faulty(models, 5, tmp_path / "counts") as server:
        large = struct.pack("=i", 77) * 150_000
        with Connection(server) as connection:
            connection.send(binary_request("there", "INT32", large, 150_000))
            wait_for(connection.taken, 60, "the request has arrived")
            server.signal(signal.SIGTERM)
            assert_payload(connection.response(), large)
        assert server.wait() == 0
