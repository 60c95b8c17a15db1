# SPDX-License-Identifier: Apache-2.0
"""gRPC of the genuine Triton and of Conch side by side, with the same models and the same backends, ours: each RPC, each kind of
request, each error, with its code and its text. What differs is in docs/compatibility.md, and here says which row.

Skipped if the genuine server is not installed.
"""

import base64
import json
import re
import shutil
import struct
import subprocess

import grpc
import pytest
from google.protobuf import json_format
from grpc_health.v1 import health_pb2
from tritonclient.grpc import service_pb2 as pb

import repository
import triton
import wire
from server import BUILD, REFERENCE, Server

pytestmark = [
    triton.needed,
    pytest.mark.skipif(REFERENCE, reason="CONCH_BIN is the genuine Triton"),
]

SERVICE = "/inference.GRPCInferenceService/"
FLAGS = ["--model-control-mode=explicit", "--load-model=*"]
REPEAT = ('backend: "repeat"\nmodel_transaction_policy { decoupled: true }\n' + repository.tensor("input", "IN", "INT32", [-1])
          + repository.tensor("input", "DELAY", "UINT32", [-1]) + repository.tensor("input", "WAIT", "UINT32", [1])
          + repository.tensor("output", "OUT", "INT32", [1]) + repository.tensor("output", "IDX", "UINT32", [1]))
SEQUENCE = ('backend: "identity"\nmax_batch_size: 4\nsequence_batching { max_sequence_idle_microseconds: 60000000 }\n'
            + repository.tensor("input", "INPUT0", "INT32", [1]) + repository.tensor("output", "OUTPUT0", "INT32", [1]))


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    root = repository.write_standard(tmp_path_factory.mktemp("both"))
    repository.write_model(root, "repeat", REPEAT)
    repository.write_model(root, "sequence", SEQUENCE)
    repository.write_model(root, "teller", 'backend: "caller"\n' + repository.tensor("input", "IN", "INT32", [1]) + repository.tensor("output", "OUT", "BYTES", [1]))
    shutil.copy(BUILD / "tests/backends/caller/libtriton_caller.so", root / "teller")
    with Server(root, flags=FLAGS, grpc=True) as ours, triton.Triton(root, flags=FLAGS) as theirs:
        yield ours, theirs


def outcome(call):
    """What a call gives: its messages as JSON, its code and its text."""
    messages = []
    try:
        for message in call:
            messages.append(json_format.MessageToDict(message, preserving_proto_field_name=True))
    except grpc.RpcError as error:
        return messages, error.code().name, error.details()
    return messages, call.code().name, call.details()


def ask(server, rpc, request, answer=None, service=SERVICE, metadata=None, timeout=60):
    """The outcome of an RPC with one request. Each call has a connection of its own."""
    answer = answer or getattr(pb, f"{rpc}Response")
    with grpc.insecure_channel(server.grpc_url) as channel:
        call = channel.unary_stream(service + rpc, lambda message: message if isinstance(message, bytes) else message.SerializeToString(), answer.FromString)
        return outcome(call(request, metadata=metadata, timeout=timeout))


def agree(ours, theirs):
    """Asserts that two outcomes are the same, but for advice of ours behind the text of an error."""
    assert ours[:2] == theirs[:2]
    assert ours[2].startswith(theirs[2]) if theirs[2] else not ours[2]


def same(both, *arguments, **more):
    ours, theirs = (ask(server, *arguments, **more) for server in both)
    agree(ours, theirs)
    return ours


# ---- The RPCs about server and models ------------------------------------------------------------

NAMED = [("any_fp32", ""), ("any_fp32", "1"), ("batch", ""), ("versions", ""), ("versions", "1"), ("versions", "99"), ("any_fp32", "0"), ("any_fp32", "-1"), ("any_fp32", "x"),
         ("any_fp32", "99999999999999999999"), ("none", ""), ("none", "1"), ("", "")]


@pytest.mark.parametrize("rpc", ["ServerLive", "ServerReady"])
def test_the_server_is_live_and_ready(both, rpc):
    assert same(both, rpc, getattr(pb, f"{rpc}Request")())[1] == "OK"


@pytest.mark.parametrize("service", ["", "none", "any_fp32"])
def test_health_is_checked_the_same(both, service):
    same(both, "Check", health_pb2.HealthCheckRequest(service=service), health_pb2.HealthCheckResponse, "/grpc.health.v1.Health/")


