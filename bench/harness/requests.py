# SPDX-License-Identifier: Apache-2.0
"""KServe v2 requests as bytes, and the check of their replies."""

import gzip
import json
import math
import random
import struct


class Request:
    """One prepared request. `check(body)` returns what is wrong with a reply's body, or None.

    answers: that each reply has, such as events
    is_fresh: each has other numbers in its last tensor
    """

    is_fresh = False

    def __init__(self, name, wire, check, answers=1):
        self.name = name
        self.wire = wire
        self.check = check
        self.answers = answers

    @property
    def path(self):
        return self.wire.split(b" ", 2)[1].decode()

    @property
    def model(self):
        """Of an inference request."""
        return self.path.split("/")[3]

    @property
    def method(self):
        return self.wire.split(b" ", 1)[0].decode()

    @property
    def headers(self):
        lines = self.wire.split(b"\r\n\r\n", 1)[0].decode().split("\r\n")[1:]
        return dict(line.split(": ", 1) for line in lines)

    @property
    def body(self):
        return self.wire.split(b"\r\n\r\n", 1)[1]


def get(path):
    wire = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()
    return Request("GET " + path, wire, lambda body: None)


def floats(n):
    """FP32 values of seven digits, like the pixels of a normalised picture."""
    rng = random.Random(n)
    return [round(rng.uniform(-2.7, 2.7), 6) for _ in range(n)]


def floats_as_bytes(n):
    """The same as FP32."""
    return struct.pack(f"<{n}f", *floats(n))


def _post(model, headers, body, what="infer"):
    head = [f"POST /v2/models/{model}/{what} HTTP/1.1", "Host: 127.0.0.1"]
    head += [f"{name}: {value}" for name, value in headers.items()]
    head += [f"Content-Length: {len(body)}", "", ""]
    return "\r\n".join(head).encode() + body


def binary(name, model, tensors, outputs, expect, classes=0):
    """An infer request with binary tensors both ways, the form that tritonclient sends by default.

    tensors: {name: (shape, values)}; outputs: requested names; expect: the values of the last output, compared as FP32,
    or None if only its presence is known; classes: so many of the best are requested instead.
    """
    more = {"classification": classes} if classes else {}
    inputs, tail = [], b""
    for tensor, (shape, values) in tensors.items():
        data = struct.pack(f"<{len(values)}f", *values)
        inputs.append({"name": tensor, "shape": shape, "datatype": "FP32",
                       "parameters": {"binary_data_size": len(data)}})
        tail += data
    head = json.dumps({
        "inputs": inputs,
        "outputs": [{"name": o, "parameters": {"binary_data": True, **more}} for o in outputs],
    }, separators=(",", ":")).encode()
    headers = {"Content-Type": "application/octet-stream",
               "Inference-Header-Content-Length": len(head)}

    def check(body):
        if expect is None:
            return None if outputs[-1].encode() in body else f"no {outputs[-1]} in the reply"
        data = struct.pack(f"<{len(expect)}f", *expect)
        return None if body.endswith(data) else f"{outputs[-1]} is not what was sent"

    return Request(name, _post(model, headers, head + tail), check)


def as_json(name, model, tensor, shape, values, output, headers=None):
    """The same as JSON text, both ways."""
    body = json.dumps({
        "inputs": [{"name": tensor, "shape": shape, "datatype": "FP32", "data": values}],
        "outputs": [{"name": output, "parameters": {"binary_data": False}}],
    }, separators=(",", ":")).encode()

    def check(reply):
        data = json.loads(reply)["outputs"][0]["data"]
        if len(data) != len(values):
            return f"{len(data)} values, {len(values)} were sent"
        for sent, got in zip(values, data):
            if not math.isclose(sent, got, rel_tol=1e-6, abs_tol=1e-9):
                return f"{output} has {got} where {sent} was sent"
        return None

    return Request(name, _post(model, {"Content-Type": "application/json", **(headers or {})}, body), check)


def post_json(name, model, body, check):
    """An infer request of that JSON text."""
    return Request(name, _post(model, {"Content-Type": "application/json"}, body), check)


def small_json():
    """64 bytes as JSON both ways."""
    return as_json("64 B, JSON", "small", "INPUT0", SMALL_SHAPE, floats(math.prod(SMALL_SHAPE)), "OUTPUT0")


