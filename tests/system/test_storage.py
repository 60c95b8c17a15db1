# SPDX-License-Identifier: Apache-2.0
"""Where repositories lie, and which of their folders are models."""

import re

import pytest

import repository
import triton as genuine
from server import REFERENCE, Server, run_to_end
from wire import ask, infer

QUIET = ["--allow-grpc=false", "--allow-metrics=false", "--http-port=0"]
ONE = {"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1], "data": [1]}]}


@pytest.mark.parametrize("scheme", ["s3", "gs", "as"])
def test_object_stores_are_refused_by_name(scheme):
    code, _, err = run_to_end(f"--model-repository={scheme}://somewhere/models", *QUIET)
    assert code == 1
    text = f"{scheme}:// file-system not supported. Repositories are folders: copy this one to a folder, or mount it."
    assert f"error: creating server: Internal - {text}" in err


def two_roots(models, tmp_path):
    other = tmp_path / "other"
    for root in (models, other):
        repository.write_identity(root, "both", [("FP32", [-1])])
    repository.write_identity(models, "here", [("FP32", [-1])])
    repository.write_identity(other, "there", [("FP32", [-1])])
    return models, other


def test_a_model_of_two_repositories_is_served_from_neither(models, tmp_path):
    roots = two_roots(models, tmp_path)
    with Server(*roots, flags=["--exit-on-error=false"], ready=False) as server:
        server.await_rest()
        assert re.search(r"\| both +\| - +\| model appears in two or more repositories \|", server.log())
        assert infer(server, "here", ONE).status == infer(server, "there", ONE).status == 200
        assert ask(server, "GET", "/v2/models/both").status == 404
        assert ask(server, "GET", "/v2/health/ready").status == 200
        told = ask(server, "GET", "/v2/health/ready", headers={"Accept": "application/json"}).json()
        assert (told["ready"], told["models"]) == (True, {"total": 3, "serving": 2, "failed": 1})
        assert [(row["name"], row["reason"]) for row in told["failed"]] == [("both", "model appears in two or more repositories")]
        assert "failed to poll model 'both': not unique across all model repositories" in server.log()
        assert str(roots[1]) in server.log()


def test_namespacing_loads_duplicates_and_bare_names_are_ambiguous(models, tmp_path):
    roots = two_roots(models, tmp_path)
    ambiguous = (
        "There are 2 identifiers of model 'both' in global map, "
        "model namespace must be provided to resolve ambiguity."
    )
    with Server(*roots, flags=["--model-namespacing=true"]) as server:
        for path in ("", "/config", "/versions/1", "/ready"):
            answer = ask(server, "GET", "/v2/models/both" + path)
            assert (answer.status, answer.json()) == (400, {"error": ambiguous})
        for root, name in ((0, "both"), (1, "both"), (0, "here"), (1, "there")):
            assert f"loading: {roots[root]}::{name}:1" in server.log()
            assert f"successfully loaded '{roots[root]}::{name}'" in server.log()
        assert infer(server, "here", ONE).status == infer(server, "there", ONE).status == 200


def test_the_same_repository_twice_is_one(models):
    repository.write_identity(models, "m", [("FP32", [-1])])
    with Server(models, models) as server:
        assert infer(server, "m", ONE).status == 200


def test_a_slash_at_the_end_is_not_in_messages(models):
    repository.write_model(models, "m", "nonsense")
    code, _, err = run_to_end(f"--model-repository={models}//", *QUIET)
    assert code == 1
    assert f"failed to read text proto from {models}/m/config.pbtxt:1:" in err


def test_a_broken_duplicate_leaves_a_bare_name_unambiguous(models, tmp_path):
    _, other = two_roots(models, tmp_path)
    (models / "both" / "config.pbtxt").write_text("nonsense")
    with Server(models, other, flags=["--model-namespacing=true", "--exit-on-error=false"], ready=False) as server:
        server.await_rest()
        assert infer(server, "both", ONE).status == 200
        assert f"Poll failed for model directory '{models}::both'" in server.log()


def test_a_named_configuration_wins(models):
    for name in ("with", "without"):
        repository.write_identity(models, name, [("FP32", [-1])])
    configs = models / "with" / "configs"
    configs.mkdir()
    (configs / "large.pbtxt").write_text((models / "with" / "config.pbtxt").read_text() + "max_batch_size: 16\n")
    with Server(models, flags=["--model-config-name=large"]) as server:
        assert ask(server, "GET", "/v2/models/with/config").json()["max_batch_size"] == 16
        assert ask(server, "GET", "/v2/models/without/config").json()["max_batch_size"] == 0
        assert "configs" not in server.err.text()
    with Server(models) as server:
        assert ask(server, "GET", "/v2/models/with/config").json()["max_batch_size"] == 0


def test_a_wrong_named_configuration_does_not_fall_back(models):
    repository.write_identity(models, "m", [("FP32", [-1])])
    (models / "m" / "configs").mkdir()
    (models / "m" / "configs" / "large.pbtxt").write_text("nonsense")
    code, _, err = run_to_end(f"--model-repository={models}", *QUIET, "--model-config-name=large")
    assert code == 1
    assert f"failed to read text proto from {models}/m/configs/large.pbtxt:1:" in err


def test_a_configuration_name_stays_in_its_folder(models):
    code, _, err = run_to_end(f"--model-repository={models}", *QUIET, "--model-config-name=../x")
    assert code == 1
    assert "model configuration name '../x' leads out of the folder 'configs'" in err


@genuine.needed
@pytest.mark.skipif(REFERENCE, reason="is about our server")
@pytest.mark.parametrize("namespacing", ["false", "true"])
def test_the_models_are_those_of_the_genuine_triton(models, tmp_path, namespacing):
    """Names, versions, policies and duplicates: the same index, and the same answer for each name."""
    other = tmp_path / "other"
    two_roots(models, tmp_path)
    every = "version_policy { all { } }\n"
    for name in ("with space", "x..y", ".hidden", "-m", "a:b", "é", "n" * 255):
        repository.write_identity(models, name, [("FP32", [-1])])
    odd = repository.write_identity(models, "versions", [("FP32", [-1])], versions=("0", "1", "10", "9"))
    for name in ("007", "abc", "1.5", "warmup", "configs", "initial_state"):
        (odd / name).mkdir()
    (odd / "5").write_text("no folder")
    with (odd / "config.pbtxt").open("a") as config:
        config.write(every)
    some = repository.write_identity(other, "some", [("FP32", [-1])], versions=("1", "2", "3"))
    with (some / "config.pbtxt").open("a") as config:
        config.write("version_policy { specific { versions: [ 1, 3, 7 ] } }\n")
    (models / "README").write_text("no model")
    flags = [f"--model-namespacing={namespacing}", "--exit-on-error=false"]

    def rows(server):
        answer = ask(server, "POST", "/v2/repository/index").json()
        return sorted(tuple(sorted(row.items())) for row in answer)

    with Server(models, other, flags=flags, ready=namespacing == "true") as ours:
        with genuine.Triton(models, flags=[*flags, f"--model-repository={other}"], ready=False) as theirs:
            if namespacing == "false":
                ours.await_rest()
            assert rows(ours) == rows(theirs)
            for path in ("both", "both/versions/1", "here", "there", ".hidden", "x..y", "-m", "versions", "some"):
                answers = [ask(server, "GET", f"/v2/models/{path}") for server in (ours, theirs)]
                assert (answers[0].status, answers[0].body) == (answers[1].status, answers[1].body), path
            for text in (
                "ignore version directory '007' which contains leading zeros in its directory name",
                "ignore version directory 'abc' which fails to convert to integral number",
                "ignore version directory '1.5' which fails to convert to integral number",
                "some', but the version directory is not present",
            ):
                counts = [server.log().count(text) for server in (ours, theirs)]
                # Triton reads 1.5 as 1.
                assert counts == [1, 0 if "'1.5'" in text else 1], text
