# SPDX-License-Identifier: Apache-2.0
"""The files of traces: their records as the genuine Triton has them, their names and numbers, and what becomes of traces without a disk."""

import glob
import json
import os
import threading

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http

import repository
import triton
from server import REFERENCE, Server, run_to_end, wait_for
from test_generate import generate, write_decoupled
from wire import ask, given, infer

pytestmark = pytest.mark.skipif(REFERENCE, reason="CONCH_BIN is the genuine Triton")
WITHIN_S = 60
ENSEMBLE = """platform: "ensemble"
ensemble_scheduling { step [
  { model_name: "any_fp32" model_version: -1 input_map { key: "INPUT0" value: "X" } output_map { key: "OUTPUT0" value: "T" } },
  { model_name: "any_fp32" model_version: -1 input_map { key: "INPUT0" value: "T" } output_map { key: "OUTPUT0" value: "Y" } } ] }
""" + repository.tensor("input", "X", "FP32", [-1]) + repository.tensor("output", "Y", "FP32", [-1])
COMPUTED = ["COMPUTE_START", "COMPUTE_INPUT_END", "COMPUTE_OUTPUT_START", "COMPUTE_END"]


def make_models(folder):
    root = repository.write_standard(folder)
    repository.write_model(root, "chain", ENSEMBLE)
    repository.write_identity(root, "kinds", [(kind, [-1]) for kind in ("BOOL", "UINT8", "INT8", "INT16", "UINT32", "INT64", "FP32", "FP64", "BYTES")])
    write_decoupled(root, "script", "script", [1], ("INT32", [1]))
    return root


def flags(file, *more):
    return ["--trace-config=rate=1", f"--trace-config=triton,file={file}", *(f"--trace-config={one}" for one in more)]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return make_models(tmp_path_factory.mktemp("models"))


def ask_http(server, model="any_fp32", name="INPUT0", values=(1, 2), **more):
    answer = infer(server, model, {"inputs": [given(name, "FP32", [len(values)], list(values))], **more})
    assert answer.status == 200, answer
    return answer


def fp32(values):
    tensor = triton_grpc.InferInput("INPUT0", [len(values)], "FP32")
    tensor.set_data_from_numpy(np.array(values, np.float32))
    return [tensor]


def ask_grpc(server):
    triton_grpc.InferenceServerClient(server.grpc_url).infer("any_fp32", fp32([1, 2]), request_id="g")


def ask_stream(server):
    client, answers = triton_grpc.InferenceServerClient(server.grpc_url), []
    came = threading.Event()
    client.start_stream(lambda result, error: (answers.append(error), came.set()))
    client.async_stream_infer("any_fp32", fp32([1, 2]))
    assert came.wait(WITHIN_S)
    client.stop_stream()
    assert answers == [None]


