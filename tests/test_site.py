"""The pages as a whole: each is in the site's menu and in the index, and every link from one to another leads somewhere."""

from __future__ import annotations

import itertools
import re
from functools import cache
from pathlib import Path

import pytest
import yaml
from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[1]
BESIDE = (ROOT / "daemon/ranking.md", ROOT / "release/README.md")
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *BESIDE])
_MARKDOWN = MarkdownIt("commonmark").enable("table")


@cache
def anchors(page: Path) -> frozenset[str]:
    """What a `#` can lead to, as GitHub and the site make it of headings."""
    tokens = _MARKDOWN.parse(page.read_text("utf-8"))
    titles = [tokens[at + 1].children or [] for at, token in enumerate(tokens) if token.type == "heading_open"]
    texts = ["".join(each.content for each in title) for title in titles]
    return frozenset(re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in texts)


def links(page: Path) -> list[str]:
    inline = (child for token in _MARKDOWN.parse(page.read_text("utf-8")) for child in token.children or ())
    return [str(each.attrs["href"]) for each in inline if each.type == "link_open"]


def test_the_menu_names_every_page() -> None:
    """What is for users, and nothing that is gone; the decisions have a table of their own."""
    menu = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))["nav"]
    named = {
        page
        for entry in menu
        for below in entry.values()
        for page in (_below(below) if isinstance(below, list) else [below])
    }
    pages = {str(page.relative_to(ROOT)) for page in PAGES if page.parent.name != "decisions"} | {
        "docs/decisions/README.md"
    }
    assert named >= pages
    assert all((ROOT / page).is_file() for page in named)


def _below(entries: list[dict[str, str]]) -> list[str]:
    return [page for entry in entries for page in entry.values()]


def test_the_index_names_every_page() -> None:
    index = links(ROOT / "docs" / "README.md")
    assert {page.name for page in (ROOT / "docs").glob("*.md")} - {"README.md"} <= set(index)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    """To a file that is there, and to a heading in it where one is named."""
    for link in links(page):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, heading = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not heading or heading in anchors(target), link


def test_every_table_of_decisions_is_whole() -> None:
    folder = ROOT / "docs" / "decisions"
    assert {page.name for page in folder.glob("0*.md")} == set(links(folder / "README.md")) & {
        page.name for page in folder.glob("*.md")
    }


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.parent.name != "decisions"], ids=lambda page: str(page.relative_to(ROOT))
)
def test_the_site_shows_lists_as_lists(page: Path) -> None:
    """Its Markdown takes a list only behind a blank line, and an item below an item only four blanks in; GitHub is not so strict."""
    lines = re.sub(r"^ *```.*?^ *```", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL).splitlines()
    item = re.compile(r"^( *)([-*]|\d+\.) ")
    for above, line in itertools.pairwise(lines):
        if found := item.match(line):
            assert len(found[1]) % 4 == 0, line
            assert not above.strip() or item.match(above) or above.startswith("  "), line


def test_the_readme_is_read_in_a_minute() -> None:
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 90
