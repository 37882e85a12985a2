"""Names that the user gives to sealed secrets on this device."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

from confide_crypto import atomic
from confide_crypto.errors import KeyFileError
from confide_crypto.keys.private_files import read_private_file
from confide_crypto.sealing.placeholder import Placeholder
from confide_proxy.errors import InputError
from confide_proxy.sealing.secret_references import DIGITS, LISTED

NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
MOST_NAMES: Final = 1000


class SecretNames:
    """The names of sealed secrets on this device, in a file that is read at every use."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def read(self) -> dict[str, Placeholder]:
        """Return the secrets by name. Raises KeyFileError if others can read or write the file."""
        try:
            found: Any = json.loads(read_private_file(self._file, most_bytes=2**20)) if self._file.exists() else {}
        except ValueError:
            raise KeyFileError(self._file, "is damaged", hint="delete it, and name the secrets again") from None
        pairs = found.items() if isinstance(found, dict) else ()
        parsed = {name: Placeholder.parse(str(text)) for name, text in pairs if NAME.fullmatch(name)}
        return {name: one for name, one in parsed.items() if one is not None}

    def give(self, name: str, secret: Placeholder | None) -> None:
        """Name a secret; with None instead of a secret, delete the name.

        Raises InputError if the name is invalid or, when deleting, unknown; KeyFileError if others
        can read or write the file; OSError if it cannot be written.
        """
        names = self.read()
        if secret is None:
            if names.pop(name, None) is None:
                raise InputError(f"no secret is called {name}", hint=LISTED)
        elif not NAME.fullmatch(name) or DIGITS.fullmatch(name):
            raise InputError(
                "a name has up to 64 of a-z, 0-9, dot, hyphen and underscore, and is no hexadecimal number",
                hint="such as npm-token",
            )
        elif len(names) >= MOST_NAMES and name not in names:
            raise InputError(f"there are {MOST_NAMES:,} names already", hint="confide secrets name --remove NAME")
        else:
            names[name] = secret
        text = json.dumps({each: str(one) for each, one in sorted(names.items())}, indent=1)
        atomic.write(self._file, text.encode() + b"\n")
