"""Access to the configuration files of clients, which belong to the user. They are read carefully,
replaced atomically, and restored as they were.

Each write leaves a receipt: hashes, positions, and only the text that Confide's own replaced. A
file that is unchanged since then is restored byte for byte. In a changed file, only Confide's
entries are removed.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from confide_crypto import atomic, portable
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
    """A change of a file that has not been written yet.

    Attributes:
        before, after: the file's text before and after the change; None if there is no file.
        steps: the texts in between, if several entries were added.
        folders: the folders that were created for the file, the innermost first. They are removed
            with it if they are empty.
    """

    path: Path
    before: str | None
    after: str | None
    steps: tuple[str, ...] = ()
    folders: tuple[Path, ...] = ()

    @property
    def is_one(self) -> bool:
        """Return True if the change alters the file's text."""
        return self.before != self.after

    def write(self, receipts: WriteReceipts | None = None) -> None:
        """Write the changed text to the file, or delete the file.

        Raises SetupError if the file is no longer as it was before the change; SetupStorageError if
        it cannot be written.
        """
        if read(self.path) != self.before:
            raise SetupError(f"{self.path} has changed meanwhile", hint="run it again")
        try:
            if self.after is None:
                _resolve(self.path).unlink()
                self.path.unlink(missing_ok=True)  # where it was a link
                with suppress(OSError):
                    for folder in self.folders:
                        folder.rmdir()
            else:
                if receipts is not None:
                    receipts.note(self)
                _resolve(self.path).parent.mkdir(parents=True, exist_ok=True)
                replace(self.path, self.after)
        except OSError as error:
            is_mounted = error.errno in (errno.EBUSY, errno.EXDEV)  # of its own, in a container say
            raise SetupStorageError(
                f"{self.path} cannot be written: {error.strerror or type(error).__name__}",
                hint="the file alone is mounted: mount its folder instead" if is_mounted else None,
            ) from error


def read(path: Path) -> str | None:
    """Return a file's text, or None if the file does not exist.

    Raises SetupError if it is not a text file, is too large, or cannot be read by this user.
    """
    try:
        target = _resolve(path)
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


def changes_to_add(entries: Iterable[ConfigEntry]) -> list[FileChange]:
    """Return the changes that add the entries, one for each file. Nothing is written yet.

    Raises SetupError if a file is not in its client's format.
    """
    changes: dict[Path, FileChange] = {}
    for entry in entries:
        known = changes.get(entry.file)
        before = read(entry.file) if known is None else known.before
        text = (known.after if known else before) or ""
        after = _run_on_entry(entry, entry.add_to, text)
        steps = (*(known.steps if known else ()), after)
        changes[entry.file] = FileChange(entry.file, before, before if after == (before or "") else after, steps)
    return list(changes.values())


def changes_to_remove(entries: Iterable[ConfigEntry], receipts: WriteReceipts | None = None) -> list[FileChange]:
    """Return the changes that remove the entries, one for each file. Nothing is written yet.

    Args:
        receipts: receipts of the earlier writes, to restore files as they were. Without them, or if
            only some entries are removed, the entries are cut out of the text.

    Raises SetupError if a file is not in its client's format.
    """
    changes = []
    for file, group in _by_file(entries).items():
        before = read(file)
        if before is None:
            continue
        is_found, former = receipts.former(file, before) if receipts else (False, None)
        if is_found and not any(_run_on_entry(entry, entry.is_in, former or "") for entry in group):
            changes.append(FileChange(file, before, former, folders=receipts.folders(file) if receipts else ()))
            continue
        after = before
        for entry in group:
            after = _run_on_entry(entry, entry.remove_from, after)
        is_made = file.stem == _OWN_STEM or (receipts is not None and receipts.is_made(file))
        is_ours = is_made and after.strip() in ("", "{}") and after != before
        made = receipts.folders(file) if receipts and is_ours else ()
        changes.append(FileChange(file, before, None if is_ours else after, folders=made))
    return changes[::-1]  # the file for which a folder was made goes last


def ask_entry(entry: ConfigEntry, question: Callable[[str], Any]) -> Any:
    """Call a function of an entry with the text of the entry's file, and return its result.

    Raises SetupError if the file is not in its client's format.
    """
    return _run_on_entry(entry, question, read(entry.file) or "")


def is_in(entry: ConfigEntry) -> bool:
    """Return True if the entry is in its file. Raises SetupError if the file is not in its client's
    format.
    """
    return bool(ask_entry(entry, entry.is_in))


