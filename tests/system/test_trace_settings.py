# SPDX-License-Identifier: Apache-2.0
"""The settings of traces over HTTP and gRPC, of Conch and of the genuine Triton side by side: the same settings, the same errors."""

import json
import re

import grpc
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from google.protobuf import json_format
from tritonclient.grpc import service_pb2 as pb
from tritonclient.utils import InferenceServerException

import repository
import triton
from server import REFERENCE, Server
from wire import ask

OFF = {"trace_level": ["OFF"], "trace_rate": "1000", "trace_count": "-1", "log_frequency": "0", "trace_mode": "triton"}
CLEAR = {"trace_level": None, "trace_rate": None, "trace_count": None, "log_frequency": None}

# What clients post, in turn; the settings that follow are compared, too. M is the model's path.
G, M = "/v2/trace/setting", "/v2/models/any_fp32/trace/setting"
STEPS = [
    # Of all the words of a level
    (G, {"trace_level": ["TIMESTAMPS"]}), (G, {"trace_level": ["TENSORS", "TIMESTAMPS"]}), (G, {"trace_level": ["OFF", "TENSORS"]}), (G, {"trace_level": ["OFF"]}),
    (G, {"trace_level": ["MIN"]}), (G, {"trace_level": []}), (G, {"trace_level": ["timestamps", "TENSORS"]}), (G, {"trace_level": "OFF"}), (G, {"trace_level": [1]}),
    (G, {"trace_level": ["TENSORS", 1]}), (G, {"trace_level": None}), (G, {"trace_level": {}}),
    # Of numbers
    (G, {"trace_rate": "5"}), (G, {"trace_rate": "0"}), (G, {"trace_rate": "-1"}), (G, {"trace_rate": "x"}), (G, {"trace_rate": ""}), (G, {"trace_rate": " +7y"}), (G, {"trace_rate": "2147483648"}),
    (G, {"trace_rate": "-2147483649"}), (G, {"trace_rate": "99999999999999999999999"}), (G, {"trace_rate": 5}), (G, {"trace_rate": ["5"]}),
    (G, {"trace_count": "3"}), (G, {"trace_count": "-1"}), (G, {"trace_count": "-2"}), (G, {"trace_count": "x"}), (G, {"trace_count": "2147483648"}), (G, {"trace_count": True}),
    (G, {"log_frequency": "50"}), (G, {"log_frequency": "-1"}), (G, {"log_frequency": "9.5"}), (G, {"log_frequency": "."}), (G, {"log_frequency": 1}),
    (G, {"trace_file": "x"}), (G, {"trace_file": None}), (G, {"trace_file": 1, "trace_level": 1}), (G, {"trace_mode": "opentelemetry"}), (G, {"unknown": 1}), (G, {}), (G, []), (G, 3),
    (G, {"trace_rate": "x", "trace_level": ["OFF", "OFF"]}), (G, {"log_frequency": "x", "trace_count": "y"}),
    (G, b"{"), (G, b'{"trace_rate": "6", "trace_rate": "7"}'), (G, b'{"trace_rate": "\\u0038"}'),
    (G, CLEAR),
    # A model follows the server in what it does not set itself
    (M, {"trace_rate": "7"}), (G, {"trace_rate": "8", "log_frequency": "4"}), (M, {"trace_rate": None}), (G, {"trace_rate": "9"}), (M, {"trace_level": ["TIMESTAMPS"], "trace_count": "10"}),
    (G, {"trace_level": ["TENSORS"]}), (G, {"trace_level": None, "trace_count": "4"}), (M, {"trace_level": None}), (M, {"trace_count": None}), (G, {"trace_count": "5"}), (M, {}),
    (M, {"trace_rate": "0"}), (M, {"trace_level": ["TIMESTAMPS"], "trace_rate": "0"}), (M, {"trace_count": "0"}), (M, CLEAR), (G, CLEAR),
    (G, {"trace_level": ["TIMESTAMPS"], "trace_count": "0"}), (G, {"trace_level": ["TIMESTAMPS"], "trace_rate": "0"}), (G, CLEAR),
]
FLAGS = ["--trace-config=triton,file={}", "--trace-config=rate=1000"]


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    if triton.missing() or REFERENCE:
        pytest.skip(triton.missing() or "CONCH_BIN is the genuine Triton")
    root = repository.write_standard(tmp_path_factory.mktemp("both"))
    file = tmp_path_factory.mktemp("traces") / "trace"
    flags = [flag.format(file) for flag in FLAGS]
    with Server(root, flags=flags, grpc=True) as ours, triton.Triton(root, flags=flags) as theirs:
        yield ours, theirs


