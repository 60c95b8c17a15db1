# SPDX-License-Identifier: Apache-2.0
"""Odd and huge texts of a configuration: accepted or refused as by protobuf's C++ parser, in bounded time and memory."""

import json
import os
import pathlib
import re
import resource
import subprocess

import pytest
from google.protobuf import text_format

import server
from mapper import BUILD, Ours, classes, cpp

MB = 1 << 20
LIMITS = {"text": 64 * MB, "message": 256 * MB}
# A sanitizer's memory is not ours; it is slower, too.
TIME_S, MEMORY = (60, 4096 * MB) if server.SANITIZED else (10, LIMITS["text"] * 2 + LIMITS["message"] + 64 * MB)


@pytest.fixture(name="ours", scope="module")
def start_ours():
    tool = Ours()
    yield tool
    tool.close()


# ---- Odd texts: we and C++ agree on each, and on the message. True: it is a configuration.

ODD = [
    # numbers
    ("max_batch_size: -0", True),
    ("max_batch_size: 0x7fffffff", True),
    ("max_batch_size: 0x80000000", False),
    ("max_batch_size: -0x80000000", True),
    ("max_batch_size: -2147483649", False),
    ("max_batch_size: 00000000000000000000000000000000000001", True),
    ("max_batch_size: 0x00000000000000000000000000000000000001", True),
    ("max_batch_size: 1e1", False),
    ("max_batch_size: 1.0", False),
    ("max_batch_size: 0b1", False),
    ("max_batch_size: 1_000", False),
    ("max_batch_size: +1", False),
    ("max_batch_size: --1", False),
    ("max_batch_size: 08", False),
    ("input { dims: 9223372036854775807 }", True),
    ("input { dims: 9223372036854775808 }", False),
    ("input { dims: -9223372036854775808 }", True),
    ("dynamic_batching { max_queue_delay_microseconds: 18446744073709551615 }", True),
    ("dynamic_batching { max_queue_delay_microseconds: 18446744073709551616 }", False),
    ("dynamic_batching { max_queue_delay_microseconds: -0 }", False),
    ("sequence_batching { direct { minimum_slot_utilization: 1e999999 } }", True),
    ("sequence_batching { direct { minimum_slot_utilization: 1e-999999 } }", True),
    ("sequence_batching { direct { minimum_slot_utilization: 99999999999999999999999999999999999999999 } }", True),
    ("sequence_batching { direct { minimum_slot_utilization: 0x10 } }", False),
    ("sequence_batching { direct { minimum_slot_utilization: 010 } }", False),
    ("sequence_batching { direct { minimum_slot_utilization: 1. } }", True),
    ("sequence_batching { direct { minimum_slot_utilization: 1.f } }", True),
    ("sequence_batching { direct { minimum_slot_utilization: 1e } }", False),
    ("sequence_batching { direct { minimum_slot_utilization: -NaN } }", True),
    ("sequence_batching { direct { minimum_slot_utilization: iNfInItY } }", True),
    # enums and booleans
    ("input { data_type: 11 }", True),
    ("input { data_type: -1 }", True),
    ("input { data_type: 2147483648 }", False),
    ("input { data_type: 0xB }", True),
    ("input { data_type: 'TYPE_FP32' }", False),
    ("input { optional: 2 }", False),
    ("input { optional: 01 }", True),
    ("input { optional: -1 }", False),
    ("input { optional: tRue }", False),
    # strings
    (r'name: "\a\b\f\n\r\t\v\\\?\'\""', True),
    (r'name: "\x41\x4\x"', False),
    (r'name: "\x41\x4z"', True),
    (r'name: "\X41"', False),
    (r'name: "\1\12\123\1234"', True),
    (r'name: "\8"', False),
    (r'name: "\u00e9\U0001F600"', True),
    (r'name: "\u12"', False),
    (r'name: "\ud83d\ude00"', True),
    (r'name: "\q"', False),
    ('name: "a\\\nb"', False),
    ('name: "a\nb"', False),
    ('name: "a\tb"', True),
    ('name: "a" "b"\n\'c\'', True),
    ('name: "a", "b"', False),
    ('name: ""', True),
    ("name: 'a\"b'", True),
    ('name: "unclosed', False),
    # separators, brackets, comments
    ("name: 'a'; backend: 'b', runtime: 'c'", True),
    ("name: 'a';; backend: 'b'", False),
    ("; name: 'a'", False),
    (", ", False),
    ("input < name: 'a' >", True),
    ("input < name: 'a' }", False),
    ("input: { name: 'a' }", True),
    ("input: < name: 'a' >", True),
    ("input [ { name: 'a' }, < name: 'b' > ]", True),
    ("input: [ ]", True),
    ("input [ { name: 'a' }, ]", False),
    ("input [ , ]", False),
    ("input [ [ ] ]", False),
    ("input { dims: [ ] }", True),
    ("input { dims: [ 1, [ 2 ] ] }", False),
    ("input { dims: 1, 2 }", False),
    ("input { dims [ 1 ] }", False),
    ("name: [ 'a' ]", False),
    ("optimization [ { } ]", False),
    ("# only a comment", True),
    ("name: 'a' # behind", True),
    ("name: # between\n 'a'", True),
    ("/* C */ name: 'a'", False),
    ("// C\nname: 'a'", False),
    ("name: 'a'\x00", False),
    ("name: 'a'\x0b\x0c", True),
    ("\x01", False),
    # names
    ("Name: 'a'", False),
    ("inference.name: 'a'", False),
    ("1: 'a'", False),
    ("[inference.name]: 'a'", False),
    ("[type.googleapis.com/inference.ModelInput] { }", False),
    ("[", False),
    ("[a]", False),
    ("-name: 'a'", False),
    ("name", False),
    ("name:", False),
    (":", False),
    # fields that are given twice
    ("name: 'a' name: 'a'", False),
    ("optimization { } optimization { }", False),
    ("dynamic_batching { } ensemble_scheduling { }", False),
    ("input { } input { }", True),
    ("parameters { key: 'a' } parameters { key: 'a' value { string_value: 'x' } }", True),
    ("parameters { key: 'a' key: 'b' }", False),
    ("parameters { value { } value { } }", False),
    ("model_warmup { inputs { value { zero_data: false random_data: false } } }", False),
]


