# SPDX-License-Identifier: Apache-2.0
"""Clients of all kinds for the tests of this folder; each knows the answers that it must get.

A client is a function of the shared state (Run), its own random numbers and a connection. It fails with an
AssertionError.
"""

import collections
import contextlib
import gzip
import hashlib
import itertools
import json
import os
import random
import socket
import struct
import threading
import time
import traceback

import regions
import repository
import server as servers
from wire import Connection, request_bytes

LARGE = 1 << 20    # elements at most

# Models by how they execute. No client leaves one of STEADY before the answer.
STEADY = ["steady_inline", "steady_thread", "steady_batch", "steady_queue", "steady_text", "steady_ensemble", "steady_cached"]
FICKLE = ["fickle_inline", "fickle_thread", "fickle_slow", "fickle_queue", "fickle_ensemble", "fickle_cached"]
BATCHED = ["steady_batch", "steady_queue", "fickle_queue"]
EVENTS = "events"    # gives a response for each of its values
KEY = {"X-Key": "right"}    # for a server with rules of access
SPOILT = "spoilt"    # asked by bytes that may be no request
# Seats that an instance takes, and its priority: of models that are asked, executed in ensembles, and loaded and unloaded meanwhile.
SEATS = {"steady_inline": (1, 1), "steady_thread": (2, 2), "steady_queue": (3, 1), "fickle_thread": (2, 1), "fickle_slow": (1, 3), "fickle_queue": (1, 1), "part_slow": (1, 1),
         "part_inline": (1, 2), "fickle_cached": (2, 1), "checked_0": (1, 1), "checked_1": (3, 2)}
CHECKED = ["checked_0", "checked_1"]    # loaded by clients; an agent checks their files
WEIGHTS = b"what the digest is of"


def write_models(root):
    """Writes the models that these clients ask."""
    fp32 = [("FP32", [-1])]
    repository.write_identity(root, "steady_inline", fp32, CONCH_EXECUTION="inline")
    repository.write_identity(root, "steady_thread", fp32, CONCH_EXECUTION="thread")
    for model in BATCHED:
        folder = repository.write_identity(root, model, [("FP32", [4])], max_batch_size=8)
        if model.endswith("queue"):
            with open(folder / "config.pbtxt", "a", encoding="utf-8") as config:
                config.write("dynamic_batching { max_queue_delay_microseconds: 2000 preserve_ordering: true }\n")
    repository.write_identity(root, "steady_text", [("BYTES", [-1])])
    repository.write_identity(root, "fickle_inline", fp32, CONCH_EXECUTION="inline")
    repository.write_identity(root, "fickle_thread", fp32, CONCH_EXECUTION="thread")
    repository.write_identity(root, "fickle_slow", fp32, execute_delay_ms=3)
    write_cached(root, fp32)
    repository.write_identity(root, SPOILT, fp32)
    repository.write_model(root, EVENTS, repository.REPEAT)
    repository.write_identity(root, "part_inline", fp32, CONCH_EXECUTION="inline")
    repository.write_identity(root, "part_thread", fp32, CONCH_EXECUTION="thread")
    repository.write_identity(root, "part_slow", fp32, execute_delay_ms=1)
    write_chain(root, "steady_ensemble", ["part_inline", "part_inline", "part_thread", "part_inline"])
    write_chain(root, "fickle_ensemble", ["part_thread", "part_slow", "part_inline", "part_ensemble"])
    write_chain(root, "part_ensemble", ["part_inline", "part_thread"])
    return root


def write_cached(root, tensors):
    """Models whose responses a cache keeps; flags: cache_flags()."""
    for model in "steady_cached", "fickle_cached":
        with open(repository.write_identity(root, model, tensors) / "config.pbtxt", "a", encoding="utf-8") as config:
            config.write("response_cache { enable: true }\n")


def write_checked(root):
    """Models whose agent `checksum` wants one file to be as it is; flags: agent_flags()."""
    digest = hashlib.sha256(WEIGHTS).hexdigest()
    for model in CHECKED:
        folder = repository.write_identity(root, model, [("FP32", [-1])])
        (folder / "1/weights").write_bytes(WEIGHTS)
        with open(folder / "config.pbtxt", "a", encoding="utf-8") as config:
            config.write(f'model_repository_agents {{ agents {{ name: "checksum" parameters {{ key: "SHA256:1/weights" value: "{digest}" }} }} }}\n')


