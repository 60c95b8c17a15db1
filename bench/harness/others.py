# SPDX-License-Identifier: Apache-2.0
"""The row about a client beside another one that takes more than its share (offend.py), on a server with one event loop.

Each scenario has a server of its own, on both cores, as a user's would be. probe.py asks it for health meanwhile; a
second probe asks an idle nginx at the same instants. A delay that nginx has, too, comes from the cores and the machine:
clients that fill the cores, other processes, a hypervisor that takes the cores away. A delay that nginx does not have
comes from the server.
"""

import contextlib
import json
import os
import resource
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from . import loading, micro, repository, servers
from .measure import Failed, say
from .report import figure, met, table

GOAL_MS = 20
# A try in which nginx's own p99 is above this says nothing about the server: it is repeated, at most this many tries in
# all.
CONTROL_MS = 10
TRIES = 3
# A question counts for the server alone if nginx answered the one of that instant, and the two around it, within this
# time.
QUICK_MS = 5
HERE = Path(__file__).resolve().parent
ERRATIC = """backend: "erratic"
input [ {{ name: "IN" data_type: TYPE_INT32 dims: [ -1 ] }} ]
output [ {{ name: "OUT" data_type: TYPE_INT32 dims: [ -1 ] }} ]
instance_group [ {{ count: 1 kind: KIND_CPU }} ]
parameters [ {{ key: "{key}" value {{ string_value: "{value}" }} }}, {{ key: "every" value {{ string_value: "{every}" }} }} ]
"""


def _erratic(folder, name, key, value, every=0):
    (folder / name / "1").mkdir(parents=True)
    (folder / name / "config.pbtxt").write_text(ERRATIC.format(key=key, value=value, every=every))


def _loop_model(lab, folder):
    """An ONNX Loop of N rounds: OUT is their number."""
    python = lab.root / ".deps/venv/bin/python"
    if not python.exists():
        raise servers.Missing("no Python with the package onnx in .deps/venv (make deps)")
    micro.run(lab, [python, HERE / "loop_model.py", folder / "loop"], "loop_model.py", pinned=False)


def _many(lab, folder, n):
    for i in range(n):
        (folder / f"m{i:05d}" / "1").mkdir(parents=True)
        (folder / f"m{i:05d}" / "config.pbtxt").write_text(loading.CONFIG.format(name=f"m{i:05d}"))


def _sink(_lab, folder):
    repository.write(folder)


EXPLICIT = "--model-control-mode=explicit"

# letter, what the offender does, the repository, flags of the server, arguments of offend.py
SCENARIOS = [
    ("a", "a model that takes 2 s once in 300 requests", lambda _lab, f: _erratic(f, "m", "long_ms", 2000, 300), (), ("requests", "m")),
    ("b", "64 uploads of 32 MiB", _sink, (), ("uploads", 64)),
    ("c", "bodies of 1.9 GB", _sink, (), ("huge",)),
    ("d", "10 000 load requests", lambda lab, f: _many(lab, f, 10000), (EXPLICIT,), ("loads", 10000)),
    ("e", "statistics of 10 000 models", lambda lab, f: _many(lab, f, 10000), (), ("get", "/v2/models/stats")),
    ("f", "a readiness that takes 1.5 s", lambda _lab, f: _erratic(f, "m", "ready_ms", 1500), (), ("get", "/v2/models/m/ready")),
    ("g", "an ONNX Loop that never ends", _loop_model, (), ("once", "loop")),
    ("h", "20 stalled uploads of 100 MiB, 10 000 idle connections, 4096 descriptors", _sink, (), ("stalls",)),
    ("i", "a log that nobody reads", lambda lab, f: _many(lab, f, 1), (EXPLICIT, "--log-verbose=1"), ("reloads",)),
    ("j", "chunked bodies of 1.9 GB", _sink, (), ("chunks",)),
]


class Offender:
    """A running offend.py."""

    def __init__(self, server, words):
        _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "offend.py"), words[0], str(server.port), *map(str, words[1:])],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard)))
        if self.process.stdout.readline() != "begun\n":
            raise Failed(f"offend.py {words[0]} did not begin")

    def end(self):
        """Ends it; returns how much it got done."""
        self.process.stdin.close()
        try:
            said = json.loads(self.process.stdout.readline() or "{}")
        finally:
            self.process.kill()
            self.process.wait()
        return said.get("done", 0)


@contextlib.contextmanager
def _server(lab, letter, make, flags):
    folder = lab.folder / "repositories" / f"others-{letter}"
    if not folder.exists():
        make(lab, folder)
    flags = ["--http-thread-count=1", *flags]
    if letter in "af":
        flags.append(f"--backend-directory={lab.build / 'tests/backends'}")
    both = {lab.settings.server_cpu, lab.settings.client_cpu}
    more = {"descriptors": 4096} if letter == "h" else {}
    if letter == "i":
        with _unread_log(lab, folder, flags, both) as server:
            yield server
        return
    server = servers.conch(lab.build, folder, lab.folder / f"others-{letter}.log", both, flags, **more)
    try:
        yield server
    finally:
        server.kill()


