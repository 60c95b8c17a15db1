# SPDX-License-Identifier: Apache-2.0
"""offend.py WHAT PORT [N]: a client that takes more than its share, until its standard input ends. Prints how much it got
done.

    requests MODEL    requests to the model, 8 at a time
    once MODEL        64 short requests, then one that never ends
    uploads N         N bodies of 32 MiB at a time, to the model `sink`
    huge              one body of 1.9 GB after another
    chunks            the same in chunks of 1 MiB
    loads N           load requests for m00000 to m<N-1>, as fast as they are accepted; then again
    get PATH          the path, again and again
    stalls            20 bodies of 100 MiB of which half is sent, and 10 000 silent connections
    reloads           the model m00000 loaded and unloaded in turns, each of which is logged
"""

import json
import re
import selectors
import socket
import sys
import threading
import time

PORT = int(sys.argv[2])
over = threading.Event()
done = [0]


def connect():
    return socket.create_connection(("127.0.0.1", PORT), timeout=120)


def read_reply(s, rest=b""):
    """Returns (status, the bytes behind the reply)."""
    while b"\r\n\r\n" not in rest:
        more = s.recv(1 << 16)
        if not more:
            raise EOFError
        rest += more
    head, rest = rest.split(b"\r\n\r\n", 1)
    length = next((int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")), 0)
    while len(rest) < length:
        more = s.recv(1 << 20)
        if not more:
            raise EOFError
        rest += more
    return int(head.split(b" ")[1]), rest[length:]


def again(work):
    """Calls work(connection) until the end, on a new connection whenever one is lost."""
    while not over.is_set():
        try:
            with connect() as s:
                while not over.is_set():
                    work(s)
                    done[0] += 1
        except (OSError, EOFError):
            time.sleep(0.01)


def threads(n, work):
    for _ in range(n):
        threading.Thread(target=again, args=(work,), daemon=True).start()
    over.wait()


def post(path, body, headers=""):
    return f"POST {path} HTTP/1.1\r\nHost: x\r\n{headers}Content-Length: {len(body)}\r\n\r\n".encode() + body


def infer(model, tensor="IN", datatype="INT32", shape=(1,), data=(1,)):
    body = {"inputs": [{"name": tensor, "datatype": datatype, "shape": list(shape), "data": list(data)}]}
    return post(f"/v2/models/{model}/infer", json.dumps(body).encode())


def asked(request):
    def work(s):
        s.sendall(request)
        read_reply(s)
    return work


def binary_head(n_bytes):
    head = json.dumps({
        "inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [n_bytes // 4], "parameters": {"binary_data_size": n_bytes}},
                   {"name": "INPUT1", "datatype": "FP32", "shape": [1], "data": [1]}],
        "outputs": [{"name": "OUTPUT1"}]}).encode()
    return (f"POST /v2/models/sink/infer HTTP/1.1\r\nHost: x\r\nInference-Header-Content-Length: {len(head)}\r\n"
            f"Content-Length: {len(head) + n_bytes}\r\n\r\n").encode() + head


def upload(n_bytes):
    """Sends a body in pieces of 1 MiB, so that it is not in memory as a whole."""
    head, piece = binary_head(n_bytes), bytes(1 << 20)

    def work(s):
        s.sendall(head)
        for at in range(0, n_bytes, len(piece)):
            s.sendall(piece[:n_bytes - at])
            if over.is_set():
                return
        read_reply(s)
    return work


def requests(model):
    threads(8, asked(infer(model)))


def once(model):
    request = infer(model, "N", "INT64", (1,), (1,))
    with connect() as s:
        for _ in range(64):
            s.sendall(request)
            status, _rest = read_reply(s)
            done[0] += status == 200
    s = connect()
    s.sendall(infer(model, "N", "INT64", (1,), (1 << 62,)))
    over.wait()


def uploads(n):
    threads(int(n), upload(32 << 20))


def huge():
    threads(1, upload(1_900_000_000))


def chunks():
    n_bytes = 1_900_000_000
    head, text = binary_head(n_bytes).split(b"\r\n\r\n")
    head = re.sub(rb"\r\nContent-Length: \d+", b"\r\nTransfer-Encoding: chunked", head) + b"\r\n\r\n"
    first, piece = b"%x\r\n%s\r\n" % (len(text), text), bytes(1 << 20)

    def work(s):
        s.sendall(head + first)
        for at in range(0, n_bytes, len(piece)):
            some = piece[:n_bytes - at]
            s.sendall(b"%x\r\n" % len(some))
            s.sendall(some)
            s.sendall(b"\r\n")
            if over.is_set():
                return
        s.sendall(b"0\r\n\r\n")
        read_reply(s)
    threads(1, work)


def loads(n):
    """64 connections; each asks for the next model when the last one is loaded."""
    names, lock = iter(()), threading.Lock()

    def work(s):
        nonlocal names
        with lock:
            name = next(names, None)
            if name is None:
                names = iter([f"m{i:05d}" for i in range(int(n))])
                name = next(names)
        s.sendall(post(f"/v2/repository/models/{name}/load", b""))
        read_reply(s)
    threads(64, work)


def get(path):
    threads(2, asked(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()))


def stalls():
    kept = []
    half = bytes(1 << 20)
    for _ in range(20):
        s = connect()
        s.sendall(binary_head(100 << 20))
        kept.append(s)
    for s in kept:
        s.setblocking(False)
    poll = selectors.DefaultSelector()
    left = {s: 50 for s in kept}
    for s in kept:
        poll.register(s, selectors.EVENT_WRITE)
    until = time.monotonic() + 5
    while left and time.monotonic() < until:
        for key, _events in poll.select(0.1):
            s = key.fileobj
            try:
                s.send(half)
                left[s] -= 1
            except BlockingIOError:
                continue
            except OSError:
                left[s] = 0
            if left[s] <= 0:
                poll.unregister(s)
                del left[s]
    for _ in range(10000):
        try:
            kept.append(connect())
            done[0] += 1
        except OSError:
            break
    over.wait()


def reloads():
    def work(s):
        for verb in ("load", "unload"):
            s.sendall(post(f"/v2/repository/models/m00000/{verb}", b""))
            read_reply(s)
    threads(1, work)


WHAT = {f.__name__: f for f in (requests, once, uploads, huge, chunks, loads, get, stalls, reloads)}


def until_the_end():
    print("begun", flush=True)
    sys.stdin.read()
    over.set()
    print(json.dumps({"done": done[0]}), flush=True)


threading.Thread(target=lambda: WHAT[sys.argv[1]](*sys.argv[3:]), daemon=True).start()
until_the_end()
