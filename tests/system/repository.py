# SPDX-License-Identifier: Apache-2.0
"""Model repositories for the tests, written where a test wants them."""

import os
import pathlib
import shutil

import server as servers

BUILD = pathlib.Path(os.environ.get("CONCH_BUILD_DIR", pathlib.Path(__file__).resolve().parents[2] / "build/release"))
EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples" / "models"

# Wire name -> name in config.pbtxt
DATATYPES = {
    "BOOL": "TYPE_BOOL",
    "UINT8": "TYPE_UINT8",
    "UINT16": "TYPE_UINT16",
    "UINT32": "TYPE_UINT32",
    "UINT64": "TYPE_UINT64",
    "INT8": "TYPE_INT8",
    "INT16": "TYPE_INT16",
    "INT32": "TYPE_INT32",
    "INT64": "TYPE_INT64",
    "FP16": "TYPE_FP16",
    "FP32": "TYPE_FP32",
    "FP64": "TYPE_FP64",
    "BYTES": "TYPE_STRING",
    "BF16": "TYPE_BF16",
}


def tensor(side, name, datatype, dims):
    dims = ", ".join(map(str, dims))
    return f'{side} [ {{ name: "{name}" data_type: {DATATYPES[datatype]} dims: [ {dims} ] }} ]\n'


# A decoupled model that gives a response for each value of IN.
REPEAT = ('backend: "repeat"\nmodel_transaction_policy { decoupled: true }\n' + tensor("input", "IN", "INT32", [-1])
          + tensor("input", "DELAY", "UINT32", [-1]) + tensor("input", "WAIT", "UINT32", [1])
          + tensor("output", "OUT", "INT32", [1]) + tensor("output", "IDX", "UINT32", [1]))


def write_model(root, name, config, versions=(1,)):
    """Writes a model directory with this config.pbtxt (None: without one) and these versions."""
    folder = pathlib.Path(root) / name
    folder.mkdir(parents=True)
    for version in versions:
        (folder / str(version)).mkdir()
    if config is not None:
        (folder / "config.pbtxt").write_text(config)
    return folder


def write_identity(root, name, tensors, max_batch_size=0, versions=(1,), **parameters):
    """Writes a model of the backend identity; tensors is a list of (datatype, dims), INPUTi is copied to OUTPUTi."""
    config = f'name: "{name}"\nbackend: "identity"\nmax_batch_size: {max_batch_size}\n'
    for i, (datatype, dims) in enumerate(tensors):
        config += tensor("input", f"INPUT{i}", datatype, dims) + tensor("output", f"OUTPUT{i}", datatype, dims)
    config += "instance_group [ { count: 1 kind: KIND_CPU } ]\n"
    for key, value in parameters.items():
        config += f'parameters {{ key: "{key}" value: {{ string_value: "{value}" }} }}\n'
    return write_model(root, name, config, versions)


def copy_example(root, name):
    return shutil.copytree(EXAMPLES / name, pathlib.Path(root) / name)


def write_standard(root):
    """Writes the models that most tests ask: one per data type, and a few with special shapes."""
    for datatype in DATATYPES:
        write_identity(root, f"any_{datatype.lower()}", [(datatype, [-1])])
    write_identity(root, "fixed", [("INT32", [4])])
    write_identity(root, "matrix", [("FP32", [-1, 3])])
    write_identity(root, "batch", [("FP32", [2])], max_batch_size=4)
    write_identity(root, "pair", [("FP32", [-1]), ("INT32", [-1])])
    write_identity(root, "pair_batch", [("FP32", [-1]), ("INT32", [-1])], max_batch_size=8)
    write_identity(root, "versions", [("FP32", [-1])], versions=(1, 3, 10))
    return root


class Gated:
    """A model of the backend tests/plugins/gate, which loads and executes when the test opens its gates."""

    def __init__(self, root, name, versions=(1,), more=""):
        config = f'name: "{name}"\nbackend: "gate"\n'
        config += tensor("input", "IN", "INT32", [-1]) + tensor("output", "OUT", "INT32", [-1])
        config += "instance_group [ { count: 1 kind: KIND_CPU } ]\n" + more
        self.name = name
        self.folder = write_model(root, name, config, versions)
        shutil.copy(BUILD / "tests/backends/gate/libtriton_gate.so", self.folder)

    def shut(self, gate, text=""):
        """Shuts a gate from now on: hold.load, fail.load, hold.execute, hold.ready or fail.ready."""
        (self.folder / gate).write_text(text)
        return self

    def open(self, gate):
        (self.folder / gate).unlink()

    def await_reached(self, gate):
        """Waits until the backend waits at that gate."""
        servers.wait_for((self.folder / f"{gate}.reached").exists, 60, f"{self.name} waits at {gate}")
