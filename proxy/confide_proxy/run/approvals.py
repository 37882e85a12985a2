"""Approve commands that use a secret: by the user's own rules, by an earlier approval in the same
terminal session, or by asking the user.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

from confide_crypto import atomic
from confide_crypto.errors import printable
from confide_crypto.sealing.placeholder import Placeholder
from confide_proxy.sealing.maskable import is_maskable
from confide_proxy.sealing.use_log import UseLog, hold_lock

LASTS_S: Final = 12 * 3600
"""Longest time that an approval is remembered."""
MOST_APPROVALS: Final = 256
ONCE: Final = "once"
SESSION: Final = "session"
"""Names of the two ways to allow a use: for this command line, or for the terminal session."""
_MOST_BYTES: Final = 512 * 1024
_SHOWN_CHARS: Final = 300
MOST_ASKED: Final = 4000
"""Characters of the longest command line of an interpreter that a question shows."""
_INTERPRETERS: Final = re.compile(
    r"(?:ba|da|z|fi|k|mk|c|tc|a|pw)?sh|env|xargs|parallel|find|fd|watch|entr|sudo|doas|su|runuser|pkexec"
    r"|nohup|time|timeout|nice|ionice|chrt|taskset|stdbuf|setsid|unshare|nsenter|chroot|flock|script|expect"
    r"|strace|systemd-run|ssh|busybox|toybox|[gmn]?awk|npx|bunx|uvx|uv|pipx|make|gmake|just|Rscript|julia|osascript"
    r"|(?:python|pypy|ipython|perl|ruby|php|lua|luajit|tclsh|nodejs|node|deno|bun|tsx)[\d.-]*"
)
"""Programs that run whatever their arguments say: an approval covers only the same command line."""


class PlannedUse(NamedTuple):
    """A command that is about to use secrets, if that is approved.

    Attributes:
        program: path of the program.
        arguments: the command line as it was typed, beginning with the program's name.
        secrets: the secrets that the command is to use.
        names: the named secrets of this device, by name; a secret may have several names.
        headers: for each secret that only goes into HTTP headers, these headers with their hosts.
            The command itself gets the value of every other secret.
    """

    program: str
    arguments: Sequence[str]
    secrets: Sequence[Placeholder]
    names: Mapping[str, Placeholder]
    headers: Mapping[Placeholder, Sequence[str]] = MappingProxyType({})

    @property
    def question(self) -> str:
        """Return the question for the user. It shows all that an approval would cover; for an
        interpreter that is the whole command line, whose length `is_askable` limits.
        """
        named = ", ".join(self.named)
        line = printable(" ".join(self.arguments))
        line = line if len(line) <= _SHOWN_CHARS or self.is_for_one_line else f"{line[:_SHOWN_CHARS]}…"
        return f"let {printable(self.program)} use {named}? the command is: {line}"

    @property
    def named(self) -> list[str]:
        """Return a description of each secret: its name, its placeholder, and the headers that it
        goes into.
        """
        return [" as ".join((self.called(one), *self._place(one))) for one in self.secrets]

    @property
    def is_askable(self) -> bool:
        """True if the command line is short enough for a question to show all that an approval
        would cover.
        """
        return not self.is_for_one_line or sum(len(one) + 1 for one in self.arguments) <= MOST_ASKED

    @property
    def is_for_one_line(self) -> bool:
        """True if the program is an interpreter, such as `sh` or `python`, that runs whatever its
        arguments say. An approval then covers only this exact command line.
        """
        names = (Path(self.arguments[0]).name, Path(os.path.realpath(self.program)).name)
        return any(_INTERPRETERS.fullmatch(name) for name in names)

    def warnings(self, values: Mapping[Placeholder, bytes]) -> list[str]:
        """Return a warning for each value that is too short or too common to be masked in output."""
        return [
            f"the value of {self.called(secret)} is too short or too common a word to be masked"
            for secret, value in values.items()
            if not is_maskable(value)
        ]

    def note(self, log: UseLog, approved: str) -> None:
        """Write the use of each secret to the device's log. `approved` is the reason, as `standing`
        returns it. Raises OSError if the log cannot be written.
        """
        for secret in self.secrets:
            log.note([secret], " as ".join((self.program, *self.headers.get(secret, ()))), approved)

    def called(self, secret: Placeholder) -> str:
        """Return a secret's name, if it has one, and its placeholder."""
        return " ".join((*self._names_of(secret)[:1], str(secret)))

    def _place(self, secret: Placeholder) -> list[str]:
        headers = self.headers.get(secret, ())
        return [" and ".join(headers)] if headers else []

    def _names_of(self, secret: Placeholder) -> list[str]:
        return sorted(name for name, one in self.names.items() if one == secret)

    def is_ruled(self, allow: Mapping[str, Sequence[str]]) -> bool:
        """Return True if the user's rules allow the command to use each of the secrets.

        `allow` maps secrets to the commands that may use them. A rule names a program by its path,
        or by the name that was typed without a path.
        """
        typed = self.arguments[0]
        heads = {self.program, *([typed] if os.sep not in typed else [])}

        def commands(secret: Placeholder) -> set[str]:
            keys = {str(secret), secret.secret_id.hex(), *self._names_of(secret)}
            return {command for key in keys for command in allow.get(key, ())}

        return all(commands(secret) & heads for secret in self.secrets)

    def marks(self) -> set[str]:
        """Return hashes of each secret together with the command. An approval of this use is stored
        as these.

        A program that was changed since is another one. An interpreter also runs files of its
        arguments, and what it finds in the working folder.
        """
        path = os.path.realpath(self.program)
        head = "\0".join((path, *_file_state(path)))
        if self.is_for_one_line:
            files = [each for argument in self.arguments[1:] for each in _file_state(argument)]
            head = "\0".join((head, *self.arguments, str(Path.cwd()), *files))
        marked = {"\0".join((str(one), head, *self.headers.get(one, ()))) for one in self.secrets}
        return {hashlib.sha256(each.encode("utf-8", "surrogateescape")).hexdigest() for each in marked}


