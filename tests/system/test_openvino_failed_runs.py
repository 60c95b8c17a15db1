# SPDX-License-Identifier: Apache-2.0
"""OpenVINO keeps shapes of a run that failed, and in one mode loses its error. Whatever the device and the threads: a run that
fails is an error for its client alone, and all other answers are right."""

import concurrent.futures
import itertools
import os
import re

import numpy as np
import pytest
import tritonclient.http

pytest.importorskip("openvino", reason="`make test-frameworks` installs OpenVINO")

import openvino_models as models  # noqa: E402
import repository  # noqa: E402
import server as servers  # noqa: E402

DIMS = repository.tensor("input", "x", "FP32", [-1, 8]) + repository.tensor("input", "y", "FP32", [-1, 8]) + repository.tensor("output", "z", "FP32", [-1, 8])
COUNTS = repository.tensor("input", "n", "INT64", [1]) + repository.tensor("input", "m", "INT64", [1]) + repository.tensor("output", "sum", "FP32", [1])


def layers(rows):
    for _ in range(10):
        rows = models.ops.relu(models.ops.matmul(rows, models.ops.constant(np.eye(8, dtype=np.float32)), False, False))
    return rows


def write_sum(root, name="sum", instances=1, **parameters):
    """z = layers(x) + y: OpenVINO refuses x and y of different length when all layers have their shapes."""
    x, y = models.parameter("x", [-1, 8]), models.parameter("y", [-1, 8])
    model = models.ov.Model([models.named(models.ops.add(layers(x), y), "z")], [x, y], "sum")
    config = DIMS + f"instance_group [ {{ count: {instances} kind: KIND_CPU }} ]\n"
    models.write(root, name, model, config, INFERENCE_PRECISION_HINT="F32", **parameters)


def write_counts(root):
    """The sum of n rows of ones, which m rows must have room for: the values decide, not the shapes."""
    ops = models.ops
    n, m = models.parameter("n", [1], np.int64), models.parameter("m", [1], np.int64)
    eight = ops.constant(np.array([8]))
    rows = layers(ops.broadcast(ops.constant(np.float32(1)), ops.concat([n, eight], 0)))
    total = ops.reduce_sum(ops.reshape(rows, ops.concat([m, eight], 0), False), ops.constant(np.array([0, 1])), False)
    total = ops.reshape(total, ops.constant(np.array([1])), False)
    models.write(root, "counts", models.ov.Model([models.named(total, "sum")], [n, m], "counts"), COUNTS)


def given(name, values):
    datatype = "INT64" if values.dtype == np.int64 else "FP32"
    return tritonclient.http.InferInput(name, values.shape, datatype).set_data_from_numpy(values)


def check_sum(client, rows, value, name="sum"):
    """The answer of an earlier run has another value."""
    x = np.full((rows, 8), value, np.float32)
    got = client.infer(name, [given("x", x), given("y", x)]).as_numpy("z")
    np.testing.assert_array_equal(got, 2 * x)


def check_refused(client, rows, others, name="sum"):
    with pytest.raises(tritonclient.http.InferenceServerException, match="running inference"):
        client.infer(name, [given("x", np.zeros((rows, 8), np.float32)), given("y", np.zeros((others, 8), np.float32))])


def count_compilations(server):
    """How often the only model was compiled anew."""
    return max((int(n) for n in re.findall(r"compiled anew in .* \((\d+) times so far\)", server.log())), default=0)


ONE_THREAD = {"INFERENCE_NUM_THREADS": "1"}
CASES = {
    "all processors": {},
    "one thread": ONE_THREAD,
    "one stream, one thread": {"NUM_STREAMS": "1", **ONE_THREAD},
    "hint": {"PERFORMANCE_HINT": "LATENCY", **ONE_THREAD},
    "two streams": {"NUM_STREAMS": "2"},
    "hetero": {"TARGET_DEVICE": "HETERO:CPU", **ONE_THREAD},
    "auto": {"TARGET_DEVICE": "AUTO:CPU", **ONE_THREAD},
    "two instances": {"instances": 2},
    "two instances, one thread": {"instances": 2, "NUM_STREAMS": "1", **ONE_THREAD},
}


