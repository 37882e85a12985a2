"""The YAML front matter of a note, read as data and edited as text: an edit of one field leaves
every other byte unchanged.

Values follow the core schema of YAML 1.2 (https://yaml.org/spec/1.2.2/#103-core-schema): `no` is a
word, a date is a text, and all values can be written as JSON. References between nodes are refused,
since a few lines of them can expand to gigabytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import yaml

from confide_memory import yaml_edit
from confide_memory.errors import InvalidTextError
from confide_memory.markdown_blocks import MARK, front_matter_lines, split_keeping_ends

MAX_BYTES = 64 * 1024
MAX_DEPTH = 16
MOST_FIELDS = 200  # fields that are read one by one
FENCE = "---\n"


# The beginning of a line that begins a field.
_FIELD = re.compile(r"[^\s#'\"\[\]{}?&*!|>%@`<=,-][^:]*:(?=\s|$)")


# A field on one line whose value does not begin a list, a map, a reference, a tag or a block.
_PLAIN_LINE = re.compile(r"(?P<name>[^:\n]*):[ \t]+(?P<rest>[^\s\[{*&!|>%@`][^\n]*?)\s*")


_TAGGED = re.compile(r"[:-][ \t]+!")


class FrontMatterError(ValueError):
    """Front matter that is not YAML, is not a mapping, or is too large. The message says which,
    without quoting the text.
    """


@dataclass(frozen=True, slots=True)
class FrontMatter:
    """A document split into its parts.

    Attributes:
        head: the front matter with both fences; "" if there is no front matter.
        body: the text after it.
        fields: the fields of the front matter.
        problem: if the front matter as a whole is unreadable, the reason; `fields` then has only
            the fields that can be read alone. Else None.
    """

    head: str
    body: str
    fields: dict[str, object]
    problem: str | None = None


def split(text: str) -> tuple[str, str]:
    """Split a document into its front matter with the fences ("" if it has no front matter) and the
    text after it.
    """
    lines = text.split("\n")
    count = front_matter_lines(lines)
    if not count:
        return "", text
    head = "\n".join(lines[:count])
    rest = text[len(head) :]
    return (head + "\n", rest[1:]) if rest.startswith("\n") else (head, rest)


def parse(text: str) -> FrontMatter:
    """Split a document into front matter and body, and read the fields. Never raises: an unreadable
    front matter sets `problem`.
    """
    head, body = split(text)
    inside = _parts(head)[1]
    try:
        return FrontMatter(head, body, _fields_of(_compose(inside)))
    except FrontMatterError as error:
        return FrontMatter(head, body, _readable(inside)[0], str(error))


def edit(text: str, changes: Mapping[str, object]) -> str:
    """Return the document with the fields in `changes` set; None as a value removes a field.
    Existing fields stay where they are, new ones are appended.

    Raises:
        FrontMatterError: the front matter is unreadable, or written so that single fields cannot be
            changed. The document is not rewritten, so that the author's text is not changed
            unnoticed.
        InvalidTextError: a value is too large, or nested too deep.
    """
    head, body = split(text)
    opening, inside, closing = _parts(head)
    node = _compose(inside)
    fields = _fields_of(node)
    wanted = {
        name: value for name, value in (fields | dict(changes)).items() if value is not None or name not in changes
    }
    if not _differs(fields, wanted):
        return text
    _check_writable({name: value for name, value in changes.items() if value is not None})
    ends = "\r\n" if (opening or text).split("\n", 1)[0].endswith("\r") else "\n"
    if not head:
        mark, body = (MARK, body[1:]) if body.startswith(MARK) else ("", body)
        fence = FENCE.replace("\n", ends)
        opening, closing = mark + fence, fence + ends
    if node is not None and node.flow_style:
        raise FrontMatterError("its front matter is in braces; only one field a line can be changed")
    source = yaml_edit.YamlText(inside, _yaml, ends)
    if node is None or not node.value:
        new = "".join(_yaml({name: value}) for name, value in wanted.items())
        candidates: Iterable[str] = [inside + new.replace("\n", ends)]
    else:
        candidates = yaml_edit.edits(source, node, fields, wanted)
    for candidate in candidates:
        if _reads_as(candidate, wanted):
            return opening + candidate + closing + body
    raise FrontMatterError("its front matter is written in a way in which that field cannot be changed")


def compose(fields: Mapping[str, object], body: str) -> str:
    """Return a new document with these fields as front matter. Fields that are None or empty are
    left out.

    Raises InvalidTextError if the fields are too large, or nested too deep.
    """
    stated = {name: value for name, value in fields.items() if value not in (None, "", [], (), {})}
    lines = _check_writable(stated)
    return FENCE + lines + FENCE + "\n" + body.strip("\n") + "\n"


def _check_writable(fields: Mapping[str, object]) -> str:
    """Return the fields as YAML that parses to the same values. Raises InvalidTextError if
    impossible.
    """
    lines = "".join(_yaml({name: value}) for name, value in fields.items())
    if not _reads_as(lines, fields):
        raise InvalidTextError(
            "the fields of the note are too large, or nested too deep",
            hint="put what is long into the content, and keep metadata flat",
        )
    return lines


def _parts(head: str) -> tuple[str, str, str]:
    """Return the opening fence, the text between, and the closing fence, each with its line ends."""
    if not head:
        return "", "", ""
    first = head.index("\n") + 1
    last = head.rstrip("\r\n").rindex("\n") + 1
    return head[:first], head[first:last], head[last:]


def _fields_of(node: yaml.MappingNode | None) -> dict[str, object]:
    return {} if node is None else {str(key.value): _value(value, 1) for key, value in node.value}


def _reads_as(inside: str, wanted: Mapping[str, object]) -> bool:
    # Whole lines, as the document is read: a line like a fence would end the front matter.
    if inside[-1:] not in ("", "\n") or front_matter_lines([FENCE.strip(), *inside.split("\n")]):
        return False
    try:
        found = _fields_of(_compose(inside))
    except FrontMatterError:
        return False
    return list(found) == list(wanted) and not _differs(found, wanted)


def _differs(one: Any, other: Any) -> bool:
    """Return True if two values differ as JSON; unlike `==`, true is not 1."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() != other.keys() or any(_differs(value, other[name]) for name, value in one.items())
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) != len(other) or any(_differs(*pair) for pair in zip(one, other, strict=True))
    return bool(one != other) or isinstance(one, bool) != isinstance(other, bool)


