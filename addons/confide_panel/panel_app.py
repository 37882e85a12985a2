"""The routes of the panel. A browser first uses a link that works once, and then has a cookie."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from confide_crypto.errors import ConfideError
from confide_http.door.refusals import RefusalError
from confide_http.errors import TokenError
from confide_http.local.daemon_failures import refusal_of
from confide_http.local.gateway_app import GatewayShared, RouteGroup
from confide_panel import pages, rendering
from confide_panel.browser_sessions import COOKIE, BrowserSession, BrowserSessions
from confide_panel.links import Links
from confide_panel.news import stream
from confide_panel.page_context import Page, PageContext, form_of
from confide_panel.waiting_uses import WaitingUses
from confide_proxy import addons
from confide_proxy.errors import DeviceError, InputError

PAGES: Final[tuple[tuple[str, str, str], ...]] = (
    ("", "search:show", "GET"),
    ("find", "search:find", "POST"),
    ("note/{id}", "note_pages:note", "GET"),
    ("file", "note_pages:file", "GET"),
    ("changes", "note_pages:changes", "GET"),
    ("picture", "note_pages:picture", "GET"),
    ("conflicts", "problems:conflicts", "GET"),
    ("stale", "problems:stale", "GET"),
    ("stale", "problems:confirm", "POST"),
    ("secrets", "problems:secrets", "GET"),
    ("uses", "secret:waiting", "GET"),
    ("uses", "secret:decide", "POST"),
    ("secret", "secret:ask", "GET"),
    ("secret", "secret:show", "POST"),
    ("edit", "changing:edit", "GET"),
    ("edit", "changing:save", "POST"),
    ("restore", "changing:restore", "POST"),
    ("delete", "changing:ask_delete", "GET"),
    ("delete", "changing:delete", "POST"),
    ("deleted", "changing:list_deleted", "GET"),
    ("forget", "forget_pages:ask", "GET"),
    ("forget", "forget_pages:remove", "POST"),
    ("forgotten", "forget_pages:show_receipt", "GET"),
    ("receipt", "forget_pages:download", "GET"),
    ("projects", "projects:every", "GET"),
    ("project", "projects:show_project", "GET"),
    ("entities", "projects:entities", "GET"),
    ("entity", "projects:entity", "GET"),
    ("graph", "projects:graph", "GET"),
    ("timeline", "timeline:show", "GET"),
    ("day", "timeline:day", "GET"),
    ("remember", "remember:box", "GET"),
    ("remember", "remember:take", "POST"),
    ("devices", "devices:show", "GET"),
    ("devices/invite", "devices:take_in", "POST"),
    ("devices/approve", "devices:approve", "POST"),
    ("devices/remove", "devices:remove", "POST"),
    ("programs/look", "programs:look", "POST"),
    ("programs/approve", "programs:approve", "POST"),
    ("programs/end", "programs:end", "POST"),
    ("tokens/new", "devices:make_token", "POST"),
    ("tokens/remove", "devices:remove_token", "POST"),
    ("health", "health:show", "GET"),
    ("health/retry", "health:retry", "POST"),
)
"""Path below a session's place, function, and method of each page; add-ons have more
(`Addon.pages`). A module of pages is imported at its first request, since most gateways run for
programs only.
"""
_OF_A_FORM: Final = (DeviceError, InputError, TokenError)
"""Errors in the input of a person: nothing is out of order, and retrying does not help."""
FOLDER: Final = "links"
"""Folder of the links, below the gateway's."""


def routes(gateway: GatewayShared) -> RouteGroup:
    """Return the routes, which are open to all: a request without a session gets the page that
    explains how to open the panel.
    """
    panel = PanelApp(gateway)
    routes = [Route("/", panel.start, methods=["GET"]), Route("/panel", panel.start, methods=["GET"])]
    routes += [Route(f"/panel/{name}", _static(name), methods=["GET"]) for name in rendering.STATIC]
    routes += [Route("/panel/in/{code}", panel.enter, methods=["GET"])]
    own = [(path, f"{pages.__name__}.{page}", method) for path, page, method in PAGES]
    for path, page, method in (*own, *(route for each in rendering.more() for route in each.routes)):
        routes.append(Route(f"/panel/{{place}}/{path}", panel.page(_load_page(page)), methods=[method]))
    routes += [
        Route("/panel/{place}/leave", panel.page(panel.leave), methods=["POST"]),
        Route("/panel/{place}/news", panel.page(stream), methods=["GET"]),
        Route("/panel/{place:path}", panel.nothing, methods=["GET"]),
    ]
    if origins := gateway.config.panel.frame_ancestors:
        routes = [_allow_framing(each, rendering.policy(origins)) for each in routes]
    return RouteGroup(routes, None)


