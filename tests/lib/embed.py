# SPDX-License-Identifier: Apache-2.0
"""Requests by the C API: tests/programs/embed.c, with our library or with the genuine one in its place."""

import os
import pathlib
import re
import signal
import subprocess
import warnings

import server as servers

PROGRAM = servers.BUILD / "tests/embed"
SITE = servers.ROOT / ".deps/reference/venv/lib"


def genuine_libraries(folder):
    """A folder in which the genuine library has the name that programs ask for."""
    libraries = next(SITE.glob("python3.*/site-packages/nvidia_pytriton.libs"))
    folder = pathlib.Path(folder)
    link = folder / "libtritonserver.so"
    if not link.exists():
        link.symlink_to(next(libraries.glob("libtritonserver-*.so")))
    return f"{folder}:{libraries}"


class Session:
    """with Session(repository) as session: … – one server, for any number of commands."""

    def __init__(self, repository, *, which="conch", folder=None, backends=None, options=(), env=None):
        environment = dict(env or {})
        if which == "triton":
            environment["LD_LIBRARY_PATH"] = genuine_libraries(folder)
        self.process = subprocess.Popen(
            [PROGRAM, str(repository), str(backends or servers.BACKENDS), *options], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, **environment})
        self.out, self.err = servers.Output(self.process.stdout), servers.Output(self.process.stderr)
        self.genuine = which == "triton"
        self.seen = 0    # how much of its output do() has returned

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        if self.genuine and not kind:    # not the server's own choice, with which it dies now and then (triton.Triton)
            assert self.process.poll() is None, self.story([])
        if kind or self.genuine:
            self.process.kill()
        lines = self._say(b"", "stopped", within_s=60)
        code = self.process.wait(60)
        if kind is None and not self.genuine:
            assert (code, lines[-1:]) == (0, ["stopped"]), self.story(lines)
            assert not servers.SANITIZER.search(self.err.text()), self.story(lines)

    def do(self, *commands, within_s=60):
        """Returns the lines that embed prints, without log lines, until all requests have ended."""
        lines = self._say("".join(f"{command}\n" for command in (*commands, "join")).encode(), "joined", within_s)
        assert lines[-1:] == ["joined"], self.story(lines)
        return lines[:-1]

    def tell(self, *commands):
        """Sends the commands; the next do() returns what they print."""
        self.process.stdin.write("".join(f"{command}\n" for command in commands).encode())
        self.process.stdin.flush()

    def start_run(self, name, request, after_s=0.2):
        """Starts a long request, and returns when the server has computed for so long: it has answered before, so its models are loaded."""
        before_s = servers.cpu_s(self.process.pid)
        self.tell(f"start {name} {request}")
        servers.wait_for(lambda: servers.cpu_s(self.process.pid) - before_s > after_s, 60, f"{name} runs")

    def await_line(self, line, within_s=60):
        """Waits until that line has been printed since the last do()."""

        def has():
            assert self.process.poll() is None, self.story([])
            return f"\n{line}\n" in "\n" + self.out.bytes()[self.seen:].decode("utf-8", "replace")

        servers.wait_for(has, within_s, f"embed says {line}")

    def _say(self, commands, last, within_s):
        """Returns the output up to that line, or to the end of the process: a backend's processes may keep the pipe open."""
        try:
            self.process.stdin.write(commands)
            self.process.stdin.flush()
            if not commands:
                self.process.stdin.close()
        except BrokenPipeError:    # it has ended: its output has the reason
            pass

        def said():
            return self.out.bytes().endswith(f"{last}\n".encode(), self.seen)

        servers.wait_for(lambda: said() or self.process.poll() is not None, within_s, f"embed says {last}")
        if not said():
            self.out.join()
        got = self.out.bytes()[self.seen:]
        self.seen += len(got)
        return [line for line in got.decode("utf-8", "replace").splitlines() if not is_log(line)]

    def story(self, lines):
        """Describes how the process ended."""
        code = self.process.poll()
        state = "runs" if code is None else f"ended with {code}"
        return "\n".join([f"embed (pid {self.process.pid}) {state}", *lines[-20:], self.err.text()[-4000:]])


def run(repository, commands, **how):
    """Runs the commands in a server of their own, as Session.do() does. The genuine library is asked again, twice at most,
    when it dies. That was seen once, on a busy machine, between two loads: pthread_mutex_lock() of 0xa0, and neither
    embed.c nor the backend identity has a mutex that may be there."""
    for tries_left in (2, 1, 0):
        session = Session(repository, **how)
        try:
            with session:
                return session.do(*commands)
        except AssertionError:
            if not (session.genuine and session.process.returncode == -signal.SIGSEGV and tries_left):
                raise
            warnings.warn(f"the genuine library is asked again: {session.story([])}", stacklevel=2)


def is_log(line):
    return line[:1] in "IWEV" and line[1:5].isdigit()


def of(lines, name):
    """The lines about one request."""
    return [line.removeprefix(f"{name} ") for line in lines if line.startswith(f"{name} ")]


def without_step(text):
    """The error of an ensemble with the text of the reference alone: Conch names the step behind it."""
    return re.sub(r"(?: \(step \d+, model '[^']*'\))+( final)?$", lambda match: match[1] or "", text)


def without_advice(lines):
    """The lines with the text of the reference alone: the reason of a failed load, and the option that would allow it, are
    advice of Conch behind that text."""
    text = r"(failed to poll from model repository|not allowed if polling is enabled)[:;].*"
    return [re.sub(text, r"\1", line) for line in lines]
