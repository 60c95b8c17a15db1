# SPDX-License-Identifier: Apache-2.0
"""gRPC, with and without TLS, on a server whose system calls fail now and then (tests/fault/faultlib.c).

Faults that only delay a call are not noticed: each call is answered right. Where a fault loses a connection, its calls
end, those that the client makes again are answered, and the server has at the end what it had before: descriptors,
memory, no pending requests. Only the server runs under faultlib.
"""

import concurrent.futures
import contextlib
import pathlib
import re
import signal
import struct
import sys
import urllib.request

import grpc
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "system"))

import repository  # noqa: E402
from certificates import Authority  # noqa: E402
from faulty import LOST, Faulty, assert_descriptors_come_back, descriptors  # noqa: E402
from server import wait_for  # noqa: E402

CLIENTS = 6
ROUNDS = 4
RESPONSES = 40            # of a request of the decoupled model
LARGE = 150_000           # elements: some hundred frames and records each way
WITHIN_S = 120            # for an answer that must come
AT_REST_BYTES = 4 << 20   # of connections' memory: the loops' pools keep some
LEFT = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    repository.write_identity(root, "here", [("INT32", [-1])], CONCH_EXECUTION="inline")
    repository.write_identity(root, "there", [("INT32", [-1])], CONCH_EXECUTION="thread")
    repository.write_model(root, "many", repository.REPEAT)
    return root


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("root"))


@pytest.fixture(scope="module", params=["plain", "tls"])
def security(request, root):
    """The server's flags, and the credentials of its clients; None: without TLS."""
    if request.param == "plain":
        return [], None
    certificate, key = root.issue("server")
    flags = ["--grpc-use-ssl=true", f"--grpc-server-cert={certificate}", f"--grpc-server-key={key}"]
    return flags, grpc.ssl_channel_credentials(root.certificate.read_bytes())


def serve(models, security, seed, tmp_path):
    flags = [*security[0], "--allow-metrics=true", "--metrics-port=0", "--grpc-infer-response-compression-level=low"]
    return Faulty(models, seed, tmp_path / "counts", flags=flags, grpc=True)


@contextlib.contextmanager
def stub_of(server, security):
    """A stub with a connection of its own, which is made again as soon as it is lost."""
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1)]
    options += [(f"grpc.{which}_reconnect_backoff_ms", 100) for which in ("initial", "max")]
    make = grpc.insecure_channel if security[1] is None else grpc.secure_channel
    with make(server.grpc_url, *([] if security[1] is None else [security[1]]), options) as channel:
        yield service_pb2_grpc.GRPCInferenceServiceStub(channel)


def echo(model, mark, count=4):
    request = service_pb2.ModelInferRequest(model_name=model, id=str(mark))
    request.inputs.add(name="INPUT0", datatype="INT32", shape=[count])
    request.raw_input_contents.append(struct.pack("=i", mark) * count)
    return request


def assert_echo(response, request):
    assert response.id == request.id
    assert response.raw_output_contents[0] == request.raw_input_contents[0]


# ---- Calls: each raises grpc.RpcError when its connection is lost, and AssertionError when its answer is wrong


def ask_live(stub, _):
    assert stub.ServerLive(service_pb2.ServerLiveRequest(), timeout=WITHIN_S).live


def ask_small(stub, mark):
    for model in ("here", "there"):
        request = echo(model, mark)
        assert_echo(stub.ModelInfer(request, timeout=WITHIN_S), request)


def ask_large(stub, mark):
    for model in ("here", "there"):
        request = echo(model, mark, LARGE)
        assert_echo(stub.ModelInfer(request, timeout=WITHIN_S), request)


def ask_packed(stub, mark):
    request = echo("there", mark, LARGE)
    assert_echo(stub.ModelInfer(request, timeout=WITHIN_S, compression=grpc.Compression.Gzip), request)


def ask_at_once(stub, mark):
    """Calls that share the connection."""
    requests = [echo(("here", "there")[i % 2], mark + i, 4 + 5000 * (i % 3)) for i in range(10)]
    calls = [stub.ModelInfer.future(request, timeout=WITHIN_S) for request in requests]
    for call, request in zip(calls, requests):
        assert_echo(call.result(), request)


def ask_none(stub, mark):
    with pytest.raises(grpc.RpcError) as caught:
        stub.ModelInfer(echo("none", mark), timeout=WITHIN_S)
    if caught.value.code() != grpc.StatusCode.NOT_FOUND:
        raise caught.value


def ask_stream(stub, mark):
    requests = [echo(("here", "there")[i % 2], mark + i, 4 + 5000 * (i % 3)) for i in range(8)]
    responses = [answer.infer_response for answer in stub.ModelStreamInfer(iter(requests), timeout=WITHIN_S)]
    assert len(responses) == len(requests)
    for response, request in zip(responses, requests):
        assert_echo(response, request)


