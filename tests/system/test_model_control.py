# SPDX-License-Identifier: Apache-2.0
"""Models that are loaded and unloaded by request while the server runs, by the real client and by hand."""

import base64
import contextlib
import json
import os
import re
import shutil
import threading
import time

import numpy as np
import pytest
import tritonclient.http as client
from tritonclient.utils import InferenceServerException

import repository
import triton
from server import REFERENCE, Server, wait_for
from wire import Connection, ask, given, infer, request_bytes

EXPLICIT = "--model-control-mode=explicit"
ANY = [("FP32", [-1])]
ONE = {"inputs": [given("INPUT0", "FP32", [1], [1])]}
IN = {"inputs": [given("IN", "INT32", [1], [5])]}
GATED = "version_policy { all { } }\n"
OURS = pytest.mark.conch_only("is about our server")


def load(server, model, **parameters):
    return ask(server, "POST", f"/v2/repository/models/{model}/load", {"parameters": parameters} if parameters else None)


def unload(server, model, **parameters):
    return ask(server, "POST", f"/v2/repository/models/{model}/unload", {"parameters": parameters} if parameters else None)


def loaded(server, model, **parameters):
    answer = load(server, model, **parameters)
    assert (answer.status, answer.body) == (200, b""), answer


def states(server):
    """name:version -> state, or why it is not READY; without versions that were never loaded."""
    rows = ask(server, "POST", "/v2/repository/index").json()
    return {f"{row['name']}:{row['version']}": row["state"] if row["state"] == "READY" else row.get("reason") or row["state"]
            for row in rows if "version" in row}


def await_states(server, **expected):
    wait_for(lambda: states(server) == {name.replace("_", ":"): state for name, state in expected.items()}, 60, expected)


def ready(server):
    return ask(server, "GET", "/v2/health/ready").status == 200


def statistics(server, model):
    rows = ask(server, "GET", f"/v2/models/{model}/stats").json()["model_stats"]
    return {row["version"]: row["inference_count"] for row in rows}


def identity_config(**more):
    tensor = {"data_type": "TYPE_FP32", "dims": [-1]}
    return json.dumps({"backend": "identity", "input": [{"name": "INPUT0", **tensor}],
                       "output": [{"name": "OUTPUT0", **tensor}], **more})


def encoded(content):
    return base64.b64encode(content).decode()


def set_policy(folder, policy):
    config = folder / "config.pbtxt"
    text = config.read_text().split("version_policy")[0]
    config.write_text(text + f"version_policy {{ {policy} }}\n")


@pytest.fixture
def server(models):
    repository.write_identity(models, "m", ANY, versions=(1, 2))
    with Server(models, flags=[EXPLICIT]) as server:
        yield server


# ---- The real client


def test_unmodified_clients_load_and_unload(models, server):
    with client.InferenceServerClient(server.url) as c:
        c.load_model("m")
        assert c.is_model_ready("m", "2")
        tensor = client.InferInput("INPUT0", [2], "FP32")
        tensor.set_data_from_numpy(np.array([1, 2], np.float32))
        assert c.infer("m", [tensor]).as_numpy("OUTPUT0").tolist() == [1, 2]
        c.load_model("m", config=identity_config(version_policy={"all": {}}))
        assert c.get_model_metadata("m")["versions"] == ["1", "2"]
        c.load_model("new", config=identity_config(), files={"file:4/weights.bin": b"\0\1\2" * 1000})
        assert c.get_model_metadata("new")["versions"] == ["4"]
        assert [row["name"] for row in c.get_model_repository_index() if row.get("state") == "READY"] == ["m", "m", "new"]
        c.unload_model("new")
        c.unload_model("m", unload_dependents=True)
        c.unload_model("nobody")
        wait_for(lambda: states(server) == {"m:1": "unloaded", "m:2": "unloaded"}, 60, "both have gone")
        with pytest.raises(InferenceServerException, match="Request for unknown model: 'm' has no available versions"):
            c.infer("m", [tensor])
        with pytest.raises(InferenceServerException, match="failed to load 'nobody', failed to poll from model repository"):
            c.load_model("nobody")


# ---- Compared with the genuine Triton


