# SPDX-License-Identifier: Apache-2.0
"""The rows about the cost that the backend pytorch adds to PyTorch, measured in one process: TorchScript (bench/micro/torch_backend.c), and
packages of AOTInductor (bench/micro/aoti_backend.c)."""

import json
import subprocess

from . import micro
from .report import added_row, copied_row, pair_row, table
from .servers import Missing

ADD_SUB = """
def forward(self, INPUT0, INPUT1):
    return INPUT0 + INPUT1, INPUT0 - INPUT1
"""
IMAGE = """
def forward(self, x):
    return torch.relu(x)
"""
PAIR = """
def forward(self, x):
    for i in range(3):
        x = torch.matmul(x, self.weight)
    return x
"""


def _config(inputs, outputs, dims, head="", instances=1):
    tensors = [("input", name) for name in inputs] + [("output", name) for name in outputs]
    return (f'backend: "pytorch"\n{head}instance_group [ {{ count: {instances} kind: KIND_CPU }} ]\n'
            'parameters { key: "INTRA_OP_THREAD_COUNT" value { string_value: "1" } }\n'
            + "".join(f'{side} [ {{ name: "{name}" data_type: TYPE_FP32 dims: {dims} }} ]\n' for side, name in tensors))


# name: (script, parameters as torch_script reads them, configuration)
MODELS = {
    "add_sub": (ADD_SUB, "", _config(["INPUT0", "INPUT1"], ["OUTPUT__0", "OUTPUT__1"], [16], "max_batch_size: 64\n")),
    "image": (IMAGE, "", _config(["x"], ["y"], [3 * 224 * 224], "max_batch_size: 8\n")),
    "pair": (PAIR, " weight=128,128", _config(["x"], ["y"], [32, 128], instances=2)),
}


def repository(lab):
    folder = lab.folder / "repositories" / "torch"
    if not folder.exists():
        for name, (script, parameters, config) in MODELS.items():
            file = folder / name / "1/model.pt"
            file.parent.mkdir(parents=True)
            (folder / name / "config.pbtxt").write_text(config)
            subprocess.run([lab.build / "tests/torch_script"], input=f"{len(script)} {file}{parameters}\n{script}", text=True, check=True,
                           stdout=subprocess.DEVNULL)
    return folder


def torch(lab):
    """the backend pytorch around PyTorch's call: add/sub of one row and 64, 602 kB alone and in a batch, two instances; CPU µs"""
    if not (lab.programs / "bench_torch_backend").exists():
        raise Missing("no PyTorch to compile with (tools/deps/install torch)")
    argv = [lab.programs / "bench_torch_backend", repository(lab), lab.build / "backends", max(3, lab.settings.rounds)]
    return _measure(lab, argv, "torch_backend")


def _measure(lab, argv, what):
    got = json.loads(micro.run(lab, argv, what, pinned=False))
    copies = json.loads(micro.run(lab, argv, what, preload=lab.programs / "copy_count.so"))
    return table(["request", "backend CPU µs", "bare CPU µs", "figure", "goal", "met"],
                 [added_row("one row", got["rows_1"]), added_row("64 rows", got["rows_64"]),
                  # PyTorch allocates what it returns: that copy goes into the answer.
                  copied_row("602 kB", got["image"], copies["image"], 1),
                  copied_row("batch of 8 × 602 kB", got["batch"], copies["batch"], 2),
                  pair_row(got["pair"])])


def library(lab):
    """libtorch_cpu.so of a PyTorch that has AOTInductor; Debian's has not."""
    found = sorted(lab.root.glob(".deps/torch-wheel/venv/lib/python3*/site-packages/torch/lib/libtorch_cpu.so"))
    if not found:
        raise Missing("no PyTorch in .deps/torch-wheel (tools/deps/install torch-wheel)")
    return found[-1]


def packages(lab):
    folder = lab.folder / "repositories" / "aoti"
    if not folder.exists():
        micro.run(lab, [lab.root / ".deps/venv/bin/python", lab.root / "bench/micro/aoti_models.py", folder], "aoti_models.py", pinned=False)
    return folder


def aoti(lab):
    """the backend pytorch around the code of packages (AOTInductor): as the row torch; CPU µs"""
    argv = [lab.programs / "bench_aoti_backend", packages(lab), lab.build / "backends", library(lab), max(3, lab.settings.rounds)]
    return _measure(lab, argv, "aoti_backend")
