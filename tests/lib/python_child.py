# SPDX-License-Identifier: Apache-2.0
"""The server's part towards the process of a Python model, in Python: for tests of that process alone.

Child starts it with the four descriptors of backends/python/protocol.h, gives commands, and takes what it says apart.
Memory of the server is never used twice, so a test sees each block that the process has given back.
"""

import ctypes
import fcntl
import mmap
import os
import pathlib
import select
import socket
import struct
import subprocess
import time

BUILD = pathlib.Path(os.environ.get("CONCH_BUILD_DIR", pathlib.Path(__file__).parents[2] / "build/release"))
FOLDER = BUILD / "backends/python"
WITHIN_S = 60

VERSION = 4    # of the protocol
COMPLETE, INITIALIZE, EXECUTE, FINALIZE = 1, 2, 3, 4
(HELLO, COMPLETED, INITIALIZED, RESPONSE, LOG, DROP_REQUEST, IS_CANCELLED, CALL, CALL_CANCEL, LOAD_MODEL, UNLOAD_MODEL,
 IS_MODEL_READY, FAMILY_NEW, FAMILY_DELETE, METRIC_NEW, METRIC_DELETE, METRIC_INCREMENT, METRIC_SET, METRIC_OBSERVE,
 METRIC_VALUE) = range(1, 21)
REPLY, CALL_RESPONSE, IS_READY = 100, 101, 102
READINESS = 200
NONE, ERROR, TENSORS = 0, 1, 2
FINAL = LAST = 1

TYPES = {"BOOL": 1, "UINT8": 2, "UINT16": 3, "UINT32": 4, "UINT64": 5, "INT8": 6, "INT16": 7, "INT32": 8, "INT64": 9,
         "FP16": 10, "FP32": 11, "FP64": 12, "BYTES": 13, "BF16": 14}
NAMES = {number: name for name, number in TYPES.items()}

_BELL = struct.calcsize("IIQQ5Q")
_COMMAND, _ANSWER, _RETURNED, _SIZES, _SLOTS = 0, _BELL, 2 * _BELL, 3 * _BELL, 4 * _BELL
SLOTS = 32
_FILLED = 2    # a slot
_SYS_FUTEX = {"x86_64": 202, "aarch64": 98}[os.uname().machine]
_libc = ctypes.CDLL(None, use_errno=True)


def pack_strings(strings):
    return b"".join(struct.pack("<I", len(s)) + s for s in strings)


def unpack_strings(data):
    strings, at = [], 0
    while at < len(data):
        (n,) = struct.unpack_from("<I", data, at)
        strings.append(data[at + 4:at + 4 + n])
        at += 4 + n
    return strings


