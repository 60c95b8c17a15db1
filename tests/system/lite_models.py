# SPDX-License-Identifier: Apache-2.0
"""Sums and differences, A and B -> SUM and DIFF, as files of TensorFlow Lite and of PaddlePaddle, without these frameworks. Numbers of fields
are those of their schemas."""

import flatbuffers

from saved_models import field

NAMES = ["A", "B", "SUM", "DIFF"]


# ---- TensorFlow Lite: a FlatBuffer


def add_table(builder, n_slots, *fields):
    """fields: (slot, type of the number or "offset", value). What an offset leads to is there already."""
    builder.StartObject(n_slots)
    for slot, kind, value in fields:
        if kind == "offset":
            builder.PrependUOffsetTRelativeSlot(slot, value, 0)
        else:
            getattr(builder, f"Prepend{kind}Slot")(slot, value, 0)
    return builder.EndObject()


def add_list(builder, values, of="Int32"):
    builder.StartVector(4, len(values), 4)
    for value in reversed(values):
        getattr(builder, f"Prepend{of}")(value)
    return builder.EndVector()


def add_tables(builder, tables):
    return add_list(builder, tables, "UOffsetTRelative")


def add_tensor(builder, name, columns):
    """Any number of rows: 1 in the shape, -1 in its signature."""
    name, shape, signature = builder.CreateString(name), add_list(builder, [1, columns]), add_list(builder, [-1, columns])
    return add_table(builder, 8, (0, "offset", shape), (3, "offset", name), (7, "offset", signature))


def add_operator(builder, index, options_type):
    options, inputs, outputs = add_table(builder, 1), add_list(builder, [0, 1]), add_list(builder, [2 + index])
    return add_table(builder, 5, (0, "Uint32", index), (1, "offset", inputs), (2, "offset", outputs), (3, "Uint8", options_type),
                     (4, "offset", options))


def tensorflow_lite(columns):
    builder = flatbuffers.Builder(0)
    codes = add_tables(builder, [add_table(builder, 4, (0, "Int8", code), (2, "Int32", 1), (3, "Int32", code)) for code in (0, 41)])
    tensors = add_tables(builder, [add_tensor(builder, name, columns) for name in NAMES])
    operators = add_tables(builder, [add_operator(builder, index, options) for index, options in enumerate((11, 28))])
    inputs, outputs = add_list(builder, [0, 1]), add_list(builder, [2, 3])
    graph = add_table(builder, 5, (0, "offset", tensors), (1, "offset", inputs), (2, "offset", outputs), (3, "offset", operators))
    graphs, buffers = add_tables(builder, [graph]), add_tables(builder, [add_table(builder, 1)])
    model = add_table(builder, 5, (0, "Uint32", 3), (1, "offset", codes), (2, "offset", graphs), (4, "offset", buffers))
    builder.Finish(model, b"TFL3")
    return bytes(builder.Output())


# ---- PaddlePaddle: a ProgramDesc of protobuf

FP32, LOD_TENSOR, FEED, FETCH = 5, 7, 9, 10


def variable(name, columns):
    tensor = field(1, FP32) + field(2, -1) + field(2, columns)
    return field(3, field(1, name) + field(2, field(1, LOD_TENSOR) + field(3, field(1, tensor) + field(2, 0))))


def special(name, kind):
    return field(3, field(1, name) + field(2, field(1, kind)) + field(3, 1))


def operator(kind, inputs, output, **numbers):
    """inputs: {parameter: variable}"""
    body = b"".join(field(1, field(1, key) + field(2, name)) for key, name in inputs.items()) + field(2, field(1, "Out") + field(2, output))
    body += field(3, kind) + b"".join(field(4, field(1, key) + field(2, 0) + field(3, value)) for key, value in numbers.items())
    return field(4, body)


def paddle(columns):
    block = field(1, 0) + field(2, -1) + special("feed", FEED) + special("fetch", FETCH) + b"".join(variable(name, columns) for name in NAMES)
    block += b"".join(operator("feed", {"X": "feed"}, name, col=i) for i, name in enumerate("AB"))
    block += operator("elementwise_add", {"X": "A", "Y": "B"}, "SUM", axis=-1) + operator("elementwise_sub", {"X": "A", "Y": "B"}, "DIFF", axis=-1)
    block += b"".join(operator("fetch", {"X": name}, "fetch", col=i) for i, name in enumerate(("SUM", "DIFF")))
    return field(1, block) + field(4, field(1, 2000000))
