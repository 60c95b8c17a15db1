# SPDX-License-Identifier: Apache-2.0
"""Clients of gRPC that waste the server's work or memory. Each attack ends with its connection, or keeps a bounded amount of
memory; meanwhile another client is served. Limits of time hold on a machine that is many times slower."""

import contextlib
import pathlib
import re
import resource
import struct
import threading
import time

import grpc
import pytest
from tritonclient.grpc import service_pb2

import http2_frames as h2
import repository
from server import SANITIZED, Server, wait_for

pytestmark = pytest.mark.conch_only("the genuine Triton has other limits")

MIB = 1 << 20
RESOURCE_EXHAUSTED = 8
BUDGET = 128 * MIB
GROWTH = 16 * MIB    # of a server that keeps next to nothing
SERVED_WITHIN_S = 30
CPU_S = 20           # of the server, for an attack that takes it less than a second on an idle machine
N_SILENT = 10_000
CONNECTION_BYTES = 32 << 10


@pytest.fixture(scope="module", name="server")
def _server(tmp_path_factory):
    """One loop, so that an attacker who holds it up is seen."""
    models = tmp_path_factory.mktemp("models")
    repository.write_identity(models, "echo", [("UINT8", [-1])])
    flags = [f"--connection-memory-budget={BUDGET}", "--http-thread-count=1"]
    with Server(models, flags=flags, grpc=True) as server:
        for _ in range(50):  # what the first calls take stays
            with h2.Connection(server.grpc_url) as client:
                assert client.ask()
        yield server


def memory(server):
    text = pathlib.Path(f"/proc/{server.pid}/status").read_text(encoding="ascii")
    return 1024 * int(re.search(r"^VmRSS:\s+(\d+) kB", text, re.M)[1])


class Watch:
    """Makes calls while the block runs, one after the other, and notes the server's memory and CPU. At the end the calls
    must have been served, and memory and CPU within their bounds."""

    def __init__(self, server, growth=GROWTH, cpu=CPU_S):
        self.server = server
        self.growth = growth
        self.cpu = cpu
        self._thread = threading.Thread(target=self._run)
        self._ends = threading.Event()
        self._fault = None
        self.n_served = self.most = 0

    def _serve_one(self):
        since = time.monotonic()
        with h2.Connection(self.server.grpc_url) as client:
            assert h2.status_of(client.ask()) == 0
        assert time.monotonic() - since < SERVED_WITHIN_S

    def _run(self):
        try:
            while not self._ends.is_set():
                self._serve_one()
                self.n_served += 1
                self.most = max(self.most, memory(self.server))
        except BaseException as fault:  # the other thread raises it
            self._fault = fault

    def __enter__(self):
        self.at_first = memory(self.server)
        self._cpu_before = self.server.cpu_s()
        self._thread.start()
        return self

    def await_calls(self, count):
        """Waits until that many further calls were served."""
        goal = self.n_served + count
        wait_for(lambda: self.n_served >= goal or self._fault, 2 * SERVED_WITHIN_S, "other clients are served")

    def __exit__(self, kind, *_):
        if kind is None:
            self.await_calls(2)
        self._ends.set()
        self._thread.join()
        if kind is not None:
            return
        if self._fault:
            raise self._fault
        used_s = self.server.cpu_s() - self._cpu_before
        assert used_s < self.cpu or SANITIZED, f"{used_s} s of CPU"
        grown = self.most - self.at_first
        assert grown < self.growth or SANITIZED, f"memory has grown by {grown >> 10} KiB"


def code_of_end(frames):
    """The code and text of the last GOAWAY; the connection has ended."""
    last = [got for got in frames if got.kind == h2.GOAWAY][-1]
    code, _, text = h2.goaway(last)
    return code, text.decode()


# ---- Floods ---------------------------------------------------------------------------------------------------------

MANY = 100_000


def bomb():
    """A head that names one large entry of the compression's table again and again."""
    length = 4000
    entry = b"\x40" + h2.text("x") + b"\x7f" + bytes([(length - 127) & 127 | 128, (length - 127) >> 7]) + b"v" * length
    return h2.frame(h2.HEADERS, h2.END_HEADERS, 1, h2.head(h2.STREAM_INFER) + entry + b"\xbe" * 12_000)


