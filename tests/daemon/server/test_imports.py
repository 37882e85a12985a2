"""What a daemon has in memory of the libraries that it uses in part."""

from __future__ import annotations

import subprocess
import sys

UNUSED = (
    "httpx2",
    "mcp.client",
    "mcp.server.lowlevel",
    "onnxruntime",
    "rapidfuzz",
    "starlette",
    "tiktoken",
    "tokenizers",
)


def test_a_daemon_brings_neither_a_web_server_nor_a_client_of_the_sdk() -> None:
    """Whoever asks the SDK's package for them still gets them."""
    code = (
        "import sys, confide_daemon.server.process, confide_daemon.cli.app\n"
        f"print([name for name in {UNUSED} if name in sys.modules])\n"
        "import mcp\n"
        "print(mcp.Client.__name__, mcp.server.Server.__name__, 'starlette' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\nClient Server True\n"
