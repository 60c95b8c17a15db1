# SPDX-License-Identifier: Apache-2.0
"""A load that changes only instance_group, or the version policy, keeps the model that is loaded (reference/behaviours
§13.8): its backend is not initialised again, and its statistics go on. In the genuine Triton, too; the backend is witness
(tests/plugins/witness)."""

import concurrent.futures
import json
import os
import shutil
import threading

import pytest

import pipelines
import repository
import server as servers
import wire
from pipelines import EITHER, command
from test_metrics import FLAGS as METRICS, scrape
from test_model_control import later

LIBRARY = servers.BUILD / "tests/backends/witness/libtriton_witness.so"
EXPLICIT = ["--model-control-mode=explicit", "--load-model=*"]
UPDATES = {"conch": 30 if servers.SANITIZED else 200, "triton": 40}
CLIENTS = 16


class Witness:
    """A model m, whose configuration a test writes again and again."""

    def __init__(self, root, groups, more="", versions=(1,), **parameters):
        self.folder = repository.write_model(root, "m", self.text(groups, more, **parameters), versions)
        shutil.copy(LIBRARY, self.folder)

    @staticmethod
    def text(groups, more="", **parameters):
        text = 'name: "m"\nbackend: "witness"\n' + more
        text += repository.tensor("input", "IN", "INT32", [1]) + repository.tensor("output", "OUT", "BYTES", [1])
        for key, value in parameters.items():
            text += f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n'
        return text + f"instance_group [ {groups} ]\n"

    def write(self, groups, more="", **parameters):
        (self.folder / "config.pbtxt").write_text(self.text(groups, more, **parameters))

    def load(self, server, groups, more="", **parameters):
        self.write(groups, more, **parameters)
        assert command(server, "load", "m") == (200, "")


def start(which, root, *flags):
    return pipelines.start(which, root, flags=[*EXPLICIT, *flags])


def ask(server, version=None):
    path = "/v2/models/m" + (f"/versions/{version}" if version else "") + "/infer"
    answer = wire.ask(server, "POST", path, {"inputs": [wire.given("IN", "INT32", [1], [0])]})
    assert answer.status == 200, answer.body
    return json.loads(answer.json()["outputs"][0]["data"][0])


def names(server, version=None):
    return [instance["name"] for instance in ask(server, version)["instances"]]


def await_names(server, expected):
    """Instances that the model has no longer end in the background."""
    servers.wait_for(lambda: sorted(names(server)) == expected, 60, f"the instances are {expected}")


def counted(server, version="1"):
    return pipelines.statistics(server, "m", version)["success"][0]


def groups_of(server):
    config = wire.ask(server, "GET", "/v2/models/m/config").json()
    return [(group["name"], group["count"]) for group in config["instance_group"]]


@pytest.mark.parametrize("which", EITHER)
def test_instances_come_and_go_while_the_model_stays(which, tmp_path):
    model = Witness(tmp_path, "{ count: 1 kind: KIND_CPU }")
    with start(which, tmp_path) as server:
        assert names(server) == ["m_0_0"]
        before = counted(server)
        model.load(server, "{ count: 3 kind: KIND_CPU }")
        assert sorted(names(server)) == ["m_0_0", "m_0_1", "m_0_2"]
        assert counted(server) == before + 1
        assert groups_of(server) == [("m_0", 3)]
        model.load(server, "{ count: 3 kind: KIND_CPU }, { count: 1 kind: KIND_MODEL }")
        assert sorted(names(server)) == ["m_0_0", "m_0_1", "m_0_2", "m_1_0"]
        model.load(server, "{ count: 1 kind: KIND_MODEL }")
        await_names(server, ["m_1_0"])    # it stays, though its group has another name
        assert groups_of(server) == [("m_0", 1)]
        assert ask(server)["executed"]["by"] == "m_1_0"
        assert counted(server) >= before + 4
        assert "finalized model" not in server.log()
        assert server.log().count("witness: initialized instance") == 4
        assert server.log().count("successfully loaded 'm'") == 4


