"""Commands that print, encode, split, crash, fork and write: whether a value appears anywhere but in them; and what the mask costs.

    python -m bench.secret_run [--runs 1000] [--seed 1]

Each run draws a value, and starts one of the commands below with it as `confide run` does. While it runs, the arguments of all processes
and the environments of those above the command are looked through; afterwards what it printed, and the core dumps in its folder. The
encodings that are looked for are written here once more, and not those of the mask.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import random
import re
import secrets
import statistics
import string
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import quote

from tests.support.programs.processes import CONFIDE, Machine, wait_until
from tests.support.programs.wire import Wire

from confide_crypto.sealing.placeholder import Placeholder
from confide_crypto.sealing.space_keys import SpaceKeys
from confide_proxy.hooks.hook_process import connect
from confide_proxy.link.session_values import SessionValues
from confide_proxy.run.run_masks import RunMasks
from confide_proxy.sealing.known_values import KnownValues
from confide_proxy.sealing.masking import Mask, SecretForms

DRIVER: Final = """
import json, os, signal, sys
from confide_proxy.run import child_process, run_request
from confide_proxy.sealing.masking import Mask, SecretForms
told = json.loads(sys.stdin.readline())
value = told["value"].encode()
forms = SecretForms({value: b"(sealed:bench:0f)"})
child_process.protect()
code = child_process.run(run_request.ChildTerms(
    child_process.program_of("sh"), ["sh", "-c", told["script"]], {"TOKEN": value}, {"KEY": value}, value, lambda: Mask(forms)))
