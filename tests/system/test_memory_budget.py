# SPDX-License-Identifier: Apache-2.0
"""The memory of connections is bounded, whatever their clients do, and is freed: --connection-memory-budget."""

import contextlib
import os
import pathlib
import re
import resource
import socket
import threading
import time
import urllib.request

import pytest

import repository
from server import SANITIZED, Server, wait_for
from wire import Connection, ask, request_bytes

pytestmark = pytest.mark.conch_only("the genuine Triton has no such budget")

MIB = 1 << 20
BUDGET = 128 * MIB
SLACK_KB = 60_000    # memory in use beside the budget: the program, its stacks, the allocator's own
PATH = "/v2/models/bytes/infer"
WITHIN_S = 60


def write_models(root):
    repository.write_identity(root, "bytes", [("UINT8", [-1])])
    repository.write_identity(root, "longs", [("INT64", [-1])])
    repository.write_identity(root, "slow", [("UINT8", [-1])], execute_delay_ms=50)
    return root


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    return write_models(tmp_path_factory.mktemp("models"))


@pytest.fixture
def server(models):
    """One loop, so that a client that blocks it is seen."""
    flags = [f"--connection-memory-budget={BUDGET}", "--http-thread-count=1", "--allow-metrics=true", "--metrics-port=0"]
    with Server(models, flags=flags) as server:
        yield server


def head_of(n, path=PATH, output=True):
    """Headers and JSON of a request with n bytes of input, which follow."""
    outputs = b'[{"name":"OUTPUT0","parameters":{"binary_data":%s}}]' % (b"true" if output else b"false")
    text = b'{"inputs":[{"name":"INPUT0","datatype":"UINT8","shape":[%d],"parameters":{"binary_data_size":%d}}],"outputs":%s}'
    text %= (n, n, outputs)
    headers = {"Inference-Header-Content-Length": len(text), "Content-Length": len(text) + n}
    return request_bytes("POST", path, headers=headers) + text


def memory(server, field="VmRSS"):
    """In kB, as the kernel counts it."""
    text = pathlib.Path(f"/proc/{server.pid}/status").read_text(encoding="ascii")
    return int(re.search(rf"^{field}:\s+(\d+) kB", text, re.M)[1])


def metric(server, name):
    port = re.search(r"Started Metrics Service at \S*:(\d+)", server.log())[1]
    with urllib.request.urlopen(f"http://{server.address}:{port}/metrics", timeout=WITHIN_S) as page:
        return float(re.search(rf"^{name} (\S+)$", page.read().decode(), re.M)[1])


def used(server):
    return metric(server, "conch_connection_memory_used_bytes")


def serves_small(server):
    with Connection(server, timeout_s=WITHIN_S) as connection:
        connection.send(head_of(1000) + bytes(1000))
        assert connection.response().status == 200
        assert connection.request("GET", "/v2/health/live").status == 200


def ask_large(server, n=40 * MIB):
    """Returns the answer to a large request, which may arrive before all of it has been sent."""
    with Connection(server, timeout_s=WITHIN_S) as connection:
        with contextlib.suppress(ConnectionError):
            connection.send(head_of(n) + bytes(n))
        return connection.response()


class Watch:
    """Asks for health again and again while the block runs, and notes the highest memory."""

    def __init__(self, server):
        self._server, self._over = server, threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self.worst_s, self.n, self.most_kb, self.failure = 0, 0, 0, None

    def _watch(self):
        try:
            with Connection(self._server, timeout_s=WITHIN_S) as connection:
                while not self._over.wait(0.002):
                    begun = time.monotonic()
                    assert connection.request("GET", "/v2/health/live").status == 200
                    self.worst_s = max(self.worst_s, time.monotonic() - begun)
                    self.n += 1
                    self.most_kb = max(self.most_kb, memory(self._server))
        except BaseException as failure:    # noqa: BLE001 - reported by the thread that waits for the end
            self.failure = failure

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()
        if self.failure:
            raise self.failure
        print(f"health: {self.n} answers, the slowest after {self.worst_s * 1e3:.1f} ms; at most {self.most_kb} kB")


def assert_comes_back(server, before_kb):
    wait_for(lambda: SANITIZED or memory(server) < before_kb + 20_000, WITHIN_S, "memory is the system's again")


def assert_bounded(watch, before_kb):
    assert SANITIZED or watch.most_kb < before_kb + BUDGET // 1024 + SLACK_KB


