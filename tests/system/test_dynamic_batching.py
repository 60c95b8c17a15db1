# SPDX-License-Identifier: Apache-2.0
"""The dynamic batcher: which requests are executed together, in which order, and what happens to the others. The same in
our server and in the genuine Triton, with the backend tests/plugins/batches, which logs what it gets.

There are two ways to make requests wait: with TRITONSERVER_DELAY_SCHEDULER=8 both servers form no batch before eight
requests wait, and an instance can be held in its first execution.
"""

import collections
import json
import re
import time

import pytest

import embed
import server as servers
import triton
from batches import BACKENDS, Model, config, tensor

EITHER = ["conch", "triton"]
IDS = "abcdefgh"
HELD = {"TRITONSERVER_DELAY_SCHEDULER": str(len(IDS))}


# ---- Requests by the C API


def start(name, model, *inputs, priority=None, timeout=None):
    options = [f"@priority:{priority}"] * (priority is not None) + [f"@timeout:{timeout}"] * (timeout is not None)
    return " ".join([f"start {name} {model} -1 -", *(inputs or [tensor()]), *options])


def session(which, root, folder, env=None, options=()):
    if which == "triton" and triton.missing():
        pytest.skip(triton.missing())
    return embed.Session(root, which=which, folder=folder, backends=BACKENDS, env=env, options=options)


def statistics(server, model):
    """The parts of the model's statistics that do not depend on the clock."""
    one = json.loads(server.do(f"statistics {model}")[-1])["model_stats"][0]
    counts = {name: moment["count"] for name, moment in one["inference_stats"].items()}
    batches = {batch["batch_size"]: batch["compute_infer"]["count"] for batch in one["batch_stats"]}
    return {"inferences": one["inference_count"], "executions": one["execution_count"], "batches": batches, **counts}


# ---- Eight requests at once: which batches they make

# Long enough for all eight requests to arrive meanwhile, and short enough for tests that wait for its end.
WAIT = "max_queue_delay_microseconds: 2000000"
COLUMNS = [1, 1, 2, 2, 1, 1, 1, 2]
VARIABLE = (("IN", [-1], ""),)
OPTIONAL = (("IN", [1], ""), ("MORE", [1], "optional: true"))
LEVELS = "priority_levels: 3 default_priority_level: 2"


def rows(*sizes):
    return [[tensor(rows=n)] for n in sizes]


