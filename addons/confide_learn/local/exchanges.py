"""Reads the exchanges of a session from its transcript, and summarizes the session. An exchange is
a message of the user with everything that the agent says and calls until the next one.

The transcript is read by the parser for the client that wrote it. The parser leaves out the output
of tools, the agent's thinking, and text that the client inserted. Credentials in the texts are
sealed here, so none leaves this module. The summary needs no judge, so it costs nothing.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import Final, Literal

from confide_crypto import portable
from confide_proxy.errors import BlockedError
from confide_proxy.sealing.sealer import Sealed, Sealer, Secret
from confide_proxy.sync.transcripts.parsers import ParsedLine, Parser, UnknownLineError
from confide_proxy.sync.transcripts.transcript_files import MAX_TEXT_CHARS, whole_lines

READ_BYTES: Final = 8 * 2**20
"""Bytes of a transcript that are read at once, so that a long one is never in memory as a whole."""
MOST_EXCHANGES: Final = 50
_MOST_SAID: Final = 400
_OURS: Final = re.compile(r"\[tool confide memory_(?:store|update)\]$")
_FOREIGN: Final = re.compile(
    r"\[tool (?:\w*(?:web|fetch|browser)\w*|(?!confide )\w+__\w+)\b|\[tool \w+: .*\b(?:curl|wget|lynx|w3m|https?://|(?:gh|glab)\s)",
    re.IGNORECASE,
)
"""Tools that fetch pages, by their names in several clients, tools of other MCP servers, and
commands that print web pages or issues of a forge.
"""
_INTERRUPTED: Final = "[Request interrupted"
FENCE: Final = re.compile(r"```.*?(?:```|\Z)|~~~.*?(?:~~~|\Z)|`{0}<(\w+)[^>]*>.*?</\1>", re.DOTALL)
"""Code blocks and tags, which count as quoted."""
_FENCED: Final = "\0"
"""Placeholder for a quoted part."""
_MOST_TYPED_LINES: Final = 5
"""Most lines of a message that counts as typed; longer ones are mostly pasted."""
_PASTED: Final = re.compile(
    r"^[\W_]*(?:(?:title|from|to|cc|subject|date|sent|author|reporter|reply-to|message-id|labels?|(?:posted|opened|reported) by"
    r"|steps to reproduce|source)[\W_]*:|(?:on|am|le)\b.*\b(?:wrote|schrieb|écrit)[\W_]*:|(?:original|forwarded) message\b)"
    r"|^--(?: ?$| \w)|^#{1,6} |^(?: {4}|\t)\S|^\S.{0,60}?\s\[?\d{1,2}:\d\d(?::\d\d)?(?: ?[ap]m)?\]?$",
    re.IGNORECASE,
)
"""Beginnings of lines of a mail, an issue, an article or a chat, headings, indented code, and the
mark above a signature.
"""
_OWN_COLON: Final = re.compile(
    r"\b(?:remember|note|keep in mind|rules?|conventions?|from now on|always|never|we|our)\b", re.IGNORECASE
)
"""Words in a line with a final colon which show that its author also wrote what follows."""


@dataclass(frozen=True, slots=True)
class ExchangeMessage:
    """A message or a tool call in an exchange.

    Attributes:
        text: the text; for a call its one-line form: `[tool Bash: make test]`.
        failed: True if the tool reported a failure of the call, False if it succeeded; None if
            there is no report.
        stored: what a call of a Confide tool has stored: (project, path, revision).
        error: the part of a failed call's output that says what failed. No judge but the rules gets
            it.
    """

    role: Literal["user", "assistant", "call"]
    text: str
    failed: bool | None = None
    stored: tuple[str, str, int] | None = None
    error: str = ""

    @property
    def is_foreign(self) -> bool:
        """Return True if this is a call whose answer third parties may have written: a web page, or
        a tool of another MCP server.
        """
        return self.role == "call" and bool(_FOREIGN.match(self.text))


@dataclass(frozen=True, slots=True)
class LearnedExchange:
    """An exchange; `messages` begins with the user's message. `begin` and `end` are offsets in the
    transcript's file.
    """

    begin: int
    end: int
    messages: tuple[ExchangeMessage, ...]
    time: str = ""

    @property
    def user(self) -> str:
        return self.messages[0].text

    @property
    def is_foreign(self) -> bool:
        """Return True if the agent may have read text of third parties in this exchange. That is
        also assumed of an exchange that was cut, since some of its calls are unknown.
        """
        return len(self.messages) >= _MOST_SAID or any(said.is_foreign for said in self.messages)

    def list_tainted(self, *, is_before: bool = False) -> list[tuple[str, str, int]]:
        """List what the agent stored in this exchange after it had read text of third parties
        (docs/agents.md), as (project, path, revision).

        `is_before` is True if it had read such text before this exchange.
        """
        first = next((at for at, said in enumerate(self.messages) if is_before or said.is_foreign), len(self.messages))
        return [said.stored for said in self.messages[first:] if said.stored is not None]


@dataclass(slots=True)
class Reading:
    """The exchanges that were read from a transcript.

    Attributes:
        exchanges: the exchanges; the last one may continue in the file.
        end: the offset in the file where reading ended.
        is_full: True if more may follow in the file.
        unknown_entries: number of lines that were broken, too long, or of an unknown kind.
        secrets: the secrets that were sealed; the daemon needs those that a kept text refers to.
    """

    exchanges: list[LearnedExchange] = field(default_factory=list)
    end: int = 0
    is_full: bool = False
    unknown_entries: int = 0
    secrets: dict[str, Secret] = field(default_factory=dict, repr=False)


def typed_part(text: str) -> str:
    """Return the part of a message that its sender typed. If the message contains pasted text, that
    is the first paragraph, up to the beginning of the pasted text.
    """
    lines = FENCE.sub(f"\n{_FENCED}\n", text).strip().split("\n")
    pasted = next((at for at, line in enumerate(lines) if _PASTED.match(line)), None)
    if pasted is None:
        pasted = next((at + 1 for at, line in enumerate(lines) if _announces(line, lines[at + 1 :])), None)
    said = [line for line in lines if line.strip() not in ("", _FENCED)]
    if pasted is None and len(said) <= _MOST_TYPED_LINES:
        return text
    own = "\n".join(line for line in lines[:pasted] if line != _FENCED).strip().split("\n")
    own = own[: next((at for at, line in enumerate(own) if not line.strip()), len(own))]
    if len(own) > _MOST_TYPED_LINES:
        own = own[:1]  # no blank line shows where the pasted text begins
    # Text after an announcing colon is someone else's.
    own = own[: next((at + 1 for at, line in enumerate(own) if line.rstrip().endswith(":")), len(own))]
    return "\n".join(own)


def _announces(line: str, behind: list[str]) -> bool:
    """Return True if a line announces quoted text, such as `The ticket:`. A code fence marks its
    own end, so it does not count.
    """
    follows = next((each for each in behind if each.strip()), _FENCED)
    return line.rstrip().endswith(":") and follows != _FENCED and not _OWN_COLON.search(line)


def read(fd: int, parser: Parser, begin: int, sealer: Sealer) -> Reading:
    """Read the exchanges that follow the offset `begin` of a transcript, at most `READ_BYTES` or
    `MOST_EXCHANGES`. Blocks.

    Raises OSError if the file cannot be read, and KeyFileError if the device's key for sealing
    cannot be used.
    """
    reading = Reading(end=begin)
    open_exchange = _Open(begin)
    for end, line in whole_lines(fd, begin):
        try:
            if line is None:
                raise UnknownLineError("too long")
            entry = parser.parse(line) if line.strip() else None
        except UnknownLineError:
            reading.unknown_entries += 1
            entry = None
        if entry is not None:
            if entry.role == "user" and not entry.text.startswith(_INTERRUPTED):
                if open_exchange.messages:
                    reading.exchanges.append(open_exchange.close(reading.end))
                    if len(reading.exchanges) >= MOST_EXCHANGES or reading.end - begin >= READ_BYTES:
                        reading.is_full = True
                        return reading
                open_exchange = _Open(reading.end, entry.time)
            open_exchange.take(entry, sealer, reading)
        reading.end = end
        if end - begin >= 4 * READ_BYTES:  # cut the exchange of an agent that works for hours
            reading.is_full = True
            break
    if open_exchange.messages:
        reading.exchanges.append(open_exchange.close(reading.end))
    return reading


class _Open:
    """An exchange that is still being read."""

    def __init__(self, begin: int, time: str = "") -> None:
        self.messages: list[ExchangeMessage] = []
        self._begin = begin
        self._time = time
        self._calls: dict[str, int] = {}

    def take(self, entry: ParsedLine, sealer: Sealer, reading: Reading) -> None:
        for outcome in entry.outcomes:
            if (at := self._calls.pop(outcome.call, None)) is not None:
                called = self.messages[at].text
                stored = outcome.stored if _OURS.match(called) and not outcome.failed else None
                error = _seal(outcome.error, sealer, reading) if outcome.error else ""
                self.messages[at] = ExchangeMessage("call", called, outcome.failed, stored, error)
        if not entry.role or not entry.text or len(self.messages) >= _MOST_SAID:
            return
        if entry.role == "assistant" and not self.messages:
            return  # belongs to an exchange that began earlier
        lines = {line for _id, line in entry.calls}
        spoken = "\n\n".join(part for part in entry.text.split("\n\n") if part not in lines)
        if spoken and (text := _seal(spoken, sealer, reading)):
            self.messages.append(ExchangeMessage(entry.role, text))
        elif entry.role == "user":
            self.messages.append(ExchangeMessage("user", ""))  # the text is withheld, but an exchange still begins
        for call, line in entry.calls:
            if text := _seal(line, sealer, reading):
                self._calls[call] = len(self.messages)
                self.messages.append(ExchangeMessage("call", text))

    def close(self, end: int) -> LearnedExchange:
        return LearnedExchange(self._begin, end, tuple(self.messages), self._time)


def _seal(text: str, sealer: Sealer, reading: Reading) -> str:
    try:
        # Seal before cutting: half of a credential might not be recognized.
        sealed = sealer.seal(text, "transcripts", is_sensitive=False)
    except BlockedError:
        return ""
    reading.secrets.update(secrets_of(sealed))
    return sealed.text[:MAX_TEXT_CHARS]


def secrets_of(sealed: Sealed) -> dict[str, Secret]:
    """Return the secrets of a sealed text by their placeholders."""
    by_value = {(secret.kind, secret.value): secret for secret in sealed.secrets}
    found = {}
    for placeholder, value in sealed.values.items():
        kind = placeholder.split(":")[1]
        if secret := by_value.get((kind, value.encode("utf-8", "surrogatepass"))):
            found[placeholder] = secret
    return found


LEAST_EXCHANGES: Final = 3
"""Fewest exchanges of a session that gets a note of its own."""
_MOST_SUMMARY_CHARS: Final = 4_000
_ASKED_CHARS: Final = 200
_TITLE_CHARS: Final = 50
_SAID_CHARS: Final = 600
_TAIL_BYTES: Final = 2 * 2**20
_BLOCKS: Final = re.compile(
    r"<(analysis|system-reminder|confide-memory|hook_context)\b[^>]*>.*?(?:</\1>|\Z)", re.DOTALL
)
"""Parts of a client's summary that do not belong to the summary itself."""
_TAGS: Final = re.compile(r"</?summary>")


