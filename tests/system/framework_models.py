#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One model for each format that Conch serves, all of which read the digits of examples/: the network of examples/models/digits
in the formats of the frameworks, and forests that are trained on the images which that network has learned from.

    framework_models.py FOLDER    writes the models into a new repository; `make run FRAMEWORKS=1` serves it

A format whose framework is not installed is left out. MAKERS has a function for each format.
"""

import importlib.util
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/lib"), str(ROOT / "tests/system")]

import numpy as np  # noqa: E402  (the paths come first)
import onnx  # noqa: E402

import repository  # noqa: E402

NETWORK = repository.EXAMPLES / "digits/1/model.onnx"
HEAD = "max_batch_size: 64\ndynamic_batching { }\n"
TENSORS = (("input", "image", "FP32", [64]), ("output", "scores", "FP32", [10]))
SCORES = "".join(repository.tensor(*t) for t in TENSORS)
# On processors with BF16, OpenVINO would compute with it.
EXACT = 'parameters { key: "INFERENCE_PRECISION_HINT" value { string_value: "F32" } }\n'


def weights():
    """{name: array} of the network: w1 [64,128], b1 [128], w2 [128,10], b2 [10], pixel_max."""
    return {w.name: onnx.numpy_helper.to_array(w) for w in onnx.load(NETWORK).graph.initializer}


def training_data():
    """Images FP32 [n,64] that were not held out, and their digits."""
    spec = importlib.util.spec_from_file_location("train", ROOT / "examples/digits/train.py")
    train = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(train)
    images, _, labels, _ = train.load_data()
    return images.astype(np.float32), labels


def make_openvino(root):
    import openvino

    folder = repository.write_model(root, "digits_openvino", f'backend: "openvino"\n{HEAD}{SCORES}{EXACT}')
    openvino.save_model(openvino.convert_model(NETWORK), folder / "1/model.xml", compress_to_fp16=False)


def make_saved_model(root):
    """The backend tensorflow takes OpenVINO for it, where TensorFlow is not installed."""
    import openvino_models

    folder = repository.write_model(root, "digits_tensorflow", f'platform: "tensorflow_savedmodel"\n{HEAD}{SCORES}') / "1/model.savedmodel"
    folder.mkdir()
    (folder / "saved_model.pb").write_bytes(openvino_models.saved_network(weights()))


NETWORK_SCRIPT = """
def forward(self, image):
    hidden = torch.relu(torch.matmul(image / 16, self.w1) + self.b1)
    return torch.softmax(torch.matmul(hidden, self.w2) + self.b2, 1)
"""


def make_torch(root):
    import torch_models

    if not torch_models.MAKER.exists():
        raise ImportError("torch_script was not built")
    arrays = {name: array for name, array in weights().items() if array.ndim}
    torch_models.write_model(root, "digits_torch", NETWORK_SCRIPT, *TENSORS, more=HEAD, weights=arrays)


def write_forest(root, name, model_type, file, save):
    """The input and the output are completed from the forest."""
    settings = "".join(f'parameters {{ key: "{k}" value {{ string_value: "{v}" }} }}\n'
                       for k, v in (("model_type", model_type), ("predict_proba", "true")))
    folder = repository.write_model(root, name, f'backend: "fil"\n{HEAD}{settings}')
    save(str(folder / "1" / file))


def make_xgboost(root):
    import xgboost

    images, labels = training_data()
    booster = xgboost.train({"objective": "multi:softprob", "num_class": 10, "max_depth": 4, "nthread": 1}, xgboost.DMatrix(images, labels), 20)
    write_forest(root, "digits_xgboost", "xgboost_ubj", "xgboost.ubj", booster.save_model)


def make_lightgbm(root):
    import lightgbm

    images, labels = training_data()
    parameters = {"objective": "multiclass", "num_class": 10, "num_leaves": 15, "num_threads": 1, "verbose": -1}
    write_forest(root, "digits_lightgbm", "lightgbm", "model.txt", lightgbm.train(parameters, lightgbm.Dataset(images, labels), 30).save_model)


def make_scikit_learn(root):
    """A random forest, as a checkpoint of treelite."""
    import treelite
    from sklearn.ensemble import RandomForestClassifier

    forest = RandomForestClassifier(50, random_state=1).fit(*training_data())
    write_forest(root, "digits_scikit_learn", "treelite_checkpoint", "checkpoint.tl", treelite.sklearn.import_model(forest).serialize)


NETWORK_IN_PYTHON = """\
import pathlib

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.weights = np.load(pathlib.Path(__file__).with_name("weights.npz"))

    def execute(self, requests):
        return [self.answer(pb_utils.get_input_tensor_by_name(r, "image").as_numpy()) for r in requests]

    def answer(self, image):
        w = self.weights
        hidden = np.maximum(image / 16 @ w["w1"] + w["b1"], 0)
        raised = np.exp(hidden @ w["w2"] + w["b2"])
        scores = raised / raised.sum(1, keepdims=True)
        return pb_utils.InferenceResponse([pb_utils.Tensor("scores", scores.astype(np.float32))])
"""


def make_python(root):
    folder = repository.write_model(root, "digits_python", f'backend: "python"\n{HEAD}{SCORES}') / "1"
    (folder / "model.py").write_text(NETWORK_IN_PYTHON)
    np.savez(folder / "weights.npz", **weights())


def make_ensemble(root):
    """Two frameworks after each other: the network in OpenVINO, and its highest score in ONNX Runtime."""
    if not (root / "digits_openvino").exists():
        raise ImportError("OpenVINO is not installed")
    repository.write_model(root, "digits_ensemble", f"""platform: "ensemble"
max_batch_size: 64
{repository.tensor(*TENSORS[0])}output [ {{ name: "name" data_type: TYPE_STRING dims: [ 1 ] }}, {{ name: "score" data_type: TYPE_FP32 dims: [ 1 ] }} ]
ensemble_scheduling {{ step [
  {{ model_name: "digits_openvino" model_version: -1
    input_map {{ key: "image" value: "image" }} output_map {{ key: "scores" value: "scores" }} }},
  {{ model_name: "digits_name" model_version: -1
    input_map {{ key: "scores" value: "scores" }}
    output_map [ {{ key: "name" value: "name" }}, {{ key: "score" value: "score" }} ] }} ] }}
""")


# A format is one line here.
MAKERS = {
    "OpenVINO": make_openvino,
    "TensorFlow SavedModel": make_saved_model,
    "TorchScript": make_torch,
    "XGBoost": make_xgboost,
    "LightGBM": make_lightgbm,
    "scikit-learn": make_scikit_learn,
    "Python": make_python,
    "ensemble": make_ensemble,
}


def write_all(root):
    """Writes the models of all formats that can be made here; {format: why not} of the others."""
    left_out = {"TensorRT": "an engine is made on the GPU that executes it"}
    for name, make in MAKERS.items():
        try:
            make(root)
        except ImportError as missing:
            left_out[name] = str(missing)
    return left_out


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    root = pathlib.Path(sys.argv[1])
    root.mkdir(parents=True)
    for name, why in write_all(root).items():
        print(f"without a model of {name}: {why}")


if __name__ == "__main__":
    main()
