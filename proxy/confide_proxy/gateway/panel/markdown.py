"""Stored texts as HTML that does nothing: no markup of theirs, no picture from elsewhere, no address but of the web, nothing that hides.

A note may come from another machine, an import, or a page that an agent has read. Marks that turn a line around, or that nobody sees, are
shown by their numbers, where the commands show `?`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from markupsafe import Markup, escape

from confide_crypto.sealing.placeholder import STANDIN, Placeholder

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

_HIDDEN: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e01ef]"
)
"""Controls, marks of direction, and letters that nobody sees. Variation selectors of pictures (U+FE0F) stay."""
_OUT: Final = 'rel="noreferrer noopener nofollow" target="_blank"'
_SCHEMES: Final = frozenset({"http", "https", "mailto"})
Show = Callable[[str], str]
"""The address that a sealed text is shown by, for its placeholder."""


def plain(text: str) -> str:
    """A text in which all that stands is seen, and steers nothing."""
    return _HIDDEN.sub(lambda found: f"⟨U+{ord(found[0]):04X}⟩", text.replace("\r\n", "\n"))


def lines(text: str, show: Show) -> Markup:
    """A text as it is, with what is sealed as a button that asks to show it."""
    return _with_placeholders(plain(text), show)


def page(text: str, show: Show) -> Markup:
    """Markdown as HTML."""
    parser, environment = _parser(), {"show": show}
    tokens = parser.parse(plain(text), environment)
    _level(tokens)
    # Every rule below escapes what it is given.
    return Markup(parser.renderer.render(tokens, parser.options, environment))  # noqa: S704


@functools.cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False, "linkify": False}).enable("table")
    parser.validateLink = _is_of_web  # type: ignore[assignment, method-assign]
    for name, rule in _RULES.items():
        parser.add_render_rule(name, rule)
    return parser


def _is_of_web(address: str) -> bool:
    try:
        return urlsplit(address).scheme.lower() in _SCHEMES
    except ValueError:
        return False


def _text(_self: Any, tokens: Sequence[Token], at: int, _options: Any, environment: dict[str, Any]) -> str:
    return str(_with_placeholders(tokens[at].content, environment["show"]))


def _code(self: Any, tokens: Sequence[Token], at: int, options: Any, environment: dict[str, Any]) -> str:
    return f"<code>{_text(self, tokens, at, options, environment)}</code>"


def _block(self: Any, tokens: Sequence[Token], at: int, options: Any, environment: dict[str, Any]) -> str:
    return f'<pre tabindex="0"><code>{_text(self, tokens, at, options, environment)}</code></pre>\n'


def _link(_self: Any, tokens: Sequence[Token], at: int, _options: Any, _environment: dict[str, Any]) -> str:
    href = escape(str(tokens[at].attrGet("href") or ""))
    return f'<a href="{href}" {_OUT}>'


def _picture(_self: Any, tokens: Sequence[Token], at: int, _options: Any, _environment: dict[str, Any]) -> str:
    """A link to it: to show it would tell its host who reads here, and when."""
    href, name = escape(str(tokens[at].attrGet("src") or "")), escape(tokens[at].content or "without a name")
    return f'<a href="{href}" {_OUT}>picture: {name}</a>'


def _level(tokens: Sequence[Token]) -> None:
    """Put the headings of a text below the page's own two, none more than one below the last."""
    last = 2
    for token in tokens:
        if token.type == "heading_open":
            last = min(int(token.tag[1:]) + 2, last + 1, 6)
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{last}"


def _table(_self: Any, tokens: Sequence[Token], at: int, _options: Any, _environment: dict[str, Any]) -> str:
    is_opened = tokens[at].nesting == 1
    return (
        '<div class="wide" tabindex="0" role="region" aria-label="Table"><table>' if is_opened else "</table></div>\n"
    )


def _cell(_self: Any, tokens: Sequence[Token], at: int, _options: Any, _environment: dict[str, Any]) -> str:
    """Without the alignment, which is a style that stands inline."""
    token = tokens[at]
    return f"<{token.tag}>" if token.nesting == 1 else f"</{token.tag}>"


_RULES: Final = {
    "text": _text,
    "code_inline": _code,
    "code_block": _block,
    "fence": _block,
    "link_open": _link,
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
