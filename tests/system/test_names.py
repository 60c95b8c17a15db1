# SPDX-License-Identifier: Apache-2.0
"""Odd names of models and of version folders."""

import json
import os
import re
import urllib.parse

import pytest

import repository
from server import REFERENCE, Server, run_to_end
from wire import ask

CONFIG = (
    'backend: "identity"\n'
    + repository.tensor("input", "INPUT0", "INT32", [1])
    + repository.tensor("output", "OUTPUT0", "INT32", [1])
)
QUIET = ["--allow-grpc=false", "--allow-metrics=false"]
BODY = b'{"inputs":[{"name":"INPUT0","datatype":"INT32","shape":[1],"data":[7]}]}'

NAMES = [
    "with space", 'quote"d', "line\nbreak", "tab\t", "back\\slash", "per%cent", "%41", "-m", "--flag", "x..y",
    ".hidden", "a:b", "é", "数字", "🐚", "'", "a" * 255, "é" * 127, "lost+found", "?query", "#", "&", "{}", "$(x)",
]  # fmt: skip


def test_models_serve_under_odd_names(models):
    """HTTP takes a path as it is, as the reference does: a name that would have to be encoded cannot be asked for."""
    for name in NAMES:
        repository.write_model(models, name, CONFIG)
    with Server(models) as server:
        loaded = re.findall(r'"loading: (.*):1"\n', server.out.text())
        assert sorted(json.loads(f'"{name}"') for name in loaded) == sorted(NAMES)
        for name in NAMES:
            if urllib.parse.quote(name, safe=":&") != name:
                continue
            path = "/v2/models/" + name
            assert ask(server, "GET", path).json()["name"] == name
            answer = ask(server, "POST", path + "/infer", BODY).json()
            assert (answer["model_name"], answer["outputs"][0]["data"]) == (name, [7])
        lines = server.out.text().splitlines()
        assert all(line[:1] in ("I", "+", "|", "") for line in lines), "a name made a line of its own"


@pytest.mark.skipif(REFERENCE, reason="the genuine Triton loads it and then cannot print it")
def test_a_name_that_is_not_utf8_is_refused(models):
    repository.write_model(models, os.fsdecode(b"bad\xff\xe9"), CONFIG)
    repository.write_model(models, "good", CONFIG)
    with Server(models, flags=["--exit-on-error=false"], ready=False) as server:
        server.await_rest()
        assert ask(server, "GET", "/v2/models/good").status == 200
        text = "Poll failed for model directory 'bad\\\\xFF\\\\xE9': the name of the folder is not UTF-8"
        assert text in server.log()
        assert ask(server, "GET", "/v2/models/bad%FF%E9").status == 404


@pytest.mark.skipif(REFERENCE, reason="the genuine Triton would load the first and fail at the others")
def test_hidden_folders_are_models_only_with_a_configuration(models):
    for name in (".git", ".ipynb_checkpoints", "lost+found", "..data", "..config"):
        (models / name / "1").mkdir(parents=True)
    (models / "..config" / "config.pbtxt").write_text(CONFIG)
    repository.write_model(models, ".hidden", CONFIG)
    with Server(models) as server:
        assert ask(server, "GET", "/v2/models/.hidden").json()["name"] == ".hidden"
        assert server.log().count("loading: ") == 1


VERSIONS = {
    "007": "which contains leading zeros in its directory name",
    "00": "which contains leading zeros in its directory name",
    "abc": "which fails to convert to integral number",
    "1.5": "which fails to convert to integral number",
    "0x1": "which fails to convert to integral number",
    "9223372036854775808": "which fails to convert to integral number",
    "99999999999999999999999999": "which fails to convert to integral number",
    "2x": "which fails to convert to integral number",
    "-3": "which fails to convert to integral number",
    "+4": "which fails to convert to integral number",
    " 5": "which fails to convert to integral number",
    "٣": "which fails to convert to integral number",
}


@pytest.mark.skipif(REFERENCE, reason="the genuine Triton takes 2x for 2, and huge numbers end its process")
def test_only_numbers_are_version_folders(models):
    good = ("0", "1", "10", "9223372036854775807")
    folder = repository.write_model(models, "m", CONFIG + "version_policy { all { } }", versions=good)
    for name in [*VERSIONS, "warmup", "initial_state", "configs", "..data"]:
        (folder / name).mkdir()
    (folder / "3").write_text("a file is no version")
    with Server(models) as server:
        assert ask(server, "GET", "/v2/models/m").json()["versions"] == list(good)
        for name, why in VERSIONS.items():
            assert f"ignore version directory '{name}' {why}" in server.err.text()
        assert server.err.text().count("ignore version directory") == len(VERSIONS)
        assert ask(server, "POST", "/v2/models/m/versions/0/infer", BODY).json()["model_version"] == "0"
        assert ask(server, "POST", "/v2/models/m/infer", BODY).json()["model_version"] == good[-1]


@pytest.mark.parametrize("flags", [[], ["--disable-auto-complete-config"]])
def test_the_folder_and_the_configuration_must_agree_on_the_name(models, flags):
    repository.write_identity(models, "here", [("INT32", [1])])
    (models / "here").rename(models / "there")
    code, _, err = run_to_end(f"--model-repository={models}", "--http-port=0", *QUIET, *flags)
    assert code == 1
    assert (
        "Poll failed for model directory 'there': unexpected directory name 'there' for model 'here', "
        "directory name must equal model name"
    ) in err
