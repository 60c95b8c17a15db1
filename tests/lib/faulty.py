# SPDX-License-Identifier: Apache-2.0
"""A server whose system calls fail now and then (tests/fault/faultlib.c)."""

import os
import struct

import preload
from server import Server, wait_for

# enum kind in faultlib.c
SOFT = ("interrupted", "not ready", "short", "few", "no files", "aborted")    # no client notices these
LOST = ("lost read", "lost write", "lost end", "unwatched")                   # these end a connection
KINDS = SOFT + LOST


class Faulty(Server):
    """A server under faultlib; counts() returns the number of faults of each kind."""

    def __init__(self, models, seed, counts_file, one_in=4, **more):
        environment = preload.environment("faultlib", FAULT_SEED=str(seed), FAULT_ONE_IN=str(one_in), FAULT_COUNTS=str(counts_file))
        super().__init__(models, env=environment, **more)
        self.counts_file = counts_file

    def counts(self):
        size = struct.calcsize(f"={len(KINDS)}Q")
        return dict(zip(KINDS, struct.unpack(f"={len(KINDS)}Q", self.counts_file.read_bytes()[:size])))

    def lose_one_in(self, calls):
        """From now on one call in so many about a connection loses it; 0: none."""
        with self.counts_file.open("r+b") as file:
            file.seek(struct.calcsize(f"={len(KINDS)}Q"))
            file.write(struct.pack("=Q", calls))


def descriptors(server):
    return len(os.listdir(f"/proc/{server.pid}/fd"))


def assert_descriptors_come_back(server, before):
    wait_for(lambda: descriptors(server) <= before, 60, f"{before} descriptors are open again")
