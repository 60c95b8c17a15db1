# SPDX-License-Identifier: Apache-2.0
"""The row about the cost that the backend openvino adds to OpenVINO, measured in one process
(bench/micro/openvino_backend.c)."""

from .framework import measured_rows, written_repository
from .servers import Missing


def _library(lab):
    found = sorted(lab.root.glob(".deps/venv/lib/python3*/site-packages/openvino/libs/libopenvino_c.so*"))
    if not found:
        raise Missing("no OpenVINO in .deps/venv (make test-frameworks)")
    return found[-1]


def repository(lab):
    return written_repository(lab, "openvino")


def openvino(lab):
    """the backend openvino around OpenVINO's inference: add/sub of [1,16], 602 kB alone and in a batch, two instances; CPU µs"""
    return measured_rows(lab, "openvino", repository(lab), [_library(lab)], {"add_sub": "add/sub"}, image_copies=0)
