# SPDX-License-Identifier: Apache-2.0
"""The row about the cost that the backend tensorflow adds to TensorFlow, measured in one process (bench/micro/tensorflow_backend.c)."""

from .framework import measured_rows, written_repository
from .servers import Missing


def library(lab):
    found = sorted(lab.root.glob(".deps/tensorflow/venv/lib/python3*/site-packages/tensorflow/libtensorflow_cc.so*"))
    if not found:
        raise Missing("no TensorFlow in .deps/tensorflow (tools/deps/install tensorflow)")
    return found[-1]


def repository(lab):
    return written_repository(lab, "tensorflow")


def tensorflow(lab):
    """the backend tensorflow around TensorFlow's execution: add/sub of [1,16], 602 kB alone and in a batch, two instances; CPU µs"""
    return measured_rows(lab, "tensorflow", repository(lab), [library(lab)], {"add_sub": "add/sub"}, image_copies=1)
