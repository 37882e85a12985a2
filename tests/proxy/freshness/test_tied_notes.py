"""The notes of a project: what a call stores in them, and the marks in results."""

from __future__ import annotations

from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from confide_crypto.sealing.space_keys import SpaceKeys
from confide_memory.note import MAX_SEEN, SEEN_VALUE, seen_of
from confide_memory.tools.call import CLASS, OPERATION, SEEN_PARTS
from confide_proxy.freshness.note_ties import ProjectTies, fields_of
from confide_proxy.freshness.tied_notes import TiedNotes
from confide_proxy.mcp.jsonrpc import without_claims

KEYS = SpaceKeys.generate()
CHANGED = "· changed since 20"


class Shop:
    """A project with a note about each of three files: one is as it was, one was changed, one deleted."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.notes = TiedNotes(root, "shop", ProjectTies(root, lambda: KEYS))
        (root / "memory/notes").mkdir(parents=True)
        for number, name in enumerate(("kept", "other", "lost")):
            (root / f"{name}.py").write_text("x = 1\n")
            self.note(f"memory/notes/{name}-{number}abc1234.md", f"mem_{name}_17_{number}abc1234", f"{name}.py")
        (root / "other.py").write_text("x = 2\n")
        (root / "lost.py").unlink()

    def note(self, path: str, identity: str, *parts: str) -> None:
        seen = "".join(f"  {name}: {value}\n" for name, value in self.notes.ties.seen_for_parts(parts).items())
        (self.root / path).write_text(f"---\nid: {identity}\nseen:\n{seen}---\n\nText.\n")

    def marked(self, tool: str, *lines: str, **more: Any) -> list[str]:
        text = "\n".join(lines)
        result = {"content": [{"type": "text", "text": text}], **more}
        made = self.notes.mark_result(tool, result)
        found: str = made["content"][0]["text"]
        assert (made is result) == (found == text)
        return found.split("\n")


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def test_hits_of_a_search(shop: Shop) -> None:
    """By short and whole ids and by paths, of this project alone; lines of a quotation get no mark of their own."""
    lines = ["3 found.", "", "mem_0abc1 2026-11-20", "Text.", "", "mem_1abc1234 2026-11-20 · Heading", "Text."]
    lines += ["", "lines 4-5", "more", "", "mem_lost_17_2abc1234 2026-11-20", "mem_1abc1234 is quoted here", ""]
    lines += [
        "memory/notes/other-1abc1234.md:3-4 2026-11-20",
        "",
        "mem_1abc1234 [other] 2026-11-20",
        "",
        "mem_9999 2026-11-20",
    ]
    made = shop.marked("memory_search", *lines)
    marks = {number: line[len(lines[number]) :] for number, line in enumerate(made) if line != lines[number]}
    assert marks.keys() == {5, 11, 14}
    assert marks[5].startswith(f" {CHANGED}")
    assert marks[5].endswith(": other.py")
    assert marks[11] == " · gone: lost.py"


@pytest.mark.parametrize(
    ("tool", "lines"),
    [
        ("memory_read", ["memory/notes/other-1abc1234.md [shop] lines 1-9 of 9, revision 1", "Stored data:", "", "x"]),
        ("memory_get", ["Title (mem_1abc1)", "memory/notes/other-1abc1234.md [shop] revision 1, 2026-11-20, by a", ""]),
        ("memory_list", ["1-1 of 1", "", "Title (mem_1abc1) · memory/notes/other-1abc1234.md [shop]", "2026-11-20"]),
    ],
)
def test_other_results(shop: Shop, tool: str, lines: list[str]) -> None:
    made = shop.marked(tool, *lines)
    (number,) = (number for number, line in enumerate(made) if line != lines[number])
    assert CHANGED in made[number]
    elsewhere = [line.replace("[shop]", "[other]").replace("1abc1234.md", "0abc1234.md") for line in lines]
    assert shop.marked(tool, *elsewhere) == elsewhere


def test_a_structured_result_has_marks_among_its_warnings(shop: Shop) -> None:
    hit = {"project": "shop", "path": "memory/notes/other-1abc1234.md"}
    result = {"content": [{"type": "text", "text": "1\n\nmem_1abc1 2026-11-20"}]}
    more = {"results": [hit, {**hit, "project": "other"}, 7], "warnings": ["w"]}
    first, mark = shop.notes.mark_result("memory_search", {**result, "structuredContent": more})["structuredContent"][
        "warnings"
    ]
    assert first == "w"
    assert mark.startswith("memory/notes/other-1abc1234.md: changed since")


@pytest.mark.parametrize(
    "text", ["", "\n\n", "mem_", "a\n\nmem_" + "9" * 300, "x\n\n../../etc/a.md:1 2026-11-20", "\x00.md [shop] lines"]
)
def test_odd_results_are_left_alone(shop: Shop, text: str) -> None:
    for tool in ("memory_search", "memory_read", "memory_get", "memory_list"):
        assert shop.marked(tool, *text.split("\n")) == text.split("\n")
    for content in (None, "x", [7], [{"type": "image"}], [{"type": "text", "text": 7}]):
        odd: dict[str, Any] = {"content": content}
        assert shop.notes.mark_result("memory_search", odd) is odd


def test_what_a_call_stores(shop: Shop) -> None:
    """A note of this project gets ties; a log, a sensitive text and another project's note do not. A change confirms those it has."""
    note = {"content": "never edit kept.py by hand", "title": "T"}
    seen = shop.notes.of_call("memory_store", note)
    assert seen is not None
    assert [*seen] == ["kept.py"]
    assert all(SEEN_VALUE.fullmatch(value) for value in seen.values())
    for other in (
        {"project": "other"},
        {"scope": "global"},
        {"sensitive": True},
        {"content": "nothing"},
        {"content": 7},
    ):
        assert shop.notes.of_call("memory_store", {**note, **other}) is None
    assert shop.notes.of_call("memory_store", {"content": note["content"], "path": "memory/a.md"}) is None
    for identity in ("mem_1abc1", "mem_other_17_1abc1234", "memory/notes/other-1abc1234.md"):
        assert [*(shop.notes.of_call("memory_update", {"id": identity, "tags": ["x"]}) or ())] == ["other.py"]
    assert [*(shop.notes.of_call("memory_update", {"id": "mem_1abc1", "content": "kept.py"}) or ())] == ["kept.py"]
    secret = {"id": "mem_1abc1", "content": "kept.py", "sensitive": True}
    assert "kept.py" not in (shop.notes.of_call("memory_update", secret) or {})
    assert shop.notes.of_call("memory_update", {"id": "mem_2abc1", "tags": ["x"]}) == {}  # what was gone is let go
    for nothing in ({"id": "mem_7777"}, {"id": "mem_1abc1", "restoreRevision": 1}, {"id": 7}, {}):
        assert shop.notes.of_call("memory_update", nothing) is None


