# SPDX-License-Identifier: Apache-2.0
"""Readers that sleep over 20 MB each, and clients that go at every stage of a request, by the hundred or the ten thousand.

The answers come from shared memory, so that a small request makes a large answer. Meanwhile the memory of connections
stays within the budget, health checks and small requests are answered, and at the end nothing is left: no connection,
no memory of connections. What was answered and what was cancelled are all requests that the server has seen.

CONCH_STRESS_READERS=n  how many; 400. 10 000 takes some minutes
CONCH_STRESS_SEED=n     the same choices again, though not the same times; otherwise random, and printed
"""

import contextlib
import os
import pathlib
import random
import re
import resource
import select
import socket
import statistics
import struct
import threading
import time
import urllib.request

import pytest

import repository
import server as servers
from wire import Connection, ask, request_bytes

READERS = int(os.environ.get("CONCH_STRESS_READERS", "400"))
MIB = 1 << 20
ANSWER_BYTES = 20_000_000
BUDGET = 256 * MIB
SLACK_BYTES = 160 * MIB    # in use beside the budget: the program, its stacks, 20 MB of the region, the allocator's own
PATIENCE_S = 300           # for what must come
TOGETHER = 200             # clients that come between two looks at those that have answers
STAGES = ["sleeps", "sleeps", "sleeps", "reads_on", "leaves_in_head", "leaves_in_body", "leaves_unanswered", "leaves_in_answer"]


@pytest.fixture
def region():
    """An object in shared memory, of the length of an answer."""
    path = pathlib.Path(f"/dev/shm/conch-readers-{os.getpid()}")
    path.write_bytes(bytes(ANSWER_BYTES))
    yield path
    path.unlink()


@pytest.fixture
def server(tmp_path, region):
    for name in ("echo", "other"):
        repository.write_identity(tmp_path, name, [("UINT8", [-1])])
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    flags = ["--allow-client-shm=true", f"--connection-memory-budget={BUDGET}", "--allow-metrics=true", "--metrics-port=0"]
    with servers.Server(tmp_path, flags=flags) as server:
        made = ask(server, "POST", "/v2/systemsharedmemory/region/big/register",
                   {"key": f"/{region.name}", "offset": 0, "byte_size": ANSWER_BYTES})
        assert made.status == 200, made
        with Connection(server, timeout_s=PATIENCE_S) as connection:
            connection.send(large_request())
            answer = connection.response()
            assert answer.status == 200 and len(answer.body) > ANSWER_BYTES, answer
        yield server
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def large_request():
    """The answer has the region's bytes."""
    text = (b'{"inputs":[{"name":"INPUT0","datatype":"UINT8","shape":[%d],"parameters":{"shared_memory_region":"big",'
            b'"shared_memory_byte_size":%d}}],"outputs":[{"name":"OUTPUT0","parameters":{"binary_data":true}}]}')
    return request_bytes("POST", "/v2/models/echo/infer", text % (ANSWER_BYTES, ANSWER_BYTES))


def small_request():
    text = b'{"inputs":[{"name":"INPUT0","datatype":"UINT8","shape":[3],"data":[1,2,3]}]}'
    return request_bytes("POST", "/v2/models/other/infer", text)


def page(server):
    port = re.search(r"Started Metrics Service at \S*:(\d+)", server.log())[1]
    with urllib.request.urlopen(f"http://{server.address}:{port}/metrics", timeout=PATIENCE_S) as answer:
        return answer.read().decode()


def metric(server, name, labels=""):
    return sum(float(value) for value in re.findall(rf"^{name}{labels} (\S+)$", page(server), re.M))


def memory(server):
    text = pathlib.Path(f"/proc/{server.pid}/status").read_text(encoding="ascii")
    return 1024 * int(re.search(r"^VmRSS:\s+(\d+) kB", text, re.M)[1])


class Others:
    """Clients that are served meanwhile: one asks whether the server lives, one for inferences, each all the time."""

    def __init__(self, server):
        self.server = server
        self.took_s = {b"live": [], b"infer": []}
        self.most_bytes = self.most_used = 0
        self._ends = threading.Event()
        self._faults = []
        self._threads = [threading.Thread(target=self._run, args=each) for each in
                         ((self._ask, b"live", request_bytes("GET", "/v2/health/live")), (self._ask, b"infer", small_request()),
                          (self._look,))]

    def _run(self, function, *arguments):
        try:
            function(*arguments)
        except BaseException as fault:    # the other thread raises it
            self._faults.append(fault)

    def _ask(self, what, request):
        with Connection(self.server, timeout_s=PATIENCE_S) as connection:
            while not self._ends.is_set() or len(self.took_s[what]) < 10:
                since = time.monotonic()
                connection.send(request)
                assert connection.response().status == 200
                self.took_s[what].append(time.monotonic() - since)

    def _look(self):
        while not self._ends.wait(0.1):
            self.most_bytes = max(self.most_bytes, memory(self.server))
            self.most_used = max(self.most_used, metric(self.server, "conch_connection_memory_used_bytes"))

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._ends.set()
        for thread in self._threads:
            thread.join()
        if self._faults:
            raise self._faults[0]

    def figures(self):
        for what, all_s in self.took_s.items():
            yield f"{what.decode()}: {len(all_s)} times, median {1e3 * statistics.median(all_s):.2f} ms, most {1e3 * max(all_s):.1f} ms"


