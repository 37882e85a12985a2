"""Stored texts as HTML that does nothing, and plots of numbers."""

from __future__ import annotations

import re
import urllib.parse
from datetime import date, timedelta

import markupsafe
import pytest
from hypothesis import given
from hypothesis import strategies as st

from confide_memory.tools.search_text import wanted_words
from confide_panel import markdown_html
from confide_panel.drawing import plots
from confide_panel.drawing.graph import HEIGHT, WIDTH, Edge, draw_graph
from confide_panel.pages.note_pages import LINE_CHARS, PAGE_CHARS, cut, difference

PLACEHOLDER = f"(sealed:github-token:{'4f' * 16})"
TAGS = re.compile(r"<(/?)([a-z0-9]+)([^>]*)>")
MAY = {
    *("p", "a", "em", "strong", "code", "pre", "ul", "ol", "li", "blockquote", "h3", "h4", "h5", "h6", "hr", "br"),
    *("div", "table", "thead", "tbody", "tr", "th", "td", "span", "img"),
}
ATTRIBUTE = re.compile(
    r'\s(?:dir="auto"|(?:href|src)="/panel/[^"]*"|alt=""|loading="lazy"|href="(?:https?:|mailto:|/show)[^"]*"'
    r'|rel="[a-z ]+"|target="_blank"|tabindex="0"|role="region"|start="\d+"'
    r'|class="(?:wide|sealed|missing|figure|quiet|callout (?:neutral|good|warn|bad))"|(?:aria-label|title)="[^"<>]*")'
)


def quoted(name: str) -> str:
    return f"/panel/x?{urllib.parse.quote(name)}"


ALL_RESOLVE = markdown_html.DocumentLinks(quoted, quoted, quoted)
SOME_RESOLVE = markdown_html.DocumentLinks(
    {"Roof": "/panel/roof", "Roof|the top": "/panel/roof", "Roof#tiles|the top": "/panel/roof"}.get,
    {"roof.md": "/panel/roof", "roof.md#tiles": "/panel/roof"}.get,
    {"cat.png": "/panel/cat"}.get,
)


def page(text: str, links: markdown_html.DocumentLinks = markdown_html.NO_LINKS) -> str:
    return str(markdown_html.page(text, lambda placeholder: f"/show?{placeholder}", links))


@pytest.mark.parametrize("links", [markdown_html.NO_LINKS, ALL_RESOLVE], ids=["none resolves", "all resolve"])
@given(text=st.text(alphabet=st.sampled_from("<>\"'&/=![]()`*_#|-:\n \tascriptonjv.\u202e\u200b\x00"), max_size=120))
def test_whatever_is_stored_only_harmless_markup_comes_of_it(links: markdown_html.DocumentLinks, text: str) -> None:
    found = page(text, links)
    for _, name, attributes in TAGS.findall(found):
        assert name in MAY
        assert ATTRIBUTE.sub("", attributes).strip(" /") == ""
    assert not set("\u202e\u200b\x00") & set(found)


@pytest.mark.parametrize(
    "address",
    [
        "javascript:alert(1)",
        "JaVaScRiPt:x",
        "data:text/html,x",
        "vbscript:x",
        "file:///etc/passwd",
        "//evil.example",
        "/panel/x",
    ],
)
def test_addresses_that_are_none_of_the_web_are_text(address: str) -> None:
    assert "<a " not in page(f"[go]({address})")
    assert "<a " not in page(f"<{address}>")


@pytest.mark.parametrize(
    "markup", ["<script>alert(1)</script>", "a <b>bold</b> word", "<img src=x onerror=alert(1)>", "<!-- hidden -->"]
)
def test_markup_is_text(markup: str) -> None:
    assert str(markupsafe.escape(markup)) in page(markup)


def test_a_picture_is_a_link() -> None:
    """To show it would tell its host who reads here."""
    found = page("![a cat](https://example.org/cat.png)")
    assert "<img" not in found
    assert "picture: a cat</a>" in found


