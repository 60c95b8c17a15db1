# SPDX-License-Identifier: Apache-2.0
"""probe.py PORT SECONDS: asks for /v2/health/live every 5 ms, each fifth time on a new connection, and prints one JSON
object: the milliseconds of each question, and the errors.

It prints a line when its connections are open, and begins at the time (of the monotonic clock) that it then reads, so
that probes of two servers ask at the same instants. Sixteen threads ask in turn, so that a question that waits does not
delay the next ones. The time of a question counts from when it was due. A question without an answer for ten seconds is
an error; a minute after SECONDS no more questions are asked.
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


def ask_some(port, kept, first, start, last, times, errors):
    """Asks every THREADS-th question, from the first one on."""
    for i in range(first, len(times), THREADS):
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
        times[i] = (time.monotonic() - due) * 1e3


def main(port, seconds):
    times, errors = [None] * int(seconds / EVERY_S), []
    kept = [connect(port) for _ in range(THREADS)]
    print("ready", flush=True)
    start = float(sys.stdin.readline())
    last = start + seconds + 60
    threads = [threading.Thread(target=ask_some, args=(port, kept[i], i, start, last, times, errors)) for i in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(json.dumps({"ms": times, "errors": errors}))


main(int(sys.argv[1]), float(sys.argv[2]))
