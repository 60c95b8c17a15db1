# SPDX-License-Identifier: Apache-2.0
"""Signals: which of them are blocked in backends and their children, which ones the server obeys, and the report of a crash."""

import contextlib
import fcntl
import json
import os
import pathlib
import shutil
import signal
import subprocess
import termios

import pytest

import repository
from server import BUILD, SANITIZED, THREAD_SANITIZED, Server, wait_for
from wire import Connection, given, infer, request_bytes

pytestmark = pytest.mark.conch_only("the genuine server ignores a second signal, and dies of SIGHUP")
HANDLED_BY_SANITIZERS = pytest.mark.skipif(SANITIZED, reason="the sanitizer says it in its own way")

TELL, CRASH, FILL_STACK = 0, 1, 2


def write_signals(models, name, execution="thread", more=""):
    config = f'name: "{name}"\nbackend: "signals"\n' + repository.tensor("input", "IN", "INT32", [1])
    config += repository.tensor("output", "OUT", "BYTES", [1]) + "instance_group [ { count: 1 kind: KIND_CPU } ]\n"
    config += f'parameters {{ key: "CONCH_EXECUTION" value: {{ string_value: "{execution}" }} }}\n' + more
    folder = repository.write_model(models, name, config)
    shutil.copy(BUILD / "tests/backends/signals/libtriton_signals.so", folder)
    return folder


def do(server, name, what):
    return infer(server, name, {"inputs": [given("IN", "INT32", [1], [what])]})


def ask(server, name):
    return json.loads(do(server, name, TELL).json()["outputs"][0]["data"][0])


# ---- What backends inherit -----------------------------------------------------------------------


@pytest.mark.parametrize("execution", ["inline", "thread"])
@pytest.mark.parametrize("blocked", [(), (signal.SIGUSR1, signal.SIGWINCH)])
def test_backends_and_their_children_have_the_mask_of_the_program(models, execution, blocked):
    """In every call, and in children however they are made: SIGTERM ends them."""
    write_signals(models, "m", execution)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
    expected = sum(1 << number - 1 for number in {*before, *blocked})
    server = Server(models)
    try:
        server.start()    # the child has the mask of this thread
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    with server:
        told = ask(server, "m")
    assert [int(told[who], 16) for who in ("model", "instance", "execute", "child")] == [expected] * 4
    assert [told[how] for how in ("spawn", "fork", "vfork")] == [signal.SIGTERM] * 3
    for who in ("instance", "model"):
        assert f"signals: the {who} ends with {expected:x}\n" in server.out.text()


def test_models_that_are_loaded_later_have_the_mask_too(models):
    """By control threads."""
    write_signals(models, "m")
    with Server(models, flags=["--model-control-mode=explicit"]) as server:
        with Connection(server) as connection:
            assert connection.request("POST", "/v2/repository/models/m/load", b"").status == 200
        told = ask(server, "m")
    assert {int(told[who], 16) for who in ("model", "instance", "execute", "child")} == {0}


def masks_of_threads(server):
    """The signals that each thread blocks. A thread that begins or ends blocks all of them for a moment (pthread_create(3) does so)."""
    masks = []
    for thread in os.listdir(f"/proc/{server.pid}/task"):
        with contextlib.suppress(OSError), open(f"/proc/{server.pid}/task/{thread}/status", encoding="ascii") as file:
            masks += [int(line.split()[1], 16) for line in file if line.startswith("SigBlk:")]
    return masks