def replace(path: Path, text: str) -> None:
    """Replace the contents of a user's file atomically. Raises OSError if that fails."""
    target = _resolve(path)  # a linked file (dotfiles in a repository) stays a link
    mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else None
    with atomic.replacing(target, mode=0o600 if mode is not None else 0o666) as file:
        if mode is not None and portable.HAS_MODES:
            os.fchmod(file.fileno(), mode)
        file.write(text.encode())


def _resolve(path: Path) -> Path:
    try:
        return path.resolve()
    except RuntimeError as error:  # links in a circle, before Python 3.13
        raise OSError(40, "Too many levels of symbolic links") from error


def _by_file(entries: Iterable[ConfigEntry]) -> dict[Path, list[ConfigEntry]]:
    files: dict[Path, list[ConfigEntry]] = {}
    for entry in entries:
        files.setdefault(entry.file, []).append(entry)
    return files


def _run_on_entry(entry: ConfigEntry, work: Any, text: str) -> Any:
    try:
        return work(text)
    except (JsoncError, TomlError) as error:
        raise SetupError(f"{entry.file} {error}", hint=_BY_HAND) from error


@dataclass(slots=True)
class WriteReceipts:
    """Receipts of Confide's writes to clients' files, by which these files are restored. They are
    stored in a file of the proxy.
    """

    file: Path
    _known: dict[str, dict[str, object]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # A damaged or missing file only costs exactness (a blank more or less).
        with suppress(OSError, ValueError):
            known = json.loads(self.file.read_bytes())
            self._known = known if isinstance(known, dict) else {}

    def note(self, change: FileChange) -> None:
        """Store a receipt for a change. If that fails, a later removal cuts Confide's entries out
        of the file, which may then differ from the original by blank lines.
        """
        assert change.after is not None
        key, before = str(_resolve(change.path)), change.before
        old = self._of(change.path)
        is_ours = before is not None and old.get("sha256") == _hash(before)
        undo = list(old["undo"]) if is_ours and isinstance(old.get("undo"), list) else []
        was_there = bool(old.get("wasThere")) if is_ours else before is not None
        above = [each for each in _resolve(change.path).parents if not each.exists()]
        folders = old.get("folders", []) or [str(each) for each in above]
        text = before or ""
        for step in (*change.steps, change.after):
            undo += [] if step == text else [_reverse(text, step)]
            text = step
        self._known.pop(key, None)
        self._known[key] = {"sha256": _hash(change.after), "wasThere": was_there, "undo": undo, "folders": folders}
        self._save()

    def is_made(self, path: Path) -> bool:
        """Return True if Confide created the file."""
        return self._of(path).get("wasThere") is False

    def folders(self, path: Path) -> tuple[Path, ...]:
        """Return the folders that Confide created for a file, the innermost first."""
        found = self._of(path).get("folders", [])
        return tuple(Path(each) for each in found if isinstance(each, str)) if isinstance(found, list) else ()

    def former(self, path: Path, text: str) -> tuple[bool, str | None]:
        """Return True and the text that a file had before Confide's write (None if there was no
        file). Return False and None if the file has changed since the write, or has no receipt.
        """
        found = self._of(path)
        try:
            if found.get("sha256") != _hash(text):
                return False, None
            for start, length, old in reversed(found["undo"]):
                text = f"{text[:start]}{old}{text[start + length :]}"
            return True, text if found["wasThere"] else None
        except (KeyError, TypeError, ValueError):
            return False, None

    def copied_notes(self, folder: Path) -> dict[str, str]:
        """Return the hashes of the notes that were copied into a folder, by the notes' names."""
        found = self._of(folder).get("carried", {})
        return {name: each for name, each in found.items() if isinstance(each, str)} if isinstance(found, dict) else {}

    def note_carried(self, folder: Path, hashes: dict[str, str]) -> None:
        """Store the hashes of the notes that were copied into a folder. An empty dict deletes the
        folder's receipt.
        """
        self._known.pop(str(_resolve(folder)), None)
        if hashes:
            self._known[str(_resolve(folder))] = {"carried": hashes}
        self._save()

    def _save(self) -> None:
        kept = dict(list(self._known.items())[-_MOST_RECEIPTS:])
        with suppress(OSError, KeyFileError):
            write_private_file(self.file, json.dumps(kept).encode(), replace=True)

    def _of(self, path: Path) -> dict[str, Any]:
        found = self._known.get(str(_resolve(path)))
        return found if isinstance(found, dict) else {}


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _reverse(before: str, after: str) -> tuple[int, int, str]:
    """Return the position of a change, the length of its new text, and the replaced text."""
    most = min(len(before), len(after))
    start = next((n for n in range(most) if before[n] != after[n]), most)
    end = next((n for n in range(most - start) if before[-1 - n] != after[-1 - n]), most - start)
    return start, len(after) - start - end, before[start : len(before) - end]
