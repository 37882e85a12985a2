"""Names that the user gives to sealed secrets on this device, and what a command line means by them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from confide_crypto import atomic
from confide_crypto.errors import KeyFileError
from confide_crypto.keys.private_files import read_private_file
from confide_crypto.sealing.placeholder import Placeholder
from confide_memory.documents import RequestChannel
from confide_proxy.devices import roster_client
from confide_proxy.errors import InputError, NoSecretError

REF: Final = "secret:"
"""The optional prefix of a reference to a secret."""
NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
MOST_NAMES: Final = 1000
_DIGITS: Final = re.compile(r"[0-9a-f]{4,32}")
_LONGEST: Final = 120
_LISTED: Final = "confide secrets ls lists them"


class SecretNames:
    """The names of this device, in a file that is read at every use."""

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
        """Give a name to a secret, or take it back (None). Raises InputError for an unfit name, or
        one that is not there; KeyFileError; OSError.
        """
        names = self.read()
        if secret is None:
            if names.pop(name, None) is None:
                raise InputError(f"no secret is called {name}", hint=_LISTED)
        elif not NAME.fullmatch(name) or _DIGITS.fullmatch(name):
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


def bare(reference: str) -> str:
    """Return a reference without what may stand around it. Raises NoSecretError if nothing is left."""
    text = reference.strip().removeprefix(REF).strip().rstrip(")….")
    text = text.removeprefix("(").removeprefix("sealed:")
    if not text or len(text) > _LONGEST:
        raise NoSecretError(
            "this names no sealed secret", hint=f"name it as {REF}NAME, or by its placeholder or the first digits of it"
        )
    return text


def refuse_redacted(text: str) -> None:
    """Raise NoSecretError if a text stands for a value that was never sent."""
    if text.strip().startswith("(redacted:"):
        hint = "the value was never sent; the file on the device that wrote it still has it"
        raise NoSecretError("what was redacted cannot be opened", hint=hint)


async def resolved(
    link: RequestChannel, references: Iterable[str], names: Mapping[str, Placeholder]
) -> dict[str, Placeholder]:
    """Return the secret that each reference means: a name, a placeholder, its digits, or the only
    one that begins so.

    Raises NoSecretError for none or several; RequestError, ConnectionLost, TimeoutError from the
    link.
    """
    found: dict[str, Placeholder] = {}
    listed: list[Placeholder] | None = None
    for reference in references:
        text = bare(reference)
        whole = Placeholder.parse(f"(sealed:{text})")
        if (known := names.get(text) or whole) is not None:
            found[reference] = known
            continue
        if listed is None:
            pages = roster_client.records(link)
            listed = [Placeholder(one["kind"], bytes.fromhex(one["id"])) async for page in pages for one in page]
        begins = [one for one in listed if str(one).startswith(f"(sealed:{text}")]
        if _DIGITS.fullmatch(text.lower()):
            begins += [one for one in listed if one.secret_id.hex().startswith(text.lower())]
        if len(begins) != 1:
            why = f"{len(begins)} sealed secrets begin" if begins else "no sealed secret begins"
            raise NoSecretError(f"{why} with {text}", hint=_LISTED)
        found[reference] = begins[0]
    return found
