# SPDX-License-Identifier: Apache-2.0
"""Our JSON compared with Python's: a document that both read has the same values, and both agree on what is a document.

differs() lists the intended differences; any other document that one accepts the other must accept, too.
"""

import json
import math
import os
import pathlib
import random
import re
import struct
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOL = pathlib.Path(os.environ.get("CONCH_BUILD_DIR", ROOT / "build/release")) / "tests/json_copy"

# Both halves of a surrogate pair alone, and code points of one to four bytes.
CHARACTERS = ['"', "\\", "/", "\b", "\n", "\0", "\x1f", " ", "a", "7", "\x7f", "é", "€", "😀", ",", "[", "}"]


def ask(documents):
    """The answers to documents (bytes): each a pair, accepted and text."""
    sent = b"".join(struct.pack("<I", len(d)) + d for d in documents)
    got = subprocess.run([TOOL], input=sent, stdout=subprocess.PIPE, check=True, timeout=120).stdout
    answers = []
    while got:
        (length,) = struct.unpack_from("<I", got)
        answers.append((got[4:5] == b"=", got[5 : 4 + length]))
        got = got[4 + length :]
    assert len(answers) == len(documents)
    return answers


def random_number(rng):
    kind = rng.randrange(6)
    if kind == 0:
        return rng.randrange(-300, 300)
    if kind == 1:
        return rng.choice([2**63 - 1, 2**63, 2**64 - 1, -(2**63), 2**53 + 1, 10**15, 10**18])
    if kind == 2:
        return rng.uniform(-10, 10)
    if kind == 3:
        return struct.unpack("<f", struct.pack("<f", rng.uniform(-3, 3)))[0]
    while True:
        value = struct.unpack("<d", rng.randbytes(8))[0]
        if math.isfinite(value):
            return value


def random_value(rng, depth=0):
    kind = rng.randrange(9 if depth < 5 else 6)
    if kind < 2:
        return random_number(rng)
    if kind < 4:
        return "".join(rng.choice(CHARACTERS) for _ in range(rng.randrange(20)))
    if kind == 4:
        return rng.choice([True, False])
    if kind == 5:
        return None
    if kind == 6:
        return {"".join(rng.choice(CHARACTERS) for _ in range(rng.randrange(5))): random_value(rng, depth + 1) for _ in range(4)}
    return [random_value(rng, depth + 1) for _ in range(rng.randrange(6))]


def random_document(rng):
    value = [random_value(rng) for _ in range(3)]
    separators = rng.choice([(",", ":"), (", ", ": "), (" ,\n", "\t:\r\n")])
    return json.dumps(value, ensure_ascii=rng.random() < 0.5, separators=separators).encode()


def as_ours(value):
    """Integers beyond 64 bits are doubles here, as they are in Triton."""
    if isinstance(value, dict):
        return {key: as_ours(item) for key, item in value.items()}
    if isinstance(value, list):
        return [as_ours(item) for item in value]
    if type(value) is int and not -(2**63) <= value < 2**64:
        return float(value)
    return value


def same(a, b):
    """Equal, of equal types, and zeros of equal sign."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b and (not isinstance(a, float) or math.copysign(1, a) == math.copysign(1, b))


def differs(document):
    """Texts on which the two differ on purpose."""
    return (
        re.search(rb"In|N", document)  # NaN, Inf and Infinity with either sign
        or b"\0" in document  # ends the document for us
        or re.search(rb"\\u[dD][89a-fA-F]", document)  # half a surrogate pair
        or re.search(rb"\d{300}|[eE]\+?\d{3}", document)  # numbers that are too large
    )


@pytest.mark.parametrize("seed", range(4))
def test_values_are_the_same(seed):
    rng = random.Random(seed)
    documents = [random_document(rng) for _ in range(1500)]
    for document, (accepted, text) in zip(documents, ask(documents)):
        assert accepted, (document, text)
        assert same(json.loads(text), as_ours(json.loads(document))), (document, text)


@pytest.mark.parametrize("seed", range(4))
def test_both_refuse_the_same_broken_documents(seed):
    """Some bytes changed, lost or added: most results are not documents, some are."""
    rng = random.Random(1000 + seed)
    documents = []
    while len(documents) < 5000:
        document = bytearray(random_document(rng)[: rng.randrange(10, 120)])
        if rng.random() < 0.7:
            document += b"]" * rng.randrange(1, 4)
        for _ in range(rng.randrange(1, 3)):
            at = rng.randrange(len(document))
            document[at : at + rng.randrange(2)] = rng.choice([b"", *(bytes([c]) for c in b'{}[],:"\\0123456789-+.eE tfnu\n')])
        if not differs(document):
            documents.append(bytes(document))
    n_accepted = 0
    for document, (accepted, text) in zip(documents, ask(documents)):
        try:
            value = json.loads(document.decode("utf-8", "surrogateescape"))
        except ValueError:
            assert not accepted, (document, text)
            assert b"walking" not in text, document
            continue
        assert accepted, (document, text)
        n_accepted += 1
        assert same(json.loads(text.decode("utf-8", "surrogateescape")), as_ours(value)), (document, text)
    assert n_accepted > 50
