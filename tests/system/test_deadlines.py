# SPDX-License-Identifier: Apache-2.0
"""Deadlines of calls to a busy instance, with Triton's own client. tests/plugins/gate executes when the test lets it."""

import time

import numpy as np
import pytest
import tritonclient.grpc as client
from tritonclient.utils import InferenceServerException

import repository
from server import BUILD, Server, wait_for
from wire import ask

pytestmark = pytest.mark.conch_only("is about late work, which the genuine Triton executes")

TIMEOUT_S, CALLS = 0.1, 20

GATE = ('backend: "gate"\ninstance_group { count: 1 kind: KIND_CPU }\n' + repository.tensor("input", "IN", "INT32", [-1])
        + repository.tensor("output", "OUT", "INT32", [-1]))


def count_executions(server, model):
    stats = ask(server, "GET", f"/v2/models/{model}/stats").json()["model_stats"][0]
    return stats["execution_count"], stats["inference_stats"]["success"]["count"]


@pytest.mark.parametrize("batching", ["", "dynamic_batching { }\n"])
def test_late_calls_never_reach_a_busy_instance(tmp_path, batching):
    folder = repository.write_model(tmp_path, "gate", GATE + batching)
    hold = folder / "hold.execute"
    given = client.InferInput("IN", [1], "INT32")
    given.set_data_from_numpy(np.array([7], np.int32))
    with Server(tmp_path, flags=[f"--backend-directory={BUILD}/tests/backends"], grpc=True) as server, \
            client.InferenceServerClient(server.grpc_url) as triton:
        hold.touch()
        first, late = [], []
        triton.async_infer("gate", [given], lambda result, error: first.append(error or result))
        wait_for((folder / "hold.execute.reached").exists, 60, "the instance is busy")
        begun = time.monotonic()
        for _ in range(CALLS):
            triton.async_infer("gate", [given], lambda result, error: late.append((error, time.monotonic())), client_timeout=TIMEOUT_S)
        wait_for(lambda: len(late) == CALLS, 60, "all late calls have ended")
        for error, ended in late:
            assert isinstance(error, InferenceServerException) and "DEADLINE_EXCEEDED" in str(error), error
            assert ended - begun >= TIMEOUT_S
        assert not first    # they have ended while the instance was busy
        hold.unlink()
        wait_for(lambda: first, 60, "the first call is answered")
        assert first[0].as_numpy("OUT").tolist() == [7]
        triton.infer("gate", [given])    # behind all others
        assert count_executions(server, "gate") == (2, 2)
