"""What a page works with: whose visit it is, what was asked, the memory, and the ways to answer."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from confide_crypto.errors import ConfideError
from confide_http.door.refusals import RefusalError
from confide_http.door.request_limits import body_of
from confide_http.local.gateway_app import GatewayShared
from confide_memory.documents import RequestChannel
from confide_panel import markdown_html, rendering
from confide_panel.browser_sessions import BrowserSession

MOST_FORM_BYTES: Final = 4 * 2**20
"""A note has a million characters at most, and a form writes some of them as nine."""
MOST_FIELDS: Final = 64
FORM_TOKEN: Final = "form"  # noqa: S105 - a field's name
ASK_S: Final = 10.0
"""How long the daemon may take for what is asked of it over `PageContext.link`."""
_MOST_DIGITS: Final = 15
T = TypeVar("T")
Found = dict[str, Any]
"""What a tool tells: its fields are those of the tool's schema, and templates name them."""
_FORM: Final = "application/x-www-form-urlencoded"


@dataclass(eq=False)
class PageContext:
    """One request of a visit.

    Attributes:
        form: the fields that a form has sent, with newlines as files have them; nothing but for POST.
        is_good: whether the visit still lasts.
    """

    gateway: GatewayShared
    visit: BrowserSession
    request: Request
    form: Mapping[str, str] = field(default_factory=dict)
    is_good: Callable[[], bool] = lambda: True

    # -- what was asked ---------------------------------------------------------------------------------------------

    def query(self, name: str, most: int = 512) -> str:
        """A parameter of the address, cut at what a name may have."""
        return self.request.query_params.get(name, "")[:most]

    def number(self, name: str, usual: int = 1, most: int = 2**53) -> int:
        """One that is a whole number above 0."""
        return min(_whole(self.query(name, 20)) or usual, most)

    def said_number(self, name: str) -> int:
        """A field of the form that is a whole number above 0; 0: it is none."""
        return _whole(self.form.get(name, ""))

    def said(self, name: str, most: int = 1_000_000) -> str:
        """A field of the form without the blanks around it. Raises RefusalError: it is longer than `most`."""
        value = self.form.get(name, "").strip()
        if len(value) > most:
            raise RefusalError(400, "invalid", f"what is given has more than {most:,} characters")
        return value

    @property
    def project(self) -> str:
        """The one that a page is about: the gateway's where none is named."""
        return self.query("project", 256) or self.form.get("project", "")[:256] or self.gateway.calls.project

    # -- the memory -------------------------------------------------------------------------------------------------

    async def call(self, tool: str, **arguments: Any) -> Found:
        """The structured result of a tool; what is None is left out. Raises RefusalError: whatever goes wrong."""
        given = {name: value for name, value in arguments.items() if value is not None}
        found: Found = _plain(await self.gateway.calls.tool(self.visit.identity, tool, given))
        return found

    @property
    def link(self) -> RequestChannel:
        """The way to the daemon for a request that is no tool (PROTOCOL.md 9)."""
        return self.gateway.calls.link

    async def at_least(self, work: Awaitable[T]) -> T | None:
        """What a page can do without: None where it fails, and the page says that it is not there."""
        try:
            return await work
        except (ConfideError, TimeoutError):
            return None

    # -- answers ----------------------------------------------------------------------------------------------------

    def url(self, page: str = "", /, **query: Any) -> str:
        return rendering.address(self.visit.base, page, query)

    def page(self, template: str, *, status: int = 200, **values: Any) -> Response:
        return rendering.answer(template, self.visit, status, desk=self, url=self.url, **values)

    def go(self, page: str = "", notice: str = "", /, **query: Any) -> Response:
        """To another page, which tells `notice`: a form that was sent is not sent again by a reload."""
        self.visit.notice = notice
        return RedirectResponse(self.url(page, **query), 303, headers=rendering.HEADERS)

    def secret(self, placeholder: str) -> str:
        """Where a sealed text is shown, and the way back from there."""
        here = self.request.url
        back = here.path + (f"?{here.query}" if here.query else "")
        return self.url("secret", id=placeholder, back=back if self.request.method == "GET" else None)

    def markdown(self, text: str, links: markdown_html.DocumentLinks = markdown_html.NO_LINKS) -> Any:
        """Render the text of a document."""
        return markdown_html.page(text, self.secret, links)

    def line(self, text: str) -> Any:
        """Render the first line of a document for a list, without its markdown."""
        return markdown_html.lines(markdown_html.unformatted(text), self.secret)

    def lines(self, text: str, words: re.Pattern[str] | None = None) -> Any:
        """Render a text as it is; the matches of `words` are marked."""
        return markdown_html.lines(text, self.secret, words)


def _whole(said: str) -> int:
    # A number without an end is an error to Python.
    return int(said) if len(said) <= _MOST_DIGITS and said.isdecimal() else 0


def _plain(value: Any) -> Any:
    """A result whose missing fields a template can ask for: those of `tools.result` end in an error."""
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, list) else value


Page = Callable[[PageContext], Awaitable[Response]]


async def form_of(request: Request, visit: BrowserSession) -> dict[str, str]:
    """The fields of a form of this visit's own pages.

    Raises RefusalError: it is none, is too large, or came from another page (403).
    """
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != _FORM:
        raise RefusalError(415, "invalid", "this takes a form")
    body = await body_of(request, most=MOST_FORM_BYTES)
    try:
        pairs = await asyncio.to_thread(
            parse_qsl, body.decode(), keep_blank_values=True, max_num_fields=MOST_FIELDS, errors="strict"
        )
    except ValueError:
        raise RefusalError(400, "invalid", "the form cannot be read") from None
    fields = {name: value.replace("\r\n", "\n") for name, value in pairs}
    if not visit.is_own_form(fields.pop(FORM_TOKEN, "")):
        raise RefusalError(403, "denied", "the form is of another page", hint="open the page anew, and send it again")
    return fields
