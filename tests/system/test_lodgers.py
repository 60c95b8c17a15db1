# SPDX-License-Identifier: Apache-2.0
"""Backends that leave a destructor in the threads that run them (tests/plugins/lodger): their code stays mapped while it
may be called. The next load of a changed file takes the new file."""

import concurrent.futures
import os
import pathlib
import shutil
import signal

import pytest

import repository
import server as servers
from wire import ask

pytestmark = pytest.mark.skipif(servers.REFERENCE, reason="Triton executes nothing inline")

LIBRARY = servers.BUILD / "tests" / "backends" / "lodger" / "libtriton_lodger.so"


def write_model(root, execution, name="lodger", **parameters):
    config = f'name: "{name}"\nbackend: "lodger"\n'
    config += repository.tensor("input", "IN", "INT32", [-1]) + repository.tensor("output", "OUT", "INT32", [-1])
    for key, value in {"CONCH_EXECUTION": execution, **parameters}.items():
        config += f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n'
    repository.write_model(root, name, config)


@pytest.fixture
def place(tmp_path):
    """Models, and a folder of backends with a library of its own."""
    folder = tmp_path / "backends" / "lodger"
    folder.mkdir(parents=True)
    (tmp_path / "models").mkdir()
    shutil.copy(LIBRARY, folder)
    return tmp_path


def library(place):
    return place / "backends" / "lodger" / LIBRARY.name


def serve(place, *flags):
    started = servers.Server(place / "models", flags=["--model-control-mode=explicit", *flags])
    ours = f"--backend-directory={place / 'backends'}"
    started.args = [ours if arg.startswith("--backend-directory=") else arg for arg in started.args]
    return started


def post(server, path, body):
    answer = ask(server, "POST", path, body)
    assert answer.status == 200, answer.body
    return answer


def load(server, name="lodger"):
    post(server, f"/v2/repository/models/{name}/load", {})


def unload(server, name="lodger"):
    post(server, f"/v2/repository/models/{name}/unload", {})
    index = [{"name": name, "version": "1", "state": "UNAVAILABLE", "reason": "unloaded"}]
    servers.wait_for(lambda: post(server, "/v2/repository/index", {}).json() == index, 60, "it is unloaded")


def hear(server, name="lodger"):
    """Returns the version of the library, and how many requests it has executed."""
    inputs = [{"name": "IN", "datatype": "INT32", "shape": [1], "data": [1]}]
    return post(server, f"/v2/models/{name}/infer", {"inputs": inputs}).json()["outputs"][0]["data"]


def hear_often(server):
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        return [future.result() for future in [pool.submit(hear, server) for _ in range(200)]]


def is_mapped(server):
    return LIBRARY.name in pathlib.Path(f"/proc/{server.pid}/maps").read_text()


def change(path, version, way):
    """Replaces the file by a new one, or its bytes."""
    new = path.with_suffix(".new")
    text = LIBRARY.read_bytes()
    assert text.count(b"lodger version 1") == 1
    new.write_bytes(text.replace(b"lodger version 1", b"lodger version %d" % version))
    if way == "renamed":
        os.replace(new, path)
    else:
        shutil.copyfile(new, path)
        new.unlink()


def stop(server):
    server.signal(signal.SIGTERM)
    assert server.wait() == 0


@pytest.mark.sanitize
@pytest.mark.parametrize("more", [{}, {"cxx": "1"}], ids=["key", "thread_local"])
def test_threads_end_after_the_library_was_given_up(more, place):
    write_model(place / "models", "inline", **more)
    with serve(place) as server:
        for _ in range(3):
            load(server)
            hear_often(server)
            unload(server)
        assert server.log().count("stays in memory: it has run on threads that go on") == 1
        stop(server)


