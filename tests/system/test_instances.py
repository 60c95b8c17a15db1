# SPDX-License-Identifier: Apache-2.0
"""Instance groups, as the backend `witness` (tests/plugins/witness) sees them: names, kinds, passive instances, where they
run, how many are initialised at once, when their threads end."""

import json
import os
import pathlib
import re

import pytest

import repository
import triton
from server import BACKENDS, REFERENCE, SANITIZED, Server, run_to_end, wait_for
from wire import ask, given, infer

pytestmark = pytest.mark.skipif(REFERENCE, reason="a test of its own asks the genuine Triton")

PLUGINS = pathlib.Path(BACKENDS).parent / "tests" / "backends"
CPUS = sorted(os.sched_getaffinity(0))


def write_witness(root, name, groups="", **parameters):
    config = f'name: "{name}"\nbackend: "witness"\n'
    config += repository.tensor("input", "IN", "INT32", [1]) + repository.tensor("output", "OUT", "BYTES", [1])
    config += f"instance_group [ {groups} ]\n" if groups else ""
    for key, value in parameters.items():
        config += f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n'
    return repository.write_model(root, name, config)


def with_plugins(server):
    server.args = [f"--backend-directory={PLUGINS}" if arg.startswith("--backend-directory=") else arg for arg in server.args]
    return server


def serve(root, *flags, env=None):
    return with_plugins(Server(root, flags=flags, env=env))


def hear(server, name):
    answer = infer(server, name, {"inputs": [given("IN", "INT32", [1], [0])]})
    assert answer.status == 200, answer.body
    return json.loads(answer.json()["outputs"][0]["data"][0])


def told(document):
    """The server's description of the instances, without thread ids."""
    return [{key: value for key, value in instance.items() if key != "initialized"} for instance in document["instances"]]


def why_not(server, name):
    """The log line with the reason why a model was not loaded."""
    line = re.compile(rf"failed to load '{name}' version 1: (.*)\"\n")
    return wait_for(lambda: line.search(server.log()), 60, f"{name} is not loaded")[1]


GROUPS = {
    "none": "",
    "auto": "{ }",
    "several": '{ count: 2 kind: KIND_CPU }, { kind: KIND_MODEL }, { name: "own" }',
    "same_name": '{ name: "a" kind: KIND_CPU }, { name: "a" kind: KIND_MODEL count: 2 }',
    "negative": "{ count: -3 }",
    "devices": "{ kind: KIND_MODEL secondary_devices [ { kind: KIND_NVDLA device_id: 3 }, { device_id: -1 } ] }",
    "passive": "{ passive: true }, { }",
    "limited": '{ rate_limiter { resources [ { name: "R" count: 4 } ] priority: 2 } }',
}
POLICIES = ["--host-policy=model,numa-node=0", f"--host-policy=cpu,cpu-cores={CPUS[0]}-{CPUS[-1]}", "--host-policy=cpu,numa-node=7",
            "--host-policy=cpu,numa-node=0", f"--host-policy=mine,cpu-cores={CPUS[0]}-{CPUS[0]},{CPUS[-1]}-{CPUS[-1]}"]
REFUSED = {
    "gpu": ("{ kind: KIND_GPU }", "instance group gpu_0 of model gpu has kind KIND_GPU but server does not support GPUs"),
    "cpu_gpus": ("{ kind: KIND_CPU gpus: 0 }", "instance group cpu_gpus_0 of model cpu_gpus has kind KIND_CPU but specifies one or more GPUs"),
    "auto_gpus": ("{ gpus: 0 }", "instance group auto_gpus_0 of model auto_gpus has kind KIND_CPU but specifies one or more GPUs"),
    "model_gpus": ("{ kind: KIND_MODEL gpus: 0 }", "instance group model_gpus_0 of model model_gpus has kind KIND_MODEL but specifies one or more GPUs"),
    "profile": ('{ profile: "x" }', "instance group profile_0 of model profile and platform specifies profile field which is only supported for TensorRT models"),
    "many": ("{ count: 1000000 }", "model 'many' asks for 1000000 instances, at most 4096"),
}


@pytest.fixture(scope="module")
def groups(tmp_path_factory):
    root = tmp_path_factory.mktemp("groups")
    for name, text in GROUPS.items():
        write_witness(root, name, text)
    for name, (text, _) in REFUSED.items():
        write_witness(root, name, text)
    write_witness(root, "all_passive", "{ count: 2 passive: true }")
    with serve(root, "--exit-on-error=false", "--strict-readiness=false") as server:
        yield server


