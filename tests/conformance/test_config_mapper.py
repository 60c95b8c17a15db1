# SPDX-License-Identifier: Apache-2.0
"""Our text and JSON mapper compared with protobuf's own, in Python and in C++, on random and on damaged messages.

CONCH_SCALE=n makes n times as many; CONCH_SEED chooses others.
"""

import math
import os
import random
import re

import pytest
from google.protobuf import json_format, text_format

from mapper import TOP, Ours, classes, cpp

SCALE = int(os.environ.get("CONCH_SCALE", "1"))
SEED = int(os.environ.get("CONCH_SEED", "2026"))

WORDS = ["", "m", "INPUT0", "a b", "é", "日本", "😀", "\t\n\r", "\"'\\", "\x01\x7f", "{}[]<>;,:#", "x" * 200]
FLOATS = [0.0, 1.0, -1.5, 0.1, 1e-7, 3.3333333, 1e22, 123456.789, 3.4e38, 1e-45, 1e16, math.inf,
          -math.inf, 5e-324, 1.7976931348623157e308]


@pytest.fixture(name="ours", scope="module")
def start_ours():
    tool = Ours()
    yield tool
    tool.close()


def random_value(rng, field):
    kind = field.cpp_type
    if kind in (field.CPPTYPE_INT32, field.CPPTYPE_INT64):
        top = 2**31 if kind == field.CPPTYPE_INT32 else 2**63
        return rng.choice([0, 1, -1, top - 1, -top, rng.randrange(-top, top), rng.randrange(100)])
    if kind in (field.CPPTYPE_UINT32, field.CPPTYPE_UINT64):
        top = 2**32 if kind == field.CPPTYPE_UINT32 else 2**64
        return rng.choice([0, 1, top - 1, rng.randrange(top), rng.randrange(100)])
    if kind == field.CPPTYPE_FLOAT:
        value = rng.choice([*FLOATS, rng.uniform(-10, 10)])
        return value if abs(value) < 3.5e38 else math.copysign(math.inf, value)
    if kind == field.CPPTYPE_DOUBLE:
        return rng.choice([*FLOATS, rng.uniform(-1e9, 1e9)])
    if kind == field.CPPTYPE_BOOL:
        return rng.random() < 0.5
    if kind == field.CPPTYPE_ENUM:
        return rng.choice([value.number for value in field.enum_type.values])
    return rng.choice([*WORDS, f"name{rng.randrange(1000)}"])


def fill(rng, message, depth, density):
    for field in message.DESCRIPTOR.fields:
        if rng.random() > density:
            continue
        value = getattr(message, field.name)
        if field.message_type and field.message_type.GetOptions().map_entry:
            key, mapped = field.message_type.fields
            for _ in range(rng.randrange(4)):
                if mapped.message_type:
                    fill(rng, value[random_value(rng, key)], depth + 1, density)
                else:
                    value[random_value(rng, key)] = random_value(rng, mapped)
        elif field.is_repeated:
            for _ in range(rng.choice([1, 2, 3, 20 if not field.message_type else 2])):
                if field.message_type:
                    fill(rng, value.add(), depth + 1, density)
                else:
                    value.append(random_value(rng, field))
        elif field.message_type:
            value.SetInParent()
            fill(rng, value, depth + 1, density)
        else:
            setattr(message, field.name, random_value(rng, field))


def random_message(rng):
    message = classes.ModelConfig()
    fill(rng, message, 0, rng.choice([0.1, 0.3, 0.6]))
    return message


def random_text(rng, message):
    return text_format.MessageToString(
        message, as_utf8=rng.random() < 0.5, as_one_line=rng.random() < 0.3, pointy_brackets=rng.random() < 0.3,
        use_short_repeated_primitives=rng.random() < 0.5, use_index_order=rng.random() < 0.5)


def test_random_messages_are_mapped_as_by_protobuf(ours):
    rng = random.Random(SEED)
    for _ in range(1500 * SCALE):
        message = random_message(rng)
        text = random_text(rng, message).encode()
        assert ours.message("text", text) == message

        fine, printed = ours.ask("wire", "text", message.SerializeToString())
        assert fine
        assert text_format.Parse(printed, classes.ModelConfig()) == message, printed

        fine, printed = ours.ask("wire", "json", message.SerializeToString())
        assert fine
        assert json_format.Parse(printed, classes.ModelConfig()) == message, printed

        json = json_format.MessageToJson(
            message, preserving_proto_field_name=rng.random() < 0.5, always_print_fields_with_no_presence=rng.random() < 0.5,
            use_integers_for_enums=rng.random() < 0.3, indent=rng.choice([None, 2]), ensure_ascii=rng.random() < 0.5)
        assert ours.message("json", json.encode()) == message


def damage(rng, text):
    """One small change, of the kinds that people and editors make."""
    tokens = re.findall(r'"(?:[^"\\]|\\.)*"|[\w.+-]+|\s+|.', text, re.DOTALL)
    if not tokens:
        return "{"
    at = rng.randrange(len(tokens))
    snippets = ["{", "}", "[", "]", "<", ">", ":", ",", ";", "-", "#", '"', "'", "name", "1", "0x1F", "017", "1.5", "1e3", "inf",
                "nan", "true", "t", "False", "TYPE_FP32", "KIND_CPU", '"\\x41\\101\\u00e9"', "'\\''", "dims", "\n", "\t", "# x\n",
                "input {", "[a.b]", "1f", "2.f", ".5", "09", "99999999999999999999", "é", "\\", "\r\n", "  "]
    change = rng.randrange(6)
    if change == 0:
        del tokens[at]
    elif change == 1:
        tokens.insert(at, tokens[at])
    elif change == 2:
        tokens.insert(at, rng.choice(snippets))
    elif change == 3:
        tokens[at] = rng.choice(snippets)
    elif change == 4:
        other = rng.randrange(len(tokens))
        tokens[at], tokens[other] = tokens[other], tokens[at]
    else:
        i = rng.randrange(len(text) + 1)
        return text[:i] + rng.choice(snippets) + text[i + rng.randrange(3):]
    return "".join(tokens)


