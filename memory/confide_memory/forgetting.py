"""Records of forgotten texts: both ends use their keyed hashes to recognize a deleted text that
must not be stored again, without keeping the text (PROTOCOL.md 9.11).

A *part* is a run of at most eight words of one line. A text that contains a part contains a
forgotten text, even if blanks, punctuation or capitals differ. A line is cut into parts at every
eighth word, and its last part ends with its last word. So every copy of a line is found, and every
passage of fifteen words. The hashes use a key of the space, so someone who has only the record
cannot use it to test a guess.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, NamedTuple, Self

from confide_crypto.keys.identity import KEY_LENGTH, SIGNATURE_LENGTH, Identity, verify
from confide_memory.documents import text_hash
from confide_memory.errors import ReceiptError, UnfitAnswerError
from confide_memory.globs import is_glob, matches, normal

PART_WORDS: Final = 8
LEAST_CHARS: Final = 12
"""Letters and digits in the shortest part. A shorter one would stop texts that only look alike."""
LEAST_TEXT: Final = 24
"""Characters of the shortest text that is recognized as a whole."""
NAME_BYTES: Final = 16
_FIRST: Final = 4
_HASH: Final = 11
_PART: Final = 1 + _FIRST + _HASH
MOST_NAMES: Final = 1024
MOST_TEXTS: Final = 4096
MOST_PARTS: Final = 16_384
MOST_SEALED: Final = 4096
MOST_RECORD: Final = 1 << 20
"""Bytes of a record."""
LABEL: Final = b"confide forget record 1"
RECEIPT_LABEL: Final = b"confide forget receipt 1"
_WORD: Final = re.compile(r"[぀-ヿ㐀-鿿가-힯]|[^\W_぀-ヿ㐀-鿿가-힯]+")
"""A word; scripts without blanks between words give one word a character."""


class ForgetPart(NamedTuple):
    """A run of words of a forgotten text: the number of words, the start of the first word's hash,
    and the hash of all words.
    """

    words: int
    first: bytes
    hash: bytes

    def pack(self) -> bytes:
        return bytes([self.words]) + self.first + self.hash


class Word(NamedTuple):
    """A word in lower case, and its position in the text."""

    word: str
    start: int
    end: int


def new_key(random: bytes) -> bytes:
    """Derive the key for the hashes in a space's records of forgotten texts from 32 random bytes."""
    return hashlib.blake2b(random, digest_size=KEY_LENGTH, person=b"confide-forget").digest()


def key_id(key: bytes) -> bytes:
    """Return an identifier of a key, 8 bytes, which does not reveal the key."""
    return _keyed_hash(b"key", b"", key, 8)


def name_hash(key: bytes, project: str, path: str) -> bytes:
    """Return the keyed hash of the name of a document or folder; the path "" names the whole
    project.
    """
    return _keyed_hash(b"name", f"{project}\0{path}".encode(errors="surrogatepass"), key, NAME_BYTES)


def names_of(key: bytes, project: str, path: str) -> list[bytes]:
    """Return the keyed hashes of a document's name and of all its folders; the first is the hash of
    the whole project.
    """
    parts = path.split("/")
    return [name_hash(key, project, "/".join(parts[:count])) for count in range(len(parts) + 1)]


def whole_hash(key: bytes, content: str) -> bytes:
    """Return the keyed hash of a whole text, 16 bytes. `content` is the text's own hash (`text_hash`)."""
    return _keyed_hash(b"text", content.encode(), key, NAME_BYTES)


def _keyed_hash(kind: bytes, data: bytes, key: bytes, size: int) -> bytes:
    return hashlib.blake2b(data, digest_size=size, key=key, person=kind).digest()


def words_in(text: str) -> list[Word]:
    """Return the words of a text in order. In scripts without blanks between words, each character
    is a word.
    """
    return [Word(found[0].casefold(), found.start(), found.end()) for found in _WORD.finditer(text)]


