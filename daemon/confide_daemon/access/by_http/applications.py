"""Applications: programs that may ask a person to let them in, as claude.ai or ChatGPT do. OAuth's word is client.

Each is of one space, and may send a person back to the addresses alone that it has been added with. The operator adds them; they register
themselves (RFC 7591) only while somebody keeps that open, which a command beside the daemon does by saying so again every second or two.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, get_args
from urllib.parse import urlsplit

import apsw

from confide_crypto.errors import printable
from confide_daemon.access.audit import record
from confide_daemon.access.enrollment import nearest
from confide_daemon.access.registry import Registry
from confide_daemon.errors import BadNameError, TakenError

Method = Literal["none", "client_secret_post", "client_secret_basic"]
"""How an application shows at the token endpoint that it is the one: not at all, or by a secret in one of two places."""
METHODS: Final[tuple[Method, ...]] = get_args(Method)
MOST: Final = 64
MOST_REDIRECTS: Final = 8
MAX_REDIRECT_CHARS: Final = 1024
MAX_NAME_CHARS: Final = 64
_LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
_ADDRESS: Final = re.compile(r"[!-~]+")  # what an address is written with; no blanks, nothing that a terminal takes


@dataclass(frozen=True, slots=True)
class Application:
    """One. `secret` is the SHA-256 of it; `is_registered`: it has added itself."""

    id: str
    name: str
    space: str
    redirects: tuple[str, ...]
    secret: bytes | None
    method: Method
    is_registered: bool
    added_at: float


class Applications:
    """Those of a registry."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def find(self, identifier: str) -> Application | None:
        """The one of this id, also where another node has added it just now."""

        def look() -> Application | None:
            with self._registry.reading() as database:
                return application_now(database, identifier)

        return self._registry.sought(look)

    def all(self) -> list[Application]:
        """By name."""
        with self._registry.reading() as database:
            return [_application(row) for row in database.execute(f"{_SELECT} ORDER BY name, id")]

    def add(
        self,
        name: str,
        *,
        space: str,
        redirects: Sequence[str],
        method: Method = "none",
        identifier: str | None = None,
        secret: str | None = None,
        is_registered: bool = False,
    ) -> Application:
        """Let an application ask.

        Args:
            redirects: where it may send a person back to, to the letter.
            secret: that it shows itself by; it is kept as its SHA-256.

        Raises BadNameError: a name or an address that cannot be; TakenError: there is no such space, or there are too many.
        """
        name = checked_name(name)
        checked = checked_redirects(redirects)
        made = Application(
            identifier or secrets.token_hex(16),  # which no command takes for an option
            name,
            space,
            checked,
            hashlib.sha256(secret.encode()).digest() if secret is not None else None,
            method,
            is_registered,
            self._registry.clock(),
        )
        with self._registry.transaction() as database:
            _require_space(self._registry, database, space)
            _make_room(database)
            database.execute(
                "INSERT INTO applications VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    made.id,
                    made.name,
                    made.space,
                    json.dumps(made.redirects),
                    made.secret,
                    made.method,
                    made.is_registered,
                    made.added_at,
                ),
            )
            record(database, made.added_at, "added", detail="an application that may ask to be let in")
        return made

    def note_document(self, identifier: str, name: str, *, space: str, redirects: Sequence[str]) -> Application:
        """Let an application ask that describes itself at an address, which is its id; as it describes itself now.

        Raises as `add`.
        """
        known = self.find(identifier)
        if known is None:
            return self.add(name, space=space, redirects=redirects, identifier=identifier, is_registered=True)
        now = replace(known, name=checked_name(name), space=space, redirects=checked_redirects(redirects))
        if now != known:
            with self._registry.transaction() as database:
                _require_space(self._registry, database, space)
                database.execute(
                    "UPDATE applications SET name = ?, space = ?, redirects = ? WHERE id = ?",
                    (now.name, now.space, json.dumps(now.redirects), identifier),
                )
        return now

    def remove(self, name: str) -> Application:
        """Take one away, and with it all that it was granted. By its id, or by its name where there is one of that name.

        Raises TakenError: there is none, or there are several of that name.
        """
        known = self.all()
        found = [one for one in known if one.id == name] or [one for one in known if one.name == name]
        if len(found) != 1:
            if found:
                ids = ", ".join(one.id for one in found)
                raise TakenError(f"there are {len(found)} applications of that name", hint=f"name one by its id: {ids}")
            near = nearest(name, [one.name for one in known])
            hint = f"did you mean {near}?" if near else "confided gateway client ls shows which there are"
            raise TakenError(f"there is no application '{printable(name[:MAX_NAME_CHARS])}'", hint=hint)
        (gone,) = found
        with self._registry.transaction() as database:
            now = self._registry.clock()
            sql = "SELECT DISTINCT family FROM tokens WHERE application = ?"
            families: list[Any] = database.execute(sql, (gone.id,)).fetchall()
            for (family,) in families:
                end_family(database, family, now, "its application was taken away")
            for table in ("sign_ins", "codes"):
                database.execute(f"DELETE FROM {table} WHERE application = ?", (gone.id,))  # noqa: S608 - ours
            database.execute("DELETE FROM applications WHERE id = ?", (gone.id,))
            record(database, now, "removed", detail="an application that might ask to be let in")
        return gone

    # Registration

    def keep_open(self, space: str, *, for_s: float) -> None:
        """Let applications register themselves for a space, so long. Raises TakenError: it is open for another one, or there is none."""
        with self._registry.transaction() as database:
            _require_space(self._registry, database, space)
            now = self._registry.clock()
            database.execute("DELETE FROM registration WHERE until <= ?", (now,))
            others: Any = database.execute("SELECT space FROM registration WHERE space <> ?", (space,)).get
            if others is not None:
                raise TakenError(f"registration is open for the space {others}", hint="end that one first")
            database.execute("INSERT OR REPLACE INTO registration VALUES (?, ?)", (space, now + for_s))

    def close(self, space: str) -> None:
        with self._registry.transaction() as database:
            database.execute("DELETE FROM registration WHERE space = ?", (space,))

    def open_space(self) -> str | None:
        """The space for which applications may register themselves now; None for none."""
        with self._registry.reading() as database:
            now = self._registry.clock()
            found: Any = database.execute("SELECT space FROM registration WHERE until > ?", (now,)).get
            return None if found is None else str(found)


