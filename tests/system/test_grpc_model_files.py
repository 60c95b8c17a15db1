# SPDX-License-Identifier: Apache-2.0
"""Models whose files a client of gRPC sends with RepositoryModelLoad (`file:<path>`).

A message of more than 32 KiB is read by a helper thread, and every load is made by a control thread, so that the loop
serves others meanwhile. A load that is refused leaves neither files nor memory.
"""

import concurrent.futures
import json
import re
import urllib.request

import grpc
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc

import repository
from server import Server, wait_for

pytestmark = pytest.mark.conch_only("test_model_control.py compares loads with the reference's")

WITHIN_S = 120
AT_REST_BYTES = 4 << 20    # of connections' memory: the loop's pool keeps some
CONFIG = json.dumps({"backend": "identity", "input": [{"name": "I", "data_type": "TYPE_INT32", "dims": [1]}],
                     "output": [{"name": "O", "data_type": "TYPE_INT32", "dims": [1]}],
                     "instance_group": [{"count": 1, "kind": "KIND_CPU"}]})


@pytest.fixture(name="temporary", scope="module")
def _temporary(tmp_path_factory):
    return tmp_path_factory.mktemp("temporary")


@pytest.fixture(name="gated", scope="module")
def _gated(tmp_path_factory):
    return repository.Gated(tmp_path_factory.mktemp("models"), "gated")


@pytest.fixture(name="served", scope="module")
def _served(gated, temporary):
    """A server with one loop."""
    flags = ["--model-control-mode=explicit", "--http-thread-count=1", "--allow-metrics=true", "--metrics-port=0"]
    with Server(gated.folder.parent, flags=flags, env={"TMPDIR": str(temporary)}, grpc=True) as server:
        yield server


@pytest.fixture(name="stub")
def _stub(served):
    with grpc.insecure_channel(served.grpc_url, options=[("grpc.max_send_message_length", -1)]) as channel:
        yield service_pb2_grpc.GRPCInferenceServiceStub(channel)


def load_request(model, files, config=CONFIG):
    request = service_pb2.RepositoryModelLoadRequest(model_name=model)
    if config is not None:
        request.parameters["config"].string_param = config
    for name, content in files.items():
        request.parameters[name].bytes_param = content
    return request


def unload(stub, model):
    stub.RepositoryModelUnload(service_pb2.RepositoryModelUnloadRequest(model_name=model), timeout=WITHIN_S)


def is_ready(stub, model):
    try:
        return stub.ModelReady(service_pb2.ModelReadyRequest(name=model), timeout=WITHIN_S).ready
    except grpc.RpcError as error:    # as the reference answers for a model that is not loaded
        assert error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.NOT_FOUND), error
        return False


def is_live(stub):
    return stub.ServerLive(service_pb2.ServerLiveRequest(), timeout=WITHIN_S).live


def files_of(temporary, model):
    """{path below the model's folder: content} of the copies that the server has."""
    found = {}
    for folder in temporary.glob(f"conch-model-*/*/{model}"):
        found |= {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    found.pop("config.pbtxt", None)
    return found


def content_of(number, size):
    return bytes([number]) * (size // 2) + bytes(size - size // 2)


def assert_refused(stub, request, code, text, **how):
    with pytest.raises(grpc.RpcError) as caught:
        stub.RepositoryModelLoad(request, timeout=WITHIN_S, **how)
    assert caught.value.code() == code
    assert caught.value.details().partition(": ")[0] == text    # the reason stands behind it


def metric(server, name):
    port = wait_for(lambda: re.search(r"Started Metrics Service at \S*:(\d+)", server.log()), WITHIN_S, "metrics are served")[1]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=WITHIN_S) as page:
        lines = page.read().decode().splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith((name + " ", name + "{")))


def assert_nothing_is_left(served, temporary):
    wait_for(lambda: not list(temporary.iterdir()), WITHIN_S, "the files are removed")
    wait_for(lambda: metric(served, "conch_connection_memory_used_bytes") <= AT_REST_BYTES, WITHIN_S, "memory is given back")
    served.assert_alive()


# ---- Tests


# Below and above what the loop reads itself, what a block has at first, and what comes without a turn.
@pytest.mark.parametrize("packing", [grpc.Compression.NoCompression, grpc.Compression.Gzip], ids=["plain", "packed"])
@pytest.mark.parametrize("size", [0, 1, 31 << 10, 33 << 10, 2 << 20, 40 << 20])
def test_a_file_of_any_size_arrives_whole(served, stub, temporary, size, packing):
    content = content_of(7, size)
    stub.RepositoryModelLoad(load_request("sent", {"file:1/weights": content}), timeout=WITHIN_S, compression=packing)
    assert is_ready(stub, "sent")
    assert files_of(temporary, "sent") == {"1/weights": content}
    unload(stub, "sent")
    assert_nothing_is_left(served, temporary)


def test_many_files_of_one_model(served, stub, temporary):
    files = {f"{1 + i % 3}/folder {i}/ü{i}": content_of(i, i * 1000) for i in range(100)}
    stub.RepositoryModelLoad(load_request("sent", {f"file:{name}": content for name, content in files.items()}), timeout=WITHIN_S)
    assert files_of(temporary, "sent") == files
    unload(stub, "sent")
    assert_nothing_is_left(served, temporary)


