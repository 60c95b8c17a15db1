# SPDX-License-Identifier: Apache-2.0
"""The model repository that both servers serve: the identity backend in several shapes."""

import shutil
from pathlib import Path

from . import requests


def _config(name, tensors, more=""):
    def block(kind, prefix):
        items = ",\n".join(f'  {{ name: "{prefix}{i}" data_type: TYPE_FP32 dims: {dims} }}'
                           for i, dims in enumerate(tensors))
        return f"{kind} [\n{items}\n]\n"

    return (f'name: "{name}"\nbackend: "identity"\n'
            + block("input", "INPUT") + block("output", "OUTPUT")
            + "instance_group [ { count: 1 kind: KIND_CPU } ]\n" + more)


# An execution takes two milliseconds, with one request or with eight.
SLOW_MS, SLOW_BATCH = 2, 8
BATCHING = {
    "batched": "max_batch_size: 64\ndynamic_batching { }\n",
    "batched_slow": f"max_batch_size: {SLOW_BATCH}\ndynamic_batching {{ }}\n"
                    f'parameters {{ key: "execute_delay_ms" value {{ string_value: "{SLOW_MS}" }} }}\n',
    "batched_limited": f"max_batch_size: {SLOW_BATCH}\ndynamic_batching {{ default_queue_policy {{"
                       " max_queue_size: 1000 default_timeout_microseconds: 10000000 } }\n"
                       f'parameters {{ key: "execute_delay_ms" value {{ string_value: "{SLOW_MS}" }} }}\n',
}


MODELS = {
    "small": [requests.SMALL_SHAPE],
    "image": [requests.IMAGE_SHAPE],
    "scores": [requests.CLASSES_SHAPE],
    "sink": [requests.IMAGE_SHAPE, [1]],
    **{name: [requests.SMALL_SHAPE] for name in BATCHING},
}


# Answers one request with as many responses as its input has elements.
MANY = """name: "many"
backend: "repeat"
model_transaction_policy { decoupled: true }
input [
  { name: "IN" data_type: TYPE_INT32 dims: [ -1 ] },
  { name: "DELAY" data_type: TYPE_UINT32 dims: [ -1 ] },
  { name: "WAIT" data_type: TYPE_UINT32 dims: [ 1 ] }
]
output [
  { name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] },
  { name: "IDX" data_type: TYPE_UINT32 dims: [ 1 ] }
]
instance_group [ { count: 1 kind: KIND_CPU } ]
"""


# Each model with and without the response cache.
CACHED = {"small": [requests.SMALL_SHAPE], "image": [requests.IMAGE_SHAPE]}


def write_cached(folder, backend=None):
    """backend: as of write()"""
    for name, tensors in CACHED.items():
        for kind, more in (("", ""), ("_cached", "response_cache { enable: true }\n")):
            model = Path(folder) / (name + kind)
            (model / "1").mkdir(parents=True)
            (model / "config.pbtxt").write_text(_config(name + kind, tensors, more))
            if backend:
                shutil.copy(backend, model / backend.name)


def write(folder, backend=None):
    """Writes the repository. `backend`, a library, is put beside each model: there the genuine Triton finds it without a
    change of its own backend directory.
    """
    (Path(folder) / "many" / "1").mkdir(parents=True)
    (Path(folder) / "many" / "config.pbtxt").write_text(MANY)
    for name, tensors in MODELS.items():
        model = Path(folder) / name
        (model / "1").mkdir(parents=True)
        (model / "config.pbtxt").write_text(_config(name, tensors, BATCHING.get(name, "")))
        if backend:
            shutil.copy(backend, model / backend.name)
