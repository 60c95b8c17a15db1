# SPDX-License-Identifier: Apache-2.0
"""Backends that are written in Python: a folder of the backend directory with a model.py, which the Python backend runs."""

import pathlib
import shutil
import subprocess

import pytest
import tritonclient.http

import python_models
import repository
import server as servers
from python_models import ECHO, NUMBER, infer, model_text, number, write_python

TIMES = """
@staticmethod
def auto_complete_config(config):
    config.add_input({"name": "IN", "data_type": "TYPE_INT32", "dims": [1]})
    config.add_output({"name": "OUT", "data_type": "TYPE_INT32", "dims": [1]})
    config.set_max_batch_size(0)
    return config

def execute(self, requests):
    return [pb_utils.InferenceResponse([pb_utils.Tensor(
        "OUT", FACTOR * pb_utils.get_input_tensor_by_name(request, "IN").as_numpy())]) for request in requests]
"""


def write_backend(backends, name, factor):
    (backends / name).mkdir()
    (backends / name / "model.py").write_text(model_text(TIMES, f"FACTOR = {factor}\n"))


def write_of(root, name, backend, more=""):
    return repository.write_model(root, name, f'backend: "{backend}"\n{more}instance_group [ {{ count: 1 kind: KIND_CPU }} ]\n')


@pytest.fixture(name="own")
def fresh_place(python_backend, host, tmp_path):
    """A backend directory to which a test may add."""
    (tmp_path / "backends").mkdir()
    return python_models.place(python_backend, host, tmp_path / "backends")


def test_backends_written_in_python_serve(own, tmp_path):
    """A folder of the backend directory with a model.py is a backend. Each has its own code, and one Python backend runs them."""
    backends = own.backends
    write_backend(backends, "twice", 2)
    write_backend(backends, "thrice", 3)
    models = tmp_path / "models"
    write_of(models, "a", "twice")
    write_of(models, "b", "thrice", 'runtime: "model.py"\n')
    write_of(models, "c", "twice")
    write_of(models, "d", "twice", 'parameters { key: "EXECUTION_ENV_PATH" value { string_value: "" } }\n')
    # A library of that name wins.
    (models / "c/1/libtriton_twice.so").write_bytes((pathlib.Path(servers.BACKENDS) / "identity/libtriton_identity.so").read_bytes())
    with own.start(models, ready=False) as running:
        with tritonclient.http.InferenceServerClient(running.url) as asked:
            for name, factor in {"a": 2, "b": 3, "d": 2}.items():
                assert infer(running, name, number(7)).as_numpy("OUT").tolist() == [7 * factor]
                config = asked.get_model_config(name)
                assert config["runtime"] == "model.py"
            assert asked.get_model_config("c")["runtime"] == ""


def test_a_python_backend_has_its_environment_beside_it(own, tmp_path):
    """The environment is the model's, unless the model names another one."""
    backends = own.backends
    write_backend(backends, "twice", 2)
    activate = tmp_path / "environment/bin/activate"
    activate.parent.mkdir(parents=True)
    activate.write_text("true\n")
    packed = backends / "twice/pb_exec_env_model.py.tar.gz"
    subprocess.run(["tar", "czf", packed, "-C", tmp_path / "environment", "."], check=True)
    models = tmp_path / "models"
    write_of(models, "a", "twice")
    write_of(models, "b", "twice", f'parameters {{ key: "EXECUTION_ENV_PATH" value {{ string_value: "{activate.parents[1]}" }} }}\n')
    with own.start(models, ready=False) as running:
        with tritonclient.http.InferenceServerClient(running.url) as asked:
            paths = {name: asked.get_model_config(name)["parameters"]["EXECUTION_ENV_PATH"]["string_value"] for name in "ab"}
            assert paths == {"a": str(packed), "b": str(activate.parents[1])}
            assert infer(running, "a", number(7)).as_numpy("OUT").tolist() == [14]


@pytest.mark.parametrize("size, refused", [(1048575, True), (1048576, False)])
def test_memory_of_an_instance_has_a_least_size(own, tmp_path, size, refused):
    """Which is 1 MiB, whatever the genuine text says."""
    models = tmp_path / "models"
    write_python(models, "m", ECHO, *NUMBER)
    with own.start(models, ready=False, flags=[f"--backend-config=python,shm-default-byte-size={size}"]) as running:
        text = "shm-default-byte-size can't be smaller than 4 MiBs"
        if refused:
            servers.wait_for(lambda: text in running.log(), 60, "it is refused")
        else:
            assert infer(running, "m", number(7)).as_numpy("OUT").tolist() == [7]
            assert text not in running.log()


def test_the_error_names_what_a_python_backend_lacks(own, tmp_path):
    """The Python backend, which both servers search in the same folders, or the model.py that it is to run."""
    backends = own.backends
    write_backend(backends, "twice", 2)
    (backends / "empty").mkdir()
    models = tmp_path / "models"
    write_of(models, "a", "twice")
    write_of(models, "b", "empty", 'runtime: "model.py"\n')
    with own.start(models, ready=False) as running:
        assert (f"unable to find Python backend based backend library 'model.py' for model 'b', searched: "
                f"'{backends}/empty/model.py'") in running.log()
    python = backends / "python"
    if python.is_symlink():
        python.unlink()
    else:
        shutil.rmtree(python)
    places = " ".join(f"'{place}'" for place in (models / "a/1", models / "a", backends / "twice", backends / "python"))
    with own.start(models, ready=False) as running:
        assert f"unable to find backend library 'libtriton_python.so' for model 'a', searched: {places}" in running.log()
        assert "unable to find backend library 'libtriton_python.so' for model 'b', searched: " in running.log()
