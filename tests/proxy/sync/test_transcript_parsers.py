"""Transcripts of two clients as they lie on the disk: what of them is sent, and what is not."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.draws import draws
from tests.support.sealing.sealers import SEALER
from tests.support.sealing.secret_corpus import positives

from confide_proxy.config import TRANSCRIPT_SOURCES, Policy, ProxyConfig
from confide_proxy.sealing.sealer import Fingerprints, Sealer
from confide_proxy.sync.transcripts.parsers import ParsedLine, Parser, UnknownLineError, mention
from confide_proxy.sync.transcripts.source import PARSERS, SessionPosition, SourceProgress
from confide_proxy.sync.transcripts.transcript_files import (
    MAX_LINE_BYTES,
    MAX_TEXT_CHARS,
    MOST_MESSAGES,
    collect,
    found_below,
    mark_of,
    open_below,
    origin_of,
    whole_lines,
)
from confide_proxy.sync.transcripts.transcript_streamer import folder_of

FILES = Path(__file__).parents[2] / "vectors" / "transcripts"
CLAUDE, CODEX = PARSERS["claude-code"], PARSERS["codex"]


@pytest.mark.parametrize(
    ("parser", "record"),
    [
        (
            CLAUDE,
            {
                "type": "user",
                "message": {
                    "role": "user",
                    "content": [
                        {
                            "type": "tool_result",
                            "tool_use_id": "t1",
                            "is_error": True,
                            "content": "Exit code 1\nnpm error code ERESOLVE\n\u001b[31mnpm error ERESOLVE could not resolve\u001b[0m\n",
                        }
                    ],
                },
            },
        ),
        *(
            (
                CODEX,
                {
                    "type": "response_item",
                    "payload": {"type": "function_call_output", "call_id": "t1", "output": output},
                },
            )
            for output in (
                "Exit code: 1\nWall time: 0.3 seconds\nOutput:\nnpm error ERESOLVE could not resolve\n",
                json.dumps({"output": "npm error ERESOLVE could not resolve\n", "metadata": {"exit_code": 1}}),
            )
        ),
    ],
)
def test_of_a_failed_call_the_line_with_the_error_is_read(parser: Parser, record: dict[str, Any]) -> None:
    """For learning on this device: it is no part of a message, so nothing sends it."""
    entry = parser.parse(json.dumps(record).encode())
    assert [(outcome.failed, outcome.error) for outcome in entry.outcomes] == [(True, "ERESOLVE could not resolve")]
    assert "ERESOLVE" not in entry.text


def entries(parser: Parser) -> list[ParsedLine]:
    """What every line of the example says; none may be unknown."""
    return [parser.parse(line) for line in (FILES / f"{parser.agent}.jsonl").read_bytes().splitlines()]


def dialogue(parser: Parser) -> list[tuple[str | None, str]]:
    return [(entry.role, entry.text) for entry in entries(parser) if entry.text]


def test_claude_code() -> None:
    """What a person and the agent said, calls in a line; no thinking, no output, no sub-agent, nothing that was put in."""
    assert dialogue(CLAUDE) == [
        ("user", "/model opus"),
        ("user", "Why does the scheduler hang?"),
        ("assistant", "I'll look at the lock."),
        ("assistant", "[tool Bash: grep -rn 'FOR UPDATE' src/ git log -3]"),
        ("assistant", "[tool confide memory_search]"),
        ("assistant", "[tool Write: /home/ada/engine/src/queue.py]"),
        ("assistant", "[tool Task: Review the queue]"),
        ("assistant", "It takes the row lock twice.\n\n```sql\nSELECT 1\n```"),
        ("user", "Here is a picture:\n\n[image]"),
        ("user", "! make test"),
        ("user", "[Request interrupted by user]"),
    ]
    said = next(entry for entry in entries(CLAUDE) if entry.text.startswith("Why"))
    assert (said.time, said.branch, said.cwd) == ("2026-11-20T14:03:04Z", "main", "/home/ada/engine")
    assert said.session == "0a6afc57-2f31-4cb4-8ff0-01247f50c64c"
    assert next(entry for entry in entries(CLAUDE) if "twice" in entry.text).branch == "fix/locks"


def test_codex() -> None:
    """The same of the second format, whose lines do not say where they are."""
    assert dialogue(CODEX) == [
        ("user", "rename the queue table"),
        ("assistant", "[tool shell: rg queue migrations]"),
        ("assistant", "[tool exec_command: make test]"),
        ("assistant", "[tool confide memory_store]"),
        ("assistant", "[tool confide memory_search]"),
        ("assistant", "[tool apply_patch]"),
        ("assistant", "[tool shell: ls -la]"),
        ("assistant", "[tool web_search: postgres rename table lock]"),
        ("assistant", "The table is called `jobs` now."),
    ]
    first = entries(CODEX)[0]
    assert (first.cwd, first.branch) == ("/home/ada/engine", "main")


@pytest.mark.parametrize("parser", [CLAUDE, CODEX], ids=lambda parser: parser.agent)
@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\xff\xfe",
        b"null",
        b"[]",
        b"{}",
        b'{"type": 7}',
        b"[" * 100_000,
        b'{"type": "user"}',
        b'{"type": "user", "message": "x"}',
        b'{"type": "user", "message": {"content": 7}}',
        b'{"type": "response_item", "payload": {"type": "message", "role": "user"}}',
        b'{"type": "response_item", "payload": {"type": "never seen"}}',
        b'{"type": "hologram", "payload": {}}',
    ],
)
def test_broken_and_unknown_lines_are_named_so(parser: Parser, line: bytes) -> None:
    with pytest.raises(UnknownLineError):
        parser.parse(line)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
block = st.dictionaries(
    st.sampled_from(["type", "text", "name", "input"]), st.sampled_from(["text", "tool_use", "image"]) | json_values
)
item = st.dictionaries(
    st.sampled_from(["type", "role", "content", "name", "arguments", "action", "git", "cwd"]),
    st.sampled_from(["message", "user", "function_call", "local_shell_call", "{}", "[1]"]) | json_values,
)
message = st.dictionaries(st.sampled_from(["role", "content"]), json_values | st.lists(block))
kinds = st.sampled_from(["user", "assistant", "response_item", "session_meta", "turn_context", "summary"])
records = st.fixed_dictionaries(
    {"type": kinds},
    optional={
        "timestamp": json_values,
        "cwd": json_values,
        "isMeta": json_values,
        "message": message,
        "payload": item,
    },
)


@settings(max_examples=draws(300), deadline=None)
@given(records)
def test_whatever_a_line_holds_it_is_a_message_or_not(record: dict[str, Any]) -> None:
    """No line makes a parser fail in another way, and what comes out can be sent."""
    for parser in (CLAUDE, CODEX):
        try:
            entry = parser.parse(json.dumps(record).encode())
        except UnknownLineError:
            continue
        entry.text.encode()
        assert "\0" not in entry.text
        assert (entry.role is None) <= (not entry.text)


def test_what_confide_put_in_is_taken_out() -> None:
    """Closed or cut off, once or twice, in a string or in a block, said by either side; what only speaks of it stays."""
    words = "a <confide-memory n='1'>x</confide-memory>b <system-reminder>y\n</system-reminder>c `<confide-memory>` d\n<confide-memory>\nz"
    for role in ("user", "assistant"):
        for content in (words, [{"type": "text", "text": words}]):
            line = json.dumps({"type": role, "message": {"role": role, "content": content}}).encode()
            assert CLAUDE.parse(line).text == "a b c `<confide-memory>` d"


def test_a_mention_is_one_short_line() -> None:
    """Whatever the arguments are."""
    assert mention("Bash", {"command": "a\nb\t" + "x" * 500}).count("\n") == 0
    assert len(mention("Bash", {"command": "x" * 500})) < 200
    assert mention("Write", {"content": "the whole file"}) == "[tool Write]"
    assert mention("mcp__plugin_confide_confide__memory_store", {"content": "x"}) == "[tool confide memory_store]"
    assert mention("confide__memory_store", {"content": "x"}) == "[tool confide memory_store]"
    for other in ("mcp__evil_confide__memory_store", "mcp__confide_docs__memory_store", "mcp__plugin_x_confide__read"):
        assert mention(other, {"content": "x"}) == f"[tool {other}]"
    assert mention("", None) == "[tool unnamed]"


def test_a_mention_holds_no_part_of_a_credential() -> None:
    """Where it is cut off, and where several lines have become one, what is left of a credential would not be known for one."""
    sealer = Sealer(Policy(), lambda: None, lambda: Fingerprints(bytes(32)))
    seen = 0
    for sample in positives(3, 2):
        for words in (0, 30, 46, 50):
            command = f"echo {'ab ' * words}; {sample.text}"
            value = command[-len(sample.text) :][sample.start : sample.end]
            if value not in sealer.seal(command, "transcripts").values.values():
                continue
            said = sealer.seal(f"I look.\n\n{mention('Bash', {'command': command})}", "transcripts").text
            flat = " ".join(value.split())
            parts = [flat[at : at + 8] for at in range(max(1, len(flat) - 7))]
            assert not any(part in said for part in parts), (sample.kind, words)
            seen += 1
    assert seen > 200
    for command in ("a  b", "x " * 200):
        assert mention("Bash", {"command": command}).startswith(f"[tool Bash: {' '.join(command.split())[:150]}")


def test_which_files_are_transcripts(tmp_path: Path) -> None:
    """Sub-agents' files, other files, links, and deeper folders are not; of one session's files the newest counts."""
    for name in ("p/a.jsonl", "p/agent-1.jsonl", "p/a/subagents/agent-2.jsonl", "p/x.txt", "b.jsonl", "p/we ird.jsonl"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("{}\n")
    (tmp_path / "q").mkdir()
    (tmp_path / "q" / "a.jsonl").write_text("{}\n{}\n")
    os.utime(tmp_path / "p" / "a.jsonl", (1, 1))
    (tmp_path / "p" / "link.jsonl").symlink_to(tmp_path / "b.jsonl")
    found, folders = found_below(tmp_path, CLAUDE)
    assert [(file.session, file.path) for file in found] == [("a", tmp_path / "q" / "a.jsonl")]
    assert tmp_path / "q" in folders
    assert found_below(tmp_path / "nowhere", CLAUDE) == ([], [tmp_path / "nowhere"])
    rollout = Path("2026/11/20/rollout-2026-11-20T14-03-00-019a2d7a-41c4-78b1-b7cc-a45d62a89cd5.jsonl")
    assert CODEX.session_of(rollout) == "019a2d7a-41c4-78b1-b7cc-a45d62a89cd5"
    assert CODEX.session_of(Path("history.jsonl")) is None


def test_no_link_leads_out_of_the_folder(tmp_path: Path) -> None:
    """Not the file, nor a folder on the way that became one after it was listed."""
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "a.jsonl").write_text("{}\n")
    root = tmp_path / "root"
    root.mkdir()
    (root / "p").symlink_to(tmp_path / "real")
    (root / "b.jsonl").symlink_to(tmp_path / "real" / "a.jsonl")
    for path in (root / "p" / "a.jsonl", root / "b.jsonl"):
        with pytest.raises(OSError, match=r"link|directory"), open_below(root, path):
            pass


@settings(max_examples=draws(60), deadline=None)
@given(st.lists(st.binary(max_size=40).filter(lambda line: b"\n" not in line)), st.binary(max_size=5))
def test_lines_are_whole_and_say_where_they_end(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], rest: bytes
) -> None:
    """Reading on from any line's end gives the lines behind it; a last one without its end is left out."""
    file = tmp_path_factory.mktemp("lines") / "x"
    file.write_bytes(b"".join(line + b"\n" for line in lines) + rest.replace(b"\n", b""))
    with open_below(file.parent, file) as fd:
        read = list(whole_lines(fd, 0))
        assert [line for _, line in read] == lines
        for number, (end, _) in enumerate(read):
            assert list(whole_lines(fd, end)) == read[number + 1 :]