SINGLE = rows(*[1] * 8)
WIDE = [[tensor(columns=n)] for n in COLUMNS]
SOME = [[tensor()] + [tensor("MORE")] * (i in (1, 2, 3, 6)) for i in range(8)]
REORDERED = [[tensor(), tensor("MORE")], [tensor("MORE"), tensor()]] * 4
PRIORITIES = [3, None, 1, 9, 0, 1, 3, 2]    # 9 is out of range
# name: (configuration, inputs of each request, the batches that result)
CASES = {
    "all": (config(""), SINGLE, ["abcdefgh"]),
    "one_by_one": (config("", size=1), SINGLE, list(IDS)),
    "up_to_max": (config("", size=3), SINGLE, ["abc", "def", "gh"]),
    "up_to_max_by_rows": (config("", size=4), rows(3, 1, 2, 2, 1, 4, 1, 1), ["ab", "cd", "e", "f", "gh"]),
    "nobody_is_overtaken": (config("", size=4), rows(2, 3, 2, 1, 3, 1, 4, 1), ["a", "b", "cd", "ef", "g", "h"]),
    "preferred": (config("preferred_batch_size: 4"), SINGLE, ["abcd", "efgh"]),
    "preferred_by_rows": (config("preferred_batch_size: 4"), rows(3, 3, 1, 1, 1, 2, 1, 3), ["a", "bc", "def", "gh"]),
    "preferred_does_not_divide": (config("preferred_batch_size: 3"), SINGLE, ["abc", "def", "gh"]),
    "preferred_of_several": (config("preferred_batch_size: [ 6, 2 ]"), SINGLE, ["abcdef", "gh"]),
    "preferred_smaller_of_several": (config("preferred_batch_size: [ 2, 7 ]"), rows(2, 4, 2, 1, 2, 1, 4, 4),
                                     ["a", "bcd", "efg", "h"]),
    "preferred_twice": (config("preferred_batch_size: [ 4, 4 ]"), SINGLE, ["abcd", "efgh"]),
    "preferred_is_max": (config("preferred_batch_size: 8"), SINGLE, ["abcdefgh"]),
    "larger_than_preferred": (config("preferred_batch_size: 4"), rows(6, 1, 1, 1, 1, 6, 6, 1), ["a", "bcde", "f", "g", "h"]),
    "as_large_as_max": (config("preferred_batch_size: [ 2, 4 ]"), rows(8, 1, 1, 8, 1, 1, 1, 1), ["a", "bc", "d", "efgh"]),
    "delay_for_preferred": (config("preferred_batch_size: 6 " + WAIT), SINGLE, ["abcdef", "gh"]),
    "delay_for_preferred_by_rows": (config("preferred_batch_size: 4 " + WAIT), rows(3, 3, 1, 1, 1, 2, 1, 3), ["a", "bc", "def", "gh"]),
    "delay_for_max": (config(WAIT, size=3), SINGLE, ["abc", "def", "gh"]),
    "delay_that_is_over": (config("preferred_batch_size: 6 max_queue_delay_microseconds: 1"), SINGLE, ["abcdefgh"]),
    "shapes": (config("", tensors=VARIABLE), WIDE, ["ab", "cd", "efg", "h"]),
    "shapes_and_preferred": (config("preferred_batch_size: 2", tensors=VARIABLE), WIDE, ["ab", "cd", "ef", "g", "h"]),
    "shapes_and_delay": (config("preferred_batch_size: 8 " + WAIT, tensors=VARIABLE), WIDE, ["ab", "cd", "efg", "h"]),
    "ragged": (config("", tensors=(("IN", [-1], "allow_ragged_batch: true"),)), WIDE, ["abcdefgh"]),
    "optional": (config("", tensors=OPTIONAL), SOME, ["a", "bcd", "ef", "g", "h"]),
    "inputs_in_any_order": (config("", tensors=OPTIONAL), REORDERED, ["abcdefgh"]),
    "without_batches": (config("", size=0), [[tensor(batching=False)]] * 8, list(IDS)),
    "priorities": (config(LEVELS, size=1), SINGLE, list("cfbdehag")),
    "priorities_in_one_batch": (config(LEVELS), SINGLE, ["cfbdehag"]),
    "priorities_and_preferred": (config(LEVELS + " preferred_batch_size: 3"), SINGLE, ["cfb", "deh", "ag"]),
    "priorities_without_levels": (config("", size=1), SINGLE, list(IDS)),
}


@pytest.fixture(scope="module", params=EITHER)
def held(request, tmp_path_factory):
    """Each case's model has had its eight requests: (its batches, its statistics) of each."""
    root = tmp_path_factory.mktemp("models")
    models = {name: Model(root, name, text) for name, (text, *_) in CASES.items()}
    seen = {}
    with session(request.param, root, tmp_path_factory.mktemp("libraries"), HELD) as server:
        lines = server.do(*(
            start(f"{name}.{one}", name, *inputs[i], priority=PRIORITIES[i] if "priorities" in name else None)
            for name, (_, inputs, _) in CASES.items() for i, one in enumerate(IDS)))
        for name, model in models.items():
            answered = {line.split(" ")[0] for line in lines if line.startswith(f"{name}.") and line.endswith(" final")}
            assert answered == {f"{name}.{one}" for one in IDS}, lines
            assert len(model.instances()) == len(model.batches())
            seen[name] = [batch.replace(f"{name}.", "") for batch in model.batches()], statistics(server, name)
    return request.param, seen


# The genuine one adds requests to a batch that waits for an instance (reference/behaviours §10.10).
GROWING = {"delay_for_preferred", "delay_for_preferred_by_rows"}


@pytest.mark.parametrize("name", CASES)
def test_eight_requests_form_these_batches(held, name):
    which, seen = held
    if which == "triton" and name in GROWING:
        pytest.skip("the genuine one adds requests to a batch that is ready and waits for the instance")
    inputs, batches = CASES[name][1:]
    assert seen[name][0] == batches
    sizes = [sum(int(part.split(":")[2].split(",")[0]) if name != "without_batches" else 1 for part in first)
             for first in ([inputs[IDS.index(one)][0] for one in batch] for batch in batches)]
    assert seen[name][1] == {
        "inferences": sum(sizes), "executions": len(batches), "batches": dict(collections.Counter(sizes)), "success": 8, "fail": 0,
        **dict.fromkeys(["queue", "compute_input", "compute_infer", "compute_output"], 8), "cache_hit": 0, "cache_miss": 0}


