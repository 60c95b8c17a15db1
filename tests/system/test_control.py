# SPDX-License-Identifier: Apache-2.0
"""Loading and unloading while the server runs, asked by the C API: refused, with the reason."""

import embed
import repository

REFUSED = {
    (): "Unavailable: explicit model load / unload is not allowed if polling is enabled",
    ("explicit", "m"): "Unsupported: {}loading model 'm' while the server runs is not supported yet",
}


def test_refused(tmp_path):
    repository.write_identity(tmp_path, "m", [("FP32", [-1])])
    for options, text in REFUSED.items():
        lines = embed.run(tmp_path, ["load m", "unload m", "unload-all m", "ready m"], options=options)
        assert lines == [f"load m {text.format('')}", f"unload m {text.format('un')}",
                         f"unload-all m {text.format('un')}", "ready m yes"]
