"""The offer to trust what is untrusted, at the end of an import and of quickstart, against a daemon in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.daemon.loopback import Machine, machine, serving, text_hash

from confide_proxy.cli import trust


@asynccontextmanager
async def attached(folder: Path) -> AsyncIterator[Machine]:
    async with serving(folder / "data") as daemon, machine(daemon) as laptop:
        await laptop.attach("proj", "other")
        yield laptop


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a person at a terminal is asked; each question is answered with yes."""
    questions: list[str] = []

    async def confirmed(question: str) -> bool:
        questions.append(question)
        return True

    monkeypatch.setattr(trust, "ask_confirmation", confirmed)
    monkeypatch.setattr(trust, "can_ask", lambda: True)
    return questions


async def put(laptop: Machine, path: str, project: str = "proj", **more: Any) -> None:
    text = f"The heron of {path} fishes in the third pond at dawn.\n"
    body = {"project": project, "path": path, "text": text, "hash": text_hash(text), "base": 0, **more}
    await laptop.request("put", body)


async def classes(laptop: Machine, project: str = "proj") -> dict[str, str]:
    listed = await laptop.request("documents", {"project": project, "path": ""})
    return {one["path"]: one["class"] for one in listed["documents"]}


async def offer(laptop: Machine, *projects: str, path: str = "", ids: tuple[str, ...] = ()) -> bool:
    client: Any = SimpleNamespace(connection=laptop.connection)
    return await trust.offer(client, projects, path, ids=ids)


async def test_all_that_is_untrusted_is_offered_at_once(
    tmp_path: Path, asked: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Page by page, of several projects. Transcripts stay untrusted, and a task's result has a command of its own."""
    monkeypatch.setattr(trust, "MAX_LISTED", 2)
    async with attached(tmp_path) as laptop:
        assert await offer(laptop, "proj") is False
        for number in range(5):
            await put(laptop, f"docs/{number}.md")
        await put(laptop, "memory/own.md")
        await put(laptop, "memory/tasks/t1/result.md", **{"class": "untrusted"})
        await put(laptop, "docs/o.md", "other")
        message = {"role": "user", "text": "herons at dawn", "time": "2026-11-20T14:03:00Z"}
        session = {"project": "proj", "agent": "claude-code", "session": "s1", "version": 0, "from": 0, "to": 9}
        await laptop.request("transcript", {**session, "head": "h", "mark": "m", "messages": [message]})
        assert await offer(laptop, "proj", "other") is True
        assert [one.partition(" ")[0] for one in asked] == ["6", "Trust"]
        assert asked[1] == "Trust 6 files as they are now?"
        found = (await classes(laptop)).items()
        assert [path for path, class_ in found if class_ == "untrusted"] == ["memory/tasks/t1/result.md"]
        assert await classes(laptop, "other") == {"docs/o.md": "owner"}
        assert await offer(laptop, "proj", "other") is False
    told = capsys.readouterr()
    assert all(f"docs/{number}.md:" in told.out for number in range(5))
    assert "trusted: 6 files" in told.out


async def test_who_has_looked_has_not_said_yes(
    tmp_path: Path, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def only_looks(question: str) -> bool:
        return not question.startswith("Trust")

    monkeypatch.setattr(trust, "ask_confirmation", only_looks)
    async with attached(tmp_path) as laptop:
        await put(laptop, "docs/a.md")
        assert await offer(laptop, "proj") is True
        assert set((await classes(laptop)).values()) == {"untrusted"}


async def test_a_note_is_shown_by_its_text(
    tmp_path: Path, asked: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Its front matter is one line, and blank lines are none."""
    async with attached(tmp_path) as laptop:
        text = "---\nid: mem_x_1700000000_abcd1234\ntitle: Heron\nmetadata:\n  a: b\n---\n\nIt fishes.\n\nAt dawn.\n"
        body = {"project": "proj", "path": "memory/notes/h.md", "text": text, "hash": text_hash(text), "base": 0}
        await laptop.request("put", {**body, "class": "untrusted"})
        assert await offer(laptop, "proj")
    shown = capsys.readouterr().out.splitlines()
    assert [line.strip() for line in shown[2:-1]] == [
        "id: mem_x_1700000000_abcd1234, title: Heron, metadata:, a: b",
        "8  It fishes.",
        "10  At dawn.",
    ]


async def test_a_no_names_the_command_and_trusts_nothing(
    tmp_path: Path, asked: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def declined(_question: str) -> bool:
        return False

    monkeypatch.setattr(trust, "ask_confirmation", declined)
    async with attached(tmp_path) as laptop:
        await put(laptop, "memory/notes/a.md", **{"class": "untrusted"})
        assert await offer(laptop, "proj", path="memory/notes") is True
        await put(laptop, "memory/notes/b.md", **{"class": "untrusted"})
        assert await offer(laptop, "proj", path="memory/notes") is True
        assert set((await classes(laptop)).values()) == {"untrusted"}
        assert await offer(laptop, "proj", path="memory/notes", ids=("mem_x_1700000000_abcd1234",)) is False
    told = capsys.readouterr().err
    assert "confide trust memory/notes/a.md" in told
    assert "confide trust memory/notes\n" in told


async def test_without_a_terminal_nothing_is_asked(
    tmp_path: Path, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trust, "can_ask", lambda: False)
    async with attached(tmp_path) as laptop:
        await put(laptop, "docs/a.md")
        assert await offer(laptop, "proj") is False
        assert set((await classes(laptop)).values()) == {"untrusted"}
    assert asked == []
