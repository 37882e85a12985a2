"""Find phrases of the old house idiom in docstrings, comments, messages and pages.

`make style` runs it as `python -m tests.phrases`. It prints each place with the words to use instead,
and ends with 1 where it has found any. The guide is CONTRIBUTING.md, "Words".
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("crypto", "memory", "proxy", "daemon", "addons")
PAGES = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "docs/*.md", "docs/clients/*.md")

PHRASES = {
    r"clash(es|ed|ing)?": "conflict",
    r"mend(s|ed|ing)?": "fix, repair",
    r"anew": "again",
    r"(tell|tells|told|telling)": "report, print, notify, say",
    r"whose word": "who vouches for",
    r"(comes|come|came) to": "reaches, becomes, is",
    r"(?<!there )is none": "does not exist, or say what it is",
    r"(stand|stands|stood) in for": "replace",
    r"(go|goes|went|gone) along": "is sent with, is included",
    r"(is|are|was|were|be) gone": "was deleted, has ended, no longer exists",
    r"(has|have|had) it that": "requires",
    r"(whoever|whomever)": "the user, anyone who",
    r"(somebody|nobody)": "name the actor",
    r"in the place of": "instead of",
    r"raises as": "raises the errors of, or name them",
}
"""Each phrase as a regular expression for whole words, with the words to use instead."""
OPENINGS = re.compile(r"(What|Whether|Those|One|Ones|Who|Whose|Whom)\b")
"""Words that must not open a docstring: a clause as the subject is read twice."""
_COMPILED = [(re.compile(rf"\b{phrase}\b", re.IGNORECASE), instead) for phrase, instead in PHRASES.items()]
DATA = {
    "memory/confide_memory/classes/hostile.py": "the phrases that it looks for",
    "memory/confide_memory/documents.py": "the mark of a conflict in files that exist",
    "memory/confide_memory/tools/days.py": "words that a query does without",
    "addons/confide_learn/local/rule_judge.py": "words of rules",
    "daemon/confide_daemon/server/mcp/prompts.py": "words of a prompt that are measured",
    "daemon/confide_daemon/store/tables/document_tables.py": "SQL in parts",
    "proxy/confide_proxy/hooks/prompt_filter.py": "words that a prompt does without",
    "proxy/confide_proxy/sealing/detection/plausibility.py": "words that are no password",
}
"""Modules whose string literals are data and not prose, with the reason."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One forbidden phrase in a file."""

    path: str
    line: int
    phrase: str
    instead: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.phrase!r}: {self.instead}"


_NAMES = re.compile(r"`[^`\n]*`|^ *\w+:(?= )", re.MULTILINE)
"""Names of code in a docstring: they are renamed, not reworded."""
_SQL = re.compile(r"\s*(SELECT|INSERT|UPDATE|DELETE|WITH|CREATE|WHERE)\b")


def in_text(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield the line offset, the phrase and its replacement for each forbidden phrase in a text."""
    for pattern, instead in _COMPILED:
        for match in pattern.finditer(text):
            yield text.count("\n", 0, match.start()), match[0], instead


def in_code(path: Path) -> Iterator[Finding]:
    """Yield the findings in the docstrings, comments and string literals of a module."""
    source = path.read_text("utf-8")
    name = path.relative_to(ROOT).as_posix()
    tree = ast.parse(source)
    docstrings = {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
            continue
        text = _NAMES.sub(lambda name: "_" * len(name[0]), node.value) if node in docstrings else node.value
        if node in docstrings or not (name in DATA or " " not in text or _SQL.match(text)):
            for offset, phrase, instead in in_text(text):
                yield Finding(name, node.lineno + offset, phrase, instead)
        if node in docstrings and (opening := OPENINGS.match(node.value)):
            yield Finding(name, node.lineno, opening[0], "open with a verb or a noun that names the thing")
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            for _, phrase, instead in in_text(token.string):
                yield Finding(name, token.start[0], phrase, instead)


def in_page(path: Path) -> Iterator[Finding]:
    """Yield the findings in a page; blocks of code count too, since they show what a program prints."""
    for offset, phrase, instead in in_text(path.read_text("utf-8")):
        yield Finding(path.relative_to(ROOT).as_posix(), offset + 1, phrase, instead)


def findings(paths: list[str]) -> list[Finding]:
    """List all findings below paths that are relative to the root; in the whole product where none is named."""
    modules = [ROOT / each for each in paths or PACKAGES]
    code = [
        file
        for each in modules
        for file in (sorted(each.rglob("*.py")) if each.is_dir() else [each])
        if file.suffix == ".py"
    ]
    pages = [ROOT / each for each in paths if each.endswith(".md")] or (
        [] if paths else [file for pattern in PAGES for file in sorted(ROOT.glob(pattern))]
    )
    return [*(one for file in code for one in in_code(file)), *(one for file in pages for one in in_page(file))]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.phrases", description=__doc__)
    parser.add_argument("paths", nargs="*", help="files or folders; the whole product without any")
    found = findings(parser.parse_args().paths)
    for each in found:
        print(each)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