def test_a_line_too_long_is_passed_over(tmp_path: Path) -> None:
    """At most one line is held; what is behind it is read."""
    file = tmp_path / "x"
    file.write_bytes(b"one\n" + b"x" * (MAX_LINE_BYTES + 1) + b"\ntwo\n" + b"y" * MAX_LINE_BYTES + b"\n")
    with open_below(tmp_path, file) as fd:
        assert [line and len(line) for _, line in whole_lines(fd, 0)] == [3, None, 3, MAX_LINE_BYTES]


def test_batches_end_where_the_next_begins(tmp_path: Path) -> None:
    """None is over the limits; together they are everything, and each time is the last one that was said."""
    file = tmp_path / "x"
    line = {"type": "user", "message": {"content": "x"}, "gitBranch": "b"}
    file.write_text("".join(json.dumps(line) + "\n" for _ in range(450)) + "broken\n")
    ends, counts, offset = [0], [], 0
    with open_below(tmp_path, file) as fd:
        while True:
            batch = collect(fd, CLAUDE, offset, SEALER, branch="", mtime=0.0)
            counts.append(len(batch.messages))
            offset = batch.end
            ends.append(offset)
            if not batch.is_full:
                break
        assert counts == [MOST_MESSAGES, MOST_MESSAGES, 50]
        assert (batch.skipped, offset) == (1, file.stat().st_size)
        assert batch.messages[0] == {"role": "user", "text": "x", "time": "1970-01-01T00:00:00Z", "branch": "b"}
        assert mark_of(fd, offset) != mark_of(fd, ends[1])
        assert mark_of(fd, offset + 1) == ""
        assert origin_of(fd, CLAUDE) is None
    line["message"] = {"content": "y" * (MAX_TEXT_CHARS + 5)}
    file.write_text(json.dumps(line) + "\n")
    with open_below(tmp_path, file) as fd:
        assert (
            collect(fd, CLAUDE, 0, SEALER, branch="", mtime=0.0).messages[0]["text"].endswith("[… 5 more characters]")
        )


