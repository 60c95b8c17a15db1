# SPDX-License-Identifier: Apache-2.0
"""HTTP/1.1 as a connection: the order of replies, requests in pieces, and what ends the connection."""

import concurrent.futures
import json
import os
import socket
import struct

import pytest

import repository
from server import Server, wait_for
from wire import Connection, ask, given, request_bytes

# The genuine 2.51 loses pipelined requests, answers a request line in two packets with 404, refuses chunk extensions
# and drops some connections without a reply. Those faults are not copied.
OURS = pytest.mark.conch_only("a fault of 2.51 that is not copied")

PATH = "/v2/models/any_fp32/infer"
BODY = json.dumps({"inputs": [given("INPUT0", "FP32", [2], [1, 2])]}).encode()
HEALTH = b"GET /v2/health/ready HTTP/1.1\r\nHost: here\r\n\r\n"


def values(response):
    assert response.status == 200, response
    return response.json()["outputs"][0]["data"]


def body_of(number):
    return json.dumps({"id": str(number), "inputs": [given("INPUT0", "FP32", [1], [number])]}).encode()


@pytest.fixture
def connection(server):
    with Connection(server) as made:
        yield made


def chunked(body, size, path=PATH, extension=b"", trailer=b""):
    parts = [b"POST %s HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\n" % path.encode()]
    for start in range(0, len(body), size):
        piece = body[start : start + size]
        parts.append(b"%x%s\r\n%s\r\n" % (len(piece), extension, piece))
    return b"".join([*parts, b"0\r\n", trailer, b"\r\n"])


def test_a_connection_is_kept_alive(connection):
    for number in range(200):
        answer = connection.request("POST", PATH, body_of(number))
        assert values(answer) == [float(number)]
        assert answer.json()["id"] == str(number)
        assert connection.request("GET", "/v2/health/live").status == 200


def test_a_request_byte_by_byte_line_by_line(connection):
    for line in request_bytes("POST", PATH, BODY).splitlines(keepends=True):
        connection.send(line)
    assert values(connection.response()) == [1.0, 2.0]


def test_a_large_chunked_upload_is_whole(connection):
    """The body is larger than what the loop makes pages for itself: each byte reaches its position, however the chunks are
    cut."""
    tail = os.urandom(37 << 20)
    head = json.dumps(
        {
            "inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [len(tail) // 4], "parameters": {"binary_data_size": len(tail)}}],
            "outputs": [{"name": "OUTPUT0", "parameters": {"binary_data": True}}],
        }
    ).encode()
    for size in (9_001, 1 << 20, len(head + tail)):
        request = chunked(head + tail, size)
        connection.send(request.replace(b"\r\n\r\n", b"\r\nInference-Header-Content-Length: %d\r\n\r\n" % len(head), 1))
        answer = connection.response()
        assert answer.status == 200
        assert answer.body.endswith(tail)


@OURS
def test_a_request_byte_by_byte(connection):
    request = request_bytes("POST", PATH, BODY)
    for i in range(len(request)):
        connection.send(request[i : i + 1])
    assert values(connection.response()) == [1.0, 2.0]


@OURS
def test_pipelined_gets_are_answered_in_order(connection):
    connection.send(HEALTH * 50)
    assert [connection.response().status for _ in range(50)] == [200] * 50


@OURS
def test_pipelined_inference_answers_in_order(connection):
    numbers = range(300)
    connection.send(b"".join(request_bytes("POST", PATH, body_of(number)) for number in numbers))
    for number in numbers:
        answer = connection.response()
        assert answer.json()["id"] == str(number)
        assert values(answer) == [float(number)]


@OURS
def test_a_pipeline_may_mix_all_kinds_of_requests(connection):
    parts = [
        (HEALTH, 200),
        (request_bytes("POST", PATH, BODY), 200),
        (request_bytes("GET", "/nothing"), 404),
        (request_bytes("POST", PATH, b"{"), 500),
        (chunked(BODY, 7), 200),
        (request_bytes("POST", "/v2", b""), 405),
        (request_bytes("POST", PATH, BODY), 200),
    ]
    connection.send(b"".join(request for request, _ in parts))
    assert [connection.response().status for _ in parts] == [status for _, status in parts]


def test_chunked_upload(connection):
    for size in (1, 7, len(BODY)):
        connection.send(chunked(BODY, size))
        assert values(connection.response()) == [1.0, 2.0]


