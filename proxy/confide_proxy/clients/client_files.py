"""The files of clients, which are other people's: read with care, replaced whole or not at all, and given back as they were.

What was written is kept as a receipt (hashes and places, and no text of anybody's but what our own replaced): a file that nobody has
changed since is given back byte for byte. Where it was changed, what is ours is taken out of what stands there.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from confide_crypto import atomic
from confide_crypto.errors import KeyFileError
from confide_crypto.keys.private_files import write_private_file
from confide_proxy.clients.config_entries import ConfigEntry
from confide_proxy.clients.jsonc import JsoncError
from confide_proxy.clients.toml_tables import TomlError
from confide_proxy.errors import SetupError, SetupStorageError

_BY_HAND: Final = "fix it, or paste the entry by hand"
_MOST_BYTES: Final = 16 * 1024 * 1024
_MOST_RECEIPTS: Final = 500
_OWN_STEM: Final = "confide"


@dataclass(frozen=True, slots=True)
class FileChange:
    """A file as it is and as it would be; None where there is no file.

    Attributes:
        steps: the texts between, if several things were put in.
        folders: those that were made for the file, the innermost first; they go with it, if nothing else is in them.
    """

    path: Path
    before: str | None
    after: str | None
    steps: tuple[str, ...] = ()
    folders: tuple[Path, ...] = ()

    @property
    def is_one(self) -> bool:
        """Whether anything would change."""
        return self.before != self.after

    def write(self, receipts: WriteReceipts | None = None) -> None:
        """Put it in place. Raises SetupError: it was changed meanwhile; SetupStorageError: the disk or this user's rights refuse."""
        if read(self.path) != self.before:
            raise SetupError(f"{self.path} has changed meanwhile", hint="run it again")
        try:
            if self.after is None:
                _resolved(self.path).unlink()
                self.path.unlink(missing_ok=True)  # where it was a link
                with suppress(OSError):
                    for folder in self.folders:
                        folder.rmdir()
            else:
                if receipts is not None:
                    receipts.note(self)
                _resolved(self.path).parent.mkdir(parents=True, exist_ok=True)
                replace(self.path, self.after)
        except OSError as error:
            raise SetupStorageError(
                f"{self.path} cannot be written: {error.strerror or type(error).__name__}"
            ) from error


def read(path: Path) -> str | None:
    """A file's text, None where there is none. Raises SetupError: it is no text file that this user may read."""
    try:
        target = _resolved(path)
        if not target.exists():
            return None
        if not stat.S_ISREG(target.stat().st_mode):
            raise SetupError(f"{path} is not a file", hint="move it away")
        with target.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except OSError as error:
        told = error.strerror or type(error).__name__
        raise SetupError(f"{path} cannot be read: {told}", hint="is it yours?") from error
    if len(data) > _MOST_BYTES:
        raise SetupError(f"{path} is over {_MOST_BYTES // 2**20} MiB", hint=_BY_HAND)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise SetupError(f"{path} is not UTF-8 text (byte {error.start})", hint=_BY_HAND) from error


def added(entries: Iterable[ConfigEntry]) -> list[FileChange]:
    """The files with the entries in them, each file once. Raises SetupError: one is not what the client reads; it is left as it is."""
    changes: dict[Path, FileChange] = {}
    for entry in entries:
        known = changes.get(entry.file)
        before = read(entry.file) if known is None else known.before
        text = (known.after if known else before) or ""
        after = _done(entry, entry.added, text)
        steps = (*(known.steps if known else ()), after)
        changes[entry.file] = FileChange(entry.file, before, before if after == (before or "") else after, steps)
    return list(changes.values())


def removed(entries: Iterable[ConfigEntry], receipts: WriteReceipts | None = None) -> list[FileChange]:
    """The files without the entries. Raises SetupError: as `added`.

    Args:
        receipts: of what was written; without them, or where only a part is taken out, what is ours is cut out.
    """
    changes = []
    for file, group in _by_file(entries).items():
        before = read(file)
        if before is None:
            continue
        is_found, former = receipts.former(file, before) if receipts else (False, None)
        if is_found and not any(_done(entry, entry.is_in, former or "") for entry in group):
            changes.append(FileChange(file, before, former, folders=receipts.folders(file) if receipts else ()))
            continue
        after = before
        for entry in group:
            after = _done(entry, entry.removed, after)
        is_made = file.stem == _OWN_STEM or (receipts is not None and receipts.is_made(file))
        is_ours = is_made and after.strip() in ("", "{}") and after != before
        made = receipts.folders(file) if receipts and is_ours else ()
        changes.append(FileChange(file, before, None if is_ours else after, folders=made))
    return changes[::-1]  # the file for which a folder was made goes last


def asked(entry: ConfigEntry, question: Callable[[str], Any]) -> Any:
    """What an entry says of its file's text. Raises SetupError: as `added`."""
    return _done(entry, question, read(entry.file) or "")


