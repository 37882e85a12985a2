"""The process in a copy of the tree that answers what tests say there: it has loaded all that is not ours, and forks for each question.

Most of what a short run of pytest costs is its start (four seconds of a processor); with that done once a fault costs what its tests do.
A question is a line of JSON on stdin: `arguments` of pytest, the file for its `output`, `seconds` that it may take. The answer is a
line with the exit code.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import time
from typing import Final

_NOT_OURS: Final = (
    *(
        "pytest",
        "_pytest.assertion.rewrite",
        "xdist",
        "pytest_timeout",
        "pytest_cov",
        "hypothesis",
        "asyncio",
    ),
    *(
        "cryptography.hazmat.primitives.asymmetric.x25519",
        "nacl.bindings",
        "websockets",
        "anyio",
        "mcp.server.lowlevel",
    ),
    *("mcp.types", "apsw", "numpy", "rich.console", "httpx2", "yaml", "watchdog", "tokenizers"),
)
"""What is not installed is left out."""
_LOOK_S: Final = 0.05


def _answer(arguments: list[str], output: str, seconds: float) -> int:
    """The exit code of pytest; that of SIGKILL, negative, where it took too long."""
    child = os.fork()
    if not child:
        os.setsid()
        nothing, said = os.open(os.devnull, os.O_RDONLY), os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        for fd, place in ((nothing, 0), (said, 1), (said, 2)):
            os.dup2(fd, place)
        import pytest

        # Plugins are loaded already, which pytest would warn of.
        code = int(pytest.main(["-W", "ignore::pytest.PytestAssertRewriteWarning", *arguments]))
        sys.stdout.flush()
        os._exit(code)
    ends = time.monotonic() + seconds
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > ends:
            os.killpg(child, signal.SIGKILL)
        time.sleep(_LOOK_S)


def main() -> None:
    for name in _NOT_OURS:
        try:
            importlib.import_module(name)
        except ImportError:
            continue
    for line in sys.stdin:
        print(_answer(**json.loads(line)), flush=True)


if __name__ == "__main__":
    main()
