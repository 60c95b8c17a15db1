# SPDX-License-Identifier: Apache-2.0
"""tensorflow_export.py FOLDER: models that TensorFlow itself writes, and what it answers. It runs in TensorFlow's own venv.

FOLDER/<name>/model.savedmodel or model.graphdef, FOLDER/<name>/<n>.npz: the n-th inputs "in_<name>" and answers "out_<name>"."""

import os
import pathlib
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

ROOT = pathlib.Path(sys.argv[1])
RNG = np.random.default_rng(5)


def floats(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def keep(name, n, inputs, answers):
    (ROOT / name).mkdir(parents=True, exist_ok=True)
    arrays = {f"in_{key}": value for key, value in inputs.items()} | {f"out_{key}": value for key, value in answers.items()}
    arrays = {key: np.asarray(value) for key, value in arrays.items()}
    np.savez(ROOT / name / f"{n}.npz", **{key: a.astype("S") if a.dtype == object else a for key, a in arrays.items()})


def save(name, module, all_inputs, signatures=("serving_default",)):
    functions = {signature: getattr(module, signature) for signature in signatures}
    tf.saved_model.save(module, str(ROOT / name / "model.savedmodel"), signatures=functions)
    for n, inputs in enumerate(all_inputs):
        keep(name, n, inputs, {key: value.numpy() for key, value in module.serving_default(**{k: tf.constant(v) for k, v in inputs.items()}).items()})


class Dense(tf.Module):
    """Variables, an output that is an input, one tensor as two outputs, two signatures."""

    def __init__(self):
        super().__init__()
        self.w, self.b = tf.Variable(floats(16, 3)), tf.Variable(floats(3))

    @tf.function(input_signature=[tf.TensorSpec([None, 16], tf.float32, name="x")])
    def serving_default(self, x):
        y = tf.nn.softmax(x @ self.w + self.b)
        return {"y": y, "twice": y, "same": x}

    @tf.function(input_signature=[tf.TensorSpec([None, 16], tf.float32, name="x")])
    def other(self, x):
        return {"z": x @ self.w}


class Strings(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec([None, 1], tf.string, name="text")])
    def serving_default(self, text):
        return {"upper": tf.strings.upper(text), "length": tf.strings.length(text), "same": tf.identity(text)}


class Vocabulary(tf.Module):
    """A table that an init op fills."""

    def __init__(self):
        super().__init__()
        words = tf.lookup.KeyValueTensorInitializer(tf.constant(["one", "two"]), tf.constant([1, 2], tf.int64))
        self.table = tf.lookup.StaticHashTable(words, -1)

    @tf.function(input_signature=[tf.TensorSpec([None, 1], tf.string, name="word")])
    def serving_default(self, word):
        return {"number": self.table.lookup(word)}


class Counter(tf.Module):
    def __init__(self):
        super().__init__()
        self.n, self.last = tf.Variable(0.0), tf.Variable([0.0] * 16)

    @tf.function(input_signature=[tf.TensorSpec([16], tf.float32, name="x")])
    def serving_default(self, x):
        before = tf.identity(self.last)
        with tf.control_dependencies([before]):
            self.last.assign(x)
            self.n.assign_add(1.0)
        return {"n": tf.reshape(self.n, [1]), "before": before}


class Remembers(tf.Module):
    """A variable keeps the text until the next execution."""

    def __init__(self):
        super().__init__()
        self.last = tf.Variable([""])

    @tf.function(input_signature=[tf.TensorSpec([1], tf.string, name="text")])
    def serving_default(self, text):
        before = tf.identity(self.last)
        with tf.control_dependencies([before]):
            self.last.assign(text)
        return {"before": before}


class Fails(tf.Module):
    """An execution fails if x has a number below 0."""

    @tf.function(input_signature=[tf.TensorSpec([None, 4], tf.float32, name="x")])
    def serving_default(self, x):
        with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(x >= 0), ["below zero"])]):
            return {"y": tf.sqrt(x)}


