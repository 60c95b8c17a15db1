# SPDX-License-Identifier: Apache-2.0
"""Wrong ONNX files, and data outside the file: each gives one clear error, and the server goes on."""

import os
import pathlib
import re

import numpy
import pytest

import onnx_models
import repository
from server import Server, wait_for
from wire import ask, given, infer

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

CONFIG = 'backend: "onnxruntime"\n' + repository.tensor("input", "IN", "FP32", [4]) + repository.tensor("output", "OUT", "FP32", [4])
WEIGHTS = numpy.arange(4, dtype=numpy.float32)
STEP = 1024


def external(name, **entries):
    t = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    for key, value in entries.items():
        t.external_data.add(key=key, value=str(value))
    return t


def model_of(weights, nodes=None, opset=18, ir=8, domain="ai.onnx"):
    """OUT = IN + W."""
    graph = helper.make_graph(
        nodes or [helper.make_node("Add", ["IN", "W"], ["OUT"])], "g",
        [onnx_models.tensor("IN", "FP32", [4])], [onnx_models.tensor("OUT", "FP32", [4])], [weights] if weights else [])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid(domain if domain != "ai.onnx" else "", opset)])
    model.ir_version = ir
    return model.SerializeToString()


def in_constant(location):
    """The external data is in an attribute of a node."""
    return model_of(None, [helper.make_node("Constant", [], ["W"], value=external("C", location=location)),
                           helper.make_node("Add", ["IN", "W"], ["OUT"])])


def in_branch(location):
    """The external data is in a graph that is an attribute."""
    branch = helper.make_graph([helper.make_node("Add", ["IN", "B"], ["sum"])], "b", [], [onnx_models.tensor("sum", "FP32", [4])],
                               [external("B", location=location)])
    yes = helper.make_node("Constant", [], ["yes"], value=helper.make_tensor("yes", TensorProto.BOOL, [], [True]))
    return model_of(None, [yes, helper.make_node("If", ["yes"], ["OUT"], then_branch=branch, else_branch=branch)])


def write(root, name, content, folder=""):
    where = repository.write_model(root, name, CONFIG) / "1" / folder
    where.mkdir(exist_ok=True)
    (where / "model.onnx").write_bytes(content)
    return where


