# SPDX-License-Identifier: Apache-2.0
"""Our mapper of protobuf messages (pbtool), and two others to compare it with: Python's and C++'s."""

import importlib.util
import os
import pathlib
import subprocess

TOP = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("CONCH_BUILD_DIR", TOP / "build/release"))


def load_classes():
    """The message classes that tritonclient carries, without the gRPC package around them."""
    client = importlib.util.find_spec("tritonclient").submodule_search_locations[0]
    path = pathlib.Path(client, "grpc", "model_config_pb2.py")
    spec = importlib.util.spec_from_file_location("model_config_pb2", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


classes = load_classes()


class Ours:
    """pbtool as a process that answers many questions."""

    def __init__(self):
        self.process = subprocess.Popen([BUILD / "tests/pbtool"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def close(self):
        self.process.stdin.close()
        assert self.process.wait(60) == 0
        self.process.stdout.close()

    def ask(self, from_form, to_form, data):
        """(True, the other form) or (False, the error)."""
        self.process.stdin.write(f"{from_form} {to_form} {len(data)}\n".encode() + data)
        self.process.stdin.flush()
        head = self.process.stdout.readline().split()
        assert len(head) == 2, f"pbtool died of {from_form} {data!r}"
        body = self.process.stdout.read(int(head[1]))
        return head[0] == b"ok", body

    def message(self, from_form, data):
        """The message that the data stand for; AssertionError with our error when we refuse them."""
        fine, body = self.ask(from_form, "wire", data)
        assert fine, f"{body.decode()}\n{data!r}"
        return classes.ModelConfig.FromString(body)


def cpp(text):
    """The C++ parser's result for a text: (wire form or None, its complaints)."""
    command = ["protoc-c", f"-I{TOP}/src", "--encode=inference.ModelConfig", f"{TOP}/src/proto/model_config.proto"]
    result = subprocess.run(command, input=text, capture_output=True, check=False, timeout=60)
    complaints = result.stderr.decode(errors="replace")
    return (result.stdout if result.returncode == 0 else None), complaints
