"""What a front matter says of its text: one rule for those who seal and those who refuse."""

from __future__ import annotations

import pytest

from confide_memory.markdown_blocks import end_of_front_matter, is_sensitive


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        ("sensitive: true", True),
        ("sensitive: yes", True),
        ("SENSITIVE: 'On'", True),
        ("{title: x, sensitive: true}", True),
        ("? sensitive\n: true", True),
        ("sensitive: false\nsensitive: true", True),
        ("sensitive: true\nsensitive: false", True),
        ("title: a: b\n'sensitive': true", True),
        ("title: x\n  sensitive: true", True),
        ("title: a: b\nsensitive: # because\n  &x !y true", True),
        (f"deep: {'[' * 17}{']' * 17}\nsensitive: true", True),
        ("a: &x 1\nb: *x\nsensitive: true", True),
        (f"long: {'x' * 70_000}\nsensitive: true", True),
        ("odd: \ud800\nsensitive: true", True),
        ("sensitive: true\n----\nmore", True),
        ("- a list\n- of two", False),
        ("- sensitive: true", False),
        ("sensitive: [true]", False),
        ("sensitive: maybe", False),
        ("[sensitive]: true", False),
        ("metadata:\n  sensitive: true", False),
        ("title: the sensitive: true question", False),
    ],
)
def test_what_the_front_matter_says_counts(head: str, expected: bool) -> None:
    assert is_sensitive(f"---\n{head}\n---\nbody\n") is expected
    assert is_sensitive(f"\ufeff---\u00a0\r\n{head}\r\n...\r\nbody\n") is expected


@pytest.mark.parametrize(
    "text",
    [
        "sensitive: true",
        "---\nsensitive: true\n",
        "---\ntitle: x\n---\nsensitive: true\n",
        "\n---\nsensitive: true\n---\n",
    ],
)
def test_it_alone_counts(text: str) -> None:
    assert not is_sensitive(text)


def test_where_it_ends() -> None:
    assert end_of_front_matter("---\na: b\n---\nbody") == len("---\na: b\n---\n")
    assert end_of_front_matter("---\na: b\n...") == len("---\na: b\n...")
    assert end_of_front_matter("---\na: b\n") == 0
