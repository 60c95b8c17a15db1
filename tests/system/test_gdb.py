# SPDX-License-Identifier: Apache-2.0
"""What tools/gdb/conch.py makes gdb print of a program that has one object of each kind, and of a request that is being
executed."""

import os
import re
import subprocess

import pytest

from server import BUILD, ROOT

pytestmark = pytest.mark.conch_only("it is about our own structs")
OBJECTS = BUILD / "tests/gdb_objects"
# A leak sanitizer cannot work under a debugger.
ENVIRONMENT = os.environ | {"ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"}


def gdb(program, *commands):
    """Runs the program to where the commands stop it; returns what each command printed."""
    arguments = ["gdb", "-nx", "-batch", "-iex", "set debuginfod enabled off", "-iex", "set auto-load no", "-x", ROOT / "tools/gdb/conch.py"]
    for command in commands:
        arguments += ["-ex", "echo \\n==== \\n", "-ex", command]
    done = subprocess.run([*arguments, program], cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, timeout=120,
                          check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    said = [part.strip() for part in done.stdout.split("\n==== \n")[1:]]
    assert len(said) == len(commands), done.stdout + done.stderr
    return dict(zip(commands, said)), done.stderr


@pytest.fixture(scope="module")
def shown():
    """{expression: what `print` shows}"""
    asked = ["*wrong", "*no_memory_left", "things", "nothing", "broken", "not_initialised", "text", "empty", "too_small", "request"]
    lists = ["conch-list things 'struct thing' link", "conch-list &broken 'struct thing' link", "conch-list nothing 'struct thing' link"]
    said, errors = gdb(OBJECTS, "break stop_here", "run", *(f"print {what}" for what in asked), *lists)
    assert "Breakpoint 1, stop_here" in said["run"], f"{said}{errors}"
    return {command.removeprefix("print "): re.sub(r"^\$\d+ = ", "", text) for command, text in said.items()}


@pytest.mark.parametrize("what, text", [
    ("*wrong", '''STATUS_INVALID_ARG "input 'x': shape [2] does not fit" (2 owners)'''),
    ("*no_memory_left", 'STATUS_UNAVAILABLE "out of memory" (never freed)'),
    ("things", "list of 3"),
    ("nothing", "list, empty"),
    ("not_initialised", "list, not initialised"),
    ("text", r'buf, 9 of 64 bytes, at most 1048576: "a \"text\"\n"'),
    ("empty", "buf, 0 of 0 bytes, at most 16"),
    ("too_small", 'buf, 7 of 17 bytes, at most 16, full: something was not added: "it fits"'),
    ("request", 'request "seven" of model "digits" version 3, REQUEST_IDLE = {sequence = "talk", input 0 = "INPUT0" FP32 [2,-1], '
                '24 bytes in 1, requested output 0 = "OUTPUT0", references = 1}'),
])
def test_each_kind_of_object_is_printed(shown, what, text):
    assert shown[what] == text


def test_a_broken_list_is_reported(shown):
    assert re.fullmatch(r"list of 0, broken: link 0x[0-9a-f]+ has prev 0x0, not 0x[0-9a-f]+", shown["broken"])
    assert re.fullmatch(r"broken: link .*", shown["conch-list &broken 'struct thing' link"])


def test_the_objects_of_a_list_are_printed(shown):
    lines = shown["conch-list things 'struct thing' link"].splitlines()
    assert [re.sub(r"0x[0-9a-f]+", "AT", line) for line in lines] == [
        f"{i}: AT {{number = {10 * i}, link = list of 3}}" for i in range(3)]
    assert shown["conch-list nothing 'struct thing' link"] == ""


def test_a_request_in_execution_is_printed():
    """In a unit test, as docs/internals/debugging.md does it: with all that the scheduler has set."""
    said, errors = gdb(BUILD / "tests/test-core-request-request", "break main", "run",
                       "break response_new if r->life.stage == REQUEST_EXECUTING", "continue", "print *r")
    text = said["print *r"]
    assert re.search(r'= request "" of model "m" version 1, REQUEST_EXECUTING = \{', text), f"{said}{errors}"
    assert 'input 0 = "A" FP32 [1], 4 bytes in 1' in text


def test_the_command_of_the_debugging_page_works():
    """The page's command, unchanged except for the build folder, prints what the page shows."""
    page = (ROOT / "docs/internals/debugging.md").read_text()
    command, output = re.search(r"```bash\n(.*?)```\n\n```text\n(.*?)```", page, re.DOTALL).groups()
    assert "gdb -x" in command
    command = command.replace("gdb -x", "gdb -nx -batch -iex 'set debuginfod enabled off' -x").replace("build/debug", str(BUILD))
    done = subprocess.run(["bash", "-c", command], cwd=ROOT, env=ENVIRONMENT, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=120, check=False)
    expected = ".*".join(map(re.escape, output.rstrip("\n").split("…")))
    assert re.search(expected, done.stdout), f"{done.stdout}{done.stderr}\nhas not\n{output}"
