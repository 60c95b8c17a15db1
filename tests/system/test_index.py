# SPDX-License-Identifier: Apache-2.0
"""The index of the model repository, and the models loaded at the start in mode explicit."""

import asyncio
import re

import pytest
import tritonclient.http as triton
import tritonclient.http.aio as triton_aio

import repository
import triton as genuine
from server import REFERENCE, Server
from test_start import GOOD, ONE, names, start
from wire import ask, infer

OURS = pytest.mark.conch_only("it is how Conch does it")
EXPLICIT = "--model-control-mode=explicit"
ANY = [("FP32", [-1])]


def write_mixed(root, other):
    """Models of every kind that an index shows, in two repositories."""
    repository.write_identity(root, "good", ANY, versions=(1, 3))
    both = repository.write_identity(root, "both_versions", ANY, versions=(1, 3))
    with (both / "config.pbtxt").open("a") as config:
        config.write("version_policy { all {} }\n")
    repository.write_identity(root, "broken", ANY, execute_delay_ms="soon")
    repository.write_model(root, "unreadable", "name: 5")
    repository.write_identity(root, "twice", ANY)
    repository.write_identity(other, "twice", ANY)
    return root, other


def index(server, ready=None):
    answer = ask(server, "POST", "/v2/repository/index", None if ready is None else {"ready": ready})
    assert answer.status == 200, answer
    assert answer.headers["content-type"] == "application/json"
    return answer.json()


def states(server):
    """name or name:version -> state"""
    return {":".join(filter(None, (row["name"], row.get("version")))): row.get("state", "") for row in index(server)}


TWICE = {"name": "twice", "state": "UNAVAILABLE", "reason": "model appears in two or more repositories"}


def test_the_index_has_every_kind_of_row(models, tmp_path):
    with Server(*write_mixed(models, tmp_path / "other"), flags=["--exit-on-error=false"], ready=False) as server:
        rows = index(server)
        reason = rows[2].pop("reason")
        assert reason.startswith("Invalid argument: ") and "soon" in reason
        serving = [
            {"name": "both_versions", "version": "1", "state": "READY"},
            {"name": "both_versions", "version": "3", "state": "READY"},
        ]
        good = {"name": "good", "version": "3", "state": "READY"}
        broken = {"name": "broken", "version": "1", "state": "UNAVAILABLE"}
        reason = None if REFERENCE else rows[-1].pop("reason")    # the reason is an addition of ours
        assert REFERENCE or "config.pbtxt:1:7: Expected string, got: 5" in reason
        assert rows == [*serving, broken, good, TWICE, {"name": "unreadable"}]
        assert index(server, ready=False) == index(server)
        assert index(server, ready=True) == [*serving, good, TWICE]


@genuine.needed
@pytest.mark.skipif(REFERENCE, reason="is about our server")
def test_the_index_is_that_of_the_genuine_triton(models, tmp_path):
    other = tmp_path / "other"
    write_mixed(models, other)
    flags = ["--exit-on-error=false"]
    with Server(models, other, flags=flags, ready=False) as ours:
        with genuine.Triton(models, flags=[*flags, f"--model-repository={other}"], ready=False) as theirs:
            for body in (None, {}, {"ready": True}, {"ready": False}, []):
                answers = [ask(server, "POST", "/v2/repository/index", body) for server in (ours, theirs)]
                ours_said = re.sub(rb'("name":"unreadable"),"reason":"[^"]*"', rb"\1", answers[0].body)
                assert (answers[0].status, ours_said) == (answers[1].status, answers[1].body)


def test_unmodified_clients_read_the_index(models):
    repository.write_identity(models, "good", ANY)
    repository.write_identity(models, "other", ANY)
    expected = [{"name": name, "version": "1", "state": "READY"} for name in ("good", "other")]

    async def ask_with_asyncio(url):
        async with triton_aio.InferenceServerClient(url) as client:
            return await client.get_model_repository_index()

    with Server(models) as server:
        with triton.InferenceServerClient(server.url) as client:
            assert client.get_model_repository_index() == expected
        assert asyncio.run(ask_with_asyncio(server.url)) == expected


