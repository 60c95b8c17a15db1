# SPDX-License-Identifier: Apache-2.0
"""Repositories that are registered and unregistered while the server runs, by the C API. The genuine library is asked the
same, and gives the same answers word for word unless a comment says otherwise."""

import json

import pytest

import embed
import repository
import triton

EITHER = ["conch", pytest.param("triton", marks=triton.needed)]
POLL_FAILURE = "Internal: failed to load '{}', failed to poll from model repository"
NOT_EXPLICIT = "Unsupported: repository {} is not allowed if model control mode is not EXPLICIT"
DUPLICATE = {"state": "UNAVAILABLE", "reason": "model appears in two or more repositories"}
READY = {"version": "1", "state": "READY"}


def write(root, *names, config_name=None):
    """Writes models whose parameter "lies" names their folder."""
    for name in names:
        folder = repository.write_identity(root, name, [("INT32", [1])], lies=f"{root.name}/{name}")
        config = folder / "config.pbtxt"
        given = f'name: "{config_name}"\n' if config_name else ""
        config.write_text(config.read_text().replace(f'name: "{name}"\n', given, 1))


@pytest.fixture(params=EITHER)
def run(request, tmp_path):
    """Runs commands in a server that has only the repository R/first, R being the folder of all; returns the lines that it
    prints."""
    write(tmp_path / "first", "a", "both")
    write(tmp_path / "second", "b", "both")
    write(tmp_path / "second", "named", config_name="other")
    write(tmp_path / "third", "c", "group/deep")
    (tmp_path / "file").write_text("")
    folder = tmp_path / "library"
    folder.mkdir()

    def do(*commands, options=("explicit",)):
        said = embed.run(tmp_path / "first", [command.replace("R/", f"{tmp_path}/") for command in commands],
                         which=request.param, folder=folder, options=options)
        return embed.without_advice([line.replace(f"{tmp_path}/", "R/") for line in said])

    do.conch = request.param == "conch"
    return do


def rows(line):
    """{name: state and so on} of an index."""
    return {row.pop("name"): row for row in json.loads(line)}


def lies(line):
    return json.loads(line)["parameters"]["lies"]["string_value"]


@pytest.mark.parametrize("options", [(), ("poll",)])
def test_registration_needs_explicit_mode(run, options):
    assert run("register R/second", "register R/nowhere", "unregister R/first", "unregister R/nowhere", options=options) == [
        f"register R/second {NOT_EXPLICIT.format('registration')}", f"register R/nowhere {NOT_EXPLICIT.format('registration')}",
        f"unregister R/first {NOT_EXPLICIT.format('unregistration')}",
        f"unregister R/nowhere {NOT_EXPLICIT.format('unregistration')}"]


def test_unknown_and_repeated_paths_are_refused(run):
    there = "Already exists: model repository '{0}' has already been registered"
    nothing = "Invalid argument: failed to register '{0}', repository not found"
    unknown = "Invalid argument: failed to unregister '{0}', repository not found"
    assert run("register R/second", "register R/second", "register R/first", "register R/nowhere", "register R/file",
               "unregister R/third", "unregister R/second", "unregister R/second", "register R/second") == [
        "register R/second ok", f"register R/second {there.format('R/second')}", f"register R/first {there.format('R/first')}",
        f"register R/nowhere {nothing.format('R/nowhere')}", f"register R/file {nothing.format('R/file')}",
        f"unregister R/third {unknown.format('R/third')}", "unregister R/second ok",
        f"unregister R/second {unknown.format('R/second')}", "register R/second ok"]


def test_a_path_with_a_slash_at_its_end_is_the_same_repository(run):
    """For the genuine one it is another repository, so that all its models are there twice."""
    said = run("register R/second/", "register R/second", "index", "unregister R/second//", "index")
    if not run.conch:
        assert said[1] == "register R/second ok"
        assert rows(said[2])["b"] == DUPLICATE
        return
    assert said[1] == "register R/second Already exists: model repository 'R/second' has already been registered"
    assert rows(said[2]) == {"a": {}, "b": {}, "both": DUPLICATE, "named": {}}
    assert rows(said[4]) == {"a": {}, "both": {}}


