# SPDX-License-Identifier: Apache-2.0
"""Programs under test with one of the libraries of tests/fault/, or tests/stress/heapwatch, loaded before theirs."""

import os

import server as servers


def environment(library, **settings):
    """What is to be set for a program; library: faultlib, filefault, fastclock, processors, heapwatch."""
    return {
        "LD_PRELOAD": f"{library}.so",  # of a path with a space the loader would make two
        "LD_LIBRARY_PATH": str((servers.BUILD / "tests").resolve()),
        # It comes before the sanitizer's own library, which may not mind.
        "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0",
        **settings,
    }
