"""The way up for what an agent says: each string sealed, by itself and by the name that it stands under, the records with the
daemon, and only then the message itself. What gives no reason to look closer costs microseconds and imports nothing.

Calls that only ask get placeholders too, so that a search for a credential finds where it is sealed, but leave nothing with the daemon.
That holds for a question that nothing gives away as well, "where do we use hunter22-x": what looks like a credential is asked for by its
keyed name (PROTOCOL.md 10.2), which tells the daemon nothing, and goes out as its placeholder if that is sealed already.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from confide_crypto.errors import ConfideError, ConnectionLost, RequestError
from confide_crypto.sealing.placeholder import STANDIN, Placeholder
from confide_crypto.sealing.space_keys import SpaceKeys
from confide_memory.documents import RequestChannel
from confide_memory.tools.call import OPERATION, SENT, is_blank
from confide_memory.wire.sealing import IS_SENSITIVE, RECORD, SensitiveRequest
from confide_proxy import addons
from confide_proxy.errors import LATER, TASK, ToolError, UnsealableError
from confide_proxy.sealing.context import SessionSealing
from confide_proxy.sealing.detection import prefilter

if TYPE_CHECKING:
    from confide_proxy.sealing.detection.scanner import Repeats
    from confide_proxy.sealing.sealer import Sealed, Sealer, Secret

LARGE_BYTES: Final = 64 * 1024
"""The text of what is larger is not even looked at in the event loop."""
ASK_DEADLINE_S: Final = 5.0
FLUSH_DEADLINE_S: Final = 2.0
STORE: Final = "memory_store"
UPDATE: Final = "memory_update"
ADD_TASK: Final = "task_add"
"""What becomes an order that this machine signs, by an add-on. Known here, so that no other call looks for add-ons."""
CONTENT: Final = "content"
QUERY: Final = "query"
LOOKUPS: Final = frozenset(
    {
        *("memory_search", "memory_read", "memory_status", "memory_get", "memory_list", "memory_history"),
        *("secret_get", "context_info", "entity_list", "entity_search"),
        *("task_list", "task_results"),
    }
)
"""Tools that keep nothing of what they are asked. Not taken from the catalogue alone, which is the daemon's to write."""
OF_FILES: Final = frozenset({CONTENT, "path", "mode", "heading", "project"})
"""Parameters of `memory_store`; any other makes a note of its own."""
_NO: Final = frozenset({"invalid", "not_found", "denied"})
"""Answers that are about what was asked, or of a daemon that knows no sensitive notes. At any other one nobody has said that a text may
go in clear."""
_PROTOCOL: Final = frozenset(
    {"_meta", "protocolVersion", "capabilities", "clientInfo", "requestId", "progressToken", "cursor"}
)
"""Parameters that are the client's and not its agent's."""
_ENVELOPE: Final = frozenset({"jsonrpc", "id", "method"})
_TOOL_CALL: Final = "tools/call"
KINDS: Final = (
    *("password", "url-password", "connection-string", "api-key", "token"),
    *("secret-key", "aws-secret-key", "basic-auth", "bearer-token", "secret", "key"),
)
"""Those that are known by what stands before them alone; tokens of a known form are found without it."""
MOST_WORDS: Final = 4
"""Each is a few small requests, all at once."""
DEADLINE_S: Final = 5.0
_LEAST_CHARS: Final = 8
_MOST_CHARS: Final = 256
_LEAST_RANDOM_CHARS: Final = 16
_AROUND: Final = "\"'`,;:?()[]<>"
_ENDS: Final = ".!"
_NUMBER: Final = re.compile(r"[\d.,:/+_TZv-]+")
"""Dates, versions, addresses."""
MAX_DEPTH: Final = 64
"""Of arguments; the daemon takes less."""
_LONGEST_NAMED: Final = 512
"""Of a value that only its name makes a credential, as the detector has it."""
_QUOTES: Final = ("'", '"', "`")
_OWN_NAMES: Final = frozenset({"keywords", "maxTokens", "max_tokens"})
"""Of parameters of ours, which sound like those of credentials and are none."""
_PAIRS: Final = (("name", "value"), ("key", "value"))
"""`{"name": "DB_PASSWORD", "value": …}`"""


class ToolCall(NamedTuple):
    """A call of a tool, as its agent made it. No dataclass, whose making every start would pay for.

    Attributes:
        project: of the session that made it.
        said: when it was made, ISO 8601 with the time zone; None: now.
        operation: its id, under which it may be sent again; "" where it has none.
    """

    tool: str
    arguments: Mapping[str, Any]
    project: str
    said: str | None = None
    operation: str = ""