def test_registration_loads_and_unloads_nothing(run):
    """The genuine one leaves a model out of the index when its repository was unregistered, although the model serves."""
    infer = "infer x b -1 - INPUT0:INT32:1:7"
    answer = "x response OUTPUT0:INT32:1:7 final"
    said = run("load b", "index", "register R/second", "index", "load b", infer, "index", "unregister R/second", "index", "load b",
               infer, "ready b", "unload b", infer, "load b", "index")
    assert said[0] == f"load b {POLL_FAILURE.format('b')}"
    assert rows(said[1]) == {"a": {}, "both": {}}
    assert rows(said[3]) == {"a": {}, "b": {}, "both": DUPLICATE, "named": {}}
    assert said[4:6] == ["load b ok", answer]
    assert rows(said[6]) == {"a": {}, "b": READY, "both": DUPLICATE, "named": {}}
    assert rows(said[8]) == {"a": {}, "both": {}} | ({"b": READY} if run.conch else {})
    assert said[9:13] == [f"load b {POLL_FAILURE.format('b')}", answer, "ready b yes", "unload b ok"]
    assert said[13].startswith("x refused Not found: Request for unknown model: 'b' "), said
    assert said[14] == f"load b {POLL_FAILURE.format('b')}"
    left = rows(said[15])
    assert left.pop("b", {}) in ({}, {**READY, "state": "UNLOADING"})    # in the index until it has been unloaded
    assert left == {"a": {}, "both": {}}


def test_a_duplicate_loads_after_one_repository_is_unregistered(run):
    said = run("register R/second", "load both", "unregister R/first", "load both", "config both", "register R/first", "load both",
               "load a", "index", "ready both")
    assert said[1] == f"load both {POLL_FAILURE.format('both')}"
    assert said[3] == "load both ok"
    assert lies(said[4]) == "second/both"
    assert said[6:8] == [f"load both {POLL_FAILURE.format('both')}", "load a ok"]
    assert rows(said[8]) == {"a": READY, "b": {}, "both": READY if run.conch else DUPLICATE, "named": {}}
    assert said[9] == "ready both yes"


def test_a_model_moves_to_the_repository_that_is_left(run):
    """It is loaded again even if its folder there looks the same; the genuine one compares only the folder's time, and
    keeps the old model."""
    said = run("load both", "unregister R/first", "register R/second", "load both", "config both")
    assert said[3] == "load both ok"
    assert lies(said[4]) == "second/both" or not run.conch


def test_mappings_give_models_other_names(run):
    """Their configurations may have any name: the models' name is the mapped one."""
    said = run("register R/second string:b=x string:named=y", "index", "load b", "load named", "load x", "load y", "config x",
               "config y", "infer x y -1 - INPUT0:INT32:1:7", "load x", "index", "unload x", "unregister R/second", "load x",
               "register R/second string:b=z", "load z", "config z", "load named")
    assert rows(said[1]) == {"a": {}, "both": DUPLICATE, "x": {}, "y": {}}
    assert said[2:6] == [f"load b {POLL_FAILURE.format('b')}", f"load named {POLL_FAILURE.format('named')}", "load x ok", "load y ok"]
    assert [(json.loads(line)["name"], lies(line)) for line in said[6:8]] == [("x", "second/b"), ("y", "second/named")]
    assert said[8:10] == ["x response OUTPUT0:INT32:1:7 final", "load x ok"]
    assert rows(said[10]) == {"a": {}, "both": DUPLICATE, "x": READY, "y": READY}
    assert said[11:16] == ["unload x ok", "unregister R/second ok", f"load x {POLL_FAILURE.format('x')}", "register R/second ok",
                           "load z ok"]
    assert lies(said[16]) == "second/b"
    assert said[17] == f"load named {POLL_FAILURE.format('named')}"    # its configuration has another name