def read(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def described(records):
    """The traces of a file: for each its identity, without ids, and the names of its times in order."""
    ids = sorted({record["id"] for record in records})
    found = []
    for one in ids:
        mine = [record for record in records if record["id"] == one]
        identity = [{key: ids.index(value) if key == "parent_id" else value for key, value in record.items() if key != "id"} for record in mine if "model_name" in record]
        times = [(time["name"], time["ns"]) for record in mine for time in record.get("timestamps", [])]
        found.append((identity, sorted(name for name, _ in times)))
    return found


def has_written(path, n):
    """The records of a file, once it has so many identities."""
    def complete():
        if not os.path.exists(path):
            return None
        try:
            records = read(path)
        except json.JSONDecodeError:    # a trace is just being written
            return None
        return records if sum("model_name" in record for record in records) >= n else None

    return wait_for(complete, WITHIN_S, f"{path} has {n} traces")


def work(server):
    assert infer(server, "any_fp32", {"inputs": []}).status == 400    # nothing of it is written
    ask_http(server, id="h")
    ask_http(server, "chain", "X")
    ask_grpc(server)
    ask_stream(server)


@pytest.mark.parametrize("level", ["TIMESTAMPS", "TENSORS"])
def test_a_file_has_the_records_of_tritons_file(root, tmp_path, level):
    if triton.missing():
        pytest.skip(triton.missing())
    seen = []
    for kind in (Server, triton.Triton):
        file = tmp_path / kind.__name__
        with kind(root, flags=flags(file, f"level={level}", "triton,log-frequency=4"), **({"grpc": True} if kind is Server else {})) as server:
            work(server)
            seen.append(has_written(f"{file}.0", 4 if level == "TIMESTAMPS" else 0))
    ours, theirs = seen
    assert described(ours) == described(theirs)

    def tensors(records):
        return sorted(json.dumps([record["activity"], record["tensor"]]) for record in records if "tensor" in record and record["activity"] != "TENSOR_BACKEND_INPUT")

    assert tensors(ours) == tensors(theirs)
    assert bool(tensors(ours)) == (level == "TENSORS")


GENERATED = [("any_fp32", {"INPUT0": [1, 2]}, "generate"), ("any_fp32", {"INPUT0": [1, 2], "id": "s"}, "generate_stream"), ("script", {"IN": 1, "do": "nExd"}, "generate"),
             ("script", {"IN": 1, "do": "nExd"}, "generate_stream")]


def test_traces_of_generate_have_the_stamps_of_tritons(root, tmp_path):
    if triton.missing():
        pytest.skip(triton.missing())
    seen = []
    for kind in (Server, triton.Triton):
        file = tmp_path / kind.__name__
        with kind(root, flags=flags(file, "level=TIMESTAMPS", "triton,log-frequency=1")) as server:
            traces = []
            for number, asked in enumerate(GENERATED):
                generate(server, *asked)
                traces.append(described(has_written(f"{file}.{number}", 1)))
            seen.append(traces)
    assert seen[0] == seen[1]


def test_stamps_of_a_reply_are_in_order(root, tmp_path):
    asked = [*GENERATED, *(("script", {"IN": 1, "do": "nfflxd"}, kind) for kind in ("generate", "generate_stream"))]
    with Server(root, flags=flags(tmp_path / "trace", "level=TIMESTAMPS")) as server:
        for each in asked:
            generate(server, *each)
        records = has_written(tmp_path / "trace", len(asked))
    for one in {record["id"] for record in records}:
        times = {time["name"]: time["ns"] for record in records if record["id"] == one for time in record.get("timestamps", [])}
        order = [times[name] for name in ("HTTP_RECV_START", "HTTP_RECV_END", "INFER_RESPONSE_COMPLETE", "HTTP_SEND_START", "HTTP_SEND_END")]
        assert order == sorted(order)


def test_times_of_a_trace_are_in_order(root, tmp_path):
    with Server(root, flags=flags(tmp_path / "trace", "level=TIMESTAMPS"), grpc=True) as server:
        ask_http(server, id='a"b')
        ask_grpc(server)
        records = has_written(tmp_path / "trace", 2)    # while the server runs
    for first, last, number in (("HTTP_RECV_START", "HTTP_SEND_END", 0), ("GRPC_WAITREAD_START", "GRPC_SEND_END", 1)):
        one = sorted({record["id"] for record in records})[number]
        times = {time["name"]: time["ns"] for record in records if record["id"] == one for time in record.get("timestamps", [])}
        send = last.replace("SEND_END", "SEND_START")
        order = [first, first.replace("START", "END"), "REQUEST_START", "QUEUE_START", *COMPUTED, "REQUEST_END"]
        assert [times[name] for name in order] == sorted(times[name] for name in order)
        assert times["COMPUTE_OUTPUT_START"] <= times["INFER_RESPONSE_COMPLETE"] <= times[send] <= times[last]
    assert [record["request_id"] for record in records if "request_id" in record] == ['a"b', "g"]


def test_a_packed_reply_is_sent_when_it_has_been_packed(root, tmp_path):
    """16 MB of noise take a helper some hundred milliseconds; no machine packs them in ten."""
    noise = np.random.default_rng(1).standard_normal(4 << 20, np.float32)
    given_input = triton_http.InferInput("INPUT0", [noise.size], "FP32")
    given_input.set_data_from_numpy(noise)
    wanted = [triton_http.InferRequestedOutput("OUTPUT0", binary_data=True)]
    with Server(root, flags=flags(tmp_path / "trace", "level=TIMESTAMPS")) as server:
        client = triton_http.InferenceServerClient(server.url, network_timeout=WITHIN_S)
        client.infer("any_fp32", [given_input], outputs=wanted, response_compression_algorithm="gzip")
        records = has_written(tmp_path / "trace", 1)
    times = {time["name"]: time["ns"] for record in records for time in record.get("timestamps", [])}
    assert times["HTTP_SEND_START"] - times["INFER_RESPONSE_COMPLETE"] > 10_000_000
    assert times["HTTP_SEND_START"] <= times["HTTP_SEND_END"]


@pytest.mark.conch_only("prints characters for numbers of 8 bits")
def test_tensors_are_printed_by_their_type(root, tmp_path):
    data = {"BOOL": [True, False], "UINT8": [65, 255], "INT8": [-1, 7], "INT16": [-300, 1], "UINT32": [4294967295, 0], "INT64": [-(2**62), 1], "FP32": [0.1, 1e10], "FP64": [1 / 3, 2], "BYTES": ['a"b', "\n"]}
    want = {"BOOL": "1,0", "UINT8": "65,255", "INT8": "-1,7", "INT16": "-300,1", "UINT32": "4294967295,0", "INT64": f"-{2**62},1", "FP32": "0.1,1e+10", "FP64": "0.333333,2", "BYTES": '"a"b","\n"'}
    with Server(root, flags=flags(tmp_path / "trace", "level=TENSORS", "level=TIMESTAMPS")) as server:
        inputs = [given(f"INPUT{i}", kind, [2], values) for i, (kind, values) in enumerate(data.items())]
        assert infer(server, "kinds", {"inputs": inputs}).status == 200
        records = has_written(tmp_path / "trace", 1)
    for activity in ("TENSOR_QUEUE_INPUT", "TENSOR_BACKEND_OUTPUT"):
        found = {record["tensor"]["dtype"]: record["tensor"] for record in records if record.get("activity") == activity}
        assert {kind: tensor["data"] for kind, tensor in found.items()} == want
        assert {tensor["shape"] for tensor in found.values()} == {"2"}


def test_a_file_has_as_many_traces_as_its_frequency_says(root, tmp_path):
    file = tmp_path / "trace"
    with Server(root, flags=flags(file, "level=TIMESTAMPS", "triton,log-frequency=2")) as server:
        for _ in range(5):
            ask_http(server)
        assert [len(described(has_written(f"{file}.{k}", 2))) for k in (0, 1)] == [2, 2]
    assert len(described(read(f"{file}.2"))) == 1    # the rest, at the end
    assert sorted(glob.glob(f"{file}*")) == [f"{file}.{k}" for k in (0, 1, 2)]


def test_traces_end_with_their_count_in_a_numbered_file(root, tmp_path):
    file = tmp_path / "trace"
    with Server(root, flags=flags(file, "level=TIMESTAMPS", "count=3")) as server:
        for _ in range(5):
            ask_http(server)
        assert len(described(has_written(f"{file}.0", 3))) == 3
        assert ask(server, "GET", "/v2/trace/setting").json()["trace_count"] == "0"
        answer = ask(server, "POST", "/v2/trace/setting", {"trace_count": "2", "trace_level": ["TIMESTAMPS"]})
        assert answer.json()["trace_count"] == "2"
        ask_http(server)
    assert len(described(read(file))) == 1    # a count that was not reached
    assert sorted(glob.glob(f"{file}*")) == [str(file), f"{file}.0"]


def test_every_rate_th_request_is_traced_whatever_its_model(root, tmp_path):
    file = tmp_path / "trace"
    with Server(root, flags=flags(file, "level=TIMESTAMPS")) as server:
        assert ask(server, "POST", "/v2/trace/setting", {"trace_rate": "3"}).status == 200
        assert ask(server, "POST", "/v2/models/fixed/trace/setting", {"trace_level": ["OFF"]}).status == 200
        for i in range(3):
            ask_http(server, id=str(i))
            ask_http(server, "chain", "X", id=f"chain {i}")
            infer(server, "fixed", {"inputs": [given("INPUT0", "INT32", [4], [1, 2, 3, 4])]})
    roots = [identity[0] for identity, _ in described(read(file)) if identity and "parent_id" not in identity[0]]
    assert [one["request_id"] for one in roots] == ["1", "chain 2"]


def test_clients_switch_traces_on_and_off_while_others_ask(root, tmp_path):
    file = tmp_path / "trace"
    with Server(root, flags=flags(file), grpc=True) as server:
        over = threading.Event()
        asked = [0, 0]

        def keep_asking(i, one):
            while not over.is_set():
                one(server)
                asked[i] += 1

        threads = [threading.Thread(target=keep_asking, args=(i, one)) for i, one in enumerate((ask_http, ask_grpc))]
        for thread in threads:
            thread.start()
        client = triton_http.InferenceServerClient(server.url)
        for i in range(60):
            name = "any_fp32" if i % 3 else None
            client.update_trace_settings(name, {"trace_level": ["TIMESTAMPS"] if i % 2 else ["OFF"], "log_frequency": str(i % 4), "trace_count": "5" if i % 5 == 0 else None})
        wait_for(lambda: min(asked) > 5, WITHIN_S, "both ask")
        over.set()
        for thread in threads:
            thread.join()
    files = glob.glob(f"{file}*")
    assert not [name for name in files if name.endswith(".unfinished")]
    for name in files:
        for identity, times in described(read(name)):
            assert len(identity) == 1 and "REQUEST_END" in times


def metrics(server):
    page = ask(server, "GET", "/metrics").body.decode()
    return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in page.splitlines() if line.startswith("conch_traces")}


