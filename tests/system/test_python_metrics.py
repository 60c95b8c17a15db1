# SPDX-License-Identifier: Apache-2.0
"""Metrics and log lines of models in Python. Metrics kill the genuine backend of 2.51 by a lock of its own, so only ours is
asked for them."""

import json
import re
import urllib.request

import pytest
import tritonclient.http
from tritonclient.utils import InferenceServerException

import server as servers
from python_models import TEXT, infer, number, only_ours, text_of, words, write_python

METRICS = """
def initialize(self, args):
    F = pb_utils.MetricFamily
    self.counters = F(name="py_orders_total", description="Orders", kind=pb_utils.MetricFamily.COUNTER)
    self.gauges = F(name="py_level", description="Level", kind=pb_utils.MetricFamily.GAUGE)
    self.histograms = F(name="py_wait", description="Wait", kind=pb_utils.MetricFamily.HISTOGRAM)
    self.counter = self.counters.Metric(labels={"model": "m", "kind": "a"})
    self.gauge = self.gauges.Metric(labels={"model": "m"})
    self.histogram = self.histograms.Metric(labels={"model": "m"}, buckets=[1.0, 2.5])

def execute(self, requests):
    responses = []
    for request in requests:
        self.counter.increment(2)
        self.counter.increment(0.5)
        self.gauge.set(10)
        self.gauge.increment(-3)
        for value in (0.5, 2, 100):
            self.histogram.observe(value)
        told = {"counter": self.counter.value(), "gauge": self.gauge.value()}
        text = np.array([json.dumps(told).encode()], dtype=np.object_)
        responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", text)]))
    return responses
"""

WRONG = """
def attempt(self, what):
    F = pb_utils.MetricFamily
    counters = F(name="py_wrong_total", description="Wrong", kind=F.COUNTER)
    counter = counters.Metric(labels={})
    if what == "negative":
        counter.increment(-1)
    elif what == "set a counter":
        counter.set(5)
    elif what == "observe a counter":
        counter.observe(5)
    elif what == "histogram without buckets":
        F(name="py_wrong_h", description="W", kind=F.HISTOGRAM).Metric(labels={})
    elif what == "counter with buckets":
        counters.Metric(labels={"a": "b"}, buckets=[1.0])
    elif what == "value of a histogram":
        F(name="py_wrong_v", description="W", kind=F.HISTOGRAM).Metric(labels={}, buckets=[1.0]).value()
    elif what == "name twice":
        F(name="py_wrong_total", description="Wrong", kind=F.GAUGE)
    elif what == "the server's own name":
        F(name="nv_inference_count", description="Wrong", kind=F.GAUGE)
    elif what == "after its family":
        del counters
        counter.increment(1)
        raise ValueError("its family stays while the metric is there")

def execute(self, requests):
    responses = []
    for request in requests:
        what = pb_utils.get_input_tensor_by_name(request, "WHAT").as_numpy()[0].decode()
        try:
            self.attempt(what)
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([b"ok"], dtype=np.object_))]))
        except Exception as e:
            responses.append(pb_utils.InferenceResponse(error=pb_utils.TritonError(str(e))))
    return responses
"""

LOGS = """
def initialize(self, args):
    pb_utils.Logger.log_info("log of initialize")

def execute(self, requests):
    pb_utils.Logger.log("log without a level")
    pb_utils.Logger.log("log of a level", pb_utils.Logger.WARNING)
    pb_utils.Logger.log_warn("log of warn")
    pb_utils.Logger.log_error("log of error é " + "x" * 10000 + "|")
    pb_utils.Logger.log_verbose("log of verbose")
    print("printed by the model", flush=True)
    return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([b"ok"], dtype=np.object_))]) for request in requests]

def finalize(self):
    pb_utils.Logger.log_info("log of finalize")
"""

def flags_of(place, *more):
    return ("--allow-metrics=true", *(["--metrics-port=0"] if place.in_conch else []), *more)


def write_models(root):
    write_python(root, "logs", LOGS, *TEXT)
    return root


