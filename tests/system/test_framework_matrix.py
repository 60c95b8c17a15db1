# SPDX-License-Identifier: Apache-2.0
"""What all backends of frameworks have in common, asked of each: completion, checks, versions, instances, warm-up, files, loads by request,
callers, the cache, shared memory, and what is refused. docs/backends.md has the table of it."""

import concurrent.futures
import json
import os
import pathlib
import queue
import re
import shutil

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException

import framework_columns
import regions
import repository
import server as servers
import wire
from python_models import write_python
from test_check import check

BATCHES = "max_batch_size: 8\n"
PRIORITIES = ("dynamic_batching { preferred_batch_size: [ 8 ] max_queue_delay_microseconds: 200000 priority_levels: 2 default_priority_level: 2 "
              "default_queue_policy { allow_timeout_override: true default_timeout_microseconds: 60000000 timeout_action: REJECT } }\n")
COLUMNS = framework_columns.ALL
NAMES = [column.name for column in COLUMNS]
FIXED = ["--model-control-mode=explicit", "--load-model=*", "--cache-config=local,size=1000000", "--allow-client-shm=true"]
LENIENT = ["--exit-on-error=false", "--strict-readiness=false"]


@pytest.fixture(scope="module", params=COLUMNS, ids=NAMES)
def column(request):
    if request.param.missing():
        pytest.skip(request.param.missing())
    return request.param


def only(fits):
    """A test of some of the columns."""
    some = [column for column in COLUMNS if fits(column)]
    return pytest.mark.parametrize("column", some, ids=[column.name for column in some], indirect=True)


# ---- What is served


def write_served(column, root):
    column.write(root, "plain")
    column.write(root, "two", BATCHES + column.group.replace("count: 1", "count: 2"))
    column.write(root, "versions", BATCHES + "version_policy { specific { versions: [ 1, 3 ] } }\n", versions=(1, 2, 3))
    other = "other" + pathlib.Path(column.file.split("/")[0]).suffix
    column.write(root, "named", f'{BATCHES}default_model_filename: "{other}"\n', file=column.file.replace(column.file.split("/")[0], other))
    n = column.answer_dims[0]
    column.write(root, "reshaped", tensors=column.tensors((2, 2), (n, 1), "reshape { shape: [ 4 ] }", f"reshape {{ shape: [ {n} ] }}"))
    column.write(root, "warm", BATCHES + warm_up(column))
    (root / "warm/warmup").mkdir()
    (root / "warm/warmup/rows").write_bytes(np.arange(4, dtype=np.float32).tobytes())
    column.write(root, "cached", BATCHES + "response_cache { enable: true }\n")
    column.write(root, "whole", more="", tensors=column.tensors((-1, 4), (-1, *column.answer_dims[:len(column.outputs) - 1])))
    column.write(root, "priorities", BATCHES + PRIORITIES)
    column.write(root, "decoupled", BATCHES + "model_transaction_policy { decoupled: true }\n")
    column.write(root, "labelled", tensors=column.tensors(output_more='label_filename: "labels"'))
    (root / "labelled/labels").write_text("a\nb\nc\nd\n")
    write_callers(column, root)


def warm_up(column):
    """A sample for each kind of data."""
    text = ""
    for i, kind in enumerate(("zero_data: true", "random_data: true", 'input_data_file: "rows"'), 1):
        inputs = "".join(f'inputs {{ key: "{n}" value {{ data_type: TYPE_FP32 dims: [ 4 ] {kind} }} }} ' for n in column.inputs)
        text += f'model_warmup [ {{ name: "sample {i}" batch_size: {i} count: 2 {inputs}}} ]\n'
    return text


def write_callers(column, root):
    """An ensemble, and a model in Python, that call the model plain."""
    maps = "".join(f'{side}_map {{ key: "{n}" value: "{n}" }} ' for side, names in (("input", column.inputs), ("output", column.outputs)) for n in names)
    repository.write_model(root, "ensemble", f'platform: "ensemble"\n{BATCHES}{column.tensors()}'
                           f'ensemble_scheduling {{ step [ {{ model_name: "plain" model_version: -1 {maps} }} ] }}\n')
    write_python(root, "python", f"""
def execute(self, requests):
    answers = []
    for request in requests:
        inner = pb_utils.InferenceRequest(model_name="plain", requested_output_names={list(column.outputs)!r}, inputs=request.inputs()).exec()
        if inner.has_error():
            answers.append(pb_utils.InferenceResponse(error=inner.error()))
        else:
            answers.append(pb_utils.InferenceResponse(inner.output_tensors()))
    return answers
""", *(("input", n, "FP32", column.dims) for n in column.inputs), *(("output", n, "FP32", column.answer_dims) for n in column.outputs), more=BATCHES)


