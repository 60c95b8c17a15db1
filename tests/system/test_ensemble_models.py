# SPDX-License-Identifier: Apache-2.0
"""Ensembles and the models of their steps come and go (reference/behaviours §12.8, 13.12–13.15, 13.21, 27.2), in both servers."""

import concurrent.futures
import contextlib
import json
import re

import pytest

import embed
import pipelines
import repository
import server as servers
import wire
from pipelines import Stage, command, ensemble, index, is_ready, step

X, Y = ("X",), ("Y",)
EXPLICIT = ["--model-control-mode=explicit"]
LENIENT = ["--exit-on-error=false", "--strict-readiness=false"]


@pytest.fixture(params=pipelines.EITHER)
def start(request):
    """Starts one of the servers."""
    def begin(root, *flags, **more):
        return pipelines.start(request.param, root, flags=flags, **more)

    begin.which = request.param
    return begin


def ask(server, model, value=1, **more):
    return pipelines.ask(server, "http", model, {"X": [value]}, **more)


def states(server):
    """{name: state} of the versions 1 of all models, "" for one that has never been loaded."""
    return {name: state for (name, version), (state, _) in index(server).items() if version in ("1", "")}


def await_states(server, **expected):
    def as_expected():
        now = states(server)
        return {name: now[name] for name in expected} == expected

    servers.wait_for(as_expected, 60, f"the states are {expected}")


def write_family(root):
    """f uses e and c; e uses a and b; g uses a."""
    stages = {name: Stage(root, name, add=add) for name, add in (("a", 1), ("b", 10), ("c", 100))}
    ensemble(root, "e", X, Y, step("a", "IN=X", "OUT=M"), step("b", "IN=M", "OUT=Y"))
    ensemble(root, "f", X, Y, step("e", "X=X", "Y=M"), step("c", "IN=M", "OUT=Y"))
    ensemble(root, "g", X, Y, step("a", "IN=X", "OUT=Y"))
    return stages


DEPENDENTS = {"parameters": {"unload_dependents": True}}


# ---- What an ensemble says about itself


@pytest.mark.parametrize("mode", [[], EXPLICIT + ["--load-model=*"]])
def test_an_ensemble_describes_itself_as_a_model(start, tmp_path, mode):
    write_family(tmp_path)
    with start(tmp_path, *mode) as server:
        assert wire.ask(server, "GET", "/v2/models/e").json() == {
            "name": "e", "versions": ["1"], "platform": "ensemble",
            "inputs": [{"name": "X", "datatype": "INT32", "shape": [-1]}],
            "outputs": [{"name": "Y", "datatype": "INT32", "shape": [-1]}]}
        config = wire.ask(server, "GET", "/v2/models/e/config").json()
        assert (config["platform"], config["backend"], config.get("instance_group", [])) == ("ensemble", "", [])
        assert config["model_transaction_policy"] == {"decoupled": False}
        steps = config["ensemble_scheduling"]["step"]
        assert [(one["model_name"], one["model_version"], one["input_map"], one["output_map"]) for one in steps] == [
            ("a", -1, {"IN": "X"}, {"OUT": "M"}), ("b", -1, {"IN": "M"}, {"OUT": "Y"})]
        assert set(states(server).items()) == {(name, "READY") for name in "abcefg"}
        assert is_ready(server, "e") and is_ready(server, "e", "1") and not is_ready(server, "e", "2")


def test_an_ensemble_has_versions(start, tmp_path):
    Stage(tmp_path, "a")
    ensemble(tmp_path, "e", X, Y, step("a", "IN=X", "OUT=Y"), versions=(1, 3))
    ensemble(tmp_path, "all", X, Y, step("a", "IN=X", "OUT=Y"), versions=(1, 3), more="version_policy: { all { } }")
    with start(tmp_path) as server:
        assert ask(server, "e").version == "3"
        assert [ask(server, "all", version=version).version for version in ("", "1", "3")] == ["3", "1", "3"]
        assert ask(server, "e", version="1").code != "OK"