# ---- An instance that is held, and what waits behind it

REJECT = "default_queue_policy { timeout_action: REJECT default_timeout_microseconds: "
# The genuine one forms no batch ahead of time if the queue has a policy, so with one it behaves as ours.
BOUNDED = "default_queue_policy { max_queue_size: 100 }"
ORDERED = "preserve_ordering: true "
FULL = "Unavailable: [request id: {}] Exceeds maximum queue size"
LATE = "error Unavailable: Request timeout expired final"
MODELS = {
    "full": config("default_queue_policy { max_queue_size: 2 }", size=1),
    "full_level": config("priority_levels: 2 default_priority_level: 2 default_queue_policy { max_queue_size: 2 } "
                         "priority_queue_policy { key: 1 value { max_queue_size: 1 } }", size=1),
    "rejecting": config(REJECT + "1000000000 allow_timeout_override: true }", size=1),
    "rejecting_all": config(REJECT + "1000000 allow_timeout_override: true }", size=1),
    "without_override": config(REJECT + "1000000000 }", size=1),
    "without_policy": config("", size=1),
    "without_limit": config("default_queue_policy { allow_timeout_override: true max_queue_size: 100 }", size=1),
    "delaying": config("default_queue_policy { timeout_action: DELAY default_timeout_microseconds: 1000000000 "
                       "allow_timeout_override: true max_queue_size: 4 }", size=1),
    "delaying_level": config(LEVELS + " default_queue_policy { timeout_action: DELAY default_timeout_microseconds: 1000000000 "
                             "allow_timeout_override: true } priority_queue_policy { key: 1 value { "
                             "default_timeout_microseconds: 1000000000 allow_timeout_override: true } }", size=1),
    "delaying_batches": config("default_queue_policy { timeout_action: DELAY default_timeout_microseconds: 1000000000 "
                               "allow_timeout_override: true }", size=2),
    "cancelled": config(BOUNDED),
    "two": config(BOUNDED, size=2, instances=2),
    "ordered": config(ORDERED, instances=2),
    "ordered_batch": config(ORDERED + BOUNDED),
    "ordered_late": config(ORDERED + REJECT + "1000000000 allow_timeout_override: true }", size=1),
    "ordered_cancelled": config(ORDERED + BOUNDED),
    "ordered_several": config(ORDERED, size=1, instances=2, more='parameters { key: "responses" value { string_value: "2" } }'),
    "ordered_decoupled": config(ORDERED, size=1, instances=2, more='parameters { key: "responses" value { string_value: "2" } } '
                                "model_transaction_policy { decoupled: true }"),
    "ordered_full": config(ORDERED + "default_queue_policy { max_queue_size: 1 }", size=1),
}


class Gated:
    """A server in which the first execution of each model is held."""

    def __init__(self, which, server, root):
        self.which = which
        self.server = server
        self.root = root

    def begin(self, name, *more, n=1):
        """Starts n executions of a model, with one request each, a, b, …; later requests then wait in the queue."""
        model = self.models[name]
        for i in range(n):
            self.server.tell(start(IDS[i], name))
            model.await_executions(i + 1)
        self.server.tell(*more, f"ready {name}")
        self.server.await_line(f"ready {name} yes")
        return model

    def end(self, model=None):
        """All lines about requests."""
        if model:
            model.let_go()
        return [line for line in self.server.do() if not line.startswith("ready ")]


