# SPDX-License-Identifier: Apache-2.0
"""A program that serves models by PyTriton as it is, for test_pytriton.py, which runs it with a Python that has PyTriton.

pytriton_app.py DIST WORKSPACE WHAT [KEY=VALUE…]

DIST is a folder for TRITONSERVER_DIST_DIR, or "-" for the genuine server of the package. WHAT is `serve`, `fatal` or
`settings` (models in a server of this program) or `remote` (a model in the server url=… with token=…). Values are of
TritonConfig.
The program prints a line "APP {…}" when it serves, and then serves until its standard input ends, or it is killed.
"""

import json
import pathlib
import sys
import threading

import numpy as np
import pytriton.triton
from pytriton.client import ModelClient
from pytriton.decorators import batch, first_value, group_by_keys
from pytriton.exceptions import PyTritonUnrecoverableError
from pytriton.model_config import DynamicBatcher, ModelConfig, Tensor
from pytriton.triton import RemoteTriton, Triton, TritonConfig, TritonSecurityConfig


def tensor(name, dtype, shape=(-1,), **more):
    return Tensor(name=name, dtype=dtype, shape=shape, **more)


@batch
def identity(value):
    return {"copy": value}


@group_by_keys
@batch
def add_sub(a, b=None, c=None):
    """Requests with the same inputs come together."""
    b = np.zeros_like(a) if b is None else b
    c = np.zeros_like(a) if c is None else c
    return {"sum": a + b + c, "difference": a - b - c}


@batch
@first_value("power")
def powers(value, power):
    return {"result": value**power}


def numbers(requests):
    """As many responses as the request says, and an error after them if that is odd."""
    assert len(requests) == 1
    n = int(requests[0].data["n"][0])
    for i in range(n):
        yield [{"number": np.array([i], np.int32)}]
    if n % 2:
        raise ValueError(f"{n} is odd")


@batch
def moody(what):
    if what[0, 0] == 1:
        raise ValueError("all went wrong")
    if what[0, 0] == 2:
        return {"other": what}
    if what[0, 0] == 3:
        return {"same": what.astype(np.float64)}
    return {"same": what}


def told(requests):
    """The parameters, among them headers, and the outputs that were asked for."""
    return [{"text": np.array([json.dumps(request.parameters, sort_keys=True).encode()]),
             "outputs": np.array([json.dumps(sorted(request.requested_output_names)).encode()])} for request in requests]


@batch
def shapes(matrix, text):
    longest = max((len(t) for t in text.ravel()), default=0)
    return {"transposed": np.swapaxes(matrix, 1, 2), "longest": np.full((len(matrix), 1), longest, np.int64)}


seen = []    # sizes of the batches


@batch
def batched(value):
    seen.append(len(value))
    return {"size": np.full((len(value), 1), len(value), np.int64)}


both = threading.Barrier(2)


def together(name):
    """A function that answers with its name when another one runs, too."""
    @batch
    def meet(value):
        both.wait(120)
        return {"name": np.full((len(value), 1), name.encode())}
    return meet


@batch
def ends(value):
    raise PyTritonUnrecoverableError("nothing helps any more")


def bind(triton):
    for name, dtype in ("fp32", np.float32), ("bool", np.bool_), ("bytes", np.bytes_):
        triton.bind(f"identity_{name}", identity, [tensor("value", dtype)], [tensor("copy", dtype)],
                    config=ModelConfig(max_batch_size=8))
    triton.bind("add_sub", add_sub, [tensor("a", np.float32), tensor("b", np.float32, optional=True), tensor("c", np.float32, optional=True)],
                [tensor("sum", np.float32), tensor("difference", np.float32)], config=ModelConfig(max_batch_size=8))
    triton.bind("powers", powers, [tensor("value", np.int64), tensor("power", np.int64, (1,))], [tensor("result", np.int64)],
                config=ModelConfig(max_batch_size=8))
    triton.bind("numbers", numbers, [tensor("n", np.int32, (1,))], [tensor("number", np.int32, (1,))],
                config=ModelConfig(batching=False, decoupled=True))
    triton.bind("moody", moody, [tensor("what", np.int32, (1,))], [tensor("same", np.int32, (1,))], strict=True)
    triton.bind("told", told, [tensor("value", np.int32, (1,))], [tensor("text", np.bytes_, (1,)), tensor("outputs", np.bytes_, (1,))],
                config=ModelConfig(batching=False))
    triton.bind("shapes", shapes, [tensor("matrix", np.float32, (-1, -1)), tensor("text", np.bytes_, (-1,))],
                [tensor("transposed", np.float32, (-1, -1)), tensor("longest", np.int64, (1,))], config=ModelConfig(max_batch_size=16))
    triton.bind("batched", batched, [tensor("value", np.float32, (1,))], [tensor("size", np.int64, (1,))],
                config=ModelConfig(max_batch_size=4, batcher=DynamicBatcher(max_queue_delay_microseconds=60_000_000, preferred_batch_size=[4])))


    triton.bind("together", [together("one"), together("two")], [tensor("value", np.float32, (1,))], [tensor("name", np.bytes_, (1,))],
                config=ModelConfig(max_batch_size=1))


