# SPDX-License-Identifier: Apache-2.0
"""A quota of CPU time, as containers have it: the server and the frameworks have as many threads as the quota keeps busy, not one for each CPU."""

import re

import numpy as np
import pytest
import tritonclient.http

import framework_columns
import preload
import repository
import server as servers

COLUMNS = [column for column in framework_columns.ALL if column.name in ("onnxruntime", "tensorflow, tensorflow", "pytorch", "fil")]
NAMES = [column.name for column in COLUMNS]
VARIABLES = {"onnxruntime": None, "tensorflow, tensorflow": "TF_NUM_INTRAOP_THREADS", "pytorch": "OMP_NUM_THREADS", "fil": "OMP_NUM_THREADS"}
ROWS = 1 << 17    # enough for an operator to be divided


def machine(n, quota=None, **more):
    return preload.environment("processors", PROCESSORS=str(n), **({"QUOTA": quota} if quota else {}), **more)


def start(root, column, env):
    return servers.Server(root, flags=column.flags if column else [], env={**(column.env if column else {}), **env})


@pytest.mark.parametrize("quota, n", [("max 100000", 6), ("50000 100000", 1), ("150000 100000", 2), ("300000 100000", 3), ("800000 100000", 6)])
def test_the_server_has_as_many_loops_as_the_quota_keeps_busy(tmp_path, quota, n):
    repository.write_model(tmp_path, "m", 'backend: "identity"\n')
    with start(tmp_path, None, machine(6, quota)) as running:
        assert sum(name.startswith("http-") for name in running.names_of_threads()) == n


@pytest.fixture(params=COLUMNS, ids=NAMES)
def column(request):
    if request.param.missing():
        pytest.skip(request.param.missing())
    return request.param


def count_threads(root, column, env):
    """Of a server whose model has computed something large."""
    with start(root, column, env) as running, tritonclient.http.InferenceServerClient(running.url, network_timeout=60) as client:
        given = column.given(ROWS)
        answer = client.infer("whole", [tritonclient.http.InferInput(name, array.shape, "FP32").set_data_from_numpy(array)
                                        for name, array in given.items()])
        for name, expected in column.expected(**given).items():
            np.testing.assert_allclose(answer.as_numpy(name).reshape(expected.shape), expected, rtol=1e-5, atol=1e-5)
        return sum(not name.startswith("http-") for name in running.names_of_threads())


@pytest.fixture
def models(column, tmp_path):
    more = 'parameters { key: "CONCH_EXECUTION" value { string_value: "thread" } }\n'
    column.write(tmp_path, "whole", more, tensors=column.tensors((-1, 4), (-1, *column.answer_dims[:len(column.outputs) - 1])))
    return tmp_path


def test_frameworks_have_as_many_threads_as_the_quota_keeps_busy(column, models):
    """PyTorch has two pools of threads, and without a quota half as many as there are CPUs in each."""
    step = 2 if column.name == "pytorch" else 1
    one = count_threads(models, column, machine(8, "100000 100000"))
    assert [count_threads(models, column, machine(8, f"{n}00000 100000")) - one for n in (2, 3)] == [step, 2 * step]
    assert count_threads(models, column, machine(8)) >= one + 3 * step


def test_the_number_of_a_users_variable_counts_more_than_a_quota(column, models):
    if not VARIABLES[column.name]:
        pytest.skip("it reads none")
    user = {VARIABLES[column.name]: "5"}
    assert count_threads(models, column, machine(8, "200000 100000", **user)) == count_threads(models, column, machine(8, **user))


@pytest.mark.parametrize("quota, says", [("100000 100000", "1"), (None, None)])
def test_openvino_is_told_of_a_quota(tmp_path, quota, says):
    """It counts the CPUs by files that the test cannot replace, so what it is told is looked at."""
    models = pytest.importorskip("openvino_models", reason="`make test-frameworks` installs OpenVINO")
    models.write(tmp_path, "whole", models.dynamic(), "")
    env = preload.environment("processors", PROCESSORS=str(2), **({"QUOTA": quota} if quota else {}))
    with servers.Server(tmp_path, flags=["--log-verbose=1"], env=env) as running:
        told = re.search(r"INFERENCE_NUM_THREADS of CPU is (\d+)", running.log())
    assert (told and told[1]) == says
