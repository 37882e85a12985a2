"""The proxy's errors, with messages for users.

ConfideError (confide_crypto.errors)
├── ConfigError          the configuration file
├── KeyLockedError       this device's key is sealed with a passphrase, and locked
├── KeyringError         the operating system's keyring cannot be used, or does not answer
├── KeyChangeError       this device's key cannot be moved, imported or rotated now
├── NotJoinedError       no daemon was joined and none may be started
│   └── NotSetUpError        this device is not set up yet
├── DaemonStartError     the daemon on this device did not start
│   ├── DaemonMissingError   it is not installed
│   └── DaemonStartingError  it is still starting, and the caller does not wait
├── DaemonStopError      the daemon on this device does not end, or cannot be asked to
├── NotHereError         the joined daemon runs on another computer
├── FolderError          a path that Confide may not read or write
│   ├── ChangedMeanwhileError    the file was changed after it was read
│   └── DiskRefusalError         the disk is full or read-only, or the user may not write
├── StateError           the proxy's own files cannot be read or written
├── JournalError         the queue of calls for the daemon cannot be written or read
├── OfflineError         this device cannot answer without the daemon
├── SessionError         the project has no transcript of that session
├── SetupError           a client's configuration file that cannot be merged into
│   └── SetupStorageError    the disk refuses the write
├── BlockedError         a text contains a credential, and the policy blocks it
├── UnsealableError      a text contains a credential, and this device has no keys to seal it
├── NoSecretError        no such sealed secret exists
├── UnshownError         a new recovery code could not be shown
├── DeviceError          no such device exists, or the user did not confirm
├── SpaceKeysError       this device does not have the keys of its space
│   ├── NotADeviceError      no device of the space has added it yet, or one has removed it
│   ├── UnconfirmedError     no user has compared the space's words on it
│   ├── AnotherSpaceError    the daemon names another space than before, unconfirmed by a user
│   └── SpaceLockedError     the daemon needs a key that this device cannot provide
├── UnreadableError      a store of another system, or a file of memories, that cannot be imported
├── InputError           what a command is given, or asked for, is not acceptable
├── DeclinedError        the user did not confirm a change that cannot be undone
├── EditorError          no editor is set, or it cannot be run
├── LibrariesMissingError    a command requires libraries that are not installed
├── NotRunError          a command that `confide run` cannot start
├── RunRefusedError      a secret may not be used for a command
├── RequestError         the daemon's error response to a request (confide_crypto.errors)
│   └── NotNowError          a temporary failure of a tool: the same call may succeed later
├── ToolError            a tool call that fails, here or on the daemon (confide_memory.errors)
└── UnfitAnswerError     the daemon's response violates the protocol (confide_memory.errors)
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Final

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
"""Codes of the daemon's temporary refusals (PROTOCOL.md 7.2): a repeated request may succeed."""
FULL: Final = "storage_full"
"""The one of these codes that means a full disk or a space at its limit. The tool's result says
which of the two (`NotNowError`).
"""


class ConfigError(ConfideError):
    exit_code = EXIT_CONFIG

    def __init__(self, path: Path, problem: str, *, hint: str | None = None) -> None:
        super().__init__(f"{path} {problem}", hint=hint)


class NotNowError(RequestError):
    """The daemon cannot run a call now, but may later. A call that changes something can be queued
    on this device, as with a broken link.
    """


def is_for_now(error: BaseException) -> bool:
    """Return True if the daemon's refusal of a call is temporary, so that the call may be queued.

    A space that has reached its size limit does not count as temporary.
    """
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
    """This device is not set up, or not for the environment variables that this program was started
    with.

    Attributes:
        failed_join: why the last attempt to join a daemon failed; None without one.
        elsewhere: the folders of this user's other memories.
        unwritable: a folder that is not writable, so that nothing can be set up below it; None
            without one.
    """

    def __init__(
        self, failed_join: str | None = None, elsewhere: Sequence[str] = (), unwritable: str | None = None
    ) -> None:
        hint = "confide quickstart for this device alone, or confide join with an invite to a server"
        if elsewhere:
            places = ", ".join(map(printable, elsewhere))
            problem = f"this program was started with variables that point to no memory; yours is in {places}"
            way = "start it with the same CONFIDE_HOME or XDG_DATA_HOME as your shell (confide setup writes them)"
            super().__init__(problem, hint=f"{way}; or begin another memory here: confide quickstart")
        elif unwritable is not None:
            problem = f"this device is not set up, and {printable(unwritable)} cannot be written to"
            way = "is the disk read-only, or another user's? Make it writable, or set CONFIDE_HOME to a folder of yours"
            super().__init__(problem, hint=f"{way}; then confide quickstart")
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
    """The daemon's package is not installed on this device, so waiting for a daemon is useless."""

    def __init__(self, problem: str, *, log: Path | None = None) -> None:
        super().__init__(problem, log=log)
        # The daemon's log, if it exists, says no more than this.
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
        host, slash, path = url.partition("://")[2].partition("?")[0].partition("/")
        place = f"{host.rpartition('@')[2]}{slash}{path}".rstrip("/")
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


class ChangedMeanwhileError(FolderError):
    def __init__(self, path: str) -> None:
        super().__init__(path, "was changed meanwhile")


class DiskRefusalError(FolderError):
    """The disk is full, read-only or not writable for this user. The file itself is fine; the
    operation is tried again.
    """


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
"""The kind of text that needs a signature instead of sealing."""


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
        """`called`: the daemon's name for this device."""
        name = shlex.quote(printable(called)) if called else "NAME"
        if was_removed:
            problem = "this device was removed from the devices of its space"
            hint = (
                "was that a mistake? give it a new key with confide device key rotate, and approve it on another device"
            )
        elif was_invited:
            problem = "the device that invited this one has not added it to the devices of the space yet"
            hint = (
                "that device does it when it next connects: run confide status there. Once the invite has expired, "
                f"run confide device approve {name} on a device of the space, and type these words: {words}"
            )
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
        hint = "confide device ls shows them"
        if why is not None:
            way_out = f": {why.hint}" if why.hint else ""
            hint = f"connect with a device that can; here, {why}{way_out}"
        super().__init__("this space is locked until one of its devices connects", hint=hint)


class InputError(ConfideError):
    exit_code = EXIT_INPUT


class DeclinedError(ConfideError):
    exit_code = EXIT_INPUT


class EditorError(ConfideError):
    exit_code = EXIT_INPUT


class LibrariesMissingError(ConfideError):
    exit_code = EXIT_CONFIG

    def __init__(self, command: str, extra: str) -> None:
        """`extra`: the one of this package that installs them."""
        super().__init__(f"{command} needs libraries that are not installed", hint=with_extra(extra))


class NotRunError(ConfideError):
    """`confide run` cannot start the command; `exit_code` is the one that a shell would return."""

    def __init__(self, exit_code: int, problem: str, *, hint: str | None = None) -> None:
        super().__init__(problem, hint=hint)
        self.exit_code = exit_code


class RunRefusedError(ConfideError):
    """The policy or the user does not allow a command to use a secret."""

    exit_code = EXIT_INPUT


class UnreadableError(ConfideError):
    exit_code = EXIT_INPUT

    def __init__(self, path: Path, problem: str, *, hint: str | None = None) -> None:
        super().__init__(f"cannot import {printable(str(path))}: it {problem}", hint=hint)
        self.problem = problem
