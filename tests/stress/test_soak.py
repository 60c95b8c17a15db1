# SPDX-License-Identifier: Apache-2.0
"""Mixed load, then rest, again and again: at rest the server holds what it held before.

Clients of all kinds (clients.py), sequences, models that are loaded and unloaded, statistics and index, from several
processes. At each rest the printed table gets a line: the process's resident memory, threads, descriptors and mappings,
the bytes that its allocator has given out (tests/stress/heapwatch.c), and the bytes that the owners in the server
report: models (`memory_usage` in the statistics) and connections (`conch_connection_memory_used_bytes`).

CONCH_SOAK_SECONDS=n  of load (`make soak SECONDS=n`); 6
CONCH_SOAK_SEED=n     the same choices again; otherwise random, and printed
"""

import collections
import concurrent.futures
import json
import multiprocessing
import os
import pathlib
import random
import re
import socket
import statistics
import threading
import time
import types
import urllib.request

import pytest

import clients
import preload
import repository
import server as servers
from wire import ask

SECONDS = float(os.environ.get("CONCH_SOAK_SECONDS", "6"))
CYCLE_S = 15    # at most, between two rests
PROCESSES, CLIENTS = 2, 4
LOOPS = 2
MIB = 1 << 20

# By how much two quarters of a run may differ by chance.
HEAP_BYTES, RESIDENT_BYTES = MIB // 2, MIB
# The same of the resident memory of single cycles: malloc keeps what a peak has left. The longer a run, the less of it.
SHORT_RUN_BYTES = 6 * MIB
# ONNX Runtime keeps some 50 bytes of every model that it has ever loaded.
PER_LOAD_BYTES = 150
# State of sequences, for as many as there were at a time.
MODEL_BYTES = 1024
# Counters of what ends without an instance, requests of an ensemble and hits of the cache: for each of the eight groups of threads
# (base/stripe.h) that has ended such a request.
THREADS_BYTES = 8 * 1536
# Of each loop: its pool keeps a megabyte, and it keeps unused exchanges.
AT_REST_BYTES = 2 * MIB


def write_models(root):
    clients.write_models(root)
    folder = repository.write_identity(root, "sequence", [("FP32", [1])], max_batch_size=4)
    with open(folder / "config.pbtxt", "a", encoding="utf-8") as config:
        config.write("sequence_batching { }\n")
    repository.copy_example(root, "digits")
    for i in range(PROCESSES * CLIENTS):
        repository.write_identity(root, f"guest_{i}", [("FP32", [-1])])
    return root


# ---- Clients beyond those of clients.py


def ok(connection, method, path, document=None):
    body = None if document is None else json.dumps(document).encode()
    response = connection.request(method, path, body)
    clients.ok(response)
    return response


def run_a_sequence(_, chance, connection):
    name, length = chance.randrange(1, 1 << 62), chance.randrange(1, 6)
    for i in range(length):
        given = {"name": "INPUT0", "datatype": "FP32", "shape": [1, 1], "data": [i]}
        marks = {"sequence_id": name, "sequence_start": i == 0, "sequence_end": i == length - 1}
        ok(connection, "POST", "/v2/models/sequence/infer", {"inputs": [given], "parameters": marks})


def read_digits(_, chance, connection):
    rows = chance.randrange(1, 9)
    pixels = [chance.randrange(17) for _ in range(64 * rows)]
    given = {"name": "image", "datatype": "FP32", "shape": [rows, 64], "data": pixels}
    ok(connection, "POST", "/v2/models/digits/infer", {"inputs": [given]})


def look_around(_, __, connection):
    ok(connection, "GET", "/v2/models/stats")
    ok(connection, "POST", "/v2/repository/index", {})


def load_and_unload(number):
    """A model that no other client asks."""
    model = f"guest_{number}"

    def have_a_guest(run, chance, connection):
        for _ in range(3):
            ok(connection, "POST", f"/v2/repository/models/{model}/load", {})
            question = clients.ask_json(chance, model, "FP32")
            connection.send(question.bytes(chance))
            question.check(connection.response())
            ok(connection, "POST", f"/v2/repository/models/{model}/unload", {})
            run.add(run.answered, model)

    return have_a_guest


def be_some_clients(port, seed, first, seconds):
    """In a process of its own: (answered, left, failures)."""
    clients.LARGE = 1 << 18    # asked as often as others, large requests would take all the time
    run = clients.Run(types.SimpleNamespace(address="127.0.0.1", port=port), seed)
    threads = []
    for number in range(first, first + CLIENTS):
        kinds = [*clients.KINDS, *[run_a_sequence, read_digits, load_and_unload(number)] * 2, look_around]
        threads.append(threading.Thread(target=clients.be_a_client, args=(run, number, kinds)))
        threads[-1].start()
    until = time.monotonic() + seconds
    while time.monotonic() < until and not run.failures:
        time.sleep(0.05)
    run.over = True
    for thread in threads:
        thread.join()
    return run.answered, run.left, run.failures


