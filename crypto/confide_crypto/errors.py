"""What can go wrong between the two ends, as a person is told it.

    ConfideError
    ├── KeyFileError           a key file, or the folder around it, is loose, foreign or damaged
    ├── PassphraseError        a passphrase does not open the key, or cannot be used
    ├── KeyTextError           a pasted public key or pin is not one
    ├── InviteError            a pasted invite is not one
    ├── HandshakeError         the channel could not be set up
    │   ├── WrongDaemonKey     the endpoint does not hold the pinned key
    │   └── BusyError          too many handshakes at once
    ├── DeniedError            the daemon knows who we are and says no
    ├── RequestError           the peer answered a request with an error
    ├── LinkError
    │   ├── UnreachableError   no websocket could be opened
    │   ├── ConnectionLost     the websocket ended; `truncated` tells whether anything may be missing
    │   └── ProtocolViolation  the peer broke the protocol
    └── SealingError           something about sealed secrets (PROTOCOL.md 10) is not as it must be
        ├── RecordError        a sealed record is not one, or was changed
        │   └── WrongKeyError  it was sealed under another key than the space's
        ├── UnknownEpochError  the key of that epoch is not here
        ├── WrapError          a wrapped key does not open, or a wrap key cannot be used
        ├── RosterError        the list of a space's devices cannot be believed; its kinds say why
        ├── OrderError         an order of a task is not one, or is signed by nobody who may
        ├── PairingError       a machine that would join does not hold the pair secret
        └── RecoveryCodeError  a recovery code, typed by a person, is not one

None of them carries a key, a secret or a code. What *we* did wrong (sending on a closed channel, a payload over the limit) is a
`ConfideError` of none of these, or a built-in error.

Exit codes of both programs, in this one place:

    0 ok   1 other   2 usage   3 configuration   4 keys and permissions   5 unreachable
    6 denied, invite, wrong daemon   7 bad input   8 storage (disk full, not writable)
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

EXIT_OK: Final = 0
EXIT_OTHER: Final = 1
EXIT_USAGE: Final = 2
EXIT_CONFIG: Final = 3
EXIT_KEYS: Final = 4
EXIT_UNREACHABLE: Final = 5
EXIT_DENIED: Final = 6
EXIT_INPUT: Final = 7
EXIT_STORAGE: Final = 8


def printable(text: str) -> str:
    """A peer's word or sentence as it may be shown: one line, and nothing in it that steers a terminal or cannot be written."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def where(error: BaseException) -> str:
    """Class and place of an error, and no word of its text, which may quote anything."""
    trace = error.__traceback__ or sys.exc_info()[2]
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return type(error).__name__
    file = Path(trace.tb_frame.f_code.co_filename)
    return f"{type(error).__name__} at {file.parent.name}/{file.name}:{trace.tb_lineno}"


class ConfideError(Exception):
    """The root of what Confide raises on purpose.

    Attributes:
        message: one sentence: what failed, then why.
        hint: what the reader could do about it, or None.
        code: the answer's to a request that ends with this error (PROTOCOL.md 7.2).
        exit_code: what a command that ends with this error returns.
    """

    code: str = "unavailable"
    exit_code: int = EXIT_OTHER

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message

    @property
    def with_hint(self) -> str:
        """The sentence, and the hint in a line below it, where there is one."""
        return f"{self}\nhint: {self.hint}" if self.hint else str(self)

    @property
    def in_one_line(self) -> str:
        """The sentence, and the hint behind it, where there is one."""
        return f"{self}; {self.hint}" if self.hint else str(self)


class KeyFileError(ConfideError):
    exit_code = EXIT_KEYS

    def __init__(self, path: Path, problem: str, *, hint: str | None = None) -> None:
        super().__init__(f"{path} {problem}", hint=hint)
        self.path = path
        self.problem = problem


class PassphraseError(ConfideError):
    exit_code = EXIT_KEYS


class KeyTextError(ConfideError):
    exit_code = EXIT_INPUT


class InviteError(ConfideError):
    """An invite, pasted by a person, is not one. Never carries the text: it is a secret."""

    exit_code = EXIT_DENIED


class HandshakeError(ConfideError):
    """The channel could not be set up. Says never which check failed (PROTOCOL.md 4.6)."""

    exit_code = EXIT_DENIED


class WrongDaemonKey(HandshakeError):  # noqa: N818 - reads as the event it is, as in websockets' ConnectionClosed
    def __init__(self, where: str) -> None:
        super().__init__(
            f"cannot open the channel to {where}: this endpoint does not hold the pinned key",
            hint="another daemon, or somebody in between, answers there, or its key was rotated while this machine was away, "
            "or its data folder was put back from before that; check the address, or join again with a new invite",
        )
        self.where = where


class BusyError(HandshakeError):
    def __init__(self) -> None:
        super().__init__("too many handshakes at once", hint="try again in a few seconds")


_DENIALS: Final = {
    "unknown": ("this machine's key is not enrolled", "join with an invite, or add the key on the daemon's side"),
    "revoked": ("this machine's key was revoked", "ask the daemon's owner for a new invite"),
    "disabled": ("this machine's key waits for approval", "the daemon's owner has to compare the words and approve it"),
    "expired": ("this machine's access has expired", "ask the daemon's owner for more time"),
    "invite": (
        "the invite was not accepted: it is used, expired or unknown",
        "ask for a new invite: confided invite <name>",
    ),
    "busy": ("the daemon lets no connection of this machine in now", "close other sessions, or try again later"),
}


