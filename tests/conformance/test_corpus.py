# SPDX-License-Identifier: Apache-2.0
"""The repositories of tests/conformance/corpus, and the wrong configurations of the unit test, in our server and in the
genuine Triton 2.51: the same configuration, metadata, index and error texts.

Where the two differ, a table of docs/compatibility.md names the models. A difference without a row fails, and so does a
row without a difference. Each server starts once per mode, with all models. Fields that we refuse by name until they
are implemented are compared with Triton without a server, by tests/tools/configtool.c.
"""

import concurrent.futures
import functools
import json
import os
import re
import subprocess
import urllib.error
import urllib.request

import pytest

import corpus
import server as servers
import triton

pytestmark = triton.needed

MODES = {"default": (), "strict": ("--disable-auto-complete-config",), "custom": ("--model-config-name=custom",)}
MODELS = corpus.read_all()
BOTH = [model for model in MODELS if not model.marks & {"kills", "may kill"}]
PAGE = corpus.TOP / "docs/compatibility.md"
NOT_YET = "is not supported yet by Conch"
# Faults of an ensemble that involve its other models, and agents: asked of a server if there are any.
OTHER_MODELS = re.compile(r"^ensemble '?\w+'? (depends on|contains|allows)|^in ensemble|repo agent|Invalid model name: .* version")
MAPS = {"parameters", "metric_tags", "cc_model_filenames", "priority_queue_policy", "inputs", "input_map", "output_map"}


# ---- The answers of a server


class Answers:
    """All answers of one server about all models."""

    def __init__(self, running):
        self.base = f"http://{running.url}/v2/"
        self.log = running.log()
        self.refused = dict(self.read_log(r"Poll failed for model directory '(.*?)': (.*)"))
        self.given = dict(self.read_log(r"accept has been given '(.*?)': (.*)"))    # to the backend
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            names = [model.name for model in BOTH]
            self.configs = dict(zip(names, pool.map(lambda name: self.get(f"models/{name}/config"), names), strict=True))
            self.metadata = dict(zip(names, pool.map(lambda name: self.get(f"models/{name}"), names), strict=True))
        self.index = self.get("repository/index", b"{}")

    def get(self, path, data=None):
        try:
            with urllib.request.urlopen(urllib.request.Request(self.base + path, data=data), timeout=60) as answer:
                return json.loads(answer.read(), object_pairs_hook=tell_twins)
        except urllib.error.HTTPError as error:
            return json.loads(error.read())

    def read_log(self, pattern):
        for line in self.log.splitlines():
            found = re.search(r' ("(?:[^"\\]|\\.)*")$', line)
            match = found and re.fullmatch(pattern, json.loads(found[1]), re.DOTALL)
            if match:
                yield match.groups()

    def entries(self, name):
        """[(version, state, reason)], as in the index."""
        return sorted((entry.get("version", ""), entry.get("state", ""), entry.get("reason", ""))
                      for entry in self.index if entry["name"] == name)


def tell_twins(pairs):
    assert len({key for key, _ in pairs}) == len(pairs), f"a name twice: {pairs}"
    return dict(pairs)


def run(server, root, backends, flags):
    started = server(root, ready=False, flags=(
        "--exit-on-error=false", "--strict-readiness=false", "--allow-metrics=false",
        "--repoagent-directory=/opt/tritonserver/repoagents", *flags))    # neither has an agent there
    started.args = [f"--backend-directory={backends}" if arg.startswith("--backend-directory=") else arg
                    for arg in started.args]
    with started:
        return Answers(started)


class Mode:
    """The answers of both servers in one mode; asked once."""

    def __init__(self, folder, name):
        self.name, self.root = name, folder / "models"
        for model in BOTH:
            model.write(self.root)
        backends = corpus.make_backends(folder / "backends", servers.BUILD)
        self.ours = run(servers.Server, self.root, backends, MODES[name])
        self.theirs = run(triton.Triton, self.root, backends, MODES[name])


@pytest.fixture(scope="module")
def in_mode(tmp_path_factory):
    """The Mode of a name."""
    return functools.cache(lambda name: Mode(tmp_path_factory.mktemp(name), name))


# ---- How two answers differ


def unequal(mine, theirs, path="", inside_map=False):
    """The paths of differences, the order of names included; 1 differs from 1.0 and from "1"."""
    if isinstance(mine, dict) and isinstance(theirs, dict):
        if not inside_map and list(mine) != list(theirs):
            yield f"{path}: the names {list(mine)}, not {list(theirs)}"
        for name in mine.keys() & theirs.keys():
            yield from unequal(mine[name], theirs[name], f"{path}.{name}", name in MAPS or path.endswith("graph_spec[]"))
        if inside_map and mine.keys() != theirs.keys():
            yield f"{path}: {mine.keys() ^ theirs.keys()}"
    elif isinstance(mine, list) and isinstance(theirs, list):
        if len(mine) != len(theirs):
            yield f"{path}: {mine}, not {theirs}"
        for one, other in zip(mine, theirs, strict=False):
            yield from unequal(one, other, f"{path}[]")
    elif type(mine) is not type(theirs) or mine != theirs:
        yield f"{path}: {mine!r}, not {theirs!r}"