def continuations(payload):
    begun = h2.frame(h2.HEADERS, 0, 1, h2.head(h2.STREAM_INFER))
    return begun + h2.frame(h2.CONTINUATION, 0, 1, payload) * (MANY if len(payload) < 100 else 1000)


OPENED = h2.begin(1)
FLOODS = {
    "rapid_reset": (b"".join(h2.begin(i) + h2.reset(i) for i in range(1, 2 * MANY, 2)), "too many streams were reset"),
    "empty_continuation": (continuations(b""), "too many CONTINUATION frames"),
    "small_continuation": (continuations(b"\x00" + h2.text("x") + h2.text("y")), "too many CONTINUATION frames"),
    "hpack_bomb": (bomb(), "the header block is too large"),
    "SETTINGS": (h2.frame(h2.SETTINGS) * MANY, "too many SETTINGS frames"),
    "filled_SETTINGS": (h2.frame(h2.SETTINGS, payload=h2.setting(0x77, 1) * 30) * 20_000, "too many SETTINGS frames"),
    "PING": (h2.frame(h2.PING, payload=b"pingpong") * MANY, "too_many_pings|too many PING frames"),
    "PING_ACK": (h2.frame(h2.PING, h2.ACK, payload=b"pingpong") * MANY, "too many PING frames"),
    "empty_DATA": (OPENED + h2.frame(h2.DATA, 0, 1) * MANY, "too many empty frames"),
    "padded_DATA": (OPENED + h2.frame(h2.DATA, 8, 1, b"\x10" + bytes(16)) * MANY, "too many empty frames"),
    "WINDOW_UPDATE": (h2.window_update(0, 1) * MANY, "too many WINDOW_UPDATE frames"),
    "WINDOW_UPDATE_of_a_stream": (OPENED + h2.window_update(1, 1) * MANY, "too many WINDOW_UPDATE frames"),
    "PRIORITY": (h2.frame(h2.PRIORITY, 0, 1, bytes(5)) * MANY, "too many frames without use"),
    "unknown": (h2.frame(0xEE, 0, 0, b"x") * MANY, "too many frames without use"),
    "refused_calls": (b"".join(h2.begin(i) for i in range(1, 30_001, 2)), "too many streams were reset"),
}


@pytest.mark.parametrize("flood, text", FLOODS.values(), ids=FLOODS)
def test_floods_end_with_enhance_your_calm(server, flood, text):
    with Watch(server), h2.Connection(server.grpc_url) as attacker:
        attacker.socket.settimeout(2 * SERVED_WITHIN_S)
        attacker.send(flood)
        code, said = code_of_end(attacker.take_all())
        assert code == h2.ENHANCE_YOUR_CALM
        assert re.fullmatch(text, said), said


@pytest.mark.parametrize("flood", [
    continuations(b"\x00" + h2.text("x") + b"\x7f\x80\x7f" + b"y" * 16_000),
    h2.call(1) + h2.frame(h2.DATA, 0, 1, b"x") * MANY,
    h2.frame(h2.PUSH_PROMISE, h2.END_HEADERS, 1, bytes(4)) * MANY,
], ids=["large_continuation", "DATA_of_closed_streams", "PUSH_PROMISE"])
def test_broken_rules_end_the_connection(server, flood):
    with Watch(server), h2.Connection(server.grpc_url) as attacker:
        attacker.send(flood)
        assert code_of_end(attacker.take_all())[0] != h2.NO_ERROR


def test_a_client_that_reads_no_acknowledgements_keeps_no_memory(server):
    """Each frame wants an answer, and none is read."""
    with Watch(server), contextlib.ExitStack() as stack:
        for _ in range(50):
            attacker = stack.enter_context(h2.Connection(server.grpc_url))
            attacker.send((h2.frame(h2.PING, payload=b"pingpong") + h2.frame(h2.SETTINGS)) * 1000)


# ---- Windows --------------------------------------------------------------------------------------------------------