class Shapes(tf.Module):
    """Outputs whose size only the data tell, and one without dimensions."""

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.float32, name="x")])
    def serving_default(self, x):
        return {"places": tf.where(x > 0), "sum": tf.reduce_sum(x), "turned": tf.transpose(x)}


class Types(tf.Module):
    def __init__(self, kind):
        super().__init__()
        self.serving_default = tf.function(lambda x: {"y": x + x}, input_signature=[tf.TensorSpec([None, 4], kind, name="x")])


def convolutions():
    model = tf.keras.Sequential([tf.keras.layers.Input([8, 8, 1], name="image"), tf.keras.layers.Conv2D(8, 3, activation="relu"),
                                 tf.keras.layers.MaxPooling2D(), tf.keras.layers.Flatten(), tf.keras.layers.Dense(10, activation="softmax", name="scores")])
    model.export(str(ROOT / "convolutions/model.savedmodel"), verbose=False)
    served = tf.saved_model.load(str(ROOT / "convolutions/model.savedmodel")).signatures["serving_default"]
    for n, rows in enumerate((1, 5)):
        given = {key: floats(rows, 8, 8, 1) for key in served.structured_input_signature[1]}
        keep("convolutions", n, given, {k: v.numpy() for k, v in served(**{k: tf.constant(v) for k, v in given.items()}).items()})


def graph():
    """A GraphDef with two products and strings."""
    weights = floats(4, 2)
    with tf.Graph().as_default() as g:
        x = tf.compat.v1.placeholder(tf.float32, [None, 4], name="x")
        text = tf.compat.v1.placeholder(tf.string, [None, 1], name="text")
        tf.identity(x @ weights, name="y")
        tf.strings.join([text, text], name="joined")
        with tf.compat.v1.Session() as session:
            for n, rows in enumerate((1, 3)):
                given = {"x": floats(rows, 4), "text": np.array([[f"t{i}"] for i in range(rows)], object)}
                made = session.run({"y": "y:0", "joined": "joined:0"}, {f"{k}:0": v for k, v in given.items()})
                keep("graph", n, given, made)
    (ROOT / "graph/model.graphdef").write_bytes(g.as_graph_def().SerializeToString())


def variables():
    """A GraphDef of TensorFlow 1: a variable that an init op sets, and an input that has a default."""
    with tf.Graph().as_default() as g:
        x = tf.compat.v1.placeholder(tf.float32, [None, 2], name="x")
        shift = tf.compat.v1.placeholder_with_default(np.zeros((1, 2), np.float32), [None, 2], name="shift")
        with tf.compat.v1.variable_scope("v", use_resource=False):
            five = tf.compat.v1.get_variable("five", [2], tf.float32, tf.compat.v1.constant_initializer(5.0))
        tf.identity(x + five + shift, name="y")
        tf.compat.v1.global_variables_initializer()
    (ROOT / "variables").mkdir()
    (ROOT / "variables/model.graphdef").write_bytes(g.as_graph_def().SerializeToString())


save("dense", Dense(), [{"x": floats(rows, 16)} for rows in (1, 3, 3, 8)], ("serving_default", "other"))
save("strings", Strings(), [{"text": np.array([[b"a"], [b"hello" * 100], [b"zero\0byte!"]], "S")}, {"text": np.array([[b"x"]], "S")}])
save("vocabulary", Vocabulary(), [{"word": np.array([[b"two"], [b"three"], [b"one"]], "S")}])
save("shapes", Shapes(), [{"x": floats(2, 3)}, {"x": floats(5, 1)}, {"x": floats(0, 2)}])
save("counter", Counter(), [])
save("remembers", Remembers(), [])
save("type_bfloat16", Types(tf.bfloat16), [])
save("fails", Fails(), [{"x": np.abs(floats(2, 4))}])
for kind in ("float64", "float16", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"):
    save(f"type_{kind}", Types(tf.as_dtype(kind)), [{"x": RNG.integers(0, 50, (3, 4)).astype(kind)}])
convolutions()
graph()
variables()
