# SPDX-License-Identifier: Apache-2.0
"""SavedModels and GraphDefs written message by message, without TensorFlow: field numbers are those of its .proto files."""

import numpy as np

# Element types
TYPES = {np.dtype(kind): number for number, kind in (
    (1, np.float32), (2, np.float64), (3, np.int32), (4, np.uint8), (5, np.int16), (6, np.int8), (9, np.int64), (10, np.bool_), (17, np.uint16),
    (19, np.float16), (22, np.uint32), (23, np.uint64))}
STRING = 7


def number_of(kind):
    return kind if isinstance(kind, int) else TYPES[np.dtype(kind)]


def varint(value):
    out = b""
    value &= (1 << 64) - 1
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def field(number, content):
    if isinstance(content, int):
        return varint(number << 3) + varint(content)
    content = content.encode() if isinstance(content, str) else content
    return varint(number << 3 | 2) + varint(len(content)) + content


def shape_message(dims):
    """None: any number of dimensions."""
    return field(3, 1) if dims is None else b"".join(field(2, field(1, d)) for d in dims)


# ---- Graphs


def node_body(name, op, inputs=(), **attributes):
    """attributes: what AttrValue has, made by the functions below."""
    body = field(1, name) + field(2, op) + b"".join(field(3, i) for i in inputs)
    for key, value in attributes.items():
        body += field(5, field(1, key) + field(2, value))
    return body


def node(name, op, inputs=(), **attributes):
    """A node of a GraphDef."""
    return field(1, node_body(name, op, inputs, **attributes))


def of_type(kind):
    return field(6, number_of(kind))


def of_shape(dims):
    return field(7, shape_message(dims))


def of_text(text):
    return field(2, text)


def of_numbers(*numbers):
    return field(1, field(3, b"".join(varint(n) for n in numbers)))


def of_bool(value):
    return field(5, int(value))


def placeholder(name, kind, dims):
    return node(name, "Placeholder", dtype=of_type(kind), shape=of_shape(dims))


def constant(name, array, dims=None):
    """dims: those that it claims to have."""
    tensor = field(1, number_of(array.dtype)) + field(2, shape_message(array.shape if dims is None else dims)) + field(4, array.tobytes())
    return node(name, "Const", dtype=of_type(array.dtype), value=field(8, tensor))


# ---- SavedModels


def tensor_info(key, place, kind, dims):
    return field(1, key) + field(2, field(1, place) + field(2, number_of(kind)) + field(3, shape_message(dims)))


def signature(inputs, outputs):
    """Of {name: (place, type, dims)}."""
    body = b"".join(field(1, tensor_info(key, *what)) for key, what in inputs.items())
    body += b"".join(field(2, tensor_info(key, *what)) for key, what in outputs.items())
    return body + field(3, "tensorflow/serving/predict")


def meta_graph(graph, signatures, tags=("serve",)):
    body = field(1, b"".join(field(4, tag) for tag in tags)) + field(2, graph)
    return body + b"".join(field(5, field(1, name) + field(2, what)) for name, what in signatures.items())


def saved_model(*graphs):
    return field(1, 1) + b"".join(field(2, graph) for graph in graphs)


def write(folder, content):
    """The model as model.savedmodel in the version's folder."""
    path = folder / "1" / "model.savedmodel"
    path.mkdir()
    (path / "saved_model.pb").write_bytes(content)
    return path / "saved_model.pb"


# ---- Models


def add_sub_graph(dims, kind=np.float32):
    graph = b"".join(placeholder(f"in_{n}", kind, dims) for n in "ab")
    return graph + node("plus", "AddV2", ["in_a", "in_b"], T=of_type(kind)) + node("minus", "Sub", ["in_a", "in_b"], T=of_type(kind))


def add_sub_signature(dims, kind=np.float32):
    return signature({n: (f"in_{n.lower()}:0", kind, dims) for n in "AB"}, {"SUM": ("plus:0", kind, dims), "DIFF": ("minus:0", kind, dims)})


def add_sub(dims, kind=np.float32, name="serving_default", tags=("serve",)):
    """SUM and DIFF of A and B, which have other names inside."""
    return saved_model(meta_graph(add_sub_graph(dims, kind), {name: add_sub_signature(dims, kind)}, tags))


