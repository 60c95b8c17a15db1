# SPDX-License-Identifier: Apache-2.0
"""conch check: its findings (check_cases.py), in its formats, with exit codes for CI."""

import json
import os
import pathlib
import re
import stat
import subprocess
import urllib.parse
import urllib.request

import pytest

import check_cases
import preload
from check_cases import BATCHED, IDENTITY, TENSORS, Link, model
from server import BACKENDS, BIN, ROOT, SANITIZER, Server

pytestmark = pytest.mark.conch_only("it is a command of Conch")
FINDING = re.compile(r"(?P<file>.*?)(:(?P<line>\d+):(?P<column>\d+))?: (?P<severity>error|warning): "
                     r"(?P<text>.*?)(; (?P<suggestion>[^;]*))? \[(?P<code>[EW]-[a-z-]+)\]")


def write(folder, files):
    for path, content in files.items():
        target = folder / path
        if content is None:
            target.mkdir(parents=True, exist_ok=True)
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, Link):
            target.symlink_to(content.to)
        else:
            target.write_bytes(content.encode() if isinstance(content, str) else content)


def check(cwd, *args, env=None, **more):
    """(exit code, stdout, stderr), bytes as latin-1 would have them."""
    done = subprocess.run([BIN, "check", f"--backend-directory={BACKENDS}", *args], cwd=cwd, capture_output=True,
                          stdin=subprocess.DEVNULL, timeout=60, check=False, env={**os.environ, **(env or {})}, **more)
    out, err = done.stdout.decode("utf-8", "surrogateescape"), done.stderr.decode("utf-8", "surrogateescape")
    assert not SANITIZER.search(out + err), out + err
    return done.returncode, out, err


def lines_of(tmp_path, files, *flags):
    """The findings in a repository, without the summary and without features that Conch does not have yet."""
    (tmp_path / "models").mkdir()
    write(tmp_path / "models", files)
    _, out, err = check(tmp_path, "--format=short", "models", *flags)
    assert err == ""
    *lines, summary = out.splitlines()
    assert re.fullmatch(r"\d+ models?, \d+ errors?, \d+ warnings?, \d+\.\d{3} s", summary)
    return lines


def without_unsupported(lines, code):
    """Fields of features to come are refused so far: one test is about them, the others ignore them."""
    return [line for line in lines if code == "E-unsupported" or not line.endswith("[E-unsupported]")]


def ids(case):
    return case.code


@pytest.mark.parametrize("case", check_cases.CASES, ids=ids)
def test_each_finding_names_its_fault_and_position(tmp_path, case):
    expected = [line.replace("BACKENDS", BACKENDS) for line in case.said]
    lines = without_unsupported(lines_of(tmp_path, case.bad, *case.flags), case.code)
    assert [re.sub(r"(this machine has) [1-9]\d*", r"\1 CPUS", line) for line in lines] == expected


@pytest.mark.parametrize("case", check_cases.CASES, ids=ids)
def test_nearly_the_same_files_have_no_finding(tmp_path, case):
    lines = without_unsupported(lines_of(tmp_path, case.fine, *case.flags), case.code)
    assert [line for line in lines if line.endswith(f"[{case.code}]")] == []
    assert [line for line in lines if ": error: " in line] == []


def codes_of_help():
    code, out, err = check(None, "--help")
    assert (code, err) == (0, "")
    return dict(re.findall(r"^  ([EW]-[a-z-]+) +(.*(?:\n {10,}.*)*)$", out, re.MULTILINE))


def test_every_code_is_provoked():
    provoked = {case.code for case in check_cases.CASES}
    assert set(codes_of_help()) == provoked | {"E-repository"}  # which has its own test


def test_page_lists_the_codes():
    page = (ROOT / "docs/conch-check.md").read_text(encoding="utf-8")
    listed = dict(re.findall(r"^\| `([EW]-[a-z-]+)` \| (.*?) \|", page, re.MULTILINE))
    assert listed == {code: re.sub(r"\s+", " ", meaning) for code, meaning in codes_of_help().items()}


def test_examples_are_clean():
    code, out, err = check(ROOT, "--strict", "examples/models")
    assert (code, err) == (0, "")
    assert len(out.splitlines()) == 1


# ---- Compared with the server


def asked(tmp_path, files):
    """Does the server take all models of this repository?"""
    (tmp_path / "models").mkdir()
    write(tmp_path / "models", files)
    code, out, _ = check(tmp_path, "--format=json", "models")
    with Server(tmp_path / "models", flags=["--exit-on-error=false"], ready=False) as server:
        with urllib.request.urlopen(urllib.request.Request(f"http://{server.url}/v2/repository/index", b"{}")) as answer:
            rows = json.load(answer)
    return code, json.loads(out), {row["name"]: row.get("state") for row in rows}


