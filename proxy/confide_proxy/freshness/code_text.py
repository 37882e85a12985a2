"""Normalized source text: two versions are equal if they differ only in comments, blank space and
line ends.

Text that may or may not be a comment counts as code, and so does a comment that a compiler, a
build or a generator reads. A difference too many only shows a note as changed; one too few would
show an outdated note as current.
"""

from __future__ import annotations

import ast
import json
import re
import tomllib
import warnings
from bisect import bisect_right
from collections.abc import Iterator
from functools import cache
from typing import Any, Final, NamedTuple

MOST_DUMPED: Final = 128 * 1024
"""Characters of a Python file that is compared by its syntax tree; a larger one, by its lines, takes a
tenth of the time.
"""
_ENDINGS: Final = {
    "python": "py pyi",
    "braces": "js jsx ts tsx mjs cjs go mod rs java kt kts scala c h cc cpp hpp cs swift m dart zig php proto gradle groovy "
    "scss less prisma jsonc",
    "hash": "rb sh bash zsh fish yaml yml ini cfg conf env tf hcl ex exs r pl mk cmake ps1 nim jl graphql gql properties",
    "dash": "sql lua hs elm",
    "json": "json ipynb webmanifest",
    "toml": "toml lock",
}
_NAMES: Final = frozenset({"Makefile", "Dockerfile", "Gemfile", "Rakefile", "Justfile", "Caddyfile", "Procfile"})
_LINE_MARKS: Final = {"python": "#", "hash": "#", "toml": "#", "dash": "--", "braces": "//"}

_STRING: Final = r'"""[\s\S]*?"""|"(?:\\.|[^"\\\n])*"|`(?:\\[\s\S]|[^`\\])*`|'
_REGULAR: Final = r"(?:(?<=[(,=:\[!&|?])|(?<=[(,=:\[!&|?] ))/(?![*/])(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\n\[])+/"
"""A regular expression of JavaScript, where there can be no division."""
_WORDED: Final = _REGULAR + r"|'''[\s\S]*?'''|" + _STRING + r"'(?:\\.|[^'\\\n])*'"
_LETTERED: Final = _STRING + r"'(?:\\[^\n]{1,10}?|[^'\\\n])'"
"""Strings of languages in which `'` encloses one letter, or begins a lifetime."""
_LETTERED_ENDINGS: Final = frozenset("rs java kt kts go mod c h cc cpp hpp cs swift scala zig m proto".split())  # noqa: SIM905
_LIFETIME: Final = re.compile(r"'[A-Za-z_]\w*")
_UNREAD: Final = re.compile(r"[\"'`]|<<<|^[ \t]*\\\\|#/", re.MULTILINE)
"""Remains of a string that continues over several lines in a way of its own language."""
_BEHIND: Final = frozenset("yml yaml toml tf hcl r jl nim ps1 gql graphql cmake sql lua hs elm".split())  # noqa: SIM905
"""Languages in which a `#` or `--` behind a blank and outside of quotes always begins a comment."""
_AS_TEXT: Final = frozenset("properties ini cfg conf env pl dockerfile".split())  # noqa: SIM905
"""Files in which a `#` behind other text may belong to it."""
_COMMENT: Final = r"(?:(?<=[\s;{}(),=])|(?<![\s\S]))(?:/\*[\s\S]*?\*/|//[^\n]*)"
"""A comment, but not `//` in an address, nor `/*` in a regular expression."""
_DIRECTIVE: Final = re.compile(
    r"[-/#\s]*@ ?(?!param|return|see|type|prop|todo|author|class|deprecated)\w"
    r"|[-/*#\s]*(?:\+[a-z]|'[ \t]*@|\$ -\w|<(?:reference|amd)\b|(?:SBATCH|PBS|BSUB)\b|[a-z]\w*:[a-z]\w|[a-z]+(?:[-_][a-z]+)+:"
    r"|(?:coding|encoding|cython|distutils)[:=]|name: \w+ :\w|(?:syntax|escape|check) ?=|import [\"'])"
    r"|/\*(?:[^@]*+@)+?(?:(?<=[*\n]@)|(?<=[*\n]\s@))(?:[A-Z]|jsx|ts-|flow|\w+-environment)"
)
"""A comment that programs read, such as `//go:embed`, `# syntax=`, `-- +goose Up`, or annotations of PHP."""
_SCRIPT: Final = re.compile(r"^# /// \w+(?:\n#(?! ///)[^\n]*)*\n# ///$", re.MULTILINE)
"""The metadata of a Python script (PEP 723), which names what it needs."""
_CGO: Final = re.compile(r"^(?:import)?[ \t]*\"C\"", re.MULTILINE)
"""The import below a comment that is C."""
_PYTHON: Final = r'(#[^\n]*)|("""(?:\\[\s\S]|[^\\])*?"""|\'\'\'(?:\\[\s\S]|[^\\])*?\'\'\'|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\')'
_QUOTED: Final = re.compile(r'"(?:\\.|[^"\\])*"|\'[^\']*\'')
_SPANNING: Final = re.compile(
    r"<<[-~]?\s*[\"'\\]?\w|\"\"\"|'''|[|>][+-]?\d?[+-]?[ \t]*(?:#.*)?$|\\$|^__(?:END|DATA)__|^=begin"
    r"|\[=*\[[^\]\n]*$|(?:%[qQwWiIrxs]?|\bq[qwrx]?[ \t]*)[\[({<|!/][^\])}>|!/\n]*$",
    re.MULTILINE,
)
"""Text that goes on over several lines, in which blank space and `#` may be data."""
_ENDING_WORDS: Final = re.compile(r"(?:^|\W)(?:return|break|continue|throw|yield|await)$")


