# SPDX-License-Identifier: Apache-2.0
"""Batching libraries (tests/plugins/strategist): what they are asked, which batches result, how they are found, and what
happens when they fail. The same file in our server and in the genuine Triton.

The two servers differ where a library cannot see it: Triton also begins batches to which it offers no request, and
offers requests that wait for others again each time it looks.
"""

import concurrent.futures
import json
import pathlib
import re
import shlex
import shutil
import subprocess
import urllib.request

import pytest

import embed
import repository
import server as servers
import triton

BACKENDS = servers.BUILD / "tests/backends"
LIBRARY = BACKENDS / "strategist/libtriton_strategist.so"
PATH = "TRITON_BATCH_STRATEGY_PATH"
FIVE = ["ModelBatcherInitialize", "ModelBatcherFinalize", "ModelBatchInitialize", "ModelBatchIncludeRequest",
        "ModelBatchFinalize"]


@pytest.fixture(params=["conch", "triton"])
def which(request):
    if request.param == "triton" and triton.missing():
        pytest.skip(triton.missing())
    return request.param


@pytest.fixture
def conch():
    return "conch"


def write(root, name="m", scheduler="dynamic_batching { }", size=8, library=LIBRARY, **parameters):
    """Writes a model of the backend strategist, with that library in its folder."""
    dims = "[-1]"
    config = f'backend: "strategist"\nmax_batch_size: {size}\n{scheduler}\ninstance_group [ {{ count: 1 kind: KIND_CPU }} ]\n'
    config += f'input [ {{ name: "IN" data_type: TYPE_INT32 dims: {dims} }} ]\n'
    config += f'output [ {{ name: "OUT" data_type: TYPE_INT32 dims: {dims} }} ]\n'
    for key, value in parameters.items():
        config += f'parameters {{ key: "{key}" value: {{ string_value: "{value}" }} }}\n'
    folder = repository.write_model(root, name, config)
    if library:
        shutil.copy(library, folder / "batchstrategy.so")
    return folder


def request(name, *settings, size=1, width=1, model="m"):
    """A command for embed."""
    data = ",".join("7" * (size * width))
    return f"start {name} {model} -1 - IN:INT32:{size},{width}:{data} {' '.join(settings)}"


def record(text):
    """The lines of the strategist in a text."""
    return re.findall(r"^strategist: (.*)$", text, re.MULTILINE)


def asked(told):
    """By batch, the requests of which the library was asked."""
    batches = {}
    for line in told:
        if found := re.fullmatch(r"(\d+): (\w+)\?", line):
            batches.setdefault(found[1], []).append(found[2])
    return ["".join(batch) for batch in batches.values()]


def executed(told):
    return [line.removeprefix("executes ").replace(" ", "") for line in told if line.startswith("executes ")]


def session(which, root, tmp_path, hold=0, options=()):
    env = {"TRITONSERVER_DELAY_SCHEDULER": str(hold)} if hold else {}
    return embed.Session(root, which=which, folder=tmp_path, backends=BACKENDS, options=options, env=env)


def serve(which, root, tmp_path, *commands, hold=0, ends=()):
    """Runs the commands in a server of its own. Returns (lines of embed, lines of the strategist, all log lines). The
    lines have the ends of these models, which must be unloaded explicitly in Triton, because it is killed."""
    unloads = ends if which == "triton" else ()
    with session(which, root, tmp_path, hold, ("explicit", *unloads) if unloads else ()) as running:
        lines = running.do(*commands)
        for model in unloads:
            running.do(f"unload {model}")
            servers.wait_for(lambda end=f"model {model} ends": end in record(running.err.text()), 60, "it has ended")
    running.err.join()
    assert_answered(lines, commands)
    told = record(running.err.text())
    assert AT_A_TIME not in told
    return lines, told, running.err.text()


AT_A_TIME = "is asked two things at a time"


def started(commands):
    return [command.split()[1] for command in commands if command.startswith("start ")]


def assert_answered(lines, commands):
    for name in started(commands):
        assert [line for line in embed.of(lines, name) if line.startswith("response OUT:INT32:")], lines


# ---- Which batches are made

