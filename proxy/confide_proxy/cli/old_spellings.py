"""Old names of commands of `confide` that were renamed in 0.3. They still work, and print the new
name on stderr.

To remove them, delete this module and its use in `app`. An add-on lists its own old names in
`Command.moved`.
"""

from __future__ import annotations

from typing import Final

from confide_memory.commands.entries import Moved

MOVED: Final[Moved] = {
    "projects": "project ls",
    "link": "project link",
    "unlink": "project link --remove",
    "project folders": "project ls --folders",
    "project forget": "project allow --undo",
    "project unlink": "project link --remove",
    "transcripts": "learn transcripts",
    "transcripts list": "learn transcripts",
    "transcripts forget": "learn transcripts --forget",
    "pin": "join --pin",
    "scan": "secrets scan",
    "secrets rescan": "secrets scan --stored",
    "audit": "secrets audit",
    "deleted": "restore --list",
    "log": "history --changes",
    "watch": "sync --watch",
    "queue": "sync --queue",
    "queue retry": "sync --queue --retry",
    "queue drop": "sync --queue --drop",
    "start": "daemon start",
    "stop": "daemon stop",
    "key": "device key",
    "key passphrase": "device key move passphrase --new",
    "device key passphrase": "device key move passphrase --new",
    "recovery": "device recovery",
}
"""New names of commands, by old name."""
