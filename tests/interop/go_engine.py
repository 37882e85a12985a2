"""Noise from Debian's golang-github-flynn-noise-dev, in a process of its own: `go/engine.go`, one hex line for each step."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from tests.interop.engine import PROLOGUE
from tests.support.deadline import DEADLINE_S

SOURCE = Path(__file__).parent / "go" / "engine.go"
GOPATH = Path("/usr/share/gocode")
BUILD_S = 120


def missing() -> str | None:
    """Why the Go peer cannot be built here, or None if it can."""
    if shutil.which("go") is None:
        return "no go compiler (Debian: golang-go)"
    if not (GOPATH / "src" / "github.com" / "flynn" / "noise").is_dir():
        return f"no flynn/noise below {GOPATH} (Debian: golang-github-flynn-noise-dev)"
    return None


def build(folder: Path) -> Path:
    """Compile the engine, without any network; returns the program."""
    program = folder / "noise-engine"
    env = {**os.environ, "GOPATH": str(GOPATH), "GO111MODULE": "off", "GOFLAGS": "", "GOCACHE": str(folder / "cache")}
    env["CGO_ENABLED"] = "0"  # a machine that has Go need not have a C compiler
    subprocess.run(["go", "build", "-o", program, SOURCE], env=env, check=True, timeout=BUILD_S)
    return program


class GoEngineError(Exception):
    """The Go program refused a step: a message or a record that does not decrypt."""


class GoEngine:
    """An `Engine` whose Noise is Go's. Close it: it holds a process."""

    def __init__(self, program: Path, *, static_private: bytes, remote_static: bytes | None = None) -> None:
        """An initiator if `remote_static` is given, else a responder."""
        self._process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        if remote_static is None:
            self._do("responder", static_private, PROLOGUE)
        else:
            self._do("initiator", static_private, remote_static, PROLOGUE)

    def close(self) -> None:
        """End the process."""
        self._process.communicate(timeout=DEADLINE_S)

    def _do(self, command: str, *arguments: bytes) -> bytes:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(" ".join([command, *(each.hex() for each in arguments)]).encode() + b"\n")
        self._process.stdin.flush()
        word, _, result = self._process.stdout.readline().decode().strip().partition(" ")
        if word != "ok":
            raise GoEngineError(command)
        return bytes.fromhex(result)

    @property
    def remote_static(self) -> bytes:
        """The peer's static key, known to a responder from message 3 on."""
        return self._do("remote")

    def write(self, payload: bytes) -> bytes:
        return self._do("write", payload)

    def read(self, message: bytes) -> bytes:
        return self._do("read", message)

    def set_psk(self, psk: bytes) -> None:
        self._do("psk", psk)

    def handshake_hash(self) -> bytes:
        return self._do("hash")

    def seal(self, plaintext: bytes) -> bytes:
        return self._do("seal", plaintext)

    def open(self, record: bytes) -> bytes:
        return self._do("open", record)

    def rekey_sending(self) -> None:
        self._do("rekey-sending")

    def rekey_receiving(self) -> None:
        self._do("rekey-receiving")