class CodeLine(NamedTuple):
    """A line of code.

    Attributes:
        number: its number in the file, from 1.
        step: how many levels it is indented more (or, if negative, less) than the line before.
        text: its text without surrounding blank space.
    """

    number: int
    step: int
    text: str


def family_of(path: str) -> str:
    """Return the family of languages to which a file belongs by its name: python, braces, hash,
    dash, json, toml, or plain.
    """
    name = path.rpartition("/")[2]
    return "hash" if name in _NAMES else _families().get(_ending(path), "plain")


@cache
def _families() -> dict[str, str]:
    return {ending: family for family, endings in _ENDINGS.items() for ending in endings.split()}


def _ending(path: str) -> str:
    return path.rpartition("/")[2].rpartition(".")[2].lower()


def whole(path: str, text: str) -> str:
    """Return the normalized text of a whole file, for comparison."""
    family = family_of(path)
    if family == "python" and len(text) <= MOST_DUMPED and (tree := parse_python(text)) is not None:
        return "\n".join((dump_tree(tree), *_directives(text)))
    if family in ("json", "toml"):
        try:
            return canonical(data(path, text))
        except ValueError:
            pass  # with comments, or broken: its lines count
    if family == "braces" or _ending(path) == "json":
        return _join_words(path, text)
    return "\n".join(f"{line.step} {line.text}" for line in lines(path, text))


def _directives(text: str) -> Iterator[str]:
    """Yield the comments of a Python file that programs read."""
    yield from (line[0] for line in re.finditer(r"^[ \t]*#[^\n]*", text, re.MULTILINE) if _DIRECTIVE.match(line[0]))
    yield from (script[0] for script in _SCRIPT.finditer(text))


# -- data ---------------------------------------------------------------------------------------------------------


def data(path: str, text: str) -> Any:
    """Parse a JSON or TOML file. Raises ValueError if it is invalid."""
    try:
        if family_of(path) == "toml":
            return tomllib.loads(text)
        return json.loads(text, parse_float=_Number, parse_int=_Number)
    except RecursionError:
        raise ValueError("nested too deep") from None


class _Number(str):
    """A number as it is written, so that no digit is lost."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def canonical(value: Any) -> str:
    """Format a value from a JSON or TOML file as text. Equal values, with their keys in the same
    order, give the same text.
    """
    return repr(value)


# -- Python -------------------------------------------------------------------------------------------------------


def parse_python(text: str) -> ast.Module | None:
    """Return the syntax tree of a Python file; None if this version of Python cannot parse it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def dump_tree(node: ast.AST) -> str:
    """Format a syntax tree as text without line numbers. Unlike `ast.dump`, it gives the same text
    in all versions of Python that parse the code alike.
    """
    parts: list[str] = []
    waiting: list[Any] = [node]
    while waiting:
        one = waiting.pop()
        if isinstance(one, ast.AST):
            parts.append(f"({type(one).__name__}")
            waiting.append(_End(")"))
            for name in reversed(one._fields):
                value = getattr(one, name, None)
                if value is not None and value != [] and name not in ("kind", "ctx", "type_comment"):
                    waiting += (value, _End(f" {name}="))
        elif isinstance(one, list):
            parts.append("[")
            waiting.append(_End("]"))
            waiting += reversed(one)
        else:
            parts.append(one if isinstance(one, _End) else f"{one!r},")
    return "".join(parts)


