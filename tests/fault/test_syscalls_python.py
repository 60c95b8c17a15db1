# SPDX-License-Identifier: Apache-2.0
"""A server with models in Python, and their processes, whose system calls fail now and then (faultlib.c): interrupted, short, not
ready. No client notices, and no process ends."""

import concurrent.futures
import os
import pathlib
import sys

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "system"))

import repository  # noqa: E402
import server as servers  # noqa: E402
from faulty import Faulty, assert_descriptors_come_back, descriptors  # noqa: E402
from python_models import children, infer, write_python  # noqa: E402
from wire import ask  # noqa: E402

pytestmark = pytest.mark.skipif(not (pathlib.Path(servers.BACKENDS) / "python/start.py").exists(), reason="the Python backend is not built")

CLIENTS = 4
ROUNDS = 6
TENSORS = [("input", "INPUT0", "INT32", [-1]), ("output", "OUTPUT0", "INT32", [-1])]

# By a call to another model, a log line and a question to the server, so that notes of all kinds go both ways.
ASKS = """
def execute(self, requests):
    responses = []
    for request in requests:
        pb_utils.Logger.log_verbose("asked")
        assert not request.is_cancelled()
        inner = pb_utils.InferenceRequest(model_name="there", requested_output_names=["OUTPUT0"], inputs=request.inputs())
        responses.append(pb_utils.InferenceResponse(inner.exec().output_tensors()))
    return responses
"""


def client(server, number):
    for turn in range(ROUNDS):
        for n in (4, 150_000, 0):
            array = np.arange(n, dtype=np.int32) + number * 1000 + turn
            assert np.array_equal(infer(server, "asks", {"INPUT0": array}).as_numpy("OUTPUT0"), array)


@pytest.mark.parametrize("seed", [1, 2])
def test_clients_of_models_in_python_do_not_notice_faults(monkeypatch, tmp_path, seed):
    monkeypatch.setenv("PATH", f"{servers.ROOT}/.deps/venv/bin:{os.environ['PATH']}")    # a Python with NumPy
    root = tmp_path / "models"
    repository.write_identity(root, "there", [("INT32", [-1])], CONCH_EXECUTION="thread")
    write_python(root, "asks", ASKS, *TENSORS, instances=2)
    with Faulty(root, seed, tmp_path / "counts") as server:
        before, processes = descriptors(server), set(children(server))
        with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
            for done in [pool.submit(client, server, number) for number in range(CLIENTS)]:
                done.result(timeout=120)
        assert ask(server, "GET", "/v2/health/ready").status == 200
        assert set(children(server)) == processes, "no process has ended"
        assert len(processes) == 2
        assert_descriptors_come_back(server, before + len(processes))    # a loop watches the answers of each (core/backend/leave.h)
        assert server.counts()["interrupted"] > 100
