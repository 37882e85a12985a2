"""Lets `confide run` ask in the panel whether a command may use a secret. It asks if the panel's
server runs, and a user who opens the panel finds the question on each page.
"""

from __future__ import annotations

import json
import os
import shlex
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from confide_http.local.running_gateway import running
from confide_panel.waiting_uses import CHOICES, FOLDER, MOST_CHARS, NO, WAIT_S
from confide_proxy.hooks.hook_process import CONNECT_S, answer_from, connect
from confide_proxy.hooks.server.session_asks import NO_ANSWER, PersonAnswer
from confide_proxy.paths import ProxyPaths
from confide_proxy.run.approvals import PlannedUse

_WAY_S: Final = 2.0
_MOST_ANSWER: Final = 256


def ask(paths: ProxyPaths, use: PlannedUse, tell: Callable[[str], None]) -> PersonAnswer:
    """Ask in the panel whether secrets may be used, and wait for the answer, at most `WAIT_S`
    seconds. Blocks.

    `tell` is called with a sentence to print for the user.
    """
    found = running(paths)
    line = shlex.join(use.arguments)
    if found is None or len(line) > MOST_CHARS:
        return NO_ANSWER
    asked = {
        "secrets": use.named,
        "line": line,
        "program": use.program,
        "folder": os.fspath(Path.cwd()),
        "whole": use.is_for_one_line,
    }
    state = os.fspath(paths.gateway / FOLDER / str(found.pid))
    try:
        connection = connect(state, CONNECT_S)
        if connection is None:
            return NO_ANSWER
        with connection:
            connection.sendall(json.dumps(asked).encode("utf-8", "replace") + b"\n")
            tell(f"confide: waiting {WAIT_S:.0f} seconds for your answer in the panel: confide panel")
            told = answer_from(connection, end=time.monotonic() + WAIT_S + _WAY_S, most=_MOST_ANSWER)
    except (OSError, ValueError, RecursionError):
        return NO_ANSWER
    choice = told.get("answer")
    return PersonAnswer(choice if choice != NO else None) if choice in CHOICES else NO_ANSWER