def _compose(inside: str) -> yaml.MappingNode | None:
    if len(inside.encode()) > MAX_BYTES:
        raise FrontMatterError(f"its front matter is larger than {MAX_BYTES // 1024} KiB")
    try:
        # Aliases and depth are checked on events, before any object is built.
        depth = 0
        for event in yaml.parse(inside, Loader=yaml.CSafeLoader):
            if isinstance(event, yaml.AliasEvent):
                raise FrontMatterError("its front matter holds YAML references (*), which are not read")
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > MAX_DEPTH:
                raise FrontMatterError(f"its front matter is nested more than {MAX_DEPTH} deep")
        node = yaml.compose(inside, Loader=yaml.CSafeLoader)
    except (yaml.YAMLError, UnicodeError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f" (line {mark.line + 2})" if mark is not None else ""
        raise FrontMatterError(f"its front matter is not YAML{where}") from None
    if node is None:
        return None
    if not isinstance(node, yaml.MappingNode) or any(not isinstance(key, yaml.ScalarNode) for key, _ in node.value):
        raise FrontMatterError("its front matter is not a list of `name: value`")
    names = [key.value for key, _ in node.value]
    twice = len(names) != len(set(names))
    if twice:
        raise FrontMatterError("its front matter has a field twice")
    return node


def _readable(inside: str) -> tuple[dict[str, object], bool]:
    """Return the fields that can be read alone from front matter that is not valid YAML, and True
    if these are all.

    A superfluous colon in a title, or git's merge marks, must not make a note lose its id.
    """
    if len(inside.encode(errors="replace")) > MAX_BYTES:
        return {}, False
    blocks: list[str] = []
    is_within, is_all = False, True
    for line in split_keeping_ends(inside):
        if _FIELD.match(line):
            blocks.append(line)
            is_within = True
        elif is_within and (line[:1] in " \t-#" or not line.strip()):
            blocks[-1] += line
        else:
            is_within = False
            is_all &= not line.strip() or line.startswith("#")
    found: dict[str, object] = {}
    for block in blocks[:MOST_FIELDS]:
        try:
            fields = _fields_of(_compose(block))
        except FrontMatterError:
            if (told := _PLAIN_LINE.fullmatch(block)) is None:
                is_all = False
                continue
            # A line as people and models write it: `description: deploys: only on Thursdays`.
            fields = {told["name"].rstrip(): told["rest"]}
        found = fields | found  # of two fields with one name the first counts
    return found, is_all and len(blocks) <= MOST_FIELDS


_PLAIN: tuple[tuple[re.Pattern[str], Any], ...] = (
    (re.compile(r"null|Null|NULL|~|"), lambda _text: None),
    (re.compile(r"true|True|TRUE"), lambda _text: True),
    (re.compile(r"false|False|FALSE"), lambda _text: False),
    (re.compile(r"[-+]?[0-9]{1,100}"), int),
    (re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]{1,3})?"), float),
)


