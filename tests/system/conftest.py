# SPDX-License-Identifier: Apache-2.0
"""Fixtures: a server with the standard models for all tests, and a server of its own for a test that needs one."""

import os
import pathlib

import pytest

import pipelines
import python_models
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


# ---- Ensembles: a file's write_models(root) writes its models and returns {name: pipelines.Stage}


@pytest.fixture(scope="module", params=pipelines.EITHER)
def running(request, tmp_path_factory):
    """(a server with the models of the file, its stages)"""
    root = tmp_path_factory.mktemp("models")
    stages = request.module.write_models(root)
    with pipelines.start(request.param, root) as server:
        yield server, stages


@pytest.fixture
def stages(running):
    return running[1]


@pytest.fixture(params=pipelines.PROTOCOLS)
def ask(running, stages, request):
    """Asks a model of the server by a protocol, after all steps have forgotten what they saw."""
    for stage in stages.values():
        stage.seen()
    server, _ = running
    yield lambda *args, **more: pipelines.ask(server, request.param, *args, **more)
    server.assert_alive()


# ---- Models in Python: a file's write_models(root) writes them; both backends run them in both servers


@pytest.fixture(scope="module", params=["conch", "triton"])
def host(request):
    return request.param


@pytest.fixture(scope="module", params=["ours", "genuine"])
def python_backend(request):
    return request.param


@pytest.fixture(scope="module")
def place(python_backend, host, tmp_path_factory):
    return python_models.place(python_backend, host, tmp_path_factory.mktemp("backends"))


@pytest.fixture(scope="module")
def _python_server(request, place, tmp_path_factory):
    root = request.module.write_models(tmp_path_factory.mktemp("models"))
    with place.start(root, ready=False) as running:
        yield running


@pytest.fixture
def python_server(_python_server):
    """A test that breaks it fails itself, not the next test."""
    _python_server.assert_alive()
    yield _python_server
    _python_server.assert_alive()
