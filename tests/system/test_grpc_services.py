# SPDX-License-Identifier: Apache-2.0
"""What gRPC serves besides inference: health, reflection, restricted parts, metadata that models get. With gRPC's own clients."""

import queue
import shutil
import signal

import grpc
import numpy as np
import pytest
import tritonclient.grpc as client
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import InferenceServerException

import repository
from health import NOT_SERVING, SERVICE_UNKNOWN, SERVING, Watch
from server import BUILD, Server, run_to_end
from wire import ask

pytestmark = pytest.mark.conch_only("Triton has neither Watch nor reflection; test_grpc_reference.py compares the rest")

EXPLICIT = ["--model-control-mode=explicit", "--load-model=echo"]
WITHIN_S = 60


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    models = tmp_path_factory.mktemp("models")
    for name in ("echo", "other"):
        repository.write_identity(models, name, [("FP32", [-1])])
    return models


@pytest.fixture(scope="module")
def served(models):
    with Server(models, flags=EXPLICIT, grpc=True) as server:
        yield server


@pytest.fixture
def channel(served):
    with grpc.insecure_channel(served.grpc_url) as made:
        yield made


def test_check_answers_for_the_server_whatever_the_name(channel):
    check = health_pb2_grpc.HealthStub(channel).Check
    for service in ("", "echo", "none"):
        assert check(health_pb2.HealthCheckRequest(service=service)).status == SERVING


def next_but_on_its_way(watch):
    """The next state; a look that falls into a load or an unload finds NOT_SERVING before it."""
    state = watch.next()
    return watch.next() if state == NOT_SERVING else state


def test_a_watch_tells_each_change(served, channel):
    server, echo, other = (Watch(channel, name) for name in ("", "echo", "other"))
    assert [server.next(), echo.next(), other.next()] == [SERVING, SERVING, SERVICE_UNKNOWN]
    with client.InferenceServerClient(served.grpc_url) as triton:
        triton.load_model("other")
        assert next_but_on_its_way(other) == SERVING
        triton.unload_model("other")
        assert next_but_on_its_way(other) == SERVICE_UNKNOWN
    assert server.seen.empty() and echo.seen.empty()


def test_a_watch_follows_what_a_backend_says(tmp_path):
    gated = repository.Gated(tmp_path, "gated")
    with Server(tmp_path, grpc=True) as served, grpc.insecure_channel(served.grpc_url) as channel:
        server, model = Watch(channel, ""), Watch(channel, "gated")
        assert [server.next(), model.next()] == [SERVING, SERVING]
        gated.shut("fail.ready", "the device is gone")
        assert [server.next(), model.next()] == [NOT_SERVING, NOT_SERVING]
        gated.open("fail.ready")
        assert [server.next(), model.next()] == [SERVING, SERVING]


@pytest.mark.sanitize
def test_a_stop_ends_watches_and_reflection(models):
    with Server(models, flags=EXPLICIT, grpc=True) as served, grpc.insecure_channel(served.grpc_url) as channel:
        watches = [Watch(channel, name) for name in ("", "echo", "none")]
        asked = queue.Queue()
        asked.put(reflection_pb2.ServerReflectionRequest(list_services=""))
        reflection = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(iter(asked.get, None))
        next(reflection)
        assert [watch.next() for watch in watches] == [SERVING, SERVING, SERVICE_UNKNOWN]
        served.signal(signal.SIGTERM)
        for watch in watches:
            assert watch.next() == NOT_SERVING
            assert watch.next() == grpc.StatusCode.UNAVAILABLE
        with pytest.raises(grpc.RpcError, match="GRPC server is shutting down"):
            next(reflection)
        asked.put(None)
        served.process.wait(WITHIN_S)


def test_reflection_describes_the_protocol(channel):
    """A client that knows no .proto file lists the services and calls one, with messages that it has made from the answers."""
    database = ProtoReflectionDescriptorDatabase(channel)
    assert set(database.get_services()) == {"inference.GRPCInferenceService", "grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection",
                                            "grpc.reflection.v1alpha.ServerReflection"}
    pool = DescriptorPool(database)
    service = pool.FindServiceByName("inference.GRPCInferenceService")
    assert {method.name for method in service.methods} == {name for name in vars(service_pb2_grpc.GRPCInferenceServiceServicer)
                                                           if not name.startswith("_")}
    method = service.FindMethodByName("ModelReady")
    Request, Response = GetMessageClass(method.input_type), GetMessageClass(method.output_type)
    call = channel.unary_unary(f"/{service.full_name}/{method.name}", Request.SerializeToString, Response.FromString)
    assert call(Request(name="echo")).ready