@pytest.mark.parametrize("more", [{}, {"cxx": "1"}], ids=["key", "thread_local"])
def test_a_library_that_ran_on_joined_threads_only_is_unloaded(more, place):
    write_model(place / "models", "thread", **more)
    with serve(place) as server:
        for _ in range(3):
            load(server)
            assert [one[0] for one in hear_often(server)] == [1] * 200
            assert is_mapped(server)
            unload(server)
            servers.wait_for(lambda: not is_mapped(server), 60, "it is unloaded")
        assert "stays in memory" not in server.log()
        stop(server)


def is_ready(server, name="lodger"):
    return ask(server, "GET", f"/v2/models/{name}/ready").status == 200


def test_a_library_with_a_readiness_function_is_unloaded(place):
    """It is asked while it is loaded, and as long as a client asks for readiness."""
    write_model(place / "models", "thread")
    with serve(place) as server:
        for version in (1, 2, 3):
            change(library(place), version, "overwritten" if version == 3 else "renamed")
            load(server)
            assert all([is_ready(server) for _ in range(50)])
            assert hear(server)[0] == version
            unload(server)
            servers.wait_for(lambda: not is_mapped(server), 60, "it is unloaded")
        assert "stays in memory" not in server.log()
        stop(server)


@pytest.mark.parametrize("way", ["renamed", "overwritten"])
def test_a_batching_library_is_unloaded_and_a_changed_one_taken(place, way):
    write_model(place / "models", "thread")
    config = place / "models" / "lodger" / "config.pbtxt"
    config.write_text(config.read_text() + "max_batch_size: 4\ndynamic_batching { }\n")
    batcher = place / "models" / "lodger" / "batchstrategy.so"
    with serve(place) as server:
        for version in (1, 2, 3):
            change(batcher, version, way)
            load(server)
            inputs = [{"name": "IN", "datatype": "INT32", "shape": [1, 1], "data": [1]}]
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                list(pool.map(lambda _: post(server, "/v2/models/lodger/infer", {"inputs": inputs}), range(100)))
            server.wait_log(f"lodger: version {version} makes batches")
            assert batcher.name in pathlib.Path(f"/proc/{server.pid}/maps").read_text()
            unload(server)
            servers.wait_for(lambda: batcher.name not in pathlib.Path(f"/proc/{server.pid}/maps").read_text(), 60, "it is unloaded")
        assert "stays in memory" not in server.log()
        stop(server)


@pytest.mark.sanitize
def test_a_failed_load_leaves_no_library(place):
    write_model(place / "models", "thread", fail="1")
    with serve(place) as server:
        for _ in range(3):
            answer = ask(server, "POST", "/v2/repository/models/lodger/load", {})
            assert answer.status >= 400
            assert "no room for another lodger" in answer.json()["error"]
            servers.wait_for(lambda: not is_mapped(server), 60, "it is unloaded")
        stop(server)


@pytest.mark.parametrize("way", ["renamed", "overwritten"])
@pytest.mark.parametrize("more", [{}, {"cxx": "1"}], ids=["key", "thread_local"])
@pytest.mark.parametrize("execution", ["inline", "thread"])
def test_a_changed_file_is_loaded_anew(execution, more, way, place):
    write_model(place / "models", execution, **more)
    with serve(place) as server:
        for version in (1, 2, 3, 2):
            if version > 1 or is_mapped(server):
                change(library(place), version, way)
            load(server)
            heard = hear_often(server)
            assert {one[0] for one in heard} == {version}
            assert {one[1] for one in heard} == set(range(1, 201))  # no state of the earlier library is left
            unload(server)
        stop(server)


def test_an_unchanged_file_is_the_same_library(place):
    write_model(place / "models", "inline")
    with serve(place) as server:
        load(server)
        hear_often(server)
        unload(server)
        load(server)
        assert hear(server) == [1, 201]
        stop(server)


@pytest.mark.sanitize
def test_a_mapped_library_does_not_need_its_file(place):
    write_model(place / "models", "inline")
    with serve(place) as server:
        load(server)
        hear_often(server)
        unload(server)
        library(place).write_bytes(b"")  # truncated, as by a copy that has just begun
        stop(server)
