# SPDX-License-Identifier: Apache-2.0
"""Instance groups on a machine with GPUs, which tests/cuda/fake_cuda.c makes: it has two. Without a driver: test_instances.py."""

import json
import urllib.request

import pytest

import repository
import server as servers

ENVIRONMENT = {"LD_LIBRARY_PATH": str(servers.BUILD / "tests/cuda")}
GROUPS = {
    "all": "{ kind: KIND_GPU count: 2 }",
    "second": "{ kind: KIND_GPU gpus: [ 1 ] }",
    "plain": "{ }",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    models = tmp_path_factory.mktemp("models")
    for name, group in {**GROUPS, "third": "{ kind: KIND_GPU gpus: [ 0, 2 ] }"}.items():
        repository.write_model(models, name, 'backend: "identity"\n' + repository.tensor("input", "INPUT0", "FP32", [-1]) +
                               repository.tensor("output", "OUTPUT0", "FP32", [-1]) + f"instance_group [ {group} ]\n")
    with servers.Server(models, flags=["--log-verbose=1", "--exit-on-error=false", "--strict-readiness=false"], env=ENVIRONMENT) as made:
        yield made


def group_of(server, name):
    with urllib.request.urlopen(f"http://{server.url}/v2/models/{name}/config", timeout=60) as answer:
        return json.load(answer)["instance_group"][0]


def test_a_group_has_instances_on_each_of_its_gpus(server):
    assert group_of(server, "all")["gpus"] == [0, 1]
    assert group_of(server, "second")["gpus"] == [1]
    for line in [f"'all_0_{i}' of model 'all' version 1 on GPU {gpu}" for i in (0, 1) for gpu in (0, 1)] + \
            ["'second_0_0' of model 'second' version 1 on GPU 1"]:
        assert f"initializing instance {line}" in server.log()
    assert "initializing instance 'second_0_0' of model 'second' version 1 on GPU 0" not in server.log()


def test_a_group_without_a_kind_stays_on_the_cpus_of_a_backend_that_prefers_none(server):
    assert (group_of(server, "plain")["kind"], group_of(server, "plain")["gpus"]) == ("KIND_CPU", [])


def test_a_gpu_that_the_machine_does_not_have_is_refused(server):
    assert "instance group third_0 of model third specifies invalid or unsupported gpu id 2. GPUs of this machine: 2" in server.log()