@pytest.mark.parametrize("which", EITHER)
def test_any_other_change_loads_the_model_anew(which, tmp_path):
    model = Witness(tmp_path, "{ count: 1 kind: KIND_CPU }")
    with start(which, tmp_path) as server:
        ask(server)
        model.load(server, "{ count: 2 kind: KIND_CPU }", other="x")
        server.wait_log("finalized model m")
        ask(server)
        assert counted(server) == 1
        (model.folder / "1" / "file").write_text("x")
        model.load(server, "{ count: 1 kind: KIND_CPU }", other="x")
        servers.wait_for(lambda: server.log().count("finalized model m") == 2, 60, "the model is loaded anew")
        assert counted(server) == 0


@pytest.mark.parametrize("which", EITHER)
def test_a_host_policy_may_come_and_go(which, tmp_path):
    """The first instance that is bound to CPUs executes there, and the last one that loses them everywhere."""
    cpus = sorted(os.sched_getaffinity(0))
    free, bound = "{ count: 1 kind: KIND_CPU }", '{ count: 1 kind: KIND_CPU host_policy: "mine" }'
    model = Witness(tmp_path, free)
    with start(which, tmp_path, f"--host-policy=mine,cpu-cores={cpus[-1]}-{cpus[-1]}") as server:
        for round_ in range(3):
            for _ in range(20):  # until it executes inline, where that is the way
                where = ask(server)["executed"]["at"]["cpus"]
            assert where == ",".join(map(str, cpus))
            model.load(server, bound)
            for _ in range(20):
                assert ask(server)["executed"]["at"]["cpus"] == str(cpus[-1])
            model.load(server, free)
            assert counted(server) == 40 * (round_ + 1)
        assert "finalized model" not in server.log()


@pytest.mark.parametrize("which", EITHER)
def test_instances_change_of_which_one_executes_at_a_time(which, tmp_path):
    model = Witness(tmp_path, "{ count: 1 kind: KIND_CPU }")
    with start(which, tmp_path, "--backend-config=witness,device-blocking=1") as server:
        ask(server)
        model.load(server, "{ count: 2 kind: KIND_CPU }, { count: 1 kind: KIND_MODEL }")
        assert sorted(names(server)) == ["m_0_0", "m_0_1", "m_1_0"]
        model.load(server, "{ count: 1 kind: KIND_MODEL }")
        await_names(server, ["m_1_0"])
        assert counted(server) >= 3
        assert "finalized model" not in server.log()


@pytest.mark.parametrize("which", EITHER)
def test_instances_that_cannot_be_made_change_nothing(which, tmp_path):
    model = Witness(tmp_path, "{ count: 1 kind: KIND_CPU }", fail="m_0_2")
    with start(which, tmp_path) as server:
        ask(server)
        model.write("{ count: 3 kind: KIND_CPU }", fail="m_0_2")
        status, error = command(server, "load", "m")
        assert status == 400
        assert error.startswith("load failed for model 'm': version 1 is at READY state: Internal: this instance does not want to;")
        assert names(server) == ["m_0_0"]
        assert groups_of(server) == [("m_0", 1)]
        assert counted(server) == 2
        assert pipelines.index(server)["m", "1"][0] == "READY"
        model.load(server, "{ count: 2 kind: KIND_CPU }", fail="m_0_2")
        assert sorted(names(server)) == ["m_0_0", "m_0_1"]
        assert "finalized model" not in server.log()