@pytest.fixture(scope="module", params=EITHER)
def gated(request, tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    models = {name: Model(root, name, text) for name, text in MODELS.items()}
    for model in models.values():
        model.hold()
    with session(request.param, root, tmp_path_factory.mktemp("libraries")) as server:
        made = Gated(request.param, server, root)
        made.models = models
        yield made
        for model in models.values():
            model.let_go()


def answer(name, execution):
    return f"{name} response OUT:INT32:1,1:{execution} final"


def test_a_full_queue_refuses_requests(gated):
    """A request beyond the limit is refused at once, which does not count as a failure."""
    more = [start(one, "full") for one in "bcde"]
    lines = gated.end(gated.begin("full", *more))
    assert sorted(lines) == sorted([answer(one, i + 1) for i, one in enumerate("abc")]
                                   + [f"{one} refused {FULL.format(one)}" for one in "de"])
    assert statistics(gated.server, "full")["fail"] == 0
    assert statistics(gated.server, "full")["success"] == 3


def test_a_full_level_refuses_requests(gated):
    more = [start(one, "full_level", priority=level) for one, level in zip("bcdefg", (1, 1, 2, None, 2, 1), strict=True)]
    lines = gated.end(gated.begin("full_level", *more))
    assert sorted(line for line in lines if "refused" in line) == [f"{one} refused {FULL.format(one)}" for one in "cfg"]
    assert gated.models["full_level"].batches() == list("abde")


def test_a_request_that_waits_too_long_is_rejected(gated):
    """A time limit of a request counts if it is shorter than the model's."""
    more = [start(one, "rejecting", timeout=us) for one, us in zip("bcde", (None, 1, 2000000000, 0), strict=True)]
    model = gated.begin("rejecting", *more)
    if gated.which == "conch":    # the genuine one answers when the instance is free (reference/behaviours §27.10)
        gated.server.await_line(f"c {LATE}")
    lines = gated.end(model)
    assert embed.of(lines, "c") == [LATE]
    assert model.batches() == list("abde")
    assert statistics(gated.server, "rejecting")["fail"] == 1


def test_a_request_cannot_ask_for_more_time_than_the_model_gives(gated):
    more = [start(one, "rejecting_all", timeout=us) for one, us in zip("bcd", (None, 10**12, 2), strict=True)]
    model = gated.begin("rejecting_all", *more)
    if gated.which == "conch":
        for one in "bcd":
            gated.server.await_line(f"{one} {LATE}")
    else:    # only the clock shows that their time is over
        over = time.monotonic() + 1
        servers.wait_for(lambda: time.monotonic() > over, 60, "a second")
    lines = gated.end(model)
    assert model.batches() == ["a"]
    assert sorted(lines) == [answer("a", 1)] + [f"{one} {LATE}" for one in "bcd"]


@pytest.mark.parametrize("name", ["without_override", "without_policy", "without_limit"])
def test_a_requests_time_limit_counts_only_if_allowed(gated, name):
    """A request's limit counts only if the model allows it and has a limit of its own (reference/behaviours §10.6, §19.12)."""
    lines = gated.end(gated.begin(name, start("b", name, timeout=1), start("c", name, timeout=1)))
    assert lines == [answer(one, i + 1) for i, one in enumerate("abc")]


def test_a_request_that_waits_too_long_is_delayed(gated):
    """… behind all requests of its level that are not delayed. It still counts for the length of the queue."""
    limits = zip("bcdef", (1, None, 1, None, None), strict=True)
    model = gated.begin("delaying", *(start(one, "delaying", timeout=us) for one, us in limits))
    lines = gated.end(model)
    assert [line for line in lines if "refused" in line] == [f"f refused {FULL.format('f')}"]
    assert model.batches() == list("acebd")


def test_each_level_has_its_policy(gated):
    """Level 1 rejects, the others delay. A delayed request stays before those of later levels."""
    more = [start("b", "delaying_level", priority=2, timeout=1), start("c", "delaying_level", priority=2),
            start("d", "delaying_level", priority=3), start("e", "delaying_level", priority=1, timeout=1),
            start("f", "delaying_level", priority=1), start("g", "delaying_level", priority=3, timeout=1)]
    model = gated.begin("delaying_level", *more)
    lines = gated.end(model)
    assert embed.of(lines, "e") == [LATE]
    assert model.batches() == list("afcbdg")


def test_delayed_requests_are_batched_with_unexpired_ones(gated):
    limits = zip("bcdef", (1, None, None, None, 1), strict=True)
    model = gated.begin("delaying_batches", *(start(one, "delaying_batches", timeout=us) for one, us in limits))
    gated.end(model)
    assert model.batches() == ["a", "cd", "eb", "f"]


def test_a_cancelled_request_is_not_executed(gated):
    model = gated.begin("cancelled", *(start(one, "cancelled") for one in "bcd"), "cancel b", "cancel d")
    lines = gated.end(model)
    assert model.batches() == ["a", "c"]
    assert [re.sub("error .*: ", "error : ", line) for line in lines if line[0] in "bd"] == ["b error :  final", "d error :  final"]


def test_free_instances_take_waiting_requests(gated):
    model = gated.begin("two", *(start(one, "two") for one in "cdef"), n=2)
    assert sorted(model.instances()) == ["0", "1"]
    model.let_go(2)
    model.await_executions(3)
    model.let_go(3)
    model.await_end(3)
    model.await_executions(4)
    assert model.instances()[2:] == [model.instances()[1]] * 2
    gated.end(model)
    assert model.batches() == ["a", "b", "cd", "ef"]


# ---- preserve_ordering


def names(lines):
    return [line.split(" ")[0] for line in lines]


def test_responses_leave_in_the_order_of_their_requests(gated):
    """The second instance ends before the first; then both go on."""
    model = gated.begin("ordered", n=2)
    model.let_go(2)
    model.await_end(2)
    lines = gated.end(model)
    assert lines == [answer("a", 1), answer("b", 2)]


def test_a_batch_is_answered_in_order(gated):
    """The backend answers in the opposite order."""
    model = gated.begin("ordered_batch", *(start(one, "ordered_batch") for one in "bcdef"))
    lines = gated.end(model)
    assert model.batches() == ["a", "bcdef"]
    assert names(lines) == list("abcdef")


def not_of_triton(gated, why):
    if gated.which == "triton":
        pytest.skip(f"the genuine one {why}")


OUT_OF_ORDER = "tells those that are not executed when it comes upon them"


def test_expired_requests_are_answered_in_order(gated):
    not_of_triton(gated, OUT_OF_ORDER)
    limits = zip("bcd", (1, None, 1), strict=True)
    model = gated.begin("ordered_late", *(start(one, "ordered_late", timeout=us) for one, us in limits))
    lines = gated.end(model)
    assert lines == [answer("a", 1), f"b {LATE}", answer("c", 2), f"d {LATE}"]


def test_cancelled_requests_are_answered_in_order(gated):
    not_of_triton(gated, OUT_OF_ORDER)
    model = gated.begin("ordered_cancelled", *(start(one, "ordered_cancelled") for one in "bcd"), "cancel b", "cancel c")
    lines = gated.end(model)
    assert names(lines) == list("abcd")
    assert model.batches() == ["a", "d"]


@pytest.mark.parametrize("name", ["ordered_several", "ordered_decoupled"])
def test_several_responses_leave_in_order(gated, name):
    """The responses of a request stay together, whether or not the model is decoupled."""
    model = gated.begin(name, n=2)
    model.let_go(2)
    model.await_end(2)
    lines = gated.end(model)
    assert lines == [f"{one} {what}" for i, one in enumerate("ab") for what in [f"response OUT:INT32:1,1:{i + 1}"] * 2 + ["final"]]


def test_refused_requests_have_no_position_in_the_order(gated):
    model = gated.begin("ordered_full", start("b", "ordered_full"), start("c", "ordered_full"))
    model.let_go(1)
    model.await_executions(2)
    gated.server.tell(start("d", "ordered_full"))
    lines = gated.end(model)
    assert names(lines) == list("cabd")


# ---- The end of a model


@pytest.mark.parametrize("which", EITHER)
def test_an_unload_answers_waiting_requests(which, tmp_path):
    """An instance is held and three requests wait for it; no other request is accepted."""
    model = Model(tmp_path / "models", "m", config(ORDERED + BOUNDED, size=2))
    model.hold()
    with session(which, tmp_path / "models", tmp_path, options=["explicit", "m"]) as server:
        server.tell(start("a", "m"))
        model.await_executions(1)
        server.tell(*(start(one, "m") for one in "bcd"), "unload m")
        server.await_line("unload m ok")
        model.let_go()
        lines = server.do()
        assert lines == ["unload m ok", answer("a", 1), answer("b", 2), answer("c", 2), answer("d", 3)]
        servers.wait_for(lambda: server.do("ready m") != ["ready m yes"], 60, "it is gone")


def test_an_unload_flushes_a_waiting_batch(tmp_path):
    model = Model(tmp_path / "models", "m", config("preferred_batch_size: 4 max_queue_delay_microseconds: 3600000000"))
    with session("conch", tmp_path / "models", tmp_path, options=["explicit", "m"]) as server:
        lines = server.do(start("a", "m"), start("b", "m"), "unload m")
        assert sorted(lines) == [answer("a", 1), answer("b", 1), "unload m ok"]
    assert model.batches() == ["ab"]
