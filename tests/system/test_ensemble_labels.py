# SPDX-License-Identifier: Apache-2.0
"""The labels of an ensemble's outputs are those of the step that writes them, in both servers."""

import pytest

import embed
import repository
import triton
from test_ensemble_statistics import step


def labelled(side, name, labels=""):
    more = f' label_filename: "{labels}"' if labels else ""
    return f'{side} [ {{ name: "{name}" data_type: TYPE_INT32 dims: [ 1 ]{more} }} ]\n'


def write_models(root):
    member = repository.write_identity(root, "member", [("INT32", [1])])
    config = (member / "config.pbtxt").read_text()
    (member / "config.pbtxt").write_text(config.replace('name: "OUTPUT0"', 'name: "OUTPUT0" label_filename: "labels"'))
    (member / "labels").write_text("cat\ndog\n")
    repository.write_identity(root, "bare", [("INT32", [1])])
    inner = [step("bare", "X", "T"), step("member", "T", "Y"), step("member", "X", "OWN"), step("bare", "X", "NONE")]
    config = f'platform: "ensemble"\n{labelled("input", "X")}{labelled("output", "Y")}{labelled("output", "OWN", "mine")}'
    config += f'{labelled("output", "NONE")}ensemble_scheduling {{ step [ {", ".join(inner)} ] }}\n'
    (repository.write_model(root, "e", config) / "mine").write_text("bird\n")
    repository.write_model(root, "outer", f'platform: "ensemble"\n{labelled("input", "X")}{labelled("output", "Z")}'
                                          f'ensemble_scheduling {{ step [ {step("e", "X", "Z", "X", "Y")} ] }}\n')
    return root


@pytest.mark.parametrize("which", ["conch", "triton"])
def test_outputs_have_the_labels_of_the_steps_that_write_them(which, tmp_path):
    if which == "triton" and triton.missing():
        pytest.skip(triton.missing())
    (tmp_path / "libraries").mkdir()
    with embed.Session(write_models(tmp_path / "models"), which=which, folder=tmp_path / "libraries") as session:
        lines = session.do("infer r e -1 - @labels X:INT32:1:7", "infer s outer -1 - @labels X:INT32:1:7")
    (answer,) = embed.of(lines, "r")
    for text in ("Y:INT32:1:7 [cat]", "OWN:INT32:1:7 [bird]", "NONE:INT32:1:7 []"):
        assert text in answer
    assert embed.of(lines, "s") == ["response Z:INT32:1:7 [cat] final"]
