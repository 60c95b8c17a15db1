# SPDX-License-Identifier: Apache-2.0
"""The documentation prints what the server answers.

A block of bash that asks localhost:8000 is run against the examples. A block of json or text right behind it is its
expected output, where … stands for anything within a line.
"""

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

import wire
from repository import EXAMPLES
from server import BACKENDS, BIN, BUILD, ROOT, SANITIZED, Server

PYTHON_EXAMPLES = EXAMPLES.parent / "python"
BLOCK = re.compile(r"```bash\n(?P<command>.*?)```(?:\n\n```(?:json|text)\n(?P<output>.*?)```)?", re.DOTALL)


without_sanitizer = pytest.mark.skipif(SANITIZED, reason="a build with a sanitizer is not installed and makes no manual page")
OTHERS = {"writing-a-backend.md", "writing-a-batch-strategy.md"}  # these pages have models and tests of their own


def commands():
    for page in sorted((ROOT / "docs").rglob("*.md")):
        if page.name in OTHERS or page.parent.name == "howto":    # test_howto.py follows these
            continue
        text = page.read_text()
        for block in BLOCK.finditer(text):
            if "localhost:8000" in block["command"]:
                line = text.count("\n", 0, block.start()) + 2
                yield pytest.param(block["command"], block["output"], id=f"{page.relative_to(ROOT)}:{line}")


@pytest.fixture(scope="module")
def examples(tmp_path_factory):
    """Those in Python, too, as tools/run-demo serves them."""
    backends = tmp_path_factory.mktemp("backends")
    for folder in (*pathlib.Path(BACKENDS).resolve().iterdir(), *(PYTHON_EXAMPLES / "backends").iterdir()):
        (backends / folder.name).symlink_to(folder)
    with Server(EXAMPLES, PYTHON_EXAMPLES / "models", flags=[f"--backend-directory={backends}"],
                env={"PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"}) as server:
        yield server