class Reader:
    """Fields of a message."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, form):
        (value,) = struct.unpack_from("<" + form, self.data, self.at)
        self.at += struct.calcsize("<" + form)
        return value

    def str(self):
        n = self.take("I")
        self.at += n
        assert self.at <= len(self.data)
        return self.data[self.at - n:self.at].decode()


def text(value):
    data = value if isinstance(value, bytes) else value.encode()
    return struct.pack("<I", len(data)) + data


def u8(value):
    return struct.pack("<B", value)


def u32(value):
    return struct.pack("<I", value)


def u64(value):
    return struct.pack("<Q", value)


class Tensor:
    def __init__(self, name, datatype, shape, data):
        self.name, self.datatype, self.shape, self.data = name, datatype, list(shape), bytes(data)

    def __repr__(self):
        return f"Tensor({self.name}, {self.datatype}, {self.shape}, {len(self.data)} bytes)"


class Response:
    """What the child answers: kind, and `error` (code, text), `tensors` {name: Tensor}, or release_flags."""

    def __init__(self, kind, **has):
        self.kind = kind
        self.error, self.tensors, self.parameters, self.release_flags = None, {}, "", 0
        self.__dict__.update(has)


class Note:
    def __init__(self, kind, ident, reader):
        self.kind, self.id, self.reader = kind, ident, reader


class Child:
    """A process that serves the model of a folder: with `model`, the text of its model.py, as version 1."""

    def __init__(self, root, model=None, python="python3", up=(65536, 65536, 1 << 30), environment=None, decoupled=False,
                 name="m", file="model.py", more=None):
        self.version = pathlib.Path(root) / name / "1"
        self.version.mkdir(parents=True, exist_ok=True)
        if model is not None:
            (self.version / "model.py").write_text(model)
        self.name, self.file, self.decoupled, self.more = name, file, decoupled, more or {}
        self.socket, its_socket = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        page, self.down, self.up = (os.memfd_create(n, os.MFD_ALLOW_SEALING) for n in ("page", "down", "up"))
        os.ftruncate(page, 4096)
        self.page = mmap.mmap(page, 4096)
        self.page[_SIZES:_SIZES + 32] = struct.pack("<4Q", *up, 1 << 34)
        self.used = 0
        self.blocks = []
        self.event = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.process = self._start(python, (its_socket.fileno(), page, self.down, self.up, self.event), environment)
        its_socket.close()
        os.close(page)
        self.stashed = []
        self.answers = 0

    @staticmethod
    def _start(python, descriptors, environment):
        """The descriptors become 3 to 7.

        bash moves them. A preexec_fn would run in a copy of this process, where threads of gRPC's library run their handlers
        of fork() and then write to stderr.
        """
        high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 60) for fd in descriptors]
        moves = " ".join(f"{3 + i}<&{fd} {fd}<&-" for i, fd in enumerate(high))
        try:
            return subprocess.Popen(["bash", "-c", f'exec "$@" {moves}', "bash", python, FOLDER / "start.py"], pass_fds=high,
                                    env={**os.environ, **(environment or {})}, stderr=subprocess.PIPE, stdout=subprocess.PIPE)
        finally:
            for fd in high:
                os.close(fd)

    # Memory.

    def put(self, data):
        """A block of ours; returns its offset."""
        at = self.used + 64
        self.used = (at + max(len(data), 1) + 63) // 64 * 64
        os.ftruncate(self.down, (self.used + 4095) // 4096 * 4096)
        os.pwrite(self.down, data, at)
        os.pwrite(self.down, b"\1\0\0\0", at - 64)
        self.blocks.append(at)
        return at

    def is_back(self, at):
        return os.pread(self.down, 4, at - 64) == bytes(4)

    def all_back(self):
        return all(self.is_back(at) for at in self.blocks)

    def get(self, at, size):
        data = os.pread(self.up, size, at)
        assert len(data) == size, "the child names memory that it does not have"
        return data

    def give_back(self, at):
        assert os.pread(self.up, 4, at - 64) == b"\1\0\0\0", "the child has not handed this block over"
        os.pwrite(self.up, bytes(4), at - 64)
        (returned,) = struct.unpack_from("<I", self.page, _RETURNED)
        struct.pack_into("<I", self.page, _RETURNED, (returned + 1) & 0xffffffff)
        if struct.unpack_from("<I", self.page, _RETURNED + 4)[0]:
            self._wake(_RETURNED)

    # Bells and notes.

    def _address(self, offset):
        return ctypes.addressof(ctypes.c_char.from_buffer(self.page, offset))

    def _wake(self, offset):
        _libc.syscall(_SYS_FUTEX, ctypes.c_void_p(self._address(offset)), 1, 1, None, None, 0)

    def _word(self, bell):
        return struct.unpack_from("<I", self.page, bell)[0]

    def command(self, message, by_event=False):
        at = self.put(message)
        struct.pack_into("<QQQQ", self.page, _COMMAND + 8, at, len(message), 0, by_event)
        struct.pack_into("<I", self.page, _COMMAND, self._word(_COMMAND) + 1)
        self._wake(_COMMAND)
        return at

    def raw_answer(self):
        """Waits for the answer bell; the message's bytes, and its offset."""
        class Timespec(ctypes.Structure):
            _fields_ = [("s", ctypes.c_long), ("ns", ctypes.c_long)]
        until = time.monotonic() + WITHIN_S
        while self._word(_ANSWER) == self.answers:
            assert time.monotonic() < until, "no answer"
            assert self.process.poll() is None, self.end()
            struct.pack_into("<I", self.page, _ANSWER + 4, 1)
            _libc.syscall(_SYS_FUTEX, ctypes.c_void_p(self._address(_ANSWER)), 0, self.answers, ctypes.byref(Timespec(0, 100000000)),
                          None, 0)
        self.answers = self._word(_ANSWER)
        at, size, self.more_bytes = struct.unpack_from("<QQQ", self.page, _ANSWER + 8)
        return self.get(at, size), at

    def events(self):
        """How often the child has added to the eventfd since the last call."""
        try:
            return os.eventfd_read(self.event)
        except BlockingIOError:
            return 0

    def note(self, kind=None, within_s=WITHIN_S):
        """The next note, or the next one of this kind; others wait for their turn."""
        for i, stashed in enumerate(self.stashed):
            if kind in (None, stashed.kind):
                return self.stashed.pop(i)
        until = time.monotonic() + within_s
        while True:
            waits = select.poll()    # of any descriptor, select() only of the first 1 024
            waits.register(self.socket, select.POLLIN)
            if not waits.poll(max(0, until - time.monotonic()) * 1000):
                raise TimeoutError(f"no note of kind {kind}")
            data = self.socket.recv(64)
            assert len(data) == 32, self.end()
            what, n_blocks, ident, at, size = struct.unpack("<IIQQQ", data)
            note = Note(what, ident, self.get(at, size) if n_blocks else b"")
            if n_blocks and what not in (RESPONSE, CALL):
                self.give_back(at)
                note.reader = Reader(note.reader)
            elif n_blocks:
                note.at, note.reader = at, Reader(note.reader)
            if kind in (None, what):
                return note
            self.stashed.append(note)

    def send(self, kind, ident, message=b""):
        at = self.put(message) if message else 0
        self.socket.send(struct.pack("<IIQQQ", kind, bool(message), ident, at, len(message)))

    def reply(self, question, fields=b"", error=None):
        self.send(REPLY, question.id, u8(1) + u32(error[0]) + text(error[1]) if error else u8(0) + fields)

    # Commands.

    def _model(self, command):
        arguments = {"model_config": '{"name": "%s", "max_batch_size": 0, "input": [], "output": []}' % self.name,
                     "model_instance_kind": "CPU", "model_instance_name": f"{self.name}_0_0", "model_instance_device_id": "0",
                     "model_repository": str(self.version.parent), "model_version": "1", "model_name": self.name, **self.more}
        return (u32(command) + text(str(self.version)) + text(self.file) + u32(len(arguments))
                + b"".join(text(k) + text(v) for k, v in arguments.items()))

    def _verdict(self, note):
        return note.reader.str() if note.reader.take("B") else None

    def initialize(self, greets=True):
        """None, or the error's text. It greets but once."""
        assert not greets or self.note(HELLO).id == VERSION
        self.command(self._model(INITIALIZE) + u8(self.decoupled) + u8(0))
        note = self.note(INITIALIZED)
        error = self._verdict(note)
        if error is None:
            self.has_is_ready = bool(note.reader.take("B"))
        return error

    def complete(self):
        """(error's text or None, completed configuration)."""
        assert self.note(HELLO).id == VERSION
        self.command(self._model(COMPLETE))
        note = self.note(COMPLETED)
        error = self._verdict(note)
        config = None if error else note.reader.str()
        self.goes_on = bool(error is None and note.reader.take("B"))
        return error, config

    def tensor(self, tensor, message_at, offset):
        """Its fields, and its bytes at an offset of the message at message_at; both bytes."""
        fields = (text(tensor.name) + u32(TYPES[tensor.datatype]) + u32(len(tensor.shape))
                  + b"".join(struct.pack("<q", n) for n in tensor.shape)
                  + struct.pack("<QQQ", len(tensor.data), message_at + offset, 0))
        return fields

    def request(self, key=1, inputs=(), outputs=("OUT",), ident="", correlation=0, flags=0, timeout=0, priority=0,
                parameters="", trace="", own_blocks=True):
        """Fields of a request; tensors lie in blocks of their own."""
        if isinstance(correlation, str):
            correlated = u8(2) + text(correlation)
        else:
            correlated = u8(1) + u64(correlation) if correlation else u8(0)
        fields = (u64(key) + text(ident) + correlated + u32(flags) + u64(timeout) + u64(priority) + text(parameters) + text(trace)
                  + u32(len(outputs)) + b"".join(map(text, outputs)) + u32(len(inputs)))
        for tensor in inputs:
            fields += self.tensor_fields(tensor)
        return fields

    def tensor_fields(self, tensor):
        at = self.put(tensor.data)
        return (text(tensor.name) + u32(TYPES[tensor.datatype]) + u32(len(tensor.shape))
                + b"".join(struct.pack("<q", n) for n in tensor.shape) + struct.pack("<QQQ", len(tensor.data), at, at))

    def start(self, *requests, by_event=False):
        """Begins to execute a batch of request()s."""
        return self.command(u32(EXECUTE) + u32(len(requests)) + b"".join(requests), by_event)

    def execute(self, *requests):
        """The answer: an error's text, or a list of Responses."""
        self.start(*requests)
        return self.answer()

    def answer(self):
        data, at = self.raw_answer()
        reader = Reader(data)
        answer = reader.str() if reader.take("B") else [self.response(reader) for _ in range(reader.take("I"))]
        self.give_back(at)
        return answer

    def run(self, *inputs, **request):
        """The tensors that the model makes of one request; an error fails the test."""
        answer = self.execute(self.request(inputs=inputs, **request))
        assert isinstance(answer, list), answer
        assert answer[0].error is None, answer[0].error
        return answer[0].tensors

    def response(self, reader):
        kind = reader.take("B")
        if kind == NONE:
            return Response(kind, release_flags=reader.take("I"))
        if kind == ERROR:
            return Response(kind, error=(reader.take("I"), reader.str()))
        parameters = reader.str()
        tensors = [self.read_tensor(reader) for _ in range(reader.take("I"))]
        return Response(kind, parameters=parameters, tensors={tensor.name: tensor for tensor in tensors})

    def read_tensor(self, reader):
        name, datatype = reader.str(), NAMES[reader.take("I")]
        shape = [reader.take("q") for _ in range(reader.take("I"))]
        size, at, block = (reader.take("Q") for _ in range(3))
        assert at % 64 == 0 or size == 0
        tensor = Tensor(name, datatype, shape, self.get(at, size))
        if block:
            self.give_back(block)
        return tensor

    def next_response(self):
        """A response by a sender: (key, flags, Response)."""
        note = self.note(RESPONSE)
        flags, response = note.reader.take("I"), self.response(note.reader)
        self.give_back(note.at)
        return note.id, flags, response

    def next_call(self):
        """A request of the model: a dict."""
        note = self.note(CALL)
        r = note.reader
        call = {"id": note.id, "model": r.str(), "version": r.take("q"), "parent": r.take("Q"), "decoupled": bool(r.take("B")),
                "slot": r.take("I"), "request_id": r.str()}
        kind = r.take("B")
        call["correlation"] = r.take("Q") if kind == 1 else r.str() if kind == 2 else 0
        for field, form in (("flags", "I"), ("timeout", "Q"), ("priority", "Q")):
            call[field] = r.take(form)
        call["parameters"], call["trace"], call["memory"] = r.str(), r.str(), (r.take("B"), r.take("Q"))
        call["outputs"] = [r.str() for _ in range(r.take("I"))]
        call["inputs"] = [self.read_tensor(r) for _ in range(r.take("I"))]
        self.give_back(note.at)
        return call

    def respond(self, call, tensors=(), flags=LAST, error=None, empty=False):
        """A response to a call of next_call()."""
        if error:
            fields = u8(ERROR) + u32(error[0]) + text(error[1])
        elif empty:
            fields = u8(NONE) + u32(0)
        else:
            fields = u8(TENSORS) + text("") + u32(len(tensors)) + b"".join(map(self.tensor_fields, tensors))
        slot, call["slot"] = call.get("slot"), 0
        if slot:
            self._fill(slot, u32(flags) + fields)
        else:
            self.send(CALL_RESPONSE, call["id"], u32(flags) + fields)

    def _fill(self, slot, message):
        at = _SLOTS + (slot - 1) * _BELL
        struct.pack_into("<QQ", self.page, at + 8, self.put(message), len(message))
        struct.pack_into("<I", self.page, at, _FILLED)
        self._wake(at)

    def wait(self, condition):
        until = time.monotonic() + WITHIN_S
        while not condition():
            assert time.monotonic() < until
            time.sleep(0.001)

    def finalize(self):
        """Ends it in good order; returns the exit status."""
        self.command(u32(FINALIZE))
        return self.process.wait(WITHIN_S)

    def end(self):
        """Ends it at once; returns what it has written."""
        self.socket.close()
        out, err = self.process.communicate(timeout=WITHIN_S)
        for fd in (self.down, self.up, self.event):
            os.close(fd)
        return (out + err).decode()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.socket.fileno() >= 0:
            self.end()
