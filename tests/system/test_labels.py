# SPDX-License-Identifier: Apache-2.0
"""Label files that are refused, and some that are accepted."""

import os

import pytest

import repository
from server import BACKENDS, REFERENCE, Server, run_to_end

pytestmark = pytest.mark.skipif(REFERENCE, reason="the genuine Triton aborts at some of them")


def model_with_labels(models, name):
    folder = repository.write_identity(models, "m", [("FP32", [-1])])
    config = folder / "config.pbtxt"
    config.write_text(config.read_text().replace("output [ { ", f'output [ {{ label_filename: "{name}" '))
    return folder


def nothing(folder):
    pass


def a_folder(folder):
    (folder / "l").mkdir()


def a_fifo(folder):
    os.mkfifo(folder / "l")


def huge(folder):
    (folder / "l").touch()
    os.truncate(folder / "l", 1 << 30)


def too_many_lines(folder):
    (folder / "l").write_bytes(b"\n" * ((4 << 20) + 1))


def binary(folder):
    (folder / "l").write_bytes(bytes(range(256)))


def a_link_out(folder):
    (folder / "l").symlink_to("/etc/hostname")


WRONG = {
    "missing": ("l", nothing, "failed to open text file for read {path}: No such file or directory"),
    "above": ("../l", nothing, "label file path '../l' for output 'OUTPUT0' in model 'm' is outside model directory"),
    "absolute": ("/l", nothing, "label file path '/l' for output 'OUTPUT0' in model 'm' is outside model directory"),
    "folder": ("l", a_folder, "'{path}' is a folder, not a regular file"),
    "fifo": ("l", a_fifo, "'{path}' is something special, not a regular file"),
    "huge": ("l", huge, "'{path}' has 1073741824 bytes, the maximum is 67108864"),
    "lines": ("l", too_many_lines, "'{path}' has more than 4194304 lines"),
    "binary": ("l", binary, "'{path}' has a NUL byte, so it is no text"),
    "link": ("l", a_link_out, "link '{path}' leads to '/etc/hostname', out of the model repository"),
}


@pytest.mark.parametrize("case", WRONG)
def test_label_files_that_are_refused(models, case):
    name, make, text = WRONG[case]
    folder = model_with_labels(models, name)
    make(folder)
    code, _, err = run_to_end(
        f"--model-repository={models}", f"--backend-directory={BACKENDS}", "--http-port=0",
        "--allow-grpc=false", "--allow-metrics=false",
    )  # fmt: skip
    assert code == 1
    text = text.format(path=folder / "l")
    assert "failed to load 'm' version 1: I" in err and text in err
    if name == "l":
        assert "(labels of output 'OUTPUT0' of model 'm')" in err


@pytest.mark.parametrize("content", [b"", b"one", b"a\r\nb\r\n\r\nc", b"\xff\xe9\n"])
def test_label_files_that_are_taken(models, content):
    folder = model_with_labels(models, "./configs/l")
    (folder / "configs").mkdir()
    (folder / "configs" / "l").write_bytes(content)
    with Server(models):
        pass
