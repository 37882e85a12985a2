"""JSON with comments is changed where it has to change: everything else, to the byte, stays, and what was put in comes out again."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from confide_proxy.clients import jsonc
from confide_proxy.clients.jsonc import JsoncError

PATH = ("mcpServers", "confide")
ENTRY = {"command": "/opt/x", "args": ["mcp"]}
RULES = ("permissions", "allow")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", '{\n  "mcpServers": {\n    "confide": 1\n  }\n}\n'),
        ("{}", '{\n  "mcpServers": {\n    "confide": 1\n  }\n}'),
        ('{"a": 1}', '{"a": 1, "mcpServers": {"confide": 1}}'),
        ('{\n\t"a": 1\n}', '{\n\t"a": 1,\n\t"mcpServers": {\n\t\t"confide": 1\n\t}\n}'),
        (
            '{\n  "a": 1, // of a, "}\n  // the end\n}\n',
            '{\n  "a": 1, // of a, "}\n  "mcpServers": {\n    "confide": 1\n  },\n  // the end\n}\n',
        ),
        (
            '{\r\n  "a": 1 // of a\r\n}\r\n',
            '{\r\n  "a": 1, // of a\r\n  "mcpServers": {\r\n    "confide": 1\r\n  }\r\n}\r\n',
        ),
        (
            '{\n    "mcpServers": {\n        "b": {}\n    }\n}',
            '{\n    "mcpServers": {\n        "b": {},\n        "confide": 1\n    }\n}',
        ),
    ],
)
def test_a_member_is_put_where_a_person_would(before: str, after: str) -> None:
    """In the file's own indent, line ends and style; with the comma that the file's form asks for, and comments where they belong."""
    assert jsonc.put(before, PATH, 1) == after
    assert jsonc.put(after, PATH, 1) == after
    if before.strip():
        assert jsonc.drop(after, PATH) == before


def test_what_is_there_is_replaced_in_its_place() -> None:
    """The later of two members of one name is what every reader takes."""
    text = '{"mcpServers": {"confide": 1, "b": 2, "confide": {"x": 1} /* mine */}}'
    assert jsonc.put(text, PATH, 7) == '{"mcpServers": {"confide": 1, "b": 2, "confide": 7 /* mine */}}'
    assert jsonc.read(jsonc.drop(text, PATH)) == {"mcpServers": {"b": 2}}


def test_comments_of_others_outlive_ours() -> None:
    """Also those that stand in a list or an object that nothing else is left in."""
    text = '{\n  "permissions": {\n    // what I let it do\n    "allow": [\n      "x" // ours\n    ]\n  }\n}\n'
    assert "// what I let it do" in jsonc.cut(text, RULES, "x".__eq__)
    assert jsonc.read(jsonc.cut(text, RULES, "x".__eq__)) == {"permissions": {}}


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[",
        '{"a" 1}',
        "{a: 1}",
        '{"a": NaN}',
        '{"a": 1} x',
        "{} {}",
        '{"a": "\x00"}',
        "[" * 5000,
        "// none",
        "1" * 9999,
    ],
)
def test_what_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(JsoncError, match="is not readable as JSON"):
        jsonc.read(text)


def test_null_is_nothing_yet() -> None:
    """Where clients write an object or a list: as if the key were not there."""
    assert json.loads(jsonc.put('{"mcpServers": null, "a": 1}', ("mcpServers", "confide"), {"x": 1})) == {
        "mcpServers": {"confide": {"x": 1}},
        "a": 1,
    }
    assert json.loads(jsonc.extend('{"hooks": null}', ("hooks", "Stop"), ["x"])) == {"hooks": {"Stop": ["x"]}}
    assert jsonc.put('{"a": null}', ("a",), 1) == '{"a": 1}'


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        '{"mcpServers": []}',
        '{"mcpServers": "none"}',
        "7",
        '{"permissions": {"allow": "all"}}',
    ],
)
def test_what_has_another_form_is_left_alone(text: str) -> None:
    with pytest.raises(JsoncError, match="does not hold"):
        jsonc.extend(jsonc.put(text, PATH, 1), RULES, ["r"])


def test_drawn_files_keep_every_byte() -> None:
    """Of 120 files with comments, both line ends, commas behind the last member and odd texts: put in, put in again, taken out."""
    draw = random.Random(7)
    for _ in range(120):
        file = Drawn(draw)
        text = file.text
        assert jsonc.read(text) == file.document, text
        full = jsonc.extend(jsonc.put(text, PATH, ENTRY), RULES, ["r1", "r2"])
        assert jsonc.extend(jsonc.put(full, PATH, ENTRY), RULES, ["r1", "r2"]) == full
        assert [full.count(mark) for mark in ("// c", "/* x")] == [text.count(mark) for mark in ("// c", "/* x")]
        assert jsonc.drop(jsonc.cut(full, RULES, {"r1", "r2"}.__contains__), PATH) == text


class Drawn:
    """A file of settings."""

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw
        self._is_flat = draw.random() < 0.3
        self._line = draw.choice(["\n", "\r\n"])
        self._has_comments = not self._is_flat and draw.random() < 0.5
        self._is_trailing = draw.random() < 0.3
        self._unit = draw.choice(["  ", "    ", "\t"])
        self.document = {"z": 1, **{key: self._value(0) for key in draw.sample("abcdef", draw.randint(0, 4))}}
        if draw.random() < 0.6:
            self.document["mcpServers"] = {"other": self._value(1)}
        if draw.random() < 0.4:
            self.document["permissions"] = {"allow": draw.choice([["Bash"], ["x", "y"]]), "deny": []}
        self.text = draw.choice(["", "\ufeff"]) + self._written(self.document, "") + draw.choice(["", self._line])

    def _value(self, depth: int) -> Any:
        kind = self._draw.random()
        if depth > 2 or kind < 0.4:
            return self._draw.choice([1, -2.5, "x, } // no", "\u00e4\ud83d", None, True, [], {}])
        if kind < 0.7:
            return [self._value(depth + 1) for _ in range(self._draw.randint(1, 3))]
        return {key: self._value(depth + 1) for key in self._draw.sample("abcde", self._draw.randint(1, 3))}

    def _written(self, value: Any, margin: str) -> str:
        if not isinstance(value, dict | list) or not value:
            return json.dumps(value)
        inner = margin + self._unit
        pairs = [(f"{json.dumps(key)}: ", each) for key, each in value.items()] if isinstance(value, dict) else []
        parts = [name + self._written(each, inner) for name, each in pairs or [("", each) for each in value]]
        begin, end = "{}" if isinstance(value, dict) else "[]"
        if self._is_flat:
            return f"{begin}{', '.join(parts)}{end}"
        lines = [begin + self._comment()]
        for number, part in enumerate(parts, 1):
            comma = "," if number < len(parts) or self._is_trailing else ""
            lines.append(f"{inner}{part}{comma}{self._comment()}")
        return self._line.join([*lines, f"{margin}{end}"])

    def _comment(self) -> str:
        return self._draw.choice(["", " // c, }", "/* x ] */"]) if self._has_comments else ""
