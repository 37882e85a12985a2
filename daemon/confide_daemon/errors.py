"""What can go wrong in the daemon, each with the sentence a person reads and, where known, the way out.

    ConfideError                    (confide_crypto.errors: message, hint, code, exit_code)
    ├── StorageError                the disk or the database: wrong key, full, not writable, newer schema
    │   ├── DamagedError            a part of it cannot be read any more
    │   ├── WrongKeyError           a key that does not open a database
    │   ├── OvertakenError          a newer version has written what all nodes have in common: this one is to be upgraded
    │   ├── LogError                the log of a space in PostgreSQL is not what was written there
    │   └── EngineError             PostgreSQL, which holds the logs of the spaces, cannot be used now
    │       └── FencedError         another node holds the space
    ├── SpaceFullError              a space holds all that it may
    ├── CrowdedError                as many spaces are in use as may be open at once
    ├── LockedError                 a space whose key its machines keep, and none of them has brought it
    ├── ConflictError               a document that has another revision than the one that was to be changed
    ├── OperationError              an operation's id that was used for something else
    ├── EmbedderError               the embedding model cannot be loaded or gave unusable vectors
    │   ├── ProviderDownError       the provider does not answer well now: worth trying later
    │   └── QuotaError              the provider refuses until somebody acts: quota, key, model
    │       └── BudgetError         the budget of the month is used up: ours, not the provider's
    ├── VaultError                  the vault that keeps the sealed records cannot be used now
    ├── ConfigError                 daemon.toml: not readable, not TOML, unknown option, wrong value
    ├── DataFolderError             the data folder: not set up, or a part of it is missing
    ├── UpgradeNeededError          the data folder is of an older version, and nobody has said that it may be changed
    ├── TargetError                 the folder of the backups: not there, not writable, no room, another daemon's
    ├── SnapshotError               a snapshot that is not whole, was changed, or is of a newer version
    ├── HookError                   a program of the operator's that is run with a snapshot
    ├── RotationError               the daemon's key cannot be rotated or ended as asked
    ├── GrantError                  the caller has no grant for what it asks
    ├── ForgottenError              a name of which nothing is taken, since a person had it forgotten
    ├── TakenError                  a name or key that is to be enrolled is there already, or one that is meant is not
    ├── BadNameError                a name, a time, an address or a question in a command that is none; two projects that cannot be linked
    ├── ListenError                 the socket cannot be bound
    ├── DescriptorsError            the process may open too few files to serve anybody
    ├── AlreadyServedError          another process serves this data folder
    ├── NotServedError              no process serves it that could be asked
    └── NotFoundError, InvalidPathError, InvalidTextError, TooLargeError, ToolError
                                    (confide_memory.errors: what both ends raise about names, texts and tools)

None of them carries content, a query or a key. `code` is what a peer is answered (PROTOCOL.md 7.2), `exit_code` what a command ends with.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal

from confide_crypto.errors import (
    EXIT_CONFIG,
    EXIT_DENIED,
    EXIT_INPUT,
    EXIT_KEYS,
    EXIT_STORAGE,
    EXIT_UNREACHABLE,
    ConfideError,
)
from confide_memory.errors import InvalidPathError as InvalidPathError
from confide_memory.errors import InvalidTextError as InvalidTextError
from confide_memory.errors import NotFoundError as NotFoundError
from confide_memory.errors import TooLargeError as TooLargeError
from confide_memory.errors import ToolError as ToolError

EXIT_UNPROVEN: Final = 10
"""Of `confided backup verify`: all of it is whole, and some of it could not be opened, since nobody had the key."""


class StorageError(ConfideError):
    code = "storage_full"
    exit_code = EXIT_STORAGE


class DamagedError(StorageError):
    """A part of a database cannot be read any more; what is derived is rebuilt, a document's text may be lost."""


class WrongKeyError(StorageError):
    """The key is not the one that the database was written with, or the file is no database."""


class OvertakenError(StorageError):
    """A newer version of Confide has written the registry that all nodes have in common, which this one cannot read any more."""


class LogError(StorageError):
    """The log of a space is not what was written there, or fits nothing that is here."""


class EngineError(StorageError):
    """PostgreSQL, which holds the logs of the spaces, cannot be used now; whoever has asked may ask again."""

    code = "unavailable"
    exit_code = EXIT_UNREACHABLE


class FencedError(EngineError):
    """Another node holds the space, or has taken it: nothing of what was asked is stored."""


class SpaceFullError(ConfideError):
    """A space holds as much as the daemon's operator lets one hold; what waits on a machine goes on waiting, as with a full disk.

    `option`: of `[quota]` in daemon.toml, which says how much.
    """

    code = "storage_full"
    exit_code = EXIT_STORAGE

    def __init__(self, held: str, option: str) -> None:
        super().__init__(
            f"this space is full: {held}, and may have no more",
            hint=f"whoever runs the daemon can raise {option} under [quota] in daemon.toml; deleting works as ever",
        )


class LockedError(ConfideError):
    code = "locked"
    exit_code = EXIT_KEYS

    def __init__(self, hint: str | None = None) -> None:
        super().__init__(
            "this space is locked until one of its devices connects",
            hint=hint or "connect with a machine that is among its devices; a new one is approved on one of them first",
        )


class CrowdedError(ConfideError):
    code = "busy"
    exit_code = EXIT_UNREACHABLE

    def __init__(self, count: int) -> None:
        super().__init__(
            f"cannot open the space: {count} others are in use, and no more may be open at once",
            hint="try again in a moment; whoever runs the daemon allows more with max_open_spaces in daemon.toml",
        )


class OperationError(ConfideError):
    code = "conflict"
    exit_code = EXIT_INPUT

    def __init__(self) -> None:
        super().__init__(
            "this operation's id was used for another change before, so this one was not made",
            hint="send it again under a new id",
        )


