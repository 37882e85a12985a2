"""The hooks that Confide adds to a client's own settings, for users without the plugin. They are
the plugin's hooks, with the program's absolute path.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from confide_proxy import paths
from confide_proxy.clients.config_entries import ConfigEntry, Items, Member
from confide_proxy.clients.known_clients import KnownClient, codex_folder, home, which_memory
from confide_proxy.clients.rules import claude_settings

PLUGIN: Final = Path(__file__).parents[1] / "plugin"
"""The plugin folder, which clients read in place."""
_OURS: Final = re.compile(
    r"(?:exec 3<&0; \{ )?(?:\[ -x (?P<it>.*confide.*) \] && exec "
    r"(?:env (?:[A-Z_]+=(?:[\w@%+=:,./-]|\$PPID|'[^']*'|\"'\")+ )+)?(?P=it)"
    r"|command -v confide >/dev/null && exec (?:env CONFIDE_CLIENT_PID=\$PPID )?confide) hook; "
    r"(?:\} <&3 >/dev/null 2>&1 & )?exit 0"
)
_CLIENT: Final = "CONFIDE_CLIENT_PID=$PPID"
"""Names the client's process to a hook (`session_marks`)."""
_MOST_ADDRESS: Final = 103
"""Most bytes of a Unix socket's path, as in `hook_paths`."""
_SCRIPT: Final = "opencode/confide.js"
_TEMPLATES: Final = {
    "claude-code": "hooks/hooks.json",
    "codex": "codex/hooks.json",
    "gemini": "gemini/hooks/hooks.json",
    "cursor": "cursor/hooks.json",
    "vscode": "vscode/hooks.json",
}
AFTERWARDS: Final = {
    "codex": "now trust the hooks: type /hooks in Codex. It silently skips hooks that you have not trusted",
}
"""Steps that the user still has to do."""
NOT_POSSIBLE: Final = {"zed": "Zed has no hooks: its agent searches memory on its own, or when you ask"}


def line(program: str, *, is_waited_for: bool = True, names_client: bool = False) -> str:
    """Return the shell command that a client runs as a hook. It does nothing if the program was
    removed. It is for a shell, since Codex knows no other form.

    Args:
        is_waited_for: False for events that need no answer (the end of a turn or session): the hook
            then runs in the background, and the client continues. Its stdin is passed as another
            descriptor, since a shell gives background commands none.
        names_client: True for a hook that needs the process id of the client, which may not be its
            parent process.
    """
    quoted = shlex.quote(program)
    said = "".join(f"{name}={shlex.quote(value)} " for name, value in which_memory(os.environ).items())
    said += f"{_CLIENT} " if names_client else ""
    run = f"[ -x {quoted} ] && exec {f'env {said}' if said else ''}{quoted} hook; "
    return f"{run}exit 0" if is_waited_for else f"exec 3<&0; {{ {run}}} <&3 >/dev/null 2>&1 & exit 0"


def file(client: KnownClient, project: Path, *, for_user: bool) -> Path | None:
    """Return the path of the file in which a client keeps its hooks; None if the client has no
    hooks.
    """
    match client.name:
        case "claude-code":
            return claude_settings(project, for_user=for_user)
        case "codex":
            return codex_folder() / "hooks.json"
        case "gemini" | "opencode":
            return client.file(project, for_user=for_user)
        case "cursor":
            return (Path.home() if for_user else project) / ".cursor" / "hooks.json"
        case "vscode":
            # A project's folder would share them, and they would run on other people's computers.
            return home(".copilot", "hooks", "confide.json")()
    return None


def hooks(client: KnownClient, project: Path, program: str, *, for_user: bool) -> Sequence[ConfigEntry]:
    """Return the entries that add Confide's hooks to a client's file; empty if the client has no
    hooks.
    """
    place = file(client, project, for_user=for_user)
    if place is None:
        return ()
    if client.name == "opencode":
        options: dict[str, object] = {"program": program}
        if said := which_memory(os.environ):
            options["environment"] = said
        if socket := _socket():
            options["socket"] = socket
        script = [(PLUGIN / _SCRIPT).as_uri(), options]
        return [Items(place, ("plugin",), [script], is_our_script)]
    template = json.loads((PLUGIN / _TEMPLATES[client.name]).read_text("utf-8"))
    has_comments = client.name != "claude-code"
    entries: list[ConfigEntry] = [
        Items(place, ("hooks", event), [_with(group, program) for group in groups], is_ours, has_comments)
        for event, groups in template["hooks"].items()
    ]
    if "version" in template:
        entries.insert(0, Member(place, ("version",), template["version"], is_kept=True))
    return entries


def _socket() -> str | None:
    """Return the path of the socket that answers hooks; None if it is elsewhere than in the state
    folder, since that path is too long for one (`hook_paths.addresses`).
    """
    found = str(paths.find().state / "hooks.sock")
    return found if len(os.fsencode(found)) <= _MOST_ADDRESS else None


def is_ours(group: Any) -> bool:
    """Return True if a hook, or every hook of a group, runs `confide hook`, from any path."""
    if not isinstance(group, dict):
        return False
    inner = group.get("hooks", [group])
    commands = [each.get("command") for each in inner if isinstance(each, dict)] if isinstance(inner, list) else []
    return bool(commands) and all(isinstance(each, str) and _OURS.fullmatch(each) for each in commands)


def is_our_script(item: Any) -> bool:
    """Return True if an item of the list `plugin` in OpenCode's settings is Confide's script, in
    any folder.
    """
    place = item[0] if isinstance(item, list) and item else item
    return isinstance(place, str) and place.startswith("file:") and place.endswith(f"/plugin/{_SCRIPT}")


def _with(group: dict[str, Any], program: str) -> dict[str, Any]:
    """Return a hook or group of the template with the program's own path."""
    if "hooks" in group:
        return {**group, "hooks": [_with(each, program) for each in group["hooks"]]}
    command = group["command"]
    is_waited_for = not command.startswith("exec 3<&0;")
    return {**group, "command": line(program, is_waited_for=is_waited_for, names_client=_CLIENT in command)}
