# SPDX-License-Identifier: Apache-2.0
"""The parameters and settings of our backends: what the code reads, what `conch check` knows, and what the pages list are the same."""

import re

import pytest

import server as servers

BACKENDS = {"identity": "backends.md", "onnxruntime": "backends.md", "fil": "forests.md", "openvino": "openvino.md", "pytorch": "pytorch.md",
            "tensorflow": "tensorflow.md", "tensorrt": "tensorrt.md"}
EVERYWHERE = {"default-max-batch-size"}    # the server gives it to all backends
# Read by the code of the backend openvino, which executes models of tensorflow, too.
FROM_OPENVINO = {"tensorflow"}
# Settings by which Triton's backend has several GPUs in an instance, which ours refuses: `enable_multi_device` is enough to know of.
UNREAD = {"multi_device_gpus", "multi_device_per_rank_engines"}


def page(backend):
    text = (servers.ROOT / "docs" / BACKENDS[backend]).read_text()
    if BACKENDS[backend] == "backends.md":
        text = re.search(rf"^## {backend}\n(.*?)(?=^## )", text, re.MULTILINE | re.DOTALL)[1]
    return text


def rows(text, title):
    """The first cells of the tables whose first cell of the head has this title."""
    found = []
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        head, _, *lines = table.splitlines()
        if re.search(title, head.split(" | ")[0]):
            found += [re.split(r"(?<!\\) \| ", line)[0] for line in lines]
    return found


def listed_parameters(backend):
    names = {name for row in rows(page(backend), r"^\| parameter") for name in re.findall(r"`([^`]+)`", row)}
    return {name.removesuffix("…") for name in names}    # `session.…` stands for all that begin so


def listed_settings(backend):
    words = [word for row in rows(page(backend), "--backend-config=") for word in re.findall(r"`([^`]+)`", row)]
    words += re.findall(rf"`(?:--backend-config={backend},)?([a-z][a-z-]+=[^`]*)`", page(backend))
    return {word.split("=")[0] for word in words if "=" in word and not word.startswith("--")}


def checked_parameters(backend):
    text = (servers.ROOT / "src/lint/backends.c").read_text()
    table = re.search(rf"struct parameter_traits {backend}\[\] = \{{(.*?)^\}};", text, re.MULTILINE | re.DOTALL)[1]
    return set(re.findall(r'\.name = "([^"]+)"', table))


def code(backend):
    return "\n".join(file.read_text() for file in sorted((servers.ROOT / "backends" / backend).glob("*.c")))


def read_parameters(backend):
    return set(re.findall(r'backend_parameter(?:_int|_bool)?\([^,]+,\s*"([^"]+)"', code(backend)))


def read_settings(backend):
    known = re.findall(r"known(?:_settings)?\[\] = \{([^}]*)\}", code(backend))
    assert len(known) == 1, backend
    return set(re.findall(r'"([^"]+)"', known[0]))


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_page_lists_the_parameters_that_the_check_knows(backend):
    assert listed_parameters(backend) | (checked_parameters("openvino") if backend in FROM_OPENVINO else set()) == checked_parameters(backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_check_knows_the_parameters_that_the_backend_reads(backend):
    known = checked_parameters(backend)
    read = read_parameters(backend)
    assert read and read <= known
    text = code(backend) + (code("openvino") if backend in FROM_OPENVINO else "")
    assert {name for name in known - UNREAD if f'"{name}"' not in text} == set()


@pytest.mark.parametrize("backend", [name for name in BACKENDS if name != "identity"])
def test_the_page_lists_the_settings_that_the_backend_reads(backend):
    assert listed_settings(backend) - EVERYWHERE == read_settings(backend) - EVERYWHERE