def test_traces_without_a_disk_are_counted(root, tmp_path):
    with Server(root, flags=[*flags("/dev/full", "level=TIMESTAMPS"), "--allow-metrics=true", "--metrics-port=0"]) as server:
        for _ in range(3):
            ask_http(server)
        server.wait_log("traces are dropped: failed to write trace file '/dev/full': No space left on device")
        server.wait_log("Started Metrics Service")
        port = int(server.log().split("Started Metrics Service at ")[1].split('"')[0].rsplit(":", 1)[1])
        server_of_metrics = type("At", (), {"address": "127.0.0.1", "port": port})

        def counted():
            return metrics(server_of_metrics).get('conch_traces_dropped{reason="file"}') == 3

        wait_for(counted, WITHIN_S, "three are counted")
        assert metrics(server_of_metrics)["conch_traces_written"] == 0
    assert server.log().count("traces are dropped") == 1


def test_a_file_that_goes_comes_back(root, tmp_path):
    folder = tmp_path / "gone"
    folder.mkdir()
    with Server(root, flags=flags(folder / "trace", "level=TIMESTAMPS", "triton,log-frequency=1")) as server:
        folder.rename(tmp_path / "elsewhere")
        ask_http(server)
        server.wait_log("traces are dropped: failed to open trace file")
        folder.mkdir()
        ask_http(server)
        has_written(folder / "trace.0", 1)
        server.wait_log("traces are written again")


