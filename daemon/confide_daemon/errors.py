"""Errors of the daemon, each with a sentence for people and, where known, the way out.

    ConfideError                    (confide_crypto.errors: message, hint, code, exit_code)
    ├── StorageError                the disk or the database: wrong key, full, not writable, newer schema
    │   ├── DamagedError            a part of it is unreadable
    │   ├── WrongKeyError           a key that does not open a database
    │   ├── OvertakenError          a newer version wrote the registry shared by all nodes: upgrade this one
    │   └── EngineError             PostgreSQL, which holds the logs of the spaces, is unavailable
    │       └── FencedError         another node holds the space
    ├── SpaceFullError              a space has reached its quota
    ├── CrowdedError                the limit on open spaces is reached
    ├── LockedError                 a space whose key its devices keep, and none has unlocked it
    ├── ConflictError               a document has another revision than the change expects
    ├── OperationError              an operation's id was used for another change
    ├── EmbedderError               the embedding model cannot be loaded or gave unusable vectors
    │   ├── ProviderDownError       the provider is failing: retry later
    │   └── QuotaError              the provider refuses until a person acts: quota, key, model
    │       └── BudgetError         the budget of the month is used up: ours, not the provider's
    ├── VaultError                  the vault that keeps the sealed records is unavailable
    ├── ConfigError                 daemon.toml: not readable, not TOML, unknown option, wrong value
    ├── DataFolderError             the data folder: not set up, or a part of it is missing
    ├── UpgradeNeededError          the data folder is of an older version, and its upgrade is not approved
    ├── RotationError               the daemon's key cannot be rotated or ended as asked
    ├── GrantError                  the caller has no grant for its request
    ├── ForgottenError              a person had this name or text forgotten
    ├── TakenError                  a name or key is enrolled already, or a given one is not
    ├── BadNameError                an invalid name, time, address or query in a command; a link of projects that is not possible
    ├── ListenError                 the socket cannot be bound
    ├── DescriptorsError            the limit of open files is too low to serve
    ├── AlreadyServedError          another process serves this data folder
    ├── NotServedError              no process serves this data folder
    └── NotFoundError, InvalidPathError, InvalidTextError, TooLargeError, ToolError
                                    (confide_memory.errors: errors of both ends about names, texts and tools)

None of them carries content, a query or a key. `code` goes to the peer (PROTOCOL.md 7.2); a command
ends with `exit_code`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

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
"""Exit code of `confided backup verify` if all is intact but some of it could not be opened for
lack of a key.
"""


class StorageError(ConfideError):
    code = "storage_full"
    exit_code = EXIT_STORAGE


class DamagedError(StorageError):
    """A part of a database is unreadable. Derived data can be rebuilt; the text of a document may
    be lost.
    """


class WrongKeyError(StorageError):
    """The key does not open the database, or the file is not a database."""


class OvertakenError(StorageError):
    """A newer version of Confide wrote the registry that all nodes share, and this version cannot
    read it any more.
    """


class EngineError(StorageError):
    """PostgreSQL, which holds the logs of the spaces, is unavailable; a retry may succeed."""

    code = "unavailable"
    exit_code = EXIT_UNREACHABLE


class FencedError(EngineError):
    """Another node holds or has taken over the space. Nothing of the request was stored."""


class SpaceFullError(ConfideError):
    """A space has reached its quota. As with a full disk, changes wait on their device until there
    is room.

    `option` is the name of the limit in the table `[quota]` of daemon.toml.
    """

    code = "storage_full"
    exit_code = EXIT_STORAGE

    def __init__(self, held: str, option: str) -> None:
        super().__init__(
            f"this space is full: {held}, and may have no more",
            hint=f"the daemon's operator can raise {option} under [quota] in daemon.toml; deleting works as ever",
        )


class LockedError(ConfideError):
    code = "locked"
    exit_code = EXIT_KEYS

    def __init__(self, hint: str | None = None) -> None:
        super().__init__(
            "this space is locked until one of its devices connects",
            hint=hint or "connect with a device that is among its devices; a new one is approved on one of them first",
        )


class CrowdedError(ConfideError):
    code = "busy"
    exit_code = EXIT_UNREACHABLE

    def __init__(self, count: int) -> None:
        super().__init__(
            f"cannot open the space: {count} others are in use, and no more may be open at once",
            hint="try again in a moment; the daemon's operator allows more with max_open_spaces in daemon.toml",
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
    """The embedding model cannot be loaded, or returned unusable embeddings."""


class ProviderDownError(EmbedderError):
    """The embedding provider is unreachable, overloaded or returns invalid responses. A later retry
    may succeed.

    Attributes:
        retry_after_s: the seconds to wait that the provider requested (Retry-After, RFC 9110
            10.2.3), or None.
    """

    exit_code = EXIT_UNREACHABLE

    def __init__(self, message: str, *, hint: str | None = None, retry_after_s: float | None = None) -> None:
        super().__init__(message, hint=hint)
        self.retry_after_s = retry_after_s


class QuotaError(EmbedderError):
    """The embedding provider refuses until a person acts, because the quota is exhausted, the key
    is refused, or the model is unknown.

    Confide never retries by itself then: that could not succeed, and might cost money.
    """

    exit_code = EXIT_CONFIG


class BudgetError(QuotaError):
    """A space has used up its monthly budget of embedding tokens; `month` is that month, such as
    2026-11.
    """

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
    """The data folder was written by an older version. It stays unchanged until this version's
    daemon starts and upgrades it.
    """

    exit_code = EXIT_CONFIG

    def __init__(self, path: Path, written_by: str, this: str, *, hint: str | None = None) -> None:
        super().__init__(
            f"the data folder {path} was written by confided {written_by}; this is {this}",
            hint=hint or "confided serve upgrades it when it starts; what that does says: confided upgrade --check",
        )


class RotationError(ConfideError):
    exit_code = EXIT_KEYS


class GrantError(ConfideError):
    code = "denied"
    exit_code = EXIT_DENIED


class ForgottenError(ConfideError):
    code = "denied"
    exit_code = EXIT_DENIED

    def __init__(self, *, of_text: bool = False) -> None:
        """`of_text`: the text was forgotten, and not the name."""
        if of_text:
            hint = "remove that part; to keep it after all: confide forget --undo --text -"
            super().__init__("a person had a part of this text forgotten, so it is not stored again", hint=hint)
            return
        hint = "store it under another name; confide forget --undo takes the name again"
        super().__init__("a person had this name forgotten, so nothing is stored under it", hint=hint)


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
    """A command needs the running daemon, and none answers. If one is running, `problem` says why
    it does not answer.
    """

    exit_code = EXIT_UNREACHABLE

    def __init__(self, folder: Path, problem: str = "it is not running", *, hint: str | None = None) -> None:
        super().__init__(f"cannot ask the daemon of {folder}: {problem}", hint=hint or "start it with: confided serve")