def test_server_metadata_differ_in_the_version_and_the_extensions_only(both):
    ours, theirs = (ask(server, "ServerMetadata", pb.ServerMetadataRequest())[0][0] for server in both)
    assert ours["name"] == theirs["name"]
    assert set(ours["extensions"]) <= set(theirs["extensions"])


@pytest.mark.parametrize("name, version", NAMED)
def test_models_are_described_the_same(both, name, version):
    same(both, "ModelMetadata", pb.ModelMetadataRequest(name=name, version=version))


@pytest.mark.parametrize("name, version", NAMED)
def test_readiness_differs_for_unknown_models_only(both, name, version):
    """docs/compatibility.md: ModelReady of an unknown model. 2.51 says that it is not ready, newer releases that there is none."""
    ours, theirs = (ask(server, "ModelReady", pb.ModelReadyRequest(name=name, version=version)) for server in both)
    if theirs == ([{}], "OK", ""):
        assert ours[1] == "NOT_FOUND"
    else:
        assert ours == theirs


@pytest.mark.parametrize("name, version", NAMED)
def test_configurations_are_the_same(both, name, version):
    """Ours may have fields that are newer than 2.51; all fields of 2.51 are the same."""
    def within(theirs, ours):
        if isinstance(theirs, dict):
            return all(key in ours and within(value, ours[key]) for key, value in theirs.items())
        return theirs == ours

    ours, theirs = (ask(server, "ModelConfig", pb.ModelConfigRequest(name=name, version=version)) for server in both)
    assert ours[1:] == theirs[1:]
    assert len(ours[0]) == len(theirs[0])
    if theirs[0]:
        assert within(theirs[0][0], ours[0][0])


@pytest.mark.parametrize("name, version", NAMED[2:])
def test_statistics_have_the_same_shape(both, name, version):
    def without_figures(value):
        if isinstance(value, dict):
            return {key: without_figures(inner) for key, inner in value.items() if key not in ("memory_usage", "last_inference")}
        if isinstance(value, list):
            return [without_figures(inner) for inner in value]
        return value if isinstance(value, str) and not value.isdigit() else "n"

    ours, theirs = (ask(server, "ModelStatistics", pb.ModelStatisticsRequest(name=name, version=version)) for server in both)
    assert ours[1:] == theirs[1:]
    if name:
        assert without_figures(ours[0]) == without_figures(theirs[0])
    else:
        assert {model["name"] for model in ours[0][0]["model_stats"]} == {model["name"] for model in theirs[0][0]["model_stats"]}


# ---- The repository ------------------------------------------------------------------------------


@pytest.mark.parametrize("ready", [False, True])
def test_the_index_is_the_same(both, ready):
    ours, theirs = (ask(server, "RepositoryIndex", pb.RepositoryIndexRequest(ready=ready)) for server in both)
    assert ours[1:] == theirs[1:]

    def by_name(outcome):
        return sorted(outcome[0][0]["models"], key=lambda row: (row["name"], row.get("version", "")))

    assert by_name(ours) == by_name(theirs)


def parameters(**values):
    return {key.replace("__", ":"): pb.ModelRepositoryParameter(**value) for key, value in values.items()}


REPOSITORY = {
    "index of a repository": ("RepositoryIndex", pb.RepositoryIndexRequest(repository_name="x")),
    "load from a repository": ("RepositoryModelLoad", pb.RepositoryModelLoadRequest(repository_name="x", model_name="any_fp32")),
    "load of nothing": ("RepositoryModelLoad", pb.RepositoryModelLoadRequest(model_name="none")),
    "load again": ("RepositoryModelLoad", pb.RepositoryModelLoadRequest(model_name="any_bool")),
    "load with an unknown parameter": ("RepositoryModelLoad", pb.RepositoryModelLoadRequest(model_name="any_fp32", parameters=parameters(x={"bool_param": True}))),
    "config of a wrong type": ("RepositoryModelLoad", pb.RepositoryModelLoadRequest(model_name="any_fp32", parameters=parameters(config={"bool_param": True}))),
    "config of no type": ("RepositoryModelLoad", pb.RepositoryModelLoadRequest(model_name="any_fp32", parameters=parameters(config={}))),
    "file of a wrong type": ("RepositoryModelLoad", pb.RepositoryModelLoadRequest(model_name="any_fp32", parameters=parameters(file__x={"string_param": "x"}))),
    "files without config": ("RepositoryModelLoad", pb.RepositoryModelLoadRequest(model_name="any_fp32", parameters=parameters(file__x={"bytes_param": b"x"}))),
    "unload from a repository": ("RepositoryModelUnload", pb.RepositoryModelUnloadRequest(repository_name="x", model_name="any_fp32")),
    "unload of nothing": ("RepositoryModelUnload", pb.RepositoryModelUnloadRequest(model_name="none")),
    "dependents of a wrong type": ("RepositoryModelUnload", pb.RepositoryModelUnloadRequest(model_name="none", parameters=parameters(unload_dependents={"string_param": "x"}))),
    "dependents": ("RepositoryModelUnload", pb.RepositoryModelUnloadRequest(model_name="none", parameters=parameters(unload_dependents={"bool_param": True}))),
    "unload with an unknown parameter": ("RepositoryModelUnload", pb.RepositoryModelUnloadRequest(model_name="none", parameters=parameters(x={"string_param": "x"}))),
}


