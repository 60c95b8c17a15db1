# SPDX-License-Identifier: Apache-2.0
"""A client that sends or reads less than --http-min-rate, --grpc-min-rate is not waited for, although bytes move in each
second."""

import os
import socket
import time

import pytest

import http2_frames as h2
import repository
from server import Server, wait_for
from wire import Connection, ask, is_readable, request_bytes

pytestmark = pytest.mark.conch_only("the genuine Triton waits for ever")

PATH = "/v2/models/bytes/infer"
EACH_S, WITHIN_S = 0.2, 60
CHUNKED = b"POST %s HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\n" % PATH.encode()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    models = tmp_path_factory.mktemp("models")
    repository.write_identity(models, "bytes", [("UINT8", [-1])])
    # A standing connection is kept for longer: here the rate ends the connections.
    flags = ("--http-min-rate=64", "--http-min-rate-secs=1", f"--http-stall-timeout-secs={10 * WITHIN_S}")
    flags += ("--grpc-min-rate=64", "--grpc-min-rate-secs=1", f"--grpc-stall-timeout-secs={10 * WITHIN_S}")
    with Server(models, flags=flags, grpc=True) as server:
        yield server


def drip(connection, piece, within_s=WITHIN_S):
    """Sends the piece again and again until there is an answer."""
    until = time.monotonic() + within_s
    while time.monotonic() < until:
        if is_readable(connection.socket, EACH_S):
            return connection.response()
        connection.send(piece)
    raise AssertionError(f"borne for {within_s} s")


@pytest.mark.parametrize(
    "begin",
    [
        request_bytes("POST", PATH, headers={"Content-Length": 100_000}),
        CHUNKED + b"186a0\r\n",
        CHUNKED + b"5;",
        CHUNKED + b"5\r\nabcde\r\n0\r\nX",
    ],
    ids=["body", "chunk", "extension", "trailer"],
)
def test_a_body_below_the_rate_is_a_stall(server, begin):
    with Connection(server) as connection:
        connection.send(begin)
        answer = drip(connection, b"x")
    assert (answer.status, answer.error) == (408, "the request body took too long")


def test_a_chunk_line_below_the_rate_is_a_stall(server):
    """A piece that is a whole chunk of its own: lines without end."""
    with Connection(server) as connection:
        connection.send(CHUNKED)
        answer = drip(connection, b"1\r\nx\r\n")
    assert (answer.status, answer.error) == (408, "the request body took too long")


def sockets_of(server):
    folder = f"/proc/{server.pid}/fd"
    n = 0
    for name in os.listdir(folder):
        try:
            n += os.readlink(f"{folder}/{name}").startswith("socket:")
        except FileNotFoundError:
            continue
    return n


def test_a_reply_below_the_rate_is_a_stall(server):
    """16 MiB, of which the client reads some bytes now and then."""
    before = sockets_of(server)
    n = 16 << 20
    text = b'{"inputs":[{"name":"INPUT0","datatype":"UINT8","shape":[%d],"parameters":{"binary_data_size":%d}}]' % (n, n)
    text += b',"outputs":[{"name":"OUTPUT0","parameters":{"binary_data":true}}]}'
    with Connection(server) as connection:
        connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.send(request_bytes("POST", PATH, headers={"Inference-Header-Content-Length": len(text),
                                                               "Content-Length": len(text) + n}) + text + bytes(n))
        assert connection.socket.recv(1) == b"H"

        def gone():
            connection.socket.recv(1)
            return sockets_of(server) <= before

        wait_for(gone, WITHIN_S, "the connection is given up")
    assert ask(server, "GET", "/v2/health/ready").status == 200


def test_a_head_behind_requests_has_its_own_time(server):
    """Requests that are answered, then half a head: the earlier requests give it no more time."""
    with Connection(server) as connection:
        for _ in range(3):
            assert connection.request("GET", "/v2/health/ready").status == 200
        connection.send(b"GET /v2/health/ready HTTP/1.1\r\nX: ")
        answer = drip(connection, b"x", 2 * WITHIN_S)    # it has 30 s
    assert (answer.status, answer.error) == (408, "the request head took too long")


def await_reset(connection, drip_on):
    """Calls drip_on() again and again until the server resets the stream."""
    until = time.monotonic() + WITHIN_S
    while time.monotonic() < until:
        for got in connection.take_ready():
            if got.kind == h2.RST_STREAM:
                return got.stream
        drip_on()
        time.sleep(EACH_S)    # the rate of the client
    raise AssertionError(f"borne for {WITHIN_S} s")


def test_a_message_of_grpc_below_the_rate_ends_its_call(server):
    """The other calls of the connection go on."""
    with h2.Connection(server.grpc_url) as connection:
        connection.send(h2.begin(1, h2.INFER) + h2.frame(h2.DATA, 0, 1, h2.message(bytes(100_000))[:100]))
        connection.next_stream = 3
        assert await_reset(connection, lambda: connection.send(h2.frame(h2.DATA, 0, 1, b"x"))) == 1
        assert h2.status_of(connection.ask()) == 0


def test_an_answer_of_grpc_below_the_rate_ends_its_call(server):
    """The client opens a window of a byte at a time."""
    with h2.Connection(server.grpc_url, settings=h2.setting(h2.INITIAL_WINDOW_SIZE, 1)) as connection:
        connection.send(h2.call(1, "/inference.GRPCInferenceService/ServerMetadata"))
        assert await_reset(connection, lambda: connection.send(h2.window_update(1, 1))) == 1