@pytest.mark.parametrize("n", [65536, 65537])
def test_the_number_of_chunks_is_limited(connection, n):
    body = BODY + b" " * (n - len(BODY))
    connection.send(chunked(body, 1))
    answer = connection.response()
    if n == 65536:
        assert values(answer) == [1.0, 2.0]
        return
    assert (answer.status, answer.json()) == (400, {"error": "Chunked request body exceeds maximum of 65536 non-empty chunks. "
                                                             "Send fewer or larger HTTP chunks."})
    assert connection.closed()


def test_chunked_binary_upload(connection):
    tail = struct.pack("<50000f", *range(50000))
    head = json.dumps(
        {
            "inputs": [
                {"name": "INPUT0", "datatype": "FP32", "shape": [50000], "parameters": {"binary_data_size": len(tail)}}
            ],
            "outputs": [{"name": "OUTPUT0", "parameters": {"binary_data": True}}],
        }
    ).encode()
    request = chunked(head + tail, 4000)
    request = request.replace(b"\r\n\r\n", b"\r\nInference-Header-Content-Length: %d\r\n\r\n" % len(head), 1)
    connection.send(request)
    answer = connection.response()
    assert answer.status == 200
    assert answer.body.endswith(tail)


@OURS
def test_chunk_extensions_and_trailers(connection):
    connection.send(chunked(BODY, 20, extension=b";a=b", trailer=b"X-Trailer: 1\r\n"))
    assert values(connection.response()) == [1.0, 2.0]
    assert connection.request("GET", "/v2/health/live").status == 200


def test_expect_continue(connection):
    head = request_bytes("POST", PATH, headers={"Content-Length": len(BODY), "Expect": "100-continue"})
    connection.send(head)
    assert connection.head()[0] == 100
    connection.send(BODY)
    assert values(connection.response()) == [1.0, 2.0]


def test_expect_continue_from_a_client_that_does_not_wait(connection):
    connection.send(request_bytes("POST", PATH, BODY, headers={"Expect": "100-continue"}))
    status, headers = connection.head()
    while status == 100:
        status, headers = connection.head()
    assert status == 200
    connection._exactly(int(headers["content-length"]))
    assert connection.request("GET", "/v2/health/live").status == 200


def test_connection_close(connection):
    answer = connection.request("POST", PATH, BODY, {"Connection": "close"})
    assert values(answer) == [1.0, 2.0]
    assert connection.closed()


def far_side(names):
    """Returns (state, bytes for us, our bytes that it has not read) of the server's socket, as its kernel has it."""
    ours, theirs = (f":{port:04X}" for _, port in names)
    with open("/proc/net/tcp", encoding="ascii") as table:
        for line in table:
            fields = line.split()
            if fields[1].endswith(theirs) and fields[2].endswith(ours):
                return fields[3], *(int(n, 16) for n in fields[4].split(":"))
    return "gone", 0, 0