def page_faults(server, thread):
    """How often the thread has written to a page that did not exist yet."""
    for task in pathlib.Path(f"/proc/{server.pid}/task").iterdir():
        with contextlib.suppress(OSError):    # of one that has ended
            if (task / "comm").read_text(encoding="ascii").strip() == thread:
                return int((task / "stat").read_text(encoding="ascii").rpartition(")")[2].split()[7])
    raise KeyError(thread)


def test_pages_of_large_bodies_are_made_beside_the_loop(server):
    """The loop only copies. Before, it waited for the kernel at each of the 16 pages of 2 MiB, or 8 192 of 4 KiB."""
    before = page_faults(server, "memory"), page_faults(server, "http-0")
    n = 32 * MIB
    body = os.urandom(MIB) * 32
    with Connection(server, timeout_s=WITHIN_S) as connection:
        connection.send(head_of(n) + body)
        response = connection.response()
    assert response.status == 200 and response.body.endswith(body)
    assert page_faults(server, "memory") - before[0] >= n // (2 * MIB) - 2
    print(f"faults: memory {page_faults(server, 'memory') - before[0]}, http-0 {page_faults(server, 'http-0') - before[1]}")


def test_clients_that_leave_while_pages_are_made(server):
    """Orders for such clients end, and later requests are whole."""
    for n_sent in [0, 1, 70_000, MIB, 3 * MIB, 5 * MIB, 9 * MIB] * 3:
        with Connection(server, timeout_s=WITHIN_S) as connection:
            connection.send(head_of(32 * MIB) + bytes(n_sent))
    wait_for(lambda: used(server) < 8 * MIB, WITHIN_S, "their bodies are gone")
    body = os.urandom(MIB) * 32
    with Connection(server, timeout_s=WITHIN_S) as connection:
        connection.send(head_of(len(body)) + body)
        assert connection.response().body.endswith(body)


def test_stalled_uploads_are_bounded_and_closed(server):
    """20 clients send 100 MiB except for the last byte, as far as the server reads."""
    serves_small(server)
    before = memory(server)
    n = 100 * MIB
    crowd = [Connection(server, timeout_s=WITHIN_S) for _ in range(20)]
    with Watch(server) as watch:
        for connection in crowd:
            connection.socket.setblocking(False)
            data = memoryview(head_of(n) + bytes(n - 1))
            with contextlib.suppress(BlockingIOError, ConnectionError):
                while data:
                    data = data[connection.socket.send(data) :]
        # What fitted was accepted: one upload. The others were refused at once.
        answer = ask_large(server)
        assert (answer.status, answer.headers["retry-after"]) == (503, "1")
        assert answer.error == "out of memory for requests: try again later"
        wait_for(lambda: metric(server, "conch_connection_memory_refusals") >= 19, WITHIN_S, "all have been refused but one")
        serves_small(server)
        # Another client needs the memory: uploads that stand still for five seconds are closed.
        wait_for(lambda: ask_large(server).status == 200, WITHIN_S, "large requests are served again")
        assert metric(server, "conch_connection_memory_evictions") >= 1
        serves_small(server)
    assert_bounded(watch, before)
    server.wait_log("the memory budget of the connections is short")
    for connection in crowd:
        connection.socket.close()
    assert_comes_back(server, before)
    wait_for(lambda: ask_large(server).status == 200, WITHIN_S, "it is known that they have gone")


@pytest.mark.sanitize
def test_a_pipeline_is_counted_in_bytes(server):
    """69 requests of 1 MiB on one connection, whose model is slow: the server parses no more of them than weigh 4 MiB."""
    serves_small(server)
    before = memory(server)
    request = head_of(MIB, "/v2/models/slow/infer") + bytes(MIB)
    with Connection(server, timeout_s=WITHIN_S) as connection:
        sender = threading.Thread(target=lambda: [connection.send(request) for _ in range(69)])
        with Watch(server) as watch:
            sender.start()
            for _ in range(69):
                assert connection.response().status == 200
                serves_small(server)
            sender.join()
    assert SANITIZED or watch.most_kb < before + 30_000
    assert_comes_back(server, before)


def test_unread_replies_are_bounded_and_closed(server):
    """40 clients ask for 16 MiB each and read nothing."""
    serves_small(server)
    before = memory(server)
    n = 16 * MIB
    crowd = []
    with Watch(server) as watch:
        for _ in range(40):
            connection = Connection(server, timeout_s=WITHIN_S)
            crowd.append(connection)
            connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
            with contextlib.suppress(ConnectionError):
                connection.send(head_of(n) + bytes(n))
        serves_small(server)
        wait_for(lambda: ask_large(server, 30 * MIB).status == 200, WITHIN_S, "large requests are served again")
        assert metric(server, "conch_connection_memory_evictions") >= 1
        serves_small(server)
    assert_bounded(watch, before)
    for connection in crowd:
        connection.socket.close()
    assert_comes_back(server, before)


