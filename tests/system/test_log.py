# SPDX-License-Identifier: Apache-2.0
"""What the server logs: one record per line, in the chosen format, to the chosen place."""

import ast
import fcntl
import json
import os
import re
import signal
import subprocess

import pytest

import repository
import triton as genuine
from server import REFERENCE, Server, free_port, wait_for
from wire import Connection, ask, given, infer

# If a record's text is a table, the table follows on the lines behind it.
DEFAULT = re.compile(r'[IWEV]\d{4} \d\d:\d\d:\d\d\.\d{6} \d+ [\w.-]+:\d+\] (".*")?')
ISO8601 = re.compile(r'\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ [IWEV] \d+ [\w.-]+:\d+\] (".*")?')
ONE = {"inputs": [given("INPUT0", "FP32", [1], [1])]}


def records(log):
    """The lines of a log without its tables, which follow a record unformatted."""
    return [line for line in log.splitlines() if line and not line.startswith(("+--", "| "))]


@pytest.fixture
def quiet(models):
    repository.write_identity(models, "m", [("FP32", [-1])])
    return models


@pytest.mark.parametrize("name, form", [("default", DEFAULT), ("ISO8601", ISO8601)])
def test_each_format_has_its_records(quiet, name, form):
    with Server(quiet, flags=[f"--log-format={name}"]) as server:
        assert infer(server, "m", ONE).status == 200
    lines = records(server.out.text())
    assert lines
    for line in lines:
        if line.startswith("Signal ("):  # that line has no format in the reference
            continue
        assert form.fullmatch(line), line
    assert all(form.fullmatch(line) for line in records(server.err.text()) if not REFERENCE), server.err.text()


def write_broken(models):
    """A model that gives lines of WARNING and ERROR at the start."""
    (models / "broken").mkdir()
    (models / "broken/config.pbtxt").write_text('backend: "nowhere"\n')


def levels(text):
    """The letters that the records of the default format begin with."""
    return {line[0] for line in text.splitlines() if DEFAULT.match(line)}


@pytest.mark.parametrize("kind", [Server, pytest.param(genuine.Triton, marks=genuine.needed)], ids=["ours", "triton"])
def test_each_level_has_its_stream(quiet, kind):
    """As in today's Triton: its 2.51, which runs here, still writes all to stderr."""
    write_broken(quiet)
    with kind(quiet, flags=["--exit-on-error=false", "--cuda-memory-pool-byte-size=0:1"], ready=False) as server:
        server.await_rest() if kind is Server else server.wait_log("failed to load model 'broken'")
        infer(server, "m", ONE)
    if kind is Server:
        assert levels(server.out.text()) == {"I"} and levels(server.err.text()) == {"W", "E"}
        assert "| broken " in server.out.text(), "tables are INFO"
    else:
        assert levels(server.out.text()) == set() and levels(server.err.text()) >= {"I", "E"}


