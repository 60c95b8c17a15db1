# SPDX-License-Identifier: Apache-2.0
"""A server on one CPU, as many containers have it: models of each framework answer many clients at once, and load and unload meanwhile."""

import concurrent.futures
import os
import time

import pytest
import tritonclient.http

import python_models
import server as servers
import test_framework_matrix as matrix

ONE_CPU = ("taskset", "--cpu-list", str(max(os.sched_getaffinity(0))))
MODELS = ("plain", "two", "whole", "warm", "priorities", "ensemble", "python")
CLIENTS, REQUESTS = 8, 20


@pytest.fixture(scope="module", params=matrix.COLUMNS, ids=matrix.NAMES)
def column(request):
    if request.param.missing():
        pytest.skip(request.param.missing())
    return request.param


@pytest.fixture(scope="module")
def served(column, tmp_path_factory):
    root = tmp_path_factory.mktemp("served")
    matrix.write_served(column, root)
    with column.start(root, matrix.FIXED, wrap=ONE_CPU) as server:
        yield server


def ask_often(column, server, seed):
    for i in range(REQUESTS):
        given = column.given(1 + (seed + i) % 8, seed=seed * REQUESTS + i)
        matrix.check_answer(column, matrix.ask(server, MODELS[(seed + i) % len(MODELS)], given), given)


def test_the_server_has_one_loop(served):
    assert sum(name.startswith("http-") for name in served.names_of_threads()) == 1


def test_many_clients_are_answered(column, served):
    with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
        for answered in [pool.submit(ask_often, column, served, seed) for seed in range(CLIENTS)]:
            answered.result()


def test_models_come_and_go_while_others_answer(column, served):
    with concurrent.futures.ThreadPoolExecutor(2) as pool, tritonclient.http.InferenceServerClient(served.url, network_timeout=60) as client:
        asked = [pool.submit(ask_often, column, served, seed) for seed in range(2)]
        while not all(answered.done() for answered in asked):
            client.unload_model("named")
            client.load_model("named")
        for answered in asked:
            answered.result()
    given = column.given(2)
    matrix.check_answer(column, matrix.ask(served, "named", given), given)


def used_ticks(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        return sum(map(int, file.read().rpartition(")")[2].split()[11:13]))


def test_a_server_at_rest_uses_no_cpu(served):
    """Half a second comes in which no thread runs, of a framework or of a model in Python: none looks for work again and again."""
    seen = []

    def rests():
        seen.append((time.monotonic(), sum(map(used_ticks, [served.pid, *python_models.children(served)]))))
        return seen[-1][0] - next(at for at, used in seen if used == seen[-1][1]) > 0.5

    servers.wait_for(rests, 60, "the server rests")