def infer_request(count):
    request = service_pb2.ModelInferRequest(model_name="echo")
    request.inputs.add(name="INPUT0", datatype="UINT8", shape=[count])
    request.raw_input_contents.append(bytes(count))
    return request.SerializeToString()


def upload(stream, content, allowed=None):
    """The frames of an inference, or of the first bytes of one."""
    body = h2.message(content)[:allowed]
    at = range(0, len(body), 16384)
    ends = h2.END_STREAM if allowed is None else 0
    return h2.begin(stream, h2.INFER) + b"".join(
        h2.frame(h2.DATA, ends if i == at[-1] else 0, stream, body[i:i + 16384]) for i in at)


class Uploads:
    """A connection that sends up to 1 MiB on each stream, as the window of the connection allows."""

    def __init__(self, server, settings=b""):
        self.connection = wait_for(lambda: self._connect(server, settings), SERVED_WITHIN_S, "streams have large windows")
        self.window = 65535

    @staticmethod
    def _connect(server, settings):
        """Returns a connection that began when memory was not short."""
        connection = h2.Connection(server.grpc_url, settings)
        if h2.setting(h2.INITIAL_WINDOW_SIZE, MIB) in connection.await_frame(h2.SETTINGS).payload:
            return connection
        connection.socket.close()
        return None

    def send(self, frames):
        for at in self._cut(frames):
            while self.window < 16384:
                got = self.connection.take()
                if got is None:
                    return False
                if got.kind == h2.WINDOW_UPDATE and got.stream == 0:
                    self.window += struct.unpack(">I", got.payload)[0]
            self.connection.send(at)
        return True

    def _cut(self, frames):
        while frames:
            n = 9 + int.from_bytes(frames[:3], "big")
            self.window -= n - 9 if frames[3] == h2.DATA else 0
            yield frames[:n]
            frames = frames[n:]


def test_answers_without_a_window_keep_bounded_memory(server):
    """A hundred answers of 1 MiB that no window lets out. Then their streams are given up for a client that sends much."""
    content = infer_request(1_000_000)
    with Watch(server, growth=BUDGET + GROWTH), contextlib.ExitStack() as stack:
        for attacker in [Uploads(server, h2.setting(h2.INITIAL_WINDOW_SIZE, 0)) for _ in range(5)]:
            stack.enter_context(attacker.connection)
            for i in range(20):
                attacker.send(upload(2 * i + 1, content))
        assert_large_call_is_served(server)


def test_windows_of_one_byte_keep_bounded_memory(server):
    content = infer_request(100_000)
    with Watch(server, growth=BUDGET, cpu=3 * CPU_S) as watch:
        attacker = Uploads(server, h2.setting(h2.INITIAL_WINDOW_SIZE, 1))
        with attacker.connection:
            for i in range(20):
                attacker.send(upload(2 * i + 1, content))
            updates = b"".join(h2.window_update(2 * i + 1, 1) for i in range(20))
            for _ in range(300):
                attacker.connection.send(updates)
                attacker.connection.take_ready()
            watch.await_calls(2)


# ---- Messages -------------------------------------------------------------------------------------------------------

def is_served(server, n_bytes):
    """Whether a call with a large message is answered; the server may refuse it for want of memory."""
    options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    with grpc.insecure_channel(server.grpc_url, options) as channel:
        infer = channel.unary_unary(h2.INFER)
        try:
            return len(infer(infer_request(n_bytes), timeout=2 * SERVED_WITHIN_S)) > n_bytes
        except grpc.RpcError as fault:
            for_output = fault.code() == grpc.StatusCode.UNAVAILABLE and "out of memory: " in fault.details()
            assert for_output or fault.code() == grpc.StatusCode.RESOURCE_EXHAUSTED, fault
            return False