@pytest.mark.parametrize("mode", ["none", "poll"])
def test_signals_are_obeyed_on_any_thread(models, mode):
    """No thread blocks a signal, so any of them may get it: also the one that polls the repositories."""
    repository.write_identity(models, "m", [("FP32", [-1])])
    with Server(models, flags=[f"--model-control-mode={mode}", "--repository-poll-secs=3600"]) as server:
        # The polling thread has the name of the program, as main has; load threads end.
        expected = 1 + (mode == "poll")
        wait_for(lambda: server.names_of_threads().count("conch") >= expected, 60, "all threads are there")
        wait_for(lambda: "model-load" not in server.names_of_threads(), 60, "nothing is loaded any more")
        if not SANITIZED:    # sanitizers have threads of their own
            wait_for(lambda: set(masks_of_threads(server)) == {0}, 60, "no thread blocks a signal")
        for _ in range(20):
            for number in (signal.SIGHUP, signal.SIGWINCH, signal.SIGCHLD):
                server.signal(number)
            assert infer(server, "m", {"inputs": [given("INPUT0", "FP32", [1], [1])]}).status == 200


# ---- A second signal -----------------------------------------------------------------------------


@pytest.mark.skipif(THREAD_SANITIZED, reason="the thread sanitizer puts a signal off until main has left sem_clockwait(), which it does not know")
@pytest.mark.parametrize("first", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_the_process_at_once(models, first, second):
    gated = repository.Gated(models, "gated").shut("hold.execute")
    server = Server(models)
    with pytest.raises(AssertionError, match=f"ended with {128 + second}"):
        with server, Connection(server) as held:
            body = b'{"inputs":[{"name":"IN","datatype":"INT32","shape":[1],"data":[7]}]}'
            held.send(request_bytes("POST", "/v2/models/gated/infer", body))
            gated.await_reached("hold.execute")
            server.signal(first)
            server.wait_log("HTTP service connections")

            def ended():    # a second signal within a moment counts as the first
                if server.process.poll() is None:
                    server.signal(second)
                return server.process.poll() is not None

            wait_for(ended, 20, "it has ended")    # the exit timeout is 30 s
    assert f"Signal ({int(second)}) received again: the program ends at once." in server.err.text()


def test_the_same_signal_twice_at_once_is_one(models):
    """As timeout(1) sends it: to the process, then to its group."""
    gated = repository.Gated(models, "gated").shut("hold.execute")
    with Server(models) as server, Connection(server) as held:
        body = b'{"inputs":[{"name":"IN","datatype":"INT32","shape":[1],"data":[7]}]}'
        held.send(request_bytes("POST", "/v2/models/gated/infer", body))
        gated.await_reached("hold.execute")
        os.kill(server.pid, signal.SIGSTOP)    # so that both arrive together, however slow the machine is
        server.signal(signal.SIGTERM)
        server.signal(signal.SIGINT)
        os.kill(server.pid, signal.SIGCONT)
        server.wait_log("HTTP service connections")
        gated.open("hold.execute")
        assert held.response().status == 200
        assert server.wait() == 0


# ---- SIGHUP --------------------------------------------------------------------------------------


@pytest.fixture
def one(models):
    repository.write_identity(models, "m", [("FP32", [-1])])
    return models


def start_in_session(server, terminal=None):
    """As Server.start() does it, in a new session, with that terminal or none."""

    def prepare():
        os.setsid()
        signal.signal(signal.SIGHUP, signal.SIG_DFL)    # nohup may have made us ignore it
        if terminal is not None:
            fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)

    original = subprocess.Popen
    subprocess.Popen = lambda *args, **more: original(*args, preexec_fn=prepare, **more)
    try:
        return server.start()
    finally:
        subprocess.Popen = original


def test_sighup_without_a_terminal_reopens_the_log_file(one, tmp_path):
    path, old = tmp_path / "server.log", tmp_path / "server.log.1"
    server = Server(one, flags=[f"--log-file={path}"])
    server.log = lambda: "".join(file.read_text() for file in (old, path) if file.exists())
    with start_in_session(server):
        path.rename(old)
        server.signal(signal.SIGHUP)
        server.wait_log("Signal (1) received: the log file has been opened anew.")
        assert "opened anew" in path.read_text()
        assert infer(server, "m", {"inputs": [given("INPUT0", "FP32", [1], [1])]}).status == 200
        server.signal(signal.SIGTERM)
        assert server.wait() == 0
    assert "Started HTTPService" in old.read_text() and "All models are stopped" not in old.read_text()
    assert "All models are stopped" in path.read_text()


