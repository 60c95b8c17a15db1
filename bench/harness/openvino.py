# SPDX-License-Identifier: Apache-2.0
"""The row about the cost that the backend openvino adds to OpenVINO, measured in one process
(bench/micro/openvino_backend.c)."""

import json

from . import micro
from .report import added_row, copied_row, pair_row, table
from .servers import Missing


def _library(lab):
    found = sorted(lab.root.glob(".deps/venv/lib/python3*/site-packages/openvino/libs/libopenvino_c.so*"))
    if not found:
        raise Missing("no OpenVINO in .deps/venv (make test-frameworks)")
    return found[-1]


def repository(lab):
    folder = lab.folder / "repositories" / "openvino"
    if not folder.exists():
        micro.run(lab, [lab.root / ".deps/venv/bin/python", lab.root / "bench/micro/openvino_models.py", folder], "openvino_models.py",
                  pinned=False)
    return folder


def openvino(lab):
    """the backend openvino around OpenVINO's inference: add/sub of [1,16], 602 kB alone and in a batch, two instances; CPU µs"""
    library = _library(lab)
    argv = [lab.programs / "bench_openvino_backend", repository(lab), lab.build / "backends", library, max(3, lab.settings.rounds)]
    got = json.loads(micro.run(lab, argv, "openvino_backend", pinned=False))
    copies = json.loads(micro.run(lab, argv, "openvino_backend", preload=lab.programs / "copy_count.so"))
    return table(["request", "backend CPU µs", "bare CPU µs", "figure", "goal", "met"],
                 [added_row("add/sub", got["add_sub"]), copied_row("602 kB", got["image"], copies["image"], 0),
                  copied_row("batch of 8 × 602 kB", got["batch"], copies["batch"], 2), pair_row(got["pair"])])