def assert_large_call_is_served(server):
    """A call that needs much of the budget. It may be refused until the server has found others that have stalled."""
    wait_for(lambda: is_served(server, BUDGET // 4), 4 * SERVED_WITHIN_S, "a large call is served")


def test_an_announced_length_costs_nothing(server):
    with Watch(server) as watch, h2.Connection(server.grpc_url) as attacker:
        for i in range(1000):
            attacker.send(h2.begin(2 * i + 1, h2.STREAM_INFER if i % 2 else h2.INFER)
                          + h2.frame(h2.DATA, 0, 2 * i + 1, struct.pack(">BI", 0, 2**31 - 1)))
        watch.await_calls(2)


def test_a_length_beyond_the_maximum_is_refused(server):
    with Watch(server), h2.Connection(server.grpc_url) as attacker:
        attacker.send(h2.begin(1, h2.INFER) + h2.frame(h2.DATA, 0, 1, struct.pack(">BI", 0, 2**32 - 1)))
        assert h2.status_of([attacker.await_frame(h2.HEADERS, stream=1)]) == RESOURCE_EXHAUSTED


def test_halves_of_messages_make_room_for_others(server):
    """Their bytes come to most of the budget, on connections that go on with other things."""
    content = infer_request(900_000)
    with Watch(server, growth=BUDGET + GROWTH), contextlib.ExitStack() as stack:
        attackers = [Uploads(server) for _ in range(4)]
        for attacker in attackers:
            stack.enter_context(attacker.connection)
            for i in range(40):
                attacker.send(upload(2 * i + 1, content, allowed=800_000))
            attacker.connection.next_stream = 81
        assert_large_call_is_served(server)
        assert any(attacker.connection.ask() for attacker in attackers)  # it has lost calls, not its connection


def test_stalled_calls_are_reset_while_their_connection_is_used(models):
    """Half a message of a stream, and an answer that may not leave: each for itself, however busy the client is."""
    repository.write_identity(models, "echo", [("UINT8", [-1])])
    with Server(models, flags=["--grpc-stall-timeout-secs=2"], grpc=True) as server:
        with h2.Connection(server.grpc_url, h2.setting(h2.INITIAL_WINDOW_SIZE, 0)) as client:
            client.send(upload(1, infer_request(1000)))
            client.send(h2.begin(3) + h2.frame(h2.DATA, 0, 3, h2.message(bytes(1000))[:500]))
            client.send(h2.begin(5))  # a stream without a message may be silent
            client.next_stream = 7
            resets = {}
            until = time.monotonic() + 2 * SERVED_WITHIN_S
            while len(resets) < 2 and time.monotonic() < until:
                client.send(h2.call(client.next_stream) + h2.window_update(client.next_stream, 100) + h2.window_update(0, 100))
                while True:
                    got = client.take()
                    assert got, "the connection has ended"
                    if got.kind == h2.RST_STREAM and got.stream < 7:
                        resets[got.stream] = struct.unpack(">I", got.payload)[0]
                    if got.kind == h2.HEADERS and got.stream == client.next_stream and got.flags & h2.END_STREAM:
                        break
                client.next_stream += 2
            assert resets == {1: h2.CANCEL, 3: h2.CANCEL}
            client.send(h2.frame(h2.DATA, h2.END_STREAM, 5))
            assert h2.status_of([client.await_frame(h2.HEADERS, stream=5)]) == 0


# ---- Connections ----------------------------------------------------------------------------------------------------

def may_have(count):
    """Raises the limit of descriptors for this process and those that it starts. Returns whether that suffices."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count + 500:
        return False
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard if hard != resource.RLIM_INFINITY else count + 500, hard))
    return True


def test_10000_silent_connections_are_cheap_where_descriptors_suffice(models):
    if not may_have(N_SILENT):
        pytest.skip(f"a process may have fewer than {N_SILENT} descriptors")
    with Server(models, flags=["--http-thread-count=1"], grpc=True) as server, contextlib.ExitStack() as stack:
        with h2.Connection(server.grpc_url) as client:
            assert client.ask()
        before = memory(server)
        with Watch(server, growth=N_SILENT * CONNECTION_BYTES + GROWTH, cpu=10 * CPU_S):
            silent = [stack.enter_context(h2.Connection(server.grpc_url)) for _ in range(N_SILENT)]
            for client in silent:
                assert client.ask()  # each has made a call
        each = (memory(server) - before) / N_SILENT
        print(f"{each:.0f} bytes of a connection")
        assert each < CONNECTION_BYTES or SANITIZED
        for client in silent[::1000]:
            assert client.ask()
