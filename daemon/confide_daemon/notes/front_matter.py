"""The YAML front matter of a note, read as data and edited as text: a change of one field leaves every other byte as a person wrote it.

Values follow the core schema of YAML 1.2 (https://yaml.org/spec/1.2.2/#103-core-schema): `no` is a word, a date is a text, and what is
read can be written as JSON. References between nodes are refused, since a few lines of them can stand for gigabytes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import yaml

from confide_daemon.documents import front_matter_lines, split_keeping_ends
from confide_daemon.line_ends import MARK

MAX_BYTES = 64 * 1024
MAX_DEPTH = 16
FENCE = "---\n"


class UnreadableError(ValueError):
    """The front matter is not YAML, or no mapping, or too large; the sentence says which, without quoting it."""


@dataclass(frozen=True, slots=True)
class FrontMatter:
    """The parts of a document: `head` with both fences ("" without any), `body` after it, and the fields of the head.

    Attributes:
        problem: why the fields could not be read; there are none then.
    """

    head: str
    body: str
    fields: dict[str, Any]
    problem: str | None = None


def split(text: str) -> tuple[str, str]:
    """The front matter with its fences, "" where there is none, and the text after it."""
    lines = text.split("\n")
    count = front_matter_lines(lines)
    if not count:
        return "", text
    head = "\n".join(lines[:count])
    rest = text[len(head) :]
    return (head + "\n", rest[1:]) if rest.startswith("\n") else (head, rest)


def parse(text: str) -> FrontMatter:
    """The document's parts; never raises."""
    head, body = split(text)
    try:
        return FrontMatter(head, body, _fields(_inside(head)))
    except UnreadableError as error:
        return FrontMatter(head, body, {}, str(error))


def edit(text: str, changes: Mapping[str, Any]) -> str:
    """The document with these fields set (None: without them), in their places, new ones behind the others.

    Raises:
        UnreadableError: the front matter cannot be read, so nothing is changed behind the back of whoever wrote it.
    """
    head, body = split(text)
    inside = _inside(head)
    fields = _fields(inside)
    changes = {name: value for name, value in changes.items() if fields.get(name) != value}
    if not changes:
        return text
    ends = "\r\n" if "\r\n" in head else "\n"
    spans = _spans(inside)
    lines = split_keeping_ends(inside)
    for name in sorted(spans, key=lambda name: -spans[name][0]):
        if name in changes:
            start, end = spans[name]
            added = _added_items(inside, name, fields[name], changes[name])
            kept = _kept_comment(lines, start, end, _dumped(name, changes[name]))
            lines[start:end] = kept if added is None else lines[start:end] + added
    for name, value in changes.items():
        if name not in spans:
            lines += _dumped(name, value)
    first, last = _fences(head)
    return first + "".join(line.rstrip("\r\n") + ends for line in lines) + last + body


def compose(fields: Mapping[str, Any], body: str) -> str:
    """A new document of these fields, those that are None or empty left out."""
    kept = {name: value for name, value in fields.items() if value not in (None, "", [], (), {})}
    lines = [line for name, value in kept.items() for line in _dumped(name, value)]
    return FENCE + "".join(lines) + FENCE + "\n" + body.strip("\n") + "\n"


def _inside(head: str) -> str:
    lines = split_keeping_ends(head)
    return "".join(lines[1:-1])


def _fences(head: str) -> tuple[str, str]:
    lines = split_keeping_ends(head)
    return (lines[0], lines[-1]) if lines else (FENCE, FENCE + "\n")


def _fields(inside: str) -> dict[str, Any]:
    node = _composed(inside)
    if node is None:
        return {}
    return {str(key.value): _value(value, 1) for key, value in node.value}


def _composed(inside: str) -> yaml.MappingNode | None:
    if len(inside.encode()) > MAX_BYTES:
        raise UnreadableError(f"its front matter is larger than {MAX_BYTES // 1024} KiB")
    try:
        # Aliases and depth are seen among the events, before anything is built of them.
        depth = 0
        for event in yaml.parse(inside, Loader=yaml.CSafeLoader):
            if isinstance(event, yaml.AliasEvent):
                raise UnreadableError("its front matter holds YAML references (*), which are not read")
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > MAX_DEPTH:
                raise UnreadableError(f"its front matter is nested more than {MAX_DEPTH} deep")
        node = yaml.compose(inside, Loader=yaml.CSafeLoader)
    except (yaml.YAMLError, UnicodeError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f" (line {mark.line + 2})" if mark is not None else ""
        raise UnreadableError(f"its front matter is not YAML{where}") from None
    if node is None:
        return None
    if not isinstance(node, yaml.MappingNode) or any(not isinstance(key, yaml.ScalarNode) for key, _ in node.value):
        raise UnreadableError("its front matter is not a list of `name: value`")
    names = [key.value for key, _ in node.value]
    twice = len(names) != len(set(names))
    if twice:
        raise UnreadableError("its front matter has a field twice")
    return node


_PLAIN: tuple[tuple[re.Pattern[str], Any], ...] = (
    (re.compile(r"null|Null|NULL|~|"), lambda _text: None),
    (re.compile(r"true|True|TRUE"), lambda _text: True),
    (re.compile(r"false|False|FALSE"), lambda _text: False),
    (re.compile(r"[-+]?[0-9]{1,18}"), int),
    (re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]{1,3})?"), float),
)


