# SPDX-License-Identifier: Apache-2.0
"""A model in Python that loads other models, unloads them and asks whether they are ready.

The genuine backend dies of it now and then by a lock of its own, in both servers, or gives the model the contents of freed
memory in place of the server's answer. It is tried again; ours is not.
"""

import contextlib
import json

import pytest
import tritonclient.http

import repository
import server as servers
from python_models import ECHO, NUMBER, infer, model_text, number, only_in_conch, only_ours, text_of, words, write_python

EXPLICIT = ("--model-control-mode=explicit", "--load-model=control")

CONTROL = """
def execute(self, requests):
    responses = []
    for request in requests:
        what, name = (pb_utils.get_input_tensor_by_name(request, n).as_numpy()[0].decode() for n in ("DO", "NAME"))
        said = "ok"
        try:
            if what == "load":
                pb_utils.load_model(model_name=name)
            elif what == "load with":
                pb_utils.load_model(model_name=name, config=self.config, files={"file:4/weights": b"some"})
            elif what == "unload":
                pb_utils.unload_model(model_name=name)
            else:
                said = "yes" if pb_utils.is_model_ready(model_name=name) else "no"
        except Exception as e:
            said = str(e)
        responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([said.encode()], dtype=np.object_))]))
    return responses

def initialize(self, args):
    tensor = {"data_type": "TYPE_FP32", "dims": [-1]}
    self.config = json.dumps({"backend": "identity", "input": [{"name": "INPUT0", **tensor}], "output": [{"name": "OUTPUT0", **tensor}]})
"""


class BackendDied(Exception):
    """By a mistake of the genuine backend's."""


@pytest.fixture(name="controlled")
def write_controlled(models):
    write_python(models, "control", CONTROL, ("input", "DO", "BYTES", [1]), ("input", "NAME", "BYTES", [1]),
                 ("output", "OUT", "BYTES", [1]))
    repository.write_identity(models, "m", [("FP32", [-1])])
    return models


@contextlib.contextmanager
def explicit_server(place, models):
    """(server, a function that asks the model that loads others)"""
    with place.start(models, flags=EXPLICIT) as running:
        def ask(what, name):
            said = text_of(infer(running, "control", words(DO=what, NAME=name)))
            if not place.ours and not said.isprintable():
                raise BackendDied(repr(said))
            return said

        yield running, ask


def load_and_unload(place, running, ask):
    missing, unloaded = ("'m' is not found", "'m' has no available versions") if place.in_conch else ("no", "no")    # as 2.51 says it
    assert missing in ask("ready?", "m")
    assert ask("load", "m") == "ok"
    assert ask("ready?", "m") == "yes"
    assert ask("load with", "m") == "ok"
    with tritonclient.http.InferenceServerClient(running.url) as client:
        assert client.get_model_metadata("m")["versions"] == ["4"]
    assert ask("unload", "m") == "ok"
    servers.wait_for(lambda: unloaded in ask("ready?", "m"), 30, "it is unloaded")
    assert "failed to load 'nobody', failed to poll from model repository" in ask("load", "nobody")
    assert ask("unload", "nobody") == "ok"


def try_to_load_and_unload(place, models):
    with explicit_server(place, models) as (running, ask):
        try:
            load_and_unload(place, running, ask)
        except Exception:
            if not place.ours and "boost::interprocess::lock_exception" in running.err.text():
                raise BackendDied from None
            raise


def test_a_python_model_loads_and_unloads_others(place, controlled):
    """The genuine one dies in two of five tries in Conch, and in one of seven in the genuine server."""
    for tries_left in range(0 if place.ours else 19, -1, -1):
        try:
            try_to_load_and_unload(place, controlled)
            return
        except BackendDied:
            assert tries_left > 0


def test_a_python_model_may_come_with_a_load_request(place, controlled):
    """Its processes start and end with it, and a reload replaces them."""
    with explicit_server(place, controlled) as (running, _):
        with tritonclient.http.InferenceServerClient(running.url) as client:
            come_and_go(place, running, client)


def come_and_go(place, running, client):
    config = {"backend": "python", "input": [{"name": "IN", "data_type": "TYPE_INT32", "dims": [1]}],
              "output": [{"name": "OUT", "data_type": "TYPE_INT32", "dims": [1]}]}
    for plus in (1, 2) if place.in_conch else (1,):    # 2.51 keeps the first
        content = model_text(ECHO.replace("tensor.as_numpy()", f"tensor.as_numpy() + np.int32({plus})")).encode()
        client.load_model("new", config=json.dumps(config), files={"file:1/model.py": content})
        assert infer(running, "new", number(40)).as_numpy("OUT").tolist() == [40 + plus]
    client.unload_model("new")
    servers.wait_for(lambda: {row["name"] for row in client.get_model_repository_index() if row.get("state") == "READY"} == {"control"},
                     60, "it has gone")


READY = """
def initialize(self, args):
    import os
    self.folder = args["model_repository"]

def is_ready(self):
    import os
    if os.path.exists(self.folder + "/raise"):
        raise ValueError("no idea")
    return not os.path.exists(self.folder + "/not")
""" + ECHO


@only_in_conch("2.51 does not ask")
@only_ours("2.51 does not ask")
def test_a_model_says_whether_it_is_ready(place, tmp_path):
    """Release 2.51 does not know is_ready() yet (reference/behaviours §2.6 is of 2.73)."""
    root = tmp_path / "models"
    folder = write_python(root, "m", READY, *NUMBER)
    with place.start(root) as running:
        with tritonclient.http.InferenceServerClient(running.url) as client:
            assert client.is_model_ready("m")
            (folder / "not").touch()
            servers.wait_for(lambda: not client.is_model_ready("m"), 30, "it is not ready")
            assert infer(running, "m", number(1)).as_numpy("OUT").tolist() == [1]    # it serves nevertheless
            (folder / "not").unlink()
            servers.wait_for(lambda: client.is_model_ready("m"), 30, "it is ready")
            (folder / "raise").touch()
            servers.wait_for(lambda: not client.is_model_ready("m"), 30, "an exception is no")
            if place.in_conch:
                running.wait_log("no idea")
