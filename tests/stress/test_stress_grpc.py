# SPDX-License-Identifier: Apache-2.0
"""Connections by the dozen, each with calls and streams at once, that end in every way: answered, cancelled, late, reset,
half-closed early, with their connection. Some ask ensembles, whose steps are decoupled, or keep a state.

Each answer that comes is right: values, their order in a stream, the sums of a sequence, and the number of a decoupled model's responses. At the
end each call that a client has had answered is counted, and none twice: accepted = answered + cancelled. Nothing is
left: no pending request, no memory of connections, and all models unload. With TLS some calls become spans for a collector that refuses and lies.

CONCH_STRESS_SECONDS=n  how long (`make stress SECONDS=n`), half of it with TLS; 5
CONCH_STRESS_SEED=n     the same choices again, though not the same times; otherwise random, and printed
"""

import collections
import itertools
import os
import random
import re
import shutil
import struct
import threading
import time
import traceback
import urllib.request

import grpc
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc

import clients
import pipelines
import repository
import server as servers
import spans
from certificates import Authority
from otlp_collector import Collector
from wire import ask

SECONDS = float(os.environ.get("CONCH_STRESS_SECONDS", "5"))
CONNECTIONS, CALLS = 64, 10
LOOPS, AT_REST_BYTES = 3, 2 << 20    # a loop's pool keeps a megabyte
PATIENCE_S = 300    # for an answer that must come

STEADY = ["steady_inline", "steady_thread", "steady_queue", "steady_cached"]    # whose clients wait
FICKLE = ["fickle_inline", "fickle_slow", "fickle_queue", "fickle_cached"]      # whose clients may leave
GENERATORS = ["repeat", "waves", "held"]    # decoupled: a model, ensembles; each is there as steady_… and as fickle_…
SUMS = ["sums", "nested_sums"]    # ensembles with a stateful step, likewise
PARTS = ["part_identity", "part_batch", "part_repeat", "part_sums", "fickle_part_sums"]
LEFT = {grpc.StatusCode.CANCELLED, grpc.StatusCode.DEADLINE_EXCEEDED}

REPEAT = ('backend: "repeat"\nmodel_transaction_policy { decoupled: true }\n' + repository.tensor("input", "IN", "INT32", [-1])
          + repository.tensor("input", "DELAY", "UINT32", [-1]) + repository.tensor("input", "WAIT", "UINT32", [1])
          + repository.tensor("output", "OUT", "INT32", [1]) + repository.tensor("output", "IDX", "UINT32", [1]))


SEQUENCE = servers.BUILD / "tests/backends/sequence/libtriton_sequence.so"


def write_sums(root, name, idle_us):
    """A model that adds up the values of a sequence, which the server keeps (tests/plugins/sequence)."""
    text = f'backend: "sequence"\nmax_batch_size: 8\n{pipelines.tensors("input", [("IN", [1])])}{pipelines.tensors("output", [("OUT", [1])])}'
    text += repository.tensor("output", "SEEN", "BYTES", [1]) + 'parameters { key: "keep" value: { string_value: "state" } }\n'
    text += f"""instance_group [ {{ count: 1 kind: KIND_CPU }} ]
sequence_batching {{
  max_sequence_idle_microseconds: {idle_us} oldest {{ max_candidate_sequences: 1024 }}
  control_input [ {{ name: "START" control [ {{ kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] }} ] }} ]
  state [ {{ input_name: "SI" output_name: "SO" data_type: TYPE_INT32 dims: [ 1 ]
    initial_state: {{ name: "i" data_type: TYPE_INT32 dims: [ 1 ] zero_data: true }} }} ] }}
"""
    shutil.copy(SEQUENCE, repository.write_model(root, name, text))


