# SPDX-License-Identifier: Apache-2.0
"""The files in deploy/: Debian's Prometheus scrapes a server with them, promtool checks them, and each alert fires when it should."""

import json
import pathlib
import re
import shutil
import subprocess
import urllib.parse
import urllib.request

import pytest

import repository
from server import Server, free_port, wait_for
from wire import ask, given, infer

DEPLOY = pathlib.Path(__file__).parents[2] / "deploy"
RULES = DEPLOY / "prometheus/conch-rules.yml"
ONE = {"inputs": [given("INPUT0", "FP32", [1, 1], [1])]}
# Families that a server has only with TLS.
ELSEWHERE = {"conch_frontend_certificate_days"}

pytestmark = pytest.mark.conch_only("files for Conch")


def promtool(*args):
    done = subprocess.run(["promtool", *map(str, args)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_accepts_rules_and_configuration():
    promtool("check", "rules", RULES)
    promtool("check", "config", DEPLOY / "prometheus/prometheus.yml")    # … and the rules that it names


MODEL = 'instance="i",model="m",version="1"'
# For each alert the series that raise it, and those that do not.
ALERTS = {
    "ConchDown": ({'up{job="conch",instance="i"}': "0x20"}, {'up{job="conch",instance="i"}': "1x20"}),
    "ConchRestarts": ({'process_start_time_seconds{job="conch",instance="i"}': "1 2 3 4x17"},
                      {'process_start_time_seconds{job="conch",instance="i"}': "1 2x19"}),
    "ConchRequestsFail": ({f"nv_inference_request_failure{{{MODEL},reason=\"OTHER\"}}": "0+6x20",
                           f"nv_inference_request_success{{{MODEL}}}": "0+94x20"},
                          {f"nv_inference_request_failure{{{MODEL},reason=\"OTHER\"}}": "0+4x20",
                           f"nv_inference_request_success{{{MODEL}}}": "0+96x20"}),
    "ConchQueueFull": ({f"conch_inference_request_refused{{{MODEL},reason=\"queue_full\"}}": "0+1x20"},
                       {f"conch_inference_request_refused{{{MODEL},reason=\"invalid\"}}": "0+1x20"}),
    "ConchSlow": ({f"conch_request_duration_seconds_bucket{{{MODEL},le=\"1\"}}": "0+90x20",
                   f"conch_request_duration_seconds_bucket{{{MODEL},le=\"+Inf\"}}": "0+100x20",
                   f"conch_request_duration_seconds_bucket{{{MODEL},le=\"2.5\"}}": "0+100x20"},
                  {f"conch_request_duration_seconds_bucket{{{MODEL},le=\"1\"}}": "0+100x20",
                   f"conch_request_duration_seconds_bucket{{{MODEL},le=\"+Inf\"}}": "0+100x20"}),
    "ConchStuck": ({f"conch_executing_request_oldest_secs{{{MODEL}}}": "0+60x20"}, {f"conch_executing_request_oldest_secs{{{MODEL}}}": "50x20"}),
    "ConchLoopHeld": ({'conch_frontend_longest_turn_seconds{instance="i",loop="http-0"}': "2x20"},
                      {'conch_frontend_longest_turn_seconds{instance="i",loop="http-0"}': "0.5x20"}),
    "ConchServerErrors": ({'conch_frontend_requests{instance="i",protocol="http",status="503"}': "0+120x20"},
                          {'conch_frontend_requests{instance="i",protocol="http",status="400"}': "0+120x20"}),
    "ConchMemoryShort": ({'conch_connection_memory_refusals{instance="i"}': "0+1x20"}, {'conch_connection_memory_refusals{instance="i"}': "5x20"}),
    "ConchDescriptorsShort": ({'process_open_fds{job="conch",instance="i"}': "90x20", 'process_max_fds{job="conch",instance="i"}': "100x20"},
                              {'process_open_fds{job="conch",instance="i"}': "70x20", 'process_max_fds{job="conch",instance="i"}': "100x20"}),
    "ConchCertificateEnds": ({'conch_frontend_certificate_days{instance="i",protocol="http"}': "13x20"},
                             {'conch_frontend_certificate_days{instance="i",protocol="http"}': "15x20"}),
}


def test_each_alert_is_in_the_table():
    assert re.findall(r"- alert: (\w+)", RULES.read_text()) == list(ALERTS)


def test_alerts_fire_when_they_should_and_only_then(tmp_path):
    """After 20 minutes of such series. promtool wants each alert with its texts, so it is asked for the series ALERTS instead."""
    cases = []
    for side, fires in ((0, 1), (1, 0)):
        series = [one for sides in ALERTS.values() for one in sides[side].items()]
        assert len(dict(series)) == len(series)
        cases.append({
            "interval": "1m", "input_series": [{"series": key, "values": values} for key, values in series],
            "promql_expr_test": [{"expr": f'count(ALERTS{{alertname="{name}",alertstate="firing"}}) or vector(0)', "eval_time": "20m",
                                  "exp_samples": [{"labels": "{}", "value": fires}]} for name in ALERTS]})
    (tmp_path / "cases.yml").write_text(json.dumps({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": cases}))
    promtool("test", "rules", tmp_path / "cases.yml")


# ---- A Prometheus that scrapes a server


@pytest.fixture(name="prometheus", scope="module")
def prometheus_(tmp_path_factory):
    """A function that asks a Prometheus for a path of its API; it has scraped a server that was asked."""
    root, folder = tmp_path_factory.mktemp("models"), tmp_path_factory.mktemp("prometheus")
    repository.write_identity(root, "m", [("FP32", [1])], max_batch_size=4)
    metrics, own = free_port(), free_port()
    shutil.copy(RULES, folder)
    config = (DEPLOY / "prometheus/prometheus.yml").read_text()
    assert "localhost:8002" in config and config.count("15s") == 2
    (folder / "prometheus.yml").write_text(config.replace("localhost:8002", f"localhost:{metrics}").replace("15s", "1s"))

    def get(path, **query):
        with urllib.request.urlopen(f"http://127.0.0.1:{own}{path}?{urllib.parse.urlencode(query)}", timeout=60) as answer:
            return json.load(answer)["data"]

    def value(expr):
        try:
            found = get("/api/v1/query", query=expr)["result"]
        except OSError:    # it starts
            return 0
        return float(found[0]["value"][1]) if found else 0

    args = ["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data", f"--web.listen-address=127.0.0.1:{own}"]
    with Server(root, flags=["--allow-metrics=true", f"--metrics-port={metrics}"]) as server, (folder / "log").open("w") as log:
        running = subprocess.Popen(args, stdout=log, stderr=log)
        try:
            wait_for(lambda: value('up{job="conch"}') == 1, 60, "Prometheus has scraped")
            assert infer(server, "m", ONE).status == 200
            assert ask(server, "POST", "/v2/models/m/infer", {"inputs": []}).status == 400
            wait_for(lambda: value('conch_inference_request_refused{reason="invalid"}') == 1 and value("conch_batch_size_count") == 1, 60, "it has scraped again")
            yield get
        finally:
            running.terminate()
            running.wait(60)


def test_prometheus_evaluates_all_rules(prometheus):
    def rules():
        return [rule for group in prometheus("/api/v1/rules")["groups"] for rule in group["rules"]]

    wait_for(lambda: all(rule["health"] != "unknown" for rule in rules()), 60, "the rules are evaluated")
    assert {rule["name"]: rule["health"] for rule in rules()} == dict.fromkeys(ALERTS, "ok")
    assert not [rule["name"] for rule in rules() if rule["state"] != "inactive"]


def test_prometheus_gets_openmetrics_with_the_same_names(prometheus):
    """It asks for that format by itself."""
    kinds = {name: entries[0]["type"] for name, entries in prometheus("/api/v1/metadata").items()}
    assert (kinds["nv_inference_request_success"], kinds["process_cpu_seconds"]) == ("unknown", "counter")
    assert prometheus("/api/v1/query", query='nv_inference_request_success{model="m"}')["result"][0]["value"][1] == "1"


def test_the_names_of_metrics_are_those_of_the_server(prometheus):
    """In rules and panels. Prometheus evaluates each panel's expression."""
    dashboard = json.loads((DEPLOY / "grafana/conch.json").read_text())
    targets = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    assert len(dashboard["panels"]) == 15 and len({panel["id"] for panel in dashboard["panels"]}) == 15
    names = set(prometheus("/api/v1/label/__name__/values"))
    used = set(re.findall(r"\b(?:conch|nv|process)_\w+", "\n".join([*targets, RULES.read_text().replace("conch-rules", "")])))
    assert len(used) > 20 and used - names <= ELSEWHERE
    filled = 0
    for expr in targets:
        for variable, text in (("$model", ".*"), ("$instance", ".*"), ("$__rate_interval", "1m")):
            expr = expr.replace(variable, text)
        assert "$" not in expr
        filled += bool(prometheus("/api/v1/query", query=expr)["result"])
    assert filled > len(targets) / 2
