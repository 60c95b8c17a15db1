# SPDX-License-Identifier: Apache-2.0
"""The rows about models that are loaded rather than asked: how soon a server is ready, how much memory idle models use,
how long a load and an unload take, and whether all memory is freed.

Both servers load the same repository with the same libraries of ours.
"""

import json
import re
import shutil
import socket
import statistics
import time

from . import micro, servers
from .measure import Failed, say
from .report import figure, met, table

CONFIG = """name: "{name}"
backend: "identity"
input [ {{ name: "INPUT0" data_type: TYPE_FP32 dims: [ 16 ] }} ]
output [ {{ name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 16 ] }} ]
instance_group [ {{ count: 1 kind: KIND_CPU }} ]
"""


def repository(lab, n):
    """n models of the identity backend, and beside the only one the ONNX model `digits`."""
    folder = lab.folder / "repositories" / f"identity-{n}"
    if not folder.exists():
        for i in range(n):
            (folder / f"identity_{i:05d}" / "1").mkdir(parents=True)
            (folder / f"identity_{i:05d}" / "config.pbtxt").write_text(CONFIG.format(name=f"identity_{i:05d}"))
        folder.mkdir(parents=True, exist_ok=True)
        if n == 1:
            shutil.copytree(lab.root / "examples/models/digits", folder / "digits")
    return folder


def _quick(lab):
    return lab.settings.seconds < 1


def _argv(lab, name, folder, port, flags=()):
    if name == "Conch":
        return servers.conch_argv(lab.build, folder, port, flags)
    return servers.triton_argv(lab.root, folder, port,
                               [f"--backend-directory={lab.build / 'backends'}", *flags])


def start_once(lab, argv, port, what):
    """Starts and stops a server: its times and memory."""
    lab.bench.wait_quiet()
    log = lab.folder / f"start-{port}.log"
    return json.loads(micro.run(lab, [lab.programs / "bench_start", port, log, *argv], what, pinned=False))


def _starts(lab, n):
    """Starts both servers with n models several times: {name: {what: median}}; a server that is not installed is left out."""
    folder = repository(lab, n)
    seen = {"Conch": [], "Triton": []}
    for turn in range(lab.settings.rounds):
        for name, runs in seen.items():
            if name == "Triton" and n > 1000 and _quick(lab):
                say(f"  left out: Triton with {n} models takes half a minute each time")
                continue
            port = servers.free_port()
            try:
                argv = _argv(lab, name, folder, port)
            except servers.Missing as missing:
                if name == "Conch":
                    raise
                say(f"  left out: {missing}")
                continue
            runs.append(start_once(lab, argv, port, f"{name} with {n} models"))
            say(f"  round {turn + 1}  {name:7} {n:6} models  ready {runs[-1]['ready_ms']:9.1f} ms  "
                f"CPU {runs[-1]['cpu_ms']:9.1f} ms  "
                f"{runs[-1]['rss_kb'] / 1024:6.1f} MB  {runs[-1]['threads']} threads")
    return {name: {what: statistics.median(run[what] for run in runs) for what in runs[0]}
            for name, runs in seen.items() if runs}


def start(lab):
    """exec to ready without models, and what the idle process holds"""
    rows = []
    for name, seen in _starts(lab, 0).items():
        goal = name == "Conch"
        rows.append([name, figure(seen["ready_ms"]), "≤ 20" if goal else "–",
                     met(seen["ready_ms"] <= 20) if goal else "–", figure(seen["cpu_ms"]), figure(seen["rss_kb"] / 1024),
                     round(seen["threads"])])
    return table(["server", "ready ms", "goal", "met", "CPU ms", "RSS MB", "threads"], rows)


# models: ready within ms, RSS in MB
MODELS_GOALS = {1000: (200, 45), 10000: (2000, None)}
PER_MODEL_KB = 40


def models(lab):
    """1 000 and 10 000 identity models: exec to ready, memory, threads; and the memory of each one"""
    seen = {n: _starts(lab, n) for n in MODELS_GOALS}
    rows = []
    for n, (ready_ms, rss_mb) in MODELS_GOALS.items():
        for name, run in seen[n].items():
            rss = run["rss_kb"] / 1024
            row = [f"{n:,}".replace(",", " "), name, figure(run["answered_ms"]), figure(run["ready_ms"]), figure(run["cpu_ms"]), figure(rss),
                   round(run["threads"]), figure(run["stop_ms"])]
            if name == "Conch":
                goals = [f"≤ {ready_ms} ms"] + ([f"≤ {rss_mb} MB"] if rss_mb else [])
                row += [", ".join(goals), met(run["ready_ms"] <= ready_ms and (not rss_mb or rss <= rss_mb))]
            else:
                row += ["–", "–"]
            rows.append(row)
    few, many = MODELS_GOALS
    for name in seen[many]:
        each = (seen[many][name]["rss_kb"] - seen[few][name]["rss_kb"]) / (many - few)
        threads = (seen[many][name]["threads"] - seen[few][name]["threads"]) / (many - few)
        rows.append(["each one more", name, "–", "–", "–", f"{figure(each)} kB", figure(threads), "–"]
                    + ([f"≤ {PER_MODEL_KB} kB", met(each <= PER_MODEL_KB)] if name == "Conch" else ["–", "–"]))
    return table(["models", "server", "answers ms", "ready ms", "CPU ms", "RSS MB", "threads", "stop ms", "goal", "met"], rows)


