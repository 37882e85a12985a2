"""What can go wrong in the proxy, as a person is told it.

ConfideError (confide_crypto.errors)
├── ConfigError          the configuration file
├── KeyLockedError       this machine's key is sealed with a passphrase, and locked
├── KeyringError         the operating system's keyring cannot be used, or does not answer
├── KeyChangeError       this machine's key cannot be moved, imported or rotated as things are
├── NotJoinedError       no daemon was joined and none may be started
│   └── NotSetUpError        nobody has set this machine up yet
├── DaemonStartError     the daemon on this machine did not come up
│   ├── DaemonMissingError   it is not installed
│   └── DaemonStartingError  it is on its way, and nobody waits for it now
├── DaemonStopError      the daemon on this machine does not end, or cannot be told to
├── NotHereError         the daemon of this machine runs elsewhere
├── FolderError          a path that is not ours to read or write
│   ├── ChangedMeanwhileError    the file is no longer as it was read
│   └── DiskRefusalError         the disk, or this user's rights on it, do not let it
├── ExportError          a folder that an export cannot be written to, or read from
│   └── ExportStorageError   the disk itself refuses what is written
├── StateError           the proxy's own files cannot be read or written
├── JournalError         what waits on this machine for the daemon cannot be kept, or read
├── OfflineError         this machine cannot answer in the daemon's place
├── SessionError         no transcript of that session is kept
├── SetupError           a client's configuration file that cannot be merged into
│   └── SetupStorageError    the disk does not let it be written
├── BlockedError         a text holds a credential that the policy does not let out
├── UnsealableError      a text holds a credential, and this machine has no keys to seal it with
├── NoSecretError        there is no such sealed secret
├── UnshownError         a new recovery code could not be shown
├── DeviceError          there is no such device, or nobody said yes to the question about it
├── SpaceKeysError       this machine has not the keys of its space
│   ├── NotADeviceError      no machine of the space has added it yet, or one has removed it
│   ├── UnconfirmedError     no person has compared the space's words on it
│   ├── AnotherSpaceError    the daemon names another space than before, and no person has said why
│   └── SpaceLockedError     the daemon needs a key that this machine cannot hand over
├── UnreadableError      a store of another system, or a file of memories, that cannot be imported
├── ReaderMissingError   importing that store takes a library that is not installed
├── InputError           what was given to a command is no text that it takes
├── DeclinedError        nobody said yes to what cannot be undone
├── LearningError        nothing is learned as things are, or there is no such suggestion
├── EditorError          no editor is set, or it cannot be run
├── GatewayError         `confide http serve` cannot run as asked
│   └── GatewayMissingError  its libraries are not installed
├── RunnerError          `confide task runner` cannot work as asked, or not on this machine
│   ├── RunnerMissingError   its libraries are not installed
│   ├── SandboxError         no sandbox can be had, or one does not end
│   └── RepositoryError      a repository cannot be had, or a branch not be kept
├── TokenError           a token of the gateway cannot be made, or there is none of that name
├── RequestError         the daemon's answer to a request (confide_crypto.errors)
│   └── NotNowError          a tool's result that is about the moment: the same call may be made later
├── ToolError            a tool call cannot be done as asked, here or at the daemon (confide_memory.errors)
└── UnfitAnswerError     the daemon's answer is not of the agreed form (confide_memory.errors)
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from confide_crypto.errors import (
    EXIT_CONFIG,
    EXIT_INPUT,
    EXIT_KEYS,
    EXIT_STORAGE,
    EXIT_UNREACHABLE,
    ConfideError,
    RequestError,
    printable,
)
from confide_memory.errors import ToolError as ToolError
from confide_memory.errors import UnfitAnswerError as UnfitAnswerError
from confide_memory.errors import with_extra

LATER: Final = frozenset({"busy", "unavailable", "storage_full", "cancelled", "locked"})
"""Codes of the daemon's refusals (PROTOCOL.md 7.2) that are about the moment, not about what was asked."""
FULL: Final = "storage_full"
"""One of them: of a disk, or of a space that holds all that it may. A tool's result says which (`NotNowError`)."""


class ConfigError(ConfideError):
    exit_code = EXIT_CONFIG

    def __init__(self, path: Path, problem: str, *, hint: str | None = None) -> None:
        super().__init__(f"{path} {problem}", hint=hint)


class NotNowError(RequestError):
    """The daemon cannot do a call now, and may later: one that changes something can wait on this machine, as with a broken link."""


def is_for_now(error: BaseException) -> bool:
    """Whether a refusal is about the moment, so that the call may wait; not where a space holds all that it may, as far as that shows."""
    is_request = isinstance(error, RequestError) and error.code in LATER and error.code != FULL
    return isinstance(error, NotNowError) or is_request


