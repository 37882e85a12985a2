"""The command `confide`: chooses between `confide hook`, `confide mcp` and everything else.

A client waits for the first at every turn, and an agent for the second when it starts, so their paths import only what they need; the
other commands load the command-line library (tests walk all of them).
"""

from __future__ import annotations

import os
import resource
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # to import it costs a hook some milliseconds
    from typing import NoReturn


def main() -> None:
    """Run `confide` with the arguments of the process."""
    began = time.monotonic()
    # A process that crashes would leave on the disk what it holds in memory, the keys of its space among it.
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    arguments = sys.argv[1:]
    if arguments == ["hook"]:
        try:
            from confide_proxy.hooks import hook_process

            hook_process.main()
        finally:
            os._exit(0)  # also where it is interrupted while it loads
    if time.time() < 0:  # a list of devices, an invite and a day's file all have a date, and none of before
        sys.exit("confide: this device's clock stands before 1970\nhint: set the clock: timedatectl")
    try:
        if arguments[:1] == ["mcp"] and "--help" not in arguments and "-h" not in arguments:
            from confide_proxy.mcp import stdio

            sys.exit(stdio.run(arguments[1:]))
        import gc

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
    import threading

    if threading.active_count() > 1:
        sys.exit(code)
    os._exit(code)


if __name__ == "__main__":
    main()