@pytest.mark.filterwarnings("ignore:invalid escape sequence")    # from Python's reader
@pytest.mark.parametrize(("text", "fine"), ODD, ids=[repr(text)[1:50] for text, _ in ODD])
def test_odd_texts_are_read_as_by_protobuf(ours, text, fine):
    taken, wire = ours.ask("text", "wire", text.encode())
    theirs, complaint = cpp(text.encode())
    assert (theirs is not None) == fine, complaint
    assert taken == fine, wire
    if fine:
        assert classes.ModelConfig.FromString(wire).SerializeToString(deterministic=True) == \
            classes.ModelConfig.FromString(theirs).SerializeToString(deterministic=True)
        if r"\?" in text:
            return    # Python leaves the backslash
        try:    # Python is the third; it refuses what it does not accept
            assert text_format.Parse(text, classes.ModelConfig()).SerializeToString(deterministic=True) == \
                classes.ModelConfig.FromString(wire).SerializeToString(deterministic=True)
        except text_format.ParseError:
            pass
    else:
        assert re.match(rb"text:\d+:\d+: ", wire)


# C++ accepts these; we do not, since a C string cannot hold them or others cannot show them.
UNFIT = [
    (r'name: "a\0b"', "contains a NUL byte"),
    (r'name: "\x00"', "contains a NUL byte"),
    ('name: "a\x00b"', "contains a NUL byte"),
    (r'name: "\xff"', "is not valid UTF-8"),
    (r'name: "\xc0\x80"', "is not valid UTF-8"),
    (r'name: "\xed\xa0\x80"', "is not valid UTF-8"),
    (r'name: "\ud800"', "is not valid UTF-8"),
    (r'name: "\U00110000"', "is not valid UTF-8"),    # C++ leaves the ten letters as they are
    (b'name: "\xe9"', "is not valid UTF-8"),
    (b'parameters { key: "\xe9" }', "is not valid UTF-8"),
]


@pytest.mark.parametrize(("text", "why"), UNFIT, ids=[repr(text)[1:40] for text, _ in UNFIT])
def test_unfit_strings_are_refused(ours, text, why):
    taken, said = ours.ask("text", "wire", text if isinstance(text, bytes) else text.encode())
    assert not taken
    assert why in said.decode()


# ---- Huge texts: accepted, or the text of the refusal


