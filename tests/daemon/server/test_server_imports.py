"""What a daemon has in memory of the libraries that it uses in part."""

from __future__ import annotations

import subprocess
import sys

UNUSED = (
    "confide_cluster.shared.speaking",
    "confide_http.server.gateway_service",
    "confide_cluster.daemon.nodes",
    "confide_cluster.daemon.relay",
    "confide_cluster.daemon.spaces.node_bootstrap",
    "confide_cluster.daemon.log",
    "confide_http.door",
    "h11",
    "httpx2",
    "mcp",
    "onnxruntime",
    "psycopg",
    "pydantic",
    "rapidfuzz",
    "sse_starlette",
    "starlette",
    "tiktoken",
    "tokenizers",
    "uvicorn",
)


def test_a_daemon_brings_neither_a_web_server_nor_the_sdk() -> None:
    """They take 25 MB, and half a second of a start."""
    code = (
        "import sys, confide_daemon.server.daemon_process, confide_daemon.cli.app, confide_daemon.cli.service\n"
        f"print([name for name in {UNUSED} if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
