# SPDX-License-Identifier: Apache-2.0
"""An execution of OpenVINO whose clients have all left ends early; the next one, and that of other clients, is as before."""

import concurrent.futures
import re

import numpy as np
import pytest
import tritonclient.http

pytest.importorskip("openvino", reason="`make test-frameworks` installs OpenVINO")

import embed  # noqa: E402
import openvino_models as models  # noqa: E402
import repository  # noqa: E402
import saved_models  # noqa: E402
import server as servers  # noqa: E402
from wire import given, leave_run  # noqa: E402

LAYERS, COLUMNS = 200, 256
FOREVER = 100_000    # rows: ten seconds and more on two processors
TENSORS = repository.tensor("input", "n", "INT64", [1]) + repository.tensor("output", "sum", "FP32", [1])


def write_long(root, instances=1):
    """The sum of n rows of ones, after many products with the unit matrix: a request decides how long it takes."""
    ops = models.ops
    n = models.parameter("n", [1], np.int64)
    rows = ops.broadcast(ops.constant(np.float32(1)), ops.concat([n, ops.constant(np.array([COLUMNS]))], 0))
    unit = ops.constant(np.eye(COLUMNS, dtype=np.float32))
    for _ in range(LAYERS):
        rows = ops.relu(ops.matmul(rows, unit, False, False))
    total = ops.reshape(ops.reduce_sum(rows, ops.constant(np.array([0, 1])), False), ops.constant(np.array([1])), False)
    config = TENSORS + f"instance_group [ {{ count: {instances} kind: KIND_CPU }} ]\n"
    models.write(root, "long", models.ov.Model([models.named(total, "sum")], [n], "long"), config)


def count(server, n):
    with tritonclient.http.InferenceServerClient(server.url, network_timeout=120) as client:
        asked = tritonclient.http.InferInput("n", [1], "INT64").set_data_from_numpy(np.array([n]))
        return client.infer("long", [asked]).as_numpy("sum").item()


def leave(server):
    leave_run(server, "long", {"inputs": [given("n", "INT64", [1], [FOREVER])]})


def test_a_client_that_leaves_ends_its_run(tmp_path):
    write_long(tmp_path)
    with servers.Server(tmp_path) as running:
        assert count(running, 2) == 2 * COLUMNS
        for turn in range(1, 4):
            leave(running)
            assert count(running, turn) == turn * COLUMNS    # by the same and only instance, whose run has ended
        with tritonclient.http.InferenceServerClient(running.url) as client:
            stats = client.get_inference_statistics("long")["model_stats"][0]["inference_stats"]
        assert stats["success"]["count"] == 4


def test_a_cancelled_run_is_answered_as_cancelled(tmp_path):
    write_long(tmp_path)
    forever = f"long -1 - n:INT64:1:{FOREVER}"
    with embed.Session(tmp_path) as session:
        def check_short_run():
            said = session.do("infer c long -1 - n:INT64:1:3")
            assert embed.of(said, "c")[0].startswith(f"response sum:FP32:1:{3 * COLUMNS}"), said

        check_short_run()
        for name in "ab":
            session.start_run(name, forever)
            said = session.do(f"cancel {name}")
            assert re.fullmatch(r"error Cancelled: .*final", embed.of(said, name)[0]), said
        check_short_run()


def test_a_cancelled_run_leaves_other_runs_alone(tmp_path):
    """Two instances: the end of one client's run does not touch the run of another client."""
    write_long(tmp_path, instances=2)
    with servers.Server(tmp_path) as running, concurrent.futures.ThreadPoolExecutor(1) as pool:
        stays = pool.submit(count, running, 2000)
        leave(running)
        assert stays.result() == 2000 * COLUMNS


def test_a_run_of_a_saved_model_ends_as_well(tmp_path):
    """The engine openvino of the backend tensorflow."""
    size, rows = 1024, 8192
    folder = repository.write_model(tmp_path, "long", f'platform: "tensorflow_savedmodel"\nmax_batch_size: {rows}\n'
                                    + "instance_group [ { count: 1 kind: KIND_CPU } ]\n")
    saved_models.write(folder, saved_models.products(np.eye(size, dtype=np.float32), 400, [-1, size]))
    with servers.Server(tmp_path) as running, tritonclient.http.InferenceServerClient(running.url, network_timeout=60) as client:
        x = tritonclient.http.InferInput("x", [rows, size], "FP32").set_data_from_numpy(np.zeros((rows, size), np.float32))
        body, head = client.generate_request_body([x])
        leave_run(running, "long", body[:head], body[head:], after_s=2)    # the body alone takes a tenth of that
        ones = np.ones((1, size), np.float32)
        x = tritonclient.http.InferInput("x", ones.shape, "FP32").set_data_from_numpy(ones)
        np.testing.assert_allclose(client.infer("long", [x]).as_numpy("y"), ones)
        stats = client.get_inference_statistics("long")["model_stats"][0]["inference_stats"]
        assert stats["success"]["count"] == 1