class Script:
    """Asks one server, and keeps the answers."""

    def __init__(self, server, root):
        self.server, self.root, self.answers = server, root, []

    def note(self, what, answer):
        # Our errors have more text.
        text = re.sub(r" Searched for [^;]*|: 'x' is neither [^\"]*", "", answer.body.decode())
        # The genuine one reports failed versions in any order.
        text = re.sub(r"(version \d+ is at [^;]*;)+", lambda failed: "".join(sorted(re.findall(r"[^;]*;", failed[0]))), text)
        self.answers.append((what, answer.status, answer.headers.get("content-type"), text))

    def load(self, model, body=None, repository=""):
        path = f"/v2/repository{repository}/models/{model}/load"
        self.note(f"load {model} {body}", ask(self.server, "POST", path, body))

    def unload(self, model, body=None, repository=""):
        path = f"/v2/repository{repository}/models/{model}/unload"
        self.note(f"unload {model} {body}", ask(self.server, "POST", path, body))

    def look(self, model, *versions):
        """Notes the answers about a model, without the moment at which an unloaded version is gone, which varies."""
        wait_for(lambda: "UNLOADING" not in states(self.server).values(), 60, "what is unloaded has gone")
        rows = {name: state.split(" Searched for ")[0] for name, state in states(self.server).items()}
        self.answers.append(("index", {name: state for name, state in rows.items() if name.startswith(f"{model}:")}))
        self.note(f"infer {model}", infer(self.server, model, ONE))
        for version in versions:
            path = f"/v2/models/{model}/versions/{version}/infer"
            self.note(f"infer {model} {version}", ask(self.server, "POST", path, ONE))
        self.note(f"metadata {model}", ask(self.server, "GET", f"/v2/models/{model}"))


def come_and_go(s):
    s.look("m", 2)
    s.load("m")
    s.look("m", 1, 2)
    s.load("m")
    s.unload("m")
    s.look("m", 1, 2, 3)
    s.unload("m")
    s.load("m", {"parameters": {}})
    s.look("m")


def fail(s):
    for model in ("nobody", "broken", "empty", "nolib"):
        s.load(model)
        s.look(model)
    s.unload("nobody")
    s.unload("broken")


def change(s):
    def policy(text, backend="identity"):
        set_policy(s.root / "m", text)
        config = s.root / "m/config.pbtxt"
        config.write_text(config.read_text().replace('backend: "identity"', f'backend: "{backend}"'))
        later(config)
        s.load("m")
        s.look("m", 1, 2, 3)
        config.write_text(config.read_text().replace(f'backend: "{backend}"', 'backend: "identity"'))

    s.load("m")
    policy("specific { versions: [ 1, 3 ] }")
    policy("specific { versions: [ 2 ] }")
    policy("specific { versions: [ 7 ] }")
    policy("specific { versions: [ 2 ] }", backend="nothere")
    policy("specific { versions: [ 2, 3 ] }", backend="nothere")
    policy("all { }")
    (s.root / "m/config.pbtxt").write_text("nonsense")
    later(s.root / "m/config.pbtxt")
    s.load("m")
    s.look("m")


def override(s):
    config = identity_config(version_policy={"all": {}})
    s.load("m", {"parameters": {"config": config}})
    s.look("m")
    s.load("m")    # the override stays …
    s.look("m")
    later(s.root / "m/config.pbtxt")
    s.load("m")    # … until the repository has a newer file
    s.look("m")
    s.load("m", {"parameters": {"config": config}})
    # As protobuf's reader accepts it: one value for a list, names without quotes, other quotes, a comma too many.
    tensor = "data_type: 'TYPE_FP32', dims: -1, }"
    s.load("m", {"parameters": {"config": f"{{backend: 'identity', input: {{name: 'INPUT0', {tensor}, "
                                          f"output: {{name: 'OUTPUT0', {tensor}, 'version_policy': {{specific: {{versions: [2,]}}}}}}"}})
    s.look("m")
    for wrong in ("{bad", "", '{"nofield": 1}', '{"max_batch_size": "x"}', identity_config(name="x")):
        s.load("m", {"parameters": {"config": wrong}})
    s.load("m", {"parameters": {"config": config, "file:5/x/y": encoded(b"hi")}})
    s.look("m", 1, 5)
    s.load("m")
    s.look("m")
    for path in ("file:../x", "file:5/../../x", "file:", "file:5/", "file:5", "file:05/x", "file:/etc/x"):
        s.load("m", {"parameters": {"config": config, path: encoded(b"hi")}})
    s.load("m", {"parameters": {"file:5/x": encoded(b"hi")}})
    s.load("new", {"parameters": {"config": identity_config()}})
    s.load("new", {"parameters": {"config": identity_config(), "file:1/x": ""}})
    s.note("infer new", infer(s.server, "new", ONE))
    s.load("new")
    s.note("infer new", infer(s.server, "new", ONE))
    s.unload("new")
    s.load("broken", {"parameters": {"config": identity_config()}})
    s.look("broken")