def test_a_wiki_link_leads_to_the_document_of_its_name() -> None:
    """One that no document has is marked, and so is each where nothing resolves them; in code it is code."""
    assert '<a href="/panel/roof" title="Roof">Roof</a>' in page("[[Roof]]", SOME_RESOLVE)
    assert ">the top</a>" in page("[[Roof|the top]]", SOME_RESOLVE)
    assert '<span class="missing">Cellar</span>' in page("[[Cellar]]", SOME_RESOLVE)
    assert "<a " not in page("`[[Roof]]` [[Roof\n]] \\[[Roof]]", SOME_RESOLVE)
    assert "[[Roof]]" in page("[[Roof]]")
    assert 'embeds <a href="/panel/roof"' in page("![[Roof]]", SOME_RESOLVE)
    assert "| <a " not in page("| a |\n|---|\n| [[Roof\\|the top]] |", SOME_RESOLVE)


def test_a_label_hides_no_text_that_an_agent_reads() -> None:
    """The name of a document may be behind a label; any other text stands beside it."""
    visible = re.compile("<[^>]*>")
    assert "tiles" in visible.sub("", page("[[Roof#tiles|the top]]", SOME_RESOLVE))
    assert "orders" in visible.sub("", page("[[orders|the top]]", SOME_RESOLVE))
    assert "orders" in visible.sub("", page("![[orders.png|a cat]]", SOME_RESOLVE))
    assert "orders" in visible.sub("", page("![orders](cat.png)", SOME_RESOLVE))
    assert "orders" in visible.sub("", page("[top](orders.md)", SOME_RESOLVE))
    assert "tiles" in visible.sub("", page("[top](roof.md#tiles)", SOME_RESOLVE))


def test_a_relative_link_leads_to_a_document() -> None:
    assert '<a href="/panel/roof" title="roof.md">top</a>' in page("[top](roof.md)", SOME_RESOLVE)
    assert '<span class="missing">top</span>' in page("[top](cellar.md)", SOME_RESOLVE)


def test_a_picture_of_this_device_is_shown_with_its_label() -> None:
    """By either spelling; one that is not there is named, and one of the web stays a link."""
    shown = '<span class="figure"><img src="/panel/cat" alt="" loading="lazy"><span class="quiet">a cat</span></span>'
    assert shown in page("![a cat](cat.png)", SOME_RESOLVE)
    assert shown in page("![[cat.png|a cat]]", SOME_RESOLVE)
    assert "picture: dog.png" in page("![[dog.png]]", SOME_RESOLVE)
    assert "<img" not in page(
        "![x](https://example.org/cat.png) ![y](//example.org/cat.png) ![z](data:image/png,x)", ALL_RESOLVE
    )


@pytest.mark.parametrize(
    ("text", "tone", "title", "rest"),
    [
        ("> [!warning] Mind *the* gap\n> It is wide.", "warn", "<strong>Warning:</strong> Mind <em>the</em> gap<br", "It is wide."),
        ("> [!note]\n> It is wide.", "neutral", "<strong>Note</strong><br", "It is wide."),
        ("> [!danger]- Folded\n>\n> - item", "bad", "<strong>Danger:</strong> Folded</p>", "<li>"),
        ("> [!Tip]", "good", "<strong>Tip</strong></p>", ""),
        ("> [!w1234] x", "neutral", "<strong>W1234:</strong> x</p>", ""),
    ],
)  # fmt: skip
def test_a_callout_has_its_colour_and_its_title(text: str, tone: str, title: str, rest: str) -> None:
    found = page(text)
    assert f'class="callout {tone}"' in found
    assert "blockquote" not in found
    assert title in found
    assert rest in found


