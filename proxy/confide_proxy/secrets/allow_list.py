"""Adding a fingerprint to `allow` in `proxy.toml`, with all else in the file left as a person wrote it."""

from __future__ import annotations

import os
import re
import tomllib
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from confide_proxy.errors import ConfigError, StateError
from confide_proxy.secrets.policy import policy_of

_SECTION: Final = re.compile(r"^[ \t]*\[[ \t]*secrets[ \t]*\][ \t]*(?:#[^\n]*)?(?:\n|\Z)", re.MULTILINE)
_NEXT: Final = re.compile(r"^[ \t]*\[", re.MULTILINE)
_LIST: Final = re.compile(r"^[ \t]*allow[ \t]*=[ \t]*\[", re.MULTILINE)


def add(path: Path, fingerprint: str) -> bool:
    """Allow what has this fingerprint. False if it was allowed already.

    Raises:
        ConfigError: the file cannot be read or understood.
        StateError: it cannot be written; it is left as it was.
    """
    try:
        text = path.read_bytes().decode("utf-8") if path.exists() else ""
        table = tomllib.loads(text)
    except (OSError, ValueError) as error:
        raise ConfigError(path, f"cannot be read: {type(error).__name__}", hint="mend it, and try again") from None
    section = table.get("secrets", {})
    allowed = policy_of(path, section).allow
    if fingerprint in allowed:
        return False
    changed = _with(text, fingerprint)
    wanted = table | {"secrets": section | {"allow": [fingerprint, *allowed]}}
    if _parsed(changed) != wanted:
        hint = f'add "{fingerprint}" to allow in its section [secrets] by hand'
        raise ConfigError(path, "is not written so that it can be added to", hint=hint)
    _replace(path, changed)
    return True


def _with(text: str, fingerprint: str) -> str:
    section = _SECTION.search(text)
    if section is None:
        gap = "" if not text else "\n" if text.endswith("\n") else "\n\n"
        return f'{text}{gap}[secrets]\nallow = ["{fingerprint}"]\n'
    following = _NEXT.search(text, section.end())
    listed = _LIST.search(text, section.end(), following.start() if following else len(text))
    if listed is None:
        head = text[: section.end()]
        return f'{head}{"" if head.endswith(chr(10)) else chr(10)}allow = ["{fingerprint}"]\n{text[section.end() :]}'
    rest = text[listed.end() :]
    if rest.lstrip().startswith("]"):
        return f'{text[: listed.end()]}"{fingerprint}"{rest.lstrip()}'
    if line := re.match(r"[ \t]*\n([ \t]*)", rest):
        return f'{text[: listed.end()]}\n{line[1]}"{fingerprint}",{rest}'
    return f'{text[: listed.end()]}"{fingerprint}", {rest}'


def _parsed(text: str) -> dict[str, Any] | None:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return None


def _replace(path: Path, text: str) -> None:
    target = path.resolve()  # a linked file (dotfiles in a repository) stays a link
    part = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        mode = target.stat().st_mode & 0o777 if target.exists() else 0o644
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
        with open(os.open(part, flags, mode), "w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        part.replace(target)
    except OSError as error:
        with suppress(OSError):  # a read-only disk refuses this as well
            part.unlink()
        raise StateError(path, error) from error
