# SPDX-License-Identifier: Apache-2.0
"""A model is reloaded 300 times while clients ask ensembles that it belongs to: each request is answered, as the models were
when it began. In the genuine Triton, too, which gets a hundred reloads."""

import concurrent.futures
import json
import threading

import pytest

import pipelines
import server as servers
import wire
from pipelines import Stage, command, ensemble, step

RELOADS = {"conch": 40 if servers.SANITIZED else 300, "triton": 100}
CLIENTS = 4
SUMS = {10: 22, 20: 42}    # of two steps of b, and two of others: by what b adds


def write_models(root):
    stages = {name: Stage(root, name, add=add) for name, add in (("a", 1), ("b", 10))}
    ensemble(root, "e", ("X",), ("Y",), step("a", "IN=X", "OUT=M"), step("b", "IN=M", "OUT=N"), step("b", "IN=N", "OUT=O"),
             step("a", "IN=O", "OUT=Y"))
    ensemble(root, "f", ("X",), ("Y",), step("e", "X=X", "Y=Y"))
    return stages


@pytest.mark.parametrize("which", pipelines.EITHER)
def test_reloads_of_a_model_are_not_seen_by_requests(which, tmp_path):
    """Both steps of a request have the same b, the old one or the new one."""
    write_models(tmp_path)
    config = tmp_path / "b/config.pbtxt"
    done = threading.Event()

    def reload(server):
        text = config.read_text()
        try:
            for i in range(RELOADS[which]):
                add = 20 if i % 2 == 0 else 10
                config.write_text(text.replace('string_value: "10"', f'string_value: "{add}"'))
                assert command(server, "load", "b") == (200, "")
        finally:
            done.set()
        return add

    def keep_asking(server, number):
        model, asked, seen = "ef"[number % 2], 0, set()
        with wire.Connection(server) as connection:
            while not done.is_set():
                asked += 1
                body = json.dumps({"inputs": [wire.given("X", "INT32", [1], [asked])]}).encode()
                answer = connection.request("POST", f"/v2/models/{model}/infer", body)
                assert answer.status == 200, answer
                (got,) = answer.json()["outputs"][0]["data"]
                assert got - asked in SUMS.values(), (asked, got)
                seen.add(got - asked)
        return seen

    with pipelines.start(which, tmp_path, flags=["--model-control-mode=explicit", "--load-model=*"]) as server, \
            concurrent.futures.ThreadPoolExecutor(CLIENTS + 1) as pool:
        asking = [pool.submit(keep_asking, server, i) for i in range(CLIENTS)]
        add = pool.submit(reload, server).result()
        seen = set().union(*(one.result() for one in asking))
        assert pipelines.ask(server, "http", "f", {"X": [0]})["Y"] == [SUMS[add]]
    assert seen <= set(SUMS.values())
