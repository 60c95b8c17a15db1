# SPDX-License-Identifier: Apache-2.0
"""A backend breaks the rules: every client gets exactly one clear answer, and the server goes on.

tests/plugins/misbehave/misbehave.c does what the request parameter `do` asks for.
"""

import concurrent.futures
import http.client
import json
import pathlib
import re
import signal

import pytest

import server as servers

CONFIG = """
name: "mis"
backend: "misbehave"
input [ { name: "IN" data_type: TYPE_INT32 dims: [-1] } ]
output [ { name: "OUT" data_type: TYPE_INT32 dims: [-1] } ]
instance_group [ { count: 2 kind: KIND_CPU } ]
"""

# Five requests make a batch, which waits for them.
BATCHED = """
name: "mis"
backend: "misbehave"
max_batch_size: 5
input [ { name: "IN" data_type: TYPE_INT32 dims: [-1] } ]
output [ { name: "OUT" data_type: TYPE_INT32 dims: [-1] } ]
dynamic_batching { preferred_batch_size: [ 5 ] max_queue_delay_microseconds: 60000000 }
"""

pytestmark = pytest.mark.skipif(servers.REFERENCE, reason="the genuine Triton dies of it, or never answers")

NO_ID = r"^\[request id: <id_unknown>\] "
# The behaviour, the HTTP status, a pattern of the error or the values of OUT (None: no outputs).
CASES = [
    ("execute-error", 503, "^execute has failed$"),
    ("error-response", 400, "^this request is no good$"),
    ("error-with-outputs", 400, "^too late$"),
    ("answer-then-error", 200, [1, 2]),
    ("release-then-error", 200, [1, 2]),
    ("lose-then-error", 500, "."),
    ("no-answer", 500, "."),
    ("unsent-answer", 500, "."),
    ("unused-factory", 500, "."),
    ("only-final", 500, "^expected a single response, got 0$"),
    ("two-responses", 500, "^expected a single response, got 2$"),
    ("after-final", 200, [1, 2]),
    ("two-finals", 200, [1, 2]),
    ("release-twice", 200, [1, 2]),
    ("reschedule", 400, "Request is released with TRITONSERVER_REQUEST_RELEASE_RESCHEDULE"),
    ("late-answer", 200, [7, 7]),
    ("late-release", 200, [1, 2]),
    ("late-both", 200, [7, 7]),
    ("late-response", 200, [1, 2]),
    ("late-second-answer", 200, [1, 2]),
    ("error-then-late-answer", 503, "^execute has failed$"),
    ("wrong-output", 400, "unexpected inference output 'NOPE' for model 'mis'"),
    ("no-outputs", 200, None),
    ("no-buffer", 500, "OUT"),
    ("huge-buffer", 400, "."),
    ("short-buffer", 500, "output.* 'OUT'"),
    ("long-buffer", 500, "output.* 'OUT'"),
    ("beyond-memory", 400, "."),
    ("overflowing-shape", 500, "output 'OUT': its 8 bytes do not fit its shape and its datatype INT32"),
    ("many-dimensions", 200, [0]),
    ("no-such-type", 500, "output 'OUT': .* datatype <invalid>"),
    ("broken-strings", 500, "output.* 'OUT'"),
    ("output-twice", 500, "output 'OUT': its 0 bytes do not fit its shape"),
    ("buffer-twice", 400, "allocated buffer for output 'OUT' already exists"),
    ("unknown-input", 400, NO_ID + "unknown request input name NOPE$"),
    ("input-index", 400, NO_ID + "out of bounds index 99: request has 1 inputs$"),
    ("output-index", 400, NO_ID + "out of bounds index 99: request has 1 requested outputs$"),
    ("parameter-index", 400, "out of bounds index 99: .* 2 parameters"),
    ("string-correlation-id", 400, "correlation ID in request is not a string"),
    ("number-correlation-id", 400, "correlation ID in request is not an unsigned int"),
    ("gpu-output", 200, [0]),
    ("null-response", 400, "^response was nullptr$"),
    ("null-arguments", 400, r"^refused (\d+) of \1 calls$"),
]


@pytest.fixture(scope="module")
def mis(tmp_path_factory):
    with serve(tmp_path_factory.mktemp("models")) as started:
        yield started


@pytest.fixture
def mis_alone(tmp_path):
    with serve(tmp_path) as started:
        yield started


def serve(root, config=CONFIG):
    (root / "mis" / "1").mkdir(parents=True)
    (root / "mis" / "config.pbtxt").write_text(config)
    started = servers.Server(root)
    folder = pathlib.Path(servers.BACKENDS).parent / "tests" / "backends"
    ours = f"--backend-directory={folder}"
    started.args = [ours if arg.startswith("--backend-directory=") else arg for arg in started.args]
    return started


