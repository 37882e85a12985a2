"""The command `confided`, also `python -m confide_daemon`.

Light on purpose: it sets what native libraries read when they are loaded, and leaves the rest to `cli`, which loads the heavy parts only
in the commands that need them.
"""

from __future__ import annotations

import os
import sys
import time

# On a busy machine two BLAS threads turn a quarter of a millisecond into ten (measured), so the small products of a search stay on one.
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
# The SDK of MCP would hand on the traces of clients, and look through every installed package for what can, 50 ms of each start. Nothing
# here writes traces.
_PROPAGATORS = "OTEL_PROPAGATORS"


def main() -> None:
    """Run `confided` with the arguments of the process."""
    for variable in _THREADS:
        os.environ.setdefault(variable, "1")
    os.environ.setdefault(_PROPAGATORS, "none")
    # Files made before their mode is set must not be open to others for a moment either.
    os.umask(0o077)
    if time.time() < 0:  # a list of devices, an invite and a day's file all have a date, and none of before
        sys.exit("confided: this machine's clock stands before 1970\nhint: set the clock: timedatectl")
    try:
        from confide_daemon.cli import app

        app.main()
    except KeyboardInterrupt:  # also while it loads, which takes some tenths of a second
        sys.exit(130)


if __name__ == "__main__":
    main()
