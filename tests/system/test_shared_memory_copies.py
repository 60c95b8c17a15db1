# SPDX-License-Identifier: Apache-2.0
"""Strings in shared memory are copied before they are checked: few bytes on the loop, more by a helper thread, while which
the client may do anything.
"""

import json
import os
import pathlib
import queue
import re
import struct

import pytest
import tritonclient.grpc as grpc
from tritonclient.utils import InferenceServerException

import repository
import server as servers
from regions import Object, infer, part, register, unregister
from wire import Connection, request_bytes

MIB = 1 << 20
LENGTH = 60 << 10
ONE = struct.pack(f"<I{LENGTH}s", LENGTH, b"x" * LENGTH)


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    models = tmp_path_factory.mktemp("models")
    repository.write_identity(models, "strings", [("BYTES", [-1])])
    repository.write_identity(models, "two", [("BYTES", [-1]), ("BYTES", [-1])])
    with servers.Server(models, flags=["--allow-client-shm=true", "--http-thread-count=1"], grpc=True) as made:
        yield made


@pytest.fixture
def memory(served):
    with Object(64 * MIB) as made:
        assert register(served, "R", made.key, 64 * MIB) == (200, "")
        yield made
        unregister(served)
    served.assert_alive()


def fill(memory, n, value=b"x", offset=0):
    """n strings; their bytes."""
    data = (struct.pack("<I", LENGTH) + value * LENGTH) * n
    memory.write(data, offset)
    return data


def turns_of_helpers(served):
    """How often the helper threads have gone to sleep. (How often they have run depends on the machine's other work.)"""
    total = 0
    for task in pathlib.Path(f"/proc/{served.pid}/task").iterdir():
        try:
            if (task / "comm").read_text().strip() == "control":
                total += int(re.search(r"^voluntary_ctxt_switches:\s+(\d+)", (task / "status").read_text(), re.M)[1])
        except OSError:
            pass    # it has ended
    return total


def over_grpc(served, n, n_bytes, offset, model="strings"):
    with grpc.InferenceServerClient(served.grpc_url) as client:
        given = grpc.InferInput("INPUT0", [n], "BYTES")
        given.set_shared_memory("R", n_bytes)
        wanted = grpc.InferRequestedOutput("OUTPUT0")
        wanted.set_shared_memory("R", n_bytes, offset)
        client.infer(model, [given], outputs=[wanted])


@pytest.mark.parametrize("n", [1, 10, 300])
def test_many_bytes_of_strings_arrive(served, memory, n):
    data = fill(memory, n)
    before = turns_of_helpers(served)
    code, text = infer(served, "strings", [("INPUT0", "BYTES", [n], part("R", len(data)))],
                       [("OUTPUT0", part("R", len(data), 32 * MIB))])
    assert (code, json.loads(text).get("error")) == (200, None)
    assert memory.read(len(data), 32 * MIB) == data
    servers.wait_for(lambda: turns_of_helpers(served) > before, 60, "a helper has copied them, and sleeps again")
    data = fill(memory, n, b"y")
    over_grpc(served, n, len(data), 32 * MIB)
    assert memory.read(len(data), 32 * MIB) == data


def test_few_bytes_are_copied_at_once(served, memory):
    """A helper that is interrupted while it goes to sleep runs once more, but not once for each request."""
    memory.write(struct.pack("<I4s", 4, b"text"))
    n_requests = 20
    before = turns_of_helpers(served)
    for _ in range(n_requests):
        assert infer(served, "strings", [("INPUT0", "BYTES", [1], part("R", 8))])[0] == 200
    assert turns_of_helpers(served) - before < n_requests // 2


def test_two_inputs_are_copied_by_one_job(served, memory):
    first, second = fill(memory, 4, b"a"), fill(memory, 5, b"b", 8 * MIB)
    code, text = infer(served, "two", [("INPUT0", "BYTES", [4], part("R", len(first))),
                                       ("INPUT1", "BYTES", [5], part("R", len(second), 8 * MIB))],
                       [("OUTPUT0", part("R", len(first), 16 * MIB)), ("OUTPUT1", part("R", len(second), 24 * MIB))])
    assert code == 200, text
    assert (memory.read(len(first), 16 * MIB), memory.read(len(second), 24 * MIB)) == (first, second)


def test_wrong_lengths_are_found_in_the_copy(served, memory):
    n_bytes = len(fill(memory, 10))
    memory.write(struct.pack("<I", 2**31), 9 * len(ONE))
    code, _ = infer(served, "strings", [("INPUT0", "BYTES", [10], part("R", n_bytes))])
    assert code == 400
    with pytest.raises(InferenceServerException, match="BYTES|bytes|string"):
        over_grpc(served, 10, n_bytes, 32 * MIB)


def large(n, headers=None):
    body = {"inputs": [{"name": "INPUT0", "datatype": "BYTES", "shape": [n], "parameters": part("R", n * len(ONE))}],
            "outputs": [{"name": "OUTPUT0", "parameters": part("R", n * len(ONE), 32 * MIB)}]}
    return request_bytes("POST", "/v2/models/strings/infer", json.dumps(body).encode(), headers or {})