# ---- Mode explicit ------------------------------------------------------------------------------


@pytest.fixture
def three(models):
    for name in ("a", "b", "c"):
        repository.write_identity(models, name, ANY)
    return models


def test_explicit_loads_nothing_by_itself(three):
    with Server(three, flags=[EXPLICIT]) as server:
        assert index(server) == [{"name": "a"}, {"name": "b"}, {"name": "c"}]
        answer = infer(server, "a", ONE)
        assert (answer.status, answer.error) == (404, "Request for unknown model: 'a' is not found")
        server.wait_log("MODE_EXPLICIT")


def test_explicit_loads_what_is_named(three):
    with Server(three, flags=[EXPLICIT, "--load-model=c", "--load-model=a", "--load-model=c"]) as server:
        assert states(server) == {"a:1": "READY", "b": "", "c:1": "READY"}
        assert infer(server, "c", ONE).status == 200
        assert infer(server, "b", ONE).status == 404
        if not REFERENCE:
            assert len(names(server.log(), "successfully loaded")) == 2


def test_a_star_loads_all(three):
    with Server(three, flags=[EXPLICIT, "--load-model=*"]) as server:
        assert states(server) == {"a:1": "READY", "b:1": "READY", "c:1": "READY"}


def test_a_star_stands_alone(three):
    code, log = start(three, EXPLICIT, "--load-model=*", "--load-model=a")
    assert code == 1
    text = "error: creating server: Invalid argument - Wildcard model name '*' must be the ONLY startup model if specified at all."
    assert names(log, text)


def test_load_model_needs_explicit(three):
    code, log = start(three, "--load-model=a")
    assert code == 1
    assert names(log, "Error: Use of '--load-model' requires setting '--model-control-mode=explicit' as well.")


NOWHERE = "failed to poll model 'nobody': model not found in any model repository."


def test_a_named_model_that_is_missing_ends_the_start(three):
    code, log = start(three, EXPLICIT, "--load-model=a", "--load-model=nobody")
    assert code == 1
    assert names(log, NOWHERE)
    some = "failed to load all models" if REFERENCE else "1 of 2 models failed:"
    assert names(log, f"error: creating server: Internal - {some}")


@OURS
@pytest.mark.parametrize("name", ["nobody", "../a", "a/1", ""])
def test_the_other_models_serve_without_a_missing_one(three, name):
    flags = [EXPLICIT, f"--load-model={name}", "--load-model=a", "--exit-on-error=false"]
    with Server(three, flags=flags, ready=False) as server:
        assert states(server) == {"a:1": "READY", "b": "", "c": ""}
        assert infer(server, "a", ONE).status == 200
        assert ask(server, "GET", "/v2/health/ready").status == 200
        server.wait_log(f"failed to poll model '{name}': model not found in any model repository.")
        assert names(server.log(), "|", "Not found: model not found in any model repository.")


def test_all_named_models_that_fail_are_reported_together(three):
    for name in ("bad", "worse"):
        repository.write_model(three, name, GOOD.replace('"m"', f'"{name}"').replace("identity", "nonesuch"))
    code, log = start(three, EXPLICIT, "--load-model=worse", "--load-model=bad", "--load-model=a")
    assert code == 1
    assert names(log, "error: creating server: Invalid argument - load failed for model '")
    for name in ("bad", "worse"):
        assert names(log, f"load failed for model '{name}': version 1 is at UNAVAILABLE state: Invalid argument: ", "nonesuch")


def test_a_model_that_is_not_named_may_be_broken(three):
    repository.write_model(three, "broken", "nonsense")
    with Server(three, flags=[EXPLICIT, "--load-model=b"]) as server:
        assert states(server) == {"a": "", "b:1": "READY", "broken": "", "c": ""}
        assert "nonsense" not in server.log()