def configtool(mode, model):
    """Our configuration or our error if fields that the server does not honour yet are passed over."""
    folder = mode.root / model.name
    custom = folder / "configs/custom.pbtxt"
    path = custom if mode.name == "custom" and custom.exists() else folder / "config.pbtxt"
    version = min((p for p in folder.iterdir() if p.name.isdigit()), default=None, key=lambda p: p.name)
    files = sorted(p.name + "/" * p.is_dir() for p in version.iterdir()) if version else []
    settings = {"CONFIGTOOL_ALL": "1"} | ({"CONFIGTOOL_STRICT": "1"} if mode.name == "strict" else {})
    done = subprocess.run([servers.BUILD / "tests/configtool", model.name, path, *files], capture_output=True, check=False,
                          env=os.environ | settings, timeout=60)
    if done.returncode == 0:
        return json.loads(done.stdout), None
    return None, done.stderr.decode().rstrip("\n").split(": ", 1)[1]


def error_of(answers, name):
    """The fault of a model, without the code in front, or None."""
    if name in answers.refused:
        return answers.refused[name]
    for _, state, reason in answers.entries(name):
        if state == "UNAVAILABLE":
            return reason.split(": ", 1)[-1]
    return None


def differences_of_refused(mode, model, their_error):
    """The differences of a model that a field not honoured yet keeps from being loaded; backends and other models are not
    asked."""
    config, my_error = configtool(mode, model)
    if model.source in ("onnx", "set_config"):
        return
    if config and not their_error and "error" not in mode.theirs.configs[model.name]:
        yield from unequal(config, mode.theirs.configs[model.name], "config")
    elif config and their_error and not OTHER_MODELS.search(their_error):
        yield f"error: None, not {their_error!r}"
    elif not config and "ensemble_scheduling" in model.config and not their_error:
        return    # its own tensors are validated after those of the other models, which are wrong
    elif not config and not (their_error and my_error.startswith(their_error)):
        yield f"error: {my_error!r}, not {their_error!r}"


def differences(mode, model):
    ours, theirs, name = mode.ours, mode.theirs, model.name
    my_error, their_error = error_of(ours, name), error_of(theirs, name)
    if my_error and NOT_YET in my_error:
        yield from differences_of_refused(mode, model, their_error)
        return
    if their_error is None or my_error is None or not my_error.startswith(their_error):
        if my_error != their_error:
            yield f"error: {my_error!r}, not {their_error!r}"
    mine, other = ours.entries(name), theirs.entries(name)
    if [entry[:2] for entry in mine] != [entry[:2] for entry in other]:
        yield f"index: {mine}, not {other}"
    elif not all(entry[2].startswith(their_entry[2]) for entry, their_entry in zip(mine, other, strict=True)):
        yield f"reason: {mine}, not {other}"
    yield from unequal(ours.configs[name], theirs.configs[name], "config")
    yield from unequal(ours.metadata[name], theirs.metadata[name], "metadata")
    yield from unequal(*(json.loads(answers.given.get(name, "null")) for answers in (ours, theirs)), "given")


# ---- The page


@functools.cache
def known():
    """The models that the page lists as read differently, by their table."""
    text = PAGE.read_text(encoding="utf-8")
    section = text.split("\n## Configurations that are read otherwise\n", 1)[1].split("\n## ", 1)[0]
    names = {}
    for line in section.splitlines():
        if line.startswith("|"):
            for name in re.findall(r"`([^`]+)`", line.rstrip("| ").rsplit("|", 1)[1]):
                names[name] = line
    return names


@functools.cache
def found_in(mode):
    """{model: [how the answers differ]}"""
    return {model.title if model.source == "wrong" else model.name: text
            for model in BOTH if "newer" not in model.marks and (text := list(differences(mode, model)))}


@pytest.mark.parametrize("name", MODES)
def test_answers_are_those_of_triton_or_on_the_page(in_mode, name):
    unknown = {model: text for model, text in found_in(in_mode(name)).items() if model not in known()}
    if "CONCH_SHOW_DIFFERENCES" in os.environ:
        for model, text in unknown.items():
            print(f"\n{model}", *text, sep="\n    ")
    assert not unknown


def test_every_row_of_the_page_is_a_difference(in_mode):
    kills = {model.name for model in MODELS if "kills" in model.marks}
    assert known().keys() - kills == set().union(*(found_in(in_mode(name)) for name in MODES))


@pytest.mark.parametrize("model", [model for model in MODELS if "kills" in model.marks], ids=lambda model: model.name)
def test_our_server_survives_what_kills_triton(model, tmp_path):
    assert model.name in known()
    model.write(tmp_path / "models")
    backends = corpus.make_backends(tmp_path / "backends", servers.BUILD)
    run(servers.Server, tmp_path / "models", backends, ())
    with pytest.raises(AssertionError, match=r"the genuine Triton \(pid \d+\) ended with"):
        run(triton.Triton, tmp_path / "models", backends, ())
