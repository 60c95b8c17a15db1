# SPDX-License-Identifier: Apache-2.0
"""probe.py PORT SECONDS: asks for /v2/health/live every 5 ms, each fifth time on a new connection, and prints one JSON object.

Sixteen threads ask in turn, so that a question that waits does not keep the next ones from being asked. The time of a question
counts from when it was due. One without an answer for ten seconds is an error; after a minute more than SECONDS none is asked.
"""

import contextlib
import json
import socket
import sys
import threading
import time

EVERY_S = 0.005
THREADS = 16
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


def ask_some(port, first, n, start, last, times, errors):
    """Every THREADS-th question of n, from the first one on."""
    kept = connect(port)
    for i in range(first, n, THREADS):
        due = start + i * EVERY_S
        if time.monotonic() > last:
            return
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


def main(port, seconds):
    times, errors = [], []
    start = time.monotonic() + 0.1
    n = int(seconds / EVERY_S)
    threads = [threading.Thread(target=ask_some, args=(port, i, n, start, start + seconds + 60, times, errors)) for i in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    times.sort()
    n = len(times)
    print(json.dumps({"n": n, "errors": len(errors), "first_error": errors[:1], "p50_ms": times[n // 2],
                      "p99_ms": times[n * 99 // 100], "max_ms": times[-1]}))


main(int(sys.argv[1]), float(sys.argv[2]))