def write_ensembles(root):
    repository.write_identity(root, "part_identity", [("INT32", [1])])
    repository.write_identity(root, "part_batch", [("INT32", [1])], max_batch_size=8)
    repository.write_model(root, "part_repeat", REPEAT)
    write_sums(root, "part_sums", 600_000_000)
    write_sums(root, "fickle_part_sums", 20_000)    # its clients may leave a sequence
    ins = repository.tensor("input", "IN", "INT32", [-1]) + repository.tensor("input", "DELAY", "UINT32", [-1]) + repository.tensor(
        "input", "WAIT", "UINT32", [1])
    one, numbers = (("X", [1]),), repository.tensor("output", "OUT", "INT32", [1])
    for kind in ["steady", "fickle"]:
        for name, fields in (("waves", ""), ("held", "max_inflight_requests: 2")):
            steps = [pipelines.step("part_repeat", "IN=IN DELAY=DELAY WAIT=WAIT", "OUT=a"), pipelines.step("part_identity", "INPUT0=a", "OUTPUT0=b"),
                     pipelines.step("part_identity", "INPUT0=b", "OUTPUT0=OUT")]
            repository.write_model(root, f"{kind}_{name}", f'platform: "ensemble"\n{ins}{numbers}'
                                   f"ensemble_scheduling {{ {fields} step [ {', '.join(steps)} ] }}\n")
        sums = "part_sums" if kind == "steady" else "fickle_part_sums"
        pipelines.ensemble(root, f"{kind}_sums", one, (("Y", [1]),), pipelines.step("part_batch", "INPUT0=X", "OUTPUT0=a"),
                           pipelines.step(sums, "IN=a", "OUT=b"), pipelines.step("part_batch", "INPUT0=b", "OUTPUT0=Y"), batch=8)
        pipelines.ensemble(root, f"{kind}_nested_sums", one, (("Y", [1]),), pipelines.step(f"{kind}_sums", "X=X", "Y=Y"), batch=8)


def write_models(root):
    fp32 = [("INT32", [-1])]
    write_ensembles(root)
    for kind in ["steady", "fickle"]:
        repository.write_identity(root, f"{kind}_inline", fp32, CONCH_EXECUTION="inline")
        folder = repository.write_identity(root, f"{kind}_queue", [("INT32", [4])], max_batch_size=8)
        with open(folder / "config.pbtxt", "a", encoding="utf-8") as config:
            config.write("dynamic_batching { max_queue_delay_microseconds: 2000 }\n")
    repository.write_identity(root, "steady_thread", fp32, CONCH_EXECUTION="thread")
    repository.write_identity(root, "fickle_slow", fp32, execute_delay_ms=3)
    clients.write_cached(root, fp32)
    repository.write_model(root, "steady_repeat", REPEAT)
    repository.write_model(root, "fickle_repeat", REPEAT)
    return root


class Run:
    """What all clients share."""

    def __init__(self, server, seed, credentials=None):
        self.server, self.seed, self.credentials = server, seed, credentials
        self.over = False
        self.failures = []
        self.mu = threading.Lock()
        self.n_sequences = 0
        self.answered = collections.Counter()    # by model
        self.left = collections.Counter()        # asked, and not answered
        self.ends = collections.Counter()        # by kind of call and by status

    def count(self, model, answered, left=0):
        with self.mu:
            self.answered[model] += answered
            self.left[model] += left


# ---- Requests


def echo(chance, model):
    """A request, and the bytes of its answer."""
    rows = chance.choice([1, 2, 7])
    n = 4 * rows if model.endswith("queue") else chance.choice([1, 16, 1000, 100_000 if chance.random() < 0.1 else 3])
    values = chance.randbytes(4 * n)
    if model.endswith("cached"):
        values = clients.cached_bytes(chance)
        n = len(values) // 4
    request = service_pb2.ModelInferRequest(model_name=model, id=str(chance.getrandbits(60)))
    request.inputs.add(name="INPUT0", datatype="INT32", shape=[rows, 4] if model.endswith("queue") else [n])
    request.raw_input_contents.append(values)
    return request, values


