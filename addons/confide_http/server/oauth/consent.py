"""The page that asks the user to approve an application. It shows its name, the access that it asks
for, the address to which it returns, and the six words to type on a device.

It is plain HTML without a script: it reloads itself every few seconds, and redirects once the words
are approved. All text of others is escaped; it loads only one stylesheet of this server, and no
page may frame it.
"""

from __future__ import annotations

from html import escape
from typing import Final
from urllib.parse import urlsplit

from starlette.responses import HTMLResponse, Response

from confide_http.server.access.sign_ins import PendingSignIn

AGAIN_S: Final = 2
STYLE_PATH: Final = "/consent.css"
HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; form-action 'none'; frame-ancestors 'none'; base-uri 'none'",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
}
STYLE: Final = """:root { color-scheme: light dark; }
body { font: 1.05rem/1.6 system-ui, sans-serif; max-width: 38rem; margin: 2rem auto; padding: 0 1rem; overflow-wrap: anywhere; }
code { display: block; padding: 0.8rem; border: 1px solid currentcolor; border-radius: 0.4rem; }
"""
_PAGE: Final = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
{more}<title>{title}</title>
<link rel="stylesheet" href="/consent.css">
</head>
<body>
<main>
<h1>{title}</h1>
{text}
</main>
</body>
</html>
"""
_READS: Final = "It would read what your memory holds, but for what is sealed."
_WRITES: Final = "It would read what your memory holds, but for what is sealed, and store, change and delete."


def waiting_page(waiting: PendingSignIn, words: str) -> Response:
    """Return the page that shows the six words and reloads itself until they are approved."""
    redirect = waiting.request.redirect
    registered = "<p>It has registered itself: its name was not verified.</p>\n"
    text = (
        f"<p><strong>{escape(waiting.application.name)}</strong> asks to use your memory.</p>\n"
        f"{registered if waiting.application.is_registered else ''}"
        f"<p>{_WRITES if waiting.request.scope == 'write' else _READS} Its maker can read what it asks and finds.</p>\n"
        f"<p>You would be sent back to <strong>{escape(_host_of(redirect))}</strong>: {escape(redirect)}</p>\n"
        "<p>Have you asked for this yourself, just now, in this browser? Then approve it on one of your devices, within ten minutes:</p>\n"
        f"<p><code>confide http approve {escape(words)}</code></p>\n"
        "<p>This page goes on by itself then. If you have not asked for it, close it. Nothing was granted.</p>"
    )
    more = f'<meta http-equiv="refresh" content="{AGAIN_S}">\n'
    return _page("Let a program use your memory?", text, more=more, status=200)


def _host_of(redirect: str) -> str:
    """Return the host of a redirect address; for a private scheme, the program that this computer
    opens it with.
    """
    parts = urlsplit(redirect)
    is_web = parts.scheme in ("http", "https")
    return parts.netloc if is_web else f"the program on this computer that opens {parts.scheme}: addresses"


def ended_page() -> Response:
    text = "<p>Nothing waits here: it was answered, or ten minutes are over. Begin again in the program that has sent you.</p>"
    return _page("This request has ended", text, more="", status=404)


def style() -> Response:
    return Response(STYLE, media_type="text/css")


def _page(title: str, text: str, *, more: str, status: int) -> Response:
    return HTMLResponse(_PAGE.format(title=title, text=text, more=more), status_code=status, headers=HEADERS)
