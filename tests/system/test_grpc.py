# SPDX-License-Identifier: Apache-2.0
"""The gRPC service with Triton's own client."""

import queue
import subprocess
import zlib

import grpc
import numpy as np
import pytest
import tritonclient.grpc as client
from tritonclient.grpc import service_pb2
from tritonclient.utils import InferenceServerException

import repository
from server import Server


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    models = tmp_path_factory.mktemp("models")
    repository.write_identity(models, "echo", [("FP32", [-1])])
    repository.write_identity(models, "strings", [("BYTES", [-1])])
    repository.write_model(models, "repeat", repository.REPEAT)
    with Server(models, flags=["--model-control-mode=explicit", "--load-model=*"], grpc=True) as server:
        yield server


@pytest.fixture
def triton(served):
    with client.InferenceServerClient(served.grpc_url) as made:
        yield made


def names_of(triton, model):
    config = triton.get_model_config(model).config
    return config.input[0].name, config.output[0].name


DATATYPES = {"float32": "FP32", "int32": "INT32", "uint32": "UINT32", "object": "BYTES"}


def tensor(name, values):
    made = client.InferInput(name, list(values.shape), DATATYPES[str(values.dtype)])
    made.set_data_from_numpy(values)
    return made


def to_repeat(count, delay_ms):
    """The inputs of the model `repeat` for that many responses."""
    return [tensor("IN", np.arange(count, dtype=np.int32)), tensor("DELAY", np.full(count, delay_ms, np.uint32)),
            tensor("WAIT", np.zeros(1, np.uint32))]


def test_health_and_metadata(triton):
    assert triton.is_server_live()
    assert triton.is_server_ready()
    assert triton.is_model_ready("echo")
    with pytest.raises(InferenceServerException, match="NOT_FOUND"):
        triton.is_model_ready("none")
    assert "statistics" in triton.get_server_metadata().extensions
    metadata = triton.get_model_metadata("echo")
    assert metadata.versions == ["1"]
    assert metadata.inputs[0].datatype == "FP32"
    assert triton.get_model_config("echo").config.backend == "identity"
    assert {row.name for row in triton.get_model_repository_index().models} == {"echo", "strings", "repeat"}


@pytest.mark.parametrize("count", [0, 1, 1000, 300_000, 3_000_000])
def test_inferences_of_any_size_are_answered(triton, count):
    name, output = names_of(triton, "echo")
    values = np.arange(count, dtype=np.float32)
    result = triton.infer("echo", [tensor(name, values)], request_id="7")
    assert (result.as_numpy(output) == values).all()
    assert result.get_response().id == "7"
    assert result.get_response().model_version == "1"


def test_strings_are_echoed(triton):
    name, output = names_of(triton, "strings")
    values = np.array([b"", b"abc", b"\x00\xff"], dtype=object)
    assert list(triton.infer("strings", [tensor(name, values)]).as_numpy(output)) == list(values)


def test_statistics_count_inferences(triton):
    before = triton.get_inference_statistics("echo").model_stats[0].inference_stats.success.count
    name, _ = names_of(triton, "echo")
    triton.infer("echo", [tensor(name, np.ones(3, np.float32))])
    assert triton.get_inference_statistics("echo").model_stats[0].inference_stats.success.count == before + 1


def test_typed_contents_are_accepted(served):
    """Clients that know the protocol, but not Triton's raw form, send typed contents."""
    with grpc.insecure_channel(served.grpc_url) as channel:
        infer = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer",
                                    request_serializer=service_pb2.ModelInferRequest.SerializeToString,
                                    response_deserializer=service_pb2.ModelInferResponse.FromString)
        request = service_pb2.ModelInferRequest(model_name="echo")
        made = request.inputs.add(name="INPUT0", datatype="FP32", shape=[3])
        made.contents.fp32_contents.extend([1, 2, 3])
        response = infer(request)
        assert np.frombuffer(response.raw_output_contents[0], np.float32).tolist() == [1, 2, 3]


