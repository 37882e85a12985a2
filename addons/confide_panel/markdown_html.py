"""Stored texts as HTML that does nothing: no markup of theirs, no picture from elsewhere, no address but of the web, nothing that hides.

A note may come from another machine, an import, or a page that an agent has read. Marks that turn a line around, or that nobody sees, are
shown by their numbers, where the commands show `?`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypedDict
from urllib.parse import urlsplit

from markupsafe import Markup, escape

from confide_crypto.sealing.placeholder import STANDIN, Placeholder

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_block import StateBlock
    from markdown_it.token import Token

_PICTURE: Final = "\U0001f000-\U0001faff\u2190-\u21ff\u2600-\u27bf\u2b00-\u2bff\ufe0f"
_JOINED: Final = "\u0600-\u06ff\u0750-\u077f\u08a0-\u08ff\u0900-\u0dff\u1780-\u17ff"
"""Scripts that are written with joiners: Arabic and those of its form, those of India, Khmer."""
_HIDDEN: Final = re.compile(
    f"((?<=[{_PICTURE}])\u200d(?=[{_PICTURE}])|(?<=[{_JOINED}])[\u200c\u200d](?=[{_JOINED}]))|"
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e01ef]"
)
"""Controls, marks of direction, and letters that nobody sees; in its first group joiners, where they make one picture or letter of two.
Variation selectors of pictures (U+FE0F) stay."""
_DEEPEST: Final = 100
"""Levels of lists and quotes, two a list: what is deeper markdown leaves out, so such a text is shown as it is."""
_MOST_MISSING: Final = 500
"""Cells that the rows of a table lack: each would be markup."""
_OUT: Final = 'rel="noreferrer noopener nofollow" target="_blank"'
_SCHEMES: Final = frozenset({"http", "https", "mailto"})
Show = Callable[[str], str]
"""The address that a sealed text is shown by, for its placeholder."""


class RenderState(TypedDict):
    """What the rules share of one text. `titles`: of the links that are open."""

    show: Show
    titles: list[str]


def plain(text: str) -> str:
    """A text in which all that stands is seen, and steers nothing."""
    return _HIDDEN.sub(lambda found: found[1] or f"⟨U+{ord(found[0]):04X}⟩", text.replace("\r\n", "\n"))


def lines(text: str, show: Show) -> Markup:
    """A text as it is, with what is sealed as a button that asks to show it."""
    return _with_placeholders(plain(text), show)


def page(text: str, show: Show) -> Markup:
    """Markdown as HTML."""
    parser = _parser()
    shared: Any = RenderState(show=show, titles=[])
    tokens = parser.parse(plain(text), shared)
    if any(token.level >= _DEEPEST - 2 for token in tokens):
        return Markup('<pre tabindex="0" class="wrap"><code>{}</code></pre>').format(lines(text, show))
    _level(tokens)
    # Every rule below escapes what it is given.
    return Markup(parser.renderer.render(tokens, parser.options, shared))  # noqa: S704


@functools.cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt  # 60 ms of a gateway that shows no page

    parser = MarkdownIt("commonmark", {"html": False, "linkify": False, "maxNesting": _DEEPEST}).enable("table")
    parser.disable("reference")  # of which nothing would be seen where nobody refers to it
    parser.block.ruler.at("table", _whole_table, {"alt": ["paragraph", "reference"]})
    parser.validateLink = _is_of_web  # type: ignore[assignment, method-assign]
    for name, rule in _RULES.items():
        parser.add_render_rule(name, rule)
    return parser


def _is_of_web(address: str) -> bool:
    try:
        return urlsplit(address).scheme.lower() in _SCHEMES
    except ValueError:
        return False


def _text(_self: Any, tokens: Sequence[Token], at: int, _options: Any, shared: RenderState) -> str:
    # Once more, since markdown has made characters of what was written as `&#x202e;`.
    return str(lines(tokens[at].content, shared["show"]))


def _code(self: Any, tokens: Sequence[Token], at: int, options: Any, shared: RenderState) -> str:
    return f"<code>{_text(self, tokens, at, options, shared)}</code>"


def _block(self: Any, tokens: Sequence[Token], at: int, options: Any, shared: RenderState) -> str:
    info = lines(tokens[at].info.strip(), shared["show"])
    told = f'<p class="quiet small">{info}</p>' if info else ""
    return f'{told}<pre tabindex="0"><code>{_text(self, tokens, at, options, shared)}</code></pre>\n'


def _link(_self: Any, tokens: Sequence[Token], at: int, _options: Any, shared: RenderState) -> str:
    href = escape(str(tokens[at].attrGet("href") or ""))
    shared["titles"].append(str(tokens[at].attrGet("title") or ""))
    return f'<a href="{href}" title="{href}" {_OUT}>'


def _link_end(_self: Any, _tokens: Sequence[Token], _at: int, _options: Any, shared: RenderState) -> str:
    return f"</a>{_titled(shared['titles'].pop(), shared)}"


def _titled(title: str, shared: RenderState) -> str:
    """A link's title, which a browser would show to a pointer alone."""
    return f' <span class="quiet">“{lines(title, shared["show"])}”</span>' if title else ""


def _picture(_self: Any, tokens: Sequence[Token], at: int, _options: Any, shared: RenderState) -> str:
    """A link to it: to show it would tell its host who reads here, and when."""
    href, name = escape(str(tokens[at].attrGet("src") or "")), escape(plain(tokens[at].content) or "without a name")
    title = _titled(str(tokens[at].attrGet("title") or ""), shared)
    return f'<a href="{href}" title="{href}" {_OUT}>picture: {name}</a>{title}'


def _whole_table(state: StateBlock, first: int, end: int, silent: bool) -> bool:
    """A table, if each of its rows fits: cells behind the last column are left out otherwise, and seen by agents all the same."""
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
    """Put the headings of a text below the page's own two, none more than one below the last; and let each block begin at its own side."""
    last = 2
    for token in tokens:
        if token.type in _SIDED:
            token.attrSet("dir", "auto")
        if token.type == "heading_open":
            last = min(int(token.tag[1:]) + 2, last + 1, 6)
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{last}"


def _table(_self: Any, tokens: Sequence[Token], at: int, _options: Any, _shared: RenderState) -> str:
    is_opened = tokens[at].nesting == 1
    return (
        '<div class="wide" tabindex="0" role="region" aria-label="Table"><table>' if is_opened else "</table></div>\n"
    )


def _cell(_self: Any, tokens: Sequence[Token], at: int, _options: Any, _shared: RenderState) -> str:
    """Without the alignment, which is a style that stands inline."""
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
    "table_open": _table,
    "table_close": _table,
    **dict.fromkeys(("th_open", "th_close", "td_open", "td_close"), _cell),
}


def _with_placeholders(text: str, show: Show) -> Markup:
    parts: list[str] = []
    end = 0
    for found in STANDIN.finditer(text):
        parts += [escape(text[end : found.start()]), _standin(found[0], show)]
        end = found.end()
    return Markup("").join([*parts, escape(text[end:])])


def _standin(text: str, show: Show) -> Markup:
    placeholder = Placeholder.parse(text)
    if placeholder is None:
        kind = text.removeprefix("(redacted:").split(":")[0]
        return Markup('<span class="sealed" title="Left out; nobody can open it">redacted {}</span>').format(kind)
    kind = placeholder.kind
    return Markup(
        '<a class="sealed" href="{}" title="Sealed; opens on this machine" aria-label="Sealed {}: show it">sealed {} <span>show</span></a>'
    ).format(show(text), kind, kind)
