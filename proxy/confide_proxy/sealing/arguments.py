"""What an agent says, as it may leave the machine: each string of a JSON value sealed, by itself and by the name that it stands under.

Pure: no I/O but the key of this machine's fingerprints. What gives no reason to look closer costs microseconds and imports nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from confide_proxy.errors import ToolError
from confide_proxy.sealing.detection import prefilter

if TYPE_CHECKING:
    from confide_proxy.sealing.detection.scanner import Repeats
    from confide_proxy.sealing.sealer import Sealed, Sealer, Secret

MAX_DEPTH: Final = 64
"""Of arguments; the daemon takes less."""
_LONGEST_NAMED: Final = 512
"""Of a value that only its name makes a credential, as the detector has it."""
_QUOTES: Final = ("'", '"', "`")
_OWN_NAMES: Final = frozenset({"keywords", "maxTokens", "max_tokens"})
"""Of parameters of ours, which sound like those of credentials and are none."""
_PAIRS: Final = (("name", "value"), ("key", "value"))
"""`{"name": "DB_PASSWORD", "value": …}`"""


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
        sealed: dict[str, Any] = {}
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