def scores(weights):
    """Scores of three classes: a convolution of images [-1,6,6,1], relu, a mean of each channel, a product, softmax."""
    floats = of_type(np.float32)
    graph = placeholder("image", np.float32, [-1, 6, 6, 1]) + constant("kernel", weights["kernel"]) + constant("dense", weights["dense"])
    graph += constant("axes", np.array([1, 2], np.int32))
    graph += node("conv", "Conv2D", ["image", "kernel"], T=floats, strides=of_numbers(1, 1, 1, 1), padding=of_text("VALID"))
    graph += node("relu", "Relu", ["conv"], T=floats) + node("mean", "Mean", ["relu", "axes"], T=floats, Tidx=of_type(np.int32))
    graph += node("product", "MatMul", ["mean", "dense"], T=floats) + node("scores", "Softmax", ["product"], T=floats)
    ends = {"scores": ("scores:0", np.float32, [-1, 3]), "channels": ("mean:0", np.float32, [-1, 4])}
    return saved_model(meta_graph(graph, {"serving_default": signature({"image": ("image:0", np.float32, [-1, 6, 6, 1])}, ends)}))


def scores_weights(rng):
    return {"kernel": rng.standard_normal((3, 3, 1, 4)).astype(np.float32), "dense": rng.standard_normal((4, 3)).astype(np.float32)}


def scores_answer(weights, images):
    windows = np.lib.stride_tricks.sliding_window_view(images[..., 0], (3, 3), axis=(1, 2))
    means = np.maximum(np.einsum("nhwij,ijc->nhwc", windows, weights["kernel"][:, :, 0]), 0).mean((1, 2))
    powers = np.exp(means @ weights["dense"])
    return {"channels": means, "scores": powers / powers.sum(1, keepdims=True)}


def accumulate():
    """y and the next state: the sum so far. START and READY add to the answer only."""
    floats, dims = of_type(np.float32), [-1, 1]
    names = ("x", "last", "START", "READY")
    graph = b"".join(placeholder(f"in_{n}", np.float32, dims) for n in names)
    graph += node("total", "AddV2", ["in_x", "in_last"], T=floats) + node("more", "AddV2", ["total", "in_START"], T=floats)
    graph += node("all", "AddV2", ["more", "in_READY"], T=floats)
    ends = {"y": ("all:0", np.float32, dims), "next": ("total:0", np.float32, dims)}
    return saved_model(meta_graph(graph, {"serving_default": signature({n: (f"in_{n}:0", np.float32, dims) for n in names}, ends)}))


def _x_to_y(graph, kind, dims, name):
    return saved_model(meta_graph(graph, {name: signature({"x": ("in_x:0", kind, dims)}, {"y": ("out:0", kind, dims)})}))


def only(op, kind, dims, name="serving_default"):
    """y is one operator of x."""
    return _x_to_y(placeholder("in_x", kind, dims) + node("out", op, ["in_x"], T=of_type(kind)), kind, dims, name)


def products(weights, n, dims, name="serving_default"):
    """y is x, multiplied n times with the weights."""
    graph, last = placeholder("in_x", weights.dtype, dims) + constant("weights", weights), "in_x"
    for to in [f"product{i}" for i in range(1, n)] + ["out"]:
        graph += node(to, "MatMul", [last, "weights"], T=of_type(weights.dtype))
        last = to
    return _x_to_y(graph, weights.dtype, dims, name)


def passed_on(**more):
    """y is x twice; `same` is x itself. more: outputs and their places."""
    floats, dims = of_type(np.float32), [-1, 4]
    graph = placeholder("in_x", np.float32, dims) + node("double", "AddV2", ["in_x", "in_x"], T=floats)
    ends = {"y": ("double:0", np.float32, dims), "same": ("in_x:0", np.float32, dims)}
    ends.update({key: (place, np.float32, dims) for key, place in more.items()})
    return saved_model(meta_graph(graph, {"serving_default": signature({"x": ("in_x:0", np.float32, dims)}, ends)}))


def ragged():
    """so_far: the sum of a list of x and of those before it, of which `ends` tells where each one ends. doubled: x twice."""
    floats, ints = of_type(np.float32), of_type(np.int32)
    graph = placeholder("in_x", np.float32, [-1]) + placeholder("in_ends", np.int32, [-1])
    graph += constant("zero", np.int32(0)) + constant("one", np.int32(1)) + constant("column", np.int32([-1, 1]))
    graph += node("sums", "Cumsum", ["in_x", "zero"], T=floats, Tidx=ints, exclusive=of_bool(False), reverse=of_bool(False))
    graph += node("last", "Sub", ["in_ends", "one"], T=ints)
    graph += node("picked", "GatherV2", ["sums", "last", "zero"], Tparams=floats, Tindices=ints, Taxis=ints, batch_dims=field(3, 0))
    graph += node("so_far", "Reshape", ["picked", "column"], T=floats, Tshape=ints) + node("doubled", "AddV2", ["in_x", "in_x"], T=floats)
    given = {"x": ("in_x:0", np.float32, [-1]), "ends": ("in_ends:0", np.int32, [-1])}
    ends = {"so_far": ("so_far:0", np.float32, [-1, 1]), "doubled": ("doubled:0", np.float32, [-1])}
    return saved_model(meta_graph(graph, {"serving_default": signature(given, ends)}))


