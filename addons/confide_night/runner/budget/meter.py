"""What a run may still spend. A request is let through while something is left, and may write no more than what is left pays for.

So a run spends at most its limit and the input of one request, whatever its agent does: what a request reads is known only from its answer,
what it writes is bounded before. Of several at once each counts at its most until its answer says what it was.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from confide_night.runner.settings.prices import Price, TokenUse

LEAST_OUTPUT: Final = 16
"""Tokens; the least that OpenAI's API takes as a limit. With less than that left, nothing is."""
WAIT_S: Final = 120.0
"""For the requests under way, where only their end shows whether there is something left."""


@dataclass(slots=True, eq=False)
class TokenReservation:
    """A request that is let through; `most_output` is how many tokens it may write, and it must be told so."""

    price: Price
    most_output: int
    held_usd: float


class SpentError(Exception):
    """Nothing is left."""


class Meter:
    """The budget of one run, in US dollars.

    Attributes:
        spent_usd, used, requests: so far, by what answers have said; where one has not, at its most.
        is_over: whether a request was turned away.
    """

    def __init__(self, limit_usd: float) -> None:
        self.limit_usd = limit_usd
        self.spent_usd = 0.0
        self.used = TokenUse()
        self.requests = 0
        self.is_over = False
        self._under_way: list[TokenReservation] = []
        self._changed = asyncio.Condition()

    @property
    def left_usd(self) -> float:
        """What is neither spent nor held by a request under way."""
        return self.limit_usd - self.spent_usd - sum(each.held_usd for each in self._under_way)

    async def admit(self, price: Price, input_tokens: int, wanted_output: int) -> TokenReservation:
        """Let a request through.

        Args:
            input_tokens: what it reads at most, by its length.
            wanted_output: how much it asks to write.

        Raises SpentError: nothing is left; TimeoutError: those under way do not end.
        """
        least_usd = LEAST_OUTPUT * price.dearest_output
        input_usd = input_tokens * price.dearest_input
        async with asyncio.timeout(WAIT_S), self._changed:
            while True:
                left = self.left_usd
                if not self._under_way:
                    if left <= least_usd:
                        self.is_over = True
                        raise SpentError
                    # Its input may pass the limit, and nothing else does.
                    room = left
                    break
                if left >= input_usd + least_usd:
                    room = left - input_usd
                    break
                await self._changed.wait()
            most = int(room / price.dearest_output) if price.dearest_output else wanted_output
            most = max(LEAST_OUTPUT, min(wanted_output, most))
            admission = TokenReservation(price, most, input_usd + most * price.dearest_output)
            self._under_way.append(admission)
            return admission

    async def settle(self, admission: TokenReservation, used: TokenUse | None) -> None:
        """A request has ended. `used`: what its answer says; None: it does not, though something may have been done."""
        async with self._changed:
            self._under_way.remove(admission)
            self.requests += 1
            if used is None:
                self.spent_usd += admission.held_usd
                self.used += TokenUse(output=admission.most_output)
            else:
                self.spent_usd += admission.price.usd(used)
                self.used += used
            self._changed.notify_all()
