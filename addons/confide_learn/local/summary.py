"""What a session was about: the client's own summary where it has made one, else what was asked first and said last.

No judge writes it, so it costs nothing.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final

from confide_learn.local.exchanges import Exchange, Reading, read, secrets_of, typed

if TYPE_CHECKING:
    from confide_proxy.sealing.sealer import Sealer
    from confide_proxy.sync.transcripts.parsers import Parser

KIND: Final = "session-summary"
LEAST_EXCHANGES: Final = 3
"""A shorter session needs no note of its own."""
MOST_CHARS: Final = 4_000
_ASKED_CHARS: Final = 200
_TITLE_CHARS: Final = 50
_SAID_CHARS: Final = 600
_TAIL_BYTES: Final = 2 * 2**20
_BLOCKS: Final = re.compile(
    r"<(analysis|system-reminder|confide-memory|hook_context)\b[^>]*>.*?(?:</\1>|\Z)", re.DOTALL
)
"""What a client's summary holds that is no part of it."""
_TAGS: Final = re.compile(r"</?summary>")


def of(
    fd: int, parser: Parser, sealer: Sealer, compacted: str, day: str, *, is_tainted: bool
) -> tuple[str, Reading | None]:
    """The text of a session's note, "" where it needs none; and what it was read from, where it has secrets. Blocks.

    Args:
        compacted: the client's own summary, not sealed yet.
        day: when that was made.
        is_tainted: the agent has read what strangers wrote, and so may repeat it: its last words are left out.

    Raises OSError: the file cannot be read; KeyFileError, BlockedError: as `Sealer.seal`.
    """
    if compacted:
        text = _TAGS.sub("", _BLOCKS.sub("", compacted)).strip()
        sealed = sealer.seal(text, "transcripts", is_sensitive=False)
        reading = Reading(secrets=secrets_of(sealed))
        return f"Session of {day}, as the client summed it up\n\n{_clipped(sealed.text, MOST_CHARS)}", reading
    size = os.fstat(fd).st_size
    first = read(fd, parser, 0, sealer)
    last = first
    if first.is_full:
        begin = max(first.end, size - _TAIL_BYTES)
        begin += os.pread(fd, _TAIL_BYTES, begin).find(b"\n") + 1
        last = read(fd, parser, begin, sealer)
    is_tainted = is_tainted or any(each.is_foreign for each in (*first.exchanges, *last.exchanges))
    exchanges = [each for each in first.exchanges if typed(each.user).strip() and not each.user.startswith(("/", "!"))]
    if len(exchanges) < LEAST_EXCHANGES:
        return "", None
    said = "" if is_tainted else _last_words(last.exchanges) or _last_words(first.exchanges)
    asked = [f"- {_clipped(_line(typed(each.user)), _ASKED_CHARS)}" for each in (exchanges[0], exchanges[-1])]
    day = exchanges[0].time[:10] or day
    head = f"Session of {day}: {_clipped(_line(typed(exchanges[0].user)), _TITLE_CHARS)}"
    lines = [head, "\nAsked first and last:\n", *dict.fromkeys(asked)]
    if said:
        lines.append(f"\nSaid at the end: {_clipped(_line(said), _SAID_CHARS)}")
    return "\n".join(lines), Reading(secrets={**first.secrets, **last.secrets})


def _last_words(exchanges: list[Exchange]) -> str:
    return next(
        (said.text for each in reversed(exchanges) for said in reversed(each.said) if said.role == "assistant"), ""
    )


def _line(text: str) -> str:
    return " ".join(text.split())


def _clipped(text: str, most: int) -> str:
    """The beginning of a text, to the end of a word; no part of a placeholder."""
    if len(text) <= most:
        return text
    cut = text[:most].rpartition(" ")[0] or text[:most]
    open_at = cut.rfind("(sealed:")
    if open_at >= 0 and ")" not in cut[open_at:]:
        cut = cut[:open_at]
    return f"{cut.rstrip()} …"
