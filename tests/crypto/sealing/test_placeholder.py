"""What stands in a text in place of what was sealed or redacted."""

from __future__ import annotations

import pytest

from confide_crypto.sealing.placeholder import STANDIN, is_sealed_from, only

SEALED = f"(sealed:github-token:{'4f' * 16})"
OTHER = f"(sealed:password:{'0a' * 16})"
REDACTED = f"(redacted:password:{'1b' * 12})"


def test_a_text_may_be_nothing_else() -> None:
    assert only(f" {SEALED}\n{REDACTED} ")
    assert not only(f"token {SEALED}")


def test_they_are_told_in_their_order() -> None:
    assert STANDIN.findall(f"a {SEALED} b {REDACTED} c {SEALED}") == [SEALED, REDACTED, SEALED]
    assert STANDIN.findall("(sealed:github-token:4f)") == []


@pytest.mark.parametrize(
    ("after", "before"),
    [
        ("as it was", "as it was"),
        (f"key {SEALED}.", "key secret."),
        (f"{SEALED} and {OTHER} end", "one and two and three end"),
    ],
)
def test_a_text_with_parts_sealed_is_that_text(after: str, before: str) -> None:
    assert is_sealed_from(after, before)


@pytest.mark.parametrize(
    ("after", "before"),
    [
        ("as it was", "as it is"),
        (f"key {SEALED}.", "kex secret."),
        (f"key {SEALED}.", "key secret!"),
        (f"key {SEALED}.", "key ."),
        (f"{SEALED} and {OTHER} end", "one or two end"),
    ],
)
def test_a_text_that_differs_elsewhere_is_another_one(after: str, before: str) -> None:
    assert not is_sealed_from(after, before)