class _End(str):
    """A piece of the text of a tree that is no name in it."""

    __slots__ = ()


# -- lines --------------------------------------------------------------------------------------------------------


def lines(path: str, text: str) -> list[CodeLine]:
    """Return the lines of a file that contain code: neither blank, nor only a comment."""
    family = family_of(path)
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    mark = _LINE_MARKS.get(family)
    is_lexed = family in ("python", "braces")
    is_exact = mark is not None and not is_lexed and _spans(text, mark)
    if is_lexed:
        text = _blank_comments(path, text, keeps_strings=True)
    found: list[CodeLine] = []
    levels = [0]
    before = 0
    for number, line in enumerate(text.split("\n"), 1):
        stripped = line.strip()
        is_comment = mark is not None and not is_lexed and not is_exact and _is_remark(stripped, mark)
        if not stripped or (is_comment and not (number == 1 and stripped.startswith("#!"))):
            continue
        indent = _width(line)
        while levels[-1] > indent:
            levels.pop()
        if levels[-1] < indent:
            levels.append(indent)
        depth = len(levels) - 1
        said = line.rstrip() if is_exact else _normalize_blanks(stripped, _mark_behind(path, mark, stripped))
        found.append(CodeLine(number, depth - before, said))
        before = depth
    return found


def _is_remark(line: str, mark: str) -> bool:
    """Return True if a line is only a comment, and for people alone."""
    return line.startswith(mark) and _DIRECTIVE.match(line) is None


def _width(line: str) -> int:
    """Return the columns of blank space before a line's text."""
    plain = line.expandtabs(8)
    return len(plain) - len(plain.lstrip())


def _spans(text: str, mark: str) -> bool:
    """Return True if strings in a text may go over line ends."""
    if _SPANNING.search(text):
        return True
    for line in text.split("\n"):
        bare = _QUOTED.sub("", line.replace('\\"', "").replace("\\'", ""))
        if ('"' in bare or "'" in bare) and not bare.lstrip().startswith(mark):
            return True
    return False


def _mark_behind(path: str, mark: str | None, line: str) -> str:
    """Return the mark of a comment behind the code of this line; "" if what has it may be code."""
    ending = _ending(path)
    if mark is None or family_of(path) in ("python", "braces") or ending in _AS_TEXT:
        return ""
    is_sure = ending in _BEHIND or not any(sign in line for sign in "\\%/{")
    return mark if is_sure else ""


def _normalize_blanks(line: str, mark: str) -> str:
    """Return a line with single blanks outside of quotes, and without the comment behind it where
    it is certain that it is one.
    """
    if '"' not in line and "'" not in line and "`" not in line:
        at = line.find(f" {mark}") if mark else -1
        return " ".join((line if at < 0 else line[:at]).split())
    parts: list[str] = []
    at = 0
    for quoted in _QUOTED.finditer(line):
        parts += (_SPACE.sub(" ", line[at : quoted.start()]), quoted[0])
        at = quoted.end()
    return "".join((*parts, _SPACE.sub(" ", line[at:])))


# -- strings and comments -----------------------------------------------------------------------------------------

_SPACE: Final = re.compile(r"\s+")
_OPERATORS: Final = frozenset("+-*/&|<>=!.?:%^~@#\\")
_HIDDEN: Final = "\x02"


@cache
def _pattern(family: str, *, is_lettered: bool) -> re.Pattern[str]:
    """Return a pattern whose first group is a comment, and the second a string."""
    if family == "python":
        return re.compile(_PYTHON)
    return re.compile(f"({_COMMENT})|({_LETTERED if is_lettered else _WORDED})")


def _pattern_of(path: str) -> re.Pattern[str]:
    return _pattern(family_of(path), is_lettered=_ending(path) in _LETTERED_ENDINGS)


def _blank_comments(path: str, text: str, *, keeps_strings: bool) -> str:
    """Return a text of the same length and lines with blanks for its comments; without
    `keeps_strings`, with a mark for each character of a string.
    """
    pattern = _pattern_of(path)
    is_read = _is_read(path, text, pattern)

    def replaced(match: re.Match[str]) -> str:
        if match[1] is not None and is_read and _is_certain(path, match, pattern):
            return re.sub(r"[^\n]", " ", match[0])
        is_kept = keeps_strings or (match[1] is not None and _DIRECTIVE.match(match[1]))
        return match[0] if is_kept else _blank_out(match[0])

    return pattern.sub(replaced, text)