class KeyLockedError(ConfideError):
    exit_code = EXIT_KEYS

    def __init__(self) -> None:
        super().__init__("this device's key is locked", hint="run confide device key unlock")


class KeyringError(ConfideError):
    exit_code = EXIT_KEYS


class KeyChangeError(ConfideError):
    exit_code = EXIT_KEYS


class NotJoinedError(ConfideError):
    exit_code = EXIT_UNREACHABLE

    def __init__(
        self,
        problem: str = "this device has not joined a daemon, and on_demand is off",
        *,
        hint: str = "run confide join with an invite, or set on_demand = true",
    ) -> None:
        super().__init__(problem, hint=hint)


class NotSetUpError(NotJoinedError):
    """Nobody has set this machine up, or not as this program was started.

    `failed_join`: why the last attempt to join a daemon failed, where there was one; `elsewhere`: the places of this user's memories.
    """

    def __init__(self, failed_join: str | None = None, elsewhere: Sequence[str] = ()) -> None:
        hint = "confide quickstart for this device alone, or confide join with an invite to a server"
        if elsewhere:
            places = ", ".join(map(printable, elsewhere))
            problem = f"this program was started with variables that point to no memory; yours is in {places}"
            way = "start it with the same CONFIDE_HOME or XDG_DATA_HOME as your shell (confide setup writes them)"
            super().__init__(problem, hint=f"{way}; or begin another memory here: confide quickstart")
        elif failed_join is None:
            super().__init__("this device is not set up", hint=hint)
        else:
            tried = f"this device is not set up: the last confide join failed ({failed_join})"
            super().__init__(tried, hint=f"join again with a good invite; {hint}")


class DaemonStartError(ConfideError):
    exit_code = EXIT_UNREACHABLE

    def __init__(self, problem: str, *, log: Path | None = None) -> None:
        super().__init__(f"cannot start the daemon on this device: {problem}", hint=f"its log is {log}")


class DaemonMissingError(DaemonStartError):
    """The daemon's part is not installed on this machine, so that no waiting brings one."""

    def __init__(self, problem: str, *, log: Path | None = None) -> None:
        super().__init__(problem, log=log)
        # Its log, where there is one, says no more than this.
        self.hint = f"{with_extra('daemon')}; or use a daemon on another device: confide join"


class DaemonStartingError(DaemonStartError):
    def __init__(self) -> None:
        ConfideError.__init__(self, "the daemon is still starting")


class DaemonStopError(ConfideError):
    exit_code = EXIT_UNREACHABLE

    def __init__(self, pid: int, problem: str) -> None:
        hint = f"look at process {pid}, and end it by hand if it is confided: kill {pid}" if pid else None
        super().__init__(f"cannot stop the daemon on this device: {problem}", hint=hint)


class NotHereError(ConfideError):
    exit_code = EXIT_INPUT

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        place = f"{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/')}"
        super().__init__(
            f"this device has joined the daemon at {printable(place)}, which is not started or stopped from here",
            hint="on its machine: confided serve, or its service manager",
        )


class FolderError(ConfideError):
    exit_code = EXIT_INPUT

    def __init__(self, path: str, problem: str, *, hint: str | None = None) -> None:
        super().__init__(f"{path}: {problem}", hint=hint)
        self.path = path
        self.problem = problem


class ExportError(ConfideError):
    exit_code = EXIT_INPUT


class ExportStorageError(ExportError):
    exit_code = EXIT_STORAGE


class MoveError(ConfideError):
    """A space cannot be moved to another daemon, or not now."""

    exit_code = EXIT_INPUT


class ChangedMeanwhileError(FolderError):
    def __init__(self, path: str) -> None:
        super().__init__(path, "was changed meanwhile")


class DiskRefusalError(FolderError):
    """The disk is full, read-only or not ours; the file is as good as any other, and is tried again."""


class StateError(ConfideError):
    exit_code = EXIT_STORAGE

    def __init__(self, folder: Path, error: OSError) -> None:
        super().__init__(
            f"cannot use {folder}: {error.strerror or type(error).__name__}", hint="is the disk full, or read-only?"
        )


class JournalError(ConfideError):
    exit_code = EXIT_STORAGE


class OfflineError(ConfideError):
    exit_code = EXIT_UNREACHABLE


class SessionError(ConfideError):
    exit_code = EXIT_INPUT

    def __init__(self) -> None:
        super().__init__(
            "no transcript of that session is kept in this project",
            hint="its id is in the path that a search shows; --project names the folder where it began",
        )


class SetupError(ConfideError):
    exit_code = EXIT_INPUT


class SetupStorageError(SetupError):
    exit_code = EXIT_STORAGE


