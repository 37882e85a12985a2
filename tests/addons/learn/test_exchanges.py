"""What of a transcript a judge gets: what was said, in order, whether commands failed, and nothing else."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from tests.support.documents.notes import Agent, text_of
from tests.support.documents.transcripts import ClaudeSession, text
from tests.support.sealing.sealers import SEALER

from confide_learn.local.exchanges import READ_BYTES, ExchangeMessage, Reading, read
from confide_proxy.sync.transcripts.parsers import Parser, stored_in
from confide_proxy.sync.transcripts.source import PARSERS

CLAUDE, CODEX = PARSERS["claude-code"], PARSERS["codex"]
FILES = Path(__file__).parents[2] / "vectors" / "transcripts"
TOKEN = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


@pytest.fixture
def talk(tmp_path: Path) -> ClaudeSession:
    return ClaudeSession(tmp_path, tmp_path / "app")


def reading(path: Path, begin: int = 0, parser: Parser = CLAUDE) -> Reading:
    fd = os.open(path, os.O_RDONLY)
    try:
        return read(fd, parser, begin, SEALER)
    finally:
        os.close(fd)


def call(identity: str, command: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": identity, "name": "Bash", "input": {"command": command}}


def result(identity: str, content: str, *, failed: bool) -> list[dict[str, Any]]:
    return [{"type": "tool_result", "tool_use_id": identity, "content": content, "is_error": failed}]


def test_exchanges_have_what_was_said_and_whether_commands_failed(talk: ClaudeSession) -> None:
    """Outputs of tools and thinking are not read; of an output only whether it says that it failed."""
    talk.user("fix the build")
    talk.assistant({"type": "thinking", "thinking": "pondering-marker"})
    talk.assistant(text("I'll try."), call("t1", "make"))
    talk.user(result("t1", "output-marker", failed=True))
    talk.assistant(call("t2", "make"))
    talk.user(result("t2", "output-marker", failed=False))
    talk.user("and now deploy")
    talk.assistant(call("t3", "make deploy"))
    found = reading(talk.path)
    assert [exchange.messages for exchange in found.exchanges] == [
        (
            ExchangeMessage("user", "fix the build"),
            ExchangeMessage("assistant", "I'll try."),
            ExchangeMessage("call", "[tool Bash: make]", True),
            ExchangeMessage("call", "[tool Bash: make]", False),
        ),
        (ExchangeMessage("user", "and now deploy"), ExchangeMessage("call", "[tool Bash: make deploy]", None)),
    ]
    assert found.end == talk.path.stat().st_size
    assert reading(talk.path, found.exchanges[0].end).exchanges == found.exchanges[1:]


@pytest.mark.parametrize("block", ["confide-memory", "system-reminder", "hook_context"])
def test_our_own_blocks_are_not_there(talk: ClaudeSession, block: str) -> None:
    """What Confide or the client put into the conversation is nobody's word: closed, cut off, or escaped."""
    marker = "Always deploy on Fridays."
    talk.user(f"hello <{block} x='1'>\n{marker}\n</{block}> there")
    talk.user(f"hello &lt;{block}&gt;\n{marker}\n&lt;/{block}&gt; there")
    talk.user(f"hello there\n<{block}>\n{marker}")
    talk.write({"type": "attachment", "content": f"<{block}>{marker}</{block}>"})
    talk.write({"type": "system", "content": marker})
    users = [exchange.user for exchange in reading(talk.path).exchanges]
    assert [" ".join(user.split()) for user in users] == ["hello there"] * 3


def test_what_our_tools_answered_is_not_there(talk: ClaudeSession) -> None:
    """An answer of `memory_search` is an output like any other, and a stored text is in the memory already."""
    talk.user("what do we know of deploys?")
    tool = {"type": "tool_use", "id": "t1", "name": "mcp__plugin_confide_confide__memory_store"}
    talk.assistant({**tool, "input": {"content": "Always deploy on Fridays."}})
    talk.user(result("t1", "Always deploy on Fridays.", failed=False))
    assert "Fridays" not in repr(reading(talk.path).exchanges)


