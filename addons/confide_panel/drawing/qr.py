"""Draw a text as a QR code, for the camera of another device."""

from __future__ import annotations

from typing import Final

from markupsafe import Markup

_QUIET: Final = 4
"""Blank modules around the code, as ISO 18004 asks for."""


def qr_code(text: str) -> Markup | None:
    """Return the code as SVG, without a style of its own; None if the optional package segno is not
    installed.
    """
    try:
        import segno  # only for an invite
    except ModuleNotFoundError:
        return None
    rows = [bytes(row) for row in segno.make_qr(text, error="l").matrix]
    strokes = [
        "".join(f"M{x + _QUIET} {y + _QUIET}.5h1" for x, is_dark in enumerate(row) if is_dark)
        for y, row in enumerate(rows)
    ]
    size = len(rows) + 2 * _QUIET
    paths = Markup("").join(Markup('<path d="{}"/>').format(stroke) for stroke in strokes)
    return Markup(
        '<svg class="qr" viewBox="0 0 {} {}" role="img" aria-label="The invite as a QR code">{}</svg>'
    ).format(size, size, paths)
