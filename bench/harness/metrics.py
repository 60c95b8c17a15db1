# SPDX-License-Identifier: Apache-2.0
"""The row about the page of metrics: the cost of a scrape with many models."""

import re
import urllib.request

from . import loading, micro, requests, servers
from .measure import Cell
from .report import cpu, figure, met, table

MODELS = 1000
GOAL = 0.25
# Values that change between two scrapes of an idle server are left out, so that pages are alike. Triton checks its
# (missing) pool of pinned memory now and then: soon enough for the warm-up.
FLAGS = ["--allow-metrics=true", "--allow-cpu-metrics=false", "--allow-gpu-metrics=false", "--metrics-address=127.0.0.1",
         "--metrics-interval-ms=20"]


class Port:
    """Another port of a server that is measured."""

    def __init__(self, server, port):
        self.name, self.pid, self.port = server.name, server.pid, port


def _start(lab, name, key, env=None):
    folder = loading.repository(lab, MODELS)
    port = servers.free_port()
    flags = [*FLAGS, f"--metrics-port={port}"]

    def start(log, core):
        if name == "Conch":
            return servers.conch(lab.build, folder, log, core, flags, env)
        return servers.triton(lab.root, folder, log, core, [f"--backend-directory={lab.build / 'backends'}", *flags], env)

    return Port(lab.once(key, start), port)


def metrics(lab):
    """GET /metrics of 1 000 models against the genuine Triton: CPU time of a scrape, and allocating calls"""
    scrape = requests.get("/metrics")
    conch = _start(lab, "Conch", "conch-metrics")
    triton = lab.optional(lambda: _start(lab, "Triton", "triton-metrics"))
    cells = [Cell(server, scrape, 1) for server in (conch, triton) if server]
    lab.bench.measure(cells)
    counted = _start(lab, "Conch", "conch-metrics-counted", lab.counting("Conch"))
    calls = micro.count_mallocs(lab, counted, scrape)
    rows = []
    for cell in cells:
        with urllib.request.urlopen(f"http://127.0.0.1:{cell.server.port}/metrics", timeout=20) as answer:
            page = answer.read()
        ours = cell.server is conch
        ratio = cell.cpu_us / cells[-1].cpu_us
        goal = ours and triton
        rows.append([cell.server.name, figure(len(page) / 1000), len(re.findall(rb"^nv_", page, re.M)), cpu(cell),
                     f"{ratio:.3f}" if goal else "–", f"≤ {GOAL}" if goal else "–", met(ratio <= GOAL) if goal else "–",
                     figure(cell.p50_us), figure(cell.p99_us), f"{calls:.1f}" if ours else "–"])
    return table(["server", "page kB", "lines", "CPU µs per scrape", "ratio", "goal", "met", "p50 µs", "p99 µs",
                  "calls of malloc per scrape"], rows)
