# SPDX-License-Identifier: Apache-2.0
"""Packages of AOTInductor without PyTorch: a library that stands for PyTorch's, and code that stands for a model's, both in C
(tests/torch/fake_*.c), compiled when a test needs them."""

import functools
import json
import pathlib
import platform
import subprocess
import tempfile
import zipfile

SOURCES = pathlib.Path(__file__).resolve().parents[1] / "torch"
MODEL = "model/data/aotinductor/model/"
METADATA = {"AOTI_DEVICE_KEY": "cpu", "AOTI_PLATFORM": "linux", "AOTI_MACHINE": platform.machine(), "AOTI_CPU_ISA": "",
            "AOTI_COMPUTE_CAPABILITY": ""}


def compile_library(file, source, *arguments):
    subprocess.run(["cc", "-g", "-fPIC", "-shared", f"-I{SOURCES}", f"-Wl,-soname,{file.name}", "-o", str(file), str(source), *arguments],
                   check=True)
    return file


@functools.cache
def folder():
    return pathlib.Path(tempfile.mkdtemp(prefix="conch-aoti-"))


@functools.cache
def library():
    """The stand-in for libtorch_cpu.so."""
    return compile_library(folder() / "libtorch_cpu.so", SOURCES / "fake_torch.c")


def old_library(root):
    """The same of a release that cannot make a second handle of a tensor."""
    return compile_library(root / "libtorch_cpu.so", SOURCES / "fake_torch.c", "-DOLD")


def other_library(root):
    """The bytes of a shared library that is no model's."""
    return compile_library(root / "other.so", "/dev/null", "-x", "c", "/dev/null").read_bytes()


def code(mark, needs=("libtorch.so",), n_models=1, names_torch=True, **macros):
    """The bytes of a model's shared library, which makes the file `mark` when it is loaded. It names the libraries `needs`, too,
    which are there only while it is linked, and PyTorch's, or it relies on that being there. macros: others of fake_model.c."""
    root = folder()
    links = []
    for name in needs:
        links.append(root / name)
        subprocess.run(["cc", "-shared", "-x", "c", "/dev/null", f"-Wl,-soname,{name}", "-o", str(root / name)], check=True)
    file = compile_library(root / "code.so", SOURCES / "fake_model.c", f'-DMARK="{mark}"', f"-DN_MODELS={n_models}",
                           *(f"-D{name}={value}" for name, value in macros.items()), "-Wl,--no-as-needed",
                           *map(str, links), *([str(library())] if names_torch else []))
    for link in links:
        link.unlink()
    return file.read_bytes()


def write_package(file, content, metadata=METADATA, compression=zipfile.ZIP_STORED, more=()):
    """content: of the code; None: none. metadata: a dictionary, bytes, or None. more: (name, bytes) of further entries."""
    with zipfile.ZipFile(file, "w", compression) as archive:
        archive.writestr("model/archive_format", "pt2")
        if metadata is not None:
            archive.writestr(MODEL + "abc.wrapper_metadata.json", metadata if isinstance(metadata, bytes) else json.dumps(metadata))
        if content is not None:
            archive.writestr(MODEL + "abc.wrapper.so", content)
        for name, extra in more:
            archive.writestr(name, extra)
    return file