def agent_flags():
    """Of a server whose clients may load models."""
    return [f"--repoagent-directory={(servers.BUILD / 'repoagents').resolve()}"]


def share_seats(root):
    """Has instances of some models share a resource; flags: limiter_flags()."""
    for model, (seats, priority) in SEATS.items():
        config = root / model / "config.pbtxt"
        before = "count: 1 kind: KIND_CPU "
        assert before in config.read_text()
        limiter = f'rate_limiter {{ resources [ {{ name: "seats" count: {seats} }} ] priority: {priority} }} '
        config.write_text(config.read_text().replace(before, before + limiter))


def limiter_flags():
    """There are fewer seats than the models want together."""
    return ["--rate-limit=execution_count", "--rate-limit-resource=seats:3"]


def cache_flags():
    """A cache that has no room for all of cached_bytes()."""
    return [f"--cache-directory={(servers.BUILD / 'caches').resolve()}", "--cache-config=local,size=131072"]


def cached_bytes(chance):
    """The bytes of some FP32, which other requests often have, too."""
    number = int(40 * chance.random() ** 3)
    return random.Random(number).randbytes(4 * (1 + 101 * number))


def assert_cache_is_counted(server, model, answered, headers=None):
    """Each answer was found or computed. What two requests compute at once is kept once, and one miss. Of 40 requests some
    are the same (cached_bytes()), and found; a busy machine answers fewer."""
    with Connection(server) as connection:
        (told,) = connection.request("GET", f"/v2/models/{model}/stats", headers=headers or {}).json()["model_stats"]
    hits, misses = (told["inference_stats"][name]["count"] for name in ("cache_hit", "cache_miss"))
    computed = told["inference_count"]
    assert hits + computed == answered, (hits, computed, answered)
    assert hits or answered < 40, (hits, answered)
    assert min(computed, 1) <= misses <= computed, (misses, computed)


def write_chain(root, name, models):
    """An ensemble whose steps are these models, one after the other."""
    tensors = ["INPUT0", *(f"t{i}" for i in range(1, len(models))), "OUTPUT0"]
    steps = "".join(
        f'step {{ model_name: "{model}" model_version: -1 input_map {{ key: "INPUT0" value: "{before}" }} '
        f'output_map {{ key: "OUTPUT0" value: "{behind}" }} }}\n'
        for model, before, behind in zip(models, tensors, tensors[1:], strict=False))
    repository.write_model(root, name, f"""name: "{name}"
platform: "ensemble"
input {{ name: "INPUT0" data_type: TYPE_FP32 dims: [ -1 ] }}
output {{ name: "OUTPUT0" data_type: TYPE_FP32 dims: [ -1 ] }}
ensemble_scheduling {{ {steps} }}
""")


# ---- Requests, each with its expected answer


class Question:
    """One request. check(response) fails unless it is the request's answer; model: whose statistics count it, or None."""

    def __init__(self, method, path, check, body=None, headers=None, model=None):
        self.method, self.path, self.body, self.headers = method, path, body, {**KEY, **(headers or {})}
        self.check, self.model = check, model

    def bytes(self, chance):
        """The bytes to send: the body is announced, or chunked."""
        if not self.body or chance.random() > 0.2:
            return request_bytes(self.method, self.path, self.body, self.headers)
        head = request_bytes(self.method, self.path, None, {**self.headers, "Transfer-Encoding": "chunked"})
        parts = [b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces(chance, self.body)]
        return head + b"".join(parts) + b"0\r\n\r\n"


def pieces(chance, data, most=5):
    """The same in some pieces, none of them empty."""
    cuts = sorted({chance.randrange(1, len(data)) for _ in range(chance.randrange(most))}) if len(data) > 1 else []
    return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]


def ok(response):
    assert response.status == 200, response


def infer_path(model, chance):
    return f"/v2/models/{model}{chance.choice(['', '/versions/1'])}/infer"


def ask_binary(chance, model, values, shape):
    """Values are sent and returned as bytes."""
    number = f"id-{chance.getrandbits(64)}"
    outputs = [{"name": "OUTPUT0", "parameters": {"binary_data": True}}]
    given = {"name": "INPUT0", "datatype": "FP32", "shape": shape, "parameters": {"binary_data_size": len(values)}}
    head = json.dumps({"id": number, "inputs": [given], "outputs": outputs}).encode()

    def check(response):
        ok(response)
        length = int(response.headers["inference-header-content-length"])
        told = json.loads(response.body[:length])
        assert (told["id"], told["outputs"][0]["shape"]) == (number, shape)
        got = response.body[length:]
        if got != values:    # without a diff of millions of bytes
            at = next((i for i, (a, b) in enumerate(zip(got, values, strict=False)) if a != b), min(len(got), len(values)))
            raise AssertionError(f"{model} {number}: {len(got)} bytes for {len(values)}, other ones from {at} on")

    return Question("POST", infer_path(model, chance), check, head + values, {"Inference-Header-Content-Length": len(head)}, model)