class SealedCalls:
    """Seals what goes up from one session or command."""

    def __init__(
        self, sealing: SessionSealing, project: str, *, flush: Callable[[str, str], Awaitable[None]] | None = None
    ) -> None:
        """`project` is the session's; `flush` has a file of a project, by its path, sent if it has changed."""
        self.sealing = sealing
        self._project = project
        self._flush = flush

    async def recall(self, called: ToolCall) -> None:
        """Have the keys that this machine had last, while the daemon is away, if the call gives a reason to."""
        if _is_whole(called) or gives_reason(called.arguments) or self.sealing.knows_any:
            await self.sealing.keyring.recall()

    def is_plain(self, message: Mapping[str, object], size_bytes: int) -> bool:
        """Whether a message of that size can go as it is; False also where that would take long to say."""
        if size_bytes > LARGE_BYTES:
            return False
        called = self._called(message)
        if called is not None:
            query = called.arguments.get(QUERY)
            is_harmless = called.tool != ADD_TASK and (not isinstance(query, str) or is_plain_query(query))
            is_told = not _is_whole(called) and _asked_about(called) is None and is_harmless
            if not is_told or self._gives_reason(called.arguments):
                return False
        return not any(self._gives_reason(part) for _, part in _said(message))

    async def prepared(
        self, link: RequestChannel, message: dict[str, Any], *, is_lookup: bool = False, said: str | None = None
    ) -> dict[str, object]:
        """A message that is not plain, as it goes up; all that it names is with the daemon. The same object where nothing changes.

        Args:
            is_lookup: it calls a tool that only asks, as the daemon lists it.
            said: as `ToolCall.said`.

        Raises:
            BlockedError, UnsealableError: it may not leave, or cannot be sealed.
            ToolError, KeyFileError: as `seal`.
            RequestError, RosterError, ConnectionLost, TimeoutError: as `Deposit.keep`.
        """
        called = self._called(message, said)
        if called is not None:
            sent = await self._sent(called)
            given = await self.arguments(link, called, is_lookup=is_lookup)
            if sent or given is not called.arguments:
                params = {**message["params"], "arguments": given}
                if sent:
                    params["_meta"] = {**(params.get("_meta") or {}), SENT: sent}
                message = {**message, "params": params}
        return await asyncio.to_thread(self._looked_up, message)

    async def arguments(self, link: RequestChannel, called: ToolCall, *, is_lookup: bool) -> Mapping[str, Any]:
        """The arguments of a call as they go up; all that they name is with the daemon. Raises as `prepared`."""
        is_lookup = is_lookup and called.tool in LOOKUPS
        is_whole = not is_lookup and (_is_whole(called) or await self._is_onto_sensitive(link, called))
        given, secrets = await asyncio.to_thread(self.seal, called.arguments, is_whole=is_whole, is_lookup=is_lookup)
        if not is_lookup:
            await self.sealing.deposit.keep(link, secrets)
            return await self._ordered(called, given) if called.tool == ADD_TASK else given
        query, keys = given.get(QUERY), self.sealing.keyring.keys
        if not isinstance(query, str) or keys is None or is_plain_query(query):
            return given
        # Placeholders in the question also for what nothing in it gives away.
        known = await recognized(link, keys, query)
        return given if known == query else {**given, QUERY: known}

    async def _ordered(self, called: ToolCall, given: Mapping[str, object]) -> Mapping[str, object]:
        """A task as this machine orders it. Raises UnsealableError: it cannot sign for this space; ToolError: it cannot be ordered so."""
        ordered = await asyncio.to_thread(addons.of_tool, called.tool, "sent")
        if ordered is None:
            return given  # and the daemon knows no such tool, or takes nothing that is not signed
        keys = self.sealing.keyring.keys
        if keys is None:
            raise UnsealableError(TASK)
        identity = await self.sealing.keyring.identity()
        return await asyncio.to_thread(
            ordered,
            given,
            identity=identity,
            space=keys.space,
            project=called.project,
            operation=called.operation,
            said=called.said,
        )

    def _gives_reason(self, value: Any) -> bool:
        """Whether something in a JSON value may be a credential, by its looks or since this machine knows it."""
        return gives_reason(value) or self.sealing.may_know(value)

    def seal(
        self, given: Mapping[str, object], *, is_whole: bool = False, is_lookup: bool = False
    ) -> tuple[Mapping[str, Any], tuple[Secret, ...]]:
        """The arguments as they go up, and the secrets that they name. May take a while. Raises as `seal`."""
        if not is_whole and not self._gives_reason(given):
            return given, ()
        whole = CONTENT if is_whole else None
        # Only where it becomes the whole of a file, what looks like front matter is.
        said = {name for name, value in given.items() if not is_blank(value)}
        has_head = said <= OF_FILES and given.get("mode") == "replace" and "heading" not in said
        sealer = self.sealing.sealer
        return seal(given, sealer, whole=whole, has_head=has_head, is_lookup=is_lookup)

    def shown(self, called: ToolCall) -> Mapping[str, Any]:
        """The arguments as they will be, for who looks at a call that waits. May take a while. Raises as `seal`."""
        given, _ = self.seal(called.arguments, is_whole=_is_whole(called), is_lookup=True)
        return given

    async def _sent(self, called: ToolCall) -> SensitiveRequest | None:
        """The file that a text is put into, once what a person has just written there is with the daemon: that may be why the text must
        be sealed, and it is what the text is put upon. None where that cannot be said; then the daemon asks for it."""
        asked = _asked_about(called)
        if self._flush is None or called.tool != STORE or asked is None:
            return None
        try:
            async with asyncio.timeout(FLUSH_DEADLINE_S):
                await self._flush(asked["project"], asked["path"])
        except ConnectionLost:
            raise
        except (ConfideError, TimeoutError, OSError):
            return None
        return await self._place(asked)

    async def _place(self, asked: SensitiveRequest) -> SensitiveRequest:
        """What a text is put into, as the daemon may be told it: a name may be a credential too."""
        if not self._gives_reason(asked):
            return asked
        place, _ = await asyncio.to_thread(self.seal, asked, is_lookup=True)
        sealed: SensitiveRequest = {"project": place["project"]}
        if "id" in place:
            sealed["id"] = place["id"]
        if "path" in place:
            sealed["path"] = place["path"]
        return sealed

    def _looked_up(self, message: dict[str, Any]) -> dict[str, object]:
        """Everything but the arguments of a tool asks, and stores nothing."""
        for name, part in _said(message):
            if self._gives_reason(part):
                given, _ = seal(part, self.sealing.sealer, is_lookup=True)
                unchanged = (
                    {key: value for key, value in message[name].items() if key not in part}
                    if isinstance(part, dict) and name == "params"
                    else {}
                )
                message = {**message, name: {**unchanged, **given} if isinstance(given, dict) else given}
        return message

    def _called(self, message: Mapping[str, object], said: str | None = None) -> ToolCall | None:
        params = message.get("params")
        if message.get("method") != _TOOL_CALL or not isinstance(params, dict):
            return None
        if not isinstance(params.get("arguments"), dict):
            return None
        meta = params.get("_meta")
        operation = meta.get(OPERATION) if isinstance(meta, dict) else None
        return ToolCall(str(params.get("name")), params["arguments"], self._project, said, str(operation or ""))

    async def _is_onto_sensitive(self, link: RequestChannel, called: ToolCall) -> bool:
        """Whether the daemon keeps what is to be changed as sensitive."""
        asked = _asked_about(called)
        if asked is None:
            return False
        place = await self._place(asked)
        try:
            answer = await IS_SENSITIVE.ask(link, place, timeout_s=ASK_DEADLINE_S)
        except RequestError as error:
            if error.code not in _NO:
                raise
            return False  # and what is wrong with the call the daemon says in its own words
        return answer["sensitive"]


