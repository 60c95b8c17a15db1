# SPDX-License-Identifier: Apache-2.0
"""Warm-up of models: the same repository in our server and in the genuine Triton executes the same samples and fails with
the same texts.
"""

import contextlib
import os
import re
import signal
import threading
import urllib.error
import urllib.request

import pytest

import onnx_models
import repository
import server as servers
import triton

FLAGS = ("--exit-on-error=false", "--strict-readiness=false", "--log-verbose=1")
FILES = {
    "sixteen": bytes(range(16)),
    "twelve": bytes(range(12)),
    "below/sixteen": bytes(range(16)),
    "strings": b"\1\0\0\0a\2\0\0\0bc",
    "cut": b"\5\0\0\0ab",
    "empty": b"",
    "nine": (9).to_bytes(8, "little"),
}


def log_of(which, root):
    """The log of a server that has loaded the repository and ended."""
    if which == "triton" and triton.missing():
        pytest.skip(triton.missing())
    kind = {"conch": servers.Server, "triton": triton.Triton}[which]
    with kind(root, flags=FLAGS, ready=False) as server:
        loaded = re.compile(r"^\| Model +\| Version +\| Status", re.MULTILINE)
        servers.wait_for(lambda: loaded.search(server.log()), servers.START_WITHIN_S, "the table of models")
    return server.log()


def given(name="INPUT0", datatype="INT32", dims=(4,), data="zero_data: true"):
    dims = ", ".join(map(str, dims))
    return (f'inputs {{ key: "{name}" value {{ data_type: {repository.DATATYPES.get(datatype, datatype)} '
            f"dims: [ {dims} ] {data} }} }}")


def from_file(name):
    return f'input_data_file: "{name}"'


def sample(*inputs, name="S", batch_size=1, count=None):
    count = "" if count is None else f"count: {count}"
    return f'model_warmup {{ name: "{name}" batch_size: {batch_size} {count} {" ".join(inputs)} }}\n'


def model(*samples, datatype="INT32", dims=(4,), batch=0, n=1, of_input="", more=""):
    dims = ", ".join(map(str, dims))
    kind = repository.DATATYPES[datatype]
    return (f'backend: "identity"\nmax_batch_size: {batch}\ninstance_group {{ count: {n} kind: KIND_CPU }}\n'
            f'input {{ name: "INPUT0" data_type: {kind} dims: [ {dims} ] {of_input} }}\n'
            f'output {{ name: "OUTPUT0" data_type: {kind} dims: [ {dims} ] }}\n{more}{"".join(samples)}')


def write(root, name, text):
    folder = repository.write_model(root, name, text)
    for file, content in FILES.items():
        path = folder / "warmup" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


# ---- Samples that run

# The model, and on each of its instances: sample and iteration.
RUNS = {
    "zeros": (model(sample(given())), ["S 1"]),
    "not_zeros": (model(sample(given(data="zero_data: false"))), ["S 1"]),
    "random_thrice": (model(sample(given(data="random_data: true"), count=3)), ["S 1", "S 2", "S 3"]),
    "count_0": (model(sample(given(), count=0)), ["S 1"]),
    "file": (model(sample(given(data=from_file("sixteen")))), ["S 1"]),
    "file_below": (model(sample(given(data=from_file("below/sixteen")))), ["S 1"]),
    "file_longer": (model(sample(given(dims=[2], data=from_file("sixteen"))), dims=[2]), ["S 1"]),
    "skipped": (model(sample(given(), batch_size=0)), []),
    "skipped_though_wrong": (model(sample(given(dims=[-1], data=""), batch_size=0)), []),
    "in_order": (model(sample(given(), name="A", count=2), sample(given(), name="B", batch_size=2), batch=4, n=3),
                 ["A 1", "A 2", "B 1"]),
    "copies_without_batching": (model(sample(given(), batch_size=3)), ["S 1"]),
    "more_copies_than_a_batch": (model(sample(given(), batch_size=9), batch=8), ["S 1"]),
    "variable": (model(sample(given(dims=[7])), dims=[-1]), ["S 1"]),
    "no_elements": (model(sample(given(dims=[0])), dims=[-1]), ["S 1"]),
    "reshaped": (model(sample(given()), of_input="reshape { shape: [ 2, 2 ] }", batch=4), ["S 1"]),
    "undeclared_input": (model(sample(given(), given("START"))), ["S 1"]),
    "undeclared_input_in_batch": (model(sample(given(), given("START")), batch=4), ["S 1"]),
    "passive": (model(sample(given()), more="instance_group { count: 2 kind: KIND_CPU passive: true }\n"), ["S 1"]),
    "decoupled": (model(sample(given(), count=2), more="model_transaction_policy { decoupled: true }\n"), ["S 1", "S 2"]),
    "no_name": (model(sample(given(), name="")), [" 1"]),
    "strings_empty": (model(sample(given(datatype="BYTES")), datatype="BYTES"), ["S 1"]),
    "strings_random": (model(sample(given(datatype="BYTES", data="random_data: true")), datatype="BYTES"), ["S 1"]),
    "strings_file": (model(sample(given(datatype="BYTES", dims=[2], data=from_file("strings"))),
                           datatype="BYTES", dims=[2]), ["S 1"]),
}
for _datatype in repository.DATATYPES:
    RUNS[f"random_{_datatype.lower()}"] = (
        model(sample(given(datatype=_datatype, data="random_data: true")), datatype=_datatype), ["S 1"])

