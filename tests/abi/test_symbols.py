# SPDX-License-Identifier: Apache-2.0
"""libtritonserver.so exports functions that the public headers declare, and nothing else. A page lists the missing ones."""

import os
import pathlib
import subprocess

import pytest

from symbols import BY_PLUGINS, declared, dynamic

TOP = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("CONCH_BUILD_DIR", TOP / "build/release"))
LIBRARY = BUILD / "lib/libtritonserver.so"


def test_exports_are_declared():
    exported, _ = dynamic(LIBRARY)
    extra = sorted(exported - declared())
    assert not extra, f"exported and not declared: {' '.join(extra)}"
    assert "TRITONSERVER_ServerNew" in exported


def test_all_our_own_functions_are_exported():
    exported, _ = dynamic(LIBRARY)
    missing = {name for name in declared() if name.startswith("conch_")} - exported - BY_PLUGINS
    assert not missing


def test_the_page_lists_what_is_missing():
    done = subprocess.run([TOP / "tools/abi-page", "--check", BUILD], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_library_has_its_soname():
    dynamic_section = subprocess.run(["readelf", "-d", LIBRARY], capture_output=True, text=True, check=True).stdout
    assert "Library soname: [libtritonserver.so]" in dynamic_section


# Not the helper libraries beside them, such as the part of pytorch in C++.
PLUGINS = sorted([*BUILD.glob("backends/*/libtriton_*.so"), *BUILD.glob("caches/*/libtritoncache_*.so")])


@pytest.mark.parametrize("plugin", PLUGINS, ids=lambda p: p.name)
def test_plugin_asks_for_the_abi_only(plugin):
    """The server has every function that a plugin needs. A plugin names no server library: it runs in any."""
    defined, wanted = dynamic(plugin)
    assert defined, "no entry points"
    assert defined <= BY_PLUGINS
    exported, _ = dynamic(LIBRARY)
    assert wanted <= exported
    section = subprocess.run(["readelf", "-d", plugin], capture_output=True, text=True, check=True).stdout
    assert "libtritonserver" not in section


def test_there_are_plugins():
    assert PLUGINS