LARGE = {
    "millions of messages": (lambda: b"input{}" * 4_000_000, None, r"larger than 268435456 bytes in memory"),
    "laughs": (lambda: b"model_warmup{inputs{key:'a' value{}}inputs{key:'b' value{}}}" * 1_000_000, None, r"in memory"),
    "64 MB of numbers": (lambda: b"input{dims:[1" + b",1" * (30 * MB) + b"]}", None, r"in memory"),
    "a million numbers": (lambda: b"input{dims:[1" + b",1" * (MB - 1) + b"]}", lambda m: len(m.input[0].dims) == MB, None),
    "a million numbers one by one": (lambda: b"input{" + b"dims:1 " * MB + b"}", lambda m: len(m.input[0].dims) == MB, None),
    "a long string": (lambda: b"name:'" + b"x" * (40 * MB) + b"'", lambda m: len(m.name) == 40 * MB, None),
    "a string in pieces": (lambda: b"name:" + b"'x'" * (4 * MB), lambda m: len(m.name) == 4 * MB, None),
    "a string of escapes": (lambda: b"name:'" + rb"\x41" * (8 * MB) + b"'", lambda m: len(m.name) == 8 * MB, None),
    "a long comment": (lambda: b"#" + b"x" * (60 * MB), lambda m: m == classes.ModelConfig(), None),
    "blanks": (lambda: b" " * (60 * MB), lambda m: m == classes.ModelConfig(), None),
    "line ends": (lambda: b"\n" * (60 * MB) + b"x:1", None, r"^text:62914561:1: "),
    "a long line": (lambda: b" " * (60 * MB) + b"x:1", None, r"^text:1:62914561: "),
    "a long name": (lambda: b"x" * (60 * MB) + b":1", None, r'no field named "x{20,}'),
    "a long number": (lambda: b"max_batch_size:" + b"9" * (60 * MB), None, r"Integer out of range"),
    "a long fraction": (lambda: b"sequence_batching{direct{minimum_slot_utilization:0." + b"3" * (8 * MB) + b"}}",
                        lambda m: abs(m.sequence_batching.direct.minimum_slot_utilization - 1 / 3) < 1e-6, None),
    "a key a hundred thousand times": (lambda: b"parameters{key:'k' value{string_value:'v'}}" * 100_000,
                                       lambda m: len(m.parameters) == 1, None),
    "a hundred thousand keys": (lambda: b"".join(b"parameters{key:'%d'}" % i for i in range(100_000)),
                                lambda m: len(m.parameters) == 100_000, None),
    "open brackets": (lambda: b"input{" * 1000, None, r"no field named|is not closed"),
    "open lists": (lambda: b"input" + b"[" * (60 * MB), None, r"text:1:"),
    "extensions in each other": (lambda: b"[a]{" * (10 * MB), None, r"text:1:1: "),
    "more than may be": (lambda: b" " * (65 * MB), None, r"68157440 bytes of text, at most 67108864"),
}


