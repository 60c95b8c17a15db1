# SPDX-License-Identifier: Apache-2.0
"""conch check compared with our server, over the repositories of tests/conformance/corpus. It reports no error in a model
that serves. Whatever the server refuses with a position in the configuration, it has found, at that position and in the
same words.

It does not find what only a backend can find. Here a backend that accepts everything replaces python, tensorflow and
others, so a report of their missing files is right.
"""

import json
import re
import subprocess
import urllib.request

import pytest

import corpus
import server as servers

pytestmark = pytest.mark.skipif(servers.REFERENCE, reason="it is a command of Conch")
MODES = {"default": (), "strict": ("--disable-auto-complete-config",), "custom": ("--model-config-name=custom",)}
PLACED = re.compile(r"(?P<text>.*?) \((?P<file>\S+):(?P<line>\d+):(?P<column>\d+)\)(: (?P<advice>.*))?", re.DOTALL)
NO_MODEL = r"(?:Poll failed for model directory|failed to load model) '(.*?)': (.*)"
WRONG_TEXT = re.compile(r"failed to read text proto from (?P<file>\S+?):(?P<line>\d+):(?P<column>\d+): (?P<text>.*)", re.DOTALL)


def refusals(server, names):
    """{model: why it is refused}, of the models that are not READY."""
    with urllib.request.urlopen(urllib.request.Request(f"http://{server.url}/v2/repository/index", b"{}")) as answer:
        rows = json.load(answer)
    polled = {}
    for line in server.log().splitlines():
        found = re.search(r' ("(?:[^"\\]|\\.)*")$', line)
        match = found and re.fullmatch(NO_MODEL, json.loads(found[1]), re.DOTALL)
        if match:
            polled[match[1]] = match[2]
    why = {row["name"]: polled.get(row["name"]) or row["reason"].partition(": ")[2]
           for row in rows if row.get("state") != "READY"}
    assert set(why) <= names
    return why


@pytest.mark.parametrize("mode", MODES)
def test_check_finds_what_the_server_refuses(mode, tmp_path):
    # Hidden folders are no models. Where the backend completes the configuration, conch check does not ask it.
    models = [model for model in corpus.read_all() if not model.name.startswith(".") and model.source != "set_config"]
    for model in models:
        model.write(tmp_path / "models")
    backends = f"--backend-directory={corpus.make_backends(tmp_path / 'backends', servers.BUILD)}"
    flags = ["--exit-on-error=false", backends, *MODES[mode]]
    with servers.Server(tmp_path / "models", flags=flags, ready=False) as server:
        refused = refusals(server, {model.name for model in models})

    done = subprocess.run([servers.BIN, "check", "--format=json", backends, *MODES[mode], tmp_path / "models"],
                          capture_output=True, check=False, timeout=120)
    findings = json.loads(done.stdout)["findings"]
    assert done.returncode == 1 and done.stderr == b""
    errors = {}
    for finding in findings:
        if finding["severity"] == "error":
            errors.setdefault(finding["model"], []).append(finding)

    for name in set(errors) - set(refused):
        assert [finding["code"] for finding in errors[name]] == ["E-file"], errors[name]
        assert errors[name][0]["text"].startswith("the model file "), errors[name]

    placed = 0
    for name, reason in refused.items():
        match = WRONG_TEXT.fullmatch(reason) or PLACED.fullmatch(reason)
        # Of an input without a type the server first sees that it fits no model; conch check says what is missing.
        if not match or "TYPE_INVALID is inferred" in reason:
            continue
        placed += 1
        same = [finding for finding in errors.get(name, [])
                if (finding["file"], str(finding["line"]), str(finding["column"])) == match.group("file", "line", "column")]
        assert any(match["text"].startswith(finding["text"]) for finding in same), (name, reason, errors.get(name))
    assert placed > 300
