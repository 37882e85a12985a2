"""The page that an agent's client shows beside the results of `memory_search` and `memory_status`
(MCP's extension for apps). `view_decisions` has its tools.

The page has the panel's stylesheet and no library: the extension's own script is 500 KB, of which
this page needs ten messages (`static/view.js`). It needs no template engine either, which the
smallest install lacks. Its own content security policy allows the one script by its hash, so a
client that allows inline scripts still runs nothing that a note brings.
"""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import Final

_STATIC: Final = Path(__file__).parents[1] / "static"


def html() -> str:
    """Return the whole page: `view.html` with its policy, its stylesheets and its script."""
    page, script = _static("view.html"), _static("view.js")
    style = _static("panel.css") + _static("view.css")
    policy = (
        f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; base-uri 'none'; form-action 'none'"
    )
    for mark, part in (("POLICY", policy), ("STYLE", style), ("SCRIPT", script)):
        page = page.replace(f"%{mark}%", part)
    return page


def _static(name: str) -> str:
    return (_STATIC / name).read_text("utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
