# SPDX-License-Identifier: Apache-2.0
"""The rows of what HTTP has beyond a plain inference: generate, events, regions of shared memory, traces, TLS, and what an
idle connection holds.
"""

import contextlib
import http.server
import json
import math
import os
import statistics
import threading
import time
import urllib.request
from pathlib import Path

from . import grpc_requests, micro, requests, servers
from .grpc import TLS_COSTS, tls_costs
from .measure import Cell, ratio, say
from .report import cpu, figure, met, table


def generate(lab):
    """generate with 64 bytes, against infer with the same as JSON, in both servers"""
    rows = []
    running = [lab.conch(), *filter(None, [lab.optional(lab.triton)])]
    for n in (16, 64):
        cells = [Cell(server, request, n) for server in running for request in (requests.generate(), requests.small_json())]
        lab.bench.turns(cells)
        a, b, *theirs = cells
        costs = ratio(a, b)
        row = [n, cpu(a), cpu(b), costs, "≤ 1.30", met(costs.median <= 1.3)]
        row += [cpu(theirs[0]), cpu(theirs[1]), ratio(*theirs)] if theirs else ["–"] * 3
        rows.append(row + [figure(a.p50_us), figure(b.p50_us)])
    return table(["connections", "generate CPU µs", "infer as JSON CPU µs", "ratio", "goal", "met", "Triton: generate CPU µs", "Triton: infer CPU µs",
                  "ratio", "generate p50 µs", "infer p50 µs"], rows)


def events(lab):
    """each of 10 000 events of a generate_stream, against the genuine Triton"""
    request = requests.events(10000)
    rows = []
    running = [lab.conch(), *filter(None, [lab.optional(lab.triton)])]
    for n in (1, 4):
        cells = [Cell(server, request, n) for server in running]
        lab.bench.measure(cells)
        a, *theirs = cells
        less = theirs[0].cpu_us / a.cpu_us if theirs else 0
        rows.append([n, cpu(a), "≤ 2", met(a.cpu_us <= 2), *([cpu(theirs[0]), f"{less:.1f} ×", "≥ 5 ×", met(less >= 5)] if theirs else ["–"] * 4),
                     figure(a.p50_us), figure(theirs[0].p50_us if theirs else None)])
    return table(["connections", "Conch CPU µs", "goal", "met", "Triton CPU µs", "less", "goal", "met", "Conch p50 µs of all", "Triton p50 µs"], rows)


class Regions:
    """Two objects of shared memory, for an input and an output, and their names at servers."""

    def __init__(self, values):
        self.n_bytes = len(values)
        self.names = [f"conch-bench-{os.getpid()}-{what}" for what in ("in", "out")]
        self.files = [Path("/dev/shm") / name for name in self.names]
        self.files[0].write_bytes(values)
        self.files[1].write_bytes(bytes(self.n_bytes))

    def register(self, server):
        for name in self.names:
            ask = json.dumps({"key": "/" + name, "offset": 0, "byte_size": self.n_bytes}).encode()
            url = f"http://127.0.0.1:{server.port}/v2/systemsharedmemory/region/{name}/register"
            urllib.request.urlopen(urllib.request.Request(url, data=ask), timeout=20).close()

    def check(self, _answer):
        """Also empties the output, for the next server."""
        same = self.files[1].read_bytes() == self.files[0].read_bytes()
        self.files[1].write_bytes(bytes(self.n_bytes))
        return None if same else "the output's region is not what the input's is"

    def request(self):
        """Over HTTP."""
        return requests.by_regions(self.check, self.names)


@contextlib.contextmanager
def made_regions():
    made = Regions(requests.floats_as_bytes(math.prod(requests.IMAGE_SHAPE)))
    try:
        yield made
    finally:
        for file in made.files:
            file.unlink()


def _of_regions(lab, running, copying, made):
    """One table for each protocol."""
    tables = []
    for protocol, request, small in (("HTTP", made.request(), requests.small()),
                                     ("gRPC", grpc_requests.by_regions(made.check, made.names), grpc_requests.small())):
        rows, copies = [], []
        loads = [[*(Cell(server, request, n) for server in running), Cell(copying, small, n), Cell(running[0], small, n)] for n in (1, 16)]
        for _ in range(lab.settings.rounds):
            copies.append(micro.copy_loop(lab, made.files, made.n_bytes))
            say(f"  a copy alone {copies[-1]:.1f} us")
            for cell in (cell for cells in loads for cell in cells):
                lab.bench.sample(cell)
        copy_us = statistics.median(copies)
        for ours, *theirs, floor, plain in loads:
            goal = plain.cpu_us + copy_us + 1
            more = statistics.median(a["cpu_us"] - b["cpu_us"] for a, b in zip(ours.samples, floor.samples))
            less = theirs[0].cpu_us / ours.cpu_us if theirs else 0
            rows.append([ours.connections, cpu(ours), cpu(plain), figure(copy_us), f"≤ {figure(goal)}", met(ours.cpu_us <= goal), cpu(floor),
                         f"{more:+.2f}", "≤ 1", met(more <= 1),
                         *([cpu(theirs[0]), f"{less:.1f} ×", "≥ 3 ×", met(less >= 3)] if theirs else ["–"] * 4), figure(ours.p50_us),
                         figure(theirs[0].p50_us if theirs else None)])
        tables.append(f"{protocol}:\n\n" + table(
            ["connections", "Conch CPU µs", "64 B CPU µs", "one copy alone CPU µs", "goal", "met", "64 B with the copy in the server CPU µs",
             "more than that µs", "goal", "met", "Triton CPU µs", "less", "goal", "met", "Conch p50 µs", "Triton p50 µs"], rows))
    return "\n".join(tables)