def test_the_messages_are_those_of_tritons_client(channel):
    """Each message, field, number and type of Triton's own client is ours, too; ours may be newer."""
    pool = DescriptorPool(ProtoReflectionDescriptorDatabase(channel))

    def compare(theirs, ours):
        for field in theirs.fields:
            mine = ours.fields_by_name[field.name]
            assert (mine.number, mine.type, mine.is_repeated) == (field.number, field.type, field.is_repeated), f"{theirs.full_name}.{field.name}"
        for nested in theirs.nested_types:
            compare(nested, ours.nested_types_by_name[nested.name])

    for message in service_pb2.DESCRIPTOR.message_types_by_name.values():
        compare(message, pool.FindMessageTypeByName(message.full_name))


def reflect(channel, *requests, version="v1"):
    """The responses; the messages of v1 are those of v1alpha."""
    call = channel.stream_stream(f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
                                 reflection_pb2.ServerReflectionRequest.SerializeToString, reflection_pb2.ServerReflectionResponse.FromString)
    return list(call(iter(requests)))


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
def test_each_question_of_a_stream_has_its_answer(channel, version):
    Request = reflection_pb2.ServerReflectionRequest
    asked = [Request(list_services="", host="x"), Request(file_by_filename="none"), Request(file_containing_symbol="inference.ModelConfig"), Request(),
             Request(file_containing_symbol="x" * 5000), Request(all_extension_numbers_of_type="inference.ModelConfig")] * 50
    answers = reflect(channel, *asked, version=version)
    kinds = ["list_services_response", "error_response", "file_descriptor_response", "error_response", "error_response",
             "all_extension_numbers_response"] * 50
    assert [answer.WhichOneof("message_response") for answer in answers] == kinds
    assert [answer.original_request for answer in answers] == asked
    assert [answer.error_response.error_code for answer in answers[1:6]] == [5, 0, 3, 5, 0]
    assert answers[0].valid_host == "x"


def test_reflection_can_be_switched_off(models):
    with Server(models, flags=[*EXPLICIT, "--grpc-reflection=false"], grpc=True) as served, grpc.insecure_channel(served.grpc_url) as channel:
        with pytest.raises(grpc.RpcError) as caught:
            reflect(channel, reflection_pb2.ServerReflectionRequest(list_services=""))
        assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED


# ---- Restricted parts ----------------------------------------------------------------------------


RESTRICTED = [*EXPLICIT, "--grpc-restricted-protocol=health,inference:Infer-Key=a b", "--grpc-restricted-protocol=model-repository:admin=secret",
              "--http-restricted-api=metadata,model-repository:X-Admin=secret"]


@pytest.fixture(scope="module")
def guarded(models):
    with Server(models, flags=RESTRICTED, grpc=True) as server:    # its health is restricted for gRPC only, so it is awaited
        yield server


def call_error(call):
    """The status and the text of a call; (None, None) if it succeeds."""
    try:
        call()
    except InferenceServerException as error:
        return error.status(), error.message()
    return None, None


def test_a_restricted_protocol_needs_its_metadata(guarded):
    inputs = [client.InferInput("INPUT0", [1], "FP32")]
    inputs[0].set_data_from_numpy(np.ones(1, np.float32))
    with client.InferenceServerClient(guarded.grpc_url) as triton:
        restricted = [lambda headers: triton.is_server_ready(headers=headers), lambda headers: triton.infer("echo", inputs, headers=headers),
                      lambda headers: triton.is_model_ready("echo", headers=headers)]
        for call in restricted:
            for headers in (None, {"triton-grpc-protocol-infer-key": "a"}, {"infer-key": "a b"}, {"triton-grpc-protocol-admin": "secret"}):
                assert call_error(lambda: call(headers)) == (
                    "StatusCode.UNAVAILABLE", "This protocol is restricted, expecting header 'triton-grpc-protocol-Infer-Key'")
            assert call({"triton-grpc-protocol-infer-key": "a b"})
        assert call_error(lambda: triton.load_model("other"))[0] == "StatusCode.UNAVAILABLE"
        triton.load_model("other", headers={"triton-grpc-protocol-admin": "secret"})
        triton.unload_model("other", headers={"triton-grpc-protocol-admin": "secret"})
        assert triton.get_server_metadata().name == "triton"
    with grpc.insecure_channel(guarded.grpc_url) as channel:
        assert Watch(channel, "").next() == grpc.StatusCode.UNAVAILABLE


