"""Seal the messages that an agent sends. Each string is searched for credentials by its content and
by its name; their encrypted records are sent to the daemon, and then the message. A message that
contains no mark of a credential costs microseconds and imports nothing.

Read-only calls get placeholders too, so that a search for a credential finds where it is sealed,
but they store nothing at the daemon. This includes questions without any context, such as "where do
we use hunter22-x": a word that may be a credential is looked up by its keyed secret id (PROTOCOL.md
10.2), which reveals nothing to the daemon, and is replaced by its placeholder if it is sealed
already.
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
from confide_memory.tools.call import OPERATION, SEEN_PARTS, SENT, is_blank
from confide_memory.wire.sealing import IS_SENSITIVE, RECORD, SensitiveRequest
from confide_proxy import addons
from confide_proxy.errors import LATER, TASK, ToolError, UnsealableError
from confide_proxy.sealing.context import SessionSealing
from confide_proxy.sealing.detection import prefilter

if TYPE_CHECKING:
    from confide_proxy.sealing.detection.scanner import Repeats
    from confide_proxy.sealing.sealer import Sealed, Sealer, Secret

LARGE_BYTES: Final = 64 * 1024
"""Messages above this size aren't checked in the event loop."""
ASK_DEADLINE_S: Final = 5.0
FLUSH_DEADLINE_S: Final = 2.0
STORE: Final = "memory_store"
UPDATE: Final = "memory_update"
ADD_TASK: Final = "task_add"
"""The tool whose calls this device signs as orders, through an add-on. Known here so that other
calls don't load add-ons.
"""
CONTENT: Final = "content"
QUERY: Final = "query"
LOOKUPS: Final = frozenset(
    {
        *("memory_search", "memory_read", "memory_status", "memory_get", "memory_list", "memory_history"),
        *("secret_get", "context_info", "entity_list", "entity_search"),
        *("task_list", "task_results"),
    }
)
"""Read-only tools. Not taken from the catalogue alone, which the daemon writes."""
OF_FILES: Final = frozenset({CONTENT, "path", "mode", "heading", "project"})
"""Parameters of `memory_store` that write to a file; with any other one it creates a note."""
_NO: Final = frozenset({"invalid", "not_found", "denied"})
"""Error codes that answer the question, or come from a daemon without sensitive notes. After any
other error it is unknown whether a text may go in clear.
"""
_PROTOCOL: Final = frozenset(
    {"_meta", "protocolVersion", "capabilities", "clientInfo", "requestId", "progressToken", "cursor"}
)
"""Parameters that the client sets and not its agent."""
_ENVELOPE: Final = frozenset({"jsonrpc", "id", "method"})
_TOOL_CALL: Final = "tools/call"
KINDS: Final = (
    *("password", "url-password", "connection-string", "api-key", "token"),
    *("secret-key", "aws-secret-key", "basic-auth", "bearer-token", "secret", "key"),
)
"""Kinds that only the context reveals; tokens of a known form are found without it."""
MOST_WORDS: Final = 4
"""Words looked up per question. Each costs a few small concurrent requests."""
DEADLINE_S: Final = 5.0
_LEAST_CHARS: Final = 8
_MOST_CHARS: Final = 256
_LEAST_RANDOM_CHARS: Final = 16
_AROUND: Final = "\"'`,;:?()[]<>"
_ENDS: Final = ".!"
_NUMBER: Final = re.compile(r"[\d.,:/+_TZv-]+")
"""Dates, versions, addresses."""
MAX_DEPTH: Final = 64
"""Most levels of nested arguments; the daemon accepts fewer."""
_LONGEST_NAMED: Final = 512
"""Longest value that its name alone makes a credential, as in the detector."""
_QUOTES: Final = ("'", '"', "`")
_OWN_NAMES: Final = frozenset({"keywords", "maxTokens", "max_tokens"})
"""Parameters of Confide's tools that sound like credentials."""
_PAIRS: Final = (("name", "value"), ("key", "value"))
"""`{"name": "DB_PASSWORD", "value": …}`"""


class ToolCall(NamedTuple):
    """A tool call by an agent. Not a dataclass, which would slow every start.

    Attributes:
        project: project of the calling session.
        said: time of the call, ISO 8601 with time zone; None means now.
        operation: id under which the call may be repeated; "" if it has none.
    """

    tool: str
    arguments: Mapping[str, Any]
    project: str
    said: str | None = None
    operation: str = ""


