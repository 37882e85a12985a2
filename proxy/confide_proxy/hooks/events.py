"""Parse the hook events of all clients into one class, and build the response that each client
expects.

Claude Code and Codex use the same format, and Gemini CLI nearly the same; Cursor and VS Code use
other names. OpenCode has no hooks; Confide's plugin there sends Claude Code's format with its own
name as `client` (docs/agents.md). Names and formats come from real clients (tests/fixtures/hooks).
"""

from __future__ import annotations

import json

from confide_proxy.hooks import tool_events

TYPE_CHECKING = False
if TYPE_CHECKING:  # to import it costs a hook some milliseconds
    from typing import Any, Final

START: Final = "start"
"""A session starts, or continues without its context. Answered with the briefing."""
PROMPT: Final = "prompt"
"""The user has sent a prompt. Answered with hits."""
PERMISSION: Final = "permission"
"""The client asks if a tool of Confide may run."""
BEFORE: Final = "before"
"""A tool is about to run. Answered with a note that concerns what it does."""
AFTER: Final = "after"
"""A tool has run. Answered with a note that concerns its failure."""
POINTER: Final = "pointer"
"""The learner may use the transcript later. Not answered."""

KINDS: Final = {
    "SessionStart": START,
    "sessionStart": START,
    "UserPromptSubmit": PROMPT,
    "BeforeAgent": PROMPT,
    "PermissionRequest": PERMISSION,
    # Only events whose answer a model reads: what is shown elsewhere would count as shown.
    "PreToolUse": BEFORE,
    **dict.fromkeys(("PostToolUse", "PostToolUseFailure", "AfterTool", "postToolUse"), AFTER),
    **dict.fromkeys(("Stop", "SubagentStop", "PreCompact", "PostCompact", "SessionEnd"), POINTER),
    **dict.fromkeys(("AfterAgent", "PreCompress"), POINTER),
    **dict.fromkeys(("stop", "subagentStop", "preCompact", "sessionEnd"), POINTER),
}
TURN_ENDS: Final = frozenset({"Stop", "AfterAgent", "stop"})
"""Events after which notes may have changed."""
FAILURE: Final = "PostToolUseFailure"
"""The event of a tool call that has failed."""
REPLAYED: Final = frozenset({"resume", "fork"})
"""Sources of starts that repeat the former context, including Confide's text."""
ANEW: Final = frozenset({"clear", "compact"})
"""Sources of starts that discard everything shown before."""

OURS: Final = ("mcp__confide__", "mcp__plugin_confide_confide__")
"""Prefixes of Confide's tools: with an entry of `confide setup`, and with the plugin."""
ALLOWED: Final = frozenset(
    {
        *("memory_search", "memory_read", "memory_get", "memory_list", "memory_history", "memory_status"),
        *("context_info", "entity_list", "entity_search", "task_list", "task_results"),
    }
)
"""Read-only tools. The user must allow those that change, delete, open a secret or read the disk.
"""
ADDING: Final = "memory_store"
"""Allowed if it only adds: a note, or lines to a daily note. Its own path or mode may overwrite
text, and a note that supersedes another takes its place.
"""
_SUPERSEDES: Final = "supersedes"

PROMPT_CHARS: Final = 65_536
"""Characters of a prompt, or of an agent's answer, that are used."""
_MOST_TEXT: Final = 4096
_MORE: Final = ("compact_summary", "agent_transcript_path", "agent_type")


