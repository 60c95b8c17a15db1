# SPDX-License-Identifier: Apache-2.0
"""tensorflow_models.py FOLDER: writes the model that bench/micro/tensorflow_backend.c asks: add_sub, FP32 [1,16], with a signature that OpenVINO does
not read."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests/system"))

import saved_models  # noqa: E402

folder = pathlib.Path(sys.argv[1]) / "add_sub"
(folder / "1").mkdir(parents=True)
saved_models.write(folder, saved_models.add_sub([1, 16], name="only"))
(folder / "config.pbtxt").write_text('platform: "tensorflow_savedmodel"\ninstance_group [ { count: 1 kind: KIND_CPU } ]\n')
