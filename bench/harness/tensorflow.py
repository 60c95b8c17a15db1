# SPDX-License-Identifier: Apache-2.0
"""The row about the cost that the backend tensorflow adds to TensorFlow, measured in one process (bench/micro/tensorflow_backend.c)."""

import json

from . import micro
from .report import added_row, table
from .servers import Missing


def tensorflow(lab):
    """the backend tensorflow around TensorFlow's execution of add/sub, [1,16] FP32; CPU µs"""
    found = sorted(lab.root.glob(".deps/tensorflow/venv/lib/python3*/site-packages/tensorflow/libtensorflow_cc.so*"))
    if not found:
        raise Missing("no TensorFlow in .deps/tensorflow (tools/deps/install tensorflow)")
    folder = lab.folder / "repositories" / "tensorflow"
    if not folder.exists():
        micro.run(lab, [lab.root / ".deps/venv/bin/python", lab.root / "bench/micro/tensorflow_models.py", folder], "tensorflow_models.py", pinned=False)
    argv = [lab.programs / "bench_tensorflow_backend", folder, lab.build / "backends", found[-1], max(3, lab.settings.rounds)]
    got = json.loads(micro.run(lab, argv, "tensorflow_backend"))
    return table(["request", "backend CPU µs", "bare CPU µs", "figure", "goal", "met"], [added_row("add/sub", got)])