def _blank_out(text: str) -> str:
    """Return a mark for each character of a text, with its line ends."""
    return re.sub(r"[^\n]", _HIDDEN, text)


def _is_read(path: str, text: str, pattern: re.Pattern[str]) -> bool:
    """Return False if a text has a string that the pattern does not find, so that what looks like a
    comment may be within it, or if comments are code of another language.
    """
    if family_of(path) == "python":
        return _SCRIPT.search(text) is None
    if _ending(path) == "go" and _CGO.search(text):
        return False
    bare = pattern.sub("", text)
    return _UNREAD.search(_LIFETIME.sub("", bare) if _ending(path) in _LETTERED_ENDINGS else bare) is None


def _is_certain(path: str, comment: re.Match[str], pattern: re.Pattern[str]) -> bool:
    """Return False if programs read a comment, or if what looks like one may be within a string that
    is not understood.
    """
    if _DIRECTIVE.match(comment[1]):
        return False
    text = comment.string
    before = text[text.rfind("\n", 0, comment.start()) + 1 : comment.start()]
    if not before.strip():
        return not (_ending(path) in ("jsx", "tsx") and _is_between_tags(comment))
    if family_of(path) == "python":  # a string within another one, as `f"{row["#"]}"`
        return '"' not in comment[0] and "'" not in comment[0]
    if _ending(path) in ("jsx", "tsx") and ("</" in text or "/>" in text):
        # A text between tags has no quotes.
        return comment[0].startswith("/*") and before.rstrip().endswith("{")
    bare = pattern.sub("", before)
    if _ending(path) in _LETTERED_ENDINGS:
        bare = _LIFETIME.sub("", bare)
    # A slash may begin a regular expression, and `url(//` an address.
    return not any(mark in bare for mark in "\"'`/") and not bare.endswith("url(")


def _is_between_tags(comment: re.Match[str]) -> bool:
    """Return True if a line that looks like a comment may be text that a page shows."""
    before = comment.string[max(0, comment.start() - _MOST_LINE) : comment.start()].rstrip()
    behind = comment.string[comment.end() : comment.end() + _MOST_LINE].lstrip()
    return comment[1].startswith("//") and (
        (before.endswith(">") and not before.endswith("=>")) or behind.startswith(("</", "<>"))
    )


def _join_words(path: str, text: str) -> str:
    """Return code without comments, with a blank only where it separates two words or two
    operators.
    """
    pattern = _pattern_of(path)
    is_read = _is_read(path, text, pattern)
    strings: list[str] = []

    def parted(match: re.Match[str]) -> str:
        if match[1] is not None and is_read and _is_certain(path, match, pattern):
            return "\n" if "\n" in match[1] else " "
        strings.append(match[0])
        return "\x00"

    bare = pattern.sub(parted, text.replace("\r\n", "\n").replace("\x00", "\ufffd"))
    spaced = _SPACE.sub(lambda blank: _between(bare, blank), bare)
    return "\x01".join((spaced, *strings))


def _between(text: str, blank: re.Match[str]) -> str:
    before, after = text[blank.start() - 1 : blank.start()], text[blank.end() : blank.end() + 1]
    if "\n" in blank[0] and before.isalnum() and _ENDING_WORDS.search(text[max(0, blank.start() - 12) : blank.start()]):
        return "\n"
    is_word = _is_word(before) and _is_word(after)
    return " " if is_word or (before in _OPERATORS and after in _OPERATORS) else ""


def _is_word(letter: str) -> bool:
    return letter.isalnum() or letter in ("_", "$", "\x00")


# -- definitions --------------------------------------------------------------------------------------------------

