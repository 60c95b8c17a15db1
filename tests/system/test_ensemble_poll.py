# SPDX-License-Identifier: Apache-2.0
"""Mode poll with ensembles: their members and they themselves change, go and come back in the repository. After each change Conch
serves what the genuine Triton serves, and its ensembles answer with the same models."""

import shutil

import pytest

import pipelines
import server as servers
import triton
from pipelines import Stage, ensemble, step
from test_model_control import later

POLL = ["--model-control-mode=poll", "--repository-poll-secs=1"]
X, Y = ("X",), ("Y",)
ASKED = ["e", "f", "outer", "a", "b", "c"]


def write_models(root):
    for name, add in (("a", 1), ("b", 10), ("c", 100)):
        Stage(root, name, add=add)
    ensemble(root, "e", X, Y, step("a", "IN=X", "OUT=M"), step("b", "IN=M", "OUT=Y"))
    ensemble(root, "f", X, Y, step("c", "IN=X", "OUT=Y"))
    ensemble(root, "outer", X, Y, step("e", "X=X", "Y=M"), step("c", "IN=M", "OUT=Y"))


def edit(root, model, old, new):
    config = root / model / "config.pbtxt"
    text = config.read_text()
    assert old in text
    config.write_text(text.replace(old, new))
    later(config)


def rewrite(root, model, write):
    """The model's folder gets another configuration in one step, which is newer."""
    write(root.parent / f"{root.name}-new", model)
    new = root.parent / f"{root.name}-new" / model
    later(new / "config.pbtxt")
    shutil.copy2(new / "config.pbtxt", root / model / "config.pbtxt.new")
    (root / model / "config.pbtxt.new").rename(root / model / "config.pbtxt")
    shutil.rmtree(root.parent / f"{root.name}-new")


def move_out(root, model):
    (root / model).rename(root.parent / f"{root.name}-{model}")


def move_back(root, model):
    (root.parent / f"{root.name}-{model}").rename(root / model)


def member_touched(root):
    later(root / "a/config.pbtxt")


def member_adds_more(root):
    edit(root, "a", 'string_value: "1"', 'string_value: "2"')


def member_of_another_shape(root):
    edit(root, "b", "TYPE_INT32 dims: [ -1 ]", "TYPE_INT32 dims: [ 7 ]")


def member_of_another_type(root):
    edit(root, "b", "TYPE_INT32", "TYPE_FP32")


def member_has_its_type_again(root):
    edit(root, "b", "TYPE_FP32", "TYPE_INT32")


def member_fits_again(root):
    edit(root, "b", "TYPE_INT32 dims: [ 7 ]", "TYPE_INT32 dims: [ -1 ]")


def member_broken(root):
    edit(root, "a", 'backend: "stage"', 'backend: "nothere"')


def member_mended(root):
    edit(root, "a", 'backend: "nothere"', 'backend: "stage"')


def member_removed(root):
    move_out(root, "b")


def member_back(root):
    move_back(root, "b")


def ensemble_uses_another(root):
    rewrite(root, "e", lambda at, name: ensemble(at, name, X, Y, step("c", "IN=X", "OUT=M"), step("b", "IN=M", "OUT=Y")))


def ensemble_uses_nobody(root):
    rewrite(root, "e", lambda at, name: ensemble(at, name, X, Y, step("nobody", "IN=X", "OUT=Y")))


def ensemble_mended(root):
    rewrite(root, "e", lambda at, name: ensemble(at, name, X, Y, step("a", "IN=X", "OUT=M"), step("b", "IN=M", "OUT=Y")))


def inner_ensemble_removed(root):
    move_out(root, "e")


def inner_ensemble_back(root):
    move_back(root, "e")


def member_becomes_an_ensemble(root):
    rewrite(root, "b", lambda at, name: ensemble(at, name, ("IN",), ("OUT",), step("c", "IN=IN", "OUT=OUT")))


def a_circle(root):
    rewrite(root, "f", lambda at, name: ensemble(at, name, X, Y, step("outer", "X=X", "Y=Y")))
    rewrite(root, "e", lambda at, name: ensemble(at, name, X, Y, step("f", "X=X", "Y=Y")))


def everything_removed_but_ensembles(root):
    for model in "abc":
        move_out(root, model)


def everything_back(root):
    for model in "abc":
        move_back(root, model)


CHANGES = [
    [member_touched, member_adds_more, member_of_another_shape, member_fits_again, member_of_another_type, member_has_its_type_again,
     member_broken, member_mended],
    [member_removed, member_back, inner_ensemble_removed, inner_ensemble_back, everything_removed_but_ensembles, everything_back],
    [ensemble_uses_another, ensemble_uses_nobody, ensemble_mended, member_becomes_an_ensemble, a_circle],
]


class Polled:
    """A server, and its repository."""

    def __init__(self, which, root):
        self.root, self.n_marks = root, 0
        root.mkdir()
        write_models(root)
        self.server = pipelines.start(which, root, flags=POLL)

    def mark(self):
        """A model of its own, which the next round finds. A round has ended when the following one begins."""
        self.n_marks += 1
        Stage(self.root, f"mark{self.n_marks}")

    def await_mark(self):
        servers.wait_for(lambda: pipelines.is_ready(self.server, f"mark{self.n_marks}"), 60, "a round has found the new model")

    def ready(self):
        index = pipelines.index(self.server)
        return {f"{name}:{version}" for (name, version), (state, _) in index.items() if state == "READY" and not name.startswith("mark")}

    def seen(self):
        """What serves, and what each model makes of 0; an error of a request is not compared."""
        def answer(model):
            key, out = ("IN", "OUT") if model in "abc" else ("X", "Y")
            got = pipelines.ask(self.server, "http", model, {key: [0]})
            return got[out] if got.code == "OK" else "refused"

        return self.ready(), {model: answer(model) for model in ASKED}


@triton.needed
@pytest.mark.skipif(servers.REFERENCE, reason="is about our server")
@pytest.mark.parametrize("changes", CHANGES, ids=["changed", "removed", "ensembles"])
def test_polls_lead_to_what_the_genuine_triton_serves(changes, tmp_path):
    ours, theirs = Polled("conch", tmp_path / "ours"), Polled("triton", tmp_path / "theirs")
    both = (ours, theirs)
    with ours.server, theirs.server:
        assert ours.seen() == theirs.seen()
        story = [("start", *ours.seen())]
        for change in changes:
            for polled in both:
                change(polled.root)
            for _ in range(2):    # the round of the first mark may have begun before the change was complete
                for polled in both:
                    polled.mark()
                for polled in both:
                    polled.await_mark()
            try:
                servers.wait_for(lambda: ours.seen() == theirs.seen(), 20, "both serve the same")
            except AssertionError:
                raise AssertionError(f"after {change.__name__}: ours {ours.seen()}, theirs {theirs.seen()}, before: {story}") from None
            story.append((change.__name__, *ours.seen()))
        print(*story, sep="\n")
