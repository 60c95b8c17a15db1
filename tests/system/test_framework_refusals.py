# SPDX-License-Identifier: Apache-2.0
"""A request that the framework itself refuses while it runs, or whose client leaves, spoils no other: not those after it, not those beside it, and
not those of its batch. Asked of each framework, on all processors and on one: some frameworks compute another way there."""

import concurrent.futures
import itertools
import os
import re

import numpy as np
import pytest
import tritonclient.http
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

import framework_columns
import refusing_models
import wire
from refusing_models import COLUMNS, KINDS, WIDTH

ROWS = 8    # of the largest batch
BATCHES = f"max_batch_size: {ROWS}\ndynamic_batching {{ }}\n"
FULL_BATCHES = f"max_batch_size: {ROWS}\ndynamic_batching {{ preferred_batch_size: [ {ROWS} ] max_queue_delay_microseconds: 20000000 }}\n"
seeds = itertools.count()    # no two requests have the same values: an answer of another one is seen


@pytest.fixture(scope="module", params=itertools.product(COLUMNS, ("", "one processor")), ids=lambda p: " on ".join(filter(None, (p[0].name, p[1]))))
def served(request, tmp_path_factory):
    column, processors = request.param
    if column.missing():
        pytest.skip(column.missing())
    root = tmp_path_factory.mktemp("served")
    write_served(column, root)
    with column.start(root, ["--log-verbose=1"], wrap=on_one_processor() if processors else ()) as server:
        server.kind = KINDS[column.name]
        yield server


def on_one_processor():
    return "taskset", "--cpu-list", str(min(os.sched_getaffinity(0)))


def write_served(column, root):
    kind = KINDS[column.name]
    one_thread = "".join(f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n' for key, value in kind.one_thread.items())
    inline = 'parameters { key: "CONCH_EXECUTION" value { string_value: "inline" } }\n'
    two = column.group.replace("count: 1", "count: 2")
    for name, more in {"plain": "", "first": "", "inline": inline, "two": two, "batching": BATCHES, "two_batching": BATCHES + two,
                       "gathering": FULL_BATCHES}.items():
        for end, threads in (("", ""), ("_one_thread", one_thread)):
            refusing_models.write(column, root, name + end, more + threads)


def with_one_thread(*models):
    return pytest.mark.parametrize("model", [name + end for name in models for end in ("", "_one_thread")])


# ---- Requests


def given(rows, rows_of_b=None, more=0):
    """more: rows that A gets before B is added."""
    chance = np.random.default_rng(next(seeds))
    tensors = {name: chance.random((n, WIDTH), np.float32) for name, n in (("A", rows), ("B", rows_of_b or rows))}
    return tensors | {"N": np.array([[more]] + [[0]] * (rows - 1))}


def ask(server, model, tensors, output="SUM"):
    with tritonclient.http.InferenceServerClient(server.url, network_timeout=120) as client:
        inputs = [tritonclient.http.InferInput(n, a.shape, np_to_triton_dtype(a.dtype)).set_data_from_numpy(a) for n, a in tensors.items()]
        return client.infer(model, inputs).as_numpy(output)


def check_answer(answer, tensors):
    np.testing.assert_allclose(answer, tensors["A"] + tensors["B"], rtol=2e-2, atol=2e-2)    # OpenVINO computes in BF16 where it can


def assert_answers(server, model, *numbers_of_rows):
    for rows in numbers_of_rows:
        tensors = given(rows)
        check_answer(ask(server, model, tensors), tensors)


def assert_refuses(server, model, tensors):
    with pytest.raises(InferenceServerException) as refused:
        ask(server, model, tensors)
    assert re.search(server.kind.refuses, str(refused.value)), refused.value


def make_refused(model):
    """Requests that fail in the framework. The server itself compares the rows of a batch."""
    made = [given(5, more=1), given(2, more=3), given(8, more=1)]
    return made if "batching" in model else [*made, given(7, 8), given(8, 7), given(5, 2)]


# ---- One after the other


@with_one_thread("first")
def test_a_model_whose_first_request_is_refused(served, model):
    assert_refuses(served, model, given(7, 8))
    assert_answers(served, model, 7, 8, 5, 5)


@with_one_thread("plain", "inline", "two", "batching")
def test_answers_after_a_refused_request(served, model):
    """Those of the shape before, and those of other shapes."""
    assert_answers(served, model, 5)
    for refused in make_refused(model):
        assert_refuses(served, model, refused)
        assert_answers(served, model, 5, 5, 8, 2, 5)
        assert_refuses(served, model, refused)
        assert_refuses(served, model, refused)
        assert_answers(served, model, 8, 5)


# ---- At the same time


@with_one_thread("plain", "two", "batching", "two_batching")
def test_answers_beside_refused_requests(served, model):
    def take_turns(seed):
        chance = np.random.default_rng(seed)
        for _ in range(8):
            if chance.random() < 0.5:
                assert_answers(served, model, *chance.integers(1, 1 + ROWS, 2))
            else:
                assert_refuses(served, model, chance.choice(make_refused(model)))

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(take_turns, range(4)))
    assert_answers(served, model, 5, 8)


@with_one_thread("gathering")
def test_a_refused_request_of_a_batch(served, model):
    """The others of its batch are answered."""
    for turn in range(6):
        tensors = [given(2, more=int(i == turn % 4)) for i in range(4)]
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            answers = [pool.submit(ask, served, model, one) for one in tensors]
        for i, (one, answer) in enumerate(zip(tensors, answers)):
            if i != turn % 4:
                check_answer(answer.result(), one)
            else:
                assert re.search(served.kind.refuses, str(answer.exception()))
        served.wait_log(f"model '{model}': a batch of 4 requests failed")


# ---- Clients that leave


@with_one_thread("plain", "two")
def test_answers_after_a_client_has_left(served, model):
    """Its run ends early, where the framework can."""
    if not served.kind.long:
        pytest.skip("the stand-in has no long runs")
    for rows in (5, 8):
        assert_answers(served, model, rows)
        tensors = given(rows, 1, more=served.kind.long)    # OpenVINO would refuse other rows of B before it computes
        inputs = [wire.given(n, np_to_triton_dtype(a.dtype), a.shape, a.tolist()) for n, a in tensors.items()]
        wire.leave_run(served, model, {"inputs": inputs})
        assert_answers(served, model, rows, rows, 3, 8)


# ---- Forests, which refuse nothing while they run


def test_forests_answer_on_one_processor(tmp_path):
    """Batches that use several threads elsewhere, and others."""
    (column,) = (column for column in framework_columns.ALL if column.backend == "fil")
    if column.missing():
        pytest.skip(column.missing())
    column.write(tmp_path, "forest", "", column.tensors((-1, framework_columns.WIDTH), (-1, 1)))
    with column.start(tmp_path, wrap=on_one_processor()) as server, concurrent.futures.ThreadPoolExecutor(4) as pool:
        asked = [column.given(rows, next(seeds)) for rows in (1, 5000, 3, 20000, 8) * 4]
        for tensors, answer in zip(asked, pool.map(lambda tensors: ask(server, "forest", tensors, "output__0"), asked)):
            np.testing.assert_allclose(answer.flatten(), column.expected(**tensors)["output__0"], rtol=1e-5, atol=1e-5)
