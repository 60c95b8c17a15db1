# SPDX-License-Identifier: Apache-2.0
"""Files that a configuration names stay in their folder: the model's file, labels, states, samples, libraries. An error
does not reveal whether a file outside exists."""

import json
import os
import re

import pytest

import onnx_models
import repository
from server import REFERENCE, Server, run_to_end
from wire import ask, given, infer

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper  # noqa: E402

pytestmark = pytest.mark.skipif(REFERENCE, reason="is about our server")

QUIET = ["--allow-grpc=false", "--allow-metrics=false", "--http-port=0"]
EXPLICIT = "--model-control-mode=explicit"
ONNX = 'backend: "onnxruntime"\n' + repository.tensor("input", "IN", "FP32", [2]) + repository.tensor("output", "OUT0", "FP32", [2])
IDENTITY = 'backend: "identity"\n' + repository.tensor("input", "IN", "FP32", [2]) + repository.tensor("output", "OUT0", "FP32", [2])
ASK = {"inputs": [given("IN", "FP32", [2], [1, 2])]}


@pytest.fixture
def outside(tmp_path):
    """A model's file beside the repository, which would serve."""
    (tmp_path / "secret" / "1").mkdir(parents=True)
    onnx_models.identity(tmp_path / "secret", "FP32", (2,)).rename(tmp_path / "secret.onnx")
    return tmp_path / "secret.onnx"


def refusal(models, *flags):
    code, _, err = run_to_end(f"--model-repository={models}", *QUIET, *flags)
    assert code == 1
    return err


def load(server, model, **parameters):
    return ask(server, "POST", f"/v2/repository/models/{model}/load", {"parameters": parameters} if parameters else None)


def override(**more):
    return json.dumps({"backend": "onnxruntime", "input": [{"name": "IN", "data_type": "TYPE_FP32", "dims": [2]}],
                       "output": [{"name": "OUT0", "data_type": "TYPE_FP32", "dims": [2]}], **more})


@pytest.mark.parametrize("from_root", [False, True])
def test_a_load_request_cannot_name_a_file_outside(models, outside, from_root):
    """The answer is the same whether or not the file exists; and the model that served goes on."""
    folder = repository.write_model(models, "m", ONNX)
    onnx_models.identity(folder, "FP32", (2,))
    up = str(outside.parent) if from_root else "../../.."
    with Server(models, flags=[EXPLICIT, "--load-model=m"]) as server:
        answers = [load(server, "m", config=override(default_model_filename=f"{up}/{name}.onnx")) for name in ("secret", "nothing")]
        for answer, name in zip(answers, ("secret", "nothing"), strict=True):
            why = f"default_model_filename '{up}/{name}.onnx' of model 'm' is outside the version folder"
            assert answer.json()["error"].startswith(f"failed to load 'm', failed to poll from model repository: {why}")
            server.wait_log(why)
        assert answers[0].status == answers[1].status == 500
        assert infer(server, "m", ASK).status == 200
        assert load(server, "m", config=override(default_model_filename="./model.onnx")).status == 200


@pytest.mark.parametrize("field, text", [
    ('default_model_filename: "../../../secret.onnx"', "default_model_filename '../../../secret.onnx' of model 'm' is outside the version folder"),
    ('default_model_filename: "a/../../x"', "default_model_filename 'a/../../x' of model 'm' is outside the version folder"),
    ('cc_model_filenames { key: "7.5" value: "/x" }',
     "cc_model_filenames '/x' of model 'm' for compute capability '7.5' is outside the version folder"),
])
def test_a_configuration_cannot_name_a_file_outside(models, outside, field, text):
    repository.write_model(models, "m", ONNX + field)
    err = refusal(models)
    assert re.search(re.escape(text) + rf" \({models}/m/config.pbtxt:4:\d+\)", err), err


@pytest.mark.parametrize("runtime", ["../libtriton_identity.so", "/nowhere/libtriton_identity.so"])
def test_a_configuration_cannot_name_a_runtime_outside(models, runtime):
    repository.write_model(models, "m", IDENTITY + f'runtime: "{runtime}"')
    err = refusal(models)
    assert re.search(f"backend library name '{runtime}' escapes backend directory '.*', for model 'm', check model config runtime "
                     rf"field \({models}/m/config.pbtxt:4:1\)", err), err


STATE = """backend: "identity"
sequence_batching { state { input_name: "SI" output_name: "SO" data_type: TYPE_INT32 dims: [ 2 ]
  initial_state { name: "i" data_type: TYPE_INT32 dims: [ 2 ] data_file: "%s" } } }
""" + IDENTITY.split("\n", 1)[1]


