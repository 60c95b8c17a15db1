# SPDX-License-Identifier: Apache-2.0
"""What tests rely on, whatever has started them."""

import os
import signal
import subprocess
import sys


def test_a_program_of_a_test_ends_at_sigint():
    with subprocess.Popen(["sleep", "600"]) as process:
        process.send_signal(signal.SIGINT)
        try:
            assert process.wait(20) == -signal.SIGINT
        finally:
            process.kill()


def test_it_does_so_in_a_background_job():
    """That of a shell without job control, which ignores SIGINT."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"{__file__}::test_a_program_of_a_test_ends_at_sigint"]
    environment = {name: value for name, value in os.environ.items() if name != "CONCH_CLAIMS"}
    done = subprocess.run(["bash", "-c", '"$@" & wait $!', "bash", *command], env=environment, capture_output=True, text=True,
                          timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
