# SPDX-License-Identifier: Apache-2.0
"""Tensors in memory of a GPU that a client shares, over both protocols. The driver is tests/cuda/fake_cuda.c, whose memory is an
object of shm_open(). Without a driver: test_shared_memory.py."""

import base64
import concurrent.futures
import json
import os
import re
import struct
import urllib.request

import numpy as np
import pytest
import tritonclient.grpc as grpc
import tritonclient.http as http
from tritonclient.utils import InferenceServerException, serialize_byte_tensor

import repository
import server as servers
from regions import Object, ask, infer, part, register, status, unregister

pytestmark = pytest.mark.sanitize    # half a second, and all of it is about memory and threads
PAGE = os.sysconf("SC_PAGESIZE")
LARGE = 1 << 20
MANY = """backend: "repeat" model_transaction_policy { decoupled: true }
    input [ { name: "IN" data_type: TYPE_INT32 dims: [ -1 ] }, { name: "DELAY" data_type: TYPE_UINT32 dims: [ -1 ] },
            { name: "WAIT" data_type: TYPE_UINT32 dims: [ 1 ] } ]
    output [ { name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] }, { name: "IDX" data_type: TYPE_UINT32 dims: [ 1 ] } ]
    instance_group [ { count: 1 kind: KIND_CPU } ]"""
CHAIN = """platform: "ensemble"
    input [ { name: "IN" data_type: TYPE_STRING dims: [ -1 ] } ] output [ { name: "OUT" data_type: TYPE_STRING dims: [ -1 ] } ]
    ensemble_scheduling { step [ { model_name: "strings" model_version: -1
        input_map { key: "INPUT0" value: "IN" } output_map { key: "OUTPUT0" value: "OUT" } } ] }"""
ENVIRONMENT = {"LD_LIBRARY_PATH": str(servers.BUILD / "tests/cuda")}


class Memory(Object):
    """Memory of the fake GPU, and its handle."""

    @property
    def handle(self):
        return b"FAKE" + self.key.encode().ljust(60, b"\0")

    @property
    def base64(self):
        return base64.b64encode(self.handle)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    made = tmp_path_factory.mktemp("models")
    for name, datatype in ("floats", "FP32"), ("strings", "BYTES"):
        repository.write_identity(made, name, [(datatype, [-1])])
    repository.write_model(made, "many", MANY)
    repository.write_model(made, "chain", CHAIN)
    repository.Gated(made, "gated")
    return made


@pytest.fixture(scope="module")
def server(models):
    with servers.Server(models, flags=["--allow-client-shm=true", "--allow-metrics=true", "--metrics-port=0"], grpc=True,
                        env=ENVIRONMENT) as made:
        yield made


@pytest.fixture
def memory():
    with Memory(2 * LARGE) as made:
        yield made


def register_cuda(server, name, memory, n_bytes=2 * LARGE, device=0, **changes):
    body = {"raw_handle": {"b64": memory.base64.decode()}, "device_id": device, "byte_size": n_bytes, **changes}
    return ask(server, "POST", f"/v2/cudasharedmemory/region/{name}/register", {k: v for k, v in body.items() if v is not None})


def forget(server):
    assert ask(server, "POST", "/v2/cudasharedmemory/unregister") == (200, "")


@pytest.fixture
def region(server, memory):
    assert register_cuda(server, "G", memory) == (200, "")
    yield memory
    forget(server)


def error(text):
    return json.loads(text)["error"]


# ---- Registering ---------------------------------------------------------------------------------


