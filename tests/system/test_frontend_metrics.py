# SPDX-License-Identifier: Apache-2.0
"""What the page says of the frontends is what their clients have counted: conch_frontend_…"""

import re
import socket
import ssl
import struct
import threading
import urllib.request

import grpc
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc

import http2_frames as h2
import regions
import repository
from certificates import Authority
from server import Server, wait_for
from wire import Connection, given, request_bytes

pytestmark = pytest.mark.conch_only("the genuine Triton has no such metrics")

WITHIN_S = 60
MAX_BODY = 100_000
MOST = 20    # connections of an address
PATH = "/v2/models/%s/infer"


def page(server):
    """The metrics of the frontends: {(name, label, …): value}."""
    server.wait_log("Started Metrics Service at ")    # HTTP's port is open before
    port = re.search(r"Started Metrics Service at \S*:(\d+)", server.log())[1]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=WITHIN_S) as answer:
        text = answer.read().decode()
    found = {}
    for name, labels, value in re.findall(r"^conch_frontend_(\w+)\{(.*)\} (\S+)$", text, re.M):
        keys = (name, *re.findall(r'="([^"]*)"', labels))
        assert keys not in found, keys
        found[keys] = float(value)
    return found


class Growth:
    """What the page's counts grow by since the begin of the block."""

    def __init__(self, server):
        self.server = server

    def __enter__(self):
        self.before = page(self.server)
        return self

    def __exit__(self, *_):
        pass

    def of(self, *keys):
        return page(self.server).get(keys, 0) - self.before.get(keys, 0)

    def becomes(self, value, *keys):
        """Waits until the count has grown by exactly that; it must not have grown by more."""
        wait_for(lambda: self.of(*keys) >= value, WITHIN_S, f"{keys} grows by {value}, is {self.of(*keys)}")
        assert self.of(*keys) == value, keys


