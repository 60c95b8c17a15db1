# SPDX-License-Identifier: Apache-2.0
"""forest_models.py FOLDER: the repository of forest_backend.c. Runs with .deps/venv/bin/python, which has XGBoost."""

import pathlib
import sys

import numpy
import xgboost

CONFIG = """backend: "fil"
max_batch_size: 64
instance_group [ { count: 1 kind: KIND_CPU } ]
parameters { key: "model_type" value { string_value: "xgboost_ubj" } }
parameters { key: "predict_proba" value { string_value: "true" } }
"""


def main(root):
    rows = numpy.random.default_rng(1).normal(size=(500, 8)).astype(numpy.float32)
    booster = xgboost.train({"objective": "binary:logistic"}, xgboost.DMatrix(rows, rows.sum(1) > 0), 20)
    for name, count in (("forest", 1), ("pair", 2)):
        (root / name / "1").mkdir(parents=True)
        booster.save_model(root / name / "1/xgboost.ubj")
        (root / name / "config.pbtxt").write_text(CONFIG.replace("count: 1", f"count: {count}"))


main(pathlib.Path(sys.argv[1]))