HOLD = 5    # batches are begun when this many requests wait
BATCHING = "dynamic_batching { }"
FOREVER = "max_queue_delay_microseconds: 600000000"
DELAYED = f"dynamic_batching {{ preferred_batch_size: [2, 4] {FOREVER} }}"
FULL = f"dynamic_batching {{ preferred_batch_size: [8] {FOREVER} }}"
LEVELS = "dynamic_batching { priority_levels: 3 default_priority_level: 2 }"
FIVE_REQUESTS = [request(c) for c in "abcde"]
# scheduler, max_batch_size, requests, the requests of which the library is asked in each batch (None: not compared),
# the batches executed
BATCHES = {
    "all_join": (BATCHING, 8, FIVE_REQUESTS, ["abcde"], ["abcde"]),
    "one_begins_the_next": (BATCHING, 8, [request("a"), request("b"), request("c", "@join:first"), request("d"), request("e")],
                            ["abc", "cde"], ["ab", "cde"]),
    "each_alone": (BATCHING, 8, [request(c, "@join:first") for c in "abcde"], ["ab", "bc", "cd", "de", "e"], list("abcde")),
    "an_error_after_its_word": (BATCHING, 8, [request("a"), request("b", "@join:fail-yes"), request("c", "@join:fail-first"),
                                              request("d"), request("e")], ["abc", "cde"], ["ab", "cde"]),
    "as_many_as_fit": (BATCHING, 2, FIVE_REQUESTS, ["ab", "cd", "e"], ["ab", "cd", "e"]),
    "sizes": (BATCHING, 8, [request("a", size=5), request("b", size=4), request("c", size=4), request("d", size=3),
                            request("e", size=5)], ["a", "bc", "de"], ["a", "bc", "de"]),
    "shapes": (BATCHING, 8, [request("a"), *(request(c, width=2) for c in "bcd"), request("e")], ["a", "bcd", "e"],
               ["a", "bcd", "e"]),
    "preferred_sizes": ("dynamic_batching { preferred_batch_size: [2, 4] }", 8, FIVE_REQUESTS, ["abcde", "e"], ["abcd", "e"]),
    "refused_behind_a_preferred_size": (DELAYED, 8, [request("a"), request("b"), request("c"), request("d", "@join:first"),
                                                     request("e")], None, ["ab", "c", "de"]),
    "a_refusal_ends_the_wait": (FULL, 8, [request("a"), request("b"), request("c", "@join:first"), request("d"), request("e"),
                                          "wait b", *(request(c) for c in "fghij")], None, ["ab", "cdefghij"]),
    "priorities": (LEVELS, 8, [request("a"), request("b", "@priority:1"), request("c", "@priority:3"),
                               request("d", "@priority:1", "@join:first"), request("e")], ["bd", "daec"], ["b", "daec"]),
    "cannot_begin": (BATCHING, 8, FIVE_REQUESTS, None, ["abcde"]),
    "cannot_end": (BATCHING, 8, FIVE_REQUESTS, ["abcde"], ["abcde"]),
    "keeps_no_batch": (BATCHING, 8, FIVE_REQUESTS, None, ["abcde"]),
    "keeps_no_batcher": (BATCHING, 8, FIVE_REQUESTS, None, ["abcde"]),
}
PARAMETERS = {"cannot_begin": {"fails": "batch-begin"}, "cannot_end": {"fails": "batch-end"},
              "keeps_no_batch": {"silent": "batch-user"}, "keeps_no_batcher": {"silent": "batcher"}}


class Served:
    """One server with a model for each of these cases, and the ends of its requests."""

    def __init__(self, which, session):
        self.which, self.session = which, session
        assert session.do("index")[0].count("READY") == len(BATCHES)
        self.seen = len(session.err.text())

    def ask(self, case, commands):
        """Returns the strategist's lines meanwhile, and all log lines."""
        ours = [command.replace(" m -1 ", f" {case} -1 ") for command in commands]
        assert_answered(self.session.do(*ours), ours)
        names = started(ours)

        def lines():    # they arrive by another way than the answers
            text = self.session.err.text()[self.seen:]
            return text if sorted("".join(executed(record(text)))) == names else None

        text = servers.wait_for(lines, 60, "all lines are here")
        self.seen += len(text)
        assert AT_A_TIME not in record(text)
        return record(text), text