@pytest.mark.parametrize("wrap", [(), ("taskset", "--cpu-list", str(min(os.sched_getaffinity(0))))], ids=["processors", "one processor"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_failed_run_leaves_later_ones_right(tmp_path, case, wrap):
    """Of two models: one whose first run succeeds, and one whose first run fails."""
    names = ("first_good", "first_bad")
    for name in names:
        write_sum(tmp_path, name, **case)
    values = itertools.count(1)
    with servers.Server(tmp_path, wrap=wrap) as server, tritonclient.http.InferenceServerClient(server.url) as client:
        check_sum(client, 5, next(values), "first_good")
        for bad, good in (((7, 8), 5), ((7, 8), 5), ((8, 7), 8), ((9, 4), 8), ((5, 8), 6), ((6, 7), 6)):
            for name in names:
                check_refused(client, *bad, name)
                for rows in (good, good, good + 1, good):
                    check_sum(client, rows, next(values), name)


@pytest.mark.sanitize
def test_a_failed_run_leaves_those_beside_it_right(tmp_path):
    """Two instances, whose requests meet in one compiled model. Each bad one has other shapes, so OpenVINO runs all of them."""
    write_sum(tmp_path, instances=2)
    with servers.Server(tmp_path) as server, concurrent.futures.ThreadPoolExecutor(3) as pool:

        def ask_bad(first):
            with tritonclient.http.InferenceServerClient(server.url) as client:
                for rows in range(first, first + 20):
                    check_refused(client, 2 * rows, 3 * rows)

        def ask_good(first):
            with tritonclient.http.InferenceServerClient(server.url) as client:
                for value in itertools.count(first):
                    check_sum(client, 5, value % 1000)
                    if bad.done():
                        return value - first

        bad = pool.submit(ask_bad, 10)
        good = [pool.submit(ask_good, n) for n in (0, 500)]
        bad.result()
        assert min(one.result() for one in good) > 0


def test_shapes_that_failed_once_are_refused_before_a_run(tmp_path):
    write_sum(tmp_path)
    with servers.Server(tmp_path) as server, tritonclient.http.InferenceServerClient(server.url) as client:
        for value in range(5):
            check_refused(client, 7, 8)
            check_sum(client, 5, value)
        assert count_compilations(server) == 1
        check_refused(client, 8, 7)
        check_sum(client, 7, 1)    # these shapes fit
        assert count_compilations(server) == 2


def test_only_the_last_of_many_shapes_are_remembered(tmp_path):
    """64 of them; the others are refused by a run."""
    write_sum(tmp_path)
    with servers.Server(tmp_path) as server, tritonclient.http.InferenceServerClient(server.url) as client:
        for rows in range(2, 67):
            check_refused(client, rows, rows + 1)
        check_refused(client, 66, 67)
        check_sum(client, 5, 1)
        before = count_compilations(server)
        for rows in range(3, 67):
            check_refused(client, rows, rows + 1)
        check_sum(client, 5, 2)
        assert count_compilations(server) == before
        check_refused(client, 2, 3)
        check_sum(client, 5, 3)
        assert count_compilations(server) == before + 1


def test_shapes_are_not_refused_for_the_values_of_a_run(tmp_path):
    write_counts(tmp_path)
    with servers.Server(tmp_path) as server, tritonclient.http.InferenceServerClient(server.url) as client:

        def count(n, m):
            return client.infer("counts", [given("n", np.array([n])), given("m", np.array([m]))]).as_numpy("sum").item()

        for n in (3, 4, 3):
            with pytest.raises(tritonclient.http.InferenceServerException, match="running inference"):
                count(n, n + 1)
            assert count(n, n) == 8 * n
        assert count_compilations(server) == 3