def ask(server, do=None, hold=None, values=(1, 2), batch=False, **more):
    """Returns the status and the decoded body. hold: late answers wait while that file exists. more: parameters."""
    shape = [1, len(values)] if batch else [len(values)]
    body = {"inputs": [{"name": "IN", "datatype": "INT32", "shape": shape, "data": list(values)}], "parameters": more}
    if do:
        body["parameters"] |= {"do": do, **({"hold": str(hold)} if hold else {"ms": 30})}
    if do == "number-correlation-id":
        body["parameters"]["sequence_id"] = "a text"
    connection = http.client.HTTPConnection(server.address, server.port, timeout=60)
    try:
        connection.request("POST", "/v2/models/mis/infer", json.dumps(body))
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def check(answer, status, expected):
    got_status, body = answer
    assert got_status == status, body
    if isinstance(expected, str):
        assert list(body) == ["error"]
        assert re.search(expected, body["error"]), body["error"]
    elif expected is None:
        assert body["outputs"] == []
    else:
        assert [output["name"] for output in body["outputs"]] == ["OUT"]
        assert body["outputs"][0]["data"] == expected


@pytest.mark.parametrize("do, status, expected", CASES, ids=[case[0] for case in CASES])
def test_one_clear_answer_and_the_server_goes_on(mis, do, status, expected):
    check(ask(mis, do), status, expected)
    for _ in range(4):  # both instances still work
        check(ask(mis), 200, [1, 2])
    mis.assert_alive()


@pytest.mark.parametrize("do", ["no-final", "negative-shape", "buffer-index", "no-dimensions", "other-type"])
def test_each_request_is_answered_once_whatever_wins(mis, do):
    status, body = ask(mis, do)
    assert (status == 200 and "outputs" in body) or (400 <= status < 600 and body["error"]), body
    check(ask(mis), 200, [1, 2])
    mis.assert_alive()


def test_answers_are_not_mixed_up(mis):
    """All behaviours at once, among requests that follow the rules and must get their own values."""
    good = [(None, 200, [n, n + 1, n + 2]) for n in range(len(CASES))]
    mixed = [case for pair in zip(CASES, good, strict=True) for case in pair] * 3

    def one(case):
        do, status, expected = case
        check(ask(mis, do, values=(1, 2) if do else expected), status, expected)

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        list(pool.map(one, mixed))
    mis.assert_alive()


@pytest.fixture
def hold(tmp_path):
    path = tmp_path / "hold"
    path.touch()
    yield path
    path.unlink(missing_ok=True)


def test_a_late_answer_does_not_hold_up_others(mis_alone, hold):
    """The two instances are free while three answers are outstanding."""
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        waiting = [pool.submit(ask, mis_alone, "late-answer", hold) for _ in range(3)]
        mis_alone.wait_log("somebody is late, number 3")
        check(ask(mis_alone), 200, [1, 2])
        assert not any(future.done() for future in waiting)
        hold.unlink()
        for future in waiting:
            check(future.result(), 200, [7, 7])


@pytest.mark.parametrize("do, expected", [("late-answer", [7, 7]), ("late-both", [7, 7]), ("late-response", [1, 2]),
                                          ("late-release", [1, 2])])
def test_a_stop_waits_for_threads_that_are_late(do, expected, mis_alone, hold):
    """Neither the answer nor the release is lost, and the model is not freed while the thread uses it."""
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        asked = pool.submit(ask, mis_alone, do, hold)
        mis_alone.wait_log("somebody is late")
        if do == "late-release":
            check(asked.result(), 200, expected)
        mis_alone.signal(signal.SIGTERM)
        mis_alone.wait_log("Found 1 HTTP service connections")
        hold.unlink()
        check(asked.result(), 200, expected)
    assert mis_alone.wait() == 0


ARRAYS = ["zeroed", "reversed", "shifted", "released"]


@pytest.mark.parametrize("fail", ["", "execute has failed"])
@pytest.mark.parametrize("array", ARRAYS)
def test_the_array_of_requests_is_the_backends(array, fail, mis):
    """It may overwrite it: public backends set the requests that they have answered to NULL."""
    expected = (400, "^the whole batch is no good$") if array == "released" else (200, [1, 2])
    for _ in range(4):
        check(ask(mis, array=array, fail=fail), *expected)
    check(ask(mis, "no-answer", array=array, fail=fail), 400 if array == "released" else 500, ".")
    check(ask(mis, "execute-error", array=array), 400 if array == "released" else 503, ".")
    check(ask(mis), 200, [1, 2])
    mis.assert_alive()


@pytest.fixture(scope="module")
def batched(tmp_path_factory):
    with serve(tmp_path_factory.mktemp("batched"), BATCHED) as started:
        yield started


@pytest.mark.parametrize("fail", ["", "execute has failed"])
@pytest.mark.parametrize("array", ARRAYS)
def test_the_array_of_a_batch_is_the_backends(array, fail, batched):
    """Each request of a batch gets its own answer, whatever happened to the array."""
    for _ in range(4):
        with concurrent.futures.ThreadPoolExecutor(5) as pool:
            asked = [pool.submit(ask, batched, values=(n, n + 1), batch=True, array=array, fail=fail) for n in range(5)]
            for n, future in enumerate(asked):
                expected = (400, "^the whole batch is no good$") if array == "released" else (200, [n, n + 1])
                check(future.result(), *expected)
    batched.assert_alive()