def test_a_load_without_a_name_is_an_error(both):
    """docs/compatibility.md: a name that no model may have is refused as such."""
    assert [ask(server, "RepositoryModelLoad", pb.RepositoryModelLoadRequest())[1] for server in both] == ["INVALID_ARGUMENT", "INTERNAL"]


@pytest.mark.parametrize("case", REPOSITORY)
def test_the_repository_answers_the_same(both, case):
    same(both, *REPOSITORY[case])


# ---- Settings ------------------------------------------------------------------------------------


def log(**settings):
    return pb.LogSettingsRequest(settings={key: pb.LogSettingsRequest.SettingValue(**value) for key, value in settings.items()})


LOG = {
    "nothing": log(),
    "each": log(log_info={"bool_param": True}, log_warning={"bool_param": True}, log_error={"bool_param": True}, log_verbose_level={"uint32_param": 0},
                log_format={"string_param": "default"}),
    "info of a wrong type": log(log_info={"uint32_param": 1}),
    "warning of a wrong type": log(log_warning={"string_param": "true"}),
    "error of a wrong type": log(log_error={"uint32_param": 0}),
    "level of a wrong type": log(log_verbose_level={"string_param": "1"}),
    "format of a wrong type": log(log_format={"bool_param": True}),
    "an unknown format": log(log_format={"string_param": "x"}),
    "another format": log(log_format={"string_param": "ISO8601"}),
    "the format as before": log(log_format={"string_param": "default"}),
    "a file": log(log_file={"string_param": "/tmp/none"}),
    "a file of a wrong type": log(log_file={"bool_param": True}),
    "an unknown setting": log(x={"bool_param": True}),
}


@pytest.mark.parametrize("case", LOG)
def test_the_log_answers_the_same(both, case):
    same(both, "LogSettings", LOG[case])


@pytest.mark.parametrize("kind", ["System", "Cuda"])
def test_shared_memory_is_refused_by_name(both, kind):
    """Without --allow-client-shm, which release 2.51 does not have (test_shared_memory.py has the rest)."""
    answer = ask(both[0], f"{kind}SharedMemoryUnregister", getattr(pb, f"{kind}SharedMemoryUnregisterRequest")())
    assert answer[1] == "UNIMPLEMENTED"
    assert "shared memory" in answer[2]
    for name in "", "none":
        same(both, f"{kind}SharedMemoryStatus", getattr(pb, f"{kind}SharedMemoryStatusRequest")(name=name))


# ---- Inference -----------------------------------------------------------------------------------


def request(model, *inputs, raw=(), outputs=(), **members):
    made = pb.ModelInferRequest(model_name=model, raw_input_contents=raw, **members)
    for name, datatype, shape, contents in inputs:
        given = made.inputs.add(name=name, datatype=datatype, shape=shape)
        for field, values in contents.items():
            getattr(given.contents, field).extend(values)
    for name in outputs:
        made.outputs.add(name=name)
    return made


def fp32(*values):
    return struct.pack(f"<{len(values)}f", *values)


ONE = ("INPUT0", "FP32", [1], {})
INT64, UINT32, FLOATS = {"int64_contents": [1]}, {"uint_contents": [1]}, {"fp32_contents": [1]}


def with_parameter(**values):
    made = request("any_fp32", ONE, raw=[fp32(1)])
    for key, value in values.items():
        made.parameters[key].CopyFrom(pb.InferParameter(**value))
    return made


def with_output_parameter(**values):
    made = request("any_fp32", ONE, raw=[fp32(1)], outputs=["OUTPUT0"])
    for key, value in values.items():
        made.outputs[0].parameters[key].CopyFrom(pb.InferParameter(**value))
    return made