@pytest.fixture(scope="module", params=["conch", "triton"])
def served(request, tmp_path_factory):
    if request.param == "triton" and triton.missing():
        pytest.skip(triton.missing())
    root = tmp_path_factory.mktemp("models")
    for case, (scheduler, size, _, _, _) in BATCHES.items():
        write(root, case, scheduler, size, **PARAMETERS.get(case, {}))
    with session(request.param, root, tmp_path_factory.mktemp("links"), HOLD) as running:
        yield Served(request.param, running)


@pytest.mark.parametrize("case", BATCHES)
def test_the_library_decides_the_batches(served, case):
    _, _, commands, expected_asked, expected_executed = BATCHES[case]
    if served.which == "triton" and case == "refused_behind_a_preferred_size":
        pytest.skip("it sends ab or abc, as it comes")
    told, log = served.ask(case, commands)
    assert executed(told) == expected_executed
    if expected_asked:
        assert asked(told) == expected_asked
    failed = "Custom batching {} function failed for model {}: {} does not want to"
    if case == "an_error_after_its_word":
        assert log.count(failed.format("include", case, "include")) >= 1
    elif case == "cannot_begin":    # batched as without a library; Triton asks the library all the same
        assert failed.format("initialization", case, "batch-begin") in log
    elif case == "cannot_end":
        assert failed.format("finalization", case, "batch-end") in log
    elif case.startswith("keeps"):
        assert [line for line in told if line.endswith("?")] == ["a?", "b?", "c?", "d?", "e?"]
        assert "no batch ends" not in told
    else:
        assert "Custom batching" not in log


def test_the_library_is_called_in_this_order(which, models, tmp_path):
    """The library's batch ends before the batch is executed, its batcher before the instances."""
    write(models)
    _, told, _ = serve(which, models, tmp_path, request("a"), request("b"), hold=2, ends="m")
    of_batch = told[told.index(next(line for line in told if line.endswith(": a?"))) - 1:told.index("executes a b") + 1]
    number = of_batch[0].split()[1]
    if which == "triton":    # it may begin its next, empty batch before this one is executed
        of_batch = [line for line in of_batch if not re.fullmatch(r"batch \d+ begins", line) or line == of_batch[0]]
    assert of_batch == [f"batch {number} begins", f"{number}: a?", f"{number}: b?", f"batch {number} ends", "executes a b"]
    rare = [line for line in told if re.match("model|batcher|instance", line)]
    assert rare == ["model m begins", "batcher begins", "instance m_0_0 begins", "batcher ends", "instance m_0_0 ends",
                    "model m ends"]


def test_each_batch_that_begins_ends(conch, models, tmp_path):
    """Triton never ends the last one, and begins empty batches."""
    write(models)
    _, told, _ = serve(conch, models, tmp_path, *(request(c, "@join:first") for c in "abc"), hold=3)
    numbers = {kind: re.findall(rf"batch (\d+) {kind}", "\n".join(told)) for kind in ("begins", "ends")}
    assert numbers == {"begins": ["1", "2", "3"], "ends": ["1", "2", "3"]}


REFUSALS = {"no": "@join:no", "nothing": "@join:unsaid", "an_error": "@join:fail-unsaid"}


@pytest.mark.parametrize("word", REFUSALS)
def test_a_refused_first_request_is_executed_alone(conch, models, tmp_path, word):
    """Triton then makes empty batches for ever."""
    write(models)
    commands = [request("a"), *(request(c, REFUSALS[word]) for c in "bc"), request("d")]
    _, told, log = serve(conch, models, tmp_path, *commands, hold=4)
    assert asked(told) == ["ab", "b", "c", "d"]
    assert executed(told) == ["a", "b", "c", "d"]
    assert "the batching library of model 'm' refuses the first request of a batch, which is executed alone" in log


# ---- Libraries that fail, or give no answer

def test_a_batcher_that_cannot_begin_fails_the_load(which, models, tmp_path):
    write(models, fails="batcher-begin")
    lines, told, _ = serve(which, models, tmp_path, "index")
    assert '"reason":"Unavailable: batcher-begin does not want to"' in lines[0]
    assert told[:4] == ["model m begins", "batcher begins", "no batcher ends", "model m ends"]