def by_python(text):
    try:
        return text_format.Parse(text, classes.ModelConfig())
    except (text_format.ParseError, UnicodeDecodeError, ValueError):
        return None


@pytest.mark.filterwarnings("ignore:invalid escape sequence")    # protobuf's own reader gives them
def test_damaged_texts_are_read_as_by_protobuf(ours):
    """Where we and Python differ, the C++ parser decides, which is what the reference uses."""
    rng = random.Random(SEED + 1)
    accepted = asked = 0
    for _ in range(3000 * SCALE):
        text = random_text(rng, random_message(rng))[:3000]
        for _ in range(rng.choice([1, 1, 2, 3])):
            text = damage(rng, text)
        fine, body = ours.ask("text", "wire", text.encode())
        theirs = by_python(text)
        message = classes.ModelConfig.FromString(body) if fine else None
        accepted += fine
        if message == theirs:
            continue
        if not fine and (b"NUL byte" in body or b"not valid UTF-8" in body):
            continue    # the two that we refuse by design
        asked += 1
        wire, complaints = cpp(text.encode())
        assert (wire is not None) == fine, f"{body!r} {complaints}\n{text}"
        assert not fine or classes.ModelConfig.FromString(wire) == message, text
    assert accepted > 100 * SCALE
    assert asked < 1000 * SCALE


def damage_json(rng, text):
    tokens = re.findall(r'"(?:[^"\\]|\\.)*"|[\w.+-]+|\s+|.', text, re.DOTALL)
    at = rng.randrange(len(tokens))
    snippets = ["{", "}", "[", "]", ":", ",", '"', "null", "true", "1", "-1", "1.0", "1e2", "1.5", '"1"', '"x"', '"TYPE_FP32"',
                '"type_fp32"', '"name"', '"maxBatchSize"', "99999999999999999999", '"NaN"']
    change = rng.randrange(3)
    if change == 0:
        del tokens[at]
    elif change == 1:
        tokens[at] = rng.choice(snippets)
    else:
        tokens.insert(at, rng.choice(snippets))
    return "".join(tokens)


# Where Python's reader differs, by our error or by the text that it accepts or refuses:
OTHERWISE_JSON = [
    rb"given twice",                    # Python: the last member wins
    rb"NUL byte",                       # no C string
    rb"for type type\.googleapis\.com/inference\.[\w.]+ \(\d",    # enums: Python never ignores case
    rb"expected an? (integer|number)",  # Python's int() takes " 1" and "1_0"
    rb"expected a name or a number",    # Python takes true for 1
]


# Accepted by protobuf's reader in C++ and not by the one in Python: one value for a list, relaxed syntax.
MORE_GENEROUS = r"epeated field \w+ must be in \[\]|trailing comma|Expecting property name|Expecting value"


def test_damaged_json_is_read_as_by_protobuf(ours):
    rng = random.Random(SEED + 2)
    accepted = 0
    for _ in range(2000 * SCALE):
        json = json_format.MessageToJson(random_message(rng), preserving_proto_field_name=True, indent=None)
        json = damage_json(rng, json)
        fine, body = ours.ask("json", "wire", json.encode())
        try:
            theirs, refusal = json_format.Parse(json, classes.ModelConfig()), ""
        except json_format.ParseError as error:
            theirs, refusal = None, str(error)
        accepted += fine
        if not fine:
            assert theirs is None or any(re.search(known, body) for known in OTHERWISE_JSON), f"{body!r}\n{json}"
        elif theirs is not None:
            assert classes.ModelConfig.FromString(body) == theirs, json
        else:    # enums in any case, a null inside a oneof, what C++ accepts, too; else we may not be more generous
            assert (re.search(r'"(type|kind|format)_[a-z0-9_]+"|null', json) or re.search(MORE_GENEROUS, refusal)), f"{refusal}\n{json}"
    assert accepted > 100 * SCALE


def blocks():
    """The texts of wrong.txt that are no text format, with our error."""
    content = (TOP / "tests/unit/core/config/wrong.txt").read_text(encoding="utf-8")
    for block in content.split("\n== ")[1:]:
        title, rest = block.split("\n", 1)
        text, answer = rest.split("-- ", 1)
        match = re.match(r"Internal: failed to read text proto from config.pbtxt:\d+:\d+: (.*)", answer)
        if match:
            yield pytest.param(text, match[1], id=title)


@pytest.mark.parametrize(("text", "error"), list(blocks()))
def test_errors_begin_as_in_cpp(text, error):
    if "NUL byte" in error or "not valid UTF-8" in error:
        pytest.skip("refused by us only")
    _, complaints = cpp(text.encode())
    theirs = re.match(r"input:\d+:\d+: (.*)", complaints)[1].rstrip(".")
    # Where protobuf prints nothing for the end of the text, we name it; we have no name for a oneof.
    theirs = re.sub(r'another member of oneof "\w+"', "another member of the same oneof", theirs)
    theirs = re.sub(r'(got: |found ")("?)$', r"\1end of text\2", theirs)
    if "is not closed" in error:
        theirs = theirs.replace("Expected identifier, got: end", 'Expected "}", found end')
    theirs = re.sub(r"Interpreting non ascii codepoint \d+", "Characters beyond ASCII", theirs)
    theirs = theirs.replace('Expected identifier, got: "true"', 'Expected true or false, got: "true"')
    assert error.startswith(theirs)