_KEYWORDS: Final = (
    r"function\*?|func|fn|fun|def|defp|sub|proc|procedure|class|struct|interface|enum|union|trait|impl|type|typedef|record|object|"
    r"protocol|extension|module|namespace|package|const|let|var|val|static|table|view|index|trigger|message|service|rpc|"
    r"resource|define|defmodule|macro_rules!|mixin|constructor|schema|model|query|mutation|input|data|newtype"
)
_TOKEN: Final = re.compile(r"[()\[\]{};\n]")
_GOES_ON: Final = re.compile(
    r"\s*(?:[{.=?:&|+*/,)\]%<>^\x02-]|(?:throws|where|extends|implements|noexcept|override|const|returns|with|as|satisfies|is"
    r"|instanceof|in|else|and|or)\b)"
)
_REOPENS: Final = re.compile(r"[^\n;]*\{")
_OPEN_WORD: Final = re.compile(
    r"(?:^|\W)(?:where|throws|extends|implements|requires|with|else|as|satisfies|in|is|instanceof|return|and|or)$"
)
_BODY: Final = re.compile(
    r"[^;{}=()]{0,200}\{|\s*(?:=>|:(?![:=])|=(?!=)|(?:const|noexcept|override|throws|async|where)\b)|[ \t]+->"
)
"""Text that follows the parameters of a definition, and not those of a call."""
_ABOVE: Final = ("@", "#[", "template", "sig ")
_TYPED: Final = frozenset("c h cc cpp hpp m cs java".split())  # noqa: SIM905
_TYPE: Final = re.compile(r"[\w*&<>:, \t\x02()-]*[\w*&>)]")
_MOST_LINE: Final = 2000
"""Characters of a line in which a definition may begin; longer ones are of a machine."""
_END_LINE: Final = re.compile(r"\s*(?:end\b|[})\]]|esac\b|fi\b|done\b)|\s*END\s*;")
_HERE_DOCUMENT: Final = re.compile(r"(?<=<)<[-~]?[ \t]*([\"']?)(\w+)\1[^\n]*\n(?:[^\n]*\n)*?[ \t]*\2[ \t]*(?=\n|\Z)")
_SQL_TOKEN: Final = re.compile(r";|\$\w*\$|'(?:[^']|'')*'|--[^\n]*")
_ENDED: Final = frozenset("rb ex exs lua jl fish sh bash zsh".split())  # noqa: SIM905
"""Languages whose definitions end with a word or a brace on a line of its own."""
_OPEN_ENDS: Final = "=,([{+-*/&|?:.<>\\"
_APPLIED: Final = {
    "hs": r"(?![\w'])",
    "elm": r"(?![\w'])",
    "go": r"[ \t]+[\w*\[]",
    "prisma": r"[ \t]+\w",
    "sql": r"[ \t]+\w",
}
"""Text that follows a name, for languages in which a line that begins with the name may define it,
without a word or a sign of its own.
"""
_LISTED: Final = frozenset({"yml", "yaml"})
"""Languages in which the items of a list may be as far to the left as its name."""
_MOST_ABOVE: Final = 60
"""Lines above a definition that may belong to one decorator."""


def definitions(path: str, text: str, symbol: str) -> list[str]:
    """Return the normalized text of each definition of a symbol in a file. `Class.method` names a
    definition within another. A name may have several definitions.
    """
    if family_of(path) == "python":
        tree = parse_python(text)
        if tree is not None:
            return [dump_tree(node) for node in _definitions_of(tree, symbol.split("."))]
    source = text.replace("\r\n", "\n").replace("\r", "\n")
    blocks = [(1, source.count("\n") + 1)]
    for name in symbol.split("."):
        blocks = [found for block in blocks for found in _blocks(path, source, name, block)]
    own = source.split("\n")
    return [_form(path, own[first - 1 : last]) for first, last in dict.fromkeys(blocks)]


def _form(path: str, block: list[str]) -> str:
    """Return the lines of a definition in the form for comparison."""
    # One that ends with the brace of what is around it has lost its own.
    is_whole = _width(block[-1]) >= _width(block[0])
    return whole(path, "\n".join(block)) + ("" if is_whole else "\x02")


def _definitions_of(tree: ast.Module, names: list[str]) -> Iterator[ast.AST]:
    waiting: list[tuple[ast.AST, tuple[str, ...]]] = [(tree, ())]
    found: list[tuple[int, ast.AST]] = []
    while waiting:
        node, within = waiting.pop()
        for child in ast.iter_child_nodes(node):
            named = _names_of(child)
            if any((*within, name)[-len(names) :] == tuple(names) for name in named):
                found.append((getattr(child, "lineno", 0), child))
            is_scope = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            if is_scope or isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case):
                waiting.append((child, (*within, *named) if is_scope else within))
    yield from (node for _, node in sorted(found, key=lambda one: one[0]))