@pytest.fixture(scope="module")
def measured(place, tmp_path_factory):
    """A server whose models have metrics."""
    root = tmp_path_factory.mktemp("metrics")
    write_python(root, "metrics", METRICS, *TEXT)
    write_python(root, "wrong", WRONG, ("input", "WHAT", "BYTES", [1]), TEXT[1])
    with place.start(root, flags=flags_of(place)) as running:
        yield running


def page_of(server):
    port = re.search(r"Started Metrics Service at \S*?:(\d+)", server.log())[1]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as reply:
        return reply.read().decode()


@only_ours("it dies of metrics")
def test_metrics_of_three_kinds_are_on_the_page(measured):
    told = [json.loads(text_of(infer(measured, "metrics", number(1)))) for _ in range(2)]
    n = round(told[1]["counter"] / 2.5)    # of calls: a repeated test finds those of the try before
    assert told == [{"counter": 2.5 * (n - 1), "gauge": 7}, {"counter": 2.5 * n, "gauge": 7}]
    page = page_of(measured)
    lines = [re.sub(r"\.0+$|(?<=\.\d)0+$|0+(?=e)", "", line) for line in page.splitlines() if "py_" in line]
    labels = r'(kind="a",model="m"|model="m",kind="a")'
    for pattern in (r"# HELP py_orders_total Orders", r"# TYPE py_orders_total counter", rf"py_orders_total{{{labels}}} {2.5 * n:g}",
                    r"# TYPE py_level gauge", r'py_level{model="m"} 7', r"# TYPE py_wait histogram", rf'py_wait_count{{model="m"}} {3 * n}',
                    rf'py_wait_sum{{model="m"}} {102.5 * n:g}', rf'py_wait_bucket{{model="m",le="1"}} {n}',
                    rf'py_wait_bucket{{model="m",le="2.5"}} {2 * n}', rf'py_wait_bucket{{model="m",le="\+Inf"}} {3 * n}'):
        assert any(re.fullmatch(pattern, line) for line in lines), (pattern, lines)


@pytest.mark.parametrize("what", ["negative", "set a counter", "observe a counter", "histogram without buckets", "counter with buckets",
                                  "value of a histogram", "name twice", "the server's own name", "after its family"])
@only_ours("it dies of metrics")
def test_wrong_uses_of_metrics_are_exceptions(measured, what):
    with pytest.raises(InferenceServerException) as raised:
        infer(measured, "wrong", words(WHAT=what))
    assert raised.value.message()
    assert infer(measured, "wrong", words(WHAT="fine")).as_numpy("OUT").tolist() == [b"ok"]


@only_ours("it dies of metrics")
def test_metrics_go_with_their_model(place, tmp_path):
    root = tmp_path / "models"
    write_python(root, "metrics", METRICS, *TEXT)
    with place.start(root, flags=flags_of(place, "--model-control-mode=explicit", "--load-model=metrics")) as running:
        with tritonclient.http.InferenceServerClient(running.url) as client:
            for _ in range(2):
                infer(running, "metrics", number(1))
                assert "py_orders_total{" in page_of(running)
                client.unload_model("metrics")
                servers.wait_for(lambda: "py_orders_total{" not in page_of(running), 30, "they have gone")
                # The unload ends after that; a load before its end may meet what is left in the genuine server.
                servers.wait_for(lambda: [row.get("reason") for row in client.get_model_repository_index()] == ["unloaded"], 30, "it has ended")
                client.load_model("metrics")


def test_a_model_writes_to_the_servers_log(python_server, place):
    assert infer(python_server, "logs", number(1)).as_numpy("OUT").tolist() == [b"ok"]
    for text in ("log of initialize", "log without a level", "log of a level", "log of warn", "log of error"):
        python_server.wait_log(text)
    python_server.wait_log("printed by the model")
    log = python_server.log()
    assert "log of verbose" not in log
    # What the model prints may stand in front of a line, since its line end is written alone.
    level = {text: re.search(rf"([A-Z])\d{{4}} \d\d:.*{text}", log)[1] for text in
             ("log of initialize", "log without a level", "log of a level", "log of warn", "log of error")}
    assert list(level.values()) == ["I", "I", "W", "W", "E"]
    if place.ours and place.in_conch:
        assert re.search(r"^I.* model\.py:\d+\] .*log of initialize", log, re.MULTILINE)
        assert "x" * 10000 + "|" in log
