"""Permission rules for a client: it lets an agent read and store memory without a question, but
asks the user before the agent opens secrets or deletes.

A plugin cannot contain such rules; only the user's own settings may.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from confide_proxy.clients.config_entries import ConfigEntry, Items, Member, Tables, Whole
from confide_proxy.clients.known_clients import NAME, KnownClient, claude_folder

READING: Final = (
    *("memory_search", "memory_read", "memory_get", "memory_list", "memory_history", "memory_status"),
    *("context_info", "entity_list", "entity_search", "task_list", "task_results"),
)
"""Read-only tools."""
UNASKED: Final = (*READING, "memory_store", "memory_update")
ASKED: Final = ("secret_get", "memory_delete", "memory_dedupe", "memory_forget")
"""Tools that the user must allow each time, whatever else the client's settings allow."""
SERVERS: Final = ("confide", "plugin_confide_confide")
"""Claude Code's names of the server: with an entry, and with the plugin."""
GEMINI_MARK: Final = "# Written by `confide setup gemini --allow`"

_CODEX_PLUGIN: Final = ("plugins", "confide@confide", "mcp_servers")

NOT_POSSIBLE: Final = {
    "cursor": "Cursor asks once for each tool, and keeps your answers itself: docs/clients.md",
    "vscode": "VS Code asks once for each tool: choose “Always Allow” there; it keeps your answers itself",
}
"""Clients that keep such rules in no file of the user, or in one that cannot be written without
losing other rules.
"""


def rules(client: KnownClient, project: Path, *, for_user: bool, has_plugin: bool = False) -> Sequence[ConfigEntry]:
    """Return the entries that add the permission rules to a client's file; empty if the client
    supports none.

    Args:
        has_plugin: True if the plugin starts the server. Codex then looks for the rules in another
            place.
    """
    make = _RULES.get(client.name)
    if client.name == "codex":
        return _codex(client, (*_CODEX_PLUGIN, NAME) if has_plugin else (client.group, NAME))
    return make(client, project, for_user) if make else ()


def all_rules(client: KnownClient, project: Path, *, for_user: bool) -> Sequence[ConfigEntry]:
    """Return the entries for the permission rules in every place where they may be, for removal."""
    places = (False, True) if client.name == "codex" else (False,)
    return [each for has_plugin in places for each in rules(client, project, for_user=for_user, has_plugin=has_plugin)]


def _claude_code(_client: KnownClient, project: Path, for_user: bool) -> Sequence[ConfigEntry]:
    allowed = [f"mcp__{server}__{tool}" for server in SERVERS for tool in UNASKED]
    file = claude_settings(project, for_user=for_user)
    return [Items(file, ("permissions", "allow"), allowed, allowed.__contains__, has_comments=False)]


def claude_settings(project: Path, *, for_user: bool) -> Path:
    """Return the path of the user's own settings of Claude Code: for a project, the file that git
    ignores, and not the shared one.
    """
    return claude_folder() / "settings.json" if for_user else project / ".claude" / "settings.local.json"


def _codex(client: KnownClient, top: tuple[str, ...]) -> Sequence[ConfigEntry]:
    modes = {**dict.fromkeys(UNASKED, "approve"), **dict.fromkeys(ASKED, "prompt")}
    tables: dict[tuple[str, ...], dict[str, str]] = {
        (*top, "tools", tool): {"approval_mode": mode} for tool, mode in modes.items()
    }
    return [Tables(client.of_user(), (*top, "tools"), tables)]


def _gemini(_client: KnownClient, _project: Path, _for_user: bool) -> Sequence[ConfigEntry]:
    file = Path.home() / ".gemini" / "policies" / "confide.toml"
    parts = [f"{GEMINI_MARK}; `--remove` takes it away.\n"]
    for decision, priority, tools in (("allow", 100, UNASKED), ("ask_user", 101, ASKED)):
        names = "".join(f'  "{tool}",\n' for tool in tools)
        parts.append(
            f'[[rule]]\nmcpName = "{NAME}"\ntoolName = [\n{names}]\ndecision = "{decision}"\npriority = {priority}\n'
        )
    return [Whole(file, GEMINI_MARK, "\n".join(parts))]


def _opencode(client: KnownClient, project: Path, for_user: bool) -> Sequence[ConfigEntry]:
    file = client.file(project, for_user=for_user)
    said = {**dict.fromkeys(UNASKED, "allow"), **dict.fromkeys(ASKED, "ask")}
    return [Member(file, ("permission", f"{NAME}_{tool}"), word) for tool, word in said.items()]


def _zed(client: KnownClient, project: Path, for_user: bool) -> Sequence[ConfigEntry]:
    file = client.file(project, for_user=for_user)
    top = ("agent", "tool_permissions", "tools")
    said = {**dict.fromkeys(UNASKED, "allow"), **dict.fromkeys(ASKED, "confirm")}
    return [Member(file, (*top, f"mcp:{NAME}:{tool}"), {"default": word}) for tool, word in said.items()]


_RULES: Final[dict[str, Callable[[KnownClient, Path, bool], Sequence[ConfigEntry]]]] = {
    "claude-code": _claude_code,
    "gemini": _gemini,
    "opencode": _opencode,
    "zed": _zed,
}
