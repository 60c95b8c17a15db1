# SPDX-License-Identifier: Apache-2.0
"""Requests by the C API: tests/programs/embed.c, with our library or with the genuine one in its place."""

import os
import pathlib
import subprocess

import server as servers

PROGRAM = servers.BUILD / "tests/embed"
SITE = servers.ROOT / ".deps/reference/venv/lib"


def genuine_libraries(folder):
    """A folder in which the genuine library has the name that programs ask for."""
    libraries = next(SITE.glob("python3.*/site-packages/nvidia_pytriton.libs"))
    folder = pathlib.Path(folder)
    link = folder / "libtritonserver.so"
    if not link.exists():
        link.symlink_to(next(libraries.glob("libtritonserver-*.so")))
    return f"{folder}:{libraries}"


def run(repository, commands, *, which="conch", folder=None, backends=None, options=(), env=None, within_s=60):
    """Do the commands; the lines that embed prints, without log lines, the last one being 'stopped'."""
    environment = dict(env or {})
    if which == "triton":
        environment["LD_LIBRARY_PATH"] = genuine_libraries(folder)
    done = subprocess.run(
        [PROGRAM, str(repository), str(backends or servers.BACKENDS), *options],
        input="".join(f"{command}\n" for command in commands), capture_output=True, text=True, timeout=within_s,
        env={**os.environ, **environment}, check=False,
    )
    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-4000:]}"
    assert not servers.SANITIZER.search(done.stderr), done.stderr[-4000:]
    lines = done.stdout.splitlines()
    assert lines[-1] == "stopped", lines[-5:]
    return [line for line in lines[:-1] if not is_log(line)]


def is_log(line):
    return line[:1] in "IWEV" and line[1:5].isdigit()


def of(lines, name):
    """What was printed of one request."""
    return [line.removeprefix(f"{name} ") for line in lines if line.startswith(f"{name} ")]