def test_labels_are_those_of_the_model_that_makes_the_output(start, tmp_path):
    """reference/behaviours §12.11. The ensemble has none of its own."""
    with_labels = Stage(tmp_path, "a", inputs=(("IN", [3]),), outputs=(("OUT", [3]),))
    config = with_labels.folder / "config.pbtxt"
    config.write_text(config.read_text().replace('output [ { name: "OUT"', 'output [ { name: "OUT" label_filename: "labels"'))
    (with_labels.folder / "labels").write_text("red\ngreen\nblue\n")
    three = (("X", [3]),), (("Y", [3]),)
    ensemble(tmp_path, "e", *three, step("a", "IN=X", "OUT=Y"))
    ensemble(tmp_path, "f", *three, step("e", "X=X", "Y=Y"))
    ensemble(tmp_path, "g", *three, step("a", "IN=X", "OUT=M"), step("b", "IN=M", "OUT=Y"))
    Stage(tmp_path, "b", inputs=(("IN", [3]),), outputs=(("OUT", [3]),))
    with start(tmp_path) as server:
        got = {}
        for model in "aefg":
            names = ("IN", "OUT") if model == "a" else ("X", "Y")
            document = {"inputs": [wire.given(names[0], "INT32", [3], [5, 9, 7])],
                        "outputs": [{"name": names[1], "parameters": {"classification": 2}}]}
            got[model] = wire.infer(server, model, document).json()["outputs"][0]["data"]
        assert got["a"] == ["9:1:green", "7:2:blue"]
        assert got["e"] == got["a"]
        assert got["g"] == ["9:1", "7:2"]
        assert got["f"] == got["a"]


# ---- Versions of steps (reference/behaviours §12.8)


def test_a_step_names_a_version_or_takes_the_latest(start, tmp_path):
    stage = Stage(tmp_path, "a", versions=(1, 2, 5), more="version_policy: { specific { versions: [ 1, 2 ] } }")
    ensemble(tmp_path, "latest", X, Y, step("a", "IN=X", "OUT=Y"))
    ensemble(tmp_path, "first", X, Y, step("a", "IN=X", "OUT=Y", version=1))
    ensemble(tmp_path, "both", X, Y, step("a", "IN=X", "OUT=M", version=1), step("a", "IN=M", "OUT=Y"))
    with start(tmp_path, *EXPLICIT, "--load-model=*") as server:
        for model in ("latest", "first", "both"):
            assert ask(server, model)["Y"] == [1]
        assert [seen["version"] for seen in stage.seen()] == [2, 1, 1, 2]
        config = stage.folder / "config.pbtxt"
        config.write_text(config.read_text().replace("[ 1, 2 ]", "[ 1, 5 ]"))
        assert command(server, "load", "a") == (200, "")
        for model in ("latest", "first", "both"):
            assert ask(server, model)["Y"] == [1]
        assert [seen["version"] for seen in stage.seen()] == [5, 1, 1, 5]


# ---- Loading (reference/behaviours §13.13)


def test_loading_an_ensemble_loads_what_it_is_made_of(start, tmp_path):
    write_family(tmp_path)
    with start(tmp_path, *EXPLICIT) as server:
        assert set(states(server).values()) == {""}
        assert command(server, "load", "f") == (200, "")
        assert states(server) == {"a": "READY", "b": "READY", "c": "READY", "e": "READY", "f": "READY", "g": ""}
        assert ask(server, "f")["Y"] == [112]


def test_the_start_loads_members_of_the_models_that_are_named(start, tmp_path):
    write_family(tmp_path)
    with start(tmp_path, *EXPLICIT, "--load-model=f") as server:
        assert states(server) == {"a": "READY", "b": "READY", "c": "READY", "e": "READY", "f": "READY", "g": ""}
        assert ask(server, "f")["Y"] == [112]


