"""Sign-in: an application that requests access becomes a caller. There is no password; a device of
the space approves six words.

    asked ──six words approved──► granted ──code, once──► a family: one caller, a short access token, and a refresh token that turns over

Each arrow is one transaction, so a kill between two leaves one of these states and never a second
family. Ids, words, codes and tokens are stored only as SHA-256; the words are derived from the id
of the request, which only the requesting browser has.

A response may be lost, and two processes of one program may send the same request. So a code or a
refresh token that is repeated within `REPEAT_S`, before its result was refreshed, gets the same
response: the tokens are derived from it and from a stored salt. Any other repetition means that two
parties have it, so all access from it is revoked. A browser gets the same code until it is used.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
from collections import Counter
from collections.abc import Hashable
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, Literal

import apsw

from confide_crypto.keys.bearer_tokens import following_token
from confide_crypto.keys.identity import fingerprint_words, typed_words
from confide_daemon.access.audit import record
from confide_daemon.access.enrolled_callers import Caller, Gateway, Grants, caller_now, describe, insert_caller
from confide_daemon.access.enrollment import free_name
from confide_daemon.access.registry import Registry
from confide_daemon.errors import TakenError
from confide_http.server.access.applications import Application, application_now, end_family, sought
from confide_http.server.access.server_tokens import MOST

WORDS_S: Final = 600.0
"""Seconds that a user has to approve a request."""
CODE_S: Final = 60.0
ACCESS_S: Final = 900.0
REFRESH_S: Final = 30 * 86_400.0
"""Seconds without a refresh after which an application must sign in again."""
REPEAT_S: Final = 60.0
"""Seconds for which a response is repeated. Clients retry within 30 s; a thief gains nothing that
he did not have.
"""
MOST_DAYS: Final = 90
"""Longest access that a device can approve: it can approve again, and a thief cannot keep access
for ever.
"""
MOST_ASKED: Final = 64
MOST_ASKED_EACH: Final = 8
_WORDS: Final = b"confide sign-in words"
_CODE: Final = b"confide sign-in code"

SignInScope = Literal["read", "write"]


@dataclass(frozen=True, slots=True)
class AuthorizationRequest:
    """An application's OAuth request for access.

    Attributes:
        redirect: the address to which the browser returns.
        is_given: True if the request states that address; False if it is the application's only
            one.
        state: a value of the application that is returned to it unchanged; None without one.
        challenge: the code challenge of PKCE (S256).
        resource: the address of the service that the tokens are for (RFC 8707).
    """

    redirect: str
    is_given: bool
    state: str | None
    scope: SignInScope
    challenge: str
    resource: str


@dataclass(frozen=True, slots=True)
class ApprovedGrant:
    """An approval by a device. `by` is the device's public key in hex; `projects` are the projects
    that it allows, None for all.
    """

    name: str
    scope: SignInScope
    projects: tuple[str, ...] | None
    gateway: Gateway
    days: int
    by: str


@dataclass(frozen=True, slots=True)
class PendingSignIn:
    """A request that waits for the user's approval, or for the browser to fetch its result.
    `digest` is the SHA-256 of its id; `grant` is the approval, None before it.
    """

    digest: bytes
    application: Application
    request: AuthorizationRequest
    grant: ApprovedGrant | None
    expires_at: float


@dataclass(frozen=True, slots=True)
class Code:
    """An authorization code of OAuth. `family` names the access that it was exchanged for at
    `used_at`; both are None while it is unused.
    """

    text: str = field(repr=False)
    digest: bytes
    application: str
    request: AuthorizationRequest
    grant: ApprovedGrant
    expires_at: float
    family: bytes | None
    used_at: float | None
    salt: bytes | None = field(repr=False)

    @property
    def good_until(self) -> float:
        """The time until which the code is accepted, in seconds since 1970. For a used code it is
        the time until which a repeated exchange gets the same tokens.
        """
        return self.expires_at if self.used_at is None else self.used_at + REPEAT_S


@dataclass(frozen=True, slots=True)
class Refresh:
    """A refresh token whose client still has access. It may have expired (`expires_at`, in seconds
    since 1970), or may have been used less than `REPEAT_S` ago.
    """

    text: str = field(repr=False)
    digest: bytes
    application: str
    scope: SignInScope
    expires_at: float


@dataclass(frozen=True, slots=True)
class Issued:
    """An access token and a refresh token in plaintext, for one response. `expires_in_s` is the
    lifetime of the access token in seconds.
    """

    access: str
    refresh: str
    scope: SignInScope
    expires_in_s: int


@dataclass(frozen=True, slots=True)
class Access:
    """The client that an access token belongs to, and the expiry of the token in seconds since
    1970.
    """

    caller: Caller
    until: float


def words_of(identifier: str) -> str:
    """Return the six words that identify a request for the user. They encode 66 bits of a hash of
    its id.
    """
    return fingerprint_words(hashlib.sha256(_WORDS + identifier.encode()).digest())


def _code_of(identifier: str) -> str:
    """Return the authorization code of a request: derived from its id, so that a repetition gets the
    same one and only the id's holder can.
    """
    digest = hashlib.sha256(_CODE + identifier.encode()).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


class SignIns:
    """Makes and checks the sign-ins that a registry stores. Methods block briefly.

    With several nodes, each step of a sign-in may run on another one. So if a request, a code or a
    refresh token is not found, the lookup is repeated after reading the changes of other nodes
    (`sought`). Decisions are made in a transaction, which includes all changes of other nodes.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        # Clients of pending requests, by digest. In memory alone: addresses are not stored.
        self._sources: dict[bytes, Hashable] = {}

    def ask(self, application: Application, asked: AuthorizationRequest, source: Hashable = None) -> str:
        """Store a request for access, and return its id, of which only the SHA-256 is stored.

        An application's id is not secret, so any client can send requests in its name. When too
        many requests wait, the client with the most unapproved requests loses its oldest one,
        provided that `source` has fewer. So no single address can lock out others.

        `source` identifies the client, for example by its address. Raises TakenError if too many
        requests wait and no client has more than `source`.
        """
        identifier = secrets.token_urlsafe(32)
        with self._registry.transaction() as database:
            now = self._registry.clock()
            _tidy(database, now)
            self._make_room(database, application.id, source)
            digest = _digest(identifier)
            self._sources[digest] = source
            database.execute(
                "INSERT INTO sign_ins VALUES (?, ?, ?, ?, NULL, ?)",
                (digest, _digest(words_of(identifier)), application.id, json.dumps(asdict(asked)), now + WORDS_S),
            )
        return identifier

    def _make_room(self, database: apsw.Connection, application: str, source: Hashable) -> None:
        """Drop a request if the limit is reached. Raises TakenError: no client has more requests
        than `source` would have.
        """
        rows: list[Any] = database.execute(
            "SELECT digest, application = ? FROM sign_ins WHERE granted IS NULL ORDER BY expires_at", (application,)
        ).fetchall()
        self._sources = {digest: self._sources.get(digest) for digest, _ in rows}
        mine = [row for row in rows if row[1]]
        if len(mine) < MOST_ASKED_EACH and len(rows) < MOST_ASKED:
            return
        crowded = mine if len(mine) >= MOST_ASKED_EACH else rows
        unanswered = [digest for digest, _ in crowded]
        held = Counter(self._sources[digest] for digest in unanswered)
        fullest, count = max(held.items(), key=lambda one: one[1], default=(None, 0))
        if held[source] + 1 >= count:
            raise TakenError("too many sign-ins wait already", hint="wait ten minutes, or approve one of them")
        oldest = next(digest for digest in unanswered if self._sources[digest] == fullest)
        database.execute("DELETE FROM sign_ins WHERE digest = ?", (oldest,))

    def waiting(self, identifier: str) -> PendingSignIn | None:
        """Return the request with this id, or None if it has expired or was never made."""
        return sought(self._registry, lambda database: self._waiting(database, _digest(identifier)))

    def find_by_words(self, words: str, space: str) -> PendingSignIn | None:
        """Return the request with these six words, even if it was approved already. Return None if
        there is none, or if it is for another space.
        """
        wanted = _digest(typed_words(words))
        found = sought(self._registry, lambda database: self._select_by_words(database, wanted))
        return found if found is not None and found.application.space == space else None

    def _select_by_words(self, database: apsw.Connection, wanted: bytes) -> PendingSignIn | None:
        rows: list[Any] = database.execute("SELECT digest, words FROM sign_ins").fetchall()
        # Compare with all of them in constant time, so that timing reveals nothing.
        found = [digest for digest, kept in rows if hmac.compare_digest(kept, wanted)]
        return self._waiting(database, found[-1]) if found else None

    def approve(self, waiting: PendingSignIn, granted: ApprovedGrant) -> ApprovedGrant | None:
        """Approve a request, and return the rights that were granted: those in `granted`, but only
        reading if the request asks for no more, and at most `MOST_DAYS`.

        An approval that is repeated, because its answer was lost, returns the same rights. Return
        None if the request was approved with other rights before, or has expired.
        """
        scope: SignInScope = "read" if "read" in (granted.scope, waiting.request.scope) else "write"
        granted = replace(granted, scope=scope, days=min(granted.days, MOST_DAYS))
        with self._registry.transaction() as database:
            now = self._registry.clock()
            before = self._waiting(database, waiting.digest)
            if before is not None and before.grant == granted:
                return granted
            database.execute(
                "UPDATE sign_ins SET granted = ? WHERE digest = ? AND granted IS NULL AND expires_at > ?",
                (json.dumps(asdict(granted)), waiting.digest, now),
            )
            if not database.changes():
                return None
            key = bytes.fromhex(granted.by)
            device = caller_now(database, key)
            alias = device.alias if device else None
            record(database, now, "approved", alias=alias, public_key=key, detail="a sign-in by HTTP", by=key)
        return granted

    def hand_out(self, identifier: str) -> Code | None:
        """Create the authorization code of an approved request, and return it. A browser that asks
        again, since a response may be lost, gets the same code while it is unused. The request is
        kept until it expires, so that a device whose answer was lost can learn that it is approved.

        Return None if the request was not approved, has expired, or its code was used.
        """
        text = _code_of(identifier)
        with self._registry.transaction() as database:
            now = self._registry.clock()
            fresh = self._waiting(database, _digest(identifier))
            if fresh is not None and fresh.grant is not None:
                asked, granted = json.dumps(asdict(fresh.request)), json.dumps(asdict(fresh.grant))
                database.execute(
                    "INSERT OR IGNORE INTO codes (digest, application, asked, granted, expires_at) VALUES (?, ?, ?, ?, ?)",
                    (_digest(text), fresh.application.id, asked, granted, now + CODE_S),
                )
            code = _code(database, text)
            return code if code is not None and code.family is None and code.expires_at > now else None

    def code(self, text: str) -> Code | None:
        """Return the code with this text, even if it was used or has expired, or None if there is
        none.
        """
        return sought(self._registry, lambda database: _code(database, text))

    def exchange(self, code: Code) -> Issued | None:
        """Create a registry entry and the first tokens in exchange for a code. The caller must
        authenticate the application first.

        Return None if the code has expired, its application or the device that approved it has lost
        its access, or the code is repeated too late. A code that is repeated too late also loses
        the access that it gave. Raises TakenError if there are too many HTTP clients.
        """
        with self._registry.transaction() as database:
            now = self._registry.clock()
            fresh = _code(database, code.text)
            if fresh is None:
                return None
            if fresh.family is not None:
                again = _issue_again(database, fresh.family, fresh.text, fresh.salt, fresh.used_at, now)
                if again is None:
                    end_family(database, fresh.family, now, "its code came twice")
                return again
            application = application_now(database, fresh.application)
            device = caller_now(database, bytes.fromhex(fresh.grant.by))
            if fresh.expires_at <= now or application is None:
                return None
            if device is None or device.refusal_reason(now) or device.space != application.space:
                return None
            family, salt = secrets.token_bytes(32), secrets.token_bytes(32)
            self._enroll(database, family, fresh.grant, application, now)
            database.execute("UPDATE codes SET family = ?, salt = ? WHERE digest = ?", (family, salt, fresh.digest))
            return _issue(database, family, application.id, fresh.request.resource, now, by=fresh.text, salt=salt)

    def spend(self, code: Code) -> None:
        """Revoke the access that a used code gave, because the code was sent again with other
        parameters.
        """
        if code.family is not None:
            with self._registry.transaction() as database:
                end_family(database, code.family, self._registry.clock(), "its code came twice")

    def refresh_of(self, text: str, application: str) -> Refresh | None:
        """Return the refresh token with this text if it belongs to `application` and still gives
        access, else None. A token that is repeated too late loses its access. `turn_over` checks
        the expiry.
        """
        digest = _digest(text)

        def look(database: apsw.Connection) -> tuple[bytes, float, Caller, bool] | None:
            rows: list[Any] = database.execute(
                "SELECT family, expires_at, used_at, salt FROM tokens WHERE digest = ? AND kind = 'refresh' AND application = ?",
                (digest, application),
            ).fetchall()
            caller = caller_now(database, rows[0][0]) if rows else None
            if caller is None:
                return None
            family, expires_at, used_at, salt = rows[0]
            now = self._registry.clock()
            is_good = used_at is None or _issue_again(database, family, text, salt, used_at, now) is not None
            return family, expires_at, caller, is_good

        found = sought(self._registry, look)
        if found is None:
            return None
        family, expires_at, caller, is_good = found
        if caller.refusal_reason(self._registry.clock()):
            return None
        if not is_good:
            with self._registry.transaction() as database:
                end_family(database, family, self._registry.clock(), "its refresh token came twice")
            return None
        return Refresh(text, digest, application, "write" if caller.grants.may_write else "read", expires_at)

    def turn_over(self, refresh: Refresh) -> Issued | None:
        """Replace a refresh token by a new access token and a new refresh token, and end the
        earlier access token.

        Return None if it has expired, its access has ended, or it is repeated too late, which
        revokes all access from its sign-in.
        """
        with self._registry.transaction() as database:
            now = self._registry.clock()
            rows: list[Any] = database.execute(
                "SELECT family, resource, expires_at, used_at, salt FROM tokens WHERE digest = ? AND kind = 'refresh'",
                (refresh.digest,),
            ).fetchall()
            if not rows:
                return None
            family, resource, expires_at, used_at, salt = rows[0]
            if used_at is not None:
                again = _issue_again(database, family, refresh.text, salt, used_at, now)
                if again is None:
                    end_family(database, family, now, "its refresh token came twice")
                return again
            caller = caller_now(database, family)
            if expires_at <= now or caller is None or caller.refusal_reason(now):
                return None
            # Earlier codes and tokens of the family can no longer be repeated: delete the salts
            # from which their results were derived.
            for table in ("codes", "tokens"):
                forget = f"UPDATE {table} SET salt = NULL WHERE family = ? AND salt IS NOT NULL"  # noqa: S608 - one of these two
                database.execute(forget, (family,))
            salt = secrets.token_bytes(32)
            database.execute("UPDATE tokens SET used_at = ?, salt = ? WHERE digest = ?", (now, salt, refresh.digest))
            database.execute("DELETE FROM tokens WHERE family = ? AND kind = 'access'", (family,))
            return _issue(database, family, refresh.application, resource, now, by=refresh.text, salt=salt)

    def access(self, digest: bytes, resource: str) -> Access | None:
        """Return the client of the access token with this SHA-256. Return None if it has expired,
        was revoked, or is for another resource.
        """
        with self._registry.reading() as database:
            rows: list[Any] = database.execute(
                "SELECT family, expires_at FROM tokens WHERE digest = ? AND kind = 'access' AND resource = ? AND expires_at > ?",
                (digest, resource, self._registry.clock()),
            ).fetchall()
            caller = caller_now(database, rows[0][0]) if rows else None
        return None if caller is None else Access(caller, rows[0][1])

    def _enroll(
        self, database: apsw.Connection, family: bytes, granted: ApprovedGrant, application: Application, now: float
    ) -> None:
        taken = [str(row[0]) for row in database.execute("SELECT alias FROM callers WHERE revoked_at IS NULL")]
        there: Any = database.execute(
            "SELECT count(*) FROM callers WHERE revoked_at IS NULL AND gateway IS NOT NULL"
        ).get
        self._registry.require_accepted()
        if there >= MOST:
            raise TakenError(f"there are {MOST} gateway clients already", hint="end one that is unused")
        projects = None if granted.projects is None else frozenset(granted.projects)
        grants = Grants(free_name(granted.name, taken), granted.scope, projects)
        expires_at = now + min(granted.days, MOST_DAYS) * 86_400
        by = bytes.fromhex(granted.by)
        insert_caller(
            database,
            family,
            grants,
            space=application.space,
            added_by="line",
            now=now,
            expires_at=expires_at,
            invited_by=by,  # who is shut out takes along whom it has let in
            gateway=granted.gateway,
        )
        detail = f"by HTTP, signed in; {granted.gateway}; {describe(grants, expires_at)}"
        record(database, now, "added", alias=grants.alias, public_key=family, detail=detail, by=by)

    def _waiting(self, database: apsw.Connection, digest: bytes) -> PendingSignIn | None:
        rows: list[Any] = database.execute(
            "SELECT application, asked, granted, expires_at FROM sign_ins WHERE digest = ? AND expires_at > ?",
            (digest, self._registry.clock()),
        ).fetchall()
        application = application_now(database, rows[0][0]) if rows else None
        if application is None:
            return None
        _, asked, granted, expires_at = rows[0]
        return PendingSignIn(
            digest, application, AuthorizationRequest(**json.loads(asked)), _parse_grant(granted), expires_at
        )