def check_echo(response, request, values):
    assert response.id == request.id, (response.id, request.id)
    assert response.raw_output_contents[0] == values


def generator(model, count, delay_ms):
    """A request for that many responses."""
    request = service_pb2.ModelInferRequest(model_name=model, id="g")
    for name, kind, values in [("IN", "i", range(count)), ("DELAY", "I", [delay_ms] * count), ("WAIT", "I", [0])]:
        request.inputs.add(name=name, datatype="INT32" if kind == "i" else "UINT32", shape=[len(values)])
        request.raw_input_contents.append(struct.pack(f"<{len(values)}{kind}", *values))
    return request


# ---- Calls: each function begins one, and returns a function that waits for its end


def unary_answered(run, chance, stub):
    request, values = echo(chance, chance.choice(STEADY))
    call = stub.ModelInfer.future(request, timeout=PATIENCE_S)

    def end():
        check_echo(call.result(), request, values)
        run.count(request.model_name, 1)

    return end


def unary_left(run, chance, stub):
    """Cancelled, or late, or answered just before."""
    request, values = echo(chance, chance.choice(FICKLE))
    is_late = chance.random() < 0.5
    call = stub.ModelInfer.future(request, timeout=chance.choice([0.001, 0.003, 0.01, 0.05]) if is_late else PATIENCE_S)
    if not is_late:
        threading.Timer(chance.choice([0, 0.001, 0.01]), call.cancel).start()

    def end():
        try:
            check_echo(call.result(), request, values)
            run.count(request.model_name, 1)
        except (grpc.RpcError, grpc.FutureCancelledError) as error:
            code = error.code() if isinstance(error, grpc.RpcError) else grpc.StatusCode.CANCELLED
            assert code in LEFT, error
            run.count(request.model_name, 0, 1)

    return end


def stream_answered(run, chance, stub):
    """Answers come in the order of their requests; the client's side is closed early or late."""
    asked = [echo(chance, chance.choice(STEADY)) for _ in range(chance.choice([0, 1, 5, 20]))]
    held = threading.Event()
    is_early = chance.random() < 0.5

    def requests():
        yield from (request for request, _ in asked)
        if not is_early:
            held.wait(PATIENCE_S)

    call = stub.ModelStreamInfer(requests(), timeout=PATIENCE_S)

    def end():
        for i, (request, values) in enumerate(asked):
            if i == len(asked) - 1 and not is_early:
                held.set()
            response = next(call)
            assert not response.error_message, response.error_message
            check_echo(response.infer_response, request, values)
            run.count(request.model_name, 1)
        held.set()
        assert next(call, None) is None
        assert call.code() == grpc.StatusCode.OK

    return end


def stream_generated(run, chance, stub):
    """All responses of decoupled requests come, also through the steps of an ensemble, after an early half-close."""
    counts = [chance.choice([1, 10, 100]) for _ in range(chance.choice([1, 3]))]
    model = f"steady_{chance.choice(GENERATORS)}"
    call = stub.ModelStreamInfer(iter([generator(model, count, 0) for count in counts]), timeout=PATIENCE_S)

    def end():
        got = [struct.unpack("<i", response.infer_response.raw_output_contents[0])[0] for response in call]
        assert sorted(got) == sorted(i for count in counts for i in range(count))
        run.count(model, len(counts))

    return end


def part_of_sequence(model, sequence, value, starts, ends):
    request = service_pb2.ModelInferRequest(model_name=model, id=str(value))
    request.inputs.add(name="X", datatype="INT32", shape=[1, 1])
    request.raw_input_contents.append(struct.pack("<i", value))
    request.parameters["sequence_id"].int64_param = sequence
    request.parameters["sequence_start"].bool_param = starts
    request.parameters["sequence_end"].bool_param = ends
    return request


