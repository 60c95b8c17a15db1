# SPDX-License-Identifier: Apache-2.0
"""The page of metrics, read by Prometheus' own parser. After the same requests it is that of the genuine Triton."""

import concurrent.futures
import json
import os
import re
import signal
import threading
import urllib.error
import urllib.request

import pytest
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

import repository
import server as servers
import triton
from wire import Connection, ask, request_bytes

FLAGS = ["--allow-metrics=true", "--metrics-port=0"]
REASONS = ["REJECTED", "CANCELED", "BACKEND", "OTHER"]
HOSTILE = 'a"b\\c\nd{}=,# \u00fc'
PER_MODEL = [
    "nv_inference_request_success", "nv_inference_request_failure", "nv_inference_count", "nv_inference_exec_count",
    "nv_inference_request_duration_us", "nv_inference_queue_duration_us", "nv_inference_compute_input_duration_us",
    "nv_inference_compute_infer_duration_us", "nv_inference_compute_output_duration_us", "nv_inference_pending_request_count",
    *([] if servers.REFERENCE else ["conch_pending_request_oldest_secs", "conch_executing_request_count", "conch_executing_request_oldest_secs",
                                    "conch_inference_request_refused", "conch_request_duration_seconds",
                                    "conch_queue_duration_seconds", "conch_compute_duration_seconds", "conch_batch_size"]),
    "nv_model_load_duration_secs",
]  # fmt: skip
MACHINE = ["nv_pinned_memory_pool_total_bytes", "nv_pinned_memory_pool_used_bytes",
           "nv_cpu_utilization", "nv_cpu_memory_total_bytes", "nv_cpu_memory_used_bytes"]
CONNECTIONS = ["conch_connection_memory_budget_bytes", "conch_connection_memory_used_bytes",
               "conch_connection_memory_refusals", "conch_connection_memory_evictions", "conch_build_info",
               "process_cpu_seconds_total", "process_resident_memory_bytes", "process_virtual_memory_bytes",
               "process_start_time_seconds", "process_threads", "process_open_fds", "process_max_fds",
               "conch_frontend_connections", "conch_frontend_connections_begun", "conch_frontend_requests",
               "conch_frontend_requests_cancelled", "conch_frontend_requests_expired", "conch_frontend_received_bytes",
               "conch_frontend_sent_bytes", "conch_frontend_stalled", "conch_frontend_refused",
               "conch_frontend_longest_turn_seconds"]    # ours
HISTOGRAM = "nv_inference_first_response_histogram_ms"


class Page:
    """The metrics of a server at this moment."""

    def __init__(self, text):
        self.text = text
        self.heads = re.findall(r"^# (?:HELP|TYPE) .*$", text, re.M)
        self.families = re.findall(r"^# TYPE (\S+)", text, re.M)
        self.values = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                # The parser writes counters as newer formats want them.
                name = sample.name.removesuffix("_total") if family.type == "counter" else sample.name
                key = (name, *sorted(sample.labels.items()))
                assert key not in self.values, key
                self.values[key] = sample.value

    def value(self, name, **labels):
        return self.values[(name, *sorted(labels.items()))]

    def of(self, name, model, version="1", **labels):
        return self.value(name, model=model, version=version, **labels)

    def sum(self, name):
        return sum(value for key, value in self.values.items() if key[0] == name)

    def failures(self, model):
        return [self.of("nv_inference_request_failure", model, reason=reason) for reason in REASONS]


def metrics_port(server):
    found = servers.wait_for(lambda: re.search(r"Started Metrics Service at \S*:(\d+)", server.log()), 60, "the port is open")
    return int(found[1])