def _issue(
    database: apsw.Connection, family: bytes, application: str, resource: str, now: float, *, by: str, salt: bytes
) -> Issued:
    """Issue tokens derived from the code or refresh token `by`, and from the salt."""
    caller = caller_now(database, family)
    assert caller is not None
    assert caller.expires_at is not None
    texts = []
    for kind, lasts_s in (("access", ACCESS_S), ("refresh", REFRESH_S)):
        text, digest = following_token(by, salt, kind)
        texts.append(text)
        until = min(now + lasts_s, caller.expires_at)
        database.execute(
            "INSERT INTO tokens (digest, kind, family, application, resource, expires_at) VALUES (?, ?, ?, ?, ?, ?)",
            (digest, kind, family, application, resource, until),
        )
    return Issued(texts[0], texts[1], _scope_of(caller), int(min(ACCESS_S, caller.expires_at - now)))


def _issue_again(
    database: apsw.Connection, family: bytes, by: str, salt: bytes | None, used_at: float | None, now: float
) -> Issued | None:
    """Return the result of `_issue` again for a repetition that is in time and before any refresh.

    The clocks of nodes differ a little, in either direction.
    """
    caller = caller_now(database, family)
    if (
        salt is None
        or used_at is None
        or abs(now - used_at) >= REPEAT_S
        or caller is None
        or caller.refusal_reason(now)
    ):
        return None
    access, access_digest = following_token(by, salt, "access")
    refresh, refresh_digest = following_token(by, salt, "refresh")
    sql = "SELECT expires_at FROM tokens WHERE digest = ? AND family = ? AND used_at IS NULL AND expires_at > ?"
    until: Any = database.execute(sql, (access_digest, family, now)).get
    if until is None or database.execute(sql, (refresh_digest, family, now)).get is None:
        return None
    return Issued(access, refresh, _scope_of(caller), int(until - now))


