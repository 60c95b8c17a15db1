# SPDX-License-Identifier: Apache-2.0
"""What `conch check` passes, our server loads; and what it calls an error, the server refuses. Over the repositories of
tests/conformance/corpus, and over variations of their configurations, which are made by a random generator with fixed seeds.

Only the backends of this project are asked: others are missing here, and a model in Python may fail in its own code.
"""

import dataclasses
import json
import random
import re
import subprocess

import pytest

import check_cases
import corpus
import server as servers

from test_corpus_check import refusals

pytestmark = pytest.mark.skipif(servers.REFERENCE, reason="it is a command of Conch")

# What only ONNX Runtime knows: execution providers that it offers, and sizes of outputs that it infers. What repository agents refuse.
UNKNOWABLE = re.compile(r"needs \w+ExecutionProvider, which|needs a model whose first dimension is -1|\(repository agent '\w+'\)")
OWN = re.compile(r'"(identity|onnxruntime|onnxruntime_onnx|ensemble)"')
OTHERS = re.compile(r'(backend|platform) *: *"(?!identity|onnxruntime|onnxruntime_onnx|ensemble")\w')


def own_models():
    """The models of the corpus that run on our backends."""
    found = []
    for model in corpus.read_all():
        own = OWN.search(model.config) and not OTHERS.search(model.config)
        if own and model.source != "set_config" and not model.name.startswith(".") and "delay_sec" not in model.config:
            found.append(model)
    return found


@dataclasses.dataclass
class Good:
    """A model of the cases of `conch check` that has no fault."""

    name: str
    files: dict

    @property
    def config(self):
        return self.files.get("config.pbtxt", "")

    def write(self, root):
        for path, content in self.files.items():
            target = root / self.name / path
            if content is None:
                target.mkdir(parents=True, exist_ok=True)
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content.encode() if isinstance(content, str) else content)


def good_models():
    found = []
    for case in check_cases.CASES:
        texts = all(content is None or isinstance(content, (str, bytes)) for content in case.fine.values())
        if texts and not case.flags and all(path.startswith("m/") for path in case.fine):
            model = Good("m", {path.removeprefix("m/"): content for path, content in case.fine.items()})
            if OWN.search(model.config) and not OTHERS.search(model.config):
                found.append(model)
    return found


def vary(config, chance):
    """The configuration with one to three small mistakes, as people make them."""
    for _ in range(chance.choice([0, 1, 1, 2, 3])):
        places = list(re.finditer(r'-?\b\d+\b|TYPE_\w+|"[^"\n]*"|[{}\[\]]|\w+(?=\s*[:{\[])', config))
        if not places:
            return config
        place = chance.choice(places)
        word = place[0]
        if word.lstrip("-").isdigit():
            new = str(chance.choice([-1, 0, 1, 2, 3, 4, 7]))
        elif word.startswith("TYPE_"):
            new = chance.choice(["TYPE_FP32", "TYPE_INT64", "TYPE_STRING", "TYPE_INVALID", "FP32"])
        elif word.startswith('"'):
            new = chance.choice(['"x"', '""', word[:-1] + 's"', word])
        else:
            new = chance.choice(["", word, word + "s", word.lower()])
        config = config[:place.start()] + new + config[place.end():]
    return config


def judged(folder, flags=()):
    """({model: codes of its errors}, {model: why the server refuses it}, names of all models)."""
    names = {path.name for path in folder.iterdir()}
    with servers.Server(folder, flags=["--exit-on-error=false", *flags], ready=False) as server:
        refused = refusals(server, names)
    done = subprocess.run([servers.BIN, "check", "--format=json", f"--backend-directory={servers.BACKENDS}", *flags, folder],
                          capture_output=True, check=False, timeout=120)
    assert done.stderr == b""
    errors = {}
    for finding in json.loads(done.stdout)["findings"]:
        if finding["severity"] == "error":
            errors.setdefault(finding["model"], set()).add(finding["code"])
    return errors, refused, names


def assert_agree(errors, refused):
    missed = {name: why for name, why in refused.items() if name not in errors and not UNKNOWABLE.search(why)}
    assert not missed
    assert not {name: codes for name, codes in errors.items() if name not in refused}


@pytest.mark.parametrize("flags", [(), ("--disable-auto-complete-config",)], ids=["default", "strict"])
def test_server_loads_what_passes_of_the_corpus(tmp_path, flags):
    for model in own_models():
        model.write(tmp_path / "models")
    errors, refused, names = judged(tmp_path / "models", flags)
    assert_agree(errors, refused)
    assert len(names - set(refused)) > 10 and len(refused) > 50


def write_variation(folder, model, name, chance):
    model.write(folder)
    made = folder / model.name
    path = made / "config.pbtxt"
    config = vary(path.read_text(encoding="utf-8"), chance)
    path.write_text(re.sub(rf'^name\s*:\s*"{re.escape(model.name)}"', f'name: "{name}"', config, flags=re.MULTILINE),
                    encoding="utf-8")
    made.rename(folder / name)


@pytest.mark.parametrize("seed", [1, 2])
def test_server_loads_what_passes_of_variations(tmp_path, seed):
    chance = random.Random(seed)
    kinds = [good_models(), [model for model in own_models() if "ensemble" not in model.config]]
    for number in range(400):
        write_variation(tmp_path / "models", chance.choice(kinds[number % 4 == 0]), f"v{number}", chance)
    errors, refused, names = judged(tmp_path / "models")
    assert_agree(errors, refused)
    assert len(names - set(refused)) > 100 and len(refused) > 100
