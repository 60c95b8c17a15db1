# SPDX-License-Identifier: Apache-2.0
"""One model for each backend of a framework, for what all of them must do alike: a row of FEATURES values times WEIGHTS, or, in
`fil`, a forest. Its configuration is completed where the backend completes any. Each knows its answer, and the bytes of its weights."""

import importlib.util
import os
import pathlib

import numpy as np
import tritonclient.http as http

import repository
import torch_models
import triton

FEATURES, SCORES = 64, 4096    # of one MiB of weights
WEIGHTS = np.random.default_rng(7).standard_normal((FEATURES, SCORES)).astype(np.float32)
ROW = np.random.default_rng(8).standard_normal((1, FEATURES)).astype(np.float32)
INSTANCE = "instance_group [ { count: 1 kind: KIND_CPU } ]\n"


class Framework:
    def __init__(self, name, write, needs=(), file=None, asks=("x", "y"), row=ROW, environment=None):
        """write(root, name) writes a model; its result is (bytes of the weights, the answer to `row`). A server needs this environment."""
        self.name, self._write, self._needs, self._file, self._asks, self._row = name, write, needs, file, asks, row
        self.environment = environment or {}

    def missing(self):
        """Why its models cannot be written here; None: they can."""
        lacks = [module for module in self._needs if not importlib.util.find_spec(module)]
        if lacks or self._file and not self._file.exists():
            return f"`make test-frameworks` installs what the tests of {self.name} need"
        return None

    def missing_in_triton(self):
        """Why the genuine Triton cannot serve its models here; None: it can."""
        if self.name == "tensorrt":
            return "the genuine Triton finds GPUs by CUDA's own library, for which the stand-in for the driver is too little"
        return triton.missing()

    def write(self, root, name):
        self.bytes, self.expected = self._write(root, name)
        return pathlib.Path(root) / name

    def assert_answers(self, url, model):
        inputs = [http.InferInput(self._asks[0], self._row.shape, "FP32")]
        inputs[0].set_data_from_numpy(self._row)
        with http.InferenceServerClient(url) as client:
            answer = client.infer(model, inputs).as_numpy(self._asks[1])
        np.testing.assert_allclose(answer, self.expected, rtol=2e-2, atol=0.2)    # OpenVINO computes in BF16 where it can

    def flags(self):
        """For the genuine Triton, whose process finds no Python packages of ours."""
        if self.name != "fil":
            return []
        folder = pathlib.Path(importlib.util.find_spec("treelite").origin).parent
        return [f"--backend-config=fil,library-path={next((folder / 'lib').glob('libtreelite.so*'))}"]


def _write_onnx(root, name):
    """Its weights lie in a file of their own."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    ends = [helper.make_tensor_value_info(t, TensorProto.FLOAT, ["n", size]) for t, size in (("x", FEATURES), ("y", SCORES))]
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", ends[:1], ends[1:], [numpy_helper.from_array(WEIGHTS, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    folder = repository.write_model(root, name, f'backend: "onnxruntime"\nmax_batch_size: 4\n{INSTANCE}') / "1"
    onnx.save_model(model, folder / "model.onnx", save_as_external_data=True, location="weights", size_threshold=0)
    return (folder / "model.onnx").stat().st_size + WEIGHTS.nbytes, ROW @ WEIGHTS


def _write_forest(root, name):
    """The bytes are those of the arrays that treelite's own package shows."""
    import forests
    import treelite

    booster, expected = forests._boost("reg:squarederror", forests.TOTAL)
    forest = forests.Forest("xgboost_ubj", "xgboost.ubj", booster.save_model, forests.ROWS, expected)
    folder = forest.write(root, name, "max_batch_size: 4\n")
    model = treelite.frontend.load_xgboost_model(str(folder / "1" / "xgboost.ubj"))
    names = ("num_nodes node_type cmp cleft cright split_index leaf_vector_begin leaf_vector_end category_list_begin category_list_end "
             "default_left category_list_right_child leaf_value threshold leaf_vector category_list data_count data_count_present sum_hess "
             "sum_hess_present gain gain_present").split()
    trees = [model.get_tree_accessor(i) for i in range(model.num_tree)]
    return sum(np.asarray(tree.get_field(field)).nbytes for tree in trees for field in names), expected[:1]


