# SPDX-License-Identifier: Apache-2.0
"""The first lines of an instance's process: python3 start.py. The extension beside it does the rest."""

import os
import sys

if sys.version_info < (3, 8):
    sys.exit("conch: the Python backend needs Python 3.8 or later, and %s is %s" % (sys.executable, sys.version.split()[0]))
if "t" in getattr(sys, "abiflags", ""):
    sys.exit("conch: the Python backend does not run in a free-threaded Python, and %s is one" % sys.executable)

# Models must not find this folder in front of their own: the extension puts it behind them.
_own = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [_own] + [folder for folder in sys.path if folder != _own]
import conch_python  # noqa: E402  pylint: disable=wrong-import-position
del sys.path[0]

_loop = None              # the event loop of coroutines, on a thread of its own
_background = {}          # coroutines of decoupled models, and the requests that they are to answer


def _start_loop():
    global _loop          # pylint: disable=global-statement
    import asyncio        # pylint: disable=import-outside-toplevel
    import threading      # pylint: disable=import-outside-toplevel
    _loop = asyncio.new_event_loop()
    threading.Thread(target=_loop.run_forever, daemon=True).start()


def _end_background(future):
    requests = _background.pop(future)
    if not future.cancelled() and future.exception():
        conch_python.fail(requests, future.exception())


def finish(result, requests):
    """What the model's method returns in the end: a coroutine is awaited, or left to the background with its requests."""
    import asyncio        # pylint: disable=import-outside-toplevel
    if not asyncio.iscoroutine(result):
        return result
    if _loop is None:
        _start_loop()
    future = asyncio.run_coroutine_threadsafe(result, _loop)
    if requests is None:
        return future.result()
    _background[future] = requests
    future.add_done_callback(_end_background)
    return None


if __name__ == "__main__":
    if sys.stdout is not None:
        sys.stdout.reconfigure(line_buffering=True)
    sys.modules["c_python_backend_utils"] = conch_python    # the name that it has in Triton
    conch_python.run(finish)