def write_wrong(root):
    Stage(root, "a")
    Stage(root, "batches", batch=4)
    Stage(root, "sized", inputs=(("IN", [3]),), outputs=(("OUT", [3]),))
    bad = Stage(root, "bad")
    bad.shut("fail.load")
    repository.write_identity(root, "floats", [("FP32", [-1])])
    decoupled = {"more": "model_transaction_policy { decoupled: true }\n", "responses": 2}
    Stage(root, "d1", **decoupled)
    Stage(root, "d2", **decoupled)
    Stage(root, "sum", inputs=("A", "B"))
    ensemble(root, "lacks", X, Y, step("a", "IN=X", "OUT=M"), step("nope", "IN=M", "OUT=Y"))
    ensemble(root, "wants", X, Y, step("a", "IN=X", "OUT=Y", version=7))
    ensemble(root, "itself", X, Y, step("itself", "X=X", "Y=Y"))
    ensemble(root, "p", X, Y, step("q", "X=X", "Y=Y"))
    ensemble(root, "q", X, Y, step("r", "X=X", "Y=Y"))
    ensemble(root, "r", X, Y, step("p", "X=X", "Y=Y"))
    ensemble(root, "of_bad", X, Y, step("bad", "IN=X", "OUT=Y"))
    ensemble(root, "of_of_bad", X, Y, step("of_bad", "X=X", "Y=Y"))
    ensemble(root, "of_wrong", X, Y, step("lacks", "X=X", "Y=Y"))
    ensemble(root, "of_floats", X, Y, step("floats", "INPUT0=X", "OUTPUT0=Y"))
    ensemble(root, "of_sized", (("X", [2]),), (("Y", [3]),), step("sized", "IN=X", "OUT=Y"))
    ensemble(root, "to_nowhere", X, Y, step("a", "IN=X IM=X", "OUT=Y"))
    ensemble(root, "from_nowhere", X, Y, step("a", "IN=X", "OAT=Y"))
    ensemble(root, "half_mapped", X, Y, step("sum", "A=X", "OUT=Y"))
    ensemble(root, "larger", X, Y, step("batches", "IN=X", "OUT=Y"), batch=8)
    ensemble(root, "met", X, Y, step("d1", "IN=X", "OUT=L"), step("d2", "IN=X", "OUT=R"), step("sum", "A=L B=R", "OUT=M"), step("a", "IN=M", "OUT=Y"))
    ensemble(root, "apart", X, ("Y", "Z"), step("d1", "IN=X", "OUT=Y"), step("a", "IN=X", "OUT=Z"))
    return bad


BAD = "ensemble 'of_bad' depends on 'bad' which has no loaded version. Model 'bad' loading failed with error: version 1 is at UNAVAILABLE state: Internal: stage: the test wants no model;"
WRONG = {
    "lacks": "ensemble lacks contains models that are not available or ambiguous: nope",
    "wants": "ensemble 'wants' depends on 'a' whose required version 7 is not loaded.",
    "itself": "circular dependency between ensembles: itself -> ... -> itself -> itself",
    "p": re.compile(r"circular dependency between ensembles: ([pqr]) -> \.\.\. -> [pqr] -> \1"),    # any of the three begins
    "of_bad": BAD,
    "of_of_bad": f"ensemble 'of_of_bad' depends on 'of_bad' which is not valid. Model 'of_bad' failed with error: {BAD}",
    "of_wrong": "ensemble 'of_wrong' depends on 'lacks' which is not valid. Model 'lacks' failed with error: ensemble lacks contains models that are not available or ambiguous: nope",
    "of_floats": "in ensemble of_floats, ensemble tensor X: inconsistent data type: TYPE_INT32 is inferred from model of_floats while TYPE_FP32 is inferred from model floats",
    "of_sized": "in ensemble of_sized, ensemble tensor X: inconsistent shape: [2] is inferred from model of_sized while [3] is inferred from model sized",
    "to_nowhere": "in ensemble to_nowhere, ensemble tensor X is mapping to non-existing input IM in model a",
    "from_nowhere": "in ensemble from_nowhere, ensemble tensor Y is mapped from non-existing output OAT in model a",
    "half_mapped": "in ensemble half_mapped, input B in model sum is not mapped to any ensemble tensors",
    "larger": "ensemble larger allows maximum batch size 8, but it contains model batches which only allows maximum batch size to be 4",
    "met": "in ensemble met, step of model 'sum' receives inputs originated from different decoupled models",
    "apart": "in ensemble apart, step of model 'apart' receives inputs originated from different decoupled models",
}


POSITION = re.compile(r' \(\S+/config\.pbtxt:\d+:\d+\)(: did you mean "\w+"\?)?')    # only Conch says where


@pytest.fixture(scope="module", params=pipelines.EITHER)
def wrong(request, tmp_path_factory):
    root = tmp_path_factory.mktemp("wrong")
    write_wrong(root)
    with pipelines.start(request.param, root, flags=EXPLICIT) as server:
        yield server


@pytest.mark.parametrize("model", WRONG)
def test_an_ensemble_that_does_not_fit_its_models_is_not_loaded(wrong, model):
    status, error = command(wrong, "load", model)
    begin = f"load failed for model '{model}': "
    assert (status, error[:len(begin)], error[-1]) == (400, begin, "\n")
    text = POSITION.sub("", error[len(begin):-1])
    assert WRONG[model].fullmatch(text) if isinstance(WRONG[model], re.Pattern) else text == WRONG[model]
    assert states(wrong)[model] in ("", "UNAVAILABLE")
    assert not is_ready(wrong, model)


