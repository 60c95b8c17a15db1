# SPDX-License-Identifier: Apache-2.0
"""Ensembles, the models of their steps (tests/plugins/stage), and requests to them over HTTP and gRPC."""

import dataclasses
import json
import pathlib
import shutil

import grpc
import numpy
import pytest
from google.protobuf import json_format
from tritonclient.grpc import service_pb2 as pb

import embed
import repository
import server as servers
import triton
import wire

LIBRARY = servers.BUILD / "tests/backends/stage/libtriton_stage.so"
SERVICE = "/inference.GRPCInferenceService/"

# What each ensemble's response has, also without a sequence (reference/behaviours §12.2).
THREE = {"sequence_id": 0, "sequence_start": False, "sequence_end": False}

EITHER = ["conch", "triton"]
PROTOCOLS = ["http", "grpc"]


def need(which):
    """Skips the test if that server is not there."""
    if which == "triton" and triton.missing():
        pytest.skip(triton.missing())


def start(which, root, flags=(), ready=True, **more):
    """A server, of Conch or the genuine one, with HTTP and gRPC."""
    need(which)
    if which == "conch":
        return servers.Server(root, flags=flags, ready=ready, grpc=True, **more)
    return triton.Triton(root, flags=flags, ready=ready)


# ---- Models


class Stage:
    """A model of the backend stage. inputs and outputs: names, or (name, dims); all are INT32."""

    def __init__(self, root, name, inputs=("IN",), outputs=("OUT",), batch=0, optional=(), more="", versions=(1,),
                 **parameters):
        text = f'name: "{name}"\nbackend: "stage"\nmax_batch_size: {batch}\n'
        text += tensors("input", inputs, optional) + tensors("output", outputs)
        if "instance_group" not in more:
            text += "instance_group [ { count: 1 kind: KIND_CPU } ]\n"
        for key, value in parameters.items():
            text += f'parameters {{ key: "{key}" value: {{ string_value: "{value}" }} }}\n'
        self.name = name
        self.folder = repository.write_model(root, name, text + more, versions)
        shutil.copy(LIBRARY, self.folder)
        self._read = 0

    def seen(self):
        """The requests that it has got since the last call, in the order of their executions."""
        file = self.folder / "seen"
        lines = file.read_text().splitlines() if file.exists() else []
        new, self._read = lines[self._read:], len(lines)
        return [json.loads(line) for line in new]

    def n_seen(self):
        """How many it has got in all."""
        file = self.folder / "seen"
        return len(file.read_text().splitlines()) if file.exists() else 0

    def saw(self):
        """The only one of them."""
        (request,) = self.seen()
        return request

    def shut(self, gate):
        """Shuts a gate from now on: hold.load, fail.load, hold.execute, hold.response."""
        (self.folder / f"{gate}.reached").unlink(missing_ok=True)
        (self.folder / gate).write_text("")

    def open(self, gate):
        (self.folder / gate).unlink(missing_ok=True)

    def await_reached(self, gate, n=1):
        """Waits until so many have come to the gate since it was shut."""
        file = self.folder / f"{gate}.reached"
        servers.wait_for(lambda: file.exists() and file.stat().st_size >= n, 60, f"{n} of {self.name} wait at {gate}")


def tensors(side, them, optional=()):
    text = ""
    for one in them:
        name, dims = (one, [-1]) if isinstance(one, str) else one
        choice = "optional: true " if name in optional else ""
        text += f'{side} [ {{ name: "{name}" data_type: TYPE_INT32 dims: [ {", ".join(map(str, dims))} ] {choice}}} ]\n'
    return text


def step(model, inputs, outputs, version=-1):
    """A step of an ensemble; inputs and outputs: "IN=X OUT=Y", the model's name first."""
    def entries(kind, pairs):
        return " ".join('%s { key: "%s" value: "%s" }' % (kind, *pair.split("=")) for pair in pairs.split())

    return f'{{ model_name: "{model}" model_version: {version} {entries("input_map", inputs)} {entries("output_map", outputs)} }}'


def ensemble(root, name, inputs, outputs, *steps, batch=0, optional=(), more="", versions=(1,), fields=""):
    """Writes an ensemble. fields: of ensemble_scheduling, beside its steps."""
    text = f'name: "{name}"\nplatform: "ensemble"\nmax_batch_size: {batch}\n'
    text += tensors("input", inputs, optional) + tensors("output", outputs)
    text += f"ensemble_scheduling {{ {fields} step [ " + ",\n".join(steps) + " ] }\n" + more
    return repository.write_model(root, name, text, versions)


# ---- Requests


@dataclasses.dataclass
class Answer:
    """code: a gRPC code's name, OK for an answer; error: with the text of the reference alone, also of an ensemble; said: the whole
    text; outputs: {name: (shape, elements)}."""

    code: str
    error: str = ""
    outputs: dict = dataclasses.field(default_factory=dict)
    parameters: dict = dataclasses.field(default_factory=dict)
    id: str = ""
    model: str = ""
    version: str = ""
    said: str = dataclasses.field(default="", compare=False)

    def __post_init__(self):
        self.said = self.error
        self.error = embed.without_step(self.error)

    def __getitem__(self, name):
        """The elements of an output."""
        assert self.code == "OK", self
        return self.outputs[name][1]