class HookEvent:
    """An event that a client reports to a hook.

    Attributes:
        name: the client's name for the event.
        kind: START, PROMPT, PERMISSION, BEFORE, AFTER or POINTER.
        client: "claude-code", "codex", "gemini", "opencode", "cursor" or "vscode".
        source: the reason for a session start, such as "startup" or "resume".
        cwd: working folder of the client.
        fields: the event's whole JSON object.
    """

    __slots__ = ("client", "cwd", "fields", "kind", "name", "session", "source", "transcript")

    def __init__(self, name: str, kind: str, told: dict[str, object]) -> None:
        self.name = name
        self.kind = kind
        self.fields = told
        self.session = _text(told, "session_id", "sessionId", "conversation_id")
        self.transcript = _text(told, "transcript_path", "transcriptPath")
        roots = told.get("workspace_roots")
        first = roots[0] if isinstance(roots, list) and roots and isinstance(roots[0], str) else ""
        self.cwd = _text(told, "cwd") or first[:_MOST_TEXT]
        self.source = _text(told, "source") or "startup"
        self.client = _client(name, self.transcript, told)

    @property
    def prompt(self) -> str:
        """The user's prompt, cut at `PROMPT_CHARS`; "" if the event has none."""
        found = self.fields.get("prompt")
        return found[:PROMPT_CHARS] if isinstance(found, str) else ""

    @property
    def final_answer(self) -> str:
        """The agent's last message of the turn, cut at `PROMPT_CHARS`; "" if the event has none."""
        found = self.fields.get("last_assistant_message", self.fields.get("prompt_response"))
        return found[:PROMPT_CHARS] if isinstance(found, str) else ""

    @property
    def call(self) -> dict[str, object]:
        """The event's tool call, in the form of `tool_events.describe_call`."""
        return tool_events.describe_call(self.fields, is_failure=self.name == FAILURE)

    @property
    def is_allowed(self) -> bool:
        """True if the event asks for permission to run a tool of Confide that needs no permission."""
        tool = _text(self.fields, "tool_name")
        name = next((tool[len(prefix) :] for prefix in OURS if tool.startswith(prefix)), "")
        return name in ALLOWED or (name == ADDING and _only_adds(self.fields.get("tool_input")))

    @property
    def is_summariser(self) -> bool:
        """True if the event reports the end of the client's own subagent that summarizes a session
        for compaction.
        """
        return self.name == "SubagentStop" and self.fields.get("agent_type") == ""

    @property
    def more(self) -> dict[str, str]:
        """Data of the event that the session's transcript does not contain."""
        found = {"cwd": self.cwd, **{key: self.fields.get(key) for key in _MORE}}
        return {key: value for key, value in found.items() if isinstance(value, str) and value}


def read(data: bytes) -> HookEvent | None:
    """Parse an event from JSON; return None if hooks ignore events of its name.

    Raises ValueError or RecursionError if the data is not a JSON object.
    """
    told = json.loads(data)
    if not isinstance(told, dict):
        raise ValueError("no object")
    return parse_event(told)


def parse_event(told: dict[str, object]) -> HookEvent | None:
    """Return the event that a JSON object describes, or None if hooks ignore events of its name."""
    name = _text(told, "hook_event_name", "hookEventName")
    kind = KINDS.get(name)
    return HookEvent(name, kind, told) if kind else None


def answer(event: HookEvent, context: str, message: str) -> dict[str, Any]:
    """Return the response in the form that the event's client expects. `context` is text for the
    model and `message` text for the user; either may be "".
    """
    if event.client == "cursor":
        return {"additional_context": context} if context else {}
    found: dict[str, Any] = {"systemMessage": message} if message else {}
    if context:
        found["hookSpecificOutput"] = {"hookEventName": event.name, "additionalContext": context}
    return found


def allowing(event: HookEvent) -> dict[str, object]:
    """Return the response that lets the event's tool run without asking the user."""
    return {"hookSpecificOutput": {"hookEventName": event.name, "decision": {"behavior": "allow"}}}


def _only_adds(arguments: Any) -> bool:
    """Return True if the arguments of a store overwrite nothing."""
    if not isinstance(arguments, dict):
        return False
    path, mode, relation = (arguments.get(key) or "" for key in ("path", "mode", "relation"))
    if not isinstance(path, str) or not path.isascii():
        return False
    if not isinstance(relation, str) or relation == _SUPERSEDES:
        return False
    shape = "".join("0" if character.isdigit() else character for character in path)
    return shape in ("", "memory/0000-00-00.md") and mode in ("", "append")


def _client(name: str, transcript: str, told: dict[str, object]) -> str:
    if told.get("client") == "opencode":  # sent by Confide's own plugin
        return "opencode"
    if "cursor_version" in told or "conversation_id" in told:
        return "cursor"
    if "hookEventName" in told:
        return "vscode"
    if name in ("BeforeAgent", "AfterAgent", "AfterTool", "PreCompress") or "/.gemini/" in transcript:
        return "gemini"
    is_codex = "turn_id" in told or transcript.rpartition("/")[2].startswith("rollout-")
    return "codex" if is_codex else "claude-code"


def _text(told: dict[str, Any], *names: str) -> str:
    for name in names:
        value = told.get(name)
        if isinstance(value, str):
            return value[:_MOST_TEXT]
    return ""
