"""What a machine of a daemon feels while strangers, and a program with a token, attack its gateway; and whether any of them gets through.

    python -m bench.gateway_attacks [--guesses 10000] [--held 1000] [--only NAME] [--nice 19]

Ten thousand guesses, of tokens, codes, refresh tokens and pages of sign-ins; a thousand connections with half a request, which come back
when they are cut; a thousand streams of one token, of which some are let in and the others come again; bodies of 5 MiB, and a thousand that
come a byte at a time; all requests that may begin in a row, in one moment; and requests of 4 MiB of a program with a token. At a gateway
that ends TLS itself: whole handshakes, and a thousand that are left half done.

The attackers are processes of their own, as in `bench.hostile`; a machine's tool calls over its channel are measured meanwhile, and in
quiet before and after each. Budgets: none through, and the 99th percentile of a call within twice the quiet one.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import http.client
import itertools
import json
import multiprocessing
import os
import re
import select
import socket
import ssl
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from tests.support.daemon.loopback import Machine
from tests.support.deadline import DEADLINE_S
from tests.support.network.certificates import certificate
from tests.support.programs.door_attacks import ACCEPTS, ENVELOPE, LATER, LISTEN
from tests.support.programs.processes import Daemon, running_daemon
from tests.support.programs.signing_in import FORM, REDIRECT

from bench.hostile import Attack, Counted, begun, call_for, percentile, under
from confide_crypto.keys.identity import Identity, format_public_key, parse_daemon_key
from confide_crypto.transport.open_channel import connect
from confide_http.door.pacing import IN_A_ROW, PER_S
from confide_http.door.request_limits import MAX_BODY_BYTES

GUESSES: Final = 10_000
HELD: Final = 1000
QUIET_S: Final = 5.0
ATTACK_S: Final = 10.0
MOST_S: Final = 180.0
"""For all guesses."""
BODY: Final = 5 * 2**20
PART: Final = 2**16
MAX_RATIO: Final = 2.0
CONFIG: Final = '[embedding]\nprovider = "none"\n[at_rest]\ncustody = "server"\n[gateway]\nlisten = "127.0.0.1:0"\n'


Scenes = dict[str, tuple[tuple[Attack, ...], int]]
"""By name: the attackers, and how much they count in all (0: for a while)."""


def guess(_port: int, _static: bytes, count: Counted, *, port: int, client: str, through: Counted) -> None:
    """Wrong tokens, codes, refresh tokens and pages in turn, as fast as they are answered."""
    form = f"client_id={client}&redirect_uri={REDIRECT}&code_verifier={'v' * 43}&grant_type="
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE_S)
    for number in itertools.count(os.getpid() * 1_000_000):
        text = f"{number:043}"
        method, path, body, headers = (
            ("POST", "/mcp", json.dumps(LISTEN), LATER | {"Authorization": f"Bearer cfd_{text}"}),
            ("POST", "/token", f"{form}authorization_code&code={text}", FORM),
            ("POST", "/token", f"{form}refresh_token&refresh_token=cfd_{text}", FORM),
            ("GET", f"/consent/{text}", None, {}),
        )[number % 4]
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            answer.read()
        except (OSError, http.client.HTTPException):
            connection.close()
            continue
        through.value += answer.status not in (400, 401, 404, 429)
        count.value += 1


def hold(_port: int, _static: bytes, count: Counted, *, port: int, held: int) -> None:
    """Connections with half a request; each that is cut comes back."""
    _hold(count, port, held, itertools.repeat(b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n" % port))


def _hold(count: Counted, port: int, held: int, begin: Iterator[bytes]) -> None:
    """So many connections that begin so and go on by a byte now and then."""
    waiting: list[socket.socket] = []
    while True:
        kept = []
        for each in waiting:
            try:
                each.send(b"X")
                kept.append(each)
            except OSError:
                each.close()
        waiting = kept
        while len(waiting) < held:
            with suppress(OSError):
                one = socket.create_connection(("127.0.0.1", port), 1.0)
                one.setblocking(False)
                one.send(next(begin))
                waiting.append(one)
            count.value += 1
        time.sleep(0.2)


def listen(_port: int, _static: bytes, count: Counted, *, port: int, token: str, held: int, through: Counted) -> None:
    """Streams of one token: what is let in stays open, and the rest comes again, a thousand at a time."""
    body = json.dumps(LISTEN).encode()
    head = "".join(f"{name}: {value}\r\n" for name, value in (LATER | {"Authorization": f"Bearer {token}"}).items())
    request = f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    open_: list[socket.socket] = []
    while True:
        for _ in range(held - len(open_)):
            one = socket.create_connection(("127.0.0.1", port), DEADLINE_S)
            try:
                one.sendall(request.encode() + body)
                said = one.recv(16)
            except OSError:
                said = b""
            count.value += 1
            if said.startswith(b"HTTP/1.1 200"):
                open_.append(one)
                through.value = max(through.value, len(open_))
            else:
                one.close()


def fill(_port: int, _static: bytes, count: Counted, *, port: int, token: str, through: Counted) -> None:
    """Bodies of 5 MiB, of a stranger and of a program with a token in turn, of a length that is said and of one that is not."""
    part = b"x" * PART
    for number in itertools.count():
        is_known, is_chunked = number % 2, number // 2 % 2
        length = "Transfer-Encoding: chunked" if is_chunked else f"Content-Length: {BODY}"
        piece = b"%x\r\n%b\r\n" % (PART, part) if is_chunked else part
        said = b""
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), DEADLINE_S) as one:
            one.sendall(
                _head("/mcp", port, f"Authorization: Bearer {token if is_known else 'cfd_' + 'x' * 43}", length)
            )
            for _ in range(BODY // PART):
                one.sendall(piece)
                if select.select([one], (), (), 0)[0]:  # it is answered before its end
                    break
            said = one.recv(12)
        through.value += said not in (b"", b"HTTP/1.1 401", b"HTTP/1.1 413", b"HTTP/1.1 429")
        count.value += 1


def overask(_port: int, _static: bytes, count: Counted, *, port: int, token: str) -> None:
    """Requests that are just not too large, of a program with a token: to parse one takes the loop 35 ms."""
    arguments = {"query": "\\" * (MAX_BODY_BYTES // 2 - 1000)}
    params = {"name": "memory_search", "arguments": arguments, "_meta": ENVELOPE}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
    said = {"Mcp-Method": "tools/call", "Mcp-Name": "memory_search", "Content-Type": "application/json"}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE_S)
    while True:
        try:
            connection.request("POST", "/mcp", body, ACCEPTS | said | {"Authorization": f"Bearer {token}"})
            connection.getresponse().read()
        except (OSError, http.client.HTTPException):  # it is refused before it has come
            connection.close()
        count.value += 1


def dribble(_port: int, _static: bytes, count: Counted, *, port: int, token: str, held: int) -> None:
    """Bodies that come a byte at a time, half of them of strangers for a token; each that is ended comes back."""
    form = _head("/token", port, "Content-Type: application/x-www-form-urlencoded", "Content-Length: 1000")
    call = _head("/mcp", port, f"Authorization: Bearer {token}", "Content-Length: 1000")
    _hold(count, port, held, itertools.cycle((form, call)))


def burst(_port: int, _static: bytes, count: Counted, *, port: int) -> None:
    """As many requests as begin in a row, all in one moment, and again as soon as so many may."""
    request = b"GET /nothing HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % port
    kept = [socket.create_connection(("127.0.0.1", port), DEADLINE_S) for _ in range(IN_A_ROW)]
    while True:
        until = time.monotonic() + IN_A_ROW / PER_S
        for one in kept:
            one.sendall(request)
        for one in kept:
            one.recv(PART)
            count.value += 1
        time.sleep(max(0.0, until - time.monotonic()))


def shake(_port: int, _static: bytes, count: Counted, *, port: int) -> None:
    """Whole handshakes of TLS, as fast as they are answered; each is left at once."""
    anybody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anybody.check_hostname, anybody.verify_mode = False, ssl.CERT_NONE
    while True:
        with (
            suppress(OSError),
            socket.create_connection(("127.0.0.1", port), DEADLINE_S) as one,
            anybody.wrap_socket(one),
        ):
            pass
        count.value += 1


def shake_by_half(_port: int, _static: bytes, count: Counted, *, port: int, held: int) -> None:
    """Connections with the beginning of a hello of 512 bytes; each that is cut comes back."""
    _hold(count, port, held, itertools.repeat(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"))


def _head(path: str, port: int, *lines: str) -> bytes:
    more = "".join(f"{line}\r\n" for line in (*lines, *(f"{name}: {value}" for name, value in ACCEPTS.items())))
    return f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{more}\r\n".encode()


async def measured(client: Any, attacks: Sequence[Attack], nice: int, *, until: int) -> tuple[list[float], float]:
    """Milliseconds of calls while the attackers are at it, until they have counted so many (0: for a while); what they did in a second."""
    with under(attacks, 0, b"", nice) as counts:
        await begun(counts)
        began, at_first = time.perf_counter(), sum(each.value for each in counts)
        calls_ms = []
        while time.perf_counter() - began < (MOST_S if until else ATTACK_S):
            calls_ms += await call_for(client, 1.0)
            if until and sum(each.value for each in counts) >= until:
                break
        arrived = sum(each.value for each in counts)
    assert arrived >= until, f"{arrived} of {until} in {MOST_S:g} s"
    return calls_ms, (arrived - at_first) / (time.perf_counter() - began)


@contextmanager
def serving(root: Path, *, tls: bool) -> Iterator[Daemon]:
    """A daemon with a gateway; `tls`: that has a certificate."""
    (root / "server-home").mkdir()
    lines = "".join(f'{name} = "{path}"\n' for name, path in zip(("cert", "key"), certificate(root), strict=True))
    (root / "server-home" / "daemon.toml").write_text(CONFIG + lines * tls)
    with running_daemon(root, has_model=True) as daemon:
        yield daemon


def port_of(daemon: Daemon) -> int:
    """Of its gateway."""
    (found,) = re.findall(r"the gateway listens on 127\.0\.0\.1 port (\d+)", daemon.log.read_text())
    return int(found)


def by_http(daemon: Daemon, said: argparse.Namespace, through: Counted, opened: Counted) -> Scenes:
    """Attacks in clear, as a reverse proxy that ends the TLS passes them on.

    Args:
        through: guesses and bodies that were let in.
        opened: streams of one token that were open at a time.
    """
    port = port_of(daemon)
    made = json.loads(daemon.run("http", "allow", "busy", "--space", "caller", "--json"))
    program = json.loads(daemon.run("http", "allow", "Chat", "--space", "caller", "--redirect", REDIRECT, "--json"))
    guessing = partial(guess, port=port, client=program["id"], through=through)
    holding = partial(hold, port=port, held=said.held)
    listening = partial(listen, port=port, token=made["token"], held=said.held, through=opened)
    filling = partial(fill, port=port, token=made["token"], through=through)
    dribbling = partial(dribble, port=port, token=made["token"], held=said.held)
    return {
        f"{said.guesses:,} guesses": ((guessing, guessing), said.guesses),
        f"{said.held:,} half-open": ((holding,), 0),
        f"{said.held:,} streams of a token": ((listening,), 0),
        "these three at once": ((guessing, holding, listening), 0),
        "bodies of 5 MiB": ((filling,), 0),
        f"{said.held:,} slow bodies": ((dribbling,), 0),
        "bursts of requests": ((partial(burst, port=port),), 0),
        "requests of 4 MiB": ((partial(overask, port=port, token=made["token"]),) * 2, 0),
        "all of them": ((guessing, holding, listening, filling, dribbling), 0),
    }


def by_tls(daemon: Daemon, said: argparse.Namespace) -> Scenes:
    """Attacks on a gateway with a certificate of its own."""
    port = port_of(daemon)
    shaking, halving = partial(shake, port=port), partial(shake_by_half, port=port, held=said.held)
    return {
        "handshakes of TLS": ((shaking, shaking), 0),
        f"{said.held:,} half handshakes": ((halving,), 0),
    }


async def run(daemon: Daemon, caller: Identity, scenes: Scenes, said: argparse.Namespace) -> float:
    """Each attack once, with quiet before and behind it; how many times the quiet 99th percentile the worst was."""
    worst = 0.0
    static = parse_daemon_key(daemon.run("key").strip())
    async with Machine(await connect(f"ws://127.0.0.1:{daemon.port}/", caller, static)) as machine:
        await machine.attach()
        await machine.put("MEMORY.md", "The parcel API listens on port 8010.\n")
        async with machine.mcp() as client:
            await call_for(client, 1)
            for name, (attacks, until) in scenes.items():
                quiet = await call_for(client, QUIET_S)
                calls, rate = await measured(client, attacks, said.nice, until=until)
                quiet += await call_for(client, QUIET_S)
                p99, before = percentile(calls, 98), percentile(quiet, 98)
                worst = max(worst, p99 / before)
                print(
                    f"{name:26} p50 {statistics.median(calls):6.2f} ms (quiet {statistics.median(quiet):.2f})  p99 {p99:6.2f} ms"
                    f" (quiet {before:.2f})  {p99 / before:5.2f} x  {rate:6,.0f} a second  load {os.getloadavg()[0]:.1f}"
                )
    return worst


def main(arguments: Sequence[str] = ()) -> int:
    """Print the table; 1 if a budget is not met."""
    parser = argparse.ArgumentParser(prog="python -m bench.gateway_attacks", description=__doc__.partition("\n")[0])
    parser.add_argument("--guesses", type=int, default=GUESSES)
    parser.add_argument("--held", type=int, default=HELD)
    parser.add_argument("--only", default="", help="the attacks whose names have this in them, such as 'all of'")
    parser.add_argument("--nice", type=int, default=19, help="of the attackers; 0 where others keep this machine busy")
    said = parser.parse_args(arguments)
    gc.freeze()  # as the daemon does
    context = multiprocessing.get_context("spawn")
    through, opened = (context.RawValue("l") for _ in range(2))
    worst = 0.0
    for attacks in (partial(by_http, through=through, opened=opened), by_tls):
        with (
            tempfile.TemporaryDirectory(prefix="confide-bench-") as folder,
            serving(Path(folder), tls=attacks is by_tls) as daemon,
        ):
            caller = Identity.generate()
            daemon.run("device", "add", format_public_key(caller.public_key, "caller"), "--scope", "write")
            scenes = {name: scene for name, scene in attacks(daemon, said).items() if said.only in name}
            worst = max(worst, asyncio.run(run(daemon, caller, scenes, said)))
    print(f"guesses and bodies through: {through.value}; streams of one token open at a time: {opened.value}")
    print(f"the 99th percentile must be within {MAX_RATIO:g} times the quiet one: {worst:.2f}")
    return 0 if worst <= MAX_RATIO and not through.value else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