def sequence_of(run, chance, model):
    """The requests of a new sequence, and the sums that they are answered with."""
    values = [chance.randrange(1000) for _ in range(chance.choice([1, 3, 10]))]
    with run.mu:
        run.n_sequences += 1
        sequence = run.n_sequences
    requests = [part_of_sequence(model, sequence, value, i == 0, i == len(values) - 1) for i, value in enumerate(values)]
    return requests, list(itertools.accumulate(values))


def stream_summed(run, chance, stub):
    """A sequence through an ensemble whose step keeps the sum; sent at once, or one by one."""
    model = f"steady_{chance.choice(SUMS)}"
    requests, sums = sequence_of(run, chance, model)
    may_go_on = threading.Semaphore(len(requests) if chance.random() < 0.5 else 1)

    def one_after_the_other():
        for request in requests:
            assert may_go_on.acquire(timeout=PATIENCE_S)
            yield request

    call = stub.ModelStreamInfer(one_after_the_other(), timeout=PATIENCE_S)

    def end():
        for request, total in zip(requests, sums, strict=True):
            response = next(call)
            assert not response.error_message, response.error_message
            got = response.infer_response
            assert (got.id, struct.unpack("<i", got.raw_output_contents[0])) == (request.id, (total,))
            run.count(model, 1)
            may_go_on.release()
        assert next(call, None) is None

    return end


def stream_left(run, chance, stub):
    """Cancelled or late at any moment, with requests and responses under way."""
    asked = [echo(chance, chance.choice(FICKLE))[0] if chance.random() < 0.5
             else generator(f"fickle_{chance.choice(GENERATORS)}", 50, chance.choice([0, 1])) for _ in range(chance.choice([1, 10]))]
    if chance.random() < 0.3:
        asked += sequence_of(run, chance, f"fickle_{chance.choice(SUMS)}")[0]
    is_late = chance.random() < 0.5
    call = stub.ModelStreamInfer(iter(asked), timeout=chance.choice([0.002, 0.01, 0.05]) if is_late else PATIENCE_S)
    reads = chance.choice([0, 1, 5])

    def end():
        try:
            for _ in range(reads):
                next(call)
            if not is_late:
                call.cancel()
            for _ in call:
                pass
        except StopIteration:
            pass
        except grpc.RpcError as error:
            assert error.code() in LEFT, error
        for request in asked:
            run.count(request.model_name, 0, 1)    # perhaps answered, perhaps not

    return end


KINDS = [unary_answered, unary_left, stream_answered, stream_generated, stream_summed, stream_left]


def connected(run, options):
    if run.credentials:
        return grpc.secure_channel(run.server.grpc_url, run.credentials, options=options)
    return grpc.insecure_channel(run.server.grpc_url, options=options)


def be_a_connection(run, number):
    """Has CALLS calls at a time, all of which end before the next ones begin."""
    chance = random.Random(f"{run.seed} {number}")
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1)]
    try:
        while not run.over and not run.failures:
            with connected(run, options) as channel:
                stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
                for _ in range(chance.choice([1, 5])):
                    if run.over:
                        break
                    ends = [chance.choice(KINDS)(run, chance, stub) for _ in range(CALLS)]
                    for end in ends:
                        end()
                # The connection is lost with calls on it.
                for _ in range(chance.choice([0, CALLS])):
                    request, _ = echo(chance, chance.choice(FICKLE))
                    stub.ModelInfer.future(request, timeout=PATIENCE_S)
                    run.count(request.model_name, 0, 1)
    except Exception:    # pylint: disable=broad-except
        run.failures.append(f"connection {number}:\n{traceback.format_exc()}")


# ---- What must be left


def statistics(server, model):
    stats = ask(server, "GET", f"/v2/models/{model}/stats").json()["model_stats"][0]["inference_stats"]
    return stats["success"]["count"], stats["fail"]["count"]


def metric(server, port, name):
    """The sum of a metric's values."""
    with urllib.request.urlopen(f"http://{server.address}:{port}/metrics", timeout=60) as page:
        lines = page.read().decode().splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith((name + " ", name + "{")))