def test_clients_that_go_while_a_helper_copies(served, memory):
    """The region is unmapped all the same once they are gone."""
    fill(memory, 300)
    for _ in range(30):
        with Connection(served) as c:
            c.send(large(300))
    for _ in range(10):
        with grpc.InferenceServerClient(served.grpc_url) as client:
            given = grpc.InferInput("INPUT0", [300], "BYTES")
            given.set_shared_memory("R", 300 * len(ONE))
            client.async_infer("strings", [given], lambda result, error: None).cancel()
    assert unregister(served, "R") == (200, "")
    servers.wait_for(lambda: memory.name not in pathlib.Path(f"/proc/{served.pid}/maps").read_text(encoding="utf-8"), 60,
                     "it is unmapped")
    assert register(served, "R", memory.key, 64 * MIB) == (200, "")
    assert infer(served, "strings", [("INPUT0", "BYTES", [1], part("R", len(ONE)))])[0] == 200


def test_deadlines_that_pass_while_a_helper_copies(served, memory):
    fill(memory, 300)
    codes = set()
    with Connection(served) as c:
        for _ in range(30):
            c.send(large(300, {"Conch-Timeout-Ms": "1"}))
            codes.add(c.response().status)
    assert codes <= {200, 504}
    with grpc.InferenceServerClient(served.grpc_url) as client:
        given = grpc.InferInput("INPUT0", [300], "BYTES")
        given.set_shared_memory("R", 300 * len(ONE))
        n_late = 0
        for _ in range(20):
            try:
                client.infer("strings", [given], client_timeout=0.001)    # the answer may come before its timer fires
            except InferenceServerException as late:
                assert "DEADLINE_EXCEEDED" in str(late)
                n_late += 1
        assert n_late > 0


def test_an_object_that_shrinks_while_a_helper_copies(served, memory):
    """Each request is answered: whole, refused, or failed by the missing part; registered again, the region works."""
    fill(memory, 300)
    codes = set()
    for _ in range(20):
        with Connection(served) as c:
            c.send(large(300))
            memory.resize(16 * os.sysconf("SC_PAGESIZE"))
            codes.add(c.response().status)
        memory.resize(64 * MIB)
        fill(memory, 300)
        unregister(served)
        assert register(served, "R", memory.key, 64 * MIB) == (200, "")
    assert codes <= {200, 400, 500}
    assert infer(served, "strings", [("INPUT0", "BYTES", [1], part("R", len(ONE)))])[0] == 200


def test_a_stream_keeps_its_order_while_a_helper_copies(served, memory):
    """Large requests and small ones in turn: the answers come in the order of the requests, and each is its own."""
    data, answers = fill(memory, 100), queue.Queue()
    memory.write(struct.pack("<I4s", 4, b"text"), 16 * MIB)
    with grpc.InferenceServerClient(served.grpc_url) as client:
        client.start_stream(lambda result, error: answers.put(error or result))
        for i in range(30):
            given = grpc.InferInput("INPUT0", [1 if i % 2 else 100], "BYTES")
            given.set_shared_memory("R", *((8, 16 * MIB) if i % 2 else (len(data),)))
            wanted = grpc.InferRequestedOutput("OUTPUT0")
            wanted.set_shared_memory("R", len(data), 32 * MIB)
            client.async_stream_infer("strings", [given], outputs=[wanted], request_id=str(i))
        got = [answers.get(timeout=60) for _ in range(30)]
        assert [g.get_response().id for g in got] == [str(i) for i in range(30)]
        client.stop_stream()


def test_errors_in_a_stream_keep_their_order_while_a_helper_copies(served, memory):
    fill(memory, 100)
    memory.write(struct.pack("<I", 2**31), 50 * len(ONE))
    memory.write(struct.pack("<I4s", 4, b"text"), 16 * MIB)
    answers = queue.Queue()
    with grpc.InferenceServerClient(served.grpc_url) as client:
        client.start_stream(lambda result, error: answers.put(error or result))
        for i in range(20):
            given = grpc.InferInput("INPUT0", [1 if i % 2 else 100], "BYTES")
            given.set_shared_memory("R", *((8, 16 * MIB) if i % 2 else (100 * len(ONE),)))
            client.async_stream_infer("strings", [given], request_id=str(i))
        got = [answers.get(timeout=60) for _ in range(20)]
        assert [isinstance(g, InferenceServerException) for g in got] == [True, False] * 10
        client.stop_stream()


def test_a_stream_that_is_cancelled_while_a_helper_copies(served, memory):
    fill(memory, 300)
    for _ in range(10):
        with grpc.InferenceServerClient(served.grpc_url) as client:
            client.start_stream(lambda result, error: None)
            for _ in range(5):
                given = grpc.InferInput("INPUT0", [300], "BYTES")
                given.set_shared_memory("R", 300 * len(ONE))
                client.async_stream_infer("strings", [given])
            client.stop_stream(cancel_requests=True)
    assert unregister(served, "R") == (200, "")
    servers.wait_for(lambda: memory.name not in pathlib.Path(f"/proc/{served.pid}/maps").read_text(encoding="utf-8"), 60,
                     "it is unmapped")
