# SPDX-License-Identifier: Apache-2.0
"""While models load: the ports are open, the answers are true, and loaded models serve.

No test here waits for time to pass: the models of repository.Gated load when the test opens their gates.
"""

import signal
import socket
import threading
from concurrent import futures

import pytest
import tritonclient.http as triton

import repository
from server import Server, wait_for
from test_start import names
from wire import Connection, ask, given, infer, request_bytes

pytestmark = pytest.mark.conch_only("the genuine Triton opens its ports when all models are loaded")

ANY = [("FP32", [-1])]
ONE = {"inputs": [given("INPUT0", "FP32", [1], [1])]}
IN = {"inputs": [given("IN", "INT32", [2], [3, 4])]}
JSON = {"Accept": "application/json"}


def progress(server, status=400):
    answer = ask(server, "GET", "/v2/health/ready", headers=JSON)
    assert answer.status == status, answer
    assert answer.headers["content-type"] == "application/json"
    return answer.json()


def counts(server):
    models = progress(server)["models"]
    return models["total"], models["serving"], models["failed"]


def states(server):
    """The states in the index; None for a model that waits for a thread."""
    answer = ask(server, "POST", "/v2/repository/index")
    return [row.get("state") for row in answer.json()] if answer.status == 200 else None


@pytest.fixture
def gated(models):
    return repository.Gated(models, "gated").shut("hold.load")


@pytest.fixture
def loading(models, gated):
    """A server with a model that is ready and one that loads until gated.open("hold.load")."""
    repository.write_identity(models, "quick", ANY)
    with Server(models, ready=None) as server:
        wait_for(lambda: states(server) == ["LOADING", "READY"], 60, "one is being loaded, the other serves")
        yield server
        if (gated.folder / "hold.load").exists():
            gated.open("hold.load")


def test_a_loading_server_is_live_and_not_ready(loading):
    live, ready = (ask(loading, "GET", f"/v2/health/{question}") for question in ("live", "ready"))
    assert (live.status, live.body) == (200, b"")
    assert (ready.status, ready.body) == (400, b"")
    with triton.InferenceServerClient(loading.url) as client:
        assert client.is_server_live()
        assert not client.is_server_ready()
        assert client.is_model_ready("quick")


def test_readiness_gives_its_reason_as_json(loading, gated):
    assert progress(loading) == {
        "ready": False,
        "state": "starting",
        "models": {"total": 2, "serving": 1, "failed": 0},
        "loading": ["gated"],
        "failed": [],
    }
    gated.open("hold.load")
    wait_for(lambda: ask(loading, "GET", "/v2/health/ready").status == 200, 60, "ready")
    assert progress(loading, 200) == {
        "ready": True,
        "state": "running",
        "models": {"total": 2, "serving": 2, "failed": 0},
        "loading": [],
        "failed": [],
    }


@pytest.mark.parametrize(
    "accept, told",
    [
        ("application/json", True),
        ("text/html, application/JSON ;q=0.5", True),
        ("text/plain,application/json", True),
        ("*/*", False),
        ("application/*", False),
        ("application/json-seq", False),
        ("", False),
        (",;,", False),
    ],
)
def test_the_reason_is_sent_for_accept_json(loading, accept, told):
    answer = ask(loading, "GET", "/v2/health/ready", headers={"Accept": accept})
    assert answer.status == 400
    assert bool(answer.body) == told


def test_loaded_models_serve_while_others_load(loading):
    assert infer(loading, "quick", ONE).status == 200
    assert ask(loading, "GET", "/v2/models/quick").json()["versions"] == ["1"]
    assert ask(loading, "GET", "/v2/models/quick/config").status == 200
    assert ask(loading, "GET", "/v2/models/quick/ready").status == 200
    assert ask(loading, "GET", "/v2").json()["name"] == "triton"
    rows = ask(loading, "POST", "/v2/repository/index").json()
    assert rows == [{"name": "gated", "version": "1", "state": "LOADING"}, {"name": "quick", "version": "1", "state": "READY"}]


