# SPDX-License-Identifier: Apache-2.0
"""/v2/logging of Conch and of the genuine Triton side by side: the same settings, the same errors."""

import json
import re
import signal

import pytest
import tritonclient.http as triton_http

import repository
import triton
from server import REFERENCE, Server
from wire import ask

DEFAULT = {"log_file": "", "log_info": True, "log_warning": True, "log_error": True, "log_verbose_level": 0, "log_format": "default"}

# What a client posts, each to a log with its default settings.
CHANGES = [
    b"{}", b"[]", b"3", b"null", b'"log_info"', b"{",
    b'{"log_info": false}', b'{"log_warning": false}', b'{"log_error": false}', b'{"log_verbose_level": 2}', b'{"log_format": "ISO8601"}',
    b'{"log_info": false, "log_info": true}', b'{"log_unknown": 1}', b'{"log_info": null, "log_file": null, "log_format": null, "log_verbose_level": null}',
    b'{"log_file": ""}', b'{"log_file": "x", "log_info": 1}', b'{"log_file": 3}',
    b'{"log_info": 1}', b'{"log_info": "true"}', b'{"log_warning": []}', b'{"log_error": {}}',
    b'{"log_verbose_level": -1}', b'{"log_verbose_level": 1.5}', b'{"log_verbose_level": "1"}', b'{"log_verbose_level": 4294967295}', b'{"log_verbose_level": 4294967297}',
    b'{"log_format": "iso8601"}', b'{"log_format": ""}', b'{"log_format": "ISO\\u0038601"}', b'{"log_format": 1}', b'{"log_format": "x\\"y"}',
    b'{"log_format": "x", "log_verbose_level": "y"}',
]


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    if triton.missing() or REFERENCE:
        pytest.skip(triton.missing() or "CONCH_BIN is the genuine Triton")
    root = repository.write_standard(tmp_path_factory.mktemp("both"))
    with Server(root) as ours, triton.Triton(root) as theirs:
        yield ours, theirs


def settings(server, change=None):
    answer = ask(server, "GET", "/v2/logging") if change is None else ask(server, "POST", "/v2/logging", json.dumps(change).encode())
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    return answer.json()


def outcome(server, method, body=b""):
    answer = ask(server, method, "/v2/logging", body)
    body = re.sub(rb" \(line \d+, column \d+\)", b"", answer.body)    # an addition of ours
    return answer.status, answer.headers.get("content-type"), body


@pytest.mark.parametrize("body", CHANGES)
def test_a_change_gives_what_triton_gives(both, body):
    ours, theirs = both
    for server in both:
        assert settings(server, DEFAULT | {"log_file": None}) == DEFAULT
    assert outcome(ours, "POST", body) == outcome(theirs, "POST", body)
    assert outcome(ours, "GET") == outcome(theirs, "GET")


def test_an_empty_body_changes_nothing(models):    # 2.51 answers 500, newer releases 200
    with Server(models) as server:
        assert json.loads(outcome(server, "POST")[2]) == DEFAULT


@pytest.mark.parametrize("method", ["PUT", "DELETE"])
def test_other_methods_are_refused_alike(both, method):
    ours, theirs = both
    assert outcome(ours, method) == outcome(theirs, method)
    assert outcome(ours, method)[0] == 405


@pytest.mark.conch_only("Triton applies the settings in front of the wrong one")
def test_of_several_settings_all_change_or_none(models):
    with Server(models) as server:
        assert outcome(server, "POST", b'{"log_info": false, "log_format": "x"}')[0] == 503
        assert settings(server) == DEFAULT


def test_a_change_has_effect_and_may_be_taken_back(models):
    with Server(models) as server:
        client = triton_http.InferenceServerClient(server.url)
        assert client.get_log_settings() == DEFAULT
        changed = client.update_log_settings({"log_format": "ISO8601", "log_info": False})
        assert changed == DEFAULT | {"log_format": "ISO8601", "log_info": False} == client.get_log_settings()
        client.update_log_settings({"log_info": True})
        server.signal(signal.SIGTERM)
        server.wait_log("Z I ")
