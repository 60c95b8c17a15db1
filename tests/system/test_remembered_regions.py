# SPDX-License-Identifier: Apache-2.0
"""Requests with the same bytes, whose tensors lie in shared memory: the JSON is compared instead of parsed, and the regions
are those of now.
"""

import json
import struct

import pytest

import repository
from regions import Object, part, register, unregister
from server import Server
from wire import Connection, request_bytes

N_BYTES = 8
ONE, TWO, THREE = (struct.pack("<2f", n, -n) for n in (1, 2, 3))


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    models = tmp_path_factory.mktemp("models")
    repository.write_identity(models, "a", [("FP32", [-1])])
    repository.write_identity(models, "strings", [("BYTES", [-1])])
    with Server(models, flags=["--allow-client-shm=true"]) as made:
        yield made


@pytest.fixture
def server(served):
    yield served
    unregister(served)


@pytest.fixture
def memory():
    with Object(4096) as made:
        made.write(ONE)
        yield made


@pytest.fixture
def other():
    with Object(4096) as made:
        made.write(TWO)
        yield made


def request(given, wanted=None, model="a", datatype="FP32", **more):
    """Every byte of a request; given, wanted: the parameters of the input and of the output."""
    body = {"inputs": [{"name": "INPUT0", "datatype": datatype, "shape": [2], "parameters": given}], **more}
    if wanted is not None:
        body["outputs"] = [{"name": "OUTPUT0", "parameters": wanted}]
    return request_bytes("POST", f"/v2/models/{model}/infer", json.dumps(body).encode())


def asked(connection, wire):
    """The outputs of the answer; or its status and error."""
    connection.send(wire)
    answer = connection.response()
    return json.loads(answer.body)["outputs"] if answer.status == 200 else (answer.status, answer.error)


IN_REGION = [{"name": "OUTPUT0", "datatype": "FP32", "shape": [2]}]


def test_the_memory_is_that_of_now(server, memory):
    register(server, "R", memory.key, 4096)
    wire = request(part("R", N_BYTES), part("R", N_BYTES, 64))
    with Connection(server) as c:
        for values in (ONE, TWO, THREE):
            memory.write(values)
            assert asked(c, wire) == IN_REGION
            assert memory.read(N_BYTES, 64) == values


def test_a_name_is_looked_up_each_time(server, memory, other):
    wire = request(part("R", N_BYTES), part("R", N_BYTES, 64))
    with Connection(server) as c:
        for _ in range(2):
            register(server, "R", memory.key, 4096)
            assert [asked(c, wire) for _ in range(3)] == [IN_REGION] * 3
            unregister(server, "R")
            assert asked(c, wire) == (404, "Unable to find shared memory region: 'R'")
            register(server, "R", other.key, 4096)
            assert asked(c, wire) == IN_REGION
            unregister(server, "R")
    assert (memory.read(N_BYTES, 64), other.read(N_BYTES, 64)) == (ONE, TWO)


def test_the_size_is_checked_each_time(server, memory):
    register(server, "R", memory.key, 4096)
    wire = request(part("R", N_BYTES), part("R", N_BYTES, 64))
    with Connection(server) as c:
        assert [asked(c, wire) for _ in range(3)] == [IN_REGION] * 3
        memory.resize(64)
        code, text = asked(c, wire)
        assert code == 400 and text.startswith("Invalid offset + byte size for shared memory region: 'R'")
        memory.resize(4096)
        memory.write(THREE)
        assert asked(c, wire) == IN_REGION
    assert memory.read(N_BYTES, 64) == THREE


def test_requests_that_differ_in_one_thing(server, memory, other):
    """Each answer is that of a fresh connection, whatever came before; most of the texts have one length."""
    other.write(THREE, 8)
    register(server, "R", memory.key, 4096)
    register(server, "S", other.key, 4096)
    wires = [request(part("R", 8, 0)), request(part("S", 8, 0)), request(part("S", 8, 8)), request(part("S", 9, 8)),
             request(part("R", 8, 0), part("S", 8, 64)), request(part("S", 8, 0), part("R", 8, 64)),
             request(part("R", 8, 0), part("S", 7, 64)), request(part("R", 8, 0), {"binary_data": False}),
             request(part("R", 8, 0), part("S", 8, 64), id="x"), request(part("R", 8, 0), part("T", 8, 64)),
             request(part("R", 8, 0), part("S", 8, 64), parameters={"binary_data_output": True}),
             request(part("R\u0041", 8, 0)), request(part("R", 8, 0), part("S", 8, 64), parameters={"mine": 1})]
    fresh = []
    for wire in wires:
        with Connection(server) as c:
            fresh.append(asked(c, wire))
    assert [o for o in fresh if not isinstance(o, tuple)].count(IN_REGION) == 5
    assert fresh[0][0]["data"] == [1, -1] and fresh[1][0]["data"] == [2, -2] and fresh[2][0]["data"] == [3, -3]
    with Connection(server) as c:
        for wire, answer in [*zip(wires, fresh)] * 2 + [*zip(wires[::-1], fresh[::-1])]:
            assert [asked(c, wire) for _ in range(3)] == [answer] * 3


def test_replies_in_a_region_and_behind_the_text_differ(server, memory):
    """The same model, shape and size: one reply says how many bytes follow it, the other does not."""
    register(server, "R", memory.key, 4096)
    inside = request(part("R", N_BYTES), part("R", N_BYTES, 64))
    behind = request(part("R", N_BYTES), {"binary_data": True})
    with Connection(server) as c:
        for _ in range(3):
            assert asked(c, inside) == IN_REGION
            c.send(behind)
            answer = c.response()
            length = int(answer.headers["inference-header-content-length"])
            assert json.loads(answer.body[:length])["outputs"] == [{**IN_REGION[0], "parameters": {"binary_data_size": N_BYTES}}]
            assert answer.body[length:] == ONE


def test_strings_are_copied_and_checked_each_time(server, memory):
    data = struct.pack("<I3sI1s", 3, b"abc", 1, b"d")
    register(server, "R", memory.key, 4096)
    wire = request(part("R", len(data)), model="strings", datatype="BYTES")
    with Connection(server) as c:
        for _ in range(3):
            memory.write(data)
            assert asked(c, wire)[0]["data"] == ["abc", "d"]
            memory.write(struct.pack("<I", 1000))
            code, _ = asked(c, wire)
            assert code == 400
