"""Mask secret values in a stream of bytes, also if they are encoded or arrive in pieces.

A value is found as it is, in base64 at any alignment, in hex, percent encoding, JSON, shell and
HTML escapes, and with blanks, line breaks or colours anywhere in it. The search ignores these. An automaton
(Aho-Corasick) searches for the first bytes of all encodings at once, and the rest is compared where
they occur. Only bytes that may be the beginning of a value are held back.
"""

from __future__ import annotations

import base64
import contextlib
import html
import json
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol
from urllib.parse import quote

from confide_proxy.sealing.maskable import BLANKS, SHORTEST, is_maskable

if TYPE_CHECKING:
    from ahocorasick_rs import BytesAhoCorasick

_SHORTEST_LINE: Final = 12
"""The same for a single line of a longer value."""
_MOST_LINES: Final = 1000
_ANCHOR: Final = SHORTEST
"""Bytes of a form that are compared before the rest of it: all of the shortest one."""
_STRIDES: Final = ((4, 16), (3, 12), (2, 8), (1, 0))
"""By how many bytes a search moves on, for forms of how many bytes: each byte that it reads costs a look
into a table that is larger than the processor's fast memory.
"""
_LONGEST_STRIDE: Final = _STRIDES[0][0]
_MOST_LETTERS: Final = 5
_FIRST: Final = _LONGEST_STRIDE * _MOST_LETTERS
"""Bytes at the beginning of a form by which it is found, at most."""
_MOST_IN_TABLE: Final = 8_000
"""A table of all states is twice as fast as the automaton's usual form, up to this many patterns. It
takes 2 KiB and 5 µs a pattern.
"""
_LEAST_HELD: Final = 4
"""Bytes of a value's beginning that are held back even if no more comes for a while. Fewer would
hold back the ends of prompts; they are passed on, and what follows them is masked.
"""
_LEAST_PART: Final = 16
_MOST_PART: Final = 256
"""The beginning of a form is masked too if it has at least half of its bytes, at least `_LEAST_PART`
or `_MOST_PART` of them: a program may cut its output.
"""
_BLOCKS: Final = (2048, 64)
_MOST_ESCAPED: Final = 64 * 1024
"""Longer values, which are files, are looked for as they are, in base64 and in hex."""
_SHORTEST_WORD: Final = 8
_LONGEST_WORD: Final = 256
_MOST_SEEN: Final = 100_000
_KEPT_IN_ADDRESSES: Final = ("", "/", "!'()*", "!'()*/", "!'()*/:;,?@&=+$#~", "/~")
"""Punctuation that encoders of addresses leave as it is."""
_ADDRESS_SAFE: Final = bytes.maketrans(b"+/", b"-_")
_LETTERS: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_")
_PADDING: Final = 2
_COLOUR: Final = re.compile(rb"\x1b(?:\Z|\[[0-?]*[ -/]*(?:[@-~]|\Z)|[()](?:[0-9A-Za-z]|\Z))")
"""An escape sequence that programs write within a text, as `grep --color` does around a match; also one
without its end. Other sequences, such as links, contain text of their own.
"""
_PUBLIC_LINE: Final = re.compile(rb"-----(?:BEGIN|END) [A-Z0-9 ]+-----")
SHOWN: Final = b"(masked)"
_SPANS = list[tuple[int, int, bytes]]


class _Edges(NamedTuple):
    """The letters of base64 beside a form that have some of the value's bits."""

    before: bool = False
    after: bool = False


def forms(value: bytes) -> set[bytes]:
    """Return a value and its usual encodings (base64, hex, percent encoding, escapes), each without
    blanks.
    """
    found = {value, value.hex().encode(), value.hex().upper().encode()}
    for core, _ in _base64_cores(value):
        address_safe = core.translate(_ADDRESS_SAFE)
        found |= {core, address_safe, core.replace(b"/", b"\\/"), quote(core, safe="").encode()}
    for kept in _KEPT_IN_ADDRESSES if len(value) <= _MOST_ESCAPED else ():
        encoded = quote(value, safe=kept).encode()
        found |= {encoded, encoded.replace(b"%20", b"+"), _lower_escapes(encoded)}
    try:
        text = value.decode() if len(value) <= _MOST_ESCAPED else ""
    except UnicodeDecodeError:
        text = ""
    if text:
        found |= {each.encode("utf-8", "surrogatepass") for each in _escapes(text)}
    collapsed = (each.translate(None, BLANKS) for each in found)
    return {each for each in collapsed if len(each) >= SHORTEST}


