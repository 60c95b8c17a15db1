# SPDX-License-Identifier: Apache-2.0
"""A server process under test: started on a free port, waited for, watched, and always ended.

CONCH_BUILD_DIR    the build under test (build/release)
CONCH_BIN          another executable than its bin/conch
CONCH_BACKENDS     another backend directory than its backends/
CONCH_REFERENCE=1  CONCH_BIN is the genuine Triton: tests marked conch_only are skipped, and the port is
                   chosen here, because that server does not print the one that it got.
"""

import contextlib
import os
import pathlib
import random
import re
import select
import signal
import socket
import subprocess
import threading
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("CONCH_BUILD_DIR", ROOT / "build/release"))
BIN = os.environ.get("CONCH_BIN", str(BUILD / "bin/conch"))
BACKENDS = os.environ.get("CONCH_BACKENDS", str(BUILD / "backends"))
REFERENCE = os.environ.get("CONCH_REFERENCE", "") not in ("", "0")



def sanitized(path):
    """Was a binary built with a sanitizer? A sanitizer keeps freed memory and does not load into other programs."""
    content = pathlib.Path(path).read_bytes() if os.path.exists(path) else b""
    return b"__asan_init" in content or b"__tsan_init" in content


SANITIZED = sanitized(BIN)
THREAD_SANITIZED = SANITIZED and b"__tsan_init" in pathlib.Path(BIN).read_bytes()
START_WITHIN_S = 300 if SANITIZED else 120
STOP_WITHIN_S = 60
SANITIZER = re.compile(r"ERROR: \w+Sanitizer|WARNING: ThreadSanitizer|: runtime error: |BUG:")


_ports = []    # sockets that reserve the ports that were given out; they end with the process


def free_port():
    """Returns a port that no process uses, and reserves it. The kernel does not give it to others (it gives those from
    32768 on), and other test runs on this machine see that it is taken."""
    chance = random.SystemRandom()
    while True:
        port = chance.randrange(10000, 32768)
        taken = socket.socket(socket.AF_UNIX)
        try:
            taken.bind(f"\0port-of-a-test-{port}")
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", port))
        except OSError:
            taken.close()
            continue
        _ports.append(taken)
        return port


def wait_for(condition, within_s, what):
    """Polls until condition() is true and returns its value; the assertion fails when time is up."""
    until = time.monotonic() + within_s
    while True:
        got = condition()
        if got:
            return got
        assert time.monotonic() < until, f"not within {within_s} s: {what}"
        time.sleep(0.01)