def ask_json(chance, model, datatype):
    n = chance.choice([1, 2, 30, 1000])
    if datatype == "BYTES":
        values = ["".join(chance.choices('ab"\\\n é\u20ac', k=chance.randrange(20))) for _ in range(n)]
    else:
        values = [chance.randrange(-(2**24), 2**24) for _ in range(n)]
    body = {"inputs": [{"name": "INPUT0", "datatype": datatype, "shape": [n], "data": values}]}
    if chance.random() < 0.5:
        body["id"] = f"json-{chance.getrandbits(64)}"

    def check(response):
        ok(response)
        told = response.json()
        assert (told.get("id"), told["outputs"][0]["data"]) == (body.get("id"), values)

    data, headers = json.dumps(body).encode(), {}
    if chance.random() < 0.3:
        data, headers = gzip.compress(data, 1), {"Content-Encoding": "gzip"}
    if chance.random() < 0.3:
        headers["Accept-Encoding"] = "gzip"
    return Question("POST", infer_path(model, chance), unpacked(check), data, headers, model)


def unpacked(check):
    """The check of a response that may be packed."""
    def check_it(response):
        if "content-encoding" in response.headers:
            assert response.headers["content-encoding"] == "gzip"
            response.body = gzip.decompress(response.body)
        check(response)

    return check_it


def ask_for_classes(chance):
    """Some of the greatest values, with their indices."""
    values = chance.sample(range(-(2**20), 2**20), chance.choice([3, 100, 1000]))
    n = chance.randrange(1, 9)
    best = sorted(range(len(values)), key=lambda i: -values[i])[:n]
    given = {"name": "INPUT0", "datatype": "FP32", "shape": [len(values)], "data": values}
    body = {"inputs": [given], "outputs": [{"name": "OUTPUT0", "parameters": {"classification": n}}]}
    model = chance.choice(["steady_inline", "steady_thread"])

    def check(response):
        ok(response)
        assert response.json()["outputs"][0]["data"] == [f"{values[i]:.6f}:{i}" for i in best]

    return Question("POST", infer_path(model, chance), check, json.dumps(body).encode(), model=model)


def change_a_setting(chance):
    """What a request changes is what the server answers with."""
    rate = str(chance.randrange(1, 40))
    what = chance.choice(["/v2/trace/setting", "/v2/models/steady_inline/trace/setting"])

    def check(response):
        ok(response)
        assert response.json()["trace_rate"] == rate

    return Question("POST", what, check, json.dumps({"trace_rate": rate}).encode())


def ask_to_generate(chance, model):
    """By a flat object, which may arrive as the only event of a stream."""
    values = [chance.randrange(-(2**24), 2**24) for _ in range(chance.choice([1, 3, 500]))]
    streams = chance.random() < 0.5

    def check(response):
        ok(response)
        text = response.body.decode()
        told = json.loads(text.removeprefix("data: ").removesuffix("\n\n") if streams else text)
        assert told["OUTPUT0"] == (values if len(values) > 1 else values[0])

    kind = "generate_stream" if streams else "generate"
    return Question("POST", f"/v2/models/{model}/{kind}", check, json.dumps({"INPUT0": values}).encode(), model=model)


def ask_for_events(chance):
    values = [chance.randrange(2**31) for _ in range(chance.choice([0, 1, 30, 300]))]
    body = {"IN": values, "DELAY": [0] * len(values), "WAIT": 0}

    def check(response):
        ok(response)
        events = [json.loads(event.removeprefix("data: ")) for event in response.body.decode().split("\n\n") if event]
        assert [event["OUT"] for event in events] == values

    return Question("POST", f"/v2/models/{EVENTS}/generate_stream", check, json.dumps(body).encode())


