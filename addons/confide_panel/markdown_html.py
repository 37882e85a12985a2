"""Renders stored texts as HTML in which nothing can run: HTML in a text is shown as text, and no
picture comes from another host.

A note may come from another device, an import, or a page that an agent has read. So links lead only
to the web or to documents of the memory, and pictures come only from this device. Invisible
characters and those that change the direction of text are shown by their numbers.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypedDict
from urllib.parse import unquote, urlsplit

from markupsafe import Markup, escape

from confide_crypto.sealing.placeholder import STANDIN, Placeholder

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_block import StateBlock
    from markdown_it.rules_inline import StateInline
    from markdown_it.token import Token

_PICTURE: Final = "\U0001f000-\U0001faff\u2190-\u21ff\u2600-\u27bf\u2b00-\u2bff\ufe0f"
_JOINED: Final = "\u0600-\u06ff\u0750-\u077f\u08a0-\u08ff\u0900-\u0dff\u1780-\u17ff"
"""Scripts that need joiners: Arabic and similar scripts, those of India, and Khmer."""
_HIDDEN: Final = re.compile(
    f"((?<=[{_PICTURE}])\u200d(?=[{_PICTURE}])|(?<=[{_JOINED}])[\u200c\u200d](?=[{_JOINED}]))|"
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e01ef]"
)
"""Controls, marks of direction, and invisible letters. The first group matches joiners that join a
picture or a letter, which stay, as do variation selectors of pictures (U+FE0F).
"""
_DEEPEST: Final = 100
"""Nested lists and quotations, two levels a list. markdown-it drops deeper text, so such a document
is shown as plain text.
"""
_MOST_MISSING: Final = 500
"""Cells that the rows of a table may lack. The parser adds each missing cell as HTML, which an
attacker could use to make a page large.
"""
_OUT: Final = 'rel="noreferrer noopener nofollow" target="_blank"'
_SCHEMES: Final = frozenset({"http", "https", "mailto"})
_PICTURE_NAME: Final = re.compile(r"(?i)\.(?:png|jpe?g|gif|webp|svg|avif|bmp)$")
_WIKI: Final = re.compile(r"(!?)\[\[([^\[\]\n]{1,1000})\]\]")
_LABELLED: Final = re.compile(r"\[\[([^\[\]|\n]+)\|([^\[\]\n]+)\]\]")
_NAMED: Final = re.compile(r"\[\[([^\[\]\n]+)\]\]")
_EMPHASIS: Final = re.compile(r"(\*\*|`)(?=\S)([^*`\n]+?)(?<=\S)\1")
_CALLOUT: Final = re.compile(r"\[!([\w-]{1,40})\][+-]?[ \t]*")
_TONES: Final = {
    **dict.fromkeys(("tip", "hint", "success", "check", "done"), "good"),
    **dict.fromkeys(("warning", "caution", "attention", "important"), "warn"),
    **dict.fromkeys(("danger", "error", "bug", "failure", "fail", "missing"), "bad"),
}
"""Colours of callouts by their type, as Obsidian has the types; all others are neutral."""
_BOXES: Final = {"[ ] ": "☐ ", "[x] ": "☑ ", "[X] ": "☑ "}
Show = Callable[[str], str]
"""Returns the address of the page that opens a sealed text, for its placeholder."""


def _nowhere(_name: str) -> str | None:
    return None


@dataclass(frozen=True, slots=True)
class DocumentLinks:
    """Converts the links of one document to addresses of the panel, or to None if there is no
    target.

    Attributes:
        wiki: called with the text in `[[brackets]]`; None if wiki links are shown as plain text.
        path: called with a path relative to the document, such as `../notes/a.md`.
        picture: called with a picture's name or relative path.
    """

    wiki: Callable[[str], str | None] | None = None
    path: Callable[[str], str | None] = _nowhere
    picture: Callable[[str], str | None] = _nowhere


NO_LINKS: Final = DocumentLinks()


class RenderState(TypedDict):
    """The state that the rendering rules share for one text.

    `ends` has the HTML that closes each open link, the innermost last.
    """

    show: Show
    links: DocumentLinks
    ends: list[str]


def plain(text: str) -> str:
    """Return a text with its invisible and direction-changing characters replaced by their numbers."""
    return _HIDDEN.sub(lambda found: found[1] or f"⟨U+{ord(found[0]):04X}⟩", text.replace("\r\n", "\n"))


def lines(text: str, show: Show, words: re.Pattern[str] | None = None) -> Markup:
    """Return a text as HTML without interpreting markdown. Sealed parts become links that open
    them, and the matches of `words` are marked.
    """
    return _with_placeholders(plain(text), show, words)


def strip_marks(text: str) -> str:
    """Return a line of markdown without the characters that mark links, emphasis and code. Both the
    text and the address of a link are kept.
    """
    text = _LABELLED.sub(lambda found: found[2] if found[1] == found[2] else f"{found[2]} ({found[1]})", text)
    text = _NAMED.sub(r"\1", text)
    return _EMPHASIS.sub(r"\2", text)


def page(text: str, show: Show, links: DocumentLinks = NO_LINKS) -> Markup:
    """Return markdown as HTML."""
    parser = _parser()
    shared: Any = RenderState(show=show, links=links, ends=[])
    tokens = parser.parse(plain(text), shared)
    if any(token.level >= _DEEPEST - 2 for token in tokens):
        return Markup('<pre tabindex="0" class="wrap"><code>{}</code></pre>').format(lines(text, show))
    _level(tokens)
    _mark_callouts(tokens)
    # Every rule below escapes what it is given.
    return Markup(parser.renderer.render(tokens, parser.options, shared))  # noqa: S704


@functools.cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt  # takes 60 ms, which most gateways never need

    parser = MarkdownIt("commonmark", {"html": False, "linkify": False, "maxNesting": _DEEPEST}).enable("table")
    parser.disable("reference")  # an unused definition would be invisible
    parser.block.ruler.at("table", _whole_table, {"alt": ["paragraph", "reference"]})
    parser.inline.ruler.before("link", "wiki", _wiki_link)
    parser.validateLink = _may_link  # type: ignore[assignment, method-assign]
    for name, rule in _RULES.items():
        parser.add_render_rule(name, rule)
    return parser


def _is_of_web(address: str) -> bool:
    try:
        return urlsplit(address).scheme.lower() in _SCHEMES
    except ValueError:
        return False


def _may_link(address: str) -> bool:
    """Return True if an address is of the web, or a relative path, which `DocumentLinks` may
    resolve.
    """
    return _is_of_web(address) or _is_relative(address)


def _is_relative(address: str) -> bool:
    try:
        parts = urlsplit(unquote(address))
    except ValueError:
        return False
    is_bare = not (parts.scheme or parts.netloc or parts.query)
    return is_bare and bool(parts.path) and not parts.path.startswith(("/", "\\")) and ":" not in parts.path


def _wiki_link(state: StateInline, silent: bool) -> bool:
    """Parse `[[name]]`, `[[name|label]]`, and `![[name]]`, which embeds it."""
    if state.src[state.pos] not in "[!" or (found := _WIKI.match(state.src, state.pos)) is None:
        return False
    if not silent:
        token = state.push("wiki", "", 0)
        token.content = found[2]
        token.markup = found[1]
    state.pos = found.end()
    return True


def _text(_self: Any, tokens: Sequence[Token], at: int, _options: Any, shared: RenderState) -> str:
    # Escaped again, since the parser decodes entities such as `&#x202e;`.
    return str(lines(tokens[at].content, shared["show"]))


def _code(self: Any, tokens: Sequence[Token], at: int, options: Any, shared: RenderState) -> str:
    return f"<code>{_text(self, tokens, at, options, shared)}</code>"


def _block(self: Any, tokens: Sequence[Token], at: int, options: Any, shared: RenderState) -> str:
    info = lines(tokens[at].info.strip(), shared["show"])
    message = f'<p class="quiet small">{info}</p>' if info else ""
    return f'{message}<pre tabindex="0"><code>{_text(self, tokens, at, options, shared)}</code></pre>\n'


def _link(_self: Any, tokens: Sequence[Token], at: int, _options: Any, shared: RenderState) -> str:
    href = str(tokens[at].attrGet("href") or "")
    title = _title_text(str(tokens[at].attrGet("title") or ""), shared)
    if _is_of_web(href):
        shared["ends"].append(f"</a>{title}")
        return f'<a href="{escape(href)}" title="{escape(href)}" {_OUT}>'
    if (address := shared["links"].path(unquote(href))) is not None:
        # A fragment can be any text, so it is shown.
        fragment = unquote(href).partition("#")[2]
        shared["ends"].append(f"</a>{_aside(f'#{fragment}' if fragment else '', shared)}{title}")
        return f'<a href="{escape(address)}" title="{escape(plain(unquote(href)))}">'
    shared["ends"].append(f"</span>{_aside(unquote(href), shared)}{title}")
    return '<span class="missing">'


def _link_end(_self: Any, _tokens: Sequence[Token], _at: int, _options: Any, shared: RenderState) -> str:
    return shared["ends"].pop()


def _aside(text: str, shared: RenderState) -> str:
    """Return a part of a link that a reader would not see otherwise, while an agent reads it."""
    return f' <span class="quiet">({lines(text, shared["show"])})</span>' if text else ""


def _wiki(_self: Any, tokens: Sequence[Token], at: int, _options: Any, shared: RenderState) -> str:
    """Link a wiki link to the document of its name; a name that no document has is marked as
    missing.
    """
    token = tokens[at]
    written, show, links = token.content, shared["show"], shared["links"]
    if links.wiki is None:
        return str(lines(f"{token.markup}[[{written}]]", show))
    target, _, label = written.replace("\\|", "|").partition("|")
    name = target.strip()
    if token.markup and _PICTURE_NAME.search(name):
        return _picture_html(name, label.strip(), shared)
    address = links.wiki(written)
    text = lines(label.strip() or name or written, show)
    kind = "embeds " if token.markup else ""
    # A label hides the name. That is safe for the name of a document, and for nothing else.
    is_hidden = bool(label.strip()) and label.strip() != name
    aside = _aside(name, shared) if is_hidden and (address is None or "#" in name or "^" in name) else ""
    if address is None:
        return f'{kind}<span class="missing">{text}</span>{aside}'
    return f'{kind}<a href="{escape(address)}" title="{escape(plain(name))}">{text}</a>{aside}'


def _title_text(title: str, shared: RenderState) -> str:
    """Return a link's title as text beside it, which a browser would show only under a pointer."""
    return f' <span class="quiet">“{lines(title, shared["show"])}”</span>' if title else ""


