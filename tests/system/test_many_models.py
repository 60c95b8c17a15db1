# SPDX-License-Identifier: Apache-2.0
"""Ten thousand models, half of them broken in different ways: the good ones serve, each broken one has its reason."""

import http.client
import os
import re
import time

import pytest

from server import REFERENCE, SANITIZED, Server
from wire import ask

pytestmark = pytest.mark.long
N_MODELS = 10_000
START_WITHIN_S = 300 if SANITIZED else 60
MEMORY_KB = 4_000_000 if SANITIZED else 600_000

TENSORS = (
    "input { name: 'I' data_type: TYPE_FP32 dims: [ 1 ] }\noutput { name: 'O' data_type: TYPE_FP32 dims: [ 1 ] %s }\n"
)
GOOD = "backend: 'identity'\n" + TENSORS % ""


def write(folder, config, version="1"):
    if version:
        os.mkdir(f"{folder}/{version}")
    with open(f"{folder}/config.pbtxt", "wb") as file:
        file.write(config.encode("latin-1"))


def empty(folder):
    pass


def no_text(folder):
    write(folder, "\0\1\2\xff" * 100)


def unclosed(folder):
    write(folder, GOOD + "instance_group [ { count: 1\n")


def unknown_field(folder):
    write(folder, GOOD + "inputs { }\n")


def other_name(folder):
    write(folder, GOOD + "name: 'somebody'\n")


def no_version(folder):
    write(folder, GOOD, version="007")


def no_such_version(folder):
    write(folder, GOOD + "version_policy { specific { versions: [ 5 ] } }\n")


def no_backend_library(folder):
    write(folder, GOOD.replace("identity", "nobody_has_it"))


def against_a_rule(folder):
    write(folder, GOOD + "max_batch_size: -1\n")


def no_labels(folder):
    write(folder, "backend: 'identity'\n" + TENSORS % "label_filename: 'labels.txt'")


def folder_for_config(folder):
    os.makedirs(f"{folder}/1")
    os.mkdir(f"{folder}/config.pbtxt")


def fifo_for_config(folder):
    os.mkdir(f"{folder}/1")
    os.mkfifo(f"{folder}/config.pbtxt")


def gigabyte_for_config(folder):
    write(folder, GOOD)
    os.truncate(f"{folder}/config.pbtxt", 1 << 30)


def config_elsewhere(folder):
    os.mkdir(f"{folder}/1")
    os.symlink("/etc/hostname", f"{folder}/config.pbtxt")


def config_nowhere(folder):
    os.mkdir(f"{folder}/1")
    os.symlink("gone", f"{folder}/config.pbtxt")


def deep(folder):
    write(folder, GOOD + "ensemble_scheduling { step { " * 1000)


BROKEN = {
    empty: "Could not determine backend for model '{model}' with no backend in model configuration",
    no_text: "failed to read text proto from {config}:1:1: ",
    unclosed: "failed to read text proto from {config}:",
    unknown_field: 'Message type "inference.ModelConfig" has no field named "inputs"',
    other_name: "unexpected directory name '{model}' for model 'somebody', directory name must equal model name",
    no_version: "at least one version must be available under the version policy of model '{model}'",
    no_such_version: "at least one version must be available under the version policy of model '{model}'",
    no_backend_library: "unable to find backend library for backend 'nobody_has_it'",
    against_a_rule: "'max_batch_size' must be non-negative value for {model}",
    no_labels: "failed to open text file for read {folder}/labels.txt: No such file or directory",
    folder_for_config: "'{config}' is a folder, not a regular file",
    fifo_for_config: "'{config}' is something special, not a regular file",
    gigabyte_for_config: "'{config}' has 1073741824 bytes, the maximum is 16777216",
    config_elsewhere: "link '{config}' leads to '/etc/hostname', out of the model repository",
    config_nowhere: "link '{config}' leads to 'gone', which does not exist",
    deep: "failed to read text proto from {config}:",
}


@pytest.fixture
def broken(models):
    """Writes 10 000 models, every other one good; of the broken ones: name -> the text of the fault."""
    texts = {}
    kinds = list(BROKEN)
    for i in range(N_MODELS):
        name = f"m{i:05}"
        folder = f"{models}/{name}"
        os.mkdir(folder)
        if i % 2 == 0:
            write(folder, GOOD)
            continue
        kind = kinds[i // 2 % len(kinds)]
        kind(folder)
        texts[name] = BROKEN[kind].format(model=name, folder=folder, config=f"{folder}/config.pbtxt")
    return texts


def status_of(server, names):
    """The status of GET …/ready for each, over one connection."""
    connection = http.client.HTTPConnection(server.address, server.port, timeout=60)
    for name in names:
        connection.request("GET", f"/v2/models/{name}/ready")
        answer = connection.getresponse()
        answer.read()
        yield name, answer.status
    connection.close()


def peak_kb(server):
    with open(f"/proc/{server.pid}/status") as status:
        return int(re.search(r"VmHWM:\s+(\d+) kB", status.read())[1])


@pytest.mark.skipif(REFERENCE, reason="the genuine Triton waits for ever at the first FIFO")
def test_good_models_serve_and_broken_ones_give_their_reason(models, broken):
    began = time.monotonic()
    with Server(models, flags=["--exit-on-error=false"], ready=False) as server:
        server.await_rest()
        took = time.monotonic() - began
        rows = re.findall(r"^\| (m\d{5}) +\| (.*?) +\| (.*?) +\|$", server.out.text(), re.M)
        assert len(rows) == N_MODELS
        for name, version, status in rows:
            if name in broken:
                assert broken[name] in status, f"{name}: {status}"
                assert status.startswith("UNAVAILABLE") == (version != "-")
            else:
                assert (version, status) == ("1", "READY")
        errors = server.err.text()
        for text in broken.values():
            assert text.replace('"', '\\"') in errors
        for name, status in status_of(server, [name for name, _, _ in rows]):
            assert (status == 200) == (name not in broken), name
        index = ask(server, "POST", "/v2/repository/index").json()
        assert [row["name"] for row in index] == sorted(name for name, _, _ in rows)
        for row in index:
            assert (row.get("state") == "READY") == (row["name"] not in broken), row
            if "reason" in row:
                assert broken[row["name"]] in row["reason"]
        assert sum("reason" in row for row in index) >= N_MODELS // 20
        assert took < START_WITHIN_S
        assert peak_kb(server) < MEMORY_KB
