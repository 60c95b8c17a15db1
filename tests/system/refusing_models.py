# SPDX-License-Identifier: Apache-2.0
"""A model of each framework that the framework itself refuses to run with some requests: nothing looks at their shapes before.

It has the inputs A and B of [n,256], and N of [n,1], and the output SUM: A, without values below 0, gets as many rows of zeroes more as the sum of N says,
goes through LAYERS products with the unit matrix, with Relu after each, and B is added. That fails in the end, where the rows are not as many as B's."""

import functools

import numpy as np

import aoti_packages
import framework_columns
import repository
import saved_models
import torch_models

WIDTH, LAYERS = 256, 40
UNIT = np.eye(WIDTH, dtype=np.float32)


def save_onnx(path):
    import onnx
    from onnx import TensorProto, helper

    def end(name, kind, *dims):
        return helper.make_tensor_value_info(name, kind, dims)

    inputs = [end("A", TensorProto.FLOAT, "n", WIDTH), end("B", TensorProto.FLOAT, "m", WIDTH), end("N", TensorProto.INT64, "k", 1)]
    node = helper.make_node
    nodes = [node("ReduceSum", ["N"], ["more"], keepdims=0), node("Reshape", ["more", "one"], ["rows"]), node("Concat", ["rows", "width"], ["shape"], axis=0),
             node("ConstantOfShape", ["shape"], ["zeroes"]), node("Concat", ["A", "zeroes"], ["x0"], axis=0)]
    for i in range(LAYERS):
        nodes += [node("MatMul", [f"x{i}", "unit"], [f"product{i}"]), node("Relu", [f"product{i}"], [f"x{i + 1}"])]
    nodes.append(node("Add", [f"x{LAYERS}", "B"], ["SUM"]))
    constants = {"one": np.array([1]), "width": np.array([WIDTH]), "unit": UNIT}
    graph = helper.make_graph(nodes, "refusing", inputs, [end("SUM", TensorProto.FLOAT, "n", WIDTH)],
                              [onnx.numpy_helper.from_array(array, name) for name, array in constants.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def save_openvino(path):
    import openvino_models as models

    ops = models.ops
    a, b = (models.parameter(name, [-1, WIDTH]) for name in "AB")
    n = models.parameter("N", [-1, 1], np.int64)
    rows = ops.reduce_sum(n, ops.constant(np.array([0])), False)
    zeroes = ops.broadcast(ops.constant(np.float32(0)), ops.concat([rows, ops.constant(np.array([WIDTH]))], 0))
    x, unit = ops.concat([a, zeroes], 0), ops.constant(UNIT)
    for _ in range(LAYERS):
        x = ops.relu(ops.matmul(x, unit, False, False))
    model = models.ov.Model([models.named(ops.add(x, b), "SUM")], [a, b, n], "refusing")
    models.ov.save_model(models.with_layouts(model), path, compress_to_fp16=False)


def save_saved_model(path):
    node, constant, floats, ints = saved_models.node, saved_models.constant, saved_models.of_type(np.float32), saved_models.of_type(np.int64)
    axis = saved_models.of_type(np.int32)
    graph = b"".join(saved_models.placeholder(f"in_{name}", np.float32, [-1, WIDTH]) for name in "AB")
    graph += saved_models.placeholder("in_N", np.int64, [-1, 1]) + constant("both", np.array([0, 1], np.int32)) + constant("axis", np.int32(0))
    graph += constant("width", np.int64(WIDTH)) + constant("zero", np.float32(0)) + constant("unit", UNIT)
    graph += node("rows", "Sum", ["in_N", "both"], T=ints, Tidx=axis, keep_dims=saved_models.of_bool(False))
    graph += node("shape", "Pack", ["rows", "width"], T=ints, N=saved_models.field(3, 2), axis=saved_models.field(3, 0))
    graph += node("zeroes", "Fill", ["shape", "zero"], T=floats, index_type=ints)
    graph += node("x0", "ConcatV2", ["in_A", "zeroes", "axis"], T=floats, Tidx=axis, N=saved_models.field(3, 2))
    for i in range(LAYERS):
        graph += node(f"product{i}", "MatMul", [f"x{i}", "unit"], T=floats) + node(f"x{i + 1}", "Relu", [f"product{i}"], T=floats)
    graph += node("sum", "AddV2", [f"x{LAYERS}", "in_B"], T=floats)
    given = {name: (f"in_{name}:0", np.float32, [-1, WIDTH]) for name in "AB"} | {"N": ("in_N:0", np.int64, [-1, 1])}
    signature = saved_models.signature(given, {"SUM": ("sum:0", np.float32, [-1, WIDTH])})
    path.write_bytes(saved_models.saved_model(saved_models.meta_graph(graph, {"serving_default": signature})))


SCRIPT = f"""
def forward(self, A, B, N):
    x = torch.cat([A, torch.zeros([int(N.sum()), {WIDTH}])])
    for i in range({LAYERS}):
        x = torch.relu(torch.matmul(x, self.unit))
    return x + B
"""

# The stand-in has no layers, and refuses any N but 0.
PLAN = f"""fakeplan 11
in A float -1x{WIDTH}
in B float -1x{WIDTH}
in N int64 -1x1
out SUM float -1x{WIDTH}
profile 0 A 0x{WIDTH} 4x{WIDTH} 64x{WIDTH}
profile 0 B 0x{WIDTH} 4x{WIDTH} 64x{WIDTH}
profile 0 N 0x1 4x1 64x1
op zero N
op add A B SUM
end
"""


@functools.cache
def package_code():
    return aoti_packages.code("/dev/null", n_models=0, N_INPUTS=3, COLUMNS=WIDTH)


class PackageColumn(framework_columns.Column):
    """Packages of AOTInductor: the stand-in, which has no layers."""

    def start(self, root, flags=(), **more):
        self.env["CONCH_TORCH"] = str(aoti_packages.library())
        return super().start(root, flags, **more)


PACKAGES = PackageColumn("pytorch, package", 'platform: "torch_aoti"\n', "model.pt2", lambda path: aoti_packages.write_package(path, package_code()),
                         flags=["--backend-config=pytorch,allow-native-code=1"])


class Kind:
    """save(path): writes the model. refuses: what the framework's error has. one_thread: the parameters by which its operators use one thread.
    long: an N that makes a run of a second and more; 0: there is none."""

    def __init__(self, save, refuses, long=50_000, **one_thread):
        self.save, self.refuses, self.long, self.one_thread = save, refuses, long, one_thread


TENSORFLOW = {"TF_NUM_INTRA_THREADS": 1, "TF_NUM_INTER_THREADS": 1, "TF_USE_PER_SESSION_THREADS": "true"}
KINDS = {
    "onnxruntime": Kind(save_onnx, "while running Add node", intra_op_thread_count=1),
    "openvino": Kind(save_openvino, "", INFERENCE_NUM_THREADS=1),
    "tensorflow, openvino": Kind(save_saved_model, "", TF_NUM_INTRA_THREADS=1),
    "tensorflow, tensorflow": Kind(save_saved_model, "Incompatible shapes", 8000, **TENSORFLOW),
    "pytorch": Kind(lambda path: torch_models.write_script(path, SCRIPT, unit=UNIT), "must match the size of tensor b", 500, INTRA_OP_THREAD_COUNT=1),
    "pytorch, package": Kind(PACKAGES.save, "expected size [0-9]+==[0-9]+ at dim=0", 0, INTRA_OP_THREAD_COUNT=1),
    "tensorrt": Kind(lambda path: path.write_text(PLAN), "unable to enqueue for inference", 0),
}


def write(column, root, name, more):
    """The model as this one of a column. more: of its configuration; without a size of batches in it, the model does not batch."""
    rows = [] if "max_batch_size" in more else [-1]
    tensors = "".join(repository.tensor("input", n, "FP32", [*rows, WIDTH]) for n in "AB") + repository.tensor("input", "N", "INT64", [*rows, 1])
    folder = repository.write_model(root, name, column.config(more, tensors + repository.tensor("output", "SUM", "FP32", [*rows, WIDTH])))
    path = folder / "1" / column.file
    path.parent.mkdir(exist_ok=True)
    KINDS[column.name].save(path)


COLUMNS = [column for column in (*framework_columns.ALL, PACKAGES) if column.name in KINDS]