def _picture(_self: Any, tokens: Sequence[Token], at: int, _options: Any, shared: RenderState) -> str:
    """Show a picture of this device; link to one of the web, whose host would learn who reads here,
    and when.
    """
    src = str(tokens[at].attrGet("src") or "")
    title = _title_text(str(tokens[at].attrGet("title") or ""), shared)
    if not _is_of_web(src):
        return _picture_html(unquote(src), tokens[at].content, shared) + title
    href, name = escape(src), escape(plain(tokens[at].content) or "without a name")
    return f'<a href="{href}" title="{href}" {_OUT}>picture: {name}</a>{title}'


def _picture_html(name: str, label: str, shared: RenderState) -> str:
    """Return a picture of this device with its label below it, which agents read; or its name,
    where there is no such file.
    """
    caption = lines(label or name, shared["show"])
    address = shared["links"].picture(name)
    if address is None:
        return f'<span class="missing">picture: {caption}</span>{_aside(name, shared) if label else ""}'
    picture = f'<img src="{escape(address)}" alt="" loading="lazy">'
    return f'<span class="figure">{picture}<span class="quiet">{caption}</span></span>'


def _whole_table(state: StateBlock, first: int, end: int, silent: bool) -> bool:
    """Parse a table only if each of its rows fits: the parser drops cells beyond the last column,
    which agents still read.
    """
    from markdown_it.rules_block.table import escapedSplit, table

    count = len(state.tokens)
    if not table(state, first, end, silent):
        return False
    if silent:
        return True
    cells = [len(escapedSplit(_row(state, line))) for line in range(first, state.line)]
    if max(cells) <= cells[0] and sum(cells[0] - each for each in cells) <= _MOST_MISSING:
        return True
    del state.tokens[count:]
    state.line = first
    return False