class Load:
    """All answers of all clients so far."""

    def __init__(self, server, pool, seed):
        self.server, self.pool, self.seed = server, pool, seed
        self.answered, self.left = collections.Counter(), collections.Counter()
        self.cycles = 0

    def cycle(self, seconds):
        self.cycles += 1
        works = [self.pool.submit(be_some_clients, self.server.port, f"{self.seed} {self.cycles}", i * CLIENTS, seconds)
                 for i in range(PROCESSES)]
        for work in works:
            answered, left, failures = work.result()
            assert not failures, self.server.story("\n".join(failures))
            self.answered += answered
            self.left += left
        self.server.assert_alive()
        clients.assert_all_is_counted(types.SimpleNamespace(server=self.server, answered=self.answered, left=self.left))

    def loads(self):
        return sum(n for model, n in self.answered.items() if model.startswith("guest"))


# ---- What the server holds


Rest = collections.namedtuple("Rest", "requests loads resident allocated connections models threads descriptors maps")


def heap(path):
    """Bytes that are allocated, by the server's allocator, once it has freed what it can."""
    with socket.socket(socket.AF_UNIX) as asked:
        asked.connect(path)
        with asked.makefile() as answer:
            text = answer.read()
    return json.loads(text)["allocated"] if text else 0


def used_by_connections(server):
    port = re.search(r"Started Metrics Service at \S*:(\d+)", server.log())[1]
    with urllib.request.urlopen(f"http://{server.address}:{port}/metrics", timeout=60) as page:
        return int(re.search(r"^conch_connection_memory_used_bytes (\d+)", page.read().decode(), re.M)[1])


def held_by_models(server):
    """{model: bytes}, of the models that stay loaded."""
    told = ask(server, "GET", "/v2/models/stats").json()["model_stats"]
    return {m["name"]: m["memory_usage"][0]["byte_size"] for m in told if not m["name"].startswith("guest")}


def rest(load, heap_path):
    server = load.server
    servers.wait_for(lambda: used_by_connections(server) <= LOOPS * AT_REST_BYTES, 60, "the connections' memory is given back")
    allocated = heap(heap_path)
    process = pathlib.Path(f"/proc/{server.pid}")
    resident = int(re.search(r"^VmRSS:\s+(\d+)", (process / "status").read_text(), re.M)[1]) * 1024
    return Rest(sum(load.answered.values()), load.loads(), resident, allocated, used_by_connections(server), held_by_models(server),
                len(list((process / "task").iterdir())), len(list((process / "fd").iterdir())),
                (process / "maps").read_text().count("\n"))


def show(rests):
    line = "{:>9} {:>7} {:>9} {:>9} {:>12} {:>8} {:>8} {:>12} {:>6}"
    print(line.format("requests", "loads", "resident", "allocated", "connections", "models", "threads", "descriptors", "maps"), "(KiB)")
    for r in rests:
        kib = [n // 1024 for n in (r.resident, r.allocated, r.connections, sum(r.models.values()))]
        print(line.format(r.requests, r.loads, *kib, r.threads, r.descriptors, r.maps))


def assert_flat(rests):
    """Compares the second quarter with the last; before that, caches fill."""
    n = len(rests) // 4
    before, after = rests[n : 2 * n], rests[-n:]
    for model, held in after[-1].models.items():
        spread = THREADS_BYTES if model.endswith(("_ensemble", "_cached")) else 0
        assert held <= before[-1].models[model] + MODEL_BYTES + spread, model
    assert after[-1].descriptors <= before[-1].descriptors + 2, "connections that ask for all this may not be closed yet"
    assert after[-1].threads <= before[-1].threads + len(after[-1].models), "more than one for each instance"

    def growth(measure):
        return statistics.median(map(measure, after)) - statistics.median(map(measure, before))

    # A loop may keep a block that is a mapping, or one that is not, or none.
    spread = PER_LOAD_BYTES * (after[-1].loads - before[0].loads) + LOOPS * MIB / n
    grown = growth(lambda rest: rest.allocated - rest.connections)
    assert grown <= HEAP_BYTES + spread, "allocated by others than connections, and not freed"
    if not servers.SANITIZED:    # a sanitizer keeps freed memory
        chance = SHORT_RUN_BYTES / n    # one cycle may need more at its peak than another
        assert growth(lambda rest: rest.resident) <= RESIDENT_BYTES + chance + spread, "resident"


@pytest.mark.skipif(servers.REFERENCE, reason="asks for accounts of Conch's own")
def test_load_leaves_nothing_behind(tmp_path):
    seed = os.environ.get("CONCH_SOAK_SEED") or str(random.SystemRandom().randrange(10**9))
    print(f"CONCH_SOAK_SEED={seed}")
    cycles = max(4, round(SECONDS / CYCLE_S))
    root = write_models(tmp_path / "models")
    flags = [f"--http-thread-count={LOOPS}", "--allow-metrics=true", "--metrics-port=0", "--model-control-mode=explicit"]
    flags += [f"--load-model={folder.name}" for folder in root.iterdir() if not folder.name.startswith("guest")]
    flags += clients.cache_flags()
    heap_path = str(tmp_path / "heap")
    env = preload.environment("heapwatch", HEAPWATCH=heap_path)
    apart = multiprocessing.get_context("spawn")
    rests = []
    with (servers.Server(root, flags=flags, env=env) as server,
          concurrent.futures.ProcessPoolExecutor(PROCESSES, mp_context=apart) as pool):
        load = Load(server, pool, seed)
        try:
            for _ in range(cycles):
                load.cycle(SECONDS / cycles)
                rests.append(rest(load, heap_path))
        finally:
            show(rests)
    assert_flat(rests)
