"""The entry point of the command `confided` and of `python -m confide_daemon`.

This module imports little. It sets environment variables that native libraries read when they are
loaded, and `cli` imports the large modules only for the commands that need them.
"""

from __future__ import annotations

import os
import sys
import time

from confide_crypto import portable

# On a busy computer two BLAS threads turn 0.25 ms into ten (measured), so a search's small products
# use one.
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
# The MCP SDK would forward clients' traces and search every installed package for an exporter, 50
# ms of each start. Confide writes no traces.
_PROPAGATORS = "OTEL_PROPAGATORS"


def main() -> None:
    """Run `confided` with the arguments of the process."""
    for variable in _THREADS:
        os.environ.setdefault(variable, "1")
    os.environ.setdefault(_PROPAGATORS, "none")
    # Files must not be readable by others even before their mode is set.
    os.umask(0o077)
    portable.open_standard_streams()
    if time.time() < 0:  # a list of devices, an invite and a day's file all have a date, and none of before
        sys.exit("confided: this machine's clock stands before 1970\nhint: set the clock: timedatectl")
    try:
        from confide_daemon.cli import app

        app.main()
    except KeyboardInterrupt:  # also while it loads, which takes some tenths of a second
        sys.exit(130)


if __name__ == "__main__":
    main()
