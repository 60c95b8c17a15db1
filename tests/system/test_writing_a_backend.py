# SPDX-License-Identifier: Apache-2.0
"""docs/writing-a-backend.md: its backend is compiled by its command, and answers in both servers."""

import json
import pathlib
import re
import shlex
import subprocess
import urllib.request

import pytest

import server as servers
import triton

PAGE = servers.ROOT / "docs/writing-a-backend.md"


def block(language, containing):
    """The code block of the page that contains this text."""
    for found in re.finditer(rf"^```{language}\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL):
        if containing in found[1]:
            return found[1]
    raise AssertionError(f"no {language} block with {containing}")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """What the page's commands make, in a folder of the test's own."""
    work = tmp_path_factory.mktemp("page")
    for line in block("bash", "gcc ").splitlines():
        if "--model-repository" in line:
            continue
        command = shlex.split(line.replace("/tmp/", f"{work}/"))
        done = subprocess.run(command, cwd=servers.ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0 and not done.stderr, done.stderr
    return work


@pytest.mark.parametrize("which", ["conch", "triton"])
def test_the_page_is_true(which, folder, monkeypatch):
    monkeypatch.setattr(servers, "BACKENDS", str(folder / "backends"))
    if which == "triton" and not triton.program():
        pytest.skip("the genuine Triton is not installed: make reference")
    make = servers.Server if which == "conch" else triton.Triton
    body = re.search(r"-d '(.*)'", block("bash", "curl"), re.DOTALL)[1]
    with make(folder / "models") as server:
        request = urllib.request.Request(f"http://{server.url}/v2/models/scale/infer", body.encode())
        with urllib.request.urlopen(request, timeout=10) as answer:
            got = json.loads(answer.read())
    assert got == json.loads(block("json", "scale"))


def test_the_page_shows_the_file():
    source = pathlib.Path(servers.ROOT / "examples/backends/scale/scale.c").read_text()
    assert '--8<-- "examples/backends/scale/scale.c"' in PAGE.read_text()
    assert len(source.splitlines()) < 120