class Hashes:
    """Computes keyed hashes of words, with a cache for single words."""

    def __init__(self, key: bytes) -> None:
        self.key = key
        self._first: dict[str, bytes] = {}

    def first(self, word: str) -> bytes:
        """Return the first bytes of a word's keyed hash."""
        found = self._first.get(word)
        if found is None:
            if len(self._first) > 100_000:
                self._first.clear()
            found = self._first[word] = _keyed_hash(b"word", word.encode(errors="surrogatepass"), self.key, _FIRST)
        return found

    def part(self, words: Iterable[str]) -> ForgetPart:
        """Return the hashed part for a run of words, which must not be empty."""
        run = list(words)
        text = " ".join(run).encode(errors="surrogatepass")
        return ForgetPart(len(run), self.first(run[0]), _keyed_hash(b"part", text, self.key, _HASH))

    def of_text(self, text: str) -> list[ForgetPart]:
        """Cut a text into runs of words, and return their hashes in order. Runs that are too short
        are left out.
        """
        found: dict[ForgetPart, None] = {}
        for line in text.splitlines():
            words = [one.word for one in words_in(line)]
            starts = [*range(0, len(words) - PART_WORDS, PART_WORDS), max(0, len(words) - PART_WORDS)]
            for start in starts if words else ():
                run = words[start : start + PART_WORDS]
                if sum(map(len, run)) >= LEAST_CHARS:
                    found[self.part(run)] = None
        return list(found)


class PartSet:
    """A set of forgotten runs of words (parts), to find in texts."""

    def __init__(self, key: bytes, parts: Iterable[ForgetPart]) -> None:
        self._hashes = Hashes(key)
        self._parts = frozenset(parts)
        self._lengths: dict[bytes, set[int]] = {}
        for part in self._parts:
            self._lengths.setdefault(part.first, set()).add(part.words)

    def __bool__(self) -> bool:
        return bool(self._parts)

    def find(self, text: str) -> Iterator[tuple[ForgetPart, int, int]]:
        """Yield each part of this set that the text contains, with its start and end in characters."""
        if not self._parts:
            return
        words = words_in(text)
        for at, word in enumerate(words):
            for length in self._lengths.get(self._hashes.first(word.word), ()):
                if at + length > len(words):
                    continue
                run = words[at : at + length]
                part = self._hashes.part(one.word for one in run)
                if part in self._parts:
                    yield part, run[0].start, run[-1].end

    def is_in(self, text: str) -> bool:
        """Return True if the text contains any of the forgotten parts in this set."""
        return next(self.find(text), None) is not None

    def cut(self, text: str) -> str:
        """Remove from the text all parts of this set. A line that then has only punctuation left is
        removed too.
        """
        spans: list[tuple[int, int]] = []
        for _, start, end in self.find(text):
            if spans and start <= spans[-1][1]:
                spans[-1] = spans[-1][0], max(end, spans[-1][1])
            else:
                spans.append((start, end))
        if not spans:
            return text
        kept, at = [], 0
        for start, end in spans:
            kept.append(text[at:start] + _CUT)
            at = end
        lines = ("".join(kept) + text[at:]).splitlines(keepends=True)
        left = [line for line in lines if _CUT not in line or _WORD.search(line)]
        return "".join(left).replace(_CUT, "")


_CUT: Final = "\x01"


@dataclass(frozen=True, slots=True)
class ForgetRecord:
    """A record of texts that a device has had forgotten, as keyed hashes.

    Attributes:
        id: 16 random bytes.
        space: the id of the space.
        at: the time, in seconds since 1970.
        by: the Ed25519 key of the device.
        key_id: identifies the key of the hashes.
        names: hashes of the names of documents, folders and projects that are forgotten with all
            their revisions.
        texts: hashes of whole texts.
        parts: hashed runs of words.
        of_parts: the number of parts before the limit was applied.
        sealed: ids of sealed records that were used nowhere else.
        file: True if the files on the devices are to be deleted or changed too.
    """

    id: bytes
    space: str
    at: int
    by: bytes
    key_id: bytes
    names: tuple[bytes, ...] = ()
    texts: tuple[bytes, ...] = ()
    parts: tuple[ForgetPart, ...] = ()
    of_parts: int = 0
    sealed: tuple[bytes, ...] = ()
    file: bool = False

    @property
    def signed_again_id(self) -> bytes:
        """The id of this record after another device has signed it, because the device that made it
        was removed. It is the same for every signing device.
        """
        return hashlib.blake2b(self.id, digest_size=16, person=b"confide-forget-2").digest()

    def encode(self) -> bytes:
        """Return the record as bytes, in the only valid form. These bytes are signed."""
        return canonical(
            {
                "version": 1,
                "id": self.id.hex(),
                "space": self.space,
                "at": self.at,
                "by": self.by.hex(),
                "keyId": self.key_id.hex(),
                "names": _pack(self.names),
                "texts": _pack(self.texts),
                "parts": _pack(part.pack() for part in self.parts),
                "ofParts": self.of_parts,
                "sealed": _pack(self.sealed),
                "file": self.file,
            }
        )

    @classmethod
    def parse(cls, data: bytes) -> Self:
        """Parse a record. Raises UnfitAnswerError if it differs in any byte from the form that
        `encode` gives.
        """
        try:
            body = json.loads(data)
            packed = _split(body["parts"], _PART, MOST_PARTS)
            found = cls(
                id=_bytes(body["id"], 16),
                space=_text(body["space"]),
                at=_whole(body["at"]),
                by=_bytes(body["by"], KEY_LENGTH),
                key_id=_bytes(body["keyId"], 8),
                names=_split(body["names"], NAME_BYTES, MOST_NAMES),
                texts=_split(body["texts"], NAME_BYTES, MOST_TEXTS),
                parts=tuple(map(_part, packed)),
                of_parts=_whole(body["ofParts"]),
                sealed=_split(body["sealed"], 16, MOST_SEALED),
                file=body["file"] is True,
            )
            if len(data) > MOST_RECORD or found.encode() != data:
                raise ValueError
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise UnfitAnswerError from None
        return found

    def sign(self, identity: Identity) -> SignedRecord:
        """Return the record with a signature by `identity`, the device that made it."""
        data = self.encode()
        return SignedRecord(data, identity.sign(LABEL, data))


