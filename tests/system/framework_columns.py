# SPDX-License-Identifier: Apache-2.0
"""The columns of the table in docs/backends.md, one for each backend of a framework and each engine: how its models are written. All have the model
that adds and subtracts, of inputs [n,4]; a forest has rows of 4 features, and its answer."""

import functools
import importlib.util
import os
import pathlib
import sys

import numpy as np

import repository
import saved_models
import server as servers
import torch_models

WIDTH = 4
ROOT = pathlib.Path(__file__).resolve().parents[2]
PLAN = "".join(f"{side} {name} float -1x4\n" for side, name in (("in", "A"), ("in", "B"), ("out", "SUM"), ("out", "DIFF"))) + (
    "profile 0 A 0x4 4x4 8x4\nprofile 0 B 0x4 4x4 8x4\nop add A B SUM\nop sub A B DIFF\n")
SCRIPT = "def forward(self, A, B):\n    return A + B, A - B"


def answer(A, B):    # noqa: N803
    return {"SUM": A + B, "DIFF": A - B}


class Column:
    """name: as in the table. head: of a configuration. file: below the version's folder. save(path): writes the model there. needs: modules
    or files that must be there."""

    inputs, outputs, expected = ("A", "B"), ("SUM", "DIFF"), staticmethod(answer)
    dims, answer_dims = (WIDTH,), (WIDTH,)

    def __init__(self, name, head, file, save, needs=(), flags=(), env=None, group="{ kind: KIND_CPU count: 1 }"):
        self.name, self.head, self.file, self.save, self.needs = name, head, file, save, needs
        self.backend = "tensorrt" if "tensorrt" in head else name.split(",")[0]
        # "all": also without any configuration; "": never
        self.completes = {"pytorch": "", "fil": "tensors"}.get(self.backend, "all")
        self.flags, self.env, self.group = list(flags), dict(env or {}), f"instance_group [ {group} ]\n"

    def missing(self):
        """Why its models cannot be made here; None: they can."""
        for what in self.needs:
            if not (importlib.util.find_spec(what) if isinstance(what, str) else what and what.exists()):
                return f"`make test-frameworks` installs {self.name}"
        return None

    def given(self, rows, seed=1):
        chance = np.random.default_rng(seed)
        return {name: chance.standard_normal((rows, WIDTH)).astype(np.float32) for name in self.inputs}

    def tensors(self, dims=None, answer_dims=None, more="", output_more=""):
        """more: of each input, for example a reshape"""
        sides = [("input", n, dims or self.dims, more) for n in self.inputs]
        sides += [("output", n, answer_dims or self.answer_dims, output_more) for n in self.outputs]
        return "".join(f'{side} [ {{ name: "{n}" data_type: TYPE_FP32 dims: [ {", ".join(map(str, d))} ] {m} }} ]\n' for side, n, d, m in sides)

    def config(self, more="max_batch_size: 8\n", tensors=None):
        """Without "instance_group" in it, the one that the backend has instances for is added."""
        text = self.head + more + (self.tensors() if tensors is None else tensors)
        return text if "instance_group" in text else text + self.group

    def start(self, root, flags=(), **more):
        path = f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"    # its NumPy is for models in Python
        return servers.Server(root, grpc=True, flags=[*self.flags, *flags], env={"PATH": path, **self.env}, **more)

    def write(self, root, name, more="max_batch_size: 8\n", tensors=None, versions=(1,), config=True, file=None):
        """The model's folder."""
        folder = repository.write_model(root, name, self.config(more, tensors) if config else None, versions)
        for version in versions:
            path = folder / str(version) / (file or self.file)
            path.parent.mkdir(parents=True, exist_ok=True)
            self.save(path)
        return folder


class ForestColumn(Column):
    inputs, outputs, answer_dims = ("input__0",), ("output__0",), (1,)

    @staticmethod
    def expected(input__0):    # noqa: N803
        import xgboost

        return {"output__0": forest().predict(xgboost.DMatrix(input__0))}


@functools.cache
def forest():
    import xgboost

    rows = np.random.default_rng(3).standard_normal((100, WIDTH)).astype(np.float32)
    return xgboost.train({"objective": "reg:squarederror", "max_depth": 3, "nthread": 1}, xgboost.DMatrix(rows, rows.sum(1)), 8)


def save_onnx(path):
    import onnx
    from onnx import TensorProto, helper

    ends = [helper.make_tensor_value_info(t, TensorProto.FLOAT, ["n", WIDTH]) for t in ("A", "B", "SUM", "DIFF")]
    graph = helper.make_graph([helper.make_node("Add", ["A", "B"], ["SUM"]), helper.make_node("Sub", ["A", "B"], ["DIFF"])], "g", ends[:2], ends[2:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def save_openvino(path):
    import openvino

    import openvino_models

    openvino.save_model(openvino_models.with_layouts(openvino_models.add_sub([-1, WIDTH])), path.with_suffix(".xml"), compress_to_fp16=False)
    path.with_suffix(".xml").rename(path)    # under other names, too


TENSORFLOW = next((ROOT / ".deps/tensorflow/venv").glob("lib/python3*/site-packages/tensorflow/libtensorflow_cc.so*"), None)


def save_saved_model(path):
    path.write_bytes(saved_models.add_sub([-1, WIDTH]))


def tensorflow(engine, *needs):
    return Column(f"tensorflow, {engine}", 'platform: "tensorflow_savedmodel"\n', "model.savedmodel/saved_model.pb", save_saved_model, needs,
                  flags=[f"--backend-config=tensorflow,engine={engine}"])


ALL = [
    Column("onnxruntime", 'backend: "onnxruntime"\n', "model.onnx", save_onnx, needs=("onnx",)),
    Column("openvino", 'backend: "openvino"\n', "model.xml", save_openvino, needs=("openvino",)),
    tensorflow("openvino", "openvino"),
    tensorflow("tensorflow", TENSORFLOW),
    Column("pytorch", 'backend: "pytorch"\n', "model.pt", lambda path: torch_models.write_script(path, SCRIPT), needs=(torch_models.MAKER,)),
    ForestColumn("fil", 'backend: "fil"\nparameters { key: "model_type" value { string_value: "xgboost_ubj" } }\n', "xgboost.ubj",
                 lambda path: path.write_bytes(forest().save_raw("ubj")), needs=("xgboost", "treelite")),
    Column("tensorrt", 'platform: "tensorrt_plan"\n', "model.plan", lambda path: path.write_text(f"fakeplan 11\n{PLAN}end\n"),
           env={"CONCH_TENSORRT": str(repository.BUILD / "tests/tensorrt/11/libnvinfer.so.11"), "LD_LIBRARY_PATH": str(repository.BUILD / "tests/cuda")},
           group="{ kind: KIND_GPU gpus: [ 0 ] count: 1 }"),
]