sys.exit(code if code >= 0 else 128 - code)
"""
_PYTHON: Final = f"{sys.executable} -c"
COMMANDS: Final = (
    'echo "$TOKEN"',
    'printf %s "$TOKEN"',
    'echo "$TOKEN" >&2',
    'echo "a$TOKEN"; echo "${TOKEN}b"; echo "ab$TOKEN"',
    "cat",
    'cat "$KEY"',
    'cat "$KEY" "$KEY" "$KEY"',
    "env",
    "printenv TOKEN",
    "export -p",
    "set",
    'printf %s "$TOKEN" | base64',
    'printf %s "x$TOKEN" | base64',
    'printf %s "xy$TOKEN" | base64 -w 8',
    'printf "user:%s" "$TOKEN" | base64 -w 0',
    "env | base64",
    'base64 "$KEY"',
    'printf %s "$TOKEN" | od -An -v -tx1',
    'printf %s "$TOKEN" | od -An -v -tx1 | tr -d " \\n"',
    'printf %s "$TOKEN" | od -An -v -tx1 | tr -d " \\n" | tr a-f A-F',
    'printf %s "$TOKEN" | fold -w 3',
    'printf %s "$TOKEN" | fold -w 1',
    'printf %s "$TOKEN" | sed "s/./&\\n/4"',
    'head -c 12 "$KEY"; sleep 0.1; tail -c +13 "$KEY"',
    'head -c 2 "$KEY"; sleep 0.1; tail -c +3 "$KEY"',
    'for i in 1 2 3 4 5 6 7 8; do cat "$KEY"; done',
    'dd if="$KEY" bs=1 2>/dev/null',
    'echo "{\\"token\\": \\"$TOKEN\\"}"',
    'sh -c "echo \\$TOKEN"',
    'sh -c "sh -c \\"cat $KEY\\""',
    '(echo "$TOKEN" &) ; sleep 0.1',
    '(sleep 0.05; echo "$TOKEN") & echo first; wait',
    'setsid sh -c "sleep 0.05; echo $TOKEN" & sleep 0.2',
    'set -x; : "$TOKEN"',
    'set -x; curl="$TOKEN"; true "$curl" 2>&1',
    'cat "$KEY" "/no/such/$TOKEN"',
    'ls "/no/such/file/$TOKEN"',
    "kill -SEGV $$",
    "ulimit -c unlimited; kill -ABRT $$",
    "kill -KILL $$",
    'echo "$TOKEN"; kill -TERM $$',
    'exec 1>&2; echo "$TOKEN"',
    'exec 1>&-; echo "$TOKEN"',
    'cp "$KEY" "$KEY.copy"; cat "$KEY.copy"',
    'tee /dev/stderr < "$KEY"',
    "head -c 200000 /dev/urandom; cat",
    'head -c 300000 /dev/zero | tr "\\0" x; cat "$KEY"; head -c 300000 /dev/zero | tr "\\0" y',
    f"{_PYTHON} \"import os, urllib.parse as u; print(u.quote(os.environ['TOKEN'], safe=''), u.quote_plus(os.environ['TOKEN']))\"",
    f"{_PYTHON} \"import json, os, html; v = os.environ['TOKEN']; print(json.dumps(json.dumps(v)), repr(v), html.escape(v))\"",
    f"{_PYTHON} \"import os; raise SystemExit(os.environ['TOKEN'])\"",
)


def encodings(value: bytes) -> Iterator[bytes]:
    """The forms of a value that nobody else may see, each without blanks."""
    yield value
    for lead in range(3):
        yield base64.b64encode(b"\0" * lead + value)[4 if lead else 0 : -4]
    yield value.hex().encode()
    yield quote(value, safe="").encode()
    yield json.dumps(value.decode())[1:-1].encode()


def is_in(value: bytes, text: bytes) -> bool:
    """Return True if a text has a value in one of its forms, blanks aside."""
    core = text.translate(None, b" \t\r\n\0")
    return any(form in core or form in core.lower() for form in encodings(value))


def drawn(draw: random.Random) -> str:
    """A value as tokens and passwords are."""
    signs = draw.choice(["", "", "/+=", "!$%&*?;:'\"\\<>", "-_."])
    return "".join(draw.choice(string.ascii_letters + string.digits + signs) for _ in range(draw.randint(12, 64)))


class _Looks:
    """Looks for values in all processes, until it is stopped."""

    def __init__(self, value: bytes) -> None:
        self._value = value
        self.found: list[str] = []
        self.pid = 0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def end(self) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        own = {str(os.getpid())}
        while not self._is_over.wait(0.02):
            above = {*own, str(self.pid), *self._children(self.pid)}
            for entry in os.scandir("/proc"):
                if entry.name.isdecimal():
                    names = ("cmdline", "environ") if entry.name in above else ()
                    self.found += [
                        f"{entry.name} {name}" for name in names if self._value in self._read(entry.name, name)
                    ]

    def _children(self, pid: int) -> list[str]:
        return self._read(str(pid), f"task/{pid}/children").decode().split() if pid else []

    @staticmethod
    def _read(pid: str, name: str) -> bytes:
        try:
            return Path("/proc", pid, name).read_bytes()
        except OSError:
            return b""


def leaks(script: str, value: str, folder: Path) -> list[str]:
    """Where the value appeared while and after a command had it."""
    data = value.encode()
    looking = _Looks(data)
    try:
        with subprocess.Popen(
            [sys.executable, "-c", DRIVER],
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as process:
            looking.pid = process.pid
            out, error = process.communicate(
                json.dumps({"script": script, "value": value}).encode() + b"\n", timeout=120
            )
    finally:
        looking.end()
    found = list(looking.found)
    found += [name for name, text in (("stdout", out), ("stderr", error)) if is_in(data, text)]
    found += [f"file {file.name}" for file in folder.rglob("*") if file.is_file() and is_in(data, file.read_bytes())]
    return found


def throughput(values: int = 1000, megabytes: int = 48) -> float:
    """Megabytes of source code that a processor masks in a second, with that many known values."""
    mask = Mask(SecretForms({secrets.token_hex(20).encode(): b"(sealed:bench:0f)" for _ in range(values)}))
    text = b"".join(path.read_bytes() for path in sorted(Path(__file__).parents[1].glob("*/confide_*/**/*.py")))
    pieces = [text[at : at + 65_536] for at in range(0, len(text), 65_536)]
    began, size = time.process_time(), 0
    while size < megabytes * 10**6:
        for piece in pieces:
            mask.feed(piece)
            size += len(piece)
    return size / (time.process_time() - began) / 1e6


class Rates(NamedTuple):
    """Megabytes that a processor passes on in a second.

    Attributes:
        hashes: masked by keyed hashes alone.
        handed: masked when a session has handed over the values.
        left: the same if it lacks five of them, of 20 to 40 characters.
        stripped: not masked, but read once by the interpreter's fastest loop that leaves bytes out: what the processor had left.
    """

    hashes: float
    handed: float
    left: float
    stripped: float

    def __str__(self) -> str:
        return (
            f"{self.hashes:.1f} by hashes, {self.handed:.0f} once handed over, {self.left:.1f} but for five "
            f"(leaving out blanks alone: {self.stripped:.0f})"
        )


def known_throughput(draw: random.Random, folder: Path, values: int = 1000) -> dict[str, Rates]:
    """What a processor masks, by kind of text, if the device knows that many values.

    Every line is new; words that came before cost little.
    """
    keys = SpaceKeys.generate()
    drawn_values = [drawn(draw).encode() for _ in range(values)]
    KnownValues(folder, lambda: keys).remember(("token", value) for value in drawn_values)
    secrets = {str(number): Placeholder("token", os.urandom(16)) for number in range(values)}

    def pages() -> Iterator[SessionValues]:
        yield SessionValues(secrets, drawn_values, keys.space, keys.epochs[0])

    own = {Placeholder("token", os.urandom(16)): b"xK7mQ2vR9tLw4zz"}
    left = [draw.randbytes(size).hex().encode() for size in range(10, 20, 2)]
    KnownValues(folder / "left", lambda: keys).remember(("token", value) for value in [*drawn_values, *left])
    size = 2 * 10**6
    lines = (
        f"2026-11-29T12:{draw.randrange(60):02}:{draw.randrange(60):02}Z INFO [worker-{draw.randrange(8)}] id={draw.randbytes(16).hex()} "
        f"path=/api/v1/users/{draw.randrange(10**5)} status=200 took={draw.randrange(900)}ms\n"
        for _ in range(size // 125)
    )
    source = b"".join(path.read_bytes() for path in sorted(Path(__file__).parents[1].glob("*/confide_*/**/*.py")))
    texts = {
        "logs": "".join(lines).encode(),
        "source": source[:size],
        "base64": base64.encodebytes(draw.randbytes(size * 3 // 4)),
        "hex": draw.randbytes(size // 3).hex(" ").encode(),
        "binary": draw.randbytes(size),
    }
    found = {}
    for name, text in texts.items():
        pieces = [text[at : at + 65_536] for at in range(0, len(text), 65_536)]
        by_hashes = RunMasks(own, folder, keys.space, keys.epochs[0]).make()
        handed = RunMasks(own, folder, keys.space, keys.epochs[0], pages).make()
        for _ in range(3):  # so that the values are there, and the mask is in its stride
            for piece in pieces:
                handed.feed(piece)
        but_for_some = RunMasks(own, folder / "left", keys.space, keys.epochs[0], pages).make()
        for _ in range(4):
            but_for_some.feed(b"a line of text\n" * 20_000)
            time.sleep(0.1)
        found[name] = Rates(
            _rate(by_hashes.feed, pieces),
            _rate(handed.feed, pieces * 8),
            _rate(but_for_some.feed, pieces),
            _rate(lambda piece: piece.translate(None, b" \t\r\n\0"), pieces * 8),
        )
    return found


def _rate(passed: Callable[[bytes], object], pieces: Sequence[bytes]) -> float:
    began = time.process_time()
    for piece in pieces:
        passed(piece)
    return sum(map(len, pieces)) / (time.process_time() - began) / 1e6


class Latency(NamedTuple):
    """Milliseconds of a process, in the middle of several runs of each kind in turn.

    Attributes:
        bare: `true` by itself.
        python: a Python that does nothing.
        alone: `confide run … -- true` without a session of this device, so that it makes a link of its own.
        beside: the same beside a session.
        printing: `confide run … -- echo text` beside one.
        http: `confide run --http … -- true` beside one, with a proxy for the command that has made its certificate.
    """

    bare: float
    python: float
    alone: float
    beside: float
    printing: float
    http: float

    def __str__(self) -> str:
        return (
            f"confide run … -- true: {self.beside - self.bare:.0f} ms more than true beside a session, "
            f"{self.beside / self.python:.1f} times a bare Python ({self.python:.0f} ms); "
            f"{self.alone - self.bare:.0f} ms, {self.alone / self.python:.1f} times without a session; "
            f"-- echo: {self.printing - self.bare:.0f} ms, {self.printing / self.python:.1f} times\n"
            f"confide run --http over the bare command: {self.http - self.bare:.0f} ms, {self.http / self.python:.1f} times a bare Python"
        )


def latency(folder: Path, rounds: int = 15) -> Latency:
    """The latency of the whole command, on a device with a daemon of its own that is set up in a folder."""
    machine = Machine(folder, "desk")
    run = [CONFIDE, "run", "--env", "TOKEN=secret:token", "--"]
    by_proxy = [CONFIDE, "run", "--http", "api.example.com:authorization=secret:token", "--"]
    kinds = {
        "bare": ["true"],
        "python": [sys.executable, "-c", ""],
        "run": [*run, "true"],
        "echo": [*run, "echo", "a text"],
        "http": [*by_proxy, "true"],
    }
    try:
        machine.run("store", "DB_PASSWORD=xK7mQ2vR9tLw4zz is for the database")
        (secret,) = machine.json("secrets", "ls")
        machine.run("secrets", "name", "token", secret["id"][:8])
        (machine.home / "proxy.toml").write_text('[run]\nallow = { token = ["true", "echo"] }\n')

        def middles(*names: str) -> list[float]:
            took: dict[str, list[float]] = {name: [] for name in names}
            for _ in range(rounds):
                for name in names:
                    began = time.perf_counter()
                    subprocess.run(
                        kinds[name],
                        cwd=machine.project,
                        env=machine.env,
                        stdin=subprocess.DEVNULL,
                        capture_output=True,
                        check=True,
                    )
                    took[name].append(1000 * (time.perf_counter() - began))
            return [statistics.median(took[name]) for name in names]

        (alone,) = middles("run")
        with Wire(machine) as session:
            session.open()
            session.tool("memory_status", {})
            wait_until("the session to answer", lambda: connect(str(machine.home / "proxy"), 1.0))
            bare, python, beside, printing, http = middles("bare", "python", "run", "echo", "http")
    finally:
        machine.stop_local_daemon()
    return Latency(bare, python, alone, beside, printing, http)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    draw, count = random.Random(options.seed), 0
    with tempfile.TemporaryDirectory() as folder:
        for number in range(options.runs):
            script = COMMANDS[number % len(COMMANDS)]
            if found := leaks(script, drawn(draw), Path(folder)):
                count += 1
                print(f"{', '.join(found)}: {re.sub(chr(10), ' ', script)}")
    print(f"{options.runs:,} runs of {len(COMMANDS)} commands: {count} with a value where none may be")
    print(f"mask, 1,000 values: {throughput():.0f} MB/s of a processor's time")
    with tempfile.TemporaryDirectory() as folder:
        for name, rates in known_throughput(draw, Path(folder)).items():
            print(f"the same for 1,000 values that the device knows, {name}, MB/s: {rates}")
    with tempfile.TemporaryDirectory() as folder:
        print(latency(Path(folder)))


if __name__ == "__main__":
    main()
