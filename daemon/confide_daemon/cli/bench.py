"""`confided bench`: how well and how fast an index answers its owner's own questions, also while the daemon serves it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from confide_daemon.cli.console import Bar, Here, Output, command, say
from confide_daemon.errors import BadNameError, LockedError, QuestionsError

if TYPE_CHECKING:
    from confide_daemon.cli.benchmark import Figures
    from confide_daemon.store.store import Store


@command
def bench(
    here: Here,
    space: Annotated[
        str | None, typer.Option("--space", help="Which space is asked.", show_default="the only one")
    ] = None,
    queries: Annotated[
        Path | None,
        typer.Option(
            "--queries",
            help="One question a line; after a tab, the path that is right.",
            show_default="headings of its notes",
        ),
    ] = None,
) -> Output:
    """Ask a space your own questions: how long each step takes, and how often the right document comes first."""
    from confide_daemon.cli.benchmark import measure, own_questions, read_questions
    from confide_daemon.spaces import models
    from confide_daemon.spaces.custodian import Custodian
    from confide_daemon.store.store import Store

    found, settings = here.paths, here.config()
    asked = read_questions(queries) if queries is not None else None
    with here.opened() as state:
        name = _chosen(space, state.registry.spaces())
        space_id = state.registry.spaces()[name]
        path = found.data.space(space_id)
        custodian = Custodian(space_id, found.data, state.master)
    if not path.exists():
        raise QuestionsError(f"the space {name} holds nothing yet", hint="store something with: confide store")
    try:
        _, key = custodian.opening_key()
    except LockedError:
        hint = f"its machines give its key to the daemon alone; let the server keep it meanwhile: confided custody {name} server"
        raise LockedError(hint) from None
    store = Store.open(path, key, writer=False, now=time.time())
    handles = models.start(settings.embedding)
    try:
        with Bar(is_quiet=here.is_quiet) as bar:
            chosen = asked if asked is not None else own_questions(store)
            if not chosen:
                raise QuestionsError(
                    f"the notes of {name} have no headings to ask for", hint="give a file of questions with --queries"
                )
            figures = measure(
                store,
                chosen,
                handles,
                models.index_settings(settings),
                min_score=settings.search.min_score,
                follow=bar.follow,
            )
        told = _facts(name, store, figures)
    finally:
        for handle in handles:
            handle.close()
        store.close()
    return Output(told, lambda: _tell(told))


def _chosen(space: str | None, spaces: dict[str, str]) -> str:
    if space is None and len(spaces) == 1:
        return next(iter(spaces))
    if space in spaces:
        return space
    names = ", ".join(spaces)
    if not spaces:
        raise BadNameError("there is no space yet", hint="invite a machine first: confided invite laptop")
    if space is None:
        raise BadNameError("there are several spaces", hint=f"choose one with --space: {names}")
    raise BadNameError(f"there is no space '{space[:80]}'", hint=f"there are {names}")


def _facts(name: str, store: Store, figures: Figures) -> dict[str, Any]:
    """The figures as --json shows them; shares are of 0 to 1, null where nothing was expected."""
    counts = store.documents.counts(None)
    live = next((one for one in store.vectors.generations() if one.live), None)
    steps = {
        step: {"p50": _percentile(times, 0.5), "p95": _percentile(times, 0.95)}
        for step, times in sorted(figures.times.items(), key=lambda entry: entry[0] == "total")
    }
    return {
        "space": name,
        "files": sum(count.files for count in counts.values()),
        "chunks": sum(count.chunks for count in counts.values()),
        "sizeBytes": store.size_bytes(),
        "model": live.name if live is not None else None,
        "questions": figures.questions,
        "embedded": figures.with_vector,
        "answered": figures.answered,
        "empty": round(1 - figures.answered / figures.questions, 4),
        "expected": figures.expected,
        "hitAt1": round(figures.first / figures.expected, 4) if figures.expected else None,
        "hitAt5": round(figures.among / figures.expected, 4) if figures.expected else None,
        "stepsMs": steps,
    }


def _tell(told: dict[str, Any]) -> None:
    typer.echo(
        f"{told['space']}: {told['files']:,} files, {told['chunks']:,} pieces, {told['sizeBytes'] / 1e6:.1f} MB, "
        f"{told['model'] or 'no model'}"
    )
    typer.echo(f"{told['questions']} questions: {told['answered']} answered, {told['empty']:.0%} left empty")
    if told["expected"]:
        typer.echo(
            f"the right document first: {told['hitAt1']:.0%}, among the first five: {told['hitAt5']:.0%} "
            f"(of {told['expected']})"
        )
    if told["embedded"] < told["questions"]:
        say(f"{told['questions'] - told['embedded']} questions were asked by keywords alone: the model gave no vector")
    typer.echo(f"\n{'milliseconds':<14}{'p50':>8}{'p95':>8}")
    for step, times in told["stepsMs"].items():
        typer.echo(f"{step:<14}{times['p50']:>8.2f}{times['p95']:>8.2f}")


def _percentile(times: list[float], share: float) -> float:
    return round(sorted(times)[min(len(times) - 1, int(len(times) * share))], 3)
