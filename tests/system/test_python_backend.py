# SPDX-License-Identifier: Apache-2.0
"""Models in Python, on our backend and on the genuine one, in Conch and in the genuine Triton: what each model relies on.

Other files: test_python_requests, _tensors, _responses, _decoupled, _calls, _complete, _metrics, _control, _runtime, _environments, _ends.
"""

import json
import os
import pathlib
import signal

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

import regions
import server as servers
from python_models import ECHO, NUMBER, TEXT, children, infer, left_behind, number, only_in_conch, only_ours, text_of, write_python

pytestmark = pytest.mark.sanitize

ADD_SUB = """
def initialize(self, args):
    config = json.loads(args["model_config"])
    self.kind = pb_utils.triton_string_to_numpy(pb_utils.get_output_config_by_name(config, "SUM")["data_type"])
    self.args = args

def execute(self, requests):
    responses = []
    for request in requests:
        a, b = (pb_utils.get_input_tensor_by_name(request, n).as_numpy() for n in ("A", "B"))
        responses.append(pb_utils.InferenceResponse([
            pb_utils.Tensor("SUM", (a + b).astype(self.kind)), pb_utils.Tensor("DIFFERENCE", (a - b).astype(self.kind))]))
    return responses
"""

MOODY = """
def execute(self, requests):
    responses = []
    for request in requests:
        what = int(pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()[0])
        if what == 1:
            raise ValueError("all went wrong")
        if what == 2:
            responses.append(pb_utils.InferenceResponse(
                error=pb_utils.TritonError("this one went wrong", pb_utils.TritonError.NOT_FOUND)))
            continue
        if what == 3:
            return []
        responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([what], np.int32))]))
    return responses
"""

CHILDREN = """
def execute(self, requests):
    import signal, subprocess
    child = subprocess.Popen(["sleep", "600"])
    child.terminate()
    codes = [child.wait(30), len(signal.pthread_sigmask(signal.SIG_BLOCK, []))]
    text = np.array([json.dumps(codes).encode()], dtype=object)
    return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", text)]) for request in requests]
"""

GREETS = """
def initialize(self, args):
    from . import words
    import shared
    self.text = words.GREETING + shared.NAME + __name__

def execute(self, requests):
    text = np.array([self.text.encode()], dtype=np.object_)
    return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", text)]) for request in requests]
"""

ARGUMENTS = """
def initialize(self, args):
    self.args = {**args, "model_config": json.loads(args["model_config"])["name"], "directory": pb_utils.get_model_dir()}

def execute(self, requests):
    text = np.array([json.dumps(self.args).encode()], dtype=np.object_)
    return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", text)]) for request in requests]
"""

FINALIZES = """
def initialize(self, args):
    self.folder = args["model_repository"]

def finalize(self):
    with open(self.folder + "/finalized", "w") as file:
        file.write("yes")
""" + ECHO


def write_models(root):
    pair = [("input", "A", "FP32", [4]), ("input", "B", "FP32", [4]), ("output", "SUM", "FP32", [4]),
            ("output", "DIFFERENCE", "FP32", [4])]
    write_python(root, "add_sub", ADD_SUB, *pair, more="max_batch_size: 8\n")
    write_python(root, "arguments", ARGUMENTS, *TEXT, versions=(3,))
    write_python(root, "moody", MOODY, *NUMBER)
    write_python(root, "children", CHILDREN, *TEXT)
    write_python(root, "fails", 'def initialize(self, args):\n    raise RuntimeError("not today")\n' + ECHO, *NUMBER)
    write_python(root, "syntax", "def execute(self, requests)\n    pass", *NUMBER)
    write_python(root, "finalizes", FINALIZES, *NUMBER, instances=2)
    folder = write_python(root, "greets", GREETS, *TEXT)
    (folder / "1/words.py").write_text('GREETING = "Hello, "\n')
    (folder / "shared.py").write_text('NAME = "model "\n')
    return root


def test_the_models_are_loaded(python_server):
    models = {model["name"]: model for model in json.loads(regions.ask(python_server, "POST", "/v2/repository/index")[1])}
    bad = {name: model["reason"] for name, model in models.items() if model["state"] != "READY"}
    assert set(bad) == {"fails", "syntax"}
    assert "RuntimeError: not today" in bad["fails"]
    assert "SyntaxError" in bad["syntax"]