def bind_remote(triton):
    triton.bind("remote", powers, [tensor("value", np.int64), tensor("power", np.int64, (1,))], [tensor("result", np.int64)],
                config=ModelConfig(max_batch_size=8))


def bind_fatal(triton):
    triton.bind("ends", ends, [tensor("value", np.float32, (1,))], [tensor("copy", np.float32, (1,))])


# All that a server without TLS, a cache, a cloud's protocol and a collector of traces may have, besides ports and addresses.
EVERY_SETTING = {
    "id": "mine", "log_verbose": 1, "exit_timeout_secs": 20, "exit_on_error": False, "strict_readiness": False, "allow_http": True,
    "http_header_forward_pattern": "x.*", "http_thread_count": 2, "allow_grpc": True, "grpc_header_forward_pattern": "x.*",
    "grpc_infer_allocation_pool_size": 4, "grpc_use_ssl": False, "grpc_use_ssl_mutual": False,
    "grpc_infer_response_compression_level": "none", "grpc_keepalive_time": 10000, "grpc_keepalive_timeout": 10000,
    "grpc_keepalive_permit_without_calls": True, "grpc_http2_max_pings_without_data": 2,
    "grpc_http2_min_recv_ping_interval_without_data": 1000, "grpc_http2_max_ping_strikes": 2, "allow_metrics": True,
    "allow_gpu_metrics": False, "allow_cpu_metrics": True, "metrics_interval_ms": 2000, "metrics_address": "127.0.0.1",
    "metrics_config": ["summary_latencies=false"], "allow_sagemaker": False, "allow_vertex_ai": False,
    "buffer_manager_thread_count": 2,
}


def read_settings(words):
    settings = dict(word.split("=", 1) for word in words)
    return {k: int(v) if v.isdigit() else v for k, v in settings.items()}


def end_with_input(triton):
    """Ends it when the test closes the pipe; a thread, since serve() waits in the main one."""
    sys.stdin.read()
    triton.stop()


def report(url, token, model):
    """Asks by PyTriton's own client, as its quick start does, and says where the server is."""
    with ModelClient(url, model, access_token=token) as client:
        model_config = client.model_config
    print("\nAPP", json.dumps({"url": url, "token": token, "inputs": [spec.name for spec in model_config.inputs]}), flush=True)


def main():
    dist, workspace, what = sys.argv[1:4]
    settings = read_settings(sys.argv[4:])
    if dist != "-":
        pytriton.triton.TRITONSERVER_DIST_DIR = pathlib.Path(dist)
    if what == "remote":
        triton = RemoteTriton(url=settings["url"], workspace=workspace, access_token=settings["token"])
        bind_remote(triton)
        triton.connect()
        report(settings["url"], settings["token"], "remote")
        sys.stdin.read()    # its serve() does not end with stop()
        triton.stop()
    else:
        if what == "settings":
            settings.update(EVERY_SETTING)
        security = TritonSecurityConfig(access_token=settings.pop("token", None))
        triton = Triton(config=TritonConfig(**settings), workspace=workspace, security_config=security)
        {"fatal": bind_fatal, "settings": bind_remote, "serve": bind}[what](triton)
        triton.run()
        report(f"http://127.0.0.1:{settings['http_port']}", triton.get_access_token(),
               {"fatal": "ends", "settings": "remote", "serve": "add_sub"}[what])
        threading.Thread(target=end_with_input, args=(triton,), daemon=True).start()
        # Not Triton.serve(): it starts the server again if the test has already killed it, and fails, since the folder is gone.
        super(Triton, triton).serve()


if __name__ == "__main__":
    main()
