"""Seal a text by replacing its credentials with placeholders, and restore the local file from them.

A placeholder names an encrypted record (PROTOCOL.md 10.4). A credential is redacted instead if the
user has configured that, or if this device has no keys yet; its placeholder then carries this
device's own fingerprint, so that the source file keeps the value through any change from the
daemon. The same text always seals to the same text, so that sealed texts can be compared.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from confide_crypto.errors import KeyFileError
from confide_crypto.keys.private_files import read_private_file, write_private_file
from confide_crypto.sealing import placeholder as placeholders
from confide_crypto.sealing.placeholder import KIND_PATTERN, STANDIN, Placeholder
from confide_crypto.sealing.record import MAX_VALUE
from confide_crypto.sealing.space_keys import SpaceKeys
from confide_memory import markdown_blocks
from confide_proxy.config import Policy
from confide_proxy.errors import BlockedError, UnsealableError
from confide_proxy.sealing import addresses
from confide_proxy.sealing.detection import scanner
from confide_proxy.sealing.detection.finding import SecretFinding
from confide_proxy.sealing.known_values import KnownValues, merge_findings

NOTE: Final = "note"
"""Kind of a whole text that is marked as sensitive."""
_REDACTED: Final = re.compile(rf"\(redacted:({KIND_PATTERN}):([0-9a-f]{{24}})\)")
_PLACEHOLDER_LINE: Final = re.compile(rf"^(?:{STANDIN.pattern}[ \t]*)+\r?$", re.MULTILINE)
_WORD: Final = re.compile(r"\w+")
_MAY_WAIT: Final = frozenset({"files", "transcripts"})
"""Sources whose plaintext stays on this device, so that redacted values can be sealed later. An
agent's call comes only once.
"""
KEY_BYTES: Final = 32
_DIGEST_BYTES: Final = 12
_PERSON: Final = b"confide-finding"


class Secret(NamedTuple):
    """A value to seal, and its kind (PROTOCOL.md 10.3). The repr doesn't show the value."""

    kind: str
    value: bytes

    def __repr__(self) -> str:
        return f"Secret({self.kind}, {len(self.value)} bytes)"


@dataclass(frozen=True, slots=True)
class Sealed:
    """A text in the form in which it is sent.

    Attributes:
        text: the text with a placeholder for each credential.
        secrets: the secrets whose encrypted records must reach the daemon before the text.
        values: the value of each placeholder.
    """

    text: str
    secrets: tuple[Secret, ...] = field(default=(), repr=False)
    values: Mapping[str, str] = field(default_factory=dict, repr=False)


