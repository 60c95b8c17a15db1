# SPDX-License-Identifier: Apache-2.0
"""What tests/fault/allocfault.c counts and fails, by the file that it reads."""

import struct


class Allocations:
    """Those of the library that ALLOC_LIBRARY names; path is that of ALLOC_COUNTS."""

    def __init__(self, path):
        self.path = path
        self.fail(0)

    def fail(self, n, goes_on=False):
        """From now on the n-th fails; goes_on: and those behind it."""
        with self.path.open("r+b" if self.path.exists() else "w+b") as file:
            file.write(struct.pack("=3Q", 0, n, goes_on))

    def count(self):
        return struct.unpack("=3Q", self.path.read_bytes())[0]