def summary_of(
    fd: int, parser: Parser, sealer: Sealer, compacted: str, day: str, *, is_tainted: bool
) -> tuple[str, Reading | None]:
    """Return the text of a session's note, or "" if the session needs none, and the exchanges from
    which it was made if they have secrets, else None. Blocks.

    Args:
        compacted: the client's own summary, not sealed yet.
        day: the day of that summary.
        is_tainted: True if the agent has read text of third parties and may repeat it; its last
            words are then left out.

    Raises OSError if the file cannot be read, KeyFileError if the device's key for sealing cannot
    be used, and BlockedError if the policy blocks a credential.
    """
    if compacted:
        text = _TAGS.sub("", _BLOCKS.sub("", compacted)).strip()
        sealed = sealer.seal(text, "transcripts", is_sensitive=False)
        reading = Reading(secrets=secrets_of(sealed))
        return (
            f"Session of {day}, as the client summed it up\n\n{_clip(sealed.text, _MOST_SUMMARY_CHARS)}",
            reading,
        )
    size = os.fstat(fd).st_size
    first = read(fd, parser, 0, sealer)
    last = first
    if first.is_full:
        begin = max(first.end, size - _TAIL_BYTES)
        begin += portable.read_at(fd, _TAIL_BYTES, begin).find(b"\n") + 1
        last = read(fd, parser, begin, sealer)
    is_tainted = is_tainted or any(each.is_foreign for each in (*first.exchanges, *last.exchanges))
    exchanges = [
        each for each in first.exchanges if typed_part(each.user).strip() and not each.user.startswith(("/", "!"))
    ]
    if len(exchanges) < LEAST_EXCHANGES:
        return "", None
    said = "" if is_tainted else _last_words(last.exchanges) or _last_words(first.exchanges)
    asked = [f"- {_clip(_line(typed_part(each.user)), _ASKED_CHARS)}" for each in (exchanges[0], exchanges[-1])]
    day = exchanges[0].time[:10] or day
    head = f"Session of {day}: {_clip(_line(typed_part(exchanges[0].user)), _TITLE_CHARS)}"
    lines = [head, "\nAsked first and last:\n", *dict.fromkeys(asked)]
    if said:
        lines.append(f"\nSaid at the end: {_clip(_line(said), _SAID_CHARS)}")
    return "\n".join(lines), Reading(secrets={**first.secrets, **last.secrets})


def _last_words(exchanges: list[LearnedExchange]) -> str:
    return next(
        (said.text for each in reversed(exchanges) for said in reversed(each.messages) if said.role == "assistant"), ""
    )


def _line(text: str) -> str:
    return " ".join(text.split())


def _clip(text: str, most: int) -> str:
    """Cut a text at the end of a word and never inside a placeholder."""
    if len(text) <= most:
        return text
    cut = text[:most].rpartition(" ")[0] or text[:most]
    open_at = cut.rfind("(sealed:")
    if open_at >= 0 and ")" not in cut[open_at:]:
        cut = cut[:open_at]
    return f"{cut.rstrip()} …"
