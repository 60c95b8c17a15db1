# SPDX-License-Identifier: Apache-2.0
"""digits_forest.py FILE: a forest of LightGBM that reads digits: ten classes, 300 trees. Prints one row and its probabilities, as JSON. Runs with
.deps/venv/bin/python, which has LightGBM and scikit-learn."""

import json
import sys

import lightgbm
from sklearn.datasets import load_digits


def main(file):
    images, labels = load_digits(return_X_y=True)
    settings = {"objective": "multiclass", "num_class": 10, "num_leaves": 15, "num_threads": 1, "verbose": -1}
    forest = lightgbm.train(settings, lightgbm.Dataset(images, labels), 30)
    forest.save_model(file)
    print(json.dumps([images[0].tolist(), forest.predict(images[:1])[0].tolist()]))


main(sys.argv[1])