@pytest.mark.parametrize("before", [1, 30, 53, 54, 55])
def test_a_long_message_is_not_cut_within_a_placeholder(tmp_path: Path, before: int) -> None:
    """Half of one stands for nothing: no machine opens it, and no search finds it."""
    token = "ghp_" + "a1B2c3D4e5F6" * 3
    standin = SEALER.seal(token, "transcripts").text
    file = tmp_path / "x"
    said = f"{'y' * (MAX_TEXT_CHARS - before - 1)} {token} and so on, at length {'z' * 100}"
    file.write_text(json.dumps({"type": "user", "message": {"content": said}}) + "\n")
    with open_below(tmp_path, file) as fd:
        text = collect(fd, CLAUDE, 0, SEALER, branch="", mtime=0.0).messages[0]["text"]
    kept = text.split("\n\n[… ")[0].lstrip("y")
    assert kept == (f" {standin} and so on"[: before + 1] if before >= len(standin) else " ")
    whole = len(SEALER.seal(said, "transcripts").text)
    assert text.endswith(f"[… {whole - (text.index(kept) + len(kept))} more characters]")


def test_a_branch_goes_up_without_the_token_in_it(tmp_path: Path) -> None:
    """Whether the line names it or one before did; its record is with the daemon as every other one."""
    token = "ghp_" + "a1B2c3D4e5F6" * 3
    file = tmp_path / "x"
    file.write_text(
        json.dumps({"type": "user", "message": {"content": "x"}})
        + "\n"
        + json.dumps({"type": "user", "message": {"content": "y"}, "gitBranch": f"fix/{token}"})
        + "\n"
    )
    with open_below(tmp_path, file) as fd:
        batch = collect(fd, CLAUDE, 0, SEALER, branch=f"try/{token}", mtime=0.0)
    assert [message["branch"].split("(sealed:github-token:")[0] for message in batch.messages] == ["try/", "fix/"]
    assert token not in json.dumps(batch.messages)
    assert [secret.value.decode() for secret in batch.secrets] == [token]


