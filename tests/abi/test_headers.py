# SPDX-License-Identifier: Apache-2.0
"""Each installed header compiles alone, as C and as C++, without a warning under strict flags."""

import os
import pathlib
import subprocess

import pytest

INCLUDE = pathlib.Path(__file__).resolve().parents[2] / "include"
BACKENDS = INCLUDE.parent / "backends"
HEADERS = sorted(str(p.relative_to(INCLUDE)) for p in INCLUDE.rglob("*.h"))
HEADERS += sorted(str(p.relative_to(BACKENDS)) for p in (BACKENDS / "common").glob("*.h"))
STRICT = ["-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Werror", "-fsyntax-only", f"-I{INCLUDE}", f"-I{BACKENDS}"]
C = ["-Wstrict-prototypes", "-Wmissing-prototypes"]
LANGUAGES = {
    "c11": ["gcc", "-x", "c", "-std=c11", *C],
    "c17": ["gcc", "-x", "c", "-std=c17", *C],
    "c++17": ["g++", "-x", "c++", "-std=c++17"],
}


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("header", HEADERS)
def test_header_compiles_alone(header, language):
    done = subprocess.run(
        [*LANGUAGES[language], *STRICT, "-"], input=f'#include "{header}"\n#include "{header}"\n',
        capture_output=True, text=True, check=False, env=os.environ | {"LC_ALL": "C"},
    )
    assert done.returncode == 0, done.stderr


def test_there_are_headers():
    assert "triton/core/tritonserver.h" in HEADERS
    assert "triton/core/tritonbackend.h" in HEADERS
    assert "common/frame.h" in HEADERS