@pytest.mark.parametrize("name", ["../1/two", "/etc/hostname", "a/../../1/two"])
def test_an_initial_state_outside_its_folder_is_refused(models, name):
    folder = repository.write_model(models, "m", STATE % name)
    (folder / "initial_state" / "a").mkdir(parents=True)
    (folder / "1" / "two").write_bytes(bytes(8))
    err = refusal(models)
    assert (f"initial_state setting of state input 'SI': file '{name}' is outside the model's folder initial_state "
            f"({models}/m/config.pbtxt:3:") in err


def test_an_initial_state_needs_a_name(models):
    repository.write_model(models, "m", STATE % "")
    assert f"initial_state setting expects state 'SI' to name a file ({models}/m/config.pbtxt:3:" in refusal(models)


@pytest.mark.parametrize("name", ["../l", "/l"])
def test_labels_outside_are_refused_by_position(models, name):
    repository.write_model(models, "m", IDENTITY.replace('name: "OUT0"', f'name: "OUT0" label_filename: "{name}"'))
    text = f"label file path '{name}' for output 'OUT0' in model 'm' is outside model directory ({models}/m/config.pbtxt:3:"
    assert text in refusal(models)


def link_in_a_folder(folder, outside):
    """default_model_filename is deeper than the entries of the version's folder."""
    (folder / "1" / "sub").mkdir()
    (folder / "1" / "sub" / "x.onnx").symlink_to(outside)
    return 'default_model_filename: "sub/x.onnx"', folder / "1" / "sub" / "x.onnx"


def link_in_a_model_folder(folder, outside):
    """The model's file is a folder that has the file."""
    (folder / "1" / "model.onnx").mkdir()
    (folder / "1" / "model.onnx" / "model.onnx").symlink_to(outside)
    return "", folder / "1" / "model.onnx" / "model.onnx"


@pytest.mark.parametrize("place", [link_in_a_folder, link_in_a_model_folder])
def test_links_below_the_version_folder_are_examined(models, outside, place):
    folder = repository.write_model(models, "m", "")
    more, link = place(folder, outside)
    (folder / "config.pbtxt").write_text(ONNX + more)
    text = f"link '{link}' leads to '{outside}', out of the model repository; --repository-follow-symlinks=true permits that"
    assert text in refusal(models)
    with Server(models, flags=["--repository-follow-symlinks=true"]) as server:
        assert infer(server, "m", ASK).status == 200
    link.unlink()
    os.link(outside, link)
    with Server(models) as server:
        assert infer(server, "m", ASK).status == 200


def test_errors_do_not_reveal_which_files_exist(models, outside):
    """For a file outside the text is the same, whether or not it exists."""
    def external(location):
        weights = TensorProto(name="W", data_type=TensorProto.FLOAT, dims=[2], data_location=TensorProto.EXTERNAL)
        weights.external_data.add(key="location", value=location)
        graph = helper.make_graph([helper.make_node("Add", ["IN", "W"], ["OUT0"])], "g", [onnx_models.tensor("IN", "FP32", [2])],
                                  [onnx_models.tensor("OUT0", "FP32", [2])], [weights])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
        model.ir_version = 8
        return model.SerializeToString()

    names = {"there": str(outside), "missing": str(outside.parent / "nothing"), "above": "../../../secret.onnx", "above_missing": "../../../nothing"}
    for name, path in names.items():
        folder = repository.write_model(models, f"ops_{name}", ONNX + f'model_operations {{ op_library_filename: "{path}" }}')
        onnx_models.identity(folder, "FP32", (2,))
        folder = repository.write_model(models, f"data_{name}", ONNX)
        (folder / "1" / "model.onnx").write_bytes(external(path))
        repository.write_model(models, f"strategy_{name}", IDENTITY + 'max_batch_size: 4 dynamic_batching { }\nparameters { '
                               f'key: "TRITON_BATCH_STRATEGY_PATH" value {{ string_value: "{models}/x/../{path}" }} }}')
    with Server(models, flags=["--exit-on-error=false", "--strict-readiness=false"], ready=None) as server:
        server.await_rest()
        log = server.log()
    for kind, text in (("ops", "is not in the model repository"), ("data", "is outside the folder of its ONNX file"),
                       ("strategy", "Batching library path escapes model repository.")):
        for name in names:
            said = re.findall(rf"failed to load '{kind}_{name}' version 1: (.*)\"\n", log)
            assert len(said) == 1 and text in said[0], (kind, name, said)
            assert "No such file" not in said[0]
