"""What `bench.with_without` reads of a client's output, and what its report says of a scripted model."""

from __future__ import annotations

import json

import pytest
from bench.with_without.__main__ import SCRIPTED, Outcome, read_tasks, report
from bench.with_without.client_output import Session, of_claude, of_codex

LOCKED = "ERR_BUILD_LOCK_STALE: another build holds the lock"


def lines(*events: object) -> str:
    return "".join(f"{json.dumps(event)}\n" for event in events)


def claude(text: str, *, is_error: bool) -> dict[str, object]:
    result = {"type": "tool_result", "content": text, "is_error": is_error, "tool_use_id": "toolu_1"}
    return {"type": "user", "message": {"role": "user", "content": [result]}}


def codex(text: str, code: int) -> dict[str, object]:
    item = {"type": "command_execution", "command": "sh build.sh", "aggregated_output": text, "exit_code": code}
    return {"type": "item.completed", "item": item}


def test_failures_of_one_cause_are_counted_as_repeated() -> None:
    """Whatever numbers and paths differ, and in the output of both clients; what succeeded is none."""
    usage = {"input_tokens": 500, "cache_read_input_tokens": 40, "output_tokens": 100}
    said = lines(
        claude(f"Exit code 3\n{LOCKED} (4711)", is_error=True),
        claude("Exit code 1\nno such table: orders", is_error=True),
        claude(f"Exit code 3\n{LOCKED} (4712)", is_error=True),
        claude("built", is_error=False),
        {"type": "result", "subtype": "success", "is_error": False, "usage": usage},
    )
    session = of_claude(said)
    assert (len(session.failures), session.repeated) == (3, 1)
    assert (session.tokens_in, session.tokens_out, session.problem) == (540, 100, "")

    started = {"type": "item.started", "item": {"type": "command_execution", "exit_code": None}}
    ended = {"type": "turn.completed", "usage": {"input_tokens": 500, "output_tokens": 100}}
    session = of_codex(lines(started, codex(LOCKED, 3), codex(LOCKED, 3), codex("built", 0), ended))
    assert (len(session.failures), session.repeated, session.tokens_in, session.problem) == (2, 1, 500, "")


@pytest.mark.parametrize("output", ["", "no JSON\n[1]\n", lines({"type": "result", "subtype": "error_max_turns"})])
def test_a_session_without_a_good_end_says_so(output: str) -> None:
    for read in (of_claude, of_codex):
        session = read(output)
        assert session.problem
        assert session.failures == ()


def test_a_report_of_a_scripted_model_claims_nothing() -> None:
    outcomes = [
        Outcome("lock", "without", True, 2.0, Session(("a", "a"), 500, 100)),
        Outcome("lock", "with", True, 3.0, Session(("a",), 300, 60)),
    ]
    text = report(outcomes, "claude", SCRIPTED)
    assert "says nothing about a real model" in text
    assert "without: 1 of 1 solved, 2 failures, 1 of them repeated, 600 tokens" in text
    assert "says nothing about a real model" not in report(outcomes, "claude", "opus")


def test_each_task_has_a_note_for_its_own_failure() -> None:
    """No other task's note has the same error, and no file of a task is outside of its folder."""
    tasks = read_tasks()
    errors = [task.note.split("`")[1] for task in tasks]
    for task, error in zip(tasks, errors, strict=True):
        assert any(error in text for text in task.files.values())
        assert sum(error in text for each in tasks for text in each.files.values()) == 1
        assert not any(path.startswith(("/", "..")) for path in task.files)
