# SPDX-License-Identifier: Apache-2.0
"""Small models of OpenVINO execute on the thread that has the request, and compute there; all others have threads of their own."""

import os
import re

import numpy as np
import pytest

pytest.importorskip("openvino", reason="`make test-frameworks` installs OpenVINO")

import openvino_models as models  # noqa: E402
import repository  # noqa: E402
import server as servers  # noqa: E402
import test_inline  # noqa: E402

BATCHES = "max_batch_size: 4\n"
IS_SMALL = re.compile(r"model '(\w+)' is small: a run takes at most the time of \d+ multiplications")
HAS_THREADS = re.compile(r"model '(\w+)' is small, but OpenVINO executes it on threads of its own")


def instances(n):
    return f"instance_group [ {{ count: {n} kind: KIND_CPU }} ]\n"


def product(rows):
    x = models.parameter("x", [-1, rows])
    weights = models.ops.constant(np.zeros((rows, rows), np.float32))
    return models.ov.Model([models.named(models.ops.matmul(x, weights, False, False), "y")], [x], "product")


def test_small_models_are_known(tmp_path):
    """small: both. threads: small ones that OpenVINO does not compute in the caller's thread."""
    def write(name, model, config=BATCHES, **parameters):
        models.write(tmp_path, name, model, config, **parameters)

    write("sums", models.add_sub([-1, 16]))
    write("one_thread", models.add_sub([-1, 16]), INFERENCE_NUM_THREADS="1")
    write("one_stream", models.add_sub([-1, 16]), BATCHES + instances(2), NUM_STREAMS="1", INFERENCE_NUM_THREADS="1")
    write("alone", models.add_sub([3, 16]), "")
    write("convolutions", models.convolutions(np.random.default_rng(1)))
    write("product", product(64))
    models.write_onnx(tmp_path, "onnx", BATCHES)
    small = {"sums", "one_thread", "one_stream", "alone", "convolutions", "product", "onnx"}

    write("two_threads", models.add_sub([-1, 16]), INFERENCE_NUM_THREADS="2")
    write("two_instances", models.add_sub([-1, 16]), BATCHES + instances(2))
    write("hint", models.add_sub([-1, 16]), BATCHES, PERFORMANCE_HINT="THROUGHPUT")
    threads = {"two_threads", "two_instances", "hint"} if os.cpu_count() > 1 else {"two_instances"}

    write("large", product(2048))
    write("many", product(64), "max_batch_size: 1000\n")
    write("dynamic", models.dynamic(), "")
    write("strings", models.strings(), "")
    write("reshaped", models.add_sub([1, 16]))    # its file has shapes of one row
    write("device", models.add_sub([-1, 16]), TARGET_DEVICE="AUTO:CPU")
    write("ragged", models.ragged(), BATCHES + 'input [ { name: "x" data_type: TYPE_FP32 dims: [ -1 ] allow_ragged_batch: true } ]\n'
          + repository.tensor("output", "so_far", "FP32", [1])
          + 'batch_input [ { kind: BATCH_ACCUMULATED_ELEMENT_COUNT target_name: "ends" data_type: TYPE_INT32 source_input: "x" } ]\n')
    models.write_saved_model(tmp_path, "saved_model", BATCHES)
    with servers.Server(tmp_path, flags=["--log-verbose=1"]) as server:
        log = server.log()
    assert set(IS_SMALL.findall(log)) == small | threads
    assert set(HAS_THREADS.findall(log)) == threads


@pytest.mark.parametrize("name, parameters, inside", [("small", {}, True), ("threads", {"NUM_STREAMS": "2"}, False)])
def test_small_models_answer_inside_the_call(tmp_path, name, parameters, inside):
    """An embedder that asks for it gets the answer on its own thread, once the model has proved to be short."""
    x = models.parameter("INPUT0", [-1, 1])
    model = models.ov.Model([models.named(models.ops.relu(x), "OUTPUT0")], [x], "small")
    models.write(tmp_path, name, model, BATCHES + instances(1), **parameters)
    at_least = 0 if servers.SANITIZED or "PAUSES" in os.environ else test_inline.N_ASKED / 4

    def asked():
        got = test_inline.embedded(tmp_path, name, True)
        assert got["answered"] == 2 * test_inline.N_ASKED
        return got["inside"]

    if inside:
        servers.wait_for(lambda: asked() > at_least, 120, "the model has proved itself")
    else:
        assert asked() == 0
