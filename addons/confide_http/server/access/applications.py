"""Applications: programs that may request access from a user, such as claude.ai or ChatGPT. OAuth
calls them clients.

Each belongs to one space, and may redirect a user only to the addresses that it was added with. The
operator adds applications; they register themselves (RFC 7591) only while a command beside the
daemon keeps registration open, which it renews every second or two.

Addresses of native programs follow RFC 8252. A program that listens on its own computer has another
port each time, so the port of a loopback address is free (7.3). An address with a private scheme
(7.1) is added by the operator, since a program that registers itself could name the scheme of
another; `REGISTERED_SCHEMES` lists the exceptions.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Literal, TypeVar, get_args
from urllib.parse import urlsplit

import apsw

from confide_crypto.errors import printable
from confide_daemon.access.audit import record
from confide_daemon.access.enrollment import nearest
from confide_daemon.access.registry import Registry
from confide_daemon.errors import BadNameError, TakenError
from confide_http.server.access.server_tokens import no_space

T = TypeVar("T")
Method = Literal["none", "client_secret_post", "client_secret_basic"]
"""How an application authenticates at the token endpoint: not at all, or by a secret in one of two
places.
"""
METHODS: Final[tuple[Method, ...]] = get_args(Method)
MOST: Final = 64
MOST_REDIRECTS: Final = 8
MAX_REDIRECT_CHARS: Final = 1024
MAX_NAME_CHARS: Final = 64
REGISTERED_SCHEMES: Final = frozenset({"cursor://anysphere.cursor-mcp/oauth/callback"})
"""Private-scheme addresses that a program may register, exactly: Cursor's."""
_LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
_LOOPBACK_ADDRESS: Final = re.compile(
    r"(http://(?:127\.0\.0\.1|localhost|\[::1\]))(?::([1-9][0-9]{0,4}))?((?:[/?].*)?)"
)
_MAX_PORT: Final = 65_535
# A reversed domain, as RFC 8252 requires, so that it is no scheme that a browser or a desktop
# handles itself; or a known program.
_OWN_SCHEME: Final = re.compile(r"(?:(?!http)[a-z][a-z0-9+-]*(?:\.[a-z0-9+-]+)+|cursor|vscode|vscode-insiders):/.*")
_ADDRESS: Final = re.compile(r"[!-~]+")  # what an address is written with; no blanks, nothing that a terminal takes


@dataclass(frozen=True, slots=True)
class Application:
    """An application that may ask users for access. `secret` is the SHA-256 of its client secret,
    or None without one; `is_registered` is True if the program registered itself.
    """

    id: str
    name: str
    space: str
    redirects: tuple[str, ...]
    secret: bytes | None
    method: Method
    is_registered: bool
    added_at: float

    def may_send_to(self, address: str) -> bool:
        """Return True if a user may be redirected to this address: it must be one of the
        application's own, of which only the port of a loopback address may differ.
        """
        wanted = _without_port(address)
        return wanted is not None and any(_without_port(own) == wanted for own in self.redirects)