# ---- Samples that fail

ID = "[request id: <id_unknown>] "
MISSING = ("expected 1 inputs but got 0 inputs for model '{model}'. Got input(s) [], but missing required input(s) "
           "['INPUT0']. Please provide all required input(s).")
OPTIONAL = "failed to run warmup sample 'S': " + ID + "unknown request input name INPUT0; "

# The model and the error of both servers.
FAILS = {
    "variable_dims": (model(sample(given(dims=[-1])), dims=[-1]),
                      "warmup setting expects all variable-size dimensions are specified for input 'INPUT0'"),
    "no_data": (model(sample(given(data=""))), ID + "warmup setting expects input 'INPUT0' to have input_data_type set"),
    "no_file": (model(sample(given(data=from_file("none")))),
                "failed to open text file for read {root}/{model}/warmup/none: No such file or directory"),
    "file_short": (model(sample(given(data=from_file("twelve")))),
                   ID + "warmup setting expects 16 bytes, but the data provided from twelve only has 12 bytes"),
    "no_dims": (model(sample(given(dims=[]))),
                ID + "unexpected shape for input 'INPUT0' for model '{model}'. Expected [4], got []. "),
    "wrong_dims": (model(sample(given(dims=[5]))),
                   ID + "unexpected shape for input 'INPUT0' for model '{model}'. Expected [4], got [5]. "),
    "wrong_type": (model(sample(given(datatype="FP32"))),
                   ID + "inference input 'INPUT0' data-type is 'FP32', but model '{model}' expects 'INT32'"),
    "no_type": (model(sample(given(datatype="TYPE_INVALID"))),
                ID + "inference input 'INPUT0' data-type is '<invalid>', but model '{model}' expects 'INT32'"),
    "missing": (model(sample()), ID + MISSING),
    "undeclared_only": (model(sample(given("X"))), ID + MISSING),
    "second_sample": (model(sample(given(), name="A"), sample(name="S")), ID + MISSING),
    "strings_too_few": (model(sample(given(datatype="BYTES", data=from_file("strings"))), datatype="BYTES"),
                        ID + "expected 4 string elements for inference input 'INPUT0' for model '{model}', got 2"),
    "strings_none": (model(sample(given(datatype="BYTES", data=from_file("empty"))), datatype="BYTES"),
                     ID + "expected 4 string elements for inference input 'INPUT0' for model '{model}', got 0"),
}