class PanelApp:
    def __init__(self, gateway: GatewayShared) -> None:
        self._gateway = gateway
        self._is_framed = bool(gateway.config.panel.frame_ancestors)
        self._visits = BrowserSessions()
        self._links = Links(gateway.paths.gateway / FOLDER)
        self._uses = WaitingUses(gateway.paths)
        gateway.work["taking questions of confide run"] = self._uses.run
        gateway.counts["visits"] = lambda: len(self._visits)

    async def start(self, _request: Request) -> Response:
        """Show how to open the panel."""
        return rendering.answer("enter.html", None)

    async def enter(self, request: Request) -> Response:
        """Start a session if the link is valid; otherwise explain how to get another link."""
        if request.method != "GET":  # a HEAD must not use up the link
            return rendering.answer("enter.html", None)
        if _is_ahead(request):  # a link was pasted, and is not opened yet
            raise RefusalError(503, "unavailable", "a link is not fetched ahead")
        is_in_frame = request.headers.get("sec-fetch-dest") == "iframe"
        if is_in_frame and not self._is_framed:  # before the link is used up for what no browser would show
            hint = "[panel] frame_ancestors in proxy.toml names the origins whose pages may show it"
            raise RefusalError(403, "denied", "no other page may show the panel", hint=hint)
        target = await asyncio.to_thread(self._links.use, request.path_params["code"])
        if target is None:
            return rendering.answer("enter.html", None, 401, is_spent=True)
        is_embedded = is_in_frame and request.headers.get("sec-fetch-site") == "cross-site"
        visit, cookie = self._visits.begin(is_embedded=is_embedded)
        # No redirect: browsers count it as caused by the page before it, and then do not send a
        # strict cookie.
        answer = rendering.answer("entered.html", None, first=f"{visit.base}/{target}")
        answer.headers["Set-Cookie"] = visit.set_cookie(cookie)
        return answer

    async def leave(self, desk: PageContext) -> Response:
        """End the browser's session."""
        self._visits.end(desk.visit)
        answer = RedirectResponse("/panel", 303, headers=rendering.HEADERS)
        answer.headers["Set-Cookie"] = desk.visit.set_cookie("", is_over=True)
        return answer

    async def nothing(self, request: Request) -> Response:
        place = request.path_params["place"].partition("/")[0]
        visit = self._visits.find(place, request.cookies.get(COOKIE))
        if visit is None:
            return rendering.answer("enter.html", None, 401)
        return _refusal_page(visit, RefusalError(404, "not_found", "there is no such page"))

    def page(self, page: Page) -> Callable[[Request], Awaitable[Response]]:
        """Wrap a page as an endpoint that requires a session's cookie, and the session's own form
        token for a POST.
        """

        async def handle(request: Request) -> Response:
            visit = self._visits.find(request.path_params["place"], request.cookies.get(COOKIE))
            if visit is None:
                return rendering.answer("enter.html", None, 401)
            try:
                form = await form_of(request, visit) if request.method == "POST" else {}
                desk = PageContext(
                    self._gateway, visit, request, form, lambda: self._visits.is_good(visit), uses=self._uses
                )
                return await page(desk)
            except (ConfideError, TimeoutError) as error:
                if isinstance(error, _OF_A_FORM):
                    error = RefusalError(400, "invalid", str(error), hint=error.hint)
                return _refusal_page(visit, refusal_of(error))

        return handle


def _refusal_page(visit: BrowserSession, refusal: RefusalError) -> Response:
    answer = rendering.answer(
        "failed.html", visit, refusal.status, message=str(refusal), hint=refusal.hint, code=refusal.code
    )
    answer.headers.update(refusal.headers)
    return answer


def _is_ahead(request: Request) -> bool:
    """Return True if a browser prefetches a page before the person opens it."""
    return any("prefetch" in request.headers.get(name, "") for name in ("sec-purpose", "purpose"))


def _allow_framing(route: Route, policy: str) -> Route:
    """Return a route whose policy lets pages of other origins embed it."""
    endpoint = route.endpoint

    async def handle(request: Request) -> Response:
        answer: Response = await endpoint(request)
        if "content-security-policy" in answer.headers:
            answer.headers["Content-Security-Policy"] = policy
        return answer

    return Route(route.path, handle, methods=sorted(route.methods or ()), name=route.name)


def _load_page(place: str) -> Page:
    async def page(desk: PageContext) -> Response:
        found: Page = await asyncio.to_thread(addons.load_object, place)
        return await found(desk)

    return page


def _static(name: str) -> Callable[[Request], Awaitable[Response]]:
    async def handle(_request: Request) -> Response:
        return Response(rendering.static(name), media_type=rendering.STATIC[name])

    return handle
