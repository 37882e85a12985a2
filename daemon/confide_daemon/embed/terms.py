"""What using a provider costs, and may cost."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms a configured embedder is used on.

    Attributes:
        is_local: it runs on this machine: texts stay here and cost nothing but time, so nothing is counted.
        price_per_million: of a million tokens, in the currency of whoever pays; 0: not known.
        monthly_tokens: the most that one space may use in a calendar month (UTC); 0: no limit.
    """

    is_local: bool = True
    price_per_million: float = 0.0
    monthly_tokens: int = 0

    def cost(self, tokens: int) -> float:
        """What so many tokens cost."""
        return tokens * self.price_per_million / 1e6