def test_a_note_with_another_name_and_two_of_one_id(shop: Shop) -> None:
    """A note that its author named is found by the id in it; an id that two notes share gets no verdict of either."""
    shop.note("memory/notes/by hand.md", "mem_hand_17_77aa77aa", "kept.py")
    assert shop.notes.path_of("mem_77aa7") == "memory/notes/by hand.md"
    assert shop.notes.path_of("mem_1abc1234") == "memory/notes/other-1abc1234.md"
    (shop.root / "memory/tasks/t").mkdir(parents=True)
    shop.note("memory/tasks/t/other-1abc1234.md", "mem_other_17_1abc1234", "kept.py")
    assert shop.notes.path_of("mem_1abc1234") is None
    assert {path for path, _ in shop.notes.all()} >= {"memory/notes/by hand.md", "memory/tasks/t/other-1abc1234.md"}


def test_what_a_saved_file_lacks(shop: Shop) -> None:
    path = "memory/notes/new.md"
    assert [*(shop.notes.of_file(path, "never edit kept.py\n") or ())] == ["kept.py"]
    assert shop.notes.of_file("memory/log.md", "never edit kept.py\n") is None
    about = "---\nabout: [kept.py]\n---\nx\n"
    assert [*(shop.notes.of_file("memory/log.md", about) or ())] == ["kept.py"]
    old = (shop.root / "memory/notes/other-1abc1234.md").read_text()
    assert shop.notes.of_file(path, old) is None
    more = shop.notes.of_file(path, old.replace("seen:", "about: [kept.py, other.py]\nseen:"))
    assert more is not None
    assert [*more] == ["other.py", "kept.py"]
    assert f"other.py: {more['other.py']}" in old


