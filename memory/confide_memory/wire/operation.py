"""Operations: each has a request's name, and two `TypedDict` types for the fields of the request
and of its answer.

    PULL: Final = Operation("pull", PullRequest, Pulled)

    answer = await PULL.ask(link, {"project": "p", "path": "MEMORY.md"}, timeout_s=10.0)
    self.operations = dict([PULL.by(self._pull)])    # async def _pull(asked: PullRequest) -> Pulled

The type of each field names the function that reads and checks it (`confide_memory.forms.form_of`).
Unknown fields are dropped, since the other end may be newer. An invalid request is reported to its
sender; an invalid answer raises an error, so callers need not validate answers. Callers check only
things that depend on their request (the number of results, the end of a list).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from functools import cached_property
from typing import Any, Final, Generic, TypedDict, TypeVar

from confide_crypto.errors import RequestError
from confide_memory.documents import RequestChannel, send_text
from confide_memory.errors import UnfitAnswerError, UnknownRequestError
from confide_memory.forms import Carried, Fields, fields_of, fields_of_type, to_json
from confide_memory.versions import SINCE, UNKNOWN

_Request = TypeVar("_Request", bound=Carried)
_Answer = TypeVar("_Answer", bound=Carried)

Answerer = Callable[[Carried], Awaitable[dict[str, object]]]
"""A function that reads a request, answers it, and returns the answer in wire form.

Raises RequestError if the request does not have the agreed fields.
"""

Machine = Callable[["Operation[Any, Any]", Carried, float], Awaitable[Any]]
"""A function that sends a request to one device and returns its answer within a time limit in
seconds.

Raises RequestError if the device refuses, or its answer does not have the agreed fields;
ConnectionLost; TimeoutError.
"""

OPERATIONS: Final[dict[str, Operation[Any, Any]]] = {}
"""The requests that devices send, by name. A module adds its requests when it is imported, so code
that sends or answers one imports that module.
"""
OF_DAEMONS: Final[dict[str, Operation[Any, Any]]] = {}
"""The requests that a daemon sends to a device, by name (PROTOCOL.md 9.4)."""
HAS_LEFT: Final = "this memory was moved to another daemon"
"""The beginning of the message with which a daemon, after a space was moved away, refuses all
requests that are not part of the move.
"""


class Nothing(TypedDict):
    """A request or an answer without fields."""


class Operation(Generic[_Request, _Answer]):
    """A kind of request: its name, and the fields of the request and its answer.

    Attributes:
        name: the name on the wire.
        text_follows: True if a long text may be sent as a separate body (`send_text`).
        is_free: True if the function that answers gets all fields, including undeclared ones.
        is_large: True if the request may be larger than `MAX_REQUEST` (PROTOCOL.md 7.2).
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
        """Register the operation. Raises ValueError if another one has the same name."""
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
        """Read the fields of a received request. `without` names fields to skip because they are
        not there yet.

        Raises RequestError if a field is missing, has the wrong type, or is out of its bounds.
        """
        fields = {name: form for name, form in self.request_fields.items() if name not in without}
        found: _Request = fields_of(body, fields, with_others=self.is_free)
        return found

    def read_answer(self, body: Carried) -> _Answer:
        """Read the fields of a received answer. Raises RequestError if a field is missing or has
        the wrong type.
        """
        found: _Answer = fields_of(body, self.answer_fields)
        return found

    async def answer_request(
        self, body: Carried, answer: Callable[[_Request], Awaitable[_Answer]]
    ) -> dict[str, object]:
        """Read a received request, call `answer` with it, and return the result as JSON fields.

        Raises RequestError if a field is missing or has the wrong type, and any error that `answer`
        raises.
        """
        return to_json(await answer(self.read(body)), self.answer_fields)

    def by(
        self, answer: Callable[[_Request], Awaitable[_Answer]], *, may: Callable[[Carried], object] | None = None
    ) -> tuple[str, Answerer]:
        """Return the operation's name and the function that answers it, as a pair for a table of
        operations.

        `may` raises an error if the sender may not send this request at all. It runs before the
        request is read, so that the sender does not learn which fields the request has.
        """

        async def answered(body: Carried) -> dict[str, object]:
            if may is not None:
                may(body)
            return await self.answer_request(body, answer)

        return self.name, answered

    async def ask(
        self, link: RequestChannel, body: _Request, *, timeout_s: float, bulk: bool = False, whole: bytes | None = None
    ) -> _Answer:
        """Send a request to the daemon and return its answer. Only devices call this.

        Args:
            whole: a body to send with the request (PROTOCOL.md 7.4); None for no body.

        Raises:
            UnfitAnswerError: the answer does not have the agreed fields.
            UnknownRequestError: the daemon is too old to know the request.
            RequestError, ConnectionLost, TimeoutError: as `Connection.request`.
        """
        try:
            answer = await self.send_raw(link, body, timeout_s=timeout_s, bulk=bulk, whole=whole)
        except RequestError as error:
            if not error.message.endswith(UNKNOWN):
                raise
            # The first version answers `invalid`, as if the request were wrong.
            raise UnknownRequestError(error.message, SINCE.get(self.name)) from None
        try:
            return self.read_answer(answer)
        except RequestError:
            raise UnfitAnswerError from None

    async def ask_machine(self, machine: Machine, body: _Request, timeout_s: float) -> _Answer:
        """Send a request from the daemon to a device and return its answer.

        Raises RequestError if the device refuses or its answer does not have the agreed fields;
        ConnectionLost if the connection ends; TimeoutError if there is no answer in time.
        """
        answer: _Answer = await machine(self, body, timeout_s)
        return answer

    async def send_raw(
        self, link: RequestChannel, body: Carried, *, timeout_s: float, bulk: bool = False, whole: bytes | None = None
    ) -> dict[str, object]:
        """Send a request and return the unchecked answer.

        Raises RequestError if the answer is an error; ConnectionLost if the connection ends;
        TimeoutError if there is no answer in time.
        """
        said = to_json(body, self.request_fields)
        if whole is not None:
            return await link.upload(self.name, said, whole, timeout_s=timeout_s)
        if self.text_follows and isinstance(text := said.get("text"), str):
            del said["text"]
            return await send_text(link, self.name, said, text, timeout_s=timeout_s)
        return await link.request(self.name, said, timeout_s=timeout_s, bulk=bulk)
