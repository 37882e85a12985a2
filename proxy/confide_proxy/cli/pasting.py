"""Invites as people paste them: hidden, and in as many lines as they were copied."""

from __future__ import annotations

import getpass
import sys
from typing import Final

from confide_crypto.errors import InviteError
from confide_crypto.sealing.pairing import parse_invite
from confide_memory.commands.doing import doing

_MOST_PASTED: Final = 4096
_MOST_LINES: Final = 4


def pasted_invite(prompt: str = "invite (hidden): ") -> str:
    """Read an invite from the terminal, unseen, or from stdin: other users can see arguments, and a shell keeps them.

    One that was copied as several lines is read on until it is whole. Else its second half would run in the shell, and lie in its history.
    """
    text = _line(prompt)
    for _ in range(_MOST_LINES - 1):
        if "://" not in text or _is_whole(text) or not (rest := _line("the rest of it (hidden), or Enter: ")):
            break
        text += rest
    return text


def _is_whole(text: str) -> bool:
    try:
        parse_invite(text)
    except InviteError:
        return False
    return True


def _line(prompt: str) -> str:
    if not sys.stdin.isatty():
        return sys.stdin.readline(_MOST_PASTED).strip()
    try:
        with doing.paused():
            return getpass.getpass(prompt).strip()
    except EOFError:
        return ""
