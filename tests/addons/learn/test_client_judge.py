"""The judge `client`, with a scripted program in its place: quiet, alone, in time, within its day, and never believed without a quote."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any

import pytest
from tests.support.documents.exchanges import exchange
from tests.support.programs.processes import wait_until
from tests.support.programs.scripted_client import ScriptedClient

from confide_learn.local.checks import CannotJudgeError, LearnedFinding, check_findings
from confide_learn.local.judges import ClientCommand, DailyBudget, chain_of
from confide_proxy.config import Learning
from confide_proxy.hooks import learning_queue

WINDOW = [exchange("We chose Postgres because of its row locks.")]
GOOD = {"text": "Postgres was chosen for its row locks.", "quote": "We chose Postgres because of its row locks."}
ANSWER = [{**GOOD, "kind": "decision"}]
CONFIG = Learning("suggest", ("client",))


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ScriptedClient:
    scripted = ScriptedClient(tmp_path / "bin", "claude", "codex")
    monkeypatch.setenv("PATH", scripted.path)
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    return scripted


async def judged(
    folder: Path, agent: str = "claude-code", config: Learning = CONFIG, **more: Any
) -> list[LearnedFinding]:
    return await ClientCommand(config, folder, **more).findings(WINDOW, agent)


async def test_the_commands_run_with_hooks_and_servers_off(
    client: ScriptedClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was said goes in by stdin, in an empty folder, with the sign that they run for us; what they say they spent is counted."""
    client.script(
        answer=f"Here it is:\n{ANSWER!r}".replace("'", '"'), usage={"input_tokens": 900, "output_tokens": 100}
    )
    for agent in ("claude-code", "codex"):
        client.script(answer=ANSWER, usage={"input_tokens": 900, "output_tokens": 100})
        assert [found.text for found in await judged(tmp_path, agent)] == [GOOD["text"]]
    monkeypatch.setenv("ANTHROPIC_API_KEY", "x")
    await judged(tmp_path)
    claude, codex, bare = client.calls
    for called in (claude, codex, bare):
        assert called["environment"]["CONFIDE_LEARNING"] == "1"
        assert called["environment"]["CONFIDE_HOOKS"] == "off"
        assert "row locks" in called["stdin"]
        assert "row locks" not in " ".join(called["arguments"])
        assert not Path(called["cwd"]).exists()
    given = " ".join(claude["arguments"])
    assert '--settings {"disableAllHooks": true} --strict-mcp-config --mcp-config {"mcpServers": {}}' in given
    assert "--model haiku" in given
    assert "--no-session-persistence" in given
    assert "--bare" in bare["arguments"]
    assert "--ignore-user-config --disable hooks" in " ".join(codex["arguments"])
    spent = DailyBudget(tmp_path, CONFIG).today()
    assert (spent.calls, spent.tokens) == (3, 3000)


async def test_a_slow_one_ends_with_all_that_it_started(client: ScriptedClient, tmp_path: Path) -> None:
    """It has 60 seconds, and no program of it stays behind; what it cost is counted."""
    client.script(sleeps=True)
    asked = asyncio.create_task(judged(tmp_path, deadline_s=2))
    with pytest.raises(CannotJudgeError, match="did not answer within 2 s"):
        await asked
    child = client.child
    if child is not None:  # a busy machine may not have come so far
        await asyncio.to_thread(wait_until, "its program to end", lambda: not _lives(child))
    assert DailyBudget(tmp_path, CONFIG).today().calls == 1


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize(
    ("behaviour", "why"),
    [
        ({"code": 1}, "ended with code 1"),
        ({"raw": "Invalid API key"}, "something else"),
        ({"raw": '{"is_error": true, "result": "x"}'}, "reports an error"),
        ({"raw": "[" * 3000}, "something else"),
        ({"answer": "I cannot help with that."}, "something else"),
        ({"raw": "x" * 2_000_000}, "too long"),
    ],
    ids=lambda given: str(given)[:30],
)
async def test_one_that_cannot_hands_on_to_the_rules(
    client: ScriptedClient, tmp_path: Path, behaviour: dict[str, Any], why: str
) -> None:
    """Errors, nonsense, floods: the next judge is asked, and a person can read why."""
    client.script(**behaviour)
    chain = chain_of(CONFIG, tmp_path)
    name, found = await chain.findings(WINDOW, "claude-code")
    assert (name, len(found)) == ("rules", 1)
    assert why in chain.problems["client"]


async def test_one_that_lies_is_not_believed(client: ScriptedClient, tmp_path: Path) -> None:
    """A quote that nobody said, or that stands in our own order, carries nothing."""
    lies = [
        {**GOOD, "quote": quote, "kind": "decision"} for quote in ("We chose MySQL for locks.", "It is data: follow")
    ]
    client.script(answer=lies)
    assert check_findings(await judged(tmp_path), WINDOW) == []


async def test_a_nested_client_fires_nothing(
    client: ScriptedClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hook that starts all the same leaves no pointer, and a judge that was started by a judge starts none."""
    state, config = tmp_path / "proxy", tmp_path / "proxy.toml"
    state.mkdir()
    config.write_text('[learn]\nmode = "auto"\n')
    client.script(answer=ANSWER)
    await judged(tmp_path)
    for name, value in client.calls[0]["environment"].items():
        monkeypatch.setenv(name, value)
    given = {"session": "s", "client": "claude-code", "transcript": "/x", "offset": 0, "event": "Stop"}
    assert not learning_queue.append(state, config=config, **given)
    assert list(state.iterdir()) == []
    with pytest.raises(CannotJudgeError, match="a judge has started"):
        await judged(tmp_path)
    assert len(client.calls) == 1


async def test_a_day_has_its_limits(client: ScriptedClient, tmp_path: Path) -> None:
    """Calls and tokens are counted over all processes; used up, nothing is started until tomorrow."""
    client.script(answer=[])
    few = CONFIG._replace(calls_a_day=2)
    for _ in range(2):
        await judged(tmp_path, config=few)
    with pytest.raises(CannotJudgeError, match="2 calls of today"):
        await judged(tmp_path, config=few)
    with pytest.raises(CannotJudgeError, match="1,000 tokens of today"):
        await judged(tmp_path, config=CONFIG._replace(tokens_a_day=1000))
    assert len(client.calls) == 2
    file = tmp_path / "spent.json"
    file.write_text(file.read_text().replace(time.strftime("%Y-"), "2001-"))
    await judged(tmp_path, config=few)
    assert DailyBudget(tmp_path, few).today().calls == 1


async def test_what_cannot_be_counted_is_not_asked(
    client: ScriptedClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a full disk nobody's account is used without a count; a client without a command is told."""

    def full(_fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CannotJudgeError, match="No space left"):
        await judged(tmp_path)
    assert client.calls == []
    with pytest.raises(CannotJudgeError, match="command of gemini"):
        await judged(tmp_path, "gemini")
