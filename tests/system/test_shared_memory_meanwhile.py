# SPDX-License-Identifier: Apache-2.0
"""What a client does to its shared memory while the server uses it."""

import concurrent.futures
import json
import os
import pathlib
import signal
import struct

import pytest
import tritonclient.grpc as grpc
from tritonclient.utils import InferenceServerException

import repository
import server as servers
from regions import Object, infer, part, register, status, unregister

PAGE = os.sysconf("SC_PAGESIZE")
FLAGS = ["--allow-client-shm=true"]
BROKEN = "shared memory region 'R' is broken: its object was shrunk while it was in use"


@pytest.fixture(scope="module")
def gate(tmp_path_factory):
    return repository.Gated(tmp_path_factory.mktemp("models"), "gated")


@pytest.fixture(scope="module")
def served(gate):
    repository.write_identity(gate.folder.parent, "strings", [("BYTES", [-1])])
    repository.write_identity(gate.folder.parent, "later", [("BYTES", [-1])], execute_delay_ms=100)
    repository.write_identity(gate.folder.parent, "echo", [("INT32", [-1])])
    repository.write_model(gate.folder.parent, "chain", """platform: "ensemble"
        input [ { name: "IN" data_type: TYPE_STRING dims: [ -1 ] } ]
        output [ { name: "MIDDLE" data_type: TYPE_STRING dims: [ -1 ] }, { name: "OUT" data_type: TYPE_STRING dims: [ -1 ] } ]
        ensemble_scheduling { step [
            { model_name: "strings" model_version: -1 input_map { key: "INPUT0" value: "IN" }
              output_map { key: "OUTPUT0" value: "MIDDLE" } },
            { model_name: "later" model_version: -1 input_map { key: "INPUT0" value: "MIDDLE" }
              output_map { key: "OUTPUT0" value: "OUT" } } ] }""")
    with servers.Server(gate.folder.parent, flags=FLAGS, grpc=True) as made:
        yield made


@pytest.fixture
def memory(served):
    with Object(4 * PAGE) as made:
        assert register(served, "R", made.key, 4 * PAGE) == (200, "")
        yield made
        unregister(served)
    served.assert_alive()


def error(text):
    return json.loads(text)["error"]