def names(document):
    return [(instance["name"], instance["kind"]) for instance in document["instances"]]


def test_instances_have_their_names_and_kinds(groups):
    assert names(hear(groups, "none")) == [("none_0", "CPU")]
    assert names(hear(groups, "auto")) == [("auto_0_0", "CPU")]
    assert names(hear(groups, "several")) == [
        ("several_0_0", "CPU"), ("several_0_1", "CPU"), ("several_1_0", "MODEL"), ("own_0", "CPU")]
    assert names(hear(groups, "same_name")) == [("a_0", "CPU"), ("a_0", "MODEL"), ("a_1", "MODEL")]
    assert names(hear(groups, "negative")) == [("negative_0_0", "CPU")]


def test_secondary_devices_are_for_the_backend(groups):
    assert hear(groups, "devices")["instances"][0]["secondary"] == [["KIND_NVDLA", 3], ["KIND_NVDLA", -1]]


def test_passive_instances_are_made_and_never_execute(groups):
    for _ in range(20):
        document = hear(groups, "passive")
        assert document["executed"]["by"] == "passive_1_0"
    assert [instance["passive"] for instance in document["instances"]] == [True, False]


def test_a_model_with_passive_instances_only_executes_nothing(groups):
    assert ask(groups, "GET", "/v2/models/all_passive/ready").status == 200
    answer = infer(groups, "all_passive", {"inputs": [given("IN", "INT32", [1], [0])]})
    assert answer.status == 501
    assert "model 'all_passive' executes nothing: all its instances are passive" in answer.json()["error"]


@pytest.mark.parametrize("name", REFUSED)
def test_wrong_instance_groups_are_refused(groups, name):
    code = "Invalid argument: "
    assert re.fullmatch(re.escape(code + REFUSED[name][1]) + r"( \(.*config\.pbtxt:\d+:\d+\)(: write KIND_CPU.*)?)?", why_not(groups, name))


# ---- where they run ------------------------------------------------------------------------------


def threads_named(server, name):
    """Cpus_allowed_list of the server's threads of that name."""
    found = []
    for task in pathlib.Path(f"/proc/{server.pid}/task").iterdir():
        try:
            comm, status = (task / "comm").read_text(), (task / "status").read_text()
        except OSError:    # it has ended
            continue
        if comm.strip() == name[:15]:
            found.append(re.search(r"Cpus_allowed_list:\s*(\S+)", status)[1])
    return found


def test_host_policies_bind_instances_to_cpus(models):
    last = str(CPUS[-1])
    everywhere = ",".join(map(str, CPUS))
    write_witness(models, "bound", "{ count: 2 kind: KIND_CPU }")
    write_witness(models, "own", '{ kind: KIND_CPU host_policy: "mine" }')
    write_witness(models, "free", '{ kind: KIND_CPU host_policy: "unknown" }')
    write_witness(models, "memory", "{ kind: KIND_MODEL }")
    write_witness(models, "mixed", '{ host_policy: "mine" }, { host_policy: "unknown" }')
    flags = [f"--host-policy=cpu,cpu-cores={last}", f"--host-policy=mine,cpu-cores={last}-{last}",
             "--host-policy=mine,numa-node=0", "--host-policy=model,numa-node=0"]
    with serve(models, *flags) as server:
        for _ in range(10):  # short executions, none of them on the thread of the connection
            document = hear(server, "bound")
            assert document["executed"]["at"]["cpus"] == last
        assert [instance["initialized"]["cpus"] for instance in document["instances"]] == [last, last]
        assert document["model"]["cpus"] == last
        assert document["instances"][0]["policy"] == {"cpu": {"cpu-cores": last}}
        assert set(threads_named(server, document["executed"]["by"])) == {last}

        document = hear(server, "own")
        for place in (document["executed"]["at"], document["instances"][0]["initialized"], document["model"]):
            assert (place["cpus"], place["nodes"]) == (last, "0")
        assert document["instances"][0]["policy"] == {"mine": {"cpu-cores": f"{last}-{last}", "numa-node": "0"}}

        document = hear(server, "memory")
        assert (document["executed"]["at"]["cpus"], document["executed"]["at"]["nodes"]) == (everywhere, "0")

        document = hear(server, "free")
        for place in (document["executed"]["at"], document["instances"][0]["initialized"], document["model"]):
            assert (place["cpus"], place["nodes"]) == (everywhere, "")
        assert document["instances"][0]["policy"] == {"unknown": {}}

        document = hear(server, "mixed")
        assert [instance["initialized"]["cpus"] for instance in document["instances"]] == [last, everywhere]
        assert document["model"]["cpus"] == everywhere  # with several policies the model itself has none