@pytest.fixture(scope="module", name="models")
def _models(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    repository.write_identity(root, "echo", [("UINT8", [-1])])
    repository.write_identity(root, "slow", [("UINT8", [-1])], execute_delay_ms=100)
    return root


@pytest.fixture(scope="module", name="server")
def _server(models):
    flags = ["--allow-metrics=true", "--metrics-port=0", f"--http-max-body-size={MAX_BODY}",
             f"--http-max-connections-per-address={MOST}", "--grpc-max-message-size=1000",
             "--http-min-rate=64", "--http-min-rate-secs=1", "--grpc-min-rate=64", "--grpc-min-rate-secs=1"]
    with Server(models, flags=flags, grpc=True) as server:
        yield server


def infer_bytes(model, n=1):
    text = '{"inputs":[%s]}' % str(given("IN0", "UINT8", [n], [7] * n)).replace("'", '"').replace("IN0", "INPUT0")
    return request_bytes("POST", PATH % model, text.encode())


def test_requests_and_bytes_are_those_of_the_clients(server):
    """Several connections at once, with answers of several statuses."""
    requests = [(200, infer_bytes("echo")), (200, request_bytes("GET", "/v2/health/live")),
                (500, request_bytes("POST", PATH % "echo", b"{")), (404, request_bytes("GET", "/nowhere")),
                (405, request_bytes("POST", "/v2/health/live", b""))]
    n_clients, rounds = 4, 25
    has_all = [False] * n_clients

    def run(number):
        with Connection(server) as connection:
            for _ in range(rounds):
                for status, request in requests:
                    connection.send(request)
                    head, fields = connection.head()
                    assert head == status, (head, request)
                    connection._exactly(int(fields["content-length"]))
            connection.send(request_bytes("GET", "/v2/health/live", headers={"Connection": "close"}))
            assert connection.response().status == 200
            assert connection.closed()
            has_all[number] = True

    with Growth(server) as grown:
        clients = [threading.Thread(target=run, args=(i,)) for i in range(n_clients)]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
        assert all(has_all)
        times = n_clients * rounds
        last = request_bytes("GET", "/v2/health/live", headers={"Connection": "close"})
        grown.becomes(2 * times + n_clients, "requests", "http", "200")
        for status in ("404", "405", "500"):
            grown.becomes(times, "requests", "http", status)
        grown.becomes(n_clients, "connections_begun", "http")
        sent = times * sum(len(request) for _, request in requests) + n_clients * len(last)
        grown.becomes(sent, "received_bytes", "http")
        grown.becomes(0, "requests_cancelled", "http")
        wait_for(lambda: page(server)["connections", "http"] == 0, WITHIN_S, "no connection is open")


def test_bytes_sent_are_those_that_the_client_gets(server):
    with Growth(server) as grown, socket.create_connection((server.address, server.port), timeout=WITHIN_S) as client:
        client.sendall(infer_bytes("echo", 1000) * 10 + request_bytes("GET", "/nowhere", headers={"Connection": "close"}))
        n = 0
        while got := client.recv(1 << 16):
            n += len(got)
        grown.becomes(n, "sent_bytes", "http")
        grown.becomes(10, "requests", "http", "200")


def test_open_connections_are_counted(server):
    kept = [Connection(server) for _ in range(7)]
    wait_for(lambda: page(server)["connections", "http"] == 7, WITHIN_S, "seven connections are open")
    for each in kept:
        each.socket.close()
    wait_for(lambda: page(server)["connections", "http"] == 0, WITHIN_S, "none is open")


def test_a_client_that_goes_has_its_requests_cancelled(server):
    """One whose request is executed, some that wait, one that has sent half of a body. None of them gets an answer."""
    with Growth(server) as grown:
        kept = [Connection(server) for _ in range(5)]
        for each in kept:
            each.send(infer_bytes("slow"))
        kept.append(Connection(server))
        kept[-1].send(infer_bytes("echo", 1000)[:-500])
        wait_for(lambda: all(each.taken() for each in kept), WITHIN_S, "the server has the requests")
        for each in kept:    # a reset, so that the end is known at once
            each.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            each.socket.close()
        wait_for(lambda: grown.of("requests_cancelled", "http") + grown.of("requests", "http", "200") == len(kept),
                 WITHIN_S, "each request was cancelled, or answered before its client went")
        assert grown.of("requests_cancelled", "http") >= 1


def test_what_limits_refuse_is_counted(server):
    with Growth(server) as grown:
        with Connection(server) as connection:
            connection.send(request_bytes("GET", "/v2/health/live", headers={"X": "x" * 20_000}))
            assert connection.response().status == 431
        with Connection(server) as connection:
            connection.send(request_bytes("POST", PATH % "echo", headers={"Content-Length": MAX_BODY + 1}))
            assert connection.response().status == 413
        wait_for(lambda: page(server)["connections", "http"] == 0, WITHIN_S, "none is open")
        kept = [socket.create_connection((server.address, server.port), timeout=WITHIN_S) for _ in range(MOST + 3)]
        grown.becomes(3, "refused", "address", "http")
        for each in kept:
            each.close()
        for limit, n in (("head", 1), ("body", 1), ("memory", 0), ("streams", 0), ("waste", 0), ("connections", 0)):
            grown.becomes(n, "refused", limit, "http")
        grown.becomes(1, "requests", "http", "431")
        grown.becomes(1, "requests", "http", "413")
    wait_for(lambda: page(server)["connections", "http"] == 0, WITHIN_S, "none is open")


def test_memory_that_is_short_is_counted(models):
    """The body of one client has the budget, so that another is refused."""
    mib = 1 << 20
    flags = ["--allow-metrics=true", "--metrics-port=0", f"--connection-memory-budget={16 * mib}"]
    with Server(models, flags=flags) as server, Growth(server) as grown, Connection(server) as holder:
        n = 10 * mib
        holder.send(request_bytes("POST", PATH % "echo", headers={"Content-Length": n}) + bytes(mib))
        wait_for(holder.taken, WITHIN_S, "the body has begun")
        for i in range(3):
            with Connection(server) as connection:
                connection.send(request_bytes("POST", PATH % "echo", headers={"Content-Length": n}))
                answer = connection.response()
                assert (answer.status, answer.headers["retry-after"]) == (503, "1")
        grown.becomes(3, "refused", "memory", "http")
        grown.becomes(3, "requests", "http", "503")


def test_slow_clients_are_counted(server):
    with Growth(server) as grown:
        with Connection(server) as connection:
            connection.send(request_bytes("POST", PATH % "echo", headers={"Content-Length": 1000}) + b"{")
            assert connection.response().status == 408
        grown.becomes(1, "stalled", "body", "http")
        grown.becomes(1, "requests", "http", "408")
        with h2.Connection(server.grpc_url) as connection:
            connection.send(h2.begin(1, h2.INFER) + h2.frame(h2.DATA, 0, 1, h2.message(bytes(900))[:100]))
            connection.await_frame(h2.RST_STREAM, stream=1)
        grown.becomes(1, "stalled", "body", "grpc")
        with h2.Connection(server.grpc_url, settings=h2.setting(h2.INITIAL_WINDOW_SIZE, 0)) as connection:
            connection.send(h2.call(1))
            connection.await_frame(h2.RST_STREAM, stream=1)
        grown.becomes(1, "stalled", "answer", "grpc")
        grown.becomes(0, "stalled", "head", "http")


def request_of(model, n=1):
    request = service_pb2.ModelInferRequest(model_name=model)
    request.inputs.add(name="INPUT0", datatype="UINT8", shape=[n])
    request.raw_input_contents.append(bytes(n))
    return request


def test_calls_are_counted_by_their_status(server):
    names = {code: code.name for code in grpc.StatusCode}
    with Growth(server) as grown, grpc.insecure_channel(server.grpc_url) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        seen = {name: 0 for name in names.values()}

        def ask(method, request, **more):
            try:
                method(request, **more)
                code = grpc.StatusCode.OK
            except grpc.RpcError as error:
                code = error.code()
            seen[names[code]] += 1

        for _ in range(10):
            ask(stub.ServerLive, service_pb2.ServerLiveRequest())
            ask(stub.ModelInfer, request_of("echo"))
            ask(stub.ModelInfer, request_of("nobody"))
            ask(stub.ModelInfer, service_pb2.ModelInferRequest(model_name="echo"))
            ask(stub.ModelInfer, request_of("echo", 2000))    # longer than a message may be
        assert seen["OK"] == 20 and seen["RESOURCE_EXHAUSTED"] == 10 and sum(seen.values()) == 50
        for name, n in seen.items():
            grown.becomes(n, "requests", "grpc", name)
        grown.becomes(10, "refused", "body", "grpc")
        grown.becomes(1, "connections_begun", "grpc")


def test_calls_that_end_before_their_answer_are_counted(server):
    """By their deadline, which the server sees itself, and by the client."""
    with Growth(server) as grown, h2.Connection(server.grpc_url) as connection:
        content = request_of("slow").SerializeToString()
        timeout = b"\x00" + h2.text("grpc-timeout") + h2.text("20m")
        head = h2.frame(h2.HEADERS, h2.END_HEADERS, 1, h2.head(h2.INFER) + timeout)
        connection.send(head + h2.frame(h2.DATA, h2.END_STREAM, 1, h2.message(content)))
        grown.becomes(1, "requests_expired", "grpc")
        grown.becomes(1, "requests", "grpc", "DEADLINE_EXCEEDED")
        connection.send(h2.begin(3, h2.INFER))
        connection.ping()
        connection.await_frame(h2.PING, ack=True)    # the call has begun
        connection.send(h2.reset(3))
        grown.becomes(1, "requests_cancelled", "grpc")


def test_waste_is_counted(server):
    with Growth(server) as grown, h2.Connection(server.grpc_url) as connection:
        connection.send(b"".join(h2.begin(i) + h2.reset(i) for i in range(1, 20_001, 2)))
        connection.take_all()
        grown.becomes(1, "refused", "waste", "grpc")


def test_handshakes_and_certificates(models, tmp_path):
    """The certificate is made for two days."""
    certificate, key = Authority(tmp_path).issue("server")
    flags = ["--allow-metrics=true", "--metrics-port=0", "--http-use-ssl=true", f"--http-server-cert={certificate}",
             f"--http-server-key={key}"]
    with Server(models, flags=flags, ready=None) as server, Growth(server) as grown:
        trusting = ssl.create_default_context(cafile=tmp_path / "root.pem")
        before = grown.of("handshakes", "http", "succeeded")
        for _ in range(5):
            with socket.create_connection((server.address, server.port), timeout=WITHIN_S) as plain, \
                    trusting.wrap_socket(plain, server_hostname="localhost") as client:
                client.sendall(request_bytes("GET", "/v2/health/live"))
                assert client.recv(1000).startswith(b"HTTP/1.1 200")
        grown.becomes(before + 5, "handshakes", "http", "succeeded")
        for _ in range(3):
            with socket.create_connection((server.address, server.port), timeout=WITHIN_S) as plain:
                plain.sendall(b"GET / HTTP/1.1\r\n\r\n")
                while plain.recv(1000):
                    pass
        with socket.create_connection((server.address, server.port), timeout=WITHIN_S):
            pass    # a probe that says nothing
        grown.becomes(3, "handshakes", "http", "failed")
        assert 1.9 < page(server)["certificate_days", "http"] <= 2
        assert ("certificate_days", "metrics") not in page(server)


def test_the_longest_turn_is_that_of_a_model_on_the_loop(tmp_path_factory):
    """Each loop is on the page once, though HTTP and gRPC share the loops."""
    root = tmp_path_factory.mktemp("models")
    repository.write_identity(root, "still", [("UINT8", [-1])], execute_delay_ms=200, CONCH_EXECUTION="inline")
    flags = ["--allow-metrics=true", "--metrics-port=0", "--http-thread-count=1", "--grpc-infer-thread-count=2"]
    with Server(root, flags=flags, grpc=True) as server:
        loops = [keys[1] for keys in page(server) if keys[0] == "longest_turn_seconds"]
        assert sorted(loops) == sorted(set(loops)) and {"http-0", "metrics-0"} <= set(loops)
        with Connection(server) as connection:
            connection.send(infer_bytes("still"))
            assert connection.response().status == 200
        assert page(server)["longest_turn_seconds", "http-0"] >= 0.2
        assert page(server)["longest_turn_seconds", "metrics-0"] > 0


# ---- Regions of shared memory --------------------------------------------------------------------


def counted(server):
    """Number and bytes of the regions of the system and of CUDA."""
    shown = page(server)
    return [int(shown[name, kind]) for kind in ("system", "cuda") for name in ("regions", "region_bytes")]


def test_regions_of_shared_memory_and_their_bytes_are_shown(models, server):
    """A region counts until it is unmapped, which a helper does after the client has its answer."""
    flags = ["--allow-metrics=true", "--metrics-port=0", "--allow-client-shm=true"]
    with Server(models, flags=flags, grpc=True) as sharing, regions.Object(8192) as memory:
        assert counted(sharing) == [0, 0, 0, 0]
        assert regions.register(sharing, "a", memory.key, 100) == (200, "")
        assert regions.register(sharing, "b", memory.key, 4096, offset=4096) == (200, "")
        assert counted(sharing) == [2, 4196, 0, 0]
        assert regions.register(sharing, "c", memory.key, 8193)[0] == 400
        assert counted(sharing) == [2, 4196, 0, 0]
        assert regions.unregister(sharing, "a") == (200, "")
        wait_for(lambda: counted(sharing) == [1, 4096, 0, 0], WITHIN_S, "a is unmapped")
        assert regions.unregister(sharing) == (200, "")
        wait_for(lambda: counted(sharing) == [0, 0, 0, 0], WITHIN_S, "b is unmapped")
    assert not [key for key in page(server) if key[0].startswith("region")], "only where they are allowed"