def test_a_python_model_adds_and_subtracts(python_server):
    a, b = np.arange(8, dtype=np.float32).reshape(2, 4), np.full((2, 4), 0.5, np.float32)
    got = infer(python_server, "add_sub", {"A": a, "B": b})
    assert np.array_equal(got.as_numpy("SUM"), a + b)
    assert np.array_equal(got.as_numpy("DIFFERENCE"), a - b)


def test_a_model_gets_its_arguments(python_server):
    told = json.loads(text_of(infer(python_server, "arguments", number(1))))
    folder = told.pop("model_repository")
    assert folder.endswith("/arguments")
    assert told.pop("directory") == f"{folder}/3"
    assert told == {"model_name": "arguments", "model_version": "3", "model_instance_name": "arguments_0_0",
                    "model_instance_kind": "CPU", "model_instance_device_id": "0", "model_config": "arguments"}


def test_errors_of_a_python_model_are_answers(python_server):
    with pytest.raises(InferenceServerException) as raised:
        infer(python_server, "moody", number(1))
    assert raised.value.message().startswith("Failed to process the request(s) for model 'moody_0_0', message: ValueError: all went wrong")
    assert "model.py(" in raised.value.message()    # the traceback
    with pytest.raises(InferenceServerException, match="this one went wrong"):
        infer(python_server, "moody", number(2))
    with pytest.raises(InferenceServerException, match="Number of InferenceResponse objects do not match"):
        infer(python_server, "moody", number(3))
    assert infer(python_server, "moody", number(4)).as_numpy("OUT")[0] == 4


def test_children_of_a_model_can_be_ended(python_server):
    """By subprocess.Popen(...).terminate(): the children have the mask that the server was started with."""
    assert json.loads(text_of(infer(python_server, "children", number(1)))) == [-signal.SIGTERM, 0]


def test_a_model_imports_from_its_folders(python_server):
    """The version's folder is its package; that of the model is on the path."""
    assert text_of(infer(python_server, "greets", number(1))) == "Hello, model 1.model"


def test_each_instance_has_a_process_that_ends_with_finalize(place, tmp_path):
    root = tmp_path / "models"
    folder = write_python(root, "finalizes", FINALIZES, *NUMBER, instances=2)
    with place.start(root, flags=["--model-control-mode=explicit", "--load-model=finalizes"]) as running:
        processes = children(running)
        if place.ours:
            assert len(processes) == 2, processes
        assert regions.ask(running, "POST", "/v2/repository/models/finalizes/unload")[0] == 200
        servers.wait_for((folder / "finalized").exists, 60, "finalize() has been called")
        servers.wait_for(lambda: not children(running), 60, "the processes have ended")


@only_in_conch("is about our server")
def test_the_backends_memory_is_no_clients(place, tmp_path):
    """A client that may register shared memory gets none of the objects that the server shares with the backend's processes,
    whatever their prefix. Ours have no name at all."""
    root = tmp_path / "models"
    write_python(root, "m", ECHO, *NUMBER)
    with place.start(root, flags=["--allow-client-shm=true"]) as running:
        names, processes = left_behind(running)
        assert processes
        assert bool(names) == (not place.ours)
        for name in names:
            if f"/dev/shm/{name}" not in pathlib.Path(f"/proc/{running.pid}/maps").read_text():
                continue    # of the process that completed the configuration: the server has it no more
            code, text = regions.register(running, "stolen", f"/{name}", 64)
            assert (code, json.loads(text)["error"]) == (500, f"Unable to open shared memory region: '/{name}': Permission denied")
        assert regions.status(running) == (200, "[]")


@only_in_conch("is about our backend")
@only_ours("is about our backend")
def test_a_model_gets_neither_the_servers_signals_nor_its_input(place, tmp_path):
    """Ctrl-C is for the server, which ends its models in order: their children have a group of their own."""
    root = tmp_path / "models"
    folder = write_python(root, "finalizes", FINALIZES, *NUMBER)
    with place.start(root) as running:
        for pid in children(running):
            assert os.getpgid(pid) == pid
            assert os.readlink(f"/proc/{pid}/fd/0") == "/dev/null"
            os.kill(pid, signal.SIGINT)
        assert infer(running, "finalizes", number(1)).as_numpy("OUT").tolist() == [1]
    assert (folder / "finalized").exists()
