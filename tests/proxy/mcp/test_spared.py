"""`confide mcp` does without TLS and OpenSSL's hashes while its daemon is on this machine, and has both as soon as they are needed."""

from __future__ import annotations

import asyncio
import os
import ssl
import sys
from pathlib import Path

import trustme
from tests.support.deadline import DEADLINE_S
from websockets.asyncio.server import ServerConnection, serve

from confide_crypto.limits import websocket_options

SPARED = """
import sys
from confide_proxy.mcp import spared
spared.openssl_hashes()
import hashlib, hmac
spared.tls()
import asyncio
spared.package_metadata()
spared.url_openers()
from confide_crypto.transport.dial import open_websocket
"""
STARTING = """
import sys
from confide_proxy.mcp import spared
spared.inspection()
"""
UNLOADED = "print([name for name in ('_ssl', '_hashlib', 'http.client', 'email') if sys.modules.get(name)])\n"
DIALLED = """
async def dialled(url):
    ws = await open_websocket(url, "the daemon")
    await ws.close()
    return ws.transport.get_extra_info("cipher") is not None
"""


async def run(code: str, *arguments: str, before: str = SPARED, **surroundings: str) -> str:
    """What a Python of its own prints; the one that runs the tests has all of it loaded."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        before + code,
        *arguments,
        env={**os.environ, **surroundings},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await asyncio.wait_for(process.communicate(), DEADLINE_S)
    return said.decode()


async def silent(ws: ServerConnection) -> None:
    await ws.wait_closed()


async def test_tls_comes_with_the_first_address_that_has_it(tmp_path: Path) -> None:
    """A machine that leaves the daemon beside it for one behind a reverse proxy, in the same session."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    code = (
        DIALLED
        + "async def main():\n"
        + "    print(await dialled(sys.argv[1]))\n    "
        + UNLOADED
        + "    print(await dialled(sys.argv[2]), await dialled(sys.argv[2]), await dialled(sys.argv[1]))\n"
        + "asyncio.run(main())\n"
    )
    async with (
        serve(silent, "127.0.0.1", 0, **websocket_options()) as plain,
        serve(silent, "127.0.0.1", 0, ssl=context, **websocket_options()) as secure,
    ):
        ports = [next(iter(server.sockets)).getsockname()[1] for server in (plain, secure)]
        urls = f"ws://127.0.0.1:{ports[0]}/", f"wss://127.0.0.1:{ports[1]}/"
        said = await run(code, *urls, SSL_CERT_FILE=str(tmp_path / "ca.pem"))
    assert said == "False\n[]\nTrue True False\n"


async def test_a_daemon_that_is_away_is_no_reason_to_load_it() -> None:
    """A link that is down asks again and again; the hashes are the same."""
    code = """
from confide_crypto.errors import UnreachableError
async def main():
    try:
        await open_websocket("ws://127.0.0.1:1/", "the daemon")
    except UnreachableError as error:
        print(error)
asyncio.run(main())
print(hashlib.sha256(b"abc").hexdigest()[:16], hmac.new(b"key", b"abc", "sha256").hexdigest()[:16])
"""
    said = (await run(code + UNLOADED)).splitlines()
    assert "connection refused" in said[0]
    assert said[1:] == ["ba7816bf8f01cfea 9c196e32dc0175f8", "[]"]


async def test_what_makes_dataclasses_is_not_inspected_before_it_is_asked() -> None:
    """The stand-in is there when the first answer is, and is the real module for whoever asks it."""
    code = """
from confide_proxy.mcp import stdio
print("ast" in sys.modules, "_socket" in sys.modules)
import asyncio, dataclasses, inspect
@dataclasses.dataclass
class Bare:
    field: int
print(Bare.__doc__, inspect.iscoroutinefunction(asyncio.sleep), sys.modules["inspect"].__file__.endswith("inspect.py"))
"""
    assert await run(code, before=STARTING) == "False False\nBare(field: int) True True\n"


async def test_a_proxy_is_asked_for_where_the_address_is_elsewhere() -> None:
    """The system's settings are read by the module that was spared."""
    code = """
from websockets.proxy import get_proxy
from websockets.uri import parse_uri
print(get_proxy(parse_uri("ws://daemon.example:7733/")))
import urllib.request
print(urllib.request.urlopen.__name__, urllib.request is sys.modules["urllib.request"], asyncio.sslproto.ssl.__name__)
"""
    said = await run(code, HTTP_PROXY="", http_proxy="http://proxy.example:3128", no_proxy="", NO_PROXY="")
    assert said == "http://proxy.example:3128\nurlopen True ssl\n"