def _value(node: yaml.Node, depth: int) -> Any:
    if isinstance(node, yaml.SequenceNode):
        return [_value(item, depth + 1) for item in node.value]
    if isinstance(node, yaml.MappingNode):
        return {_name(key): _value(value, depth + 1) for key, value in node.value}
    text = str(node.value)
    # A style is that of a quoted or a block scalar, which is text whatever it looks like.
    if getattr(node, "style", None):
        return text
    for pattern, make in _PLAIN:
        if pattern.fullmatch(text):
            found = make(text)
            # An overflow: JSON has no infinity.
            return text if isinstance(found, float) and found in (float("inf"), float("-inf")) else found
    return text


def _name(key: yaml.Node) -> str:
    return str(key.value) if isinstance(key, yaml.ScalarNode) else yaml.serialize(key).strip()


def _spans(inside: str) -> dict[str, tuple[int, int]]:
    """[first line, line behind the last) of each field; comments and blank lines behind a value are nobody's."""
    node = _composed(inside)
    if node is None:
        return {}
    if node.flow_style:
        raise UnreadableError("its front matter is in braces; only one field a line can be edited")
    lines = split_keeping_ends(inside)
    spans: dict[str, tuple[int, int]] = {}
    for key, value in node.value:
        start, mark = key.start_mark.line, value.end_mark
        end = mark.line + (1 if mark.column > 0 else 0)
        end = max(end, start + 1)
        # A block value ends where the next thing begins.
        while end > start + 1 and (not lines[end - 1].strip() or _is_comment(lines[end - 1])):
            end -= 1
        spans[str(key.value)] = (start, end)
    return spans


def _added_items(inside: str, name: str, old: Any, new: Any) -> list[str] | None:
    """The lines that lengthen a list of one item a line; None where that is not what the change is."""
    node = _composed(inside)
    value = next(value for key, value in node.value if key.value == name) if node else None
    is_longer = isinstance(old, list) and isinstance(new, list) and len(new) > len(old) and new[: len(old)] == old
    if not (is_longer and isinstance(value, yaml.SequenceNode) and value.value and not value.flow_style):
        return None
    indent = " " * value.start_mark.column
    return [indent + line for line in split_keeping_ends(_yaml(new[len(old) :], flow=False))]


def _is_comment(line: str) -> bool:
    return line.lstrip().startswith("#")


def _kept_comment(lines: list[str], start: int, end: int, new: list[str]) -> list[str]:
    """The new lines, with the comment that stood behind a value of one line."""
    if not new:
        return new
    comment = re.search(r"\s+#.*$", lines[start].rstrip("\r\n")) if end - start == 1 else None
    if comment is None or _parsed_alone(lines[start][: comment.start()]) != _parsed_alone(lines[start]):
        return new
    return [new[0].rstrip("\n") + comment[0] + "\n", *new[1:]]


def _parsed_alone(line: str) -> Any:
    try:
        return _fields(line)
    except UnreadableError:
        return None


def _dumped(name: str, value: Any) -> list[str]:
    """The lines of a field; lists of words on one line, as people write them."""
    if value is None:
        return []
    if isinstance(value, tuple):
        value = list(value)
    is_flat = isinstance(value, list) and all(isinstance(item, str | int | float) for item in value)
    return split_keeping_ends(_yaml({name: value}, flow=None if is_flat else False))


def _yaml(value: Any, *, flow: bool | None) -> str:
    text = yaml.dump(
        value, Dumper=_Dumper, allow_unicode=True, sort_keys=False, width=1_000_000, default_flow_style=flow
    )
    return str(text)


class _Dumper(yaml.SafeDumper):
    """Lists below a field are indented, as most editors and linters have them, and times are not quoted."""

    yaml_implicit_resolvers: ClassVar = {  # type: ignore[misc]
        first: [pair for pair in pairs if pair[0] != "tag:yaml.org,2002:timestamp"]
        for first, pairs in yaml.SafeDumper.yaml_implicit_resolvers.items()
    }

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002
        # `indentless` would put the items of a list in the column of its name.
        super().increase_indent(flow, False)


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    # With the byte order mark and such: what a plain scalar could not hold is quoted by the library.
    style = "|" if "\n" in text and not text.startswith((" ", "\n")) and MARK not in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)