def ask_alone(form, text):
    """Asks a fresh pbtool. It may use no more memory than we allow, input and output included."""
    tool = Ours()
    try:
        fine, body = tool.ask(form, "wire", text)
        process = pathlib.Path(f"/proc/{tool.process.pid}")
        memory = int(re.search(r"VmHWM:\s+(\d+) kB", (process / "status").read_text(encoding="ascii"))[1]) * 1024
        user, system = (process / "stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()[11:13]
    finally:
        tool.close()
    assert (int(user) + int(system)) / os.sysconf("SC_CLK_TCK") < TIME_S
    assert memory < MEMORY + (2 * len(body) if fine else 0)
    return fine, body


@pytest.mark.parametrize("what", LARGE)
def test_large_texts_take_bounded_memory(what):
    make, check, said = LARGE[what]
    fine, body = ask_alone("text", make())
    if said:
        assert not fine
        assert re.search(said, body.decode())
        assert len(body) < 1000
    else:
        assert fine, body
        assert check(classes.ModelConfig.FromString(body))


LARGE_JSON = {
    "millions of messages": (lambda: b'{"input":[{}' + b",{}" * 4_000_000 + b"]}", r"in memory"),
    "a million numbers": (lambda: b'{"input":[{"dims":[1' + b",1" * (MB - 1) + b"]}]}", None),
    "deep nesting": (lambda: b'{"input":' + b"[" * (10 * MB), r"."),
    "deep objects": (lambda: b'{"a":' * (10 * MB), r"."),
    "a long string": (lambda: b'{"name":"' + b"x" * (40 * MB) + b'"}', None),
    "a long number": (lambda: b'{"max_batch_size":' + b"9" * (20 * MB) + b"}", r"too big"),
    "a long name": (lambda: b'{"' + b"x" * (40 * MB) + b'":1}', r"Cannot find field"),
    "blanks": (lambda: b" " * (60 * MB), r"."),
}


@pytest.mark.parametrize("what", LARGE_JSON)
def test_large_json_takes_bounded_memory(what):
    make, said = LARGE_JSON[what]
    fine, body = ask_alone("json", make())
    if said:
        assert not fine
        assert re.search(said, body.decode())
        assert len(body) < 1000
    else:
        assert fine, body


# ---- The rules, applied to texts that are large and right

IO = 'backend:"b" max_batch_size:8 input{name:"I" data_type:TYPE_FP32 dims:1} output{name:"O" data_type:TYPE_FP32 dims:1} '
N = 50_000
RULES = {
    "many inputs": ("".join(f'input{{name:"{i}" data_type:TYPE_FP32 dims:1}} ' for i in range(N)) + 'backend:"b"', None),
    "many inputs of which the last is wrong": (
        "".join(f'input{{name:"{i}" data_type:TYPE_FP32 dims:1}} ' for i in range(N)) + 'backend:"b" input{name:"x"}',
        "model input 'x' must specify 'data_type' for m"),
    "many dims": (f'backend:"b" input{{name:"I" data_type:TYPE_FP32 dims:[{",".join(["-1"] * N)}] '
                  f'reshape{{shape:[{",".join(["-1"] * N)}]}}}}', None),
    "many groups": ('backend:"b" ' + "instance_group{} " * N, f"model 'm' has {N} instance groups, at most 4096 (" ),
    "more elements than may be": (IO + "model_warmup{} " * (1 << 18), "its lists have more than 262144 elements together"),
    "more numbers than may be": (IO + "dynamic_batching{preferred_batch_size:[1" + ",1" * (1 << 18) + "]}",
                                 "its lists have more than 262144 elements together"),
    "more text than may be": (IO + "#" + "x" * (17 << 20), " bytes, the maximum is 16777216"),
    "a long name": (IO + f'input{{name:"{"x" * (15 << 20)}"}}', "xxx…(15728"),
    "many batch inputs": (IO + 'batch_input{target_name:"x" data_type:TYPE_FP32 source_input:"I"} ' * N, None),
    "many targets": (IO + "".join(f'output{{name:"{i}" data_type:TYPE_FP32 dims:1}} ' for i in range(N)) + 'batch_output{source_input:"I" '
                     + "".join(f'target_name:"{i}" ' for i in range(N)) + "}", None),
    "many steps": ('platform:"ensemble" input{name:"0" data_type:TYPE_FP32 dims:1} '
                   f'output{{name:"{N}" data_type:TYPE_FP32 dims:1}} ensemble_scheduling{{'
                   + "".join(f'step{{model_name:"a" input_map{{key:"x" value:"{i}"}} output_map{{key:"y" value:"{i + 1}"}}}}'
                             for i in range(N)) + "}", None),
    "many steps in the wrong order": (
        'platform:"ensemble" input{name:"0" data_type:TYPE_FP32 dims:1} '
        f'output{{name:"{N}" data_type:TYPE_FP32 dims:1}} ensemble_scheduling{{'
        + "".join(f'step{{model_name:"a" input_map{{key:"x" value:"{i}"}} output_map{{key:"y" value:"{i + 1}"}}}}'
                  for i in reversed(range(N))) + "}", None),
    "many controls": (IO + "sequence_batching{" + "".join(f'control_input{{name:"{i}"}} ' for i in range(N)) + "}", None),
    "many policies": (IO + "dynamic_batching{priority_levels:60000 default_priority_level:1 "
                      + "".join(f"priority_queue_policy{{key:{i + 1}}} " for i in range(N)) + "}", None),
    "many samples": (IO + 'model_warmup{name:"w" batch_size:1 inputs{key:"I" value{data_type:TYPE_FP32 dims:1 zero_data:true}}} ' * N, None),
    "many versions": ('backend:"b" version_policy{specific{versions:[' + ",".join(map(str, range(1, N))) + "]}}", None),
}


@pytest.mark.parametrize("what", RULES)
def test_rules_take_linear_time(what, tmp_path):
    text, said = RULES[what]
    path = tmp_path / "config.pbtxt"
    path.write_text(text, encoding="ascii")

    def limit():
        resource.setrlimit(resource.RLIMIT_CPU, (TIME_S, TIME_S + 1))

    done = subprocess.run([BUILD / "tests/configtool", "m", path], env={"CONFIGTOOL_ALL": "1"}, capture_output=True, check=False,
                          preexec_fn=limit)
    if said:
        assert done.returncode == 1
        assert said in done.stderr.decode()
    else:
        assert done.returncode == 0, done.stderr[-500:]
        assert json.loads(done.stdout)["name"] == "m"