def test_errors_have_codes(triton):
    name, _ = names_of(triton, "echo")
    one = [tensor(name, np.ones(1, np.float32))]
    for call, code in [(lambda: triton.infer("none", one), "NOT_FOUND"),
                       (lambda: triton.infer("repeat", one), "UNIMPLEMENTED"),
                       (lambda: triton.infer("echo", []), "INVALID_ARGUMENT"),
                       (lambda: triton.infer("echo", one, model_version="x"), "INVALID_ARGUMENT"),
                       (triton.unregister_system_shared_memory, "UNIMPLEMENTED")]:
        with pytest.raises(InferenceServerException) as caught:
            call()
        assert caught.value.status() == f"StatusCode.{code}", caught.value


def test_a_deadline_ends_a_call(triton):
    answers = queue.Queue()
    triton.start_stream(callback=lambda result, error: answers.put((result, error)), stream_timeout=0.5)
    triton.async_stream_infer("repeat", to_repeat(1, 60_000))
    result, error = answers.get(timeout=60)
    assert result is None
    assert "Deadline Exceeded" in str(error)
    triton.stop_stream(cancel_requests=True)


def test_a_stream_of_a_decoupled_model(triton):
    answers = queue.Queue()
    triton.start_stream(callback=lambda result, error: answers.put((result, error)))
    triton.async_stream_infer("repeat", to_repeat(5, 0), request_id="r", enable_empty_final_response=True)
    seen = []
    while True:
        result, error = answers.get(timeout=60)
        assert error is None
        response = result.get_response()
        assert response.id == "r"
        if response.outputs:
            seen.append(int(result.as_numpy("OUT")[0]))
        if response.parameters["triton_final_response"].bool_param:
            break
    assert seen == [0, 1, 2, 3, 4]
    triton.stop_stream()


LEVELS = [("low", "gzip,deflate", "gzip"), ("low", "deflate", "deflate"), ("medium", "gzip,deflate", "deflate"),
          ("high", "gzip,deflate", "deflate"), ("high", "gzip", "gzip"), ("none", "gzip,deflate", None), ("high", "br", None)]


@pytest.mark.parametrize("level, accepted, chosen", LEVELS)
def test_the_level_chooses_the_compression_of_answers(tmp_path, level, accepted, chosen):
    """grpcio hides the encoding, so curl asks; grpcio then unpacks an answer, too."""
    models, body, head = (tmp_path / name for name in ("models", "body", "head"))
    repository.write_identity(models, "echo", [("FP32", [-1])])
    values = np.zeros(100_000, np.float32)
    request = service_pb2.ModelInferRequest(model_name="echo", raw_input_contents=[values.tobytes()])
    request.inputs.add(name="INPUT0", datatype="FP32", shape=[len(values)])
    message = request.SerializeToString()
    body.write_bytes(b"\0" + len(message).to_bytes(4, "big") + message)
    with Server(models, flags=[f"--grpc-infer-response-compression-level={level}"], grpc=True) as served:
        answer = subprocess.run(["curl", "-s", "--http2-prior-knowledge", "-D", head, "--data-binary", f"@{body}",
                                 "-H", "content-type: application/grpc", "-H", f"grpc-accept-encoding: {accepted}",
                                 f"http://{served.grpc_url}/inference.GRPCInferenceService/ModelInfer"],
                                capture_output=True, timeout=60, check=True).stdout
        with client.InferenceServerClient(served.grpc_url) as triton:
            result = triton.infer("echo", [tensor("INPUT0", values)], compression_algorithm="gzip")
            assert (result.as_numpy("OUTPUT0") == values).all()
    fields = dict(line.split(": ", 1) for line in head.read_text().splitlines() if ": " in line)
    assert fields.get("grpc-encoding") == chosen
    assert answer[0] == bool(chosen)
    unpacked = zlib.decompress(answer[5:], zlib.MAX_WBITS | 32) if chosen else answer[5:]
    assert service_pb2.ModelInferResponse.FromString(unpacked).raw_output_contents[0] == values.tobytes()


def test_models_are_loaded_and_unloaded(triton):
    triton.unload_model("strings")
    triton.load_model("strings")
    assert triton.is_model_ready("strings")
    with pytest.raises(InferenceServerException):
        triton.load_model("none")


def test_log_settings_are_reported(triton):
    assert triton.get_log_settings().settings["log_format"].string_param == "default"
    assert triton.update_log_settings({"log_verbose_level": 1}).settings["log_verbose_level"].uint32_param == 1
    triton.update_log_settings({"log_verbose_level": 0})