INFER = {
    "raw": request("any_fp32", ONE, raw=[fp32(1)], id="an id"),
    "a version": request("versions", ("INPUT0", "FP32", [1], {}), raw=[fp32(1)], model_version="1"),
    "an unknown version": request("any_fp32", ONE, raw=[fp32(1)], model_version="7"),
    "a version that is no number": request("any_fp32", ONE, raw=[fp32(1)], model_version="x"),
    "an unknown model": request("none", ONE, raw=[fp32(1)]),
    "no model": request("", ONE, raw=[fp32(1)]),
    "a decoupled model": request("repeat", ONE, raw=[fp32(1)]),
    "no inputs": request("any_fp32"),
    "two inputs of one name": request("any_fp32", ONE, ONE, raw=[fp32(1), fp32(1)]),
    "an unknown input": request("any_fp32", ("X", "FP32", [1], {}), raw=[fp32(1)]),
    "an input too much": request("any_fp32", ONE, ("X", "FP32", [1], {}), raw=[fp32(1), fp32(1)]),
    "an unknown output": request("any_fp32", ONE, raw=[fp32(1)], outputs=["X"]),
    "two outputs of one name": request("any_fp32", ONE, raw=[fp32(1)], outputs=["OUTPUT0", "OUTPUT0"]),
    "an output": request("any_fp32", ONE, raw=[fp32(1)], outputs=["OUTPUT0"]),
    "no data": request("any_fp32", ONE),
    "too few buffers": request("pair", ("INPUT0", "FP32", [1], {}), ("INPUT1", "FP32", [1], {}), raw=[fp32(1)]),
    "too many buffers": request("any_fp32", ONE, raw=[fp32(1), fp32(1)]),
    "too few bytes": request("any_fp32", ONE, raw=[b"abc"]),
    "too many bytes": request("any_fp32", ONE, raw=[fp32(1, 2)]),
    "an empty buffer": request("any_fp32", ONE, raw=[b""]),
    "no elements": request("any_fp32", ("INPUT0", "FP32", [0], {}), raw=[b""]),
    "no shape": request("any_fp32", ("INPUT0", "FP32", [], {}), raw=[fp32(1)]),
    "a negative shape": request("any_fp32", ("INPUT0", "FP32", [-1], {}), raw=[fp32(1)]),
    "a shape of two dimensions": request("any_fp32", ("INPUT0", "FP32", [1, 1], {}), raw=[fp32(1)]),
    "a huge shape": request("any_fp32", ("INPUT0", "FP32", [2**62, 4], {}), raw=[fp32(1)]),
    "another datatype": request("any_fp32", ("INPUT0", "INT32", [1], {}), raw=[fp32(1)]),
    "an unknown datatype": request("any_fp32", ("INPUT0", "FP8", [1], {}), raw=[fp32(1)]),
    "no datatype": request("any_fp32", ("INPUT0", "", [1], {}), raw=[fp32(1)]),
    "contents and raw": request("any_fp32", ("INPUT0", "FP32", [1], FLOATS), raw=[fp32(1)]),
    "contents of another type": request("any_fp32", ("INPUT0", "FP32", [1], INT64)),
    "contents of two types": request("any_fp32", ("INPUT0", "FP32", [1], {**FLOATS, **INT64})),
    "too few contents": request("any_fp32", ("INPUT0", "FP32", [2], FLOATS)),
    "too many contents": request("any_fp32", ("INPUT0", "FP32", [1], {"fp32_contents": [1, 2]})),
    "contents for FP16": request("any_fp16", ("INPUT0", "FP16", [1], FLOATS)),
    "contents for BF16": request("any_bf16", ("INPUT0", "BF16", [1], FLOATS)),
    "raw strings": request("any_bytes", ("INPUT0", "BYTES", [2], {}), raw=[struct.pack("<I", 1) + b"a" + struct.pack("<I", 0)]),
    "raw strings cut off": request("any_bytes", ("INPUT0", "BYTES", [1], {}), raw=[struct.pack("<I", 5) + b"a"]),
    "too few raw strings": request("any_bytes", ("INPUT0", "BYTES", [2], {}), raw=[struct.pack("<I", 1) + b"a"]),
    "too many raw strings": request("any_bytes", ("INPUT0", "BYTES", [1], {}), raw=[struct.pack("<I", 1) + b"a" + struct.pack("<I", 0)]),
    "a batch": request("batch", ("INPUT0", "FP32", [2, 2], {}), raw=[fp32(1, 2, 3, 4)]),
    "a batch that is too large": request("batch", ("INPUT0", "FP32", [999, 2], {}), raw=[fp32(*range(1998))]),
    "a batch of nothing": request("batch", ("INPUT0", "FP32", [0, 2], {}), raw=[b""]),
    "a sequence without its number": request("sequence", ("INPUT0", "INT32", [1, 1], {"int_contents": [1]})),
    "a parameter of each type": with_parameter(a={"bool_param": True}, b={"int64_param": -1}, c={"string_param": "x"}, d={"double_param": 0.5}),
    "a uint64 as parameter": with_parameter(a={"uint64_param": 1}),
    "a parameter without a value": with_parameter(a={}),
    "a reserved parameter": with_parameter(triton_x={"bool_param": True}),
    "the sequence as a boolean": with_parameter(sequence_id={"bool_param": True}),
    "the begin of a sequence as a number": with_parameter(sequence_start={"int64_param": 1}),
    "the end of a sequence as a string": with_parameter(sequence_end={"string_param": "x"}),
    "a negative sequence": with_parameter(sequence_id={"int64_param": -1}),
    "a sequence of another model": with_parameter(sequence_id={"int64_param": 5}, sequence_start={"bool_param": True}),
    "the sequence as a long string": with_parameter(sequence_id={"string_param": "x" * 200}),
    "a priority": with_parameter(priority={"int64_param": 1}),
    "a priority without a sign": with_parameter(priority={"uint64_param": 1}),
    "a negative priority": with_parameter(priority={"int64_param": -1}),
    "the priority as a string": with_parameter(priority={"string_param": "1"}),
    "a timeout": with_parameter(timeout={"int64_param": 60_000_000}),
    "a negative timeout": with_parameter(timeout={"int64_param": -1}),
    "a timeout without a sign": with_parameter(timeout={"uint64_param": 1}),
    "the timeout as a string": with_parameter(timeout={"string_param": "1"}),
    "the empty final response": with_parameter(triton_enable_empty_final_response={"bool_param": True}),
    "the empty final response as a string": with_parameter(triton_enable_empty_final_response={"string_param": "x"}),
    "classification as a string": with_output_parameter(classification={"string_param": "1"}),
    "classification of nothing": with_output_parameter(classification={"int64_param": 0}),
    "a parameter of an output": with_output_parameter(x={"int64_param": 0}),
    "an id that is not UTF-8": request("none", ONE, raw=[fp32(1)]).SerializeToString() + b"\x1a\x02\xff\xfe",
    "no message": b"\xff",
    "an unknown field": request("any_fp32", ONE, raw=[fp32(1)]).SerializeToString() + b"\xfa\x3f\x01x",
}


