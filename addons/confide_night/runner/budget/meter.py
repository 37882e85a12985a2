"""The budget of a run. A request is admitted while money is left, with an output limit that the
remaining money covers.

A run therefore costs at most its limit plus the input of one request, whatever its agent does: the
input is only known from the answer, while the output is limited in advance. Concurrent requests
count at their highest price until their answers report the actual one.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from confide_night.runner.settings.prices import Price, TokenUse

LEAST_OUTPUT: Final = 16
"""Smallest output limit in tokens that OpenAI's API accepts; if the budget covers less, it counts
as spent.
"""
WAIT_S: Final = 120.0
"""Seconds to wait for current requests, if only their end shows whether money is left."""


@dataclass(slots=True, eq=False)
class TokenReservation:
    """The reserved price of an admitted request. `most_output` is the output limit in tokens that
    the request must state.
    """

    price: Price
    most_output: int
    held_usd: float


class SpentError(Exception):
    """The budget of a run is spent."""


class Meter:
    """The budget of one run, in US dollars.

    Attributes:
        spent_usd, usage, requests: totals so far as answers report them, or the highest price if an
            answer reports none.
        is_over: whether the budget has stopped a request.
    """

    def __init__(self, limit_usd: float) -> None:
        self.limit_usd = limit_usd
        self.spent_usd = 0.0
        self.usage = TokenUse()
        self.requests = 0
        self.is_over = False
        self._under_way: list[TokenReservation] = []
        self._changed = asyncio.Condition()

    @property
    def left_usd(self) -> float:
        """Return the money that is neither spent nor reserved."""
        return self.limit_usd - self.spent_usd - sum(each.held_usd for each in self._under_way)

    async def admit(self, price: Price, input_tokens: int, wanted_output: int) -> TokenReservation:
        """Admit a request and reserve its highest price.

        Args:
            input_tokens: upper bound of its input, by its length.
            wanted_output: the output limit that it requests.

        Raises SpentError if the budget is spent; TimeoutError if the current requests do not end in
        time.
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
                    # Only its input may exceed the limit.
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
        """Replace a reservation by the usage that the answer reports; None counts the reserved
        price, since the model may have worked.
        """
        async with self._changed:
            self._under_way.remove(admission)
            self.requests += 1
            if used is None:
                self.spent_usd += admission.held_usd
                self.usage += TokenUse(output=admission.most_output)
            else:
                self.spent_usd += admission.price.usd(used)
                self.usage += used
            self._changed.notify_all()
