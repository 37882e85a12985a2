"""The YAML front matter of a markdown file that is imported, read as data.

Values follow the core schema of YAML 1.2 (https://yaml.org/spec/1.2.2/#103-core-schema), as in the daemon: `no` is a word and a date is a
text. References between nodes are refused, since a few lines of them can stand for gigabytes.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import yaml

MAX_BYTES = 64 * 1024
_CORE: tuple[tuple[str, str, str], ...] = (
    ("tag:yaml.org,2002:null", r"^(?:~|null|Null|NULL|)$", "~nN\0"),
    ("tag:yaml.org,2002:bool", r"^(?:true|True|TRUE|false|False|FALSE)$", "tTfF"),
    ("tag:yaml.org,2002:int", r"^[-+]?(?:0|[1-9]\d{0,17})$", "-+0123456789"),
    ("tag:yaml.org,2002:float", r"^[-+]?(?:\d+\.\d*|\.\d+|\d+(?:\.\d*)?[eE][-+]\d+)$", "-+0123456789."),
)


def split(text: str) -> tuple[dict[str, Any], str, str | None]:
    """The fields, the text after the front matter, and why the fields cannot be read, if they cannot.

    What cannot be read stays in the text, so that nothing of a file is lost.
    """
    lines = text.split("\n")
    if lines[0].rstrip() != "---":
        return {}, text, None
    end = next((number for number, line in enumerate(lines[1:], 1) if line.rstrip() in ("---", "...")), None)
    if end is None:
        return {}, text, None
    inside = "\n".join(lines[1:end])
    if len(inside.encode()) > MAX_BYTES:
        return {}, text, f"has front matter larger than {MAX_BYTES // 1024} KiB"
    import yaml

    try:
        fields = yaml.load(inside, Loader=_loader())  # noqa: S506 - a SafeLoader that knows less
    except (yaml.YAMLError, RecursionError, ValueError, TypeError):
        return {}, text, "has front matter that is not YAML"
    if fields is None:
        return {}, "\n".join(lines[end + 1 :]), None
    if not isinstance(fields, dict):
        return {}, text, None  # two rules around a paragraph, which is markdown too
    return {str(key): value for key, value in fields.items()}, "\n".join(lines[end + 1 :]), None


@cache
def _loader() -> type[yaml.SafeLoader]:
    import yaml

    class Loader(yaml.SafeLoader):
        """Of the core schema alone, and without aliases."""

        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                raise yaml.YAMLError("an alias")
            return super().compose_node(parent, index)

    resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}
    for tag, pattern, firsts in _CORE:
        for first in firsts:
            resolvers.setdefault("" if first == "\0" else first, []).append((tag, re.compile(pattern)))
    Loader.yaml_implicit_resolvers = resolvers
    return Loader
