"""Where the figures of README.md and docs/numbers.md come from. Each module measures against a named reference in the same run."""

import os

# As in the daemon, and before numpy is loaded: our own work runs in one thread, and so does what it is held against.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