@pytest.mark.conch_only("only Conch has such a command")
def test_the_check_of_a_repository_says_the_same_before_any_load(tmp_path):
    """But for what only a load shows."""
    write_wrong(tmp_path / "models")
    code, out, _ = servers.run_to_end("check", f"--backend-directory={servers.BACKENDS}", tmp_path / "models")
    assert code == 1
    for model, text in WRONG.items():
        said = [line for line in out.splitlines() if f"/{model}/config.pbtxt:" in line and "[E-ensemble]" in line]
        fits = text.search if isinstance(text, re.Pattern) else lambda line, text=text: text in line
        assert any(map(fits, said)) == (model not in ("of_bad", "of_of_bad")), (model, said)


def test_a_start_without_ensembles_that_do_not_fit(start, tmp_path):
    """The others serve."""
    write_wrong(tmp_path)
    ensemble(tmp_path, "fine", X, Y, step("a", "IN=X", "OUT=Y"))
    with start(tmp_path, *LENIENT, ready=False) as server:
        servers.wait_for(lambda: is_ready(server, "fine"), 60, "the sound ensemble is ready")
        assert ask(server, "fine")["Y"] == [1]
        assert [model for model in WRONG if is_ready(server, model)] == []


def test_a_start_with_an_ensemble_that_does_not_fit_fails(start, tmp_path):
    Stage(tmp_path, "a")
    ensemble(tmp_path, "lacks", X, Y, step("nope", "IN=X", "OUT=Y"))
    server = start(tmp_path).start()
    try:
        assert server.wait() != 0
        assert "ensemble lacks contains models that are not available or ambiguous: nope" in server.story("ended")
    finally:
        server.kill()


# ---- Unloading (reference/behaviours §13.12)


def test_an_ensemble_goes_with_a_model_that_it_is_made_of(start, tmp_path):
    write_family(tmp_path)
    with start(tmp_path, *EXPLICIT, "--load-model=*") as server:
        assert command(server, "unload", "b") == (200, "")
        await_states(server, a="READY", b="UNAVAILABLE", c="READY", e="UNAVAILABLE", f="UNAVAILABLE", g="READY")
        assert ask(server, "f").code != "OK"
        assert ask(server, "g")["Y"] == [2]


def test_an_ensemble_comes_back_with_a_model_that_it_is_made_of(start, tmp_path):
    write_family(tmp_path)
    with start(tmp_path, *EXPLICIT, "--load-model=*") as server:
        assert command(server, "unload", "b") == (200, "")
        await_states(server, b="UNAVAILABLE", e="UNAVAILABLE", f="UNAVAILABLE")
        assert command(server, "load", "b") == (200, "")
        await_states(server, b="READY", e="READY", f="READY")
        assert ask(server, "f")["Y"] == [112]


def test_unloading_an_ensemble_leaves_its_models(start, tmp_path):
    write_family(tmp_path)
    with start(tmp_path, *EXPLICIT) as server:
        assert command(server, "load", "f") == (200, "")
        assert command(server, "unload", "f") == (200, "")
        await_states(server, a="READY", b="READY", c="READY", e="READY", f="UNAVAILABLE")


def test_the_models_of_an_ensemble_may_go_with_it(start, tmp_path):
    write_family(tmp_path)
    with start(tmp_path, *EXPLICIT) as server:
        assert command(server, "load", "e") == (200, "")
        assert command(server, "unload", "e", DEPENDENTS) == (200, "")
        await_states(server, a="UNAVAILABLE", b="UNAVAILABLE", e="UNAVAILABLE")


def test_a_model_that_was_loaded_by_name_stays(start, tmp_path):
    write_family(tmp_path)
    with start(tmp_path, *EXPLICIT) as server:
        assert command(server, "load", "b") == (200, "")
        assert command(server, "load", "e") == (200, "")
        assert command(server, "unload", "e", DEPENDENTS) == (200, "")
        await_states(server, a="UNAVAILABLE", e="UNAVAILABLE")
        assert states(server)["b"] == "READY"