def test_loading_models_answer_with_retry_after(loading, gated):
    text = "Request for unknown model: 'gated' version 1 is not at ready state"
    for answer in (
        infer(loading, "gated", IN),
        ask(loading, "POST", "/v2/models/gated/versions/1/infer", IN),
        ask(loading, "GET", "/v2/models/gated"),
        ask(loading, "GET", "/v2/models/gated/config"),
        ask(loading, "GET", "/v2/models/gated/ready"),
    ):
        assert (answer.status, answer.error) == (503, text)
    answer = ask(loading, "GET", "/v2/models/gated/versions/2")
    assert (answer.status, answer.error) == (404, "Request for unknown model: 'gated' version 2 is not found")
    answer = ask(loading, "GET", "/v2/models/nobody")
    assert (answer.status, answer.error) == (404, "Request for unknown model: 'nobody' is not found")
    gated.open("hold.load")
    wait_for(lambda: infer(loading, "gated", IN).status == 200, 60, "it serves")


def test_versions_serve_as_they_are_loaded(models):
    """The second version waits; the first version is the latest one that is ready."""
    gated = repository.Gated(models, "gated", versions=(1, 2), more="version_policy { all { } }\n")
    gated.shut("hold.load")
    with Server(models, ready=None) as server:
        wait_for(lambda: states(server) == ["LOADING", "LOADING"], 60, "it is being loaded")
        gated.open("hold.load")
        wait_for(lambda: ask(server, "GET", "/v2/health/ready").status == 200, 60, "ready")
        assert infer(server, "gated", IN).json()["model_version"] == "2"


def test_models_wait_for_a_load_thread(models):
    """Two load, the others wait for a thread: the index has their names, and requests to them get Retry-After."""
    gates = [repository.Gated(models, f"m{i}").shut("hold.load") for i in range(4)]
    with Server(models, flags=["--model-load-thread-count=2"], ready=None) as server:
        wait_for(lambda: states(server) == ["LOADING", "LOADING", None, None], 60, "two are being loaded")
        assert progress(server)["loading"] == ["m0", "m1"]
        for path in ("/v2/models/m3", "/v2/models/m3/versions/7"):
            assert ask(server, "GET", path).status == 503
        answer = infer(server, "m3", IN)
        assert (answer.status, answer.error) == (503, "Request for unknown model: 'm3' is not at ready state")
        for gate in gates:
            gate.open("hold.load")
        wait_for(lambda: ask(server, "GET", "/v2/health/ready").status == 200, 60, "ready")


def test_a_failed_model_gives_its_reason(models, gated):
    repository.Gated(models, "bad").shut("fail.load", "no weights in /data/x")
    repository.write_model(models, "unreadable", "name: 5")
    with Server(models, flags=["--exit-on-error=false"], ready=None) as server:
        wait_for(lambda: counts(server) == (3, 0, 2) and progress(server)["loading"], 60, "two have failed, one is being loaded")
        told = progress(server)
        assert (told["state"], told["loading"]) == ("starting", ["gated"])
        assert told["failed"][0] == {"name": "bad", "version": "1", "reason": "Internal: no weights in /data/x"}
        assert told["failed"][1]["name"] == "unreadable"
        assert "config.pbtxt" in told["failed"][1]["reason"]
        answer = infer(server, "bad", IN)
        assert (answer.status, answer.error) == (404, "Request for unknown model: 'bad' has no available versions")
        gated.open("hold.load")
        wait_for(lambda: progress(server)["state"] == "running", 60, "all have been tried")
        assert counts(server) == (3, 1, 2)
        assert infer(server, "gated", IN).status == 200
        server.wait_log("Loaded 1 of 3 models in ")
        assert names(server.log(), "| bad", "UNAVAILABLE: Internal: no weights in /data/x")


def test_the_list_of_failures_is_short(models):
    for i in range(40):
        repository.write_model(models, f"wrong{i:02}", "nonsense")
    with Server(models, flags=["--exit-on-error=false"], ready=False) as server:
        told = progress(server, 200)
        assert told["models"] == {"total": 40, "serving": 0, "failed": 40}
        assert [row["name"] for row in told["failed"]] == [f"wrong{i:02}" for i in range(16)]


