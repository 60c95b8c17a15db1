# SPDX-License-Identifier: Apache-2.0
"""TorchScript models that are made when a test needs them, by the program torch_script (tests/torch), which is built where
PyTorch's headers are."""

import functools
import pathlib
import subprocess
import tempfile

import numpy as np

import repository

MAKER = repository.BUILD / "tests" / "torch_script"

ADD_SUB = """
def forward(self, INPUT0, INPUT1):
    return INPUT0 + INPUT1, INPUT0 - INPUT1
"""


@functools.cache
def maker():
    """The program, which makes any number of models; it ends with this process, whose end it sees on its stdin."""
    return subprocess.Popen([str(MAKER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def write_script(path, script, **parameters):
    """parameters: name=shape of a parameter 0, 1, 2, …, or its values, an FP32 array"""
    script = script.encode() + b"\n"
    with tempfile.TemporaryDirectory() as folder:
        texts = "".join(f" {name}={parameter_text(pathlib.Path(folder) / name, value)}" for name, value in parameters.items())
        maker().stdin.write(f"{len(script)} {path}{texts}\n".encode() + script)
        maker().stdin.flush()
        answer = maker().stdout.readline().decode().strip()
    assert answer == "ok", answer


def parameter_text(file, value):
    """The shape, and the file with the values, as torch_script reads them."""
    if not isinstance(value, np.ndarray):
        return ",".join(map(str, value))
    value.astype(np.float32).tofile(file)
    return f"{','.join(map(str, value.shape))}@{file}"


def write_model(root, name, script, *tensors, more="", kind='backend: "pytorch"\n', weights=(), **parameters):
    """tensors: ("input"|"output", name, datatype, dims). parameters: of the configuration. weights: as in write_script()."""
    config = kind + more + "".join(repository.tensor(*tensor) for tensor in tensors)
    if "instance_group" not in more:
        config += "instance_group [ { count: 1 kind: KIND_CPU } ]\n"
    config += "".join(f'parameters {{ key: "{k}" value {{ string_value: "{v}" }} }}\n' for k, v in parameters.items())
    folder = repository.write_model(root, name, config)
    if isinstance(script, bytes):
        (folder / "1" / "model.pt").write_bytes(script)
    else:
        write_script(folder / "1" / "model.pt", script, **dict(weights))
    return folder