def ask_gated(served, region="R", outputs=None):
    return infer(served, "gated", [("IN", "INT32", [PAGE // 4], part(region, PAGE, PAGE))], outputs)


def while_it_executes(served, gate, act, request=ask_gated, **more):
    """The answer to a request during whose execution the test acts."""
    gate.shut("hold.execute")
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        try:
            answer = pool.submit(request, served, **more)
            gate.await_reached("hold.execute")
            act()
        finally:
            gate.open("hold.execute")
            (gate.folder / "hold.execute.reached").unlink(missing_ok=True)
        return answer.result(60)


def test_a_shrunk_input_fails_its_request_alone(served, gate, memory):
    with Object(2 * PAGE) as other:
        assert register(served, "other", other.key, 2 * PAGE) == (200, "")
        code, text = while_it_executes(served, gate, lambda: memory.resize(PAGE))
        assert (code, error(text)) == (500, BROKEN)
        assert ask_gated(served, "other")[0] == 200
        code, text = ask_gated(served)
        assert code == 400 and error(text).startswith("Invalid offset + byte size for shared memory region: 'R'")
        memory.resize(4 * PAGE)
        code, text = ask_gated(served)
        assert (code, error(text)) == (500, BROKEN), "its mapping has lost the object"
        assert unregister(served, "R") == (200, "")
        assert register(served, "R", memory.key, 4 * PAGE) == (200, "")
        assert ask_gated(served)[0] == 200


def test_a_shrunk_output_fails_its_request(served, gate, memory):
    outputs = [("OUT", part("R", PAGE, 2 * PAGE))]
    code, text = while_it_executes(served, gate, lambda: memory.resize(2 * PAGE), outputs=outputs)
    assert (code, error(text)) == (500, BROKEN)


def test_over_grpc_it_is_internal(served, gate, memory):
    given = grpc.InferInput("IN", [PAGE // 4], "INT32")
    given.set_shared_memory("R", PAGE, PAGE)

    def request(served):
        with grpc.InferenceServerClient(served.grpc_url) as client, pytest.raises(InferenceServerException) as caught:
            client.infer("gated", [given])
        return caught.value

    failure = while_it_executes(served, gate, lambda: memory.resize(0), request)
    assert (failure.status(), failure.message()) == ("StatusCode.INTERNAL", BROKEN)


def test_in_a_stream_it_is_an_error(served, gate, memory):
    given = grpc.InferInput("IN", [PAGE // 4], "INT32")
    given.set_shared_memory("R", PAGE, PAGE)

    def request(served):
        answers = []
        with grpc.InferenceServerClient(served.grpc_url) as client:
            client.start_stream(lambda result, error: answers.append(error))
            client.async_stream_infer("gated", [given])
            servers.wait_for(lambda: answers, 60, "an answer")
            client.stop_stream()
        return answers

    failures = while_it_executes(served, gate, lambda: memory.resize(0), request)
    assert [f.message() for f in failures] == [BROKEN]


def test_strings_that_shrink_before_they_are_copied(served, memory):
    memory.write(struct.pack("<I4s", 4, b"text"))
    memory.resize(0)
    code, _ = infer(served, "strings", [("INPUT0", "BYTES", [1], part("R", 8))])
    assert code == 400


def test_a_grown_or_unlinked_object_is_as_before(served, gate, memory):
    memory.write(struct.pack("<i", 7), PAGE)

    def grow_and_unlink():
        memory.resize(16 * PAGE)
        memory.file.unlink()

    code, text = while_it_executes(served, gate, grow_and_unlink)
    assert code == 200 and json.loads(text)["outputs"][0]["data"][0] == 7
    assert ask_gated(served)[0] == 200


def maps(served, memory):
    return memory.name in pathlib.Path(f"/proc/{served.pid}/maps").read_text(encoding="utf-8")


def test_an_unregistered_region_lives_until_its_last_request(served, gate, memory):
    outputs = [("OUT", part("R", PAGE, 2 * PAGE))]
    memory.write(struct.pack("<i", 8), PAGE)

    def act():
        assert unregister(served, "R") == (200, "")
        assert status(served) == (200, "[]"), "hidden at once"
        assert infer(served, "echo", [("INPUT0", "INT32", [1], part("R", 4))])[0] == 404
        assert maps(served, memory)

    assert while_it_executes(served, gate, act, outputs=outputs)[0] == 200
    assert memory.read(4, 2 * PAGE) == struct.pack("<i", 8)
    servers.wait_for(lambda: not maps(served, memory), 60, "it is unmapped")


def test_a_name_may_be_given_again_meanwhile(served, gate, memory):
    """The request goes on with the region that it found."""
    memory.write(struct.pack("<i", 9), PAGE)
    with Object(4 * PAGE) as other:
        def act():
            assert unregister(served, "R") == (200, "")
            assert register(served, "R", other.key, 4 * PAGE) == (200, "")

        code, text = while_it_executes(served, gate, act)
        assert code == 200 and json.loads(text)["outputs"][0]["data"][0] == 9
        assert ask_gated(served)[1] != text


def test_lengths_that_change_are_not_read_again(served, memory):
    """A client writes other lengths again and again while strings are checked and executed: it gets its strings or an error
    of the check, and nothing else."""
    good, bad = struct.pack("<I4s", 4, b"text"), struct.pack("<I4s", 2**31, b"text")
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        answers = []

        def request():
            for _ in range(200):
                answers.append(infer(served, "strings", [("INPUT0", "BYTES", [1], part("R", 8))]))

        asking = pool.submit(request)
        while not asking.done():
            memory.write(good)
            memory.write(bad)
        asking.result()
    for code, text in answers:
        assert code == 400 or json.loads(text)["outputs"][0]["data"] == ["text"]


def test_an_ensembles_strings_are_not_read_from_the_region(served, memory):
    """The output of a step that is also the input of the next one, which checks its lengths."""
    memory.write(struct.pack("<I4s", 4, b"text"))
    stop = []
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        def rewrite():
            while not stop:
                memory.write(struct.pack("<I", 2**31), PAGE)

        rewriting = pool.submit(rewrite)
        try:
            code, text = infer(served, "chain", [("IN", "BYTES", [1], part("R", 8))],
                               [("MIDDLE", part("R", 8, PAGE)), ("OUT", part("R", 8, 2 * PAGE))])
        finally:
            stop.append(True)
        rewriting.result()
    assert code == 200, text
    outputs = sorted(json.loads(text)["outputs"], key=lambda output: output["name"])
    assert outputs == [{"name": n, "datatype": "BYTES", "shape": [1]} for n in ("MIDDLE", "OUT")]
    assert memory.read(8, 2 * PAGE) == struct.pack("<I4s", 4, b"text")


def test_regions_and_their_bytes_are_bounded(models, memory):
    repository.write_identity(models, "echo", [("INT32", [-1])])
    flags = [*FLAGS, "--client-shm-max-regions=2", f"--client-shm-max-bytes={3 * PAGE}"]
    with servers.Server(models, flags=flags, grpc=True) as server:
        code, text = register(server, "a", memory.key, 4 * PAGE)
        assert code == 503 and "--client-shm-max-bytes" in error(text)
        assert register(server, "a", memory.key, 3 * PAGE)[0] == 200
        assert register(server, "b", memory.key, 1)[0] == 503
        assert unregister(server, "a")[0] == 200
        servers.wait_for(lambda: register(server, "a", memory.key, PAGE)[0] == 200, 60, "its room is free")
        assert register(server, "b", memory.key, PAGE)[0] == 200
        with grpc.InferenceServerClient(server.grpc_url) as client, pytest.raises(InferenceServerException) as caught:
            client.register_system_shared_memory("c", memory.key, PAGE)
        assert caught.value.status() == "StatusCode.RESOURCE_EXHAUSTED" and "--client-shm-max-regions" in caught.value.message()
        assert json.loads(status(server)[1])[1]["name"] == "b"


def test_any_other_bus_error_is_a_crash(models):
    repository.write_identity(models, "echo", [("INT32", [-1])])
    server = servers.Server(models, flags=FLAGS)
    server.start()
    try:
        server._await_start()
        server.signal(signal.SIGBUS)
        code = server.wait()
        server.err.join()
        if servers.SANITIZED:    # has a handler of its own, which is called
            assert code != 0 and "Sanitizer" in server.log()
        else:
            assert code == -signal.SIGBUS and "Signal (7) received" in server.log()
    finally:
        server.kill()
