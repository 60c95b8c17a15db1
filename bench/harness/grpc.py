# SPDX-License-Identifier: Apache-2.0
"""The rows of gRPC: Conch against the genuine Triton with the same backend, and against an echo of ours on grpc++'s
asynchronous API (micro/grpc_echo.cc), which executes nothing.
"""

import socket
import ssl
import struct
import subprocess
import time

from . import grpc_requests, servers
from .measure import Cell, say
from .micro import ALLOCATING_CALLS
from .report import cpu, figure, met, table


def _load_name(cell):
    shape = [cell.connections, cell.pipeline] + ([cell.depth] if cell.request.stream else [])
    return " × ".join(str(n) for n in shape)


def _goal(less, times):
    return (f"≥ {times:g} ×", met(less >= times)) if times else ("–", "–")


def _against_both(lab, loads, echo):
    """loads: (request, connections, calls, depth, goal against Triton, goal against grpc++); a goal is a number of times, or
    None. echo: makes the server on grpc++; None: it is not compared.
    """
    makers = [lab.conch_grpc, lab.triton_grpc] + ([echo] if echo else [])
    running = [server for server in (lab.optional(make) for make in makers) if server]
    rows = []
    for request, connections, calls, depth, triton_goal, echo_goal in loads:
        cells = {server.name: Cell(server, request, connections, pipeline=calls, depth=depth)
                 for server in running if not (request.stream and "echo" in server.name)}
        lab.bench.measure(list(cells.values()))
        ours, triton = cells["Conch"], cells.get("Triton")
        other = next((cell for name, cell in cells.items() if "echo" in name), None)
        row = [request.name, _load_name(ours), cpu(ours)]
        for cell, goal in ((triton, triton_goal), (other, echo_goal)):
            less = cell.cpu_us / ours.cpu_us if cell else 0
            row += [cpu(cell), f"{less:.1f} ×", *_goal(less, goal)] if cell else ["–"] * 4
        for what in ("p50_us", "p99_us"):
            row.append(" / ".join(figure(getattr(cell, what)) if cell else "–" for cell in (ours, triton, other)))
        below = triton and ours.p50_us < triton.p50_us and ours.p99_us < triton.p99_us
        rows.append(row + [met(below) if triton else "–"])
    return table(["request", "load", "Conch CPU µs", "Triton CPU µs", "less", "goal", "met", "grpc++ CPU µs", "less", "goal",
                  "met", "p50 µs: Conch / Triton / grpc++", "p99 µs", "below Triton's"], rows)


def small(lab):
    """gRPC, identity of 64 bytes: connections × calls outstanding, against the genuine Triton and an echo on grpc++"""
    request = grpc_requests.small()
    return _against_both(lab, [(request, 1, 1, 1, None, None), (request, 8, 1, 1, 3.3, 2.5), (request, 64, 1, 1, 3.3, 2.5),
                               (request, 8, 10, 1, 12, 5)], lab.grpc_echo)


def stream(lab):
    """gRPC streams: connections × streams × messages outstanding; CPU for each response; and 10 000 of one decoupled request"""
    request = grpc_requests.small(stream=True)
    return _against_both(lab, [(request, 8, 1, 8, 8, None), (request, 8, 8, 8, 8, None),
                               (grpc_requests.many(10000), 1, 1, 1, 6, None)], None)


def image(lab):
    """gRPC, identity of 602 kB, and 602 kB in alone, against the genuine Triton and an echo on grpc++ with jemalloc"""
    request = grpc_requests.image()
    loads = [(request, n, 1, 1, 2, 1 / 0.75) for n in (1, 8, 64)]
    return _against_both(lab, loads + [(grpc_requests.sink(), 4, 2, 1, None, 1 / 0.75)], lab.grpc_echo_jemalloc)


def mallocs(lab):
    """gRPC: calls of malloc and its kin per message in steady state"""
    conch = lab.conch_grpc_counted()
    rows = []
    for request, connections, calls, depth in (
            (grpc_requests.small(), 8, 1, 1), (grpc_requests.small(), 8, 10, 1), (grpc_requests.small(stream=True), 8, 1, 8),
            (grpc_requests.image(), 8, 1, 1), (grpc_requests.sink(), 4, 2, 1), (grpc_requests.many(10000), 1, 1, 1)):
        cell = Cell(conch, request, connections, pipeline=calls, depth=depth, seconds=min(1.0, lab.settings.seconds))
        for _ in range(3):
            lab.bench.once(cell)
        seen = lab.bench.once(cell, lab.malloc_file(conch))
        per_message = sum(seen["counters"][:ALLOCATING_CALLS]) / seen["messages"]
        rows.append([request.name, _load_name(cell), f"{per_message:.3f}", "0", met(per_message < 0.01)])
    conch.stop()
    return table(["request", "load", "calls per message", "goal", "met"], rows)


def tls(lab):
    """gRPC, identity of 64 bytes with TLS: what it adds, and what of that is OpenSSL's"""
    plain, secure, floor = lab.conch_grpc(), lab.conch_grpc_tls(), lab.conch_grpc_openssl()
    rows = []
    for connections, calls in ((1, 1), (8, 1), (64, 1), (8, 10)):
        a, b, c = (Cell(server, grpc_requests.small(), connections, pipeline=calls) for server in (plain, secure, floor))
        c.excluded = lab.openssl_file(floor)
        # With several calls outstanding the length of a read changes, and no record would be made.
        lab.bench.measure([a, b, c] if calls == 1 else [a, b])
        goal = 1.5 if (connections, calls) in ((8, 1), (64, 1)) else None
        rows.append([_load_name(a), cpu(a), cpu(b), *tls_costs(a, b, c if calls == 1 else None, goal),
                     f"{figure(a.p50_us)} / {figure(b.p50_us)}", f"{figure(a.p99_us)} / {figure(b.p99_us)}"])
    return table(["load", "plain CPU µs", "TLS CPU µs", *TLS_COSTS, "p50 µs: plain / TLS", "p99 µs"], rows)


