"""Browser sessions: the cookie of each, and the state that the panel keeps for it. All are in
memory only, so they end with the gateway.
"""

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
"""Seconds without a request after which a session ends."""
MOST: Final = 32
MOST_KEPT: Final = 64
"""Form values that a session keeps for the addresses of their results, such as queries; the oldest
are dropped.
"""


@dataclass(eq=False)
class BrowserSession:
    """The session of one browser.

    Attributes:
        place: the secret part of its addresses.
        form_token: the token that each form of its pages carries, against cross-site request forgery.
        identity: the person at this device, with all scopes.
        used_at: the time of its last request, as `time.monotonic`.
        is_embedded: True if it began in a frame of another site, where browsers return no strict
            cookie.
    """

    place: str
    digest: str
    form_token: str
    used_at: float
    is_embedded: bool = False
    notice: str = ""
    """The result of a form, which the next page shows once."""
    _forms: OrderedDict[str, Mapping[str, str]] = field(default_factory=OrderedDict)
    _count: int = 0

    @property
    def base(self) -> str:
        """The path that its addresses begin with."""
        return f"/panel/{self.place}"

    def set_cookie(self, cookie: str, *, is_over: bool = False) -> str:
        """Return the value of `Set-Cookie` for this session. With `is_over` it makes the browser
        delete the cookie.

        An embedded session has a partitioned cookie, which browsers return only within frames of
        that one site.
        """
        kept = "Secure; SameSite=None; Partitioned" if self.is_embedded else "SameSite=strict"
        return f"{COOKIE}={cookie}; Path={self.base}; HttpOnly; {kept}" + ("; Max-Age=0" if is_over else "")

    @property
    def identity(self) -> RequestIdentity:
        return RequestIdentity("panel", f"panel:{self.digest}", frozenset(SCOPES), class_="owner", is_of_token=False)

    def keep(self, fields: Mapping[str, str]) -> str:
        """Store form values that must not be in an address, such as a query, and return the number
        under which `form_values` finds them.
        """
        self._count += 1
        self._forms[number := str(self._count)] = dict(fields)
        while len(self._forms) > MOST_KEPT:
            self._forms.popitem(last=False)
        return number

    def form_values(self, number: str) -> Mapping[str, str]:
        """Return the form values that were stored under this number; empty if they were dropped."""
        return self._forms.get(number, {})

    def is_own_form(self, given: str) -> bool:
        """Return True if a form came from a page of this session."""
        return hmac.compare_digest(given.encode(), self.form_token.encode())


class BrowserSessions:
    """All sessions of a gateway."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._by_place: OrderedDict[str, BrowserSession] = OrderedDict()

    def __len__(self) -> int:
        return len(self._by_place)

    def begin(self, *, is_embedded: bool = False) -> tuple[BrowserSession, str]:
        """Start a session, and return it with its cookie, which is stored nowhere else. At most
        `MOST` sessions exist; beyond that the one that was unused longest ends.
        """
        cookie = _random_id(32)
        visit = BrowserSession(_random_id(16), _digest(cookie), _random_id(32), self._clock(), is_embedded)
        self._by_place[visit.place] = visit
        while len(self._by_place) > MOST:
            self._by_place.popitem(last=False)
        return visit, cookie

    def find(self, place: str, cookie: str | None) -> BrowserSession | None:
        """Return the session with this secret part of the address (`place`) if the cookie belongs
        to it and it was used within `IDLE_S`; else None.
        """
        visit = self._by_place.get(place)
        if visit is None or cookie is None or not hmac.compare_digest(_digest(cookie), visit.digest):
            return None
        if not self.is_good(visit):
            self.end(visit)
            return None
        visit.used_at = self._clock()
        self._by_place.move_to_end(place)
        return visit

    def is_good(self, visit: BrowserSession) -> bool:
        """Return True if the session has not ended."""
        return self._by_place.get(visit.place) is visit and self._clock() - visit.used_at < IDLE_S

    def end(self, visit: BrowserSession) -> None:
        self._by_place.pop(visit.place, None)


def _random_id(size: int) -> str:
    return base64.urlsafe_b64encode(secrets.token_bytes(size)).rstrip(b"=").decode()


def _digest(cookie: str) -> str:
    return hashlib.sha256(cookie.encode("utf-8", "surrogatepass")).hexdigest()
