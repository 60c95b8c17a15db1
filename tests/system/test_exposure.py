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