def _scope_of(caller: Caller) -> SignInScope:
    return "write" if caller.grants.may_write else "read"


def _code(database: apsw.Connection, text: str) -> Code | None:
    digest = _digest(text)
    rows: list[Any] = database.execute(
        """SELECT application, asked, granted, codes.expires_at, family, callers.added_at, salt
           FROM codes LEFT JOIN callers ON callers.public_key = family WHERE digest = ?""",
        (digest,),
    ).fetchall()
    if not rows:
        return None
    application, asked, granted, *rest = rows[0]
    found = _parse_grant(granted)
    assert found is not None
    return Code(text, digest, application, AuthorizationRequest(**json.loads(asked)), found, *rest)


def _parse_grant(text: str | None) -> ApprovedGrant | None:
    if text is None:
        return None
    said = json.loads(text)
    projects = said.pop("projects")
    return ApprovedGrant(**said, projects=None if projects is None else tuple(projects))


def _tidy(database: apsw.Connection, now: float) -> None:
    """Delete expired rows. Codes stay `REFRESH_S` longer, so that a late repetition still revokes
    what they gave.
    """
    database.execute("DELETE FROM sign_ins WHERE expires_at <= ?", (now,))
    database.execute("DELETE FROM codes WHERE expires_at <= ?", (now - REFRESH_S,))
    database.execute("DELETE FROM tokens WHERE expires_at <= ?", (now,))


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