def bodies(s):
    for parameters in (5, None, [], {"config": 5}, {"config": None}, {"config": {}}, {"x": "y"}, {"x": 5}, {"file:1/x": 5}):
        s.load("m", {"parameters": parameters})
    for body in (b"{bad", b"5", b"{}", b"null", b""):
        s.load("m", body)
    for body in (None, {"parameters": {"unload_dependents": True}}, {"parameters": {"unload_dependents": False}}, {"parameters": {"x": []}}, b"5"):
        s.unload("m", body)
    for operation in (s.load, s.unload):
        operation("m", repository="/some")
        operation("m", b"{bad", repository="/some")
    s.note("method", ask(s.server, "GET", "/v2/repository/models/m/load"))
    s.note("no name", ask(s.server, "POST", "/v2/repository/models//load"))
    s.load("a%2Fb")


def later(path):
    """Gives the file a later time than before, whatever the clock of the file system."""
    now = time.time() + later.n
    later.n += 10
    os.utime(path, (now, now))


later.n = 10


def write_scripted(root):
    repository.write_identity(root, "m", ANY, versions=(1, 2, 3))
    repository.write_model(root, "broken", "nonsense {")
    tensors = repository.tensor("input", "INPUT0", "FP32", [-1]) + repository.tensor("output", "OUTPUT0", "FP32", [-1])
    repository.write_model(root, "empty", 'backend: "identity"\n' + tensors, versions=())
    repository.write_model(root, "nolib", 'backend: "nothere"\n' + tensors)
    return root


@contextlib.contextmanager
def running(server):
    """The genuine server is killed: its stop takes half a minute once a load has failed."""
    if type(server) is Server:
        with server:
            yield server
        return
    server.__enter__()
    try:
        yield server
    finally:
        server.kill()


@triton.needed
@pytest.mark.skipif(REFERENCE, reason="is about our server")
@pytest.mark.parametrize("script", [come_and_go, fail, change, override, bodies])
def test_answers_are_those_of_the_genuine_triton(tmp_path, script):
    answers = []
    for which, kind in (("ours", Server), ("theirs", triton.Triton)):
        root = tmp_path / which
        root.mkdir()
        write_scripted(root)
        with running(kind(root, flags=[EXPLICIT])) as server:
            s = Script(server, root)
            script(s)
        answers.append(s.answers)
    for ours, theirs in zip(*answers, strict=True):
        if ours[0] != "index" and ours[1] >= 400:    # the reason of ours may follow
            assert ours[:3] == theirs[:3]
            assert json.loads(ours[3])["error"].startswith(json.loads(theirs[3])["error"].rstrip())
        else:
            assert ours == theirs


# ---- Texts and the log


def test_loads_and_unloads_are_logged(models, server):
    folder = models / "m"
    loaded(server, "m")
    assert unload(server, "m").status == 200
    server.wait_log("successfully unloaded 'm' version 2")
    load(server, "nobody")
    (folder / "config.pbtxt").write_text("nonsense")
    load(server, "m")
    load(server, "m", config="{}", **{"file:../x": ""})
    server.wait_log("Invalid file parameter 'file:../x' with normalized path '../x' must stay within model directory.")
    for text in ("loading: m:2", "successfully loaded 'm'", "failed to poll model 'nobody': model not found in any model repository.",
                 "Poll failed for model directory 'm': failed to read text proto from "):
        assert text in server.log()