def test_a_model_that_another_ensemble_uses_stays(start, tmp_path):
    write_family(tmp_path)
    with start(tmp_path, *EXPLICIT) as server:
        assert command(server, "load", "e") == (200, "")
        assert command(server, "load", "g") == (200, "")
        assert command(server, "unload", "e", DEPENDENTS) == (200, "")
        await_states(server, b="UNAVAILABLE", e="UNAVAILABLE")
        assert (states(server)["a"], ask(server, "g")["Y"]) == ("READY", [2])


@pytest.mark.parametrize("which", pipelines.EITHER)
def test_the_models_of_an_ensemble_may_go_with_it_by_the_c_api(which, tmp_path):
    pipelines.need(which)
    root = tmp_path / "models"
    write_family(root)
    (tmp_path / "libraries").mkdir()
    with embed.Session(root, which=which, folder=tmp_path / "libraries", options=["explicit"]) as session:
        lines = session.do("load f", "infer r f -1 - X:INT32:1:1", "ready a", "unload-all f")
        assert embed.of(lines, "r") == ["response Y:INT32:1:112 final"]
        assert "ready a yes" in lines and "unload-all f ok" in lines

        def gone():
            got = json.loads(session.do("index")[-1])
            return {one["name"]: one.get("state") for one in got if one["name"] in "abcef"} == dict.fromkeys("abcef", "UNAVAILABLE")

        servers.wait_for(gone, 60, "all are unloaded")


# ---- Under requests


@contextlib.contextmanager
def held(server, stage, model, **more):
    """A request that is at the gate of a step; the gate opens when the block ends. Yields its future."""
    stage.shut("hold.execute")
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        try:
            asked = pool.submit(ask, server, model, **more)
            stage.await_reached("hold.execute")
            yield asked
        finally:
            stage.open("hold.execute")


def test_a_request_keeps_the_models_that_it_began_with(start, tmp_path):
    """The model of the last step is unloaded while the first one executes."""
    stages = write_family(tmp_path)
    with start(tmp_path, *EXPLICIT, "--load-model=e") as server:
        with held(server, stages["a"], "e") as asked:
            assert command(server, "unload", "b") == (200, "")
            servers.wait_for(lambda: not is_ready(server, "e"), 60, "the ensemble is no longer ready")
        assert asked.result()["Y"] == [12]
        await_states(server, b="UNAVAILABLE", e="UNAVAILABLE")


def test_a_request_ends_although_its_ensemble_is_unloaded(start, tmp_path):
    stages = write_family(tmp_path)
    with start(tmp_path, *EXPLICIT, "--load-model=e") as server:
        with held(server, stages["a"], "e") as asked:
            assert command(server, "unload", "e", DEPENDENTS) == (200, "")
            servers.wait_for(lambda: not is_ready(server, "e"), 60, "the ensemble is no longer ready")
        assert asked.result()["Y"] == [12]
        await_states(server, a="UNAVAILABLE", b="UNAVAILABLE", e="UNAVAILABLE")


def test_a_reload_under_a_request_changes_the_next_one(start, tmp_path):
    stages = write_family(tmp_path)
    config = stages["b"].folder / "config.pbtxt"
    with start(tmp_path, *EXPLICIT, "--load-model=e") as server:
        with held(server, stages["a"], "e") as asked:
            config.write_text(config.read_text().replace('string_value: "10"', 'string_value: "20"'))
            assert command(server, "load", "b") == (200, "")
        assert asked.result()["Y"] == [12]
        servers.wait_for(lambda: is_ready(server, "e"), 60, "the ensemble is ready")
        assert ask(server, "e")["Y"] == [22]


# ---- A member changes, and no longer fits


def test_an_ensemble_goes_when_a_reload_no_longer_fits_it(start, tmp_path):
    """… and comes back with the next reload that does."""
    stages = write_family(tmp_path)
    config = stages["b"].folder / "config.pbtxt"
    text = config.read_text()
    with start(tmp_path, *EXPLICIT, "--load-model=e") as server:
        config.write_text(text.replace('name: "OUT"', 'name: "AUT"'))
        assert command(server, "load", "b") == (200, "")
        await_states(server, a="READY", b="READY", e="UNAVAILABLE")
        assert ask(server, "e").code != "OK"
        config.write_text(text)
        assert command(server, "load", "b") == (200, "")
        await_states(server, a="READY", b="READY", e="READY")
        assert ask(server, "e")["Y"] == [12]