def test_memory_is_registered_listed_and_unregistered(server, memory):
    assert register_cuda(server, "one", memory, 100, device=1) == (200, "")
    assert json.loads(status(server, "one", "cuda")[1]) == [{"name": "one", "device_id": 1, "byte_size": 100}]
    assert register_cuda(server, "one", memory, 100) == (400, json.dumps(
        {"error": "shared memory region 'one' already in manager"}, separators=(",", ":")))
    assert error(status(server, "one")[1]) == \
        "The region named 'one' is registered as CUDA shared memory, not system shared memory"
    with grpc.InferenceServerClient(server.grpc_url) as client:
        client.register_cuda_shared_memory("two", memory.base64, 0, 200)
        listed = client.get_cuda_shared_memory_status().regions
        assert {name: (of.device_id, of.byte_size) for name, of in listed.items()} == {"one": (1, 100), "two": (0, 200)}
        client.unregister_cuda_shared_memory("one")
    with http.InferenceServerClient(server.url) as client:
        assert [of["name"] for of in client.get_cuda_shared_memory_status()] == ["two"]
        client.register_cuda_shared_memory("three", memory.base64, 0, 300)
        client.unregister_cuda_shared_memory()
        assert client.get_cuda_shared_memory_status() == []


def test_regions_are_counted(server, memory):
    assert register_cuda(server, "one", memory, 100) == (200, "")
    server.wait_log("Started Metrics Service at ")
    place = re.search(r'Started Metrics Service at ([^\s"]+)', server.log())[1]
    text = urllib.request.urlopen(f"http://{place}/metrics", timeout=60).read().decode()
    assert 'conch_frontend_regions{kind="cuda"} 1\n' in text
    assert 'conch_frontend_region_bytes{kind="cuda"} 100\n' in text
    forget(server)