def connects(port):
    with servers.socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def read(server, path="/metrics", method="GET", data=None, address="127.0.0.1"):
    request = urllib.request.Request(f"http://{address}:{metrics_port(server)}{path}", data, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as answer:
        return answer.code, answer.headers, answer.read()


def scrape(server):
    status, headers, body = read(server)
    assert (status, headers["Content-Type"]) == (200, "text/plain; charset=utf-8")
    return Page(body.decode())


def quoted(text):
    return json.dumps(text, ensure_ascii=False)  # escapes as in config.pbtxt


def write_meter(root, name, say="", more=""):
    """Writes a model of tests/plugins/meter: with metrics of its own, and failing on request."""
    config = f'name: "{name}"\nbackend: "meter"\nmax_batch_size: 8\n'
    config += repository.tensor("input", "IN", "INT32", [-1]) + repository.tensor("output", "OUT", "INT32", [-1])
    config += "instance_group [ { count: 1 kind: KIND_CPU } ]\n" + more
    if say:
        config += f'parameters {{ key: "say" value {{ string_value: {quoted(say)} }} }}\n'
    folder = repository.write_model(root, name, config)
    library = folder / "libtriton_meter.so"
    library.write_bytes((servers.BUILD / "tests/backends/meter/libtriton_meter.so").read_bytes())


def body(rows, do=None):
    parameters = {"parameters": {"do": do}} if do else {}
    return {**parameters, "inputs": [{"name": "IN", "datatype": "INT32", "shape": [rows, 2], "data": [0] * 2 * rows}]}


def infer(server, model, rows=1, do=None):
    return ask(server, "POST", f"/v2/models/{model}/infer", body(rows, do)).status


def write_models(root):
    repository.write_identity(root, "never_asked", [("FP32", [-1])], versions=(1, 3))
    write_meter(root, "plain")
    tags = "".join(f"metric_tags {{ key: {quoted(k)} value: {quoted(v)} }}\n"
                   for k, v in (("team", HOSTILE), ("Zone", ""), ("1st", "x")))
    write_meter(root, "tagged", HOSTILE, tags)


def ask_around(server):
    for rows in (1, 4, 8):
        assert infer(server, "plain", rows) == 200
    assert infer(server, "plain", 9) == 400  # refused before it is a request: not counted
    assert infer(server, "tagged", 2) == 200
    for _ in range(2):
        assert infer(server, "tagged", 1, "fail") == 500
    assert infer(server, "tagged", 1, "error") == 500


def start(which, root):
    if which == "conch":
        return servers.Server(root, flags=FLAGS)
    if triton.missing():
        pytest.skip(triton.missing())
    return triton.Triton(root)


# Lines that depend on the clock, the machine or the release of Triton.
MOVING = ("conch_", "process_", "_duration_us", "nv_cpu_", "nv_pinned_memory_pool_total_bytes", "nv_model_load_duration_secs")


def test_the_page_is_that_of_triton(tmp_path):
    pages = {}
    write_models(tmp_path)
    for which in ("conch", "triton"):
        with start(which, tmp_path) as server:
            # Triton logs that its port is open a moment before it is.
            servers.wait_for(lambda port=metrics_port(server): connects(port), 60, "somebody listens")
            ask_around(server)
            # Triton counts a failure after its reply has left.
            servers.wait_for(lambda of=server: scrape(of).sum("nv_inference_request_failure") == 3, 60, "failures are counted")
            pages[which] = scrape(server)
    ours, theirs = pages["conch"], pages["triton"]
    newer = {line for line in ours.heads if " nv_model_load_duration_secs " in line or " conch_" in line
             or " process_" in line}
    ours_alone = [name for name in (*PER_MODEL, *CONNECTIONS) if name.startswith(("conch_", "process_"))]
    assert len(newer) == 2 + 2 * len(ours_alone)
    assert sorted(set(ours.heads) - newer) == sorted(theirs.heads)
    # Our own families are in the same order; Triton's own are among those of backends.
    assert [name for name in ours.families if name in set(theirs.families) and name.startswith("nv_")] == \
           [name for name in theirs.families if name.startswith("nv_")]
    fixed = {which: {key: value for key, value in page.values.items() if not any(word in key[0] for word in MOVING)}
             for which, page in pages.items()}
    assert fixed["conch"] == fixed["triton"]
    only_ours = ("load_duration", "conch_", "process_")
    assert {key for key in ours.values if not any(word in key[0] for word in only_ours)} == set(theirs.values)
    # Each line up to its value, with the order of labels and the escapes.
    def heads_of_lines(page):
        return sorted(line.rsplit(" ", 1)[0] for line in page.text.split("\n")
                      if line and line[0] != "#" and not any(word in line for word in only_ours))

    assert heads_of_lines(ours) == heads_of_lines(theirs)


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    root = tmp_path_factory.mktemp("asked")
    write_models(root)
    with servers.Server(root, flags=[*FLAGS, "--metrics-config=histogram_latencies=true"]) as server:
        ask_around(server)
        yield server


def test_the_page_has_these_families_and_no_others(asked):
    page = scrape(asked)
    assert page.families == [*PER_MODEL, *MACHINE, HISTOGRAM, *CONNECTIONS, "meter_last", "meter_requests", "meter_sizes"]
    assert len(page.heads) == 2 * len(page.families)


def test_counters_count_the_requests(asked):
    page = scrape(asked)
    tags = {"_team": HOSTILE, "_Zone": "", "_1st": "x"}
    assert page.of("nv_inference_request_success", "plain") == 3
    assert page.of("nv_inference_count", "plain") == 13
    assert page.of("nv_inference_exec_count", "plain") == 3
    assert page.failures("plain") == [0, 0, 0, 0]
    assert page.of("nv_inference_request_success", "tagged", **tags) == 1
    assert page.of("nv_inference_request_failure", "tagged", reason="BACKEND", **tags) == 3
    assert page.of("nv_inference_request_success", "never_asked", "3") == 0


def test_failures_and_statistics_agree(asked):
    """Failed and successful requests are all that were accepted, in both servers. Times are those of the statistics."""
    page = scrape(asked)
    for one in ask(asked, "GET", "/v2/models/stats").json()["model_stats"]:
        labels = {"model": one["name"], "version": one["version"]}
        mine = {key[0]: value for key, value in page.values.items() if labels.items() <= set(key[1:]) and "reason" not in dict(key[1:])}
        moments = one["inference_stats"]
        failed = sum(value for key, value in page.values.items()
                     if key[0] == "nv_inference_request_failure" and labels.items() <= set(key[1:]))
        assert failed == moments["fail"]["count"]
        assert mine["nv_inference_request_success"] == moments["success"]["count"]
        assert mine["nv_inference_request_duration_us"] == moments["success"]["ns"] // 1000
        for moment in ("queue", "compute_input", "compute_infer", "compute_output"):
            assert mine[f"nv_inference_{moment}_duration_us"] == moments[moment]["ns"] // 1000
        assert mine[f"{HISTOGRAM}_count"] == failed + moments["success"]["count"]


# What the page of Conch alone has.
OURS = ["conch_request_duration_seconds", "conch_queue_duration_seconds", "conch_compute_duration_seconds"]


def buckets(page, name, model):
    """The upper bounds of a histogram and the counts up to each."""
    labels = {("model", model), ("version", "1")}
    return {float(dict(key[1:])["le"]): value for key, value in page.values.items() if key[0] == f"{name}_bucket" and labels <= set(key[1:])}


def test_times_are_counted_in_buckets(asked):
    """Each successful request is in one bucket of each time, and the sums are those of the statistics."""
    page = scrape(asked)
    moments = ask(asked, "GET", "/v2/models/plain/stats").json()["model_stats"][0]["inference_stats"]
    sums_ns = [moments["success"]["ns"], moments["queue"]["ns"],
               sum(moments[f"compute_{part}"]["ns"] for part in ("input", "infer", "output"))]
    for name, sum_ns in zip(OURS, sums_ns, strict=True):
        counts = buckets(page, name, "plain")
        assert list(counts) == sorted(counts) and (min(counts), max(counts)) == (1e-05, float("inf"))
        assert list(counts.values()) == sorted(counts.values())
        assert counts[float("inf")] == page.of(f"{name}_count", "plain") == moments["success"]["count"] == 3
        assert page.of(f"{name}_sum", "plain") == pytest.approx(sum_ns / 1e9)
        # The request in the highest bucket took longer than its lower bound.
        least_s = max([0, *(le for le, n in counts.items() if n < 3)])
        assert sum_ns / 1e9 >= least_s
    assert not buckets(page, OURS[0], "never_asked")    # a model without requests has no lines


def test_batch_sizes_are_counted_in_buckets(models):
    repository.write_identity(models, "rows", [("INT32", [1])], max_batch_size=1500)
    with servers.Server(models, flags=FLAGS) as server:
        for n in (1, 4, 5, 8, 1024, 1500):
            data = {"inputs": [{"name": "INPUT0", "datatype": "INT32", "shape": [n, 1], "data": [0] * n}]}
            assert ask(server, "POST", "/v2/models/rows/infer", data).status == 200
        page = scrape(server)
    counts = buckets(page, "conch_batch_size", "rows")
    assert [counts[le] for le in (1, 2, 4, 8, 16, 512, 1024, float("inf"))] == [1, 1, 2, 4, 4, 4, 5, 6]
    assert (page.of("conch_batch_size_count", "rows"), page.of("conch_batch_size_sum", "rows")) == (6, 2542)


def test_histograms_can_be_switched_off(models):
    write_meter(models, "plain")
    with servers.Server(models, flags=[*FLAGS, "--metrics-histograms=false"]) as server:
        assert infer(server, "plain") == 200
        page = scrape(server)
        assert page.of("nv_inference_request_success", "plain") == 1
        assert not [family for family in page.families if family in (*OURS, "conch_batch_size")]


def test_refusals_have_a_reason(models):
    """A request that does not fit, and one that finds the queue full. Neither is a failure."""
    gated = repository.Gated(models, "gated", more="max_batch_size: 1\ndynamic_batching { default_queue_policy { max_queue_size: 1 } }\n")
    gated.shut("hold.execute")
    data = {"inputs": [{"name": "IN", "datatype": "INT32", "shape": [1, 1], "data": [7]}]}
    with servers.Server(models, flags=FLAGS) as server, concurrent.futures.ThreadPoolExecutor() as pool:
        def refusals():
            page = scrape(server)
            return [page.of("conch_inference_request_refused", "gated", reason=reason)
                    for reason in ("invalid", "queue_full", "stopping", "other")]

        assert ask(server, "POST", "/v2/models/gated/infer", {"inputs": [{**data["inputs"][0], "name": "X"}]}).status == 400
        assert refusals() == [1, 0, 0, 0]
        first = pool.submit(ask, server, "POST", "/v2/models/gated/infer", data)
        gated.await_reached("hold.execute")
        second = pool.submit(ask, server, "POST", "/v2/models/gated/infer", data)
        servers.wait_for(lambda: scrape(server).of("nv_inference_pending_request_count", "gated") == 1, 60, "one waits")
        assert ask(server, "POST", "/v2/models/gated/infer", data).status == 503
        assert refusals() == [1, 1, 0, 0]
        gated.open("hold.execute")
        assert (first.result(60).status, second.result(60).status) == (200, 200)
        assert scrape(server).failures("gated") == [0, 0, 0, 0]


def test_the_process_is_described(asked):
    proc = f"/proc/{asked.process.pid}"

    def look_between_changes():
        page = scrape(asked)
        status = dict(re.findall(r"^(\w+):\s+(\d+)", open(f"{proc}/status", encoding="ascii").read(), re.M))
        return page.value("process_threads") == int(status["Threads"]) and (page, status)

    page, status = servers.wait_for(look_between_changes, 60, "as many threads, although some end meanwhile")
    assert 0 < page.value("process_resident_memory_bytes") < page.value("process_virtual_memory_bytes")
    assert page.value("process_resident_memory_bytes") == pytest.approx(int(status["VmRSS"]) * 1024, rel=0.2)
    assert abs(page.value("process_open_fds") - len(os.listdir(f"{proc}/fd"))) <= 8    # connections come and go
    assert page.value("process_max_fds") >= page.value("process_open_fds")
    assert abs(page.value("process_start_time_seconds") - os.stat(proc).st_mtime) < 60
    before = page.value("process_cpu_seconds")
    assert 0 < before <= scrape(asked).value("process_cpu_seconds")
    version = page.text.split("conch_build_info{version=\"")[1].split('"')[0]
    assert page.value("conch_build_info", version=version) == 1
    assert ask(asked, "GET", "/v2").json()["version"].endswith(version)


# What Prometheus sends.
ACCEPT = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"


def test_openmetrics_is_given_when_it_is_asked_for(asked):
    """It has the same metrics under the same names: those of Triton, whose counters lack `_total`, have no type."""
    request = urllib.request.Request(f"http://127.0.0.1:{metrics_port(asked)}/metrics", headers={"Accept": ACCEPT})
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert answer.headers["Content-Type"] == "application/openmetrics-text; version=1.0.0; charset=utf-8"
        text = answer.read().decode()
    page = scrape(asked)
    assert text.endswith("\n# EOF\n")

    def keys(lines):
        return [line.rsplit(" ", 1)[0] for line in lines.splitlines() if not line.startswith("#")]

    frontend = "conch_frontend_"    # a scrape is counted itself
    assert [key for key in keys(text) if not key.startswith(frontend)] == [key for key in keys(page.text) if not key.startswith(frontend)]
    # This parser wants a bound of 1 written as 1.0, which Prometheus does not.
    strict = re.sub(r'le="(\d+)"', r'le="\1.0"', text)
    kinds = {family.name: family.type for family in openmetrics.text_string_to_metric_families(strict)}
    assert kinds["nv_inference_request_success"] == "unknown"
    assert (kinds["process_cpu_seconds"], kinds["process_open_fds"]) == ("counter", "gauge")
    assert (kinds[HISTOGRAM], kinds["conch_batch_size"]) == ("histogram", "histogram")
    assert "# TYPE process_cpu_seconds counter\nprocess_cpu_seconds_total " in text


def test_hostile_labels_are_escaped(asked):
    page = scrape(asked)
    assert page.value("meter_requests", model="tagged", say=HOSTILE) == 3  # the execution that failed as a whole is not counted
    assert page.value("meter_requests", model="plain", say="") == 3
    assert page.value("meter_last", model="plain", say="") == 8
    assert [page.value("meter_sizes_bucket", model="plain", say="", le=le) for le in ("1", "4", "+Inf")] == [1, 2, 3]
    assert (page.value("meter_sizes_count", model="plain", say=""), page.value("meter_sizes_sum", model="plain", say="")) == (3, 13)


def test_the_page_has_cpu_and_memory_of_the_machine(asked):
    page = scrape(asked)
    memory = dict(re.findall(r"^(\w+): +(\d+) kB", open("/proc/meminfo", encoding="ascii").read(), re.M))
    assert page.value("nv_cpu_memory_total_bytes") == int(memory["MemTotal"]) * 1024
    assert 0 < page.value("nv_cpu_memory_used_bytes") < page.value("nv_cpu_memory_total_bytes")
    assert 0 <= page.value("nv_cpu_utilization") <= 1
    assert (page.value("nv_pinned_memory_pool_total_bytes"), page.value("nv_pinned_memory_pool_used_bytes")) == (0, 0)
    assert 0 < page.of("nv_model_load_duration_secs", "plain") < 60


def test_only_get_metrics_is_served(asked):
    page = read(asked)[2]
    assert read(asked, "/metrics/")[2].split(b"\n")[0] == page.split(b"\n")[0]
    assert read(asked, "/metrics?x=1")[0] == 200
    for path in ("/", "/metricsx", "/Metrics", "/v2/health/live"):
        status, headers, text = read(asked, path)
        assert (status, headers["Content-Type"], text) == (200, "text/plain; charset=utf-8", b"")
    for method, path in (("POST", "/metrics"), ("PUT", "/"), ("DELETE", "/metrics"), ("HEAD", "/metrics")):
        status, headers, text = read(asked, path, method, b"x" * 100000 if method == "POST" else None)
        assert (status, headers["Content-Type"]) == (405, "text/plain")
        assert text == (b"" if method == "HEAD" else b'{"error":"Method Not Allowed"}')


def test_a_connection_may_scrape_several_times(asked):
    class Here:
        address, port = "127.0.0.1", metrics_port(asked)

    with Connection(Here) as connection:
        for _ in range(3):
            connection.send(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * 2)
            for _ in range(2):
                assert Page(connection.response().body.decode()).of("nv_inference_count", "plain") == 13


def test_waiting_and_cancelled_requests_are_counted(models):
    gated = repository.Gated(models, "gated").shut("hold.execute")
    data = json.dumps({"inputs": [{"name": "IN", "datatype": "INT32", "shape": [1], "data": [7]}]}).encode()
    head = f"POST /v2/models/gated/infer HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\n\r\n".encode()

    with servers.Server(models, flags=FLAGS) as server:
        def pending():
            return scrape(server).of("nv_inference_pending_request_count", "gated")

        connections = [Connection(server) for _ in range(4)]
        connections[0].send(head + data)
        gated.await_reached("hold.execute")
        for connection in connections[1:]:
            connection.send(head + data)
        servers.wait_for(lambda: pending() == 3, 60, "three wait")
        connections[2].socket.close()
        servers.wait_for(lambda: scrape(server).failures("gated") == [0, 1, 0, 0], 60, "it is counted as cancelled")
        assert pending() == 2
        if not servers.REFERENCE:
            assert scrape(server).of("conch_executing_request_count", "gated") == 1
            age_s = scrape(server).of("conch_executing_request_oldest_secs", "gated")
            assert 0 < age_s < scrape(server).of("conch_executing_request_oldest_secs", "gated") < 600
        gated.open("hold.execute")
        for i in (0, 1, 3):
            assert connections[i].response().status == 200
        assert pending() == 0
        if not servers.REFERENCE:
            servers.wait_for(lambda: scrape(server).of("conch_executing_request_count", "gated") == 0, 60, "the backend is idle")
            assert scrape(server).of("conch_executing_request_oldest_secs", "gated") == 0


DYNAMIC = "max_batch_size: 1\ndynamic_batching { priority_levels: 2 default_priority_level: 2 }\n"
SEQUENCES = "max_batch_size: 1\nsequence_batching { max_sequence_idle_microseconds: 600000000 direct { } }\n"


@pytest.mark.conch_only("a metric of ours")
@pytest.mark.parametrize("more, parameters", [
    ("", [{}, {}, {}]), (DYNAMIC, [{}, {}, {"priority": 1}]),
    (SEQUENCES, [{"sequence_id": 1, "sequence_start": True}, {"sequence_id": 1, "sequence_end": True}, {"sequence_id": 2, "sequence_start": True}]),
    (SEQUENCES, [{"sequence_id": 1, "sequence_start": True}, {"sequence_id": 2, "sequence_start": True}, {"sequence_id": 1, "sequence_end": True}]),
], ids=["default", "dynamic", "slot", "backlog"])
def test_the_oldest_request_that_waits_has_an_age(models, more, parameters):
    """The second request waits longest, whatever is to be executed next."""
    gated = repository.Gated(models, "gated", more=more).shut("hold.execute")
    shape = [1, 1] if more else [1]
    with servers.Server(models, flags=FLAGS) as server, concurrent.futures.ThreadPoolExecutor() as pool:
        def start(i):
            data = {"inputs": [{"name": "IN", "datatype": "INT32", "shape": shape, "data": [7]}], "parameters": parameters[i]}
            return pool.submit(ask, server, "POST", "/v2/models/gated/infer", data)

        def age_s():
            return scrape(server).of("conch_pending_request_oldest_secs", "gated")

        def await_pending(n):
            servers.wait_for(lambda: scrape(server).of("nv_inference_pending_request_count", "gated") == n, 60, f"{n} wait")

        assert age_s() == 0
        started = [start(0)]
        gated.await_reached("hold.execute")
        assert age_s() == 0
        started.append(start(1))
        await_pending(1)
        first_s = age_s()
        servers.wait_for(lambda: age_s() > first_s + 0.1, 60, "it grows older")
        started.append(start(2))
        await_pending(2)
        assert age_s() > first_s + 0.1    # it is that of the second
        gated.open("hold.execute")
        assert [one.result(60).status for one in started] == [200] * 3
        assert age_s() == 0


def test_expired_requests_count_as_rejected(models):
    policy = ("dynamic_batching { default_queue_policy { timeout_action: REJECT default_timeout_microseconds: 60000000 "
              "allow_timeout_override: true } }\n")
    gated = repository.Gated(models, "gated", more="max_batch_size: 1\n" + policy).shut("hold.execute")
    data = {"inputs": [{"name": "IN", "datatype": "INT32", "shape": [1, 1], "data": [7]}]}
    with servers.Server(models, flags=FLAGS) as server, concurrent.futures.ThreadPoolExecutor() as pool:
        first = pool.submit(ask, server, "POST", "/v2/models/gated/infer", data)
        gated.await_reached("hold.execute")
        assert ask(server, "POST", "/v2/models/gated/infer", {**data, "parameters": {"timeout": 1000}}).status == 503
        page = scrape(server)
        assert page.failures("gated") == [1, 0, 0, 0]
        assert page.of("nv_inference_pending_request_count", "gated") == 0
        gated.open("hold.execute")
        assert first.result(60).status == 200


def test_first_responses_are_counted_in_buckets(models):
    control = f'model_metrics {{ metric_control {{ metric_identifier {{ family: "%s" }} histogram_options {{ buckets: [ %s ] }} }} }}\n'
    write_meter(models, "usual")
    write_meter(models, "own", more=control % (HISTOGRAM, "0.000001, 1e9"))
    write_meter(models, "other", more=control % ("nv_inference_count", "1"))
    with servers.Server(models, flags=[*FLAGS, "--metrics-config", "histogram_latencies=true"]) as server:
        for model in ("usual", "own", "other"):
            assert infer(server, model) == 200
            assert infer(server, model, do="fail") == 500  # is a response, too
        page = scrape(server)
        assert "Metric family 'nv_inference_count' in 'metric_identifier' is not a customizable metric" in server.log()
    for model, buckets in (("usual", ["100", "500", "2000", "5000", "+Inf"]),
                           ("other", ["100", "500", "2000", "5000", "+Inf"]), ("own", ["1e-06", "1000000000", "+Inf"])):
        found = {dict(key[1:])["le"]: value for key, value in page.values.items()
                 if key[0] == f"{HISTOGRAM}_bucket" and ("model", model) in key}
        assert list(found) == buckets
        assert found["+Inf"] == 2 == page.of(f"{HISTOGRAM}_count", model)
        assert 0 < page.of(f"{HISTOGRAM}_sum", model) < 60000
    assert page.of(f"{HISTOGRAM}_bucket", "own", le="1e-06") == 0
    assert page.of(f"{HISTOGRAM}_bucket", "own", le="1000000000") == 2


def test_buckets_that_do_not_ascend_are_refused(models):
    write_meter(models, "m", more=f'model_metrics {{ metric_control {{ metric_identifier {{ family: "{HISTOGRAM}" }} '
                                  "histogram_options { buckets: [ 2, 1 ] } } }\n")
    code, _, err = servers.run_to_end(*servers.Server(models, flags=[*FLAGS, "--metrics-config=histogram_latencies=true"]).args[1:])
    assert code == 1
    assert f"model 'm', buckets of '{HISTOGRAM}': Bucket Boundaries must be strictly sorted" in err


@pytest.mark.parametrize("setting, words", [
    ("summary_latencies=true", "asks for what Conch does not have yet: quantiles"),
    ("counter_latencies=maybe", "metrics setting 'counter_latencies' is 'maybe', expected true or false"),
    ("quantiles=1", "there is no metrics setting 'quantiles'"),
    ("counter_latencies", "--metrics-config option format is <setting>=<value>. Got counter_latencies"),
])
def test_wrong_settings_end_the_start(models, setting, words):
    code, _, err = servers.run_to_end(f"--model-repository={models}", "--allow-grpc=false", f"--metrics-config={setting}")
    assert code == 1
    assert words in err


def test_without_latencies_the_other_metrics_count(models):
    write_meter(models, "m")
    with servers.Server(models, flags=[*FLAGS, "--metrics-config=counter_latencies=false"]) as server:
        infer(server, "m")
        page = scrape(server)
    assert [name for name in page.families if name.endswith("_us")] == []
    assert (page.of("nv_inference_request_success", "m"), page.of("nv_inference_count", "m")) == (1, 1)


def test_metrics_can_be_switched_off(models):
    write_meter(models, "m")
    with servers.Server(models, flags=[*FLAGS, "--allow-cpu-metrics=false"]) as server:
        assert not any("nv_cpu" in name for name in scrape(server).families)
    with servers.Server(models) as server:
        assert "Metrics Service" not in server.log()


def test_namespaces_are_labels(tmp_path):
    roots = [tmp_path / 'one "of" two', tmp_path / "two"]
    for root in roots:
        root.mkdir()
        write_meter(root, "m")
    with servers.Server(*roots, flags=[*FLAGS, "--model-namespacing=true"]) as server:
        page = scrape(server)
    for root in roots:
        assert page.of("nv_inference_count", "m", namespace=str(root)) == 0


def test_the_port_is_open_from_the_first_load_to_the_last_answer(models):
    """The port is open while models load, and while a stop waits for requests."""
    gated = repository.Gated(models, "gated").shut("hold.load").shut("hold.execute")
    server = servers.Server(models, flags=FLAGS, ready=None)
    with server:
        assert scrape(server).families == MACHINE + CONNECTIONS
        gated.open("hold.load")
        server.wait_log("Loaded ")
        with concurrent.futures.ThreadPoolExecutor() as pool:
            data = {"inputs": [{"name": "IN", "datatype": "INT32", "shape": [1], "data": [7]}]}
            answer = pool.submit(ask, server, "POST", "/v2/models/gated/infer", data)
            gated.await_reached("hold.execute")
            server.signal(signal.SIGTERM)
            server.wait_log("Signal (15) received.")
            server.wait_log("Found 1 HTTP service connections")
            assert scrape(server).of("nv_inference_pending_request_count", "gated") == 0
            gated.open("hold.execute")
            assert answer.result(60).status == 200
        assert server.wait() == 0


def test_an_unloaded_model_has_no_metrics(models):
    """The metrics of its backend, too; after another load they begin at zero."""
    write_meter(models, "goes")
    write_meter(models, "stays")
    flags = [*FLAGS, "--model-control-mode=explicit", "--load-model=*", "--metrics-config=histogram_latencies=true"]
    with servers.Server(models, flags=flags) as server:
        for model in ("goes", "goes", "stays"):
            assert infer(server, model) == 200
        assert infer(server, "goes", do="fail") == 500
        before = scrape(server)
        assert before.failures("goes") == [0, 0, 1, 0]

        def of_goes():
            return [key for key in scrape(server).values if ("model", "goes") in key]

        assert ask(server, "POST", "/v2/repository/models/goes/unload").status == 200
        servers.wait_for(lambda: not of_goes(), 60, "nothing is left of it")
        assert scrape(server).of("nv_inference_count", "stays") == 1
        assert scrape(server).value("meter_requests", model="stays", say="") == 1

        assert ask(server, "POST", "/v2/repository/models/goes/load").status == 200
        after = scrape(server)
        # Our own histograms come with the first request.
        of_both = [{key for key in page.values if ("model", "goes") in key and not key[0].startswith(("conch_batch", *OURS))}
                   for page in (before, after)]
        assert of_both[0] == of_both[1]
        assert (after.of("nv_inference_count", "goes"), after.failures("goes")) == (0, [0, 0, 0, 0])
        assert after.value("meter_requests", model="goes", say="") == 0
        assert infer(server, "goes", 4) == 200
        assert scrape(server).of("nv_inference_count", "goes") == 4


def test_a_port_in_use_ends_the_start(models):
    with servers.socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        server = servers.Server(models, flags=["--allow-metrics=true", f"--metrics-port={port}"])
        code, _, err = servers.run_to_end(*server.args[1:])
    assert code == 1
    assert f"failed to start Metrics service: Unavailable - Socket '127.0.0.1:{port}' already in use " in err


def test_metrics_may_have_an_address_of_their_own(models):
    with servers.Server(models, flags=[*FLAGS, "--metrics-address=127.0.0.2"]) as server:
        assert read(server, address="127.0.0.2")[0] == 200
        with pytest.raises(OSError):
            read(server, address="127.0.0.1")


def test_counters_only_grow_under_load(models):
    """Counters only grow, and in the end every request is counted."""
    for i in range(4):
        write_meter(models, f"m{i}", HOSTILE)
    rounds, each = 4, 50
    with servers.Server(models, flags=[*FLAGS, "--metrics-config=histogram_latencies=true"]) as server:
        over = threading.Event()

        def ask_many(i):
            with Connection(server) as connection:
                for n in range(each):
                    data = json.dumps(body(2, "fail" if n % 5 == 0 else None)).encode()
                    connection.send(f"POST /v2/models/m{i % 4}/infer HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)
                    assert connection.response().status in (200, 500)

        def watch():
            before, n = {}, 0
            while not over.is_set() or n < 3:
                now = {key: value for key, value in scrape(server).values.items()
                       if key[0] in ("nv_inference_count", "nv_inference_request_success", "meter_requests", f"{HISTOGRAM}_count")}
                assert all(now[key] >= value for key, value in before.items())
                before, n = now, n + 1

        with concurrent.futures.ThreadPoolExecutor() as pool:
            watchers = [pool.submit(watch) for _ in range(2)]
            list(pool.map(ask_many, range(4 * rounds)))
            over.set()
            for watcher in watchers:
                watcher.result()
        page = scrape(server)
    for i in range(4):
        assert page.of("nv_inference_request_success", f"m{i}") == rounds * each * 4 // 5
        assert page.failures(f"m{i}") == [0, 0, rounds * each // 5, 0]
        assert page.of(f"{HISTOGRAM}_count", f"m{i}") == rounds * each == page.value("meter_requests", model=f"m{i}", say=HOSTILE)


def test_pages_are_whole_while_models_are_loaded_and_unloaded(models):
    """Each page is whole, and has a model once or not at all."""
    for i in range(3):
        write_meter(models, f"m{i}", HOSTILE)
    flags = [*FLAGS, "--model-control-mode=explicit", "--metrics-config=histogram_latencies=true"]
    with servers.Server(models, flags=flags) as server:
        over = threading.Event()

        def change(i):
            for _ in range(15):
                assert ask(server, "POST", f"/v2/repository/models/m{i}/load").status == 200
                assert infer(server, f"m{i}", 2) == 200
                assert ask(server, "POST", f"/v2/repository/models/m{i}/unload").status == 200

        def watch():
            n = 0
            while not over.is_set() or n < 3:
                page = scrape(server)
                for i in range(3):
                    there = {key[0] for key in page.values if ("model", f"m{i}") in key and key[0].startswith("nv_inference_")}
                    assert not there or {"nv_inference_count", "nv_inference_pending_request_count", f"{HISTOGRAM}_sum"} <= there
                n += 1

        with concurrent.futures.ThreadPoolExecutor() as pool:
            watchers = [pool.submit(watch) for _ in range(2)]
            list(pool.map(change, range(3)))
            over.set()
            for watcher in watchers:
                watcher.result()
        servers.wait_for(lambda: scrape(server).families == MACHINE + CONNECTIONS, 60, "all are gone")
