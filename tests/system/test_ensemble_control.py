# SPDX-License-Identifier: Apache-2.0
"""Ensembles and their members are loaded, reloaded and unloaded together, and a stop ends ensembles first."""

import json
import random
import re
import shutil
import signal
import threading

import pytest

import repository
import triton
from server import REFERENCE, SANITIZED, Server, wait_for
from test_model_control import EXPLICIT, later, load, running, states, unload
from wire import Connection, given, infer, request_bytes

OURS = pytest.mark.conch_only("is about our server")
ONE = {"inputs": [given("INPUT0", "FP32", [1], [1])]}


def tensors(datatype="FP32"):
    return repository.tensor("input", "INPUT0", datatype, [-1]) + repository.tensor("output", "OUTPUT0", datatype, [-1])


def write_ensemble(root, name, members, datatype="FP32", version=-1):
    """Its members are the steps, one after the other."""
    config = f'name: "{name}"\nplatform: "ensemble"\n{tensors(datatype)}ensemble_scheduling {{\n'
    names = ["INPUT0", *(f"between{i}" for i in range(1, len(members))), "OUTPUT0"]
    for member, reads, writes in zip(members, names, names[1:]):
        config += (f'step [ {{ model_name: "{member}" model_version: {version} input_map {{ key: "INPUT0" value: "{reads}" }} '
                   f'output_map {{ key: "OUTPUT0" value: "{writes}" }} }} ]\n')
    return repository.write_model(root, name, config + "}\n")


def write_plain(root, name, datatype="FP32", versions=(1,), more=""):
    return repository.write_model(root, name, f'name: "{name}"\nbackend: "identity"\n{tensors(datatype)}{more}', versions)


def edit(folder, old, new):
    config = folder / "config.pbtxt"
    config.write_text(config.read_text().replace(old, new))
    later(config)


def write_models(root):
    for name in ("a", "b", "own"):
        write_plain(root, name)
    write_ensemble(root, "e", ["a", "b"])
    write_ensemble(root, "outer", ["e", "own"])
    return root


def ready(server):
    return {name for name, state in states(server).items() if state == "READY"}


def ready_now(server):
    """Once what is unloaded has gone."""
    wait_for(lambda: "UNLOADING" not in states(server).values(), 60, "what is unloaded has gone")
    return ready(server)


# ---- Compared with the genuine Triton


class Script:
    def __init__(self, server, root):
        self.server, self.root, self.answers = server, root, []

    def note(self, what, answer):
        text = answer.body.decode()
        text = re.sub(r" \([^ ]*config.pbtxt:\d+:\d+\)", "", text)    # our errors have a position, …
        text = re.sub(r" Searched for .*?(?=;)", "", text)            # … and where a library was looked for
        self.answers.append((what, answer.status, text, ready_now(self.server)))

    def load(self, model):
        self.note(f"load {model}", load(self.server, model))

    def unload(self, model, **parameters):
        self.note(f"unload {model} {parameters}", unload(self.server, model, **parameters))


def come_and_go(s):
    s.load("outer")
    later(s.root / "a/config.pbtxt")
    s.load("a")
    edit(s.root / "a", "TYPE_FP32", "TYPE_INT32")
    s.load("a")
    s.note("infer e", infer(s.server, "e", ONE))
    edit(s.root / "a", "TYPE_INT32", "TYPE_FP32")
    s.load("a")
    s.unload("b")
    s.note("infer outer", infer(s.server, "outer", ONE))
    s.load("b")
    s.unload("outer")
    s.load("outer")


def take_members_along(s):
    write_ensemble(s.root, "f", ["a"])
    s.load("a")
    s.load("outer")
    s.load("f")
    s.unload("outer", unload_dependents=True)
    s.unload("a")
    s.load("f")
    s.load("e")
    s.unload("e", unload_dependents=True)
    s.unload("f", unload_dependents=True)


def fail(s):
    write_ensemble(s.root, "lacks", ["a", "missing"])
    repository.write_model(s.root, "nolib", f'name: "nolib"\nbackend: "nothere"\n{tensors()}')
    write_ensemble(s.root, "with_nolib", ["a", "nolib"])
    write_ensemble(s.root, "above", ["own", "with_nolib"])
    repository.write_model(s.root, "broken", "nonsense {")
    write_ensemble(s.root, "with_broken", ["broken"])
    write_ensemble(s.root, "c1", ["c2"])
    write_ensemble(s.root, "c2", ["c1"])
    write_ensemble(s.root, "itself", ["itself"])
    write_ensemble(s.root, "other_type", ["a"], "INT32")
    write_ensemble(s.root, "other_version", ["a"], version=7)
    for model in ("lacks", "with_nolib", "above", "with_broken", "c1", "itself", "other_type", "other_version"):
        s.load(model)


