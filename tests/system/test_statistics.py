# SPDX-License-Identifier: Apache-2.0
"""The statistics of models, by the real client; the genuine Triton counts the same requests alike."""

import threading
import time

import numpy as np
import pytest
import tritonclient.http
from tritonclient.utils import InferenceServerException

import repository
import server as servers
import triton
from wire import ask

EITHER = ["conch", "triton"]
MOMENTS = ["queue", "compute_input", "compute_infer", "compute_output"]


def start(which, root):
    if which == "conch":
        return servers.Server(root)
    if triton.missing():
        pytest.skip(triton.missing())
    return triton.Triton(root)


def infer(client, model, shape, version=""):
    tensor = tritonclient.http.InferInput("INPUT0", shape, "FP32")
    tensor.set_data_from_numpy(np.zeros(shape, np.float32))
    client.infer(model, [tensor], model_version=version)


def statistics(client, model="", version=""):
    return client.get_inference_statistics(model, version)["model_stats"]


def counts(one):
    """Everything of a model's statistics that does not depend on the clock, in the order of the document."""
    return {
        "members": list(one),
        **{name: one[name] for name in ("name", "version", "inference_count", "execution_count", "response_stats")},
        "inference_stats": [(name, moment["count"]) for name, moment in one["inference_stats"].items()],
        "batches": [[(name, value if name == "batch_size" else value["count"]) for name, value in batch.items()]
                    for batch in one["batch_stats"]],
    }


def write_models(root):
    repository.write_identity(root, "batch", [("FP32", [2])], max_batch_size=8)
    repository.write_identity(root, "plain", [("FP32", [-1])])
    repository.write_identity(root, "unasked", [("FP32", [-1])])
    several = repository.write_identity(root, "several", [("FP32", [-1])], versions=(1, 3)) / "config.pbtxt"
    several.write_text(several.read_text() + "version_policy: { all { } }\n")
    return root


def ask_around(client):
    for rows in (1, 4, 1, 8):
        infer(client, "batch", [rows, 2])
    with pytest.raises(InferenceServerException):
        infer(client, "batch", [9, 2])  # refused before it is a request: not counted
    infer(client, "plain", [5])
    for _ in range(3):
        infer(client, "several", [5], "3")


def test_counts_are_those_of_triton(tmp_path):
    seen = {}
    write_models(tmp_path)
    for which in EITHER:
        with start(which, tmp_path) as server, tritonclient.http.InferenceServerClient(server.url) as client:
            ask_around(client)
            seen[which] = [counts(one) for one in sorted(statistics(client), key=lambda one: (one["name"], one["version"]))]
            client.close()
    assert seen["conch"] == seen["triton"]


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    with servers.Server(write_models(tmp_path_factory.mktemp("models"))) as server:
        with tritonclient.http.InferenceServerClient(server.url) as client:
            client.before_ms = time.time() * 1000
            ask_around(client)
            yield client


def test_batches_are_counted_by_size(asked):
    (one,) = statistics(asked, "batch")
    assert (one["inference_count"], one["execution_count"]) == (14, 4)
    assert [(b["batch_size"], b["compute_infer"]["count"]) for b in one["batch_stats"]] == [(1, 2), (4, 1), (8, 1)]
    assert [one["inference_stats"][m]["count"] for m in ["success", *MOMENTS]] == [4] * 5
    assert one["inference_stats"]["fail"] == one["inference_stats"]["cache_hit"] == {"count": 0, "ns": 0}


def test_times_add_up(asked):
    (one,) = statistics(asked, "batch")
    moments = one["inference_stats"]
    assert 0 < sum(moments[name]["ns"] for name in MOMENTS) <= moments["success"]["ns"]
    for name in MOMENTS[1:]:
        assert sum(batch[name]["ns"] for batch in one["batch_stats"]) == moments[name]["ns"]
    assert asked.before_ms - 100 <= one["last_inference"] <= time.time() * 1000 + 100


def test_statistics_of_a_version_a_model_or_all_models(asked):
    assert [one["version"] for one in statistics(asked, "several")] == ["1", "3"]
    assert [one["execution_count"] for one in statistics(asked, "several")] == [0, 3]
    assert [one["version"] for one in statistics(asked, "several", "3")] == ["3"]
    assert [(one["name"], one["version"]) for one in statistics(asked)] == [
        ("batch", "1"), ("plain", "1"), ("several", "1"), ("several", "3"), ("unasked", "1")]


def test_a_model_without_requests_has_zeros(asked):
    (one,) = statistics(asked, "unasked")
    assert one["last_inference"] == one["inference_count"] == one["execution_count"] == 0
    assert all(moment == {"count": 0, "ns": 0} for moment in one["inference_stats"].values())
    assert one["batch_stats"] == [] and one["response_stats"] == {}


def test_memory_usage_is_that_of_the_model(asked):
    (usage,) = statistics(asked, "unasked")[0]["memory_usage"]
    assert (usage["type"], usage["id"]) == ("CPU", 0)
    assert 1000 < usage["byte_size"] < 100000


def test_statistics_of_a_missing_model_are_refused(asked):
    with pytest.raises(InferenceServerException, match=r"\[400\] requested model 'nobody' is not available"):
        statistics(asked, "nobody")
    with pytest.raises(InferenceServerException, match=r"\[400\] requested model version is not available for model 'batch'"):
        statistics(asked, "batch", "7")


def test_the_extension_is_announced(asked):
    assert "statistics" in asked.get_server_metadata()["extensions"]


def test_a_model_called_stats_has_statistics(models):
    """Its statistics can be asked; the path of its metadata is that of all statistics, as in the reference."""
    repository.write_identity(models, "stats", [("FP32", [-1])])
    with servers.Server(models) as server:
        assert ask(server, "GET", "/v2/models/stats").json()["model_stats"][0]["name"] == "stats"
        assert ask(server, "GET", "/v2/models/stats/stats").json()["model_stats"][0]["name"] == "stats"
        assert ask(server, "GET", "/v2/models/stats/versions/1").json()["platform"] == "identity"


def test_statistics_never_decrease_under_load(models):
    """A reader sees counts that never decrease, and in the end every request."""
    repository.write_identity(models, "busy", [("FP32", [2])], max_batch_size=8)
    with servers.Server(models) as server:
        def work(rows):
            with tritonclient.http.InferenceServerClient(server.url) as client:
                for _ in range(200):
                    infer(client, "busy", [rows, 2])

        workers = [threading.Thread(target=work, args=(rows,)) for rows in (1, 3)]
        for worker in workers:
            worker.start()
        seen = []
        with tritonclient.http.InferenceServerClient(server.url) as client:
            while any(worker.is_alive() for worker in workers):
                seen.append(statistics(client, "busy")[0]["inference_count"])
            for worker in workers:
                worker.join()
            (one,) = statistics(client, "busy")
        assert seen == sorted(seen)
        assert (one["inference_count"], one["execution_count"]) == (800, 400)
        assert [(b["batch_size"], b["compute_infer"]["count"]) for b in one["batch_stats"]] == [(1, 200), (3, 200)]