BAD_HANDLE = "'raw_handle' must be a valid base64 encoded cudaIpcMemHandle_t"
REFUSED = {
    "no handle": (400, "Shared memory register request has no 'raw_handle' field", {"raw_handle": None}),
    "no base64": (400, "Shared memory register request has no 'b64' field", {"raw_handle": {}}),
    "no device": (400, "Shared memory register request has no 'device_id' field", {"device_id": None}),
    "no size": (400, "Shared memory register request has no 'byte_size' field", {"byte_size": None}),
    "handle is a text": (500, "attempt to access JSON non-object as object", {"raw_handle": "AAAA"}),
    "base64 is a number": (500, "attempt to access JSON non-string as string", {"raw_handle": {"b64": 1}}),
    "device is a text": (500, "attempt to access JSON non-signed-integer as signed-integer", {"device_id": "1"}),
    "size below 0": (500, "attempt to access JSON non-unsigned-integer as unsigned-integer", {"byte_size": -1}),
    "no such base64": (400, BAD_HANDLE, {"raw_handle": {"b64": "%%%"}}),
    "a short handle": (400, BAD_HANDLE, {"raw_handle": {"b64": "AAAA"}}),
    "a long handle": (400, BAD_HANDLE, {"raw_handle": {"b64": "A" * 1000}}),
    "an unknown handle": (500, "failed to register CUDA shared memory region 'R': failed to open CUDA IPC handle: "
                               "invalid resource handle", {"raw_handle": {"b64": base64.b64encode(bytes(64)).decode()}}),
    "no such device": (400, "failed to register CUDA shared memory region 'R': unable to use device 2: invalid device ordinal",
                       {"device_id": 2}),
    "a device below 0": (400, "failed to register CUDA shared memory region 'R': there is no device -1", {"device_id": -1}),
    "too large": (400, f"failed to register CUDA shared memory region 'R': the memory has {2 * LARGE} bytes",
                  {"byte_size": 2 * LARGE + 1}),
    "size 2^64 - 1": (503, "failed to register shared memory region 'R': with its 18446744073709551615 bytes", {"byte_size": 2**64 - 1}),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_registered_is_refused(server, memory, case):
    code, text, changes = REFUSED[case]
    got, answer = register_cuda(server, "R", memory, **changes)
    assert (got, error(answer)[:len(text)]) == (code, text)
    assert status(server, kind="cuda") == (200, "[]")


def test_a_handle_of_another_size_is_refused_over_grpc(server):
    with grpc.InferenceServerClient(server.grpc_url) as client, pytest.raises(InferenceServerException) as caught:
        client.register_cuda_shared_memory("R", b"AAAA", 0, 8)
    assert caught.value.status() == "StatusCode.INVALID_ARGUMENT"
    assert caught.value.message() == "failed to register CUDA shared memory region 'R': its handle has 3 bytes instead of 64"


# ---- Inference -----------------------------------------------------------------------------------


@pytest.mark.parametrize("module", [http, grpc])
@pytest.mark.parametrize("n", [1, 200000])
def test_inputs_and_outputs_lie_in_memory_of_a_gpu(server, region, module, n):
    values = np.arange(n, dtype=np.float32)
    region.write(values.tobytes(), offset=4)
    with module.InferenceServerClient(server.url if module is http else server.grpc_url) as client:
        given = module.InferInput("INPUT0", [n], "FP32")
        given.set_shared_memory("G", values.nbytes, 4)
        wanted = module.InferRequestedOutput("OUTPUT0")
        wanted.set_shared_memory("G", values.nbytes, LARGE)
        result = client.infer("floats", [given], outputs=[wanted])
        assert result.get_output("OUTPUT0") is not None
        assert region.read(values.nbytes, LARGE) == values.tobytes()
        answer = client.infer("floats", [given])    # the output comes in the answer
        assert answer.as_numpy("OUTPUT0").tolist() == values.tolist()


def test_the_host_and_the_gpu_may_both_have_tensors(server, region):
    with Object(PAGE) as own:
        assert register(server, "S", own.key, PAGE) == (200, "")
        own.write(struct.pack("<f", 5))
        code, _ = infer(server, "floats", [("INPUT0", "FP32", [1], part("S", 4))], [("OUTPUT0", part("G", 4, 8))])
        assert code == 200 and region.read(4, 8) == struct.pack("<f", 5)
        code, _ = infer(server, "floats", [("INPUT0", "FP32", [1], part("G", 4, 8))], [("OUTPUT0", part("S", 4, 64))])
        assert code == 200 and own.read(4, 64) == struct.pack("<f", 5)
        assert unregister(server) == (200, "")


@pytest.mark.parametrize("model, names", [("strings", ("INPUT0", "OUTPUT0")), ("chain", ("IN", "OUT"))])
def test_strings_lie_in_memory_of_a_gpu(server, region, model, names):
    data = serialize_byte_tensor(np.array([b"one", b"", b"three" * 20000], dtype=np.object_)).item()
    region.write(data)
    code, text = infer(server, model, [(names[0], "BYTES", [3], part("G", len(data)))], [(names[1], part("G", LARGE, LARGE))])
    assert code == 200, text
    assert region.read(len(data), LARGE) == data
    region.write(struct.pack("<I", 1 << 30))
    code, text = infer(server, model, [(names[0], "BYTES", [3], part("G", len(data)))])
    assert code == 400, "lengths are checked"


def test_parts_are_checked(server, region):
    for where in part("G", 4, 2 * LARGE), part("G", 4, 2 * LARGE - 3), part("G", 4, 2**64 - 1), part("G", 2**64 - 1, 4):
        for inputs, outputs in (where, part("G", 4)), (part("G", 4), where):
            code, text = infer(server, "floats", [("INPUT0", "FP32", [1], inputs)], [("OUTPUT0", outputs)])
            assert code == 400 and "shared memory region: 'G'" in error(text).replace("for region 'G'", "shared memory region: 'G'")
    code, text = infer(server, "floats", [("INPUT0", "FP32", [2], part("G", 8))], [("OUTPUT0", part("G", 4))])
    assert (code, error(text)) == (500, "shared memory size specified with the request for output 'OUTPUT0' (4 bytes) should be "
                                        "at least 8 bytes to hold the results")


def stream(server, n, outputs):
    """The answers of the model `many` to one request with n numbers."""
    answers = []
    client = grpc.InferenceServerClient(server.grpc_url)
    client.start_stream(lambda result, error: answers.append((result, error)))
    inputs = []
    for name, datatype, values in ("IN", "INT32", range(100, 100 + n)), ("DELAY", "UINT32", [0] * n), ("WAIT", "UINT32", [0]):
        values = np.array(values, dtype=np.int32 if datatype == "INT32" else np.uint32)
        inputs.append(grpc.InferInput(name, [len(values)], datatype).set_data_from_numpy(values))
    client.async_stream_infer("many", inputs, outputs=outputs, enable_empty_final_response=True)
    servers.wait_for(lambda: answers and (answers[-1][1] or answers[-1][0].get_response().parameters["triton_final_response"].bool_param),
                     60, "the final answer")
    client.stop_stream()
    client.close()
    return answers


def test_responses_of_a_stream_stay_in_order(server, region):
    wanted = grpc.InferRequestedOutput("OUT")
    wanted.set_shared_memory("G", 4, 16)
    answers = stream(server, 300, [wanted, grpc.InferRequestedOutput("IDX")])
    assert [failure for _, failure in answers if failure] == []
    assert [int(result.as_numpy("IDX")[0]) for result, _ in answers[:-1]] == list(range(300))
    assert {tuple(map(len, result.get_response().raw_output_contents)) for result, _ in answers[:-1]} == {(0, 4)}
    assert region.read(4, 16) == struct.pack("<i", 399), "of the last response"


def test_memory_that_its_client_frees_fails_requests(server, memory):
    assert register_cuda(server, "G", memory) == (200, "")
    memory.resize(64)
    text = "shared memory region 'G': failed to copy %s the GPU: an illegal memory access was encountered"
    for inputs, outputs, direction in (part("G", 4, 64), part("G", 4), "from"), (part("G", 4), part("G", 4, 64), "to"):
        code, answer = infer(server, "floats", [("INPUT0", "FP32", [1], inputs)], [("OUTPUT0", outputs)])
        assert (code, error(answer)) == (500, text % direction)
    wanted = grpc.InferRequestedOutput("OUT")
    wanted.set_shared_memory("G", 4, 64)
    answers = stream(server, 3, [wanted])
    assert [failure.message() for _, failure in answers if failure] == [text % "to"] * 3
    code, _ = infer(server, "floats", [("INPUT0", "FP32", [1], part("G", 4))], [("OUTPUT0", part("G", 4))])
    assert code == 200, "the rest is there"
    forget(server)


def test_a_region_that_is_unregistered_lives_until_its_last_request_ends(server, models, memory):
    gate = models / "gated/hold.execute"
    gate.touch()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        assert register_cuda(server, "G", memory) == (200, "")
        memory.write(struct.pack("<i", 77))
        answer = pool.submit(infer, server, "gated", [("IN", "INT32", [1], part("G", 4))], [("OUT", part("G", 4, 8))])
        servers.wait_for((models / "gated/hold.execute.reached").exists, 60, "the execution")
        forget(server)
        assert infer(server, "gated", [("IN", "INT32", [1], part("G", 4))])[0] == 404
        gate.unlink()
        assert answer.result()[0] == 200
        assert memory.read(4, 8) == struct.pack("<i", 77)


def test_many_requests_at_once_have_their_own_values(server, region):
    n, size = 40000, 160000

    def one(i):
        offset = i * 2 * size
        values = np.full(n, i, dtype=np.float32)
        region.write(values.tobytes(), offset=offset)
        code, text = infer(server, "floats", [("INPUT0", "FP32", [n], part("G", size, offset))],
                           [("OUTPUT0", part("G", size, offset + size))])
        return code == 200 and region.read(size, offset + size) == values.tobytes()

    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        for _ in range(10):
            assert all(pool.map(one, range(6)))