def drop_a_version(s):
    folder = write_plain(s.root, "two", versions=(1, 2), more="version_policy { all { } }\n")
    write_ensemble(s.root, "first", ["two"], version=1)
    write_ensemble(s.root, "latest", ["two"])
    s.load("first")
    s.load("latest")
    edit(folder, "all { }", "specific { versions: [ 2 ] }")
    s.load("two")
    edit(folder, "identity", "nothere")
    s.load("two")
    edit(folder, "nothere", "identity")
    edit(folder, "[ 2 ]", "[ 1, 2 ]")
    s.load("two")


@triton.needed
@pytest.mark.skipif(REFERENCE, reason="is about our server")
@pytest.mark.parametrize("script", [come_and_go, take_members_along, fail, drop_a_version])
def test_answers_are_those_of_the_genuine_triton(tmp_path, script):
    answers = []
    for which, kind in (("ours", Server), ("theirs", triton.Triton)):
        root = tmp_path / which
        root.mkdir()
        write_models(root)
        with running(kind(root, flags=[EXPLICIT])) as server:
            s = Script(server, root)
            script(s)
        answers.append(s.answers)
    for ours, theirs in zip(*answers, strict=True):
        assert ours == theirs


# ---- The start, mode poll


def test_at_the_start_ensembles_follow_their_members(models):
    write_models(models)
    with Server(models, flags=[EXPLICIT, "--load-model=outer"]) as server:
        assert ready(server) == {"a:1", "b:1", "own:1", "e:1", "outer:1"}
        assert unload(server, "outer", unload_dependents=True).status == 200
        assert ready_now(server) == set()


@pytest.mark.parametrize("threads", [1, 8])
def test_one_thread_is_enough_for_a_start(models, threads):
    """No load waits for another one with a thread of its own."""
    write_models(models)
    for i in range(20):
        write_ensemble(models, f"above{i:02}", ["outer" if i == 0 else f"above{i - 1:02}"])
    with Server(models, flags=[f"--model-load-thread-count={threads}"]) as server:
        assert len(ready(server)) == 25


@OURS
def test_a_start_tells_what_ensembles_lack(models):
    write_models(models)
    write_ensemble(models, "c1", ["c2"])
    write_ensemble(models, "c2", ["c1"])
    write_ensemble(models, "behind", ["c1"])
    shutil.rmtree(models / "own")
    with Server(models, flags=["--exit-on-error=false", "--strict-readiness=false"]) as server:
        seen = {name: re.sub(r" \(.*?:\d+:\d+\)", "", state) for name, state in states(server).items()}
    circle = "circular dependency between ensembles:"
    assert seen == {
        "a:1": "READY", "b:1": "READY", "e:1": "READY",
        "outer:1": "Invalid argument: ensemble outer contains models that are not available or ambiguous: own",
        "c1:1": f"Invalid argument: {circle} c1 -> ... -> c2 -> c1",
        "c2:1": f"Invalid argument: {circle} c2 -> ... -> c1 -> c2",
        "behind:1": f"Invalid argument: ensemble 'behind' depends on 'c1' which is not valid. Model 'c1' failed with error: {circle} "
                    "c1 -> ... -> c2 -> c1",
    }


def test_poll_mode_follows_members(models):
    write_models(models)
    everything = {"a:1", "b:1", "own:1", "e:1", "outer:1"}
    with Server(models, flags=["--model-control-mode=poll", "--repository-poll-secs=1"]) as server:
        assert ready(server) == everything
        edit(models / "a", "TYPE_FP32", "TYPE_INT32")
        wait_for(lambda: ready(server) == {"a:1", "b:1", "own:1"}, 60, "the ensembles do not fit")
        edit(models / "a", "TYPE_INT32", "TYPE_FP32")
        wait_for(lambda: ready(server) == everything, 60, "they fit again")
        (models / "b").rename(models.parent / "moved")
        wait_for(lambda: ready(server) == {"a:1", "own:1"}, 60, "a member is gone")
        (models.parent / "moved").rename(models / "b")
        wait_for(lambda: ready(server) == everything, 60, "it is back")


# ---- Under load


@OURS
def test_an_ensemble_that_serves_fits_its_member(models):
    """A member changes its type again and again. A request of the ensemble gets its own number, or is told that no version serves."""
    write_models(models)
    done, wrong, right = threading.Event(), [], []

    def keep_asking(server):
        with Connection(server) as connection:
            i = 0
            while not done.is_set():
                i += 1
                body = json.dumps({"inputs": [given("INPUT0", "FP32", [1], [i])]}).encode()
                answer = connection.request("POST", "/v2/models/outer/infer", body)
                if answer.status == 200 and answer.json()["outputs"][0]["data"] == [i]:
                    right.append(i)
                elif not re.search("has no available versions|is not at ready state", answer.body.decode()):
                    wrong.append(answer)

    with Server(models, flags=[EXPLICIT]) as server:
        assert load(server, "outer").status == 200
        threads = [threading.Thread(target=keep_asking, args=(server,)) for _ in range(3)]
        for thread in threads:
            thread.start()
        try:
            for i in range(10 if SANITIZED else 100):
                datatypes = ("FP32", "INT32") if i % 2 == 0 else ("INT32", "FP32")
                edit(models / "a", *(f"TYPE_{datatype}" for datatype in datatypes))
                assert load(server, "a").status == 200
                assert ("outer:1" in ready(server)) == (i % 2 == 1)
            wait_for(lambda: right, 60, "a request is answered")
        finally:
            done.set()
            for thread in threads:
                thread.join()
        assert not wrong, wrong[0]