@pytest.mark.conch_only("it writes without an order among its threads")
def test_both_streams_in_one_pipe_keep_their_order(quiet):
    """What `conch … 2>&1 | …` reads."""
    write_broken(quiet)
    server = Server(quiet, flags=["--exit-on-error=false", "--log-verbose=1", "--cuda-memory-pool-byte-size=0:1"])
    process = subprocess.Popen(server.args, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    read = b""
    while b"Serving, but not ready: " not in read:
        chunk = os.read(process.stdout.fileno(), 65536)
        assert chunk, read
        read += chunk
    process.terminate()
    text = (read + process.stdout.read()).decode()
    process.stdout.close()
    assert process.wait(60) == 0
    assert levels(text) >= {"I", "W", "E"}
    times = [line[1:20] for line in text.splitlines() if DEFAULT.match(line)]
    assert times == sorted(times)


@pytest.mark.conch_only("a format of ours")
def test_each_line_is_a_json_object(quiet, tmp_path):
    """All of the log, tables and warnings included, is on stdout; or in the file."""
    write_broken(quiet)
    path = tmp_path / "server.log"
    texts = []
    for flags in ([], [f"--log-file={path}"]):
        server = Server(quiet, flags=["--log-format=json", "--exit-on-error=false", *flags], ready=False)
        if flags:
            server.log = lambda: path.read_text() if path.exists() else ""
        with server:
            assert infer(server, "m", {**ONE, "id": 'x"\r\n{"a'}).status == 200
            settings = ask(server, "POST", "/v2/logging", {"log_verbose_level": 1}).json()
            assert settings["log_format"] == "json"
        texts.append((server.out.text(), server.err.text(), server.log()))
    assert texts[0][1] == texts[1][1] == ""    # nothing on stderr
    for text in (texts[0][0], texts[1][2]):
        lines = [json.loads(line) for line in text.splitlines()]
        assert {"info", "error"} <= {line["level"] for line in lines}
        assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", line["time"]) for line in lines)
        assert all(set(line) - {"file", "line"} == {"time", "level", "pid", "message"} for line in lines)
        messages = [line["message"] for line in lines]
        assert any("Started HTTPService at" in message for message in messages)
        assert any("broken" in message and "\n" in message for message in messages)    # a table


@pytest.mark.conch_only("the genuine server has no colours")
@pytest.mark.parametrize("no_color", ["", "1"])
def test_colours_are_for_terminals(quiet, no_color):
    """A line of WARNING or ERROR begins in colour where people read it, and only there."""
    write_broken(quiet)
    ours, theirs = os.openpty()
    with Server(quiet, flags=["--exit-on-error=false"], ready=False) as server:
        assert "broken" in server.err.text() and "\x1b" not in server.log()
        done = subprocess.Popen(server.args, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs,
                                env={**os.environ, "NO_COLOR": no_color, "TERM": "xterm"})
        os.close(theirs)
        seen = b""
        while b"broken" not in seen or b"E1" not in seen and b"E0" not in seen:
            seen += os.read(ours, 65536)
        done.terminate()
        try:
            while chunk := os.read(ours, 65536):
                seen += chunk
        except OSError:    # EIO: the server has ended
            pass
        done.wait(60)
        os.close(ours)
    lines = seen.decode().splitlines()
    errors = [line for line in lines if re.match(r"(\x1b\[31m)?E\d{4} ", line)]
    assert errors and all(line.startswith("\x1b[31mE") and "\x1b[0m" in line for line in errors) == (not no_color)
    assert not [line for line in lines if re.match(r"\x1b.*I\d{4} ", line)]


def test_the_log_goes_to_a_file(quiet, tmp_path):
    path = tmp_path / "server.log"
    server = Server(quiet, flags=[f"--log-file={path}"], ready=False)
    server.log = lambda: path.read_text() if path.exists() else ""
    with server:
        assert infer(server, "m", ONE).status == 200
    assert "Started HTTPService at" in path.read_text()
    assert "Started HTTPService at" not in server.out.text() + server.err.text()


def qa_settings(log):
    """As Triton's qa/L0_backend_config takes them from the log: the line as a literal of Python."""
    (line,) = [line for line in log.splitlines() if "backend configuration:" in line]
    document = ast.literal_eval(f"'{line}'").split('] "backend configuration:\n')[1].rstrip('"')
    return json.loads(document)["cmdline"]


@pytest.mark.conch_only("the backend of the genuine one says what that of ours need not")
@pytest.mark.parametrize(("flags", "line", "size"), [
    ([], "Adding default backend config setting: default-max-batch-size,", "4"),
    (["default-max-batch-size=5"], "Found overwritten default setting: default-max-batch-size,", "5"),
    (["default-max-batch-size=7", "default-max-batch-size=8"], "Found overwritten default setting: default-max-batch-size,", "8"),
    (["identity,default-max-batch-size=5", "identity,a=0"], "Found overwritten default setting: default-max-batch-size,", "5"),
], ids=str)
def test_a_verbose_log_has_the_settings_of_backends(quiet, flags, line, size):
    config = quiet / "m/config.pbtxt"
    config.write_text(config.read_text().replace("max_batch_size: 0", "max_batch_size: 4 dynamic_batching { }"))
    with Server(quiet, flags=["--log-verbose=1", *(f"--backend-config={flag}" for flag in flags)]) as server:
        log = server.log()
    (found,) = [text for text in log.splitlines() if line in text]
    assert found.split(",")[1].strip('"') == size
    settings = qa_settings(log)
    assert len(settings) == 4 + ("identity,a=0" in flags)
    assert settings["default-max-batch-size"] == size
    assert "Starting dynamic-batcher thread for m" in log


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


# ---- A log that is not read ----------------------------------------------------------------------


@pytest.mark.conch_only("the genuine server stops with its log")
@pytest.mark.parametrize("shared", [True, False], ids=["one pipe", "two pipes"])
def test_an_unread_log_stops_nothing(models, shared):
    """The pipe is full: requests are answered, models load, the stop works. Lost lines are counted when the pipe is read."""
    name = "m" * 200    # for long lines
    repository.write_identity(models, name, [("FP32", [-1])])
    server = Server(models, flags=["--model-control-mode=explicit", f"--load-model={name}", "--http-thread-count=1"])
    ours, theirs = os.pipe()
    fcntl.fcntl(theirs, fcntl.F_SETPIPE_SZ, 4096)
    errors = theirs if shared else subprocess.DEVNULL
    port = free_port()
    args = [arg for arg in server.args if not arg.startswith("--http-port=")] + [f"--http-port={port}"]
    process = subprocess.Popen(args, stdin=subprocess.DEVNULL, stdout=theirs, stderr=errors)
    os.close(theirs)
    server.process, server.port = process, port
    try:
        wait_for(lambda: answers(server), 120, "it serves")
        for _ in range(1500):    # each request logs some lines; together they exceed the queue
            for verb in ("unload", "load"):
                assert ask(server, "POST", f"/v2/repository/models/{name}/{verb}", b"").status == 200
        assert infer(server, name, ONE).status == 200
        process.send_signal(signal.SIGTERM)
        with open(ours, "rb") as log:
            text = log.read().decode()    # to the end of the file
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
    lines = records(text)
    assert all(DEFAULT.fullmatch(line) or line.startswith("Signal (") for line in lines), text[-2000:]
    (lost,) = [int(found[1]) for found in re.finditer(r'"(\d+) log lines were lost"', text)]
    assert lost > 0


def answers(server):
    try:
        return ask(server, "GET", "/v2/health/ready").status == 200
    except OSError:
        return False