class Approvals:
    """The approvals that users have given in sessions on this device. They are in a file of limited
    size, and expire.

    `agent` is the process ID of the agent session that starts the command, as
    `session_asks.asking_session` returns it: an agent's shell may have another terminal session for
    each command. 0 means the present terminal session.
    """

    def __init__(self, file: Path) -> None:
        self._file = file

    def has(self, use: PlannedUse, agent: int = 0) -> bool:
        """Return True if the user has approved this use earlier in the same session."""
        session, now = _session(agent), time.time()
        known = {mark for mark, of, until in self._read() if of == session and now < until <= now + LASTS_S}
        return bool(session) and use.marks() <= known

    def add(self, use: PlannedUse, agent: int = 0) -> None:
        """Store an approval of this use for the session. Raises OSError if it cannot be written."""
        session, now = _session(agent), time.time()
        if not session:
            return
        with hold_lock(self._file):
            kept = [each for each in self._read() if now < each[2] <= now + LASTS_S]
            kept += [(mark, session, now + LASTS_S) for mark in sorted(use.marks())]
            atomic.write(self._file, json.dumps(kept[-MOST_APPROVALS:]).encode(), is_kept=False)

    def _read(self) -> list[tuple[str, str, float]]:
        try:
            found = json.loads(self._file.read_bytes()[:_MOST_BYTES])
            return [(str(mark), str(of), float(until)) for mark, of, until in found]
        except (OSError, ValueError, TypeError):
            return []


def standing(use: PlannedUse, allow: Mapping[str, Sequence[str]], approvals: Approvals) -> str:
    """Return why a use is allowed without a question, in the words of `UseLog`: "proxy.toml" for a
    rule in `allow`, "before" for an earlier approval, or "" if it is not allowed.
    """
    if use.is_ruled(allow):
        return "proxy.toml"
    return "before" if approvals.has(use) else ""


def _file_state(path: str) -> tuple[str, ...]:
    """Return the identity of a file, its size and times, which differ after a change; empty if there
    is no such file. Unlike the other times, the last one cannot be set back.
    """
    try:
        found = Path(path).stat()
    except (OSError, ValueError):
        return ()
    if not stat.S_ISREG(found.st_mode):
        return ()
    return (f"{found.st_dev} {found.st_ino} {found.st_size} {found.st_mtime_ns} {found.st_ctime_ns}",)


def _session(agent: int) -> str:
    """Return a name for an agent's session, or for the terminal session of this process; "" without
    one.

    The start of its process is part of it, since numbers of processes are used again.
    """
    if not agent and not hasattr(os, "getsid"):
        return ""
    leader = agent or os.getsid(0)
    try:
        began = Path(f"/proc/{leader}/stat").read_text("latin-1").rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        began = ""
    return f"{leader} {began}"