def test_loads_at_once_do_not_mix(served, stub, temporary):
    """More large loads than there are helpers, on one connection."""
    numbers = range(12)
    requests = [load_request(f"sent{i}", {"file:1/weights": content_of(i, (4 << 20) + i)}) for i in numbers]
    with concurrent.futures.ThreadPoolExecutor(len(numbers)) as pool:
        for done in [pool.submit(stub.RepositoryModelLoad, request, timeout=WITHIN_S) for request in requests]:
            done.result()
    for i in numbers:
        assert files_of(temporary, f"sent{i}") == {"1/weights": content_of(i, (4 << 20) + i)}
        unload(stub, f"sent{i}")
    assert_nothing_is_left(served, temporary)


@pytest.mark.parametrize("size", [10, 2 << 20])
def test_refused_loads_leave_nothing(served, stub, temporary, size):
    content = content_of(9, size)
    good = {"file:1/weights": content}
    for path in ("../x", "5/../../x"):
        assert_refused(stub, load_request("sent", good | {f"file:{path}": content}), grpc.StatusCode.INTERNAL,
                       "failed to load 'sent', failed to poll from model repository")
        served.wait_log(f"Invalid file parameter 'file:{path}' with normalized path")
    with_unknown = load_request("sent", good)
    with_unknown.parameters["files"].bytes_param = content
    assert_refused(stub, with_unknown, grpc.StatusCode.INVALID_ARGUMENT, "unrecognized load parameter 'files'.")
    with_text = load_request("sent", good)
    with_text.parameters["file:1/text"].string_param = "text"
    assert_refused(stub, with_text, grpc.StatusCode.INVALID_ARGUMENT,
                   "invalid value type for load parameter 'file:1/text', expected bytes_param.")
    with pytest.raises(grpc.RpcError) as caught:    # a configuration that does not load, beside good files
        stub.RepositoryModelLoad(load_request("sent", good, config='{"backend": "none"}'), timeout=WITHIN_S)
    assert "sent" in caught.value.details()
    assert_refused(stub, load_request("sent", good, config=None), grpc.StatusCode.INTERNAL,
                   "failed to load 'sent', failed to poll from model repository")
    assert not is_ready(stub, "sent")
    assert_nothing_is_left(served, temporary)


def test_a_message_that_is_none_is_refused(served, temporary):
    """Whether the loop reads it or a helper."""
    with grpc.insecure_channel(served.grpc_url) as channel:
        ask = channel.unary_unary("/inference.GRPCInferenceService/RepositoryModelLoad")
        whole = load_request("sent", {"file:1/weights": content_of(5, 100_000)}).SerializeToString()
        for message in (b"\xff" * 10, b"\xff" * 100_000, whole[:-1]):
            with pytest.raises(grpc.RpcError) as caught:
                ask(message, timeout=WITHIN_S)
            assert caught.value.code() == grpc.StatusCode.INTERNAL
    assert_nothing_is_left(served, temporary)


def test_the_loop_serves_others_while_files_load(served, stub, gated, temporary):
    """The call is cancelled meanwhile: the load goes on, as in the reference."""
    gated.shut("hold.load")
    config = ('{"backend": "gate", "input": [{"name": "IN", "data_type": "TYPE_INT32", "dims": [-1]}], '
              '"output": [{"name": "OUT", "data_type": "TYPE_INT32", "dims": [-1]}]}')
    try:
        call = stub.RepositoryModelLoad.future(load_request("gated", {}, config=config), timeout=WITHIN_S)
        gated.await_reached("hold.load")
        large = [load_request(f"sent{i}", {"file:1/weights": content_of(i, 8 << 20)}) for i in range(3)]
        loads = [stub.RepositoryModelLoad.future(request, timeout=WITHIN_S) for request in large]
        assert is_live(stub)
        for load in loads:
            load.result()
        assert not call.done()
        call.cancel()
        assert is_live(stub) and not is_ready(stub, "gated")
    finally:
        gated.open("hold.load")
    wait_for(lambda: is_ready(stub, "gated"), WITHIN_S, "the cancelled load has ended")
    for model in ("gated", "sent0", "sent1", "sent2"):
        unload(stub, model)
    assert_nothing_is_left(served, temporary)


@pytest.mark.sanitize
def test_calls_that_end_while_a_helper_reads_their_files(served, stub, temporary):
    """Cancelled at any moment. What had begun is loaded; unloading ends it."""
    for i in range(20):
        call = stub.RepositoryModelLoad.future(load_request("sent", {"file:1/weights": content_of(i, 6 << 20)}), timeout=WITHIN_S)
        for _ in range(i % 5):
            assert is_live(stub)
        call.cancel()
    content = content_of(3, 6 << 20)
    stub.RepositoryModelLoad(load_request("sent", {"file:1/weights": content}), timeout=WITHIN_S)    # behind all of them
    assert is_ready(stub, "sent")
    unload(stub, "sent")

    def is_gone():
        unload(stub, "sent")    # a load that came after the last one
        return not is_ready(stub, "sent") and not list(temporary.iterdir())

    wait_for(is_gone, WITHIN_S, "the cancelled loads have ended")
    assert_nothing_is_left(served, temporary)