GOOD = {
    "beside": ("", "w.bin"),
    "in_a_folder": ("model.onnx", "w.bin"),
    "below": ("model.onnx", "data/w.bin"),
    "with_dots": ("model.onnx", "data/../w.bin"),
}
OUTSIDE = r".*[Ee]xternal data.*{}.*outside the folder.*"
WRONG = {
    "opset": (model_of(numpy_helper.from_array(WEIGHTS, "W"), opset=99), r".*[Oo]pset 99.*till opset \d+.*\(ONNX Runtime 1\.\d+\.\d+\)"),
    "ir": (model_of(numpy_helper.from_array(WEIGHTS, "W"), ir=99),
           r".*IR version: 99, max supported IR version: \d+.*\(ONNX Runtime 1\.\d+\.\d+\)"),
    "empty": (b"", r".*\(ONNX Runtime \S+\)"),
    "text": (b"this is no model\n" * 100, r".*\(ONNX Runtime \S+\)"),
    "missing": (model_of(external("W", location="no.bin")), r".*external data of 'W'.*'no\.bin'.*No such file or directory"),
    "too_long": (model_of(external("W", location="w.bin", length=64)), r".*external_data.length: 64.*"),
    "behind_the_end": (model_of(external("W", location="w.bin", offset=1 << 40)), r".*out of bounds.*"),
    "no_name": (model_of(external("W", location="")), r".*external data of 'W' is in a file without a name"),
    "in_memory": (model_of(external("W", location="*/_ORT_MEM_ADDR_/*", offset=4096, length=16)),
                  r".*external data of 'W' is in '\*/_ORT_MEM_ADDR_/\*', which is memory and no file"),
    "pipe": (model_of(external("W", location="pipe")), r".*external data of 'W' is in 'pipe', which is no regular file"),
    "a_folder": (model_of(external("W", location="data")), r".*external data of 'W' is in 'data', which is no regular file"),
    "above": (model_of(external("W", location="../outside.bin")), OUTSIDE.format(r"'\.\./outside\.bin'")),
    "far_above": (model_of(external("W", location="../../../../../../etc/hostname")), OUTSIDE.format(r"\S+/etc/hostname'")),
    "absolute": (model_of(external("W", location="/etc/hostname")), OUTSIDE.format(r"'/etc/hostname'")),
    "linked": (model_of(external("W", location="link.bin")), OUTSIDE.format(r"'link\.bin'")),
    "through_a_linked_folder": (model_of(external("W", location="up/outside.bin")), OUTSIDE.format(r"'up/outside\.bin'")),
    "in_a_constant": (in_constant("../outside.bin"), OUTSIDE.format(r"'\.\./outside\.bin'")),
    "in_a_branch": (in_branch("../outside.bin"), OUTSIDE.format(r"'\.\./outside\.bin'")),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    root = tmp_path_factory.mktemp("files")
    for name, (folder, location) in GOOD.items():
        where = write(root, name, model_of(external("W", location=location)), folder)
        (where / "data").mkdir()
        for place in (where, where / "data"):
            WEIGHTS.tofile(place / "w.bin")
    for name, (content, _) in WRONG.items():
        where = write(root, name, content)
        WEIGHTS.tofile(where / "w.bin")
        WEIGHTS.tofile(where / "../outside.bin")
        os.symlink("../outside.bin", where / "link.bin")
        os.symlink("..", where / "up")
        os.mkfifo(where / "pipe")
        (where / "data").mkdir()
        # A file of that name is not one of ONNX Runtime's markers either.
        (where / "*/_ORT_MEM_ADDR_").mkdir(parents=True)
        WEIGHTS.tofile(where / "*/_ORT_MEM_ADDR_/*")
    os.mkfifo(write(root, "is_a_pipe", b"") / "pipe.onnx")
    (root / "is_a_pipe/config.pbtxt").write_text(CONFIG + 'default_model_filename: "pipe.onnx"\n')
    with Server(root, flags=["--exit-on-error=false", "--strict-readiness=false"], ready=None) as running:
        running.await_rest()
        yield running


def reasons(server, name):
    return re.findall(rf"failed to load '{name}' version 1: (.*)\"\n", server.log())


@pytest.mark.parametrize("name", GOOD)
def test_external_data_in_the_folder_is_read(server, name):
    answer = infer(server, name, {"inputs": [given("IN", "FP32", [4], [1, 1, 1, 1])]})
    assert answer.json()["outputs"][0]["data"] == [1, 2, 3, 4]


DIRECT = 'parameters { key: "session.use_external_initializer_file_buffers_directly" value { string_value: "1" } }'
ROW = list(range(39999 * 16, 40000 * 16))


def last_row(server):
    return infer(server, "m", {"inputs": [given("PLACE", "INT64", [1], [39999])]}).json()["outputs"][0]["data"]


@pytest.mark.parametrize("constant, config", [(False, ""), (True, ""), (False, DIRECT)])
def test_external_data_that_changes_under_a_loaded_model(tmp_path, constant, config):
    """It is cut off in place, as a copy over it begins, and then has other contents. ONNX Runtime would map it, and look up rows there."""
    weights = onnx_models.external_rows(repository.write_model(tmp_path, "m", 'backend: "onnxruntime"\n' + config), constant)
    good = weights.read_bytes()
    bad = (-numpy.frombuffer(good, numpy.float32)).tobytes()
    with Server(tmp_path, flags=["--model-control-mode=explicit", "--load-model=m"]) as server:

        def load(content):
            weights.write_bytes(content)
            return ask(server, "POST", "/v2/repository/models/m/load", {}).status

        for content in (good, b"", bad):
            weights.write_bytes(content)
            assert last_row(server) == ROW
        assert load(bad) == 200
        assert last_row(server) == [-value for value in ROW]
        assert load(b"") == 400
        assert last_row(server) == [-value for value in ROW]
        assert load(good) == 200
        assert last_row(server) == ROW


@pytest.mark.parametrize("config, size, maps", [("", 0, False), ("", (1 << 30) + 1, True), ("1", 0, True), ("0", 0, False)])
def test_external_data_is_mapped_on_request_or_when_it_is_large(tmp_path, config, size, maps):
    """size: of the file, which ends with a hole."""
    if config:
        config = f'parameters {{ key: "map_external_data" value {{ string_value: "{config}" }} }}\n'
    weights = onnx_models.external_rows(repository.write_model(tmp_path, "m", 'backend: "onnxruntime"\n' + config))
    if size:
        os.truncate(weights, size)
    with Server(tmp_path) as server:
        assert last_row(server) == ROW
        assert ("w.bin" in pathlib.Path(f"/proc/{server.pid}/maps").read_text()) == maps
        assert bool(re.search(r"model 'm': its [0-9.]+ MB of external data are mapped", server.log())) == maps


@pytest.mark.parametrize("name", WRONG)
def test_wrong_files_are_refused(server, name):
    said = reasons(server, name)
    assert len(said) == 1 and re.fullmatch(WRONG[name][1], said[0]), said


def test_a_pipe_is_refused(server):
    """No process writes to the pipe, so opening it would wait for ever."""
    assert re.fullmatch(r".*unable to read '\S+/pipe\.onnx' of model 'is_a_pipe': it is no regular file", *reasons(server, "is_a_pipe"))


@pytest.mark.parametrize("element, name", [("FLOAT8E4M3FN", "float8e4m3fn"), ("FLOAT8E5M2FNUZ", "float8e5m2fnuz")])
def test_element_types_unknown_to_the_protocols_are_refused(tmp_path, element, name):
    kind = getattr(TensorProto, element)
    graph = helper.make_graph([helper.make_node("Identity", ["IN"], ["OUT"])], "g", [helper.make_tensor_value_info("IN", kind, [4])],
                              [helper.make_tensor_value_info("OUT", kind, [4])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)])
    model.ir_version = 9
    write(tmp_path, "m", model.SerializeToString())
    with Server(tmp_path, flags=["--exit-on-error=false", "--strict-readiness=false"], ready=None) as running:
        running.await_rest()
        assert reasons(running, "m") == [f"Unsupported: model 'm', tensor 'IN': ONNX element type {kind} ({name}) is not supported"]