def come(server, stage, chance):
    """A client at that stage; None: it has gone already."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.settimeout(PATIENCE_S)
    client.connect((server.address, server.port))
    request = large_request()
    head = request.index(b"\r\n\r\n") + 4
    cut = {"leaves_in_head": chance.randrange(1, head), "leaves_in_body": chance.randrange(head, len(request))}
    with contextlib.suppress(ConnectionError):
        client.sendall(request[:cut.get(stage)])
    client.setblocking(False)
    if stage in cut or stage == "leaves_unanswered":
        if chance.random() < 0.5:    # a reset
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
        return None
    return client


def read_some(clients):
    """Those that read take what has come; those that leave go with their first bytes. Returns those that are left."""
    poll = select.poll()
    for client, _ in clients:
        poll.register(client, select.POLLIN)
    ready = {fd for fd, _ in poll.poll(0)}
    left = []
    for client, stage in clients:
        if stage != "sleeps" and client.fileno() in ready:
            with contextlib.suppress(ConnectionError):
                if client.recv(1 << 20) and stage == "reads_on":
                    left.append((client, stage))
                    continue
            client.close()
            continue
        left.append((client, stage))
    return left


def all_have_an_answer(clients):
    """Those that sleep have read none of theirs."""
    poll = select.poll()
    sleepers = [client for client, stage in clients if stage == "sleeps"]
    for client in sleepers:
        poll.register(client, select.POLLIN)
    return len(poll.poll(0)) == len(sleepers)


def test_readers_that_sleep_and_clients_that_go(server):
    seed = int(os.environ.get("CONCH_STRESS_SEED", random.randrange(1 << 30)))
    print(f"CONCH_STRESS_SEED={seed}")
    chance = random.Random(seed)
    assert ask(server, "GET", "/v2/health/live").status == 200
    before = memory(server)
    clients = []
    with Others(server) as others:
        since = time.monotonic()
        for i in range(READERS):
            stage = chance.choice(STAGES)
            client = come(server, stage, chance)
            if client:
                clients.append((client, stage))
            if i % TOGETHER == TOGETHER - 1:
                clients = read_some(clients)
        came_s = time.monotonic() - since
        servers.wait_for(lambda: all_have_an_answer(clients), PATIENCE_S, "each that sleeps has an answer, or its end")
        servers.wait_for(lambda: metric(server, "conch_connection_memory_evictions") > 0, PATIENCE_S,
                         "readers that have slept for long are cut off")
        wait = others.took_s[b"live"]
        n = len(wait)
        servers.wait_for(lambda: len(wait) > n + 20, PATIENCE_S, "the server answers beside its crowd")
        for client, _ in clients:
            client.close()
        servers.wait_for(lambda: metric(server, "conch_frontend_connections", '{protocol="http"}') <= 2, PATIENCE_S,
                         "the crowd is gone")
    print(f"{READERS} clients came in {came_s:.1f} s; budget {others.most_used / MIB:.0f} of {BUDGET / MIB:.0f} MiB, "
          f"memory {others.most_bytes / MIB:.0f} MiB;", "; ".join(others.figures()))
    cut = metric(server, "conch_frontend_refused", '{limit="memory",protocol="http"}')
    refused = metric(server, "conch_frontend_requests", '{protocol="http",status="5.."}')
    print(f"for want of memory {refused:.0f} were refused and {cut:.0f} cut off")
    assert refused > 0
    assert others.most_used <= BUDGET
    if not servers.SANITIZED:
        assert others.most_bytes - before < BUDGET + SLACK_BYTES
    servers.wait_for(lambda: metric(server, "conch_connection_memory_used_bytes") < 8 * MIB, PATIENCE_S,
                     "the memory of the crowd is given back")
    begun, ended = (metric(server, f"conch_frontend_connections{name}", '{protocol="http"}') for name in ("_begun", ""))
    assert begun >= READERS // 2 and ended == 0