@contextlib.contextmanager
def _unread_log(lab, folder, flags, cpus):
    """The log goes into a pipe; its reader lives, and never reads."""
    port = servers.free_port()
    fifo = lab.folder / "others.fifo"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDWR)
    try:
        server = servers.conch(lab.build, folder, fifo, cpus, flags, port=port)
        try:
            yield server
        finally:
            server.kill()
    finally:
        os.close(reader)
        fifo.unlink()


def _quantile(values, share):
    return sorted(values)[int(len(values) * share)]


@dataclass
class Try:
    """The results of both probes, question by question."""
    ours: list
    control: list
    errors: list
    stolen_ms: float    # of both cores, by the hypervisor
    done: int           # by the offender

    @property
    def p50(self):
        return _quantile(self.ours, 0.5)

    @property
    def p99(self):
        return _quantile(self.ours, 0.99)

    @property
    def control_p99(self):
        return _quantile(self.control, 0.99)

    @property
    def longest_alone(self):
        """The longest time while nginx was fast."""
        n = len(self.ours)
        return max((ms for i, ms in enumerate(self.ours) if max(self.control[max(0, i - 1):min(n, i + 2)]) < QUICK_MS), default=0.0)

    @property
    def disturbed(self):
        return self.p99 > GOAL_MS and self.control_p99 > CONTROL_MS


def _stolen_ms():
    return int(Path("/proc/stat").read_text().split("\n", 1)[0].split()[8]) * 1e3 / os.sysconf("SC_CLK_TCK")


def _probe(ports, seconds):
    """Runs probes of these ports, which ask at the same instants, and returns what they print."""
    probes = [subprocess.Popen([sys.executable, str(HERE / "probe.py"), str(port), str(seconds)], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, text=True) for port in ports]
    try:
        for probe in probes:
            if probe.stdout.readline() != "ready\n":
                raise Failed("probe.py did not get its connections")
        start = time.monotonic() + 0.1
        for probe in probes:
            probe.stdin.write(f"{start}\n")
            probe.stdin.flush()
        return [json.loads(probe.communicate(timeout=seconds + 120)[0]) for probe in probes]
    finally:
        for probe in probes:
            probe.kill()
            probe.wait()


def _once(lab, nginx, letter, make, flags, words):
    seconds = max(4.0, 3 * lab.settings.seconds)
    with _server(lab, letter, make, flags) as server:
        lab.bench.wait_quiet()
        offender = Offender(server, words)
        stolen = _stolen_ms()
        try:
            ours, control = _probe((server.port, nginx.port), seconds)
        finally:
            stolen = _stolen_ms() - stolen
            n = offender.end()
        if server.process.poll() is not None:
            raise Failed(f"the server ended beside {words[0]}")
        if control["errors"]:
            raise Failed(f"nginx beside {words[0]}: {control['errors'][0]}")
        # A question that was not asked, because earlier ones took a minute, counts as that late.
        late = (seconds + 60) * 1e3
        times = [[late if ms is None else ms for ms in seen["ms"]] for seen in (ours, control)]
        return Try(*times, ours["errors"], stolen, n)


def _tries(lab, nginx, scenario):
    """All tries: another one follows while the last one missed the goal and nginx was slow in it."""
    letter, what, *how = scenario
    tries = []
    while len(tries) < TRIES and (not tries or tries[-1].disturbed):
        t = _once(lab, nginx, letter, *how)
        say(f"  ({letter}) {what}: p50 {t.p50:.2f}  p99 {t.p99:.2f}  max {max(t.ours):.1f} ms, alone {t.longest_alone:.1f}; nginx p99 "
            f"{t.control_p99:.2f}  max {max(t.control):.1f} ms; stolen {t.stolen_ms:.0f} ms, {len(t.errors)} errors {t.errors[:1]}, "
            f"offender {t.done}")
        tries.append(t)
    return tries


def others(lab):
    """health beside an offender, on one loop: p99 while a model, a body, a client or a log takes its time"""
    nginx = lab.once("nginx-idle", lambda log, _cpu: servers.nginx(
        lab.folder / "nginx-idle", log, {lab.settings.server_cpu, lab.settings.client_cpu}))
    rows = []
    for scenario in SCENARIOS:
        try:
            tries = _tries(lab, nginx, scenario)
        except servers.Missing as missing:
            say(f"  left out: {missing}")
            continue
        # The least disturbed try: the last one, unless all were disturbed.
        t = min(tries, key=lambda t: t.control_p99) if tries[-1].disturbed else tries[-1]
        errors = sum(len(t.errors) for t in tries)
        alone = max(t.longest_alone for t in tries)
        rows.append([f"({scenario[0]}) {scenario[1]}", t.done, f"{t.p50:.2f}", ("~" if t.disturbed else "") + f"{t.p99:.2f}",
                     f"{t.control_p99:.2f}", figure(max(t.ours)), figure(max(t.control)), figure(alone), figure(t.stolen_ms),
                     ", ".join(f"{one.p99:.1f} ({one.control_p99:.1f})" for one in tries if one is not t) or "–", errors,
                     f"≤ {GOAL_MS} ms, no error", met(t.p99 <= GOAL_MS and not errors)])
    return table(["beside", "done by it", "p50 ms", "p99 ms", "nginx p99 ms", "longest ms", "nginx longest ms",
                  "longest while nginx was quick ms", "stolen ms", "p99 of other tries (nginx)", "errors", "goal", "met"], rows)
