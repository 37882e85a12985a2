"""What tokens cost: a dated table in the package, and what runner.toml says instead."""

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
"""What providers put behind a model's name for one edition of it, which costs the same."""
LONG_INPUT: Final = 2.0
LONG_OUTPUT: Final = 1.5
"""By which a long request is dearer, with the providers that have such a price."""


@dataclass(frozen=True, slots=True)
class TokenUse:
    """What a request has used, as its answer says. `input` is without what the cache has read or written."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    cache_write_1h: int = 0

    def __add__(self, other: Self) -> Self:
        return type(self)(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(self)))

    @property
    def taken_in(self) -> int:
        """All that the model has read."""
        return self.input + self.cache_read + self.cache_write + self.cache_write_1h


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars a million tokens.

    Attributes:
        long_over: with more tokens of input than that a request is dearer, by `LONG_INPUT` and `LONG_OUTPUT`; 0: none is.
    """

    input: float
    output: float
    cache_read: float
    cache_write: float
    cache_write_1h: float
    long_over: int = 0

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> Self:
        """A price, of a table of the file's form: without its own figures the cache costs by the input what Anthropic takes for it.

        Raises ValueError: it is not of that form; says what would be.
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
        """What these tokens cost."""
        is_long = 0 < self.long_over < used.taken_in
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
        """What one token of input costs at most, in US dollars, in a request that is not long."""
        return max(self.input, self.cache_write, self.cache_write_1h) / _A_MILLION

    @property
    def dearest_output(self) -> float:
        """The same of one token of output, in any request."""
        return self.output * (LONG_OUTPUT if self.long_over else 1) / _A_MILLION


@functools.cache
def _packaged() -> tuple[str, dict[str, Price]]:
    table = tomllib.loads(resources.files(__package__).joinpath("prices.toml").read_text("utf-8"))
    return table["dated"], {name: Price.of(each) for name, each in table["models"].items()}


def dated() -> str:
    """The day of the package's prices, as an ISO date."""
    return _packaged()[0]


def price_of(model: str, own: Mapping[str, Price]) -> Price | None:
    """What a model costs: by runner.toml (`own`), or else by the package. None: nobody knows, so it may not be asked."""
    for table in (own, _packaged()[1]):
        for name in (model, _DATED.sub("", model)):
            if name in table:
                return table[name]
    return None