@OURS
def test_wrong_bodies_are_refused(server):
    loaded(server, "m")
    for parameters, text in (
        ({"config": "{}", "file:1/x": "%%%"}, "the value of parameter 'file:1/x' is not base64"),
        ({"config": "{}\0"}, "a zero byte in the parameter '{}'"),
    ):
        answer = load(server, "m", **parameters)
        assert (answer.status, answer.error) == (400, text)
    answer = unload(server, "m", unload_dependents="yes")
    assert (answer.status, answer.error) == (400, "Unable to parse 'unload_dependents', should be boolean value")
    answer = ask(server, "POST", "/v2/repository/models/m/unload", b"{bad")
    assert answer.status == 500 and answer.error.startswith("failed to parse the request JSON buffer: ")
    assert infer(server, "m", ONE).status == 200


@OURS
def test_large_files_arrive_whole(models, tmp_path):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    content = bytes(range(256)) * (8 << 10)  # 2 MiB
    name = "file:1/weights with \"quotes\" and ü.bin"
    with Server(models, flags=[EXPLICIT], env={"TMPDIR": str(temporary)}) as server:
        for end in (lambda: unload(server, "new"), lambda: server.signal(15)):
            loaded(server, "new", config=identity_config(), **{name: encoded(content)})
            (file,) = temporary.glob("conch-model-*/*/new/1/*")
            assert (file.name, file.read_bytes()) == (name.removeprefix("file:1/"), content)
            end()
            wait_for(lambda: not list(temporary.iterdir()), 60, "the files are removed")


# ---- Requests during changes


@pytest.fixture
def gated(models):
    return repository.Gated(models, "g", more=GATED)


class Busy:
    """A request that the model is executing."""

    def __init__(self, server, gated, version=1):
        gated.shut("hold.execute")
        self.gated, self.connection = gated, Connection(server)
        body = json.dumps(IN).encode()
        self.connection.send(request_bytes("POST", f"/v2/models/g/versions/{version}/infer", body))
        gated.await_reached("hold.execute")
        (gated.folder / "hold.execute.reached").unlink()

    def end(self):
        self.gated.open("hold.execute")
        answer = self.connection.response()
        self.connection.__exit__()
        assert (answer.status, answer.json()["outputs"][0]["data"]) == (200, [5])


@OURS
def test_a_request_in_flight_is_answered(gated, server):
    loaded(server, "g")
    busy = Busy(server, gated)
    assert unload(server, "g").status == 200
    assert states(server)["g:1"] == "UNLOADING"
    assert ready(server)
    answer = infer(server, "g", IN)
    assert (answer.status, answer.error) == (404, "Request for unknown model: 'g' has no available versions")
    answer = ask(server, "GET", "/v2/models/g/versions/1/ready")
    assert (answer.status, answer.error) == (503, "Request for unknown model: 'g' version 1 is not at ready state")
    loaded(server, "g")
    assert states(server)["g:1"] == "READY"
    busy.end()
    assert infer(server, "g", IN).status == 200
    unload(server, "g")
    await_states(server, g_1="unloaded")


@pytest.mark.sanitize
@OURS
def test_a_slow_load_holds_up_no_client(models, gated, server):
    """Nor the loop, of which there is one: other requests, loads and the index are answered meanwhile."""
    with Server(models, flags=[EXPLICIT, "--http-thread-count=1", "--model-load-thread-count=2"]) as server:
        gated.shut("hold.load")
        answers = []
        clients = [threading.Thread(target=lambda: answers.append(load(server, "g"))) for _ in range(6)]
        for thread in clients:
            thread.start()
        gated.await_reached("hold.load")
        loaded(server, "m")
        assert infer(server, "m", ONE).status == 200
        assert states(server) == {"g:1": "LOADING", "m:2": "READY"}
        assert ready(server)
        unload(server, "m")
        await_states(server, g_1="LOADING", m_2="unloaded")
        assert not answers
        gated.open("hold.load")
        for thread in clients:
            thread.join()
        assert [answer.status for answer in answers] == [200] * 6
        assert server.log().count("loading: g:1") == 1 + sum(1 for _ in gated.folder.glob("hold.load.reached"))