def ask_a_model(chance, models):
    model = chance.choice(models)
    if model == "steady_text":
        return ask_json(chance, model, "BYTES")
    if model in BATCHED:
        rows = chance.randrange(1, 9)
        return ask_binary(chance, model, chance.randbytes(16 * rows), [rows, 4])
    if model.endswith("cached"):
        values = cached_bytes(chance)
        return ask_binary(chance, model, values, [len(values) // 4])
    if chance.random() < 0.3:
        return chance.choice([ask_json, lambda *of: ask_to_generate(*of[:2])])(chance, model, "FP32")
    n = chance.choice([1, 16, 1000]) if chance.random() < 0.9 else chance.randrange(LARGE // 4, LARGE)
    return ask_binary(chance, model, chance.randbytes(4 * n), [n])


def ask_for_nobody(chance):
    """A question whose answer no other client gets."""
    name = f"nobody-{chance.getrandbits(64)}"

    def check(response):
        assert (response.status, response.error) == (404, f"Request for unknown model: '{name}' is not found")

    return Question("POST", f"/v2/models/{name}/infer", check, b'{"inputs":[]}')


def ask_wrongly(chance):
    n, claimed = chance.randrange(1, 5), chance.randrange(6, 9)
    body = {"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [n, claimed], "data": [0] * (n * claimed)}]}

    def check(response):
        assert response.status == 400, response
        assert f"Expected [-1], got [{n},{claimed}]." in response.error

    return Question("POST", "/v2/models/steady_inline/infer", check, json.dumps(body).encode())


def ask_how_it_is(chance):
    path = chance.choice(["/v2/health/live", "/v2/health/ready", "/v2", "/v2/models/steady_inline", "/v2/models/fickle_slow/ready",
                          "/v2/models/steady_batch/config", "/v2/models/stats", "/v2/models/spoilt/stats", "/v2/logging"])
    return Question("GET", path, ok)


def ask_for_counts(chance, answered):
    """Earlier answers are counted, but for those of an ensemble, which are counted after they have left."""
    model = chance.choice([model for model in STEADY if model != "steady_ensemble"])
    before = answered[model]

    def check(response):
        ok(response)
        (told,) = response.json()["model_stats"]
        assert told["inference_stats"]["success"]["count"] >= before, model

    return Question("GET", f"/v2/models/{model}/stats", check)


def ask_some(chance, answered):
    """Questions of all kinds, mostly to models. answered: the least number of answers of each."""
    others = [ask_for_nobody, ask_for_events, ask_for_classes, ask_wrongly, ask_how_it_is, change_a_setting, lambda chance: ask_for_counts(chance, answered)]
    return [ask_a_model(chance, STEADY + FICKLE) if chance.random() < 0.7 else chance.choice(others)(chance)
            for _ in range(chance.choice([1, 1, 3, 8]))]


# ---- Clients


class Run:
    """The state that the clients share."""

    def __init__(self, server, seed, models=None):
        self.server, self.seed = server, seed    # of the server: address and port
        self.models = models    # their folder, if clients change it
        self.started_ns = time.time_ns()
        self.over = False        # no new connections
        self.stopping = False    # the server may close connections between answers
        self.answered = collections.Counter()    # by model
        self.left = collections.Counter()        # asked by clients that left before the answer
        self.reached = collections.Counter()     # by kind of endpoint: platform_clients.NAMES
        self.loads = collections.Counter()       # of CHECKED: "True" with right files, "False" with wrong ones
        self.failures = []
        self.loading = {model: threading.Lock() for model in CHECKED}    # held by the client that loads it
        self.n_writes = itertools.count(1)
        self._adding = threading.Lock()

    def add(self, counter, model):
        if model:
            with self._adding:
                counter[model] += 1


def receive(run, connection, question):
    response = connection.response()
    question.check(response)
    run.add(run.answered, question.model)


def expect_nothing_more(run, chance, connection):
    last = ask_for_nobody(chance)
    connection.send(last.bytes(chance))
    receive(run, connection, last)


def one_by_one(run, chance, connection):
    for question in ask_some(chance, run.answered):
        for piece in pieces(chance, question.bytes(chance)):
            connection.send(piece)
        receive(run, connection, question)
    expect_nothing_more(run, chance, connection)


def hang_up(connection, how):
    try:
        connection.socket.shutdown(how)
    except OSError:    # the other side was faster
        pass


@contextlib.contextmanager
def sending(connection, data):
    """Sends on another thread, since the server may not read the last question before its first answer is read."""
    sender = threading.Thread(target=send_all, args=(connection, data))
    sender.start()
    try:
        yield
    except BaseException:
        hang_up(connection, socket.SHUT_RDWR)    # otherwise it waits for a server that waits for us to read
        raise
    finally:
        sender.join()


def all_at_once(run, chance, connection):
    """Answers arrive in the order of the questions."""
    questions = ask_some(chance, run.answered)
    with sending(connection, pieces(chance, b"".join(question.bytes(chance) for question in questions))):
        for question in questions:
            receive(run, connection, question)
    expect_nothing_more(run, chance, connection)


def send_all(connection, data):
    try:
        for piece in data:
            connection.send(piece)
    except OSError:    # the reading side reports the error
        pass


def lazily(run, chance, connection):
    """Asks for more than the kernels hold, and reads it after other questions: the server waits for room."""
    connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 17)
    questions = [ask_binary(chance, chance.choice(["steady_inline", "steady_thread"]), chance.randbytes(4 * LARGE), [LARGE]) for _ in range(3)]
    with sending(connection, [question.bytes(chance) for question in questions]):
        with Connection(run.server, timeout_s=300) as other:
            one_by_one(run, chance, other)
        for question in questions:
            receive(run, connection, question)
    expect_nothing_more(run, chance, connection)


def leave(run, chance, connection):
    """Leaves before all answers have arrived, by a reset or an orderly close; the answers that it waits for are right."""
    questions = [ask_a_model(chance, FICKLE) for _ in range(chance.randrange(1, 6))]
    data = b"".join(question.bytes(chance) for question in questions)
    for question in questions:
        run.add(run.left, question.model)
    waits = chance.randrange(len(questions))
    if chance.random() < 0.3 and not waits:
        data = data[: chance.randrange(len(data))]
    sender = threading.Thread(target=send_all, args=(connection, [data]))
    sender.start()
    try:
        for question in questions[:waits]:
            question.check(connection.response())
        if not waits and chance.random() < 0.5:
            sender.join(0.2)    # all is sent, or as much as the server reads while no answers are read
        if chance.random() < 0.5:
            connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    finally:
        hang_up(connection, socket.SHUT_RDWR)    # the other thread may be sending
        connection.socket.close()
        sender.join()


def by_regions(run, chance, connection):
    """Tensors lie in a region of the client's own, which loses its name while a request that uses it may be in flight."""
    n, model = chance.choice([16, 1000, LARGE // 8]), chance.choice(["steady_inline", "steady_thread", "steady_ensemble"])
    name, values = f"region_{chance.getrandbits(64)}", chance.randbytes(4 * n)
    size = len(values)
    where = f"/v2/systemsharedmemory/region/{name}"
    given = {"name": "INPUT0", "datatype": "FP32", "shape": [n], "parameters": regions.part(name, size)}
    wanted = {"name": "OUTPUT0", "parameters": regions.part(name, size, size)}
    body = json.dumps({"inputs": [given], "outputs": [wanted]}).encode()
    with regions.Object(2 * size) as made:
        made.write(values)
        register = {"key": made.key, "offset": 0, "byte_size": 2 * size}
        steps = [Question("POST", f"{where}/register", ok, json.dumps(register).encode()),
                 Question("POST", f"/v2/models/{model}/infer", ok, body, model=model),
                 Question("POST", f"{where}/unregister", ok)]
        connection.send(steps[0].bytes(chance))
        receive(run, connection, steps[0])
        at_once = chance.random() < 0.5
        if at_once:
            connection.send(b"".join(step.bytes(chance) for step in steps[1:]))
        for step in steps[1:]:
            if not at_once:
                connection.send(step.bytes(chance))
            receive(run, connection, step)
        assert made.read(size, size) == values, f"{model}: other values in {name}"
    expect_nothing_more(run, chance, connection)


def change_weights(run, model, weights):
    """With a time of its own, which says that the file has changed."""
    path = run.models / model / "1/weights"
    path.write_bytes(weights)
    os.utime(path, ns=(run.started_ns, run.started_ns + next(run.n_writes) * 10**9))


def manage(run, connection, model, what):
    """Status and error of a load or an unload."""
    connection.send(request_bytes("POST", f"/v2/repository/models/{model}/{what}", b"{}", KEY))
    response = connection.response()
    return response.status, "" if response.status == 200 else response.error


def load_checked(run, chance, connection, model):
    """Loads the model with the file that its agent wants, or with another one: then the load fails, and what was loaded serves on."""
    is_right = chance.random() < 0.6
    change_weights(run, model, WEIGHTS if is_right else chance.randbytes(10))
    status, error = manage(run, connection, model, "load")
    if run.stopping and status != 200:
        return False
    if is_right:
        assert status == 200, error
    else:
        assert status != 200 and "Mismatched SHA256 hash for file 1/weights" in error, (status, error)
    run.add(run.loads, str(is_right))
    return is_right


def ask_checked(chance, model, is_loaded):
    """is_loaded: whether it surely is; else another client may be loading or unloading it."""
    question = ask_binary(chance, model, chance.randbytes(64), [16])
    check = question.check

    def check_it(response):
        if is_loaded or response.status == 200:
            check(response)
        else:
            assert response.status in (400, 404, 503) and f"'{model}'" in response.error, response

    question.check = check_it
    return question


def reload_checked(run, chance, connection):
    """Loads and unloads a model while others ask it; only one client at a time does so, and the others ask."""
    model = chance.choice(CHECKED)
    if not run.loading[model].acquire(blocking=False):
        for _ in range(chance.randrange(1, 20)):
            question = ask_checked(chance, model, is_loaded=False)
            connection.send(question.bytes(chance))
            receive(run, connection, question)
        return
    try:
        is_loaded = False
        assert manage(run, connection, model, "unload")[0] == 200 or run.stopping
        for _ in range(chance.randrange(1, 4)):
            is_loaded |= load_checked(run, chance, connection, model)
            if is_loaded:
                question = ask_checked(chance, model, is_loaded=not run.stopping)
                connection.send(question.bytes(chance))
                receive(run, connection, question)
    finally:
        run.loading[model].release()
    expect_nothing_more(run, chance, connection)


def talk_rubbish(run, chance, connection):
    """Sends random bytes, or a request with some bytes changed. In any case the connection ends, after whole answers."""
    n = chance.choice([1, 16, 1000])
    data = bytearray(ask_binary(chance, SPOILT, chance.randbytes(4 * n), [n]).bytes(chance))
    if chance.random() < 0.3:
        data = bytearray(chance.randbytes(chance.randrange(1, 3000)))
    for _ in range(chance.randrange(1, 5)):
        at = chance.randrange(len(data) + 1)
        data[at : at + chance.randrange(3)] = chance.choice([b"", b"\0", b"\r\n", b" ", chance.randbytes(2), b"9"])
    send_all(connection, [bytes(data)])
    hang_up(connection, socket.SHUT_WR)
    try:
        while True:
            response = connection.response()
            assert response.status in (200, 400, 403, 404, 405, 408, 411, 413, 414, 417, 431, 500, 501, 505), response
    except ConnectionError:
        pass
    except EOFError as end:
        assert "closed after b''" in str(end), f"half an answer: {end}"


KINDS = [one_by_one] * 4 + [all_at_once] * 4 + [leave] * 3 + [talk_rubbish] * 2 + [lazily]


def closed_in_good_order(error):
    """Between two answers, as it may happen while the server stops."""
    return isinstance(error, ConnectionError) or "closed after b''" in str(error)


def be_a_client(run, number, kinds=KINDS):
    """Makes one connection after the other, until the run is over or a client fails."""
    chance = random.Random(f"{run.seed} {number}")
    while not run.over and not run.failures:
        kind = chance.choice(kinds)
        try:
            with Connection(run.server, timeout_s=300) as connection:
                kind(run, chance, connection)
        except Exception as error:    # noqa: BLE001 - any error is reported, with the client that had it
            if run.stopping and isinstance(error, (OSError, EOFError)) and closed_in_good_order(error):
                return
            run.failures.append(f"client {number}, {kind.__name__}:\n{traceback.format_exc()}")


# ---- The server's counts


def statistics(server, model):
    with Connection(server) as connection:
        (told,) = connection.request("GET", f"/v2/models/{model}/stats", headers=KEY).json()["model_stats"]
    return told["inference_stats"]["success"]["count"], told["inference_stats"]["fail"]["count"]


def assert_all_is_counted(run):
    assert_cache_is_counted(run.server, "steady_cached", run.answered["steady_cached"], KEY)
    for model in STEADY:
        servers.wait_equal(lambda model=model: statistics(run.server, model), (run.answered[model], 0), model)
    for model in FICKLE:
        servers.wait_for(lambda model=model: run.answered[model] <= statistics(run.server, model)[0], 60, model)
        assert statistics(run.server, model)[0] <= run.answered[model] + run.left[model], model