CODES = {400: "INVALID_ARGUMENT", 404: "NOT_FOUND", 409: "ALREADY_EXISTS", 499: "CANCELLED", 500: "INTERNAL", 501: "UNIMPLEMENTED",
         503: "UNAVAILABLE", 504: "DEADLINE_EXCEEDED"}


def shaped(value):
    """(shape, elements) of a list of numbers, or of such a pair."""
    return value if isinstance(value, tuple) else ([len(value)], value)


def ask(server, protocol, model, inputs, outputs=None, version="", id="", headers=None, **parameters):
    """Sends a request. inputs: {name: [element, …] or (shape, elements)}, all INT32; parameters: of the request."""
    how = _over_http if protocol == "http" else _over_grpc
    return how(server, model, {name: shaped(value) for name, value in inputs.items()}, outputs, version, id, parameters)


def _over_http(server, model, inputs, outputs, version, id, parameters):
    document = {"inputs": [wire.given(name, "INT32", shape, data) for name, (shape, data) in inputs.items()]}
    if id:
        document["id"] = id
    if parameters:
        document["parameters"] = parameters
    if outputs is not None:
        document["outputs"] = [{"name": name} for name in outputs]
    path = f"/v2/models/{model}" + (f"/versions/{version}" if version else "") + "/infer"
    got = wire.ask(server, "POST", path, json.dumps(document).encode())
    if got.status != 200:
        return Answer(CODES.get(got.status, str(got.status)), got.error)
    said = got.json()
    return Answer("OK", "", {one["name"]: (one["shape"], one["data"]) for one in said.get("outputs", [])}, said.get("parameters", {}),
                  said.get("id", ""), said["model_name"], said["model_version"])


def message_of(model, inputs, outputs=None, version="", id="", parameters=()):
    request = pb.ModelInferRequest(model_name=model, model_version=version, id=id)
    for name, (shape, data) in inputs.items():
        request.inputs.add(name=name, datatype="INT32", shape=shape)
        request.raw_input_contents.append(numpy.array(data, "<i4").tobytes())
    for name in outputs or []:
        request.outputs.add(name=name)
    for key, value in dict(parameters).items():
        kind = {bool: "bool_param", int: "int64_param", str: "string_param", float: "double_param"}[type(value)]
        setattr(request.parameters[key], kind, value)
    return request


def plain(parameter):
    (value,) = json_format.MessageToDict(parameter).items() or [("", None)]
    return int(value[1]) if value[0] in ("int64Param", "uint64Param") else value[1]


def answer_of(response):
    got = {output.name: (list(output.shape), numpy.frombuffer(raw, "<i4").tolist())
           for output, raw in zip(response.outputs, response.raw_output_contents)}
    return Answer("OK", "", got, {key: plain(value) for key, value in response.parameters.items()}, response.id,
                  response.model_name, response.model_version)


def _over_grpc(server, model, inputs, outputs, version, id, parameters):
    message = message_of(model, inputs, outputs, version, id, parameters)
    with grpc.insecure_channel(server.grpc_url) as channel:
        call = channel.unary_unary(SERVICE + "ModelInfer", pb.ModelInferRequest.SerializeToString, pb.ModelInferResponse.FromString)
        try:
            return answer_of(call(message, timeout=60))
        except grpc.RpcError as error:
            return Answer(error.code().name, error.details())


def stream(server, *messages):
    """Sends the requests in one stream of ModelStreamInfer: the answers in their order, and those that are final."""
    with grpc.insecure_channel(server.grpc_url) as channel:
        call = channel.stream_stream(SERVICE + "ModelStreamInfer", pb.ModelInferRequest.SerializeToString, pb.ModelStreamInferResponse.FromString)
        answers = []
        for got in call(iter(messages), timeout=60):
            answers.append(Answer("ERROR", got.error_message) if got.error_message else answer_of(got.infer_response))
        return answers


def statistics(server, model, version="1"):
    """The statistics of a model: {"success": (count, ns), …}, and its counts."""
    got = wire.ask(server, "GET", f"/v2/models/{model}/versions/{version}/stats").json()["model_stats"][0]
    figures = {key: (value["count"], value["ns"]) for key, value in got["inference_stats"].items()}
    return figures | {"inference_count": got["inference_count"], "execution_count": got["execution_count"]}


def index(server):
    """{name: (state, reason)} of all models' versions, in the repository's index."""
    got = wire.ask(server, "POST", "/v2/repository/index").json()
    return {(one["name"], one.get("version", "")): (one.get("state", ""), one.get("reason", "")) for one in got}


def command(server, what, model, document=None):
    """Loads or unloads: (status, error)."""
    got = wire.ask(server, "POST", f"/v2/repository/models/{model}/{what}", json.dumps(document or {}).encode())
    return got.status, got.error if got.body else ""


def is_ready(server, model, version=""):
    path = f"/v2/models/{model}" + (f"/versions/{version}" if version else "") + "/ready"
    return wire.ask(server, "GET", path).status == 200
