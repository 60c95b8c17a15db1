# SPDX-License-Identifier: Apache-2.0
"""The row about the cost that the onnxruntime backend adds to ONNX Runtime, measured in one process
(bench/micro/ort_backend.c)."""

import json

from . import micro
from .framework import HEAD, written_repository
from .report import figure, met, pair_row, table


def repository(lab):
    return written_repository(lab, "ort")


def ort(lab):
    """the onnxruntime backend around a Run: small, large, a batch, ten models on all cores; CPU µs"""
    argv = [lab.programs / "bench_ort_backend", repository(lab), lab.build / "backends", micro.ort_library(lab),
            max(3, lab.settings.rounds)]
    got = json.loads(micro.run(lab, argv, "ort_backend", pinned=False))
    copies = json.loads(micro.run(lab, argv, "ort_backend", preload=lab.programs / "copy_count.so"))
    small, image, batch, ten = (got[name] for name in ("add_sub", "image", "batch", "ten_models"))
    for cell in (small, image, batch):
        cell["us"] = cell["backend_us"] - cell["made_us"]
    less = image["us"] / image["theirs_us"]
    times = copies["batch"]["copied_bytes"] / copies["batch"]["input_bytes"]
    more = "{:.2f} µs more than Run into own buffers"
    rows = [
        ["add_sub, 16 numbers, one client", figure(small["us"]), figure(small["owned_us"]), more.format(small["added_us"]),
         "≤ 1.0", met(small["added_us"] <= 1.0)],
        ["the same, elsewhere each time", figure(small["moving_us"] - small["made_moving_us"]), figure(small["owned_us"]),
         more.format(small["added_moving_us"]), "≤ 1.0", met(small["added_moving_us"] <= 1.0)],
        ["identity, 602 kB", figure(image["us"]), figure(image["theirs_us"]),
         f"{less:.2f} × the Run that allocates, and a copy; bytes copied: {copies['image']['copied_bytes']}", "≤ 0.6", met(less <= 0.6)],
        ["batch of 8 × 602 kB", figure(batch["us"]), figure(batch["theirs_us"]), f"{times:.2f} copies of its bytes: together, and apart",
         "2", met(times == 2)],
        pair_row(ten, "ten models, 300 µs each"),
    ]
    return table(HEAD, rows)
