"""Suggestions on the disk: refused stays away, nothing twice, and no disk or process loses what waits."""

from __future__ import annotations

import json
import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from confide_learn.local.suggestions import MOST_KEPT, Suggestion, Suggestions, id_of
from confide_proxy.errors import StateError

TEXT = "The staging database of the shop lives on port 5433 of the old host."


def suggestion(text: str = TEXT, **more: str) -> Suggestion:
    kind = more.pop("kind", "remember")
    found = Suggestion(id_of("app", text), text, text, kind, "app", "/app", "s1", "claude-code", "rules", 1)
    return replace(found, **more)  # type: ignore[arg-type]  # strings alone


def test_the_same_is_kept_once(tmp_path: Path) -> None:
    """Whatever its case and marks; in another project it is another one."""
    kept = Suggestions(tmp_path / "learn")
    assert kept.add(suggestion())
    assert not kept.add(suggestion())
    assert not kept.add(suggestion(TEXT.upper().replace(".", "!")))
    assert kept.add(suggestion(project="other", id="another"))
    assert len(kept.waiting()) == 2
    assert (tmp_path / "learn" / "suggestions.json").stat().st_mode & 0o777 == 0o600


def test_what_was_refused_stays_away(tmp_path: Path) -> None:
    """Also in nearly the same words; so does what was undone."""
    kept = Suggestions(tmp_path)
    for state, text in (("refused", TEXT), ("undone", f"From now on, and in all of the company: {TEXT.lower()}")):
        assert kept.add(suggestion(text))
        kept.put(replace(suggestion(text), state=state))
        assert not kept.add(suggestion(text))
        assert not kept.add(suggestion(text.replace("5433", "5434")))
    assert kept.waiting() == []


def test_what_is_nearly_the_same_brings_it_up_to_date(tmp_path: Path) -> None:
    """While it waits its words are the newer ones; once it is a note, the newer one would take that note's place."""
    kept = Suggestions(tmp_path)
    kept.add(suggestion())
    newer = suggestion(TEXT.replace("5433", "5434"))
    assert not kept.add(newer)
    (waiting,) = kept.waiting()
    assert waiting.text == newer.text
    kept.put(replace(waiting, state="stored", note="mem_1"))
    assert kept.add(suggestion(TEXT.replace("5433", "5435")))
    assert [each.replaced for each in kept.waiting()] == ["mem_1"]


def test_a_session_has_one_note(tmp_path: Path) -> None:
    """As it goes on the note changes; refused once, it is not suggested again."""
    kept = Suggestions(tmp_path)
    first = suggestion("begun", kind="session-summary", id="s1")
    assert kept.add(first)
    kept.put(replace(first, state="stored", note="mem_1", path="memory/notes/s1.md"))
    assert kept.add(replace(first, text="begun, and ended"))
    (waiting,) = kept.waiting()
    assert (waiting.note, waiting.text) == ("mem_1", "begun, and ended")
    kept.put(replace(waiting, state="refused"))
    assert not kept.add(replace(first, text="begun, ended, and begun again"))


def test_processes_at_once_lose_none(tmp_path: Path) -> None:
    """Each change is made under a lock: the learner adds while a person refuses."""
    words = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta"]

    def add(word: str) -> None:
        for number in range(5):
            Suggestions(tmp_path).add(suggestion(f"{word} {word}{number} {number}{word} holds"))

    threads = [threading.Thread(target=add, args=(word,)) for word in words]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(Suggestions(tmp_path).waiting()) == 30


def test_a_full_disk_loses_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be written is told, and the file is as it was."""
    kept = Suggestions(tmp_path)
    kept.add(suggestion())

    def full(_fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StateError, match="No space left"):
        kept.add(suggestion("something else that is worth keeping"))
    assert [each.text for each in kept.waiting()] == [TEXT]
    assert not list(tmp_path.glob("*.part"))


def test_a_damaged_file_is_set_aside(tmp_path: Path) -> None:
    """Half a file is kept under another name; rows that are none are left out."""
    kept = Suggestions(tmp_path)
    kept.add(suggestion())
    file = tmp_path / "suggestions.json"
    whole = json.loads(file.read_bytes())
    file.write_text(json.dumps([*whole, 7, {"id": 1}, {**whole[0], "state": "?"}, {"id": "x"}]))
    assert [each.text for each in kept.all()] == [TEXT]
    file.write_bytes(file.read_bytes()[:50])
    assert kept.all() == []
    assert (tmp_path / "suggestions.damaged").exists()
    assert kept.add(suggestion())


def test_it_stays_small(tmp_path: Path) -> None:
    """Of what is decided the newest stay; what waits is never dropped."""
    first = {name: getattr(suggestion(), name) for name in Suggestion.__dataclass_fields__}
    rows = [
        {**first, "id": f"{number:08x}", "text": f"{number} {number}", "state": "refused"}
        for number in range(MOST_KEPT)
    ]
    (tmp_path / "suggestions.json").write_text(json.dumps([first, *rows]))
    kept = Suggestions(tmp_path)
    assert kept.add(suggestion("something else that is worth keeping"))
    every = kept.all()
    assert len(every) == MOST_KEPT
    assert len(kept.waiting()) == 2
