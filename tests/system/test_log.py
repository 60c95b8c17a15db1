# SPDX-License-Identifier: Apache-2.0
"""What the server writes: one record per line, in the format that was asked for, to where it should go."""

import re

import pytest

import repository
from server import REFERENCE, Server
from wire import Connection, ask, given, infer

# A record whose text is a table has that on the lines behind it.
DEFAULT = re.compile(r'[IWEV]\d{4} \d\d:\d\d:\d\d\.\d{6} \d+ [\w.-]+:\d+\] (".*")?')
ISO8601 = re.compile(r'\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ [IWEV] \d+ [\w.-]+:\d+\] (".*")?')
ONE = {"inputs": [given("INPUT0", "FP32", [1], [1])]}


def records(log):
    """The lines of a log without its tables, which follow a record as they are."""
    return [line for line in log.splitlines() if line and not line.startswith(("+--", "| "))]


@pytest.fixture
def quiet(models):
    repository.write_identity(models, "m", [("FP32", [-1])])
    return models


@pytest.mark.parametrize("name, form", [("default", DEFAULT), ("ISO8601", ISO8601)])
def test_formats(quiet, name, form):
    with Server(quiet, flags=[f"--log-format={name}"]) as server:
        assert infer(server, "m", ONE).status == 200
    lines = records(server.out.text())
    assert lines
    for line in lines:
        if line.startswith("Signal ("):  # that line has no format in the reference
            continue
        assert form.fullmatch(line), line
    assert all(form.fullmatch(line) for line in records(server.err.text()) if not REFERENCE), server.err.text()


def test_log_file(quiet, tmp_path):
    path = tmp_path / "server.log"
    server = Server(quiet, flags=[f"--log-file={path}"], ready=False)
    server.log = lambda: path.read_text() if path.exists() else ""
    with server:
        assert infer(server, "m", ONE).status == 200
    assert "Started HTTPService at" in path.read_text()
    assert "Started HTTPService at" not in server.out.text() + server.err.text()


def test_requests_are_not_logged(quiet):
    with Server(quiet) as server:
        assert infer(server, "m", ONE).status == 200
        before = len(server.log())
        for _ in range(50):
            assert infer(server, "m", ONE).status == 200
            assert ask(server, "GET", "/v2/none").status == 404
        assert len(server.log()) == before


@pytest.mark.conch_only("a CVE of its kind")
def test_clients_write_no_lines_of_their_own(quiet):
    """Whatever a client sends, the log has one well-formed record per line."""
    evil = 'x"\r\nE0101 00:00:00.000000 1 evil.c:1] "boo'
    with Server(quiet, flags=["--log-verbose=3"]) as server:
        infer(server, "m", {**ONE, "id": evil})
        infer(server, "m", {"id": evil, "inputs": [given(evil, "FP32", [1], [1])]})
        infer(server, "m", {"id": "\x1b[31m", "inputs": [given("INPUT0", "FP32", [1, 1], [1])]})
        with Connection(server) as connection:
            connection.send(b"GET /v2/\x1b[31m\x01 HTTP/1.1\r\nHost: x\r\n\r\n")
            connection.response()
    log = server.out.text() + server.err.text()
    assert "\x1b" not in log
    for line in records(log):
        if not line.startswith("Signal ("):
            assert DEFAULT.fullmatch(line), line
        assert "evil.c:1]" not in line.split('"')[0]
