"""How many tokens were embedded, as SQL: one row for each model in each month."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

Rows = Callable[[str, Sequence[Any]], list[Any]]


def used(rows: Rows, month: str) -> list[tuple[str, str, int]]:
    """(provider, model, tokens) of a month."""
    sql = "SELECT provider, model, tokens FROM embedding_use WHERE month = ? ORDER BY provider, model"
    return [(row[0], row[1], row[2]) for row in rows(sql, (month,))]


def count(rows: Rows, month: str, provider: str, model: str, tokens: int) -> None:
    """Adds tokens; a negative number takes back what was counted and not used."""
    rows(
        """INSERT INTO embedding_use (month, provider, model, tokens) VALUES (?, ?, ?, max(0, ?))
           ON CONFLICT DO UPDATE SET tokens = max(0, tokens + ?)""",
        (month, provider, model, tokens, tokens),
    )
