"""What a search is asked for, and what of that the keyword leg looks for."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from confide_daemon.store.rows import Filter
from confide_daemon.store.tokenize import (
    COMPOUND,
    PLAIN,
    RUN,
    beside,
    bigrams,
    is_name,
    parts,
    runs,
)


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """What is asked for. `since` and `until` count by whole days, both included: documents are dated by the day."""

    text: str
    projects: frozenset[str] | None = None
    max_results: int = 8
    min_score: float = 0.25
    sources: frozenset[str] | None = None
    path: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    keywords: tuple[str, ...] = ()
    rank: str = "relevance"
    max_tokens: int | None = None
    project: str | None = None  # the asking one: among equals its pieces come first, and in rank "balanced" they gain
    explain: bool = False
    # Of notes; `Filter` says how each narrows the search.
    tags: frozenset[str] = frozenset()
    types: frozenset[str] | None = None
    category: str | None = None
    entity: str | None = None
    without_tasks: bool = False
    task: str | None = None
    task_projects: frozenset[str] | None = None
    # Where notes may lie that hits are superseded by or related with; None: anywhere.
    reach: frozenset[str] | None = None
    with_related: bool = False


def filter_of(query: SearchQuery) -> Filter:
    """The query's limits as the store takes them."""
    return Filter(
        projects=query.projects,
        sources=query.sources,
        path=query.path,
        since=_day(query.since),
        until=_day(query.until),
        tags=query.tags,
        types=query.types,
        category=query.category,
        entity=query.entity,
        without_tasks=query.without_tasks,
        task=query.task,
        task_projects=query.task_projects,
    )


def _day(moment: datetime | None) -> str | None:
    return None if moment is None else moment.astimezone(UTC).date().isoformat()


# Words that every text has. Dropping them costs nothing and saves scanning their long lists (retrieval.md 1.2).
STOP_WORDS = frozenset(
    """a about above after again all also am an and any are as at be because been before being both but by can
    could did do does doing done down during each few for from further get got had has have having he her here hers him his
    how i if in into is it its itself just me mine more most my myself no nor not now of off on once only or other our ours
    out over own same she should so some such than that the their theirs them then there these they this those through to
    too under until up us very was we were what when where which while who whom whose why will with would you your yours
    s t d ll m re ve don""".split()  # noqa: SIM905 - a list of quoted words would fill a screen
)
# Words that leave a question for days as open as it was: "what happened yesterday", "what did I work on last week".
OF_ANY_DAY = frozenset(
    """anything change changed changes day entries entry everything happen happened happening log logs note noted notes show something
    stored summarise summarize summary tell thing things went work worked working write wrote written""".split()  # noqa: SIM905
)
# A question has a handful of words; a pasted log has thousands, and each costs a scan.
MOST_TERMS = 48
QUOTED = re.compile(r'"([^"]{1,200})"')
# How much a term says: the root of its length up to here, a name of one thing twice as much as the longest word, a pair of letters less.
LONGEST = 8
NAME_WEIGHT = 2 * LONGEST**0.5
BIGRAM_WEIGHT = 2**0.5
# A single word, or a name, is also looked for as a beginning, from this length on.
SHORTEST_PREFIX = 3


@dataclass(frozen=True, slots=True)
class Term:
    """One thing that a right piece should hold: a word, the name of a thing, a pair of letters."""

    ways: tuple[
        tuple[str, ...], ...
    ]  # runs of words, each of which will do: get_user_by_id is also written getUserById
    weight: float
    is_name: bool = False
    is_beginning: bool = False  # the last word of a run may go on


@dataclass(frozen=True, slots=True)
class Question:
    match: str  # the FTS5 query of the keyword leg, or "" when there is no word at all
    exact: str  # the FTS5 query of what is to be found as it stands (names and quoted phrases), or ""
    terms: tuple[Term, ...]  # what a right piece should hold
    named: float  # the share of the terms' weight that `exact` has
    also: tuple[Term, ...] = ()  # the caller's keywords, each of which may stand in a piece in place of terms


def keyword_query(text: str, keywords: Sequence[str] = ()) -> str:
    """The FTS5 query of the keyword leg, or "" when there is no word at all."""
    return question(text, keywords).match