def test_a_backend_that_cannot_serve_is_not_ready(models):
    gated = repository.Gated(models, "gated")
    with Server(models) as server:
        gated.shut("fail.ready", "the device is gone")
        wait_for(lambda: ask(server, "GET", "/v2/health/ready").status == 400, 60, "the backend has been asked")
        reason = "its backend says that it cannot serve now: see the log"
        assert progress(server)["failed"] == [{"name": "gated", "version": "1", "reason": reason}]
        server.wait_log("Model 'gated' version 1 is not ready: the device is gone")
        gated.open("fail.ready")
        wait_for(lambda: ask(server, "GET", "/v2/health/ready").status == 200, 60, "the backend has been asked again")
        assert progress(server, 200)["failed"] == []


@pytest.mark.sanitize
def test_a_slow_readiness_check_blocks_no_client(models):
    """No client waits for it: there is one loop, and it answers what it knows."""
    gated = repository.Gated(models, "gated")
    repository.write_identity(models, "m", ANY)
    with Server(models, flags=["--http-thread-count=1"]) as server:
        gated.shut("hold.ready")
        wait_for(lambda: [ask(server, "GET", "/v2/models/gated/ready"), (gated.folder / "hold.ready.reached").exists()][1], 60,
                 "the backend is being asked")
        for _ in range(20):
            assert ask(server, "GET", "/v2/models/gated/ready").status == 200
            assert ask(server, "GET", "/v2/health/ready").status == 200
            assert ask(server, "GET", "/v2/health/live").status == 200
            assert infer(server, "m", ONE).status == 200
        gated.shut("fail.ready", "no device")    # seen when the backend has answered
        gated.open("hold.ready")
        wait_for(lambda: ask(server, "GET", "/v2/models/gated/ready").status == 400, 60, "it says no")
        gated.open("fail.ready")
        wait_for(lambda: ask(server, "GET", "/v2/models/gated/ready").status == 200, 60, "it says yes")


@pytest.mark.sanitize
def test_models_that_never_answer_delay_no_other(models, tmp_path):
    """More models of one backend than threads that ask it do not say whether they are ready."""
    silent = [repository.Gated(models, f"silent_{i}") for i in range(70)]
    other = repository.Gated(models, "other").shut("tell.ready")
    (tmp_path / "backends/gate").mkdir(parents=True)
    for gated in (*silent, other):    # all have the same backend
        (gated.folder / "libtriton_gate.so").rename(tmp_path / "backends/gate/libtriton_gate.so")
    with Server(models, flags=[f"--backend-directory={tmp_path}/backends"]) as server:
        for gated in silent:
            gated.shut("hold.ready")
        for gated in silent:
            assert ask(server, "GET", f"/v2/models/{gated.name}/ready").status == 200
        for gated in silent:
            gated.await_reached("hold.ready")
        other.shut("fail.ready", "no device")
        assert infer(server, "other", IN).status == 200
        server.wait_log("Model 'other' version 1 is not ready: no device")
        assert ask(server, "GET", "/v2/models/other/ready").status == 400
        for gated in silent:
            gated.open("hold.ready")


def test_a_backend_says_that_its_readiness_has_changed(models):
    """No client asks before the change is in the log, so the server has asked because the backend has said so."""
    gated = repository.Gated(models, "gated").shut("tell.ready")
    with Server(models, ready=None) as server:
        wait_for(lambda: names(server.log(), "| gated", "READY"), 60, "it is loaded")
        gated.shut("fail.ready", "its process has ended")
        assert infer(server, "gated", IN).status == 200
        server.wait_log("Model 'gated' version 1 is not ready: its process has ended")
        assert ask(server, "GET", "/v2/models/gated/ready").status == 400
    with Server(models, ready=None) as server:
        server.wait_log("Model 'gated' version 1 is not ready: its process has ended")
        wait_for(lambda: names(server.log(), "| gated", "READY"), 60, "it is loaded")
        gated.open("fail.ready")
        assert infer(server, "gated", IN).status == 200
        server.wait_log("Model 'gated' version 1 is ready again")
        assert ask(server, "GET", "/v2/models/gated/ready").status == 200


