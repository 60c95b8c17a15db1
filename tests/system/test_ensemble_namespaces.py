# SPDX-License-Identifier: Apache-2.0
"""Steps whose models are in another repository, with `model_namespace` and without it. The genuine Triton does not read that field:
its step then has a model of another repository, or the only one of that name. Conch serves the one that is named, or none."""

import pytest

import pipelines
import server as servers
import triton
from pipelines import Stage, ensemble
from test_model_control import later

X, Y = ("X",), ("Y",)


def step(model, namespace):
    where = f'model_namespace: "{namespace}" ' if namespace else ""
    return (f'{{ model_name: "{model}" {where}model_version: -1 input_map {{ key: "IN" value: "X" }} '
            'output_map { key: "OUT" value: "Y" } }')


# name: (repository of the ensemble, model of its step, namespace: a repository, or another text)
ENSEMBLES = {
    "own": ("here", "both", ""), "own_there": ("there", "both", ""), "far": ("here", "only_there", ""), "near": ("here", "only_here", ""),
    "named_own": ("here", "both", "here"), "named_other": ("here", "both", "there"), "named_back": ("there", "both", "here"),
    "named_far": ("here", "only_there", "there"), "named_near": ("here", "only_here", "here"), "wrong": ("here", "only_there", "here"),
    "nowhere": ("here", "only_here", "no repository"),
}
# With --model-namespacing, or without it: what Conch and Triton make of 0 where they differ; None: the ensemble does not serve.
DIFFERENT = {
    False: {"named_own": (None, 10), "named_back": (None, 10), "wrong": (None, 1000), "nowhere": (None, 100)},
    True: {"named_other": (10, 1), "named_back": (1, 10), "wrong": (None, 1000), "nowhere": (None, 100)},
}


def write_models(folder, namespacing):
    roots = {name: folder / name for name in ("here", "there")}
    for root in roots.values():
        root.mkdir(parents=True)
    if namespacing:
        Stage(roots["here"], "both", add=1)
    Stage(roots["there"], "both", add=10)
    Stage(roots["here"], "only_here", add=100)
    Stage(roots["there"], "only_there", add=1000)
    for name, (at, model, namespace) in ENSEMBLES.items():
        ensemble(roots[at], name, X, Y, step(model, roots.get(namespace, namespace)))
    return roots["here"], roots["there"]


def answers(server, names):
    """What each ensemble makes of 0."""
    def answer(name):
        got = pipelines.ask(server, "http", name, {"X": [0]})
        assert got.code == "OK" or not pipelines.is_ready(server, name), got
        return got["Y"][0] if got.code == "OK" else None

    return {name: answer(name) for name in names}


def start(which, folder, namespacing):
    first, second = write_models(folder, namespacing)
    flags = [f"--model-namespacing={str(namespacing).lower()}", "--exit-on-error=false", "--strict-readiness=false",
             f"--model-repository={second}"]
    if which == "triton":
        flags.remove("--strict-readiness=false")
    return pipelines.start(which, first, flags=flags, ready=False)


@triton.needed
@pytest.mark.skipif(servers.REFERENCE, reason="is about our server")
@pytest.mark.parametrize("namespacing", [False, True])
def test_steps_have_the_models_of_their_namespaces(namespacing, tmp_path):
    with start("conch", tmp_path / "ours", namespacing) as ours, start("triton", tmp_path / "theirs", namespacing) as theirs:
        ours.await_rest()
        theirs.wait_log("Started HTTPService")
        got, others = answers(ours, ENSEMBLES), answers(theirs, ENSEMBLES)
        assert {name: (got[name], others[name]) for name in got if got[name] != others[name]} == DIFFERENT[namespacing]
        if not namespacing:
            reason = pipelines.index(ours)["wrong", "1"][1]
            assert "contains models that are not available or ambiguous: only_there" in reason


@pytest.mark.conch_only("Triton ends by this: it looks for the step's model in the ensemble's own repository, for ever")
def test_an_ensemble_may_have_the_name_of_its_step(tmp_path):
    """… which is in another repository. Nothing is a circle; a reload of the step's model is followed."""
    here, there = tmp_path / "here", tmp_path / "there"
    stage = Stage(there, "twin", add=5)
    ensemble(here, "twin", ("IN",), ("OUT",), step("twin", there).replace('"X"', '"IN"').replace('"Y"', '"OUT"'))
    ensemble(here, "outer", X, Y, step("twin", here))
    ensemble(here, "also", X, Y, step("twin", there))
    flags = ["--model-namespacing=true", f"--model-repository={there}", "--model-control-mode=poll", "--repository-poll-secs=1"]
    with pipelines.start("conch", here, flags=flags) as server:
        assert answers(server, ["outer", "also"]) == {"outer": 5, "also": 5}
        config = stage.folder / "config.pbtxt"
        config.write_text(config.read_text().replace('string_value: "5"', 'string_value: "7"'))
        later(config)
        servers.wait_for(lambda: answers(server, ["outer", "also"]) == {"outer": 7, "also": 7}, 60, "both have the new model")
