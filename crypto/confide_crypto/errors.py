"""Errors of both ends, with the messages that users read.

    ConfideError
    ├── KeyFileError           a key file or its folder is damaged, or open to other users
    ├── PassphraseError        a passphrase does not open the key, or cannot be used
    ├── KeyTextError           a pasted text is not a public key or a pin
    ├── InviteError            a pasted text is not an invite
    ├── HandshakeError         the channel could not be set up
    │   ├── WrongDaemonKey     the endpoint does not hold the pinned key
    │   └── BusyError          too many handshakes at once
    ├── DeniedError            the daemon authenticated the device and refuses it
    ├── RequestError           the peer answered a request with an error
    ├── LinkError
    │   ├── UnreachableError   no websocket could be opened
    │   ├── ConnectionLost     the websocket ended; `truncated` says if data may be missing
    │   └── ProtocolViolation  the peer broke the protocol
    └── SealingError           an error in sealed secrets (PROTOCOL.md 10)
        ├── RecordError        a sealed record is malformed, or was changed
        │   └── WrongKeyError  a record is not sealed under the space's key
        ├── UnknownEpochError  this device does not have the key of that epoch
        ├── WrapError          a wrapped key does not open, or a wrap key cannot be used
        ├── RosterError        the list of a space's devices fails a check; subclasses say which
        ├── OrderError         an order of a task is malformed, or its signer may not give orders
        ├── PairingError       a device that wants to join does not hold the pair secret
        └── RecoveryCodeError  a typed text is not a recovery code

No error carries a key, a secret or a code. A mistake of the local program (sending on a closed
channel, a payload over the limit) raises a plain `ConfideError` or a built-in error.

Exit codes of both programs:

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
    """Return a text from the peer as one line that is safe to print. "?" replaces each character
    that could control a terminal or cannot be encoded.
    """
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def where(error: BaseException) -> str:
    """Return the class and the source line of an error, but not its message, which may quote
    private content.
    """
    trace = error.__traceback__ or sys.exc_info()[2]
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return type(error).__name__
    file = Path(trace.tb_frame.f_code.co_filename)
    return f"{type(error).__name__} at {file.parent.name}/{file.name}:{trace.tb_lineno}"


class ConfideError(Exception):
    """Base class of the errors that Confide raises on purpose.

    Attributes:
        message: one sentence: what failed, then why.
        hint: what the reader can do about it, or None.
        code: error code of the answer if this error ends a request (PROTOCOL.md 7.2).
        exit_code: exit code of a command that ends with this error.
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
        """The message, followed by the hint on a line of its own if there is one."""
        return f"{self}\nhint: {self.hint}" if self.hint else str(self)

    @property
    def in_one_line(self) -> str:
        """The message, followed by the hint on the same line if there is one."""
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
    """A pasted text that is not an invite. The error never contains the text, which is a secret."""

    exit_code = EXIT_DENIED


class HandshakeError(ConfideError):
    """A failed handshake. The message does not reveal which check failed (PROTOCOL.md 4.6)."""

    exit_code = EXIT_DENIED


class WrongDaemonKey(HandshakeError):  # noqa: N818 - reads as the event it is, as in websockets' ConnectionClosed
    def __init__(self, where: str) -> None:
        super().__init__(
            f"cannot open the channel to {where}: this endpoint does not hold the pinned key",
            hint="another daemon, or an attacker in between, answers there, or its key was rotated while this device was away, "
            "or its data folder was put back from before that; check the address, or join again with a new invite",
        )
        self.where = where


class BusyError(HandshakeError):
    def __init__(self) -> None:
        super().__init__("too many handshakes at once", hint="try again in a few seconds")


_DENIALS: Final = {
    "unknown": ("this device's key is not enrolled", "join with an invite, or add the key on the daemon's side"),
    "revoked": ("this device's key was revoked", "ask the daemon's owner for a new invite"),
    "disabled": ("this device's key waits for approval", "the daemon's owner has to compare the words and approve it"),
    "expired": ("this device's access has expired", "ask the daemon's owner for more time"),
    "invite": (
        "the invite was not accepted: it is used, expired or unknown",
        "ask for a new invite: confided invite <name>",
    ),
    "busy": ("the daemon lets no connection of this device in now", "close other sessions, or try again later"),
}