@pytest.mark.sanitize
def test_a_version_that_never_serves_is_dropped_after_its_question(models):
    """Another version fails to load while the backend is asked whether the first one is ready."""
    gated = repository.Gated(models, "gated", versions=(1, 2), more="version_policy { all { } }\n").shut("hold.ready")
    with Server(models, flags=["--model-control-mode=explicit"]) as server, futures.ThreadPoolExecutor() as pool:
        load = pool.submit(ask, server, "POST", "/v2/repository/models/gated/load", {})
        gated.await_reached("hold.ready")
        gated.shut("fail.load", "no weights")
        server.wait_log("failed to load 'gated' version 2")
        assert not load.done()
        gated.open("hold.ready")
        assert load.result(60).status == 400
        server.wait_log("successfully unloaded 'gated' version 1")


def test_a_model_without_a_readiness_answer_is_not_ready(models):
    gated = repository.Gated(models, "gated").shut("hold.ready")
    with Server(models, ready=None) as server:
        gated.await_reached("hold.ready")
        wait_for(lambda: names(server.log(), "| gated", "READY"), 60, "it is loaded")
        assert ask(server, "GET", "/v2/models/gated/ready").status == 400
        assert ask(server, "GET", "/v2/health/ready").status == 400
        assert infer(server, "gated", IN).status == 200
        gated.open("hold.ready")
        wait_for(lambda: ask(server, "GET", "/v2/health/ready").status == 200, 60, "it has said so")


def test_the_statistics_of_all_models_agree_with_each(models):
    """The answer is made on another thread than the loops. The statistics of one model are the same."""
    repository.write_standard(models)
    with Server(models) as server:
        all_of_them = ask(server, "GET", "/v2/models/stats").json()["model_stats"]
        for row in all_of_them[:3]:
            one = ask(server, "GET", f"/v2/models/{row['name']}/versions/{row['version']}/stats").json()["model_stats"]
            assert one == [row]
        assert len(all_of_them) > 10


def test_readiness_that_is_not_strict_waits_for_the_end_of_the_start(models, gated):
    repository.write_model(models, "wrong", "nonsense")
    with Server(models, flags=["--exit-on-error=false", "--strict-readiness=false"], ready=None) as server:
        wait_for(lambda: counts(server) == (2, 0, 1), 60, "one has failed")
        gated.open("hold.load")
        wait_for(lambda: ask(server, "GET", "/v2/health/ready").status == 200, 60, "ready")


def test_requests_succeed_while_models_load(models):
    """Clients ask one model all the time, and ask about all models, while the others become ready one by one."""
    repository.write_identity(models, "quick", ANY)
    gates = [repository.Gated(models, f"m{i}").shut("hold.load") for i in range(8)]
    with Server(models, flags=["--model-load-thread-count=9"], ready=None) as server:
        wait_for(lambda: counts(server) == (9, 1, 0), 60, "the quick model serves")
        over, wrong, n = threading.Event(), [], [0]

        def ask_all_the_time():
            with Connection(server) as connection:
                while not over.is_set():
                    n[0] += 1
                    answer = connection.request("POST", "/v2/models/quick/infer", repr(ONE).replace("'", '"').encode())
                    ready = connection.request("GET", "/v2/health/ready", headers=JSON)
                    index = connection.request("POST", "/v2/repository/index")
                    if (answer.status, index.status) != (200, 200) or ready.status not in (200, 400):
                        wrong.append((answer, ready, index))

        clients = [threading.Thread(target=ask_all_the_time) for _ in range(3)]
        for client in clients:
            client.start()
        for i, gate in enumerate(gates):
            seen = n[0]
            wait_for(lambda: n[0] > seen + 3, 60, "clients go on")
            gate.open("hold.load")
            wait_for(lambda: infer(server, gates[i].name, IN).status == 200, 60, "it serves")
        over.set()
        for client in clients:
            client.join()
        assert not wrong
        wait_for(lambda: ask(server, "GET", "/v2/health/ready").status == 200, 60, "ready")


