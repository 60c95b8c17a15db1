# SPDX-License-Identifier: Apache-2.0
"""The row about the cost that the backend openvino adds to OpenVINO, measured in one process
(bench/micro/openvino_backend.c)."""

import json

from . import micro
from .report import figure, met, table
from .servers import Missing


def _library(lab):
    found = sorted(lab.root.glob(".deps/venv/lib/python3*/site-packages/openvino/libs/libopenvino_c.so*"))
    if not found:
        raise Missing("no OpenVINO in .deps/venv (make test-frameworks)")
    return found[-1]


def _repository(lab):
    folder = lab.folder / "repositories" / "openvino"
    if not folder.exists():
        micro.run(lab, [lab.root / ".deps/venv/bin/python", lab.root / "bench/micro/openvino_models.py", folder], "openvino_models.py",
                  pinned=False)
    return folder


def openvino(lab):
    """the backend openvino around OpenVINO's inference of add/sub, [1,16] FP32; CPU µs"""
    library = _library(lab)
    argv = [lab.programs / "bench_openvino_backend", _repository(lab), lab.build / "backends", library, max(3, lab.settings.rounds)]
    got = json.loads(micro.run(lab, argv, "openvino_backend"))
    return table(["request", "backend CPU µs", "bare CPU µs", "figure", "goal", "met"],
                 [["add/sub", figure(got["backend_us"] - got["made_us"]), figure(got["bare_us"]),
                   f"{got['added_us']:.2f} µs more than the bare inference", "≤ 1.0", met(got["added_us"] <= 1.0)]])