def is_for_server(case):
    """Can the server be compared in this case? Not with other backends, which are not installed, or with a batching
    library, or with forests, whose library only some tests install. Cases of ONNX share a server, in the next test."""
    return not any('"fil"' in f"{text}" or '"pytorch"' in f"{text}" or "onnxruntime" in f"{path}{text}" or "mine" in f"{text}" or "idenity" in f"{text}" or "library.so" in f"{text}"
                   for path, text in [*case.bad.items(), *case.fine.items()]) and not case.flags


@pytest.mark.parametrize("case", [case for case in check_cases.CASES if is_for_server(case)], ids=ids)
@pytest.mark.parametrize("side", ["bad", "fine"])
def test_errors_are_findings_that_the_server_refuses(tmp_path, case, side):
    code, report, states = asked(tmp_path, getattr(case, side))
    refused = {finding["model"] for finding in report["findings"] if finding["severity"] == "error"}
    assert {name for name, state in states.items() if state != "READY"} == refused
    assert code == bool(refused)


def test_errors_about_onnx_are_findings_that_the_server_refuses(tmp_path):
    """All cases of one ONNX model in one repository."""
    cases = [case for case in check_cases.CASES if "onnxruntime" in str(case.bad.get("m/config.pbtxt")) and not case.flags]
    assert len(cases) >= 20
    files = {}
    for number, case in enumerate(cases):
        for side in ("bad", "fine"):
            name = f"{side}{number}"
            files |= {path.replace("m/", f"{name}/", 1): text for path, text in getattr(case, side).items()
                      if path.startswith("m/")}
    _, report, states = asked(tmp_path, files)
    refused = {finding["model"] for finding in report["findings"] if finding["severity"] == "error"}
    assert {name for name, state in states.items() if state != "READY"} == refused
    assert {name for name in states if name.startswith("fine")} & refused == set()


# ---- exit codes, options


@pytest.fixture
def root(tmp_path):
    """tmp_path, in which models/ has one warning and no error."""
    write(tmp_path / "models", {**model(IDENTITY + TENSORS), "m/007": None})
    return tmp_path


def test_warnings_are_allowed_unless_strict(root):
    assert check(root, "models")[0] == 0
    assert check(root, "--strict", "models")[0] == 1


def test_a_warning_can_be_ignored(root):
    code, out, err = check(root, "--strict", "--ignore=W-labels,W-version-name", "models")
    assert (code, err) == (0, "")
    assert re.fullmatch(r"1 model, 0 errors, 0 warnings, 0\.\d+ s\n", out)
    assert check(root, "--strict", "--ignore", "W-labels", "--ignore", "W-version-name", "models")[0] == 0


def test_errors_give_1(root):
    write(root / "models", model("nope: 1", "wrong"))
    code, out, _ = check(root, "models")
    assert code == 1
    assert re.search(r"^2 models, 1 error, 1 warning, ", out, re.MULTILINE)


@pytest.mark.parametrize("form", ["human", "short", "json", "sarif", "github"])
def test_an_unreadable_repository_gives_2_after_the_others(root, form):
    write(root / "models", model("nope: 1", "wrong"))
    (root / "README").write_text("no repository")
    code, out, err = check(root, f"--format={form}", "nowhere", "models", "README")
    assert (code, err) == (2, "")
    assert len(re.findall(r"\[E-repository\]|\"(?:code|ruleId)\":\"E-repository\"|title=E-repository", out)) == 2
    assert "failed to stat file nowhere" in out
    assert "models/wrong/config.pbtxt" in out
    if form == "json":
        assert {finding["model"] for finding in json.loads(out)["findings"]} == {None, "m", "wrong"}


@pytest.mark.parametrize(
    "args, said",
    [
        ([], "no repository is named"),
        (["--format=xml", "models"], "--format: unknown format 'xml', there are human, short, json, sarif and github"),
        (["--ignore=W-nothing", "models"], "--ignore: there is no code 'W-nothing'; --help lists them"),
        (["--ignore=E-syntax", "models"], "--ignore: 'E-syntax' cannot be ignored: the server would refuse what it is about"),
        (["--ignore=W-syntax", "models"], "--ignore: there is no code 'W-syntax'; --help lists them"),
        (["--explain=E-nothing"], "--explain: there is no code 'E-nothing'; --help lists them"),
        (["--explain"], "option '--explain' requires an argument"),
        (["--ignore=W-labels,", "models"], "--ignore: there is no code ''; --help lists them"),
        (["--fromat=json", "models"], "unrecognized option '--fromat=json'"),
        (["-x", "models"], "unrecognized option '-x'"),
        (["--strict=yes", "models"], "option '--strict' doesn't allow an argument"),
        (["models", "--format"], "option '--format' requires an argument"),
        (["--model-namespacing=maybe", "models"], "--model-namespacing: invalid value for bool option: maybe; valid are true, on, 1, "
         "false, off, 0"),
        (["--http-port=1", "models"], "unrecognized option '--http-port=1'"),
    ],
)
def test_wrong_usage_gives_2(root, args, said):
    code, out, err = check(root, *args)
    assert (code, out) == (2, "")
    assert err == f"conch: {said}\nTry 'conch check --help'.\n"


