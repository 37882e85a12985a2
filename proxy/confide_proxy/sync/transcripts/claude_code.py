"""Parser for Claude Code's transcripts: `projects/<folder>/<session>.jsonl` below `~/.claude`, or
below `CLAUDE_CONFIG_DIR`.

A line is a record with a `type`. Records of type user and assistant contain a message of the API,
whose content is a string or a list of blocks; a response is written as several lines with one block
each. User records also contain tool results, and messages of the client itself (`isMeta`). There is
no published schema: the parser follows what others found in real files, and takes nothing for
granted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from confide_proxy.sync.transcripts.parsers import (
    ParsedLine,
    Parser,
    ToolOutcome,
    UnknownLineError,
    clean_text,
    error_in,
    mention,
    record_of,
    stored_in,
    text_in,
    utc,
)

_SILENT = frozenset(
    {
        "summary", "system", "file-history-snapshot", "progress", "queue-operation", "attachment", "custom-title", "ai-title",
        "agent-name", "last-prompt", "permission-mode", "pr-link", "tag", "worktree-state", "mode", "content-replacement",
        "tools-used", "atis-latch", "api-request", "api-request-shape", "api-request-blob", "cost-state",
    }
)  # fmt: skip
"""Types of records that are no message; an `api-request-blob` repeats one as it was sent to the
model.
"""
_CALLS = frozenset({"tool_use", "server_tool_use", "mcp_tool_use"})
_OMITTED = frozenset({"thinking", "redacted_thinking", "tool_result", "fallback"})
_ECHO = re.compile(
    r"<(local-command-stdout|local-command-stderr|local-command-caveat|bash-stdout|bash-stderr|command-message|"
    r"command-contents|task-notification|ide_opened_file|ide_selection|user-prompt-submit-hook)\b[^>]*>.*?</\1>",
    re.DOTALL,
)
"""Texts of the client in place of the user."""
_COMMAND = re.compile(r"\s*<command-name>\s*(.*?)\s*</command-name>", re.DOTALL)
_ARGUMENTS = re.compile(r"<command-args>\s*(.*?)\s*</command-args>", re.DOTALL)
_TYPED = re.compile(r"\s*<bash-input>\s*(.*?)\s*</bash-input>", re.DOTALL)
_SESSION = re.compile(r"[A-Za-z0-9_-]{1,100}")


def _session_of(path: Path) -> str | None:
    """Return the session from the file name; None for sessions of subagents (`agent-….jsonl`)."""
    is_one = path.suffix == ".jsonl" and len(path.parts) == 2 and not path.name.startswith("agent-")
    return path.stem if is_one and _SESSION.fullmatch(path.stem) else None


def _parse(line: bytes) -> ParsedLine:
    record = record_of(line)
    kind = record.get("type")
    where = ParsedLine(
        time=utc(text_in(record, "timestamp")),
        branch=text_in(record, "gitBranch"),
        session=text_in(record, "sessionId"),
        cwd=text_in(record, "cwd"),
    )
    if kind in _SILENT:
        return where
    message = record.get("message")
    if kind not in ("user", "assistant") or not isinstance(message, dict):
        raise UnknownLineError("neither a message nor a known record")
    if any(record.get(flag) is True for flag in ("isSidechain", "isMeta", "isCompactSummary", "isApiErrorMessage")):
        return where
    content = message.get("content")
    text = _text(content, is_user=kind == "user")
    blocks = [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
    where = replace(where, calls=tuple(_calls(blocks)), outcomes=tuple(_outcomes(blocks)))
    return replace(where, role="user" if kind == "user" else "assistant", text=text) if text else where


def _calls(blocks: list[dict[str, object]]) -> Iterator[tuple[str, str]]:
    for block in blocks:
        if text_in(block, "type") in _CALLS:
            yield text_in(block, "id"), mention(text_in(block, "name"), block.get("input"))


def _outcomes(blocks: list[dict[str, object]]) -> Iterator[ToolOutcome]:
    for block in blocks:
        if text_in(block, "type") == "tool_result":
            answer, failed = block.get("content"), block.get("is_error") is True
            error = error_in(answer) if failed else ""
            yield ToolOutcome(text_in(block, "tool_use_id"), failed, stored_in(answer), error)


def _text(content: Any, *, is_user: bool) -> str:
    if isinstance(content, str):
        return _user_input(content) if is_user else clean_text(content)
    if not isinstance(content, list):
        raise UnknownLineError("a message without content")
    parts = [_block(block, is_user=is_user) for block in content if isinstance(block, dict)]
    return "\n\n".join(part for part in parts if part)


def _block(block: dict[str, object], *, is_user: bool) -> str:
    kind = text_in(block, "type")
    if kind == "text":
        text = text_in(block, "text")
        return _user_input(text) if is_user else clean_text(text)
    if kind in _CALLS:
        return mention(text_in(block, "name"), block.get("input"))
    if kind in _OMITTED or kind.endswith("_tool_result"):
        return ""
    return f"[{kind}]" if kind in ("image", "document") else ""


def _user_input(text: str) -> str:
    """Return the user's input: a slash command as it was typed, without its output."""
    text = _ECHO.sub("", text)
    if command := _COMMAND.match(text):
        arguments = _ARGUMENTS.search(text)
        name = command[1] if command[1].startswith("/") else f"/{command[1]}"
        return clean_text(f"{name} {arguments[1] if arguments else ''}")
    if typed := _TYPED.match(text):
        return clean_text(f"! {typed[1]}")
    return clean_text(text)


PARSER = Parser("claude-code", "CLAUDE_CONFIG_DIR", ".claude", "projects", 1, _session_of, _parse)