def with_constant(dims):
    """y is x; a constant of one number claims these dimensions."""
    graph = placeholder("in_x", np.float32, [-1]) + constant("large", np.float32([1]), dims)
    return _x_to_y(graph + node("out", "Neg", ["in_x", "^large"], T=of_type(np.float32)), np.float32, [-1], "serving_default")


def with_nodes(n):
    """y is -x; n nodes beside that are empty."""
    graph = placeholder("in_x", np.float32, [-1]) + node("out", "Neg", ["in_x"], T=of_type(np.float32)) + field(1, "") * n
    return _x_to_y(graph, np.float32, [-1], "serving_default")


def _call(name, function, x):
    """A node that calls it; function: as an attribute."""
    one = field(1, field(6, varint(1)))    # FP32
    return node_body(name, "StatefulPartitionedCall", [x], Tin=one, Tout=one, f=function)


def _function(name, body, end="call:output:0", more=b""):
    """From x to y, which is `end`. body: of its node `call`. more: of its signature."""
    signature_of = field(1, name) + field(2, field(1, "x") + field(3, 1)) + field(3, field(1, "y") + field(3, 1)) + more
    return field(1, field(1, signature_of) + field(3, body) + field(4, field(1, "y") + field(2, end)))


def _of_function(name, **passed):
    """An attribute that is a function, which gets functions as attributes of its own."""
    return field(10, field(1, name) + b"".join(field(2, field(1, key) + field(2, value)) for key, value in passed.items()))


def _with_functions(first, functions):
    """y is what the first function makes of x."""
    graph = placeholder("in_x", np.float32, [-1]) + field(1, _call("out", _of_function(first), "in_x")) + field(2, functions)
    return _x_to_y(graph, np.float32, [-1], "serving_default")


def calls(names):
    """y is what the first function makes of x: each calls the next one, the last one is none, or one of them."""
    functions = b""
    for name, to in zip(names, names[1:]):
        if to in names[:-1]:
            functions += _function(name, _call("call", _of_function(to), "x"))
        else:
            functions += _function(name, node_body("call", "Neg", ["x"], T=of_type(np.float32)), "call:y:0")
    return _with_functions(names[0], functions)


def passed(depth=1):
    """The function `first` passes itself to `other`, which calls what it is given. depth: of attributes in each other; beyond 1 they
    pass `other` on, and what is in the middle is no function."""
    inner = _of_function("first" if depth == 1 else "none")
    for _ in range(depth - 1):
        inner = _of_function("other", given=inner)
    is_function = field(4, field(1, "given") + field(2, "func"))
    return _with_functions("first", _function("first", _call("call", _of_function("other", given=inner), "x"))
                           + _function("other", _call("call", field(9, "given"), "x"), more=is_function))


def gradient(calls_itself):
    """y is the gradient of -x, which the file has as a function. calls_itself: that asks for the same gradient, else it is -x again."""
    one = field(1, field(6, varint(1)))
    two = field(1, field(6, varint(1) + varint(1)))

    def differentiate(name, *x):
        return node_body(name, "SymbolicGradient", x, Tin=two, Tout=one, f=_of_function("minus"))

    negate = node_body("call", "Neg", ["x"], T=of_type(np.float32))
    second = field(2, field(1, "dy") + field(3, 1))    # of the signature
    functions = _function("minus", negate, "call:y:0")
    functions += (_function("slope", differentiate("call", "x", "dy"), more=second) if calls_itself
                  else _function("slope", negate, "call:y:0", more=second))
    functions += field(2, field(1, "minus") + field(2, "slope"))
    graph = placeholder("in_x", np.float32, [-1]) + field(1, differentiate("out", "in_x", "in_x")) + field(2, functions)
    return _x_to_y(graph, np.float32, [-1], "serving_default")


def counter(passes=False):
    """y is x, after a function has added x to a variable. passes: it is passed to another function that calls it."""
    floats = of_type(np.float32)
    graph = placeholder("in_x", np.float32, [1]) + node("variable", "VarHandleOp", dtype=floats, shape=of_shape([1]))
    function = _of_function("other", given=_of_function("add")) if passes else _of_function("add")
    graph += node("call", "StatefulPartitionedCall", ["variable", "in_x"], f=function)
    graph += node("out", "Identity", ["in_x", "^call"], T=floats)
    add = node_body("assign", "AssignAddVariableOp", ["variable", "x"], dtype=floats)
    graph += field(2, field(1, field(1, field(1, "add")) + field(3, add)))
    return saved_model(meta_graph(graph, {"serving_default": signature({"x": ("in_x:0", np.float32, [1])}, {"y": ("out:0", np.float32, [1])})}))