def test_a_batcher_that_cannot_end_is_logged(which, models, tmp_path):
    """… and a batcher that is null."""
    write(models, fails="batcher-end")
    write(models, "null", silent="batcher")
    _, told, log = serve(which, models, tmp_path, request("a"), ends=["m", "null"])
    assert "no batcher ends" in told
    assert executed(told) == ["a"]
    assert "Custom batcher finalization failed for model m: batcher-end does not want to" in log


# ---- How the library is found

def reason(lines):
    return json.loads(lines[0])[0].get("reason")


def load(which, models, tmp_path):
    """Returns why the model is not loaded, or None; and the strategist's lines."""
    lines, told, log = serve(which, models, tmp_path, "index")
    return reason(lines), told, log


def test_the_configuration_names_a_library(which, models, tmp_path):
    own = models / "m/my.so"
    folder = write(models, library=None, **{PATH: own})
    shutil.copy(LIBRARY, own)
    (folder / "batchstrategy.so").write_text("this is not looked at")
    got, told, _ = load(which, models, tmp_path)
    assert got is None
    assert "batcher begins" in told


@pytest.mark.parametrize("path", ["{models}/m/nothing.so", "/nowhere/lib.so", "lib.so", ""])
def test_a_named_library_that_is_missing_fails_the_load(which, models, tmp_path, path):
    """A path that does not begin with a slash is relative to the server's working directory. If the path leads out of the
    repository, our server does not reveal whether the file exists."""
    outside = not path.startswith("{models}")
    path = path.format(models=models)
    folder = write(models, **{PATH: path})
    shutil.copy(LIBRARY, folder / "lib.so")
    text = ("Invalid argument: Batching library path escapes model repository." if outside and which == "conch" else
            f"Not found: Batching library path not found: {path}")
    assert load(which, models, tmp_path)[0] == text


def test_a_named_file_that_is_no_library_fails_the_load(which, models, tmp_path):
    write(models, **{PATH: models / "m"})
    assert load(which, models, tmp_path)[0] == (
        f"Not found: unable to load shared library: {models}/m: cannot read file data: Is a directory")


def test_the_folders_are_searched_in_order(which, models, tmp_path, monkeypatch):
    """The folders of the version, of the model, of the backend."""
    backends = tmp_path / "backends"
    shutil.copytree(BACKENDS / "strategist", backends / "strategist")
    monkeypatch.setattr(__import__("sys").modules[__name__], "BACKENDS", backends)
    shutil.copy(LIBRARY, backends / "strategist/batchstrategy.so")
    folder = write(models, library=None)
    assert "batcher begins" in load(which, models, tmp_path)[1]
    for place in (folder, folder / "1"):
        path = place / "batchstrategy.so"
        path.write_text("no library")
        assert load(which, models, tmp_path)[0] == f"Not found: unable to load shared library: {path}: file too short"


def test_a_library_without_the_functions_is_ignored(which, models, tmp_path):
    write(models, library=servers.BUILD / "backends/identity/libtriton_identity.so")
    _, told, log = serve(which, models, tmp_path, request("a"), request("b"), hold=2)
    assert executed(told) == ["ab"]
    if which == "conch":
        assert f"{models}/m/batchstrategy.so has no custom batching functions: model 'm' goes without" in log


@pytest.mark.parametrize("missing", [[name] for name in FIVE] + [FIVE[1:]])
def test_a_library_with_some_of_the_functions_is_refused(conch, models, tmp_path, missing):
    """Triton 2.51 hangs in such a load."""
    code = LIBRARY.read_bytes()
    for name in missing:
        assert f"TRITONBACKEND_{name}\0".encode() in code
        code = code.replace(f"TRITONBACKEND_{name}\0".encode(), f"TRITONBACKEND_{name[:-1]}_\0".encode())
    folder = write(models, library=None)
    (folder / "batchstrategy.so").write_bytes(code)
    assert load(conch, models, tmp_path)[0] == (f"Invalid argument: {folder}/batchstrategy.so does not define all required "
                                                "custom batching functions for model m")


@pytest.mark.parametrize("scheduler, size", [("", 8), ("", 0)])
def test_without_a_dynamic_batcher_the_library_is_not_asked(which, models, tmp_path, scheduler, size):
    """The library is loaded, its batcher begins, and it is not asked."""
    write(models, scheduler=scheduler, size=size)
    one = "start {0} m -1 - IN:INT32:" + ("1,1:7" if size else "1:7")
    _, told, _ = serve(which, models, tmp_path, one.format("a"), one.format("b"), ends="m")
    assert executed(told) == ["a", "b"]
    assert [line for line in told if re.match("batch|.*[?]", line)] == ["batcher begins", "batcher ends"]