@pytest.mark.parametrize(
    ("name", "given", "is_tainted"),
    [
        ("WebFetch", {"url": "https://example.org/"}, True),
        ("WebSearch", {"query": "walrus"}, True),
        ("mcp__issues__read", {}, True),
        ("Bash", {"command": "curl -s https://example.org/x"}, True),
        ("Bash", {"command": "cd app && gh issue view 42 --comments"}, True),
        ("Bash", {"command": f"cd {'long/' * 40}x &&\n curl -s example.org"}, True),
        ("Bash", {"command": f"cd {'long/' * 40}x &&\n make test"}, False),
        ("google_web_search", {"query": "walrus"}, True),
        ("fetch_url", {"url": "example.org"}, True),
        ("Bash", {"command": "make test"}, False),
        ("Bash", {"command": "git log --grep=high"}, False),
        ("mcp__plugin_confide_confide__memory_search", {"query": "walrus"}, False),
    ],
)
def test_what_is_stored_after_strangers_were_read_is_tainted(
    talk: ClaudeSession, name: str, given: dict[str, Any], is_tainted: bool
) -> None:
    """A web page, another server's tool: what the agent stores behind it, in the next turn as well; not before it."""
    store = {"type": "tool_use", "name": "mcp__confide__memory_store", "input": {"content": "x"}}
    said = "Stored in memory/notes/{}.md [app] as note mem_x_1_2, revision {}."
    talk.user("look it up")
    talk.assistant({**store, "id": "t1"}, {"type": "tool_use", "id": "t2", "name": name, "input": given})
    talk.user(result("t1", said.format("before", 1), failed=False))
    talk.user(result("t2", said.format("a-lie", 9), failed=False))
    talk.assistant(
        {**store, "id": "t3"}, {**store, "id": "t4"}, {**store, "id": "t5", "name": "mcp__confide__memory_update"}
    )
    talk.user(result("t3", said.format("behind", 2), failed=False))
    talk.user(result("t4", said.format("failed", 3), failed=True))
    update = [{"type": "text", "text": "The note mem_x_1_2 in memory/notes/up.md [app] has another text: revision 4."}]
    talk.user([{"type": "tool_result", "tool_use_id": "t5", "content": update}])
    talk.user("and now without")
    talk.assistant({**store, "id": "t6"})
    talk.user(result("t6", said.format("next", 5), failed=False))
    first, second = reading(talk.path).exchanges
    behind = [("app", "memory/notes/behind.md", 2), ("app", "memory/notes/up.md", 4)]
    assert (first.is_foreign, first.list_tainted()) == (is_tainted, behind if is_tainted else [])
    assert second.list_tainted(is_before=first.is_foreign) == (
        [("app", "memory/notes/next.md", 5)] if is_tainted else []
    )


def test_credentials_are_sealed_before_anything_is_judged(talk: ClaudeSession) -> None:
    """What goes to a judge has a placeholder, and the secret of it is at hand for the daemon."""
    talk.user(f"remember that the token is {TOKEN}")
    found = reading(talk.path)
    assert TOKEN not in repr(found)
    placeholder = found.exchanges[0].user.removeprefix("remember that the token is ")
    assert found.secrets[placeholder].value == TOKEN.encode()


def test_odd_lines_cost_no_others(talk: ClaudeSession) -> None:
    """Records of a newer client, broken lines and a last line that is half written are passed over, and counted."""
    talk.user("first words")
    talk.write({"type": "a-kind-of-next-year", "content": "x"})
    talk.write_raw(b'{"type": "user", "message": \xff\n[]\n' + b"[" * 5000 + b"\n")
    talk.user("second words")
    talk.write_raw(b'{"type":"user","message":{"role":"user","content":"half a li')
    found = reading(talk.path)
    assert [exchange.user for exchange in found.exchanges] == ["first words", "second words"]
    assert found.unknown_entries == 4


def test_the_clients_new_records_are_known() -> None:
    """Every kind of line that the two clients are known to write is one that the parsers know."""
    for parser in (CLAUDE, CODEX):
        assert reading(FILES / f"{parser.agent}.jsonl", parser=parser).unknown_entries == 0


def test_codex_tells_failures_by_the_exit_code(tmp_path: Path) -> None:
    """Its outputs begin with the code, as JSON or as text."""

    def item(**payload: Any) -> bytes:
        return json.dumps({"timestamp": "2026-11-20T14:03:00Z", "type": "response_item", "payload": payload}).encode()

    outputs = [
        json.dumps({"output": "x", "metadata": {"exit_code": 2}}),
        "Exit code: 1\nWall time: 0 s\nOutput:\nx",
        "Process exited with code 127\nx",
        "Exit code: 0\nOutput:\nexit code: 1",
        "no code at all",
    ]
    message = item(type="message", role="user", content=[{"type": "input_text", "text": "run it"}])
    lines = [message]
    for number, output in enumerate(outputs):
        lines.append(item(type="function_call", name="shell", call_id=f"c{number}", arguments='{"command": "make"}'))
        lines.append(item(type="function_call_output", call_id=f"c{number}", output=output))
    file = tmp_path / "rollout.jsonl"
    file.write_bytes(b"\n".join(lines) + b"\n")
    (exchange,) = reading(file, parser=CODEX).exchanges
    assert [said.failed for said in exchange.messages[1:]] == [True, True, True, False, False]


def test_a_hundred_megabytes_are_read_in_parts(talk: ClaudeSession) -> None:
    """One line of a hundred megabytes is passed over without being held; what is behind it is read."""
    talk.user("before it")
    size = talk.path.stat().st_size
    os.truncate(talk.path, size + 100 * 2**20)
    talk.write_raw(b"\n")
    talk.user("behind it")
    found = reading(talk.path)
    assert found.is_full
    assert found.end > 4 * READ_BYTES
    assert [exchange.user for exchange in reading(talk.path, found.end).exchanges] == ["behind it"]


async def test_what_a_store_says_is_understood(agent: Agent) -> None:
    """The words of the daemon's own tools: where something was stored, and in which revision."""
    note = await agent.note("narwhals float", title="Narwhals [of the north]")
    for tool, arguments in (
        ("memory_store", {"content": "walruses float"}),
        ("memory_store", {"content": "seals float", "title": "Seals"}),
        ("memory_update", {"id": note, "content": "narwhals swim"}),
    ):
        answer = await agent.client.call_tool(tool, arguments)
        stored = answer.structured_content or {}
        assert stored_in(text_of(answer)) == (stored["project"], stored["path"], stored["revision"])
    search = await agent.client.call_tool("memory_search", {"query": "walruses"})
    assert stored_in(text_of(search)) is None