class BlockedError(ConfideError):
    exit_code = EXIT_INPUT

    def __init__(self, kind: str, line: int) -> None:
        super().__init__(
            f"line {line} holds what looks like a credential ({kind}), and your policy blocks those",
            hint="leave it out, or change [secrets] in proxy.toml: confide secrets scan shows what it is",
        )
        self.kind = kind
        self.line = line


TASK: Final = "task"
"""What is to be signed rather than sealed."""


class UnsealableError(ConfideError):
    exit_code = EXIT_INPUT

    def __init__(self, kind: str) -> None:
        if kind == "note":
            problem, hint = "the text is sensitive", "confide device ls shows why"
        elif kind == TASK:
            problem, hint = "a task is signed by a device of its space", "confide device ls shows why"
        else:
            problem = f"the text holds what looks like a credential ({kind})"
            hint = "confide device ls shows why; or leave the credential out"
        verb = "sign" if kind == TASK else "seal"
        super().__init__(f"{problem}, and this device cannot {verb} it yet", hint=hint)


class NoSecretError(ConfideError):
    exit_code = EXIT_INPUT


class SpaceKeysError(ConfideError):
    exit_code = EXIT_KEYS


class NotADeviceError(SpaceKeysError):
    def __init__(self, words: str, *, called: str = "", was_removed: bool = False, was_invited: bool = False) -> None:
        """`called`: what the daemon calls this machine."""
        name = shlex.quote(printable(called)) if called else "NAME"
        if was_removed:
            problem = "this device was removed from the devices of its space"
            hint = (
                "was that a mistake? give it a new key with confide device key rotate, and approve it on another device"
            )
        elif was_invited:
            problem = "the device that invited this one has not added it to the devices of the space yet"
            hint = "that device does it when it next connects: run confide status there"
        else:
            problem = "this device is not among the devices of its space yet"
            hint = f"on a device of the space, run confide device approve {name}, and type these words: {words}"
        super().__init__(problem, hint=hint)


class UnconfirmedError(SpaceKeysError):
    def __init__(self) -> None:
        super().__init__(
            "you have not confirmed on this device yet that the daemon shows the right space",
            hint="run confide device confirm, and type the words that confide device ls shows beside the change on another device",
        )


class AnotherSpaceError(SpaceKeysError):
    def __init__(self) -> None:
        super().__init__(
            "the daemon names another space for this device than before, so nothing is sealed here",
            hint="if the server's operator moved this device: confide device confirm; if not, do not go on",
        )


class UnshownError(ConfideError):
    exit_code = EXIT_STORAGE


class DeviceError(ConfideError):
    exit_code = EXIT_INPUT


class SpaceLockedError(SpaceKeysError):
    exit_code = EXIT_UNREACHABLE

    def __init__(self, why: ConfideError | None) -> None:
        hint = f"connect with a device that can; here, {why}" if why else "confide device ls shows them"
        super().__init__("this space is locked until one of its devices connects", hint=hint)


class InputError(ConfideError):
    exit_code = EXIT_INPUT


class DeclinedError(ConfideError):
    exit_code = EXIT_INPUT


class LearningError(ConfideError):
    exit_code = EXIT_INPUT


class EditorError(ConfideError):
    exit_code = EXIT_INPUT


class GatewayError(ConfideError):
    exit_code = EXIT_INPUT


class GatewayMissingError(GatewayError):
    """The libraries of `confide http serve` are not installed."""

    exit_code = EXIT_CONFIG

    def __init__(self) -> None:
        super().__init__(
            "confide http serve needs libraries that are not installed",
            hint=with_extra("gateway"),
        )


class RunnerError(ConfideError):
    exit_code = EXIT_INPUT


class RunnerMissingError(RunnerError):
    """The libraries of `confide task runner` are not installed."""

    exit_code = EXIT_CONFIG

    def __init__(self) -> None:
        super().__init__(
            "confide task runner needs libraries that are not installed",
            hint=with_extra("runner"),
        )


class SandboxError(RunnerError):
    exit_code = EXIT_CONFIG


class RepositoryError(RunnerError):
    pass


class TokenError(ConfideError):
    exit_code = EXIT_INPUT


class UnreadableError(ConfideError):
    exit_code = EXIT_INPUT

    def __init__(self, path: Path, problem: str, *, hint: str | None = None) -> None:
        super().__init__(f"cannot import {printable(str(path))}: it {problem}", hint=hint)
        self.problem = problem


class ReaderMissingError(ConfideError):
    exit_code = EXIT_INPUT

    def __init__(self, title: str, extra: str) -> None:
        super().__init__(
            f"reading a store of {title} needs a library that is not installed",
            hint=with_extra(extra),
        )
