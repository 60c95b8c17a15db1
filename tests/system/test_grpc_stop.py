# SPDX-License-Identifier: Apache-2.0
"""Stopping with gRPC: calls and streams in progress are answered, nothing new begins, HTTP and gRPC stop together."""

import contextlib
import queue
import re
import signal
import socket
import urllib.request

import grpc
import numpy as np
import pytest
import tritonclient.grpc as client
from tritonclient.grpc import service_pb2

import http2_frames as h2
import repository
from server import Server, wait_for
from wire import Connection, request_bytes

pytestmark = pytest.mark.conch_only("2.51 does not end while a stream is open")

STOPPING = "GRPC server is shutting down and has stopped accepting new requests."
WITHIN_S = 60
SEVEN = client.InferInput("IN", [1], "INT32")
SEVEN.set_data_from_numpy(np.full(1, 7, np.int32))


@pytest.fixture
def gate(models):
    made = repository.Gated(models, "gate")
    made.shut("hold.execute")
    yield made
    (made.folder / "hold.execute").unlink(missing_ok=True)    # of a test that has failed: the server can end


@pytest.fixture
def served(models, gate):
    """A server with one event loop, that waits longer for a stop than any test does."""
    flags = ["--exit-timeout-secs=3600", "--http-thread-count=1", "--allow-metrics=true", "--metrics-port=0"]
    with Server(models, flags=flags, grpc=True) as server:
        yield server


def count_pending(server):
    """Requests that the server has and the backend has not."""
    port = wait_for(lambda: re.search(r"Started Metrics Service at \S*:(\d+)", server.log()), WITHIN_S, "metrics are served")[1]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=WITHIN_S) as page:
        return int(re.search(r'nv_inference_pending_request_count{model="gate",version="1"} (\d+)', page.read().decode())[1])


def begin_stop(server):
    """Signals, and waits until the loop has closed what is idle at gRPC's port."""
    host, port = server.grpc_url.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=WITHIN_S) as idle:
        idle.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0")
        assert idle.recv(1000)    # so the connection is accepted
        server.signal(signal.SIGTERM)
        while idle.recv(1000):
            pass


def is_refused(url):
    host, port = url.rsplit(":", 1)
    try:
        socket.create_connection((host, int(port)), timeout=WITHIN_S).close()
    except ConnectionRefusedError:
        return True
    except ConnectionResetError:    # it was not accepted yet when the port closed
        pass
    return False


@contextlib.contextmanager
def stream_of(triton):
    """A stream, and the queue of its answers. A test that fails does not wait for the stream's end."""
    answers = queue.Queue()
    triton.start_stream(callback=lambda result, error: answers.put((result, error)))
    try:
        yield answers
    finally:
        triton.stop_stream(cancel_requests=True)


def await_result(answers):
    result, error = answers.get(timeout=WITHIN_S)
    assert error is None, error
    return result.as_numpy("OUT").tolist()


def await_error(answers):
    result, error = answers.get(timeout=WITHIN_S)
    assert result is None
    return error.status(), error.message()


@pytest.mark.sanitize
def test_calls_in_progress_are_answered_at_both_services(served, gate):
    answers = queue.Queue()
    with client.InferenceServerClient(served.grpc_url) as triton, Connection(served) as http:
        for _ in range(3):
            triton.async_infer("gate", [SEVEN], callback=lambda result, error: answers.put((result, error)))
        http.send(request_bytes("POST", "/v2/models/gate/infer",
                                b'{"inputs":[{"name":"IN","datatype":"INT32","shape":[1],"data":[7]}]}'))
        wait_for(lambda: count_pending(served) == 3, WITHIN_S, "one executes, three wait")
        served.signal(signal.SIGTERM)
        for url in (served.url, served.grpc_url):
            wait_for(lambda at=url: is_refused(at), WITHIN_S, f"{url} is closed")
        gate.open("hold.execute")
        assert [await_result(answers) for _ in range(3)] == [[7]] * 3
        assert http.response().json()["outputs"][0]["data"] == [7]
    assert served.wait() == 0


