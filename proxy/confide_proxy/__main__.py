"""Entry point of `confide`: dispatches to `confide hook`, `confide mcp`, `confide run` or the
command line.

Agents' clients wait for `confide hook` on every turn and for `confide mcp` at every start, and a
command waits for `confide run`. So these three import only what they need. All other commands load
the command-line library. Tests check both.
"""

from __future__ import annotations

import os
import sys
import time

from confide_crypto import portable

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing it would cost a hook some milliseconds
    from typing import NoReturn


def main() -> None:
    """Run `confide` with the arguments of the process."""
    began = time.monotonic()
    portable.open_standard_streams()
    # No core dumps: a dump would write the process's memory, with the keys of its space, to the
    # disk.
    try:
        import resource
    except ImportError:
        pass  # Windows writes dumps only if its user has enabled them
    else:
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    arguments = sys.argv[1:]
    if arguments == ["hook"]:
        try:
            from confide_proxy.hooks import hook_process

            hook_process.main()
        finally:
            os._exit(0)  # also if interrupted while loading
    if time.time() < 0:  # rosters, invites and daily files contain dates since 1970
        sys.exit("confide: this device's clock stands before 1970\nhint: set the clock: timedatectl")
    try:
        if arguments[:1] == ["mcp"] and "--help" not in arguments and "-h" not in arguments:
            from confide_proxy.mcp import stdio

            sys.exit(stdio.run(arguments[1:]))
        import gc

        # Imported modules stay alive, so a command leaves almost nothing for the collector to free.
        gc.set_threshold(20_000)
        if arguments[:1] == ["run"] and portable.HAS_MODES:
            from confide_proxy.run import quick_run

            quick_run.run(arguments[1:])
        from confide_proxy.cli import app

        app.main(began)
    except KeyboardInterrupt:  # also while loading, which takes some tenths of a second
        sys.exit(130)
    except SystemExit as end:
        leave(end.code if isinstance(end.code, int) else 0)


def leave(code: int) -> NoReturn:
    """End the process at once with this exit code, after flushing stdout and stderr.

    All files are closed by now, and an orderly shutdown of the interpreter would take a quarter of
    the run time of a short command. While other threads run, the process exits the ordinary way.
    """
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        sys.exit(code)  # the interpreter reports this with its own message and code
    import threading

    if threading.active_count() > 1:
        sys.exit(code)
    os._exit(code)


if __name__ == "__main__":
    main()
