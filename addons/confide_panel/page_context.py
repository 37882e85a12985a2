"""The context of one request: its session, its parameters, access to the memory, and the ways to
respond.
"""

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
from confide_panel.waiting_uses import WaitingUses

MOST_FORM_BYTES: Final = 4 * 2**20
"""A note has at most a million characters, some of which a form encodes as nine bytes."""
MOST_FIELDS: Final = 64
FORM_TOKEN: Final = "form"  # noqa: S105 - a field's name
ASK_S: Final = 10.0
"""Seconds that the daemon may take for a request over `PageContext.link`."""
_MOST_DIGITS: Final = 15
T = TypeVar("T")
Found = dict[str, Any]
"""The structured result of a tool, whose fields are those of the tool's schema; templates use them
by name.
"""
_FORM: Final = "application/x-www-form-urlencoded"


@dataclass(eq=False)
class PageContext:
    r"""The context of one request of a browser session.

    Attributes:
        form: the fields of a form, with "\n" for line ends; empty unless the request is a POST.
        is_good: returns True while the session has not ended.
        uses: the commands that wait for an answer before they use a secret; None if there are none.
    """

    gateway: GatewayShared
    visit: BrowserSession
    request: Request
    form: Mapping[str, str] = field(default_factory=dict)
    is_good: Callable[[], bool] = lambda: True
    uses: WaitingUses | None = None

    # -- parameters
    # ------------------------------------------------------------------------------------

    def query(self, name: str, most: int = 512) -> str:
        """Return a parameter of the address, cut at `most` characters; "" if it is missing."""
        return self.request.query_params.get(name, "")[:most]

    def number(self, name: str, usual: int = 1, most: int = 2**53) -> int:
        """Return a parameter of the address as a number, at most `most`. Return `usual` if it is
        missing or not a positive whole number.
        """
        return min(_whole(self.query(name, 20)) or usual, most)

    def form_number(self, name: str) -> int:
        """Return a field of the form as a number, or 0 if it is not a positive whole number."""
        return _whole(self.form.get(name, ""))

    def form_text(self, name: str, most: int = 1_000_000) -> str:
        """Return a field of the form without surrounding spaces. Raises RefusalError if it is
        longer than `most` characters.
        """
        value = self.form.get(name, "").strip()
        if len(value) > most:
            raise RefusalError(400, "invalid", f"what is given has more than {most:,} characters")
        return value

    @property
    def project(self) -> str:
        """The project that the page is about; the gateway's own project if the request names none."""
        return self.query("project", 256) or self.form.get("project", "")[:256] or self.gateway.calls.project

    # -- the memory -------------------------------------------------------------------------------------------------

    async def call(self, tool: str, **arguments: Any) -> Found:
        """Call a tool and return its structured result; arguments that are None are left out.
        Raises RefusalError if the call fails.
        """
        given = {name: value for name, value in arguments.items() if value is not None}
        found: Found = _plain(await self.gateway.calls.tool(self.visit.identity, tool, given))
        return found

    @property
    def link(self) -> RequestChannel:
        """The channel to the daemon for requests that are not tools (PROTOCOL.md 9)."""
        return self.gateway.calls.link

    async def at_least(self, work: Awaitable[T]) -> T | None:
        """Return the result of work that the page can do without, or None if it fails, so that the
        page can say so.
        """
        try:
            return await work
        except (ConfideError, TimeoutError):
            return None

    @property
    def asking(self) -> int:
        """The number of commands that wait for an answer before they use a secret."""
        return len(self.uses.all()) if self.uses else 0

    # -- answers ----------------------------------------------------------------------------------------------------

    def url(self, page: str = "", /, **query: Any) -> str:
        return rendering.address(self.visit.base, page, query)

    def page(self, template: str, *, status: int = 200, **values: Any) -> Response:
        return rendering.answer(template, self.visit, status, desk=self, url=self.url, **values)

    def go(self, page: str = "", notice: str = "", /, **query: Any) -> Response:
        """Redirect the browser to another page, which shows `notice`. Thus a reload of that page
        does not send the form again.
        """
        self.visit.notice = notice
        return RedirectResponse(self.url(page, **query), 303, headers=rendering.HEADERS)

    def secret(self, placeholder: str) -> str:
        """Return the address of the page that opens a sealed text. The address includes the way
        back to this page.
        """
        here = self.request.url
        back = here.path + (f"?{here.query}" if here.query else "")
        return self.url("secret", id=placeholder, back=back if self.request.method == "GET" else None)

    def markdown(self, text: str, links: markdown_html.DocumentLinks = markdown_html.NO_LINKS) -> Any:
        """Render the markdown of a document as HTML."""
        return markdown_html.page(text, self.secret, links)

    def line(self, text: str) -> Any:
        """Render the first line of a document for a list, without its markdown."""
        return markdown_html.lines(markdown_html.strip_marks(text), self.secret)

    def lines(self, text: str, words: re.Pattern[str] | None = None) -> Any:
        """Render a text as HTML without interpreting markdown; the matches of `words` are marked."""
        return markdown_html.lines(text, self.secret, words)


def _whole(said: str) -> int:
    # Python raises an error for a number with thousands of digits.
    return int(said) if len(said) <= _MOST_DIGITS and said.isdecimal() else 0


def _plain(value: Any) -> Any:
    """Copy a result into plain dictionaries, in which a template may look for a missing field:
    those of `tools.result` raise an error.
    """
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, list) else value


Page = Callable[[PageContext], Awaitable[Response]]


async def form_of(request: Request, visit: BrowserSession) -> dict[str, str]:
    """Return the fields of a form that a page of this session has sent.

    Raises RefusalError if the body is not a form or is too large, or with status 403 if another
    page sent it.
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
        raise RefusalError(
            403, "denied", "the form is from another page", hint="open the page again, and send it from there"
        )
    return fields
