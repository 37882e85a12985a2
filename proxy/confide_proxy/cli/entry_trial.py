"""The test of a client's entry for Confide: start its program as the client does, or connect to its
address.

A project's file may have been written by a stranger, which is why clients ask before they start its
entries. So an entry from such a file is only tested if it starts `confide mcp`, by this very
program with no other argument, and sets only the variables that `confide setup` writes. Addresses
from such a file are not called.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import socket
import ssl
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from confide_proxy.clients.known_clients import OWN_VARIABLES, program
from confide_proxy.clients.presence import Start
from confide_proxy.errors import SetupError

DEADLINE_S: Final = 20.0
"""Seconds for the answer; longer than clients wait: Codex 10 s, others 30 or 60."""
_END_S: Final = 5.0
_LARGEST_ANSWER: Final = 1 << 20
_HANDED_ON: Final = ("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER")
"""Environment variables of the client that the official MCP SDKs pass on."""
_INITIALIZE: Final = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "confide doctor", "version": "1"},
    },
}


def is_strange(start: Start, user_file: Path) -> bool:
    """Return True if an entry is in a file other than the user's own, and is not as `confide setup`
    writes it. Such an entry must not be tested.
    """
    if start.file == user_file:
        return False
    # A relative path would be resolved in the project's folder, and name another program there.
    found = start.command if Path(start.command).is_absolute() else shutil.which(start.command)
    try:
        is_ours = found is not None and Path(found).is_absolute() and Path(found).resolve() == Path(program()).resolve()
    except SetupError:
        is_ours = False
    return not is_ours or start.arguments != ("mcp",) or not start.environment.keys() <= OWN_VARIABLES


async def start(entry: Start, folder: Path) -> str:
    """Start an entry's program in a folder, and end it once it has answered the MCP request
    `initialize`.

    Returns "" if it answered, otherwise why it did not.
    """
    environment = {name: value for name in _HANDED_ON if (value := os.environ.get(name)) is not None}
    try:
        process = await asyncio.create_subprocess_exec(
            entry.command,
            *entry.arguments,
            cwd=folder,
            env={**environment, **entry.environment},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            limit=_LARGEST_ANSWER,
        )
    except OSError as error:
        return f"it cannot be started: {(error.strerror or type(error).__name__).lower()}"
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        async with asyncio.timeout(DEADLINE_S):
            process.stdin.write(json.dumps(_INITIALIZE).encode() + b"\n")
            await process.stdin.drain()
            line = await process.stdout.readline()
        answer = json.loads(line) if line else None
        if isinstance(answer, dict) and isinstance(answer.get("result"), dict) and answer.get("id") == 1:
            return ""
        return "it speaks no MCP" if line else f"it ended at once, with {await _wait_for_exit(process)}"
    except TimeoutError:
        return f"it does not answer within {DEADLINE_S:.0f} s"
    except (OSError, ValueError, RecursionError):
        return "it speaks no MCP"
    finally:
        process.stdin.close()
        await _wait_for_exit(process)


async def call(address: str) -> str:
    """Connect to an entry's address. Returns "" if that works, otherwise why it does not."""
    found = urlsplit(address)
    if not found.hostname:
        return "it is no address"
    tls = ssl.create_default_context() if found.scheme in ("https", "wss") else None
    try:
        port = found.port or (80 if tls is None else 443)
        async with asyncio.timeout(_END_S):
            _, writer = await asyncio.open_connection(found.hostname, port, ssl=tls)
    except TimeoutError:
        return f"it does not answer within {_END_S:.0f} s"
    except ssl.SSLError as error:
        return f"its TLS cannot be used: {(error.reason or type(error).__name__).lower().replace('_', ' ')}"
    except (OSError, ValueError) as error:
        # Messages of asyncio and the resolver contain the address or numbers of their own.
        number = error.errno if isinstance(error, OSError) and not isinstance(error, socket.gaierror) else None
        why = os.strerror(number) if number else "no such host" if isinstance(error, socket.gaierror) else "no address"
        return f"it cannot be reached: {why.lower()}"
    writer.close()
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(_END_S):
            await writer.wait_closed()
    return ""


async def _wait_for_exit(process: asyncio.subprocess.Process) -> int:
    """Wait for a program after its input was closed, kill it if it does not end, and return its
    exit code.
    """
    try:
        async with asyncio.timeout(_END_S):
            return await process.wait()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        return await process.wait()