@OURS
def test_a_last_reply_is_whole_though_the_client_sends_more(server):
    """When the server has written its reply, the client, which reads slowly, sends more. That must not cause a reset,
    which would discard the rest of the reply in the server's kernel."""
    n = 500_000
    content = bytes(range(200)) * (4 * n // 200)
    head = json.dumps({"inputs": [given("INPUT0", "FP32", [n], None, parameters={"binary_data_size": 4 * n})],
                       "parameters": {"binary_data_output": True}}).replace('"data": null, ', "").encode()
    headers = {"Inference-Header-Content-Length": len(head), "Connection": "close"}
    with Connection(server) as slow:
        slow.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
        names = slow.socket.getsockname(), slow.socket.getpeername()
        slow.send(request_bytes("POST", PATH, head + content, headers))
        got = slow.socket.recv(1)
        while far_side(names)[0] == "01":    # established: it is still writing
            got += slow.socket.recv(1 << 14)
        assert far_side(names)[1] > 1 << 16, "too little is left to tell anything"
        slow.send(HEALTH)
        wait_for(lambda: far_side(names)[2] == 0, 60, "it has been read")
        while piece := slow.socket.recv(1 << 16):
            got += piece
    assert got.startswith(b"HTTP/1.1 200 OK\r\n")
    assert got.endswith(content), len(got)


def test_http_1_0_closes(connection):
    connection.send(b"GET /v2/health/ready HTTP/1.0\r\n\r\n")
    line = connection._until(b"\r\n")
    assert line.split()[1] == b"200"
    connection._until(b"\r\n\r\n")
    assert connection.closed()


def test_half_closed_client_gets_its_answer(connection):
    connection.send(request_bytes("GET", "/v2/models/any_fp32"))
    connection.socket.shutdown(socket.SHUT_WR)
    assert connection.response().json()["name"] == "any_fp32"
    assert connection.closed()


@OURS
def test_a_request_cut_by_a_half_close_is_refused(connection):
    """2.51 ends the connection without a reply."""
    connection.send(request_bytes("POST", PATH, BODY)[:-1])
    connection.socket.shutdown(socket.SHUT_WR)
    answer = connection.response()
    assert (answer.status, answer.error) == (400, "the request is incomplete: the client sends no more")
    assert connection.closed()


@pytest.mark.sanitize
@OURS
def test_half_closed_clients_get_late_answers(models):
    """The model executes on a thread of its own, so that the answer is sent long after the end of the client's input. All
    requests are answered: the one that executes, one that waits, and those behind them. A request whose client has
    closed its connection for good is cancelled all the same."""
    gated = repository.Gated(models, "gated").shut("hold.execute")
    body = json.dumps({"inputs": [given("IN", "INT32", [1], [7])]}).encode()
    request = request_bytes("POST", "/v2/models/gated/infer", body)
    with Server(models) as server:
        halves = [Connection(server) for _ in range(3)]
        halves[0].send(request)
        gated.await_reached("hold.execute")
        halves[1].send(request)
        halves[2].send(request + HEALTH + request)
        gone = Connection(server)
        gone.send(request)
        wait_for(gone.taken, 60, "the server has read the request")
        gone.socket.close()
        for connection in halves:
            connection.socket.shutdown(socket.SHUT_WR)
        for connection in halves:    # the server has seen it, and tests whether the clients are there
            assert connection.socket.recv(64, socket.MSG_PEEK) == b"HTTP/1.1 "

        def failed():
            return ask(server, "GET", "/v2/models/gated/stats").json()["model_stats"][0]["inference_stats"]["fail"]["count"]

        wait_for(lambda: failed() == 1, 60, "who has gone is cancelled")
        gated.open("hold.execute")
        for connection in halves:
            answer = connection.response()
            assert answer.status == 200 and answer.json()["outputs"][0]["data"] == [7], answer
        assert halves[2].response().status == 200
        assert halves[2].response().json()["outputs"][0]["data"] == [7]
        assert all(connection.closed() for connection in halves)


def test_a_large_body_to_an_unknown_model(connection):
    """The reply is sent although the body is not wanted, and the connection goes on."""
    answer = connection.request("POST", "/v2/models/nobody/infer", b"x" * 5_000_000)
    assert answer.status == 404
    assert connection.request("GET", "/v2/health/live").status == 200


MALFORMED = {
    "no HTTP": b"hello\r\n\r\n",
    "TLS": bytes.fromhex("16030100c8010000c40303") + bytes(60),
    "blank before a header's colon": b"GET /v2 HTTP/1.1\r\nHost : here\r\n\r\n",
    "line ends without CR": b"GET /v2 HTTP/1.1\nHost: here\n\n",
    "folded header": b"GET /v2 HTTP/1.1\r\nHost: here\r\n there\r\n\r\n",
    "blank in a header name": b"GET /v2 HTTP/1.1\r\nbad name: x\r\n\r\n",
    "length no number": b"POST " + PATH.encode() + b" HTTP/1.1\r\nHost: here\r\nContent-Length: ten\r\n\r\n",
    "negative length": b"POST " + PATH.encode() + b" HTTP/1.1\r\nHost: here\r\nContent-Length: -5\r\n\r\n",
    "two lengths": b"POST " + PATH.encode() + b" HTTP/1.1\r\nHost: here\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}1",
    "length and chunks": b"POST "
    + PATH.encode()
    + b" HTTP/1.1\r\nHost: here\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "bad chunk size": b"POST " + PATH.encode() + b" HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n{}\r\n",
    "overlong chunk size": b"POST "
    + PATH.encode()
    + b" HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n{}\r\n",
    "NUL in a header": b"GET /v2 HTTP/1.1\r\nHost: he\0re\r\n\r\n",
}


@OURS
@pytest.mark.parametrize("case", MALFORMED)
def test_malformed_http_gets_400_and_the_end_of_the_connection(server, connection, case):
    """After such bytes the beginning of the next request is unknown."""
    connection.send(MALFORMED[case])
    answer = connection.response()
    assert answer.status == 400, answer
    assert answer.error
    assert connection.closed()
    assert ask(server, "GET", "/v2/health/live").status == 200


@OURS
def test_unknown_http_version(connection):
    connection.send(b"GET /v2 HTTP/3.7\r\nHost: here\r\n\r\n")
    assert connection.response().status in (400, 505)
    assert connection.closed()


@OURS
def test_requests_before_a_malformed_one_are_answered(connection):
    connection.send(request_bytes("POST", PATH, BODY) + MALFORMED["no HTTP"])
    assert values(connection.response()) == [1.0, 2.0]
    assert connection.response().status == 400
    assert connection.closed()


@OURS
def test_endless_header_is_refused(server, connection):
    """The head of a request has a limit; bytes beyond it are never stored."""
    refused = False
    try:
        connection.send(b"GET /v2 HTTP/1.1\r\n")
        for i in range(200_000):
            connection.send(b"X-%d: %s\r\n" % (i, b"y" * 100))
    except (BrokenPipeError, ConnectionResetError):
        refused = True
    if not refused:
        assert connection.response().status in (400, 431)
    assert ask(server, "GET", "/v2/health/live").status == 200


@OURS
def test_a_body_beyond_the_limit_is_refused_by_its_length(server, connection):
    """Before a byte of it is read or memory is allocated for it."""
    connection.send(request_bytes("POST", PATH, headers={"Content-Length": 1 << 50}))
    answer = connection.response()
    assert answer.status in (400, 413), answer
    assert answer.error
    assert ask(server, "GET", "/v2/health/live").status == 200


def test_clients_that_vanish_leave_nothing_behind(server):
    """In the head, in the body, and before the answer: the server goes on, and no memory or descriptor stays in use."""
    whole = request_bytes("POST", PATH, BODY)
    for cut in (1, 20, len(whole) - 3, len(whole)):
        for _ in range(20):
            with Connection(server) as connection:
                connection.send(whole[:cut])
                # Reset instead of an orderly end.
                connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    assert values(ask(server, "POST", PATH, BODY)) == [1.0, 2.0]


def test_many_idle_connections_leave_others_served(server):
    idle = [Connection(server) for _ in range(300)]
    try:
        assert values(ask(server, "POST", PATH, BODY)) == [1.0, 2.0]
        for connection in idle[::10]:
            assert values(connection.request("POST", PATH, BODY)) == [1.0, 2.0]
    finally:
        for connection in idle:
            connection.socket.close()


def test_a_slow_reader_does_not_hold_up_the_others(server):
    """A client asks for 20 MB and does not read them. Meanwhile others are served, and then the client gets all of it."""
    size = 20_000_000
    head = json.dumps(
        {
            "inputs": [{"name": "INPUT0", "datatype": "UINT8", "shape": [size], "parameters": {"binary_data_size": size}}],
            "outputs": [{"name": "OUTPUT0", "parameters": {"binary_data": True}}],
        }
    ).encode()
    tail = bytes(range(250)) * (size // 250)
    with Connection(server) as slow, Connection(server) as quick:
        slow.send(
            request_bytes(
                "POST", "/v2/models/any_uint8/infer", head + tail, {"Inference-Header-Content-Length": len(head)}
            )
        )
        for number in range(100):
            assert values(quick.request("POST", PATH, body_of(number))) == [float(number)]
        answer = slow.response()
    assert answer.status == 200
    assert answer.body.endswith(tail)


def test_large_bodies_are_read_side_by_side(models):
    """On one loop, which reads only a portion of each at a time, and answers small requests in between."""
    size = 8_000_000
    repository.write_identity(models, "bytes", [("UINT8", [-1])])
    request = {"name": "INPUT0", "datatype": "UINT8", "shape": [size], "parameters": {"binary_data_size": size}}
    head = json.dumps({"inputs": [request], "outputs": [{"name": "OUTPUT0", "parameters": {"binary_data": True}}]}).encode()

    def upload(number):
        tail = bytes([number]) * (size - 1) + b"!"
        answer = ask(server, "POST", "/v2/models/bytes/infer", head + tail, {"Inference-Header-Content-Length": len(head)})
        assert answer.status == 200 and answer.body.endswith(tail)
        return 1

    with Server(models, flags=("--http-thread-count=1",)) as server:
        with concurrent.futures.ThreadPoolExecutor(12) as pool, Connection(server) as asking:
            uploads = [pool.submit(upload, number) for number in range(12)]
            while not all(each.done() for each in uploads):
                assert asking.request("GET", "/v2/health/live").status == 200
            assert sum(each.result() for each in uploads) == 12


def test_many_connections_are_served_at_once(server):
    def work(number):
        with Connection(server) as connection:
            for turn in range(20):
                assert values(connection.request("POST", PATH, body_of(number * 100 + turn))) == [number * 100.0 + turn]
        return 1

    with concurrent.futures.ThreadPoolExecutor(100) as pool:
        assert sum(pool.map(work, range(100), timeout=120)) == 100