def ask_many(stub, mark):
    request = service_pb2.ModelInferRequest(model_name="many", id=str(mark))
    for name, kind, values in [("IN", "i", range(RESPONSES)), ("DELAY", "I", [0] * RESPONSES), ("WAIT", "I", [0])]:
        request.inputs.add(name=name, datatype="INT32" if kind == "i" else "UINT32", shape=[len(values)])
        request.raw_input_contents.append(struct.pack(f"<{len(values)}{kind}", *values))
    got = [answer.infer_response.raw_output_contents[0] for answer in stub.ModelStreamInfer(iter([request]), timeout=WITHIN_S)]
    assert got == [struct.pack("<i", i) for i in range(RESPONSES)]


def leave(stub, mark):
    """A call and a stream that the client gives up."""
    call = stub.ModelInfer.future(echo("there", mark, LARGE), timeout=WITHIN_S)
    stream = stub.ModelStreamInfer(iter([echo("there", mark, LARGE)] * 3), timeout=WITHIN_S)
    call.cancel()
    stream.cancel()


CALLS = [ask_live, ask_small, ask_large, ask_packed, ask_at_once, ask_none, ask_stream, ask_many, leave]


def client(server, security, number):
    """All kinds of calls, one connection per round; raises on an error or a wrong answer."""
    for turn in range(ROUNDS):
        with stub_of(server, security) as stub:
            for call in CALLS:
                call(stub, number * 1000 + turn * 100)


def stubborn_client(server, security, number):
    """Makes each call again until it is answered. Returns how many were lost."""
    n_lost = 0
    with stub_of(server, security) as stub:
        for turn in range(ROUNDS):
            for call in CALLS:
                answered = False
                while not answered:
                    try:
                        call(stub, number * 1000 + turn * 100)
                        answered = True
                    except grpc.RpcError as error:
                        assert error.code() in LEFT, error
                        n_lost += 1
    return n_lost


def run_clients(server, security, one):
    with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
        return [done.result() for done in [pool.submit(one, server, security, number) for number in range(CLIENTS)]]


def metric(server, name):
    port = wait_for(lambda: re.search(r"Started Metrics Service at \S*:(\d+)", server.log()), WITHIN_S, "metrics are served")[1]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=WITHIN_S) as page:
        lines = page.read().decode().splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith((name + " ", name + "{")))


def count_open(server, security):
    """The descriptors while no client has a connection; the server has what it makes at its first call."""
    with stub_of(server, security) as stub:
        ask_live(stub, 0)
    seen = []

    def is_steady():
        seen.append(descriptors(server))
        return len(seen) > 20 and len(set(seen[-20:])) == 1

    wait_for(is_steady, WITHIN_S, "the connection has been closed")
    return seen[-1]


def assert_nothing_is_left(server, before):
    assert_descriptors_come_back(server, before)
    wait_for(lambda: metric(server, "nv_inference_pending_request_count") == 0, WITHIN_S, "no request waits")
    wait_for(lambda: metric(server, "conch_connection_memory_used_bytes") <= AT_REST_BYTES, WITHIN_S, "memory is given back")
    server.assert_alive()


# ---- Tests


def test_calls_do_not_notice_faults(models, security, tmp_path):
    with serve(models, security, 1, tmp_path) as server:
        before = count_open(server, security)
        run_clients(server, security, client)
        assert_nothing_is_left(server, before)
        given = server.counts()
    assert min(given[kind] for kind in ("interrupted", "not ready", "short", "few")) > 0, given
    assert given["no files"] + given["aborted"] > 0, given
    assert given["interrupted"] > 100 and given["short"] > 100, given


def test_lost_connections_leave_nothing(models, security, tmp_path):
    with serve(models, security, 2, tmp_path) as server:
        before = count_open(server, security)
        server.lose_one_in(60)
        n_lost = sum(run_clients(server, security, stubborn_client))
        given = server.counts()
        server.lose_one_in(0)
        run_clients(server, security, client)
        assert_nothing_is_left(server, before)
    assert n_lost > 0
    assert given["lost read"] > 0 and given["lost write"] > 0, given
    assert sum(given[kind] for kind in LOST) >= 10, given


def test_a_stop_under_faults_answers_what_has_come(models, security, tmp_path):
    with serve(models, security, 3, tmp_path) as server:
        with stub_of(server, security) as stub:
            sent = [echo("there", mark, LARGE) for mark in range(3)]
            stream = stub.ModelStreamInfer(iter(sent[:2]), timeout=WITHIN_S)
            assert_echo(next(stream).infer_response, sent[0])
            server.signal(signal.SIGTERM)
            with contextlib.suppress(grpc.RpcError):    # the second may have come too late
                for answer in stream:
                    assert answer.error_message or answer.infer_response.raw_output_contents == sent[1].raw_input_contents
        assert server.wait() == 0