TLS_COSTS = ["more µs", "of it OpenSSL's", "ours", "goal", "met"]


def tls_costs(plain, secure, floor, goal):
    """What TLS adds to a request, in the columns TLS_COSTS.

    floor: a cell of the server without TLS that does OpenSSL's work, too; None: not measured. goal: µs, or None
    """
    more = secure.cpu_us - plain.cpu_us
    openssls = floor.cpu_us - plain.cpu_us if floor else None
    if not goal:
        said = "–"
    elif more > goal and floor and openssls > goal:
        said = "**no**: OpenSSL alone is above it"
    else:
        said = met(more <= goal)
    return [f"{more:.2f}", f"{openssls:.2f}" if floor else "–", f"{more - openssls:.2f}" if floor else "–",
            f"≤ {figure(goal)}" if goal else "–", said]


def loops(lab):
    """gRPC, identity of 64 bytes: two event loops, against one, by the CPU time of a request"""
    one, two = lab.conch_grpc(), lab.conch_grpc_two()
    rows = []
    for connections, calls in ((64, 1), (8, 10)):
        a, b = (Cell(server, grpc_requests.small(), connections, pipeline=calls) for server in (one, two))
        lab.bench.measure([a, b])
        times = 2 * a.cpu_us / b.cpu_us
        rows.append([_load_name(a), cpu(a), cpu(b), f"{times:.2f} ×", "≥ 1.8 ×", met(times >= 1.8)])
    return table(["load", "one loop CPU µs", "two loops CPU µs", "requests that two cores can serve", "goal", "met"], rows)


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def _frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def _text(text):
    return bytes([len(text)]) + text.encode()


LIVE = "/inference.GRPCInferenceService/ServerLive"


def _head(path=grpc_requests.STREAM):
    fields = [(":path", path), (":authority", "localhost"), ("te", "trailers"),
              ("content-type", "application/grpc"), ("user-agent", "grpc-c/29.0.0 (linux; bench)")]
    return b"\x83\x86" + b"".join(b"\x40" + _text(name) + _text(value) for name, value in fields)


def _connect(port, secure):
    s = socket.create_connection(("127.0.0.1", port), timeout=20)
    if secure:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.set_alpn_protocols(["h2"])
        s = context.wrap_socket(s)
    s.sendall(PREFACE + _frame(4, 0, 0))
    seen = b""
    while _frame(4, 1, 0) not in seen:      # our SETTINGS are acknowledged
        seen += s.recv(4096)
    # One call, so that what a connection keeps for its calls is there.
    s.sendall(_frame(4, 1, 0) + _frame(1, 4, 1, _head(LIVE)) + _frame(0, 1, 1, bytes(5)))
    _wait_for_ping(s)
    return s


def _wait_for_ping(s):
    s.sendall(_frame(6, 0, 0, b"conchben"))
    seen = b""
    while b"conchben" not in seen:
        seen += s.recv(4096)


def _open_streams(s, n):
    """Begins streams, and waits for the answer to a PING behind them."""
    s.sendall(b"".join(_frame(1, 4, 2 * i + 3, _head()) for i in range(n)))
    _wait_for_ping(s)


def _growth_kb(server, make, n):
    """Resident kB that each of n things takes, which stay as long as the returned list."""
    warm = [make() for _ in range(n // 10)]
    before = server.memory_kb("VmRSS")
    held = [make() for _ in range(n)]
    time.sleep(2.5)     # times of connections are checked each second
    grown = (server.memory_kb("VmRSS") - before) / n
    return grown, warm + held


def memory(lab):
    """gRPC: resident memory of each idle connection, plain and with TLS, and of each idle stream"""
    rows = []
    server = lab.conch_grpc_fresh()
    kb, held = _growth_kb(server, lambda: _connect(server.grpc_port, False), 500)
    rows.append(["connection", f"{kb:.1f}", "≤ 32", met(kb <= 32)])
    s = held[0]
    s.close()
    s = _connect(server.grpc_port, False)
    _open_streams(s, 100)
    before = server.memory_kb("VmRSS")
    more = [_connect(server.grpc_port, False) for _ in range(10)]
    for c in more:
        _open_streams(c, 1000)
    kb = (server.memory_kb("VmRSS") - before - 10 * kb) / 10000
    rows.append(["stream", f"{kb:.2f}", "≤ 2", met(kb <= 2)])
    server.stop()
    try:
        secure = lab.conch_grpc_tls()
        kb, held = _growth_kb(secure, lambda: _connect(secure.grpc_port, True), 500)
        rows.append(["connection with TLS", f"{kb:.1f}", "≤ 64", met(kb <= 64)])
    except servers.Missing as missing:
        say(f"  left out: {missing}")
    return table(["idle", "kB each", "goal", "met"], rows)


def make_certificate(folder):
    """A key and a certificate of its own for 127.0.0.1; returns their paths."""
    key, certificate = folder / "grpc.key", folder / "grpc.crt"
    if not certificate.exists():
        done = subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                               "-keyout", str(key), "-out", str(certificate), "-days", "30", "-subj", "/CN=localhost"],
                              capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise servers.Missing(f"openssl: {done.stderr.strip()}")
    return key, certificate