@pytest.mark.parametrize("command, output", list(commands()))
def test_each_command_prints_what_the_page_shows(examples, command, output):
    done = subprocess.run(
        ["bash", "-c", command.replace("localhost:8000", examples.url)],
        cwd=ROOT,
        env={**os.environ, "LC_ALL": "C.UTF-8"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    if output is not None:
        expected = ".*".join(map(re.escape, output.rstrip("\n").split("…")))
        assert re.fullmatch(expected, done.stdout.rstrip("\n")), f"{done.stdout}\nis not\n{output}"


def test_the_python_of_getting_started_runs(examples):
    page = (ROOT / "docs/getting-started.md").read_text()
    program = re.search(r"```python\n(.*?)```", page, re.DOTALL)[1].replace("localhost:8000", examples.url)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "[ 1.   2.5 -3. ]\n", done.stderr


def test_the_model_of_the_python_page_serves(tmp_path):
    page = (ROOT / "docs/python.md").read_text()
    for name, content in re.findall(r'^`models/([^`]+)`:\n\n```\w+\n(.*?)```', page, re.DOTALL | re.MULTILINE):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    with Server(tmp_path, env={"PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"}) as server:
        document = {"inputs": [{"name": "IN", "datatype": "FP32", "shape": [1, 3], "data": [1, 2.5, -3]}]}
        (output,) = json.loads(wire.infer(server, "halves", document).body)["outputs"]
    assert output["data"] == [0.5, 1.25, -1.5]


def test_the_curl_of_the_readme_classifies(examples):
    page = (ROOT / "README.md").read_text()
    command = re.search(r"^    (curl .*\n(?:        .*\n)*)", page, re.MULTILINE)[1].replace("localhost:8000", examples.url)
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=True)
    (scores,) = [output["data"] for output in json.loads(done.stdout)["outputs"]]
    assert len(scores) == 10
    assert max(scores) == scores[4] > 0.9  # "the fifth of them close to 1: it is a 4"


@pytest.mark.conch_only("it is Conch's help")
def test_the_options_page_is_up_to_date():
    done = subprocess.run([ROOT / "tools/options-page", BIN], capture_output=True, text=True, timeout=60, check=True)
    assert (ROOT / "docs/options.md").read_text() == done.stdout, "run tools/options-page > docs/options.md"


@pytest.mark.parametrize("flag, line", [
    ("http-port", "**type** `port` · **default** `8000` · **status** works"),
    ("allow-gpu-metrics", "**type** `true` or `false` · **default** `true` · **status** no effect yet"),
    ("cache-config", "**type** `cache,setting=value` · **status** works"),
    ("repoagent-directory", "**type** `path` · **status** works"),
    ("trace-file", "**type** `path` · **status** deprecated"),
    ("help", "**type** no value · **status** works"),
])
def test_the_options_page_says_type_default_and_status(flag, line):
    page = (ROOT / "docs/options.md").read_text()
    assert f'\n### <a id="{flag}"></a>`--{flag}`\n\n{line}\n' in page


@pytest.mark.conch_only("it is Conch's help")
def test_what_has_no_effect_is_said_to_have_none():
    """Each option of the reference is one of ours, and the page of differences names those, and the fields of a configuration, that nothing acts upon."""
    page, options = (ROOT / "docs/compatibility.md").read_text(), (ROOT / "docs/options.md").read_text()
    sections = dict(re.findall(r"^### <a id=\S+></a>`--(\S+)`\n(.*?)(?=^###|\Z)", options, re.MULTILINE | re.DOTALL))
    reference = set(re.findall(r"--([a-z][a-z0-9-]+[a-z0-9])", (ROOT / "docs/reference/features/command-line.md").read_text()))
    assert len(reference) > 80 and reference <= sections.keys()
    inert = [flag for flag, text in sections.items() if "**status** no effect yet" in text]
    assert inert and [flag for flag in inert if f"`--{flag}`" not in page] == []
    fields = re.findall(r'\{"(\w+)", (?:NO|TUNES)\}', (ROOT / "src/core/config/honoured.c").read_text())
    assert fields and [field for field in fields if f"`{field}`" not in page] == []


def test_the_options_page_has_each_flag_once_with_an_anchor():
    """Each flag of the help is a heading, in the same order, and links within the page lead to one."""
    page = (ROOT / "docs/options.md").read_text()
    anchors = re.findall(r'^### <a id="([a-z0-9-]+)"></a>`--([a-z0-9-]+)`$', page, re.MULTILINE)
    assert len(anchors) == len(set(anchors)) > 100
    assert all(anchor == flag for anchor, flag in anchors)
    said = subprocess.run([BIN, "--help", "all"], capture_output=True, text=True, timeout=60, check=True).stdout
    shown, inert = said.split("\nWithout effect yet\n")
    assert [flag for _, flag in anchors] == (re.findall(r"^  --([a-z0-9-]+)", shown, re.MULTILINE) +
                                             re.findall(r" --([a-z0-9-]+)", inert))
    assert set(re.findall(r"\]\(#([a-z0-9-]+)\)", page)) <= {flag for _, flag in anchors}


@without_sanitizer
@pytest.mark.conch_only("it is Conch's manual page")
def test_the_manual_page_has_all_flags_and_codes(tmp_path):
    """The manual page of the build is that of its program, has each flag and each code, and troff finds no error in it."""
    made = tmp_path / "conch.1"
    subprocess.run([ROOT / "tools/options-page", "--man", made, BIN], timeout=60, check=True)
    assert (BUILD / "share/man/man1/conch.1").read_text() == made.read_text()
    done = subprocess.run(["groff", "-man", "-Tutf8", "-ww", "-P-cbou", made], capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == ""
    shown = done.stdout.replace("\u2010\n", "").replace("\u2010", "-")
    for arguments in (["--help", "all"], ["check", "--help"]):
        text = subprocess.run([BIN, *arguments], capture_output=True, text=True, timeout=60, check=True).stdout
        terms = re.findall(r"^  (--[a-z0-9-]+|[EW]-[a-z-]+)", text, re.MULTILINE)
        assert terms
        assert [term for term in terms if not re.search(rf"^ +{term}( |$)", shown, re.MULTILINE)] == []


@without_sanitizer
@pytest.mark.conch_only("it is how Conch is installed")
def test_the_manual_page_is_installed(tmp_path):
    subprocess.run(["cmake", "--install", BUILD, "--prefix", tmp_path, "--component", "Unspecified"], check=True,
                   capture_output=True, timeout=120)
    assert (tmp_path / "share/man/man1/conch.1").read_text().startswith('.\\" Made by tools/options-page')
    assert (tmp_path / "bin/conch").exists()
    for completion in "bash-completion/completions/conch", "zsh/site-functions/_conch", "fish/vendor_completions.d/conch.fish":
        assert (tmp_path / "share" / completion).exists()
