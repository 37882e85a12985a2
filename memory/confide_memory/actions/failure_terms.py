"""Terms of failures: they match a note with the output of a failed tool if the note describes the
failure in its own words instead of quoting it.

A term is a name (`webpdecodergba`), a stemmed word, the number of an error (`=1227`), three words
in a row, or a cause such as `=memory`, for which tools and people have many names: `Killed`, `exit
code 137`, "out of memory". A note matches if enough of its terms are near each other in the output.
A single term is not enough, and a rare one weighs more.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import Final

from confide_memory.actions import error_messages

LEAST: Final = 3.0
"""Weight of the terms that a note and a failure share at least."""
LEAST_QUOTED: Final = 6.0
"""The same of a note that quotes an error, which the output does not have."""
_STRONG, _NAME, _HYPHEN, _WORD, _CODE, _ROW = 3.0, 2.0, 2.0, 1.0, 2.0, 1.0
_RARE: Final = ((2, 1.5), (5, 1.0), (20, 0.75))
_COMMONEST: Final = 0.4
_OFTEN: Final = 20
"""Weights of words that at most so many entries of a memory have, and of others."""
_MOST_OF_COMMAND: Final = 2.0
_OF_COMMAND: Final = 4
"""Words of a command that show what has failed."""
_MOST_OF_ROWS: Final = 2.0
_LEAST_OF_NOTE: Final = 2.0
_LEAST_OF_OUTPUT: Final = 1.0
_MOST_READ: Final = 600  # characters of an entry
_MOST_LINE: Final = 400  # characters of a line of output
_MOST_LINES: Final = 100
_ENDING: Final = 40
"""Last lines of an output that count even without a word of failure."""
_NEAR: Final = 3
"""Lines of one message."""
_MOST_PARTS: Final = 6

_CAUSES: Final[Mapping[str, tuple[float, str]]] = {
    "memory": (
        2,
        r"out of (?:\w+ )?memory|outofmemory|oom\b|oomkill|heap limit|cannot allocate|killed\b|sigkill|137\b|memoryerror",
    ),
    "crash": (2, r"segfault|segmentation|sigsegv|139\b|core dumped|access violation"),
    "timeout": (1.5, r"tim(?:es?|ed|ing)[ -]?out|timeout|deadline|etimedout|124\b|hangs\b|hung\b|stuck"),
    "refused": (
        1.5,
        r"(?:connection )?refused|econnrefused|(?:could not|cannot|can't|failed to|unable to) (?:connect|reach)|unreachable|econnreset",
    ),
    "denied": (
        1,
        r"denied|permission|forbidden|403\b|eacces|eperm|not (?:allowed|permitted)|may not|privilege|not authorized",
    ),
    "login": (1.5, r"unauthori[sz]ed|401\b|authenticat\w*|credentials?|log ?in\b|username|password|tokens?\b"),
    "missing": (
        1,
        r"not found|no such|not find|can't find|cannot (?:find|locate|open)|(?:not|\w+n't) (?:\w+ ){0,3}(?:exist|installed)|missing|misses"
        r"|unable to (?:find|locate)|enoent|404\b|127\b|there is no|no matches|(?:on|in) (?:the |your |\$)path"
        r"|without|(?:not|\w+n't) on the path|lacks",
    ),
    "port": (2, r"address already in use|eaddrinuse|port (?:\d+ )?(?:is )?(?:already )?(?:taken|allocated|in use)"),
    "space": (2, r"no space left|enospc|disk (?:is |was )?full|quota"),
    "certificate": (1.5, r"certificates?\b|ssl\b|tls\b|x509|self[- ]signed|ca\b"),
    "expired": (1.5, r"expire[sd]?"),
    "conflict": (
        1.5,
        r"conflict|eresolve|incompatib|unsatisf|no solution|solving failed|not (?:resolved|satisfy)"
        r"|(?:could not|cannot|can't|unable to) (?:be )?resolve",
    ),
    "locked": (
        1.5,
        r"state lock|is locked|get lock|acquir\w+ (?:\w+ )?lock|another (?:process|operation|instance)",
    ),
    "dns": (
        1.5,
        r"getaddrinfo|enotfound|name or service not known|resolve host|dns\b|eai_again|name resolution|no such host",
    ),
    "encoding": (2, r"codec|utf-?8|encoding|unicode|latin-?1|byte sequence"),
    "exists": (1, r"already exist|eexist|duplicate|exists already"),
    "support": (1, r"(?:not|\w+n't) (?:be )?support(?:ed)?|unsupported"),
    "syntax": (1, r"syntax ?error|unexpected token|parse error"),
    "size": (1.5, r"too (?:large|big|long)|file size|exceeds"),
    "mismatch": (1.5, r"mismatch|(?:not|\w+n't) match|inconsistent|differs"),
    "files": (2, r"too many open files|emfile|inotify|watchers"),
    "symbol": (1.5, r"undefined (?:reference|symbol)|unresolved (?:external|symbol)|link(?:er|ing)\b"),
    "stubs": (2, r"stubs?\b|py\.typed"),
    "signing": (1.5, r"provisioning|code ?sign|signing"),
}
"""Causes by the words of tools and people for them, and how much each says."""
_CAUSE: Final = re.compile(
    rf"\b(?:{'|'.join(f'(?P<{name}>{words})' for name, (_, words) in _CAUSES.items())})", re.IGNORECASE
)
_NUMBERED: Final = re.compile(
    r"\b(?:error|err|errno|code|status|exit(?:ed|s)?|http)\b[\s:#=(\[]{0,4}(?:(?:with|code|status|number)[\s:#=(]{0,3}){0,2}(\d{2,5})\b",
    re.IGNORECASE,
)
_NUMBER: Final = re.compile(r"(?<![\w.:-])\d{3,5}(?![\w.:-])")
_TOKEN: Final = re.compile(r"[\w@$./:+\-^\\]+")
_AROUND: Final = ".,:;-/\\+$^@"
_BETWEEN: Final = re.compile(r"[/.:@\\+$=-]+")
_VERSION: Final = re.compile(r"(?<=\w)[@=^]+v?\d[\d.]*$")
_HYPHENED: Final = re.compile(r"[A-Za-z][a-z]*(?:-[a-z]+)+")
_COMMON: Final = re.compile(
    r"(?:non|self|pre|re|up|read|built|well|high|low|third|multi|command|so|off|on|in|out|one|two|half|full|long|short|open|real|run|time"
    r"|end|first|last|right|early|late|check|log|sign|set|start|hard|soft|old|new|ex|co|anti|sub|all|by|any)-"
)
"""Words of prose with hyphens."""
_FLAG: Final = re.compile(r"--?[a-z][\w-]+$")
_MIXED: Final = re.compile(r"[a-z][A-Z]|[A-Za-z]\d|\w[_/.:@-]\w|^[A-Z]{5,}$")
_HUMP: Final = re.compile(r"[a-z0-9][A-Z]|[A-Z]{2,}[a-z]")
_EXPLAINS: Final = re.compile(r"→|->|=>|^[^:`]{3,160}:\s")
_FAILS: Final = re.compile(
    r"\b(?:fail(?:s|ing)|dies|died|crash\w*|breaks?|broke|broken|complains?|refuses?|chokes?|stumbles?|rejects?|freezes|throws?|raises|"
    r"aborts?|flak(?:y|es)|no longer|trouble|problem|wrong)\b",
    re.IGNORECASE,
)
_REMEDY: Final = re.compile(
    r"\b(?:when|may|take|delete|until|unless|since|only|needs?|requires?|must|wants|fix(?:ed|es)?|helps?|solved|workaround|because|instead|"
    r"don't|doesn't|isn't|won't|use|run|pass|add|set|install|append|old|removed)\b",
    re.IGNORECASE,
)
"""Signs and words of an entry that explains something."""
_SUFFIXES: Final = ("ing", "ed", "es", "er", "s", "e")


@lru_cache(4096)
def _stem(word: str) -> str:
    for suffix in _SUFFIXES:
        if word.endswith(suffix) and len(word) - len(suffix) >= 3 and not word.endswith("ss"):
            return word[: -len(suffix)]
    return word


_USUAL: Final = frozenset(
    _stem(word)
    for word in """a about access account add after again all also always an and another any anything are argument as ask at avoid back
    be because been before behind between both box branch bug build built but by call came can cannot case change check clean clear
    clone code command commit complain config configuration connect context copy could current data day default delete dependency dev
    did directory do does doesn don done down due each either else empty end env environment err error even every exception exist exit
    expect export fail failed failure fatal file find first fix folder for forever found fresh from full function generate get give go
    goes got group had happen has have help her here hint home host how however i if image import in index info input inside install
    instead internal into invalid is isn issue it item its itself job just keep kind know last later least less let level lib like line
    list load local log long look machine main make many map may me mean message miss mode module more most must my name need never new
    next no node none normal not note nothing now number object of off old on once one only open operation option or order other our out
    output over own package page part pass path please point previous problem process program project properly provide put re read
    reason release remove repo request require required requirement reset resource restart result retry return root run running same say
    script second see seem server service session set setup shop should show since size so some something source stage start stat status
    step still stop such support sure system take task test than that the their them then there these they thing this those three time
    to too tool trace traceback try turn two type under unless unknown until up update upgrade us use used user usual value version very
    via wait want warn warning was way we well were what when where which while who whole why will with without won word work workspace
    would write wrong yes yet you your runtime undefined connection connected""".split()  # noqa: SIM905 - as a list it would fill a screen
)
"""Stems of words that say nothing about a failure."""
_STOP: Final = frozenset(
    _stem(word)
    for word in """a about after all also an and any are as at be because been before both but by can cannot could did do does don done each
    either else error every failed failure for found from get given had has have here how if in into is it its just may me more most must my
    no not of off on once one only or other our out over own same see should since so some such than that the their them then there these
    they this those to too try under until up us use via was we were what when where which while who why will with without would yet you
    your""".split()  # noqa: SIM905
)
"""Stems of words that carry no meaning by themselves."""
_TOOLS: Final = frozenset(
    """airflow ansible apt argocd aws az bazel brew buf bun bundle cabal cargo cmake composer conda cypress dart deno django docker dotnet
    dune elm eslint expo fastlane flutter flyway gcc gcloud ghc git go gradle gradlew helm hugo istio java jest julia kubectl lein
    liquibase maven meson minikube mix mongosh mvn mypy mysql ng nginx nim ninja nix npm nuxi nx opam perl pip playwright pnpm podman
    poetry prisma psql pulumi pytest rails rclone redis restic rsync ruff rustc sbt serverless skaffold spark sqlx stack swift systemctl
    tar terraform tox tsc turbo uv vagrant vault vite vitest webpack wrangler xcodebuild yarn zig""".split()  # noqa: SIM905
)
"""Tools that notes name by these words."""


@dataclass(frozen=True, slots=True)
class NoteTerms:
    """The terms of one entry (a note, paragraph or list item) of a project's memory.

    Attributes:
        weights: the weight of each term.
        rows: each sequence of three stemmed words in the entry.
        heads: each pair of successive stemmed words. A pair may be a command's program and its
            first argument.
    """

    weights: Mapping[str, float]
    rows: frozenset[tuple[str, str, str]]
    heads: frozenset[tuple[str, str]]


def of_note(text: str) -> NoteTerms | None:
    """Return the terms of an entry, or None if the entry does not describe a failure or does not
    say which.
    """
    read = text[:_MOST_READ]
    has_failed = any(pattern.search(read) for pattern in (_CAUSE, _FAILS, error_messages.FAILS))
    is_explained = bool(_REMEDY.search(read) or _EXPLAINS.search(read))
    weights = dict(_weigh_terms(read))
    has_code = any(weight > _WORD and not set("/.=") & set(term) for term, weight in weights.items())
    if not (has_failed or is_explained or has_code) or sum(weights.values()) < _LEAST_OF_NOTE:
        return None
    words = _words(read)
    return NoteTerms(weights, frozenset(_rows(words)), frozenset(pairwise(words)))


def by_rarity(notes: Iterable[NoteTerms | None]) -> list[NoteTerms | None]:
    """Return the terms of all entries of a memory, with weights by rarity: a word that occurs in
    one note weighs more than a word in many entries.
    """
    given = list(notes)
    entries = Counter(term for note in given if note is not None for term in note.weights)
    return [
        note
        if note is None
        else replace(
            note, weights={term: _weight_of(term, weight, entries[term]) for term, weight in note.weights.items()}
        )
        for note in given
    ]


def _weight_of(term: str, weight: float, entries: int) -> float:
    if term.startswith("="):
        return weight
    if weight != _WORD:
        return weight if entries <= _OFTEN else weight / 2
    return next((rated for most, rated in _RARE if entries <= most), _COMMONEST)


def _weigh_terms(text: str) -> Iterator[tuple[str, float]]:
    for match in _CAUSE.finditer(text):
        yield f"={match.lastgroup}", _CAUSES[match.lastgroup or ""][0]
    for number in (*_NUMBERED.findall(text), *_NUMBER.findall(text)):
        yield f"={number}", _CODE
    for said in _TOKEN.findall(_CAUSE.sub(_without_words, text)):
        word = said.strip(_AROUND)
        token = _plain(word)
        if len(token) < 2 or token.isdigit() or word in error_messages.USUAL_CODES:
            continue
        if _is_strong(word):
            yield token, _STRONG
        elif _HYPHENED.fullmatch(word):
            yield token, _WORD if _COMMON.match(token) else _HYPHEN
        elif _MIXED.search(word) or (_FLAG.match(said) and _stem(token) not in _USUAL):
            yield token, _NAME
        elif (stem := _stem(token)) not in _USUAL:
            yield stem, _WORD
        last = _plain(word.rsplit("/", 1)[-1])
        if "/" in word and _MIXED.search(last):
            yield last, _NAME


def _without_words(cause: re.Match[str]) -> str:
    """Return what is left of a cause's words: a code such as `ECONNREFUSED` is a name as well."""
    return cause[0] if cause[0].isupper() else " "