@pytest.mark.parametrize("which", EITHER)
def test_versions_that_the_policy_keeps_stay(which, tmp_path):
    cpu = "{ count: 1 kind: KIND_CPU }"
    model = Witness(tmp_path, cpu, versions=(1, 2))
    with start(which, tmp_path) as server:
        ask(server, 2)
        model.load(server, cpu, "version_policy { all {} }\n")
        ask(server, 1)
        assert counted(server, "2") == 1
        model.load(server, "{ count: 2 kind: KIND_CPU }", "version_policy { specific { versions: 1 } }\n")
        server.wait_log("finalized model m")
        assert counted(server, "1") == 1
        assert sorted(names(server, 1)) == ["m_0_0", "m_0_1"]
        assert not pipelines.is_ready(server, "m", "2")
        assert server.log().count("finalized model") == 1


@pytest.mark.parametrize("which", EITHER)
def test_a_configuration_in_the_request_changes_in_place(which, tmp_path):
    Witness(tmp_path, "{ count: 1 kind: KIND_CPU }")
    with start(which, tmp_path) as server:
        ask(server)
        config = wire.ask(server, "GET", "/v2/models/m/config").json()
        config["instance_group"][0]["count"] = 2
        assert command(server, "load", "m", {"parameters": {"config": json.dumps(config)}}) == (200, "")
        assert sorted(names(server)) == ["m_0_0", "m_0_1"]
        assert counted(server) == 2
        assert "finalized model" not in server.log()


SEQUENCES = "sequence_batching { max_sequence_idle_microseconds: 600000000 STRATEGY }\n"
STRATEGIES = {"direct": SEQUENCES.replace("STRATEGY", "direct { }"), "oldest": SEQUENCES.replace("STRATEGY", "oldest { max_candidate_sequences: 1 }")}


def ask_sequence(server, number, **flags):
    answer = wire.infer(server, "m", {"inputs": [wire.given("IN", "INT32", [1], [0])], "parameters": {"sequence_id": number, **flags}})
    assert answer.status == 200, answer.body
    return json.loads(answer.json()["outputs"][0]["data"][0])["executed"]["by"]


@pytest.mark.parametrize("which", EITHER)
def test_sequences_go_on_when_instances_come(which, tmp_path):
    more = STRATEGIES["direct"]
    model = Witness(tmp_path, "{ count: 1 kind: KIND_CPU }", more)
    with start(which, tmp_path) as server, concurrent.futures.ThreadPoolExecutor(1) as pool:
        assert ask_sequence(server, 1, sequence_start=True) == "m_0_0"
        if which == "conch":    # in the genuine Triton it still waits a minute later
            waits = pool.submit(ask_sequence, server, 2, sequence_start=True)    # for a slot
        assert ask_sequence(server, 1) == "m_0_0"
        model.load(server, "{ count: 2 kind: KIND_CPU }", more)
        assert ask_sequence(server, 1) == "m_0_0"
        if which == "triton":
            waits = pool.submit(ask_sequence, server, 2, sequence_start=True)
        assert waits.result() == "m_0_1"
        assert ask_sequence(server, 2, sequence_end=True) == "m_0_1"
        assert ask_sequence(server, 1, sequence_end=True) == "m_0_0"
        assert counted(server) == 6
        assert "finalized model" not in server.log()


@pytest.mark.parametrize("strategy", ["direct", "oldest"])
@pytest.mark.parametrize("which", EITHER)
def test_a_sequence_keeps_the_instance_that_leaves(which, strategy, tmp_path):
    more = STRATEGIES[strategy]
    model = Witness(tmp_path, "{ count: 2 kind: KIND_CPU }", more)
    with start(which, tmp_path) as server, concurrent.futures.ThreadPoolExecutor(1) as pool:
        by = {ask_sequence(server, number, sequence_start=True): number for number in (1, 2)}
        assert sorted(by) == ["m_0_0", "m_0_1"]
        model.load(server, "{ count: 1 kind: KIND_CPU }", more)
        assert groups_of(server) == [("m_0", 1)]
        stays, leaves = by["m_0_0"], by["m_0_1"]
        if which == "conch":    # in the genuine Triton it gets a slot of m_0_1
            waits = pool.submit(ask_sequence, server, 3, sequence_start=True, sequence_end=True)
        assert ask_sequence(server, leaves) == "m_0_1"
        assert ask_sequence(server, leaves, sequence_end=True) == "m_0_1"
        if which == "conch":    # the genuine Triton has not ended it a minute later
            server.wait_log("finalized instance m_0_1")
            assert not waits.done()    # no slot of the instance that left was one for it
        assert ask_sequence(server, stays) == "m_0_0"
        assert ask_sequence(server, stays, sequence_end=True) == "m_0_0"
        if which == "conch":
            assert waits.result() == "m_0_0"
        assert counted(server) == {"conch": 7, "triton": 6}[which]
        assert "finalized model" not in server.log()