# The model and our error. The genuine Triton accepts it, has another text, or crashes: it does on any error answer of
# the backend, in about three runs of four.
FAILS_HERE = {
    "folder": (model(sample(given(data=from_file("below")))), "'{root}/{model}/warmup/below' is a folder"),
    "file_without_name": (model(sample(given(data=from_file("")))),
                          "warmup setting expects input 'INPUT0' to name a file ({root}/{model}/config.pbtxt:6:"),
    "file_outside": (model(sample(given(data=from_file("../../outside")))),
                     "warmup setting of input 'INPUT0': file '../../outside' is outside the model's folder warmup"),
    "link_outside": (model(sample(given(data=from_file("link")))), "leads to '/etc/passwd', out of the model repository"),
    "negative": (model(sample(given(dims=[-2])), dims=[-1]),
                 "warmup setting of input 'INPUT0': dimension must be integer >= 0, got -2"),
    "huge": (model(sample(given(dims=[2**40])), dims=[-1]), "[1099511627776] of INT32 take more than 4294967296 bytes"),
    "overflow": (model(sample(given(dims=[2**62, 4])), dims=[-1, -1]),
                 "[4611686018427387904,4] of INT32 take more than 4294967296 bytes"),
    "billions": (model(sample(given(), batch_size=2**32 - 1)), "batch_size must be at most 65536, got 4294967295"),
    "strings_cut": (model(sample(given(datatype="BYTES", dims=[1], data=from_file("cut"))), datatype="BYTES", dims=[1]),
                    ID + "incomplete string data for inference input 'INPUT0' for model '{model}', expecting string of "
                         "length 5 but only 2 bytes available (warmup sample 'S')"),
    "optional": (model(sample(), of_input="optional: true"), OPTIONAL),
    "all_copies": (model(sample(batch_size=3), of_input="optional: true", batch=4), OPTIONAL),
}


def expected_run(name):
    text, runs = RUNS[name]
    n = int(re.search(r"count: (\d+) kind", text)[1])
    return [f"{name} {name}_0_{i} {run}" for i in range(n) for run in runs]


@pytest.fixture(scope="module", params=["conch", "triton"])
def loaded(request, tmp_path_factory):
    """(which server, the repository, the log of its load)"""
    root = tmp_path_factory.mktemp("models")
    tables = [RUNS, FAILS] + ([FAILS_HERE] if request.param == "conch" else [])
    for table in tables:
        for name, (text, _) in table.items():
            folder = write(root, name, text)
            if name == "link_outside":
                (folder / "warmup" / "link").symlink_to("/etc/passwd")
    return request.param, root, log_of(request.param, root)


def unquoted(log):
    return log.replace('\\"', '"').replace("\\\\", "\\")


@pytest.mark.parametrize("name", RUNS)
def test_samples_run_in_order_on_each_instance(loaded, name):
    _, _, log = loaded
    found = re.findall(rf"model '({name})' instance (\w+) is running warmup sample '(\w*)' for iteration (\d+)", log)
    assert [" ".join(one) for one in found] == expected_run(name)
    assert re.search(rf"\| {name} +\| 1 +\| READY", log), log


@pytest.mark.parametrize("name", FAILS)
def test_a_sample_that_fails_gives_its_reason(loaded, name):
    which, root, log = loaded
    text = FAILS[name][1].format(root=root, model=name)
    said = re.search(rf"failed to load '{name}' version 1: (?:Invalid argument|Internal): (.*)\"", unquoted(log))[1]
    if which == "triton":
        said = said.replace("from twelveonly", "from twelve only")    # a blank that it forgets
        assert said == text
    else:
        text = text.removeprefix(ID) if "warmup setting" in text else text
        assert re.fullmatch(re.escape(text) + r"( \(warmup sample 'S'\)| \(\S+config.pbtxt:\d+:\d+\))?", said), said


@pytest.mark.parametrize("loaded", ["conch"], indirect=True)
@pytest.mark.parametrize("name", FAILS_HERE)
def test_a_sample_that_fails_only_here_gives_its_reason(loaded, name):
    _, root, log = loaded
    said = re.search(rf"failed to load '{name}' version 1: \w.*", unquoted(log))[0]
    assert FAILS_HERE[name][1].format(root=root, model=name) in said


