"""Visits: what a browser's cookie stands for, and what is kept of it while it lasts. In memory alone: with the gateway all of them end."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from confide_http.local.request_identity import SCOPES, RequestIdentity

COOKIE: Final = "confide-panel"
IDLE_S: Final = 12 * 3600.0
"""After which nobody is let in by a cookie that nobody has used."""
MOST: Final = 32
MOST_KEPT: Final = 64
"""Forms' fields that a visit keeps, for the addresses of their answers: as far back as a person goes."""


@dataclass(eq=False)
class BrowserSession:
    """One browser's.

    Attributes:
        place: the part of its addresses that nobody else knows.
        form_token: what every form of its pages carries; another page cannot know it.
        identity: a person's, who may do what the commands may.
        used: when its cookie was last shown, as `time.monotonic`.
        is_embedded: it was begun in a frame of another site's page, where a browser gives no strict cookie back.
    """

    place: str
    digest: str
    form_token: str
    used: float
    is_embedded: bool = False
    notice: str = ""
    """What is told once, on the next page: what became of a form."""
    _kept: OrderedDict[str, Mapping[str, str]] = field(default_factory=OrderedDict)
    _count: int = 0

    @property
    def base(self) -> str:
        """What its addresses begin with."""
        return f"/panel/{self.place}"

    def set_cookie(self, cookie: str, *, is_over: bool = False) -> str:
        """What `Set-Cookie` says; `is_over`: the browser is to forget it.

        Embedded it is partitioned: a browser gives it back in frames of that one site's pages alone, and nowhere else.
        """
        kept = "Secure; SameSite=None; Partitioned" if self.is_embedded else "SameSite=strict"
        return f"{COOKIE}={cookie}; Path={self.base}; HttpOnly; {kept}" + ("; Max-Age=0" if is_over else "")

    @property
    def identity(self) -> RequestIdentity:
        return RequestIdentity("panel", f"panel:{self.digest}", frozenset(SCOPES), class_="owner", is_of_token=False)

    def keep(self, fields: Mapping[str, str]) -> str:
        """A number for what must not stand in an address: what was searched for, say."""
        self._count += 1
        self._kept[number := str(self._count)] = dict(fields)
        while len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)
        return number

    def kept(self, number: str) -> Mapping[str, str]:
        """What was kept under a number; nothing where it is forgotten."""
        return self._kept.get(number, {})

    def is_own_form(self, given: str) -> bool:
        """Whether a form came from a page of this visit."""
        return hmac.compare_digest(given.encode(), self.form_token.encode())


class BrowserSessions:
    """All that there are."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._by_place: OrderedDict[str, BrowserSession] = OrderedDict()

    def __len__(self) -> int:
        return len(self._by_place)

    def begin(self, *, is_embedded: bool = False) -> tuple[BrowserSession, str]:
        """A new one, and its cookie, which is nowhere else. The one that was idle longest makes room."""
        cookie = _drawn(32)
        visit = BrowserSession(_drawn(16), _digest(cookie), _drawn(32), self._clock(), is_embedded)
        self._by_place[visit.place] = visit
        while len(self._by_place) > MOST:
            self._by_place.popitem(last=False)
        return visit, cookie

    def find(self, place: str, cookie: str | None) -> BrowserSession | None:
        """The visit of that place, if the cookie is its own and was used within `IDLE_S`."""
        visit = self._by_place.get(place)
        if visit is None or cookie is None or not hmac.compare_digest(_digest(cookie), visit.digest):
            return None
        if not self.is_good(visit):
            self.end(visit)
            return None
        visit.used = self._clock()
        self._by_place.move_to_end(place)
        return visit

    def is_good(self, visit: BrowserSession) -> bool:
        """Whether it still lasts."""
        return self._by_place.get(visit.place) is visit and self._clock() - visit.used < IDLE_S

    def end(self, visit: BrowserSession) -> None:
        self._by_place.pop(visit.place, None)


def _drawn(size: int) -> str:
    return base64.urlsafe_b64encode(secrets.token_bytes(size)).rstrip(b"=").decode()


def _digest(cookie: str) -> str:
    return hashlib.sha256(cookie.encode("utf-8", "surrogatepass")).hexdigest()