def checked_name(name: str) -> str:
    """A name as people may be shown it. Raises BadNameError."""
    name = " ".join(name.split())
    if not name or len(name) > MAX_NAME_CHARS or printable(name) != name:
        raise BadNameError(f"an application's name has 1 to {MAX_NAME_CHARS} letters that can be shown")
    return name


def checked_redirects(redirects: Sequence[str]) -> tuple[str, ...]:
    """Addresses to which a person may be sent: by TLS, or on the machine where the browser is. Raises BadNameError."""
    if not 1 <= len(redirects) <= MOST_REDIRECTS:
        raise BadNameError(f"an application has 1 to {MOST_REDIRECTS} addresses to send a person back to")
    for address in redirects:
        try:
            parts = urlsplit(address)
            host, _ = parts.hostname, parts.port
        except ValueError:
            host = None
        is_safe = host and (parts.scheme == "https" or (parts.scheme == "http" and host in _LOOPBACK))
        has_more = "@" in parts.netloc or "#" in address or "\\" in address if host else True
        if not is_safe or has_more or len(address) > MAX_REDIRECT_CHARS or not _ADDRESS.fullmatch(address):
            hint = "it begins with https://, or with http://127.0.0.1 or http://localhost; without user, and without #"
            raise BadNameError("that is no address to send a person back to", hint=hint)
    return tuple(redirects)


def application_now(database: apsw.Connection, identifier: str) -> Application | None:
    rows = [_application(row) for row in database.execute(f"{_SELECT} WHERE id = ?", (identifier,))]
    return rows[0] if rows else None


def end_family(database: apsw.Connection, family: bytes, now: float, why: str) -> None:
    """Take away what was granted, inside a transaction: the caller with all of its tokens. `why`: in our own words."""
    rows: list[Any] = database.execute(
        "SELECT alias FROM callers WHERE public_key = ? AND revoked_at IS NULL", (family,)
    ).fetchall()
    database.execute("DELETE FROM tokens WHERE family = ? AND kind = 'access'", (family,))
    if rows:
        database.execute(
            "UPDATE callers SET revoked_at = max(?, added_at), successor = NULL WHERE public_key = ?", (now, family)
        )
        record(database, now, "revoked", alias=str(rows[0][0]), public_key=family, detail=why)


_SELECT: Final = "SELECT id, name, space, redirects, secret, method, is_registered, added_at FROM applications"


def _application(row: Any) -> Application:
    identifier, name, space, redirects, secret, method, is_registered, added_at = row
    return Application(
        identifier, name, space, tuple(json.loads(redirects)), secret, method, bool(is_registered), added_at
    )


def _require_space(registry: Registry, database: apsw.Connection, space: str) -> None:
    if not database.execute("SELECT 1 FROM spaces WHERE name = ?", (space,)).fetchall():
        known = registry.spaces()
        near = nearest(space, known)
        hint = f"did you mean {near}?" if near else f"the spaces are: {', '.join(known) or 'none yet'}"
        raise TakenError(f"there is no space named '{printable(space[:MAX_NAME_CHARS])}'", hint=hint)


def _make_room(database: apsw.Connection) -> None:
    """Forget the oldest that has added itself and has nothing, where there are too many. Raises TakenError: all have something."""
    if int(database.execute("SELECT count(*) FROM applications").get or 0) < MOST:
        return
    idle: Any = database.execute(
        """SELECT id FROM applications WHERE is_registered AND NOT EXISTS (SELECT 1 FROM tokens WHERE application = applications.id)
           AND NOT EXISTS (SELECT 1 FROM sign_ins WHERE application = applications.id)
           AND NOT EXISTS (SELECT 1 FROM codes WHERE application = applications.id) ORDER BY added_at LIMIT 1"""
    ).get
    if idle is None:
        raise TakenError(f"there are {MOST} applications already", hint="confided gateway client ls shows which")
    database.execute("DELETE FROM applications WHERE id = ?", (idle,))