@pytest.mark.parametrize("loaded", ["conch"], indirect=True)
def test_doubtful_samples_are_warned_about(loaded):
    _, _, log = loaded
    assert "warmup sample 'S' is skipped, its batch_size is 0" in log
    assert "of the 16 bytes of warmup/sixteen input 'INPUT0' takes the first 8" in log
    assert "has an input 'START' that the model does not declare" in log


# ---- Other backends


@pytest.mark.parametrize("which", ["conch", "triton"])
def test_onnx_models_are_warmed_up(which, tmp_path):
    def table(name, *samples):
        folder = write(tmp_path, name,
                       f'backend: "onnxruntime"\nmax_batch_size: 8\ninstance_group {{ count: 2 kind: KIND_CPU }}\n'
                       f'{repository.tensor("input", "INDEX", "INT64", [1])}{repository.tensor("output", "OUT", "FP32", [1])}'
                       + "".join(samples))
        onnx_models.table(folder)

    table("fine", sample(given("INDEX", "INT64", [1]), batch_size=8, count=2))
    if which == "conch":    # the genuine one mostly crashes
        table("wrong", sample(given("INDEX", "INT64", [1], data=from_file("nine"))))
    log = unquoted(log_of(which, tmp_path))
    ran = re.findall(r"instance (fine_0_\d) is running warmup sample 'S' for iteration (\d)", log)
    assert sorted(ran) == [("fine_0_0", "1"), ("fine_0_0", "2"), ("fine_0_1", "1"), ("fine_0_1", "2")]
    assert re.search(r"\| fine +\| 1 +\| READY", log)
    if which == "conch":
        assert re.search(r"failed to load 'wrong' .*failed to run warmup sample 'S': .*onnx runtime error.*; ", log)


@pytest.mark.parametrize("which", ["conch", "triton"])
def test_a_warm_up_waits_for_all_decoupled_responses(which, tmp_path):
    """Three responses per request, 100 ms each, sent after Execute has returned. A second execution begins after the last
    response."""
    text = 'backend: "repeat"\nmodel_transaction_policy { decoupled: true }\ninstance_group { count: 1 kind: KIND_CPU }\n'
    text += repository.tensor("input", "IN", "INT32", [-1]) + repository.tensor("input", "DELAY", "UINT32", [-1])
    text += repository.tensor("input", "WAIT", "UINT32", [1])
    text += repository.tensor("output", "OUT", "INT32", [1]) + repository.tensor("output", "IDX", "UINT32", [1])
    folder = write(tmp_path, "repeat", text + sample(
        given("IN", "INT32", [3]), given("DELAY", "UINT32", [3], data=from_file("delays")), given("WAIT", "UINT32", [1]),
        count=2))
    (folder / "warmup" / "delays").write_bytes((100).to_bytes(4, "little") * 3)
    log = log_of(which, tmp_path)
    assert re.search(r"\| repeat +\| 1 +\| READY", log), log
    began = re.findall(r"I\d+ \d+:(\d+):([\d.]+) .*instance repeat_0_0 is running warmup sample 'S' for iteration \d", log)
    ended = re.search(r"I\d+ \d+:(\d+):([\d.]+) .*successfully loaded 'repeat'", log).groups()
    times = [60 * int(minute) + float(second) for minute, second in [*began, ended]]
    assert len(times) == 3
    assert all((after - before) % 3600 >= 0.3 for before, after in zip(times, times[1:]))


# ---- A warm-up that takes long


ENDLESS = sample(given(), count=2**32 - 1)
STUCK = sample(given()) + 'parameters { key: "execute_delay_ms" value { string_value: "600000" } }\n'


def still_warming(root, text, *flags):
    """A server that serves one model while another one warms up."""
    write(root, "slow", model(text))
    write(root, "quick", model())
    # A program that ends while a backend does not return leaves threads, which the thread sanitizer would report.
    options = os.environ.get("TSAN_OPTIONS", "") + ":report_thread_leaks=0"
    return servers.Server(root, flags=("--log-verbose=1", *flags), ready=None, env={"TSAN_OPTIONS": options})


def says(server, model_name):
    with urllib.request.urlopen(f"http://{server.url}/v2/models/{model_name}/ready", timeout=60) as answer:
        return answer.status