@dataclass(frozen=True)
class SignedRecord:
    """A record of forgotten texts with its signature: the bytes that are stored and sent, and the
    signature of the device that made it.
    """

    data: bytes
    signature: bytes

    @cached_property
    def record(self) -> ForgetRecord:
        """The parsed record. Raises UnfitAnswerError if it is malformed."""
        return ForgetRecord.parse(self.data)

    @property
    def body(self) -> dict[str, Any]:
        """The content of the record as a JSON object."""
        found: dict[str, Any] = json.loads(self.data)
        return found

    @property
    def is_signed(self) -> bool:
        """True if the signature is valid and by the device that the record names."""
        return verify(self.record.by, LABEL, self.data, self.signature)


@dataclass
class ForgetGuard:
    """Recognizes forgotten names and texts, by the records whose hashes use one key of a space.

    Attributes:
        key: the key of the hashes; records with another key are ignored.
        records: the records of forgotten texts.
        lifted: hashes of names, texts and parts that a person has allowed to be stored again.
    """

    key: bytes
    records: list[ForgetRecord] = field(default_factory=list)
    lifted: frozenset[bytes] = frozenset()

    def __post_init__(self) -> None:
        mine = [one for one in self.records if one.key_id == key_id(self.key)]
        self.names = frozenset(name for one in mine for name in one.names) - self.lifted
        self.texts = frozenset(text for one in mine for text in one.texts) - self.lifted
        parts = [part for one in mine for part in one.parts if part.hash not in self.lifted]
        self.parts = PartSet(self.key, parts)
        of_files = [one for one in mine if one.file]
        self._texts_of_files = frozenset(text for one in of_files for text in one.texts) - self.lifted
        self._parts_of_files = frozenset(part.hash for one in of_files for part in one.parts)

    def __bool__(self) -> bool:
        return bool(self.names or self.texts or self.parts)

    def has_name(self, project: str, path: str) -> bool:
        """Return True if a document of this name, or a folder around it, was forgotten."""
        return bool(self.names) and not self.names.isdisjoint(names_of(self.key, project, path))

    def has_content(self, content: str) -> bool:
        """Return True if the whole text with this `text_hash` was forgotten."""
        return bool(self.texts) and whole_hash(self.key, content) in self.texts

    def is_in(self, text: str) -> bool:
        """Return True if the text as a whole, or a part of it, was forgotten."""
        return self.has_content(text_hash(text)) or self.parts.is_in(text)

    def cut(self, text: str) -> str:
        """Return the text without its forgotten parts; "" if the whole text was forgotten."""
        left = self.parts.cut(text)
        return "" if left == text and self.has_content(text_hash(text)) else left

    def is_file_wanted(self, content: str) -> bool:
        """Return True if a device that still has a file with this text should delete or change the
        file. `content` is the text's `text_hash`.
        """
        return bool(self._texts_of_files) and whole_hash(self.key, content) in self._texts_of_files

    def may_cut(self, text: str) -> bool:
        """Return True if a file with this text may be changed: it contains forgotten parts, and the
        user asked for all of them to be removed from files too.
        """
        found = [part for part, _, _ in self.parts.find(text)]
        return bool(found) and all(part.hash in self._parts_of_files for part in found)

    def hashes_in(self, text: str) -> frozenset[bytes]:
        """Return the hashes of all forgotten parts in the text, and of the whole text if it was
        forgotten as a whole.
        """
        parts = {part.hash for part, _, _ in self.parts.find(text)}
        whole = whole_hash(self.key, text_hash(text))
        return frozenset(parts | ({whole} & self.texts))


