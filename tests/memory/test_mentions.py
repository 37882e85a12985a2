"""Tags, aliases and wiki links of a markdown file, as Obsidian reads them."""

from __future__ import annotations

import pytest

from confide_memory.mentions import MAX_LINKS, Mentions, names_in, properties_of, read


@pytest.mark.parametrize(
    ("text", "tags"),
    [
        ("---\ntags: [a, '#b']\n---\n", ("a", "b")),
        ("---\ntags:\n  - a\n  - 2026\n---\n", ("a", "2026")),
        ("---\ntags: 'a, #b c'\n---\n#d\n", ("a", "b", "c", "d")),
        ("---\ntag: '#a'\n---\n", ("a",)),
        ("---\ntags: {a: b}\n---\n", ()),
        ("Some #one, (no#two) #three/four. #y1984 #größe\n", ("one", "three/four", "y1984", "größe")),
        ("# Heading\n## Heading\n#123 #1984/05 ## http://a/#frag [x](#y) &#35;\n", ()),
        ("## A heading with a #tag\n", ("tag",)),
        ("```\n#no\n```\n`#no` ``a `#no` b`` #yes\n", ("yes",)),
        ("text\n\n    #no\n\n- item\n\n    #yes\n", ("yes",)),
        ("~~~sh\n# comment\n#no\n~~~\n", ()),
        (
            "tags:: a, #b, [[two words]]\n\n- tags:: later\n- #[[three words here]] and #c\n",
            ("b", "a", "two words", "later", "c", "three words here"),
        ),
        ("`tags:: no`\n```\ntags:: no\n```\nsee std::vector and a::b\n", ()),
    ],
)
def test_tags_are_those_of_the_front_matter_and_of_the_text(text: str, tags: tuple[str, ...]) -> None:
    """A list or words, with or without `#`; in the text neither headings, nor code, nor numbers."""
    assert read("a.md", text).tags == tags


@pytest.mark.parametrize(
    ("text", "links"),
    [
        ("[[Note]] ![[Embed.png]] [[a/b|shown]] [[c#Heading]] [[d.md]]", ("Note", "Embed.png", "a/b", "c", "d")),
        ("| [[t\\|shown]] |", ("t",)),
        ("[[#Here]] [[^block]] [[]] [[ ]] [[x", ()),
        ("`[[no]]`\n```\n[[no]]\n```\n", ()),
        ("---\nup: '[[Parent]]'\n---\n", ("Parent",)),
        (
            '[a](file.md) [b](<file name.md>) [c](a%20b/c.md#part "title") [d](f(1).MD)',
            ("file", "file name", "a b/c", "f(1)"),
        ),
        ("[a](http://x.y/z.md) [b](z.png) [c](mailto:a@b.md) [d](#here) [e]() [f](x.txt) `[g](g.md)`", ()),
        (
            "[up](../up.md) [out](../../../out.md) ![shown](shown.md) [bad](%00.md) [odd](%zz.md)",
            ("notes/up", "../out", "shown", "\0", "%zz"),
        ),
        ("[[../other]] [[./beside]] [[/root]]", ("notes/other", "notes/x/beside", "root")),
    ],
)
def test_links_are_named_without_heading_alias_and_ending(text: str, links: tuple[str, ...]) -> None:
    """What a link shows, and where in the file it leads, does not change which file it is."""
    assert read("notes/x/here.md", text).links == links


def test_aliases_and_the_title_are_names() -> None:
    text = "---\naliases: [One, Two words]\nalias: Three, Four\ntitle: The Title\n---\n"
    assert read("a.md", text).aliases == ("One", "Two words", "Three", "Four", "The Title")


def test_properties_of_a_page_name_it() -> None:
    """Above its text only; and a file's name may be another than its page's."""
    text = "title:: The Page\nalias:: One, [[Two words]]\ntags:: x\n\ntext\n\n- alias:: no\n"
    assert read("pages/a.md", text).aliases == ("One", "Two words", "The Page")
    assert properties_of(text) == {"title": "The Page", "alias": "One, Two words", "tags": "x"}
    assert properties_of("text\ntitle:: no\n") == {}
    assert read("pages/a___b.md", "").aliases == ("a/b",)
    assert read("pages/a%2Fb%3F.md", "").aliases == ("a/b?",)
    assert read("journals/2025_01_22.md", "").aliases == ("2025-01-22", "Jan 22nd, 2025")
    assert read("journals/2025_13_42.md", "").aliases == ("2025-13-42",)


def test_a_question_names_a_page() -> None:
    assert names_in("Partielle Ordnung") == ["Partielle Ordnung"]
    assert names_in("What is the deploy key?") == ["What is the deploy key", "deploy key"]
    assert names_in("wer ist Ann Miller?")[1] == "Ann Miller"
    assert names_in("[[Two words]]") == ["Two words"]
    assert names_in("?") == names_in("") == names_in("word " * 100) == []


def test_too_many_links_are_cut_off_and_odd_files_mention_nothing() -> None:
    """Whatever stands in a file, reading it ends soon and never fails."""
    assert len(read("a.md", " ".join(f"[[{number}]]" for number in range(2000))).links) == MAX_LINKS
    for text in (
        "",
        "---\n",
        "---\na: [\n---\n",
        "[[" * 50_000,
        "`" * 50_000,
        "#" * 50_000,
        "---\naliases: 3\n---\n\x00",
    ):
        assert read("a.md", text).links == ()
    assert read("a.md", "") == Mentions()