# Newer releases refuse these, with the texts that we give; 2.51 does not, or has another text.
SINCE = {
    "two outputs of one name": "output 'OUTPUT0' already exists in request",
    "a huge shape": "element count for tensor 'INPUT0' exceeds maximum size of 9223372036854775807",
    "raw strings cut off": "",
}


@pytest.mark.parametrize("case", [case for case in INFER if case not in SINCE])
def test_inferences_have_the_same_outcome(both, case):
    ours, theirs = (ask(server, "ModelInfer", INFER[case], pb.ModelInferResponse) for server in both)
    if case == "an input too much":    # 2.51 lists them in any order
        ours, theirs = ((*outcome[:2], re.sub(r"\['INPUT0','X'\]|\['X','INPUT0'\]", "both", outcome[2])) for outcome in (ours, theirs))
    agree(ours, theirs)


@pytest.mark.parametrize("case", SINCE)
def test_what_newer_releases_refuse_is_refused(both, case):
    _, code, text = ask(both[0], "ModelInfer", INFER[case], pb.ModelInferResponse)
    assert code == "INVALID_ARGUMENT"
    assert SINCE[case] in text


TYPED = {
    "BOOL": {"bool_contents": [True, False]},
    "INT8": {"int_contents": [-1, 300]},
    "INT16": {"int_contents": [-1, 70000]},
    "INT32": {"int_contents": [-1, 2**31 - 1]},
    "INT64": {"int64_contents": [-1, 2**63 - 1]},
    "UINT8": {"uint_contents": [1, 300]},
    "UINT16": {"uint_contents": [1, 70000]},
    "UINT32": {"uint_contents": [1, 2**32 - 1]},
    "UINT64": {"uint64_contents": [1, 2**64 - 1]},
    "FP32": {"fp32_contents": [1.5, -0.0]},
    "FP64": {"fp64_contents": [1.5, 1e300]},
    "BYTES": {"bytes_contents": [b"", b"a\0\xff"]},
}


