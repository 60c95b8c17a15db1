# SPDX-License-Identifier: Apache-2.0
"""gRPC's interoperability tests. tests/tools/interop_server.c mounts their service on our framing. The clients are written
with grpcio from the public description of the tests, and the genuine ones of Go and Java.
"""

import subprocess
import threading

import grpc
import pytest

import protos
from relay import Relay
from server import BUILD, ROOT, SANITIZER

pytestmark = pytest.mark.conch_only("drives our library: the program does not have the service of these tests")

WITHIN_S = 60
LARGE_REQUEST, LARGE_ANSWER = 271828, 314159
REQUEST_SIZES = [27182, 8, 1828, 45904]
ANSWER_SIZES = [31415, 9, 2653, 58979]
GO_CLIENT = ROOT / ".deps/go/bin/client"
GO_CASES = ["empty_unary", "large_unary", "client_streaming", "server_streaming", "ping_pong", "empty_stream",
            "timeout_on_sleeping_server", "cancel_after_begin", "cancel_after_first_response", "status_code_and_message",
            "special_status_message", "custom_metadata", "unimplemented_method", "unimplemented_service", "rpc_soak",
            "channel_soak"]

JAVA = [ROOT / ".deps/clients-java", ROOT / ".deps/java-client"]
JAVA_CASES = sorted({*GO_CASES[:-2], "client_compressed_unary", "client_compressed_streaming", "server_compressed_unary",
                     "server_compressed_streaming", "very_large_request"})