def test_a_repository_may_begin_with_a_dash(root):
    (root / "models").rename(root / "-models")
    assert check(root, "--", "-models")[1].startswith("-models/m/007: warning: ")


def test_help_says_what_it_is_and_the_servers_help_names_it():
    code, out, err = check(None, "--help")
    assert (code, err) == (0, "")
    assert out.startswith("Usage: conch check ")
    assert max(map(len, out.splitlines())) <= 100
    for word in ["Exit code", "--format", "--strict", "--model-config-name", "--disable-auto-complete-config"]:
        assert word in out
    assert "conch check <path>" in subprocess.run([BIN, "--help"], capture_output=True, text=True, check=True).stdout


def test_options_are_read_as_by_the_server(tmp_path):
    write(tmp_path / "models", {**model("nope: 1"), "m/configs/cpu.pbtxt": IDENTITY + TENSORS, "m.identity/1": None})
    assert "m/config.pbtxt:1:1: error" in check(tmp_path, "models")[1]
    code, out, _ = check(tmp_path, "--format=short", "--model-config-name=cpu", "--disable-auto-complete-config", "models")
    assert code == 1
    assert out.splitlines()[:-1] == [
        "models/m.identity/config.pbtxt: error: failed to open text file for read models/m.identity/config.pbtxt: No such "
        "file or directory [E-read]"
    ]


def test_namespaces_allow_the_same_name_twice(tmp_path):
    for folder in ("a", "b"):
        write(tmp_path / folder, model(IDENTITY + TENSORS))
    assert check(tmp_path, "a", "b")[0] == 1
    assert check(tmp_path, "--model-namespacing=true", "a", "b")[0] == 0


def test_links_out_of_the_repository_may_be_followed(tmp_path):
    write(tmp_path, {"models/m": Link("../elsewhere"), "elsewhere/1": None, "elsewhere/config.pbtxt": IDENTITY + TENSORS})
    assert "[E-link]" in check(tmp_path, "models")[1]
    assert check(tmp_path, "--repository-follow-symlinks=true", "models")[0] == 0


def test_backends_are_not_searched_in_a_missing_folder(tmp_path):
    write(tmp_path / "models", {**model('backend: "mine"\n' + TENSORS), "m/1/weights": "x"})
    assert "[E-backend]" in check(tmp_path, "models")[1]
    assert "[E-backend]" not in check(tmp_path, "--backend-directory=nowhere", "models")[1]


