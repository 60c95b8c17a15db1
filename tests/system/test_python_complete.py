# SPDX-License-Identifier: Apache-2.0
"""auto_complete_config(): what a model may complete, and the texts when it may not (reference/behaviours §14.8)."""

import json
import urllib.request

import numpy as np
import pytest

import regions
import server as servers
from python_models import ECHO, NUMBER, children, infer, number, only_ours, write_python

COMPLETES = """
@staticmethod
def auto_complete_config(config):
    {}
    return config
""" + ECHO

TENSORS = """config.add_input({"name": "IN", "data_type": "TYPE_INT32", "dims": [-1]})
    config.add_output({"name": "OUT", "data_type": "TYPE_INT32", "dims": [-1]})
    config.set_max_batch_size(%d)
"""

# What a model's completion says, what stands in its configuration, and the error of its load.
REFUSED = {
    "smaller": ("config.set_max_batch_size(4)", NUMBER, "max_batch_size: 6\n",
                "configuration specified max_batch_size 6, but in auto-complete-config function for model 'smaller' specified "
                "max_batch_size 4"),
    "batching": ("config.set_dynamic_batching()", NUMBER, "max_batch_size: 6\nsequence_batching { }\n",
                 "Configuration specified scheduling_choice as 'sequence_batching', but auto-complete-config function for model "
                 "'batching' tries to set scheduling_choice as 'dynamic_batching'"),
    "no_dims": ('config.add_input({"name": "I", "data_type": "TYPE_INT32"})', (), "",
                "input 'I' in auto-complete-config function for model 'no_dims' is missing 'dims' property."),
    "no_type": ('config.add_output({"name": "O", "dims": [1]})', (), "",
                "output 'O' in auto-complete-config function for model 'no_type' is missing 'data_type' property."),
    "no_name": ('config.add_input({"data_type": "TYPE_INT32", "dims": [1]})', (), "",
                "input in auto-complete-config function for model 'no_name' is missing 'name' property."),
    "more": ('config.add_input({"name": "I", "data_type": "TYPE_INT32", "dims": [1], "reshape": 1})', (), "",
             "input 'I' in auto-complete-config function for model 'more' contains property other than 'name', 'data_type', 'dims' "
             "and 'optional'."),
    "more_output": ('config.add_output({"name": "O", "data_type": "TYPE_INT32", "dims": [1], "optional": True})', (), "",
                    "output 'O' in auto-complete-config function for model 'more_output' contains property other than 'name', "
                    "'data_type' and 'dims'."),
    "other_type": ('config.add_input({"name": "IN", "data_type": "TYPE_FP32", "dims": [1]})', NUMBER, "",
                   "unable to load model 'other_type', configuration expects datatype TYPE_INT32 for input 'IN', model provides TYPE_FP32"),
    "other_dims": ('config.add_output({"name": "OUT", "data_type": "TYPE_INT32", "dims": [2]})', NUMBER, "",
                   "model 'other_dims', tensor 'OUT': the model expects dims [2] but the model configuration specifies dims [1]"),
    "decoupled": ('config.set_model_transaction_policy({"decoupled": True})', NUMBER,
                  "model_transaction_policy { decoupled: false }\n",
                  "trying to change decoupled property in auto-complete-config for model 'decoupled', which is already set to 'False'."),
    "policy": ('config.set_model_transaction_policy({"other": True})', NUMBER, "",
               "model transaction property in auto-complete-config function for model 'policy' contains property other than 'decoupled'."),
    "nothing": ("return None", NUMBER, "",
                "auto_complete_config function in model 'nothing' must return a valid pb.ModelConfig object."),
    "raises": ('raise ValueError("no idea")', NUMBER, "", "ValueError: no idea"),
}


N_SERVING = 5