def test_progress_survives_and_forgives(tmp_path: Path) -> None:
    """The last line of a session counts; damaged ones are as if they were not there; the file does not grow for ever."""
    progress = SourceProgress(tmp_path, "space", tmp_path)
    progress.set("a", SessionPosition("p", "main", 1, 10, "h", "m"))
    progress.set("a", SessionPosition("p", "main", 2, 20, "h", "m"))
    file = next(tmp_path.iterdir())
    assert file.stat().st_mode & 0o777 == 0o600
    with file.open("ab") as damaged:
        damaged.write(b'["b",1]\n["c","p","main","2",20,"h","m",false,0,0,0]\n[[],"p"]\nnull\n\xff\n["d","p"')
    again = SourceProgress(tmp_path, "space", tmp_path)
    assert again.get("a").offset == 20
    assert again.get("b") == again.get("c") == SessionPosition()
    assert SourceProgress(tmp_path, "other", tmp_path).get("a") == SessionPosition()
    for number in range(1500):
        again.set("a", SessionPosition("p", "main", number, number, "h", "m"))
    assert SourceProgress(tmp_path, "space", tmp_path).get("a").offset == 1499
    assert file.read_bytes().count(b"\n") == 1


def test_where_the_clients_keep_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As the clients' own variables say, unless the configuration does; every configurable source has a parser."""
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert folder_of(CLAUDE, ProxyConfig()) == tmp_path / ".claude" / "projects"
    assert folder_of(CODEX, ProxyConfig()) == tmp_path / ".codex" / "sessions"
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", "/c")
    monkeypatch.setenv("CODEX_HOME", "/x")
    assert folder_of(CLAUDE, ProxyConfig()) == Path("/c/projects")
    assert folder_of(CODEX, ProxyConfig()) == Path("/x/sessions")
    assert folder_of(CLAUDE, ProxyConfig(claude_code_folder="~/t")) == tmp_path / "t"
    assert [PARSERS[agent].agent for agent in TRANSCRIPT_SOURCES] == list(TRANSCRIPT_SOURCES)
