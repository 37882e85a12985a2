"""Prices of tokens: a dated table in the package, and overrides from runner.toml."""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from importlib import resources
from typing import Any, Final, Self

_A_MILLION: Final = 1_000_000
_DATED: Final = re.compile(r"-20\d{2}-?\d{2}-?\d{2}$")
"""Suffix of a model's name for a dated version, which has the same price."""
LONG_INPUT: Final = 2.0
LONG_OUTPUT: Final = 1.5
"""Factors for input and output in long requests, for providers with such prices."""


@dataclass(frozen=True, slots=True)
class TokenUse:
    """Token counts of a request, as its answer reports them. `input` excludes tokens read from or
    written to the cache.
    """

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    cache_write_1h: int = 0

    def __add__(self, other: Self) -> Self:
        return type(self)(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(self)))

    @property
    def all_input(self) -> int:
        """Return all input tokens, including the cache."""
        return self.input + self.cache_read + self.cache_write + self.cache_write_1h


@dataclass(frozen=True, slots=True)
class Price:
    """Prices in US dollars per million tokens.

    Attributes:
        long_over: number of input tokens above which a request costs more, by `LONG_INPUT` and
            `LONG_OUTPUT`; 0 for never.
    """

    input: float
    output: float
    cache_read: float
    cache_write: float
    cache_write_1h: float
    long_over: int = 0

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> Self:
        """Parse a price table. Missing cache prices are derived from the input price with
        Anthropic's factors.

        Raises ValueError if the table is invalid; the message describes a valid one.
        """
        unknown = set(table) - {each.name for each in fields(cls)}
        if unknown:
            raise ValueError(f"there is no '{min(unknown)}' in a price")
        for name, value in table.items():
            if type(value) not in (int, float) or not 0 <= value <= _A_MILLION:
                raise ValueError(f"'{name}' is a number of US dollars a million tokens")
        if "input" not in table or "output" not in table:
            raise ValueError("a price has input and output, in US dollars a million tokens")
        paid = float(table["input"])
        usual = {"cache_read": paid * 0.1, "cache_write": paid * 1.25, "cache_write_1h": paid * 2}
        found = {**usual, **{name: float(value) for name, value in table.items() if name != "long_over"}}
        return cls(**found, long_over=int(table.get("long_over", 0)))

    def usd(self, used: TokenUse) -> float:
        """Return the price of these tokens, in US dollars."""
        is_long = 0 < self.long_over < used.all_input
        read = (
            used.input * self.input
            + used.cache_read * self.cache_read
            + used.cache_write * self.cache_write
            + used.cache_write_1h * self.cache_write_1h
        )
        written = used.output * self.output
        return (read * (LONG_INPUT if is_long else 1) + written * (LONG_OUTPUT if is_long else 1)) / _A_MILLION

    @property
    def dearest_input(self) -> float:
        """Return the highest price of one input token in a request that is not long, in US dollars."""
        return max(self.input, self.cache_write, self.cache_write_1h) / _A_MILLION

    @property
    def dearest_output(self) -> float:
        """Return the highest price of one output token in any request, in US dollars."""
        return self.output * (LONG_OUTPUT if self.long_over else 1) / _A_MILLION


@functools.cache
def _packaged_prices() -> tuple[str, dict[str, Price]]:
    table = tomllib.loads(resources.files(__package__).joinpath("prices.toml").read_text("utf-8"))
    return table["dated"], {name: Price.of(each) for name, each in table["models"].items()}


def price_date() -> str:
    """Return the date of the package's prices, ISO format."""
    return _packaged_prices()[0]


def price_of(model: str, own: Mapping[str, Price]) -> Price | None:
    """Return the price of a model from runner.toml (`own`) or the package; None if unknown: then
    the model may not be used.
    """
    for table in (own, _packaged_prices()[1]):
        for name in (model, _DATED.sub("", model)):
            if name in table:
                return table[name]
    return None