def test_the_tensors_of_a_printed_reply_are_freed(server):
    """A client reads nothing of a reply in JSON: the reply's text is kept, the tensors that were printed are freed."""
    serves_small(server)
    before = used(server)
    n = 3 * MIB // 2
    tensor, printed, kept_unused = 8 * n, 20 * n, 8 * MIB
    text = b'{"inputs":[{"name":"INPUT0","datatype":"INT64","shape":[%d],"data":[%s0]}]}' % (n, b"123456789012345678," * (n - 1))
    with Connection(server, timeout_s=WITHIN_S) as connection:
        connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        connection.send(request_bytes("POST", "/v2/models/longs/infer", text))

        def few_are_kept():
            assert connection.socket.recv(1024)    # reads just enough not to be closed
            return used(server) - before < len(text) + printed + kept_unused + tensor // 4

        wait_for(few_are_kept, WITHIN_S, "the tensors are gone")
        assert used(server) - before > printed
    serves_small(server)


@pytest.fixture
def descriptors():
    """As many as this process may have: machines start with different limits."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    if before[1] != resource.RLIM_INFINITY and before[1] < 4000:
        pytest.skip(f"no more than {before[1]} descriptors are allowed here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    yield before[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.usefixtures("descriptors")
def test_many_stalled_small_requests_are_closed(server):
    """Small requests are never refused. When they alone exceed the budget, the slowest connections are closed."""
    serves_small(server)
    before = memory(server)
    n = 60_000
    crowd = []
    with Watch(server) as watch:
        for _ in range(3500):
            connection = Connection(server, timeout_s=WITHIN_S)
            crowd.append(connection)
            with contextlib.suppress(ConnectionError):
                connection.send(head_of(n) + bytes(n - 1))
        serves_small(server)
        assert metric(server, "conch_connection_memory_evictions") >= 1
    assert_bounded(watch, before)
    for connection in crowd:
        connection.socket.close()
    assert_comes_back(server, before)


def test_chunked_bodies_beyond_the_budget_are_refused(server):
    """Bodies of unknown length grow until the budget ends: some are refused, and the others are served one after the other."""
    serves_small(server)
    before = memory(server)
    chunk = b"%x\r\n%s\r\n" % (MIB, bytes(MIB))
    head = request_bytes("POST", PATH, headers={"Transfer-Encoding": "chunked"})
    crowd = [Connection(server, timeout_s=WITHIN_S) for _ in range(6)]
    statuses = []
    with Watch(server) as watch:
        for connection in crowd:
            connection.send(head)
        open_ones = list(crowd)
        for _ in range(50):
            for connection in list(open_ones):
                try:
                    connection.send(chunk)
                except ConnectionError:
                    open_ones.remove(connection)
        for connection in open_ones:
            with contextlib.suppress(ConnectionError):
                connection.send(b"0\r\n\r\n")
        for connection in crowd:
            with contextlib.suppress(ConnectionError, EOFError):
                statuses.append(connection.response().status)
        serves_small(server)
    assert 503 in statuses
    assert statuses.count(500) >= 1    # whole, but no JSON
    assert_bounded(watch, before)
    for connection in crowd:
        connection.socket.close()
    assert_comes_back(server, before)


def test_a_body_larger_than_the_budget_is_refused_for_good(server):
    with Connection(server, timeout_s=WITHIN_S) as connection:
        connection.send(head_of(120 * MIB))
        answer = connection.response()
    assert (answer.status, answer.error) == (413, "the request body is larger than the memory for all requests")


@pytest.mark.sanitize
def test_a_body_beyond_the_budget_is_refused_before_100_continue(server):
    n = 70 * MIB
    with Connection(server, timeout_s=WITHIN_S) as first, Connection(server, timeout_s=WITHIN_S) as second:
        first.send(head_of(n) + bytes(MIB))
        wait_for(lambda: used(server) > n, WITHIN_S, "the first one has its memory")
        second.send(request_bytes("POST", PATH, headers={"Content-Length": n, "Expect": "100-continue"}))
        answer = second.response()
        assert (answer.status, answer.headers["retry-after"]) == (503, "1")


@pytest.mark.skipif(SANITIZED, reason="a sanitizer takes memory of its own")
def test_announced_bodies_take_no_memory(models):
    """Bodies of 64 MiB are announced on thousands of connections, and no byte of them arrives."""
    n = min(5000, (os.sysconf("SC_OPEN_MAX") - 200))
    with Server(models, flags=["--http-thread-count=1"]) as server:
        serves_small(server)
        before, space = memory(server), memory(server, "VmSize")
        request = request_bytes("POST", PATH, headers={"Content-Length": 64 * MIB})
        crowd = [Connection(server, timeout_s=WITHIN_S) for _ in range(n)]
        for connection in crowd:
            connection.send(request)
        for connection in crowd[:: n // 10]:
            wait_for(connection.taken, WITHIN_S, "the server has read it")
        serves_small(server)
        assert memory(server) - before < 16 * n
        assert memory(server, "VmSize") - space < 16 * n + 50_000
        for connection in crowd:
            connection.socket.close()
        wait_for(lambda: memory(server) < before + 8_000, WITHIN_S, "memory is the system's again")


@pytest.mark.skipif(SANITIZED, reason="a sanitizer makes everything slow")
def test_a_huge_body_holds_up_no_client(models):
    """512 MiB, announced and chunked: health is answered in between, and no byte of them is copied while they arrive."""
    n = 512 * MIB
    with Server(models, flags=["--http-thread-count=1", f"--connection-memory-budget={2 << 30}"]) as server:
        piece = bytes(MIB)
        before = memory(server)
        for chunked in (False, True):
            with Connection(server, timeout_s=300) as connection:
                with Watch(server) as watch:
                    if chunked:
                        connection.send(request_bytes("POST", PATH, headers={"Transfer-Encoding": "chunked"}))
                    else:
                        connection.send(request_bytes("POST", PATH, headers={"Content-Length": n}))
                    for _ in range(n // MIB):
                        connection.send(b"%x\r\n%s\r\n" % (MIB, piece) if chunked else piece)
                    if chunked:
                        connection.send(b"0\r\n\r\n")
                    assert connection.response().status == 400    # it is no JSON
                # A copy of 256 MiB alone takes 0.1 s, and needs both blocks at once.
                assert watch.n > 20
                assert watch.most_kb < before + 800 * 1024
        wait_for(lambda: memory(server) < before + 20_000, WITHIN_S, "memory is the system's again")


def memory_group():
    """A fresh control group with 512 MiB for this test, as (folder, file of its processes); None where none can be made."""
    for line in pathlib.Path("/proc/self/mountinfo").read_text(encoding="ascii").splitlines():
        left, _, right = line.partition(" - ")
        kind, _, options = right.split(" ")[:3]
        mount = pathlib.Path(left.split(" ")[4])
        if kind == "cgroup" and "memory" in options.split(","):
            limit, own = "memory.limit_in_bytes", r"^\d+:[^:]*\bmemory\b[^:]*:(.*)$"
        elif kind == "cgroup2" and "memory" in (mount / "cgroup.controllers").read_text(encoding="ascii").split():
            limit, own = "memory.max", r"^0::(.*)$"
        else:
            continue
        path = re.search(own, pathlib.Path("/proc/self/cgroup").read_text(encoding="ascii"), re.M)[1]
        folder = mount / path.lstrip("/") / f"conch-test-{os.getpid()}"
        try:
            folder.mkdir()
            (folder / limit).write_text(str(512 * MIB), encoding="ascii")
        except OSError:
            with contextlib.suppress(OSError):
                folder.rmdir()
            continue
        return folder
    return None


@pytest.fixture
def group():
    folder = memory_group()
    if not folder:
        pytest.skip("no control group that counts memory can be made here")
    yield folder
    wait_for(lambda: not (folder / "cgroup.procs").read_text(encoding="ascii"), WITHIN_S, "the group is empty")
    folder.rmdir()


@pytest.mark.skipif(SANITIZED, reason="a sanitizer takes memory of its own")
def test_a_control_group_of_512_mib_never_kills_it(models, group):
    """The default is a quarter of the group's limit: 128 MiB. Uploads stall, and replies are not read."""
    wrap = ["sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh"]
    with Server(models, flags=["--allow-metrics=true", "--metrics-port=0"], wrap=wrap) as server:
        assert metric(server, "conch_connection_memory_budget_bytes") == 128 * MIB
        crowd = []
        for n, missing in [(100 * MIB, 1), (20 * MIB, 0), (MIB, 1), (16 * MIB, 0)]:
            for _ in range(20):
                connection = Connection(server, timeout_s=WITHIN_S)
                crowd.append(connection)
                connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
                connection.socket.settimeout(0.2)
                with contextlib.suppress(TimeoutError, ConnectionError):
                    connection.send(head_of(n) + bytes(n - missing))
            serves_small(server)
        server.assert_alive()
        for connection in crowd:
            connection.socket.close()
        wait_for(lambda: ask_large(server).status == 200, WITHIN_S, "large requests are served again")
