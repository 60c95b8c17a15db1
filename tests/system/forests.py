# SPDX-License-Identifier: Apache-2.0
"""Forests that are trained when a test needs them, by the frameworks of `make test-frameworks`, and what the frameworks
answer."""

import json
import struct

import lightgbm
import numpy as np
import treelite
import xgboost
from sklearn import ensemble

import repository

N_FEATURES = 8


def _data():
    """300 rows, a tenth of the values missing; the first feature of the second table is a category from 0 to 11."""
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(300, N_FEATURES)).astype(np.float32)
    total = rows @ rng.normal(size=N_FEATURES)
    rows[rng.random(rows.shape) < 0.1] = np.nan
    kinds = rows.copy()
    kinds[:, 0] = rng.integers(0, 12, len(rows))
    return rows, kinds, total.astype(np.float32)


ROWS, KINDS, TOTAL = _data()
FULL = np.nan_to_num(ROWS)
BINARY = (TOTAL > 0).astype(int)
CLASSES = np.digitize(TOTAL, [-2, 2])
BY_KIND = TOTAL + 3 * (KINDS[:, 0] % 3)
XGB_TYPES = ["c"] + ["q"] * (N_FEATURES - 1)


class Forest:
    """file: its name in the version's folder. save(path) writes it. rows: to ask about. expected: the framework's answer.
    classes: 0 of a regression, 1 of two classes."""

    def __init__(self, model_type, file, save, rows, expected, classes=0):
        self.model_type, self.file, self.save = model_type, file, save
        self.rows, self.expected, self.classes = rows, np.asarray(expected, dtype=np.float32), classes

    def write(self, root, name, more="", **parameters):
        """A model of it; what `more` and the parameters do not say is completed."""
        asked = {"model_type": self.model_type, **parameters}
        config = 'backend: "fil"\ninstance_group [ { count: 1 kind: KIND_CPU } ]\n' + more
        config += "".join(f'parameters {{ key: "{k}" value {{ string_value: "{v}" }} }}\n' for k, v in asked.items())
        folder = repository.write_model(root, name, config)
        self.save(str(folder / "1" / self.file))
        return folder


def _boost(objective, labels, rows=ROWS, types=None, **more):
    table = xgboost.DMatrix(rows, labels, feature_types=types, enable_categorical=bool(types))
    booster = xgboost.train({"objective": objective, "nthread": 1, **more}, table, 20)
    return booster, booster.predict(xgboost.DMatrix(rows, feature_types=types, enable_categorical=bool(types)))


def _light(objective, labels, rows=ROWS, **more):
    table = lightgbm.Dataset(rows, labels, categorical_feature=[0] if rows is KINDS else [])
    booster = lightgbm.train({"objective": objective, "verbose": -1, "num_threads": 1, **more}, table, 20)
    return booster, booster.predict(rows)


def _xgboost(trained, classes=0, kind="ubj", rows=ROWS):
    booster, expected = trained
    return Forest(f"xgboost_{kind}", f"xgboost.{kind}", booster.save_model, rows, expected, classes)


def _lightgbm(trained, classes=0, rows=ROWS):
    booster, expected = trained
    return Forest("lightgbm", "model.txt", booster.save_model, rows, expected, classes)


def _scikit(model, labels, classes=0, predict="predict"):
    model.fit(FULL, labels)
    expected = getattr(model, predict)(FULL)
    return Forest("treelite_checkpoint", "checkpoint.tl", treelite.sklearn.import_model(model).serialize, FULL,
                  expected[:, 1] if classes == 1 else expected, classes)


def legacy_bytes(booster):
    """The model of XGBoost in its binary format, which its releases since 3.1 do not write."""
    model = json.loads(booster.save_raw("json"))["learner"]
    score = float(model["learner_model_param"]["base_score"].strip("[]"))
    trees = model["gradient_booster"]["model"]["trees"]
    objective = model["objective"]["name"].encode()
    out = struct.pack("<fIiiiIII26i", score, N_FEATURES, 0, 0, 0, 1, 7, 1, *[0] * 26)
    out += struct.pack("<Q", len(objective)) + objective + struct.pack("<Q", 6) + b"gbtree"
    out += struct.pack("<iiiiqii32i", len(trees), 1, N_FEATURES, 0, 0, 1, 0, *[0] * 32)
    for tree in trees:
        n = len(tree["left_children"])
        out += struct.pack("<6i31i", 1, n, 0, 0, N_FEATURES, 0, *[0] * 31)
        for i in range(n):
            first = tree["default_left"][i] << 31
            out += struct.pack("<iiiIf", tree["parents"][i] if i else -1, tree["left_children"][i], tree["right_children"][i],
                               tree["split_indices"][i] | first, tree["split_conditions"][i])
        out += struct.pack("<fffi", 0, 0, 0, 0) * n
    return out + struct.pack(f"<{len(trees)}i", *[0] * len(trees))


def _legacy(trained):
    booster, expected = trained

    def save(path):
        with open(path, "wb") as file:
            file.write(legacy_bytes(booster))

    return Forest("xgboost", "xgboost.model", save, ROWS, expected, 1)


def train():
    """{name: a Forest}"""
    binary = _boost("binary:logistic", BINARY)
    isolation = ensemble.IsolationForest(n_estimators=20, random_state=1).fit(FULL)
    return {
        "xgb_json": _xgboost(binary, 1, kind="json"),
        "xgb_ubj": _xgboost(binary, 1),
        "xgb_legacy": _legacy(binary),
        "xgb_classes": _xgboost(_boost("multi:softprob", CLASSES, num_class=3), 3),
        "xgb_regression": _xgboost(_boost("reg:squarederror", TOTAL)),
        "xgb_poisson": _xgboost(_boost("count:poisson", np.abs(TOTAL))),
        "xgb_dart": _xgboost(_boost("reg:squarederror", TOTAL, booster="dart", rate_drop=0.3)),
        "xgb_kinds": _xgboost(_boost("reg:squarederror", BY_KIND, KINDS, XGB_TYPES, max_cat_to_onehot=1), rows=KINDS),
        "xgb_targets": _xgboost(_boost("reg:squarederror", np.stack([TOTAL, -TOTAL], 1))),
        "lgb_binary": _lightgbm(_light("binary", BINARY), 1),
        "lgb_classes": _lightgbm(_light("multiclass", CLASSES, num_class=3), 3),
        "lgb_each": _lightgbm(_light("multiclassova", CLASSES, num_class=3), 3),
        "lgb_regression": _lightgbm(_light("regression", TOTAL)),
        "lgb_kinds": _lightgbm(_light("regression", BY_KIND, KINDS), rows=KINDS),
        "forest_classes": _scikit(ensemble.RandomForestClassifier(n_estimators=20, random_state=1), CLASSES, 3, "predict_proba"),
        "forest_binary": _scikit(ensemble.ExtraTreesClassifier(n_estimators=20, random_state=1), CLASSES, 3, "predict_proba"),
        "forest_regression": _scikit(ensemble.RandomForestRegressor(n_estimators=20, random_state=1), TOTAL),
        "boosting": _scikit(ensemble.GradientBoostingClassifier(n_estimators=20, random_state=1), BINARY, 1, "predict_proba"),
        "histogram": _scikit(ensemble.HistGradientBoostingRegressor(max_iter=20, random_state=1), TOTAL),
        "isolation": Forest("treelite_checkpoint", "checkpoint.tl", treelite.sklearn.import_model(isolation).serialize, FULL,
                            -isolation.score_samples(FULL)),
    }