def is_in(entry: ConfigEntry) -> bool:
    """Whether it is there. Raises SetupError: as `added`."""
    return bool(asked(entry, entry.is_in))


def replace(path: Path, text: str) -> None:
    """Put a text in the place of a person's file, whole or not at all. Raises OSError."""
    target = _resolved(path)  # a linked file (dotfiles in a repository) stays a link
    mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else None
    with atomic.replacing(target, mode=0o600 if mode is not None else 0o666) as file:
        if mode is not None:
            os.fchmod(file.fileno(), mode)
        file.write(text.encode())


def _resolved(path: Path) -> Path:
    try:
        return path.resolve()
    except RuntimeError as error:  # links in a circle, before Python 3.13
        raise OSError(40, "Too many levels of symbolic links") from error


def _by_file(entries: Iterable[ConfigEntry]) -> dict[Path, list[ConfigEntry]]:
    files: dict[Path, list[ConfigEntry]] = {}
    for entry in entries:
        files.setdefault(entry.file, []).append(entry)
    return files


def _done(entry: ConfigEntry, work: Any, text: str) -> Any:
    try:
        return work(text)
    except (JsoncError, TomlError) as error:
        raise SetupError(f"{entry.file} {error}", hint=_BY_HAND) from error


@dataclass(slots=True)
class WriteReceipts:
    """What was written into which file, so that it can be given back as it was; in a file of the proxy's own."""

    file: Path
    _known: dict[str, dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # One that is damaged or missing costs bytes (a blank more or less), and nothing else.
        with suppress(OSError, ValueError):
            known = json.loads(self.file.read_bytes())
            self._known = known if isinstance(known, dict) else {}

    def note(self, change: FileChange) -> None:
        """Keep what is about to be written. Where it cannot be kept, what is ours is cut out one day, and a blank more or less stays."""
        assert change.after is not None
        key, before = str(_resolved(change.path)), change.before
        old = self._of(change.path)
        is_ours = before is not None and old.get("sha256") == _hash(before)
        undo = list(old["undo"]) if is_ours and isinstance(old.get("undo"), list) else []
        was_there = bool(old.get("wasThere")) if is_ours else before is not None
        above = [each for each in _resolved(change.path).parents if not each.exists()]
        folders = old.get("folders", []) or [str(each) for each in above]
        text = before or ""
        for step in (*change.steps, change.after):
            undo += [] if step == text else [_reverse(text, step)]
            text = step
        self._known.pop(key, None)
        self._known[key] = {"sha256": _hash(change.after), "wasThere": was_there, "undo": undo, "folders": folders}
        self._save()

    def is_made(self, path: Path) -> bool:
        """Whether there was no such file before."""
        return self._of(path).get("wasThere") is False

    def folders(self, path: Path) -> tuple[Path, ...]:
        """Those that were made for a file, the innermost first."""
        found = self._of(path).get("folders", [])
        return tuple(Path(each) for each in found if isinstance(each, str)) if isinstance(found, list) else ()

    def former(self, path: Path, text: str) -> tuple[bool, str | None]:
        """Whether it is known what the file was before, which nobody has changed since, and what it was; None: there was none."""
        found = self._of(path)
        try:
            if found.get("sha256") != _hash(text):
                return False, None
            for start, length, old in reversed(found["undo"]):
                text = f"{text[:start]}{old}{text[start + length :]}"
            return True, text if found["wasThere"] else None
        except (KeyError, TypeError, ValueError):
            return False, None

    def carried(self, folder: Path) -> dict[str, str]:
        """The hashes of the notes that were copied into a folder, by their names."""
        found = self._of(folder).get("carried", {})
        return {name: each for name, each in found.items() if isinstance(each, str)} if isinstance(found, dict) else {}

    def note_carried(self, folder: Path, hashes: dict[str, str]) -> None:
        """Keep them; none: forget about the folder."""
        self._known.pop(str(_resolved(folder)), None)
        if hashes:
            self._known[str(_resolved(folder))] = {"carried": hashes}
        self._save()

    def _save(self) -> None:
        kept = dict(list(self._known.items())[-_MOST_RECEIPTS:])
        with suppress(OSError, KeyFileError):
            write_private_file(self.file, json.dumps(kept).encode(), replace=True)

    def _of(self, path: Path) -> dict[str, Any]:
        found = self._known.get(str(_resolved(path)))
        return found if isinstance(found, dict) else {}


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _reverse(before: str, after: str) -> tuple[int, int, str]:
    """Where a step changed the text, how much is new there, and what was there."""
    most = min(len(before), len(after))
    start = next((n for n in range(most) if before[n] != after[n]), most)
    end = next((n for n in range(most - start) if before[-1 - n] != after[-1 - n]), most - start)
    return start, len(after) - start - end, before[start : len(before) - end]