def hash_names(key: bytes, project: str, asked: Iterable[str], documents: Iterable[str]) -> tuple[bytes, ...]:
    """Return the keyed hashes of the document and folder names that a person gave. A glob is
    replaced by the documents that it matches now; no name at all means the whole project.
    """
    given = [normal(name) for name in asked] or [""]
    names = [name for name in given if not is_glob(name)]
    globs = [name for name in given if is_glob(name)]
    names += [path for path in documents if any(matches(path, glob) for glob in globs)]
    return tuple(dict.fromkeys(name_hash(key, project, name) for name in names))


def receipt_of(data: bytes) -> dict[str, Any]:
    """Return the content of a receipt, the signed proof that texts were forgotten.

    Raises ReceiptError if it is malformed, or a signature is not valid.
    """
    try:
        whole = json.loads(data)
        body: dict[str, Any] = whole["receipt"]
        signed = canonical(body)
        device = _bytes(whole["device"], KEY_LENGTH)
        names = {"receipt", "device", "daemonSignature", "deviceSignature"}
        if canonical(whole) != data or whole.keys() != names or body["version"] != 1:
            raise ValueError
        record = SignedRecord(canonical(body["record"]), _signature(body["recordSignature"]))
        is_good = (
            verify(_bytes(body["daemon"], KEY_LENGTH), RECEIPT_LABEL, signed, _signature(whole["daemonSignature"]))
            and verify(device, RECEIPT_LABEL, signed, _signature(whole["deviceSignature"]))
            and record.is_signed
            and bool(body["outOfScope"])
            and all(isinstance(place[name], str) for place in body["places"] for name in ("place", "name", "level"))
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, UnfitAnswerError):
        is_good = False
    if not is_good:
        raise ReceiptError
    return body


def ids_digest(ids: Iterable[bytes]) -> str:
    """Return one hash of the ids of records, which does not depend on their order; "" if there are
    no ids.
    """
    found = b"".join(sorted(ids))
    return hashlib.blake2b(found, digest_size=16, person=b"confide-forgets").hexdigest() if found else ""


def unpacked_parts(packed: bytes) -> list[ForgetPart]:
    """Decode hashed parts from their packed bytes. Raises ValueError if there are too many, or the
    last one is incomplete.
    """
    if len(packed) % _PART or len(packed) > _PART * MOST_PARTS:
        raise ValueError
    return [_part(packed[at : at + _PART]) for at in range(0, len(packed), _PART)]


def hashes_of(packed: bytes) -> tuple[bytes, ...]:
    """Split packed bytes into hashes of names or texts, of `NAME_BYTES` each."""
    return tuple(packed[at : at + NAME_BYTES] for at in range(0, len(packed), NAME_BYTES))


def _part(packed: bytes) -> ForgetPart:
    return ForgetPart(packed[0], packed[1 : 1 + _FIRST], packed[1 + _FIRST :])


def canonical(body: Mapping[str, Any]) -> bytes:
    """Encode an object as JSON in its only valid form: sorted names, no blanks, ASCII, a line end."""
    return json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def _pack(items: Iterable[bytes]) -> str:
    return base64.b64encode(b"".join(items)).decode()


def _split(text: str, size: int, most: int) -> tuple[bytes, ...]:
    data = base64.b64decode(text, validate=True)
    if len(data) % size or len(data) > size * most:
        raise ValueError
    return tuple(data[at : at + size] for at in range(0, len(data), size))


def _bytes(text: str, size: int) -> bytes:
    found = bytes.fromhex(text)
    if len(found) != size or found.hex() != text:  # capitals would be a second form
        raise ValueError
    return found


def _signature(text: str) -> bytes:
    return _bytes(text, SIGNATURE_LENGTH)


def _text(text: object) -> str:
    if not isinstance(text, str) or not 0 < len(text) <= 256:
        raise ValueError
    return text


def _whole(value: object) -> int:
    if type(value) is not int or not 0 <= value < 2**53:
        raise ValueError
    return value