def _is_whole(called: ToolCall) -> bool:
    """Whether the call itself says that its text is sensitive, to whatever tool a daemon may list."""
    # Whatever else it says there the daemon refuses; but it need not have seen the text for that.
    sensitive = called.arguments.get("sensitive")
    return called.tool not in LOOKUPS and sensitive is not False and not is_blank(sensitive)


def _asked_about(called: ToolCall) -> SensitiveRequest | None:
    """What a text is put into, as the daemon is asked about it; None where there is nothing to ask."""
    given = {name: value for name, value in called.arguments.items() if not is_blank(value)}
    if not isinstance(given.get(CONTENT), str):
        return None
    if called.tool == UPDATE:
        is_told = "sensitive" in given or not isinstance(given.get("id"), str)
        return None if is_told else {"project": called.project, "id": given["id"]}
    if called.tool != STORE or not given.keys() <= OF_FILES:
        return None
    project = given.get("project", called.project)
    path = given.get("path") or f"memory/{_day(called.said)}.md"
    return {"project": project, "path": path} if isinstance(project, str) and isinstance(path, str) else None


def _day(said: str | None) -> str:
    # Imported late: only a session that stores something needs it.

    try:
        moment = datetime.fromisoformat(said or "")
    except (TypeError, ValueError):
        moment = datetime.now().astimezone()
    return f"{moment:%Y-%m-%d}"


