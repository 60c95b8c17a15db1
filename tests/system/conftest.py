# SPDX-License-Identifier: Apache-2.0
"""Fixtures: a server with the standard models for all tests, and a server of its own for a test that needs one."""

import os
import pathlib

import pytest

import repository
from server import BIN, REFERENCE, Server


def pytest_configure(config):
    config.addinivalue_line("markers", "conch_only(why): not asked of the genuine Triton")
    config.addinivalue_line("markers", "sanitize: of those that a sanitizer watches in CI, too: threads or memory, and quick")
    if not os.access(BIN, os.X_OK):
        pytest.exit(f"{BIN} is not built", returncode=2)


def pytest_collection_modifyitems(items):
    for item in items:
        mark = item.get_closest_marker("conch_only")
        if mark and REFERENCE:
            item.add_marker(pytest.mark.skip(reason=mark.args[0]))


@pytest.fixture(scope="session")
def _shared(tmp_path_factory):
    with Server(repository.write_standard(tmp_path_factory.mktemp("standard"))) as server:
        yield server


@pytest.fixture
def server(_shared):
    """The shared server. A test that breaks it fails itself, not the next test."""
    _shared.assert_alive()
    yield _shared
    _shared.assert_alive()


@pytest.fixture
def models(tmp_path) -> pathlib.Path:
    """An empty model repository."""
    folder = tmp_path / "models"
    folder.mkdir()
    return folder
