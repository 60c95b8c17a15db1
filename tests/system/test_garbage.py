# SPDX-License-Identifier: Apache-2.0
"""Requests with a few bytes changed at random: each gets an answer or the end of its connection, and the server goes on.

The seeds are fixed, so that a failure can be repeated. The fuzz targets try millions of such inputs; these here go
through sockets, threads and a model.
"""

import json
import random
import socket
import struct

import pytest

from wire import Connection, ask, given, request_bytes

pytestmark = pytest.mark.conch_only("2.51 ends on some of these")

PATH = "/v2/models/pair/infer"
TEXT = json.dumps(
    {
        "id": "garbage",
        "parameters": {"binary_data_output": False, "mine": [1.5, True, None, "x"]},
        "inputs": [given("INPUT0", "FP32", [3], [1, -2.5e3, 0.125]), given("INPUT1", "INT32", [2], [[7], [8]])],
        "outputs": [{"name": "OUTPUT0"}, {"name": "OUTPUT1", "parameters": {"binary_data": True}}],
    }
).encode()
BINARY = json.dumps(
    {
        "inputs": [
            {"name": "INPUT0", "datatype": "FP32", "shape": [3], "parameters": {"binary_data_size": 12}},
            {"name": "INPUT1", "datatype": "INT32", "shape": [2], "parameters": {"binary_data_size": 8}},
        ]
    }
).encode()
TAIL = struct.pack("<3f2i", 1, 2, 3, 4, 5)
INTERESTING = [b"", b'"', b"{", b"}", b"[", b"]", b",", b":", b"\\", b"0", b"-", b"e", b".", b"\0", b"\xff", b"9" * 30, b"null", b"\r\n", b"[[[["]


def changed(source, data):
    """The data with one to four positions replaced, removed, repeated or cut."""
    data = bytearray(data)
    for _ in range(source.randint(1, 4)):
        at = source.randrange(len(data) + 1)
        how = source.randrange(5)
        if how == 0:
            data[at : at + 1] = source.choice(INTERESTING)
        elif how == 1:
            data[at : at + source.randint(1, 20)] = b""
        elif how == 2:
            data[at:at] = data[max(0, at - source.randint(1, 20)) : at]
        elif how == 3:
            data[at : at + 1] = bytes([source.randrange(256)])
        else:
            data[at:at] = source.choice(INTERESTING)
    return bytes(data)


@pytest.mark.parametrize("seed", range(4))
def test_requests_with_changed_bodies_are_answered(server, seed):
    """The HTTP around the body is right, so every request is answered, on the same connection."""
    source = random.Random(seed)
    seen = set()
    with Connection(server) as connection:
        for _ in range(2000):
            if source.random() < 0.6:
                body, headers = changed(source, TEXT), {}
            else:
                head = changed(source, BINARY)
                body, headers = head + TAIL, {"Inference-Header-Content-Length": len(head)}
            answer = connection.request("POST", PATH, body, headers)
            assert answer.status in (200, 400, 500, 501), (body, answer)
            if answer.status != 200:
                assert answer.body.startswith(b'{"error":"') and answer.body.endswith(b'"}')  # perhaps not UTF-8 between
            seen.add(answer.status)
    assert seen >= {200, 400, 500}


@pytest.mark.parametrize("seed", range(4))
def test_changed_requests_end_their_connection_or_get_an_answer(server, seed):
    """Any byte may be wrong. When the client has sent everything, the connection ends."""
    source = random.Random(100 + seed)
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(TEXT[i : i + 50]), TEXT[i : i + 50]) for i in range(0, len(TEXT), 50)) + b"0\r\n\r\n"
    requests = [
        request_bytes("POST", PATH, TEXT),
        request_bytes("POST", PATH, BINARY + TAIL, {"Inference-Header-Content-Length": len(BINARY)}),
        request_bytes("POST", PATH, headers={"Transfer-Encoding": "chunked"}) + chunks,
        request_bytes("GET", "/v2/models/pair/config"),
    ]
    for _ in range(100):
        data = changed(source, b"".join(source.choice(requests) for _ in range(source.randint(1, 4))))
        with Connection(server) as connection:
            try:
                connection.send(data)
                connection.socket.shutdown(socket.SHUT_WR)
                while connection.socket.recv(1 << 16):
                    pass
            except (BrokenPipeError, ConnectionResetError, OSError) as error:
                assert not isinstance(error, TimeoutError), data
    assert ask(server, "GET", "/v2/health/ready").status == 200
