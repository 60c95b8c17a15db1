# SPDX-License-Identifier: Apache-2.0
"""The row about what the onnxruntime backend adds to ONNX Runtime, measured in one process (bench/micro/ort_backend.c)."""

import json

from . import micro
from .report import figure, met, table
from .servers import Missing


def _repository(lab):
    folder = lab.folder / "repositories" / "ort"
    python = lab.root / ".deps/venv/bin/python"
    if not folder.exists():
        if not python.exists():
            raise Missing("no Python with the package onnx in .deps/venv (make deps)")
        folder.mkdir(parents=True)
        micro.run(lab, [python, lab.root / "bench/micro/ort_models.py", folder], "ort_models.py", pinned=False)
    return folder


def ort(lab):
    """the onnxruntime backend around a Run: small, large, a batch, ten models on all cores; CPU µs"""
    got = json.loads(micro.run(
        lab, [lab.programs / "bench_ort_backend", _repository(lab), lab.build / "backends", micro.ort_library(lab),
              max(3, lab.settings.rounds)], "ort_backend", pinned=False))
    small, image, batch, ten = (got[name] for name in ("add_sub", "image", "batch", "ten_models"))
    for cell in (small, image, batch):
        cell["us"] = cell["backend_us"] - cell["made_us"]
    added = small["us"] - small["owned_us"]
    less = image["us"] / image["theirs_us"]
    copies = batch["copied_bytes"] / batch["input_bytes"]
    rows = [
        ["add_sub, 16 numbers", figure(small["us"]), figure(small["owned_us"]), f"{added:.2f} µs more than Run into own buffers",
         "≤ 1.0", met(added <= 1.0)],
        ["identity, 602 kB", figure(image["us"]), figure(image["theirs_us"]),
         f"{less:.2f} × the Run that allocates, and a copy; bytes copied: {image['copied_bytes']}", "≤ 0.6", met(less <= 0.6)],
        ["batch of 8 × 602 kB", figure(batch["us"]), figure(batch["theirs_us"]), f"{copies:.2f} copies of its bytes: together, and apart",
         "2", met(copies == 2)],
        ["ten models, 300 µs each", figure(ten["served_us"]), figure(ten["bare_us"]),
         f"{ten['ratio']:.2f} × the Runs per second of two bare threads ({figure(ten['served_per_s'])})", "≥ 0.95", met(ten["ratio"] >= 0.95)],
    ]
    return table(["request", "backend CPU µs", "bare CPU µs", "figure", "goal", "met"], rows)
