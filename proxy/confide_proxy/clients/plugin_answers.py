"""The user's answers to the questions of Confide's plugin. Claude Code asks for the plugin's
`userConfig`, and stores the answers in the user's settings.

Only the user's settings are read. Claude Code accepts no such answer from a project's settings, and
it passes answers to hooks only through the environment, which a project's settings can set too. A
hook reads the answers at the end of a turn, so this module needs only the standard library.
"""

from __future__ import annotations

import json
import os
import stat
from typing import Any, Final

from confide_crypto import portable

TYPE_CHECKING = False

MODES: Final = ("off", "suggest", "auto")
_PLUGIN: Final = "confide@"
"""Start of the plugin's name, in any marketplace."""
_MOST_BYTES: Final = 2**20


def claude_folder() -> str:
    """Return the folder of Claude Code's user settings."""
    return os.environ.get("CLAUDE_CONFIG_DIR") or os.path.join(os.path.expanduser("~"), ".claude")


def settings() -> str:
    """Return the path of Claude Code's user settings.

    A project's settings can set environment variables for hooks. So a folder that such a variable
    names is not trusted if the project could fill it: if it is in a repository or in the session's
    working folder.
    """
    folder = os.path.realpath(claude_folder())
    usual = os.path.join(os.path.expanduser("~"), ".claude")
    if folder != os.path.realpath(usual) and _may_be_a_projects(folder):
        folder = usual
    return os.path.join(folder, "settings.json")


def _may_be_a_projects(folder: str) -> bool:
    try:
        here = os.path.realpath(os.getcwd())
    except OSError:  # the working folder was deleted
        return True
    above = folder
    while not os.path.lexists(os.path.join(above, ".git")):
        if above == here and here != os.path.realpath(os.path.expanduser("~")):
            return True
        if above == os.path.dirname(above):
            return False
        above = os.path.dirname(above)
    return True


def learning() -> str:
    """Return the user's answer to the question whether to learn from sessions, one of `MODES`.
    Return "" without an answer, if the plugin is disabled, or if another user could have written
    the answer.
    """
    try:
        fd = os.open(settings(), os.O_RDONLY | portable.NO_WAIT | portable.CLOSED)
        with open(fd, "rb") as file:
            status = os.fstat(fd)
            is_ours = status.st_uid in (portable.user(), 0) and not status.st_mode & portable.ANYBODY_WRITES
            data = json.loads(file.read(_MOST_BYTES)) if stat.S_ISREG(status.st_mode) and is_ours else {}
    except (OSError, ValueError, RecursionError):
        return ""
    enabled, answers = (_object(data, name) for name in ("enabledPlugins", "pluginConfigs"))
    for name in answers:
        if name.startswith(_PLUGIN) and enabled.get(name) is True:
            mode = _object(_object(answers, name), "options").get("learn")
            if isinstance(mode, str) and mode.strip().lower() in MODES:
                return mode.strip().lower()
    return ""


def _object(found: Any, name: str) -> dict[str, object]:
    value = found.get(name) if isinstance(found, dict) else None
    return value if isinstance(value, dict) else {}
