# SPDX-License-Identifier: Apache-2.0
"""tensorflow_models.py FOLDER: writes the models that bench/micro/tensorflow_backend.c asks, all FP32, with a signature that OpenVINO does not
read."""

import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests/system"))

import saved_models  # noqa: E402

ROOT = pathlib.Path(sys.argv[1])
WEIGHTS = np.random.default_rng(1).standard_normal((512, 512)).astype(np.float32) / 64


def write(name, content, head="", instances=1):
    folder = ROOT / name
    (folder / "1").mkdir(parents=True)
    saved_models.write(folder, content)
    (folder / "config.pbtxt").write_text(f'platform: "tensorflow_savedmodel"\n{head}instance_group [ {{ count: {instances} kind: KIND_CPU }} ]\n'
                                         'parameters { key: "TF_NUM_INTRA_THREADS" value { string_value: "1" } }\n')


write("add_sub", saved_models.add_sub([1, 16], name="only"))
write("image", saved_models.only("Relu", np.float32, [-1, 3 * 224 * 224], name="only"), "max_batch_size: 8\n")
write("pair", saved_models.products(WEIGHTS, 3, [32, 512], name="only"), instances=2)