@pytest.fixture(scope="module")
def served(column, tmp_path_factory):
    root = tmp_path_factory.mktemp("served")
    write_served(column, root)
    with column.start(root, FIXED) as server:
        server.root = root
        yield server


def send(module, client, model, given, **more):
    inputs = [module.InferInput(name, array.shape, "FP32").set_data_from_numpy(array) for name, array in given.items()]
    return client.infer(model, inputs, **more)


def ask(server, model, given, **more):
    with tritonclient.http.InferenceServerClient(server.url) as client:
        answer = send(tritonclient.http, client, model, given, **more)
        return {o["name"]: answer.as_numpy(o["name"]) for o in answer.get_response()["outputs"]}


def check_answer(column, answer, given):
    expected = column.expected(**{name: array.reshape(-1, 4) for name, array in given.items()})
    assert set(answer) == set(expected)
    for name, array in expected.items():
        np.testing.assert_allclose(answer[name].reshape(array.shape), array, rtol=2e-2, atol=2e-2)    # OpenVINO computes in BF16 where it can


def assert_serves(column, server, model="plain", rows=3, **more):
    given = column.given(rows)
    check_answer(column, ask(server, model, given, **more), given)


def get(server, path):
    return wire.ask(server, "GET", f"/v2/{path}").json()


def stats(server, model):
    return get(server, f"models/{model}/stats")["model_stats"][0]


@pytest.mark.parametrize("model", ["plain", "two", "named", "warm", "whole", "ensemble", "python"])
def test_models_answer(column, served, model):
    assert_serves(column, served, model)


def test_reshaped_tensors(column, served):
    given = {name: array.reshape(-1, 2, 2) for name, array in column.given(3).items()}
    answer = ask(served, "reshaped", given)
    check_answer(column, answer, given)


def test_versions(column, served):
    for version in "13":
        assert_serves(column, served, "versions", model_version=version)
    with pytest.raises(InferenceServerException, match="'versions' version 2 is not found"):
        ask(served, "versions", column.given(1), model_version="2")


def test_instances(column, served):
    (group,) = get(served, "models/two/config")["instance_group"]
    assert group["count"] == 2
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        given = [column.given(1 + i % 8, seed=i) for i in range(16)]
        for one, answer in zip(given, pool.map(lambda one: ask(served, "two", one), given)):
            check_answer(column, answer, one)


def test_tensors_without_elements(column, served):
    answer = ask(served, "whole", column.given(0))
    assert {name: array.size for name, array in answer.items()} == dict.fromkeys(column.outputs, 0)


def test_the_cache_answers_the_second_time(column, served):
    for _ in range(2):
        assert_serves(column, served, "cached")
    counts = stats(served, "cached")
    assert (counts["inference_stats"]["cache_hit"]["count"], counts["execution_count"]) == (1, 1)


def test_priorities_and_timeouts(column, served):
    assert_serves(column, served, "priorities", rows=8, priority=1, timeout=30_000_000)
    with pytest.raises(InferenceServerException, match="Request timeout expired"):
        ask(served, "priorities", column.given(1), timeout=1000)


def test_classes(column, served):
    with tritonclient.http.InferenceServerClient(served.url) as client:
        given = column.given(2)
        wanted = [tritonclient.http.InferRequestedOutput(column.outputs[0], class_count=1)]
        answer = send(tritonclient.http, client, "labelled", given, outputs=wanted).as_numpy(column.outputs[0])
    expected = column.expected(**given)[column.outputs[0]].reshape(2, -1)
    for text, row in zip(answer.flatten(), expected if len(answer.flatten()) > 1 else [expected.flatten()], strict=True):
        assert text.decode().split(":")[2] == "abcd"[row.argmax()], (text, row)


def test_shared_memory(column, served):
    given = column.given(2)
    expected = column.expected(**given)
    places = {name: 64 * i for i, name in enumerate((*column.inputs, *column.outputs))}
    with regions.Object(4096) as memory:
        for name, array in given.items():
            memory.write(array.tobytes(), places[name])
        assert regions.register(served, memory.name, memory.key, 4096)[0] == 200
        status, text = regions.infer(served, "plain", [(n, "FP32", list(a.shape), regions.part(memory.name, a.nbytes, places[n])) for n, a in given.items()],
                                     [(n, regions.part(memory.name, a.nbytes, places[n])) for n, a in expected.items()])
        assert status == 200, text
        for name, array in expected.items():
            seen = np.frombuffer(memory.read(array.nbytes, places[name]), np.float32).reshape(array.shape)
            np.testing.assert_allclose(seen, array, rtol=2e-2, atol=2e-2)
        assert regions.unregister(served, memory.name)[0] == 200


