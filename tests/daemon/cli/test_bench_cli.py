"""`confided space bench`: your own questions against your own index, with the daemon running and without."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.deadline import DEADLINE_S
from tests.support.programs.confided import Confided

NOTES = {
    "MEMORY.md": "# The harbour gate\n\nIt opens at five.\n\n# Which database we chose\n\nPostgres, for its row locks.\n",
    "memory/herons.md": "# Where the herons fish\n\nBy the old bridge, at dawn.\n\n# Short\n\nnothing\n",
}
SECRET = "zyxwhisper lighthouse"


async def test_questions_are_asked_beside_the_daemon_and_after_it(ready: Confided, tmp_path: Path) -> None:
    """A file with paths gives hits at 1 and 5, headings do where there is none; steps have times, and questions are written nowhere."""
    identity = ready.enroll()
    process = ready.serve()
    async with await ready.connect(identity) as laptop:
        await laptop.attach("proj")
        for path, text in NOTES.items():
            await laptop.put(path, text)
    queries = tmp_path / "questions.txt"
    queries.write_text(
        f"which database did we choose\tMEMORY.md\nwhere do the herons fish\tmemory/herons.md\n{SECRET}\n",
        encoding="utf-8",
    )
    beside = ready.json("space", "bench", "--queries", str(queries), "--json")
    assert (beside["questions"], beside["expected"], beside["answered"]) == (3, 2, 2)
    assert (beside["hitAt1"], beside["hitAt5"], beside["empty"]) == (1.0, 1.0, 0.3333)
    assert (beside["files"], beside["chunks"] > 3, beside["sizeBytes"] > 4096) == (2, True, True)
    assert list(beside["stepsMs"])[-1] == "total"
    assert {"keyword", "fetch"} <= set(beside["stepsMs"])
    assert all(0 <= times["p50"] <= times["p95"] for times in beside["stepsMs"].values())
    process.terminate()
    process.wait(DEADLINE_S)
    alone = ready.run("space", "bench")
    assert "3 questions: 3 answered, 0% left empty" in alone.stdout
    assert "the right document first: 100%" in alone.stdout
    assert SECRET.split()[0] not in ready.log + alone.stdout + alone.stderr
    assert SECRET.encode() not in b"".join(path.read_bytes() for path in ready.home.rglob("*") if path.is_file())


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "cannot read"),
        (b"\n \n\t\n", "holds no question"),
        (b"\xff\xfe", "not UTF-8"),
        (b"q\n" * 3_000_000, "too large"),
    ],
)
def test_a_file_that_holds_no_questions_is_refused(
    ready: Confided, tmp_path: Path, content: bytes | None, told: str
) -> None:
    path = tmp_path / "questions.txt"
    if content is not None:
        path.write_bytes(content)
    assert told in ready.run("space", "bench", "--queries", str(path), code=7).stderr


def test_a_space_is_named_where_there_is_no_only_one(ready: Confided) -> None:
    assert "no space yet" in ready.run("space", "bench", code=7).stderr
    ready.enroll("laptop")
    assert "holds nothing yet" in ready.run("space", "bench", code=7).stderr
    ready.enroll("desktop")
    assert "--space: " in ready.run("space", "bench", code=7).stderr
    assert "no space 'attic'" in ready.run("space", "bench", "--space", "attic", code=7).stderr
