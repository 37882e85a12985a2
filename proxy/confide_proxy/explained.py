"""How a search explains itself: what `confide search --explain` prints below the hits."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from confide_proxy.answers import printable
from confide_proxy.errors import UnfitAnswerError
from confide_proxy.options import err, out

# The factors of the rank, then the evidence of the score, as docs/search.md names them.
RANK = ("relevance", "votes", "dated", "source", "exact", "rank")
SCORE = ("keyword", "terms", "vector", "best", "score")


def show(result: dict[str, Any]) -> None:
    """Print the tables for the answer of `memory_search`; an offline answer has none.

    Raises:
        UnfitAnswerError: the explanation has another form.
    """
    explanation = result.get("explain")
    if explanation is None:
        err.print("no explanation: this was answered from the files on this machine", markup=False)
        return
    try:
        _print(explanation, result["results"], result["searchMode"])
    except (KeyError, TypeError, ValueError, AttributeError):
        raise UnfitAnswerError from None


def _print(explanation: dict[str, Any], results: list[dict[str, Any]], mode: str) -> None:
    scores = [{**hit, "score": found["score"]} for hit, found in zip(explanation["hits"], results, strict=True)]
    timings = ", ".join(f"{name} {value:.1f}" for name, value in explanation["timingsMs"].items())
    lines = {
        "looked for  ": explanation["matched"] or "-",
        "as it stands": explanation["exact"],
        "days        ": explanation["days"],
        "candidates  ": f"{explanation['keywordCandidates']} by keywords, {explanation['vectorCandidates']} by vectors ({mode})",
    }
    out.print()
    for name, text in lines.items():
        if text:
            out.print(f"{name} {printable(text)}", markup=False, highlight=False)
    if scores:
        out.print(_table(scores, RANK, legs=True))
        out.print(_table(scores, SCORE, legs=False))
    out.print(f"milliseconds {printable(timings)}", markup=False, highlight=False)


def _table(hits: list[dict[str, Any]], names: tuple[str, ...], *, legs: bool) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("hit")
    for name in (*(("keywords", "vectors") if legs else ()), *names):
        table.add_column(name, justify="right")
    for number, hit in enumerate(hits, 1):
        places = [_place(hit["keywordRank"], hit["bm25"]), _place(hit["vectorRank"], hit["cosine"])] if legs else []
        table.add_row(str(number), *places, *(_number(hit[name]) for name in names))
    return table


def _place(rank: int | None, value: float | None) -> str:
    """The place in a leg and the leg's own figure: `#3 7.2`."""
    return " ".join(part for part in (f"#{rank}" if rank else "", _number(value)) if part != "-") or "-"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
