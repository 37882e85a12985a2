"""Changes of one section of a text."""

from __future__ import annotations

import pytest

from confide_memory import markdown_blocks
from confide_memory.errors import NotFoundError


def test_appending_under_a_heading_goes_to_the_end_of_its_section() -> None:
    """Sub-sections belong to it; list items stay one list."""
    text = "# Log\n\n## Facts\n\n- one\n\n## Other\n\ntext\n"
    assert (
        markdown_blocks.append_text(text, "- two", heading="facts")
        == "# Log\n\n## Facts\n\n- one\n- two\n\n## Other\n\ntext\n"
    )


def test_appending_under_a_missing_heading_makes_it() -> None:
    """At the end, at the level asked for, two by default."""
    assert markdown_blocks.append_text("# Log\n", "text", heading="New") == "# Log\n\n## New\n\ntext\n"
    assert markdown_blocks.append_text("", "text", heading="### New") == "### New\n\ntext\n"


@pytest.mark.parametrize("heading", ["New\nthings", "## New\n things", " New\r\n\tthings\n"])
def test_a_heading_of_several_lines_is_one(heading: str) -> None:
    """Its other lines were text below it, so that each store made another heading of that name."""
    once = markdown_blocks.append_text("# Log\n", "one", heading=heading)
    assert once == "# Log\n\n## New things\n\none\n"
    assert markdown_blocks.append_text(once, "two", heading=heading) == f"{once}\ntwo\n"
    assert markdown_blocks.replace_section(once, "three", heading=heading) == "# Log\n\n## New things\n\nthree\n"


def test_appending_without_a_heading_leaves_one_blank_line() -> None:
    """However the file ended."""
    for text in ("a", "a\n", "a\n\n\n"):
        assert markdown_blocks.append_text(text, "b\n", heading=None) == "a\n\nb\n"
    assert markdown_blocks.append_text("", "b", heading=None) == "b\n"


def test_replacing_a_section_leaves_the_rest() -> None:
    """The heading line stays, in either style; headings in fences are none."""
    text = "Top\n---\n\nold\n\n### Sub\n\nold too\n\n## Next\n\nkept\n\n```\n## Next\n```\n"
    replaced = markdown_blocks.replace_section(text, "new", heading="Top")
    assert replaced == "Top\n---\n\nnew\n\n## Next\n\nkept\n\n```\n## Next\n```\n"


def test_replacing_a_section_that_is_not_there_names_those_that_are() -> None:
    """So that an agent can correct itself."""
    with pytest.raises(NotFoundError) as caught:
        markdown_blocks.replace_section("# A\n\n## B\n", "x", heading="C")
    assert "A; B" in str(caught.value.hint)