def assert_all_is_counted(run):
    for kind in ["steady", "fickle"]:    # the inner ensemble is asked by the outer one, too
        for counter in (run.answered, run.left):
            counter[f"{kind}_sums"] += counter[f"{kind}_nested_sums"]
    for model in [*STEADY, *(f"steady_{name}" for name in [*GENERATORS, *SUMS])]:
        servers.wait_equal(lambda model=model: statistics(run.server, model), (run.answered[model], 0), model)
    for model in [*FICKLE, "fickle_repeat"]:
        servers.wait_for(lambda model=model: run.answered[model] <= statistics(run.server, model)[0], 60, model)
        done, failed = statistics(run.server, model)
        assert done + failed <= run.answered[model] + run.left[model], model
    for model in (f"fickle_{name}" for name in [*GENERATORS[1:], *SUMS]):
        done, _ = statistics(run.server, model)    # an ensemble counts a failure for each step that fails, too
        assert done <= run.left[model], model


def tls(folder):
    """The flags of a server with TLS, and the credentials of its clients."""
    root = Authority(folder)
    certificate, key = root.issue("server")
    flags = ["--grpc-use-ssl=true", f"--grpc-server-cert={certificate}", f"--grpc-server-key={key}"]
    return flags, grpc.ssl_channel_credentials(root.certificate.read_bytes())


@pytest.mark.parametrize("with_tls", [False, True], ids=["plain", "tls"])
@pytest.mark.skipif(servers.REFERENCE, reason="is about what our server counts and keeps")
def test_calls_that_end_in_every_way_leave_nothing(tmp_path, with_tls):
    seed = os.environ.get("CONCH_STRESS_SEED") or str(random.SystemRandom().randrange(10**9))
    print(f"CONCH_STRESS_SEED={seed}")
    flags = [f"--grpc-infer-thread-count={LOOPS}", "--allow-metrics=true", "--metrics-port=0", "--model-control-mode=explicit", "--load-model=*",
             *clients.cache_flags()]
    more, credentials = tls(tmp_path) if with_tls else ([], None)
    collector = Collector(whims=random.Random(seed))
    if with_tls:
        more += collector.flags(rate=5)
    with collector, servers.Server(write_models(tmp_path / "models"), flags=[*flags, *more], grpc=True, env=spans.ENVIRONMENT) as server:
        server.wait_log("Started Metrics Service at")
        port = re.search(r"Started Metrics Service at \S*:(\d+)", server.log())[1]
        run = Run(server, seed, credentials)
        threads = [threading.Thread(target=be_a_connection, args=(run, number)) for number in range(CONNECTIONS)]
        for thread in threads:
            thread.start()
        until = time.monotonic() + SECONDS / 2
        servers.wait_for(lambda: time.monotonic() > until or run.failures, SECONDS + 60, "the time is over")
        run.over = True
        for thread in threads:
            thread.join()
        assert not run.failures, "\n".join(run.failures)
        print(f"answered: {dict(run.answered)}, left: {dict(run.left)}")
        assert all(run.answered[model] for model in STEADY)

        servers.wait_for(lambda: metric(server, port, "nv_inference_pending_request_count") == 0, 60, "no request waits")
        servers.wait_for(lambda: metric(server, port, "conch_connection_memory_used_bytes") <= LOOPS * AT_REST_BYTES, 60,
                         "the connections' memory is given back")
        assert_all_is_counted(run)
        if with_tls:
            spans.assert_counted(server, collector)
        clients.assert_cache_is_counted(server, "steady_cached", run.answered["steady_cached"])
        ensembles = [f"{kind}_{name}" for kind in ["steady", "fickle"] for name in [*GENERATORS, *reversed(SUMS)]]
        for model in [*ensembles, *STEADY, *FICKLE, *PARTS]:
            assert ask(server, "POST", f"/v2/repository/models/{model}/unload", b"{}").status == 200
            server.wait_log(f"successfully unloaded '{model}' version 1")
