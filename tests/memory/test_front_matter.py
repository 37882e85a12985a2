"""Front matter is read as data and edited as text: what a person wrote stays, byte for byte, but for the field that is changed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.support.draws import draws

from confide_daemon.errors import InvalidTextError
from confide_memory.front_matter import FrontMatterError, compose, edit, parse, split, split_fields

# Fields as people write them, with what they mean. Each is whole lines.
WRITTEN: list[tuple[str, Any]] = [
    ("{}: Tea\n", "Tea"),
    ("{}: Tea # mine\n", "Tea"),
    ("{}:   'it''s'   # quoted\n", "it's"),
    ('{}: "a # b"\n', "a # b"),
    ('"{}": quoted name\n', "quoted name"),
    ("{}:\n", None),
    ("{}: # nothing yet\n", None),
    ("{}: ~\n", None),
    ("{}: 0.75\n", 0.75),
    ("{}: no\n", "no"),
    ("{}: 2026-11-21\n", "2026-11-21"),
    ("{0}: &{0} high\n", "high"),
    ("{}: !!str high\n", "high"),
    ("{}: [a, b]  # flow\n", ["a", "b"]),
    ("{}: [a,\n  b, # inside\n  c]\n", ["a", "b", "c"]),
    ("{}: {{for: 3, against: [1, 2]}}\n", {"for": 3, "against": [1, 2]}),
    ("{}:\n- a # one\n# between\n- b\n", ["a", "b"]),
    ("{}: # list\n  - a\n\n  - b # two\n", ["a", "b"]),
    (
        "{}:\n    - relation: refines # why\n      id: mem_x_1_abcdef12\n",
        [{"relation": "refines", "id": "mem_x_1_abcdef12"}],
    ),
    (
        "{}:\n  ticket: SEC-12 # open\n  # of the board\n  votes:\n    for: 3\n",
        {"ticket": "SEC-12", "votes": {"for": 3}},
    ),
    ("{}: |\n  # no comment\n  text\n", "# no comment\ntext\n"),
    ("{}: |- # about\n  first\n\n   second # text\n", "first\n\n second # text"),
    ("{}: >\n  folded\n  text\n", "folded text\n"),
    ("{}: plain on\n  two lines\n", "plain on two lines"),
    ("{}: Grüße · 東京 🍵 # 茶\n", "Grüße · 東京 🍵"),
]
BESIDE = ["# a comment\n", "\n", " # indented\n", "#\n", ""]
BODIES = ["", "\n", "Text.\n", "\n# Title\n\n- a\n---\n- b", "last line without an end", "\n\n\n"]

NAMES = [f"field{number}" for number in range(6)]
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**20), 10**20),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=30),
    st.sampled_from(
        [
            "1e3",
            "no",
            "0x1f",
            "- a",
            "a: b",
            "# x",
            "'",
            '"',
            "---",
            "...",
            "a\nb\n",
            "\n",
            " x",
            "x\n\n",
            "|",
            "&a",
            "*a",
        ]
    ),
)
TREES = st.recursive(
    VALUES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@st.composite
def documents(draw: st.DrawFn) -> tuple[str, list[tuple[str, str]], dict[str, Any], str]:
    """A document, its pieces in order (the field they write, "" for none), its fields, and its body."""
    ends = draw(st.sampled_from(["\n", "\r\n"]))
    pieces: list[tuple[str, str]] = []
    fields: dict[str, Any] = {}
    for name in draw(st.permutations(NAMES))[: draw(st.integers(0, 5))]:
        if beside := draw(st.sampled_from(BESIDE)):
            pieces.append(("", beside.replace("\n", ends)))
        written, value = draw(st.sampled_from(WRITTEN))
        pieces.append((name, written.format(name).replace("\n", ends)))
        fields[name] = value
    if beside := draw(st.sampled_from(BESIDE)):
        pieces.append(("", beside.replace("\n", ends)))
    body = draw(st.sampled_from(BODIES)).replace("\n", ends)
    opening = draw(st.sampled_from(["", "\ufeff"])) + "---" + draw(st.sampled_from(["", "  "])) + ends
    closing = draw(st.sampled_from(["---", "...", "--- "])) + ("" if not body and draw(st.booleans()) else ends)
    text = opening + "".join(piece for _, piece in pieces) + closing + body
    return text, [("", opening), *pieces, ("", closing + body)], fields, body


@settings(max_examples=draws(150), deadline=None)
@given(documents(), st.dictionaries(st.sampled_from([*NAMES, "added", "also added"]), TREES, min_size=1, max_size=3))
def test_an_edit_changes_nothing_else(
    made: tuple[str, list[tuple[str, str]], dict[str, Any], str], changes: dict[str, Any]
) -> None:
    text, pieces, fields, body = made
    assert parse(text).fields == fields
    assert parse(text).body == body
    after = edit(text, changes)
    expected = {name: value for name, value in (fields | changes).items() if changes.get(name, ...) is not None}
    assert parse(after).problem is None
    assert parse(after).fields == expected
    assert list(parse(after).fields) == list(expected)
    assert parse(after).body == body
    # Everything that is not of a changed field stands there as it did, in its order.
    place = 0
    for name, piece in pieces[:-1]:
        if name in changes and (changes[name] is None or changes[name] != fields[name]):
            continue
        found = after.find(piece, place)
        assert found >= 0, (text, after, piece)
        place = found + len(piece)
    assert after[place:].endswith(pieces[-1][1])
    assert edit(after, changes) == after


@settings(max_examples=draws(100), deadline=None)
@given(st.dictionaries(st.text(min_size=1, max_size=12), TREES, max_size=5), st.text(alphabet="ab#-\n ", max_size=30))
def test_what_is_composed_reads_the_same(fields: dict[str, Any], body: str) -> None:
    found = parse(compose(fields, body))
    kept = {name: value for name, value in fields.items() if value not in (None, "", [], {})}
    assert found.problem is None
    assert found.fields == kept
    assert found.body.strip("\n") == body.strip("\n")


@pytest.mark.parametrize(
    ("before", "changes", "after"),
    [
        ("# Tea\n", {"tags": ["a"]}, "---\ntags: [a]\n---\n\n# Tea\n"),
        ("\ufeff# Tea\r\n", {"title": "T"}, "\ufeff---\r\ntitle: T\r\n---\r\n\r\n# Tea\r\n"),
        ("---\n---\nText", {"title": "T"}, "---\ntitle: T\n---\nText"),
        ("---\n# only this\n---\n", {"title": "T"}, "---\n# only this\ntitle: T\n---\n"),
        ("---\ntitle: T\n---", {"title": "U"}, "---\ntitle: U\n---"),
        ("---\ntitle: T\n---", {"title": None}, "---\n---"),
        ("---\n  title: T\n  tags: [a]\n---\n", {"tags": ["b"], "x": 1}, "---\n  title: T\n  tags: [b]\n  x: 1\n---\n"),
        (
            "---\ntags:\n  - a # first\n  # then\n  - b\n  - c # last\nx: 1\n---\n",
            {"tags": ["a", "n", "c", "d"]},
            "---\ntags:\n  - a # first\n  # then\n  - n\n  - c # last\n  - d\nx: 1\n---\n",
        ),
        (
            "---\nmetadata:\n  a: 1 # one\n  # two\n  b: 2\n---\n",
            {"metadata": {"a": 1, "b": 3, "c": 4}},
            "---\nmetadata:\n  a: 1 # one\n  # two\n  b: 3\n  c: 4\n---\n",
        ),
        ("---\na: |\n  # x\n  y\n# z\nb: 1\n---\n", {"a": "t"}, "---\na: t\n# z\nb: 1\n---\n"),
        ("---\na: 1\r\nb: 2\n---\n", {"b": 3}, "---\na: 1\r\nb: 3\n---\n"),
        ("---\n? a\nb: 1\n---\n", {"a": None}, "---\nb: 1\n---\n"),
        ("---\ntitle: T\n...\nText\n", {"title": "U"}, "---\ntitle: U\n...\nText\n"),
    ],
)
def test_an_edit_by_example(before: str, changes: dict[str, Any], after: str) -> None:
    assert edit(before, changes) == after


@pytest.mark.parametrize(
    "text",
    [
        "---\na: [1\n---\nText\n",
        "---\na: &x 1\nb: *x\n---\n",
        "---\n- a\n---\n",
        "---\na: 1\na: 2\n---\n",
        "---\n{a: 1}\n---\n",
        "---\na: 1\n--- b\n---\n",
        "---\nx: " + "[" * 40 + "]" * 40 + "\n---\n",
        "---\nx: " + "y" * 70_000 + "\n---\n",
        "---\n\ta: 1\n---\n",
    ],
)
def test_what_cannot_be_read_is_not_changed(text: str) -> None:
    with pytest.raises(FrontMatterError) as refused:
        edit(text, {"title": "T"})
    assert str(refused.value).startswith("its front matter ")


@pytest.mark.parametrize("value", [{"a": [1] * 20_000}, "[" * 30_000 + "\x07" * 30_000, float("nan")])
def test_what_cannot_be_read_again_is_not_written(value: object) -> None:
    deep: object = value
    for _ in range(20):
        deep = [deep]
    for one in (value, deep):
        with pytest.raises(InvalidTextError):
            compose({"metadata": one}, "Text.")
        with pytest.raises(InvalidTextError):
            edit("---\na: 1\n---\n", {"metadata": one})


FRAGMENTS = [
    "a: ",
    "b: 1\n",
    "a:\n  - x\n  - y\n",
    "m:\n  k: v\n",
    "- ",
    "? ",
    "  ",
    "\n",
    "\r\n",
    "\r",
    "\t",
    "\x85",
    "\u2028",
    "...",
]
FRAGMENTS += [
    "'",
    '"',
    "# c",
    "|+\n",
    ">",
    "[",
    "]",
    "{",
    "}",
    ",",
    ":",
    "&x ",
    "!!str ",
    "<<: ",
    "text",
    "~",
    "%",
    "@",
    "é",
]


@settings(max_examples=draws(200), deadline=None)
@given(
    st.lists(st.sampled_from(FRAGMENTS), max_size=10).map("".join),
    st.dictionaries(st.sampled_from("abmz"), st.sampled_from([None, 1, "x\ny\n", ["x", "z"], {"k": "w"}]), min_size=1),
)
@example("? a", {"a": None})
@example("\ra: ", {"a": None})
def test_whatever_stands_there_is_changed_rightly_or_not_at_all(inside: str, changes: dict[str, Any]) -> None:
    text = f"---\n{inside}\n---\nText\n"
    before = parse(text)
    try:
        after = parse(edit(text, changes))
    except FrontMatterError:
        return
    expected = {name: value for name, value in (before.fields | changes).items() if changes.get(name, ...) is not None}
    assert (after.problem, after.fields, after.body) == (None, expected, before.body)


def test_a_fence_in_the_text_is_none_of_the_front_matter() -> None:
    assert split("Text\n---\na: 1\n---\n") == ("", "Text\n---\na: 1\n---\n")
    assert split("---\nno end\n") == ("", "---\nno end\n")


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("description: deploys: only on Thursdays", "deploys: only on Thursdays"),
        ("description: a: b: c", "a: b: c"),
        ('description: "quoted" and more: than that', '"quoted" and more: than that'),
        ("description: see http://x.example: the page", "see http://x.example: the page"),
        ("description: 'it' is: so", "'it' is: so"),
    ],
)
def test_a_colon_in_a_value_loses_no_field(line: str, value: str) -> None:
    """Where YAML fails, the rest of the line is the value: in memory, and in files of others."""
    text = f"---\nname: x\n{line}\ntags: [a, b]\n---\nBody.\n"
    wanted = {"name": "x", "description": value, "tags": ["a", "b"]}
    assert parse(text).fields == wanted
    assert split_fields(text) == (wanted, "Body.\n", None)


@pytest.mark.parametrize("line", ["a: [1, 2", "a: {b: c", "a: *other", "a: !!tag b: c", "a: &x b: c", "no field here"])
def test_what_only_yaml_can_say_is_not_guessed(line: str) -> None:
    """Nothing of it is lost: in a file of others it stays in the text, and makes no heading of it."""
    text = f"---\nname: x\nb: c: d\n{line}\n---\nBody.\n"
    assert parse(text).fields == {"name": "x", "b": "c: d"}
    fields, body, problem = split_fields(text)
    assert (fields, problem) == ({}, "has front matter that is not YAML")
    assert body == f"```\nname: x\nb: c: d\n{line}\n```\n\nBody.\n"
