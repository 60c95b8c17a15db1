# SPDX-License-Identifier: Apache-2.0
"""Every configuration that we have, converted to text and to JSON and back, and as Python's protobuf reads and prints it.

CONCH_SCALE=n makes n times as many random messages; CONCH_SEED chooses others.
"""

import concurrent.futures
import os
import random
import re
import subprocess

import pytest
from google.protobuf import json_format, text_format

import corpus
import repository
import test_backends_in_reference
import test_warmup
from mapper import BUILD, TOP, Ours, classes, cpp
from test_config_mapper import SCALE, SEED, random_message


@pytest.fixture(name="ours", scope="module")
def start_ours():
    tool = Ours()
    yield tool
    tool.close()


# ---- All of them


def files():
    for folder in ("examples", "tests", "bench", "docs"):
        for path in sorted((TOP / folder).rglob("*.pbtxt")):
            yield str(path.relative_to(TOP)), path.read_text(encoding="utf-8")
    for path in sorted((TOP / "tests/fuzz/corpus/pbtext").iterdir()):    # some are wrong
        yield f"wrong/fuzz/{path.name}", path.read_text(encoding="utf-8", errors="surrogateescape")


def shown_in_pages():
    for page in sorted([TOP / "README.md", *(TOP / "docs").glob("*.md")]):
        for i, block in enumerate(re.findall(r"^```protobuf\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)):
            yield f"{page.name}/{i}", block


def of_the_corpus():
    for model in corpus.read_all():
        yield f"wrong/{model.source}/{model.name}", model.config    # may be wrong


def of_test_repositories(root):
    repository.write_standard(root / "standard")
    for which in ("conch", "triton"):
        test_backends_in_reference.write_models(root / which, which)
        test_backends_in_reference.broken(root / f"{which}_broken", which)
    for path in sorted(root.rglob("config.pbtxt")):
        yield str(path.relative_to(root)), path.read_text(encoding="utf-8")
    for table in (test_warmup.RUNS, test_warmup.FAILS, test_warmup.FAILS_HERE):
        for name, (text, _) in table.items():
            yield f"warmup/{name}", text


@pytest.fixture(name="all_of_them", scope="module")
def collect(ours, tmp_path_factory):
    """[(name, text, message)] of the texts that are configurations."""
    root = tmp_path_factory.mktemp("models")
    fine, found = [], []
    for name, text in [*files(), *shown_in_pages(), *of_the_corpus(), *of_test_repositories(root)]:    # wrong/: maybe not
        taken, refusal = ours.ask("text", "wire", text.encode(errors="surrogateescape"))
        assert taken or name.startswith("wrong/"), f"{name}: {refusal}"
        if taken:
            fine.append((name, text))
    for (name, text), (wire, complaints) in zip(fine, at_once(lambda each: cpp(each[1].encode()), fine), strict=True):
        assert wire is not None or name.startswith("wrong/"), f"{name}: {complaints}"
        if wire is not None:
            found.append((name, text, classes.ModelConfig.FromString(wire)))
    assert len(found) > 250
    return found


def at_once(function, items):
    """The function's result for each item, in order; as many at a time as there are processors, since it waits for a program."""
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(function, items))


def ask(ours, from_form, to_form, data):
    fine, answer = ours.ask(from_form, to_form, data)
    assert fine, f"{answer.decode()}\n{data!r}"
    return answer


# ---- Both conversions and back


def way_round(ours, text):
    """text → message → JSON → message → text → message; returns the texts and messages of these steps."""
    json = ask(ours, "text", "json", text)
    again = ask(ours, "json", "text", json)
    return json, again, ours.message("text", text), ours.message("json", json), ours.message("text", again)


def same(a, b):
    """Equal except for the sign of a zero: the reference's JSON has none, and ours neither."""
    return a == b or re.sub(r": -0$", ": 0", str(a), flags=re.M) == re.sub(r": -0$", ": 0", str(b), flags=re.M)


def test_every_configuration_survives_both_conversions(ours, all_of_them):
    for name, text, message in all_of_them:
        text = text.encode()
        json, again, *messages = way_round(ours, text)
        for each in messages:
            assert same(each, message), name
        assert ask(ours, "text", "text", again) == again, name
        assert text_format.Parse(again, classes.ModelConfig()) == messages[-1], name
        assert json_format.Parse(json, classes.ModelConfig()) == messages[-1], name


def completed(path, name, **settings):
    return subprocess.run([BUILD / "tests/configtool", name, path], capture_output=True, check=False,
                          env=os.environ | {"CONFIGTOOL_ALL": "1"} | settings)


def test_a_completed_configuration_survives_both_conversions(all_of_them, tmp_path):
    """The configuration with all defaults, as the server prints it: the JSON with the reference's special cases, and the text."""
    def is_printed(number):
        name, text, message = all_of_them[number]
        path = tmp_path / f"{number}.pbtxt"
        path.write_text(text, encoding="utf-8")
        model = message.name or "m"
        json = completed(path, model)
        if json.returncode:
            return False    # one of the wrong texts
        text = completed(path, model, CONFIGTOOL_TEXT="1")
        from_text = text_format.Parse(text.stdout, classes.ModelConfig())
        assert same(from_text, json_format.Parse(json.stdout, classes.ModelConfig())), name
        path.write_bytes(text.stdout)
        again = completed(path, model)
        assert same(json_format.Parse(again.stdout, classes.ModelConfig()), from_text), name
        return True

    assert sum(at_once(is_printed, range(len(all_of_them)))) > 100


# ---- As protobuf prints it

# Python prints the fewest digits that distinguish two numbers; C++ and we print 6 or 9, 15 or 17 (src/base/pbmsg.h).
NUMBERS = re.compile(rb"^( *(?:buckets|fp32_false_true|minimum_slot_utilization): )(.*)$", re.MULTILINE)


def without_digits(text):
    return NUMBERS.sub(lambda line: line[1] + b"," * line[2].count(b","), text)


def test_random_messages_print_as_by_protobuf(ours):
    rng = random.Random(SEED + 3)
    for _ in range(5000 * SCALE):
        message = random_message(rng)
        printed = ask(ours, "wire", "text", message.SerializeToString())
        theirs = text_format.MessageToString(message, as_utf8=True, use_short_repeated_primitives=True).encode()
        if printed != theirs:
            assert without_digits(printed) == without_digits(theirs)
            assert text_format.Parse(printed, classes.ModelConfig()) == message, printed


def test_random_messages_survive_both_conversions(ours):
    rng = random.Random(SEED + 4)
    for _ in range(2000 * SCALE):
        message = random_message(rng)
        text = ask(ours, "wire", "text", message.SerializeToString())
        for each in way_round(ours, text)[2:]:
            assert each == message, text