def _write_openvino(root, name):
    import openvino as ov
    from openvino import opset15 as ops

    import openvino_models

    x = openvino_models.parameter("x", [-1, FEATURES])
    y = openvino_models.named(ops.matmul(x, ops.constant(WEIGHTS), False, False), "y")
    file = openvino_models.write(root, name, ov.Model([y], [x], "g"), "max_batch_size: 4\n" + INSTANCE)
    size = file.with_suffix(".bin").stat().st_size
    assert size >= WEIGHTS.nbytes
    return size, ROW @ WEIGHTS


def _write_torch(root, name):
    """Its weights are 0, 1, 2, … of the tool; their sum is exact enough."""
    torch_models.write_model(root, name, "def forward(self, x):\n    return torch.matmul(x, self.w / 1e6)", ("input", "x", "FP32", [FEATURES]),
                             ("output", "y", "FP32", [SCORES]), more="max_batch_size: 4\n", weights={"w": [FEATURES, SCORES]})
    weights = np.arange(FEATURES * SCORES, dtype=np.float32).reshape(FEATURES, SCORES) / np.float32(1e6)
    return weights.nbytes, ROW @ weights


def _write_tensorflow(root, name):
    """The weights are in the graph; what is reported is the size of all files."""
    import saved_models

    floats = saved_models.of_type(np.float32)
    graph = saved_models.placeholder("in", np.float32, [-1, FEATURES]) + saved_models.constant("w", WEIGHTS)
    graph += saved_models.node("product", "MatMul", ["in", "w"], T=floats)
    ends = saved_models.signature({"x": ("in:0", np.float32, [-1, FEATURES])}, {"y": ("product:0", np.float32, [-1, SCORES])})
    folder = repository.write_model(root, name, 'platform: "tensorflow_savedmodel"\nmax_batch_size: 4\n' + INSTANCE)
    file = saved_models.write(folder, saved_models.saved_model(saved_models.meta_graph(graph, {"serving_default": ends})))
    return file.stat().st_size, ROW @ WEIGHTS


def _write_tensorrt(root, name):
    """For the stand-in, which has no weights: its plan is as large as some."""
    folder = repository.write_model(root, name, 'platform: "tensorrt_plan"\nmax_batch_size: 4\ninstance_group [ { kind: KIND_GPU gpus: [ 0 ] } ]\n'
                                    'optimization { cuda { graphs: true } }\n')
    plan = f"fakeplan 11\nin x float -1x{FEATURES}\nout y float -1x{FEATURES}\nprofile 0 x 1x{FEATURES} 4x{FEATURES} 4x{FEATURES}\nop copy x y\nend\n"
    return (folder / "1/model.plan").write_text(plan + "\n" * WEIGHTS.nbytes), ROW


def _forest_row():
    import forests

    return forests.ROWS[:1]


ALL = [
    Framework("onnxruntime", _write_onnx, file=repository.BUILD / "backends/onnxruntime"),
    Framework("fil", _write_forest, needs=("treelite", "xgboost", "lightgbm", "sklearn"), asks=("input__0", "output__0")),
    Framework("openvino", _write_openvino, needs=("openvino",)),
    Framework("pytorch", _write_torch, file=torch_models.MAKER),
    Framework("tensorflow", _write_tensorflow, needs=("openvino",)),
    Framework("tensorrt", _write_tensorrt, environment={
        "CONCH_TENSORRT": str(repository.BUILD / "tests/tensorrt/11/libnvinfer.so.11"), "LD_LIBRARY_PATH": str(repository.BUILD / "tests/cuda")}),
]
if not ALL[1].missing():
    ALL[1]._row = _forest_row()