def regions(lab):
    """602 kB both ways by regions of shared memory, against 64 B and a copy of them, alone and in the server, and the genuine Triton"""
    running = [lab.conch_regions(), *filter(None, [lab.optional(lab.triton_grpc)])]
    with made_regions() as made:
        for server in running:
            made.register(server)
        return _of_regions(lab, running, lab.conch_copying(made.files, made.n_bytes), made)


def _within_1_percent(lab, with_it, without, names):
    """64 B at a server that does more, against one that does not."""
    rows = []
    for n in (16, 64):
        a, b = (Cell(server, requests.small(), n) for server in (with_it, without))
        lab.bench.turns([a, b])
        costs = ratio(a, b)
        rows.append([n, cpu(a), cpu(b), f"{costs.median:.3f} ± {costs.spread:.3f}", "≤ 1.01", met(costs.median <= 1.01)])
    return table(["connections", *(f"{name} CPU µs" for name in names), "ratio", "goal", "met"], rows)


def traces(lab):
    """64 B with each 1 000th request traced into a file (TIMESTAMPS), against none"""
    measured = _within_1_percent(lab, lab.conch_traced(), lab.conch(), ["traced", "not traced"])
    written = json.loads((lab.folder / "trace.json").read_text())
    say(f"  {len(written)} records in the trace file")
    return measured


def histograms(lab):
    """64 B with the histograms of the metrics, against none"""
    return _within_1_percent(lab, lab.conch_metrics(True), lab.conch_metrics(False), ["with histograms", "without"])


class _Collector(http.server.BaseHTTPRequestHandler):
    """Takes spans and forgets them."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):    # noqa: N802
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


def spans(lab):
    """64 B with one of 100 requests, or each, traced and sent to a collector of OpenTelemetry, against none"""
    collector = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Collector)
    collector.daemon_threads = True
    threading.Thread(target=collector.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{collector.server_address[1]}/v1/traces"
    rows = []
    for n in (16, 64):
        few, every, none = (Cell(server, requests.small(), n) for server in (lab.conch_spans(100, url), lab.conch_spans(1, url), lab.conch()))
        lab.bench.turns([few, every, none])
        costs, more_us = ratio(few, none), every.cpu_us - none.cpu_us
        rows.append([n, cpu(none), cpu(few), f"{costs.median:.3f} ± {costs.spread:.3f}", "≤ 1.01", met(costs.median <= 1.01), cpu(every), figure(more_us),
                     "≤ 2", met(more_us <= 2)])
    return table(["connections", "none CPU µs", "1 % CPU µs", "ratio", "goal", "met", "all CPU µs", "more µs", "goal", "met"], rows)


def tls(lab):
    """HTTP with TLS, 64 B and 602 kB both ways: what it adds, against OpenSSL's part of a small request, and AES-GCM of the bytes alone"""
    plain, secure, floor = lab.conch(), lab.conch_tls(), lab.conch_openssl()
    rows = []
    for request, loads in ((requests.small(), (1, 16, 64)), (requests.image(), (1, 4, 16))):
        is_small = len(request.wire) < 1000
        pairs = [[Cell(server, request, n) for server in (plain, secure, *([floor] if is_small else []))] for n in loads]
        for cell in (cell for pair in pairs for cell in pair[2:]):
            cell.excluded = lab.openssl_file(floor)
        # An answer is about as long as its request.
        alone = []
        for _ in range(lab.settings.rounds):
            alone.append(micro.aes_loop(lab, len(request.wire), len(request.wire)))
            for cell in (cell for pair in pairs for cell in pair):
                lab.bench.sample(cell)
        aes_us = statistics.median(alone)
        goal = 1.5 if is_small else 2 * aes_us
        for a, b, *c in pairs:
            rows.append([request.name, a.connections, cpu(a), cpu(b), figure(aes_us), *tls_costs(a, b, c[0] if c else None, goal),
                         f"{figure(a.p50_us)} / {figure(b.p50_us)}", f"{figure(a.p99_us)} / {figure(b.p99_us)}"])
    return table(["request", "connections", "plain CPU µs", "TLS CPU µs", "AES-256-GCM alone CPU µs", *TLS_COSTS, "p50 µs: plain / TLS",
                  "p99 µs"], rows)


IDLE = 10_000
LIVE = b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n"


def _rest(server):
    """A connection that has had a request and its answer. Of one with TLS only the socket is kept here."""
    s = servers.connect(server)
    s.sendall(LIVE)
    seen = b""
    while b"\r\n\r\n" not in seen:
        seen += s.recv(4096)
    return s.detach()


def idle(lab):
    """10 000 idle connections, each after a request, plain and with TLS: resident memory of each"""
    rows = []
    for name, make, goal in (("plain", lambda: lab.conch_idle(2 * IDLE), 3), ("TLS", lambda: lab.conch_tls("conch-tls-idle", descriptors=2 * IDLE), 32)):
        server = make()
        held = [_rest(server) for _ in range(IDLE // 100)]
        before = server.memory_kb("VmRSS")
        try:
            while len(held) < IDLE + IDLE // 100:
                held.append(_rest(server))
            time.sleep(2.5)     # times of connections are checked each second
            each = (server.memory_kb("VmRSS") - before) / IDLE
        finally:
            for fd in held:
                os.close(fd)
        server.stop()
        rows.append([name, IDLE, f"{each:.2f}", f"≤ {goal}", met(each <= goal)])
    return table(["connection", "how many", "kB each", "goal", "met"], rows)
