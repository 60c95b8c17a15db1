# SPDX-License-Identifier: Apache-2.0
"""Request bytes and the bytes of the answer, one file per case: see README.md."""

import pathlib
import re
import socket
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "system"))

import repository  # noqa: E402
from server import REFERENCE, Server  # noqa: E402

CASES = sorted((pathlib.Path(__file__).parent / "cases").glob("*.wire"))
ASK_HEALTH = b"GET /v2/health/live HTTP/1.1\r\nHost: wire\r\n\r\n"
ESCAPE = re.compile(rb"\\(x[0-9a-fA-F]{2}|r|n|\\|\n)")
ANY = b"$*"
OURS = re.compile(rb'\\~(.*?)(?="\})')


def unescape(text):
    plain = {b"r": b"\r", b"n": b"\n", b"\\": b"\\", b"\n": b""}
    return ESCAPE.sub(lambda m: plain.get(m[1]) if m[1] in plain else bytes([int(m[1][1:], 16)]), text)


def message(text, raw):
    """The bytes of a section of a file."""
    if raw:
        return unescape(text.replace(b"\n", b""))
    head, _, body = text.partition(b"\n\n")
    body = OURS.sub(b"" if REFERENCE else rb"\1", body.removesuffix(b"\n"))
    json_part, mark, _ = body.partition(b"\\^")
    body = unescape(body.replace(b"\\^", b""))
    lines = []
    for line in unescape(head.rstrip(b"\n")).split(b"\n"):
        name, colon, value = line.partition(b": ")
        if colon and value == b"$":
            line = name + b": %d" % len(body)
        elif colon and value == b"$N":
            assert mark, "no mark in the body"
            line = name + b": %d" % len(unescape(json_part))
        lines.append(line)
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


class Case:
    def __init__(self, path):
        self.requests, self.answers = [], []
        self.closes, self.reference = False, True
        parts = re.split(rb"^(>>>|<<<)( raw)?\n", path.read_bytes(), flags=re.M)
        for line in parts[0].splitlines():
            self.closes |= line == b"closes"
            self.reference &= not line.startswith(b"reference: differs")
        assert parts[0].startswith(b"why: "), "say why"
        for kind, raw, text in zip(parts[1::3], parts[2::3], parts[3::3]):
            (self.requests if kind == b">>>" else self.answers).append(message(text, raw))
        assert self.requests


def receive(connection, enough):
    """Reads bytes until enough(them) or the end of the connection."""
    got = b""
    while not enough(got):
        try:
            chunk = connection.recv(65536)
        except TimeoutError:
            raise AssertionError(f"the answer stops after {got!r}") from None
        except ConnectionResetError:    # the kernel gives first what came before
            return got
        if not chunk:
            return got
        got += chunk
    return got


def pattern(answer):
    return b".*?".join(re.escape(part) for part in answer.split(ANY))


def split_answers(data):
    """(status, body) of each answer in data."""
    found = []
    while data:
        head, _, data = data.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
        n = int(length[1]) if length and not head.startswith(b"HTTP/1.1 100") else 0
        found.append((head.split(b" ")[1], data[:n]))
        data = data[n:]
    return found


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with Server(repository.write_standard(tmp_path_factory.mktemp("wire"))) as running:
        yield running


def exchange(server, case, size):
    """Returns the answer to the case's requests, sent in pieces of that size."""
    expected = b"".join(case.answers)
    exact = re.compile(pattern(expected), re.S)
    with socket.create_connection((server.address, server.port), timeout=60) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        data = b"".join(case.requests)
        try:
            for at in range(0, len(data), size):
                connection.sendall(data[at : at + size])
        except (BrokenPipeError, ConnectionResetError):    # the server waits two seconds for the rest of what it does not read
            assert case.closes
        if case.closes:
            return receive(connection, lambda _: False)
        got = receive(connection, lambda got: exact.fullmatch(got) or not maybe(got, expected))
        if exact.fullmatch(got):
            connection.sendall(ASK_HEALTH)
            health = receive(connection, lambda got: got.endswith(b"\r\n\r\n"))
            assert health.startswith(b"HTTP/1.1 200 OK\r\n"), f"the connection does not go on: {health!r}"
        return got


def maybe(got, expected):
    """May more bytes still make it the expected answer?"""
    fixed = expected.partition(ANY)[0]
    return ANY in expected or len(got) < len(expected) and fixed.startswith(got[: len(fixed)])


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_each_case_has_its_answer(server, path):
    case = Case(path)
    if REFERENCE:
        if not case.reference:
            pytest.skip("differs from the genuine server")
        with socket.create_connection((server.address, server.port), timeout=60) as connection:
            connection.sendall(b"".join(case.requests))
            expected = split_answers(b"".join(case.answers))
            got = receive(connection, lambda got: len(split_answers(got)) >= len(expected))
            assert split_answers(got) == expected
        return
    exact = re.compile(pattern(b"".join(case.answers)), re.S)
    n_bytes = sum(map(len, case.requests))
    for size in (n_bytes, 1) if n_bytes < 2000 else (n_bytes, 97):
        got = exchange(server, case, size)
        if not exact.fullmatch(got):
            assert got == b"".join(case.answers), f"in pieces of {size}"


def test_there_are_cases():
    assert len(CASES) >= 80