def test_a_quotation_stays_one() -> None:
    assert "callout" not in page("> plain\n\n> `[!note]` code\n\n> # [!note]\n\n> - [!note]")
    nested = page("> [!note] outer\n>\n> > inner")
    assert (
        nested.count("<div"),
        nested.count("</div>"),
        nested.count("<blockquote"),
        nested.count("</blockquote>"),
    ) == (1, 1, 1, 1)


def test_boxes_of_a_list_are_boxes() -> None:
    found = page("- [ ] open\n- [x] done\n- [y] neither")
    assert "☐ open" in found
    assert "☑ done" in found
    assert "[y] neither" in found


def test_a_line_of_a_list_has_no_marks_of_markdown() -> None:
    """And loses no word: a label stands before the name that it hides."""
    shown = markdown_html.strip_marks("See [[wall]], [[roof|the top]] and [[a|a]]: `code`, **bold**, 2 ** 3 and ``.")
    assert shown == "See wall, the top (roof) and a: code, bold, 2 ** 3 and ``."


def test_the_words_of_a_query_are_marked_in_a_hit() -> None:
    """In all their forms, and never in what is sealed."""
    words = wanted_words("why the <b> locks of sealed tokens?")
    found = str(markdown_html.lines(f"Row lock <b> {PLACEHOLDER} locked", lambda placeholder: "/show", words))
    assert "Row <mark>lock</mark> &lt;<mark>b</mark>&gt;" in found
    assert "<mark>locked</mark>" in found
    assert found.count("<mark>") == 3
    assert 'class="sealed"' in found


def test_headings_come_below_those_of_the_page() -> None:
    """And none is more than one below the last, whatever the text says."""
    assert re.findall(r"<h(\d) ", page("##### five\n\n# one\n\n### three\n\n###### six")) == ["3", "3", "4", "5"]


@pytest.mark.parametrize("around", ["{}", "`{}`", "# {}", "- {}", "```\n{}\n```", "    {}", "| {} |\n|---|"])
def test_what_is_sealed_has_a_way_to_be_shown_wherever_it_stands(around: str) -> None:
    found = page(around.format(PLACEHOLDER))
    assert 'class="sealed"' in found
    assert "4f4f" in re.findall(r'href="([^"]+)"', found)[0]
    assert "redacted password" in page(f"(redacted:password:{'ab' * 12})")


@pytest.mark.parametrize(
    "text",
    [
        "[x]: https://example.org (orders)",
        "[x]: https://example.org\n'orders'",
        "```python orders\ncode\n```",
        "| a |\n|---|\n| x | orders |",
        "[a](https://example.org 'orders')",
        "![a](https://example.org/p.png 'orders')",
        "- " * 60 + "orders\n\nfar",
        "> " * 60 + "orders",
        "<!-- orders -->",
        "[//]: # (orders)",
        "\\orders",
        "a  \norders",
    ],
    ids=ascii,
)
def test_nothing_that_an_agent_reads_is_left_out(text: str) -> None:
    """Markdown drops this and that, which agents are given all the same: a place for orders that its owner does not see."""
    assert "orders" in re.sub("<[^>]*>", "", page(text))


@given(
    st.lists(
        st.one_of(
            st.sampled_from(
                [*"|#>-*_`[]()!<:\"'~=+.\n ", "|---|\n", "]: ", "```", "    ", "https://x.example ", "&#x202e;", "- "]
            ),
            st.integers(1000, 9999).map(lambda n: f"w{n}"),
        ),
        max_size=60,
    )
)
def test_every_word_is_there(parts: list[str]) -> None:
    """In the text, or in the address of a link."""
    text = "".join(parts)
    found = page(text)
    assert [word for word in re.findall(r"w\d{4}", text) if word not in found] == []
    assert "\u202e" not in found


def test_a_table_takes_no_more_room_than_its_text() -> None:
    """Of a row with one cell, each missing one would be markup."""
    wide = "|" + "a|" * 200 + "\n|" + "-|" * 200 + "\n" + "|x\n" * 300
    assert len(page(wide)) < 4 * len(wide)


