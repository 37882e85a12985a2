"""What an agent's own tool calls count: the notes that its search showed, and those that it read, changed or deleted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from confide_memory.tools.search_text import text_of
from confide_proxy.hooks.server import usage
from confide_proxy.mcp.features.note_reads import NoteReads


def hit(**more: Any) -> dict[str, Any]:
    told = {"path": "memory/a.md", "project": "shop", "startLine": 3, "endLine": 5, "score": 0.7, "scores": {}}
    told |= {"snippet": "Postgres has row locks.", "heading": "", "source": "memory", "author": "laptop"}
    return told | {"updatedAt": "2026-11-20T10:00:00Z", "alike": 0, "class": "agent"} | more


def result(text: str, **more: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], **more}


def found(*hits: dict[str, Any]) -> dict[str, Any]:
    told = {"results": list(hits), "warnings": [], "searchMode": "hybrid"}
    return result(text_of(told, project="shop", nothing="nothing"))


async def test_a_search_counts_what_it_showed_and_a_read_what_was_used(tmp_path: Path) -> None:
    """By the lines above the hits, files and notes of any project; the snippets are no such lines."""
    reads = NoteReads(str(tmp_path), "shop")
    note = hit(path="memory/notes/use-row-locks-4f2a9c1b.md", id="mem_row_1_4f2a9c1b", shortId="mem_4f2a9", title="x")
    said = found(
        hit(), hit(startLine=9), note, hit(path="memory/b.md", project="global", snippet="line\n\nmemory/c.md 1")
    )
    await reads.count("memory_search", {"query": "row locks"}, said, 12)
    state = usage.UsageFile(tmp_path).refresh()
    assert set(state.notes) == {"shop\0memory/a.md", "shop\0mem_4f2a9", "global\0memory/b.md"}
    (total,) = (events[usage.SEARCH] for events in state.days.values())
    assert (total.times, total.notes, total.ms) == (1, 3, 12)
    assert total.tokens == usage.tokens_of(said["content"][0]["text"])

    await reads.count("memory_read", {"path": "memory/a.md"}, result("text"), 1)
    await reads.count("memory_update", {"id": "mem_4f2a9", "content": "x"}, result("done"), 1)
    await reads.count("memory_get", {"id": "mem_4f2a9"}, result("no such note", isError=True), 1)
    await reads.count("memory_store", {"path": "memory/b.md", "content": "x"}, result("done"), 1)
    state = usage.UsageFile(tmp_path).refresh()
    assert {key: (one.used, one.read) for key, one in state.notes.items()} == {
        "shop\0memory/a.md": (1, 1),
        "shop\0mem_4f2a9": (1, 0),
        "global\0memory/b.md": (0, 0),
    }
    await reads.count("memory_delete", {"path": "memory/a.md"}, result("deleted"), 1)
    await reads.count("memory_delete", {}, result("?"), 1)
    assert set(usage.UsageFile(tmp_path).refresh().notes) == {"shop\0mem_4f2a9", "global\0memory/b.md"}


async def test_odd_calls_count_nothing(tmp_path: Path) -> None:
    reads = NoteReads(str(tmp_path), "shop")
    for tool, arguments, told in (
        ("memory_read", {"path": 7, "project": []}, result("x")),
        ("memory_search", {}, {"content": []}),
        ("memory_search", {}, {"content": [{"type": "image"}]}),
        ("secret_get", {"id": "mem_4f2a9"}, result("x")),
    ):
        await reads.count(tool, arguments, told, 0)
    assert usage.UsageFile(tmp_path).refresh().notes == {}
