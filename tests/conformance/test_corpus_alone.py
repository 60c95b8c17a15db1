# SPDX-License-Identifier: Apache-2.0
"""The repositories of tests/conformance/corpus in our server alone, in every build; some of them kill the genuine Triton."""

import json
import urllib.request

import pytest

import corpus
import server as servers

pytestmark = pytest.mark.skipif(servers.REFERENCE, reason="it would end the genuine Triton")
MODELS = corpus.read_all()
MODES = {"default": (), "strict": ("--disable-auto-complete-config",), "custom": ("--model-config-name=custom",)}


@pytest.mark.parametrize("mode", MODES)
def test_each_model_serves_or_has_a_reason(mode, tmp_path):
    for model in MODELS:
        model.write(tmp_path / "models")
    backends = corpus.make_backends(tmp_path / "backends", servers.BUILD)
    flags = ["--exit-on-error=false", f"--backend-directory={backends}", *MODES[mode]]
    with servers.Server(tmp_path / "models", flags=flags, ready=False) as server:
        def get(path, data=None):
            with urllib.request.urlopen(urllib.request.Request(f"http://{server.url}/v2/{path}", data=data), timeout=60) as answer:
                return json.loads(answer.read())

        rows = get("repository/index", b"{}")
        log = server.log()
        for model in MODELS:
            states = {row.get("state") for row in rows if row["name"] == model.name}
            if model.name.startswith("."):
                assert not states    # a hidden folder is no model
            elif states == {"READY"}:
                assert get(f"models/{model.name}/config")["name"] == model.name
                assert get(f"models/{model.name}")["name"] == model.name
            elif states == {"UNAVAILABLE"}:
                assert all(row["reason"] for row in rows if row["name"] == model.name)
                # The second text: an ensemble does not fit the models of its steps, whatever its version.
                assert any(f"failed to load '{model.name}'{rest}" in log for rest in (" version ", ": "))
            else:
                assert states == {None}, model.name
                # The second text: the model's folder is fine, and none of its folders is a version.
                assert any(f"{what} '{model.name}': " in log for what in ("Poll failed for model directory", "failed to load model"))
        assert sum(row.get("state") == "READY" for row in rows) > 150
        server.assert_alive()
