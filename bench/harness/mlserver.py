# SPDX-License-Identifier: Apache-2.0
"""The row about another model server: MLServer with the same forest of LightGBM, asked in the same bytes."""

import json
import math

from . import micro, requests, servers
from .measure import Cell
from .report import cpu, figure, met, table

PROGRAM = ".deps/mlserver/venv/bin/mlserver"
HOW = "tools/deps/install forests test mlserver"
GOAL = 4
CONFIG = """backend: "fil"
max_batch_size: 64
input [ { name: "input__0" data_type: TYPE_FP64 dims: [ 64 ] } ]
output [ { name: "output__0" data_type: TYPE_FP64 dims: [ 10 ] } ]
instance_group [ { count: 1 kind: KIND_CPU } ]
parameters [ { key: "model_type" value { string_value: "lightgbm" } }, { key: "predict_proba" value { string_value: "true" } } ]
"""
THEIRS = {"name": "digits", "implementation": "mlserver_lightgbm.LightGBMModel", "parameters": {"uri": "./model.txt"}}
THREAD = {"OMP_NUM_THREADS": "1"}


def _models(lab):
    """A folder for each server, with one file of the forest, and one row with its probabilities."""
    ours, theirs = (lab.folder / "repositories" / f"digits-{name}" for name in ("conch", "mlserver"))
    (ours / "digits" / "1").mkdir(parents=True)
    (theirs / "digits").mkdir(parents=True)
    file = theirs / "digits" / "model.txt"
    said = micro.run(lab, [lab.root / ".deps/venv/bin/python", lab.root / "bench/micro/digits_forest.py", file], "digits_forest.py", pinned=False)
    (ours / "digits" / "1" / "model.txt").write_bytes(file.read_bytes())
    (ours / "digits" / "config.pbtxt").write_text(CONFIG)
    (theirs / "digits" / "model-settings.json").write_text(json.dumps(THEIRS))
    return ours, theirs, json.loads(said)


def _request(row, expected):
    """No output is named, since MLServer has another name for it. With an id both answer the same id each time."""
    body = json.dumps({"id": "1", "inputs": [{"name": "input__0", "shape": [1, len(row)], "datatype": "FP64", "data": row}]},
                      separators=(",", ":")).encode()

    def check(reply):
        got = json.loads(reply)["outputs"][0]["data"]
        # treelite computes the last step, the softmax, in single precision.
        same = len(got) == len(expected) and all(math.isclose(a, b, rel_tol=1e-6) for a, b in zip(got, expected))
        return None if same else f"the probabilities are {got}, LightGBM's are {expected}"

    return requests.post_json("a digit", "digits", body, check)


def _theirs(lab, folder):
    """Without worker processes, and without a line in the log for each request: less work than by default."""
    ports = [servers.free_port() for _ in range(3)]
    env = {"MLSERVER_HOST": "127.0.0.1", "MLSERVER_PARALLEL_WORKERS": "0", "MLSERVER_DEBUG": "false", **THREAD,
           **{f"MLSERVER_{what}_PORT": str(port) for what, port in zip(("HTTP", "GRPC", "METRICS"), ports)}}
    argv = [str(lab.root / PROGRAM), "start", str(folder)]
    return lab.once("mlserver", lambda log, core: servers.Server("MLServer", argv, log, core, env=env, port=ports[0]))


def mlserver(lab):
    """a forest of LightGBM, a row of 64 numbers as JSON: against MLServer with the same file; CPU µs"""
    if not (lab.root / PROGRAM).exists() or not list(lab.root.glob(".deps/venv/lib/python3*/site-packages/lightgbm")):
        raise servers.Missing(f"no MLServer, or no LightGBM and treelite ({HOW}; 480 MB)")
    ours, theirs, (row, expected) = _models(lab)
    request = _request(row, expected)
    conch = lab.once("conch-digits", lambda log, core: servers.conch(lab.build, ours, log, core, env=THREAD))
    other = _theirs(lab, theirs)
    cells = [Cell(server, request, n) for n in (1, 16) for server in (conch, other)]
    lab.bench.measure(cells)
    rows = []
    for a, b in zip(cells[::2], cells[1::2]):
        times = b.cpu_us / a.cpu_us
        rows.append([a.connections, cpu(a), cpu(b), f"{times:.1f} ×", f"≥ {GOAL} ×", met(times >= GOAL), figure(a.per_second), figure(b.per_second),
                     figure(a.p50_us), figure(b.p50_us), figure(a.p99_us), figure(b.p99_us)])
    return table(["connections", "Conch CPU µs", "MLServer CPU µs", "less", "goal", "met", "Conch requests/s", "MLServer requests/s",
                  "Conch p50 µs", "MLServer p50 µs", "Conch p99 µs", "MLServer p99 µs"], rows)