@pytest.mark.parametrize("path", ["{outside}/my.so", "{models}/../outside/my.so", "{models}/m/link.so"])
def test_a_library_outside_of_the_repository_is_refused(conch, models, tmp_path, path):
    """Triton 2.51 accepts it; later releases do not."""
    outside = tmp_path / "outside"
    outside.mkdir()
    shutil.copy(LIBRARY, outside / "my.so")
    path = path.format(outside=outside, models=models)
    folder = write(models, library=None, **{PATH: path})
    (folder / "link.so").symlink_to(outside / "my.so")
    got, told, _ = load(conch, models, tmp_path)
    assert told == ["model m begins", "model m ends"]
    if "link" in path:
        assert got.startswith(f"Invalid argument: link '{path}' leads to '{outside}/my.so', out of the model repository")
    else:
        assert got == "Invalid argument: Batching library path escapes model repository."


def test_a_roundabout_path_into_the_repository_is_accepted(conch, models, tmp_path):
    shutil.copy(LIBRARY, models / "shared.so")
    write(models, library=None, **{PATH: f"{models}/../{models.name}/m/../shared.so"})
    got, told, _ = load(conch, models, tmp_path)
    assert got is None
    assert "batcher begins" in told


def test_a_link_out_of_the_repository_is_refused(conch, models, tmp_path):
    folder = write(models, library=None)
    (folder / "batchstrategy.so").symlink_to(LIBRARY)
    assert load(conch, models, tmp_path)[0].startswith(
        f"Invalid argument: link '{folder}/batchstrategy.so' leads to '{LIBRARY.resolve()}', out of the model repository")


def test_links_may_lead_out_when_permitted(models, tmp_path, monkeypatch):
    monkeypatch.setattr(servers, "BACKENDS", str(BACKENDS))
    named, found = models / "named/link.so", models / "found/batchstrategy.so"
    write(models, "named", library=None, **{PATH: named})
    write(models, "found", library=None)
    for link in (named, found):
        link.symlink_to(LIBRARY)
    with servers.Server(models, flags=["--repository-follow-symlinks=true"]) as running:
        assert record(running.log()).count("batcher begins") == 2


def test_two_models_share_a_library(which, models, tmp_path):
    library = models / "shared.so"
    shutil.copy(LIBRARY, library)
    for name in "mn":
        write(models, name, library=None, **{PATH: library})
    commands = [request(name + model, model=model) for name in "ab" for model in "mn"]
    _, told, _ = serve(which, models, tmp_path, *commands, hold=2, ends="mn")
    assert sorted(executed(told)) == ["ambm", "anbn"]
    assert (told.count("batcher begins"), told.count("batcher ends")) == (2, 2)


# ---- A library that takes long

def infer(running, model, **parameters):
    body = {"parameters": parameters, "inputs": [{"name": "IN", "datatype": "INT32", "shape": [1, 1], "data": [7]}]}
    asks = urllib.request.Request(f"http://{running.url}/v2/models/{model}/infer", json.dumps(body).encode())
    with urllib.request.urlopen(asks, timeout=60) as answer:
        return json.loads(answer.read())["outputs"][0]["data"]


@pytest.fixture
def held(which, models, tmp_path, monkeypatch):
    """Yields a server with one loop, whose model m is being asked about a request."""
    write(models, "m")
    write(models, "n")
    gate = tmp_path / "hold"
    gate.touch()
    monkeypatch.setattr(servers, "BACKENDS", str(BACKENDS))
    make = {"conch": servers.Server, "triton": triton.Triton}[which]
    with concurrent.futures.ThreadPoolExecutor(1) as pool, make(models, flags=["--http-thread-count=1"]) as running:
        try:
            running.pending = pool.submit(infer, running, "m", hold=str(gate))
            servers.wait_for(pathlib.Path(f"{gate}.reached").exists, 60, "the library is asked")
            running.gate = gate
            yield running
        finally:
            gate.unlink(missing_ok=True)


