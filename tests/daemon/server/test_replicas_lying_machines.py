"""A machine that answers what the daemon asks of it with whatever there is: others are served, nothing of it is in the log, and each answer
is read by one table."""

from __future__ import annotations

import ast
import asyncio
import logging
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest
from tests.support.daemon.hostile import CODES, EVIL, HASH, sendable, wronged
from tests.support.daemon.loopback import Machine, Serving, machine, serving, text_hash
from tests.support.deadline import DEADLINE_S
from tests.support.draws import draws

from confide_crypto.errors import RequestError
from confide_daemon.server import replicas
from confide_memory.wire.files import APPLY
from confide_memory.wire.operation import OF_DAEMONS

ROOT = Path(__file__).parents[3]
SERVER = ROOT / "daemon" / "confide_daemon"
HELD: Final = "- held by the machine\n"
SENDABLE: Final = EVIL.replace("\ud800", "")
GIT: Final = {"repository": EVIL, "branch": EVIL, "remote": EVIL}
GOOD: Final[dict[str, dict[str, Any]]] = {
    "apply": {"applied": False, "hash": text_hash(HELD), "text": HELD, "base": 1, "baseHash": HASH, "sent": [HASH]},
    "flush": {},
    "roster": {},
    "backlog": {"pendingUploads": 1, "queuedOffline": 2, "deadLetters": 3, "troubles": ["hooks stopped"]},
    "workplace": {"platform": EVIL, "directory": EVIL, "git": GIT, "claim": EVIL, "time": "2026-11-21T10:00:00Z"},
    "scan": {
        **dict.fromkeys(("filesScanned", "sent", "removed", "pulled"), 1),
        "skipped": [{"path": EVIL, "reason": EVIL}],
    },
}


class Liar(Machine):
    """One whose answers are drawn; `asked` has what they were to."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.draw = random.Random(0)
        self.asked: list[str] = []

    async def _on_request(self, op: str, body: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(op)
        match self.draw.randrange(6):
            case 0:
                raise RequestError(self.draw.choice(CODES), SENDABLE, SENDABLE)
            case 1:
                return sendable(GOOD[op])
            case 2:
                return {"applied": self.draw.choice([True, 1, "yes", None])}
        made = wronged(self.draw, GOOD[op])
        return sendable(made) if isinstance(made, dict) else {}


@pytest.fixture
async def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Serving]:
    monkeypatch.setattr(replicas, "AGAIN_S", 0.01)
    async with serving(tmp_path / "data") as running:
        yield running


async def test_a_daemon_serves_on_whatever_a_machine_answers(daemon: Serving, caplog: pytest.LogCaptureFixture) -> None:
    """Each tool that asks the machine has a result, the other machine of the space gets and stores as before."""
    caplog.set_level(logging.DEBUG, logger="confide_daemon")
    liar = Liar(await daemon.connect(daemon.enroll("laptop")))
    calls = (
        ("memory_status", {}),
        ("context_info", {}),
        ("memory_sync", {"force": True}),
        ("memory_store", {"content": "- from the liar", "path": "memory/l.md", "mode": "append"}),
        ("memory_delete", {"path": "memory/l.md"}),
    )
    async with liar, machine(daemon, "desktop", space="laptop") as honest, liar.mcp() as client:
        for one in (liar, honest):
            await one.attach("proj", toolsets=["all"])
        base = 0
        for seed in range(draws(30)):
            liar.draw = random.Random(seed)
            base = (await honest.put("memory/a.md", f"- round {seed}\n", base=base))["revision"]
            for name, arguments in calls:
                async with asyncio.timeout(DEADLINE_S):
                    answer = await client.call_tool(name, arguments)
                assert answer.content, (seed, name)
                assert name == "memory_delete" or not answer.is_error, (seed, name, answer)
            pulled = await honest.request("pull", {"project": "proj", "path": "memory/a.md"})
            base = pulled["revision"]
        assert set(GOOD) - set(liar.asked) <= {"roster"}
        assert not liar._task.done()
    said = "\n".join(f"{record.getMessage()} {record.exc_text or ''}" for record in caplog.records)
    # Once for each kind in a session: a machine that goes on does not fill the disk.
    assert said.count("answer to apply is not of the agreed form") == 1
    assert said.count("a revision was not taken") == 1
    assert "evil" not in said
    assert HELD.strip() not in said
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


@pytest.mark.parametrize("op", sorted(GOOD))
def test_whatever_is_wrong_is_refused_or_left_out(op: str) -> None:
    """One error, whatever the field; what is read has the fields of the table alone."""
    good = OF_DAEMONS[op].read_answer(sendable(GOOD[op]))
    assert good.keys() == OF_DAEMONS[op].answer_fields.keys()
    for seed in range(draws(300)):
        wrong = wronged(random.Random(f"{op}{seed}"), GOOD[op])
        try:
            found = OF_DAEMONS[op].read_answer(sendable(wrong) if isinstance(wrong, dict) else {})
        except RequestError:
            continue
        assert found.keys() == good.keys()


@pytest.mark.parametrize(
    "wrong",
    [
        {"applied": "yes"},
        {"text": None},
        {"text": "another than the hash is of"},
        {"hash": "ab" * 32},
        {"base": -1},
        {"baseHash": 7},
        {"sent": [EVIL]},
        {"sent": [HASH] * 33},
    ],
)
def test_what_a_file_holds_is_told_whole(wrong: dict[str, Any]) -> None:
    """A text under another text's hash would be taken for what the machine confirmed, and its edit be overwritten."""
    with pytest.raises(RequestError):
        APPLY.read_answer({**GOOD["apply"], **wrong})


def test_no_answer_of_a_machine_is_used_unread() -> None:
    """Machines are asked by `Operation.sent`, whose answers are read. What a relay passes on is read where it was asked."""
    asking = [
        f"{path.relative_to(SERVER)}:{node.name}"
        for path in SERVER.rglob("*.py")
        if path.name not in ("elsewhere.py", "from_nodes.py") and path.parent.name != "relay"
        if "timeout_s" in (text := path.read_text())
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.AsyncFunctionDef | ast.FunctionDef)
        for inner in ast.walk(node)
        if isinstance(inner, ast.Call)
        and (getattr(inner.func, "attr", "") in ("request", "upload") or getattr(inner.func, "id", "") == "send_text")
        and any(keyword.arg == "timeout_s" for keyword in inner.keywords)
    ]
    assert asking == []
    assert of_daemons() >= OF_DAEMONS.keys()


@pytest.mark.addons
def test_all_that_a_daemon_asks_of_a_machine_is_read() -> None:
    assert of_daemons() == OF_DAEMONS.keys()


def of_daemons() -> set[str]:
    """The requests of daemons that PROTOCOL.md has."""
    rows = (ROOT / "crypto/PROTOCOL.md").read_text().splitlines()
    return {op.strip("` ") for row in rows if row.startswith("| daemon | `") for op in row.split("|")[2].split(",")}