@OURS
def test_a_load_goes_on_without_its_client(gated, server):
    gated.shut("hold.load")
    with Connection(server) as connection:
        connection.send(request_bytes("POST", "/v2/repository/models/g/load", b""))
        gated.await_reached("hold.load")
    gated.open("hold.load")
    await_states(server, g_1="READY")
    assert infer(server, "g", IN).status == 200


@OURS
def test_a_stop_ends_a_load_in_progress(models, gated):
    with Server(models, flags=[EXPLICIT]) as server:
        gated.shut("hold.load")
        with Connection(server) as connection:
            connection.send(request_bytes("POST", "/v2/repository/models/g/load", b""))
            gated.await_reached("hold.load")
            server.signal(15)
            server.wait_log("Found 1 HTTP service connections")
            gated.open("hold.load")
            assert server.wait() == 0


@OURS
def test_only_a_reload_resets_the_statistics(models, server):
    set_policy(models / "m", "all { }")
    loaded(server, "m")
    for version in (1, 2, 2):
        assert ask(server, "POST", f"/v2/models/m/versions/{version}/infer", ONE).status == 200
    assert statistics(server, "m") == {"1": 1, "2": 2}
    loaded(server, "m")
    assert statistics(server, "m") == {"1": 1, "2": 2}
    (models / "m/2/weights").write_text("new")
    (models / "m/3").mkdir()
    loaded(server, "m")
    assert statistics(server, "m") == {"1": 1, "2": 0, "3": 0}
    unload(server, "m")
    assert ask(server, "GET", "/v2/models/m/stats").status == 400
    assert ask(server, "GET", "/v2/models/stats").json() == {"model_stats": []}


@OURS
def test_the_index_follows_the_folders(models, server):
    repository.write_identity(models, "later", ANY)
    names = [row["name"] for row in ask(server, "POST", "/v2/repository/index").json()]
    assert names == ["later", "m"]
    loaded(server, "later")
    shutil.rmtree(models / "later")
    assert states(server) == {"later:1": "READY"}
    assert load(server, "later").status == 500
    assert infer(server, "later", ONE).status == 200
    unload(server, "later")
    wait_for(lambda: ask(server, "POST", "/v2/repository/index").json() == [{"name": "m"}], 60, "nothing is left of it")


@OURS
def test_a_model_that_failed_at_the_start_may_be_loaded(models):
    folder = repository.write_model(models, "m", "nonsense")
    with Server(models, flags=[EXPLICIT, "--load-model=m", "--exit-on-error=false"], ready=False) as server:
        assert ready(server)  # as in the reference; the index has the reason
        (told,) = ask(server, "GET", "/v2/health/ready", headers={"Accept": "application/json"}).json()["failed"]
        assert told["name"] == "m" and "config.pbtxt" in told["reason"]
        repository.write_identity(models, "good", ANY)
        shutil.copy(models / "good/config.pbtxt", folder / "config.pbtxt")
        (folder / "config.pbtxt").write_text((folder / "config.pbtxt").read_text().replace('"good"', '"m"'))
        loaded(server, "m")
        assert ready(server)
        good = (folder / "config.pbtxt").read_text()
        (folder / "config.pbtxt").write_text("nonsense")
        assert load(server, "m").status == 500
        assert ready(server)  # a model that serves goes on
        rows = {row["name"]: row for row in ask(server, "POST", "/v2/repository/index").json()}
        assert rows["m"]["state"] == "READY"
        assert rows["m"]["reason"].startswith("serves as before, since its last load failed: ") and "config.pbtxt" in rows["m"]["reason"]
        (folder / "config.pbtxt").write_text(good + 'parameters { key: "execute_delay_ms" value: { string_value: "soon" } }')
        assert load(server, "m").status == 400
        (row,) = [row for row in ask(server, "POST", "/v2/repository/index", {"ready": True}).json() if row["name"] == "m"]
        assert "soon" in row["reason"] and "config.pbtxt" not in row["reason"]
        (folder / "config.pbtxt").write_text(good + "# as it was\n")
        loaded(server, "m")
        assert {"name": "m", "version": "1", "state": "READY"} in ask(server, "POST", "/v2/repository/index").json()