# ---- The end ------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_loads_in_progress(models, number):
    """Loads in progress may finish, and are unloaded. The other models are left out, and new connections are refused
    meanwhile."""
    gates = [repository.Gated(models, f"m{i}").shut("hold.load") for i in range(3)]
    with Server(models, flags=["--model-load-thread-count=1"], ready=None) as server:
        gates[0].await_reached("hold.load")    # just before it would be left out
        server.signal(number)
        server.wait_log("Waiting for models that are being loaded: 'm0'")
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((server.address, server.port), timeout=60)
        gates[0].open("hold.load")
        assert server.wait() == 0
    log = server.log()
    assert f"Signal ({int(number)}) received." in log
    assert names(log, "successfully unloaded 'm0' version 1")
    assert "loading: m1:1" not in log


def test_a_stop_begins_no_load_while_it_waits_for_requests(models):
    """Otherwise the stop would last as long as that load, long after the last request was answered."""
    busy = repository.Gated(models, "busy").shut("hold.execute")
    gate = repository.Gated(models, "m0").shut("hold.load")
    repository.Gated(models, "m1")
    with Server(models, flags=["--model-load-thread-count=1"], ready=None) as server:
        gate.await_reached("hold.load")
        assert states(server) == ["READY", "LOADING", None]
        held = Connection(server)
        held.send(request_bytes("POST", "/v2/models/busy/infer", repr(IN).replace("'", '"').encode()))
        wait_for(held.taken, 60, "the server has read the request")
        server.signal(signal.SIGTERM)
        server.wait_log("HTTP service connections")
        gate.open("hold.load")
        server.wait_log("successfully loaded 'm0'")
        busy.open("hold.execute")
        assert held.response().status == 200
        assert server.wait() == 0
    assert "loading: m1:1" not in server.log()


def test_a_hanging_load_delays_the_stop_until_the_exit_timeout(models, gated):
    server = Server(models, flags=["--exit-timeout-secs=1"], ready=None)
    with pytest.raises(AssertionError, match="ended with 1"):
        with server:
            gated.await_reached("hold.load")
            assert progress(server)["loading"] == ["gated"]
            server.signal(signal.SIGTERM)
            assert server.wait(25) == 1    # the default is 30 s
    assert names(server.log(), "failed to stop server: Internal - Exit timeout expired. Exiting immediately.")
    assert names(server.log(), "Timeout 1: Waiting for models that are being loaded: 'gated'")
    assert (gated.folder / "hold.load").exists()


def test_a_failure_ends_the_server_after_the_others_have_been_tried(models, gated):
    repository.Gated(models, "bad").shut("fail.load", "broken")
    server = Server(models, ready=None)
    with pytest.raises(AssertionError, match="ended with 1"):
        with server:
            wait_for(lambda: counts(server) == (2, 0, 1), 60, "one has failed")
            idle = Connection(server)
            gated.open("hold.load")
            assert server.wait() == 1
            assert idle.closed()
    assert names(server.log(), "error: creating server: Internal - 1 of 2 models failed:")
    assert names(server.log(), "  bad version 1: Internal: broken")


def test_the_port_may_open_after_the_load(models, gated):
    """As in the genuine Triton, the port opens when all models have been tried."""
    server = Server(models, flags=["--listen-after-load=true"]).start()
    server.wait_log("loading: gated:1")
    assert "Started HTTPService" not in server.log()
    gated.open("hold.load")
    with server:
        assert ask(server, "GET", "/v2/health/ready").status == 200
    log = server.log()
    assert log.index("successfully loaded 'gated'") < log.index("Started HTTPService")


def test_a_signal_ends_a_server_that_does_not_listen_yet(models, gated):
    server = Server(models, flags=["--listen-after-load=true"]).start()
    server.wait_log("loading: gated:1")
    server.signal(signal.SIGTERM)
    server.wait_log("Waiting for models that are being loaded: 'gated'")
    gated.open("hold.load")
    assert server.wait() == 0
    server.out.join()
    assert "Started HTTPService" not in server.log()
