# SPDX-License-Identifier: Apache-2.0
"""The rows about the cost that the backend pytorch adds to PyTorch, measured in one process: TorchScript (bench/micro/torch_backend.c), and
packages of AOTInductor (bench/micro/aoti_backend.c)."""

import subprocess

from .framework import measured_rows, written_repository
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


SMALL = {"rows_1": "one row", "rows_64": "64 rows"}


def torch(lab):
    """the backend pytorch around PyTorch's call: add/sub of one row and 64, 602 kB alone and in a batch, two instances; CPU µs"""
    if not (lab.programs / "bench_torch_backend").exists():
        raise Missing("no PyTorch to compile with (tools/deps/install torch)")
    return measured_rows(lab, "torch", repository(lab), [], SMALL, image_copies=1)


def library(lab):
    """libtorch_cpu.so of a PyTorch that has AOTInductor; Debian's has not."""
    found = sorted(lab.root.glob(".deps/torch-wheel/venv/lib/python3*/site-packages/torch/lib/libtorch_cpu.so"))
    if not found:
        raise Missing("no PyTorch in .deps/torch-wheel (tools/deps/install torch-wheel)")
    return found[-1]


def packages(lab):
    return written_repository(lab, "aoti")


def aoti(lab):
    """the backend pytorch around the code of packages (AOTInductor): as the row torch; CPU µs"""
    return measured_rows(lab, "aoti", packages(lab), [library(lab)], SMALL, image_copies=1)