class Applications:
    """Reads and changes the applications that a registry lists."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def find(self, identifier: str) -> Application | None:
        """Return the application with this id, or None; finds it even if another node has just
        added it.
        """
        return sought(self._registry, lambda database: application_now(database, identifier))

    def all(self) -> list[Application]:
        """Return all applications, sorted by name."""
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
        """Add an application.

        Args:
            redirects: the addresses to which it may redirect a user (`Application.may_send_to`).
            secret: the secret by which it authenticates, or None; only its SHA-256 is stored.

        Raises BadNameError if the name or an address is invalid; TakenError if the space does not
        exist or there are too many applications.
        """
        name = checked_name(name)
        checked = checked_redirects(redirects, is_registered=is_registered)
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
            self._require_space(database, space)
            _make_room(database)
            row = asdict(made) | {"redirects": json.dumps(made.redirects)}
            database.execute("INSERT INTO applications VALUES (?, ?, ?, ?, ?, ?, ?, ?)", tuple(row.values()))
            record(database, made.added_at, "added", detail="an application that may ask to be let in")
        return made

    def note_document(self, identifier: str, name: str, *, space: str, redirects: Sequence[str]) -> Application:
        """Add or update an application as its metadata document describes it; the URL of the
        document is its id.

        Raises BadNameError if the name or an address is invalid; TakenError if the space does not
        exist or there are too many applications.
        """
        known = self.find(identifier)
        if known is None:
            return self.add(name, space=space, redirects=redirects, identifier=identifier, is_registered=True)
        now = replace(
            known, name=checked_name(name), space=space, redirects=checked_redirects(redirects, is_registered=True)
        )
        if now != known:
            with self._registry.transaction() as database:
                self._require_space(database, space)
                database.execute(
                    "UPDATE applications SET name = ?, space = ?, redirects = ? WHERE id = ?",
                    (now.name, now.space, json.dumps(now.redirects), identifier),
                )
        return now

    def remove(self, name: str) -> Application:
        """Remove the application with this id or unique name, and revoke all its access.

        Raises TakenError if no application has this name, or several have it.
        """
        known = self.all()
        found = [one for one in known if one.id == name] or [one for one in known if one.name == name]
        if len(found) != 1:
            if found:
                ids = ", ".join(one.id for one in found)
                raise TakenError(f"there are {len(found)} applications of that name", hint=f"name one by its id: {ids}")
            near = nearest(name, [one.name for one in known])
            hint = f"did you mean {near}?" if near else "confided http ls --apps shows which there are"
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

    def _require_space(self, database: apsw.Connection, space: str) -> None:
        """Raise TakenError if no space has this name within this transaction."""
        if not database.execute("SELECT 1 FROM spaces WHERE name = ?", (space,)).fetchall():
            raise no_space(space, self._registry.spaces())

    # Registration

    def keep_open(self, space: str, *, for_s: float) -> None:
        """Let applications register themselves for a space for the next `for_s` seconds. Raises
        TakenError if registration is open for another space, or the space does not exist.
        """
        with self._registry.transaction() as database:
            self._require_space(database, space)
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
        """Return the space for which applications may register themselves now, or None."""
        with self._registry.reading() as database:
            now = self._registry.clock()
            found: Any = database.execute("SELECT space FROM registration WHERE until > ?", (now,)).get
            return None if found is None else str(found)


def sought(registry: Registry, read: Callable[[apsw.Connection], T | None]) -> T | None:
    """Return what `read` finds in the registry. If it finds nothing, read the changes of other
    nodes and try once more.
    """

    def look() -> T | None:
        with registry.reading() as database:
            return read(database)

    return registry.sought(look)


def checked_name(name: str) -> str:
    """Return an application's name without superfluous spaces. Raises BadNameError if it is empty,
    too long, or has characters that cannot be shown.
    """
    name = " ".join(name.split())
    if not name or len(name) > MAX_NAME_CHARS or printable(name) != name:
        raise BadNameError(f"an application's name has 1 to {MAX_NAME_CHARS} letters that can be shown")
    return name


def checked_redirects(redirects: Sequence[str], *, is_registered: bool) -> tuple[str, ...]:
    """Return the redirect addresses of an application, if all are allowed: https, http on loopback,
    or the scheme of a program. Raises BadNameError if one is not.

    `is_registered` is True if the program states them itself, and False if the operator does; a
    program may state only some schemes.
    """
    if not 1 <= len(redirects) <= MOST_REDIRECTS:
        raise BadNameError(f"an application has 1 to {MOST_REDIRECTS} addresses to send a person back to")
    for address in redirects:
        is_one = len(address) <= MAX_REDIRECT_CHARS and _ADDRESS.fullmatch(address) and not set("#\\") & set(address)
        if not is_one or not (_is_of_the_web(address) or _is_own_scheme(address, is_registered=is_registered)):
            hint = (
                "it begins with https://, or with http://127.0.0.1, http://[::1] or http://localhost, where any port will do; "
                "without user, and without #"
            )
            if not is_registered:
                hint += "; or with the scheme of one program, as in cursor://anysphere.cursor-mcp/oauth/callback"
            raise BadNameError("that is no address to send a person back to", hint=hint)
    return tuple(redirects)


def _is_of_the_web(address: str) -> bool:
    try:
        parts = urlsplit(address)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return False
    is_safe = parts.scheme == "https" or (parts.scheme == "http" and host in _LOOPBACK)
    return bool(host) and is_safe and "@" not in parts.netloc


def _is_own_scheme(address: str, *, is_registered: bool) -> bool:
    if is_registered:
        return address in REGISTERED_SCHEMES
    return _OWN_SCHEME.fullmatch(address) is not None and "@" not in address


def _without_port(address: str) -> str | None:
    """Return an address for comparison: a loopback address without its port, any other unchanged;
    None: its port is invalid.
    """
    found = _LOOPBACK_ADDRESS.fullmatch(address)
    if found is None:
        return address
    own, port, rest = found.groups()
    return own + rest if port is None or int(port) <= _MAX_PORT else None


def application_now(database: apsw.Connection, identifier: str) -> Application | None:
    rows = [_application(row) for row in database.execute(f"{_SELECT} WHERE id = ?", (identifier,))]
    return rows[0] if rows else None


def end_family(database: apsw.Connection, family: bytes, now: float, why: str) -> None:
    """Revoke the access that a sign-in gave, within a transaction: its caller and all its tokens.
    `why` is recorded as the reason, so it must not contain text of others.
    """
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


def _make_room(database: apsw.Connection) -> None:
    """If there are too many, delete the oldest self-registered application without access. Raises
    TakenError: all have access.
    """
    if int(database.execute("SELECT count(*) FROM applications").get or 0) < MOST:
        return
    idle: Any = database.execute(
        """SELECT id FROM applications WHERE is_registered AND NOT EXISTS (SELECT 1 FROM tokens WHERE application = applications.id)
           AND NOT EXISTS (SELECT 1 FROM sign_ins WHERE application = applications.id)
           AND NOT EXISTS (SELECT 1 FROM codes WHERE application = applications.id) ORDER BY added_at LIMIT 1"""
    ).get
    if idle is None:
        raise TakenError(f"there are {MOST} applications already", hint="confided http ls --apps shows which")
    database.execute("DELETE FROM applications WHERE id = ?", (idle,))
