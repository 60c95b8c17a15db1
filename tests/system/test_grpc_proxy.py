# SPDX-License-Identifier: Apache-2.0
"""gRPC behind a proxy that speaks HTTP/2 on both sides: HAProxy, and nginx's grpc_pass."""

import contextlib
import queue

import numpy as np
import pytest
import tritonclient.grpc as client
from tritonclient.utils import InferenceServerException

import repository
from proxies import WITHIN_S, Haproxy, Nginx, installed
from server import Server, free_port, wait_for

pytestmark = pytest.mark.conch_only("its faults behind a proxy are not looked for")


class GrpcNginx(Nginx):
    site = """
    server {{
        listen 127.0.0.1:{port} http2;
        location / {{ grpc_pass grpc://conch; grpc_read_timeout 600s; grpc_send_timeout 600s; }}
    }}
"""


class GrpcHaproxy(Haproxy):
    site = """
frontend clients
    bind 127.0.0.1:{port} proto h2
    default_backend conch
backend conch
    server conch 127.0.0.1:{upstream} proto h2
"""


@pytest.fixture(scope="module", params=[installed(GrpcNginx), installed(GrpcHaproxy)])
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    repository.write_identity(root, "echo", [("FP32", [-1])])
    repository.write_identity(root, "slow", [("FP32", [-1])], execute_delay_ms=1000)
    repeat = 'backend: "repeat"\nmodel_transaction_policy { decoupled: true }\n'
    repeat += repository.tensor("input", "IN", "INT32", [-1]) + repository.tensor("input", "DELAY", "UINT32", [-1])
    repeat += repository.tensor("input", "WAIT", "UINT32", [1])
    repeat += repository.tensor("output", "OUT", "INT32", [1]) + repository.tensor("output", "IDX", "UINT32", [1])
    repository.write_model(root, "repeat", repeat)
    return root


@pytest.fixture(scope="module")
def server(models):
    with Server(models, grpc=True) as server:
        yield server


def port_of(server):
    return int(server.grpc_url.rsplit(":", 1)[1])


@pytest.fixture(scope="module")
def proxy(kind, server, tmp_path_factory):
    with kind(tmp_path_factory.mktemp(kind.program), port_of(server)) as proxy:
        yield f"127.0.0.1:{proxy.port}"


@pytest.fixture
def triton(proxy):
    with client.InferenceServerClient(proxy) as made:
        yield made


DATATYPES = {"float32": "FP32", "int32": "INT32", "uint32": "UINT32"}


def tensor(name, values):
    made = client.InferInput(name, list(values.shape), DATATYPES[str(values.dtype)])
    made.set_data_from_numpy(values)
    return made


def echo(triton, n, **more):
    values = np.arange(n, dtype=np.float32)
    assert (triton.infer("echo", [tensor("INPUT0", values)], **more).as_numpy("OUTPUT0") == values).all()


def to_repeat(count, delay_ms=0):
    return [tensor("IN", np.arange(count, dtype=np.int32)), tensor("DELAY", np.full(count, delay_ms, np.uint32)),
            tensor("WAIT", np.zeros(1, np.uint32))]


@pytest.mark.parametrize("n", [0, 1, 1000, 10_000_000])
def test_messages_pass_both_ways(triton, n):
    for _ in range(2):
        echo(triton, n)


@pytest.mark.parametrize("packing", ["gzip", "deflate"])
def test_packed_messages_pass(triton, packing):
    echo(triton, 300_000, compression_algorithm=packing)


def test_calls_share_connections(triton):
    answers = queue.Queue()
    for i in range(200):
        triton.async_infer("echo", [tensor("INPUT0", np.full(1000, i, np.float32))],
                           callback=lambda result, error: answers.put((result, error)))
    got = [answers.get(timeout=WITHIN_S) for _ in range(200)]
    assert [error for _, error in got if error] == []
    assert sorted(int(result.as_numpy("OUTPUT0")[999]) for result, _ in got) == list(range(200))


def test_statuses_pass(triton):
    with pytest.raises(InferenceServerException) as caught:
        triton.infer("nobody", [tensor("INPUT0", np.ones(1, np.float32))])
    assert caught.value.status() == "StatusCode.NOT_FOUND"
    assert caught.value.message() == "Request for unknown model: 'nobody' is not found"


def test_answers_of_a_stream_pass_one_by_one(triton):
    answers = queue.Queue()
    triton.start_stream(callback=lambda result, error: answers.put((result, error)))
    for _ in range(3):    # a request follows when its predecessor's answers have come
        triton.async_stream_infer("repeat", to_repeat(4))
        for i in range(4):
            result, error = answers.get(timeout=WITHIN_S)
            assert error is None
            assert result.as_numpy("OUT").tolist() == [i]
    triton.stop_stream()


def test_a_deadline_passes(triton):
    with pytest.raises(InferenceServerException) as caught:
        triton.infer("slow", [tensor("INPUT0", np.ones(1, np.float32))], client_timeout=0.1)
    assert caught.value.status() == "StatusCode.DEADLINE_EXCEEDED"
    echo(triton, 1)


def test_clients_that_leave_disturb_no_other(proxy, triton):
    """In the middle of a stream: the model gets to know, and is free for the next request."""
    for _ in range(3):
        with client.InferenceServerClient(proxy) as other:
            answers = queue.Queue()
            other.start_stream(callback=lambda result, error, put=answers.put: put(error))
            other.async_stream_infer("repeat", to_repeat(2, 60_000))
            other.stop_stream(cancel_requests=True)
    echo(triton, 1)


def test_clients_are_served_again_after_a_restart(kind, models, tmp_path):
    """The proxy's kept connections end with the server. Clients meanwhile get an error; later clients are served."""
    port = free_port()
    with contextlib.ExitStack() as stack:
        proxy = stack.enter_context(kind(tmp_path, port))
        triton = stack.enter_context(client.InferenceServerClient(f"127.0.0.1:{proxy.port}"))
        for _ in range(2):
            with Server(models, flags=[f"--grpc-port={port}"], grpc=True):
                def is_served():
                    try:
                        echo(triton, 10)
                        return True
                    except InferenceServerException as error:
                        assert error.status() == "StatusCode.UNAVAILABLE"
                        return False

                wait_for(is_served, WITHIN_S, "the proxy has found the server")
            with pytest.raises(InferenceServerException) as caught:
                echo(triton, 10)
            assert caught.value.status() == "StatusCode.UNAVAILABLE"
