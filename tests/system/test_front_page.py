# SPDX-License-Identifier: Apache-2.0
"""What a person finds at the server's address: a page for browsers, JSON for other clients, and where the metrics are."""

import html.parser
import json
import re

import pytest

import repository
from server import Server
from wire import ask

BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
HOSTILE = "a<b>&'q'"
pytestmark = pytest.mark.conch_only("the genuine server answers 404")


@pytest.fixture(name="server", scope="module")
def server_(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    repository.write_identity(root, "m", [("FP32", [-1])], versions=(1, 3))
    repository.write_identity(root, HOSTILE, [("FP32", [-1])])
    repository.write_model(root, "broken", 'backend: "<nowhere>"\n')
    flags = ["--exit-on-error=false", "--allow-metrics=true", "--metrics-port=0"]
    with Server(root, flags=flags, ready=False) as server:
        yield server


class Page(html.parser.HTMLParser):
    """The texts and links of a page whose elements are all closed."""

    VOID = {"meta"}

    def __init__(self, text):
        super().__init__()
        self.open, self.links, self.texts = [], [], []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.links += [value for name, value in attrs if name == "href"]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def front(server, accept=None):
    return ask(server, "GET", "/", headers={"Accept": accept} if accept else {})


def test_a_browser_gets_a_page_whose_links_work(server):
    answer = front(server, BROWSER)
    assert (answer.status, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    page = Page(answer.body.decode())
    text = "".join(page.texts)
    assert {"m", HOSTILE, "broken", "READY", "UNAVAILABLE"} <= set(page.texts)
    assert "<nowhere>" in text and "running, not ready" in text or "failed, not ready" in text
    assert "/v2/models/m/versions/3/config" in page.links
    for link in page.links:
        assert ask(server, "GET", link).status == 200, link
    assert re.search(r"curl http://localhost:8000/v2/models/\S+", text)    # a script writes the browser's own address there


@pytest.mark.parametrize("accept", [None, "*/*", "application/json"])
def test_other_clients_get_json(server, accept):
    answer = front(server, accept)
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    document = json.loads(answer.body)
    assert (document["name"], document["version"], document["ready"]) == ("conch", ask(server, "GET", "/v2").json()["version"], False)
    assert document["models"] == ask(server, "POST", "/v2/repository/index").json()
    assert all(ask(server, "GET", link).status in (200, 400) for link in document["links"].values())
    assert f"Metrics Service at 127.0.0.1:{document['metrics_port']}" in server.log()


def test_metrics_are_said_to_be_elsewhere(server, tmp_path):
    port = json.loads(front(server).body)["metrics_port"]
    answer = ask(server, "GET", "/metrics")
    assert (answer.status, answer.error) == (404, f"Not Found: the metrics are at port {port}, /metrics")
    with Server(tmp_path, flags=["--allow-metrics=false"]) as without:
        answer = ask(without, "GET", "/metrics")
        assert (answer.status, answer.error) == (404, "Not Found: this server has no metrics")
        assert json.loads(front(without).body)["models"] == [] and "metrics_port" not in json.loads(front(without).body)
        assert "There are no models." in front(without, BROWSER).body.decode()


def test_the_page_is_a_part_of_the_repository_for_restrictions(tmp_path):
    with Server(tmp_path, flags=["--http-restricted-api=model-repository:key=secret"]) as server:
        for accept in (BROWSER, "*/*"):
            assert front(server, accept).status == 403
        assert ask(server, "GET", "/", headers={"key": "secret"}).status == 200


def test_other_methods_are_refused(server):
    for path in ("/", "/metrics"):
        answer = ask(server, "POST", path, b"x")
        assert (answer.status, answer.error) == (405, "Method Not Allowed")
