"""A conversation as a note: who said what, in as many parts as it takes for each to fit into a document."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from confide_proxy.transfer.reader import MAX_CONTENT_BYTES
from confide_proxy.transfer.record import Record

TITLE_CHARS = 120
_LOOKED_AT_CHARS = 10_000


def dialogue(turns: Iterable[tuple[str, str]]) -> str:
    """Markdown of (who, text); what the same one says twice in a row is under one name."""
    parts: list[str] = []
    last = ""
    for who, text in turns:
        if not text.strip():
            continue
        parts.append(text.strip() if who == last else f"**{who}:**\n\n{text.strip()}")
        last = who
    return "\n\n".join(parts)


def first_line(text: str) -> str | None:
    """What a conversation without a title is called."""
    line = next(
        (
            line.strip(" #*>`")
            for line in text[:_LOOKED_AT_CHARS].splitlines()
            if line.strip(" #*>`") and line[:2] != "**"
        ),
        "",
    )
    return (line if len(line) <= TITLE_CHARS else line[: TITLE_CHARS - 1].rstrip() + "…") or None


def parted(record: Record) -> Iterator[Record]:
    """The record, or the parts of one that is too large for a document; the later ones say whose part they are."""
    for number, piece in enumerate(_pieces(record.content), 1):
        if number == 1:
            yield replace(record, content=piece)
        else:
            yield replace(
                record,
                origin=f"{record.origin}#{number}",
                content=piece,
                title=f"{record.title} ({number})" if record.title else None,
                relations=(("part_of", record.origin),),
            )


def _pieces(text: str) -> Iterator[str]:
    """The text cut where a paragraph, a line or at least a word ends."""
    begin = 0
    while begin < len(text):
        end = min(len(text), begin + MAX_CONTENT_BYTES)
        while (over := len(text[begin:end].encode("utf-8", "replace")) - MAX_CONTENT_BYTES) > 0:
            end -= max(1, over // 4)  # a character takes four bytes at most
        if end < len(text):
            half = begin + (end - begin) // 2
            cuts = (text.rfind(mark, half, end) for mark in ("\n\n", "\n", " "))
            end = next((cut + 1 for cut in cuts if cut >= 0), end)
        if text[begin:end].strip():
            yield text[begin:end].strip("\n")
        begin = end