class SealedCalls:
    """Seals the messages of one session or command."""

    def __init__(
        self,
        sealing: SessionSealing,
        project: str,
        *,
        flush: Callable[[str, str], Awaitable[None]] | None = None,
        seen: Callable[[str, Mapping[str, Any]], Mapping[str, str] | None] | None = None,
    ) -> None:
        """`project` is the session's. `flush` sends a changed file, given its project and path.
        `seen_parts` returns the parts of the project of which the note of a call speaks, given the tool
        and its arguments (`freshness`); it blocks.
        """
        self._seen_parts = seen
        self.sealing = sealing
        self._project = project
        self._flush = flush

    async def recall(self, called: ToolCall) -> None:
        """Load the keys that this device had last, if sealing the call may need them. Used while
        the daemon is unreachable.
        """
        is_noted = self._seen_parts is not None and called.tool in (STORE, UPDATE)
        if is_noted or _is_whole(called) or gives_reason(called.arguments) or self.sealing.knows_any:
            await self.sealing.keyring.recall()

    def is_plain(self, message: Mapping[str, object], size_bytes: int) -> bool:
        """Return True if a message can be sent unchanged. Also False if checking that would take
        long.
        """
        if size_bytes > LARGE_BYTES:
            return False
        called = self._call_in(message)
        if called is not None:
            query = called.arguments.get(QUERY)
            is_harmless = called.tool != ADD_TASK and (not isinstance(query, str) or is_plain_query(query))
            is_noted = self._seen_parts is not None and called.tool in (STORE, UPDATE)
            is_told = not is_noted and not _is_whole(called) and _asked_about(called) is None and is_harmless
            if not is_told or self._gives_reason(called.arguments):
                return False
        return not any(self._gives_reason(part) for _, part in _written_parts(message))

    async def prepare(
        self, link: RequestChannel, message: dict[str, Any], *, is_lookup: bool = False, said: str | None = None
    ) -> dict[str, object]:
        """Return a message in the form in which it may be sent, and send the encrypted records of
        its credentials first. A message that needs no change is returned as the same object.

        Args:
            is_lookup: True if the message calls a tool that the daemon lists as read-only.
            said: time of the call, as in `ToolCall.said`.

        Raises:
            BlockedError, UnsealableError: the message may not leave this device, or cannot be
                sealed.
            ToolError: it is nested too deeply.
            KeyFileError: the file of known secret values cannot be read.
            RequestError, RosterError, ConnectionLost, TimeoutError: the records cannot be sent.
        """
        called = self._call_in(message, said)
        if called is not None:
            sent = await self._send_target(called)
            given = await self.arguments(link, called, is_lookup=is_lookup)
            seen = await self.seen_parts(called)
            if sent or seen is not None or given is not called.arguments:
                params = {**message["params"], "arguments": given}
                more = {**({SENT: sent} if sent else {}), **({} if seen is None else {SEEN_PARTS: dict(seen)})}
                if more:
                    params["_meta"] = {**(params.get("_meta") or {}), **more}
                message = {**message, "params": params}
        return await asyncio.to_thread(self._looked_up, message)

    async def seen_parts(self, called: ToolCall) -> Mapping[str, str] | None:
        """Return the files or parts of code that the stored note is about, with hashes of their
        present state. None if the call stores no note, or one about none of them.
        """
        return await asyncio.to_thread(self.seen_here, called)

    def seen_here(self, called: ToolCall) -> Mapping[str, str] | None:
        """Return the same as `seen_parts`, but in the calling thread, which it blocks."""
        if self._seen_parts is None or called.tool not in (STORE, UPDATE):
            return None
        try:
            seen = self._seen_parts(called.tool, called.arguments)
            return seen and self._without_secrets(seen)
        except (ConfideError, OSError):
            return None  # the note matters more

    def _without_secrets(self, seen: Mapping[str, str]) -> dict[str, str]:
        """Return the parts whose names, which go in clear, are no credentials."""
        return {
            name: value for name, value in seen.items() if self.seal({"name": name}, is_lookup=True)[0]["name"] == name
        }

    async def arguments(self, link: RequestChannel, called: ToolCall, *, is_lookup: bool) -> Mapping[str, Any]:
        """Return a call's arguments in sealed form, and send the records of their credentials
        first. Raises the same errors as `prepare`.
        """
        is_lookup = is_lookup and called.tool in LOOKUPS
        is_whole = not is_lookup and (_is_whole(called) or await self._is_onto_sensitive(link, called))
        given, secrets = await asyncio.to_thread(self.seal, called.arguments, is_whole=is_whole, is_lookup=is_lookup)
        if not is_lookup:
            await self.sealing.deposit.keep(link, secrets)
            return await self._sign_order(called, given) if called.tool == ADD_TASK else given
        query, keys = given.get(QUERY), self.sealing.keyring.keys
        if not isinstance(query, str) or keys is None or is_plain_query(query):
            return given
        # Also replace words that only the daemon's records reveal as credentials.
        known = await place_placeholders(link, keys, query)
        return given if known == query else {**given, QUERY: known}

    async def _sign_order(self, called: ToolCall, given: Mapping[str, object]) -> Mapping[str, object]:
        """Return a task as an order signed by this device. Raises UnsealableError if it has no keys
        for the space; ToolError if the task is invalid.
        """
        ordered = await asyncio.to_thread(addons.of_tool, called.tool, "sent")
        if ordered is None:
            return given  # the daemon has no such tool, or refuses unsigned tasks
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
        """Return True if a JSON value may contain a credential, by its form or because it is known
        here.
        """
        return gives_reason(value) or self.sealing.may_know(value)

    def seal(
        self, given: Mapping[str, object], *, is_whole: bool = False, is_lookup: bool = False
    ) -> tuple[Mapping[str, Any], tuple[Secret, ...]]:
        """Return the arguments in sealed form, and the secrets in them. May take a while, so call
        it in a thread.

        With `is_whole`, all of the content is sealed, as in a sensitive note. `is_lookup` means
        that the call changes nothing.

        Raises BlockedError if the policy blocks a credential, UnsealableError or KeyFileError if it
        cannot be sealed, and ToolError if the arguments are nested too deeply.
        """
        if not is_whole and not self._gives_reason(given):
            return given, ()
        whole = CONTENT if is_whole else None
        # Front matter counts as such only if the text becomes a whole file.
        said = {name for name, value in given.items() if not is_blank(value)}
        has_head = said <= OF_FILES and given.get("mode") == "replace" and "heading" not in said
        sealer = self.sealing.sealer
        return seal(given, sealer, whole=whole, has_head=has_head, is_lookup=is_lookup)

    def seal_for_display(self, called: ToolCall) -> Mapping[str, object]:
        """Return the arguments of a queued call in sealed form, to display them. May take a while,
        so call it in a thread. Raises the same errors as `seal`.
        """
        given, _ = self.seal(called.arguments, is_whole=_is_whole(called), is_lookup=True)
        return given

    async def _send_target(self, called: ToolCall) -> SensitiveRequest | None:
        """Send the target file if it has changed, and return its description for the daemon.

        The user's latest edit may make the file sensitive, and the text is added to that version.
        None if the file cannot be sent now; the daemon then requests it.
        """
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
        """Return the target of a text with credentials in its names sealed."""
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
        """Seal everything except a tool's arguments, as for a read-only call: it stores nothing."""
        for name, part in _written_parts(message):
            if self._gives_reason(part):
                given, _ = seal(part, self.sealing.sealer, is_lookup=True)
                unchanged = (
                    {key: value for key, value in message[name].items() if key not in part}
                    if isinstance(part, dict) and name == "params"
                    else {}
                )
                message = {**message, name: {**unchanged, **given} if isinstance(given, dict) else given}
        return message

    def _call_in(self, message: Mapping[str, object], said: str | None = None) -> ToolCall | None:
        params = message.get("params")
        if message.get("method") != _TOOL_CALL or not isinstance(params, dict):
            return None
        if not isinstance(params.get("arguments"), dict):
            return None
        meta = params.get("_meta")
        operation = meta.get(OPERATION) if isinstance(meta, dict) else None
        return ToolCall(str(params.get("name")), params["arguments"], self._project, said, str(operation or ""))

    async def _is_onto_sensitive(self, link: RequestChannel, called: ToolCall) -> bool:
        """Return True if the daemon stores the target of the call as sensitive."""
        asked = _asked_about(called)
        if asked is None:
            return False
        place = await self._place(asked)
        try:
            answer = await IS_SENSITIVE.ask(link, place, timeout_s=ASK_DEADLINE_S)
        except RequestError as error:
            if error.code not in _NO:
                raise
            return False  # the daemon itself reports an invalid call
        return answer["sensitive"]