NOT_THERE = {
    "cpu-cores=0-1000": r"Internal: Unable to set NUMA thread affinity: CPUs? \S+ do(es)? not exist, or this process may not use (it|them)",
    "cpu-cores=1023": "Internal: Unable to set NUMA thread affinity: CPU 1023 does not exist, or this process may not use it",
    "cpu-cores=abc": "Invalid argument: host policy setting 'cpu-cores' format is '<lower_cpu_core_id>-<upper_cpu_core_id>'. Got abc",
    "numa-node=1023": "Internal: Unable to set NUMA memory policy: Invalid argument",
    "numa-node=x": "Invalid argument: Parsing 'numa-node' value: Can't parse 'x' to integer",
}


@pytest.mark.parametrize("setting", NOT_THERE)
def test_missing_cpus_and_nodes_fail_the_load(models, setting):
    write_witness(models, "m")
    write_witness(models, "other", "{ kind: KIND_MODEL }")
    with serve(models, f"--host-policy=cpu,{setting}", "--exit-on-error=false", "--strict-readiness=false") as server:
        wanted = NOT_THERE[setting]
        wanted = wanted if "\\S" in wanted else re.escape(wanted)
        assert re.fullmatch(wanted + r" \(host policy 'cpu'\)", why_not(server, "m"))
        hear(server, "other")


def test_a_bound_instance_cannot_run_inline(models):
    write_witness(models, "m", CONCH_EXECUTION="inline")
    with serve(models, f"--host-policy=cpu,cpu-cores={CPUS[0]}", "--exit-on-error=false", "--strict-readiness=false") as server:
        assert why_not(server, "m") == ("Invalid argument: parameter 'CONCH_EXECUTION' is 'inline', but a host policy binds "
                                        "instance 'm_0': it executes on a thread of its own")


def test_a_backend_reads_the_settings_of_a_policy(models):
    write_witness(models, "m")
    code, _, err = run_to_end(f"--model-repository={models}", "--host-policy=cpu,cores=1")
    assert code == 1
    assert err.strip().endswith("error: setting host policy: Unsupported - Unsupported host policy setting 'cores' is "
                                "specified, supported settings are 'numa-node', 'cpu-cores'")


# ---- several at a time ---------------------------------------------------------------------------

THREE = "{ count: 3 kind: KIND_CPU }"
VARIABLE = "TRITON_PARALLEL_INSTANCE_LOADING"


@pytest.mark.parametrize("flags, env, at_once", [
    ([], {}, 1),
    (["--backend-config=witness,parallel=true"], {}, 3),
    (["--backend-config=witness,parallel=true"], {VARIABLE: "0"}, 1),
    ([], {VARIABLE: "1"}, 3),
    (["--backend-config=witness,parallel=true", "--model-load-thread-count=1"], {}, 1),
], ids=["by default", "the backend allows it", "the environment forbids it", "the environment wants it", "one thread"])
def test_instances_are_initialised_in_parallel_if_allowed(models, flags, env, at_once):
    write_witness(models, "m", THREE, **({"meet": 3} if at_once == 3 else {}))
    with serve(models, *flags, env=env) as server:
        document = hear(server, "m")
        assert document["most_inside"] == at_once
        assert {instance["name"] for instance in document["instances"]} == {"m_0_0", "m_0_1", "m_0_2"}
        assert len({instance["initialized"]["tid"] for instance in document["instances"]}) == at_once
        assert document["executed"]["by"] == "m_0_0"  # in the order of the configuration


@pytest.mark.parametrize("flags", [[], ["--backend-config=witness,parallel=true"]], ids=["serial", "parallel"])
def test_an_instance_that_fails_fails_its_model(models, flags):
    write_witness(models, "m", THREE, fail="m_0_1", **({"meet": 3} if flags else {}))
    with serve(models, "--exit-on-error=false", "--strict-readiness=false", *flags) as server:
        assert why_not(server, "m") == "Internal: this instance does not want to"
        begun = ["m_0_0", "m_0_1", "m_0_2"] if flags else ["m_0_0", "m_0_1"]
        ends = re.findall(r"witness: finalized (.*)\"", server.log())
        assert sorted(ends[:-1]) == [f"instance {name}" for name in begun]  # also the one that failed
        assert ends[-1] == "model m"


