"""Whether a text says in its front matter that all of it is to be sealed (PROTOCOL.md 9.7): one rule for the machine that seals and for the
daemon that refuses what comes in clear.

Said twice, in other words (`yes`, `"true"`) or beside what cannot be read it is meant all the same: better sealed than sent.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from confide_memory.markdown import MARK

if TYPE_CHECKING:
    import yaml

_MAX_CHARS: Final = 64 * 1024
_MAX_DEPTH: Final = 16
_NAMES: Final = frozenset({"sensitive"})
_WORDS: Final = frozenset({"true", "yes", "on"})
_FRONT_MATTER: Final = re.compile(rf"{MARK}?---[^\S\n]*\n((?:.*\n)*?)(?:---|\.\.\.)[^\S\n]*(?:\n|\Z)")
_LINE: Final = re.compile(
    r"^([^\S\n]*)[\"']?sensitive[\"']?\s*:\s*(?:[!&]\S*\s+|#.*\n\s*)*[\"']?(?:true|yes|on)\b",
    re.IGNORECASE | re.MULTILINE,
)


def end_of_front_matter(text: str) -> int:
    """Where the text behind the front matter begins; 0 without any."""
    found = _FRONT_MATTER.match(text)
    return found.end() if found else 0


def is_sensitive(text: str) -> bool:
    """Whether the front matter says so."""
    if not text.startswith(("---", f"{MARK}---")) or "sensitive" not in text.lower():
        return False
    found = _FRONT_MATTER.match(text)
    if found is None or "sensitive" not in found[1].lower():
        return False
    said = _read(found[1])
    return bool(said) or any(said is None or not line[1].strip("\r") for line in _LINE.finditer(found[1]))


def _read(inside: str) -> bool | None:
    """Whether one of the fields says so; None where they cannot be read."""
    import yaml  # which most texts go without

    if len(inside) > _MAX_CHARS:
        return None
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    depth = 0
    try:
        # Nesting is seen among the events, before anything is built of them.
        for event in yaml.parse(inside, Loader=loader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > _MAX_DEPTH or isinstance(event, yaml.AliasEvent):
                return None
        node = yaml.compose(inside, Loader=loader)
    except (yaml.YAMLError, ValueError):
        return None
    fields = node.value if isinstance(node, yaml.MappingNode) else ()
    return any(_is_word(name, _NAMES) and _is_word(value, _WORDS) for name, value in fields)


def _is_word(node: yaml.Node, words: frozenset[str]) -> bool:
    return isinstance(node.value, str) and node.value.strip().lower() in words
