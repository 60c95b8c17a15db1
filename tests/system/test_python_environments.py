# SPDX-License-Identifier: Apache-2.0
"""EXECUTION_ENV_PATH of our Python backend: folders, archives, the Pythons and NumPys that a machine has."""

import json
import os
import pathlib
import subprocess
import tarfile

import numpy as np
import pytest
import tritonclient.http

import python_models
import server as servers
from python_models import ECHO, NUMBER, TEXT, infer, number, only_in_conch, text_of, write_python

TELLS = """
def execute(self, requests):
    import os, sys
    told = {"executable": sys.executable, "prefix": sys.prefix, "version": list(sys.version_info[:2]), "numpy": np.__version__,
            "path": os.environ["PATH"].split(":")[0], "venv": os.environ.get("VIRTUAL_ENV"), "conda": os.environ.get("CONDA_PREFIX"),
            "libraries": os.environ.get("LD_LIBRARY_PATH", "").split(":")[0], "home": "PYTHONHOME" in os.environ}
    text = np.array([json.dumps(told).encode()], dtype=np.object_)
    return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", text)]) for request in requests]
"""


def setting(path):
    return f'parameters {{ key: "EXECUTION_ENV_PATH" value {{ string_value: "{path}" }} }}\n'


@pytest.fixture(scope="module", name="ours")
def place_of_ours(host, tmp_path_factory):
    return python_models.place("ours", host, tmp_path_factory.mktemp("backends"))


def tell(server, model):
    return json.loads(text_of(infer(server, model, number(1))))


def make_environment(folder):
    """A venv with NumPy, by a link to that of the tests: what conda-pack would have copied."""
    subprocess.run(["/usr/bin/python3", "-m", "venv", "--copies", "--without-pip", folder], check=True)
    (packages,) = folder.glob("lib/python3.*/site-packages")
    (installed,) = (servers.ROOT / ".deps/venv/lib").glob("python3.*/site-packages")
    (packages / "numpy.pth").write_text(f"{installed}\n")
    for link in [path for path in folder.rglob("*") if path.is_symlink()]:
        if os.path.isabs(os.readlink(link)) or link.name == "lib64":
            link.unlink()
    return folder


def test_a_folder_is_used_where_it_is(ours, tmp_path):
    root = tmp_path / "models"
    folder = write_python(root, "m", TELLS, *TEXT, more=setting("$$TRITON_MODEL_DIRECTORY/env"))
    env = make_environment(folder / "env")
    with ours.start(root) as running:
        told = tell(running, "m")
    assert told["executable"] == f"{env}/bin/python3"
    assert told["venv"] == str(env)
    assert told["path"] == f"{env}/bin"
    assert told["libraries"] == f"{env}/lib"


@pytest.fixture(scope="session", params=["tar.gz", "tar.xz", "zip"])
def archive(request, tmp_path_factory):
    """An environment in an archive, for both servers. It has one copy of the interpreter, and is compressed little: that takes time."""
    kind, folder = request.param, tmp_path_factory.mktemp("archive")
    env, archive = make_environment(folder / "env"), folder / f"env.{kind}"
    for path in env.glob("bin/*"):
        if path.name != "python3":
            path.unlink()
    if kind == "zip":
        subprocess.run(["/usr/bin/python3", "-c", """
import os, pathlib, sys, zipfile
with zipfile.ZipFile(sys.argv[1], "w") as archive:
    for path in sorted(pathlib.Path(sys.argv[2]).rglob("*")):
        archive.write(path, path.relative_to(sys.argv[2]))
""", archive, env], check=True)
    else:
        with tarfile.open(archive, f"w:{kind[4:]}", **{"compresslevel": 1} if kind == "tar.gz" else {"preset": 0}) as packed:
            packed.add(env, ".")
    return archive