def _row(state: StateBlock, line: int) -> str:
    text = state.src[state.bMarks[line] + state.tShift[line] : state.eMarks[line]].strip()
    return text.removeprefix("|").removesuffix("|")


def _level(tokens: Sequence[Token]) -> None:
    """Put headings below the page's own two levels, without gaps, and give each block the direction
    of its own script.
    """
    last = 2
    for token in tokens:
        if token.type in _SIDED:
            token.attrSet("dir", "auto")
        if token.type == "heading_open":
            last = min(int(token.tag[1:]) + 2, last + 1, 6)
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{last}"


def _mark_callouts(tokens: Sequence[Token]) -> None:
    """Make callouts of the quotations that begin with `[!type]`, and boxes of the items that begin
    with `[ ]`.
    """
    open_: list[bool] = []
    for at, token in enumerate(tokens):
        if token.type == "blockquote_open":
            open_.append(_is_callout(tokens, at))
        elif token.type == "blockquote_close" and open_.pop():
            token.tag = "div"
        elif token.type == "inline" and at > 1 and tokens[at - 2].type == "list_item_open":
            first = token.children[0] if token.children else None
            if first is not None and first.type == "text":
                first.content = _BOXES.get(first.content[:4], first.content[:4]) + first.content[4:]


def _is_callout(tokens: Sequence[Token], at: int) -> bool:
    """Turn a quotation into a callout if it begins with a type; return True if it does. The type
    becomes bold.
    """
    inline = tokens[at + 2] if at + 2 < len(tokens) else None
    if (
        inline is None
        or tokens[at + 1].type != "paragraph_open"
        or not inline.children
        or inline.children[0].type != "text"
    ):
        return False
    first = inline.children[0]
    if (found := _CALLOUT.match(first.content)) is None:
        return False
    rest = first.content[found.end() :]
    has_title = bool(rest) or (len(inline.children) > 1 and "break" not in inline.children[1].type)
    kind = found[1]
    first.content = rest
    mark = first.copy(type="callout", content=f"{kind[:1].upper()}{kind[1:]}{':' if has_title else ''}")
    mark.markup = " " if has_title else ""
    ends = (child for child in inline.children if child.type == "softbreak")
    if (end := next(ends, None)) is not None:
        end.type = "hardbreak"  # the title has a line of its own
    inline.children.insert(0, mark)
    opened = tokens[at]
    opened.tag = "div"
    opened.attrSet("class", f"callout {_TONES.get(kind.lower(), 'neutral')}")
    return True