def _is_strong(word: str) -> bool:
    """Return True for an identifier that two failures hardly share by chance."""
    parts = [part for part in re.split(r"[_./:@-]+", word) if len(part) > 1]
    is_long = len(word) >= 8 and "://" not in word
    return is_long and (word.isupper() or len(_HUMP.findall(word)) >= 2 or "_" in word.strip("_") or len(parts) >= 3)


def _plain(word: str) -> str:
    return _VERSION.sub("", word).strip(_AROUND).casefold().replace("_", "-")


def _words(text: str) -> list[str]:
    return [_stem(_plain(word)) for word in _TOKEN.findall(text)]


def _rows(words: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    for row in zip(words, words[1:], words[2:], strict=False):
        if len([word for word in row if len(word) > 1 and word not in _STOP]) > 1:
            yield row


class OutputTerms:
    """The terms in the output of a failed tool, with the lines in which each occurs."""

    def __init__(self, output: str, commands: Sequence[Sequence[str]]) -> None:
        """`commands`: those that ran, each as its words."""
        self._of_command = {part for words in commands for word in words[:_OF_COMMAND] for part in _parts(_plain(word))}
        self._of_command |= {part.rstrip("0123456789") for part in self._of_command}
        self._heads = {(_stem(words[0]), _stem(_plain(words[1]))) for words in commands if len(words) > 1}
        self._lines: dict[str, set[int]] = {}
        self._rows: set[tuple[str, str, str]] = set()
        for number, line in enumerate(_failure_lines(output)):
            for term in _of_line(line):
                self._lines.setdefault(term, set()).add(number)
            self._rows.update(_rows(_words(line)))

    def weight(self, note: NoteTerms) -> float:
        """Return how well a note matches this output: the total weight of its terms that occur near
        each other in the output, plus those in the command that ran. 0 if too few do.
        """
        if self._lines.keys().isdisjoint(note.weights) and self._rows.isdisjoint(note.rows):
            return 0.0  # as most notes of a memory are, at each failure
        near: dict[int, float] = {}
        of_command = 0.0
        has_more = False  # than causes, which many failures share
        for term, weight in note.weights.items():
            if term in self._of_command:
                of_command += _NAME if weight >= _WORD else _WORD
                continue
            has_more = has_more or (term in self._lines and term.lstrip("=") not in _CAUSES)
            for first in {line - back for line in self._lines.get(term, ()) for back in range(_NEAR)}:
                near[first] = near.get(first, 0.0) + weight
        if self._heads & note.heads:
            of_command = max(of_command, _MOST_OF_COMMAND)
        rows = min(_ROW * len(note.rows & self._rows), _MOST_OF_ROWS)
        told = max(near.values(), default=0.0) + rows
        is_enough = told >= _LEAST_OF_OUTPUT and (has_more or rows or of_command)
        return told + min(of_command, _MOST_OF_COMMAND) if is_enough else 0.0

    def is_of_tools(self, note: NoteTerms) -> bool:
        """Return False if a note names tools, such as npm, but none of these tools has run here.
        Another note about the same cause is then the better match.
        """
        tools = _TOOLS & note.weights.keys()
        return not tools or any(tool in self._of_command or tool in self._lines for tool in tools)


def _failure_lines(output: str) -> list[str]:
    """Return the lines of an output that may say what failed."""
    lines = [line for line in error_messages.lines(output) if line.strip()]
    kept: set[int] = set(range(max(0, len(lines) - _ENDING), len(lines)))
    for number, line in enumerate(lines):
        if error_messages.FAILS.search(line):
            kept.update(range(max(0, number - 1), min(len(lines), number + _NEAR)))
    return [lines[number][:_MOST_LINE] for number in sorted(kept)[-_MOST_LINES:]]


def _of_line(line: str) -> set[str]:
    found = {f"={match.lastgroup}" for match in _CAUSE.finditer(line)}
    found.update(f"={number}" for number in _NUMBERED.findall(line))
    for word in _TOKEN.findall(line):
        found.update(_parts(_plain(word)))
    return found


def _parts(token: str) -> set[str]:
    """Return a token, its parts between separators, and the parts that stand together in it."""
    if not token:
        return set()
    found = {token, _stem(token)}
    cuts = [0, *(end for match in _BETWEEN.finditer(token) for end in match.span()), len(token)]
    starts, ends = cuts[0::2][:_MOST_PARTS], cuts[1::2]
    for first, start in enumerate(starts):
        for end in ends[first : first + _MOST_PARTS]:
            found.update((token[start:end], _stem(token[start:end])))
    return found
