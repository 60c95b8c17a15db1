# SPDX-License-Identifier: Apache-2.0
"""The public headers are, to the last type and value, what programs and plugins were compiled against."""

import pathlib
import re
import subprocess

import pytest

HERE = pathlib.Path(__file__).resolve().parent
INCLUDE = HERE.parents[1] / "include"
HEADERS = "".join(f'#include "triton/core/{p.name}"\n' for p in sorted((INCLUDE / "triton/core").glob("*.h")))
VALUES = [line.split() for line in (HERE / "values.txt").read_text().splitlines() if not line.startswith("#")]
SIGNATURES = (HERE / "signatures.h").read_text()
LANGUAGES = {"c": ["gcc", "-std=c11", "-x", "c"], "c++": ["g++", "-std=c++17", "-x", "c++"]}


def compile_only(language, text):
    return subprocess.run(
        [*LANGUAGES[language], "-Werror", "-fsyntax-only", f"-I{INCLUDE}", "-"], input=text, capture_output=True,
        text=True, check=False,
    )


def extern_c(language, text):
    return f'extern "C" {{\n{text}\n}}\n' if language == "c++" else text


def functions(text):
    """The declarations as the compiler sees them: no comments, no function types."""
    plain = subprocess.run(["gcc", "-E", "-P", f"-I{INCLUDE}", "-"], input=text, capture_output=True, text=True,
                           check=True).stdout
    return set(re.findall(r"\b(TRITON[A-Z]+_\w+)\s*\(", plain))


@pytest.mark.parametrize("language", LANGUAGES)
def test_each_function_has_its_signature(language):
    """A second declaration that differs in any type does not compile."""
    done = compile_only(language, HEADERS + extern_c(language, SIGNATURES))
    assert done.returncode == 0, done.stderr


def test_a_wrong_signature_is_noticed():
    wrong = "TRITONSERVER_Error *TRITONSERVER_ServerIsLive(TRITONSERVER_Server *server, int *live);"
    assert "conflicting types" in compile_only("c", HEADERS + wrong).stderr


def test_the_headers_declare_these_functions_and_no_others():
    assert functions(HEADERS) == functions(SIGNATURES)


@pytest.mark.parametrize("language", LANGUAGES)
def test_each_value_is_as_compiled(language):
    checks = "\n".join(f'static_assert({name} == {value}, "{name}");' for name, value in VALUES)
    done = compile_only(language, f"#include <assert.h>\n{HEADERS}{checks}\n")
    assert done.returncode == 0, done.stderr


def test_every_value_is_in_the_table():
    text = subprocess.run(["gcc", "-E", "-P", f"-I{INCLUDE}", "-"], input=HEADERS, capture_output=True, text=True,
                          check=True).stdout
    enumerators = {
        word.split("=")[0].strip()
        for body in re.findall(r"\benum\s+\w+\s*\{([^}]*)\}", text)
        for word in body.split(",")
    } - {""}
    in_table = {name for name, _ in VALUES if "_API_VERSION_" not in name}
    assert {e for e in enumerators if e.startswith("TRITON")} == in_table


@pytest.mark.parametrize("language", LANGUAGES)
def test_types_have_their_sizes(language):
    """Enumerations are ints. All objects are opaque, so that only pointers cross the interface."""
    enums = re.findall(r"\}\s*(TRITON[A-Z]+_\w+);", "".join((INCLUDE / "triton/core" / p.name).read_text()
                                                       for p in (INCLUDE / "triton/core").glob("*.h")))
    assert len(enums) >= 20
    checks = "\n".join(f'static_assert(sizeof({e}) == 4, "{e}");' for e in enums)
    done = compile_only(language, f"#include <assert.h>\n{HEADERS}{checks}\n")
    assert done.returncode == 0, done.stderr
    complete = subprocess.run(["gcc", "-E", "-P", f"-I{INCLUDE}", "-"], input=HEADERS, capture_output=True, text=True,
                              check=True).stdout
    assert not re.findall(r"\bstruct\s+TRITON\w+\s*\{", complete)