def test_memory_is_reported(column, served):
    assert any(usage["byte_size"] > 0 for usage in stats(served, "plain")["memory_usage"])


def test_a_decoupled_model_answers_once(column, served):
    """A stream gets the answer and the end; over HTTP such a model cannot be asked."""
    given, answers = column.given(2), queue.Queue()
    with tritonclient.grpc.InferenceServerClient(served.grpc_url) as client:
        client.start_stream(lambda result, error: answers.put((result, error)))
        inputs = [tritonclient.grpc.InferInput(name, array.shape, "FP32").set_data_from_numpy(array) for name, array in given.items()]
        client.async_stream_infer("decoupled", inputs, enable_empty_final_response=True)
        result, error = answers.get(timeout=60)
        client.stop_stream()
    assert not error and result.get_response().parameters["triton_final_response"].bool_param
    check_answer(column, {name: result.as_numpy(name) for name in column.outputs}, given)
    with pytest.raises(InferenceServerException, match="decoupled transaction policy"):
        ask(served, "decoupled", given)


# ---- Completion


def completed(running, model):
    config = get(running, f"models/{model}/config")
    tensors = {t["name"]: (t["data_type"], t["dims"]) for t in config["input"] + config["output"]}
    return config["max_batch_size"], tensors, "dynamic_batching" in config


def test_configurations_are_completed(column, tmp_path):
    column.write(tmp_path, "bare", "", "")
    column.write(tmp_path, "size", BATCHES, "")
    column.write(tmp_path, "outputs", BATCHES, "".join(f"{line}\n" for line in column.tensors().splitlines() if line.startswith("output")))
    column.write(tmp_path, "nothing", config=False)
    tensors = {n: ("TYPE_FP32", [4]) for n in column.inputs} | {n: ("TYPE_FP32", list(column.answer_dims)) for n in column.outputs}
    largest = 8 if column.name == "tensorrt" else 3    # a plan has its own
    with column.start(tmp_path, [*LENIENT, f"--backend-config={column.backend},default-max-batch-size=3"], ready=False) as running:
        if column.completes != "all":
            running.await_rest()
        reasons = wire.read_reasons(running)
        if not column.completes:
            for name in ("bare", "size", "outputs", "nothing"):
                assert reasons[name].endswith("because a TorchScript file does not tell data types and shapes"), reasons[name]
            return
        for name, size in (("bare", largest), ("size", 8), ("outputs", 8), *([("nothing", largest)] if column.completes == "all" else [])):
            assert not reasons[name], reasons[name]
            assert completed(running, name) == (size, tensors, True)
            assert_serves(column, running, name)
        if column.completes != "all":
            assert "Could not determine backend for model 'nothing'" in reasons["nothing"]


NOT_COMPLETED = {"pytorch": "model 'bare': its configuration needs input and output, because a TorchScript file does not tell data types and shapes",
                 "tensorrt": "unable to load model 'bare', the model has an input 'A', which the configuration lacks"}


def test_completion_may_be_switched_off(column, tmp_path):
    column.write(tmp_path, "plain")
    column.write(tmp_path, "bare", BATCHES, "")
    with column.start(tmp_path, [*LENIENT, "--strict-model-config=true"], ready=False) as running:
        assert_serves(column, running)
        otherwise = f"unable to load model 'bare', configuration expects 0 inputs, model provides {len(column.inputs)}"
        assert wire.read_reasons(running)["bare"] == "Invalid argument: " + NOT_COMPLETED.get(column.backend, otherwise)
        assert completed(running, "plain")[2] is False


# ---- Configurations and files that do not fit