class Sealer:
    """Seals and restores the texts of one space. Safe to use from several threads."""

    def __init__(
        self,
        policy: Policy,
        keys: Callable[[], SpaceKeys | None],
        fingerprints: Callable[[], Fingerprints],
        known: KnownValues | None = None,
    ) -> None:
        """`keys` returns the space's keys, or None while this device may not seal. `fingerprints`
        is called on first use.

        `known` holds values to find again; sealed values are added to it.
        """
        self._policy = policy
        self._keys = keys
        self._fingerprints = fingerprints
        self._known_values = known

    @property
    def known_count(self) -> int:
        """Number of known secret values. If it has grown, a text that was checked before may
        contain one of the new ones.
        """
        return self._known_values.count if self._known_values is not None else 0

    def fingerprint(self, kind: str, value: str) -> str:
        """Return the keyed hash of a value. The user's configuration allows a value by it, and
        placeholders of redacted values contain it.
        """
        return self._fingerprints().of(kind, value)

    def knows(self, said: Any) -> bool:
        """Return True if a JSON value contains a known secret value. May take a while."""
        return self._known_values is not None and self._known_values.are_in(said)

    def marks(self, text: str, source: str) -> list[tuple[int, int, str, str]]:
        """Return what `seal` would replace, in order: start and end (in characters), the kind of
        credential, and the policy's action.
        """
        found = []
        for each in scanner.outside(text, self._findings(text)):
            value = text[each.start : each.end]
            fingerprint = self.fingerprint(each.kind, value) if self._policy.allow else None
            action = self._policy.action(source, each.confidence, fingerprint)
            if action != "allow":
                found.append((each.start, each.end, each.kind, action))
        return found

    def seal(self, text: str, source: str, *, is_sensitive: bool | None = None, is_lookup: bool = False) -> Sealed:
        """Replace the credentials in a text as the user's policy says.

        Args:
            source: kind of text by which the policy applies, one of `policy.SOURCES`.
            is_sensitive: True to seal all but the front matter; None to do so only if the front
                matter says so.
            is_lookup: True if the text is a query and isn't stored. Credentials that cannot be
                sealed are then redacted.

        Raises:
            BlockedError: the text contains a credential that the policy blocks.
            UnsealableError: this device cannot seal a value now, and the text cannot wait.
            KeyFileError: the key of this device's fingerprints is unusable.
        """
        is_whole = markdown_blocks.is_sensitive(text) if is_sensitive is None else is_sensitive
        count = self.known_count
        sealed = self._seal(text, source, is_whole=is_whole, is_lookup=is_lookup)
        if self._known_values is None or is_lookup or not sealed.secrets:
            return sealed
        self._known_values.remember(sealed.secrets)
        # The same text always seals to the same text, including occurrences before the one that
        # reveals a value.
        return self._seal(text, source, is_whole=is_whole) if self.known_count > count else sealed

    def _seal(self, text: str, source: str, *, is_whole: bool, is_lookup: bool = False) -> Sealed:
        making = _Making(self, self._keys(), source, may_redact=is_lookup or source in _MAY_WAIT)
        if not is_whole:
            return making.seal(self._parts(text, making))
        begin = markdown_blocks.end_of_front_matter(text)
        return making.seal([*self._parts(text[:begin], making), *_whole(text, begin, making)])

    def seal_whole(self, text: str, source: str, *, is_lookup: bool = False) -> Sealed:
        """Seal all of a text, including what looks like front matter. Raises the same errors as
        `seal`.
        """
        making = _Making(self, self._keys(), source, may_redact=is_lookup or source in _MAY_WAIT)
        return making.seal(list(_whole(text, 0, making)))

    def restore(self, text: str, values: Mapping[str, str], source: str, *, before: str | None = None) -> str:
        """Replace placeholders by their values, except values that would then be sent in clear.

        A credential may be recognizable only by the text around it, so in another device's text it
        may be where no rule finds it. A value is also not restored inside an address that another
        device wrote (`addresses`). `before` is the sealed text of the local file; None if the text
        is this device's own.

        Raises the same errors as `seal`.
        """
        if before is not None and (kept := list(addresses.moved_placeholders(text, before))):
            return _around(text, kept, lambda part: self.restore(part, values, source))
        remaining = dict(values)
        while remaining:
            restored = _restore(text, remaining)
            if restored == text:
                return text
            again = self.seal(restored, source).text
            bare = _bare(again, text, remaining)
            if not bare:
                return restored
            for placeholder in bare:
                del remaining[placeholder]
        return text

    def _parts(self, text: str, making: _Making) -> Iterator[str]:
        end = 0
        policy = self._policy
        for found in scanner.outside(text, self._findings(text)):
            value = text[found.start : found.end]
            fingerprint = self.fingerprint(found.kind, value) if policy.allow else None
            action = policy.action(making.source, found.confidence, fingerprint)
            if action == "allow":
                continue
            if action == "block":
                raise BlockedError(found.kind, text.count("\n", 0, found.start) + 1)
            yield text[end : found.start]
            yield making.put(action, found.kind, value)
            end = found.end
        yield text[end:]

    def _findings(self, text: str) -> list[SecretFinding]:
        found = scanner.scan(text, self._policy.min_confidence)
        if self._known_values is None or not (known := self._known_values.find(text)):
            return found

        return merge_findings(found, known)


