# SPDX-License-Identifier: Apache-2.0
"""
The row about what a client sees beside another one that takes more than its share (offend.py), on a server with one event loop.

Each scenario has a server of its own, on both cores, as a user's would be. probe.py asks for health in the meantime.
"""

import contextlib
import json
import os
import resource
import subprocess
import sys
from pathlib import Path

from . import loading, micro, repository, servers
from .measure import Failed, say
from .report import figure, met, table

GOAL_MS = 20
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
    """N rounds of an ONNX Loop: OUT is how many there were."""
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

# letter, what the offender does, what is in the repository, flags of the server, words of offend.py
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
    """offend.py at work."""

    def __init__(self, server, words):
        _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "offend.py"), words[0], str(server.port), *map(str, words[1:])],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard)))
        if self.process.stdout.readline() != "begun\n":
            raise Failed(f"offend.py {words[0]} did not begin")

    def end(self):
        """How much it has got done."""
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
    """The log goes into a pipe; its reader, who is alive, never reads."""
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


def _scenario(lab, letter, make, flags, words):
    seconds = max(4.0, 3 * lab.settings.seconds)
    with _server(lab, letter, make, flags) as server:
        offender = Offender(server, words)
        try:
            done = subprocess.run([sys.executable, str(HERE / "probe.py"), str(server.port), str(seconds)], capture_output=True,
                                  text=True, check=False, timeout=seconds + 120)
        finally:
            n = offender.end()
        if done.returncode != 0:
            raise Failed(f"probe.py beside {words[0]}: {done.stderr.strip()[-300:]}")
        if server.process.poll() is not None:
            raise Failed(f"the server ended beside {words[0]}")
        return json.loads(done.stdout), n


def others(lab):
    """health beside an offender, on one loop: p99 while a model, a body, a client or a log takes its time"""
    rows = []
    for letter, what, make, flags, words in SCENARIOS:
        try:
            seen, n = _scenario(lab, letter, make, flags, words)
        except servers.Missing as missing:
            say(f"  left out: {missing}")
            continue
        say(f"  ({letter}) {what}: p50 {seen['p50_ms']:.2f}  p99 {seen['p99_ms']:.2f}  max {seen['max_ms']:.1f} ms, "
            f"{seen['errors']} errors {seen['first_error']}, offender {n}")
        rows.append([f"({letter}) {what}", n, f"{seen['p50_ms']:.2f}", f"{seen['p99_ms']:.2f}", figure(seen["max_ms"]), seen["errors"],
                     f"≤ {GOAL_MS} ms, no error", met(seen["p99_ms"] <= GOAL_MS and not seen["errors"])])
    return table(["beside", "done by it", "p50 ms", "p99 ms", "longest ms", "errors", "goal", "met"], rows)