def test_a_restricted_stream_needs_its_metadata(guarded):
    for headers, code in ((None, "UNAVAILABLE"), ({"triton-grpc-protocol-infer-key": "a b"}, None)):
        answers = queue.Queue()
        with client.InferenceServerClient(guarded.grpc_url) as triton:
            triton.start_stream(callback=lambda result, error: answers.put(error), headers=headers)
            tensor = client.InferInput("INPUT0", [1], "FP32")
            tensor.set_data_from_numpy(np.ones(1, np.float32))
            try:
                triton.async_stream_infer("echo", [tensor])
            except InferenceServerException:
                assert code    # the client has seen the end already
            error = answers.get(timeout=WITHIN_S)
        assert (error and error.status()) == (code and f"StatusCode.{code}")


def test_a_restricted_api_needs_its_header(guarded):
    """The restriction comes before everything else: the method, the body, the model."""
    refused = b'{"error":"This API is restricted, expecting header \'X-Admin\'"}'
    for method, path in (("GET", "/v2"), ("POST", "/v2"), ("GET", "/v2/models/echo"), ("GET", "/v2/models/none"), ("POST", "/v2/repository/index"),
                         ("POST", "/v2/repository/models/other/load")):
        for headers in ({}, {"X-Admin": "Secret"}, {"X-Admin": "secretly"}):
            answer = ask(guarded, method, path, b"{" if method == "POST" else b"", headers)
            assert (answer.status, answer.body) == (403, refused)
    admitted = {"x-admin": "secret"}
    assert ask(guarded, "GET", "/v2", headers=admitted).status == 200
    assert ask(guarded, "POST", "/v2", b"", admitted).status == 405
    assert ask(guarded, "GET", "/v2/models/none", headers=admitted).status == 404
    for path, status in (("/v2/models/echo/config", 200), ("/v2/health/ready", 200), ("/v2/none", 404)):
        assert ask(guarded, "GET", path).status == status


@pytest.mark.parametrize("flag, what", [("--http-restricted-api", "api"), ("--grpc-restricted-protocol", "protocol")])
def test_wrong_restrictions_are_refused(models, flag, what):
    for values, text in ((["none:k=v"], f"unknown restricted {what} 'none'"),
                         (["health:k=v", "trace,health:k=w"], f"restricted {what} 'health' can not be specified in multiple config groups"),
                         (["health:k"], f"{flag} option format is '<config name>:<setting>=<value>'. Got health:k")):
        code, out, err = run_to_end(f"--model-repository={models}", *(f"{flag}={value}" for value in values))
        assert code == 1
        assert text in out + err


# ---- Metadata for models -------------------------------------------------------------------------


def write_teller(models):
    """A model whose answer has a line for each parameter of the request."""
    repository.write_model(models, "teller", 'backend: "caller"\n' + repository.tensor("input", "IN", "INT32", [1]) + repository.tensor("output", "OUT", "BYTES", [1]))
    shutil.copy(BUILD / "tests/backends/caller/libtriton_caller.so", models / "teller")


def told(triton, headers, **more):
    """The parameters that the model was given."""
    tensor = client.InferInput("IN", [1], "INT32")
    tensor.set_data_from_numpy(np.zeros(1, np.int32))
    lines = triton.infer("teller", [tensor], headers=headers, **more).as_numpy("OUT")[0].decode().splitlines()
    return [line for line in lines if line.startswith("parameter")]


def test_metadata_become_parameters(tmp_path):
    write_teller(tmp_path)
    with Server(tmp_path, flags=["--grpc-header-forward-pattern=^(x-|my_)|timeout$"], grpc=True) as served, \
            client.InferenceServerClient(served.grpc_url) as triton:
        plain = told(triton, None)
        lines = told(triton, {"x-one": "1", "other": "2", "my_two": "a b", "x-three": "3"}, parameters={"own": 4})
        assert [line for line in lines if line not in plain] == lines
        assert len(lines) == 4
        assert all(any(word in line for line in lines) for word in ("own", "x-one", "my_two", "x-three", "a b"))
        with pytest.raises(InferenceServerException, match="Header 'timeout' is reserved for Triton usage and cannot be forwarded."):
            told(triton, {"timeout": "1"})
        answers = queue.Queue()
        triton.start_stream(callback=lambda result, error: answers.put((result, error)), headers={"x-one": "streamed"})
        tensor = client.InferInput("IN", [1], "INT32")
        tensor.set_data_from_numpy(np.zeros(1, np.int32))
        for _ in range(2):
            triton.async_stream_infer("teller", [tensor])
            result, error = answers.get(timeout=WITHIN_S)
            assert error is None
            assert b"streamed" in result.as_numpy("OUT")[0]
        triton.stop_stream()


def test_a_wrong_pattern_ends_the_start(tmp_path):
    write_teller(tmp_path)
    code, out, err = run_to_end(f"--model-repository={tmp_path}", "--allow-http=false", "--allow-metrics=false", "--grpc-port=0",
                                "--grpc-header-forward-pattern=x-(")
    assert code == 1
    assert "invalid regular expression 'x-('" in out + err