class DeniedError(ConfideError):
    """The daemon's refusal of a device that has proven its key.

    Attributes:
        reason: one of "unknown", "revoked", "disabled", "expired", "invite", "busy", or a word that
            only a newer daemon uses.
        fingerprint: the six words of the device's key (PROTOCOL.md 2.4), "" if not known.
    """

    exit_code = EXIT_DENIED

    def __init__(self, reason: str, fingerprint: str = "", *, hint: str | None = None) -> None:
        sentence, usual_hint = _DENIALS.get(reason, (f"the daemon denies this device ({reason})", None))
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
    """An error answer to a request. The function that handles a request raises it to send it as the
    answer.

    `code`: not_found, invalid, too_large, conflict, busy, denied, locked, storage_full, cancelled,
    unavailable or internal.
    """

    def __init__(self, code: str, message: str, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.code = code
        self.exit_code = _CODE_EXITS.get(code, EXIT_OTHER)

    @classmethod
    def of(cls, error: ConfideError) -> RequestError:
        """Return any error as the answer to a request, with its code, message and hint."""
        return error if isinstance(error, RequestError) else cls(error.code, str(error), error.hint)


class LinkError(ConfideError):
    exit_code = EXIT_UNREACHABLE


class UnreachableError(LinkError):
    """A failure to connect to the address `where`. `problem` says why: refused, no such name, timed
    out, tls.
    """

    def __init__(self, where: str, problem: str, *, hint: str | None = None) -> None:
        super().__init__(f"cannot reach the daemon at {where}: {problem}", hint=hint)
        self.where = where
        self.problem = problem


class ConnectionLost(LinkError):  # noqa: N818 - reads as the event it is, as in websockets' ConnectionClosed
    """The end of a connection. If `truncated` is true, the peer sent no CLOSE, so data that it was
    sending may be incomplete (PROTOCOL.md 7.6). `problem` says why it ended, if that is known.
    """

    def __init__(self, *, truncated: bool, problem: str | None = None) -> None:
        usual = "it broke off without a goodbye" if truncated else "it was closed"
        super().__init__(f"lost the connection: {problem or usual}")
        self.truncated = truncated
        self.problem = problem


class ProtocolViolation(LinkError):  # noqa: N818 - reads as the event it is, as in websockets' ConnectionClosed
    """Data that the protocol forbids, sent by the peer or changed by an attacker. The channel is
    closed afterwards.
    """

    exit_code = EXIT_OTHER


class SealingError(ConfideError):
    exit_code = EXIT_KEYS


class RecordError(SealingError):
    """A sealed record (an encrypted secret) that is malformed or was changed."""


class WrongKeyError(RecordError):
    """A sealed record that was encrypted under another key than the one used to open it."""


class UnknownEpochError(SealingError):
    def __init__(self, epoch: int) -> None:
        hint = "this device has not seen the newest list of devices, or is not on it"
        super().__init__(f"the key of epoch {epoch} is not here", hint=hint)
        self.epoch = epoch


class WrapError(SealingError):
    """A wrapped key (encrypted to one device) that cannot be decrypted, or a key for wrapping that
    is not usable.
    """


class RosterError(SealingError):
    """A list of a space's devices (roster) that fails a check. The roster that this device already
    trusts stays unchanged.
    """


class MalformedEntryError(RosterError):
    """Bytes that are not a valid entry of a roster, the signed list of a space's devices."""


class ForeignEntryError(RosterError):
    """A roster entry that belongs to another space."""


class ReplayedEntryError(RosterError):
    """A roster entry that this device has already received."""


class MissingEntryError(RosterError):
    """A roster in which an entry is missing before a later one, or that has no entries."""


class ForkedRosterError(RosterError):
    """A roster whose history differs from the one that this device has seen."""


class WithheldRosterError(RosterError):
    """A roster that lacks the newest entry this device has seen: the daemon withholds entries."""


class UnknownSignerError(RosterError):
    """A roster entry signed by a key that never belonged to a device of the space."""


class RemovedSignerError(RosterError):
    """A roster entry signed by a device that was already removed from the space."""


class BadSignatureError(RosterError):
    """A signature that is not valid for the key that it names."""


class WrongDeviceError(RosterError):
    """A device that cannot be added to the roster, or cannot be removed from it."""


class WrongEpochError(RosterError):
    """A roster entry with keys of other epochs than the protocol requires."""


class WrongWrapsError(RosterError):
    """A roster entry with keys for other devices than the protocol requires, or in another order."""


class OversizedRosterError(RosterError):
    """A roster with more devices, entries, epochs or bytes than the limits allow."""


class OrderError(SealingError):
    """A signed order for a task (PROTOCOL.md 11) that the runner does not execute."""

    code = "invalid"


class OrderSignerError(OrderError):
    """An order signed by a device that was removed from the space or never was in it."""


class OrderSignatureError(OrderError):
    """An order for another space, or with a signature that does not verify."""


class PairingError(SealingError):
    """A pairing message whose sender has not proven that it holds the pair secret."""


class RecoveryCodeError(SealingError):
    """A typed text that is not a recovery code. The error never contains the text, which is a
    secret.
    """

    exit_code = EXIT_INPUT