def generate():
    """The same numbers as a flat object."""
    values = floats(math.prod(SMALL_SHAPE))

    def check(reply):
        got = json.loads(reply)["OUTPUT0"]
        same = len(got) == len(values) and all(math.isclose(a, b, rel_tol=1e-6) for a, b in zip(values, got))
        return None if same else f"OUTPUT0 is {got}"

    body = json.dumps({"INPUT0": values}, separators=(",", ":")).encode()
    return Request("64 B, generate", _post("small", {"Content-Type": "application/json"}, body, "generate"), check)


def events(n):
    """One generate_stream, n events from the decoupled model `many`."""
    body = json.dumps({"IN": list(range(n)), "DELAY": [0] * n, "WAIT": 0}, separators=(",", ":")).encode()

    def check(reply):
        seen = [json.loads(line[6:])["OUT"] for line in reply.decode().splitlines() if line.startswith("data: ")]
        return None if seen == list(range(n)) else f"{len(seen)} events, or not in order"

    return Request(f"{n} events", _post("many", {"Content-Type": "application/json"}, body, "generate_stream"), check, answers=n)


def by_regions(check, names):
    """602 112 bytes in and out, both in a region of shared memory; names: of the input's and the output's region."""
    parts = [{"shared_memory_region": name, "shared_memory_byte_size": 4 * math.prod(IMAGE_SHAPE)} for name in names]
    body = json.dumps({
        "inputs": [{"name": "INPUT0", "shape": IMAGE_SHAPE, "datatype": "FP32", "parameters": parts[0]}],
        "outputs": [{"name": "OUTPUT0", "parameters": parts[1]}],
    }, separators=(",", ":")).encode()
    return Request("602 kB by regions", _post("image", {"Content-Type": "application/json"}, body), check)


def packed(plain):
    """The same request packed with gzip, whose answer is to be packed, too."""
    headers = {**plain.headers, "Content-Encoding": "gzip", "Accept-Encoding": "gzip"}
    del headers["Host"], headers["Content-Length"]
    return Request(plain.name + ", gzip", _post(plain.model, headers, gzip.compress(plain.body, 6)),
                   lambda body: plain.check(gzip.decompress(body)))


SMALL_SHAPE = [16]
CLASSES_SHAPE = [1000]
IMAGE_SHAPE = [1, 3, 224, 224]


def small(model="small"):
    """64 bytes in, 64 bytes out."""
    values = floats(16)
    return binary("64 B, binary", model, {"INPUT0": (SMALL_SHAPE, values)}, ["OUTPUT0"], values)


def fresh(request):
    """The same with numbers that no request before had."""
    request.is_fresh = True
    request.name += ", all different"
    request.check = lambda reply: None if b'"OUTPUT0"' in reply and len(reply) > 64 else "OUTPUT0 is missing"
    return request


def batched(model):
    """The same for a model whose first dimension is the batch."""
    values = floats(16)
    return binary(f"64 B to {model}", model, {"INPUT0": ([1, *SMALL_SHAPE], values)}, ["OUTPUT0"], values)


def image(model="image"):
    """602 112 bytes in and out."""
    values = floats(math.prod(IMAGE_SHAPE))
    return binary("602 kB, binary", model, {"INPUT0": (IMAGE_SHAPE, values)}, ["OUTPUT0"], values)


def image_json():
    values = floats(math.prod(IMAGE_SHAPE))
    return as_json("602 kB, JSON", "image", "INPUT0", IMAGE_SHAPE, values, "OUTPUT0")


def image_json_shortest():
    """The same from a client that asks for shortest floats; Triton ignores that and prints as always."""
    values = floats(math.prod(IMAGE_SHAPE))
    return as_json("602 kB, JSON, shortest floats", "image", "INPUT0", IMAGE_SHAPE, values, "OUTPUT0",
                   {"Accept": "application/json; floats=shortest"})


def scores(classes=0):
    """1 000 numbers in; the same numbers out, or the best of them as classes."""
    values = floats(math.prod(CLASSES_SHAPE))
    what = f"the best {classes} of 1 000" if classes else "1 000 numbers"
    return binary(what, "scores", {"INPUT0": (CLASSES_SHAPE, values)}, ["OUTPUT0"], None if classes else values, classes)


def sink():
    """602 112 bytes in, 4 bytes out: only the other input is requested."""
    tensors = {"INPUT0": (IMAGE_SHAPE, floats(math.prod(IMAGE_SHAPE))), "INPUT1": ([1], [0.5])}
    return binary("602 kB in, 4 B out", "sink", tensors, ["OUTPUT1"], [0.5])
