# SPDX-License-Identifier: Apache-2.0
"""The row about the cost that the backend pytorch adds to PyTorch, measured in one process (bench/micro/torch_backend.c)."""

import json
import subprocess

from . import micro
from .report import figure, met, table
from .servers import Missing

SCRIPT = """
def forward(self, INPUT0, INPUT1):
    return INPUT0 + INPUT1, INPUT0 - INPUT1
"""
TENSOR = '{} [ {{ name: "{}" data_type: TYPE_FP32 dims: [ 16 ] }} ]\n'
CONFIG = ('backend: "pytorch"\nmax_batch_size: 64\ninstance_group [ { count: 1 kind: KIND_CPU } ]\n'
          + TENSOR.format("input", "INPUT0") + TENSOR.format("input", "INPUT1")
          + TENSOR.format("output", "OUTPUT__0") + TENSOR.format("output", "OUTPUT__1"))


def _repository(lab):
    folder = lab.folder / "repositories" / "torch"
    if not folder.exists():
        file = folder / "add_sub/1/model.pt"
        file.parent.mkdir(parents=True)
        (folder / "add_sub/config.pbtxt").write_text(CONFIG)
        subprocess.run([lab.build / "tests/torch_script"], input=f"{len(SCRIPT)} {file}\n{SCRIPT}", text=True, check=True,
                       stdout=subprocess.DEVNULL)
    return folder


def torch(lab):
    """the backend pytorch around PyTorch's call of a script that adds and subtracts: one row, 64 rows; CPU µs"""
    if not (lab.programs / "bench_torch_backend").exists():
        raise Missing("no PyTorch to compile with (tools/deps/install torch)")
    argv = [lab.programs / "bench_torch_backend", _repository(lab), lab.build / "backends", max(3, lab.settings.rounds)]
    got = json.loads(micro.run(lab, argv, "torch_backend"))
    rows = []
    for name, cell in (("one row", got["rows_1"]), ("64 rows", got["rows_64"])):
        rows.append([name, figure(cell["backend_us"] - cell["made_us"]), figure(cell["bare_us"]),
                     f"{cell['added_us']:.2f} µs more than the bare call", "≤ 1.0", met(cell["added_us"] <= 1.0)])
    return table(["request", "backend CPU µs", "bare CPU µs", "figure", "goal", "met"], rows)