def _names_of(node: ast.AST) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else []
    if isinstance(node, ast.AnnAssign | ast.AugAssign):
        targets = [node.target]
    return [
        one.id
        for target in targets
        for one in ast.walk(target)
        if isinstance(getattr(one, "ctx", None), ast.Store) and isinstance(one, ast.Name)
    ]


def _blocks(path: str, source: str, name: str, within: tuple[int, int]) -> list[tuple[int, int]]:
    """Return first and last line of each definition of a name between two lines."""
    code = _blank_comments(path, source, keeps_strings=False) if family_of(path) == "braces" else source
    if family_of(path) == "hash":
        code = _HERE_DOCUMENT.sub(lambda match: _blank_out(match[0]), code)
    starts = _line_starts(source)
    begin, end = starts[within[0] - 1], starts[within[1]] if within[1] < len(starts) else len(source)
    word = re.escape(name)
    before = r"(?:[\w@*&<>\[\],.:\"' \t]+[ \t])?"
    keyed = re.compile(
        rf"[ \t]*(?:#[ \t]*(?=define))?{before}(?:(?:{_KEYWORDS})[ \t*&]+(?:if[ \t]+(?:not[ \t]+)?exists[ \t]+)?(?:\([^)\n]*\)[ \t]*)?"
        # A quoted name, those that are unpacked, the type of which this is a method.
        rf"(?:[\w.:\"`\[\]]+[.:])?[\"'`\[]?|(?:const|let|var|val)[ \t]*[\[({{][^=;\n]*\b|impl\b[^{{;\n]*\b|func[ \t]*\([^)\n]*\b)"
        rf"{word}(?![\w-])",
        re.IGNORECASE,
    )
    called = re.compile(rf"[ \t]*(?:[\w$<>\[\],.?*&:~@ \t]+[ \t*&])?(?:[\w$<>,:~]+::)?{word}[ \t]*(?:<[^>\n]*>)?\(")
    stated = re.compile(
        rf"[ \t]*(?:[-+.$@]?[ \t]*(?:\([\w *]*\)[ \t]*|(?:[\w-]+[ \t]+)+(?:[\"'][^\"'\n]*[\"'][ \t]+)*)?[\"']?{word}[\"']?[ \t]*[:{{]"
        rf"|(?:[^\n(){{}}=;]*[^\w\n(){{}}=;-])?[\"'`]?{word}[\"'`]?(?:\[[^\]\n]*\])?[ \t]*(?:[-+*/|&?:.%^]{{0,2}}=(?!=)|<<?-))"
    )
    begun = re.compile(rf"[ \t]*[-+.$@]?[ \t]*[\"'`]?{word}[\"'`]?(?:{_APPLIED.get(_ending(path), '(?!)')}|([ \t]*\())")
    named = re.compile(rf"(?<!\w){word}(?![\w-])", re.IGNORECASE)
    numbers = dict.fromkeys(_line_of(starts, match.start()) for match in named.finditer(source, begin, end))
    lines = [starts[number - 1] for number in numbers if len(_line(source, starts, number)) <= _MOST_LINE]
    mark = _LINE_MARKS.get(family_of(path), "\x00")
    places = [
        at
        for at in lines
        if keyed.match(code, at)
        or ((match := called.match(code, at)) and _has_body(code, match.end() - 1))
        or (_is_code(code, at, mark) and stated.match(source, at))
        or ((match := begun.match(source, at)) and match[1] is None)
    ]
    if not places and any(_is_code(code, at, mark) and begun.match(source, at) for at in lines):
        return [within]  # it is called here, and defined in a way that is not understood
    return [(_first_line(path, code, starts, at, within[0]), _last_line(path, code, starts, at, end)) for at in places]


def _is_code(code: str, at: int, mark: str) -> bool:
    """Return True if the line that begins here is neither blank nor a comment."""
    line_end = code.find("\n", at)
    said = code[at : line_end if line_end >= 0 else len(code)].strip()
    return said.strip(_HIDDEN) != "" and not said.startswith(mark)


def _has_body(code: str, opening: int) -> bool:
    """Return True if what follows the parentheses that open here makes them those of a definition."""
    depth = 0
    for token in _TOKEN.finditer(code, opening, opening + 4000):
        depth += (token[0] in "([{") - (token[0] in ")]}")
        if depth == 0 and token[0] in ")]}":
            return _BODY.match(code, token.end()) is not None
    return False


