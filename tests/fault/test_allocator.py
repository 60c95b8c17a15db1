# SPDX-License-Identifier: Apache-2.0
"""The allocator of the C library beside ours (fault/trims)."""

import pytest

import preload
import server as servers


@pytest.mark.skipif(servers.SANITIZED, reason="such a build has its sanitizer's allocator")
def test_the_allocator_of_the_c_library_is_ready_before_there_are_threads():
    """OpenVINO calls malloc_trim() where it frees a model. The first call prepares the allocator, which two threads must not do at once."""
    code, _, err = servers.run_to_end("--print-config", env=preload.environment("trims"))
    assert (code, err) == (0, "malloc_trim() with 1 threads\n")