def _is_whole(called: ToolCall) -> bool:
    """Return True if the call marks its text as sensitive, for any tool that the daemon may list."""
    # The daemon refuses other values, but must not see the text for that.
    sensitive = called.arguments.get("sensitive")
    return called.tool not in LOOKUPS and sensitive is not False and not is_blank(sensitive)


def _asked_about(called: ToolCall) -> SensitiveRequest | None:
    """Return the target of a text, for the request about its sensitivity; None if there is nothing
    to ask.
    """
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

    try:
        moment = datetime.fromisoformat(said or "")
    except (TypeError, ValueError):
        moment = datetime.now().astimezone()
    return f"{moment:%Y-%m-%d}"


def _written_parts(message: Mapping[str, object]) -> list[tuple[str, Any]]:
    """Return the parts of a message that its agent wrote, by field name, without a tool's
    arguments.
    """
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
    """Return True if no word of a question can be a credential. A quick check of the words' form."""
    return not any(_may_be(word.strip(_AROUND)) for word in query.split())


async def place_placeholders(link: RequestChannel, keys: SpaceKeys, query: str) -> str:
    """Replace each word of a question that is a sealed credential in the space by its placeholder;
    by several, if it is sealed as several kinds.

    Raises RequestError, ConnectionLost or TimeoutError if the daemon cannot look the words up now.
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
    """Return the words that may be credentials, longer forms first, since a password may end with
    punctuation.
    """
    from confide_proxy.sealing.detection.plausibility import is_unmistakable

    found: dict[str, None] = {}
    # Placeholders are removed: one in twenty-five looks like a credential.
    for part in STANDIN.sub(" ", query).split():
        if len(found) >= MOST_WORDS:
            break
        word = part.strip(_AROUND)
        if _may_be(word) and is_unmistakable(word):
            found |= dict.fromkeys((word, word.removesuffix("."), word.rstrip(_ENDS)))
    return [word for word in found if _may_be(word)][:MOST_WORDS]


def gives_reason(value: Any) -> bool:
    """Return True if a string in a JSON value may be a credential, or a name in it may indicate
    one.
    """
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
    """Return a JSON value in sealed form, and the secrets whose records must be sent before it.

    Args:
        source: kind of text by which the policy applies, one of `policy.SOURCES`.
        whole: name of the field that is sealed as a whole if it is text; None for no field.
        has_head: True to leave that field's front matter in clear.
        is_lookup: True if the call changes nothing. Credentials that cannot be sealed are then
            redacted.
        found: a set to which the credentials found are added, except whole texts.

    Raises BlockedError, UnsealableError or KeyFileError as `Sealer.seal` does, and ToolError if the
    value is nested too deeply.
    """
    count = sealer.known_count
    sealing = _Sealing(sealer, source, has_head=has_head, is_lookup=is_lookup)
    sealed = sealing.value(value, (), 0, whole)
    if sealer.known_count > count:  # a title may name a secret that only the text reveals
        sealing = _Sealing(sealer, source, has_head=has_head, is_lookup=is_lookup)
        sealed = sealing.value(value, (), 0, whole)
    if found is not None:
        found |= sealing.found_values
    return sealing.seal_repeated(sealed), tuple(sealing.secrets)


class _Sealing:
    def __init__(self, sealer: Sealer, source: str, *, has_head: bool, is_lookup: bool) -> None:
        self._sealer = sealer
        self._has_head = has_head
        self._source = source
        self._is_lookup = is_lookup
        self._placeholders: dict[str, str] = {}
        self._repeats: Repeats | None = None
        self.found_values: set[str] = set()
        self.secrets: dict[Secret, None] = {}

    def value(self, value: Any, names: tuple[str, ...], depth: int, whole: str | None = None) -> Any:
        """Seal a value under these names, the nearest first."""
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

    def seal_repeated(self, value: Any) -> Any:
        """Replace further occurrences of found credentials in a value, such as in the title of the
        text that reveals them.
        """
        if not self._placeholders:
            return value
        if isinstance(value, str):
            return self._without(value)
        if isinstance(value, list):
            return [self.seal_repeated(item) for item in value]
        if isinstance(value, dict):
            return {self.seal_repeated(name): self.seal_repeated(item) for name, item in value.items()}
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
            return self._note_repeatable(
                self._sealer.seal(text, self._source, is_sensitive=True, is_lookup=self._is_lookup)
            )
        return self._note_repeatable(self._sealer.seal_whole(text, self._source, is_lookup=self._is_lookup))

    def _text(self, text: str, names: tuple[str, ...]) -> str:
        sealed = self._note_repeatable(self._sealer.seal(text, self._source, is_lookup=self._is_lookup))
        for name in names:
            sealed = self._seal_named(sealed, name)
        return sealed

    def _seal_named(self, text: str, name: str) -> str:
        """Seal a text by its name: in `{"password": "hunter22"}` the value is a credential, and
        alone it isn't.
        """
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
        return text[:start] + self._note_repeatable(sealed)[len(head) : -1] + text[start + len(core) :]

    def _note_repeatable(self, sealed: Sealed) -> str:
        from confide_proxy.sealing.detection.plausibility import is_unmistakable
        from confide_proxy.sealing.detection.scanner import LONGEST_REPEATED, REPEATED_CHARS
        from confide_proxy.sealing.sealer import NOTE

        self.secrets.update(dict.fromkeys(sealed.secrets))
        for placeholder, value in sealed.values.items():
            if placeholder.startswith((f"(sealed:{NOTE}:", f"(redacted:{NOTE}:")):
                continue
            self.found_values.add(value)
            if REPEATED_CHARS <= len(value) <= LONGEST_REPEATED and is_unmistakable(value):
                self._placeholders[value] = placeholder
        return sealed.text