def test_mappings_may_swap_hide_and_reach_into_folders(run):
    said = run("register R/second string:b=both string:both=b", "load b", "config b", "load both", "config both", "index",
               "unload b", "unload both", "unregister R/second",
               "register R/second string:b=a string:both=two string:b=three", "load a", "config a", "load three", "config three",
               "load two", "load both", "config both",
               "register R/third string:group/deep=d string:nothing=n", "load d", "config d", "load deep", "load n", "load group")
    assert (lies(said[2]), lies(said[4])) == ("second/both", "second/b")    # a mapping wins over the folder in R/first
    if run.conch:    # the genuine one refuses the model that serves as a duplicate
        assert rows(said[5])["both"] == READY
    assert said[10] == "load a ok"
    assert (lies(said[11]), lies(said[13]), lies(said[16])) == ("second/b", "second/b", "first/both")
    assert said[18] == "load d ok"
    assert lies(said[19]) == "third/group/deep"
    assert said[20:] == [f"load {name} {POLL_FAILURE.format(name)}" for name in ("deep", "n", "group")]


def test_invalid_mappings_are_refused(run):
    """Two with the same name, in one repository or in all of them; values that are not strings."""
    string = "Invalid argument: Mapped model name must be a string, found another type for b"
    twice = "Invalid argument: failed to register 'R/second', there is a conflicting mapping for 'x'"
    said = run("register R/second int:b=1", "register R/second bool:b=1", "register R/second string:b=x bytes:both=x",
               "register R/second string:b=x string:both=x", "index", "register R/second string:b=x",
               "register R/third string:c=y string:group/deep=x", "unregister R/second", "register R/third string:c=x", "index")
    assert said[:4] == [f"register R/second {string}", f"register R/second {string}",
                        f"register R/second {string.replace('for b', 'for both')}", f"register R/second {twice}"]
    assert rows(said[4]) == {"a": {}, "both": {}}
    assert said[5:9] == [
        "register R/second ok",
        "register R/third Already exists: failed to register 'x', there is a conflicting mapping for 'x'",
        "unregister R/second ok", "register R/third ok"]
    assert rows(said[9]) == {"a": {}, "both": {}, "group": {}, "x": {}}


def test_mappings_to_missing_folders_are_refused(run):
    """The genuine one accepts them, and even loads a folder beside the repository."""
    if not run.conch:
        pytest.skip("it takes all of them")
    folder = "Invalid argument: failed to register 'R/second', '{}' is not a folder in the repository, for model 'x'"
    name = "Invalid argument: invalid model name '{}', model name must not contain path traversal characters"
    folders = ["../third/c", "/etc", "b/../../third/c", ""]
    names = ["..", "a/b"]
    assert run(*(f"register R/second string:{path}=x" for path in folders), *(f"register R/second string:b={n}" for n in names),
               "register R/second string:b=") == [
        *(f"register R/second {folder.format(path)}" for path in folders),
        *(f"register R/second {name.format(n)}" for n in names),
        "register R/second Invalid argument: Model name cannot be empty. Please enter a valid name to deploy."]


def test_namespacing_separates_repositories(run):
    """A mapping gives a name in one repository, and while it is registered the name belongs to that repository."""
    said = run("register R/second", "load both", "index", "unregister R/second", "index", "register R/second string:b=a",
               "register R/third string:c=a", "load a", "index", "config a", options=("namespaces",))
    both = [row for row in json.loads(said[2]) if row["name"] == "both"]
    assert both == [{"name": "both", **READY}] * 2
    both = [row for row in json.loads(said[4]) if row["name"] == "both"]
    assert both == [{"name": "both", **READY}] * (2 if run.conch else 1)
    assert said[5:8] == [
        "register R/second ok", "register R/third Already exists: failed to register 'a', there is a conflicting mapping for 'a'",
        "load a ok"]
    assert sorted(map(str, (row for row in json.loads(said[8]) if row["name"] == "a"))) == [
        "{'name': 'a', 'version': '1', 'state': 'READY'}", "{'name': 'a'}"]
    assert lies(said[9]) == "second/b"
