"""A request, as both ends have it: its name, and one `TypedDict` each of what it and its answer carry.

    PULL: Final = Operation("pull", PullRequest, Pulled)

    answer = await PULL.ask(link, {"project": "p", "path": "MEMORY.md"}, timeout_s=10.0)
    self.operations = dict([PULL.by(self._pull)])    # async def _pull(asked: PullRequest) -> Pulled

Each field has in its type the form by which it is read (`confide_memory.forms.form_of`). Fields
that are not in the type are left out, since the other end may be newer. What a request lacks is
told to who sent it; nobody sees an answer that is not of the agreed form, so nobody has to look.
What depends on the question (how many results, whether a page goes on) is checked by who asked.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from functools import cached_property
from typing import Any, Final, Generic, TypedDict, TypeVar

from confide_crypto.errors import RequestError
from confide_memory.documents import RequestChannel, send_text
from confide_memory.errors import UnfitAnswerError, UnknownRequestError
from confide_memory.forms import Carried, Fields, fields_of, fields_of_type, written
from confide_memory.versions import SINCE, UNKNOWN

_Request = TypeVar("_Request", bound=Carried)
_Answer = TypeVar("_Answer", bound=Carried)

Answerer = Callable[[Carried], Awaitable[dict[str, object]]]
"""Reads a request, answers it, and writes the answer as it is sent. Raises RequestError: the request is not of the agreed form."""

Machine = Callable[["Operation[Any, Any]", Carried, float], Awaitable[Any]]
"""The way to one machine: what it answers within so many seconds, read. Raises RequestError: it refuses, or as `Operation.read_answer`;
ConnectionLost, TimeoutError."""

OPERATIONS: Final[dict[str, Operation[Any, Any]]] = {}
"""Of machines, by their names. Each module that has some adds them when it is imported, and whoever asks or answers one imports it."""
OF_DAEMONS: Final[dict[str, Operation[Any, Any]]] = {}
"""The same of what a daemon asks of a machine (PROTOCOL.md 9.4)."""
HAS_LEFT: Final = "this memory was moved to another daemon"
"""So the sentence begins with which a daemon that was left refuses what is not of a move."""


class Nothing(TypedDict):
    """What says nothing but that it came."""


class Operation(Generic[_Request, _Answer]):
    """A request by its name.

    Attributes:
        text_follows: whether its text may follow as a body of its own, where it is long (`send_text`).
        is_free: whether whoever answers gets all that came, for what is not read by its form.
        is_large: whether it may be larger than `MAX_REQUEST` (PROTOCOL.md 7.2).
    """

    def __init__(
        self,
        name: str,
        request: type[_Request],
        answer: type[_Answer],
        *,
        text_follows: bool = False,
        is_free: bool = False,
        is_large: bool = False,
        among: dict[str, Operation[Any, Any]] = OPERATIONS,
    ) -> None:
        """Make it known. Raises ValueError: another one has its name."""
        if name in among:
            raise ValueError(f"two modules have requests of one name: {name}")
        among[name] = self
        self.name = name
        self.text_follows = text_follows
        self.is_free = is_free
        self.is_large = is_large
        self._request, self._answer = request, answer

    @cached_property
    def request_fields(self) -> Fields:
        return fields_of_type(self._request)

    @cached_property
    def answer_fields(self) -> Fields:
        return fields_of_type(self._answer)

    def read(self, body: Carried, *, without: Collection[str] = ()) -> _Request:
        """A request that came; `without`: fields that are still to come.

        Raises RequestError: one of its fields is missing, of another form, or out of its bounds.
        """
        fields = {name: form for name, form in self.request_fields.items() if name not in without}
        found: _Request = fields_of(body, fields, with_others=self.is_free)
        return found

    def read_answer(self, body: Carried) -> _Answer:
        """An answer that came. Raises RequestError, as `read`."""
        found: _Answer = fields_of(body, self.answer_fields)
        return found

    async def answered(self, body: Carried, answer: Callable[[_Request], Awaitable[_Answer]]) -> dict[str, object]:
        """What `answer` says to a request that came, as it is sent. Raises RequestError, as `read`, and whatever `answer` does."""
        return written(await answer(self.read(body)), self.answer_fields)

    def by(
        self, answer: Callable[[_Request], Awaitable[_Answer]], *, may: Callable[[Carried], object] | None = None
    ) -> tuple[str, Answerer]:
        """Its name, and what answers it.

        `may` raises where the caller may not ask at all: before the request is read, so that it hears that
        and nothing of the form of what it asks.
        """

        async def answered(body: Carried) -> dict[str, object]:
            if may is not None:
                may(body)
            return await self.answered(body, answer)

        return self.name, answered

    async def ask(
        self, link: RequestChannel, body: _Request, *, timeout_s: float, bulk: bool = False, whole: bytes | None = None
    ) -> _Answer:
        """Ask the daemon. The one way in which a machine does.

        Args:
            whole: a body that goes along (PROTOCOL.md 7.4).

        Raises:
            UnfitAnswerError: the answer is not of the agreed form.
            UnknownRequestError: the daemon is too old for it.
            RequestError, ConnectionLost, TimeoutError: as `Connection.request`.
        """
        try:
            answer = await self.sent(link, body, timeout_s=timeout_s, bulk=bulk, whole=whole)
        except RequestError as error:
            if not error.message.endswith(UNKNOWN):
                raise
            # The first version says `invalid`, as if the question were wrong.
            raise UnknownRequestError(error.message, SINCE.get(self.name)) from None
        try:
            return self.read_answer(answer)
        except RequestError:
            raise UnfitAnswerError from None

    async def ask_machine(self, machine: Machine, body: _Request, timeout_s: float) -> _Answer:
        """Ask a machine. Raises as `Machine`."""
        answer: _Answer = await machine(self, body, timeout_s)
        return answer

    async def sent(
        self, link: RequestChannel, body: Carried, *, timeout_s: float, bulk: bool = False, whole: bytes | None = None
    ) -> dict[str, Any]:
        """Send it: the answer as it came. Raises RequestError, ConnectionLost, TimeoutError."""
        said = written(body, self.request_fields)
        if whole is not None:
            return await link.upload(self.name, said, whole, timeout_s=timeout_s)
        if self.text_follows and isinstance(text := said.get("text"), str):
            del said["text"]
            return await send_text(link, self.name, said, text, timeout_s=timeout_s)
        return await link.request(self.name, said, timeout_s=timeout_s, bulk=bulk)
