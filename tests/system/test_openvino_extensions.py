# SPDX-License-Identifier: Apache-2.0
"""CPU_EXTENSION_PATH: an operator that the test compiles against the headers of OpenVINO's package computes, in our server and in the genuine
Triton; without the setting it is not loaded; files that are no extensions are refused."""

import os
import pathlib
import shutil
import subprocess

import numpy as np
import pytest
import tritonclient.http
from tritonclient.utils import InferenceServerException

openvino = pytest.importorskip("openvino", reason="`make test-frameworks` installs OpenVINO")

import openvino_models as models  # noqa: E402
import server as servers  # noqa: E402
import triton  # noqa: E402

PACKAGE = pathlib.Path(openvino.__file__).parent
SOURCE = pathlib.Path(__file__).resolve().parents[1] / "openvino" / "triple.cc"
BATCHES = "max_batch_size: 8\n"
ALLOWED = "--backend-config=openvino,allow-extensions=1"


def main_library():
    return next((PACKAGE / "libs").glob("libopenvino.so*"))


@pytest.fixture(scope="module")
def extension(tmp_path_factory):
    """The library of triple.cc, with C++ strings of the kind that OpenVINO's library has."""
    if not shutil.which("g++"):
        pytest.skip("no g++")
    file = tmp_path_factory.mktemp("extension") / "libtriple.so"
    kind = int(b"__cxx11" in main_library().read_bytes())
    subprocess.run(["g++", "-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", f"-D_GLIBCXX_USE_CXX11_ABI={kind}",
                    "-isystem", PACKAGE / "include", SOURCE, "-o", file, main_library()], check=True)
    return file


def write_triple(root, name, path, **parameters):
    """y = 3 |x|: |x| by OpenVINO's operator, the rest by the extension's, which a ReLU makes room for."""
    x = models.parameter("x", [-1, 4])
    model = openvino.Model([models.named(models.ops.relu(models.ops.absolute(x)), "y")], [x], "triple")
    file = models.write(root, name, model, BATCHES, CPU_EXTENSION_PATH=path, **parameters)
    own = file.read_text().replace('type="ReLU" version="opset1"', 'type="Triple" version="conch"')
    assert "Triple" in own
    file.write_text(own)
    return file


def check_triple(client, name):
    for rows in (1, 8, 3):
        given = np.arange(-6, 4 * rows - 6, dtype=np.float32).reshape(rows, 4)
        x = tritonclient.http.InferInput("x", given.shape, "FP32").set_data_from_numpy(given)
        np.testing.assert_array_equal(client.infer(name, [x]).as_numpy("y"), 3 * abs(given))


def load_error(client, name):
    with pytest.raises(InferenceServerException) as refused:
        client.load_model(name)
    return refused.value.message()


@pytest.fixture
def explicit(tmp_path):
    """Starts our server without models, with these flags."""
    opened = []

    def start(*flags):
        running = servers.Server(tmp_path, flags=["--model-control-mode=explicit", *flags])
        opened.append(running.__enter__())
        client = tritonclient.http.InferenceServerClient(running.url, network_timeout=120)
        opened.append(client)
        return running, client

    yield start
    for thing in reversed(opened):
        thing.__exit__(None, None, None)


def test_its_operator_computes(tmp_path, extension, explicit):
    """Also after the models that had it are unloaded, in two models at once, and beside one whose path is relative to the model's folder."""
    for name in ("first", "second"):
        write_triple(tmp_path, name, extension)
    inside = write_triple(tmp_path, "inside", "operators/triple.so").parents[1] / "operators"
    inside.mkdir()
    shutil.copy(extension, inside / "triple.so")
    running, client = explicit(ALLOWED)
    for _ in range(3):
        for name in ("first", "second", "inside"):
            client.load_model(name)
            check_triple(client, name)
        client.unload_model("first")
        check_triple(client, "second")
        check_triple(client, "inside")
        for name in ("second", "inside"):
            client.unload_model(name)
    assert f"model 'first': the CPU extension {extension} is loaded" in running.log()
    assert f"model 'inside': the CPU extension {inside / 'triple.so'} is loaded" in running.log()


def test_its_operator_computes_in_triton(tmp_path, extension):
    if triton.missing():
        pytest.skip(triton.missing())
    write_triple(tmp_path, "m", extension)
    library = next((PACKAGE / "libs").glob("libopenvino_c.so*"))
    with triton.Triton(tmp_path, flags=[f"--backend-config=openvino,library-path={library}", ALLOWED]) as running:
        with tritonclient.http.InferenceServerClient(running.url) as client:
            check_triple(client, "m")


def test_it_needs_its_setting(tmp_path, extension, explicit):
    """The answer does not say whether the file exists, and the library is not in the process."""
    write_triple(tmp_path, "m", extension)
    write_triple(tmp_path, "missing", "/nowhere/libtriple.so")
    running, client = explicit()
    for name, path in (("m", extension), ("missing", "/nowhere/libtriple.so")):
        assert (f"model '{name}': CPU_EXTENSION_PATH '{path}' is code that would run in the server; "
                "--backend-config=openvino,allow-extensions=1 permits it") in load_error(client, name)
    assert "libtriple" not in pathlib.Path(f"/proc/{running.pid}/maps").read_text()


def test_files_that_are_no_extension(tmp_path, extension, explicit):
    (tmp_path / "text.so").write_text("not a library\n")
    (tmp_path / "cut.so").write_bytes(extension.read_bytes()[:4000])
    (tmp_path / "plain.so").write_bytes(next((PACKAGE / "libs").glob("libhwloc.so*")).read_bytes())
    os.mkfifo(tmp_path / "pipe.so")
    running, client = explicit(ALLOWED)
    reasons = {
        "missing.so": "No such file or directory",
        "pipe.so": "is no regular file",
        ".": "is no regular file",
        "text.so": f"is no extension of OpenVINO {openvino.__version__}: openvino error in loading custom CPU extensions : ",
        "cut.so": "the file ends before the library does",
        "plain.so": "is no extension of OpenVINO",
    }
    for i, (file, reason) in enumerate(reasons.items()):
        write_triple(tmp_path, f"m{i}", tmp_path / file)
        text = load_error(client, f"m{i}")
        assert f"model 'm{i}': CPU_EXTENSION_PATH '{tmp_path / file}'" in text and reason in text, text
        assert "\n" not in text.rstrip()
    running.assert_alive()
    # The operator is unknown without the extension.
    file = write_triple(tmp_path, "without", "")
    assert "openvino error in reading model : " in (text := load_error(client, "without")) and str(file) in text and "Triple" in text
    write_triple(tmp_path, "good", extension)
    client.load_model("good")
    check_triple(client, "good")