def _said(message: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """The parts of a message that are its agent's words, by the names of its fields; but for the arguments of a tool."""
    parts: list[tuple[str, Any]] = []
    for name, part in message.items():
        if name == "params" and isinstance(part, dict):
            is_call = message.get("method") == _TOOL_CALL and isinstance(part.get("arguments"), dict)
            own = _PROTOCOL | {"arguments"} if is_call else _PROTOCOL
            parts.append((name, {key: value for key, value in part.items() if key not in own}))
        elif name not in _ENVELOPE:
            parts.append((name, part))
    return parts


def is_plain_query(query: str) -> bool:
    """Whether no word of a question may be a credential, by a look that costs next to nothing."""
    return not any(_may_be(word.strip(_AROUND)) for word in query.split())


async def recognized(link: RequestChannel, keys: SpaceKeys, query: str) -> str:
    """The question with placeholders for each word of it that is sealed in the space: one for each kind that it is sealed as.

    Raises RequestError: the daemon cannot say now; ConnectionLost, TimeoutError: from the link.
    """

    words = [(word, word.encode("utf-8", "surrogatepass")) for word in _candidates(query)]
    wanted = [(word, Placeholder(kind, keys.secret_id(kind, data))) for word, data in words for kind in KINDS]

    async def is_sealed(secret_id: bytes) -> bool:
        try:
            await RECORD.ask(link, {"id": secret_id}, timeout_s=DEADLINE_S)
        except RequestError as error:
            if error.code in LATER:
                raise
            return False
        return True

    found = await asyncio.gather(*(is_sealed(placeholder.secret_id) for _, placeholder in wanted))
    sealed: dict[str, list[str]] = {}
    for (word, placeholder), is_there in zip(wanted, found, strict=True):
        if is_there:
            sealed.setdefault(word, []).append(str(placeholder))
    for word, names in sealed.items():
        query = query.replace(word, " ".join(names))
    return query


def _may_be(word: str) -> bool:
    if not _LEAST_CHARS <= len(word) <= _MOST_CHARS or _NUMBER.fullmatch(word):
        return False
    return len(word) >= _LEAST_RANDOM_CHARS or any(letter.isdigit() for letter in word)


def _candidates(query: str) -> list[str]:
    """What may be one, the longer form before the shorter: a password may end with the sentence's mark."""
    from confide_proxy.sealing.detection.plausibility import is_unmistakable

    found: dict[str, None] = {}
    # What stands for a credential is none, though one in twenty-five looks like one.
    for part in STANDIN.sub(" ", query).split():
        if len(found) >= MOST_WORDS:
            break
        word = part.strip(_AROUND)
        if _may_be(word) and is_unmistakable(word):
            found |= dict.fromkeys((word, word.removesuffix("."), word.rstrip(_ENDS)))
    return [word for word in found if _may_be(word)][:MOST_WORDS]


def gives_reason(value: Any) -> bool:
    """Whether some string of a JSON value, or some name in it, may be or tell of a credential at all."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            if prefilter.gives_reason(prefilter.lower(one)):
                return True
        elif isinstance(one, dict):
            waiting += (name for name in one if name not in _OWN_NAMES)
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one
    return False


def seal(
    value: Any,
    sealer: Sealer,
    source: str = "tools",
    *,
    whole: str | None = None,
    has_head: bool = False,
    is_lookup: bool = False,
    found: set[str] | None = None,
) -> tuple[Any, tuple[Secret, ...]]:
    """A JSON value as it goes out, and the secrets whose records the daemon must have first.

    Args:
        source: of `policy.SOURCES`.
        whole: the field of it that is sealed as a whole, where it is text.
        has_head: but for the front matter that it begins with.
        is_lookup: the call changes nothing, so that what cannot be sealed is redacted.
        found: gets the credentials that were found, whole texts left out.

    Raises BlockedError, UnsealableError, KeyFileError: as `Sealer.seal`; ToolError: it is nested too deep to be looked through.
    """
    count = sealer.known_count
    sealing = _Sealing(sealer, source, has_head=has_head, is_lookup=is_lookup)
    sealed = sealing.value(value, (), 0, whole)
    if sealer.known_count > count:  # a title may have said what the text behind it tells
        sealing = _Sealing(sealer, source, has_head=has_head, is_lookup=is_lookup)
        sealed = sealing.value(value, (), 0, whole)
    if found is not None:
        found |= sealing.found
    return sealing.repeated(sealed), tuple(sealing.secrets)


class _Sealing:
    def __init__(self, sealer: Sealer, source: str, *, has_head: bool, is_lookup: bool) -> None:
        self._sealer = sealer
        self._has_head = has_head
        self._source = source
        self._is_lookup = is_lookup
        self._placeholders: dict[str, str] = {}
        self._repeats: Repeats | None = None
        self.found: set[str] = set()
        self.secrets: dict[Secret, None] = {}

    def value(self, value: Any, names: tuple[str, ...], depth: int, whole: str | None = None) -> Any:
        """A value that stands under these names, the nearest first."""
        if depth > MAX_DEPTH:
            raise ToolError(f"the arguments are nested more than {MAX_DEPTH} deep", hint="keep metadata flat")
        if isinstance(value, str):
            return self._text(value, names)
        if isinstance(value, list):
            before = [(one,) if isinstance(one, str) and one.startswith("-") else () for one in ["", *value]]
            # `["--password", …]`, as a program is called.
            return [self.value(item, (*option, *names), depth + 1) for option, item in zip(before, value, strict=False)]
        if not isinstance(value, dict):
            return value
        beside = [value[one] for one, other in _PAIRS if isinstance(value.get(one), str) and other in value]
        sealed: dict[str, object] = {}
        for name, item in value.items():
            if name == whole and isinstance(item, str):
                sealed[name] = self._whole(item)
                continue
            nearest = (*beside, name) if name == "value" else (name,)
            sealed[self._text(name, ())] = self.value(item, (*nearest, *names), depth + 1)
        return sealed

    def repeated(self, value: Any) -> Any:
        """The value without those credentials, wherever else they stand in it: in the title of the text that says what they are."""
        if not self._placeholders:
            return value
        if isinstance(value, str):
            return self._without(value)
        if isinstance(value, list):
            return [self.repeated(item) for item in value]
        if isinstance(value, dict):
            return {self.repeated(name): self.repeated(item) for name, item in value.items()}
        return value

    def _without(self, text: str) -> str:
        from confide_proxy.sealing.detection.scanner import Repeats

        self._repeats = self._repeats or Repeats(self._placeholders)
        parts: list[str] = []
        behind = 0
        for start, end in self._repeats.find(text):
            parts += (text[behind:start], self._placeholders[text[start:end]])
            behind = end
        return "".join((*parts, text[behind:]))

    def _whole(self, text: str) -> str:
        if self._has_head:
            return self._kept(self._sealer.seal(text, self._source, is_sensitive=True, is_lookup=self._is_lookup))
        return self._kept(self._sealer.seal_whole(text, self._source, is_lookup=self._is_lookup))

    def _text(self, text: str, names: tuple[str, ...]) -> str:
        sealed = self._kept(self._sealer.seal(text, self._source, is_lookup=self._is_lookup))
        for name in names:
            sealed = self._named(sealed, name)
        return sealed

    def _named(self, text: str, name: str) -> str:
        """A text as it is under a name: `{"password": "hunter22"}` is one where "hunter22" is none."""
        core = text.strip()
        if not core or len(core) > _LONGEST_NAMED or "\n" in core or name in _OWN_NAMES:
            return text
        if not prefilter.gives_reason(prefilter.lower(name)):
            return text
        quote = next((one for one in _QUOTES if one not in core), None)
        if quote is None or core.endswith("\\"):
            return text
        shown = "".join(letter for letter in name if letter.isprintable() and letter not in _QUOTES)
        head = f'"{shown}": {quote}'
        sealed = self._sealer.seal(f"{head}{core}{quote}", self._source, is_sensitive=False, is_lookup=self._is_lookup)
        if not sealed.values or not sealed.text.startswith(head) or not sealed.text.endswith(quote):
            return text
        start = text.index(core)
        return text[:start] + self._kept(sealed)[len(head) : -1] + text[start + len(core) :]

    def _kept(self, sealed: Sealed) -> str:
        from confide_proxy.sealing.detection.plausibility import is_unmistakable
        from confide_proxy.sealing.detection.scanner import LONGEST_REPEATED, REPEATED_CHARS
        from confide_proxy.sealing.sealer import NOTE

        self.secrets.update(dict.fromkeys(sealed.secrets))
        for placeholder, value in sealed.values.items():
            if placeholder.startswith((f"(sealed:{NOTE}:", f"(redacted:{NOTE}:")):
                continue
            self.found.add(value)
            if REPEATED_CHARS <= len(value) <= LONGEST_REPEATED and is_unmistakable(value):
                self._placeholders[value] = placeholder
        return sealed.text
