# SPDX-License-Identifier: Apache-2.0
"""Our .proto against the message classes of the unmodified client: names, numbers, types, labels, oneofs."""

import subprocess

from google.protobuf import descriptor_pb2

from mapper import TOP, classes


def normal(message):
    for field in message.field:
        field.ClearField("json_name")
    for nested in message.nested_type:
        normal(nested)


def count_fields(message):
    if message.options.map_entry:
        return 0
    return len(message.field) + sum(count_fields(nested) for nested in message.nested_type)


def test_schema(tmp_path):
    out = tmp_path / "set"
    subprocess.run(["protoc-c", f"-I{TOP}/src", f"--descriptor_set_out={out}", f"{TOP}/src/proto/model_config.proto"],
                   check=True)
    ours = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes()).file[0]
    theirs = descriptor_pb2.FileDescriptorProto()
    classes.DESCRIPTOR.CopyToProto(theirs)
    for message in [*ours.message_type, *theirs.message_type]:
        normal(message)

    assert ours.package == theirs.package
    assert ours.syntax == theirs.syntax
    assert list(ours.enum_type) == list(theirs.enum_type)
    ours_by_name = {message.name: message for message in ours.message_type}
    theirs_by_name = {message.name: message for message in theirs.message_type}
    assert ours_by_name.keys() == theirs_by_name.keys()
    for name, message in ours_by_name.items():
        assert message == theirs_by_name[name], name
    assert sum(count_fields(message) for message in ours.message_type) == 164