def _value(node: yaml.Node, depth: int) -> Any:
    if isinstance(node, yaml.SequenceNode):
        return [_value(item, depth + 1) for item in node.value]
    if isinstance(node, yaml.MappingNode):
        return {_name(key): _value(value, depth + 1) for key, value in node.value}
    text = str(node.value)
    # Quoted and block scalars have a style, and are always text.
    if getattr(node, "style", None):
        return text
    for pattern, make in _PLAIN:
        if pattern.fullmatch(text):
            found = make(text)
            # Text on overflow, since JSON has no infinity.
            return text if isinstance(found, float) and found in (float("inf"), float("-inf")) else found
    return text


def _name(key: yaml.Node) -> str:
    return str(key.value) if isinstance(key, yaml.ScalarNode) else yaml.serialize(key).strip()


def _yaml(value: Any) -> str:
    """Return lines of YAML. Lists of scalars in a field are written on one line, as people write
    them.
    """
    if isinstance(value, dict):
        value = {name: list(one) if isinstance(one, tuple) else one for name, one in value.items()}
    is_flat = isinstance(value, dict) and all(_is_flat(one) for one in value.values())
    text = yaml.dump(
        value,
        Dumper=_Dumper,
        allow_unicode=True,
        sort_keys=False,
        width=1_000_000,
        default_flow_style=None if is_flat else False,
    )
    return str(text)


def _is_flat(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str | int | float) for item in value)


class _Dumper(yaml.SafeDumper):
    """A YAML dumper that indents lists below a field, as most editors and linters do, and does not
    quote times.
    """

    yaml_implicit_resolvers: ClassVar = {  # type: ignore[misc]
        first: [pair for pair in pairs if pair[0] != "tag:yaml.org,2002:timestamp"]
        for first, pairs in yaml.SafeDumper.yaml_implicit_resolvers.items()
    }

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002
        # `indentless` would put the items of a list in the column of its name.
        super().increase_indent(flow, False)


# Line ends for some readers only, and the byte order mark: always escaped.
_ODD = re.compile(f"[\r\x85\u2028\u2029{MARK}]")


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    # The library quotes other texts that are not valid as plain scalars.
    is_block = "\n" in text and not text.startswith((" ", "\n")) and not text.endswith("\n\n")
    # For example 1e3, which is a number since YAML 1.2, but text for the library.
    is_other = any(pattern.fullmatch(text) for pattern, _ in _PLAIN)
    is_odd = _ODD.search(text) or ("\n" in text and not is_block)
    style = '"' if is_odd else "|" if is_block else "'" if is_other else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


_CORE: tuple[tuple[str, str, str], ...] = (
    ("tag:yaml.org,2002:null", r"^(?:~|null|Null|NULL|)$", "~nN\0"),
    ("tag:yaml.org,2002:bool", r"^(?:true|True|TRUE|false|False|FALSE)$", "tTfF"),
    ("tag:yaml.org,2002:int", r"^[-+]?(?:0|[1-9]\d{0,17})$", "-+0123456789"),
    ("tag:yaml.org,2002:float", r"^[-+]?(?:\d+\.\d*|\.\d+|\d+(?:\.\d*)?[eE][-+]\d+)$", "-+0123456789."),
)


def split_fields(text: str) -> tuple[dict[str, object], str, str | None]:
    """Split a file by any author into its fields and the text after them. The third value is the
    reason if the front matter is unreadable, else None.

    It accepts more than a note of Confide may contain, and loses nothing: unreadable front matter
    stays in the text.
    """
    lines = text.split("\n")
    count = front_matter_lines(lines)
    if not count:
        return {}, text, None
    inside, body = "\n".join(lines[1 : count - 1]), "\n".join(lines[count:])
    if len(inside.encode()) > MAX_BYTES:
        return {}, text, f"has front matter larger than {MAX_BYTES // 1024} KiB"
    try:
        fields = yaml.load(inside, Loader=_loader())  # noqa: S506 - a SafeLoader that knows less
    except (yaml.YAMLError, RecursionError, ValueError, TypeError):
        found, is_all = _readable(inside)
        if found and is_all and not _TAGGED.search(inside):
            return found, body, None
        # In a fence, since the line after it would turn all of it into a heading.
        return {}, f"```\n{inside}\n```\n\n{body}", "has front matter that is not YAML"
    if fields is None:
        return {}, body, None
    if not isinstance(fields, dict):
        return {}, text, None  # a paragraph between two horizontal rules, which is markdown too
    return {str(key): value for key, value in fields.items()}, body, None


@cache
def _loader() -> type[yaml.SafeLoader]:
    class Loader(yaml.SafeLoader):
        """A loader of the core schema only, without aliases."""

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