def test_logrotate_rotates_the_log(one, tmp_path):
    """With the configuration of the page: the lines from before are in the rotated file, later ones in a new one."""
    path = tmp_path / "server.log"
    server = Server(one, flags=[f"--log-file={path}"])
    server.log = lambda: "".join(file.read_text() for file in (tmp_path / "server.log.1", path) if file.exists())
    page = (pathlib.Path(__file__).parents[2] / "docs/start-and-stop.md").read_text()
    with start_in_session(server):
        config = page.split("```logrotate\n")[1].split("```")[0]
        for theirs, ours in (("/var/log/conch/server.log", str(path)), ("$(pidof -s conch)", str(server.process.pid))):
            assert theirs in config
            config = config.replace(theirs, ours)
        (tmp_path / "conf").write_text(config.replace("delaycompress", "delaycompress\n    su root root\n    nodateext"))
        (tmp_path / "conf").chmod(0o644)
        rotate = ["/usr/sbin/logrotate", "--force", "--state", tmp_path / "state", tmp_path / "conf"]
        done = subprocess.run(rotate, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        server.wait_log("Signal (1) received: the log file has been opened anew.")
        assert "opened anew" in path.read_text()
        assert "Started HTTPService" in (tmp_path / "server.log.1").read_text()


def test_sighup_without_terminal_and_log_file_changes_nothing(one):
    with start_in_session(Server(one)) as server:
        server.signal(signal.SIGHUP)
        server.wait_log("Signal (1) received, and there is no log file to be opened anew.")
        assert infer(server, "m", {"inputs": [given("INPUT0", "FP32", [1], [1])]}).status == 200


def test_sighup_with_a_terminal_stops_the_server(one, tmp_path):
    """As SIGTERM does; also when the terminal hangs up."""
    ours, theirs = os.openpty()
    path = tmp_path / "server.log"
    server = Server(one, flags=[f"--log-file={path}"])
    server.log = lambda: path.read_text() if path.exists() else ""
    try:
        with start_in_session(server, theirs):
            os.close(theirs)
            os.close(ours)    # the terminal is closed: the kernel sends the signal
            assert server.wait() == 0
    finally:
        server.process.poll()
    assert "Signal (1) received." in server.out.text()
    assert "All models are stopped" in server.log()


# ---- Crashes -------------------------------------------------------------------------------------


def crashes(server, name, what):
    with pytest.raises(AssertionError, match=f"ended with {-signal.SIGSEGV}"):
        with server, Connection(server) as connection:
            body = json.dumps({"inputs": [given("IN", "INT32", [1], [what])]}).encode()
            connection.send(request_bytes("POST", f"/v2/models/{name}/infer", body))
            assert server.wait() == -signal.SIGSEGV
    said = server.err.text()
    assert "Signal (11) received.\n" in said
    assert "libtriton_signals.so" in said    # the frames


@HANDLED_BY_SANITIZERS
@pytest.mark.parametrize("execution", ["inline", "thread"])
@pytest.mark.parametrize("what", [CRASH, FILL_STACK])
def test_a_crash_of_a_backend_prints_its_stack(models, execution, what):
    """Also when the stack has no room left for a handler."""
    write_signals(models, "m", execution)
    crashes(Server(models), "m", what)


@HANDLED_BY_SANITIZERS
def test_a_crash_on_the_polling_thread_names_the_thread(models):
    repository.write_identity(models, "other", [("FP32", [-1])])
    server = Server(models, flags=["--model-control-mode=poll", "--repository-poll-secs=1"])
    with pytest.raises(AssertionError, match=f"ended with {-signal.SIGSEGV}"):
        with server:
            write_signals(models, "m", more='parameters { key: "crash" value: { string_value: "yes" } }\n')
            assert server.wait() == -signal.SIGSEGV
    assert "Signal (11) received.\n" in server.err.text()
    assert "libtriton_signals.so" in server.err.text()
