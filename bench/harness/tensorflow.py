# SPDX-License-Identifier: Apache-2.0
"""The row about the cost that the backend tensorflow adds to TensorFlow, measured in one process (bench/micro/tensorflow_backend.c)."""

import json

from . import micro
from .report import added_row, copied_row, pair_row, table
from .servers import Missing


def library(lab):
    found = sorted(lab.root.glob(".deps/tensorflow/venv/lib/python3*/site-packages/tensorflow/libtensorflow_cc.so*"))
    if not found:
        raise Missing("no TensorFlow in .deps/tensorflow (tools/deps/install tensorflow)")
    return found[-1]


def repository(lab):
    folder = lab.folder / "repositories" / "tensorflow"
    if not folder.exists():
        micro.run(lab, [lab.root / ".deps/venv/bin/python", lab.root / "bench/micro/tensorflow_models.py", folder], "tensorflow_models.py", pinned=False)
    return folder


def tensorflow(lab):
    """the backend tensorflow around TensorFlow's execution: add/sub of [1,16], 602 kB alone and in a batch, two instances; CPU µs"""
    argv = [lab.programs / "bench_tensorflow_backend", repository(lab), lab.build / "backends", library(lab), max(3, lab.settings.rounds)]
    got = json.loads(micro.run(lab, argv, "tensorflow_backend", pinned=False))
    copies = json.loads(micro.run(lab, argv, "tensorflow_backend", preload=lab.programs / "copy_count.so"))
    return table(["request", "backend CPU µs", "bare CPU µs", "figure", "goal", "met"],
                 [added_row("add/sub", got["add_sub"]),
                  # TensorFlow allocates what it returns: that copy goes into the answer.
                  copied_row("602 kB", got["image"], copies["image"], 1),
                  copied_row("batch of 8 × 602 kB", got["batch"], copies["batch"], 2),
                  pair_row(got["pair"])])
