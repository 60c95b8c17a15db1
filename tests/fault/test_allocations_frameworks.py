# SPDX-License-Identifier: Apache-2.0
"""The backends of frameworks while the n-th allocation of their own code fails (allocfault.c), for every n: a load serves or fails
with a clear error, a request is answered or refused, and afterwards all works as before. What a framework allocates is not failed."""

import json
import pathlib
import re
import sys
from concurrent import futures

import pytest
from tritonclient.utils import InferenceServerException

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "system"))

import preload  # noqa: E402
import server as servers  # noqa: E402
import weighted_models  # noqa: E402
from allocations import Allocations  # noqa: E402
from faulty import descriptors  # noqa: E402
from wire import ask  # noqa: E402

NO_MEMORY = re.compile("out of memory|no memory|Cannot allocate memory|has room for 0 of")
BATCHES = "dynamic_batching { preferred_batch_size: [ 2 ] max_queue_delay_microseconds: 5000000 }\n"


@pytest.fixture(params=weighted_models.ALL, ids=[framework.name for framework in weighted_models.ALL])
def framework(request):
    if request.param.missing():
        pytest.skip(request.param.missing())
    return request.param


class Subject:
    """A server with a model of the framework, whose backend's allocations fail when they are told to."""

    def __init__(self, framework, folder):
        self.framework, self.allocations = framework, Allocations(folder / "allocations")
        framework.write(folder / "models", "m")
        environment = {**framework.environment, **preload.environment("allocfault", ALLOC_LIBRARY=f"/libtriton_{framework.name}.so",
                                                                      ALLOC_COUNTS=str(self.allocations.path))}
        environment["LD_LIBRARY_PATH"] += ":" + framework.environment.get("LD_LIBRARY_PATH", "")
        self.server = servers.Server(folder / "models", env=environment, flags=["--model-control-mode=explicit"])

    def load(self):
        return ask(self.server, "POST", "/v2/repository/models/m/load")

    def unload(self):
        assert ask(self.server, "POST", "/v2/repository/models/m/unload").status == 200
        servers.wait_for(lambda: "UNAVAILABLE" in ask(self.server, "POST", "/v2/repository/index").body.decode(), 60, "it is unloaded")

    def infer(self):
        self.framework.assert_answers(self.server.url, "m")


@pytest.mark.parametrize("goes_on", [False, True], ids=["one fails", "all from one on fail"])
def test_a_load_without_memory_fails_clearly(framework, goes_on, tmp_path):
    tested = Subject(framework, tmp_path)
    with tested.server as server:
        assert tested.load().status == 200
        tested.infer()
        tested.unload()
        before, n_failed, n, met = descriptors(server), 0, 0, True
        while met:
            n += 1
            tested.allocations.fail(n, goes_on)
            answer = tested.load()
            met = tested.allocations.count() >= n
            tested.allocations.fail(0)
            if answer.status == 200:
                tested.infer()
                tested.unload()
                continue
            n_failed += 1
            assert NO_MEMORY.search(json.loads(answer.body)["error"]), (n, answer.body)
        assert n_failed > 20, "the backend's allocations are not seen"
        assert tested.load().status == 200
        tested.infer()
        tested.unload()
        servers.wait_for(lambda: descriptors(server) <= before, 60, f"{before} descriptors are open again")


@pytest.mark.parametrize("goes_on", [False, True], ids=["one fails", "all from one on fail"])
def test_requests_without_memory_are_refused(framework, goes_on, tmp_path):
    """The first batch after a load, for which an instance gets its memory. A batch that fails is repeated request by request, so one
    missing allocation fails a request only if it is that for the list of the batch."""
    tested = Subject(framework, tmp_path)
    file = tmp_path / "models/m/config.pbtxt"
    file.write_text(file.read_text() + BATCHES)

    def ask_once(_):
        try:
            tested.infer()
        except InferenceServerException as error:
            return error.message()
        return ""

    def ask_both():
        with futures.ThreadPoolExecutor(2) as clients:
            return list(clients.map(ask_once, range(2)))

    with tested.server:
        n, met, n_failed = 0, True, 0
        while met:
            n += 1
            assert tested.load().status == 200
            tested.allocations.fail(n, goes_on)
            answers = ask_both()
            met = tested.allocations.count() >= n
            tested.allocations.fail(0)
            assert all(NO_MEMORY.search(answer) for answer in answers if answer), (n, answers)
            n_failed += any(answers)
            assert ask_both() == ["", ""]
            tested.unload()
        assert n > 1 and (n_failed > 0 if goes_on else n_failed <= 1), (n, n_failed)
