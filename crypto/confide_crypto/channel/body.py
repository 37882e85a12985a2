"""The body of a stream as its receiver reads it: in pieces, with credit given back as they are taken (PROTOCOL.md 7.4, 7.5)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Final

from confide_crypto.errors import ConnectionLost, RequestError
from confide_crypto.limits import BODY_STALL_S

_JOINED: Final = 16 * 1024
"""Pieces that wait are joined up to here: each costs some 40 bytes by itself, so tiny ones would weigh twenty times their credit."""


class Body:
    """One incoming body. What it yields is authentic, but only its end says that it is whole: use nothing of it before."""

    def __init__(self, give_credit: Callable[[int], None]) -> None:
        """`give_credit` is told how many bytes have been taken or dropped, in a row that adds up to what came of the body."""
        self._give_credit = give_credit
        self._pieces: deque[bytes] = deque()
        self._has_news = asyncio.Event()
        self._is_whole = False
        self._is_unwanted = False
        self._failure: ConnectionLost | RequestError | None = None

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """The pieces in order, until the body is whole.

        Raises:
            RequestError: `cancelled`, the sender gave it up, or sent nothing for a minute.
            ConnectionLost: the connection ended first.
        """
        while True:
            while self._pieces:
                piece = self._pieces.popleft()
                self._give_credit(len(piece))
                yield piece
            if self._failure is not None:
                raise self._failure
            if self._is_whole:
                return
            self._has_news.clear()
            try:
                async with asyncio.timeout(BODY_STALL_S):
                    await self._has_news.wait()
            except TimeoutError:
                raise RequestError("cancelled", f"nothing of the body came for {BODY_STALL_S:.0f} s") from None

    async def read(self, limit: int) -> bytes:
        """All of it.

        Raises:
            RequestError: `too_large`, it has more than `limit` bytes; or as when iterated.
            ConnectionLost: the connection ended first.
        """
        pieces: list[bytes] = []
        length = 0
        async for piece in self:
            length += len(piece)
            if length > limit:
                raise RequestError("too_large", f"the body has more than {limit} bytes")
            pieces.append(piece)
        return b"".join(pieces)

    # -- from the connection --------------------------------------------------------------------------------------

    def feed(self, piece: bytes) -> None:
        """A piece has come."""
        if self._is_unwanted:
            self._give_credit(len(piece))
            return
        if self._pieces and len(self._pieces[-1]) + len(piece) <= _JOINED:
            self._pieces[-1] += piece
        else:
            self._pieces.append(piece)
        self._has_news.set()

    def complete(self) -> None:
        """END has come, and fits."""
        self._is_whole = True
        self._has_news.set()

    def fail(self, failure: ConnectionLost | RequestError) -> None:
        """It will never be whole."""
        self._failure = failure
        self._drop()
        self._has_news.set()

    def discard(self) -> None:
        """Nobody reads it any more: what still comes is dropped, and its credit given back."""
        self._is_unwanted = True
        self._drop()

    def _drop(self) -> None:
        while self._pieces:
            self._give_credit(len(self._pieces.popleft()))