def cpu_s(pid):
    """The time that the threads of a process have computed so far."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def processes_with(mark, program=""):
    """The processes that have inherited this environment variable, and run the program; a process that is gone is none."""
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark.encode() in (folder / "environ").read_bytes() and os.readlink(folder / "exe").endswith(program):
                found.append(int(folder.name))
    return found


def wait_equal(get, expected, what, within_s=60):
    """Waits until get() returns what is expected: figures may follow an answer. The assertion tells what it was last."""
    last = None

    def is_so():
        nonlocal last
        last = get()
        return last == expected

    try:
        wait_for(is_so, within_s, what)
    except AssertionError:
        raise AssertionError(f"not within {within_s} s: {what}: {last} instead of {expected}") from None


class Output:
    """The output of a process, collected by a thread so that a full pipe never blocks the process. A reader gets all that
    has been printed before, whether or not the thread has read it."""

    def __init__(self, pipe):
        self._pipe = pipe
        self._chunks = []
        self._taking = threading.Lock()
        self._ended = False
        os.set_blocking(pipe.fileno(), False)
        self._thread = threading.Thread(target=self._collect, daemon=True)
        self._thread.start()

    def _collect(self):
        poll = select.poll()
        poll.register(self._pipe, select.POLLIN)
        while not self._ended:
            poll.poll()
            self._take()
        self._pipe.close()

    def _take(self):
        with self._taking:
            while not self._ended:
                try:
                    chunk = os.read(self._pipe.fileno(), 65536)
                except BlockingIOError:
                    return
                self._chunks.append(chunk)
                self._ended = not chunk

    def bytes(self):
        self._take()
        return b"".join(self._chunks)

    def text(self):
        return self.bytes().decode("utf-8", "replace")

    def join(self):
        """Waits until the other side has closed the pipe; a process that the server leaves behind may hold it open."""
        self._thread.join(10)


class Server:
    """with Server(repository) as server: … – running and ready inside the block, ended after it.

    ready=False: all models have been tried, ready or not. ready=None: its port is open, whatever happens to the models.
    wrap is a command that executes another one, such as prlimit; it must keep the process id. grpc=True: gRPC is served,
    too, at grpc_url; a text is its address.
    """

    listens_first = not REFERENCE  # the genuine server opens its ports when all models have been tried

    def __init__(self, *repositories, flags=(), env=None, wrap=(), port=None, ready=True, address="127.0.0.1",
                 grpc=False):
        self.name = "the genuine Triton" if REFERENCE else "conch"
        self.address = address
        self._wait_ready = ready
        if port is None:
            port = free_port() if REFERENCE else 0
        self.args = [*wrap, BIN, *(f"--model-repository={path}" for path in repositories)]
        self.args += [f"--backend-directory={BACKENDS}", f"--http-address={address}", f"--http-port={port}"]
        self.args += [*self._grpc_flags(grpc), "--allow-metrics=false", *flags]
        self.env = {**os.environ, **(env or {})}
        self.process = None
        self._told_to_end = False
        self.port = None
        self.grpc_url = None

    def _grpc_flags(self, grpc):
        self._serves_grpc = bool(grpc)
        if not grpc:
            return ["--allow-grpc=false"]
        at = grpc if isinstance(grpc, str) else self.address
        return [f"--grpc-address={at}", f"--grpc-port={free_port() if REFERENCE else 0}"]

    def start(self):
        """Starts the process, as `with` does first, for a test that looks before the port is open."""
        self._told_to_end = False
        self.process = subprocess.Popen(
            self.args, env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        self.out = Output(self.process.stdout)
        self.err = Output(self.process.stderr)
        return self

    def __enter__(self):
        if self.process is None:
            self.start()
        try:
            self._await_start()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, kind, value, trace):
        if not self._told_to_end:    # a second signal would end it at once, and not in order
            self.signal(signal.SIGTERM)
        try:
            code = self.process.wait(STOP_WITHIN_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(self.story(f"did not end within {STOP_WITHIN_S} s")) from None
        self.out.join()
        self.err.join()
        if kind is None:
            self.assert_no_report()
            assert code == 0, self.story(f"ended with {code}")

    def _await_line(self, line):
        line = re.compile(line)
        found = wait_for(
            lambda: self.process.poll() is not None or line.search(self.log()), START_WITHIN_S, f"the log says {line.pattern}"
        )
        self.assert_alive()
        return found[1]

    def _await_start(self):
        if self._serves_grpc:
            self.grpc_url = self._await_line(r'Started GRPCInferenceService at ([^\s"]+)')
        self.port = int(self._await_line(r"Started HTTPService at \S*:(\d+)"))
        if self._wait_ready is None:
            return
        wait_for(lambda: self._says_yes("ready" if self._wait_ready else "live"), START_WITHIN_S, "ready")
        if not self._wait_ready and self.listens_first:
            self.wait_log("Loaded ")

    def _says_yes(self, question):
        self.assert_alive()
        try:
            with urllib.request.urlopen(f"http://{self.url}/v2/health/{question}", timeout=5) as answer:
                return answer.status == 200
        except OSError:
            return False

    @property
    def url(self):
        return f"{self.address}:{self.port}"

    @property
    def pid(self):
        return self.process.pid

    def names_of_threads(self):
        """Those of the current threads. Threads that have loaded a model, called model-load, may end later than the load."""
        names = []
        for thread in os.listdir(f"/proc/{self.pid}/task"):
            with contextlib.suppress(OSError), open(f"/proc/{self.pid}/task/{thread}/comm", encoding="ascii") as file:
                names.append(file.read().strip())
        return names

    def cpu_s(self):
        return cpu_s(self.pid)

    def await_rest(self):
        """Waits until all models are loaded that can be, where one cannot (--exit-on-error=false)."""
        text = b"the server starts without some of its models"
        wait_for(lambda: text in self.err.bytes(), START_WITHIN_S, "the models are loaded or have failed")

    def wait_log(self, text):
        """Waits until the log has the text: lines appear a moment after their event."""

        def has():
            code = self.process.poll()    # after its end no line follows
            self.assert_no_report()
            said = text in self.log()
            assert said or code is None, self.story(f"ended with {code}")
            return said

        wait_for(has, START_WITHIN_S, f"the log says {text!r}")

    def log(self):
        return self.out.text() + self.err.text()

    def story(self, what):
        """Describes the process: its command, its end and all its output. A negative exit code is the number of a signal."""
        if self.process.poll() is not None:    # its last output may not be read yet
            self.out.join()
            self.err.join()
        return f"{self.name} (pid {self.pid}) {what}\n{self.log()}"

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.out.join()
        self.err.join()

    def signal(self, number):
        """Sends it, unless the process has ended."""
        self._told_to_end |= number in (signal.SIGTERM, signal.SIGINT, signal.SIGKILL)
        self.process.send_signal(number)

    def wait(self, within_s=STOP_WITHIN_S):
        """Returns the exit code, once the process has ended by itself."""
        return self.process.wait(within_s)

    def assert_alive(self):
        code = self.process.poll()
        assert code is None, self.story(f"ended with {code}")
        self.assert_no_report()

    def assert_no_report(self):
        found = SANITIZER.search(self.log())
        assert not found, self.story(f"reports {found[0]}")


def run_to_end(*args, program=None, env=None, within_s=60):
    """Runs the server with these arguments where it is expected to end by itself: (code, stdout, stderr)."""
    done = subprocess.run(
        [program or BIN, *map(str, args)],
        env={**os.environ, **(env or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=within_s,
        check=False,
    )
    out, err = done.stdout.decode(), done.stderr.decode()
    assert not SANITIZER.search(out + err), out + err
    return done.returncode, out, err