class _Making:
    def __init__(self, sealer: Sealer, keys: SpaceKeys | None, source: str, *, may_redact: bool) -> None:
        self.source = source
        self._keys = keys
        self._may_redact = may_redact
        self._sealer = sealer
        self._secrets: dict[Secret, None] = {}
        self._values: dict[str, str] = {}

    def put(self, action: str, kind: str, value: str) -> str:
        data = value.encode("utf-8", "surrogatepass")
        if action == "seal" and self._keys is not None and len(data) <= MAX_VALUE:
            placeholder = str(Placeholder(kind, self._keys.secret_id(kind, data)))
            self._secrets[Secret(kind, data)] = None
        elif action == "seal" and not self._may_redact:
            raise UnsealableError(kind)
        else:
            placeholder = f"(redacted:{kind}:{self._sealer.fingerprint(kind, value)})"
        self._values[placeholder] = value
        return placeholder

    def seal(self, parts: Iterator[str] | list[str]) -> Sealed:
        text = "".join(parts)  # first: generating the parts creates the placeholders
        return Sealed(text, tuple(self._secrets), self._values) if self._values else Sealed(text)


def _around(text: str, spans: list[tuple[int, int]], work: Callable[[str], str]) -> str:
    """Apply `work` to a text and leave these spans unchanged."""
    marks = {f"\ue000{number}\ue001": text[start:end] for number, (start, end) in enumerate(spans)}
    parts, at = [], 0
    for mark, (start, end) in zip(marks, spans, strict=True):
        parts += [text[at:start], mark]
        at = end
    made = work("".join([*parts, text[at:]]))
    for mark, placeholder in marks.items():
        made = made.replace(mark, placeholder)
    return made


def _restore(text: str, values: Mapping[str, str]) -> str:
    # Redactions first: restored values aren't searched again, and only a sealed value can contain a
    # redaction.
    without = _REDACTED.sub(lambda found: values.get(found[0], found[0]), text)
    return placeholders.replace(without, lambda placeholder: values.get(str(placeholder)))


def _bare(again: str, text: str, values: Mapping[str, str]) -> list[str]:
    """Return the placeholders of values that are partly in clear in `again` and not in `text`.

    A part is enough: a note that is no longer sensitive may contain a token that still must be
    sealed.
    """
    added = Counter(_WORD.findall(STANDIN.sub(" ", again))) - Counter(_WORD.findall(STANDIN.sub(" ", text)))
    bare = []
    for placeholder, value in values.items():
        words = _WORD.findall(STANDIN.sub(" ", value))
        # Only values without words are counted: each count scans both texts, and there may be tens
        # of thousands.
        if any(word in added for word in words) or (not words and again.count(value) > text.count(value)):
            bare.append(placeholder)
    return bare or (list(values) if added else [])


def _whole(text: str, begin: int, making: _Making) -> Iterator[str]:
    """Seal the text from `begin` on: each part between lines of placeholders is one secret, without
    surrounding blank lines.
    """
    at = begin
    for line in _PLACEHOLDER_LINE.finditer(text, begin):
        yield from _piece(text[at : line.start()], making)
        yield line[0]
        at = line.end()
    yield from _piece(text[at:], making)


def _piece(text: str, making: _Making) -> Iterator[str]:
    core = text.strip()
    if not core:
        yield text
        return
    start = len(text) - len(text.lstrip())
    yield text[:start]
    yield making.put("seal", NOTE, core)
    yield text[start + len(core) :]


class Fingerprints:
    """Names for credentials, so that the configuration can allow one without containing it. `key`
    is this device's, 32 bytes.

    A fingerprint is BLAKE2b-96 of kind and value, keyed with random bytes that never leave this
    device. A reader of the configuration, which people share as dotfiles, could guess a short
    password from a plain hash; a keyed one reveals nothing without the key. In return, a credential
    has another fingerprint on each device and must be allowed on each.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key

    def of(self, kind: str, value: str) -> str:
        """Return the fingerprint of a credential, 24 hex digits."""
        data = kind.encode() + b"\0" + value.encode("utf-8", "surrogatepass")
        return hashlib.blake2b(data, digest_size=_DIGEST_BYTES, key=self._key, person=_PERSON).hexdigest()


def load_fingerprints(path: Path) -> Fingerprints:
    """Load the fingerprint key from a file of mode 0600; create it if it doesn't exist.

    Raises KeyFileError if others can read the file, or if it is damaged, unreadable or cannot be
    created.
    """
    if not path.exists():
        with suppress(FileExistsError):  # another process was first
            write_private_file(path, os.urandom(KEY_BYTES))
    key = read_private_file(path)
    if len(key) != KEY_BYTES:
        raise KeyFileError(path, "is damaged", hint="delete it, and allow again what confide secrets scan shows")
    return Fingerprints(key)