def as_nobody():
    """Permissions do not apply to root."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)


def test_files_that_may_not_be_read_are_errors(tmp_path):
    write(tmp_path / "models", {**model(IDENTITY + TENSORS, "a"), **model(IDENTITY + TENSORS, "b"), "b/1/weights": "x",
                                **model(IDENTITY + TENSORS, "c"), **model(IDENTITY + TENSORS, "d")})
    for parent in [tmp_path, *tmp_path.parents]:
        if parent.stat().st_uid == os.geteuid() and parent != pathlib.Path("/"):
            parent.chmod(parent.stat().st_mode | stat.S_IXOTH | stat.S_IROTH)
    for path in ("a/config.pbtxt", "b/1/weights", "c/1"):
        (tmp_path / "models" / path).chmod(0)
    try:
        code, out, _ = check(tmp_path, "models", preexec_fn=as_nobody)
    finally:
        for path in ("a/config.pbtxt", "b/1/weights", "c/1"):
            (tmp_path / "models" / path).chmod(0o755)
    assert code == 1
    read = [line for line in out.splitlines() if line.endswith("Permission denied [E-read]")]
    assert [line.split(":")[0] for line in read] == ["models/a/config.pbtxt", "models/b/1/weights", "models/c/1"]
    assert "models/d" not in out


# ---- formats


def odd_repository(tmp_path):
    """A path and a text with everything that could break a format."""
    name = b"odd\n%,:\x1b" + "é".encode()
    folder = os.fsencode(tmp_path) + b"/models/" + name
    os.makedirs(folder + b"/1")
    os.makedirs(folder + b"/\xff,old")
    with open(folder + b"/config.pbtxt", "wb") as f:
        f.write('backend: "identity"\nname: "other\\n::error::%\\r, é"\n'.encode() + TENSORS.encode())


def test_odd_names_stay_on_their_line_in_text(tmp_path):
    odd_repository(tmp_path)
    _, out, _ = check(tmp_path, "--format=short", "models")
    lines = out.splitlines()
    assert len(lines) == 3
    assert lines[0].startswith("models/odd\\n%,:\\x1Bé/config.pbtxt:2:1: error: unexpected directory name ")
    assert "'other\\n::error::%\\x0D, é'" in lines[0]
    assert lines[1].startswith("models/odd\\n%,:\\x1Bé/\\xFF,old: warning: ")
    assert "\x1b" not in out and "\r" not in out


def test_odd_names_stay_strings_in_json(tmp_path):
    odd_repository(tmp_path)
    _, out, _ = check(tmp_path, "--format=json", "models")
    error, warning = json.loads(out)["findings"]
    assert error["model"] == "odd\n%,:\x1bé"
    assert error["file"] == "models/odd\n%,:\x1bé/config.pbtxt"
    assert "'other\n::error::%\r, é'" in error["text"]
    assert warning["file"] == "models/odd\n%,:\x1bé/\\xFF,old"


def test_odd_names_are_no_commands_to_github(tmp_path):
    odd_repository(tmp_path)
    _, out, _ = check(tmp_path, "--format=github", "models")
    lines = out.splitlines()
    assert len(lines) == 3
    assert lines[0].startswith("::error file=models/odd\\n%25%2C%3A\\x1Bé/config.pbtxt,line=2,col=1,title=E-config::unexpected ")
    assert lines[0].endswith("equal model name")
    assert "'other\\n::error::%25\\x0D, é'" in lines[0]
    assert lines[1].startswith("::warning file=models/odd\\n%25%2C%3A\\x1Bé/\\xFF%2Cold,title=W-version-name::ignore ")


def test_a_folder_whose_name_is_no_utf8_is_no_model(tmp_path):
    os.makedirs(os.fsencode(tmp_path) + b"/models/\xff/1")
    assert "models/\\xFF: error: the name of the folder is not UTF-8 [E-read]\n" in check(tmp_path, "models")[1]


@pytest.mark.parametrize("case", check_cases.CASES, ids=ids)
def test_the_formats_have_the_same_findings(tmp_path, case):
    (tmp_path / "models").mkdir()
    write(tmp_path / "models", case.bad)
    human, as_json, github = (check(tmp_path, f"--format={f}", "models", *case.flags) for f in ("short", "json", "github"))
    assert human[0] == as_json[0] == github[0]
    report = json.loads(as_json[1])
    assert report["notes"] == [] and set(report) == {"notes", "findings", "models", "errors", "warnings", "hidden", "seconds"}
    people = human[1].splitlines()[:-1]
    annotations = github[1].splitlines()[:-1]
    assert len(people) == len(annotations) == len(report["findings"]) == report["errors"] + report["warnings"]
    for line, annotation, finding in zip(people, annotations, report["findings"]):
        assert set(finding) == {"file", "line", "column", "severity", "code", "model", "text", "suggestion"}
        where = f":{finding['line']}:{finding['column']}" if finding["line"] else ""
        advice = f"; {finding['suggestion']}" if finding["suggestion"] else ""
        assert line == f"{finding['file']}{where}: {finding['severity']}: {finding['text']}{advice} [{finding['code']}]"
        place = f",line={finding['line']},col={finding['column']}" if finding["line"] else ""
        data = (finding["text"] + advice).replace("%", "%25")
        assert annotation == f"::{finding['severity']} file={finding['file']}{place},title={finding['code']}::{data}"


def on_terminal(cwd, *args, env=None, stderr=None):
    """Returns what it prints when stdout and stderr are a terminal."""
    main, other = os.openpty()
    try:
        done = subprocess.Popen([BIN, "check", *args], cwd=cwd, stdin=subprocess.DEVNULL, stdout=other, stderr=stderr or other,
                                env={**os.environ, "NO_COLOR": "", **(env or {})})
        os.close(other)
        chunks = []
        while True:
            try:
                chunk = os.read(main, 65536)
            except OSError:  # EIO: the other side is closed
                break
            if not chunk:
                break
            chunks.append(chunk)
        done.wait(60)
    finally:
        os.close(main)
    return b"".join(chunks).decode()


def test_colours_are_for_terminals(root):
    assert "\x1b" not in check(root, "models")[1]
    assert "\x1b[1;35mwarning:\x1b[0m" in on_terminal(root, "models")
    assert "\x1b" not in on_terminal(root, "models", env={"NO_COLOR": "1"})
    assert "\x1b" not in on_terminal(root, "--format=json", "models")


# ---- the place that is given


@pytest.fixture
def project(tmp_path):
    """A project: deploy/models has the models "bad" and "good"; templates have a configuration and no version."""
    write(tmp_path / "deploy/models", {**model(IDENTITY + TENSORS, "good"), **model("nope: 1", "bad"), "good/1/model.dat": "x"})
    write(tmp_path, {"templates/scale/config.pbtxt": "nope: 1", "README": "x", ".hidden/models/m/config.pbtxt": "nope: 1",
                     ".hidden/models/m/1": None})
    return tmp_path


@pytest.mark.parametrize(
    "folder, given, what, root",
    [
        (".", "deploy/models/good", "the folder of a model", "deploy/models"),
        (".", "deploy/models/good/", "the folder of a model", "deploy/models"),
        (".", "deploy/models/good/config.pbtxt", "the configuration of a model", "deploy/models"),
        (".", "deploy/models/good/1", "the folder of a version", "deploy/models"),
        (".", "deploy/models/good/1/model.dat", "a file of a model", "deploy/models"),
        ("deploy/models/good", ".", "the folder of a model", "./.."),
        ("deploy/models/good", "config.pbtxt", "the configuration of a model", "./.."),
        ("deploy/models", "good", "the folder of a model", "."),
    ],
)
def test_a_place_in_a_model_means_that_model(project, folder, given, what, root):
    code, out, err = check(project / folder, given)
    note, summary = out.splitlines()
    path = given.rstrip("/")
    assert (code, err) == (0, "")
    assert note == f"note: '{path}' is {what}: model 'good' is checked, in its repository '{root}'"
    assert summary.startswith("1 model, 0 errors, 0 warnings, ")


def test_only_the_findings_of_the_named_models_count(project):
    assert check(project, "deploy/models")[0] == 1
    code, out, _ = check(project, "--format=json", "deploy/models/good", "deploy/models/bad/config.pbtxt")
    report = json.loads(out)
    assert (code, report["models"], len(report["notes"])) == (1, 2, 2)
    assert [(finding["model"], finding["code"]) for finding in report["findings"]] == [("bad", "E-syntax")]


def test_an_ensemble_alone_is_checked_with_its_models(tmp_path):
    write(tmp_path / "models", {**model(IDENTITY + TENSORS.replace("FP32", "INT32")), **check_cases.ensemble(check_cases.STEP)})
    code, out, _ = check(tmp_path, "--format=short", "models/ens")
    assert code == 1 and out.count("[E-ensemble]") == 2 and "1 model, 2 errors" in out


@pytest.mark.parametrize("given", [".", "deploy"])
def test_a_folder_above_means_the_repositories_below(project, given):
    code, out, _ = check(project, "--format=short", given)
    lines = out.splitlines()
    assert code == 1
    assert lines[0] == f"note: '{given}' is a folder above model repositories; checked: 'deploy/models'"
    assert lines[1].startswith("deploy/models/bad/config.pbtxt:1:1: error: ")
    assert len(lines) == 3 and lines[2].startswith("2 models, ")


@pytest.mark.parametrize("form", ["json", "sarif", "github"])
def test_each_format_has_the_note(project, form):
    code, out, _ = check(project, f"--format={form}", "deploy/models/good")
    note = "'deploy/models/good' is the folder of a model: model 'good' is checked, in its repository 'deploy/models'"
    assert code == 0
    if form == "json":
        assert json.loads(out)["notes"] == [note]
    elif form == "sarif":
        assert json.loads(out)["runs"][0]["invocations"][0]["toolExecutionNotifications"] == [
            {"level": "note", "message": {"text": note}}]
    else:
        assert out.splitlines()[0] == f"::notice title=conch check::{note}"


# ---- the lines of configurations


def test_people_see_the_line_the_word_and_what_to_write(tmp_path):
    write(tmp_path / "models", model(IDENTITY + '\toutputs [ { name: "é" } ]\n' + TENSORS.replace("FP32", "FP23")))
    code, out, err = check(tmp_path, "models")
    assert (code, err) == (1, "")
    *lines, summary = out.splitlines()
    assert lines == [
        'models/m/config.pbtxt:2:9: error: Message type "inference.ModelConfig" has no field named "outputs" [E-syntax]',
        ' 2 |         outputs [ { name: "é" } ]',
        "   |         ^^^^^^^",
        '   = help: did you mean "output"?',
        'models/m/config.pbtxt:3:32: error: Unknown enumeration value of "TYPE_FP23" for field "data_type" [E-syntax]',
        ' 3 | input [ { name: "I" data_type: TYPE_FP23 dims: [ 4 ] } ]',
        "   |                                ^^^^^^^^^",
        '   = help: did you mean "TYPE_FP32"?',
        'models/m/config.pbtxt:4:33: error: Unknown enumeration value of "TYPE_FP23" for field "data_type" [E-syntax]',
        ' 4 | output [ { name: "O" data_type: TYPE_FP23 dims: [ 4 ] } ]',
        "   |                                 ^^^^^^^^^",
        '   = help: did you mean "TYPE_FP32"?',
        "",
        "'conch check --explain E-syntax' shows an example and its cure",
    ]
    assert summary.startswith("1 model, 3 errors, 0 warnings, ")


@pytest.mark.parametrize("before", [0, 60, 3000])
def test_long_lines_are_cut_around_the_word(tmp_path, before):
    write(tmp_path / "models", model(IDENTITY + TENSORS + " " * before + "nope: 1 #" + "x" * 4000 + "\n"))
    head, quote, mark, *_ = check(tmp_path, "models")[1].splitlines()
    assert head.startswith(f"models/m/config.pbtxt:4:{before + 1}: error: ")
    assert quote.endswith("...") and len(quote) < 140
    assert quote[mark.index("^"):mark.rindex("^") + 1] == "nope"


def test_control_characters_of_a_line_are_shown_as_text(tmp_path):
    write(tmp_path / "models", model(b'backend: "\x1b[31m\xff\xc2\x9b" nope: 1\r\n' + TENSORS.encode()))
    (tmp_path / "models/m/config.pbtxt").write_bytes(b'backend: "\x1b[31m\xff\xc2\x9b" nope: 1\r\n')
    out = check(tmp_path, "models")[1]
    assert "\x1b" not in out and "\r" not in out and "\x9b" not in out
    *_, quote, mark = [line for line in out.splitlines() if " | " in line]
    assert quote.startswith(' 1 | backend: "\\x1B[31m\\xFF\\xC2\\x9B"')
    assert quote[mark.index("^"):mark.rindex("^") + 1] == "nope"


def test_a_finding_at_the_end_of_a_text_has_its_mark_there(tmp_path):
    write(tmp_path / "models", model(IDENTITY + 'input [ { name: "I"'))
    out = check(tmp_path, "models")[1].splitlines()
    assert out[1:3] == [' 2 | input [ { name: "I"', "   |                    ^"]


def test_a_line_that_is_gone_is_left_out(tmp_path):
    """Without the configuration's line there is the finding alone: here the file is a folder's."""
    write(tmp_path / "models", {"m/config.pbtxt": None, "m/1": None})
    assert not any(" | " in line for line in check(tmp_path, "models")[1].splitlines())


# ---- SARIF


def sarif(cwd, *args):
    code, out, err = check(cwd, "--format=sarif", *args)
    assert err == ""
    return code, json.loads(out)


def assert_is_sarif(document):
    """Asserts what the standard requires (SARIF 2.1.0, its section 3): of each object the members that must be there, of each member its
    type, and that indices and identifiers agree."""
    assert set(document) == {"$schema", "version", "runs"} and document["version"] == "2.1.0"
    for run in document["runs"]:
        driver = run["tool"]["driver"]
        assert driver["name"] == "conch check" and re.fullmatch(r"\d+\.\d+\.\d+", driver["version"])
        assert run["columnKind"] in {"utf16CodeUnits", "unicodeCodePoints"}
        rules = driver["rules"]
        assert len({rule["id"] for rule in rules}) == len(rules)
        for rule in rules:
            assert all(rule[key]["text"] for key in ("shortDescription", "fullDescription", "help"))
            assert rule["defaultConfiguration"]["level"] in {"none", "note", "warning", "error"}
        assert all(isinstance(invocation["executionSuccessful"], bool) for invocation in run["invocations"])
        for result in run["results"]:
            assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
            assert result["level"] == rules[result["ruleIndex"]]["defaultConfiguration"]["level"]
            assert result["message"]["text"] and len(result["locations"]) == 1
            where = result["locations"][0]["physicalLocation"]
            assert re.fullmatch(r"(file://)?([\w/.~-]|%[0-9A-F]{2})+", where["artifactLocation"]["uri"], re.ASCII)
            region = where.get("region", {"startLine": 1})
            assert region["startLine"] >= 1 and region.get("startColumn", 1) >= 1
            assert region.get("endColumn", 1) >= region.get("startColumn", 1)


@pytest.mark.parametrize("case", check_cases.CASES, ids=ids)
def test_sarif_has_the_findings_of_json(tmp_path, case):
    (tmp_path / "models").mkdir()
    write(tmp_path / "models", case.bad)
    code, document = sarif(tmp_path, "models", *case.flags)
    assert_is_sarif(document)
    other, out, _ = check(tmp_path, "--format=json", "models", *case.flags)
    report = json.loads(out)
    assert code == other
    run = document["runs"][0]
    assert run["properties"] == {key: report[key] for key in ("models", "errors", "warnings", "hidden")}
    assert run["invocations"][0]["executionSuccessful"]
    assert len(run["results"]) == len(report["findings"])
    for result, finding in zip(run["results"], report["findings"]):
        where = result["locations"][0]["physicalLocation"]
        advice = f"; {finding['suggestion']}" if finding["suggestion"] else ""
        assert (result["ruleId"], result["level"], result["message"]["text"]) == (
            finding["code"], finding["severity"], finding["text"] + advice)
        assert urllib.parse.unquote(where["artifactLocation"]["uri"]) == finding["file"]
        assert where.get("region", {"startLine": 0})["startLine"] == finding["line"]


def test_sarif_counts_characters_and_quotes_the_line(tmp_path):
    line = '\toutput [ { name: "é€" data_type: FP32 } ]'
    write(tmp_path / "models", model(IDENTITY + line + "\n"))
    _, document = sarif(tmp_path, "models")
    region = document["runs"][0]["results"][0]["locations"][0]["physicalLocation"]["region"]
    assert region["snippet"] == {"text": line}
    assert line[region["startColumn"] - 1:region["endColumn"] - 1] == "FP32"


def test_odd_names_are_uris_in_sarif(tmp_path):
    odd_repository(tmp_path)
    _, document = sarif(tmp_path, tmp_path / "models")
    assert_is_sarif(document)
    error, warning = document["runs"][0]["results"]
    assert error["locations"][0]["physicalLocation"]["artifactLocation"]["uri"].endswith(
        "models/odd%0A%25%2C%3A%1B%C3%A9/config.pbtxt")
    # A byte that is no UTF-8 is one of the file's name.
    assert warning["locations"][0]["physicalLocation"]["artifactLocation"]["uri"].startswith("file:///")


def test_sarif_says_that_a_repository_was_not_read(root):
    code, document = sarif(root, "nowhere", "models")
    assert_is_sarif(document)
    assert (code, document["runs"][0]["invocations"]) == (2, [{"executionSuccessful": False, "toolExecutionNotifications": []}])


# ---- the explanation of each code


def explained(code):
    """(its text, {"Example" | "Cure": (arguments of conch check, files)}), as --explain prints it."""
    status, out, err = check(None, f"--explain={code}")
    assert (status, err) == (0, "")
    assert max(map(len, out.splitlines())) <= 100
    text, *rest = re.split(r"^(Example|Cure):\n\n", out, flags=re.MULTILINE)
    found = {}
    for title, block in zip(rest[::2], rest[1::2]):
        command, *lines = [line[4:] for line in block.rstrip("\n").splitlines()]
        files, last = {}, None
        for line in lines:
            if line.startswith("    "):
                files[last] += line[4:] + "\n"
            elif " -> " in line:
                files[line.split(" -> ")[0]] = Link(line.split(" -> ")[1])
            elif " = " in line:
                files[line.split(" = ")[0]] = (ROOT / line.split(" = ")[1]).read_bytes()
            elif line.endswith("/"):
                files[line] = None
            else:
                last = line
                files[line] = ""
        found[title] = (command.removeprefix("$ conch check ").split(), files)
    return text, found


@pytest.mark.parametrize("code", sorted(codes_of_help()))
def test_each_example_has_its_finding_and_its_cure_has_none(tmp_path, code):
    text, found = explained(code)
    assert text.startswith(f"{code}\n") and set(found) == {"Example", "Cure"}
    for title, (arguments, files) in found.items():
        write(tmp_path / title, files)
        status, out, err = check(tmp_path / title, "--format=json", *arguments)
        assert err == ""
        codes = {finding["code"] for finding in json.loads(out)["findings"]}
        if title == "Example":
            assert code in codes and (status > 0) == any(c.startswith("E-") for c in codes)
        else:
            assert (status, codes) == (0, set())


def test_page_of_codes_is_what_explain_says():
    page = (ROOT / "docs/conch-check-codes.md").read_text(encoding="utf-8")
    made = subprocess.run([ROOT / "tools/check-codes-page", BIN], capture_output=True, text=True, check=True).stdout
    assert page == made, "run tools/check-codes-page > docs/conch-check-codes.md"


# ---- a missing backend


def test_a_missing_backend_is_an_error_unless_it_is_ignored(tmp_path):
    write(tmp_path / "models", {**model('backend: "mine"\n' + TENSORS), "m/1/weights": "x"})
    assert check(tmp_path, "models")[0] == 1
    for ignored in ("E-backend", "W-backend"):  # its name when it was a warning
        code, out, _ = check(tmp_path, f"--ignore={ignored}", "models")
        assert (code, out.splitlines()[-1].split(", ")[:3]) == (0, ["1 model", "0 errors", "0 warnings"])


# ---- Large and odd repositories


def test_endless_files_do_not_hold_the_check(tmp_path):
    labelled = IDENTITY + TENSORS.replace('name: "O"', 'name: "O" label_filename: "labels"')
    write(tmp_path / "models", {**model(labelled, "labels"), "config/1": None, **model(IDENTITY + TENSORS, "version"),
                                **model(IDENTITY + TENSORS, "huge"), **model(IDENTITY + TENSORS, "weights")})
    for path in ("labels/labels", "config/config.pbtxt", "version/1/weights"):
        os.mkfifo(tmp_path / "models" / path)
    for path in ("huge/config.pbtxt", "weights/1/weights"):
        with open(tmp_path / "models" / path, "w", encoding="ascii") as f:
            f.truncate(1 << 40)
    code, out, _ = check(tmp_path, "--format=short", "models")
    assert code == 1
    said = {line.split(":")[0]: line for line in out.splitlines()[:-1]}
    assert set(said) == {"models/config/config.pbtxt", "models/huge/config.pbtxt", "models/labels/config.pbtxt"}
    assert "something special, not a regular file [E-read]" in said["models/config/config.pbtxt"]
    assert "has 1099511627776 bytes, the maximum is " in said["models/huge/config.pbtxt"]
    assert "something special, not a regular file" in said["models/labels/config.pbtxt"]


def test_a_thousand_faults_are_counted_and_some_are_printed(tmp_path):
    write(tmp_path / "models", model("nope: 1\n" * 1500))
    code, out, _ = check(tmp_path, "--format=short", "models")
    lines = out.splitlines()
    assert code == 1
    assert len(lines) == 201
    assert lines[-1].startswith("1 model, 1000 errors, 0 warnings (800 not shown: at most 200 of each model), ")
    report = json.loads(check(tmp_path, "--format=json", "models")[1])
    assert (len(report["findings"]), report["errors"], report["hidden"]) == (200, 1000, 800)


def test_many_nested_ensembles_are_checked_in_time(tmp_path):
    n = 2000
    step = check_cases.STEP
    for i in range(n):
        files = check_cases.ensemble(step.replace('"m"', f'"e{(i + 1) % n}"'))
        write(tmp_path / "models" / f"e{i}", {path.removeprefix("ens/"): text for path, text in files.items()})
    code, out, _ = check(tmp_path, "models")
    assert code == 1
    assert out.count("error: circular dependency between ensembles: ") == n


def test_broken_models_do_not_hide_their_neighbours(tmp_path):
    for i in range(600):
        config = [IDENTITY + TENSORS, "nope: 1", BATCHED + "instance_group [ { kind: KIND_GPU } ]\n"][i % 3]
        write(tmp_path / "models", model(config, f"m{i}"))
    code, out, _ = check(tmp_path, "--format=json", "models")
    report = json.loads(out)
    assert (code, report["models"], report["errors"]) == (1, 600, 400)
    files = [finding["file"] for finding in report["findings"]]
    assert files == sorted(files)
    assert {f"models/m{i}/config.pbtxt" for i in range(600) if i % 3} == set(files)


def test_a_terminal_gets_progress(tmp_path):
    """One thread examines so few models, and under fastclock each takes longer than people wait without progress."""
    n = 6
    for i in range(n):
        write(tmp_path / "models", model(IDENTITY + TENSORS, f"m{i}"))
    out = on_terminal(tmp_path, "models", env=preload.environment("fastclock"))
    told, rest = out.split("\r\x1b[K")
    assert told == "".join(f"\r{i} of {n} models" for i in range(n))
    assert "\r" not in rest.replace("\r\n", "\n")
    # A file or a pipe gets no progress lines.
    quiet = on_terminal(tmp_path, "models", env=preload.environment("fastclock"), stderr=subprocess.DEVNULL)
    assert "\r" not in quiet.replace("\r\n", "\n")
    _, out, err = check(tmp_path, "models", env=preload.environment("fastclock"))
    assert (err, "\r" in out) == ("", False)