@pytest.mark.parametrize("datatype", TYPED)
def test_typed_contents_are_the_same(both, datatype):
    messages, code, _ = same(both, "ModelInfer", request(f"any_{datatype.lower()}", ("INPUT0", datatype, [2], TYPED[datatype])), pb.ModelInferResponse)
    assert code == "OK"
    assert messages[0]["raw_output_contents"]


# ---- Streams -------------------------------------------------------------------------------------


def stream(server, *requests, metadata=None, timeout=60):
    with grpc.insecure_channel(server.grpc_url) as channel:
        call = channel.stream_stream(SERVICE + "ModelStreamInfer", pb.ModelInferRequest.SerializeToString, pb.ModelStreamInferResponse.FromString)
        return outcome(call(iter(requests), metadata=metadata, timeout=timeout))


def repeat(count, delay_ms=0, empty_final=False, **members):
    made = request("repeat", ("IN", "INT32", [count], {}), ("DELAY", "UINT32", [count], {}), ("WAIT", "UINT32", [1], {}),
                   raw=[struct.pack(f"<{count}i", *range(count)), struct.pack(f"<{count}I", *[delay_ms] * count), struct.pack("<I", 0)], **members)
    if empty_final:
        made.parameters["triton_enable_empty_final_response"].bool_param = True
    return made


def in_sequence(number, value, start=False, end=False):
    made = request("sequence", ("INPUT0", "INT32", [1, 1], {"int_contents": [value]}), id=str(value))
    made.parameters["sequence_id"].CopyFrom(number)
    made.parameters["sequence_start"].bool_param = start
    made.parameters["sequence_end"].bool_param = end
    return made


NUMBER, TEXT = pb.InferParameter(int64_param=7), pb.InferParameter(string_param="a sequence")
PLAIN, UNKNOWN, WRONG = (request("any_fp32", ONE, raw=[fp32(1)], id="plain"), request("none", ONE, raw=[fp32(1)], id="unknown"),
                         request("any_fp32", ("INPUT0", "INT32", [1], {}), raw=[fp32(1)], id="wrong"))
STREAMS = {
    "nothing": (),
    "one": (PLAIN,),
    "several": (PLAIN,) * 20,
    "errors between": (PLAIN, UNKNOWN, PLAIN, WRONG, PLAIN),
    "a version": (request("versions", ("INPUT0", "FP32", [1], {}), raw=[fp32(1)], model_version="1"),),
    "decoupled": (repeat(3, id="r"),),
    "decoupled without responses": (repeat(0, id="r"),),
    "decoupled without responses, with the final": (repeat(0, id="r", empty_final=True),),
    "decoupled with the final": (repeat(3, id="r", empty_final=True),),
    "decoupled with the final and a version": (repeat(2, id="r", empty_final=True, model_version="1"),),
    "a wrong decoupled one": (request("repeat", ONE, raw=[fp32(1)], id="r"),),
    "the final of an ordinary model": (with_parameter(triton_enable_empty_final_response={"bool_param": True}),),
    "a sequence": (in_sequence(NUMBER, 1, start=True), in_sequence(NUMBER, 2), in_sequence(NUMBER, 3, end=True)),
    "a sequence with a text": (in_sequence(TEXT, 1, start=True), in_sequence(TEXT, 2, end=True)),
    "a sequence that has not begun": (in_sequence(pb.InferParameter(int64_param=99), 1),),
}


@pytest.mark.parametrize("metadata", [None, (("triton_grpc_error", "true"),), (("triton_grpc_error", "x"),)])
@pytest.mark.parametrize("case", STREAMS)
def test_streams_have_the_same_outcome(both, case, metadata):
    ours, theirs = (stream(server, *STREAMS[case], metadata=metadata) for server in both)
    assert ours == theirs


# ---- The wire ------------------------------------------------------------------------------------


def post(server, path, body, **headers):
    """The answer of a call that no client library would make: curl's result, the HTTP status, and the fields of gRPC.

    A call that is refused by its head is made without a body, since curl gives up when an answer overtakes a body.
    """
    headers = {"content-type": "application/grpc", "te": "trailers", **{key.replace("_", "-"): value for key, value in headers.items()}}
    arguments = [part for key, value in headers.items() for part in ("-H", f"{key}: {value}" if value else f"{key}:")]
    done = subprocess.run(["curl", "-s", "-i", "--http2-prior-knowledge", "--max-time", "60", "-X", "POST", *(["--data-binary", "@-"] if body else []),
                           *arguments, f"http://{server.grpc_url}{path}"], input=body, capture_output=True, timeout=90, check=False)
    fields = dict(line.decode("latin-1").split(": ", 1) for line in done.stdout.split(b"\r\n") if b": " in line)
    return done.returncode, done.stdout.split(b"\r\n")[0], {key: value for key, value in fields.items() if key in ("grpc-status", "grpc-message")}


