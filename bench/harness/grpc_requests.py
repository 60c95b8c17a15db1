# SPDX-License-Identifier: Apache-2.0
"""gRPC requests as bytes of protobuf, and the check of their answers. inference.proto has the numbers of the fields."""

import math
import struct

from .requests import IMAGE_SHAPE, SMALL_SHAPE, floats

UNARY = "/inference.GRPCInferenceService/ModelInfer"
STREAM = "/inference.GRPCInferenceService/ModelStreamInfer"


def varint(n):
    out = b""
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def field(number, value):
    """A field with bytes or a text."""
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def fields_of(data):
    """The fields of a message, {number: [values]}: bytes, or numbers."""
    found, at = {}, 0

    def number():
        nonlocal at
        n = shift = 0
        while True:
            byte = data[at]
            at += 1
            n |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return n

    while at < len(data):
        tag = number()
        value = number()
        if tag & 7 == 2:
            value, at = data[at:at + value], at + value
        elif tag & 7:
            raise ValueError(f"wire type {tag & 7}")
        found.setdefault(tag >> 3, []).append(value)
    return found


class GrpcRequest:
    """One prepared message. `check(body)` returns what is wrong with the first answer, or None.

    answers: messages that answer one request of a stream; stream: the method is ModelStreamInfer
    same: whether all answers are equal
    """

    def __init__(self, name, model, wire, check, stream=False, answers=1, same=True):
        self.name, self.model, self.wire, self.check = name, model, wire, check
        self.stream, self.answers, self.same = stream, answers, same

    def arguments(self):
        """For bench_grpc_load."""
        argv = ["--method", STREAM if self.stream else UNARY]
        if self.stream:
            argv += ["--answers", str(self.answers)]
        return argv + ([] if self.same else ["--verify", "0"])


def _message(model, tensors, outputs):
    """tensors: {name: (datatype, shape, bytes)}"""
    parts = [field(1, model)]
    for name, (datatype, shape, _data) in tensors.items():
        dims = b"".join(varint(n) for n in shape)
        parts.append(field(5, field(1, name) + field(2, datatype) + field(3, dims)))
    parts += [field(6, field(1, name)) for name in outputs]
    parts += [field(7, data) for _type, _shape, data in tensors.values()]
    return b"".join(parts)


def _check_raw(expect, stream):
    def check(body):
        response = fields_of(body)
        if stream:
            if 1 in response:
                return response[1][0].decode()
            response = fields_of(response[2][0])
        return None if response.get(6) == [expect] else "the last output is not what was sent"
    return check


def _fp32(shape):
    values = floats(math.prod(shape))
    return "FP32", shape, struct.pack(f"<{len(values)}f", *values)


def small(stream=False):
    """64 bytes in, 64 bytes out."""
    tensor = _fp32(SMALL_SHAPE)
    wire = _message("small", {"INPUT0": tensor}, ["OUTPUT0"])
    return GrpcRequest("64 B in a stream" if stream else "64 B", "small", wire, _check_raw(tensor[2], stream), stream)


def _parameters(number, values):
    """A map of parameters, whose values are texts or whole numbers, as a field of this number."""
    def value(v):
        return field(3, v) if isinstance(v, str) else varint(2 << 3) + varint(v)
    return b"".join(field(number, field(1, name) + field(2, value(v))) for name, v in values.items())


def by_regions(check, names):
    """602 112 bytes in and out, both in a region of shared memory; names: of the input's and the output's region."""
    parts = [{"shared_memory_region": name, "shared_memory_byte_size": 4 * math.prod(IMAGE_SHAPE)} for name in names]
    dims = b"".join(varint(n) for n in IMAGE_SHAPE)
    given = field(1, "INPUT0") + field(2, "FP32") + field(3, dims) + _parameters(4, parts[0])
    wanted = field(1, "OUTPUT0") + _parameters(2, parts[1])
    return GrpcRequest("602 kB by regions, gRPC", "image", field(1, "image") + field(5, given) + field(6, wanted), check)


def image():
    """602 112 bytes in and out."""
    tensor = _fp32(IMAGE_SHAPE)
    wire = _message("image", {"INPUT0": tensor}, ["OUTPUT0"])
    return GrpcRequest("602 kB", "image", wire, _check_raw(tensor[2], False))


def sink():
    """602 112 bytes in, 4 bytes out: only the other input is requested."""
    tiny = ("FP32", [1], struct.pack("<f", 0.5))
    wire = _message("sink", {"INPUT0": _fp32(IMAGE_SHAPE), "INPUT1": tiny}, ["OUTPUT1"])
    return GrpcRequest("602 kB in, 4 B out", "sink", wire, _check_raw(tiny[2], False))


def many(n):
    """One request of a stream, n responses of 4 bytes from the decoupled model `many`."""
    tensors = {"IN": ("INT32", [n], struct.pack(f"<{n}i", *range(n))),
               "DELAY": ("UINT32", [n], bytes(4 * n)),
               "WAIT": ("UINT32", [1], bytes(4))}
    wire = _message("many", tensors, ["OUT"])
    return GrpcRequest(f"{n} responses", "many", wire, _check_raw(bytes(4), True), stream=True, answers=n, same=False)