def test_a_file_truncated_at_any_kilobyte_is_refused(tmp_path):
    """A model of weights, nodes and graphs in nodes, cut off at each kB: no piece is served, the whole file is."""
    values = numpy.random.default_rng(1).standard_normal(6000).astype(numpy.float32)
    branch = helper.make_graph([helper.make_node("Add", ["IN", "B"], ["sum"])], "b", [], [onnx_models.tensor("sum", "FP32", [4])],
                               [numpy_helper.from_array(values, "unused"), numpy_helper.from_array(WEIGHTS, "B")])
    names = [f"chain{i}" for i in range(300)]
    nodes = [helper.make_node("Constant", [], ["yes"], value=helper.make_tensor("yes", TensorProto.BOOL, [], [True])),
             helper.make_node("If", ["yes"], [names[0]], then_branch=branch, else_branch=branch)]
    nodes += [helper.make_node("Relu", [a], [b]) for a, b in zip(names, names[1:] + ["OUT"])]
    whole = model_of(numpy_helper.from_array(values, "more"), nodes)
    cuts = range(0, len(whole), STEP)
    assert len(cuts) > 60
    for cut in cuts:
        write(tmp_path, f"cut_{cut}", whole[:cut])
    write(tmp_path, "whole", whole)
    with Server(tmp_path, flags=["--exit-on-error=false", "--strict-readiness=false"], ready=None) as running:
        running.await_rest()
        for cut in cuts:
            said = reasons(running, f"cut_{cut}")
            assert len(said) == 1 and "onnx runtime error" in said[0], (cut, said)
            assert ask(running, "GET", f"/v2/models/cut_{cut}/ready").status == 404
        answer = infer(running, "whole", {"inputs": [given("IN", "FP32", [4], [-9, 1, 1, 1])]})
        assert answer.json()["outputs"][0]["data"] == [0, 2, 3, 4]


def test_only_the_version_that_fails_is_tried_again(tmp_path):
    """In mode poll, when one version of a model failed at the start, the other versions are not loaded again in each round."""
    good = model_of(numpy_helper.from_array(WEIGHTS, "W"))
    folder = write(tmp_path, "m", good).parent
    with (folder / "config.pbtxt").open("a") as config:
        config.write("version_policy { all { } }\n")
    (folder / "2").mkdir()
    (folder / "2/model.onnx").write_bytes(b"no model")
    flags = ["--model-control-mode=poll", "--repository-poll-secs=1", "--exit-on-error=false", "--strict-readiness=false"]
    with Server(tmp_path, flags=flags, ready=None) as server:
        wait_for(lambda: server.log().count("loading: m:2") >= 3, 60, "it is tried in each round")
        assert server.log().count("loading: m:1") == 1
        request = {"inputs": [given("IN", "FP32", [4], [0.0, 0.0, 0.0, 0.0])]}
        assert infer(server, "m/versions/1", request).json()["outputs"][0]["data"] == [0.0, 1.0, 2.0, 3.0]
        mended = tmp_path.parent / "mended.onnx"    # comes at once: a round would find half of a file that is being written
        mended.write_bytes(good)
        mended.replace(folder / "2/model.onnx")
        wait_for(lambda: infer(server, "m/versions/2", request).status == 200, 60, "it is mended")
        tried = server.log().count("loading: m:2")
        assert server.log().count("loading: m:1") == 1
        (folder / "3").mkdir()
        (folder / "3/model.onnx").write_bytes(good)
        wait_for(lambda: infer(server, "m/versions/3", request).status == 200, 60, "a new version comes")
        assert server.log().count("loading: m:1") == 1
        # A round that had looked at the file before it was mended, and read it afterwards, is followed by one more.
        assert server.log().count("loading: m:2") - tried in (0, 1)