def question(text: str, keywords: Sequence[str] = (), *, aside: str = "") -> Question:
    """What the text asks for.

    Every term is quoted and they are joined by OR, so nothing of the text can act as syntax. A quoted term is matched as a phrase of
    its parts: `ERR_CONN_42`, `src/app.py` and `retry-after` are looked for as they stand, beside each of their parts. What the caller
    put in double quotes stays one phrase.

    Args:
        aside: words of the text that a right piece need not hold, such as "last week".
    """
    match: dict[str, None] = {}
    exact: dict[str, None] = {}
    terms: dict[tuple[str, ...], Term] = {}
    for phrase in QUOTED.findall(text):
        words = parts(RUN.sub(" ", phrase))
        if words:
            match[_quoted(words)] = None
        if len(words) > 1:
            exact[_quoted(words)] = None
        elif not words:
            exact.update((_of_run(run), None) for run in runs(phrase) if len(run) > 1)
    also = [term for keyword in keywords if (term := _keyword(keyword)).ways]
    match.update((_quoted(term.ways[0]) + (" *" if term.is_beginning else ""), None) for term in also)
    compounds = COMPOUND.findall(RUN.sub(" ", text))
    plain = [word.lower() for compound in compounds for word in PLAIN.findall(compound)]
    chosen = [word for word in plain if word not in STOP_WORDS] or plain
    skipped = set(parts(aside))
    for compound in compounds:
        ways = _ways(compound)
        name = bool(ways) and (is_name(compound) or len(compounds) == 1)
        for way in ways:
            match[_quoted(way) + (" *" if name and len(way[-1]) >= SHORTEST_PREFIX else "")] = None
            if name:
                exact[_quoted(way)] = None
        if name:
            terms[tuple(ways[0])] = Term(tuple(map(tuple, ways)), NAME_WEIGHT, is_name=True, is_beginning=True)
    named = {word for term in terms.values() for way in term.ways for word in way}
    is_single = not match and len(chosen) == 1 and len(chosen[0]) > SHORTEST_PREFIX
    for word in chosen:
        if word not in named and word not in skipped:
            terms[(word,)] = Term(((word,),), min(len(word), LONGEST) ** 0.5, is_beginning=is_single)
    if is_single:
        match[_quoted(chosen) + " *"] = None
    else:
        # The numbers of a date stand in every text of that month or year; as a whole it is looked for all the same.
        match.update((_quoted([word]), None) for word in chosen if not (word in skipped and word.isdigit()))
    for run in runs(text):
        pairs = bigrams(run)
        match[_of_run(run)] = None
        if len(run) > 1:
            match.update((_quoted([pair]), None) for pair in pairs)
        terms.update(((pair,), Term(((pair,),), BIGRAM_WEIGHT, is_beginning=len(run) == 1)) for pair in pairs)
    # Last, so that many keywords do not push out the question's own words.
    match.update((_quoted(way), None) for term in also for way in term.ways[1:])
    total = sum(term.weight for term in terms.values())
    names = sum(term.weight for term in terms.values() if term.is_name)
    share = 1.0 if exact and not names else names / total if total else 0.0
    own = {way for term in terms.values() for way in term.ways}
    others = tuple(term for term in also if own.isdisjoint(term.ways))  # a word that is given twice counts once
    return Question(_joined(match), _joined(exact), tuple(terms.values())[:MOST_TERMS], share, others)


def of_days(asked: Question, days: Sequence[str]) -> Question | None:
    """What finds the files of these ISO days, for a question that asks for nothing else; None for any other."""
    words = {word for term in asked.terms for way in term.ways for word in way}
    if asked.exact or asked.also or not words <= OF_ANY_DAY:
        return None
    return Question(_joined({_quoted(parts(day)): None for day in days}), "", (), 0.0)


def _keyword(text: str) -> Term:
    """A keyword: its words as they stand, or what else stands for the same name; without ways where no word of it says anything."""
    found = runs(text)
    compound = COMPOUND.fullmatch(text.strip())
    ways = [parts(RUN.sub(" ", text)), *(_ways(compound[0]) if compound and not found else []), *map(bigrams, found)]
    ways = [way for way in ways if not STOP_WORDS.issuperset(way)]
    weight = sum(min(len(word), LONGEST) ** 0.5 for word in ways[0]) if ways else 0.0
    return Term(tuple(dict.fromkeys(map(tuple, ways))), weight, is_beginning=[len(run) for run in found] == [1])


def _of_run(run: str) -> str:
    return _quoted(bigrams(run)) + (" *" if len(run) == 1 else "")


def _ways(compound: str) -> list[list[str]]:
    """The runs of words that stand for a compound; none for a word that is only itself, or where there is no word (`_._`)."""
    if compound.isalpha() and compound.islower():  # as most words of a question are
        return []
    words = parts(compound)
    if not words:
        return []
    others = [other.split() for other in beside(compound) if other]
    ways = [words] if len(words) > 1 or others or is_name(compound) else []
    return ways + others


def _quoted(words: Sequence[str]) -> str:
    return '"' + " ".join(words) + '"'


def _joined(terms: dict[str, None]) -> str:
    return " OR ".join(list(terms)[:MOST_TERMS])
