"""Tokens: 32 random bytes that are shown once and stored as SHA-256, with a name, scopes, projects
and an expiry.

`confide http token` writes the file, under a lock; `confide http serve` only reads it. It checks
the file's timestamp at each request and twice a second, so a removed token is refused, and its
streams end, within a second. The gateway writes the time of each token's last use into a file of
its own, so neither program waits for the other.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypedDict

from confide_crypto.errors import KeyFileError
from confide_crypto.keys.bearer_tokens import new_token
from confide_crypto.keys.private_files import make_private_dir, read_private_file, write_private_file
from confide_http.errors import TokenError
from confide_proxy.errors import StateError
from confide_proxy.locks import lock_file, try_lock

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
MOST: Final = 64
MOST_PROJECTS: Final = 6
"""As many as a connection can attach, beside its own and the global one (PROTOCOL.md 9.2)."""
MOST_BYTES: Final = 256 * 1024
DAYS: Final = 90
MOST_DAYS: Final = 3650
LOCK_S: Final = 5.0


class TokenRecord(TypedDict):
    """The JSON form of a token in the file of tokens."""

    name: str
    sha256: str
    scopes: list[str]
    projects: list[str] | None
    trusted: bool
    made: float
    expires: float


@dataclass(frozen=True, slots=True)
class LocalToken:
    """The data of a token, without its text.

    Attributes:
        digest: SHA-256 of its text, in hex.
        scopes: any of `read`, `write`, `secrets`.
        projects: the names of the projects that it may use; None for all.
        is_trusted: True if its notes get the class `agent`, False if they get `untrusted`.
        made_at, expires: times in seconds since 1970.
    """

    name: str
    digest: str
    scopes: tuple[str, ...]
    projects: tuple[str, ...] | None
    is_trusted: bool
    made_at: float
    expires: float

    def is_good(self, now: float) -> bool:
        return now < self.expires

    @classmethod
    def of(cls, record: TokenRecord) -> LocalToken:
        """Parse a stored token. Raises KeyError, TypeError or ValueError if it is malformed."""
        projects = record["projects"]
        return cls(
            str(record["name"]),
            str(record["sha256"]),
            tuple(map(str, record["scopes"])),
            None if projects is None else tuple(map(str, projects)),
            record["trusted"] is True,
            float(record["made"]),
            float(record["expires"]),
        )

    def record(self) -> TokenRecord:
        """Return the JSON form of the token."""
        return {
            "name": self.name,
            "sha256": self.digest,
            "scopes": list(self.scopes),
            "projects": None if self.projects is None else list(self.projects),
            "trusted": self.is_trusted,
            "made": self.made_at,
            "expires": self.expires,
        }


class TokenFile:
    """The tokens of this device, in `folder`. Methods block briefly.

    Every method raises KeyFileError if others could have read or written the file, and StateError
    if the disk fails.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file = folder / "tokens.json"
        self._uses_file = folder / "used.json"

    @property
    def stamp(self) -> tuple[int, int, int]:
        """Return a value that differs after every change of the file; takes one system call."""
        try:
            status = os.stat(self._file)  # noqa: PTH116 - at each request
        except FileNotFoundError:
            return (0, 0, 0)
        return (status.st_ino, status.st_mtime_ns, status.st_size)

    def all(self) -> list[LocalToken]:
        """Return the tokens, oldest first."""
        try:
            data = read_private_file(self._file, most_bytes=MOST_BYTES) if self._file.exists() else b""
            return [LocalToken.of(record) for record in json.loads(data)["tokens"]] if data else []
        except FileNotFoundError:
            return []
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise KeyFileError(
                self._file, "is damaged", hint="move it away, and make new tokens: confide http token new"
            ) from None
        except OSError as error:
            raise StateError(self._folder, error) from error

    def add(
        self,
        name: str,
        scopes: tuple[str, ...],
        *,
        projects: tuple[str, ...] | None = None,
        days: int = DAYS,
        is_trusted: bool = False,
    ) -> tuple[str, LocalToken]:
        """Create a token; return its text, which is stored nowhere, and its data.

        Raises TokenError if the name is taken or invalid, or if there are too many tokens.
        """
        if not _NAME.fullmatch(name):
            raise TokenError(
                "a token's name has letters, digits, '.', '_' and '-', 64 at most", hint="such as editor or phone-app"
            )
        text, digest = new_token()
        now = time.time()
        made = LocalToken(name, digest.hex(), scopes, projects, is_trusted, now, now + days * 86400)
        with self._lock():
            tokens = [each for each in self.all() if each.name != name or each.is_good(now)]
            if any(each.name == name for each in tokens):
                raise TokenError(
                    f"there is a token '{name}' already",
                    hint=f"remove it with confide http token rm {name}, or use another name",
                )
            if len(tokens) >= MOST:
                raise TokenError(
                    f"there are {MOST} tokens already", hint="confide http token ls shows which are unused"
                )
            self._write([*tokens, made])
        return text, made

    def remove(self, name: str) -> LocalToken:
        """Remove the token with this name, and return its data. Raises TokenError if no token has
        that name.
        """
        _find(self.all(), name)  # create no file for an unknown token
        with self._lock():
            tokens = self.all()
            found = _find(tokens, name)
            self._write([each for each in tokens if each is not found])
        return found

    def last_uses(self) -> dict[str, float]:
        """Return the time of the last use of each token, by its digest, in seconds since 1970. It
        may be a minute old.
        """
        try:
            found = json.loads(read_private_file(self._uses_file, most_bytes=MOST_BYTES))
            return {str(digest): float(at) for digest, at in found.items()}
        except (KeyFileError, OSError, ValueError, TypeError, AttributeError):
            return {}

    def note_used(self, used: dict[str, float]) -> None:
        """Store the last uses of existing tokens."""
        there = {each.digest for each in self.all()}
        known = {digest: at for digest, at in {**self.last_uses(), **used}.items() if digest in there}
        write_private_file(self._uses_file, json.dumps(known).encode(), replace=True)

    def _write(self, tokens: list[LocalToken]) -> None:
        data = json.dumps({"tokens": [each.record() for each in tokens]}, ensure_ascii=False, indent=1).encode()
        write_private_file(self._file, data + b"\n", replace=True)

    @contextmanager
    def _lock(self) -> Iterator[None]:
        make_private_dir(self._folder)
        try:
            descriptor = lock_file(self._folder / "tokens.lock")
        except OSError as error:
            raise StateError(self._folder, error) from error
        try:
            if not try_lock(descriptor, wait_s=LOCK_S):
                raise TokenError("another confide is changing the tokens", hint="try again")
            yield
        finally:
            os.close(descriptor)