def settings(server, path=G):
    answer = ask(server, "GET", path)
    return answer.status, answer.body


def settings_by_grpc(server, model=""):
    with grpc.insecure_channel(server.grpc_url) as channel:
        call = channel.unary_unary("/inference.GRPCInferenceService/TraceSetting", pb.TraceSettingRequest.SerializeToString, pb.TraceSettingResponse.FromString)
        return json_format.MessageToDict(call(pb.TraceSettingRequest(model_name=model)))


def change_by_grpc(server, path, change):
    """What TraceSetting answers to such a change, whose words are lists."""
    request = pb.TraceSettingRequest(model_name="any_fp32" if path == M else "")
    for name, value in change.items():
        request.settings[name].value.extend([] if value is None else value if isinstance(value, list) else [value])
    with grpc.insecure_channel(server.grpc_url) as channel:
        call = channel.unary_unary("/inference.GRPCInferenceService/TraceSetting", pb.TraceSettingRequest.SerializeToString, pb.TraceSettingResponse.FromString)
        try:
            return json_format.MessageToDict(call(request))
        except grpc.RpcError as error:
            return error.code().name, error.details()


def test_http_answers_as_triton_does(both):
    ours, theirs = both
    for path, change in STEPS:
        body = change if isinstance(change, bytes) else json.dumps(change).encode()
        one, other = (ask(server, "POST", path, body) for server in both)
        told = re.sub(rb" \(line \d+, column \d+\)", b"", one.body)    # where JSON is wrong: only Conch says it
        assert (one.status, told, one.headers["content-type"]) == (other.status, other.body, other.headers["content-type"]), (path, change)
        for again in (G, M):
            assert settings(ours, again) == settings(theirs, again), (path, change)


def test_grpc_answers_as_triton_does(both):
    ours, theirs = both
    for path, change in STEPS:
        if not isinstance(change, dict) or not all(value is None or isinstance(value, str) or (isinstance(value, list) and all(isinstance(word, str) for word in value)) for value in change.values()):
            continue
        one, other = (change_by_grpc(server, path, change) for server in both)
        assert one == other, (path, change)
        for model in ("", "any_fp32"):
            assert settings_by_grpc(ours, model) == settings_by_grpc(theirs, model), (path, change)
    two = {"trace_rate": ["1", "2"]}
    assert change_by_grpc(ours, G, two) == change_by_grpc(theirs, G, two) == ("INVALID_ARGUMENT", "expect only 1 value for 'trace_rate'")


@pytest.mark.parametrize("method, path", [("GET", "/v2/models/any_fp32/versions/1/trace/setting"),
                                          ("DELETE", G), ("PUT", M), ("GET", "/v2/trace/setting/"), ("GET", "/v2/trace")])
def test_other_paths_and_methods_are_refused_alike(both, method, path):
    one, other = (ask(server, method, path, b"" if method == "POST" else None) for server in both)
    assert (one.status, one.body) == (other.status, other.body)
    assert one.status in (404, 405)


def test_an_unknown_model_has_no_settings(both):    # 2.51 answers 400, newer releases 404
    for method in ("GET", "POST"):
        answer = ask(both[0], method, "/v2/models/none/trace/setting", b"" if method == "POST" else None)
        assert (answer.status, answer.error) == (404, "Request for unknown model: 'none' is not found")


def test_both_protocols_have_the_same_settings(models):
    repository.write_standard(models)
    with Server(models, grpc=True) as server:
        http, rpc = triton_http.InferenceServerClient(server.url), triton_grpc.InferenceServerClient(server.grpc_url)
        assert http.get_trace_settings() == OFF | {"trace_file": ""}
        assert http.update_trace_settings("any_fp32", {"trace_rate": "3"})["trace_rate"] == "3"
        assert rpc.get_trace_settings("any_fp32", as_json=True)["settings"]["trace_rate"] == {"value": ["3"]}
        assert rpc.get_trace_settings(as_json=True)["settings"]["trace_rate"] == {"value": ["1000"]}
        rpc.update_trace_settings("any_fp32", {"trace_rate": None, "log_frequency": "6"})
        assert http.get_trace_settings("any_fp32") == OFF | {"trace_file": "", "log_frequency": "6"}
        with pytest.raises(InferenceServerException, match="trace file name is not given"):
            http.update_trace_settings("any_fp32", {"trace_level": ["TIMESTAMPS"]})