def wrong_configurations(column):
    """{model: (its configuration, the reason)}, with the texts of Triton's backends"""
    tensors, first, last = column.tensors(), column.inputs[0], column.outputs[-1]
    names, outputs = (", ".join(sorted(side)) for side in (column.inputs, column.outputs))
    other = {"fil": "TYPE_FP32, or TYPE_FP64"}.get(column.backend, "TYPE_FP32")
    shape = ("model '{}', tensor 'A': the model expects 2 dimensions (shape [-1,4]) but the model configuration specifies {} dimensions (an initial batch "
             "dimension because max_batch_size > 0 followed by the explicit tensor shape, making complete shape [{},{}])")
    batch = 8 if column.name == "openvino" else -1
    wrong = {
        "type": (tensors.replace("TYPE_FP32", "TYPE_INT32", 1),
                 f"unable to load model 'type', configuration expects datatype TYPE_INT32 for input '{first}', model provides {other}"),
        "name": (tensors.replace(f'"{first}"', '"other"', 1), f"unexpected inference input 'other', allowed inputs are: {names}"),
        "output": (tensors.replace(f'"{last}"', '"other"', 1), f"unexpected inference output 'other', allowed outputs are: {outputs}"),
        "dims": (tensors.replace("dims: [ 4 ]", "dims: [ 5 ]", 1), shape.format("dims", 2, batch, "5")),
        "rank": (tensors.replace("dims: [ 4 ]", "dims: [ 4, 4 ]", 1), shape.format("rank", 3, batch, "4,4")),
        "more": (tensors + repository.tensor("input", "extra", "FP32", [4]),
                 f"unable to load model 'more', configuration expects {len(column.inputs) + 1} inputs, model provides {len(column.inputs)}"),
    }
    if column.backend == "tensorrt":
        wrong["type"] = (wrong["type"][0], "unexpected datatype TYPE_FP32 for inference input 'A', expecting TYPE_INT32 for type")
        wrong["more"] = (wrong["more"][0], "unexpected inference input 'extra', allowed inputs are: A, B")
    if column.backend == "fil":
        text = "model '{}', tensor 'input__0': the model has 4 features but the model configuration specifies {} in {} dimensions"
        wrong["dims"] = (wrong["dims"][0], text.format("dims", 5, 1))
        wrong["rank"] = (wrong["rank"][0], text.format("rank", 4, 2))
    if column.name == "openvino":
        del wrong["type"]    # it converts
    if column.backend == "pytorch":    # a script tells neither names of outputs nor types and shapes
        wrong = {"more": wrong["more"]}
    return wrong


def test_configurations_that_do_not_fit(column, tmp_path):
    wrong = wrong_configurations(column)
    for name, (tensors, _) in wrong.items():
        column.write(tmp_path, name, tensors=tensors)
    column.write(tmp_path, "gpu", BATCHES + "instance_group [ { kind: KIND_GPU gpus: [ 7 ] } ]\n")
    with column.start(tmp_path, LENIENT, ready=False) as running:
        reasons = wire.read_reasons(running)
    for name, (_, reason) in wrong.items():
        assert reasons[name] == "Invalid argument: " + reason
    no_gpu = "specifies invalid or unsupported gpu id 7. GPUs of this machine: 2" if column.backend == "tensorrt" else "has kind KIND_GPU but server does not support GPUs"
    assert reasons["gpu"].startswith(f"Invalid argument: instance group gpu_0 of model gpu {no_gpu}")


@only(lambda column: len(column.inputs) > 1)
def test_an_optional_input_that_the_model_needs(column, tmp_path):
    """A request without it fails alone."""
    column.write(tmp_path, "m", BATCHES + "dynamic_batching { max_queue_delay_microseconds: 20000 }\n", column.tensors(more="optional: true"))
    with column.start(tmp_path, LENIENT, ready=False) as running:
        if column.backend == "pytorch":
            assert wire.read_reasons(running)["m"].endswith("it is optional in the configuration, but the argument 'A' of forward() has no default")
            return
        whole, part = column.given(1), {"A": column.given(1)["A"]}
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            asked = [(given, pool.submit(ask, running, "m", given)) for given in [whole, part] * 4]
            for given, answer in asked:
                if given is whole:
                    check_answer(column, answer.result(), given)
                else:
                    with pytest.raises(InferenceServerException, match="Missing Input: B" if column.backend == "onnxruntime" else
                                       "unknown request input name B; the model needs this input, though it is optional in the configuration"):
                        answer.result()


DAMAGES = ["cut", "empty", "folder", "absent", "pipe", "unreadable", *(f"is_{i}" for i in range(len(COLUMNS)))]


READ_BY_US = {"folder": "(No such file|it is no regular file)", "absent": "No such file", "pipe": "it is no regular file", "unreadable": "Permission denied"}


