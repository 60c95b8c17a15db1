# SPDX-License-Identifier: Apache-2.0
"""The row about the cost that the backend tensorrt adds to calls of TensorRT, measured in one process without a GPU
(bench/micro/tensorrt_backend.c)."""

import json

from . import micro
from .framework import HEAD
from .report import added_row, table
from .servers import Missing

PLAN = """fakeplan 11
in A float -1x16
in B float -1x16
out SUM float -1x16
out DIFF float -1x16
profile 0 A 1x16 4x16 8x16
profile 0 B 1x16 4x16 8x16
op add A B SUM
op sub A B DIFF
end
"""
CONFIG = 'platform: "tensorrt_plan"\nmax_batch_size: 8\ninstance_group [ { kind: KIND_GPU gpus: [ 0 ] } ]\n' + "".join(
    f'{side} [ {{ name: "{name}" data_type: TYPE_FP32 dims: [ 16 ] }} ]\n'
    for side, name in (("input", "A"), ("input", "B"), ("output", "SUM"), ("output", "DIFF")))


def repository(lab):
    folder = lab.folder / "repositories" / "tensorrt"
    (folder / "add_sub/1").mkdir(parents=True, exist_ok=True)
    (folder / "add_sub/1/model.plan").write_text(PLAN, encoding="utf-8")
    (folder / "add_sub/config.pbtxt").write_text(CONFIG, encoding="utf-8")
    return folder


def tensorrt(lab):
    """the backend tensorrt around TensorRT's calls, with the stand-ins of the tests for TensorRT and driver: add/sub of [1,16]; CPU µs"""
    library = lab.build / "tests/tensorrt/11/libnvinfer.so.11"
    if not library.exists():
        raise Missing("the stand-in for TensorRT is not built (make everything)")
    argv = ["env", f"LD_LIBRARY_PATH={lab.build / 'tests/cuda'}", lab.programs / "bench_tensorrt_backend", repository(lab), lab.build / "backends",
            library, max(3, lab.settings.rounds)]
    got = json.loads(micro.run(lab, argv, "tensorrt_backend", pinned=False))
    return table(HEAD, [added_row("add/sub", got["add_sub"])])