def write_held_ensemble(root):
    """Its first step waits for a gate; the second one is the plain model `fast`, the third one an ensemble of that."""
    slow = repository.Gated(root, "slow").shut("hold.execute")
    write_plain(root, "fast", "INT32")
    write_ensemble(root, "inner", ["fast"], "INT32")
    steps = "".join(f'step [ {{ model_name: "{member}" model_version: -1 input_map {{ key: "{key_in}" value: "{reads}" }} '
                    f'output_map {{ key: "{key_out}" value: "{writes}" }} }} ]\n'
                    for member, key_in, reads, key_out, writes in (("slow", "IN", "IN", "OUT", "one"),
                                                                   ("fast", "INPUT0", "one", "OUTPUT0", "two"),
                                                                   ("inner", "INPUT0", "two", "OUTPUT0", "OUT")))
    tensors_of_whole = repository.tensor("input", "IN", "INT32", [-1]) + repository.tensor("output", "OUT", "INT32", [-1])
    repository.write_model(root, "whole", f'name: "whole"\nplatform: "ensemble"\n{tensors_of_whole}ensemble_scheduling {{\n{steps}}}\n')
    return slow


def held_body(number):
    return json.dumps({"inputs": [given("IN", "INT32", [1], [number])]}).encode()


@OURS
def test_a_stop_lets_ensembles_finish(models):
    """An accepted request gets all its steps, also those that begin after the stop; and no other one is accepted."""
    slow = write_held_ensemble(models)
    with Server(models) as server:
        held = [Connection(server) for _ in range(3)]
        for i, connection in enumerate(held):
            connection.send(request_bytes("POST", "/v2/models/whole/infer", held_body(i)))
            wait_for(connection.taken, 60, "the server has read the request")
        slow.await_reached("hold.execute")
        server.signal(signal.SIGTERM)
        server.wait_log("HTTP service connections")
        slow.open("hold.execute")
        for i, connection in enumerate(held):
            answer = connection.response()
            assert (answer.status, answer.json()["outputs"][0]["data"]) == (200, [i]), answer


@OURS
def test_a_reload_lets_ensembles_finish(models):
    """A request ends with the models with which it began, also when one of them is unloaded meanwhile."""
    slow = write_held_ensemble(models)
    with Server(models, flags=[EXPLICIT]) as server:
        assert load(server, "whole").status == 200
        held = Connection(server)
        held.send(request_bytes("POST", "/v2/models/whole/infer", held_body(5)))
        slow.await_reached("hold.execute")
        assert unload(server, "fast").status == 200
        seen = states(server)
        assert (seen["fast:1"], seen["slow:1"]) == ("UNLOADING", "READY")
        assert seen["whole:1"].startswith("Invalid argument: ensemble 'whole' depends on 'inner' which is not valid"), seen
        slow.open("hold.execute")
        answer = held.response()
        assert (answer.status, answer.json()["outputs"][0]["data"]) == (200, [5])
        wait_for(lambda: states(server)["fast:1"] == "unloaded", 60, "the last request has ended")


@OURS
def test_related_changes_at_once_end(models):
    """Clients load and unload ensembles and their parts in all orders: none waits for ever, and the last load serves."""
    names = ["a", "b", "own", "e", "outer", "other"]
    write_ensemble(write_models(models), "other", ["own", "e", "a"])
    odd = []

    def change(server, seed):
        chance = random.Random(seed)
        with Connection(server) as connection:
            for _ in range(10 if SANITIZED else 40):
                name, what = chance.choice(names), chance.choice(["load", "load", "unload"])
                body = json.dumps({"parameters": {"unload_dependents": chance.random() < 0.5}} if what == "unload" else {})
                answer = connection.request("POST", f"/v2/repository/models/{name}/{what}", body.encode())
                if answer.status not in (200, 400):    # 400: a part has just been unloaded
                    odd.append((name, what, answer))

    with Server(models, flags=[EXPLICIT, "--model-load-thread-count=2"]) as server:
        threads = [threading.Thread(target=change, args=(server, seed)) for seed in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not odd, odd[0]
        for name in ("outer", "other"):
            assert load(server, name).status == 200
            with Connection(server) as connection:
                answer = connection.request("POST", f"/v2/models/{name}/infer", json.dumps(ONE).encode())
                assert (answer.status, answer.json()["outputs"][0]["data"]) == (200, [1]), answer
        assert ready_now(server) == {f"{name}:1" for name in names}
