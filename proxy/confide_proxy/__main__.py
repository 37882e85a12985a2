"""The command `confide`: chooses between the lean `confide mcp` and everything else.

`confide mcp` is spawned by an agent that waits for it, so its path imports only what it needs; the other commands load the
command-line library (a test walks both).
"""

from __future__ import annotations

import gc
import os
import resource
import sys
import threading
import time
from typing import NoReturn


def main() -> None:
    """Run `confide` with the arguments of the process."""
    began = time.monotonic()
    # A process that crashes would leave on the disk what it holds in memory, the keys of its space among it.
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    arguments = sys.argv[1:]
    try:
        if arguments[:1] == ["mcp"] and "--help" not in arguments and "-h" not in arguments:
            from confide_proxy.mcp import stdio

            sys.exit(stdio.run(arguments[1:]))
        # What a command imports stays, so there is next to nothing to collect in it.
        gc.set_threshold(20_000)
        from confide_proxy.cli import app

        app.main(began)
    except KeyboardInterrupt:  # also while it loads, which takes some tenths of a second
        sys.exit(130)
    except SystemExit as end:
        leave(end.code if isinstance(end.code, int) else 0)


def leave(code: int) -> NoReturn:
    """End the process. Taking all modules apart takes a quarter of what a short command costs, for nothing: all files are closed by now."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        sys.exit(code)  # the interpreter has words and a code of its own for it
    if threading.active_count() > 1:
        sys.exit(code)
    os._exit(code)
