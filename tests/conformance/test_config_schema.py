# SPDX-License-Identifier: Apache-2.0
"""Our .proto compared with the message classes of the unmodified client: names, numbers, types, labels, oneofs; and the
page of all fields compared with both."""

import re
import subprocess

from google.protobuf import descriptor_pb2

from mapper import BUILD, TOP, classes


def normal(message):
    for field in message.field:
        field.ClearField("json_name")
    for nested in message.nested_type:
        normal(nested)


def count_fields(message):
    if message.options.map_entry:
        return 0
    return len(message.field) + sum(count_fields(nested) for nested in message.nested_type)


def test_the_schema_is_the_clients(tmp_path):
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


def type_of(field):
    """The type as the page prints it: "list of ModelInput"."""
    if field.message_type and field.message_type.GetOptions().map_entry:
        key, value = field.message_type.fields
        return f"map of {type_of(key)} to {type_of(value)}"
    names = {getattr(field, name): name[5:].lower() for name in dir(field) if name.startswith("TYPE_")}
    if field.message_type:
        name = field.message_type.full_name.removeprefix("inference.")
    else:
        name = field.enum_type.name if field.enum_type else names[field.type]
    return f"list of {name}" if field.is_repeated else name


def messages_of(types):
    for message in types:
        if not message.GetOptions().map_entry:
            yield message
            yield from messages_of(message.nested_types)


def test_the_page_has_every_field():
    """Message by message, in the order of declaration or not: name, type, and what the server does with it."""
    answers = {}
    listed = subprocess.run([BUILD / "tests/configtool", "--fields"], capture_output=True, check=True, text=True).stdout
    words = {"yes": {"yes", "backend"}, "tunes": {"no effect"}, "no": {"refused"}}
    for line in listed.splitlines():
        message, field, answer = line.split()
        answers[message, field] = words[answer]

    page = (TOP / "docs/model-configuration.md").read_text(encoding="utf-8")
    tables = {}
    for name, table in re.findall(r"<!-- fields of ([\w.]+) -->\n((?:\|.*\n)+)", page):
        assert name not in tables
        tables[name] = [[cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in table.splitlines()[2:]]
    expected = {message.full_name.removeprefix("inference."): message
                for message in messages_of(classes.DESCRIPTOR.message_types_by_name.values()) if message.fields}
    assert tables.keys() == expected.keys()
    for name, rows in tables.items():
        message = expected[name]
        fields = {row[0].strip("`"): row for row in rows}
        assert len(fields) == len(rows)
        assert fields.keys() == {field.name for field in message.fields}, name
        for field in message.fields:
            assert fields[field.name][1] == type_of(field)
            assert fields[field.name][3] in answers[message.full_name, field.name], (name, field.name)
    assert sum(len(rows) for rows in tables.values()) == 164