class Control:
    """One kept connection to a server's repository API."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, model, verb):
        """The time of one call in µs."""
        head = f"POST /v2/repository/models/{model}/{verb} HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{{}}"
        started = time.monotonic_ns()
        self.socket.sendall(head.encode())
        reply = b""
        while b"\r\n\r\n" not in reply:
            more = self.socket.recv(65536)
            if not more:
                raise Failed(f"{verb} of {model}: the connection ended")
            reply += more
        took_us = (time.monotonic_ns() - started) / 1e3
        head, body = reply.split(b"\r\n\r\n", 1)
        length = re.search(rb"(?i)content-length: *(\d+)", head)
        while length and len(body) < int(length[1]):
            body += self.socket.recv(65536)
        if b" 200 " not in head.split(b"\r\n")[0]:
            raise Failed(f"{verb} of {model}: {head.splitlines()[0].decode()} {body.decode()}")
        return took_us


def _triton_churn(lab, model, cycles):
    """Loads and unloads in Triton; returns times in µs, and memory at a tenth and at the end."""
    server = servers.triton(lab.root, repository(lab, 1), lab.folder / "triton-explicit.log",
                            lab.settings.server_cpu,
                            ["--model-control-mode=explicit", f"--backend-directory={lab.build / 'backends'}"])
    try:
        control, loads, unloads, rss = Control(server.port), [], [], []
        for i in range(cycles + cycles // 10):
            if i == cycles // 10:
                loads, unloads = [], []
                rss.append(server.memory_kb("VmRSS"))
            loads.append(control.ask(model, "load"))
            unloads.append(control.ask(model, "unload"))
        rss.append(server.memory_kb("VmRSS"))
    finally:
        server.stop()
    return statistics.median(loads), statistics.median(unloads), rss


def _churn(lab, model, cycles, *how):
    return json.loads(micro.run(lab, [lab.programs / "bench_model_churn", repository(lab, 1), model,
                                      lab.build / "backends", cycles, *how], f"churn of {model}"))


# model, cycles here and in Triton, goal of load and unload in µs, growth of RSS in kB that still counts as flat
CHURNS = [("identity_00000", 10000, 1000, 300, 512), ("digits", 1000, 1000, None, 1024)]


def load(lab):
    """load and unload again and again: the time of each, and what stays (Triton: calls of its HTTP API)"""
    rows = []
    for model, cycles, triton_cycles, goal_us, flat_kb in CHURNS:
        if _quick(lab):
            cycles, triton_cycles = cycles // 10, triton_cycles // 10
        for how in ((), ("hold",)):
            seen = _churn(lab, model, cycles, *how)
            loads, unloads, rss = seen["load_us"]["p50"], seen["unload_us"]["p50"], seen["rss_kb"]
            flat = rss[-1] - rss[1] <= flat_kb and all(
                max(seen[what]) == seen[what][0] for what in ("threads", "descriptors", "libraries"))
            goals = ([f"≤ {goal_us} µs each"] if goal_us else []) + ["flat"]
            rows.append([model.split("_")[0], "Conch, library stays" if how else "Conch", cycles, figure(loads),
                         figure(unloads), f"{figure(rss[1] / 1024)} → {figure(rss[-1] / 1024)}", ", ".join(goals),
                         met(flat and (not goal_us or max(loads, unloads) <= goal_us))])
            say(f"  {model} {' '.join(how)}: load {loads} us, unload {unloads} us, {rss[1]} -> {rss[-1]} kB")
        triton = lab.optional(lambda: _triton_churn(lab, model, triton_cycles))  # noqa: B023 (called at once)
        if triton:
            loads, unloads, rss = triton
            rows.append([model.split("_")[0], "Triton", triton_cycles, figure(loads), figure(unloads),
                         f"{figure(rss[0] / 1024)} → {figure(rss[-1] / 1024)}", "–", "–"])
    return table(["model", "server", "cycles", "load µs", "unload µs", "RSS MB, a tenth → all", "goal", "met"], rows)


def config(lab):
    """a model configuration: its text parsed, and its whole life until a model serves with it"""
    rows = []
    for name in ("identity", "digits", "add_sub"):
        file = lab.root / "examples" / "models" / name / "config.pbtxt"
        said = micro.run(lab, [lab.programs / "bench_config_parse", file, name], "config_parse")
        parse, whole = (float(us) for us in re.findall(r": ([0-9.]+) us", said))
        rows.append([name, file.stat().st_size, figure(parse), figure(whole), "≤ 20", met(parse <= 20)])
    return table(["configuration", "bytes", "parse µs", "whole life µs", "goal of parse", "met"], rows)