@pytest.mark.parametrize("which", EITHER)
def test_silence_ends_an_instance_that_leaves(which, tmp_path):
    more = "sequence_batching { max_sequence_idle_microseconds: 1000000 }\n"
    model = Witness(tmp_path, '{ name: "old" kind: KIND_CPU }', more)
    with start(which, tmp_path) as server:
        assert ask_sequence(server, 1, sequence_start=True) == "old_0"
        model.load(server, '{ name: "new" kind: KIND_MODEL }', more)
        assert ask_sequence(server, 2, sequence_start=True, sequence_end=True) == "new_0"
        server.wait_log("finalized instance old_0")
        assert "finalized model" not in server.log()


@pytest.mark.parametrize("end", ["unload", "reload", "stop"])
@pytest.mark.conch_only("what becomes of a sequence without a request when its model goes is each server's own")
def test_a_model_ends_while_an_instance_keeps_a_sequence(end, tmp_path):
    more = STRATEGIES["direct"]
    model = Witness(tmp_path, '{ name: "old" kind: KIND_CPU }', more)
    with start("conch", tmp_path, "--exit-timeout-secs=1") as server:
        assert ask_sequence(server, 1, sequence_start=True) == "old_0"
        model.load(server, '{ name: "new" kind: KIND_MODEL }', more)
        assert ask_sequence(server, 2, sequence_start=True) == "new_0"
        assert ask_sequence(server, 1) == "old_0"
        assert "finalized" not in server.log()
        if end == "unload":
            assert command(server, "unload", "m") == (200, "")
        elif end == "reload":
            model.load(server, '{ name: "new" kind: KIND_MODEL }', more, other="x")
        else:
            server.signal(servers.signal.SIGTERM)
            server.wait()
        server.wait_log("finalized model m")
        assert server.log().index("finalized instance old_0") < server.log().index("finalized model m")