def framed(message, packed=False):
    return bytes([packed]) + struct.pack(">I", len(message)) + message


LIVE = SERVICE + "ServerLive"
WIRE = {
    "a call": (LIVE, framed(b""), {}),
    "a content type with a suffix": (LIVE, framed(b""), {"content_type": "application/grpc+proto"}),
    "two messages": (LIVE, framed(b"") * 2, {}),
    "a deadline that has passed": (SERVICE + "ModelInfer", b"", {"grpc_timeout": "0n"}),
}


# docs/compatibility.md: these have the status of Triton, with a text that names the fault.
WORDED = {
    "no message": (LIVE, b"", {}, "13"),
    "half a prefix": (LIVE, b"\0\0", {}, "13"),
    "half a message": (LIVE, b"\0\0\0\0\5ab", {}, "13"),
    "an unknown method": (SERVICE + "None", b"", {}, "12"),
    "an unknown service": ("/x.Y/Z", b"", {}, "12"),
    "a packed message without an encoding": (LIVE, framed(b"x", True), {}, "13"),
    "a packed message that is not packed": (LIVE, framed(b"x", True), {"grpc_encoding": "gzip"}, "13"),
}


@pytest.mark.parametrize("case", WORDED)
def test_faults_of_the_wire_have_the_same_status(both, case):
    path, body, headers, status = WORDED[case]
    ours, theirs = (post(server, path, body, **headers) for server in both)
    assert ours[:2] == theirs[:2]
    assert ours[2]["grpc-status"] == theirs[2]["grpc-status"] == status
    assert ours[2]["grpc-message"]


def test_heads_that_triton_drops_are_answered(both):
    """docs/compatibility.md: Triton resets the stream of another content type and of an unknown encoding; without a content type it answers."""
    dropped = (92, b"", {})
    ours, theirs = (post(server, LIVE, b"", content_type="text/plain") for server in both)
    assert (ours, theirs) == ((0, b"HTTP/2 415 ", {}), dropped)
    ours, theirs = (post(server, LIVE, b"", grpc_encoding="br") for server in both)
    assert theirs == dropped
    assert ours[2]["grpc-status"] == "12" and "br" in ours[2]["grpc-message"]
    ours, theirs = (post(server, LIVE, b"", content_type="") for server in both)
    assert ours == (0, b"HTTP/2 415 ", {})
    assert theirs[1] == b"HTTP/2 200 "


@pytest.mark.parametrize("case", WIRE)
def test_the_wire_is_the_same(both, case):
    path, body, headers = WIRE[case]
    ours, theirs = (post(server, path, body, **headers) for server in both)
    assert ours == theirs


def test_a_deadline_ends_the_same(both):
    ours, theirs = (stream(server, repeat(1, 60_000), timeout=0.5) for server in both)
    assert ours == theirs
    assert ours[1] == "DEADLINE_EXCEEDED"


# ---- Restrictions and metadata -------------------------------------------------------------------

RESTRICTED = ["--grpc-restricted-protocol=health,inference:infer-key=a b", "--grpc-restricted-protocol=" + ",".join(
    ["metadata", "shared-memory", "model-config", "model-repository", "statistics", "trace", "logging"]) + ":admin=secret",
    "--http-restricted-api=metadata,model-repository,inference:x-admin=secret"]
RPCS = [name[:-len("Request")] for name in vars(pb) if name.endswith("Request") and hasattr(pb, name[:-len("Request")] + "Response")]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    root = tmp_path_factory.mktemp("guarded")
    repository.write_identity(root, "any_fp32", [("FP32", [-1])])
    with Server(root, flags=RESTRICTED, grpc=True) as ours, triton.Triton(root, flags=RESTRICTED) as theirs:
        yield ours, theirs


@pytest.mark.parametrize("rpc", RPCS)
def test_each_rpc_is_restricted_the_same(guarded, rpc):
    for metadata in (None, (("triton-grpc-protocol-admin", "x"),), (("triton-grpc-protocol-infer-key", "a"),)):
        outcome = same(guarded, rpc, getattr(pb, f"{rpc}Request")(), metadata=metadata)
        assert outcome[1] == "UNAVAILABLE" and "This protocol is restricted, expecting header" in outcome[2]
    both_keys = (("triton-grpc-protocol-admin", "secret"), ("triton-grpc-protocol-infer-key", "a b"))
    for server in guarded:
        assert "restricted" not in (ask(server, rpc, getattr(pb, f"{rpc}Request")(), metadata=both_keys)[2] or "")


