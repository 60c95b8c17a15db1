# SPDX-License-Identifier: Apache-2.0
"""docs/writing-a-backend.md: its backends are compiled by its commands, and answer in both servers."""

import json
import os
import re
import shutil
import subprocess
import urllib.error
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


COMPILERS = {"c": "gcc", "c++": "g++", "rust": "rustc", "library": "gcc"}
SOURCES = {"c": "scale.c", "c++": "scale.cc", "rust": "scale.rs", "library": "with_library.c"}


def commands(language):
    """The lines of the page that make the repository and the backend, with that language's compiler."""
    compiles = {source: line for line in PAGE.read_text().splitlines()
                for source in SOURCES.values() if line.startswith(("gcc ", "g++ ", "rustc ")) and f"/{source} " in line}
    assert set(compiles) == set(SOURCES.values())
    lines = block("bash", "gcc ").splitlines()
    return [compiles[SOURCES[language]] if line.startswith("gcc ") else line
            for line in lines if "--model-repository" not in line]


def installed(work):
    """An installation of the build under test: PREFIX."""
    prefix = work / "prefix"
    build = os.environ.get("CONCH_BUILD_DIR", servers.ROOT / "build/release")
    subprocess.run(["cmake", "--install", build, "--prefix", prefix, "--component", "Unspecified"], check=True,
                   capture_output=True)
    return prefix


@pytest.fixture(scope="module", params=SOURCES)
def folder(request, tmp_path_factory):
    """Runs the page's commands in a folder of the test's own."""
    language = request.param
    if not shutil.which(COMPILERS[language]):
        pytest.skip(f"there is no {COMPILERS[language]}: make test-rust")
    if language == "library" and servers.SANITIZED:
        pytest.skip("a backend of the user's compiler cannot be linked with a library that has a sanitizer")
    work = tmp_path_factory.mktemp("page")
    environment = dict(os.environ)
    if language == "library":
        environment["PKG_CONFIG_PATH"] = f"{installed(work)}/lib/pkgconfig"
    for line in commands(language):
        done = subprocess.run(["bash", "-c", line.replace("/tmp/", f"{work}/")], cwd=servers.ROOT, env=environment,
                              capture_output=True, text=True, check=False)
        assert done.returncode == 0 and not done.stderr, done.stderr
    return work


def answer(server, body):
    request = urllib.request.Request(f"http://{server.url}/v2/models/scale/infer", body.encode())
    with urllib.request.urlopen(request, timeout=60) as got:
        return json.loads(got.read())


@pytest.mark.parametrize("which", ["conch", "triton"])
def test_the_backends_of_the_page_answer(which, folder, monkeypatch):
    monkeypatch.setattr(servers, "BACKENDS", str(folder / "backends"))
    if which == "triton" and triton.missing():
        pytest.skip(triton.missing())
    make = servers.Server if which == "conch" else triton.Triton
    body = re.search(r"-d '(.*)'", block("bash", "curl"), re.DOTALL)[1]
    with make(folder / "models") as server:
        assert answer(server, body) == json.loads(block("json", "scale"))
        with pytest.raises(urllib.error.HTTPError) as error:
            answer(server, body.replace("0.5", '"half"'))
        assert json.loads(error.value.read())["error"].endswith("factor must be a DOUBLE")
        assert answer(server, body) == json.loads(block("json", "scale"))


@pytest.mark.parametrize("language", SOURCES)
def test_the_page_quotes_its_file(language):
    source = f"examples/backends/scale/{SOURCES[language]}"
    assert f'<!-- listing: {source} -->' in PAGE.read_text()
    assert len((servers.ROOT / source).read_text().splitlines()) < 140
