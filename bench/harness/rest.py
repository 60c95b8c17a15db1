# SPDX-License-Identifier: Apache-2.0
"""The row about servers of the frameworks at rest: how often any of their threads wakes."""

import os
import shutil
import struct
import time

from . import forest, openvino, ort, python, servers, tensorflow, torch
from .measure import say
from .report import figure, met, table

# module: (model of its row, input, shape of a request that the framework executes on several threads, lines of the configuration to change)
ASKED = {
    ort: ("load0", "IN", [32, 512], {}),
    openvino: ("pair", "IN", [32, 512], {}),
    torch: ("image", "x", [8, 3 * 224 * 224], {}),
    tensorflow: ("image", "x", [8, 3 * 224 * 224], {}),
    forest: ("forest", "input__0", [1024, 8], {"max_batch_size: 64": "max_batch_size: 1024"}),
}


def _repository(lab, of, model, changes):
    """The model as its row has it, without its parameters about threads."""
    name = of.__name__.rpartition(".")[2]
    folder = lab.folder / "repositories" / f"rest-{name}"
    if not folder.exists():
        ours = shutil.copytree(of.repository(lab) / model, folder / model) / "config.pbtxt"
        config = "".join(line for line in ours.read_text().splitlines(True) if "THREAD" not in line.upper())
        for old, new in changes.items():
            config = config.replace(old, new)
        ours.write_text(config)
    return folder


def _start(lab, of):
    model, name, shape, changes = ASKED[of]
    title = of.__name__.rpartition(".")[2]
    n = shape[0] * shape[1]
    cpus = {lab.settings.server_cpu, lab.settings.client_cpu}
    env = {"PATH": f"{lab.root}/.deps/venv/bin:{os.environ['PATH']}"}    # packages of its Python are found
    if of is tensorflow:
        env["CONCH_TENSORFLOW"] = str(tensorflow.library(lab))
    server = lab.once(f"rest-{title}", lambda log, _: servers.conch(lab.build, _repository(lab, of, model, changes), log, cpus, env=env))
    head = {"inputs": [{"name": name, "datatype": "FP32", "shape": shape, "parameters": {"binary_data_size": 4 * n}}]}
    for _ in range(3):
        python.ask(server, model, head, struct.pack(f"<{n}f", *[0.5] * n))
    return title, server


def rest(lab):
    """a server of each framework that has executed on several threads: its threads, and how often any of them wakes at rest"""
    running = dict(filter(None, (lab.optional(lambda of=of: _start(lab, of)) for of in ASKED)))
    time.sleep(python.AFTER_CHECK_S)
    before = {title: python.count_switches([server.pid]) for title, server in running.items()}
    time.sleep(python.REST_S)
    rows = []
    for title, server in running.items():
        woken = (python.count_switches([server.pid]) - before[title]) / python.REST_S
        threads = python.status_of(server.pid, "Threads")
        say(f"  {title}: {threads} threads, {woken} wake-ups/s")
        rows.append([title, threads, figure(woken), "0", met(woken == 0)])
    return table(["server", "threads", "wake-ups/s at rest", "goal", "met"], rows)