class Interop:
    """A server of the tests on a free port; an encoding as argument packs the answers for which clients ask so."""

    def __init__(self, *args):
        self.process = subprocess.Popen([BUILD / "tests/interop_server", *args], text=True, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        line = ""
        while not line.startswith("port "):
            line = self.process.stdout.readline()
            assert line, self.process.stderr.read()
        self.port = int(line.split()[1])

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        _, errors = self.process.communicate("", timeout=WITHIN_S)
        assert not SANITIZER.search(errors), errors
        assert self.process.returncode == 0, errors


@pytest.fixture(scope="module")
def message():
    """Makes messages by name."""
    classes = protos.load("tests/proto/interop.proto", ROOT)
    return lambda name, **fields: classes[f"interop.{name}"](**fields)


@pytest.fixture(scope="module", params=["identity", "gzip", "deflate"])
def interop(request):
    packing = [] if request.param == "identity" else [request.param]
    with Interop(*packing) as server:
        server.encoding = request.param
        yield server


@pytest.fixture
def channel(interop):
    with grpc.insecure_channel(f"127.0.0.1:{interop.port}") as made:
        yield made


class Service:
    """The methods of grpc.testing.TestService."""

    def __init__(self, channel, message):
        def of(kind, method, answer):
            return getattr(channel, kind)(f"/grpc.testing.{method}", request_serializer=lambda m: m.SerializeToString(),
                                          response_deserializer=type(message(answer)).FromString)

        self.empty = of("unary_unary", "TestService/EmptyCall", "Flag")
        self.unary = of("unary_unary", "TestService/UnaryCall", "SimpleResponse")
        self.input = of("stream_unary", "TestService/StreamingInputCall", "InputResponse")
        self.output = of("unary_stream", "TestService/StreamingOutputCall", "OutputResponse")
        self.duplex = of("stream_stream", "TestService/FullDuplexCall", "OutputResponse")
        self.unknown_method = of("unary_unary", "TestService/UnimplementedCall", "Flag")
        self.unknown_service = of("unary_unary", "UnimplementedService/UnimplementedCall", "Flag")


@pytest.fixture
def service(channel, message):
    return Service(channel, message)


def payload(message, n):
    return message("Payload", body=bytes(n))


def output_request(message, sizes, n=0, **fields):
    parameters = [message("OutputParameters", size=size) for size in sizes]
    return message("OutputRequest", response_parameters=parameters, payload=payload(message, n), **fields)


def large(message, **fields):
    return message("SimpleRequest", response_size=LARGE_ANSWER, payload=payload(message, LARGE_REQUEST), **fields)


def sizes_of(answers):
    return [len(answer.payload.body) for answer in answers]


class Turns:
    """Requests of a stream that are sent one by one."""

    def __init__(self, requests=()):
        self._requests = list(requests)
        self._ready = threading.Semaphore(len(self._requests))

    def put(self, request):
        self._requests.append(request)
        self._ready.release()

    def __iter__(self):
        return self

    def __next__(self):
        self._ready.acquire()
        if not self._requests:
            raise StopIteration
        return self._requests.pop(0)

    def end(self):
        self._ready.release()


def test_empty_unary(service, message):
    assert service.empty(message("Flag"), timeout=WITHIN_S).ByteSize() == 0


def test_large_unary(service, message):
    assert sizes_of([service.unary(large(message), timeout=WITHIN_S)]) == [LARGE_ANSWER]


def test_client_streaming(service, message):
    requests = [message("InputRequest", payload=payload(message, n)) for n in REQUEST_SIZES]
    assert service.input(iter(requests), timeout=WITHIN_S).aggregated_payload_size == sum(REQUEST_SIZES)
    assert service.input(iter([]), timeout=WITHIN_S).aggregated_payload_size == 0


def test_server_streaming(service, message):
    assert sizes_of(service.output(output_request(message, ANSWER_SIZES), timeout=WITHIN_S)) == ANSWER_SIZES


def test_ping_pong(service, message):
    turns = Turns()
    call = service.duplex(turns, timeout=WITHIN_S)
    for asked, answered in zip(REQUEST_SIZES, ANSWER_SIZES):
        turns.put(output_request(message, [answered], asked))
        assert sizes_of([next(call)]) == [answered]
    turns.end()
    assert list(call) == []
    assert call.code() == grpc.StatusCode.OK


def test_empty_stream(service):
    call = service.duplex(iter([]), timeout=WITHIN_S)
    assert list(call) == []
    assert call.code() == grpc.StatusCode.OK


def test_cancel_after_begin(service):
    turns = Turns()
    call = service.input.future(turns)
    call.cancel()
    assert call.code() == grpc.StatusCode.CANCELLED
    turns.end()


def test_cancel_after_first_response(service, message):
    turns = Turns([output_request(message, [31415], 27182)])
    call = service.duplex(turns, timeout=WITHIN_S)
    next(call)
    call.cancel()
    with pytest.raises(grpc.RpcError):
        next(call)
    assert call.code() == grpc.StatusCode.CANCELLED
    turns.end()


def test_timeout_on_sleeping_server(service, message):
    turns = Turns([output_request(message, [], 27182)])
    call = service.duplex(turns, timeout=0.001)
    with pytest.raises(grpc.RpcError):
        next(call)
    assert call.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    turns.end()


def test_answers_come_at_their_intervals(service, message):
    parameters = [message("OutputParameters", size=n, interval_us=1000 * n) for n in (3, 2, 1)]
    assert sizes_of(service.output(message("OutputRequest", response_parameters=parameters), timeout=WITHIN_S)) == [3, 2, 1]


@pytest.mark.parametrize("text", ["test status message",
                                  "\t\ntest with whitespace\r\nand Unicode BMP ☺ and non-BMP 😈\t\n"])
def test_status_code_and_message(service, message, text):
    status = message("Status", code=2, message=text)
    for call in (lambda: service.unary(message("SimpleRequest", response_status=status), timeout=WITHIN_S),
                 lambda: list(service.duplex(iter([message("OutputRequest", response_status=status)]), timeout=WITHIN_S))):
        with pytest.raises(grpc.RpcError) as caught:
            call()
        assert (caught.value.code(), caught.value.details()) == (grpc.StatusCode.UNKNOWN, text)


def test_custom_metadata(service, message):
    metadata = [("x-grpc-test-echo-initial", "test_initial_metadata_value"),
                ("x-grpc-test-echo-trailing-bin", b"\xab\xab\xab")]
    unary = service.unary.future(large(message), metadata=metadata, timeout=WITHIN_S)
    duplex = service.duplex(iter([output_request(message, [1])]), metadata=metadata, timeout=WITHIN_S)
    assert sizes_of(duplex) == [1]
    for call in (unary, duplex):
        assert metadata[0] in [tuple(pair) for pair in call.initial_metadata()]
        assert metadata[1] in [tuple(pair) for pair in call.trailing_metadata()]


@pytest.mark.parametrize("method", ["unknown_method", "unknown_service"])
def test_unimplemented(service, message, method):
    with pytest.raises(grpc.RpcError) as caught:
        getattr(service, method)(message("Flag"), timeout=WITHIN_S)
    assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize("packing", [grpc.Compression.Gzip, grpc.Compression.Deflate])
def test_client_compressed_unary(service, message, packing):
    """The server says whether a message was packed as the request says, first for one that was not."""
    packed, plain = message("Flag", value=True), message("Flag", value=False)
    with pytest.raises(grpc.RpcError) as caught:
        service.unary(large(message, expect_compressed=packed), timeout=WITHIN_S)
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    for said, how in [(packed, packing), (plain, grpc.Compression.NoCompression)]:
        answer = service.unary(large(message, expect_compressed=said), compression=how, timeout=WITHIN_S)
        assert sizes_of([answer]) == [LARGE_ANSWER]


@pytest.mark.parametrize("packing", [grpc.Compression.Gzip, grpc.Compression.Deflate])
def test_client_compressed_streaming(service, message, packing):
    requests = [message("InputRequest", payload=payload(message, n), expect_compressed=message("Flag", value=True))
                for n in (27182, 45904)]
    assert service.input(iter(requests), compression=packing, timeout=WITHIN_S).aggregated_payload_size == 73086


def test_server_compressed_unary(interop, message):
    with Relay(interop.port) as relay, grpc.insecure_channel(relay.url) as channel:
        service, seen = Service(channel, message), []
        for packed in (True, False):
            before = relay.n_answered
            answer = service.unary(large(message, response_compressed=message("Flag", value=packed)), timeout=WITHIN_S)
            assert sizes_of([answer]) == [LARGE_ANSWER]
            seen.append(relay.n_answered - before < LARGE_ANSWER)
    assert seen == [interop.encoding != "identity", False]


def test_server_compressed_streaming(interop, message):
    sizes = [31415, 92653]
    with Relay(interop.port) as relay, grpc.insecure_channel(relay.url) as channel:
        parameters = [message("OutputParameters", size=size, compressed=message("Flag", value=packed))
                      for size, packed in zip(sizes, [True, False])]
        answers = Service(channel, message).output(message("OutputRequest", response_parameters=parameters), timeout=WITHIN_S)
        assert sizes_of(answers) == sizes
        least = sizes[1] if interop.encoding != "identity" else sum(sizes)
        assert least < relay.n_answered < least + 5000


@pytest.mark.skipif(not GO_CLIENT.exists(), reason="Go's client of the interoperability tests is not there: make test-go")
@pytest.mark.parametrize("case", GO_CASES)
def test_the_client_in_go(interop, case):
    done = subprocess.run([GO_CLIENT, "-use_tls=false", "-server_host", "127.0.0.1", "-server_port", str(interop.port),
                           "-test_case", case], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(not all(folder.exists() for folder in JAVA), reason="Java's client of the interoperability tests is not there: "
                    "make test-java")
@pytest.mark.parametrize("case", JAVA_CASES)
def test_the_client_in_java(interop, case):
    if interop.encoding == "identity" and case.startswith("server_compressed"):
        pytest.skip("this client expects that the server packs")
    done = subprocess.run(["java", "-Xmx400m", "-cp", f"{JAVA[0]}/*", "io.grpc.testing.integration.TestServiceClient",
                           "--use_tls=false", "--server_host=127.0.0.1", f"--server_port={interop.port}", f"--test_case={case}"],
                          capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
