# SPDX-License-Identifier: Apache-2.0
"""Programs under test with one of the libraries of tests/fault/, or tests/stress/heapwatch, preloaded."""

import os

import server as servers


def extend(name, first, between=":"):
    """A list in the environment, with something before what it has already: `tools/test --pauses` preloads a library, too."""
    return between.join(filter(None, [str(first), os.environ.get(name)]))


def environment(library, **settings):
    """The environment for a program; library: allocfault, faultlib, filefault, fastclock, processors, trims, writes, pauses, heapwatch."""
    return {
        "LD_PRELOAD": extend("LD_PRELOAD", f"{library}.so", " "),  # the loader would split a path with a space
        "LD_LIBRARY_PATH": extend("LD_LIBRARY_PATH", (servers.BUILD / "tests").resolve()),
        # It precedes the sanitizer's own library, which checks the order.
        "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0",
        **settings,
    }