def _callout_type(_self: Any, tokens: Sequence[Token], at: int, _options: Any, _shared: RenderState) -> str:
    return f"<strong>{escape(plain(tokens[at].content))}</strong>{tokens[at].markup}"


def _table(_self: Any, tokens: Sequence[Token], at: int, _options: Any, _shared: RenderState) -> str:
    is_opened = tokens[at].nesting == 1
    return (
        '<div class="wide" tabindex="0" role="region" aria-label="Table"><table>' if is_opened else "</table></div>\n"
    )


def _cell(_self: Any, tokens: Sequence[Token], at: int, _options: Any, _shared: RenderState) -> str:
    """Return the tag of a cell without its alignment, which would be an inline style."""
    token = tokens[at]
    return f'<{token.tag} dir="auto">' if token.nesting == 1 else f"</{token.tag}>"


_SIDED: Final = frozenset(
    {"paragraph_open", "heading_open", "bullet_list_open", "ordered_list_open", "blockquote_open"}
)
_RULES: Final = {
    "text": _text,
    "code_inline": _code,
    "code_block": _block,
    "fence": _block,
    "link_open": _link,
    "link_close": _link_end,
    "image": _picture,
    "wiki": _wiki,
    "callout": _callout_type,
    "table_open": _table,
    "table_close": _table,
    **dict.fromkeys(("th_open", "th_close", "td_open", "td_close"), _cell),
}


def _with_placeholders(text: str, show: Show, words: re.Pattern[str] | None = None) -> Markup:
    parts: list[str] = []
    end = 0
    for found in STANDIN.finditer(text):
        parts += [_mark_words(text[end : found.start()], words), _standin(found[0], show)]
        end = found.end()
    return Markup("").join([*parts, _mark_words(text[end:], words)])


def _mark_words(text: str, words: re.Pattern[str] | None) -> Markup:
    """Escape a text, and mark the words that a search asked for."""
    if words is None:
        return escape(text)
    parts: list[Markup] = []
    end = 0
    for found in words.finditer(text):
        parts += [escape(text[end : found.start()]), Markup("<mark>{}</mark>").format(found[0])]
        end = found.end()
    return Markup("").join([*parts, escape(text[end:])])


def _standin(text: str, show: Show) -> Markup:
    placeholder = Placeholder.parse(text)
    if placeholder is None:
        kind = text.removeprefix("(redacted:").split(":")[0]
        return Markup('<span class="sealed" title="Removed for good; it cannot be opened">redacted {}</span>').format(
            kind
        )
    kind = placeholder.kind
    return Markup(
        '<a class="sealed" href="{}" title="Sealed; opens on this machine" aria-label="Sealed {}: show it">sealed {} <span>show</span></a>'
    ).format(show(text), kind, kind)