@OURS
def test_a_model_of_two_repositories_is_not_loaded(models, tmp_path):
    other = tmp_path / "other"
    for root in (models, other):
        repository.write_identity(root, "twice", ANY)
    with Server(models, other, flags=[EXPLICIT]) as server:
        assert load(server, "twice").status == 500
        server.wait_log("failed to poll model 'twice': not unique across all model repositories: ")
        assert states_of_twice(server) == [{"name": "twice", "state": "UNAVAILABLE", "reason": "model appears in two or more repositories"}]
        shutil.rmtree(other / "twice")
        loaded(server, "twice")
        assert infer(server, "twice", ONE).status == 200
    repository.write_identity(other, "twice", ANY)
    with Server(models, other, flags=[EXPLICIT, "--model-namespacing=true"]) as server:
        loaded(server, "twice")
        assert states_of_twice(server) == [{"name": "twice", "version": "1", "state": "READY"}] * 2
        unload(server, "twice")
        wait_for(lambda: {row["state"] for row in states_of_twice(server)} == {"UNAVAILABLE"}, 60, "both have gone")


def states_of_twice(server):
    return ask(server, "POST", "/v2/repository/index").json()


@OURS
def test_reloads_interrupt_no_request(models, server):
    """No request fails although the model is replaced each time."""
    loaded(server, "m")
    over, wrong, served = threading.Event(), [], []

    def ask_on():
        with Connection(server) as connection:
            body = json.dumps(ONE).encode()
            while not over.is_set():
                answer = connection.request("POST", "/v2/models/m/infer", body)
                (served if answer.status == 200 else wrong).append(answer)

    clients = [threading.Thread(target=ask_on) for _ in range(4)]
    for thread in clients:
        thread.start()
    for i in range(20):
        (models / "m/2/weights").write_text(str(i))
        loaded(server, "m")
    over.set()
    for thread in clients:
        thread.join()
    assert not wrong
    assert len(served) > 20
    unload(server, "m")
    await_states(server, m_2="unloaded")    # not before the old versions are gone, too


# ---- Mode poll


@pytest.mark.parametrize("kind", [Server, pytest.param(triton.Triton, marks=triton.needed)], ids=["ours", "theirs"])
def test_poll_mode_serves_what_the_repository_has(models, kind):
    repository.write_identity(models, "m", ANY)
    flags = ["--model-control-mode=poll", "--repository-poll-secs=1"]
    with running(kind(models, flags=flags)) as server:
        answer = load(server, "m")
        assert answer.status == 503
        assert answer.error.startswith("explicit model load / unload is not allowed if polling is enabled")
        repository.write_identity(models, "new", ANY, versions=(1, 4))
        wait_for(lambda: infer(server, "new", ONE).status == 200, 60, "it is loaded")
        set_policy(models / "new", "all { }")
        later(models / "new/config.pbtxt")
        wait_for(lambda: states(server) == {"m:1": "READY", "new:1": "READY", "new:4": "READY"}, 60, "the other version, too")
        (models / "new/config.pbtxt").write_text("nonsense")
        later(models / "new/config.pbtxt")
        server.wait_log("Poll failed for model directory 'new': ")
        assert infer(server, "new", ONE).status == 200
        shutil.rmtree(models / "new")
        wait_for(lambda: infer(server, "new", ONE).status == 404, 60, "it is unloaded")
        assert infer(server, "new", ONE).error == "Request for unknown model: 'new' has no available versions"
        wait_for(lambda: states(server) == {"m:1": "READY"}, 60, "nothing is told of it")


@OURS
def test_a_stop_ends_the_polling(models, gated):
    with Server(models, flags=["--model-control-mode=poll", "--repository-poll-secs=1"]) as server:
        gated.shut("hold.load")
        (gated.folder / "2").mkdir()
        gated.await_reached("hold.load")
        assert infer(server, "g", IN).status == 200
        server.signal(15)
        server.wait_log("Waiting for models that are being loaded")
        gated.open("hold.load")
        assert server.wait() == 0
