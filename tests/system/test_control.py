# SPDX-License-Identifier: Apache-2.0
"""Loads and unloads while the server runs, asked by the C API; the genuine library is asked the same."""

import json

import pytest

import embed
import repository
import triton

REFUSED = "Unavailable: explicit model load / unload is not allowed if polling is enabled"
EITHER = ["conch", pytest.param("triton", marks=triton.needed)]
POLL_FAILURE = "Internal: failed to load '{}', failed to poll from model repository"


def config(**more):
    tensor = {"data_type": "TYPE_FP32", "dims": [-1]}
    return json.dumps({"backend": "identity", "input": [{"name": "INPUT0", **tensor}],
                       "output": [{"name": "OUTPUT0", **tensor}], **more}, separators=(",", ":"))


@pytest.fixture(params=EITHER)
def run(request, models, tmp_path):
    """Runs commands in a server of mode explicit; returns the lines that it prints."""
    repository.write_identity(models, "m", [("FP32", [-1])], versions=(1, 2))

    def do(*commands, options=("explicit",)):
        return embed.without_advice(embed.run(models, commands, which=request.param, folder=tmp_path, options=options))

    do.conch = request.param == "conch"
    return do


def test_loads_are_refused_outside_of_explicit_mode(run):
    assert run("load m", "load nobody", "unload m", "unload-all m", "ready m", options=()) == [
        f"load m {REFUSED}", f"load nobody {REFUSED}", f"unload m {REFUSED}", f"unload-all m {REFUSED}", "ready m yes"]


def test_a_model_is_loaded_and_unloaded(run):
    infer = "infer a m -1 - INPUT0:FP32:2:1,2"
    response = "a response OUTPUT0:FP32:2:1,2 final"
    assert run("load m", infer, "load m", "unload m", "load m", infer, "unload-all m", "unload m", "unload nobody", infer) == [
        "load m ok", response, "load m ok", "unload m ok", "load m ok", response, "unload-all m ok", "unload m ok",
        "unload nobody ok", "a refused Not found: Request for unknown model: 'm' has no available versions"]


def test_a_model_that_cannot_be_loaded_gives_its_reason(run):
    assert run("load nobody", "load m string:config={bad", "load m string:config={\"name\":\"other\"}",
               "load m string:other=x", "load m int:config=1", "load m bool:unload=1", "load m double:d=2",
               "load m bytes:file:1/x=abc", f"load m string:config={config()} bytes:file:../x=abc") == [
        f"load nobody {POLL_FAILURE.format('nobody')}", *[f"load m {POLL_FAILURE.format('m')}"] * 8]


def test_a_load_may_bring_configuration_and_files(run):
    lines = run(f"load m string:config={config(version_policy={'all': {}})}", "metadata m",
                f"load m string:config={config()} bytes:file:7/some/file=abc", "metadata m",
                f"load new string:config={config(name='new')} bytes:file:3/file=abc", "metadata new", "load new", "unload new",
                "load new")
    versions = [json.loads(line)["versions"] for line in lines if line.startswith("{")]
    assert versions == [["1", "2"], ["7"], ["3"]]
    no_new = f"load new {POLL_FAILURE.format('new')}"
    assert [line for line in lines if not line.startswith("{")] == [
        "load m ok", "load m ok", "load new ok", no_new, "unload new ok", no_new]


def test_invalid_names_are_refused(run):
    """The genuine 2.51 loads ".."; 2.73 has these texts."""
    if not run.conch:
        pytest.skip("later than 2.51")
    path = "Invalid argument: invalid model name '{0}', model name must not contain path traversal characters"
    names = ["..", ".", "a/b", "../m"]
    assert run(*(f"load {name}" for name in names)) == [f"load {name} {path.format(name)}" for name in names]
