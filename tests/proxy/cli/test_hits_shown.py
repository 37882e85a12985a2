"""What a search found, as a person sees it; and arguments that are no text."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support.programs.command import confide
from tests.support.programs.commands import ARGUMENTS
from tests.support.programs.processes import Machine

from confide_memory.documents import marked_clash
from confide_memory.tools.search_text import wanted_words
from confide_proxy.cli import search

BAD = "caf\udce9"


def hit(path: str, score: float, **more: Any) -> dict[str, Any]:
    place = {"path": path, "startLine": 1, "endLine": 2, "score": score, "project": "parcel-tracker"}
    return {**place, "heading": "", "snippet": "We chose postgres", "updatedAt": "2026-11-20T10:00:00Z", **more}


def told(monkeypatch: pytest.MonkeyPatch, hits: list[dict[str, Any]], query: str, *, is_terminal: bool = False) -> str:
    file = io.StringIO()
    monkeypatch.setattr(file, "isatty", lambda: is_terminal, raising=False)
    monkeypatch.setattr(sys, "stdout", file)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    search._print_hits({"results": hits, "warnings": []}, query, explain=False)
    return file.getvalue()


def test_each_hit_has_its_place_date_project_and_heading(monkeypatch: pytest.MonkeyPatch) -> None:
    """None of them glued to another; an empty line between two hits alone; no marks where nothing shows them."""
    text = told(monkeypatch, [hit("a.md", 0.9, heading="Decisions"), hit("b.md", 0.5)], "why postgres")
    head, line, gap, second, _ = text.splitlines()
    assert head.startswith("a.md:1-2  0.90  2026-11-20 ")
    assert head.endswith("  [parcel-tracker]  Decisions")
    assert (line, gap) == ("    We chose postgres", "")
    assert second.endswith("  [parcel-tracker]")
    assert "\x1b" not in text


def test_a_note_has_its_short_id(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which commands take in the place of its path; it is superseded by one that is named so too."""
    newer = [{"title": "Tabs", "path": "memory/notes/tabs-77aa01fe.md", "shortId": "mem_77aa0"}]
    text = told(monkeypatch, [hit("a.md", 0.9, shortId="mem_3f9a2", supersededBy=newer)], "why postgres")
    assert text.splitlines()[0].endswith("  [parcel-tracker]  mem_3f9a2")
    assert "superseded by Tabs (mem_77aa0)" in text


def test_the_words_that_matched_are_bold_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """In all their forms, but not the words that every question has."""
    text = told(monkeypatch, [hit("a.md", 0.9, snippet="We choose databases")], "why a database", is_terminal=True)
    assert "\x1b[1mdatabases\x1b[0m" in text
    assert "We choose" in text
    assert wanted_words("why the") is None


def test_a_number_that_is_not_the_order_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a note that another supersedes stands below it: its place then."""
    text = told(monkeypatch, [hit("a.md", 0.39), hit("b.md", 0.78)], "x")
    assert "0.39" not in text
    assert "a.md:1-2  #1  " in text
    assert "b.md:1-2  #2  " in text


def test_a_clash_in_a_hit_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    marks = "".join(marked_clash(["one\n"], ["two\n"], ("desk", "phone")))
    assert "conflict" in told(monkeypatch, [hit("a.md", 0.9, snippet=marks)], "one")


@pytest.mark.parametrize("name", sorted(ARGUMENTS))
def test_an_argument_that_is_no_text_is_refused(tmp_path: Path, name: str) -> None:
    """By every command, in a sentence, whichever argument it is; a folder's name alone may be any bytes."""
    machine = Machine(tmp_path, "desk")
    (machine.home / "proxy.toml").write_text("on_demand = false\n")
    longest = max(ARGUMENTS[name], key=len)
    for place in range(max(1, len(longest))):
        given = [BAD if at == place else each for at, each in enumerate(longest or (BAD,))]
        ended = confide(machine, *name.split(), *given)
        assert ended.code != 0, given
        assert "Traceback" not in ended.err
    if name in ("search", "read", "history", "store", "ls", "log", "edit", "rm"):
        assert "UTF-8" in confide(machine, *name.split(), BAD).err
