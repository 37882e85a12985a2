"""Machines that would be among the devices of their space: their cards, and what a device answers them (PROTOCOL.md 10.7)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from confide_crypto.sealing.roster import Roster
from confide_daemon.access.registry import Registry

MAX_WAITING: Final = 64
"""Shown at once, the longest waiting first; more than a roster takes."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A machine that is on no roster yet.

    Attributes:
        key: Ed25519, 32 bytes.
        name: of its caller.
        card: 1312 bytes.
        request: shows who holds the pair secret that it has the card from there, 1361 bytes; None: people compare its words.
    """

    key: bytes
    name: str
    card: bytes
    request: bytes | None


class Pairings:
    """One row for each caller that has asked. As safe as the registry itself."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def ask(self, space_id: str, key: bytes, card: bytes, request: bytes | None) -> tuple[bytes | None, bool]:
        """Note that a machine wants to be taken in; the answer that waits for it, if there is one, and whether anything is new.

        A request is kept when the same card comes without one; another card, or another request, ends what was answered before.
        """
        with self._registry.transaction() as database:
            rows: list[Any] = database.execute(
                "SELECT card, request, answer FROM pairings WHERE public_key = ? AND space = ?", (key, space_id)
            ).fetchall()
            if rows and rows[0][0] == card and request in (None, rows[0][1]):
                return rows[0][2], False
            database.execute(
                "INSERT OR REPLACE INTO pairings (public_key, space, card, request, at) VALUES (?, ?, ?, ?, ?)",
                (key, space_id, card, request, self._registry.clock()),
            )
            return None, True

    def answer_of(self, space_id: str, key: bytes) -> bytes | None:
        """What a device has answered this machine, 101 bytes."""
        with self._registry.reading() as database:
            found = database.execute(
                "SELECT answer FROM pairings WHERE public_key = ? AND space = ?", (key, space_id)
            ).get
            return bytes(found) if isinstance(found, bytes) else None

    def answer(self, space_id: str, key: bytes, answer: bytes) -> bool:
        """Keep a device's answer for this machine; False if it has not asked."""
        with self._registry.transaction() as database:
            database.execute(
                "UPDATE pairings SET answer = ? WHERE public_key = ? AND space = ? AND request IS NOT NULL",
                (answer, key, space_id),
            )
            return database.changes() > 0

    def waiting(self, space_id: str, roster: Roster | None) -> list[Waiting]:
        """Those of the space's callers that have asked, and neither are on its roster nor were."""
        with self._registry.reading() as database:
            rows: list[Any] = database.execute(
                """SELECT p.public_key, c.alias, p.card, p.request FROM pairings p
                   JOIN callers c ON c.public_key = p.public_key JOIN spaces s ON s.name = c.space AND s.id = p.space
                   WHERE p.space = ? AND c.revoked_at IS NULL AND c.approved_at IS NOT NULL
                     AND (c.expires_at IS NULL OR c.expires_at > ?) ORDER BY p.at""",
                (space_id, self._registry.clock()),
            ).fetchall()
        known = {**roster.devices, **roster.removed} if roster is not None else {}
        return [Waiting(*row) for row in rows if row[0] not in known][:MAX_WAITING]