@pytest.mark.sanitize
def test_a_stream_is_answered_and_then_ended(served, gate):
    """A request in progress is answered. A new message gets the error, in its place. Then the stream ends, though the client
    keeps it open."""
    with client.InferenceServerClient(served.grpc_url) as triton, stream_of(triton) as answers:
        triton.async_stream_infer("gate", [SEVEN])
        gate.await_reached("hold.execute")
        begin_stop(served)
        triton.async_stream_infer("gate", [SEVEN], request_id="late")
        gate.open("hold.execute")
        assert await_result(answers) == [7]
        assert await_error(answers)[1] == STOPPING
        assert served.wait() == 0


@pytest.mark.sanitize
def test_an_idle_stream_does_not_delay_the_end(served, gate):
    gate.open("hold.execute")
    with client.InferenceServerClient(served.grpc_url) as triton, stream_of(triton) as answers:
        triton.async_stream_infer("gate", [SEVEN])
        assert await_result(answers) == [7]
        served.signal(signal.SIGTERM)
        assert await_error(answers) == ("StatusCode.UNAVAILABLE", STOPPING)
        assert served.wait() == 0


def test_new_calls_are_unavailable(served, gate):
    """On the connection that a call in progress keeps open, and on a new one."""
    message = service_pb2.ModelInferRequest(model_name="gate", raw_input_contents=[b"\7\0\0\0"])
    message.inputs.add(name="IN", datatype="INT32", shape=[1])
    with grpc.insecure_channel(served.grpc_url) as channel:
        infer = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        first = infer.future(message.SerializeToString())
        gate.await_reached("hold.execute")
        begin_stop(served)
        with pytest.raises(grpc.RpcError) as caught:
            infer(message.SerializeToString(), timeout=WITHIN_S)
        assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
        gate.open("hold.execute")
        answer = service_pb2.ModelInferResponse.FromString(first.result(timeout=WITHIN_S))
        assert answer.raw_output_contents[0] == b"\7\0\0\0"
    assert served.wait() == 0


def test_half_a_request_does_not_delay_the_end(served, gate):
    """Nothing of it was done, so the client may send it again. A call that waits for the backend is answered."""
    message = service_pb2.ModelInferRequest(model_name="gate", raw_input_contents=[b"\7\0\0\0"])
    message.inputs.add(name="IN", datatype="INT32", shape=[1])
    whole = h2.message(message.SerializeToString())
    with h2.Connection(served.grpc_url) as connection:
        connection.send(h2.call(1, h2.INFER, message.SerializeToString())
                        + h2.begin(3, h2.INFER) + h2.frame(h2.DATA, 0, 3, whole[:-1]))
        gate.await_reached("hold.execute")
        connection.ping()
        connection.await_frame(h2.PING, ack=True)    # so the half has come
        served.signal(signal.SIGTERM)
        assert int.from_bytes(connection.await_frame(h2.RST_STREAM, stream=3).payload, "big") == h2.REFUSED_STREAM
        gate.open("hold.execute")
        frames = connection.take_all()
        assert h2.status_of([got for got in frames if got.stream == 1]) == 0
        assert not [got for got in frames if got.stream == 3]
    assert served.wait() == 0


def test_calls_that_take_too_long_end_with_the_exit_timeout(models, gate):
    server = Server(models, flags=["--exit-timeout-secs=1"], grpc=True)
    with pytest.raises(AssertionError, match="ended with 1"), server:
        with client.InferenceServerClient(server.grpc_url) as triton:
            answers = queue.Queue()
            triton.async_infer("gate", [SEVEN], callback=lambda result, error: answers.put((result, error)))
            gate.await_reached("hold.execute")
            server.signal(signal.SIGTERM)
            assert server.wait() == 1
            assert await_error(answers)[0] in ("StatusCode.UNAVAILABLE", "StatusCode.CANCELLED")
    assert "gRPC service connections and inference handlers" in server.log()
    assert "Exit timeout expired. Exiting immediately." in server.log()