def _base64_cores(value: bytes) -> Iterator[tuple[bytes, _Edges]]:
    """Yield the letters of base64 that depend on the value alone, for each alignment."""
    for lead in range(3):
        encoded = base64.b64encode(bytes(lead) + value)
        edges = _Edges(lead > 0, (lead + len(value)) % 3 > 0)
        yield encoded[-(-lead * 8 // 6) : (lead + len(value)) * 8 // 6], edges


def _lower_escapes(encoded: bytes) -> bytes:
    return re.sub(rb"%[0-9A-F]{2}", lambda found: found[0].lower(), encoded)


def _escapes(text: str) -> Iterator[str]:
    ascii_only, readable = (json.dumps(text, ensure_ascii=flag)[1:-1] for flag in (True, False))
    for each in (ascii_only, readable):
        yield each
        yield json.dumps(each)[1:-1]  # JSON in a string of JSON
        yield each.replace("/", "\\/")
        yield re.sub("[<>&']", lambda found: f"\\u{ord(found[0]):04x}", each)
    yield repr(text)[1:-1]
    yield shlex.quote(text).strip("'")
    yield text.replace("'", "'\\''")
    for mark in "'\"":
        yield text.replace("\\", "\\\\").replace(mark, f"\\{mark}")
    yield html.escape(text)
    yield html.escape(text).replace("&#x27;", "&#39;").replace("&quot;", "&#34;")
    yield html.escape(text).replace("&#x27;", "&apos;")
    yield html.escape(text, quote=False)


_NO_EDGES: Final = _Edges()


class SecretForms:
    """The encodings, here called forms, of some secret values, prepared for a fast search."""

    def __init__(self, values: Mapping[bytes, bytes]) -> None:
        """`values` are what to mask, each with what to show instead. Those that are not `is_maskable`
        are left as they are.
        """
        self.masks: dict[bytes, bytes] = {}
        self._edges: dict[bytes, _Edges] = {}
        for value, shown in values.items():
            if is_maskable(value):
                for part in _parts(value):
                    for form in forms(part):
                        self.masks.setdefault(form, shown)
                    for core, edges in _base64_cores(part):
                        self._edges |= {core: edges, core.translate(_ADDRESS_SAFE): edges}
        self._prepare()

    def _prepare(self) -> None:
        self.anchors: dict[bytes, list[bytes]] = {}
        for form in self.masks:
            self.anchors.setdefault(form[:_ANCHOR], []).append(form)
        self.longest = max(map(len, self.masks), default=0)
        self._beginnings: set[bytes] = set()
        self._searches: list[_StridedSearch] = []

    def __bool__(self) -> bool:
        return bool(self.masks)

    def union(self, others: SecretForms) -> SecretForms:
        """Return these forms together with others. Where both have the same form, the mask text of
        these is used.
        """
        both = SecretForms({})
        both.masks = {**others.masks, **self.masks}
        both._edges = {**others._edges, **self._edges}
        both._prepare()
        return both

    def find(self, core: bytes, *, is_end: bool, is_idle: bool = False) -> tuple[_SPANS, int]:
        """Return the positions of forms in a text without blanks, in order and merged, and the
        position at which the first incomplete form begins.

        `is_end` means that no more text follows. `is_idle` means that no more text has come for a
        while; a form that could still grow longer then counts as complete.
        """
        spans: _SPANS = []
        pending = len(core)
        for form, start in self._found(core):
            edges = self._edges.get(form, _NO_EDGES)
            begin = start - (edges.before and start > 0 and core[start - 1] in _LETTERS)
            end = start + len(form)
            is_cut = not is_end and len(core) < end and form.startswith(core[start:])
            if core.startswith(form, start):
                is_cut = edges.after and len(core) <= end + _PADDING and not (is_end or is_idle)
                spans.append((begin, _encoded_end(core, end) if edges.after else end, self.masks[form]))
            elif not is_cut and (length := _part_length(core, start, form)) > 0:
                spans.append((begin, start + length, self.masks[form]))
            pending = min(pending, begin) if is_cut else pending
        return _merged(spans), pending

    def _found(self, core: bytes) -> Iterator[tuple[bytes, int]]:
        """Yield each form whose first `_ANCHOR` bytes are in a text, and where they are, unless it
        can be neither masked there nor cut.
        """
        if not self._searches:
            self._searches = _strided_searches(self.masks)
        for search in self._searches:
            yield from search.found(core)
        for start in range(max(len(core) - _FIRST + 1, 0), len(core) - _ANCHOR + 1):
            for form in self.anchors.get(core[start : start + _ANCHOR], ()):
                yield form, start

    def partial_start(self, core: bytes) -> int:
        """Return the position from which the last bytes of a text without blanks may be the
        beginning of a form; the text's length if they are not.
        """
        if not self._beginnings:
            self._beginnings = {each[:size] for each in self.anchors for size in range(_LEAST_HELD, _ANCHOR)}
        for size in range(min(_ANCHOR - 1, len(core)), _LEAST_HELD - 1, -1):
            if core[-size:] in self._beginnings:
                return len(core) - size
        return len(core)


class _StridedSearch:
    """Looks for forms in every n-th byte of a text, n being the stride.

    Wherever a form begins, every n-th of its own bytes is among those, from one of its first n bytes
    on. So it is looked for by n patterns, and all of it is compared where one of them is found.
    """

    def __init__(self, forms: Sequence[bytes], stride: int) -> None:
        self._forms = forms
        self._stride = stride
        self._automaton: BytesAhoCorasick | None = None

    def found(self, core: bytes) -> Iterator[tuple[bytes, int]]:
        """Yield each form whose beginning is in a text, and where, but for the last `_FIRST` bytes."""
        if self._automaton is None:
            self._automaton = self._built()
        forms, stride = self._forms, self._stride
        for number, at, _ in self._automaton.find_matches_as_indexes(core[::stride], overlapping=True):
            form, start = forms[number // stride], at * stride - number % stride
            if start >= 0 and core.startswith(form[:_ANCHOR], start):
                yield form, start

    def _built(self) -> BytesAhoCorasick:
        from ahocorasick_rs import BytesAhoCorasick, Implementation

        patterns = [pattern for form in self._forms for pattern in _patterns(form, self._stride)]
        is_table = len(patterns) <= _MOST_IN_TABLE
        return BytesAhoCorasick(
            patterns, implementation=Implementation.DFA if is_table else Implementation.ContiguousNFA
        )


def _strided_searches(forms: Iterable[bytes]) -> list[_StridedSearch]:
    """Return the searches for these forms: one for long ones, and one for all others, since two more
    would read more bytes than a single one with the shortest stride.
    """
    strides = {form: _stride(form) for form in forms}
    shortest = min(strides.values(), default=_LONGEST_STRIDE)
    by_stride: dict[int, list[bytes]] = {}
    for form, stride in strides.items():
        by_stride.setdefault(stride if stride == _LONGEST_STRIDE else shortest, []).append(form)
    return [_StridedSearch(found, stride) for stride, found in by_stride.items()]


def _stride(form: bytes) -> int:
    """Return the stride by which a form is searched for: one by which each pattern has different bytes,
    or texts that repeat one byte would be full of it.
    """
    size = _least_length(form)
    return next(
        stride
        for stride, least in _STRIDES
        if size >= least and (stride == 1 or all(len(set(each)) > 1 for each in _patterns(form, stride)))
    )


def _patterns(form: bytes, stride: int) -> Iterator[bytes]:
    """Yield every n-th byte of a form's beginning, from each of its first n bytes on."""
    first = form[: min(_least_length(form), stride * _MOST_LETTERS)]
    return (first[at::stride] for at in range(stride))


class ClearValues(Protocol):
    """A source of further secret values in clear, which may become available while a `Mask` works.
    Until then the mask recognizes them only by its slower function `more`.
    """

    def forms(self, size: int) -> SecretForms | None:
        """Return the forms to mask from now on, or None while the values are not available. `size`
        is the number of bytes that have come since the last call.
        """

    def words(self, text: bytes) -> Iterable[bytes]:
        """Return the words of a text that must still be checked by the mask's function `more`."""


class Mask:
    """Masks secret values in one stream of bytes."""

    def __init__(
        self,
        forms: SecretForms,
        more: Callable[[str], Mapping[bytes, bytes]] | None = None,
        clear: ClearValues | None = None,
    ) -> None:
        """Args:
        more: returns further values that occur in a text, which are masked from then on. It is
            called with the new words of the stream.
        clear: those values in clear, which are found faster than by their words.
        """
        self._forms = forms
        self._more = more
        self._clear = clear
        self._cleared: SecretForms | None = None
        self._seen_words: set[bytes] = set()
        self._unreleased = b""
        self._released_tail = b""
        """The last bytes that were passed on although they may be the beginning of a value."""

    def feed(self, piece: bytes) -> bytes:
        """Add bytes of the stream; return the masked bytes that can be passed on."""
        return self._release(piece)

    @property
    def is_holding(self) -> bool:
        """Return True if bytes are held back, since they may be the beginning of a value."""
        return bool(self._unreleased)

    def idle(self) -> bytes:
        """Return the masked bytes that can be passed on although no more have come for a while: all
        but those that are the beginning of a value.
        """
        return self._release(b"", is_idle=True)

    def end(self) -> bytes:
        """Return the rest of the stream, masked; no more bytes follow."""
        return self._release(b"", is_end=True)

    def whole(self, text: bytes) -> bytes:
        """Mask a complete text that is no part of the stream."""
        return self.feed(text) + self.end()

    def _release(self, piece: bytes, *, is_idle: bool = False, is_end: bool = False) -> bytes:
        text, passed = self._released_tail + self._unreleased + piece, len(self._released_tail)
        if len(text) == passed or (not self._forms and self._more is None):
            self._unreleased = b""
            return text[passed:]
        is_cut = not (is_idle or is_end)
        self._take_clear(len(piece))
        whole_words = self._ask_for_more(text, is_cut=is_cut)
        raw, stop = self._find(text, is_end=is_end, is_idle=is_idle)
        if b"\x1b" in text:
            more, earlier = self._find(_uncoloured(text), is_end=is_end, is_idle=is_idle)
            raw, stop = _merged(raw + more), min(stop, earlier)
        stop = min(stop, whole_words)
        if raw and (inside := next((each for each in raw if each[0] < stop < each[1]), None)):
            # An endless chain of overlapping values is not held back as a whole.
            stop = inside[0] if len(text) - inside[0] <= 2 * self._forms.longest + 2**16 else inside[1]
        self._released_tail = text[stop:passed]
        stop = max(stop, passed)
        if is_idle and not self._released_tail:
            self._released_tail = text[max(stop - _LEAST_HELD + 1, 0) : stop]
        self._unreleased = text[stop:]
        out, at = [], passed
        for start, end, shown in raw:
            if end > stop:
                break
            if end > at:
                out += [text[at:start], shown]
                at = end
        out.append(text[at:stop])
        return b"".join(out)

    def _find(self, text: bytes, *, is_end: bool, is_idle: bool) -> tuple[_SPANS, int]:
        """Return the places of the values in a text, and the place from which it is held back."""
        core = text.translate(None, BLANKS)
        spans, pending = self._forms.find(core, is_end=is_end, is_idle=is_idle)
        if not is_end:  # with a letter more, which base64 may share
            pending = min(pending, self._forms.partial_start(core) if is_idle else max(len(core) - _ANCHOR, 0))
        places = _Places(text, len(core))
        raw = [(places.of(start), places.of(end - 1) + 1, shown) for start, end, shown in spans]
        return raw, len(text) if pending >= len(core) else places.of(pending)

    def _take_clear(self, size: int) -> None:
        forms = self._clear.forms(size) if self._clear is not None else None
        if forms is not None and forms is not self._cleared:
            self._cleared = forms
            self._forms = forms if self._forms.masks.keys() <= forms.masks.keys() else forms.union(self._forms)

    def _ask_for_more(self, text: bytes, *, is_cut: bool) -> int:
        """Ask `more` about the words of a text, and return the end of those that are whole."""
        if self._more is None:
            return len(text)
        end = len(text)
        if is_cut and not text[-1:].isspace():
            tail = text[-_LONGEST_WORD:].rsplit(None, 1)[-1]
            end -= len(tail) if len(tail) < _LONGEST_WORD else 0
        whole = text[:end]
        texts = [whole, _COLOUR.sub(b"", whole)] if b"\x1b" in whole else [whole]
        clear = self._clear if self._cleared is not None else None
        asked = [word for each in texts for word in (each.split() if clear is None else clear.words(each))]
        words = {word for word in set(asked) if len(word) >= _SHORTEST_WORD} - self._seen_words
        if words:
            if len(self._seen_words) + len(words) > _MOST_SEEN:
                self._seen_words.clear()
            self._seen_words |= words
            found = self._more("\n\n".join(_texts(words)))
            if found:
                self._forms = self._forms.union(SecretForms(found))
        return end


def _texts(words: Iterable[bytes]) -> Iterator[str]:
    """Yield the words that are text: of binary output, there are very many that are not."""
    for word in words:
        with contextlib.suppress(UnicodeDecodeError):
            yield word.decode()


def _uncoloured(text: bytes) -> bytes:
    """Return a text with blanks in place of colours, so that all else stays where it is."""
    return _COLOUR.sub(lambda found: b" " * len(found[0]), text)


class _Places:
    """The places of a text's bytes, counted without blanks."""

    def __init__(self, text: bytes, total: int) -> None:
        self._text = text
        self._total = total
        self._at = self._count = 0

    def of(self, number: int) -> int:
        """Return the place of byte `number`."""
        if self._total - number < number - self._count:
            return self._from_end(number)
        if number < self._count:
            self._at = self._count = 0
        text = self._text
        for block in _BLOCKS:
            while self._at < len(text):
                size = len(text[self._at : self._at + block].translate(None, BLANKS))
                if self._count + size > number:
                    break
                self._at += block
                self._count += size
        left = number - self._count
        for place in range(self._at, min(self._at + _BLOCKS[-1], len(text))):
            if text[place] not in BLANKS:
                if left == 0:
                    return place
                left -= 1
        return len(text)

    def _from_end(self, number: int) -> int:
        """Return the place of byte `number`, counted from the end: most are asked for near it."""
        text, end, count = self._text, len(self._text), self._total
        for block in _BLOCKS:
            while end > 0:
                size = len(text[max(end - block, 0) : end].translate(None, BLANKS))
                if count - size <= number:
                    break
                end -= block
                count -= size
        for place in range(end - 1, max(end - _BLOCKS[-1], 0) - 1, -1):
            if text[place] not in BLANKS:
                count -= 1
                if count == number:
                    return place
        return len(text)


def _parts(value: bytes) -> Iterator[bytes]:
    """Yield a value, and its lines if there are several."""
    yield value
    lines = value.split(b"\n", _MOST_LINES)[:_MOST_LINES]
    if len(lines) > 1:
        for line in lines:
            core = line.strip()
            is_long = len(core.translate(None, BLANKS)) >= _SHORTEST_LINE
            if is_long and is_maskable(core) and not _PUBLIC_LINE.fullmatch(core):
                yield core


def _least_length(form: bytes) -> int:
    """Return how many bytes at the beginning of a form are masked without the rest."""
    return len(form) if len(form) < 2 * _LEAST_PART else max(min(len(form) // 2, _MOST_PART), _LEAST_PART)


def _part_length(core: bytes, start: int, form: bytes) -> int:
    """Return how many bytes of a form are at a place if they are enough to be masked, else 0."""
    least = _least_length(form)
    if not core.startswith(form[:least], start):
        return 0
    low, high = least, min(len(form), len(core) - start)
    while low < high:
        middle = (low + high + 1) // 2
        if core.startswith(form[:middle], start):
            low = middle
        else:
            high = middle - 1
    return low


def _encoded_end(core: bytes, end: int) -> int:
    """Return where base64 ends whose letters up to `end` are of a value alone: a letter later, with padding."""
    if end < len(core) and core[end] in _LETTERS:
        end += 1
        while core[end : end + 1] == b"=":
            end += 1
    return end


def _merged(spans: _SPANS) -> _SPANS:
    merged: _SPANS = []
    for start, end, shown in sorted(spans, key=lambda one: (one[0], -one[1])):
        if merged and start < merged[-1][1]:
            first, last, before = merged[-1]
            merged[-1] = (first, max(last, end), before)
        else:
            merged.append((start, end, shown))
    return merged