def test_a_client_says_nothing_about_what_was_seen() -> None:
    """Its claims are taken out; what a message has of other names stays."""
    message = {"params": {"name": "memory_store", "_meta": {SEEN_PARTS: {"a": "b"}, CLASS: "owner", OPERATION: "1"}}}
    assert without_claims(message)["params"] == {"name": "memory_store", "_meta": {OPERATION: "1"}}


def test_a_daemon_takes_only_what_has_the_form() -> None:
    good = "0123456789abcdef.7 - 0123456789ab 2026-11-20"
    odd = {"a\nb": good, "x" * 301: good, "": good, "c": "x", "d": 7, "e": f"{good}\n", "kept.py": good}
    assert seen_of(odd) == {"kept.py": good}
    assert len(seen_of({f"{number}.py": good for number in range(99)})) == MAX_SEEN
    assert seen_of([good]) == seen_of(None) == {}


def test_every_memory_file_with_ties_is_listed(shop: Shop) -> None:
    """A note in a folder of its own is found by its id, and a file that states `about` counts too; no link is followed."""
    (shop.root / "memory/notes/sub/deep").mkdir(parents=True)
    shop.note("memory/notes/sub/deep/own-5abc1234.md", "mem_own_17_5abc1234", "kept.py")
    shop.note("memory/decisions.md", "x", "other.py")
    shop.note("MEMORY.md", "x", "kept.py")
    (shop.root / "memory/loop").symlink_to(shop.root / "memory")
    (shop.root / "kept.py").write_text("x = 3\n")
    (shop.root / "other.py").write_text("x = 3\n")
    assert shop.notes.path_of("mem_5abc1") == "memory/notes/sub/deep/own-5abc1234.md"
    assert CHANGED in shop.marked("memory_search", "1 found.", "", "mem_5abc1 2026-11-20")[2]
    listed = [path for path, verdict in shop.notes.all() if verdict.mark]
    assert listed[-3:] == ["memory/notes/sub/deep/own-5abc1234.md", "MEMORY.md", "memory/decisions.md"]


@pytest.mark.parametrize(
    ("about", "mark"),
    [
        ("[kept.py, kpet.py]", "not checked: kpet.py (not here)"),
        ("src/gone.py:3-9", "not checked: src/gone.py:3-9 (not here)"),
        ("kept.py#missing", "not checked: kept.py#missing (not here)"),
        ("git:nowhere", None),  # no repository
        ("[kept.py, kept.py#x]", None),
        ("how we pay", None),
        ("authentication", None),
    ],
)
def test_a_part_that_was_never_here(shop: Shop, about: str, mark: str | None) -> None:
    """Spelled wrong, or deleted before the note was tied. A subject is no part, and what is here needs no tie to be silent."""
    path = "memory/notes/typed-4abc1234.md"
    (shop.root / path).write_text(f"---\nid: mem_typed_17_4abc1234\nabout: {about}\n---\n\nText.\n")
    verdict = shop.notes.verdict(path, until=monotonic() + 60)
    assert (verdict.mark if verdict else None) == mark


def test_what_cannot_be_checked_is_not_confirmed(shop: Shop) -> None:
    """A part that is a link now, and all parts while the keys are missing, keep their entries; another part is confirmed."""
    path = "memory/notes/two-6abc1234.md"
    shop.note(path, "mem_two_17_6abc1234", "kept.py", "other.py")
    before = seen_of(fields_of((shop.root / path).read_text())["seen"])
    (shop.root / "kept.py").unlink()
    (shop.root / "kept.py").symlink_to("other.py")
    (shop.root / "other.py").write_text("x = 3\n")
    for change in ({"tags": ["x"]}, {"content": "kept.py and other.py"}):
        now = shop.notes.of_call("memory_update", {"id": path, **change})
        assert now is not None
        assert now["kept.py"] == before["kept.py"]
        assert now["other.py"] != before["other.py"]
    without = TiedNotes(shop.root, "shop", ProjectTies(shop.root, lambda: None))
    assert without.of_call("memory_update", {"id": path, "tags": ["x"]}) == before