class ConflictError(ConfideError):
    code = "conflict"
    exit_code = EXIT_INPUT

    def __init__(self, expected: int, found: int) -> None:
        problem = f"the document is at revision {found}, not at {expected}"
        hint = f"read it again and repeat the change with expectedRevision {found}"
        if not expected:
            problem = f"there is such a document already, at revision {found}"
        elif not found:
            problem = f"there is no such document, at revision {expected} or another"
            hint = "it may have been deleted meanwhile"
        super().__init__(problem, hint=hint)


class EmbedderError(ConfideError):
    """The embedding model cannot be loaded, or gave vectors that cannot be used."""


class ProviderDownError(EmbedderError):
    """The embedding provider cannot be reached, is overloaded or answers nonsense: worth trying again later.

    Attributes:
        retry_after_s: how long it asked to be left alone (Retry-After, RFC 9110 10.2.3), None where it did not say.
    """

    exit_code = EXIT_UNREACHABLE

    def __init__(self, message: str, *, hint: str | None = None, retry_after_s: float | None = None) -> None:
        super().__init__(message, hint=hint)
        self.retry_after_s = retry_after_s


class QuotaError(EmbedderError):
    """The embedding provider refuses until somebody acts: the quota is exhausted, the key is refused, the model is unknown.

    Trying again by itself is useless, and may cost; nothing does.
    """

    exit_code = EXIT_CONFIG


class BudgetError(QuotaError):
    """The tokens that one space may have embedded in a month are used up; `month` is which, such as 2026-11."""

    def __init__(self, provider: str, limit: int, month: str) -> None:
        super().__init__(
            f"the budget of {limit:,} tokens with {provider} is used up for {month}",
            hint=f"it goes on next month, or with a larger monthly_tokens of {provider} in daemon.toml",
        )
        self.month = month


class VaultError(ConfideError):
    exit_code = EXIT_UNREACHABLE


class ConfigError(ConfideError):
    exit_code = EXIT_CONFIG

    def __init__(self, path: Path, problem: str, *, hint: str | None = None) -> None:
        super().__init__(f"the configuration {path} {problem}", hint=hint)


class DataFolderError(ConfideError):
    exit_code = EXIT_KEYS

    def __init__(self, path: Path, problem: str, *, hint: str | None = None) -> None:
        super().__init__(f"the data folder {path} {problem}", hint=hint)


class UpgradeNeededError(ConfideError):
    """The data folder is of an older version, and is left as it is until the daemon of this one is started."""

    exit_code = EXIT_CONFIG

    def __init__(self, path: Path, written_by: str, this: str, *, hint: str | None = None) -> None:
        super().__init__(
            f"the data folder {path} was written by confided {written_by}; this is {this}",
            hint=hint or "confided serve upgrades it when it starts; what that does says: confided upgrade --check",
        )


class TargetError(ConfideError):
    exit_code = EXIT_STORAGE

    def __init__(self, folder: Path, problem: str, *, hint: str | None = None) -> None:
        super().__init__(f"the backup folder {folder} {problem}", hint=hint)


class SnapshotError(ConfideError):
    exit_code = EXIT_STORAGE

    def __init__(
        self,
        name: str,
        problem: str,
        *,
        hint: str | None = None,
        kind: Literal["changed", "missing", "newer"] = "changed",
    ) -> None:
        super().__init__(f"the snapshot {name} {problem}", hint=hint)
        self.problem = problem
        self.kind = kind


class HookError(ConfideError):
    """A program of the operator's, run with a snapshot, has failed."""

    def __init__(self, program: str, problem: str) -> None:
        super().__init__(
            f"the program {program} of [backup] in daemon.toml {problem}",
            hint="what it has printed is in the daemon's log: confided status --log",
        )


class RotationError(ConfideError):
    exit_code = EXIT_KEYS


class GrantError(ConfideError):
    code = "denied"
    exit_code = EXIT_DENIED


class ForgottenError(ConfideError):
    code = "denied"
    exit_code = EXIT_DENIED

    def __init__(self) -> None:
        super().__init__(
            "a person had this name forgotten, so nothing is stored under it",
            hint="store it under another name; confide rm --erase --undo takes the name again",
        )


class TakenError(ConfideError):
    code = "conflict"
    exit_code = EXIT_INPUT


class BadNameError(ConfideError):
    code = "invalid"
    exit_code = EXIT_INPUT


class ListenError(ConfideError):
    exit_code = EXIT_UNREACHABLE

    def __init__(self, address: str, problem: str, *, hint: str | None = None) -> None:
        super().__init__(f"cannot listen on {address}: {problem}", hint=hint)


class DescriptorsError(ConfideError):
    exit_code = EXIT_CONFIG

    def __init__(self, allowed: int, needed: int) -> None:
        super().__init__(
            f"cannot serve: this process may open {allowed} files, and {needed} are the least it needs",
            hint=f"raise the hard limit to {max(8192, needed)} or more: ulimit -Hn as root, or LimitNOFILE= in its systemd unit",
        )


class AlreadyServedError(ConfideError):
    exit_code = EXIT_UNREACHABLE

    def __init__(self, folder: Path) -> None:
        super().__init__(
            f"another confided serves {folder}", hint="stop it first, or choose another folder with --data"
        )


class NotServedError(ConfideError):
    """A command has something to ask of the daemon that runs; `problem`: why nobody answers, if one does run."""

    exit_code = EXIT_UNREACHABLE

    def __init__(self, folder: Path, problem: str = "it is not running", *, hint: str | None = None) -> None:
        super().__init__(f"cannot ask the daemon of {folder}: {problem}", hint=hint or "start it with: confided serve")