def write_models(root):
    write_python(root, "all", COMPLETES.format(TENSORS % 8 + "    config.set_dynamic_batching()"))
    write_python(root, "bare", COMPLETES.format(TENSORS % 0))
    write_python(root, "optional", COMPLETES.format(
        TENSORS % 0 + '    config.add_input({"name": "MAYBE", "data_type": "TYPE_FP32", "dims": [1], "optional": True})'))
    write_python(root, "same", COMPLETES.format('config.add_input({"name": "IN", "data_type": "TYPE_INT32", "dims": [1]})'), *NUMBER)
    write_python(root, "policy_set", COMPLETES.format(TENSORS % 0 + '    config.set_model_transaction_policy({"decoupled": True})'))
    for name, (body, tensors, more, _) in REFUSED.items():
        write_python(root, name, COMPLETES.format(body), *tensors, more=more)
    return root


def config_of(server, model):
    with urllib.request.urlopen(f"http://{server.url}/v2/models/{model}/config") as reply:
        return json.load(reply)


def test_a_model_completes_its_configuration(python_server):
    config = config_of(python_server, "all")
    assert [(t["name"], t["data_type"], t["dims"]) for t in config["input"]] == [("IN", "TYPE_INT32", [-1])]
    assert config["max_batch_size"] == 8
    assert "dynamic_batching" in config
    array = np.arange(10, dtype=np.int32).reshape(2, 5)
    assert np.array_equal(infer(python_server, "all", {"IN": array}).as_numpy("OUT"), array)
    array = np.arange(5, dtype=np.int32)
    assert np.array_equal(infer(python_server, "bare", {"IN": array}).as_numpy("OUT"), array)


def test_a_model_adds_optional_inputs_and_its_policy(python_server):
    (_, maybe) = config_of(python_server, "optional")["input"]
    assert maybe["optional"]
    assert infer(python_server, "optional", {"IN": np.array([1], np.int32)}).as_numpy("OUT").tolist() == [1]
    assert config_of(python_server, "policy_set")["model_transaction_policy"] == {"decoupled": True}
    assert infer(python_server, "same", {"IN": np.array([1], np.int32)}).as_numpy("OUT").tolist() == [1]


@pytest.mark.parametrize("model", REFUSED)
def test_a_completion_that_contradicts_is_refused(python_server, model):
    models = {row["name"]: row for row in json.loads(regions.ask(python_server, "POST", "/v2/repository/index")[1])}
    assert models[model]["state"] == "UNAVAILABLE"
    assert REFUSED[model][3] in models[model]["reason"]


@only_ours("has a process more for each model")
def test_only_the_processes_of_models_that_serve_are_left(python_server):
    servers.wait_for(lambda: len(children(python_server)) == N_SERVING, 30, "the processes of refused models have ended")


# Is this the process that has completed the configuration? A model that leaves a thread there has another one.
TELLS = """
@staticmethod
def auto_complete_config(config):
    os.environ["COMPLETED_BY"] = str(os.getpid())
    {}
    return config

def execute(self, requests):
    same = os.environ.get("COMPLETED_BY") == str(os.getpid())
    return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([same], np.int32))]) for request in requests]
"""


@only_ours("completes in a process that ends with it")
def test_the_first_instance_has_the_process_that_completes(place, tmp_path):
    """Unless the model has left a thread in it, for which Python would wait at its end."""
    root = tmp_path / "models"
    write_python(root, "same", TELLS.format("pass"), *NUMBER, before="import os\n")
    write_python(root, "other", TELLS.format("threading.Thread(target=threading.Event().wait).start()"), *NUMBER,
                 before="import os, threading\n")
    with place.start(root) as running:
        assert infer(running, "same", number(0)).as_numpy("OUT").tolist() == [1]
        assert infer(running, "other", number(0)).as_numpy("OUT").tolist() == [0]
        servers.wait_for(lambda: len(children(running)) == 2, 30, "the process that completed 'other' has ended")


def test_without_completion_the_class_is_not_asked(place, tmp_path):
    root = tmp_path / "models"
    write_python(root, "strict", COMPLETES.format('raise ValueError("asked")'), *NUMBER)
    with place.start(root, flags=["--disable-auto-complete-config"]) as running:
        assert infer(running, "strict", {"IN": np.array([1], np.int32)}).as_numpy("OUT").tolist() == [1]
