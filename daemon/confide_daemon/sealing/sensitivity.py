"""Notes that say of themselves that they are sensitive: the daemon has their front matter, and stand-ins in place of their text.

A machine asks before it sends a text for a note that it does not see (`is-sensitive`, PROTOCOL.md 9.7), and seals it whole. The check here
is the second line: it refuses what a machine sends in clear all the same.
"""

from __future__ import annotations

from collections.abc import Callable

from confide_crypto.sealing import placeholder
from confide_daemon.errors import ToolError
from confide_memory import front_matter
from confide_memory.sensitivity import is_sensitive


def refuse_plain(text: str) -> None:
    """Raises ToolError where a text for a sensitive note is not sealed."""
    if not placeholder.only(text):
        raise ToolError(
            "the text of a sensitive note comes sealed, and this one does not",
            hint="update confide on this machine, or say it again: the note may have become sensitive just now",
        )


def sealed_only(change: Callable[[str], str], content: str | None) -> Callable[[str], str]:
    """A change of a note's document that raises ToolError where it would put, or leave, a text in clear below a front matter that says
    sensitive. `content`: the text that it puts there, if it does."""

    def checked(text: str) -> str:
        after = change(text)
        if is_sensitive(after):
            if content is not None:
                refuse_plain(content)
            elif not is_sensitive(text) and not placeholder.only(front_matter.split(after)[1]):
                raise ToolError(
                    "the text of this note is with the daemon in clear",
                    hint="give the content too, so that it is sealed; confide secrets rescan seals older revisions",
                )
        return after

    return checked
