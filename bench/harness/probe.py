# SPDX-License-Identifier: Apache-2.0
"""probe.py PORT SECONDS: asks for /v2/health/live every 5 ms, each fifth time on a new connection, and prints one JSON object.

The time of a question counts from when it should have been asked: while one waits, those behind it wait, too. A question
without an answer for ten seconds is an error; after a minute more than SECONDS no further one is asked.
"""

import contextlib
import json
import socket
import sys
import time

EVERY_S = 0.005
REQUEST = b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n"


def connect(port):
    s = socket.create_connection(("127.0.0.1", port), timeout=10)
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return s


def ask(s):
    s.sendall(REQUEST)
    reply = b""
    while b"\r\n\r\n" not in reply:
        more = s.recv(4096)
        if not more:
            raise EOFError("the server closed the connection")
        reply += more
    if not reply.startswith(b"HTTP/1.1 200 "):
        raise ValueError(reply[:80])


def main(port, seconds):
    kept, times, errors = connect(port), [], []
    start = time.monotonic()
    n = int(seconds / EVERY_S)
    for i in range(n):
        due = start + i * EVERY_S
        if time.monotonic() > start + seconds + 60:
            n = i
            break
        time.sleep(max(0.0, due - time.monotonic()))
        try:
            if i % 5 == 4:
                kept.close()
                kept = connect(port)
            ask(kept)
        except (OSError, EOFError, ValueError) as error:
            errors.append(repr(error))
            kept.close()
            with contextlib.suppress(OSError):
                kept = connect(port)
        times.append((time.monotonic() - due) * 1e3)
    times.sort()
    print(json.dumps({"n": n, "errors": len(errors), "first_error": errors[:1], "p50_ms": times[n // 2],
                      "p99_ms": times[n * 99 // 100], "max_ms": times[-1]}))


main(int(sys.argv[1]), float(sys.argv[2]))
