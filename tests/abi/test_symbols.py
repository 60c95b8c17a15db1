# SPDX-License-Identifier: Apache-2.0
"""libtritonserver.so exports the functions that the public headers declare: all of them, and nothing else."""

import os
import pathlib
import re
import subprocess

import pytest

TOP = pathlib.Path(__file__).resolve().parents[2]
INCLUDE = TOP / "include"
BUILD = pathlib.Path(os.environ.get("CONCH_BUILD_DIR", TOP / "build/release"))
LIBRARY = BUILD / "lib/libtritonserver.so"
FAMILIES = r"(?:TRITONSERVER|TRITONBACKEND|TRITONCACHE|TRITONREPOAGENT|conch)_\w+"

# Declared in our headers, but defined by plugins: the server looks these up in them.
BY_PLUGINS = {
    "TRITONBACKEND_Initialize",
    "TRITONBACKEND_Finalize",
    "TRITONBACKEND_GetBackendAttribute",
    "TRITONBACKEND_ModelInitialize",
    "TRITONBACKEND_ModelFinalize",
    "TRITONBACKEND_ModelInstanceInitialize",
    "TRITONBACKEND_ModelInstanceFinalize",
    "TRITONBACKEND_ModelInstanceExecute",
    "TRITONBACKEND_ModelInstanceReady",
    "TRITONCACHE_CacheInitialize",
    "TRITONCACHE_CacheFinalize",
    "TRITONCACHE_CacheLookup",
    "TRITONCACHE_CacheInsert",
    "TRITONREPOAGENT_Initialize",
    "TRITONREPOAGENT_Finalize",
    "TRITONREPOAGENT_ModelInitialize",
    "TRITONREPOAGENT_ModelFinalize",
    "TRITONREPOAGENT_ModelAction",
}


def dynamic(path):
    """The symbols that a shared object defines and those that it wants, sanitizers' and compilers' own left out."""
    lines = subprocess.run(["nm", "-D", path], capture_output=True, text=True, check=True).stdout.splitlines()
    symbols = [line.split()[-2:] for line in lines]
    ours = re.compile("(?:TRITON|conch_|CONCH_)")
    defined = {n.split("@")[0] for kind, n in symbols if kind not in "Uwv"}
    wanted = {n.split("@")[0] for kind, n in symbols if kind == "U" and ours.match(n)}
    return defined, wanted


def declared():
    headers = "".join(f'#include "{p.relative_to(INCLUDE)}"\n' for p in sorted(INCLUDE.rglob("*.h")))
    text = subprocess.run(["gcc", "-E", "-P", f"-I{INCLUDE}", "-"], input=headers, capture_output=True, text=True,
                          check=True).stdout
    return set(re.findall(rf"\b({FAMILIES})\s*\(", text))


def test_exports_are_what_the_headers_declare():
    exported, _ = dynamic(LIBRARY)
    expected = declared() - BY_PLUGINS
    missing, extra = sorted(expected - exported), sorted(exported - expected)
    assert not missing, f"declared and not exported: {' '.join(missing)}"
    assert not extra, f"exported and not declared: {' '.join(extra)}"


def test_soname():
    dynamic_section = subprocess.run(["readelf", "-d", LIBRARY], capture_output=True, text=True, check=True).stdout
    assert "Library soname: [libtritonserver.so]" in dynamic_section


PLUGINS = sorted(BUILD.glob("backends/*/lib*.so"))


@pytest.mark.parametrize("plugin", PLUGINS, ids=lambda p: p.name)
def test_plugin_asks_for_the_abi_only(plugin):
    """What a plugin wants of the server is declared, and it names no server library: it runs in any."""
    defined, wanted = dynamic(plugin)
    assert defined, "no entry points"
    assert defined <= BY_PLUGINS
    assert wanted <= declared() - BY_PLUGINS
    section = subprocess.run(["readelf", "-d", plugin], capture_output=True, text=True, check=True).stdout
    assert "libtritonserver" not in section


def test_there_are_plugins():
    assert PLUGINS