def test_joiners_stay_where_a_script_or_a_picture_needs_them() -> None:
    """They hide nothing there; anywhere else they are shown."""
    family, persian, hindi = "👩\u200d👩\u200d👧 🏳️\u200d🌈", "\u0645\u06cc\u200c\u062e", "\u0915\u094d\u200d\u0937"
    assert markdown_html.plain(f"{family} {persian} {hindi}") == f"{family} {persian} {hindi}"
    assert markdown_html.plain("pass\u200dword \u200c👩\u200d") == "pass⟨U+200D⟩word ⟨U+200C⟩👩⟨U+200D⟩"


def test_each_paragraph_has_a_direction_of_its_own() -> None:
    assert re.findall(r"<(\w+) dir=\"auto\"", page("# שלום\n\nHello\n\n- שלום\n\n> שלום\n\n| שלום |\n|---|\n")) == [
        *("h3", "p", "ul", "blockquote", "p", "th")
    ]


def test_what_hides_is_seen() -> None:
    assert (
        markdown_html.plain("a\u202eb\u2066\x1b[2J\u200b\r\nc\U000e0041")
        == "a⟨U+202E⟩b⟨U+2066⟩⟨U+001B⟩[2J⟨U+200B⟩\nc⟨U+E0041⟩"
    )
    assert markdown_html.plain("❤️ näh 日本") == "❤️ näh 日本"


def test_a_page_holds_so_much_of_a_text() -> None:
    text = "\n".join(f"line {n} {'x' * 60}" for n in range(2000))
    shown, lines = cut(text)
    assert len(shown) <= PAGE_CHARS + 80
    assert shown.count("\n") == lines - 1
    assert len(cut("y" * 10 * LINE_CHARS)[0]) < LINE_CHARS + 10
    assert cut("") == ("", 0)


def test_a_difference_names_lines_of_both() -> None:
    rows, is_whole = difference("a\nb\nc\n", "a\nB\nc\n")
    assert rows == [(" ", "1", "a"), ("-", "2", "b"), ("+", "2", "B"), (" ", "3", "c")]
    assert is_whole
    assert difference("\n".join(map(str, range(900))), "\n".join(map(str, range(900, 1800))))[1] is False


def test_bars_are_as_high_as_their_numbers() -> None:
    today = date(2026, 11, 25)
    days = [today - timedelta(days=back) for back in (1, 0)]
    drawing = str(plots.draw_bars(days, {"one": {today: 4}, "two": {today: 2}}, label="<b>"))
    heights = [float(each) for each in re.findall(r"v([\d.]+)h-", drawing)]
    assert heights[0] == pytest.approx(2 * heights[1], rel=0.01)
    assert "&lt;b&gt;" in drawing
    year = str(plots.calendar({today: 9, today - timedelta(days=400): 1}, today, label="year"))
    assert year.count('class="q4"') == 1
    assert 'class="q1"' not in year


def test_percentiles_are_values_that_were_measured() -> None:
    values = [float(n) for n in range(1, 101)]
    assert [plots.percentile(values, share) for share in (0, 0.5, 0.95, 1)] == [1, 51, 96, 100]
    assert plots.percentile([], 0.5) == 0


def test_a_graph_stays_on_its_sheet() -> None:
    """Whatever hangs together; and it is the same for the same notes."""
    names = {f"n{n}": f"Note <{n}>" for n in range(60)}
    edges = [Edge(f"n{n}", "supports", f"n{n * 7 % 60}") for n in range(60)]
    drawing = str(draw_graph(names, edges, address=lambda of: f"/note/{of}", self_="n3", label="all"))
    for x, y in re.findall(r'cx="(-?\d+)" cy="(-?\d+)"', drawing):
        assert 0 < int(x) < WIDTH
        assert 0 < int(y) < HEIGHT
    assert "<3>" not in drawing
    assert drawing == str(draw_graph(names, edges, address=lambda of: f"/note/{of}", self_="n3", label="all"))
