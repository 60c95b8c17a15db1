# SPDX-License-Identifier: Apache-2.0
"""PyTorch's newest package, which `tools/deps/install torch-wheel` installs, and programs in its Python."""

import functools
import os
import pathlib
import subprocess

PYTHON = pathlib.Path(__file__).resolve().parents[2] / ".deps" / "torch-wheel" / "venv" / "bin" / "python"
TORCH = PYTHON.parent.parent / "lib" / "python3.11" / "site-packages" / "torch"
LIBRARY = TORCH / "lib" / "libtorch_cpu.so"
VERSION = "2.15.0"    # as tools/deps/pins has it
MISSING = None if LIBRARY.exists() else "`tools/deps/install torch-wheel` installs PyTorch's newest package (570 MB)"


@functools.cache
def stand_ins():
    """A folder of empty libraries, in the place of those of CUDA that `import torch` wants."""
    folder = PYTHON.parent.parent.parent / "stand-ins"
    if not folder.exists():
        folder.mkdir()
        maker = pathlib.Path(__file__).parent.parent / "torch" / "stand_ins.py"
        subprocess.run(["python3", str(maker), str(TORCH), str(folder)], check=True)
    return folder


def run_python(folder, program, *arguments, timeout=300):
    """What a program in Python that imports torch prints. It is written into the folder: TorchScript reads its source."""
    file = folder / "program.py"
    file.write_text(program)
    done = subprocess.run([str(PYTHON), str(file), *map(str, arguments)], env={**os.environ, "LD_LIBRARY_PATH": str(stand_ins())},
                          capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, done.stderr
    return done.stdout