@pytest.mark.conch_only("sequences that wait get slots of new instances; in the genuine Triton they go on waiting")
@pytest.mark.parametrize("strategy", ["direct", "oldest"])
@pytest.mark.sanitize
def test_no_sequence_fails_while_instances_come_and_go(strategy, tmp_path):
    more = STRATEGIES[strategy]
    model = Witness(tmp_path, "{ count: 2 kind: KIND_CPU }", more)
    done = threading.Event()

    def update(server):
        try:
            for i in range(UPDATES["conch"] // 2):
                model.load(server, f"{{ count: {1 + i % 4} kind: KIND_CPU }}, {{ count: {1 + i % 3} kind: KIND_MODEL }}", more)
        finally:
            done.set()

    def keep_asking(server, number):
        n = 0
        while not done.is_set():
            by = {ask_sequence(server, number, sequence_start=step == 0, sequence_end=step == 3) for step in range(4)}
            assert len(by) == 1, by
            n += 4
        return n

    with start("conch", tmp_path) as server, concurrent.futures.ThreadPoolExecutor(CLIENTS + 1) as pool:
        asking = [pool.submit(keep_asking, server, 1 + i) for i in range(CLIENTS)]
        pool.submit(update, server).result()
        n = sum(one.result() for one in asking)
        assert counted(server) == n
        assert "finalized model" not in server.log()


@pytest.mark.parametrize("which", EITHER)
def test_mode_poll_changes_in_place(which, tmp_path):
    model = Witness(tmp_path, "{ count: 1 kind: KIND_CPU }")
    with pipelines.start(which, tmp_path, flags=["--model-control-mode=poll", "--repository-poll-secs=1"]) as server:
        ask(server)
        before = counted(server)
        model.write("{ count: 3 kind: KIND_CPU }")
        later(model.folder / "config.pbtxt")
        await_names(server, ["m_0_0", "m_0_1", "m_0_2"])
        assert counted(server) > before
        assert "finalized model" not in server.log()


@pytest.mark.parametrize("which", EITHER)
def test_limits_follow_the_instances(which, tmp_path):
    def needs(count, resource):
        return f'{{ count: {count} kind: KIND_CPU rate_limiter {{ resources [ {{ name: "R" count: {resource} }} ] }} }}'

    model = Witness(tmp_path, needs(1, 2))
    with start(which, tmp_path, "--rate-limit=execution_count", "--rate-limit-resource=R:3") as server:
        ask(server)
        model.load(server, needs(3, 2))
        assert sorted(names(server)) == ["m_0_0", "m_0_1", "m_0_2"]
        model.load(server, needs(1, 3))    # another need: another kind of instance
        await_names(server, ["m_0_0"])
        before = counted(server)
        for _ in range(20):
            ask(server)
        assert counted(server) == before + 20
        assert "finalized model" not in server.log()


@pytest.mark.parametrize("which", EITHER)
def test_an_instance_that_needs_too_much_changes_nothing(which, tmp_path):
    model = Witness(tmp_path, "{ kind: KIND_CPU }")
    with start(which, tmp_path, "--rate-limit=execution_count", "--rate-limit-resource=R:3") as server:
        model.write('{ kind: KIND_CPU rate_limiter { resources [ { name: "R" count: 4 } ] } }')
        status, error = command(server, "load", "m")
        assert status == 400
        assert "version 1 is at READY state: Invalid argument: Resource count for \"R\" is limited to 3" in error
        assert names(server) == ["m_0_0"]
        model.load(server, '{ count: 2 kind: KIND_CPU rate_limiter { resources [ { name: "R" count: 3 } ] } }')
        ask(server)
        assert "finalized model" not in server.log()


@pytest.mark.parametrize("which", EITHER)
def test_an_ensemble_stays_when_its_member_changes_in_place(which, tmp_path):
    model = Witness(tmp_path, "{ count: 1 kind: KIND_CPU }")
    tensors = repository.tensor("input", "X", "INT32", [1]) + repository.tensor("output", "Y", "BYTES", [1])
    repository.write_model(tmp_path, "e", 'name: "e"\nplatform: "ensemble"\n' + tensors + """ensemble_scheduling { step [
        { model_name: "m" model_version: -1 input_map { key: "IN" value: "X" } output_map { key: "OUT" value: "Y" } } ] }""")

    def ask_ensemble(server):
        answer = wire.infer(server, "e", {"inputs": [wire.given("X", "INT32", [1], [0])]})
        assert answer.status == 200, answer.body
        return len(json.loads(answer.json()["outputs"][0]["data"][0])["instances"])

    with start(which, tmp_path) as server:
        assert ask_ensemble(server) == 1
        model.load(server, "{ count: 2 kind: KIND_CPU }")
        assert ask_ensemble(server) == 2
        # The genuine Triton loads the ensemble again, whose statistics begin at 0. A request of an ensemble is
        # counted after its answer has left.
        count = {"conch": 2, "triton": 1}[which]
        servers.wait_equal(lambda: pipelines.statistics(server, "e")["success"][0], count, "the ensemble's requests are counted")
        assert counted(server) == 2


@pytest.mark.parametrize("which", EITHER)
@pytest.mark.sanitize
def test_no_request_fails_while_instances_come_and_go(which, tmp_path):
    model = Witness(tmp_path, "{ count: 2 kind: KIND_CPU }")
    done = threading.Event()

    def update(server):
        try:
            for i in range(UPDATES[which]):
                model.load(server, f"{{ count: {1 + i % 4} kind: KIND_CPU }}, {{ count: {1 + i % 3} kind: KIND_MODEL }}")
        finally:
            done.set()

    def keep_asking(server):
        n = 0
        body = json.dumps({"inputs": [wire.given("IN", "INT32", [1], [0])]}).encode()
        with wire.Connection(server) as connection:
            while not done.is_set():
                answer = connection.request("POST", "/v2/models/m/infer", body)
                assert answer.status == 200, answer
                n += 1
        return n

    with start(which, tmp_path) as server, concurrent.futures.ThreadPoolExecutor(CLIENTS + 1) as pool:
        asking = [pool.submit(keep_asking, server) for _ in range(CLIENTS)]
        pool.submit(update, server).result()
        n = sum(one.result() for one in asking)
        assert counted(server) == n
        assert "finalized model" not in server.log()


@pytest.mark.conch_only("asks for what only Conch promises: the load does not wait for executions")
def test_a_busy_instance_ends_when_it_has_answered(tmp_path):
    hold = tmp_path / "hold"
    root = tmp_path / "models"
    root.mkdir()
    model = Witness(root, '{ name: "old" kind: KIND_CPU }', hold=hold)
    with start("conch", root, *METRICS) as server, concurrent.futures.ThreadPoolExecutor(2) as pool:
        hold.touch()
        first = pool.submit(ask, server)
        servers.wait_for((tmp_path / "hold.reached.old_0").exists, 60, "the old instance executes")
        second = pool.submit(ask, server)    # waits, since there is no other instance
        servers.wait_for(lambda: scrape(server).of("nv_inference_pending_request_count", "m") == 1, 60, "the second request waits")
        model.load(server, '{ name: "new" kind: KIND_MODEL }', hold=hold)
        servers.wait_for((tmp_path / "hold.reached.new_0").exists, 60, "the new instance executes what has waited")
        assert "finalized instance" not in server.log()
        hold.unlink()
        assert first.result()["executed"]["by"] == "old_0"
        assert second.result()["executed"]["by"] == "new_0"
        await_names(server, ["new_0"])
        assert counted(server) >= 3
        assert "finalized model" not in server.log()


@pytest.mark.conch_only("the genuine Triton's load waits for the execution")
@pytest.mark.parametrize("end", ["unload", "reload", "stop"])
def test_a_model_ends_after_instances_that_leave_it(end, tmp_path):
    hold = tmp_path / "hold"
    root = tmp_path / "models"
    root.mkdir()
    model = Witness(root, '{ name: "old" kind: KIND_CPU }', hold=hold)
    with start("conch", root) as server, concurrent.futures.ThreadPoolExecutor(1) as pool:
        hold.touch()
        asked = pool.submit(ask, server)
        servers.wait_for((tmp_path / "hold.reached.old_0").exists, 60, "the old instance executes")
        model.load(server, '{ name: "new" kind: KIND_MODEL }', hold=hold)
        if end == "unload":
            assert command(server, "unload", "m") == (200, "")
            assert pipelines.index(server)["m", "1"][0] == "UNLOADING"
        elif end == "reload":
            model.load(server, '{ name: "new" kind: KIND_MODEL }', hold=hold, other="x")
        else:
            server.signal(servers.signal.SIGTERM)
            server.wait_log(": Found 1 HTTP service connections")
        assert "finalized" not in server.log()
        hold.unlink()
        assert asked.result()["executed"]["by"] == "old_0"
        if end == "stop":
            assert server.wait() == 0
        server.wait_log("finalized model m")
        assert server.log().index("finalized instance old_0") < server.log().index("finalized model m")
        assert server.log().index("finalized instance new_0") < server.log().index("finalized model m")