def damage(column, path, how):
    if how == "cut":
        path.write_bytes(path.read_bytes()[:path.stat().st_size * 2 // 3])
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "unreadable":
        path.chmod(0)
    else:
        path.unlink()
        if how == "folder":
            path.mkdir()
        elif how == "pipe":
            os.mkfifo(path)
        elif how != "absent":
            COLUMNS[int(how[3:])].save(path)


def test_files_that_are_no_models(column, tmp_path):
    """Each is refused with one line that names the file, and the server serves on."""
    column.write(tmp_path, "plain")
    bad = [how for how in DAMAGES if not how.startswith("is_") or not (other := COLUMNS[int(how[3:])]).missing() and other.head != column.head]
    for how in bad:
        folder = column.write(tmp_path, how)
        damage(column, folder / "1" / column.file, how)
    without = ("setpriv", "--bounding-set=-dac_override,-dac_read_search")    # permissions apply to root then, too
    with column.start(tmp_path, LENIENT, wrap=without, ready=False) as running:
        reasons = wire.read_reasons(running)
        for how in bad:
            place = str(tmp_path / how / "1" / column.file)
            if column.name == "openvino" and how == "is_0":    # it knows ONNX by its content
                assert_serves(column, running, how)
            elif how in READ_BY_US:
                assert re.search(f"unable to read '{place}.*' of model '{how}': {READ_BY_US[how]}", reasons[how]), reasons[how]
            else:
                assert place in reasons[how] and "\n" not in reasons[how], reasons[how]
        assert_serves(column, running)


# ---- Loads by request


def load(running, model, **parameters):
    with tritonclient.http.InferenceServerClient(running.url) as client:
        client.load_model(model, **parameters)


def test_loads_by_request(column, tmp_path):
    (tmp_path / "models").mkdir()
    column.write(tmp_path / "models", "plain")
    with column.start(tmp_path / "models", ["--model-control-mode=explicit"]) as running:
        load(running, "plain")
        assert_serves(column, running)
        config = json.dumps({**get(running, "models/plain/config"), "max_batch_size": 2})
        load(running, "plain", config=config)
        assert_serves(column, running, rows=2)
        with pytest.raises(InferenceServerException, match="batch-size must be <= 2"):
            ask(running, "plain", column.given(3))
        files = {f"file:7/{path.relative_to(tmp_path / 'models/plain/1')}": path.read_bytes()
                 for path in (tmp_path / "models/plain/1").rglob("*") if path.is_file()}
        load(running, "plain", config=config, files=files)
        assert_serves(column, running, rows=2, model_version="7")
        shutil.rmtree(tmp_path / "models/plain")
        assert_serves(column, running, rows=2)
        with pytest.raises(InferenceServerException, match="failed to load 'plain'"):
            load(running, "plain")
        assert_serves(column, running, rows=2)


def test_a_file_that_changes_under_a_loaded_model(column, tmp_path):
    """It is cut off and written anew in place, as cp does it, while the model serves."""
    folder = column.write(tmp_path, "plain")
    contents = {path: path.read_bytes() for path in (folder / "1").rglob("*") if path.is_file()}
    with column.start(tmp_path, ["--model-control-mode=explicit", "--load-model=*"]) as running:
        assert_serves(column, running)
        for path in contents:
            path.write_bytes(b"")
        assert_serves(column, running)
        with pytest.raises(InferenceServerException):
            load(running, "plain")
        assert_serves(column, running)
        for path, content in contents.items():
            path.write_bytes(content)
        load(running, "plain")
        assert_serves(column, running)


# ---- `conch check`


def test_the_check_finds_nothing_in_models_that_load(column, tmp_path):
    write_served(column, tmp_path)
    code, out, err = check(tmp_path, "--ignore=W-instances", ".", env=column.env)    # of two instances, where there is one CPU
    assert (code, "0 errors, 0 warnings" in out) == (0, True), out + err


# ---- The table of docs/backends.md


def test_the_page_says_what_is_completed_and_compared():
    lines = (servers.ROOT / "docs/backends.md").read_text().splitlines()
    table = {cells[0]: cells[1:] for cells in ([c.strip() for c in line.strip("|").split(" | ")] for line in lines if line.startswith("|")) if len(cells) == 7}
    backends = next(cells for title, cells in table.items() if "onnxruntime" in cells)
    for column in COLUMNS:
        def says(feature, column=column):
            return table[feature][backends.index(column.backend)].split("<")[0]

        assert says("inputs and outputs are completed") == ("yes" if column.completes else "no")
        assert says("needs no `config.pbtxt`") == ("yes" if column.completes == "all" else "no")
        assert says("types and shapes are compared with the file") == ("yes" if "dims" in wrong_configurations(column) else "no")