def test_streams_and_health_are_restricted_the_same(guarded):
    for metadata in (None, (("triton-grpc-protocol-infer-key", "a b"),)):
        ours, theirs = (stream(server, PLAIN, metadata=metadata) for server in guarded)
        assert ours == theirs
        same(guarded, "Check", health_pb2.HealthCheckRequest(), health_pb2.HealthCheckResponse, "/grpc.health.v1.Health/", metadata=metadata)


@pytest.mark.parametrize("method, path", [("GET", "/v2"), ("POST", "/v2"), ("GET", "/v2/models/any_fp32"), ("GET", "/v2/models/none"), ("POST", "/v2/repository/index"),
                                          ("GET", "/v2/repository/index"), ("POST", "/v2/models/any_fp32/infer"), ("GET", "/v2/models/any_fp32/config"),
                                          ("GET", "/v2/none")])
def test_http_is_restricted_the_same(guarded, method, path):
    for headers in ({}, {"x-admin": "x"}, {"X-Admin": "secret"}):
        ours, theirs = (wire.ask(server, method, path, b"{" if method == "POST" else b"", headers) for server in guarded)
        assert ours.status == theirs.status
        if ours.status >= 400 and theirs.body:    # advice of ours may follow
            assert ours.json()["error"].startswith(theirs.json()["error"])
        else:
            assert ours.body == theirs.body or (path == "/v2" and ours.status == 200)    # the version and the extensions
        assert ours.headers.get("content-type") == theirs.headers.get("content-type")


@pytest.mark.parametrize("pattern", ["^x-", "X-", "my_", "one|own", "^(x-one|x-two)$", ".*"])
def test_the_same_metadata_become_parameters(tmp_path, pattern):
    repository.write_model(tmp_path, "teller", 'backend: "caller"\n' + repository.tensor("input", "IN", "INT32", [1]) + repository.tensor("output", "OUT", "BYTES", [1]))
    shutil.copy(BUILD / "tests/backends/caller/libtriton_caller.so", tmp_path / "teller")
    flags = [f"--grpc-header-forward-pattern={pattern}"]
    asked = request("teller", ("IN", "INT32", [1], {"int_contents": [1]}))
    asked.parameters["own"].int64_param = 4
    metadata = (("x-one", "1"), ("my_two", "a b"), ("x-bin", b"\1\2"), ("x-one", "again"), ("x-two", ""))
    told = []
    for server in (Server(tmp_path, flags=flags, grpc=True), triton.Triton(tmp_path, flags=flags)):
        with server:
            answer = ask(server, "ModelInfer", asked, metadata=metadata)
            assert answer[1] == "OK", answer
            text = base64.b64decode(answer[0][0]["raw_output_contents"][0])[4:].decode()
            told.append(sorted(line for line in text.splitlines() if line.startswith("parameter")))
    assert told[0] == told[1]


@pytest.mark.parametrize("pattern", ["^X-|two$", "(?i)^x-", "x-[^t]", "content|accept|host"])
def test_headers_are_forwarded_over_http_the_same(tmp_path, pattern):
    """The backend tells the parameters of its request: a parameter of the body, and headers, whose names stay as they are."""
    repository.write_model(tmp_path, "teller", 'backend: "caller"\n' + repository.tensor("input", "IN", "INT32", [1]) + repository.tensor("output", "OUT", "BYTES", [1]))
    shutil.copy(BUILD / "tests/backends/caller/libtriton_caller.so", tmp_path / "teller")
    flags = [f"--http-header-forward-pattern={pattern}"]
    body = json.dumps({"inputs": [{"name": "IN", "datatype": "INT32", "shape": [1], "data": [1]}], "parameters": {"x-one": "body"}}).encode()
    headers = {"X-One": "1", "my-Two": "a b", "x-Three": "3", "Accept": "*/*"}
    told = []
    for server in (Server(tmp_path, flags=flags, grpc=True), triton.Triton(tmp_path, flags=flags)):
        with server:
            answer = wire.ask(server, "POST", "/v2/models/teller/infer", body, headers)
            assert answer.status == 200, answer.body
            text = json.loads(answer.body)["outputs"][0]["data"][0]
            lines = sorted(line for line in text.splitlines() if line.startswith("parameter"))
            told.append([line.replace(server.url, "HOST") for line in lines])
    assert told[0] == told[1]