@pytest.mark.parametrize("path, reason", [("none/trace", "No such file or directory"), ("file/trace", "Not a directory")])
def test_a_file_that_cannot_be_written_stops_the_start(root, tmp_path, path, reason):
    (tmp_path / "file").write_text("")
    code, _, err = run_to_end(f"--model-repository={root}", *flags(tmp_path / path, "level=TIMESTAMPS"), "--http-port=0", "--grpc-port=0", "--metrics-port=0")
    assert code == 1
    assert f"trace file '{tmp_path / path}' cannot be written: {reason}" in err


def test_a_level_without_a_file_is_warned_of(root):
    with Server(root, flags=["--trace-config=level=TIMESTAMPS"]) as server:
        ask_http(server)
    assert "nothing is traced: trace file name is not given" in server.log()


@pytest.mark.parametrize("given_flags, want", [
    (["--trace-file={}", "--trace-level=TIMESTAMPS", "--trace-rate=7", "--trace-count=9", "--trace-log-frequency=11"], (["TIMESTAMPS"], "7", "9", "11")),
    (["--trace-file=x", "--trace-rate=7", "--trace-config=triton,file={}", "--trace-config=rate=8", "--trace-level=TENSORS", "--trace-config=level=MAX"], (["TIMESTAMPS", "TENSORS"], "8", "-1", "0")),
    (["--trace-file={}", "--trace-level=TENSORS", "--trace-config=level=OFF", "--trace-config=level=TIMESTAMPS"], (["OFF"], "1000", "-1", "0")),
])
def test_options_and_their_deprecated_kin(root, tmp_path, given_flags, want):
    # A level OFF in --trace-config does not win over others in Triton.
    servers = [Server] if triton.missing() or "--trace-config=level=OFF" in given_flags else [Server, triton.Triton]
    for kind in servers:
        with kind(root, flags=[flag.format(tmp_path / "trace") for flag in given_flags]) as server:
            now = ask(server, "GET", "/v2/trace/setting").json()
            assert (now["trace_level"], now["trace_rate"], now["trace_count"], now["log_frequency"], now["trace_file"]) == (*want, str(tmp_path / "trace"))
