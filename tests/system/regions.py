# SPDX-License-Identifier: Apache-2.0
"""Shared memory of a client, and requests that name it, for the tests of shared memory."""

import http.client
import json
import mmap
import os
import pathlib
import secrets

FOLDER = pathlib.Path("/dev/shm")


class Object:
    """An object of shm_open() with a name of its own."""

    def __init__(self, n_bytes, name=None):
        self.name = name or f"conch_test_{os.getpid()}_{secrets.token_hex(6)}"
        self.key = "/" + self.name
        self.file = FOLDER / self.name
        descriptor = os.open(self.file, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        os.ftruncate(descriptor, n_bytes)
        self.map = mmap.mmap(descriptor, n_bytes) if n_bytes else None
        os.close(descriptor)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.map:
            self.map.close()
        self.file.unlink(missing_ok=True)

    def write(self, data, offset=0):
        self.map[offset:offset + len(data)] = data

    def read(self, n_bytes, offset=0):
        return self.map[offset:offset + n_bytes]

    def resize(self, n_bytes):
        os.truncate(self.file, n_bytes)


def ask(server, method, path, body=None):
    """The status and the text of an answer."""
    host, port = server.url.removeprefix("http://").split(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=60)
    text = body if body is None or isinstance(body, (str, bytes)) else json.dumps(body)
    connection.request(method, path, text)
    answer = connection.getresponse()
    read = answer.read().decode()
    connection.close()
    return answer.status, read


def register(server, name, key, n_bytes, offset=0):
    return ask(server, "POST", f"/v2/systemsharedmemory/region/{name}/register",
               {"key": key, "offset": offset, "byte_size": n_bytes})


def unregister(server, name=None):
    where = f"/region/{name}" if name else ""
    return ask(server, "POST", f"/v2/systemsharedmemory{where}/unregister")


def status(server, name=None, kind="system"):
    where = f"/region/{name}" if name else ""
    return ask(server, "GET", f"/v2/{kind}sharedmemory{where}/status")


def part(region, n_bytes, offset=None):
    """The parameters of a tensor that lies there."""
    made = {"shared_memory_region": region, "shared_memory_byte_size": n_bytes}
    return made if offset is None else {**made, "shared_memory_offset": offset}


def infer(server, model, inputs, outputs=None):
    """inputs: (name, datatype, shape, parameters); outputs: (name, parameters)"""
    body = {"inputs": [{"name": n, "datatype": d, "shape": s, "parameters": p} for n, d, s, p in inputs]}
    if outputs:
        body["outputs"] = [{"name": n, "parameters": p} for n, p in outputs]
    return ask(server, "POST", f"/v2/models/{model}/infer", body)