@pytest.mark.conch_only("the genuine Triton opens its ports when all is loaded")
def test_a_stop_ends_a_warm_up_between_two_executions(tmp_path):
    with still_warming(tmp_path, ENDLESS) as server:
        servers.wait_for(lambda: "running warmup sample 'S' for iteration 3" in server.log(), 60, "the warm-up runs")
        servers.wait_for(lambda: "successfully loaded 'quick'" in server.log(), 60, "the other model")
        assert says(server, "quick") == 200
        with pytest.raises(urllib.error.HTTPError):
            says(server, "slow")
        server.signal(signal.SIGTERM)
        assert server.wait(25) == 0    # not at the end of the exit timeout
    assert "the server stops: instance 'slow_0_0' gave up warmup sample 'S'" in server.log()


@pytest.mark.conch_only("the genuine Triton opens its ports when all is loaded")
def test_a_hanging_warm_up_is_named_and_delays_the_stop_until_the_timeout(tmp_path):
    server = still_warming(tmp_path, STUCK, "--exit-timeout-secs=1")
    with pytest.raises(AssertionError, match="ended with 1"), server:
        servers.wait_for(lambda: "model 'slow' instance slow_0_0: warm-up has taken 5 s so far; sample 'S', iteration 1, 1 "
                         "requests without their final response" in server.log(), 60, "the log says what is waited for")
        assert says(server, "quick") == 200
        server.signal(signal.SIGTERM)
        assert server.wait(25) == 1    # the default is 30 s
    assert "failed to stop server: Internal - Exit timeout expired. Exiting immediately." in server.log()


def is_ready(server, model_name):
    try:
        return says(server, model_name) == 200
    except urllib.error.HTTPError:
        return False


@pytest.mark.conch_only("the genuine Triton has no limit")
def test_an_endless_warm_up_ends_in_time(tmp_path):
    """2^32 runs, of which each logs a line at most once; the runs that do not fit in the time are not made."""
    text = "warm-up of instance 'slow_0_0' has not ended after 2 s, at run "
    with still_warming(tmp_path, ENDLESS, "--model-warmup-timeout-secs=2", *FLAGS) as server:
        servers.wait_for(lambda: text in server.log(), 60, "the load fails")
        servers.wait_for(lambda: is_ready(server, "quick"), 60, "the other model")
        log = server.log()
        assert re.search(text + r"\d+ of 4294967295 of sample 'S' \(--model-warmup-timeout-secs\)", log), log
        assert log.count("is running warmup sample 'S' for iteration") == 10
        assert "slow_0_0: 4294967285 more runs of warmup sample 'S' follow" in log
        assert not is_ready(server, "slow")


@pytest.mark.sanitize
@pytest.mark.conch_only("the genuine Triton opens its ports when all is loaded")
def test_a_warm_up_leaves_its_thread_to_other_loads(tmp_path):
    """At the start, with one thread; and by requests, when all threads wait for warm-ups."""
    for i in range(3):
        write(tmp_path, f"a{i}", model(ENDLESS))
    write(tmp_path, "z", model())
    with servers.Server(tmp_path, flags=("--model-load-thread-count=1", *FLAGS), ready=None) as server:
        servers.wait_for(lambda: is_ready(server, "z"), 60, "the last model")
        assert not any(is_ready(server, f"a{i}") for i in range(3))

    explicit = ("--model-control-mode=explicit", "--model-load-thread-count=2", *FLAGS)
    with servers.Server(tmp_path, flags=explicit) as server:
        def load(name):
            url = f"http://{server.url}/v2/repository/models/{name}/load"
            with contextlib.suppress(urllib.error.HTTPError, OSError), \
                    urllib.request.urlopen(urllib.request.Request(url, b"{}"), timeout=120) as answer:
                return answer.status

        asks = [threading.Thread(target=load, args=(f"a{i}",)) for i in range(3)]
        for one in asks:
            one.start()
        servers.wait_for(lambda: server.log().count("for iteration 10") >= 2, 60, "the warm-ups run")
        assert load("z") == 200
        server.signal(signal.SIGTERM)
        for one in asks:
            one.join()