class DeniedError(ConfideError):
    """The daemon refuses a caller that proved its key.

    Attributes:
        reason: one of "unknown", "revoked", "disabled", "expired", "invite", "busy", or a newer daemon's word.
        fingerprint: the caller's six words (PROTOCOL.md 2.4), "" where not known.
    """

    exit_code = EXIT_DENIED

    def __init__(self, reason: str, fingerprint: str = "", *, hint: str | None = None) -> None:
        sentence, usual_hint = _DENIALS.get(reason, (f"the daemon denies this machine ({reason})", None))
        if fingerprint:
            sentence += f": fingerprint {fingerprint}"
        super().__init__(sentence, hint=hint or usual_hint)
        self.reason = reason
        self.fingerprint = fingerprint


_CODE_EXITS: Final = {
    "invalid": EXIT_INPUT,
    "not_found": EXIT_INPUT,
    "too_large": EXIT_INPUT,
    "conflict": EXIT_INPUT,
    "denied": EXIT_DENIED,
    "locked": EXIT_KEYS,
    "storage_full": EXIT_STORAGE,
    "unavailable": EXIT_UNREACHABLE,
    "busy": EXIT_UNREACHABLE,
}


class RequestError(ConfideError):
    """The answer to a request is an error. Raised by a handler too, to be sent as the answer.

    `code`: not_found, invalid, too_large, conflict, busy, denied, locked, storage_full, cancelled, unavailable or internal.
    """

    def __init__(self, code: str, message: str, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.code = code
        self.exit_code = _CODE_EXITS.get(code, EXIT_OTHER)

    @classmethod
    def of(cls, error: ConfideError) -> RequestError:
        """The answer for an error: its code, which the peer acts on, and its sentence for a person."""
        return error if isinstance(error, RequestError) else cls(error.code, str(error), error.hint)


class LinkError(ConfideError):
    exit_code = EXIT_UNREACHABLE


class UnreachableError(LinkError):
    """No websocket could be opened at `where`; `problem` says why: refused, no such name, timed out, tls."""

    def __init__(self, where: str, problem: str, *, hint: str | None = None) -> None:
        super().__init__(f"cannot reach the daemon at {where}: {problem}", hint=hint)
        self.where = where
        self.problem = problem


class ConnectionLost(LinkError):  # noqa: N818 - reads as the event it is, as in websockets' ConnectionClosed
    """The connection ended. `truncated`: it broke without the peer's CLOSE, so what was under way is not complete (PROTOCOL.md 7.6)."""

    def __init__(self, *, truncated: bool, problem: str | None = None) -> None:
        usual = "it broke off without a goodbye" if truncated else "it was closed"
        super().__init__(f"lost the connection: {problem or usual}")
        self.truncated = truncated


class ProtocolViolation(LinkError):  # noqa: N818 - reads as the event it is, as in websockets' ConnectionClosed
    """The peer sent what the protocol forbids, or somebody tampered. The channel is dead."""

    exit_code = EXIT_OTHER


class SealingError(ConfideError):
    exit_code = EXIT_KEYS


class RecordError(SealingError):
    """A sealed record is not one, or was changed."""


class WrongKeyError(RecordError):
    """A record's key commitment is not of the key that it was to be opened with."""


class UnknownEpochError(SealingError):
    def __init__(self, epoch: int) -> None:
        hint = "this machine has not seen the newest list of devices, or is not on it"
        super().__init__(f"the key of epoch {epoch} is not here", hint=hint)
        self.epoch = epoch


class WrapError(SealingError):
    """A wrapped key does not open, or a wrap key cannot be used."""


class RosterError(SealingError):
    """The list of a space's devices cannot be believed. Nothing of what was known changes."""


class MalformedEntryError(RosterError):
    """Bytes that are no roster entry."""


class ForeignEntryError(RosterError):
    """An entry of another space."""


class ReplayedEntryError(RosterError):
    """An entry that is known already."""


class MissingEntryError(RosterError):
    """An entry whose predecessor is not there."""


class ForkedRosterError(RosterError):
    """Another history than the one that this machine has seen."""


class WithheldRosterError(RosterError):
    """A history that ends before what this machine has seen."""


class UnknownSignerError(RosterError):
    """An entry signed by a key that never was a device of the space."""


class RemovedSignerError(RosterError):
    """An entry signed by a device that had been removed."""


class BadSignatureError(RosterError):
    """A signature that is not of the key that it names."""


class WrongDeviceError(RosterError):
    """A device that cannot be added or removed."""


class WrongEpochError(RosterError):
    """An entry that carries keys of other epochs than it must."""


class WrongWrapsError(RosterError):
    """An entry that carries keys for other devices than it must, or in another order."""


class OversizedRosterError(RosterError):
    """More devices, entries, epochs or bytes than a roster may have."""


class OrderError(SealingError):
    """An order of a task (PROTOCOL.md 11) is not followed."""

    code = "invalid"


class OrderSignerError(OrderError):
    """Nobody who may order anything has signed it: never a device of the space, or one that was removed."""


class OrderSignatureError(OrderError):
    """It is not what its signer has signed, or is of another space."""


class PairingError(SealingError):
    """What came does not show that its sender holds the pair secret."""


class RecoveryCodeError(SealingError):
    """A recovery code, typed by a person, is not one. Never carries the text: it is a secret."""

    exit_code = EXIT_INPUT