def test_other_models_go_on_while_a_library_is_slow(held):
    assert infer(held, "n") == [7]
    with urllib.request.urlopen(f"http://{held.url}/v2/models/m/ready", timeout=60) as answer:
        assert answer.status == 200
    assert not held.pending.done()
    held.gate.unlink()
    assert held.pending.result(60) == [7]


def test_the_server_stops_while_a_library_is_slow(held):
    if isinstance(held, triton.Triton):
        pytest.skip("is about our way to stop")
    held.signal(15)
    held.wait_log("Signal (15) received.")
    held.gate.unlink()
    assert held.pending.result(60) == [7]
    assert held.wait() == 0
    told = record(held.log())
    assert [line for line in told if re.match("batch|exec", line)] == ["batcher begins"] * 2 + [
        "batch 1 begins", "batch 1 ends", "executes "] + ["batcher ends"] * 2


def test_a_model_is_unloaded_while_a_library_is_slow(models, tmp_path):
    """Requests that the model accepted are executed first; the library is unloaded with its last model."""
    folder = write(models, "m")
    gate = tmp_path / "hold"
    gate.touch()
    with session("conch", models, tmp_path, options=("explicit", "m")) as running:
        running.tell(request("a", f"@hold:{gate}"))
        servers.wait_for(pathlib.Path(f"{gate}.reached").exists, 60, "the library is asked")
        maps = pathlib.Path(f"/proc/{running.process.pid}/maps")
        assert f"{folder}/batchstrategy.so" in maps.read_text()
        running.tell("unload m")
        running.await_line("unload m ok")
        assert "batcher ends" not in record(running.err.text())
        gate.unlink()
        assert_answered(running.do(), [request("a")])
        servers.wait_for(lambda: "model m ends" in record(running.err.text()), 60, "the model has gone")
        assert record(running.err.text())[-5:] == [
            "batch 1 ends", "executes a", "batcher ends", "instance m_0_0 ends", "model m ends"]
        servers.wait_for(lambda: "batchstrategy.so" not in maps.read_text(), 60, "the library has gone")


# ---- The examples of docs/writing-a-batch-strategy.md

PAGE = servers.ROOT / "docs/writing-a-batch-strategy.md"
SIZES = [request(c, size=size) for c, size in zip("abcde", (1, 2, 1, 3, 1), strict=True)]
EXAMPLES = {
    "single_batching": (FIVE_REQUESTS, {}, list("abcde")),
    "volume_batching": (SIZES, {"MAX_BATCH_VOLUME_BYTES": "12"}, ["ab", "c", "d", "e"]),
    "volume_batching of one that is too large": (SIZES, {"MAX_BATCH_VOLUME_BYTES": "8"}, ["a", "b", "c", "d", "e"]),
    "volume_batching of all": (SIZES, {"MAX_BATCH_VOLUME_BYTES": "1000"}, ["abcde"]),
}


def build_example(name, library):
    """Builds the library by the page's command."""
    text = PAGE.read_text()
    assert "<!-- listing: examples/strategies/volume_batching.c -->" in text
    command = re.search(r"^gcc .*$", text, re.MULTILINE)[0].replace("volume_batching", name)
    command = command.replace("/tmp/models/sums/batchstrategy.so", str(library))
    done = subprocess.run(shlex.split(command), cwd=servers.ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and not done.stderr, done.stderr


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_examples_of_the_page_make_their_batches(which, name, models, tmp_path):
    requests, parameters, expected = EXAMPLES[name]
    folder = write(models, library=None, **parameters)
    build_example(name.split()[0], folder / "batchstrategy.so")
    _, told, _ = serve(which, models, tmp_path, *requests, hold=HOLD)
    assert executed(told) == expected


@pytest.mark.parametrize("limit", [None, "", "many", "-1", "12 bytes", "99999999999999999999999"])
def test_an_example_without_its_parameter_fails_the_load(conch, models, tmp_path, limit):
    folder = write(models, library=None, **({} if limit is None else {"MAX_BATCH_VOLUME_BYTES": limit}))
    build_example("volume_batching", folder / "batchstrategy.so")
    got, _, _ = load(conch, models, tmp_path)
    assert got == "Invalid argument: the parameter MAX_BATCH_VOLUME_BYTES must be a number"
