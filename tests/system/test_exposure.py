# SPDX-License-Identifier: Apache-2.0
"""The warning at the start when clients of other machines may load models."""

import pytest

from server import Server

pytestmark = pytest.mark.conch_only("Triton does not warn")
SAID = "may load and unload models, and a model may have code in it"
EXPLICIT = "--model-control-mode=explicit"


@pytest.mark.parametrize(
    "address, flags, said",
    [
        ("0.0.0.0", [EXPLICIT], "Whoever reaches HTTP may load"),
        ("::", [EXPLICIT], "Whoever reaches HTTP may load"),
        ("0.0.0.0", [EXPLICIT, "--http-restricted-api=statistics,logging:k=v"], "Whoever reaches HTTP may load"),
        ("0.0.0.0", [EXPLICIT, "--http-restricted-api=logging,model-repository:k=v"], None),
        ("0.0.0.0", [], None),
        ("127.0.0.1", [EXPLICIT], None),
        ("localhost", [EXPLICIT], None),
    ],
)
def test_a_warning_says_who_may_load_models(tmp_path, address, flags, said):
    with Server(tmp_path, address=address, flags=flags) as server:
        warnings = [line for line in server.log().splitlines() if SAID in line]
    assert len(warnings) == bool(said)
    assert not said or (said in warnings[0] and warnings[0].startswith("W"))


def test_both_protocols_are_named(tmp_path):
    with Server(tmp_path, address="0.0.0.0", grpc="0.0.0.0", flags=[EXPLICIT]) as server:
        assert "Whoever reaches HTTP or gRPC may load" in server.log()


PAGES = "Any page that a browser opens may ask this server"


@pytest.mark.parametrize(
    "flags, said",
    [
        (["--http-cors-origins=*"], f"{PAGES}, even at 127.0.0.1, because of --http-cors-origins=*: name the origins of your pages instead"),
        (["--http-cors-origins=*", EXPLICIT], f"{PAGES}, and load and unload models, even at 127.0.0.1, because of --http-cors-origins=*"),
        (["--http-cors-origins=*", EXPLICIT, "--http-restricted-api=model-repository:k=v"], f"{PAGES}, even"),
        (["--http-cors-origins=https://page.example", EXPLICIT], None),
        ([EXPLICIT], None),
    ],
)
def test_a_warning_says_what_all_pages_may_do(tmp_path, flags, said):
    """At an address that other machines do not reach, since a browser of this one does."""
    with Server(tmp_path, flags=flags) as server:
        server.wait_log("Ready: ")
        warnings = [line for line in server.log().splitlines() if PAGES in line]
    assert len(warnings) == bool(said)
    assert not said or (said in warnings[0] and warnings[0].startswith("W"))