def test_an_archive_is_unpacked_once_and_removed(ours, tmp_path, archive):
    root, cache = tmp_path / "models", tmp_path / "cache"
    for name in ("a", "b"):
        write_python(root, name, TELLS, *TEXT, more=setting(archive), instances=2)
    with ours.start(root, env={"CONCH_PYTHON_CACHE": str(cache)}) as running:
        told = [tell(running, name) for name in ("a", "b")]
        assert len([path for path in cache.iterdir() if path.is_dir()]) == 1
        if ours.in_conch:
            assert running.log().count("unpacked environment") == 1
    assert told[0]["executable"] == told[1]["executable"]
    assert told[0]["executable"].startswith(f"{cache}/")
    assert told[0]["venv"] == str(pathlib.Path(told[0]["executable"]).parents[1])
    if ours.in_conch:    # the genuine server was killed: the next one sweeps
        assert list(cache.iterdir()) == []


def test_an_archive_that_leads_out_is_refused(ours, tmp_path):
    archive = tmp_path / "env.tar.gz"
    with tarfile.open(archive, "w:gz") as packed:
        link = tarfile.TarInfo("bin/python3")
        link.type, link.linkname = tarfile.SYMTYPE, "/usr/bin/python3"
        packed.addfile(link)
    root = tmp_path / "models"
    write_python(root, "m", ECHO, *NUMBER, more=setting(archive))
    with ours.start(root, ready=False) as running:
        with tritonclient.http.InferenceServerClient(running.url) as client:
            (row,) = client.get_model_repository_index()
    assert "entry 'bin/python3' is a link that leads out" in row["reason"]


def interpreters():
    """Pythons of this machine that have NumPy: {path: (version, version of NumPy)}"""
    candidates = [servers.ROOT / ".deps/venv/bin/python3", servers.ROOT / ".deps/reference/venv/bin/python3", "/usr/bin/python3"]
    candidates += sorted(pathlib.Path.home().glob(".pyenv/versions/*/bin/python3"))
    candidates += [pathlib.Path(p) for p in os.environ.get("CONCH_TEST_PYTHONS", "").split(":") if p]
    for candidate in map(str, candidates):
        told = subprocess.run([candidate, "-c", "import numpy, sys; print(*sys.version_info[:2], numpy.__version__)"],
                              capture_output=True, text=True, check=False) if os.access(candidate, os.X_OK) else None
        if told and told.returncode == 0:
            yield pytest.param(candidate, id=told.stdout.strip().replace(" ", "-"))


@only_in_conch("is the same in the genuine server")
@pytest.mark.parametrize("python", list(interpreters()))
def test_each_python_of_the_machine_runs_models(ours, tmp_path, python):
    """CONCH_TEST_PYTHONS names more of them."""
    root = tmp_path / "models"
    tensors = [("input", "IN", "BYTES", [-1]), ("output", "OUT", "BYTES", [-1])]
    write_python(root, "tells", TELLS, *TEXT)
    write_python(root, "echo", ECHO, *tensors)
    write_python(root, "numbers", ECHO, *NUMBER)
    with ours.start(root, env={"PATH": f"{pathlib.Path(python).parent}:{os.environ['PATH']}"}) as running:
        assert tell(running, "tells")["executable"] == python
        array = np.array([b"a", b"", b"\0bc"], dtype=object)
        assert infer(running, "echo", {"IN": array}).as_numpy("OUT").tolist() == array.tolist()
        assert infer(running, "numbers", number(7)).as_numpy("OUT").tolist() == [7]


@only_in_conch("is the same in the genuine server")
def test_a_python_without_numpy_is_an_error_that_says_so(ours, tmp_path):
    env = tmp_path / "env"
    subprocess.run(["/usr/bin/python3", "-m", "venv", "--without-pip", env], check=True)
    root = tmp_path / "models"
    write_python(root, "m", ECHO, *NUMBER, more=setting(env))
    with ours.start(root, ready=False) as running:
        with tritonclient.http.InferenceServerClient(running.url) as client:
            (row,) = client.get_model_repository_index()
    assert "numpy" in row["reason"]
