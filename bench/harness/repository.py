# SPDX-License-Identifier: Apache-2.0
"""The model repository that both servers serve: the identity backend in three shapes."""

import shutil
from pathlib import Path

from . import requests


def _config(name, tensors):
    def block(kind, prefix):
        items = ",\n".join(f'  {{ name: "{prefix}{i}" data_type: TYPE_FP32 dims: {dims} }}'
                           for i, dims in enumerate(tensors))
        return f"{kind} [\n{items}\n]\n"

    return (f'name: "{name}"\nbackend: "identity"\n'
            + block("input", "INPUT") + block("output", "OUTPUT")
            + "instance_group [ { count: 1 kind: KIND_CPU } ]\n")


MODELS = {
    "small": [requests.SMALL_SHAPE],
    "image": [requests.IMAGE_SHAPE],
    "sink": [requests.IMAGE_SHAPE, [1]],
}


def write(folder, backend=None):
    """
    Writes the repository. `backend`, a library, is put beside each model: there the genuine Triton
    finds it without its own backend directory being touched.
    """
    for name, tensors in MODELS.items():
        model = Path(folder) / name
        (model / "1").mkdir(parents=True)
        (model / "config.pbtxt").write_text(_config(name, tensors))
        if backend:
            shutil.copy(backend, model / backend.name)
