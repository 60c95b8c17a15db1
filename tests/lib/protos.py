# SPDX-License-Identifier: Apache-2.0
"""Messages of a .proto file for tests in Python, made while they run: nothing generated is in the repository."""

import pathlib
import subprocess
import tempfile

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory


def describe(path, root):
    """The bytes of a FileDescriptorSet of the file and of what it imports; the path, and those of imports, begin at root."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder, "set")
        subprocess.run(["protoc-c", "-I.", "--include_imports", f"--descriptor_set_out={out}", path], cwd=root, check=True)
        return out.read_bytes()


def load(path, root):
    """{full name: class} of the messages of the file and of what it imports."""
    pool = descriptor_pool.DescriptorPool()
    files = descriptor_pb2.FileDescriptorSet.FromString(describe(path, root)).file
    for file in files:
        pool.Add(file)
    return message_factory.GetMessageClassesForFiles([file.name for file in files], pool)