def _first_line(path: str, code: str, starts: list[int], at: int, least: int) -> int:
    """Return the first line of a definition: that of its decorators, attributes, or of a type that
    stands on a line of its own.
    """
    top = number = _line_of(starts, at)
    family, depth = family_of(path), 0
    mark = "\x00" if family == "braces" else _LINE_MARKS.get(family, "\x00")
    while number > max(least, top - _MOST_ABOVE):
        number -= 1
        said = _line(code, starts, number).strip()
        if not said.strip(_HIDDEN) or _is_remark(said, mark):
            continue
        depth += sum(said.count(sign) for sign in ")]}") - sum(said.count(sign) for sign in "([{")
        if depth > 0:
            continue
        is_type = _ending(path) in _TYPED and number == top - 1 and _TYPE.fullmatch(said) is not None
        is_read = said.startswith(mark) or (family == "braces" and said.startswith(("//", "/*", "*")))
        if depth < 0 or not (is_read or said.startswith(_ABOVE) or is_type or (said[0] == "[" and said[-1] != ";")):
            break
        top = number
    return top


def _line_starts(text: str) -> list[int]:
    return [0, *(match.end() for match in re.finditer("\n", text))]


def _line_of(starts: list[int], at: int) -> int:
    return bisect_right(starts, at)


def _last_line(path: str, code: str, starts: list[int], at: int, end: int) -> int:
    """Return the last line of a definition: that of its closing brace or word, and of all lines below
    that are indented more.
    """
    first = _line_of(starts, at)
    family, opening = family_of(path), _line(code, starts, first)
    last = _line_of(starts, _statement_end(code, at, end)) if family == "braces" else first
    if _ending(path) == "sql":
        last = _line_of(starts, _end_of_statement(code, at, end))
    # Text of a here-document may begin at the margin, within a definition.
    has_end = family != "braces" and (_ending(path) in _ENDED or opening.rstrip().endswith("{"))
    indent = _width(opening)
    number, mark = first, _LINE_MARKS.get(family, "\x00")
    has_items = _ending(path) in _LISTED and not opening.lstrip().startswith("-")
    while number < len(starts) and starts[number] < end:
        number += 1
        line = _line(code, starts, number)
        if not line.strip() or line.lstrip().startswith(mark):
            continue
        width = _width(line)
        if width == indent and _END_LINE.match(line) and number > last:
            return number
        if width > indent or (has_items and width == indent and re.match(r"\s*-(?:\s|$)", line)):
            last = last if has_end else max(last, number)
        elif number > last and not has_end:
            break
    if has_end:  # without its end: what is indented more, as elsewhere
        return _indented_end(code, starts, first, end)
    return last


def _indented_end(code: str, starts: list[int], first: int, end: int) -> int:
    """Return the last of the lines that follow this one and are indented more."""
    number, indent = first, _width(_line(code, starts, first))
    last = first
    while number < len(starts) and starts[number] < end:
        number += 1
        line = _line(code, starts, number)
        if line.strip() and _width(line) <= indent:
            break
        last = number if line.strip() else last
    return last


def _end_of_statement(code: str, at: int, end: int) -> int:
    """Return the place of the semicolon that ends a statement of SQL, past bodies between `$$`."""
    is_within = False
    for token in _SQL_TOKEN.finditer(code, at, end):
        if token[0] == ";" and not is_within:
            return token.start()
        is_within ^= token[0].startswith("$")
    return max(at, end - 1)


def _line(text: str, starts: list[int], number: int) -> str:
    return text[starts[number - 1] : starts[number] if number < len(starts) else len(text)]


def _statement_end(code: str, at: int, end: int) -> int:
    """Return the place at which the statement that begins here ends."""
    depth = 0
    for token in _TOKEN.finditer(code, at, end):
        sign = token[0]
        if sign in "([{":
            depth += 1
        elif sign in ")]}":
            depth -= 1
            if depth < 0 or (depth == 0 and sign == "}" and not _REOPENS.match(code, token.end())):
                return token.start()
        elif depth == 0 and (sign == ";" or not _goes_on(code, at, token.start())):
            return token.start()
    return max(at, end - 1)


def _goes_on(code: str, at: int, line_end: int) -> bool:
    said = code[at:line_end].rstrip()
    return (
        not said
        or said[-1] in _OPEN_ENDS
        or _OPEN_WORD.search(said[-20:]) is not None
        or _GOES_ON.match(code, line_end + 1) is not None
    )
