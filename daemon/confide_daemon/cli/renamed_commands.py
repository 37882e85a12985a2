"""Old names of commands of `confided` that were renamed in version 0.3. They still work, and print
the new name on stderr.

To remove them, delete this module and its use in `app`. An add-on lists its own renamed commands in
`Command.moved`.
"""

from __future__ import annotations

from typing import Final

from confide_memory.commands.entries import Moved

MOVED: Final[Moved] = {
    "callers": "device",
    "callers grant": "device edit",
    "callers rename": "device edit",
    "callers show": "device ls",
    "revoke": "device rm",
    "top": "status --watch",
    "logs": "status --log",
    "reindex": "space reindex",
    "bench": "space bench",
    "custody": "space key",
    "invite ls": "invite --list",
    "invite rm": "invite --cancel",
    "rekey": "space key --new",
    "key show": "key",
    "key rotate": "key --new",
    "key retire": "key --end-old",
}
"""New names of commands, by old name."""