class LocalTokens:
    """The valid tokens of a running gateway. If their file becomes unreadable, every request is
    refused.
    """

    def __init__(self, file: TokenFile) -> None:
        self._file = file
        self._stamp: tuple[int, int, int] | None = None
        self._by_digest: dict[str, LocalToken] = {}
        self._last_uses: dict[str, float] = {}
        self.problem: str | None = None
        """Why every request is refused, for the gateway's log."""

    def find(self, digest: bytes) -> LocalToken | None:
        """Return the token whose text has this SHA-256, or None if there is no such valid token."""
        token = self.good(digest.hex())
        if token is not None:
            self._last_uses[token.digest] = time.time()
        return token

    def good(self, digest: str) -> LocalToken | None:
        """Return the token with this digest (SHA-256 in hex), or None if there is no such valid
        token.
        """
        self._look()
        token = self._by_digest.get(digest)
        return token if token is not None and token.is_good(time.time()) else None

    def save_uses(self) -> None:
        """Write the times of uses since the last call to the file. Blocks briefly."""
        if used := self._last_uses:
            self._last_uses = {}
            with suppress(KeyFileError, StateError, OSError):  # no reason to refuse anybody
                self._file.note_used(used)

    def _look(self) -> None:
        stamp = self._file.stamp
        if stamp == self._stamp:
            return
        try:
            self._by_digest = {each.digest: each for each in self._file.all()}
            self.problem = None
        except (KeyFileError, StateError) as error:
            self._by_digest, self.problem = {}, str(error)
        self._stamp = stamp


def _find(tokens: list[LocalToken], name: str) -> LocalToken:
    found = next((each for each in tokens if each.name == name), None)
    if found is None:
        known = ", ".join(each.name for each in tokens) or "none"
        raise TokenError("there is no token of that name", hint=f"there are: {known}")
    return found
