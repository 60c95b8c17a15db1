# SPDX-License-Identifier: Apache-2.0
"""Whatever a decoupled backend may do with a request, in both servers, by the C API.

tests/plugins/script executes the script of each request, one letter a step; its head comment lists them.
"""

import json

import pytest

import embed
import repository
import server as servers
import triton

BACKENDS = servers.BUILD / "tests/backends"
SEQUENCES = "sequence_batching {{ max_sequence_idle_microseconds: 600000000 {} }}\n"


def config(more="", batch=0, instances=1):
    text = f'backend: "script"\nmodel_transaction_policy {{ decoupled: true }}\nmax_batch_size: {batch}\n'
    text += repository.tensor("input", "IN", "INT32", [1]) + repository.tensor("output", "OUT", "INT32", [1])
    return text + f"instance_group [ {{ count: {instances} kind: KIND_CPU }} ]\n" + more


MODELS = {
    "plain": config(),
    "two": config(instances=2),
    "counted": config(),
    "batch": config("dynamic_batching { }\n", batch=8),
    "direct": config(SEQUENCES.format("direct { }"), batch=2),
    "oldest": config(SEQUENCES.format("oldest { max_candidate_sequences: 1 }"), batch=2),
}


@pytest.fixture(name="which", scope="module", params=["conch", "triton"])
def which_(request):
    if request.param == "triton" and triton.missing():
        pytest.skip(triton.missing())
    return request.param


