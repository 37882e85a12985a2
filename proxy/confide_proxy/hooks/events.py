"""What the clients tell, each in its own way, as one kind of event; and how each of them is answered.

Claude Code and Codex speak alike, Gemini CLI nearly so; Cursor and VS Code have other names; OpenCode has no hooks of its own, and our
plugin there speaks as Claude Code does, with its own name as `client` (docs/agents.md). Names and forms were read from real clients
(tests/fixtures/hooks).
"""

from __future__ import annotations

import json

TYPE_CHECKING = False
if TYPE_CHECKING:  # to import it costs a hook some milliseconds
    from typing import Any, Final

START: Final = "start"
"""A session begins, or goes on without what it knew: the briefing."""
PROMPT: Final = "prompt"
"""A person has said something: hits."""
PERMISSION: Final = "permission"
"""The client would ask whether one of our tools may run."""
POINTER: Final = "pointer"
"""Something may be learned from, later. Nothing is answered."""

KINDS: Final = {
    "SessionStart": START,
    "sessionStart": START,
    "UserPromptSubmit": PROMPT,
    "BeforeAgent": PROMPT,
    "PermissionRequest": PERMISSION,
    **dict.fromkeys(("Stop", "SubagentStop", "PreCompact", "PostCompact", "SessionEnd"), POINTER),
    **dict.fromkeys(("AfterAgent", "PreCompress"), POINTER),
    **dict.fromkeys(("stop", "subagentStop", "preCompact", "sessionEnd"), POINTER),
}
TURN_ENDS: Final = frozenset({"Stop", "AfterAgent", "stop"})
"""After these the notes may be others than before."""
REPLAYED: Final = frozenset({"resume", "fork"})
"""Starts where the client shows again what it had, our words among it."""
ANEW: Final = frozenset({"clear", "compact"})
"""Starts after which nothing of what was shown is left."""

OURS: Final = ("mcp__confide__", "mcp__plugin_confide_confide__")
"""What our tools are called: an entry of `confide setup`, and the plugin's."""
ALLOWED: Final = frozenset(
    {
        *("memory_search", "memory_read", "memory_get", "memory_list", "memory_history", "memory_status"),
        *("context_info", "entity_list", "entity_search", "task_list", "task_results"),
    }
)
"""What reads. What changes or deletes, opens a secret or reads the disk is a person's to allow."""
ADDING: Final = "memory_store"
"""Allowed where it only adds: a note, or lines to the log of a day. A path or a mode of its own may put words over other words."""

PROMPT_CHARS: Final = 65_536
"""Of a prompt; more is not looked at."""
_MOST_TEXT: Final = 4096
_MORE: Final = ("compact_summary", "agent_transcript_path", "agent_type")


class HookEvent:
    """One event.

    Attributes:
        name: the client's own.
        kind: of START, PROMPT, PERMISSION and POINTER.
        client: "claude-code", "codex", "gemini", "opencode", "cursor" or "vscode".
        source: of a start: why it is one.
        cwd: where the client works.
        told: all that it said.
    """

    __slots__ = ("client", "cwd", "kind", "name", "session", "source", "told", "transcript")

    def __init__(self, name: str, kind: str, told: dict[str, object]) -> None:
        self.name = name
        self.kind = kind
        self.told = told
        self.session = _text(told, "session_id", "sessionId", "conversation_id")
        self.transcript = _text(told, "transcript_path", "transcriptPath")
        roots = told.get("workspace_roots")
        first = roots[0] if isinstance(roots, list) and roots and isinstance(roots[0], str) else ""
        self.cwd = _text(told, "cwd") or first[:_MOST_TEXT]
        self.source = _text(told, "source") or "startup"
        self.client = _client(name, self.transcript, told)

    @property
    def prompt(self) -> str:
        """What the person said."""
        found = self.told.get("prompt")
        return found[:PROMPT_CHARS] if isinstance(found, str) else ""

    @property
    def is_allowed(self) -> bool:
        """Whether it asks about a tool of ours that may run without a person."""
        tool = _text(self.told, "tool_name")
        name = next((tool[len(prefix) :] for prefix in OURS if tool.startswith(prefix)), "")
        return name in ALLOWED or (name == ADDING and _only_adds(self.told.get("tool_input")))

    @property
    def is_summariser(self) -> bool:
        """Whether the subagent that stops is the client's own, which writes the summary of a compaction."""
        return self.name == "SubagentStop" and self.told.get("agent_type") == ""

    @property
    def more(self) -> dict[str, str]:
        """What no transcript has."""
        found = {"cwd": self.cwd, **{key: self.told.get(key) for key in _MORE}}
        return {key: value for key, value in found.items() if isinstance(value, str) and value}


def read(data: bytes) -> HookEvent | None:
    """The event; None where it is none that anything is done at. Raises ValueError, RecursionError: it is no JSON object."""
    told = json.loads(data)
    if not isinstance(told, dict):
        raise ValueError("no object")
    name = _text(told, "hook_event_name", "hookEventName")
    kind = KINDS.get(name)
    return HookEvent(name, kind, told) if kind else None


def answer(event: HookEvent, context: str, message: str) -> dict[str, Any]:
    """What the client reads: `context` is for the model, `message` for the person; "" where there is none."""
    if event.client == "cursor":
        return {"additional_context": context} if context else {}
    found: dict[str, Any] = {"systemMessage": message} if message else {}
    if context:
        found["hookSpecificOutput"] = {"hookEventName": event.name, "additionalContext": context}
    return found


def allowing(event: HookEvent) -> dict[str, object]:
    """The answer that lets a tool run."""
    return {"hookSpecificOutput": {"hookEventName": event.name, "decision": {"behavior": "allow"}}}


def _only_adds(arguments: Any) -> bool:
    """Whether a store puts nothing in the place of anything."""
    if not isinstance(arguments, dict):
        return False
    path, mode = (arguments.get(key) or "" for key in ("path", "mode"))
    if not isinstance(path, str) or not path.isascii():
        return False
    shape = "".join("0" if character.isdigit() else character for character in path)
    return shape in ("", "memory/0000-00-00.md") and mode in ("", "append")


def _client(name: str, transcript: str, told: dict[str, Any]) -> str:
    if told.get("client") == "opencode":  # our own plugin's word
        return "opencode"
    if "cursor_version" in told or "conversation_id" in told:
        return "cursor"
    if "hookEventName" in told:
        return "vscode"
    if name in ("BeforeAgent", "AfterAgent", "PreCompress") or "/.gemini/" in transcript:
        return "gemini"
    is_codex = "turn_id" in told or transcript.rpartition("/")[2].startswith("rollout-")
    return "codex" if is_codex else "claude-code"


def _text(told: dict[str, Any], *names: str) -> str:
    for name in names:
        value = told.get(name)
        if isinstance(value, str):
            return value[:_MOST_TEXT]
    return ""
