"""What can be wrong with sealed secrets, as a person is told it.

    ConfideError
    └── SealingError
        ├── RecordError            a sealed record is not one, or was changed
        │   └── WrongKeyError           it was sealed under another key than the space's
        ├── UnknownEpochError      the key of that epoch is not here
        ├── WrapError              a wrapped key does not open, or a wrap key cannot be used
        ├── RosterError            the list of a space's devices cannot be believed
        │   ├── MalformedEntryError     bytes that are no entry
        │   ├── ForeignEntryError       an entry of another space
        │   ├── ReplayedEntryError      an entry that is known already
        │   ├── MissingEntryError       there is a gap before it
        │   ├── ForkedRosterError       another history than the one that is known
        │   ├── WithheldRosterError     less than what is known
        │   ├── UnknownSignerError      signed by a key that never was a device
        │   ├── RemovedSignerError      signed by a device that was removed
        │   ├── BadSignatureError       not signed by whom it names
        │   ├── WrongDeviceError        adds or removes a device that cannot be added or removed
        │   ├── WrongEpochError         keys of other epochs than it must carry
        │   ├── WrongWrapsError         keys for other devices than it must carry, or in another order
        │   └── OversizedRosterError    more devices, entries, epochs or bytes than there may be
        ├── PairingError           a machine that would join does not hold the pair secret
        └── RecoveryCodeError      a recovery code, typed by a person, is not one

None of them carries a key, a secret or a code.
"""

from __future__ import annotations

from confide_crypto.errors import EXIT_INPUT, EXIT_KEYS, ConfideError


class SealingError(ConfideError):
    """Something about sealed secrets is not as it must be."""

    exit_code = EXIT_KEYS


class RecordError(SealingError):
    """A sealed record is not one, or was changed."""


class WrongKeyError(RecordError):
    """A record's key commitment is not of the key that it was to be opened with."""


class UnknownEpochError(SealingError):
    """A key of an epoch that this machine does not hold.

    Attributes:
        epoch: its number.
    """

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


class PairingError(SealingError):
    """What came does not show that its sender holds the pair secret."""


class RecoveryCodeError(SealingError):
    """A recovery code, typed by a person, is not one. Never carries the text: it is a secret."""

    exit_code = EXIT_INPUT