@pytest.fixture(name="root", scope="module")
def root_(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    for name, text in MODELS.items():
        repository.write_model(root, name, text)
    return root


def open_session(which, root, tmp_path_factory, **how):
    return embed.Session(root, which=which, folder=tmp_path_factory.mktemp("libraries"), backends=BACKENDS, **how)


@pytest.fixture(name="session", scope="module")
def session_(which, root, tmp_path_factory):
    """A server, which the tests of this file share."""
    with open_session(which, root, tmp_path_factory) as session:
        yield session


@pytest.fixture(name="own_session", scope="module")
def own_session_(root, tmp_path_factory):
    """A server of ours, for what the genuine library does not survive."""
    with open_session("conch", root, tmp_path_factory) as session:
        yield session


def ask(name, model, do, value=1, command="infer", more="", batch=False):
    return f"{command} {name} {model} -1 - @do:{do} {more} IN:INT32:{'1,1' if batch else '1'}:{value}"


def response(number, final=False, batch=False):
    return f"response OUT:INT32:{'1,1' if batch else '1'}:{number}{' final' if final else ''}"


ERROR = "error Unsupported: as the script says"
UNKNOWN = "error Invalid argument: unexpected inference output 'NONE' for model 'plain'"

STEPS = {
    "n.xd": ["final"],
    "nx.d": ["final"],
    "nxt.d": ["final"],
    "nlxd": [response(1000, final=True)],
    "nxld": [response(1000, final=True)],
    "rrn.xd": [response(1000), response(1001), "final"],
    "nrfrf.xd": [response(1000), response(1001), response(1002), response(1003), "final"],
    "nxfff.d": [response(1000), response(1001), response(1002), "final"],
    "nxtffld": [response(1000), response(1001), response(1002, final=True)],
    "nftftf.xd": [response(1000), response(1001), response(1002), "final"],
    "nExd": [ERROR + " final"],
    "nxEd": [ERROR + " final"],
    "nxe.d": [ERROR, "final"],
    "nxfefefEd": [response(1000), ERROR, response(1001), ERROR, response(1002), ERROR + " final"],
    "nxtfefld": [response(1000), ERROR, response(1001), response(1002, final=True)],
    "n0f0.xd": ["", response(1000), "", "final"],    # flags of 0 alone reach the callback
    "nxfuf.d": [response(1000), UNKNOWN, response(1002), "final"],
    "noof.xd": [response(1002), "final"],    # a response that is deleted unsent
    "nx.od": ["final"],
}


def events(lines, name):
    """What came for a request. embed prints the name alone when flags of 0 have come alone."""
    return [line.removeprefix(name).lstrip() for line in lines if line == name or line.startswith(f"{name} ")]


@pytest.mark.parametrize("do", STEPS)
def test_each_order_of_steps_has_its_answer(session, do):
    assert events(session.do(ask("a", "plain", do)), "a") == STEPS[do]


@pytest.mark.parametrize("do", ["n.fdx", "n.fxd", "nlfxd", "nx.ftfd", "nxE.d", "n.exd"])
def test_nothing_follows_the_final_response(own_session, do):
    """The genuine library hands such responses on, and a program that has freed its request by then crashes."""
    session = own_session
    lines = events(session.do(ask("a", "plain", do)), "a")
    assert len(lines) == 1 and lines[0].endswith("final")
    assert "script: [request id: a] model 'plain' sent a response after the final one" in session.err.text()


@pytest.mark.parametrize("do", ["x", "nxd", "nxtfd", "nxtfeod", "rx", "nfxd"])
def test_a_request_that_its_backend_forgets_ends_with_an_error(own_session, do):
    """In the genuine library such a request never ends."""
    session = own_session
    lines = events(session.do(ask("a", "plain", do)), "a")
    assert lines[-1] == "error Internal: model 'plain' released the request without a final response final"
    assert [line.split()[0] for line in lines[:-1]] == ["error" if step == "e" else "response" for step in do if step in "rfe"]


def test_responses_go_on_after_a_cancellation(session):
    """Whether to stop is the backend's choice; the requests behind are not concerned."""
    session.tell(ask("a", "plain", "nxtffcffEd", command="start"))
    session.await_line(f"a {response(1001)}")
    lines = session.do(ask("b", "plain", "nf.xd", value=2), "cancel a", "wait a")
    assert events(lines, "a") == [response(1000 + i) for i in range(4)] + [ERROR + " final"]
    assert events(lines, "b") == [response(2000), "final"]
    assert lines.index("b final") < lines.index(f"a {response(1002)}")


def test_a_backend_that_keeps_the_request_keeps_its_instance(session):
    """Two instances: while both have a request, a third one waits."""
    session.tell(ask("a", "two", "nfc.xd", value=1, command="start"), ask("b", "two", "nfc.xd", value=2, command="start"))
    session.await_line(f"a {response(1000)}")
    session.await_line(f"b {response(2000)}")
    lines = session.do(ask("c", "two", "nf.xd", value=3, command="start"), "cancel a", "wait c", "cancel b", "wait b")
    assert events(lines, "c") == [response(3000), "final"]
    assert lines.index("a final") < lines.index(f"c {response(3000)}") < lines.index("c final") < lines.index("b final")


def test_requests_that_are_released_do_not_keep_the_instance(session):
    """One instance, and as many open requests as come."""
    count = 40
    names = [f"r{i}" for i in range(count)]
    session.tell(*(ask(name, "plain", "nxtfcf.d", value=i, command="start") for i, name in enumerate(names)))
    for i, name in enumerate(names):
        session.await_line(f"{name} {response(1000 * i)}")
    lines = session.do(*(f"cancel {name}" for name in reversed(names)))
    for i, name in enumerate(names):
        assert events(lines, name) == [response(1000 * i), response(1000 * i + 1), "final"]


def statistics(session, model):
    lines = session.do(f"statistics {model}")
    return json.loads(next(line for line in lines if '"model_stats"' in line))["model_stats"][0]


def test_requests_of_a_batch_are_answered_side_by_side(session, root):
    """The first execution waits until the others have come; the second has them all."""
    hold = root / "batch/hold"
    hold.touch()
    session.tell(ask("first", "batch", "hn.xd", batch=True, command="start"))
    servers.wait_for((root / "batch/hold.reached").exists, 60, "the first request is executed")
    session.tell(*(ask(f"b{i}", "batch", "ntfefxt.d", value=i, command="start", batch=True) for i in range(5)))
    session.tell("ready plain")    # commands are obeyed in order: all requests are queued
    session.await_line("ready plain yes")
    hold.unlink()
    (root / "batch/hold.reached").unlink()
    lines = session.do()
    for i in range(5):
        assert events(lines, f"b{i}") == [response(1000 * i, batch=True), ERROR, response(1000 * i + 1, batch=True), "final"]
    stats = statistics(session, "batch")
    assert (stats["inference_count"], stats["execution_count"]) == (6, 2)
    assert [line["batch_size"] for line in stats["batch_stats"]] == [1, 5]


@pytest.mark.parametrize("model", ["direct", "oldest"])
def test_a_sequence_goes_on_while_responses_are_still_to_come(session, model):
    """The next request of a sequence waits for the release of the one before, not for its responses. So does the next
    sequence for a slot."""
    first, later = "@id:7 @start", "@id:8 @start @end"
    session.tell(ask("a", model, "nxtfcf.d", 1, "start", first, batch=True))
    session.await_line(f"a {response(1000, batch=True)}")
    lines = session.do(ask("b", model, "nff.xd", 2, more="@id:7", batch=True), ask("c", model, "nxtfc.d", 3, "start", "@id:7 @end", batch=True),
                       ask("d", model, "nf.xd", 4, more=later, batch=True), "cancel c", "wait c", "cancel a", "wait a")
    assert events(lines, "a") == [response(1000, batch=True), response(1001, batch=True), "final"]
    assert events(lines, "b") == [response(2000, batch=True), response(2001, batch=True), "final"]
    assert events(lines, "c") == [response(3000, batch=True), "final"]
    assert events(lines, "d") == [response(4000, batch=True), "final"]
    order = [lines.index(f"{name} final") for name in "bdca"]
    assert order == sorted(order)


def test_a_sequence_ends_with_errors_only_of_the_request_that_has_them(session):
    lines = session.do(ask("a", "oldest", "nxEd", 1, more="@id:9 @start", batch=True), ask("b", "oldest", "nxfeld", 2, more="@id:9 @end", batch=True))
    assert events(lines, "a") == [ERROR + " final"]
    assert events(lines, "b") == [response(2000, batch=True), ERROR, response(2001, final=True, batch=True)]


NONE = {"count": 0, "ns": 0}


def times(**given):
    kinds = ("compute_infer", "compute_output", "success", "fail", "empty_response", "cancel")
    return {kind: {"count": given[kind][0], "ns": given[kind][1]} if kind in given else NONE for kind in kinds}


def test_statistics_have_each_response_by_its_index(session):
    """Two requests with other outcomes at the same index, of 100 ns each."""
    session.do(ask("a", "counted", "nsfmvz.xd"), ask("b", "counted", "nxtssfz.d"))
    assert statistics(session, "counted")["response_stats"] == {
        "0": times(compute_infer=(2, 60), compute_output=(2, 140), success=(2, 200)),
        "1": times(compute_infer=(2, 130), compute_output=(1, 70), success=(1, 100), empty_response=(1, 100)),
        "2": times(compute_infer=(1, 30), compute_output=(1, 70), fail=(1, 100), cancel=(1, 100)),
        "3": times(cancel=(1, 100)),
    }


def state_of(session, name):
    index = json.loads(next(line for line in session.do("index") if line.startswith("[")))
    return next((model["state"], model.get("reason", "")) for model in index if model["name"] == name)


def test_an_unload_waits_for_responses_that_are_still_to_come(which, tmp_path, tmp_path_factory):
    """The model is still there for its open requests, and takes no more."""
    repository.write_model(tmp_path, "plain", config())
    with open_session(which, tmp_path, tmp_path_factory, options=("explicit", "plain")) as session:
        session.tell(ask("a", "plain", "nxtfcffld", command="start"))
        session.await_line(f"a {response(1000)}")
        session.tell("unload plain")
        session.await_line("unload plain ok")
        session.tell(ask("late", "plain", "n.xd", command="start"), "cancel a")
        lines = session.do()
        assert events(lines, "a") == [response(1000 + i) for i in range(3)] + [response(1003, final=True)]
        assert events(lines, "late") == ["refused Not found: Request for unknown model: 'plain' has no available versions"]
        servers.wait_for(lambda: state_of(session, "plain") == ("UNAVAILABLE", "unloaded"), 60, "the model is unloaded")
        assert session.do("load plain") == ["load plain ok"]
        assert events(session.do(ask("b", "plain", "nf.xd")), "b") == [response(1000), "final"]


def test_a_reload_leaves_open_requests_as_they_are(which, tmp_path, tmp_path_factory):
    """They are answered by the old model, while the new one answers others."""
    repository.write_model(tmp_path, "plain", config())
    with open_session(which, tmp_path, tmp_path_factory, options=("explicit", "plain")) as session:
        session.tell(ask("old", "plain", "nxtfcffld", command="start"))
        session.await_line(f"old {response(1000)}")
        (tmp_path / "plain/config.pbtxt").write_text(config(instances=2))
        session.tell("load plain")
        session.await_line("load plain ok")
        session.tell(ask("new", "plain", "nxtfcfld", 2, command="start"))
        session.await_line(f"new {response(2000)}")
        lines = session.do("cancel old", "wait old", "cancel new")
        assert events(lines, "old")[-3:] == [response(1001), response(1002), response(1003, final=True)]
        assert events(lines, "new")[-2:] == [response(2001), response(2002, final=True)]