def test_a_model_that_fails_to_initialise_is_finalised(models):
    write_witness(models, "m", fail="m")
    with serve(models, "--exit-on-error=false", "--strict-readiness=false") as server:
        assert why_not(server, "m") == "Internal: this model does not want to"
        assert re.findall(r"witness: finalized (.*)\"", server.log()) == ["model m"]


# ---- threads -------------------------------------------------------------------------------------


def count_threads(server):
    return len(os.listdir(f"/proc/{server.pid}/task"))


def count_maps(server):
    return len(pathlib.Path(f"/proc/{server.pid}/maps").read_text().splitlines())


def test_threads_come_with_work_and_end_when_idle(models):
    for i in range(30):
        write_witness(models, f"m{i}")
    with serve(models) as server:
        # The thread of the start may still be ending: like the threads that it started, it is named model-load.
        wait_for(lambda: not threads_named(server, "model-load"), 60, "the threads of the start have ended")
        before, maps_before = count_threads(server), count_maps(server)
        tids = {hear(server, f"m{i}")["executed"]["at"]["tid"] for i in range(30)}
        assert len(tids) == 30
        assert count_threads(server) >= before + 30
        wait_for(lambda: count_threads(server) <= before, 60, "the threads of idle instances have ended")
        if not SANITIZED:  # a stack has two lines in this list; the C library keeps a few stacks
            assert count_maps(server) < maps_before + 30
        assert hear(server, "m7")["executed"]["at"]["tid"] not in tids
        assert count_threads(server) == before + 1


@pytest.mark.parametrize("how", ["parameter", "attribute"])
def test_an_instance_may_have_one_thread_for_life(how, models):
    parameters = {"CONCH_EXECUTION": "thread"} if how == "parameter" else {}
    flags = [] if how == "parameter" else ["--backend-config=witness,own-threads=1"]
    write_witness(models, "m", "{ count: 2 kind: KIND_CPU }", **parameters)
    write_witness(models, "bound", "{ count: 1 kind: KIND_CPU host_policy: \"one\" }", **parameters)
    with serve(models, *flags, f"--host-policy=one,cpu-cores={CPUS[-1]}-{CPUS[-1]}") as server:
        for name in ("m", "bound"):
            for _ in range(20):
                heard = hear(server, name)
                homes = {i["name"]: i["initialized"]["tid"] for i in heard["instances"]}
                assert heard["executed"]["at"]["tid"] == homes[heard["executed"]["by"]], heard
        assert hear(server, "bound")["executed"]["at"]["cpus"] == hear(server, "bound")["instances"][0]["initialized"]["cpus"]


# ---- the genuine Triton --------------------------------------------------------------------------


@triton.needed
@pytest.mark.skipif(SANITIZED, reason="the plugin is built with a sanitizer")
def test_the_genuine_triton_reports_the_same(tmp_path):
    for name, text in GROUPS.items():
        write_witness(tmp_path, name, text)
    write_witness(tmp_path, "own", '{ kind: KIND_CPU host_policy: "mine" }')
    # Alone: the genuine one sometimes crashes when another instance of the model is initialised.
    write_witness(tmp_path, "failing", "{ count: 1 kind: KIND_CPU }", fail="failing_0_0")
    relaxed = ["--exit-on-error=false", "--strict-readiness=false"]
    with serve(tmp_path, *POLICIES, *relaxed) as ours, with_plugins(triton.Triton(tmp_path, flags=[*POLICIES, *relaxed])) as theirs:
        for name in [*GROUPS, "own"]:
            mine, his = hear(ours, name), hear(theirs, name)
            assert told(mine) == told(his), name
            for key in ("cpus", "nodes"):
                assert [i["initialized"][key] for i in mine["instances"]] == [i["initialized"][key] for i in his["instances"]], name
                if len(mine["instances"]) == 1:
                    assert mine["executed"]["at"][key] == his["executed"]["at"][key], name
            groups = [ask(server, "GET", f"/v2/models/{name}/config").json()["instance_group"] for server in (ours, theirs)]
            assert groups[0] == groups[1], name
        ends = [sorted(re.findall(r"witness: finalized (.*failing.*)\"", server.log())) for server in (ours, theirs)]
        assert ends[0] == ends[1] == ["instance failing_0_0", "model failing"]
